/* Softmax cross-entropy over the vocabulary, in place. A row is read once to find its log-sum-exp (with a maximum that
 * moves run by run) and once more, from the cache, to become its gradient. When ranks share the columns, all must agree
 * on the maximum and then on the sum in between, so a row is read three times. */
#include "kernels/cpu/cpu_table.h"

#include "base/arena.h"
#include "base/checked.h"
#include "kernels/cpu/cpu_math.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static int check_shard(const struct logit_shard *shard, const char *kernel, struct error *err)
{
    if (cpu_check_dtype(shard->dtype, kernel, err))
        return -1;
    if (shard->valid < 0 || shard->valid > shard->V ||
        (shard->valid > 0 && shard->first_column + shard->valid > shard->vocabulary))
        return error_set(err,
                         "%s: %ld valid columns from %ld on exceed the %ld held or the vocabulary of %ld; "
                         "count only the real tokens of this rank",
                         kernel, (long)shard->valid, (long)shard->first_column, (long)shard->V,
                         (long)shard->vocabulary);
    for (int64_t r = 0; r < shard->R; r++)
        if (shard->targets[r] < -1 || shard->targets[r] >= shard->vocabulary)
            return error_set(err, "target %ld is %d, outside [0, %ld) and not -1; check the data", (long)r,
                             shard->targets[r], (long)shard->vocabulary);
    return 0;
}

static float run_max(const float *x, int64_t count)
{
    float max = -INFINITY; /* stays below NaN, which the sum will show */
    for (int64_t i = 0; i < count; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static float run_exp_sum(const float *x, int64_t count, float max)
{
    float sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += cpu_exp(x[i] - max);
    return sum;
}

/* Columns from `at` on, of the valid ones: as many as fit a run. */
static int64_t run_length(const struct logit_shard *shard, int64_t at)
{
    return min_i64(CPU_RUN, shard->valid - at);
}

static const float *load_run(const struct logit_shard *shard, int64_t r, int64_t at, float *scratch)
{
    return cpu_load(shard->dtype, shard->logits, r * shard->V + at, run_length(shard, at), scratch);
}

static float row_log_sum_exp(const struct logit_shard *shard, int64_t r)
{
    float max = -FLT_MAX; /* not -INFINITY: a run of those would subtract it from itself */
    double sum = 0;
    for (int64_t at = 0; at < shard->valid; at += CPU_RUN) {
        float scratch[CPU_RUN];
        int64_t count = run_length(shard, at);
        const float *x = load_run(shard, r, at, scratch);
        float higher = run_max(x, count);
        if (higher > max) {
            sum *= exp((double)max - higher);
            max = higher;
        }
        sum += run_exp_sum(x, count, max);
    }
    return max + (float)log(sum);
}

static float row_max(const struct logit_shard *shard, int64_t r)
{
    float max = -INFINITY;
    for (int64_t at = 0; at < shard->valid; at += CPU_RUN) {
        float scratch[CPU_RUN];
        float higher = run_max(load_run(shard, r, at, scratch), run_length(shard, at));
        max = higher > max ? higher : max;
    }
    return max;
}

static float row_sum(const struct logit_shard *shard, int64_t r, float max)
{
    double sum = 0;
    for (int64_t at = 0; at < shard->valid; at += CPU_RUN) {
        float scratch[CPU_RUN];
        sum += run_exp_sum(load_run(shard, r, at, scratch), run_length(shard, at), max);
    }
    return (float)sum;
}

/* The target's logit less `above`, or 0 when another rank has the target. */
static float row_target(const struct logit_shard *shard, int64_t r, float above)
{
    int64_t column = shard->targets[r] - shard->first_column;
    float scratch;
    if (column < 0 || column >= shard->valid)
        return 0;
    return *cpu_load(shard->dtype, shard->logits, r * shard->V + column, 1, &scratch) - above;
}

/* Whatever these logits are, even NaN, nothing of them is left. */
static void row_clear(const struct logit_shard *shard, int64_t r, int64_t from)
{
    int64_t bytes = dtype_bytes(shard->dtype);
    memset((char *)shard->logits + (r * shard->V + from) * bytes, 0, (size_t)((shard->V - from) * bytes));
}

/* logits = scale (softmax - onehot), and 0 in the padding */
static void row_gradient(const struct logit_shard *shard, int64_t r, float scale, float log_sum_exp)
{
    int64_t target = shard->targets[r] - shard->first_column;
    for (int64_t at = 0; at < shard->valid; at += CPU_RUN) {
        float scratch[CPU_RUN];
        int64_t count = run_length(shard, at), start = r * shard->V + at;
        float *x = cpu_target(shard->dtype, shard->logits, start, scratch);
        cpu_load(shard->dtype, shard->logits, start, count, x);
        for (int64_t i = 0; i < count; i++)
            x[i] = scale * cpu_exp(x[i] - log_sum_exp);
        if (target >= at && target < at + count)
            x[target - at] -= scale;
        cpu_store(shard->dtype, shard->logits, start, count, x);
    }
    row_clear(shard, r, shard->valid);
}

static float row_loss(const struct logit_shard *shard, int64_t r, float scale, bool gradient)
{
    if (shard->targets[r] < 0) {
        if (gradient)
            row_clear(shard, r, 0);
        return 0;
    }
    float log_sum_exp = row_log_sum_exp(shard, r), loss = -row_target(shard, r, log_sum_exp);
    if (gradient)
        row_gradient(shard, r, scale, log_sum_exp);
    return loss;
}

int cpu_cross_entropy(const struct kernel_context *ctx, const struct cross_entropy_args *args,
                      struct error *err)
{
    const struct logit_shard whole = {.R = args->R,
                                      .V = args->V,
                                      .valid = args->V,
                                      .vocabulary = args->V,
                                      .dtype = args->dtype,
                                      .logits = args->logits,
                                      .targets = args->targets};
    if (check_shard(&whole, "cross_entropy", err))
        return -1;
    float *losses = host_alloc((size_t)args->R * sizeof *losses);
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic)
    for (int64_t r = 0; r < args->R; r++)
        losses[r] = row_loss(&whole, r, (float)args->scale, args->gradient);
    double total = 0;
    for (int64_t r = 0; r < args->R; r++)
        total += losses[r];
    free(losses);
    float *loss = args->loss;
    *loss = (float)(*loss + args->scale * total);
    return 0;
}

int cpu_logit_max(const struct kernel_context *ctx, const struct logit_max_args *args, struct error *err)
{
    const struct logit_shard *shard = &args->shard;
    if (check_shard(shard, "logit_max", err))
        return -1;
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic)
    for (int64_t r = 0; r < shard->R; r++)
        ((float *)args->max)[r] = shard->targets[r] < 0 ? -INFINITY : row_max(shard, r);
    return 0;
}

int cpu_logit_sums(const struct kernel_context *ctx, const struct logit_sums_args *args, struct error *err)
{
    const struct logit_shard *shard = &args->shard;
    if (check_shard(shard, "logit_sums", err))
        return -1;
    const float *max = args->max;
    float *sums = args->sums, *targets = sums + shard->R;
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic)
    for (int64_t r = 0; r < shard->R; r++) {
        bool ignored = shard->targets[r] < 0;
        sums[r] = ignored ? 0 : row_sum(shard, r, max[r]);
        targets[r] = ignored ? 0 : row_target(shard, r, max[r]);
    }
    return 0;
}

static void sharded_gradient(const struct kernel_context *ctx, const struct cross_entropy_sharded_args *args)
{
    const struct logit_shard *shard = &args->shard;
    const float *max = args->max, *sums = args->sums;
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic)
    for (int64_t r = 0; r < shard->R; r++)
        if (shard->targets[r] < 0)
            row_clear(shard, r, 0);
        else
            row_gradient(shard, r, (float)args->scale, max[r] + (float)log(sums[r]));
}

int cpu_cross_entropy_sharded(const struct kernel_context *ctx, const struct cross_entropy_sharded_args *args,
                              struct error *err)
{
    const struct logit_shard *shard = &args->shard;
    if (check_shard(shard, "cross_entropy_sharded", err))
        return -1;
    const float *sums = args->sums, *targets = sums + shard->R;
    double total = 0;
    for (int64_t r = 0; r < shard->R; r++)
        total += shard->targets[r] < 0 ? 0 : log(sums[r]) - targets[r];
    float *loss = args->loss;
    *loss = (float)(*loss + args->scale * total);
    if (args->gradient)
        sharded_gradient(ctx, args);
    return 0;
}
