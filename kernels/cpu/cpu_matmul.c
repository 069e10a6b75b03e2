/* The linear layer and its two gradients: each is one product, with bias and residual folded into where it starts. */
#include "kernels/cpu/cpu_table.h"

#include "base/checked.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/cpu/cpu_math.h"

static int multiply(const struct cpu_gemm *gemm, enum dtype dtype, enum dtype c_dtype, struct error *err)
{
    return dtype == DTYPE_F32 ? cpu_gemm_f32(gemm, err) : cpu_gemm_bf16(gemm, c_dtype, err);
}

int cpu_matmul(const struct kernel_context *ctx, const struct matmul_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "matmul", err))
        return -1;
    struct cpu_gemm gemm = {.transpose_b = true,
                            .m = args->M,
                            .n = args->N,
                            .k = args->K,
                            .a = args->x,
                            .b = args->w,
                            .start = args->residual,
                            .bias = args->bias,
                            .c = args->y,
                            .threads = ctx->threads};
    return multiply(&gemm, args->dtype, args->dtype, err);
}

int cpu_matmul_dgrad(const struct kernel_context *ctx, const struct matmul_dgrad_args *args,
                     struct error *err)
{
    if (cpu_check_dtype(args->dtype, "matmul_dgrad", err))
        return -1;
    struct cpu_gemm gemm = {.m = args->M,
                            .n = args->K,
                            .k = args->N,
                            .a = args->dy,
                            .b = args->w,
                            .start = args->add ? args->dx : NULL,
                            .c = args->dx,
                            .threads = ctx->threads};
    return multiply(&gemm, args->dtype, args->dtype, err);
}

/* db[columns] (+)= sum over rows of dy, row after row. */
static void sum_rows(const struct matmul_wgrad_args *args, struct cpu_range columns)
{
    float *db = (float *)args->db + columns.begin;
    float scratch[CPU_RUN];
    int64_t count = columns.end - columns.begin;
    if (!args->add)
        memset(db, 0, (size_t)count * sizeof *db);
    for (int64_t r = 0; r < args->M; r++) {
        const float *dy = cpu_load(args->dtype, args->dy, r * args->N + columns.begin, count, scratch);
        for (int64_t j = 0; j < count; j++)
            db[j] += dy[j];
    }
}

int cpu_matmul_wgrad(const struct kernel_context *ctx, const struct matmul_wgrad_args *args,
                     struct error *err)
{
    enum { COLUMNS = 256 };
    if (cpu_check_dtype(args->dtype, "matmul_wgrad", err))
        return -1;
    struct cpu_gemm gemm = {.transpose_a = true,
                            .m = args->N,
                            .n = args->K,
                            .k = args->M,
                            .a = args->dy,
                            .b = args->x,
                            .start = args->add ? args->dw : NULL,
                            .c = args->dw,
                            .threads = ctx->threads};
    if (multiply(&gemm, args->dtype, DTYPE_F32, err))
        return -1;
    if (!args->db)
        return 0;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t column = 0; column < args->N; column += COLUMNS)
        sum_rows(args, (struct cpu_range){column, min_i64(column + COLUMNS, args->N)});
    return 0;
}
