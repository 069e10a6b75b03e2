/* Measurements in order. */
#ifndef MEMPLAN_BASE_SORT_H
#define MEMPLAN_BASE_SORT_H

#include <stddef.h>

/* The smallest first; those that are no number last. */
void sort_reals(double *values, size_t count);
/* Sorts them, and returns the one in the middle; of an even number the upper of the two, so that it was really measured. 0 of none.
 * It is what reports and the live view call a median too. */
double sort_median(double *values, size_t count);

#endif
