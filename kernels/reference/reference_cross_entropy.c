/* The loss of next-token prediction and its gradient, which takes the place of the logits: at real vocabularies the
 * logits are the largest activation, and a second copy would double it. */
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

#include <inttypes.h>
#include <math.h>

enum { IGNORED = -1 };

/* Looks at all targets before anything is written. */
static int check_targets(const struct cross_entropy_args *args, struct error *err)
{
    for (int64_t r = 0; r < args->R; r++)
        if (args->targets[r] != IGNORED && (args->targets[r] < 0 || args->targets[r] >= args->V))
            return error_set(err,
                             "cross_entropy: target %" PRId32 " in row %" PRId64 " is outside [0, %" PRId64
                             "); use labels below the number of classes, or -1 to ignore a row",
                             args->targets[r], r, args->V);
    return 0;
}

/* log(sum over v of exp(logits[v])), with the largest logit taken out so that exp() cannot overflow. */
static double log_sum_exp(const struct cross_entropy_args *args, int64_t r)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t v = 0; v < args->V; v++)
        largest = fmax(largest, element_get(args->dtype, args->logits, r * args->V + v));
    for (int64_t v = 0; v < args->V; v++)
        sum += exp(element_get(args->dtype, args->logits, r * args->V + v) - largest);
    return largest + log(sum);
}

/* scale * (softmax(logits) - onehot(target)); zero for an ignored row */
static void row_grad(const struct cross_entropy_args *args, int64_t r, double lse)
{
    for (int64_t v = 0; v < args->V; v++) {
        double softmax = exp(element_get(args->dtype, args->logits, r * args->V + v) - lse);
        double onehot = v == args->targets[r];
        double grad = args->targets[r] == IGNORED ? 0 : args->scale * (softmax - onehot);
        element_set(args->dtype, args->logits, r * args->V + v, grad);
    }
}

/* loss += scale * sum over rows of (log-sum-exp(logits) - logits[target]) */
int reference_cross_entropy(const struct kernel_context *context, const struct cross_entropy_args *args,
                            struct error *err)
{
    (void)context;
    if (reference_check_dtype("cross_entropy", args->dtype, err) || check_targets(args, err))
        return -1;
    double sum = 0;
    for (int64_t r = 0; r < args->R; r++) {
        double lse = log_sum_exp(args, r);
        if (args->targets[r] != IGNORED)
            sum += lse - element_get(args->dtype, args->logits, r * args->V + args->targets[r]);
        if (args->gradient)
            row_grad(args, r, lse);
    }
    element_put(element_wide(args->dtype), args->loss, 0, args->scale * sum, true);
    return 0;
}
