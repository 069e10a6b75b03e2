/* One element of a matrix, whatever its dtype. The reference kernels compute in double and touch memory only through these
 * helpers, so that a formula is written once for F32, BF16 and F64. */
#ifndef MEMPLAN_KERNELS_REFERENCE_ELEMENT_H
#define MEMPLAN_KERNELS_REFERENCE_ELEMENT_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

static inline double element_get(enum dtype dtype, const void *base, int64_t index)
{
    if (dtype == DTYPE_F64)
        return ((const double *)base)[index];
    if (dtype == DTYPE_F32)
        return ((const float *)base)[index];
    return bf16_to_f32(((const uint16_t *)base)[index]);
}

static inline void element_set(enum dtype dtype, void *base, int64_t index, double value)
{
    if (dtype == DTYPE_F64)
        ((double *)base)[index] = value;
    else if (dtype == DTYPE_F32)
        ((float *)base)[index] = (float)value;
    else
        ((uint16_t *)base)[index] = f32_to_bf16((float)value);
}

/* Stores `value`, or adds it to what is there (the `add` of kernels.h). */
static inline void element_put(enum dtype dtype, void *base, int64_t index, double value, bool add)
{
    element_set(dtype, base, index, add ? element_get(dtype, base, index) + value : value);
}

/* The type of parameter gradients, statistics and optimizer states beside activations of `dtype`. */
static inline enum dtype element_wide(enum dtype dtype)
{
    return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

#endif
