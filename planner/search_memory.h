/* What searches for the same model, on nodes of the same kinds at the same speeds, need not work out again: what parts of a step
 * cost, by the speed and by the sets that layers may drop. Answers are the same without. */
#ifndef MEMPLAN_PLANNER_SEARCH_MEMORY_H
#define MEMPLAN_PLANNER_SEARCH_MEMORY_H

#include "planner/costs.h"
#include "planner/search.h"
#include "planner/siting.h"

struct search_memory;

/* Borrows the request's model and speeds. */
struct search_memory *search_memory_open(const struct search_request *request);
void search_memory_close(struct search_memory *memory); /* NULL is fine */

/* It owns what comes back: the speed of a site, and what parts of the request's plans cost at a speed, which is the request's or of
 * a site. */
const struct machine_speed *search_memory_speed(struct search_memory *memory, const struct stage_site *site);
struct costs_cache *search_memory_costs(struct search_memory *memory, const struct search_request *request,
                                        const struct machine_speed *speed);

#endif
