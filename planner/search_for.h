/* The fastest plan that another system runs as it is: with schedules that it has, and recomputation that it can be told of. */
#ifndef MEMPLAN_PLANNER_SEARCH_FOR_H
#define MEMPLAN_PLANNER_SEARCH_FOR_H

#include "planner/export.h"
#include "planner/search.h"

/* What the answer was found with, as a request that explanations can start from. */
struct search_for {
    struct search_request request; /* its schedule and sets are those below */
    enum schedule_kind schedule;
    uint32_t sets[2];
};

/* As search_run() of a request that asks for no sets; one for a schedule that the target has not is an error that names it. *found
 * must not move. */
int search_for_run(const struct search_request *request, enum export_target target, struct search_for *found,
                   struct search_result *out, struct error *err);

#endif
