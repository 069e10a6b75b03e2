/* Why a plan, and not another. */
#ifndef MEMPLAN_PLANNER_FAMILIES_H
#define MEMPLAN_PLANNER_FAMILIES_H

#include "planner/search.h"

/* Fills result->rejected: for each way to be different (other tensor-parallel ranks, stages, micro-batches, schedules, ZeRO,
 * sequence parallelism) the best that it has, and the first reason why that is not the plan. Searches each anew, with that
 * one thing given. */
int families_explain(const struct search_request *request, struct search_result *result, struct error *err);

#endif
