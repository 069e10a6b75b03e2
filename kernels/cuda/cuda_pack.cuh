/* How kernels read and write: elements of F32 or BF16 in packs of up to 16 bytes per access, computed in F32. A kernel is
 * written once for packs of N elements; width<1> does what does not fit. */
#ifndef MEMPLAN_KERNELS_CUDA_PACK_CUH
#define MEMPLAN_KERNELS_CUDA_PACK_CUH

#include "kernels/cuda/launch.cuh"

/* N as an argument, so that a generic lambda can have it at compile time. */
template <int N> struct width {
    static constexpr int value = N;
};

__device__ __forceinline__ float to_float(float value)
{
    return value;
}

__device__ __forceinline__ float to_float(bf16 value)
{
    return __bfloat162float(value);
}

__device__ __forceinline__ void from_float(float value, float *to)
{
    *to = value;
}

__device__ __forceinline__ void from_float(float value, bf16 *to)
{
    *to = __float2bfloat16(value);
}

/* The type of one access of BYTES. */
template <int BYTES> struct raw_of {
    using type = uint4; /* of 16, or several of them */
};
template <> struct raw_of<2> {
    using type = unsigned short;
};
template <> struct raw_of<4> {
    using type = unsigned;
};
template <> struct raw_of<8> {
    using type = uint2;
};

/* from[0 .. N) as floats. `from` is aligned as its access is. */
template <int N, typename T> __device__ __forceinline__ void load_pack(const T *from, float (&to)[N])
{
    using raw = typename raw_of<N *static_cast<int>(sizeof(T))>::type;
    constexpr int EACH = sizeof(raw) / sizeof(T);
    CUDA_ALIGNED(from, sizeof(raw));
#pragma unroll
    for (int i = 0; i < N; i += EACH) {
        raw bits = *reinterpret_cast<const raw *>(from + i);
        T elements[EACH];
        memcpy(static_cast<void *>(elements), &bits, sizeof bits);
#pragma unroll
        for (int k = 0; k < EACH; k++)
            to[i + k] = to_float(elements[k]);
    }
}

template <int N, typename T> __device__ __forceinline__ void store_pack(T *to, const float (&from)[N])
{
    using raw = typename raw_of<N *static_cast<int>(sizeof(T))>::type;
    constexpr int EACH = sizeof(raw) / sizeof(T);
    CUDA_ALIGNED(to, sizeof(raw));
#pragma unroll
    for (int i = 0; i < N; i += EACH) {
        T elements[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++)
            from_float(from[i + k], &elements[k]);
        raw bits;
        memcpy(&bits, elements, sizeof bits);
        *reinterpret_cast<raw *>(to + i) = bits;
    }
}

/* One thread's share of [0, count) in a flat launch: body(at, width<N>), or elements one by one in the last pack. */
template <int N, typename Body> __device__ __forceinline__ void flat_share(int64_t count, Body body)
{
    int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (at + N <= count)
        body(at, width<N>());
    else
        for (; at < count; at++)
            body(at, width<1>());
}

/* A block's row of any length at any address: packs of N between the first and the last address that is a multiple of 16
 * bytes, single elements outside. body(at, width<n>) as above; the block has at least N threads. */
template <int N, typename T, typename Body>
__device__ __forceinline__ void row_share(const T *row, int64_t count, Body body)
{
    const int64_t before = (16 - reinterpret_cast<uintptr_t>(row) % 16) % 16 / sizeof(T);
    const int64_t head = before < count ? before : count, packs = (count - head) / N, tail = head + packs * N;
    if (threadIdx.x < head)
        body(static_cast<int64_t>(threadIdx.x), width<1>());
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x)
        body(head + i * N, width<N>());
    if (tail + threadIdx.x < count)
        body(tail + threadIdx.x, width<1>());
}

enum { FLAT_THREADS = 256 };

/* Blocks of a flat launch. */
static inline dim3 flat_grid(int64_t count, int n)
{
    return dim3(static_cast<unsigned>(cuda_divide_up(count, static_cast<int64_t>(FLAT_THREADS) * n)));
}

#endif
