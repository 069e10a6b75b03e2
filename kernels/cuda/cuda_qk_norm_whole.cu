/* RMSNorm of all queries of a position, and of all its keys, with the rotary embedding behind it, and the gradient of both. With E
 * bytes per element, limited by HBM:
 *     forward   reads qkv and writes y: 2E bytes per element
 *     backward  reads dqkv and qkv and writes dqkv: 3E bytes per element of queries and keys, and 8 bytes per column and part
 *               for the weights
 * Rows are read twice, the second time from the cache.
 *
 * A block has a row at a time, and a thread the same pairs (i, i + D/2) of every row that it meets. Backward it keeps the sums of
 * its columns in shared memory, which nobody else touches. */
#include "kernels/cuda/cuda_qk_norm.cuh"

enum { WHOLE_THREADS = 256 };

/* Pairs of a row's normed heads that this thread has, N at a time: they are of one head, since N divides its half. */
#define FOR_ROW_PAIRS(p, pairs)                                                                              \
    for (int p = static_cast<int>(threadIdx.x) * N; p < (pairs); p += static_cast<int>(blockDim.x) * N)

/* Where a pair's elements are among the row's. */
struct pair_place {
    int head, i, low, high;
    bool key;
};

__device__ __forceinline__ static pair_place pair_at(const qk_norm_shape &shape, int p)
{
    const int half = shape.angles.pairs, head = p / half, i = p % half;
    return {head, i, head * shape.D + i, head * shape.D + half + i, head >= shape.H};
}

/* The weights of a pair's two elements; those of keys count from the first key on. */
template <typename T, int N>
__device__ __forceinline__ static void load_weights(const qk_norm_shape &shape, const pair_place &at,
                                                    const T *q_norm, const T *k_norm, float (&low)[N],
                                                    float (&high)[N])
{
    const T *const w = at.key ? k_norm - shape.H * shape.D : q_norm;
    qk_norm_load_weights(shape, w + at.low, low);
    qk_norm_load_weights(shape, w + at.high, high);
}

__device__ __forceinline__ static float rstd_of(const qk_norm_shape &shape, float squares, int heads)
{
    return 1 / sqrtf(squares / static_cast<float>(heads * shape.D) + shape.eps);
}

/* ---- forward ---- */

template <typename T, int N>
static __global__ void __launch_bounds__(WHOLE_THREADS)
    qk_norm_whole_kernel(qk_norm_shape shape, const T *qkv, const T *q_norm, const T *k_norm, T *y)
{
    CUDA_DYNAMIC_SHARED(float, cosine);
    const int half = shape.angles.pairs, pairs = shape.normed * half;
    float *const sine = cosine + half;
    rope_make_turns(shape.angles, blockIdx.x, cosine, sine);
    for (int64_t b = blockIdx.y; b < shape.B; b += gridDim.y) {
        const int64_t row = (b * shape.T + blockIdx.x) * shape.row;
        const T *const x = qkv + row;
        float low[N], high[N], squares[2] = {0, 0};
        FOR_ROW_PAIRS(p, pairs)
        {
            const pair_place at = pair_at(shape, p);
            float sum = 0;
            load_pack(x + at.low, low);
            load_pack(x + at.high, high);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum += low[k] * low[k] + high[k] * high[k];
            squares[0] += at.key ? 0 : sum;
            squares[1] += at.key ? sum : 0;
        }
        block_reduce<add>(squares); /* and the turns are there */
        const float rstd_q = rstd_of(shape, squares[0], shape.H),
                    rstd_k = rstd_of(shape, squares[1], shape.normed - shape.H);
        FOR_ROW_PAIRS(p, pairs)
        {
            const pair_place at = pair_at(shape, p);
            const float rstd = at.key ? rstd_k : rstd_q;
            float weight_low[N], weight_high[N];
            load_pack(x + at.low, low);
            load_pack(x + at.high, high);
            load_weights(shape, at, q_norm, k_norm, weight_low, weight_high);
#pragma unroll
            for (int k = 0; k < N; k++) {
                low[k] *= rstd * weight_low[k];
                high[k] *= rstd * weight_high[k];
            }
            rope_turn(low, high, cosine + at.i, sine + at.i);
            store_pack(y + row + at.low, low);
            store_pack(y + row + at.high, high);
        }
        qk_norm_copy_values<N>(shape, qkv + row, y + row);
    }
}

struct qk_norm_whole_launch {
    template <typename T, int N> static void run(const cuda_context *context, const qk_norm_args *args)
    {
        const qk_norm_heads *heads = &args->heads;
        CUDA_LAUNCH((qk_norm_whole_kernel<T, N>), qk_norm_grid(heads), dim3(WHOLE_THREADS),
                    heads->D * sizeof(float), context->compute, qk_norm_shape_of(heads, false),
                    static_cast<const T *>(heads->qkv), static_cast<const T *>(heads->q_norm),
                    static_cast<const T *>(heads->k_norm), static_cast<T *>(args->y));
    }
};

void cuda_qk_norm_whole(const cuda_context *context, const struct qk_norm_args *args, bool packed)
{
    cuda_choose<qk_norm_whole_launch>(args->heads.dtype, packed, context, args);
}

/* ---- backward ---- */

/* Times that a thread comes by in a row. */
__host__ __device__ static inline int row_turns(int pairs, int n)
{
    return (pairs + WHOLE_THREADS * n - 1) / (WHOLE_THREADS * n);
}

/* Where a thread keeps the sum of low[k] on its turn; that of high[k] is n places on. Neighbours in a warp are neighbours there. */
__device__ __forceinline__ static int row_sum_place(int turn, int k, int n, int thread)
{
    return (turn * 2 * n + k) * WHOLE_THREADS + thread;
}

/* One row. With dy turned back, n = x rstd and g = dy w: d = rstd (g - n average(g n)), and the weights' sums get dy n. As n is
 * no more than a factor beside x, one pass finds both averages. */
template <typename T, int N>
__device__ static void qk_norm_whole_grad_row(const qk_norm_shape &shape, const T *x, const T *q_norm,
                                              const T *k_norm, T *d, const float *cosine, float *own)
{
    const int half = shape.angles.pairs, pairs = shape.normed * half;
    const float *const sine = cosine + half;
    float low[N], high[N], x_low[N], x_high[N], w_low[N], w_high[N];
    const auto load = [&](const pair_place &at) {
        load_pack(d + at.low, low);
        load_pack(d + at.high, high);
        load_pack(x + at.low, x_low);
        load_pack(x + at.high, x_high);
        load_weights(shape, at, q_norm, k_norm, w_low, w_high);
        rope_turn(low, high, cosine + at.i, sine + at.i);
    };
    float sums[4] = {0, 0, 0, 0}; /* squares and products of queries, then of keys */
    FOR_ROW_PAIRS(p, pairs)
    {
        const pair_place at = pair_at(shape, p);
        float squares = 0, product = 0;
        load(at);
#pragma unroll
        for (int k = 0; k < N; k++) {
            squares += x_low[k] * x_low[k] + x_high[k] * x_high[k];
            product += low[k] * w_low[k] * x_low[k] + high[k] * w_high[k] * x_high[k];
        }
        sums[0] += at.key ? 0 : squares;
        sums[1] += at.key ? 0 : product;
        sums[2] += at.key ? squares : 0;
        sums[3] += at.key ? product : 0;
    }
    block_reduce<add>(sums);
    const int keys = shape.normed - shape.H;
    const float rstd_q = rstd_of(shape, sums[0], shape.H), rstd_k = rstd_of(shape, sums[2], keys);
    const float average_q = rstd_q * sums[1] / static_cast<float>(shape.H * shape.D),
                average_k = rstd_k * sums[3] / static_cast<float>(keys * shape.D);
    int turn = 0;
    FOR_ROW_PAIRS(p, pairs)
    {
        const pair_place at = pair_at(shape, p);
        const float rstd = at.key ? rstd_k : rstd_q, average = at.key ? average_k : average_q;
        load(at);
#pragma unroll
        for (int k = 0; k < N; k++) {
            own[row_sum_place(turn, k, N, threadIdx.x)] += low[k] * x_low[k] * rstd;
            own[row_sum_place(turn, N + k, N, threadIdx.x)] += high[k] * x_high[k] * rstd;
            low[k] = rstd * (low[k] * w_low[k] - x_low[k] * rstd * average);
            high[k] = rstd * (high[k] * w_high[k] - x_high[k] * rstd * average);
        }
        store_pack(d + at.low, low);
        store_pack(d + at.high, high);
        turn++;
    }
}

/* `rows` of a part; the last may have fewer. Sums of the weights go to (parts, 2, H D). */
template <typename T, int N>
static __global__ void __launch_bounds__(WHOLE_THREADS)
    qk_norm_whole_grad_kernel(qk_norm_shape shape, int64_t rows, const T *qkv, const T *q_norm,
                              const T *k_norm, T *dqkv, float *sums)
{
    CUDA_DYNAMIC_SHARED(float, cosine);
    const int half = shape.angles.pairs, pairs = shape.normed * half;
    const int64_t R = shape.B * shape.T, begin = blockIdx.x * rows, end = begin + rows < R ? begin + rows : R;
    float *const own = cosine + 2 * half;
    for (int place = threadIdx.x; place < 2 * N * row_turns(pairs, N) * WHOLE_THREADS; place += WHOLE_THREADS)
        own[place] = 0;
    for (int64_t r = begin; r < end; r++) {
        __syncthreads(); /* nobody needs the angles before */
        rope_make_turns(shape.angles, r % shape.T, cosine, cosine + half);
        __syncthreads();
        qk_norm_whole_grad_row<T, N>(shape, qkv + r * shape.row, q_norm, k_norm, dqkv + r * shape.row, cosine,
                                     own);
    }
    __syncthreads();
    float *const to = sums + blockIdx.x * 2 * shape.H * shape.D;
    int turn = 0;
    FOR_ROW_PAIRS(p, pairs)
    {
        const pair_place at = pair_at(shape, p);
        for (int k = 0; k < N; k++) { /* keys follow behind the queries in both */
            to[at.low + k] = own[row_sum_place(turn, k, N, threadIdx.x)];
            to[at.high + k] = own[row_sum_place(turn, N + k, N, threadIdx.x)];
        }
        turn++;
    }
}

struct qk_norm_whole_grad_launch {
    template <typename T, int N>
    static void run(const cuda_context *context, const qk_norm_grad_args *args, cudaError_t *status)
    {
        const qk_norm_heads *heads = &args->heads;
        const int64_t R = heads->B * heads->T, columns = heads->H * heads->D,
                      rows = parts_rows(context, R, columns, WHOLE_THREADS), parts = parts_count(R, rows);
        const int pairs = static_cast<int>((heads->H + heads->K) * heads->D / 2);
        const int64_t places = 2 * N * row_turns(pairs, N) * WHOLE_THREADS;
        const int64_t shared_bytes = (heads->D + places) * static_cast<int64_t>(sizeof(float));
        *status = CUDA_ALLOW_SHARED((qk_norm_whole_grad_kernel<T, N>), shared_bytes);
        if (*status != cudaSuccess)
            return;
        CUDA_LAUNCH((qk_norm_whole_grad_kernel<T, N>), dim3(static_cast<unsigned>(parts)),
                    dim3(WHOLE_THREADS), shared_bytes, context->compute, qk_norm_shape_of(heads, true), rows,
                    static_cast<const T *>(heads->qkv), static_cast<const T *>(heads->q_norm),
                    static_cast<const T *>(heads->k_norm), static_cast<T *>(args->dqkv),
                    static_cast<float *>(context->scratch));
        parts_add(context, parts, columns, {args->dq_norm, columns}, {args->dk_norm, heads->K * heads->D},
                  args->add);
    }
};

int cuda_qk_norm_whole_grad(const cuda_context *context, const struct qk_norm_grad_args *args, bool packed,
                            struct error *err)
{
    cudaError_t status = cudaSuccess;
    cuda_choose<qk_norm_whole_grad_launch>(args->heads.dtype, packed, context, args, &status);
    if (status == cudaSuccess)
        return 0;
    return error_set(err,
                     "qk_norm_grad keeps the sums of %ld columns in shared memory, and this GPU refused: %s; "
                     "split the model over more ranks",
                     static_cast<long>((args->heads.H + args->heads.K) * args->heads.D),
                     cudaGetErrorString(status));
}
