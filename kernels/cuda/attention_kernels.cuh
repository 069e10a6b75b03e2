/* Attention that never stores its scores, forward and backward, as FlashAttention-2 does it (Dao 2023, arXiv:2307.08691): a
 * block keeps one tile of rows, meets tile after tile of the other side in shared memory, and keeps its sums in registers.
 * E is how tiles are multiplied: attention_bf16 or attention_f32. Let w be the bytes of an element.
 *
 * Backward sums in one fixed order without atomics, so it has two kernels, and the scores are computed in both: 7 products
 * where one kernel with atomics has 5. Nothing is kept in between but delta.
 *
 * No kernel here has yet run on a GPU: what limits it is worked out, not measured. */
#ifndef MEMPLAN_KERNELS_CUDA_ATTENTION_KERNELS_CUH
#define MEMPLAN_KERNELS_CUDA_ATTENTION_KERNELS_CUH

#include "kernels/cuda/attention_tile.cuh"

/* What a block works on. Blocks of one head follow each other, and so find its keys and values in the L2 cache. */
struct attention_place {
    int64_t b;
    int head, first; /* first row of the tile */
};

/* `last_first`: tiles from the end of the sequence come first. Under the causal mask those of queries have the most work, and
 * a launch should end with small blocks. */
__device__ __forceinline__ attention_place attention_place_of(const attention_shape &shape, int heads,
                                                              int rows, bool last_first)
{
    const unsigned tiles = (shape.T + rows - 1) / rows, tile = blockIdx.x % tiles, head = blockIdx.x / tiles;
    return {head / heads, static_cast<int>(head % heads),
            static_cast<int>(last_first ? tiles - 1 - tile : tile) * rows};
}

/* The keys that some query of the tile sees: 0 .. this. */
__device__ __forceinline__ int attention_keys_seen(const attention_shape &shape, int first_query, int queries)
{
    return shape.causal && first_query + queries < shape.T ? first_query + queries : shape.T;
}

/* Hides scores of keys beyond the end, and of keys later than their query. Most tiles have none. */
template <typename E>
__device__ __forceinline__ void attention_mask(float (&scores)[E::THREAD_ROWS][E::SCORES],
                                               const attention_shape &shape, int first_query, int first_key)
{
    const int last_key = first_key + E::COLUMNS - 1;
    if (last_key < shape.T && !(shape.causal && last_key > first_query))
        return;
#pragma unroll
    for (int r = 0; r < E::THREAD_ROWS; r++)
#pragma unroll
        for (int c = 0; c < E::SCORES; c++) {
            const int key = first_key + E::column(c);
            if (key >= shape.T || (shape.causal && key > first_query + E::row(r)))
                scores[r][c] = -INFINITY;
        }
}

/* The running softmax of a thread's rows: largest score so far, and the thread's part of the sum of exponentials beside it. */
template <typename E> struct attention_softmax {
    float largest[E::THREAD_ROWS], sum[E::THREAD_ROWS];

    __device__ __forceinline__ void start()
    {
#pragma unroll
        for (int r = 0; r < E::THREAD_ROWS; r++) {
            largest[r] = -INFINITY;
            sum[r] = 0;
        }
    }

    /* Turns a tile's scores into weights, and shrinks the results of the tiles before when a larger score came. Each row has
     * a visible key in its first tile, so that `largest` is finite from then on. */
    __device__ __forceinline__ void add(float (&scores)[E::THREAD_ROWS][E::SCORES],
                                        float (&results)[E::THREAD_ROWS][E::RESULTS], float scale2)
    {
#pragma unroll
        for (int r = 0; r < E::THREAD_ROWS; r++) {
            float most = scores[r][0];
#pragma unroll
            for (int c = 1; c < E::SCORES; c++)
                most = fmaxf(most, scores[r][c]);
            most = fmaxf(largest[r], attention_row_max<E::ROW_LANES>(most));
            const float shrink = mma_exp2((largest[r] - most) * scale2), shift = -most * scale2;
            largest[r] = most;
            sum[r] *= shrink;
#pragma unroll
            for (int c = 0; c < E::SCORES; c++) {
                scores[r][c] = mma_exp2(fmaf(scores[r][c], scale2, shift));
                sum[r] += scores[r][c];
            }
#pragma unroll
            for (int c = 0; c < E::RESULTS; c++)
                results[r][c] *= shrink;
        }
    }
};

/* Forward: a block has ROWS queries of one head. Keys and values have a buffer each: values arrive while scores are
 * computed, the next keys while values are added up.
 *
 * Moves (2 H + 2 K) B T D w bytes if keys and values of a head stay in L2, and does 4 B H T^2 D flops (half under the causal
 * mask), so from some hundred positions on the multiplications limit it: in BF16 a fragment of the other tile serves MT
 * multiplications, and with MT = 2 shared memory has half of the tensor cores' time to read it. */
template <typename E> struct attention_forward_layout {
    using T = typename E::T;
    using tile = typename E::tile;
    enum {
        KEYS = E::ROWS * tile::PITCH,
        VALUES = KEYS + E::COLUMNS * tile::PITCH,
        SCRATCH = VALUES + E::COLUMNS * tile::PITCH,
        SHARED_BYTES = SCRATCH * sizeof(T) + E::SCRATCH_BYTES,
    };
};

template <typename E>
__global__ __launch_bounds__(ATTENTION_THREADS) void attention_forward(attention_shape shape,
                                                                       const typename E::T *qkv,
                                                                       typename E::T *out, float *lse)
{
    using T = typename E::T;
    using tile = typename E::tile;
    using layout = attention_forward_layout<E>;
    CUDA_DYNAMIC_SHARED(T, queries);
    T *const keys = queries + layout::KEYS, *const values = queries + layout::VALUES;
    float *const scratch = reinterpret_cast<float *>(queries + layout::SCRATCH);
    const attention_place at = attention_place_of(shape, shape.H, E::ROWS, true);
    const int key_head = shape.H + at.head / (shape.H / shape.K),
              seen = attention_keys_seen(shape, at.first, E::ROWS);
    attention_softmax<E> softmax;
    float results[E::THREAD_ROWS][E::RESULTS] = {};

    softmax.start();
    tile::template load<E::ROWS>(queries, attention_rows_of(shape, qkv, shape.row, at.b, at.head, at.first),
                                 shape);
    tile::template load<E::COLUMNS>(keys, attention_rows_of(shape, qkv, shape.row, at.b, key_head, 0), shape);
    for (int first = 0; first < seen; first += E::COLUMNS) {
        float scores[E::THREAD_ROWS][E::SCORES];
        mma_copy_wait();
        __syncthreads(); /* the keys are here, and nobody needs the values any more */
        tile::template load<E::COLUMNS>(
            values, attention_rows_of(shape, qkv, shape.row, at.b, key_head + shape.K, first), shape);
        E::score(scores, queries, keys);
        attention_mask<E>(scores, shape, at.first, first);
        mma_copy_wait();
        __syncthreads(); /* the values are here, and nobody needs the keys any more */
        if (first + E::COLUMNS < seen)
            tile::template load<E::COLUMNS>(
                keys, attention_rows_of(shape, qkv, shape.row, at.b, key_head, first + E::COLUMNS), shape);
        softmax.add(scores, results, shape.scale2);
        E::accumulate(results, scores, values, scratch);
    }

    float factor[E::THREAD_ROWS];
#pragma unroll
    for (int r = 0; r < E::THREAD_ROWS; r++) {
        const float sum = attention_row_sum<E::ROW_LANES>(softmax.sum[r]);
        const int query = at.first + E::row(r);
        factor[r] = 1 / sum;
        if (threadIdx.x % E::ROW_LANES == 0 && query < shape.T)
            lse[(at.b * shape.H + at.head) * shape.T + query] = softmax.largest[r] * shape.scale + logf(sum);
    }
    E::put(queries, results, factor);
    tile::template store<E::WARP_ROWS>(
        queries, E::first_row(), attention_rows_of(shape, out, shape.H * shape.D, at.b, at.head, at.first),
        shape);
}

enum { DELTA_LANES = 8 }; /* that share a row */

/* delta = rowsum(dout * out), 8 lanes a row. Moves 2 B H T D w + 4 B H T bytes; limited by HBM. Rows are D elements, one
 * after another: r = (b T + t) H + h. */
template <typename T, int N>
__global__ void attention_delta(attention_shape shape, int64_t rows, const T *dout, const T *out,
                                float *delta)
{
    const int64_t r = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / DELTA_LANES;
    const int lane = threadIdx.x % DELTA_LANES;
    float sum = 0;
    for (int i = lane * N; r < rows && i < shape.D; i += DELTA_LANES * N) {
        float a[N], b[N];
        load_pack(dout + r * shape.D + i, a);
        load_pack(out + r * shape.D + i, b);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum = fmaf(a[k], b[k], sum);
    }
    sum = attention_row_sum<DELTA_LANES>(sum);
    if (lane == 0 && r < rows) {
        const int64_t position = r / shape.H, b = position / shape.T;
        delta[(b * shape.H + r % shape.H) * shape.T + position % shape.T] = sum;
    }
}

/* Which gradients a pass over the queries computes. */
enum { ATTENTION_DK = 1, ATTENTION_DV = 2 };

/* dK and dV: a block has ROWS keys and values of one key/value head, and takes the queries that see them, tile by tile, head
 * after head of the group. With STAGES = 2 the next queries arrive while these are worked on. WHAT is one of the two where
 * the sums of both do not fit into registers. Scores are transposed here: a row is a key, a column a query.
 *
 * Moves (2 H + 4 K) B T D w bytes if queries stay in L2 while their head is worked on, and does 8 B H T^2 D flops (half
 * under the causal mask): limited by the multiplications, in BF16 with MT = 1 by shared memory, which reads as long as the
 * tensor cores multiply. */
template <typename E, int STAGES> struct attention_grad_layout {
    using T = typename E::T;
    using tile = typename E::tile;
    enum {
        OTHER = E::COLUMNS * tile::PITCH,
        VALUES = E::ROWS * tile::PITCH,
        STAGE = 2 * VALUES,
        SCRATCH = STAGE + STAGES * 2 * OTHER,
        SHARED_BYTES = SCRATCH * sizeof(T) + E::SCRATCH_BYTES + STAGES * 2 * E::COLUMNS * 4,
    };
};

/* Tensors of backward. */
template <typename T> struct attention_grad {
    const T *dout, *qkv;
    const float *lse, *delta;
    T *dqkv;
};

/* The statistics of COUNT queries from `first` on; zeros beyond the end. */
template <int COUNT>
__device__ __forceinline__ void attention_load_statistics(float *to, const attention_shape &shape,
                                                          const float *lse, const float *delta, int64_t head,
                                                          int first)
{
    static_assert(2 * COUNT <= ATTENTION_THREADS, "a thread loads one");
    const int i = threadIdx.x % COUNT, query = first + i;
    const float *from = threadIdx.x < COUNT ? lse : delta;
    const bool valid = query < shape.T;
    if (threadIdx.x < 2 * COUNT)
        mma_copy<4>(to + threadIdx.x, valid ? from + head * shape.T + query : from, valid);
}

template <typename E, int STAGES, int WHAT>
__global__ __launch_bounds__(ATTENTION_THREADS) void attention_keys_grad(attention_shape shape,
                                                                         attention_grad<typename E::T> g)
{
    using T = typename E::T;
    using tile = typename E::tile;
    using layout = attention_grad_layout<E, STAGES>;
    CUDA_DYNAMIC_SHARED(T, keys);
    T *const values = keys + layout::VALUES, *const stages = keys + layout::STAGE;
    float *const scratch = reinterpret_cast<float *>(keys + layout::SCRATCH);
    float *const statistics = scratch + E::SCRATCH_BYTES / 4;
    const attention_place at = attention_place_of(shape, shape.K, E::ROWS, false);
    const int group = shape.H / shape.K, key_head = shape.H + at.head, value_head = key_head + shape.K;
    const int start = shape.causal ? at.first / E::COLUMNS * E::COLUMNS : 0;
    const int tiles = (shape.T - start + E::COLUMNS - 1) / E::COLUMNS, steps = group * tiles;
    float dk[E::THREAD_ROWS][E::RESULTS] = {}, dv[E::THREAD_ROWS][E::RESULTS] = {};

    const auto load = [&](int step) {
        T *const queries = stages + step % STAGES * 2 * layout::OTHER;
        const int head = at.head * group + step / tiles, first = start + step % tiles * E::COLUMNS;
        tile::template load<E::COLUMNS>(queries,
                                        attention_rows_of(shape, g.qkv, shape.row, at.b, head, first), shape);
        tile::template load<E::COLUMNS>(
            queries + layout::OTHER, attention_rows_of(shape, g.dout, shape.H * shape.D, at.b, head, first),
            shape);
        attention_load_statistics<E::COLUMNS>(statistics + step % STAGES * 2 * E::COLUMNS, shape, g.lse,
                                              g.delta, at.b * shape.H + head, first);
    };
    tile::template load<E::ROWS>(keys, attention_rows_of(shape, g.qkv, shape.row, at.b, key_head, at.first),
                                 shape);
    if (WHAT & ATTENTION_DK)
        tile::template load<E::ROWS>(
            values, attention_rows_of(shape, g.qkv, shape.row, at.b, value_head, at.first), shape);
    load(0);
    for (int step = 0; step < steps; step++) {
        mma_copy_wait();
        __syncthreads(); /* this step's queries are here, and nobody needs those before */
        if (STAGES > 1 && step + 1 < steps)
            load(step + 1);
        const T *const queries = stages + step % STAGES * 2 * layout::OTHER, *const dout =
                                                                                 queries + layout::OTHER;
        const float *const lse = statistics + step % STAGES * 2 * E::COLUMNS, *const delta = lse + E::COLUMNS;
        const int first = start + step % tiles * E::COLUMNS;
        const bool masked = shape.causal && first < at.first + E::ROWS - 1;
        float weights[E::THREAD_ROWS][E::SCORES];
        E::score(weights, keys, queries);
#pragma unroll
        for (int c = 0; c < E::SCORES; c++) {
            const float shift = -1.4426950408889634f * lse[E::column(c)];
#pragma unroll
            for (int r = 0; r < E::THREAD_ROWS; r++) {
                const bool hidden = masked && at.first + E::row(r) > first + E::column(c);
                weights[r][c] = hidden ? 0 : mma_exp2(fmaf(weights[r][c], shape.scale2, shift));
            }
        }
        if constexpr (WHAT & ATTENTION_DV)
            E::accumulate(dv, weights, dout, scratch);
        if constexpr (WHAT & ATTENTION_DK) {
            float products[E::THREAD_ROWS][E::SCORES];
            E::score(products, values, dout);
#pragma unroll
            for (int c = 0; c < E::SCORES; c++) {
                const float shift = delta[E::column(c)];
#pragma unroll
                for (int r = 0; r < E::THREAD_ROWS; r++)
                    weights[r][c] *= products[r][c] - shift;
            }
            E::accumulate(dk, weights, queries, scratch);
        }
        if (STAGES == 1 && step + 1 < steps) {
            __syncthreads(); /* nobody needs these queries any more */
            load(step + 1);
        }
    }

    float factor[E::THREAD_ROWS];
    if constexpr (WHAT & ATTENTION_DK) {
#pragma unroll
        for (int r = 0; r < E::THREAD_ROWS; r++)
            factor[r] = shape.scale;
        E::put(values, dk, factor);
        tile::template store<E::WARP_ROWS>(
            values, E::first_row(), attention_rows_of(shape, g.dqkv, shape.row, at.b, key_head, at.first),
            shape);
    }
    if constexpr (WHAT & ATTENTION_DV) {
#pragma unroll
        for (int r = 0; r < E::THREAD_ROWS; r++)
            factor[r] = 1;
        E::put(keys, dv, factor);
        tile::template store<E::WARP_ROWS>(
            keys, E::first_row(), attention_rows_of(shape, g.dqkv, shape.row, at.b, value_head, at.first),
            shape);
    }
}

/* dQ: a block has ROWS queries of one head, and takes tile after tile of keys and values.
 *
 * Moves (3 H + 2 K) B T D w bytes if keys and values of a head stay in L2, and does 6 B H T^2 D flops (half under the causal
 * mask); limited like dK and dV. */
template <typename E, int STAGES>
__global__ __launch_bounds__(ATTENTION_THREADS) void attention_queries_grad(attention_shape shape,
                                                                            attention_grad<typename E::T> g)
{
    using T = typename E::T;
    using tile = typename E::tile;
    using layout = attention_grad_layout<E, STAGES>;
    CUDA_DYNAMIC_SHARED(T, queries);
    T *const dout = queries + layout::VALUES, *const stages = queries + layout::STAGE;
    float *const scratch = reinterpret_cast<float *>(queries + layout::SCRATCH);
    const attention_place at = attention_place_of(shape, shape.H, E::ROWS, true);
    const int key_head = shape.H + at.head / (shape.H / shape.K),
              seen = attention_keys_seen(shape, at.first, E::ROWS);
    const auto load = [&](int first) {
        T *const keys = stages + first / E::COLUMNS % STAGES * 2 * layout::OTHER;
        tile::template load<E::COLUMNS>(
            keys, attention_rows_of(shape, g.qkv, shape.row, at.b, key_head, first), shape);
        tile::template load<E::COLUMNS>(
            keys + layout::OTHER, attention_rows_of(shape, g.qkv, shape.row, at.b, key_head + shape.K, first),
            shape);
    };
    tile::template load<E::ROWS>(queries, attention_rows_of(shape, g.qkv, shape.row, at.b, at.head, at.first),
                                 shape);
    tile::template load<E::ROWS>(
        dout, attention_rows_of(shape, g.dout, shape.H * shape.D, at.b, at.head, at.first), shape);
    load(0);

    float shift[E::THREAD_ROWS], delta[E::THREAD_ROWS], dq[E::THREAD_ROWS][E::RESULTS] = {};
#pragma unroll
    for (int r = 0; r < E::THREAD_ROWS; r++) {
        const int query = at.first + E::row(r);
        const int64_t i = (at.b * shape.H + at.head) * shape.T + query;
        shift[r] = query < shape.T ? -1.4426950408889634f * g.lse[i] : 0;
        delta[r] = query < shape.T ? g.delta[i] : 0;
    }
    for (int first = 0; first < seen; first += E::COLUMNS) {
        mma_copy_wait();
        __syncthreads(); /* these keys and values are here, and nobody needs those before */
        if (STAGES > 1 && first + E::COLUMNS < seen)
            load(first + E::COLUMNS);
        const T *const keys = stages + first / E::COLUMNS % STAGES * 2 * layout::OTHER;
        float weights[E::THREAD_ROWS][E::SCORES], products[E::THREAD_ROWS][E::SCORES];
        E::score(weights, queries, keys);
        attention_mask<E>(weights, shape, at.first, first);
        E::score(products, dout, keys + layout::OTHER);
#pragma unroll
        for (int r = 0; r < E::THREAD_ROWS; r++)
#pragma unroll
            for (int c = 0; c < E::SCORES; c++)
                weights[r][c] =
                    mma_exp2(fmaf(weights[r][c], shape.scale2, shift[r])) * (products[r][c] - delta[r]);
        E::accumulate(dq, weights, keys, scratch);
        if (STAGES == 1 && first + E::COLUMNS < seen) {
            __syncthreads(); /* nobody needs these keys and values any more */
            load(first + E::COLUMNS);
        }
    }

#pragma unroll
    for (int r = 0; r < E::THREAD_ROWS; r++)
        shift[r] = shape.scale;
    E::put(queries, dq, shift);
    tile::template store<E::WARP_ROWS>(
        queries, E::first_row(), attention_rows_of(shape, g.dqkv, shape.row, at.b, at.head, at.first), shape);
}

#endif
