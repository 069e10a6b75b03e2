/* Reductions over the threads of a warp or a block. Their order is fixed by the threads' numbers, so the same values give the
 * same bits, and every thread gets them. */
#ifndef MEMPLAN_KERNELS_CUDA_REDUCE_CUH
#define MEMPLAN_KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda/launch.cuh"

struct add {
    template <typename T> __device__ static T of(T a, T b)
    {
        return a + b;
    }
};

/* NaN loses: it shows in the sum that follows. */
struct larger {
    template <typename T> __device__ static T of(T a, T b)
    {
        return a > b ? a : b;
    }
};

/* Over LANES neighbouring lanes, a power of two. Both operations are symmetric to the bit, so all of them end with the same. */
template <typename Operation, int LANES = 32, typename T> __device__ __forceinline__ T warp_reduce(T value)
{
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

/* COUNT values at once, at the price of one. The block has whole warps. */
template <typename Operation, int COUNT, typename T>
__device__ __forceinline__ void block_reduce(T (&values)[COUNT])
{
    CUDA_SHARED(T, parts, 32 * COUNT);
    const unsigned warp = threadIdx.x / 32, warps = blockDim.x / 32;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        values[i] = warp_reduce<Operation>(values[i]);
    __syncthreads(); /* all have read the parts of the call before */
    if (threadIdx.x % 32 == 0)
        for (int i = 0; i < COUNT; i++)
            parts[warp * COUNT + i] = values[i];
    __syncthreads();
    for (int i = 0; i < COUNT; i++) {
        values[i] = parts[i];
        for (unsigned other = 1; other < warps; other++)
            values[i] = Operation::of(values[i], parts[other * COUNT + i]);
    }
}

/* Over the threads that share a row: a warp, or the block. */
template <typename Operation, bool WARP> __device__ __forceinline__ float row_reduce(float value)
{
    if constexpr (WARP)
        return warp_reduce<Operation>(value);
    float values[1] = {value};
    block_reduce<Operation>(values);
    return values[0];
}

#endif
