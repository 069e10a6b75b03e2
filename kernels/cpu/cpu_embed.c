/* Token and position embedding. In the gradient a thread owns some columns of every row of dwte, and adds the rows in
 * order: no two threads meet, and the sums do not depend on how many there are. */
#include "kernels/cpu/cpu_table.h"

#include "base/checked.h"
#include "kernels/cpu/cpu_math.h"

/* Floats of a cache line: threads' columns border on these. */
enum { LINE = 16 };

static int check_tokens(const int32_t *tokens, int64_t count, int64_t vocabulary, struct error *err)
{
    for (int64_t r = 0; r < count; r++)
        if (tokens[r] < 0 || tokens[r] >= vocabulary)
            return error_set(err, "token %ld is %d, outside the vocabulary of %ld; check the data or --vocab",
                             (long)r, tokens[r], (long)vocabulary);
    return 0;
}

/* Row `index` of a table, or NULL: there is no table, or the row is another rank's. */
static const char *find_row(const void *table, int64_t index, int64_t rows, int64_t row_bytes)
{
    return table && index >= 0 && index < rows ? (const char *)table + index * row_bytes : NULL;
}

/* sum = scale a + b; b may be NULL. */
static void add_rows(const struct embed_args *args, const void *a, const void *b, void *sum)
{
    const enum dtype dtype = args->dtype;
    const float scale = args->scale != 0 ? (float)args->scale : 1;
    for (int64_t at = 0; at < args->C; at += CPU_RUN) {
        float a_scratch[CPU_RUN], b_scratch[CPU_RUN], sum_scratch[CPU_RUN];
        int64_t count = min_i64(CPU_RUN, args->C - at);
        const float *a_run = cpu_load(dtype, a, at, count, a_scratch);
        const float *b_run = b ? cpu_load(dtype, b, at, count, b_scratch) : NULL;
        float *sum_run = cpu_target(dtype, sum, at, sum_scratch);
        for (int64_t i = 0; i < count; i++)
            sum_run[i] = scale * a_run[i] + (b_run ? b_run[i] : 0);
        cpu_store(dtype, sum, at, count, sum_run);
    }
}

static void embed_row(const struct embed_args *args, int64_t r)
{
    int64_t row_bytes = args->C * dtype_bytes(args->dtype);
    const char *token = find_row(args->wte, args->tokens[r] - args->first_token, args->V, row_bytes);
    const char *position = find_row(args->wpe, r % args->T, args->T, row_bytes);
    char *x = (char *)args->x + r * row_bytes;
    if (token && (position || args->scale != 0))
        add_rows(args, token, position, x);
    else if (token || position)
        memcpy(x, token ? token : position, (size_t)row_bytes);
    else
        memset(x, 0, (size_t)row_bytes);
}

int cpu_embed(const struct kernel_context *ctx, const struct embed_args *args, struct error *err)
{
    int64_t R = args->B * args->T;
    if (cpu_check_dtype(args->dtype, "embed", err) || check_tokens(args->tokens, R, args->vocabulary, err))
        return -1;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t r = 0; r < R; r++)
        embed_row(args, r);
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

static void add_run(float *sum, float scale, const float *d, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] += scale * d[i];
}

/* Adds these columns (at most CPU_RUN) of every row of d. */
static void add_columns(const struct embed_grad_args *args, struct cpu_range columns)
{
    int64_t C = args->C, count = columns.end - columns.begin;
    float scratch[CPU_RUN], scale = args->scale != 0 ? (float)args->scale : 1;
    for (int64_t r = 0; r < args->B * args->T; r++) {
        const float *d = cpu_load(args->dtype, args->d, r * C + columns.begin, count, scratch);
        int64_t row = args->tokens[r] - args->first_token;
        if (row >= 0 && row < args->V)
            add_run((float *)args->dwte + row * C + columns.begin, scale, d, count);
        if (args->dwpe)
            add_run((float *)args->dwpe + r % args->T * C + columns.begin, 1, d, count);
    }
}

int cpu_embed_grad(const struct kernel_context *ctx, const struct embed_grad_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "embed_grad", err) ||
        check_tokens(args->tokens, args->B * args->T, args->vocabulary, err))
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
