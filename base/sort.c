#include "base/sort.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return isnan(x) || isnan(y) ? !!isnan(x) - !!isnan(y) : (x > y) - (x < y);
}

void sort_reals(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
}

double sort_median(double *values, size_t count)
{
    sort_reals(values, count);
    return count ? values[count / 2] : 0;
}
