/* Residual and bias added to a product that was summed over ranks: one pass, rounded once. */
#include "kernels/cpu/cpu_table.h"

#include "base/checked.h"
#include "kernels/cpu/cpu_math.h"

static void add_run(float *sum, const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] += values[i];
}

int cpu_residual(const struct kernel_context *ctx, const struct residual_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "residual", err))
        return -1;
    int64_t C = args->C;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t r = 0; r < args->R; r++)
        for (int64_t at = 0; at < C; at += CPU_RUN) {
            float scratch[CPU_RUN], y_run[CPU_RUN];
            int64_t count = min_i64(CPU_RUN, C - at), start = r * C + at;
            float *y = cpu_target(args->dtype, args->y, start, y_run);
            cpu_load(args->dtype, args->y, start, count, y);
            add_run(y, cpu_load(args->dtype, args->residual, start, count, scratch), count);
            if (args->bias)
                add_run(y, cpu_load(args->dtype, args->bias, at, count, scratch), count);
            cpu_store(args->dtype, args->y, start, count, y);
        }
    return 0;
}
