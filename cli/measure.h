/* The machine's own speed, measured in a third of a second with the kernels that training uses. */
#ifndef MEMPLAN_CLI_MEASURE_H
#define MEMPLAN_CLI_MEASURE_H

#include "planner/machine_speed.h"

/* Replaces the nominal rates in *speed by measured ones, for all cores together. */
int measure_speed(struct machine_speed *speed, struct error *err);

#endif
