/* The square sum from which gradients are clipped. Reads 4 bytes per element; limited by HBM. Blocks sum fixed runs in
 * double, and one block adds the runs in order: the bits depend on the count only. */
#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/cuda/cuda_reduce.cuh"

enum {
    THREADS = 256,
    PACK = 4,
    MOST_RUNS = 1024,
};

template <int N>
static __global__ void square_run_kernel(int64_t count, int64_t run, const float *g, double *sums)
{
    const int64_t begin = blockIdx.x * run, end = begin + run < count ? begin + run : count;
    double sum[1] = {0};
    for (int64_t at = begin + threadIdx.x * N; at < end; at += THREADS * N) {
        float values[N] = {};
        if (at + N <= end)
            load_pack(g + at, values);
        else
            for (int i = 0; at + i < end; i++)
                values[i] = g[at + i];
#pragma unroll
        for (float value : values)
            sum[0] += static_cast<double>(value) * static_cast<double>(value);
    }
    block_reduce<add>(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum[0];
}

static __global__ void add_runs_kernel(int64_t runs, const double *sums, float *total)
{
    double sum[1] = {0};
    for (int64_t i = threadIdx.x; i < runs; i += THREADS)
        sum[0] += sums[i];
    block_reduce<add>(sum);
    if (threadIdx.x == 0)
        *total = static_cast<float>(*total + sum[0]);
}

/* Elements of a run: a multiple of what a block reads at once, so that runs start at whole packs. */
static int64_t run_length(int64_t count)
{
    const int64_t least = 8192, run = cuda_divide_up(count, MOST_RUNS); /* small tensors are few blocks */
    return cuda_divide_up(run < least ? least : run, THREADS * PACK) * THREADS * PACK;
}

extern "C" int cuda_square_sum(const struct kernel_context *ctx, const struct square_sum_args *args,
                               struct error *err)
{
    const cuda_context *context = cuda_of(ctx);
    if (args->dtype != DTYPE_F32)
        return error_set(err,
                         "the CUDA kernel square_sum sums F32 and was given %s; use the reference kernels",
                         dtype_name(args->dtype));
    const int64_t run = run_length(args->count), runs = cuda_divide_up(args->count, run);
    if (cuda_check_scratch(context, runs * static_cast<int64_t>(sizeof(double)), "square_sum", err))
        return -1;
    if (args->count == 0)
        return 0;
    const dim3 grid(static_cast<unsigned>(runs));
    const float *g = static_cast<const float *>(args->g);
    double *sums = static_cast<double *>(context->scratch);
    if (cuda_are_aligned(g))
        CUDA_LAUNCH(square_run_kernel<PACK>, grid, dim3(THREADS), 0, context->compute, args->count, run, g,
                    sums);
    else
        CUDA_LAUNCH(square_run_kernel<1>, grid, dim3(THREADS), 0, context->compute, args->count, run, g,
                    sums);
    CUDA_LAUNCH(add_runs_kernel, dim3(1), dim3(THREADS), 0, context->compute, runs,
                static_cast<const double *>(sums), static_cast<float *>(args->total));
    return cuda_launched("square_sum", err);
}
