/* The optimizer: one pass over weights, gradients and moments, and the norm that clipping needs. Both are bound by
 * memory. */
#include "kernels/cpu/cpu_table.h"

#include "base/arena.h"
#include "base/checked.h"
#include "kernels/cpu/cpu_math.h"

#include <math.h>
#include <stdlib.h>

static double run_square_sum(const float *g, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)g[i] * (double)g[i];
    return sum;
}

int cpu_square_sum(const struct kernel_context *ctx, const struct square_sum_args *args, struct error *err)
{
    enum { BLOCK = 64 * 1024 };
    if (args->dtype != DTYPE_F32)
        return error_set(err,
                         "the CPU kernel square_sum sums F32 and was given %s; use the reference kernels",
                         dtype_name(args->dtype));
    int64_t blocks = (args->count + BLOCK - 1) / BLOCK;
    double *sums = host_alloc((size_t)blocks * sizeof *sums);
    const float *g = args->g;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t block = 0; block < blocks; block++)
        sums[block] = run_square_sum(g + block * BLOCK, min_i64(BLOCK, args->count - block * BLOCK));
    double total = 0;
    for (int64_t block = 0; block < blocks; block++)
        total += sums[block];
    free(sums);
    float *out = args->total;
    *out = (float)(*out + total);
    return 0;
}

/* The constants of one step, worked out in double. */
struct step {
    float clip, beta1, beta2, rest1, rest2; /* rest: 1 - beta */
    float rate, inverse2, eps;              /* rate: lr / (1 - beta1^t); inverse2: 1 / (1 - beta2^t) */
    float keep;                             /* 1 - lr decay */
};

static struct step step_constants(const struct adamw_args *args)
{
    double clip = 1;
    if (args->square_sum && args->max_norm > 0) {
        double ratio = args->max_norm / (sqrt(*(const float *)args->square_sum) + 1e-6);
        clip = ratio < 1 || isnan(ratio) ? ratio : 1;
    }
    return (struct step){.clip = (float)clip,
                         .beta1 = (float)args->beta1,
                         .beta2 = (float)args->beta2,
                         .rest1 = (float)(1 - args->beta1),
                         .rest2 = (float)(1 - args->beta2),
                         .rate = (float)(args->lr / (1 - pow(args->beta1, (double)args->t))),
                         .inverse2 = (float)(1 / (1 - pow(args->beta2, (double)args->t))),
                         .eps = (float)args->eps,
                         .keep = (float)(1 - args->lr * args->decay)};
}

static void adamw_run(const struct step *step, int64_t count, float *restrict w, const float *restrict g,
                      float *restrict m, float *restrict v)
{
    struct step s = *step;
    for (int64_t i = 0; i < count; i++) {
        float gradient = g[i] * s.clip;
        m[i] = s.beta1 * m[i] + s.rest1 * gradient;
        v[i] = s.beta2 * v[i] + s.rest2 * gradient * gradient;
        w[i] = s.keep * w[i] - s.rate * m[i] / (sqrtf(v[i] * s.inverse2) + s.eps);
    }
}

int cpu_adamw(const struct kernel_context *ctx, const struct adamw_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "adamw", err))
        return -1;
    if (args->t < 1)
        return error_set(err, "adamw counts steps from 1 and was given step %ld; count from 1",
                         (long)args->t);
    struct step step = step_constants(args);
    const float *g = args->g;
    float *m = args->m, *v = args->v, *master = args->master;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < args->count; at += CPU_RUN) {
        float scratch[CPU_RUN];
        int64_t count = min_i64(CPU_RUN, args->count - at);
        float *w = master ? master + at : cpu_target(args->dtype, args->w, at, scratch);
        if (!master)
            cpu_load(args->dtype, args->w, at, count, w);
        adamw_run(&step, count, w, g + at, m + at, v + at);
        cpu_store(args->dtype, args->w, at, count, w);
    }
    return 0;
}
