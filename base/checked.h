/* Sizes are int64_t and are multiplied and added here, so that an absurd model gives a message and not a wrong number. */
#ifndef MEMPLAN_BASE_CHECKED_H
#define MEMPLAN_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool checked_mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool checked_add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Rounds up to a multiple of `step` (a power of two or not). Caller ensures value + step does not overflow. */
static inline int64_t round_up(int64_t value, int64_t step)
{
    return (value + step - 1) / step * step;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
