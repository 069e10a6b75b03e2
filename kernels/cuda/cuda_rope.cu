/* Rotary embedding, in place. Reads and writes the turned heads once: 8 bytes per element in F32, 4 in BF16; limited by HBM.
 * A block has one position: it works out the sines and cosines once, and turns the heads of several sequences with them. */
#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/cuda/rope_turn.cuh"

struct rope_shape {
    int64_t B, T, D, turned, row; /* turned: heads; row: elements of a qkv row */
    rope_angles angles;
};

template <typename T, int N> static __global__ void rope_kernel(rope_shape shape, T *qkv)
{
    CUDA_DYNAMIC_SHARED(float, cosine);
    const int half = shape.angles.pairs, packs = half / N, turned = static_cast<int>(shape.turned);
    float *sine = cosine + half;
    rope_make_turns(shape.angles, blockIdx.x, cosine, sine);
    __syncthreads();
    for (int64_t b = blockIdx.y; b < shape.B; b += gridDim.y)
        for (int at = threadIdx.x; at < turned * packs; at += blockDim.x) {
            const int head = at / packs, i = at % packs * N;
            T *low = qkv + (b * shape.T + blockIdx.x) * shape.row + head * shape.D + i, *high = low + half;
            float x[N], y[N];
            load_pack(low, x);
            load_pack(high, y);
            rope_turn(x, y, cosine + i, sine + i);
            store_pack(low, x);
            store_pack(high, y);
        }
}

struct rope_launch {
    template <typename T, int N> static void run(const cuda_context *context, const rope_args *args)
    {
        enum { ENOUGH_BLOCKS = 1024 };
        const int64_t packs = (args->H + args->K) * ((args->D - args->unturned) / 2 / N),
                      spread = cuda_divide_up(ENOUGH_BLOCKS, args->T);
        const rope_shape shape = {args->B,
                                  args->T,
                                  args->D,
                                  args->H + args->K,
                                  (args->H + 2 * args->K) * args->D,
                                  rope_angles_of(args->D - args->unturned, args->theta, args->inverse)};
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
    const int64_t size = args->D - args->unturned;
    if (size % 2)
        return error_set(err, "rope turns pairs, and a head of size %ld is odd; choose an even head size",
                         static_cast<long>(size));
    if (args->B * args->T == 0)
        return 0;
    bool packed = cuda_packs_rows(args->dtype, size / 2) && cuda_packs_rows(args->dtype, args->D) &&
                  cuda_are_aligned(args->qkv);
    cuda_choose<rope_launch>(args->dtype, packed, cuda_of(ctx), args);
    return cuda_launched("rope", err);
}
