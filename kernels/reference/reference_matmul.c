/* The linear layer y = x w^T + bias + residual and its two gradients, as three nested loops each. Weights are stored
 * (outputs, inputs), as PyTorch and safetensors do. */
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

int reference_matmul(const struct kernel_context *context, const struct matmul_args *args, struct error *err)
{
    (void)context;
    if (reference_check_dtype("matmul", args->dtype, err))
        return -1;
    const enum dtype dtype = args->dtype;
    const int64_t N = args->N, K = args->K;
    for (int64_t m = 0; m < args->M; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = args->bias ? element_get(dtype, args->bias, n) : 0;
            for (int64_t k = 0; k < K; k++)
                sum += element_get(dtype, args->x, m * K + k) * element_get(dtype, args->w, n * K + k);
            if (args->residual)
                sum += element_get(dtype, args->residual, m * N + n);
            element_set(dtype, args->y, m * N + n, sum);
        }
    return 0;
}

/* dx[m, k] = sum over n of dy[m, n] * w[n, k] */
int reference_matmul_dgrad(const struct kernel_context *context, const struct matmul_dgrad_args *args,
                           struct error *err)
{
    (void)context;
    if (reference_check_dtype("matmul_dgrad", args->dtype, err))
        return -1;
    const enum dtype dtype = args->dtype;
    const int64_t N = args->N, K = args->K;
    for (int64_t m = 0; m < args->M; m++)
        for (int64_t k = 0; k < K; k++) {
            double sum = 0;
            for (int64_t n = 0; n < N; n++)
                sum += element_get(dtype, args->dy, m * N + n) * element_get(dtype, args->w, n * K + k);
            element_put(dtype, args->dx, m * K + k, sum, args->add);
        }
    return 0;
}

/* db[n] = sum over m of dy[m, n] */
static void bias_grad(const struct matmul_wgrad_args *args)
{
    for (int64_t n = 0; n < args->N; n++) {
        double sum = 0;
        for (int64_t m = 0; m < args->M; m++)
            sum += element_get(args->dtype, args->dy, m * args->N + n);
        element_put(element_wide(args->dtype), args->db, n, sum, args->add);
    }
}

/* dw[n, k] = sum over m of dy[m, n] * x[m, k] */
int reference_matmul_wgrad(const struct kernel_context *context, const struct matmul_wgrad_args *args,
                           struct error *err)
{
    (void)context;
    if (reference_check_dtype("matmul_wgrad", args->dtype, err))
        return -1;
    const enum dtype dtype = args->dtype;
    const int64_t N = args->N, K = args->K;
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) {
            double sum = 0;
            for (int64_t m = 0; m < args->M; m++)
                sum += element_get(dtype, args->dy, m * N + n) * element_get(dtype, args->x, m * K + k);
            element_put(element_wide(dtype), args->dw, n * K + k, sum, args->add);
        }
    if (args->db)
        bias_grad(args);
    return 0;
}
