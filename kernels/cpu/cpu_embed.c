/* Token and position embedding. In the gradient a thread owns some columns of every row of dwte, and adds the rows in
 * order: no two threads meet, and the sums do not depend on how many there are. */
#include "kernels/cpu/cpu_table.h"

#include "base/checked.h"
#include "kernels/cpu/cpu_math.h"

/* Floats of a cache line: threads' columns border on these. */
enum { LINE = 16 };

static int check_tokens(const int32_t *tokens, int64_t count, int64_t V, struct error *err)
{
    for (int64_t r = 0; r < count; r++)
        if (tokens[r] < 0 || tokens[r] >= V)
            return error_set(err, "token %ld is %d, outside the vocabulary of %ld; check the data or --vocab",
                             (long)r, tokens[r], (long)V);
    return 0;
}

static void embed_row(const struct embed_args *args, int64_t r)
{
    int64_t C = args->C, token = args->tokens[r], t = r % args->T;
    for (int64_t at = 0; at < C; at += CPU_RUN) {
        float scratch[CPU_RUN], position_scratch[CPU_RUN], x_scratch[CPU_RUN];
        int64_t count = min_i64(CPU_RUN, C - at);
        const float *wte = cpu_load(args->dtype, args->wte, token * C + at, count, scratch);
        const float *wpe = cpu_load(args->dtype, args->wpe, t * C + at, count, position_scratch);
        float *x = cpu_target(args->dtype, args->x, r * C + at, x_scratch);
        for (int64_t i = 0; i < count; i++)
            x[i] = wte[i] + wpe[i];
        cpu_store(args->dtype, args->x, r * C + at, count, x);
    }
}

int cpu_embed(const struct kernel_context *ctx, const struct embed_args *args, struct error *err)
{
    int64_t R = args->B * args->T, row_bytes = args->C * dtype_bytes(args->dtype);
    if (cpu_check_dtype(args->dtype, "embed", err) || check_tokens(args->tokens, R, args->V, err))
        return -1;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t r = 0; r < R; r++)
        if (args->wpe)
            embed_row(args, r);
        else
            memcpy((char *)args->x + r * row_bytes, (const char *)args->wte + args->tokens[r] * row_bytes,
                   (size_t)row_bytes);
    return 0;
}

static void clear(const struct kernel_context *ctx, float *values, int64_t count)
{
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t part = 0; part < ctx->threads; part++) {
        struct cpu_range range = cpu_part(count, LINE, part, ctx->threads);
        memset(values + range.begin, 0, (size_t)(range.end - range.begin) * sizeof *values);
    }
}

static void add_run(float *sum, const float *d, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] += d[i];
}

/* Adds these columns (at most CPU_RUN) of every row of d. */
static void add_columns(const struct embed_grad_args *args, struct cpu_range columns)
{
    int64_t C = args->C, count = columns.end - columns.begin;
    float scratch[CPU_RUN];
    for (int64_t r = 0; r < args->B * args->T; r++) {
        const float *d = cpu_load(args->dtype, args->d, r * C + columns.begin, count, scratch);
        add_run((float *)args->dwte + args->tokens[r] * C + columns.begin, d, count);
        if (args->dwpe)
            add_run((float *)args->dwpe + r % args->T * C + columns.begin, d, count);
    }
}

int cpu_embed_grad(const struct kernel_context *ctx, const struct embed_grad_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "embed_grad", err) ||
        check_tokens(args->tokens, args->B * args->T, args->V, err))
        return -1;
    if (args->dwpe && args->positions < args->T)
        return error_set(err,
                         "%ld position embeddings are too few for sequences of %ld tokens; use shorter ones",
                         (long)args->positions, (long)args->T);
    if (!args->add_wte)
        clear(ctx, args->dwte, args->V * args->C);
    if (args->dwpe && !args->add_wpe)
        clear(ctx, args->dwpe, args->positions * args->C);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t part = 0; part < ctx->threads; part++) {
        struct cpu_range columns = cpu_part(args->C, LINE, part, ctx->threads);
        for (int64_t at = columns.begin; at < columns.end; at += CPU_RUN)
            add_columns(args, (struct cpu_range){at, min_i64(at + CPU_RUN, columns.end)});
    }
    return 0;
}
