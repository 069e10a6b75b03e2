/* Why a plan, and why not another: in words, with figures. */
#ifndef MEMPLAN_PLANNER_EXPLANATION_H
#define MEMPLAN_PLANNER_EXPLANATION_H

#include "base/text.h"
#include "planner/search.h"
#include "planner/stages.h"

/* Where the bytes of a stage are at its peak. */
struct search_bytes explanation_bytes(const struct stages *stages, int64_t stage, int64_t layers, const int *options);

/* "8 data-parallel x 4 tensor-parallel ranks x 8 stages (interleaved, 12 chunks each), micro-batches of 2, ...". */
void explanation_plan(const struct search_row *row, struct text *out);

/* Fills result->rejected: for each way to be different (other tensor-parallel ranks, stages, micro-batches, schedules, ZeRO,
 * sequence parallelism) the best that it has, and the first reason why that is not the plan. Searches each anew, with that
 * one thing given. */
int explanation_families(const struct search_request *request, struct search_result *result, struct error *err);

/* What one change would unlock: "with 4.00 GiB more per rank: ..., 3.1% faster". Nothing where nothing would. */
int explanation_unlocks(const struct search_request *request, const struct search_result *result, struct text *out,
                        struct error *err);

/* When there is no plan: fills result->rejected with the configuration that comes nearest, and short_bytes, enough_bytes and
 * enough_nodes; *out says it in words. */
int explanation_refusal(const struct search_request *request, struct search_result *result, struct text *out,
                        struct error *err);

#endif
