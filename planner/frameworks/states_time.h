/* What ranks do with parameters besides computing: gather those that are shared out, reduce gradients, update states; each over
 * the ranks that its sharding says. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_STATES_TIME_H
#define MEMPLAN_PLANNER_FRAMEWORKS_STATES_TIME_H

#include "planner/frameworks/layer_time.h"

/* Of one unit in one pass: to gather it, and to reduce its gradients; zeros where that is done once a step, or never. */
struct transfers {
    double gather_s, reduce_s;
};
/* `elements`: what a rank would have if nothing were shared out over dp. */
struct transfers states_time_transfers(const struct pricing *pricing, double elements);

/* Once a step, of one stage. Gradients are reduced and weights gathered, of which the last backward pass, `hiding_s`, may hide
 * some; and the update. */
double states_time_reduced(const struct pricing *pricing, int64_t stage, double hiding_s);
double states_time_optimizer(const struct pricing *pricing, int64_t stage);

/* Whether a layer has experts. */
bool states_time_routes(const struct workload *workload, int64_t layer);

#endif
