/* What the files of calibration.h share. */
#ifndef MEMPLAN_PLANNER_CALIBRATION_PARTS_H
#define MEMPLAN_PLANNER_CALIBRATION_PARTS_H

#include "planner/calibration.h"

/* OP_KINDS when no kind has that name. */
int calibration_kind_find(const char *name);
/* What an operation's time is proportional to. */
double calibration_amount(double flops, double bytes);

void calibration_add_point(struct calibration_kind *kind, const struct calibration_point *point);
void calibration_add_run(struct calibration *calibration, const struct calibration_run *run);

#endif
