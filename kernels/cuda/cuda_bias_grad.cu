/* The sum over rows that is a bias's gradient, for where the product's epilogue cannot make it. Reads dy once: limited by
 * HBM when there are many columns, by the number of blocks (one per 32 columns) when there are few. */
#include "kernels/cuda/cuda_pack.cuh"

extern "C" {
#include "kernels/cuda/cuda_matmul.h"
}

enum { COLUMNS = 32, GROUPS = 8 };

template <typename T> struct bias_grad_terms {
    int64_t M, N;
    const T *dy;
    float *db;
    bool add;
};

/* A thread adds every eighth row of its column; then the eight sums are added in their order. */
template <typename T> __global__ void bias_grad_kernel(bias_grad_terms<T> terms)
{
    CUDA_SHARED(float, sums, GROUPS *COLUMNS);
    const int64_t column = static_cast<int64_t>(blockIdx.x) * COLUMNS + threadIdx.x;
    const unsigned group = threadIdx.y;
    float sum = 0;
    for (int64_t row = group; column < terms.N && row < terms.M; row += GROUPS)
        sum += static_cast<float>(terms.dy[row * terms.N + column]);
    sums[group * COLUMNS + threadIdx.x] = sum;
    __syncthreads();
    if (group > 0 || column >= terms.N)
        return;
    float total = terms.add ? terms.db[column] : 0;
    for (int i = 0; i < GROUPS; i++)
        total += sums[i * COLUMNS + threadIdx.x];
    terms.db[column] = total;
}

template <typename T> static void launch(const cuda_context *context, const cuda_bias_grad_args *args)
{
    const bias_grad_terms<T> terms = {args->M, args->N, static_cast<const T *>(args->dy), args->db, args->add};
    const dim3 grid(static_cast<unsigned>(cuda_divide_up(args->N, COLUMNS))), block(COLUMNS, GROUPS);
    CUDA_LAUNCH((bias_grad_kernel<T>), grid, block, 0, context->compute, terms);
}

extern "C" int cuda_bias_grad(const struct cuda_context *context, const struct cuda_bias_grad_args *args, struct error *err)
{
    if (args->dtype == DTYPE_BF16)
        launch<bf16>(context, args);
    else
        launch<float>(context, args);
    return cuda_launched("bias_grad", err);
}
