/* LayerNorm and RMSNorm and their gradients. With E bytes per element, limited by HBM:
 *     norm       reads x and writes y: 2E bytes per element; of its three passes over a row two are served by the cache
 *     norm_grad  reads dy and x (and d when it adds) and writes d: 3E or 4E bytes per element, and 8 bytes per column and
 *                part for dw and db
 *
 * Forward, a short row has a warp and a long one a block. Backward, a block has a run of rows, and a thread the same columns
 * of each: it keeps their dw and db in shared memory, which nobody else touches. A second kernel adds the blocks' sums in
 * order. How rows are cut depends on sizes only, so the bits are the same on every GPU. */
#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/cuda/cuda_parts.cuh"
#include "kernels/cuda/cuda_reduce.cuh"

/* The columns of a row that this thread has, in packs: those of lane `rank` of `sharers`. */
#define FOR_COLUMNS(c, rank, sharers)                                                                        \
    for (int64_t c = static_cast<int64_t>(rank) * N; c < C; c += static_cast<int64_t>(sharers) * N)

enum { WARP_ROWS = 8 }; /* of a block that has a row per warp */

template <typename T, int N, bool WARP> static __global__ void norm_kernel(norm_args args)
{
    const int64_t C = args.C,
                  r = WARP ? static_cast<int64_t>(blockIdx.x) * WARP_ROWS + threadIdx.x / 32 : blockIdx.x;
    const unsigned rank = WARP ? threadIdx.x % 32 : threadIdx.x, sharers = WARP ? 32 : blockDim.x;
    if (r >= args.R)
        return; /* whole warps, and then without barriers */
    const T *x = static_cast<const T *>(args.x) + r * C;
    const T *w = static_cast<const T *>(args.w), *b = static_cast<const T *>(args.b);
    const float one = args.add_one; /* more than the weights */
    float values[N], mean = 0;
    if (!args.rms) {
        float sum = 0;
        FOR_COLUMNS(c, rank, sharers)
        {
            load_pack(x + c, values);
            for (float value : values)
                sum += value;
        }
        mean = row_reduce<add, WARP>(sum) / static_cast<float>(C);
    }
    float squares = 0;
    FOR_COLUMNS(c, rank, sharers)
    {
        load_pack(x + c, values);
        for (float value : values)
            squares += (value - mean) * (value - mean);
    }
    const float variance = row_reduce<add, WARP>(squares) / static_cast<float>(C);
    const float rstd = 1 / sqrtf(variance + static_cast<float>(args.eps));
    FOR_COLUMNS(c, rank, sharers)
    {
        float weight[N], shift[N] = {};
        load_pack(x + c, values);
        load_pack(w + c, weight);
        if (b)
            load_pack(b + c, shift);
        for (int i = 0; i < N; i++)
            values[i] = (values[i] - mean) * rstd * (weight[i] + one) + shift[i];
        if (args.residual) {
            load_pack(static_cast<const T *>(args.residual) + r * C + c, shift);
            for (int i = 0; i < N; i++)
                values[i] += shift[i];
        }
        store_pack(static_cast<T *>(args.y) + r * C + c, values);
    }
    if (rank != 0)
        return;
    if (args.mean)
        static_cast<float *>(args.mean)[r] = mean;
    static_cast<float *>(args.rstd)[r] = rstd;
}

struct norm_launch {
    template <typename T, int N> static void run(const cuda_context *context, const norm_args *args)
    {
        enum { SHORT_PACKS = 8 * 32 }; /* eight for each lane of a warp */
        const int64_t packs = cuda_divide_up(args->C, N);
        if (packs <= SHORT_PACKS)
            CUDA_LAUNCH((norm_kernel<T, N, true>),
                        dim3(static_cast<unsigned>(cuda_divide_up(args->R, WARP_ROWS))), dim3(WARP_ROWS * 32),
                        0, context->compute, *args);
        else
            CUDA_LAUNCH((norm_kernel<T, N, false>), dim3(static_cast<unsigned>(args->R)),
                        dim3(cuda_threads(packs, 512)), 0, context->compute, *args);
    }
};

extern "C" int cuda_norm(const struct kernel_context *ctx, const struct norm_args *args, struct error *err)
{
    if (cuda_check_dtype(args->dtype, "norm", err))
        return -1;
    if (args->R == 0)
        return 0;
    bool packed = cuda_packs_rows(args->dtype, args->C) &&
                  cuda_are_aligned(args->x, args->w, args->b, args->residual, args->y);
    cuda_choose<norm_launch>(args->dtype, packed, cuda_of(ctx), args);
    return cuda_launched("norm", err);
}

/* ---- backward ---- */

/* One block's rows, and where its sums go: (parts, 2, C), dw and then db. */
struct norm_parts {
    int64_t rows; /* of a part; the last may have fewer */
    float *sums;
};

/* Where a thread keeps the sums of its columns in shared memory: neighbours in a warp are neighbours there. It begins at
 * threadIdx.x; a pack's n elements are blockDim.x apart, and so is its next pack from its last. */
__device__ __forceinline__ unsigned place_behind(unsigned place, int n)
{
    return place + n * blockDim.x;
}

/* With n = (x - mean) rstd and g = dy w: d = rstd (g - average(g) - n average(g n)); without the first average for RMS.
 * dw += dy n, db += dy. d may be dy. */
template <typename T, int N>
__device__ void norm_grad_row(const norm_grad_args &args, int64_t r, float *own_dw, float *own_db)
{
    const int64_t C = args.C;
    const T *dy = static_cast<const T *>(args.dy) + r * C, *x = static_cast<const T *>(args.x) + r * C;
    const T *w = static_cast<const T *>(args.w);
    T *d = static_cast<T *>(args.d) + r * C;
    const float mean = args.rms ? 0 : static_cast<const float *>(args.mean)[r];
    const float rstd = static_cast<const float *>(args.rstd)[r], one = args.add_one;
    float dys[N], normal[N], weight[N], sums[2] = {0, 0};
    unsigned place = threadIdx.x;
    FOR_COLUMNS(c, threadIdx.x, blockDim.x)
    {
        load_pack(dy + c, dys);
        load_pack(x + c, normal);
        load_pack(w + c, weight);
#pragma unroll
        for (int i = 0; i < N; i++) {
            normal[i] = (normal[i] - mean) * rstd;
            sums[0] += dys[i] * (weight[i] + one);
            sums[1] += dys[i] * (weight[i] + one) * normal[i];
            own_dw[place_behind(place, i)] += dys[i] * normal[i];
            if (own_db)
                own_db[place_behind(place, i)] += dys[i];
        }
        place = place_behind(place, N);
    }
    block_reduce<add>(sums);
    const float average = args.rms ? 0 : sums[0] / static_cast<float>(C),
                average_n = sums[1] / static_cast<float>(C);
    FOR_COLUMNS(c, threadIdx.x, blockDim.x)
    {
        float before[N] = {};
        load_pack(dy + c, dys);
        load_pack(x + c, normal);
        load_pack(w + c, weight);
        if (args.add_d)
            load_pack(d + c, before);
#pragma unroll
        for (int i = 0; i < N; i++)
            dys[i] =
                before[i] + rstd * (dys[i] * (weight[i] + one) - average - (normal[i] - mean) * rstd * average_n);
        store_pack(d + c, dys);
    }
}

template <typename T, int N> static __global__ void norm_grad_kernel(norm_grad_args args, norm_parts parts)
{
    CUDA_DYNAMIC_SHARED(float, own);
    const int64_t C = args.C, begin = blockIdx.x * parts.rows;
    const int64_t end = begin + parts.rows < args.R ? begin + parts.rows : args.R;
    const int64_t places = cuda_divide_up(C, static_cast<int64_t>(blockDim.x) * N) * N * blockDim.x;
    float *own_dw = own, *own_db = args.db ? own + places : nullptr;
    for (int64_t at = threadIdx.x; at < places; at += blockDim.x) {
        own_dw[at] = 0;
        if (own_db)
            own_db[at] = 0;
    }
    for (int64_t r = begin; r < end; r++)
        norm_grad_row<T, N>(args, r, own_dw, own_db);
    float *sums = parts.sums + blockIdx.x * 2 * C;
    unsigned place = threadIdx.x;
    FOR_COLUMNS(c, threadIdx.x, blockDim.x)
    {
        for (int i = 0; i < N; i++) {
            sums[c + i] = own_dw[place_behind(place, i)];
            if (own_db)
                sums[C + c + i] = own_db[place_behind(place, i)];
        }
        place = place_behind(place, N);
    }
}

struct norm_grad_launch {
    template <typename T, int N>
    static void run(const cuda_context *context, const norm_grad_args *args, cudaError_t *status)
    {
        const int64_t packs = cuda_divide_up(args->C, N);
        const unsigned threads = cuda_threads(packs, 512);
        const int64_t places = cuda_divide_up(packs, threads) * threads * N;
        const int64_t shared_bytes = places * (args->db ? 2 : 1) * static_cast<int64_t>(sizeof(float));
        const int64_t rows = parts_rows(context, args->R, args->C, threads);
        const int64_t parts = parts_count(args->R, rows);
        /* Asked for always: 48 KiB, which need no asking, are for the arrays of block_reduce() too. */
        *status = CUDA_ALLOW_SHARED((norm_grad_kernel<T, N>), shared_bytes);
        if (*status != cudaSuccess)
            return;
        CUDA_LAUNCH((norm_grad_kernel<T, N>), dim3(static_cast<unsigned>(parts)), dim3(threads), shared_bytes,
                    context->compute, *args, (norm_parts{rows, static_cast<float *>(context->scratch)}));
        parts_add(context, parts, args->C, {args->dw, args->C}, {args->db, args->C}, args->add_w);
    }
};

extern "C" int cuda_norm_grad(const struct kernel_context *ctx, const struct norm_grad_args *args,
                              struct error *err)
{
    const cuda_context *context = cuda_of(ctx);
    if (cuda_check_dtype(args->dtype, "norm_grad", err) ||
        cuda_check_scratch(context, 2 * args->C * static_cast<int64_t>(sizeof(float)), "norm_grad", err))
        return -1;
    bool packed =
        cuda_packs_rows(args->dtype, args->C) && cuda_are_aligned(args->dy, args->x, args->w, args->d);
    cudaError_t status = cudaSuccess;
    cuda_choose<norm_grad_launch>(args->dtype, packed, context, args, &status);
    if (status != cudaSuccess)
        return error_set(
            err,
            "norm_grad keeps the sums of %ld columns in shared memory, and this GPU refused: %s; "
            "split the model over more ranks",
            static_cast<long>(args->C), cudaGetErrorString(status));
    return cuda_launched("norm_grad", err);
}
