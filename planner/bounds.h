/* Bounds that tell, without looking at stages one by one, that a layout cannot be the fastest: its step takes at least so long.
 * From the cheapest to the dearest; each holds for every distribution of layers and every recomputation. */
#ifndef MEMPLAN_PLANNER_BOUNDS_H
#define MEMPLAN_PLANNER_BOUNDS_H

#include "planner/costs.h"

#include <stdint.h>

struct bounds;

/* All borrowed. */
struct bounds *bounds_open(const struct model *model, const struct machine_speed *speed,
                           struct costs_cache *cache);
void bounds_close(struct bounds *bounds); /* NULL is fine */

/* Whatever the schedule, the chunks and ZeRO: the stage with most work has an average share, each micro-batch at least. */
double bounds_of_work(struct bounds *bounds, const struct layout *layout, const struct costs *costs);
/* Bytes that all stages of a replica need together, states sharded or not, and everything recomputed. */
double bounds_of_bytes(struct bounds *bounds, const struct layout *layout, const struct costs *costs);

/* Of one layout, its bubble included. */
double bounds_of_schedule(struct bounds *bounds, const struct layout *layout, const struct costs *costs);
/* Besides, no stage has more bytes than `room`, and recomputes what that takes: options must be there. Infinite when
 * `limit_s` or more, or when no layers fit. */
double bounds_of_layout(struct bounds *bounds, const struct layout *layout, const struct costs *costs,
                        int64_t room, double limit_s);

#endif
