/* y += residual + bias, of which either may be NULL. Reads 2 and writes 1: 12 bytes per element in F32, 6 in BF16 (the bias
 * stays in the cache); limited by HBM. A block has a row, so that no thread divides to find its column. */
#include "kernels/cuda/cuda_pack.cuh"

template <typename T, int N>
static __global__ void residual_kernel(int64_t C, const T *residual, const T *bias, T *y)
{
    const int64_t row = static_cast<int64_t>(blockIdx.x) * C;
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < C;
         c += static_cast<int64_t>(blockDim.x) * N) {
        float sum[N], more[N] = {}, shift[N] = {};
        load_pack(y + row + c, sum);
        if (residual)
            load_pack(residual + row + c, more);
        if (bias)
            load_pack(bias + c, shift);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] += more[i] + shift[i];
        store_pack(y + row + c, sum);
    }
}

struct residual_launch {
    template <typename T, int N> static void run(const cuda_context *context, const residual_args *args)
    {
        CUDA_LAUNCH((residual_kernel<T, N>), dim3(static_cast<unsigned>(args->R)),
                    dim3(cuda_threads(cuda_divide_up(args->C, N), 256)), 0, context->compute, args->C,
                    static_cast<const T *>(args->residual), static_cast<const T *>(args->bias),
                    static_cast<T *>(args->y));
    }
};

extern "C" int cuda_residual(const struct kernel_context *ctx, const struct residual_args *args,
                             struct error *err)
{
    if (cuda_check_dtype(args->dtype, "residual", err))
        return -1;
    if (args->R == 0)
        return 0;
    bool packed =
        cuda_packs_rows(args->dtype, args->C) && cuda_are_aligned(args->y, args->residual, args->bias);
    cuda_choose<residual_launch>(args->dtype, packed, cuda_of(ctx), args);
    return cuda_launched("residual", err);
}
