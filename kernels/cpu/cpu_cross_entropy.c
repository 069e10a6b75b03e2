/* Softmax cross-entropy over the vocabulary, in place. A row is read once to find its log-sum-exp (with a maximum that
 * moves run by run) and once more, from the cache, to become its gradient. */
#include "kernels/cpu/cpu_table.h"

#include "base/arena.h"
#include "base/checked.h"
#include "kernels/cpu/cpu_math.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static int check_targets(const struct cross_entropy_args *args, struct error *err)
{
    for (int64_t r = 0; r < args->R; r++)
        if (args->targets[r] < -1 || args->targets[r] >= args->V)
            return error_set(err, "target %ld is %d, outside [0, %ld) and not -1; check the data", (long)r,
                             args->targets[r], (long)args->V);
    return 0;
}

static float run_max(const float *x, int64_t count)
{
    float max = x[0];
    for (int64_t i = 1; i < count; i++)
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

static float row_log_sum_exp(const struct cross_entropy_args *args, int64_t r)
{
    float max = -FLT_MAX; /* not -INFINITY: a run of those would subtract it from itself */
    double sum = 0;
    for (int64_t at = 0; at < args->V; at += CPU_RUN) {
        float scratch[CPU_RUN];
        int64_t count = min_i64(CPU_RUN, args->V - at);
        const float *x = cpu_load(args->dtype, args->logits, r * args->V + at, count, scratch);
        float higher = run_max(x, count);
        if (higher > max) {
            sum *= exp((double)max - higher);
            max = higher;
        }
        sum += run_exp_sum(x, count, max);
    }
    return max + (float)log(sum);
}

/* logits = scale (softmax - onehot) */
static void row_gradient(const struct cross_entropy_args *args, int64_t r, float log_sum_exp)
{
    int64_t target = args->targets[r];
    float scale = (float)args->scale;
    for (int64_t at = 0; at < args->V; at += CPU_RUN) {
        float scratch[CPU_RUN];
        int64_t count = min_i64(CPU_RUN, args->V - at), start = r * args->V + at;
        float *x = cpu_target(args->dtype, args->logits, start, scratch);
        cpu_load(args->dtype, args->logits, start, count, x);
        for (int64_t i = 0; i < count; i++)
            x[i] = scale * cpu_exp(x[i] - log_sum_exp);
        if (target >= at && target < at + count)
            x[target - at] -= scale;
        cpu_store(args->dtype, args->logits, start, count, x);
    }
}

/* An ignored row: whatever its logits are, even NaN, nothing of them is left. */
static void row_clear(const struct cross_entropy_args *args, int64_t r)
{
    int64_t bytes = args->V * dtype_bytes(args->dtype);
    memset((char *)args->logits + r * bytes, 0, (size_t)bytes);
}

static float row_loss(const struct cross_entropy_args *args, int64_t r)
{
    int64_t target = args->targets[r];
    if (target < 0) {
        if (args->gradient)
            row_clear(args, r);
        return 0;
    }
    float scratch, logit = *cpu_load(args->dtype, args->logits, r * args->V + target, 1, &scratch);
    float log_sum_exp = row_log_sum_exp(args, r);
    if (args->gradient)
        row_gradient(args, r, log_sum_exp);
    return log_sum_exp - logit;
}

int cpu_cross_entropy(const struct kernel_context *ctx, const struct cross_entropy_args *args,
                      struct error *err)
{
    if (cpu_check_dtype(args->dtype, "cross_entropy", err) || check_targets(args, err))
        return -1;
    float *losses = host_alloc((size_t)args->R * sizeof *losses);
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic)
    for (int64_t r = 0; r < args->R; r++)
        losses[r] = row_loss(args, r);
    double total = 0;
    for (int64_t r = 0; r < args->R; r++)
        total += losses[r];
    free(losses);
    float *loss = args->loss;
    *loss = (float)(*loss + args->scale * total);
    return 0;
}
