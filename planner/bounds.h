/* Bounds that tell, without looking at stages one by one, that a layout cannot be the fastest: its step takes at least so long.
 * From the cheapest to the dearest; each holds for every distribution of layers and every recomputation. */
#ifndef MEMPLAN_PLANNER_BOUNDS_H
#define MEMPLAN_PLANNER_BOUNDS_H

#include "planner/stages.h"

#include <stdint.h>

struct bounds;

/* All borrowed. */
struct bounds *bounds_open(const struct model *model);
void bounds_close(struct bounds *bounds); /* NULL is fine */

/* The stages of a layout, as they stand. Costs are at least those of the layout's own schedule without recomputation. */
struct bounds_question {
    const struct layout *layout;
    const struct stage_ground *grounds;
    int ground_count;
    bool any_order; /* of the grounds: only bounds_of_work() can say something then */
    enum larger_chunks larger; /* what is said of larger ones that are the last holds without any and for the first, too */
};

/* Of one layer and micro-batch, without recomputation. */
double bounds_layer_seconds(const struct stage_ground *ground);

/* Whatever the schedule, the chunks and ZeRO: the stage with most work for its speed has an average share, each micro-batch at
 * least. */
double bounds_of_work(struct bounds *bounds, const struct bounds_question *question);
/* Bytes that all stages of a replica need together, states sharded or not, and everything recomputed. */
double bounds_of_bytes(struct bounds *bounds, const struct layout *layout, const struct costs *costs);

/* What is left to do when all have met, of the stage with most layers. */
double bounds_after(struct bounds *bounds, const struct bounds_question *question);
/* Of one layout, by the stage with most layers. */
double bounds_of_fullest(struct bounds *bounds, const struct bounds_question *question);
/* Its bubble included. */
double bounds_of_schedule(struct bounds *bounds, const struct bounds_question *question);
/* Besides, no stage has more bytes than its room, and recomputes what that takes: options must be there. Infinite when
 * `limit_s` or more, or when no layers fit. */
double bounds_of_layout(struct bounds *bounds, const struct bounds_question *question, double limit_s);

#endif
