/* What the fast kernels share: reading and writing F32 or BF16 runs as F32, splitting work over threads, and an
 * exponential that the compiler can vectorise.
 *
 * A kernel is written once, for F32: cpu_load() hands out the values themselves when they are F32 and converts a short
 * run into scratch when they are BF16; cpu_target() and cpu_store() do the same for what is written. */
#ifndef MEMPLAN_KERNELS_CPU_MATH_H
#define MEMPLAN_KERNELS_CPU_MATH_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Elements of a run: a few of them fit the first-level cache together. */
enum { CPU_RUN = 1024 };

/* A part of [0, count). */
struct cpu_range {
    int64_t begin, end;
};

/* Part `index` of `parts`, with borders at multiples of `grain`. */
static inline struct cpu_range cpu_part(int64_t count, int64_t grain, int64_t index, int64_t parts)
{
    int64_t grains = (count + grain - 1) / grain;
    int64_t begin = grains * index / parts * grain, end = grains * (index + 1) / parts * grain;
    return (struct cpu_range){begin < count ? begin : count, end < count ? end : count};
}

static inline int cpu_check_dtype(enum dtype dtype, const char *kernel, struct error *err)
{
    if (dtype == DTYPE_F32 || dtype == DTYPE_BF16)
        return 0;
    return error_set(err, "the CPU kernel %s has no %s form; use F32 or BF16, or the reference kernels", kernel,
                     dtype_name(dtype));
}

/* Elements [at, at + count) of `base` as floats: in place, or converted into `scratch`. */
static inline const float *cpu_load(enum dtype dtype, const void *base, int64_t at, int64_t count, float *scratch)
{
    if (dtype == DTYPE_F32)
        return (const float *)base + at;
    const uint16_t *half = (const uint16_t *)base + at;
    for (int64_t i = 0; i < count; i++)
        scratch[i] = bf16_to_f32(half[i]);
    return scratch;
}

/* Where to compute elements that cpu_store() then puts at base[at...]: the place itself, or `scratch`. */
static inline float *cpu_target(enum dtype dtype, void *base, int64_t at, float *scratch)
{
    return dtype == DTYPE_F32 ? (float *)base + at : scratch;
}

static inline void cpu_store(enum dtype dtype, void *base, int64_t at, int64_t count, const float *values)
{
    if (dtype == DTYPE_F32) {
        float *place = (float *)base + at;
        if (place != values)
            memcpy(place, values, (size_t)count * sizeof *place);
        return;
    }
    uint16_t *half = (uint16_t *)base + at;
    for (int64_t i = 0; i < count; i++)
        half[i] = f32_to_bf16(values[i]);
}

/* The weights of a norm as floats, in `scratch` or in place; with add_one 1 more. */
static inline const float *cpu_load_weights(enum dtype dtype, const void *w, bool add_one, int64_t count, float *scratch)
{
    const float *values = cpu_load(dtype, w, 0, count, scratch);
    if (!add_one)
        return values;
    for (int64_t i = 0; i < count; i++)
        scratch[i] = values[i] + 1;
    return scratch;
}

/* e^x for x <= 88, relatively within 4e-7 of the true value (4e-6 on processors without a fused multiply-add). Below -70 it
 * stays at e^-70 = 4e-31: too small for any sum of probabilities to feel, and large enough that products with it stay clear
 * of denormals, which are slow.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r is its Taylor polynomial (the next term is below 1.2e-7) and 2^n is added to
 * the exponent bits. NaN stays NaN. */
static inline float cpu_exp(float x)
{
    const float log2_e = 1.44269504f, ln_2 = 0.693147181f;
    float bounded = x < -70.0f ? -70.0f : x;
    float n = __builtin_rintf(bounded * log2_e);
    float r = bounded - n * ln_2;
    float power = 1.0f / 720;
    power = power * r + 1.0f / 120;
    power = power * r + 1.0f / 24;
    power = power * r + 1.0f / 6;
    power = power * r + 0.5f;
    power = power * r + 1.0f;
    power = power * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &power, sizeof bits);
    bits += (uint32_t)(int32_t)n << 23;
    memcpy(&power, &bits, sizeof bits);
    return power;
}

#endif
