/* What waits in host memory costs time: weights, gradients and inputs of layers go over the card's link to the host, and the
 * processor runs the optimizer. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_HOST_TIME_H
#define MEMPLAN_PLANNER_FRAMEWORKS_HOST_TIME_H

#include "planner/frameworks/layer_time.h"

/* Seconds for so many bytes one way; ranks have a link each. */
double host_time_moved(double bytes);
/* Seconds of Adam's update of `elements` on this rank, beside that of the other ranks of its node; and of other optimizers by as much. */
double host_time_update(const struct pricing *pricing, double elements);

#endif
