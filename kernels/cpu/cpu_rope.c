/* Rotary embedding. A thread owns positions: it works out the sines and cosines of a position once, in double, and turns
 * the heads of every sequence with them. */
#include "kernels/cpu/cpu_table.h"

#include "base/arena.h"
#include "kernels/cpu/cpu_math.h"
#include "kernels/cpu/cpu_rope.h"

#include <math.h>
#include <stdlib.h>

double *cpu_rope_frequencies(int64_t D, double theta)
{
    double *frequency = host_alloc((size_t)(D / 2) * sizeof *frequency);
    for (int64_t i = 0; i < D / 2; i++)
        frequency[i] = pow(theta, -2.0 * (double)i / (double)D);
    return frequency;
}

void cpu_rope_angles(const double *frequency, int64_t half, int64_t t, bool inverse, float *cosine,
                     float *sine)
{
    for (int64_t i = 0; i < half; i++) {
        cosine[i] = (float)cos((double)t * frequency[i]);
        sine[i] = (float)sin((double)t * frequency[i]) * (inverse ? -1 : 1);
    }
}

void cpu_rope_turn(int64_t half, float *low, float *high, const float *cosine, const float *sine)
{
    for (int64_t i = 0; i < half; i++) {
        float turned = low[i] * cosine[i] - high[i] * sine[i];
        high[i] = low[i] * sine[i] + high[i] * cosine[i];
        low[i] = turned;
    }
}

/* `scratch` has room for 2 D floats. */
static void turn_position(const struct rope_args *args, int64_t t, const double *frequency, float *scratch)
{
    int64_t D = args->D, size = D - args->unturned, half = size / 2, row = (args->H + 2 * args->K) * D;
    float *cosine = scratch, *sine = cosine + half, *spare = sine + half;
    cpu_rope_angles(frequency, half, t, args->inverse, cosine, sine);
    for (int64_t b = 0; b < args->B; b++)
        for (int64_t h = 0; h < args->H + args->K; h++) {
            int64_t at = (b * args->T + t) * row + h * D;
            float *head = cpu_target(args->dtype, args->qkv, at, spare);
            cpu_load(args->dtype, args->qkv, at, size, head);
            cpu_rope_turn(half, head, head + half, cosine, sine);
            cpu_store(args->dtype, args->qkv, at, size, head);
        }
}

int cpu_rope(const struct kernel_context *ctx, const struct rope_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "rope", err))
        return -1;
    int64_t size = args->D - args->unturned;
    if (size % 2)
        return error_set(err, "rope turns pairs, and a head of size %ld is odd; choose an even head size",
                         (long)size);
    double *frequency = cpu_rope_frequencies(size, args->theta);
#pragma omp parallel num_threads(ctx->threads)
    {
        float *scratch = host_alloc((size_t)(2 * args->D) * sizeof *scratch);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < args->T; t++)
            turn_position(args, t, frequency, scratch);
        free(scratch);
    }
    free(frequency);
    return 0;
}
