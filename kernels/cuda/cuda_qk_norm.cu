/* RMSNorm of each query and key with the rotary embedding behind it, and the gradient of both. With E bytes per element, limited
 * by HBM:
 *     qk_norm       reads qkv and writes y: 2E bytes per element
 *     qk_norm_grad  reads dqkv and qkv and writes dqkv: 3E bytes per element of queries and keys, and 16 bytes per column and
 *                   part for the weights
 * Heads are read twice, the second time from the cache.
 *
 * Eight lanes have a head, and each of them the same pairs (i, i + D/2) of every head it meets. Forward, a block has one
 * position, in several sequences. Backward, it has a run of rows, and a lane keeps the sums of its columns in shared memory,
 * which nobody else touches. */
#include "kernels/cuda/cuda_qk_norm.cuh"

enum { HEAD_LANES = 8, LARGEST_HEAD = 256 /* attention's too */ };

/* The pairs of a head that this lane has: packs low[i .. i + N) and high[i .. i + N), high being low + D/2. */
#define FOR_PAIRS(i, lane, pairs) for (int i = (lane)*N; i < (pairs); i += HEAD_LANES * N)

/* ---- forward ---- */

template <typename T, int N>
static __global__ void qk_norm_kernel(qk_norm_shape shape, const T *qkv, const T *q_norm, const T *k_norm,
                                      T *y)
{
    CUDA_DYNAMIC_SHARED(float, cosine);
    const int half = shape.angles.pairs, lane = threadIdx.x % HEAD_LANES;
    const int group = threadIdx.x / HEAD_LANES, groups = blockDim.x / HEAD_LANES;
    float *const sine = cosine + half;
    rope_make_turns(shape.angles, blockIdx.x, cosine, sine);
    __syncthreads();
    for (int64_t b = blockIdx.y; b < shape.B; b += gridDim.y) {
        const int64_t row = (b * shape.T + blockIdx.x) * shape.row;
        for (int first = 0; first < shape.normed; first += groups) {
            const int head = first + group, pairs = head < shape.normed ? half : 0; /* all lanes meet below */
            const T *const x = qkv + row + head * shape.D, *const w = head < shape.H ? q_norm : k_norm;
            T *const to = y + row + head * shape.D;
            float low[N], high[N], squares = 0;
            FOR_PAIRS(i, lane, pairs)
            {
                load_pack(x + i, low);
                load_pack(x + half + i, high);
#pragma unroll
                for (int k = 0; k < N; k++)
                    squares += low[k] * low[k] + high[k] * high[k];
            }
            squares = warp_reduce<add, HEAD_LANES>(squares);
            const float rstd = 1 / sqrtf(squares / static_cast<float>(shape.D) + shape.eps);
            FOR_PAIRS(i, lane, pairs)
            {
                float weight_low[N], weight_high[N];
                load_pack(x + i, low);
                load_pack(x + half + i, high);
                qk_norm_load_weights(shape, w + i, weight_low);
                qk_norm_load_weights(shape, w + half + i, weight_high);
#pragma unroll
                for (int k = 0; k < N; k++) {
                    low[k] *= rstd * weight_low[k];
                    high[k] *= rstd * weight_high[k];
                }
                rope_turn(low, high, cosine + i, sine + i);
                store_pack(to + i, low);
                store_pack(to + half + i, high);
            }
        }
        qk_norm_copy_values<N>(shape, qkv + row, y + row);
    }
}

struct qk_norm_launch {
    template <typename T, int N> static void run(const cuda_context *context, const qk_norm_args *args)
    {
        const qk_norm_heads *heads = &args->heads;
        CUDA_LAUNCH((qk_norm_kernel<T, N>), qk_norm_grid(heads),
                    dim3(cuda_threads((heads->H + heads->K) * HEAD_LANES, 256)), heads->D * sizeof(float),
                    context->compute, qk_norm_shape_of(heads, false), static_cast<const T *>(heads->qkv),
                    static_cast<const T *>(heads->q_norm), static_cast<const T *>(heads->k_norm),
                    static_cast<T *>(args->y));
    }
};

static int check_heads(const qk_norm_heads *heads, const char *kernel, struct error *err)
{
    if (cuda_check_dtype(heads->dtype, kernel, err))
        return -1;
    if (heads->D % 2)
        return error_set(err, "%s turns pairs, and a head of size %ld is odd; choose an even head size",
                         kernel, static_cast<long>(heads->D));
    if (heads->D > LARGEST_HEAD)
        return error_set(err,
                         "%s: heads of %ld elements are more than the %d that CUDA's attention takes; "
                         "use more or smaller heads",
                         kernel, static_cast<long>(heads->D), LARGEST_HEAD);
    return 0;
}

extern "C" int cuda_qk_norm(const struct kernel_context *ctx, const struct qk_norm_args *args,
                            struct error *err)
{
    const qk_norm_heads *heads = &args->heads;
    if (check_heads(heads, "qk_norm", err))
        return -1;
    if (heads->B * heads->T == 0)
        return 0;
    bool packed = cuda_packs_rows(heads->dtype, heads->D / 2) &&
                  cuda_are_aligned(heads->qkv, heads->q_norm, heads->k_norm, args->y);
    if (heads->whole)
        cuda_qk_norm_whole(cuda_of(ctx), args, packed);
    else
        cuda_choose<qk_norm_launch>(heads->dtype, packed, cuda_of(ctx), args);
    return cuda_launched("qk_norm", err);
}

/* ---- backward ---- */

enum { GRAD_THREADS = 128, GRAD_GROUPS = GRAD_THREADS / HEAD_LANES };

/* Times that a lane comes by in a head. */
__host__ __device__ static inline int lane_turns(int pairs, int n)
{
    return (pairs + HEAD_LANES * n - 1) / (HEAD_LANES * n);
}

/* Where a lane keeps the sum of low[k] on its turn; that of high[k] is n places on. Neighbours in a warp are neighbours there.
 * `which`: 0 queries, 1 keys. */
__device__ __forceinline__ static int sum_place(int which, int turns, int turn, int k, int n, int thread)
{
    return (((which * turns + turn) * 2 * n) + k) * GRAD_THREADS + thread;
}

/* One head of a row. With dy turned back, n = x rstd and g = dy w: d = rstd (g - n average(g n)), and the weights' sums get dy n.
 * As n is no more than a factor beside x, one pass finds both averages. */
template <typename T, int N>
__device__ static void qk_norm_grad_head(const qk_norm_shape &shape, const T *x, const T *w, T *d, int pairs,
                                         int which, const float *cosine, float *own)
{
    const int half = shape.angles.pairs, lane = threadIdx.x % HEAD_LANES, turns = lane_turns(half, N);
    const float *const sine = cosine + half;
    float low[N], high[N], x_low[N], x_high[N], w_low[N], w_high[N], squares = 0, product = 0;
    const auto load = [&](int i) {
        load_pack(d + i, low);
        load_pack(d + half + i, high);
        load_pack(x + i, x_low);
        load_pack(x + half + i, x_high);
        qk_norm_load_weights(shape, w + i, w_low);
        qk_norm_load_weights(shape, w + half + i, w_high);
        rope_turn(low, high, cosine + i, sine + i);
    };
    FOR_PAIRS(i, lane, pairs)
    {
        load(i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            squares += x_low[k] * x_low[k] + x_high[k] * x_high[k];
            product += low[k] * w_low[k] * x_low[k] + high[k] * w_high[k] * x_high[k];
        }
    }
    const float size = static_cast<float>(shape.D);
    squares = warp_reduce<add, HEAD_LANES>(squares);
    product = warp_reduce<add, HEAD_LANES>(product);
    const float rstd = 1 / sqrtf(squares / size + shape.eps), average = rstd * product / size;
    FOR_PAIRS(i, lane, pairs)
    {
        const int turn = i / (HEAD_LANES * N);
        load(i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            own[sum_place(which, turns, turn, k, N, threadIdx.x)] += low[k] * x_low[k] * rstd;
            own[sum_place(which, turns, turn, N + k, N, threadIdx.x)] += high[k] * x_high[k] * rstd;
            low[k] = rstd * (low[k] * w_low[k] - x_low[k] * rstd * average);
            high[k] = rstd * (high[k] * w_high[k] - x_high[k] * rstd * average);
        }
        store_pack(d + i, low);
        store_pack(d + half + i, high);
    }
}

/* This block's sums of both weights, (2, D): of each column over the groups, in order. */
template <int N> __device__ static void write_sums(const qk_norm_shape &shape, const float *own, float *sums)
{
    const int half = shape.angles.pairs, turns = lane_turns(half, N);
    for (int at = threadIdx.x; at < 2 * shape.D; at += blockDim.x) {
        const int which = at / shape.D, column = at % shape.D, upper = column >= half;
        const int i = column - upper * half, lane = i / N % HEAD_LANES;
        const int place = sum_place(which, turns, i / (HEAD_LANES * N), upper * N + i % N, N, lane);
        float sum = 0;
        for (int group = 0; group < GRAD_GROUPS; group++)
            sum += own[place + group * HEAD_LANES];
        sums[at] = sum;
    }
}

/* `rows` of a part; the last may have fewer. Eight blocks of a multiprocessor leave 64 registers a thread, as many as it needs. */
template <typename T, int N>
static __global__ void __launch_bounds__(GRAD_THREADS, 8)
    qk_norm_grad_kernel(qk_norm_shape shape, int64_t rows, const T *qkv, const T *q_norm, const T *k_norm,
                        T *dqkv, float *sums)
{
    CUDA_DYNAMIC_SHARED(float, cosine);
    const int half = shape.angles.pairs, group = threadIdx.x / HEAD_LANES;
    const int64_t R = shape.B * shape.T, begin = blockIdx.x * rows, end = begin + rows < R ? begin + rows : R;
    float *const own = cosine + 2 * half;
    for (int place = threadIdx.x; place < 4 * N * lane_turns(half, N) * GRAD_THREADS; place += GRAD_THREADS)
        own[place] = 0;
    for (int64_t r = begin; r < end; r++) {
        __syncthreads(); /* nobody needs the angles before */
        rope_make_turns(shape.angles, r % shape.T, cosine, cosine + half);
        __syncthreads();
        for (int first = 0; first < shape.normed; first += GRAD_GROUPS) {
            const int head = first + group,
                      pairs = head < shape.normed ? half : 0; /* all lanes meet in there */
            const int64_t at = r * shape.row + head * shape.D;
            qk_norm_grad_head<T, N>(shape, qkv + at, head < shape.H ? q_norm : k_norm, dqkv + at, pairs,
                                    head >= shape.H, cosine, own);
        }
    }
    __syncthreads();
    write_sums<N>(shape, own, sums + blockIdx.x * 2 * shape.D);
}

struct qk_norm_grad_launch {
    template <typename T, int N> static void run(const cuda_context *context, const qk_norm_grad_args *args)
    {
        const qk_norm_heads *heads = &args->heads;
        const int64_t R = heads->B * heads->T, rows = parts_rows(context, R, heads->D, GRAD_THREADS),
                      parts = parts_count(R, rows);
        const int64_t places = 4 * N * lane_turns(static_cast<int>(heads->D / 2), N) * GRAD_THREADS;
        CUDA_LAUNCH((qk_norm_grad_kernel<T, N>), dim3(static_cast<unsigned>(parts)), dim3(GRAD_THREADS),
                    (heads->D + places) * sizeof(float), context->compute, qk_norm_shape_of(heads, true), rows,
                    static_cast<const T *>(heads->qkv), static_cast<const T *>(heads->q_norm),
                    static_cast<const T *>(heads->k_norm), static_cast<T *>(args->dqkv),
                    static_cast<float *>(context->scratch));
        parts_add(context, parts, heads->D, {args->dq_norm, heads->D}, {args->dk_norm, heads->D}, args->add);
    }
};

extern "C" int cuda_qk_norm_grad(const struct kernel_context *ctx, const struct qk_norm_grad_args *args,
                                 struct error *err)
{
    const qk_norm_heads *heads = &args->heads;
    if (check_heads(heads, "qk_norm_grad", err) ||
        cuda_check_scratch(cuda_of(ctx),
                           2 * (heads->whole ? heads->H : 1) * heads->D * static_cast<int64_t>(sizeof(float)),
                           "qk_norm_grad", err))
        return -1;
    bool packed = cuda_packs_rows(heads->dtype, heads->D / 2) &&
                  cuda_are_aligned(heads->qkv, heads->q_norm, heads->k_norm, args->dqkv);
    if (!heads->whole)
        cuda_choose<qk_norm_grad_launch>(heads->dtype, packed, cuda_of(ctx), args);
    else if (cuda_qk_norm_whole_grad(cuda_of(ctx), args, packed, err))
        return -1;
    return cuda_launched("qk_norm_grad", err);
}
