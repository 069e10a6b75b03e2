/* How fast the matrix products of a step are: those that it has, in their own shapes. No data sheet nor benchmark has that number. */
#ifndef MEMPLAN_PLANNER_PRODUCT_RATE_H
#define MEMPLAN_PLANNER_PRODUCT_RATE_H

#include "model/program.h"
#include "planner/machine_speed.h"

/* Products of one micro-batch on one rank of a stage, recomputed ones included; attention's are no part. */
struct product_work {
    double flops, seconds;
};

/* Adds those of the program. */
void product_rate_add(const struct program *program, const struct machine_speed *speed, struct product_work *sum);

#endif
