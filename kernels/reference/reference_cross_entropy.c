/* The loss of next-token prediction and its gradient, which takes the place of the logits: at real vocabularies the
 * logits are the largest activation, and a second copy would double it. The same sums are made over all columns at once,
 * or over each rank's columns and then over ranks (as Megatron-LM does: Shoeybi et al. 2019, arXiv:1909.08053, section 3). */
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

#include <inttypes.h>
#include <math.h>

enum { IGNORED = -1 };

/* Looks at everything before anything is written. */
static int check_shard(const char *operation, const struct logit_shard *shard, struct error *err)
{
    if (reference_check_dtype(operation, shard->dtype, err))
        return -1;
    if (shard->valid < 0 || shard->valid > shard->V ||
        (shard->valid > 0 && shard->first_column + shard->valid > shard->vocabulary))
        return error_set(err,
                         "%s: %" PRId64 " valid columns from %" PRId64 " on exceed the %" PRId64
                         " held or the vocabulary of %" PRId64 "; count only the real tokens of this rank",
                         operation, shard->valid, shard->first_column, shard->V, shard->vocabulary);
    for (int64_t r = 0; r < shard->R; r++)
        if (shard->targets[r] != IGNORED && (shard->targets[r] < 0 || shard->targets[r] >= shard->vocabulary))
            return error_set(err,
                             "%s: target %" PRId32 " in row %" PRId64 " is outside [0, %" PRId64
                             "); use labels below the number of classes, or -1 to ignore a row",
                             operation, shard->targets[r], r, shard->vocabulary);
    return 0;
}

static double logit_at(const struct logit_shard *shard, int64_t r, int64_t v)
{
    return element_get(shard->dtype, shard->logits, r * shard->V + v);
}

static double row_max(const struct logit_shard *shard, int64_t r)
{
    double largest = -INFINITY;
    for (int64_t v = 0; v < shard->valid; v++)
        largest = fmax(largest, logit_at(shard, r, v));
    return largest;
}

/* sum over v of exp(logits[v] - max): with the largest logit taken out exp() cannot overflow. */
static double row_sum(const struct logit_shard *shard, int64_t r, double max)
{
    double sum = 0;
    for (int64_t v = 0; v < shard->valid; v++)
        sum += exp(logit_at(shard, r, v) - max);
    return sum;
}

/* logits[target] - max, or 0 when another rank has the target */
static double row_target(const struct logit_shard *shard, int64_t r, double max)
{
    int64_t v = shard->targets[r] - shard->first_column;
    return v >= 0 && v < shard->valid ? logit_at(shard, r, v) - max : 0;
}

/* scale * (softmax(logits) - onehot(target)); zero for an ignored row and in columns that are no tokens */
static void row_grad(const struct logit_shard *shard, int64_t r, double log_sum_exp, double scale)
{
    for (int64_t v = 0; v < shard->V; v++) {
        double onehot = shard->first_column + v == shard->targets[r], grad = 0;
        if (shard->targets[r] != IGNORED && v < shard->valid)
            grad = scale * (exp(logit_at(shard, r, v) - log_sum_exp) - onehot);
        element_set(shard->dtype, shard->logits, r * shard->V + v, grad);
    }
}

/* loss += scale * sum over rows of (log-sum-exp(logits) - logits[target]): one rank holds every column */
int reference_cross_entropy(const struct kernel_context *context, const struct cross_entropy_args *args,
                            struct error *err)
{
    (void)context;
    const struct logit_shard whole = {.R = args->R,
                                      .V = args->V,
                                      .valid = args->V,
                                      .vocabulary = args->V,
                                      .dtype = args->dtype,
                                      .logits = args->logits,
                                      .targets = args->targets};
    if (check_shard("cross_entropy", &whole, err))
        return -1;
    double total = 0;
    for (int64_t r = 0; r < args->R; r++) {
        double max = row_max(&whole, r), log_sum = log(row_sum(&whole, r, max));
        if (args->targets[r] != IGNORED)
            total += log_sum - row_target(&whole, r, max);
        if (args->gradient)
            row_grad(&whole, r, max + log_sum, args->scale);
    }
    element_put(element_wide(args->dtype), args->loss, 0, args->scale * total, true);
    return 0;
}

int reference_logit_max(const struct kernel_context *context, const struct logit_max_args *args,
                        struct error *err)
{
    (void)context;
    const struct logit_shard *shard = &args->shard;
    if (check_shard("logit_max", shard, err))
        return -1;
    for (int64_t r = 0; r < shard->R; r++)
        element_set(element_wide(shard->dtype), args->max, r,
                    shard->targets[r] == IGNORED ? -INFINITY : row_max(shard, r));
    return 0;
}

int reference_logit_sums(const struct kernel_context *context, const struct logit_sums_args *args,
                         struct error *err)
{
    (void)context;
    const struct logit_shard *shard = &args->shard;
    const enum dtype wide = element_wide(shard->dtype);
    if (check_shard("logit_sums", shard, err))
        return -1;
    for (int64_t r = 0; r < shard->R; r++) {
        bool ignored = shard->targets[r] == IGNORED;
        double max = element_get(wide, args->max, r);
        element_set(wide, args->sums, r, ignored ? 0 : row_sum(shard, r, max));
        element_set(wide, args->sums, shard->R + r, ignored ? 0 : row_target(shard, r, max));
    }
    return 0;
}

/* loss += scale * sum over rows of (log(sum) - (logits[target] - max)) */
int reference_cross_entropy_sharded(const struct kernel_context *context,
                                    const struct cross_entropy_sharded_args *args, struct error *err)
{
    (void)context;
    const struct logit_shard *shard = &args->shard;
    const enum dtype wide = element_wide(shard->dtype);
    if (check_shard("cross_entropy_sharded", shard, err))
        return -1;
    double total = 0;
    for (int64_t r = 0; r < shard->R; r++) {
        double log_sum = log(element_get(wide, args->sums, r));
        if (shard->targets[r] != IGNORED)
            total += log_sum - element_get(wide, args->sums, shard->R + r);
        if (args->gradient)
            row_grad(shard, r, element_get(wide, args->max, r) + log_sum, args->scale);
    }
    element_put(wide, args->loss, 0, args->scale * total, true);
    return 0;
}
