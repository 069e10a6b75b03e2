/* Plans in words, with figures. */
#ifndef MEMPLAN_PLANNER_EXPLANATION_H
#define MEMPLAN_PLANNER_EXPLANATION_H

#include "base/text.h"
#include "planner/search.h"
#include "planner/stage_choice.h"

/* Where the bytes of a stage are at its peak. */
struct search_bytes explanation_bytes(const struct stages *stages, int64_t stage, const struct stage_choice *choice);

/* "dp 8 x tp 4 x pp 8 (interleaved, 12 chunks a stage), micro-batch 2, ZeRO, recompute selective". */
void explanation_plan(const struct search_row *row, struct text *out);
/* Does that tell all of the recomputation, and not only that it is layer by layer? */
bool explanation_has_recompute(const struct search_row *row);
/* "dp 4 x tp 2 x pp 1, micro-batch 2": what a row has that the plan has not; nothing where all is alike. */
void explanation_difference(const struct search_row *plan, const struct search_row *row, struct text *out);
/* The plan, with what the stage needs that needs most: ": stage 3 needs 83.2 GiB of 79.2 GiB: states ...". */
const char *explanation_need(const struct search_request *request, const struct search_row *row, struct arena *arena);

/* The arena's copy of a text, which is freed; and of a row of another search, for a model of so many layers. */
const char *explanation_keep(struct arena *arena, struct text *text);
struct search_row explanation_copy(struct arena *arena, const struct search_row *row, int64_t layers);

#endif
