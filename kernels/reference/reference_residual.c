/* What follows a linear layer whose product is a sum over ranks: the bias and the residual that no single rank may add
 * before that sum. */
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

/* y += residual + bias */
int reference_residual(const struct kernel_context *context, const struct residual_args *args,
                       struct error *err)
{
    (void)context;
    if (reference_check_dtype("residual", args->dtype, err))
        return -1;
    for (int64_t i = 0; i < args->R * args->C; i++) {
        double bias = args->bias ? element_get(args->dtype, args->bias, i % args->C) : 0;
        element_put(args->dtype, args->y, i, element_get(args->dtype, args->residual, i) + bias, true);
    }
    return 0;
}
