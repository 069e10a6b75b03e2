/* What comes nearest to fitting where nothing does: of the layouts that need least, placed on the cluster in each way, the one whose
 * worst stage is short of least. */
#ifndef MEMPLAN_PLANNER_NEAREST_H
#define MEMPLAN_PLANNER_NEAREST_H

#include "planner/search.h"

/* *out is built, with its needs as built and its reason in words, in the arena. *found is false when the request has no layout at
 * all. */
int nearest_find(const struct search_request *request, struct arena *arena, struct search_row *out, bool *found,
                 struct error *err);

/* The same, but not built where its peak by itself has no room: then it needs what is said at least, and its time is 0. */
int nearest_weigh(const struct search_request *request, struct arena *arena, struct search_row *out, bool *found,
                  struct error *err);

#endif
