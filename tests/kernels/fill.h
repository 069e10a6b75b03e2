/* Reproducible numbers for the tests of kernels: the same seed gives the same values in every dtype (rounded to it), on
 * every machine. Elements are read back as doubles with element_get(). */
#ifndef MEMPLAN_TESTS_KERNELS_FILL_H
#define MEMPLAN_TESTS_KERNELS_FILL_H

#include "base/arena.h"
#include "kernels/reference/element.h"

#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return mixed ^ mixed >> 31;
}

/* Uniform in [-1, 1): the upper 53 bits, which a double holds exactly. */
static inline double random_uniform(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-52 - 1;
}

static inline void random_fill(uint64_t seed, enum dtype dtype, void *buffer, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        element_set(dtype, buffer, i, random_uniform(&seed));
}

/* `count` fresh random elements; the caller frees them. */
static inline void *random_buffer(uint64_t seed, enum dtype dtype, int64_t count)
{
    void *buffer = host_alloc((size_t)(count * dtype_bytes(dtype)));
    random_fill(seed, dtype, buffer, count);
    return buffer;
}

/* Whole numbers in [0, limit): tokens and targets. */
static inline void random_tokens(uint64_t seed, int32_t *tokens, int64_t count, int64_t limit)
{
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)(random_next(&seed) % (uint64_t)limit);
}

#endif
