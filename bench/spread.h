/* Median and range of measured values, for all benchmarks. */
#ifndef MEMPLAN_BENCH_SPREAD_H
#define MEMPLAN_BENCH_SPREAD_H

#include <stdlib.h>
#include <string.h>

enum { SPREAD_MOST = 256 };

struct spread {
    double median, least, most;
};

static inline int spread_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Of up to SPREAD_MOST values, and at least one. */
static inline struct spread spread_of(const double *values, int count)
{
    double sorted[SPREAD_MOST];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, spread_by_value);
    return (struct spread){sorted[count / 2], sorted[0], sorted[count - 1]};
}

#endif
