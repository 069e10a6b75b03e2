/* The optimizer: AdamW (Kingma, Ba 2014, arXiv:1412.6980; decoupled decay: Loshchilov, Hutter 2019, arXiv:1711.05101) and
 * the square sum from which it clips by the global norm (Pascanu et al. 2013, arXiv:1211.5063; the 1e-6 is PyTorch's). */
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

#include <inttypes.h>
#include <math.h>

int reference_square_sum(const struct kernel_context *context, const struct square_sum_args *args,
                         struct error *err)
{
    (void)context;
    if (args->dtype != DTYPE_F32 && args->dtype != DTYPE_F64)
        return error_set(err, "square_sum: gradients of dtype %s are not kept; use F32 or F64",
                         dtype_name(args->dtype));
    double sum = 0;
    for (int64_t i = 0; i < args->count; i++) {
        double g = element_get(args->dtype, args->g, i);
        sum += g * g;
    }
    element_put(args->dtype, args->total, 0, sum, true);
    return 0;
}

/* min(1, max_norm / (norm + 1e-6)), written so that a norm of NaN stays NaN and shows in the weights. */
static double clip_factor(const struct adamw_args *args)
{
    if (!args->square_sum || args->max_norm <= 0)
        return 1;
    double norm = sqrt(element_get(element_wide(args->dtype), args->square_sum, 0));
    double factor = args->max_norm / (norm + 1e-6);
    return factor > 1 ? 1 : factor;
}

/* g' = g * clip
 * m = beta1 m + (1 - beta1) g'        m_hat = m / (1 - beta1^t)
 * v = beta2 v + (1 - beta2) g'^2      v_hat = v / (1 - beta2^t)
 * p -= lr (m_hat / (sqrt(v_hat) + eps) + decay p) */
int reference_adamw(const struct kernel_context *context, const struct adamw_args *args, struct error *err)
{
    (void)context;
    if (reference_check_dtype("adamw", args->dtype, err))
        return -1;
    if (args->t < 1)
        return error_set(err, "adamw: step %" PRId64 " has no bias correction; count steps from 1", args->t);
    const enum dtype wide = element_wide(args->dtype), kept = args->master ? DTYPE_F32 : args->dtype;
    void *weights = args->master ? args->master : args->w;
    const double clip = clip_factor(args);
    const double m_correction = 1 - pow(args->beta1, (double)args->t);
    const double v_correction = 1 - pow(args->beta2, (double)args->t);
    for (int64_t i = 0; i < args->count; i++) {
        double g = element_get(wide, args->g, i) * clip, p = element_get(kept, weights, i);
        double m = args->beta1 * element_get(wide, args->m, i) + (1 - args->beta1) * g;
        double v = args->beta2 * element_get(wide, args->v, i) + (1 - args->beta2) * g * g;
        p -= args->lr * (m / m_correction / (sqrt(v / v_correction) + args->eps) + args->decay * p);
        element_set(wide, args->m, i, m);
        element_set(wide, args->v, i, v);
        element_set(kept, weights, i, p);
        if (args->master)
            element_set(args->dtype, args->w, i, p);
    }
    return 0;
}
