/* What one micro-batch takes in a layer and at the ends of the model: matrix products and attention by shape, the kernels of
 * kernel_rules.h by their bytes, what tensor-, context- and expert-parallel ranks exchange. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_LAYER_TIME_H
#define MEMPLAN_PLANNER_FRAMEWORKS_LAYER_TIME_H

#include "planner/frameworks/workload_time.h"

/* Two clocks run side by side: seconds of kernels on the card, and how many operations the processor launches for them. */
struct clocks {
    double card_s;
    double operations;
};

struct passes {
    struct clocks forward, backward; /* `backward` without gradients of weights */
    struct clocks weight;
    struct clocks again; /* what is recomputed before backward */
};

struct pricing {
    const struct workload *w;
    const struct workload_habits *habits;
    const struct machine_speed *speed;
    int64_t ranks;
    double tokens; /* of a micro-batch on this rank, before tensor parallelism */
};

/* Does each operation wait to be launched from Python? */
bool layer_time_is_pytorch(const struct workload *workload);

void clocks_add(struct clocks *clocks, struct clocks more);
void passes_add(struct passes *passes, const struct passes *more);

/* Of one micro-batch: of layer `layer` of the model, of its embedding, of its head and the loss. */
struct passes layer_time(const struct pricing *pricing, int64_t layer);
struct passes layer_time_embedding(const struct pricing *pricing);
struct passes layer_time_head(const struct pricing *pricing);

/* So many kernels that move so many bytes together. */
struct clocks layer_time_moved(const struct pricing *pricing, double kernels, double bytes);
/* Seconds of a collective over `group` of a vector of `bytes`: whole (all-reduce), or one way only (gather, scatter). */
double layer_time_collective(const struct pricing *pricing, struct work_group group, double bytes, bool one_way);

#endif
