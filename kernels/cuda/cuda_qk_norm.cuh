/* What the norms of each head (cuda_qk_norm.cu) and of whole rows (cuda_qk_norm_whole.cu) have in common. */
#ifndef MEMPLAN_KERNELS_CUDA_QK_NORM_CUH
#define MEMPLAN_KERNELS_CUDA_QK_NORM_CUH

#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/cuda/cuda_parts.cuh"
#include "kernels/cuda/cuda_reduce.cuh"
#include "kernels/cuda/rope_turn.cuh"

struct qk_norm_shape {
    int64_t B, T, row; /* row: elements of a qkv row */
    int D, H, normed;  /* normed: heads */
    float eps, one;    /* one: 1 where the weights are 1 + those given, else 0 */
    rope_angles angles;
};

static inline qk_norm_shape qk_norm_shape_of(const qk_norm_heads *heads, bool inverse)
{
    return {heads->B,
            heads->T,
            (heads->H + 2 * heads->K) * heads->D,
            static_cast<int>(heads->D),
            static_cast<int>(heads->H),
            static_cast<int>(heads->H + heads->K),
            static_cast<float>(heads->eps),
            heads->add_one ? 1.0f : 0.0f,
            rope_angles_of(heads->D, heads->theta, inverse)};
}

/* N weights, with `one` added. */
template <int N, typename T>
__device__ __forceinline__ void qk_norm_load_weights(const qk_norm_shape &shape, const T *from, float (&to)[N])
{
    load_pack(from, to);
#pragma unroll
    for (int k = 0; k < N; k++)
        to[k] += shape.one;
}

/* Forward, a block has one position, in several sequences. */
static inline dim3 qk_norm_grid(const qk_norm_heads *heads)
{
    enum { ENOUGH_BLOCKS = 1024 };
    const int64_t spread = cuda_divide_up(ENOUGH_BLOCKS, heads->T);
    return dim3(static_cast<unsigned>(heads->T), static_cast<unsigned>(heads->B < spread ? heads->B : spread));
}

/* The values of one row, by the whole block. */
template <int N, typename T>
__device__ __forceinline__ void qk_norm_copy_values(const qk_norm_shape &shape, const T *from, T *to)
{
    for (int64_t at = shape.normed * shape.D + threadIdx.x * N; at < shape.row; at += blockDim.x * N) {
        float values[N];
        load_pack(from + at, values);
        store_pack(to + at, values);
    }
}

/* Of whole rows; `packed`: addresses and widths allow accesses of 16 bytes. The caller has checked all else. */
void cuda_qk_norm_whole(const cuda_context *context, const struct qk_norm_args *args, bool packed);
int cuda_qk_norm_whole_grad(const cuda_context *context, const struct qk_norm_grad_args *args, bool packed,
                            struct error *err);

#endif
