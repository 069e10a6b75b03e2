/* A tensor's dimensions read as those of a matrix: the last one is its columns, all before it its rows. */
#ifndef MEMPLAN_MODEL_DIMS_H
#define MEMPLAN_MODEL_DIMS_H

#include <stdint.h>

enum { TENSOR_DIMS = 4 }; /* unused ones are 0, and follow those in use */

/* Of (B, T, C): C. */
static inline int64_t dims_columns(const int64_t dims[TENSOR_DIMS])
{
    return dims[2] ? dims[2] : dims[1] ? dims[1] : dims[0];
}

/* Of (B, T, C): B * T, which is no more than the tensor's bytes and so fits. */
static inline int64_t dims_rows(const int64_t dims[TENSOR_DIMS])
{
    return dims[0] * (dims[2] ? dims[1] : 1);
}

#endif
