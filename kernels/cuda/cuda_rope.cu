/* Rotary embedding, in place. Reads and writes the turned heads once: 8 bytes per element in F32, 4 in BF16; limited by HBM.
 * A block has one position: it works out the sines and cosines once, and turns the heads of several sequences with them.
 * Angles are in double (a position of 100,000 in float would be off by 0.004 radians) and are brought within half a turn
 * before sincosf(); at one angle per pair and position that is a few per cent of the time where doubles are fast. */
#include "kernels/cuda/cuda_pack.cuh"

struct rope_shape {
    int64_t B, T, D, turned, row; /* turned: heads; row: elements of a qkv row */
    double step;                  /* log2(theta) * -2 / D: frequency i is 2^(i step) */
    bool inverse;
};

/* cosine and sine of this position's angle for each pair */
__device__ static void make_turns(const rope_shape &shape, int64_t t, float *cosine, float *sine)
{
    const double turn = 6.283185307179586476925;
    for (int i = threadIdx.x; i < shape.D / 2; i += blockDim.x) {
        double angle = static_cast<double>(t) * exp2(i * shape.step);
        sincosf(static_cast<float>(angle - turn * rint(angle / turn)), &sine[i], &cosine[i]);
        if (shape.inverse)
            sine[i] = -sine[i];
    }
}

template <typename T, int N> static __global__ void rope_kernel(rope_shape shape, T *qkv)
{
    CUDA_DYNAMIC_SHARED(float, cosine);
    const int half = static_cast<int>(shape.D / 2), packs = half / N, turned = static_cast<int>(shape.turned);
    float *sine = cosine + half;
    make_turns(shape, blockIdx.x, cosine, sine);
    __syncthreads();
    for (int64_t b = blockIdx.y; b < shape.B; b += gridDim.y)
        for (int at = threadIdx.x; at < turned * packs; at += blockDim.x) {
            const int head = at / packs, i = at % packs * N;
            T *low = qkv + (b * shape.T + blockIdx.x) * shape.row + head * shape.D + i, *high = low + half;
            float x[N], y[N], turned_x[N], turned_y[N];
            load_pack(low, x);
            load_pack(high, y);
#pragma unroll
            for (int k = 0; k < N; k++) {
                turned_x[k] = x[k] * cosine[i + k] - y[k] * sine[i + k];
                turned_y[k] = y[k] * cosine[i + k] + x[k] * sine[i + k];
            }
            store_pack(low, turned_x);
            store_pack(high, turned_y);
        }
}

struct rope_launch {
    template <typename T, int N> static void run(const cuda_context *context, const rope_args *args)
    {
        enum { ENOUGH_BLOCKS = 1024 };
        const int64_t packs = (args->H + args->K) * (args->D / 2 / N),
                      spread = cuda_divide_up(ENOUGH_BLOCKS, args->T);
        const rope_shape shape = {args->B,
                                  args->T,
                                  args->D,
                                  args->H + args->K,
                                  (args->H + 2 * args->K) * args->D,
                                  log2(args->theta) * -2 / static_cast<double>(args->D),
                                  args->inverse};
        CUDA_LAUNCH(
            (rope_kernel<T, N>),
            dim3(static_cast<unsigned>(args->T), static_cast<unsigned>(args->B < spread ? args->B : spread)),
            dim3(cuda_threads(packs, 256)), args->D * sizeof(float), context->compute, shape,
            static_cast<T *>(args->qkv));
    }
};

extern "C" int cuda_rope(const struct kernel_context *ctx, const struct rope_args *args, struct error *err)
{
    if (cuda_check_dtype(args->dtype, "rope", err))
        return -1;
    if (args->D % 2)
        return error_set(err, "rope turns pairs, and a head of size %ld is odd; choose an even head size",
                         static_cast<long>(args->D));
    if (args->B * args->T == 0)
        return 0;
    bool packed = cuda_packs_rows(args->dtype, args->D / 2) && cuda_are_aligned(args->qkv);
    cuda_choose<rope_launch>(args->dtype, packed, cuda_of(ctx), args);
    return cuda_launched("rope", err);
}
