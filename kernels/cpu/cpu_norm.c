/* LayerNorm and RMSNorm, and their gradients. Rows are independent; a row is read from memory once and its passes run
 * in the cache. The gradients of w and b are summed per thread over a fixed share of the rows, then over the threads in
 * order. */
#include "kernels/cpu/cpu_table.h"

#include "base/arena.h"
#include "base/checked.h"
#include "kernels/cpu/cpu_math.h"

#include <math.h>
#include <stdlib.h>

/* Floats from one row buffer to the next: whole cache lines, so that threads do not share one. */
static int64_t row_stride(int64_t C)
{
    return round_up(C, 16);
}

static float row_mean(const float *x, int64_t C)
{
    float sum = 0;
    for (int64_t i = 0; i < C; i++)
        sum += x[i];
    return sum / (float)C;
}

static float row_variance(const float *x, float mean, int64_t C)
{
    float sum = 0;
    for (int64_t i = 0; i < C; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sum / (float)C;
}

/* All are F32 but args; b and `residual` may be NULL. */
static void norm_row(const struct norm_args *args, int64_t r, const float *x, const float *w, const float *b,
                     const float *residual, float *y)
{
    float mean = args->rms ? 0 : row_mean(x, args->C);
    float rstd = 1 / sqrtf(row_variance(x, mean, args->C) + (float)args->eps);
    if (b)
        for (int64_t i = 0; i < args->C; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + b[i];
    else
        for (int64_t i = 0; i < args->C; i++)
            y[i] = (x[i] - mean) * rstd * w[i];
    if (residual)
        for (int64_t i = 0; i < args->C; i++)
            y[i] += residual[i];
    if (args->mean)
        ((float *)args->mean)[r] = mean;
    ((float *)args->rstd)[r] = rstd;
}

int cpu_norm(const struct kernel_context *ctx, const struct norm_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "norm", err))
        return -1;
    int64_t C = args->C, stride = row_stride(C);
    float *scratch = host_resize(NULL, (size_t)((2 + 3 * ctx->threads) * stride) * sizeof *scratch);
    const float *w = cpu_load_weights(args->dtype, args->w, args->add_one, C, scratch);
    const float *b = args->b ? cpu_load(args->dtype, args->b, 0, C, scratch + stride) : NULL;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t part = 0; part < ctx->threads; part++) {
        float *x_row = scratch + (2 + 3 * part) * stride, *y_row = x_row + stride;
        struct cpu_range rows = cpu_part(args->R, 1, part, ctx->threads);
        for (int64_t r = rows.begin; r < rows.end; r++) {
            float *y = cpu_target(args->dtype, args->y, r * C, y_row);
            const float *residual =
                args->residual ? cpu_load(args->dtype, args->residual, r * C, C, y_row + stride) : NULL;
            norm_row(args, r, cpu_load(args->dtype, args->x, r * C, C, x_row), w, b, residual, y);
            cpu_store(args->dtype, args->y, r * C, C, y);
        }
    }
    free(scratch);
    return 0;
}

/* With n = (x - mean) rstd and g = dy w: dx = rstd (g - average(g) - n average(g n)); without the first average for RMS.
 * dw += dy n, db += dy. */
static void norm_grad_row(const struct norm_grad_args *args, int64_t r, const float *dy, const float *x,
                          const float *w, float *d, float *dw, float *db)
{
    int64_t C = args->C;
    float mean = args->rms ? 0 : ((const float *)args->mean)[r], rstd = ((const float *)args->rstd)[r];
    float sum = 0, sum_n = 0;
    for (int64_t i = 0; i < C; i++) {
        float n = (x[i] - mean) * rstd, g = dy[i] * w[i];
        sum += g;
        sum_n += g * n;
        dw[i] += dy[i] * n;
        db[i] += dy[i];
    }
    float average = args->rms ? 0 : sum / (float)C, average_n = sum_n / (float)C;
    /* d may be dy itself, which only simd says is no obstacle to vectors. */
    if (args->add_d) {
#pragma omp simd
        for (int64_t i = 0; i < C; i++)
            d[i] += rstd * (dy[i] * w[i] - average - (x[i] - mean) * rstd * average_n);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < C; i++)
            d[i] = rstd * (dy[i] * w[i] - average - (x[i] - mean) * rstd * average_n);
    }
}

static void norm_grad_rows(const struct norm_grad_args *args, struct cpu_range rows, const float *w,
                           float *sums, float *scratch)
{
    int64_t C = args->C, stride = row_stride(C);
    for (int64_t r = rows.begin; r < rows.end; r++) {
        const float *dy = cpu_load(args->dtype, args->dy, r * C, C, scratch);
        const float *x = cpu_load(args->dtype, args->x, r * C, C, scratch + stride);
        float *d = cpu_target(args->dtype, args->d, r * C, scratch + 2 * stride);
        if (args->add_d)
            cpu_load(args->dtype, args->d, r * C, C, d);
        norm_grad_row(args, r, dy, x, w, d, sums, sums + stride);
        cpu_store(args->dtype, args->d, r * C, C, d);
    }
}

/* total[i] (+)= the parts' sums, part after part. */
static void add_parts(float *total, bool add, const float *sums, int64_t C, int parts, int64_t part_stride)
{
    if (!add)
        memset(total, 0, (size_t)C * sizeof *total);
    for (int part = 0; part < parts; part++)
        for (int64_t i = 0; i < C; i++)
            total[i] += sums[part * part_stride + i];
}

int cpu_norm_grad(const struct kernel_context *ctx, const struct norm_grad_args *args, struct error *err)
{
    enum { SUMS = 2, BUFFERS = SUMS + 3 };
    if (cpu_check_dtype(args->dtype, "norm_grad", err))
        return -1;
    int64_t stride = row_stride(args->C);
    float *scratch = host_alloc((size_t)((1 + BUFFERS * ctx->threads) * stride) * sizeof *scratch);
    float *parts = scratch + stride;
    const float *w = cpu_load_weights(args->dtype, args->w, args->add_one, args->C, scratch);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t part = 0; part < ctx->threads; part++) {
        float *sums = parts + part * BUFFERS * stride;
        norm_grad_rows(args, cpu_part(args->R, 1, part, ctx->threads), w, sums, sums + SUMS * stride);
    }
    add_parts(args->dw, args->add_w, parts, args->C, ctx->threads, BUFFERS * stride);
    if (args->db)
        add_parts(args->db, args->add_w, parts + stride, args->C, ctx->threads, BUFFERS * stride);
    free(scratch);
    return 0;
}
