/* Matrix products through cuBLASLt, and what they keep from call to call. */
#ifndef MEMPLAN_KERNELS_CUDA_CUDA_MATMUL_H
#define MEMPLAN_KERNELS_CUDA_CUDA_MATMUL_H

#include "kernels/cuda/cuda_context.h"

struct cuda_products;

/* Opens cuBLASLt on the thread's device; the memory that it works in is the context's scratch. */
int cuda_products_open(struct cuda_products **out, struct error *err);
void cuda_products_close(struct cuda_products *products); /* NULL is fine */

/* db(N) (+)= sum over rows of dy(M, N), in a fixed order (cuda_bias_grad.cu). */
struct cuda_bias_grad_args {
    int64_t M, N;
    enum dtype dtype; /* of dy */
    const void *dy;
    float *db;
    bool add;
};
int cuda_bias_grad(const struct cuda_context *context, const struct cuda_bias_grad_args *args, struct error *err);

#endif
