/* Attention that never stores its scores, forward and backward, as FlashAttention-2 does it (Dao 2023, arXiv:2307.08691): a
 * block keeps one tile of rows, meets tile after tile of the other side in shared memory, and keeps its sums in registers.
 * E is how tiles are multiplied: attention_bf16 or attention_f32; attention_bf16.cu and attention_f32.cu choose the tiles, and
 * say what they take of registers and shared memory. Let w be the bytes of an element.
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
    int b, head, first; /* first row of the tile */
};

/* `last_first`: tiles from the end of the sequence come first. Under the causal mask those of queries have the most work, and
 * a launch should end with small blocks. */
__device__ __forceinline__ attention_place attention_place_of(const attention_shape &shape, int heads,
                                                              int rows, bool last_first)
{
    const unsigned tiles = (shape.T + rows - 1) / rows, tile = blockIdx.x % tiles, head = blockIdx.x / tiles;
    return {static_cast<int>(head / heads), static_cast<int>(head % heads),
            static_cast<int>(last_first ? tiles - 1 - tile : tile) * rows};
}

/* The values that belong to these keys. */
template <typename T>
__device__ __forceinline__ attention_rows<T> attention_values_beside(const attention_shape &shape,
                                                                     const attention_rows<T> &keys)
{
    return {keys.first + shape.K * shape.D, keys.stride, keys.count};
}

/* The keys that some query of the tile sees: 0 .. this. */
__device__ __forceinline__ int attention_keys_seen(const attention_shape &shape, int first_query, int queries)
{
    return shape.causal && first_query + queries < shape.T ? first_query + queries : shape.T;
}

/* And the first of them, by the start of its tile. */
template <typename E>
__device__ __forceinline__ int attention_first_key(const attention_shape &shape, int first_query)
{
    const int first = first_query + 1 - shape.window;
    return first > 0 ? first / E::COLUMNS * E::COLUMNS : 0;
}

/* Hides scores of keys beyond the end, of keys later than their query, and of those before its window. Most tiles have none.
 * WINDOWED: there may be a window, which takes registers that the largest tiles do not have. */
template <typename E, bool WINDOWED>
__device__ __forceinline__ void attention_mask(float (&scores)[E::THREAD_ROWS][E::SCORES],
                                               const attention_shape &shape, int first_query, int first_key)
{
    const int last_key = first_key + E::COLUMNS - 1;
    const bool begins = WINDOWED && first_key <= first_query + E::ROWS - 1 - shape.window;
    if (last_key < shape.T && !(shape.causal && last_key > first_query) && !begins)
        return;
#pragma unroll
    for (int r = 0; r < E::THREAD_ROWS; r++)
#pragma unroll
        for (int c = 0; c < E::SCORES; c++) {
            const int key = first_key + E::column(c), query = first_query + E::row(r);
            if (key >= shape.T || (shape.causal && key > query) || (WINDOWED && key <= query - shape.window))
                scores[r][c] = -INFINITY;
        }
}

/* Below any score, and finite, so that differences from it are numbers. */
constexpr float ATTENTION_LOWEST = -1e30f;

/* The running softmax of a thread's rows: largest score so far, and the thread's part of the sum of exponentials beside it. */
template <typename E> struct attention_softmax {
    float largest[E::THREAD_ROWS], sum[E::THREAD_ROWS];

    __device__ __forceinline__ void start()
    {
#pragma unroll
        for (int r = 0; r < E::THREAD_ROWS; r++) {
            largest[r] = ATTENTION_LOWEST;
            sum[r] = 0;
        }
    }

    /* Turns a tile's scores into weights, and shrinks the results of the tiles before when a larger score came. A row whose window
     * begins in a later tile has no visible key yet: its weights are 0, since `largest` is finite from the start. */
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
            if (__any_sync(0xffffffffu, shrink != 1)) {
#pragma unroll
                for (int c = 0; c < E::RESULTS; c++)
                    results[r][c] *= shrink;
            }
        }
    }
};

/* Forward: a block has ROWS queries of one head. Keys and values have a buffer each: values arrive while scores are
 * computed, the next keys while values are added up.
 *
 * Moves (2 H + 2 K) B T D w bytes if keys and values of a head stay in L2, and does 4 B H T^2 D flops (half under the causal
 * mask), so from some hundred positions on the multiplications limit it. In BF16 with MT = 2, where a multiprocessor reads 128
 * bytes of shared memory and multiplies 1024 pairs a clock (sm_80), the reads take 5/8 of the multiplications' time. */
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

template <typename E, bool WINDOWED>
ATTENTION_KERNEL void attention_forward(attention_shape shape, const typename E::T *qkv, typename E::T *out,
                                        float *lse)
{
    using T = typename E::T;
    using tile = typename E::tile;
    using layout = attention_forward_layout<E>;
    CUDA_DYNAMIC_SHARED(T, queries);
    T *const keys = queries + layout::KEYS, *const values = queries + layout::VALUES;
    float *const scratch = reinterpret_cast<float *>(queries + layout::SCRATCH);
    const attention_place at = attention_place_of(shape, shape.H, E::ROWS, true);
    const int key_head = shape.H + at.head / (shape.H / shape.K),
              start = WINDOWED ? attention_first_key<E>(shape, at.first) : 0,
              seen = attention_keys_seen(shape, at.first, E::ROWS);
    attention_softmax<E> softmax;
    float results[E::THREAD_ROWS][E::RESULTS] = {};

    const auto queries_from = attention_rows_of(shape, qkv, shape.row, at.b, at.head, at.first);
    auto from = attention_rows_of(shape, qkv, shape.row, at.b, key_head, start);

    softmax.start();
    tile::template load<E::ROWS>(queries, queries_from, shape);
    tile::template load<E::COLUMNS>(keys, from, shape);
    for (int first = start; first < seen; first += E::COLUMNS) {
        float scores[E::THREAD_ROWS][E::SCORES];
        mma_copy_wait();
        __syncthreads(); /* the keys are here, and nobody needs the values any more */
        tile::template load<E::COLUMNS>(values, attention_values_beside(shape, from), shape);
        from.skip(E::COLUMNS);
        E::score(scores, queries, keys);
        attention_mask<E, WINDOWED>(scores, shape, at.first, first);
        mma_copy_wait();
        __syncthreads(); /* the values are here, and nobody needs the keys any more */
        if (first + E::COLUMNS < seen)
            tile::template load<E::COLUMNS>(keys, from, shape);
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
            lse[static_cast<int64_t>(at.b * shape.H + at.head) * shape.T + query] =
                softmax.largest[r] * shape.scale + logf(sum);
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
 * under the causal mask): limited by the multiplications. In BF16, counted as above, reads of shared memory take 3/4 of their
 * time with MT = 2 and 5/4 with MT = 1: they are the limit from heads of 80 elements on. */
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

/* The statistics of COUNT queries from `first` on: lse, then delta; zeros beyond the end. */
template <int COUNT>
__device__ __forceinline__ void attention_load_statistics(float *to, const attention_shape &shape,
                                                          const float *lse, const float *delta, int64_t head,
                                                          int first)
{
    static_assert(2 * COUNT <= ATTENTION_THREADS, "a thread loads one");
    const int i = threadIdx.x % COUNT, query = first + i;
    const float *from = (threadIdx.x < COUNT ? lse : delta) + head * shape.T + query;
    if (threadIdx.x < 2 * COUNT)
        mma_copy<4>(mma_place_of(to + threadIdx.x), 0, from, query < shape.T);
}

/* Scores of keys from `first_key` on (rows) and queries from `first_query` on (columns) become weights, 0 where the query
 * comes before the key or has it before its window. Queries beyond the end have weight 1, a dout of 0 and no gradient of their own. */
template <typename E>
__device__ __forceinline__ void attention_weigh_keys(float (&scores)[E::THREAD_ROWS][E::SCORES],
                                                     const attention_shape &shape, int first_key,
                                                     int first_query, const float *lse)
{
    const bool masked = shape.causal && (first_query < first_key + E::ROWS - 1 ||
                                         first_query + E::COLUMNS > first_key + shape.window);
#pragma unroll
    for (int c = 0; c < E::SCORES; c++) {
        const float shift = -ATTENTION_LOG2_E * lse[E::column(c)];
#pragma unroll
        for (int r = 0; r < E::THREAD_ROWS; r++) {
            const int distance = first_query + E::column(c) - (first_key + E::row(r));
            const bool hidden = masked && (distance < 0 || distance >= shape.window);
            scores[r][c] = hidden ? 0 : mma_exp2(fmaf(scores[r][c], shape.scale2, shift));
        }
    }
}

/* weights *= products - delta: the gradient of the scores. */
template <typename E>
__device__ __forceinline__ void attention_slope_keys(float (&weights)[E::THREAD_ROWS][E::SCORES],
                                                     const float (&products)[E::THREAD_ROWS][E::SCORES],
                                                     const float *delta)
{
#pragma unroll
    for (int c = 0; c < E::SCORES; c++) {
        const float shift = delta[E::column(c)];
#pragma unroll
        for (int r = 0; r < E::THREAD_ROWS; r++)
            weights[r][c] *= products[r][c] - shift;
    }
}

/* Writes factor * sums, by way of a tile whose rows of this warp are of no more use. */
template <typename E>
__device__ __forceinline__ void attention_write(typename E::T *tile,
                                                const float (&sums)[E::THREAD_ROWS][E::RESULTS], float factor,
                                                const attention_rows<typename E::T> &rows,
                                                const attention_shape &shape)
{
    float factors[E::THREAD_ROWS];
#pragma unroll
    for (int r = 0; r < E::THREAD_ROWS; r++)
        factors[r] = factor;
    E::put(tile, sums, factors);
    E::tile::template store<E::WARP_ROWS>(tile, E::first_row(), rows, shape);
}

template <typename E, int STAGES, int WHAT>
ATTENTION_KERNEL void attention_keys_grad(attention_shape shape, attention_grad<typename E::T> g)
{
    using T = typename E::T;
    using tile = typename E::tile;
    using layout = attention_grad_layout<E, STAGES>;
    CUDA_DYNAMIC_SHARED(T, keys);
    T *const values = keys + layout::VALUES;
    float *const scratch = reinterpret_cast<float *>(keys + layout::SCRATCH);
    const attention_place at = attention_place_of(shape, shape.K, E::ROWS, false);
    const int group = shape.H / shape.K, key_head = shape.H + at.head, value_head = key_head + shape.K;
    const int start = shape.causal ? at.first / E::COLUMNS * E::COLUMNS : 0,
              seen_until = at.first + E::ROWS - 1 + shape.window, /* no query from there on sees a key of the tile */
              end = shape.causal && seen_until < shape.T ? seen_until : shape.T,
              last_head = at.head * group + group - 1;
    int stage = 0, head = at.head * group, first = start; /* of the queries at work */
    float dk[E::THREAD_ROWS][E::RESULTS] = {}, dv[E::THREAD_ROWS][E::RESULTS] = {};

    const auto queries_of = [&](int stage) { return keys + layout::STAGE + stage * 2 * layout::OTHER; };
    const auto statistics_of = [&](int stage) {
        return scratch + E::SCRATCH_BYTES / 4 + stage * 2 * E::COLUMNS;
    };
    const auto load = [&](int stage, int head, int first) {
        const auto queries = attention_rows_of(shape, g.qkv, shape.row, at.b, head, first);
        const auto dout = attention_rows_of(shape, g.dout, shape.H * shape.D, at.b, head, first);
        tile::template load<E::COLUMNS>(queries_of(stage), queries, shape);
        tile::template load<E::COLUMNS>(queries_of(stage) + layout::OTHER, dout, shape);
        attention_load_statistics<E::COLUMNS>(statistics_of(stage), shape, g.lse, g.delta,
                                              at.b * shape.H + head, first);
    };
    tile::template load<E::ROWS>(keys, attention_rows_of(shape, g.qkv, shape.row, at.b, key_head, at.first),
                                 shape);
    if constexpr (WHAT & ATTENTION_DK)
        tile::template load<E::ROWS>(
            values, attention_rows_of(shape, g.qkv, shape.row, at.b, value_head, at.first), shape);
    load(0, head, first);
    while (head <= last_head) {
        const bool turns = first + E::COLUMNS >= end; /* to the next head */
        const int next_head = head + turns, next_first = turns ? start : first + E::COLUMNS;
        mma_copy_wait();
        __syncthreads(); /* these queries are here, and nobody needs those before */
        if (STAGES > 1 && next_head <= last_head)
            load(stage ^ 1, next_head, next_first);
        const T *const queries = queries_of(stage), *const dout = queries + layout::OTHER;
        float weights[E::THREAD_ROWS][E::SCORES], products[E::THREAD_ROWS][E::SCORES];
        E::score(weights, keys, queries);
        attention_weigh_keys<E>(weights, shape, at.first, first, statistics_of(stage));
        if constexpr (WHAT & ATTENTION_DV)
            E::accumulate(dv, weights, dout, scratch);
        if constexpr (WHAT & ATTENTION_DK) {
            E::score(products, values, dout);
            attention_slope_keys<E>(weights, products, statistics_of(stage) + E::COLUMNS);
            E::accumulate(dk, weights, queries, scratch);
        }
        if (STAGES == 1 && next_head <= last_head) {
            __syncthreads(); /* nobody needs these queries any more */
            load(0, next_head, next_first);
        }
        head = next_head;
        first = next_first;
        stage ^= STAGES - 1;
    }
    if constexpr (WHAT & ATTENTION_DK)
        attention_write<E>(values, dk, shape.scale,
                           attention_rows_of(shape, g.dqkv, shape.row, at.b, key_head, at.first), shape);
    if constexpr (WHAT & ATTENTION_DV)
        attention_write<E>(keys, dv, 1,
                           attention_rows_of(shape, g.dqkv, shape.row, at.b, value_head, at.first), shape);
}

/* Turns scores into their gradient. */
template <typename E>
__device__ __forceinline__ void attention_slope_queries(float (&scores)[E::THREAD_ROWS][E::SCORES],
                                                        const float (&products)[E::THREAD_ROWS][E::SCORES],
                                                        float scale2, const float (&shift)[E::THREAD_ROWS],
                                                        const float (&delta)[E::THREAD_ROWS])
{
#pragma unroll
    for (int r = 0; r < E::THREAD_ROWS; r++)
#pragma unroll
        for (int c = 0; c < E::SCORES; c++)
            scores[r][c] = mma_exp2(fmaf(scores[r][c], scale2, shift[r])) * (products[r][c] - delta[r]);
}

/* dQ: a block has ROWS queries of one head, and takes tile after tile of keys and values.
 *
 * Moves (3 H + 2 K) B T D w bytes if keys and values of a head stay in L2, and does 6 B H T^2 D flops (half under the causal
 * mask). In BF16 reads of shared memory take 5/6 of the multiplications' time with MT = 2, and 4/3 with MT = 1. */
template <typename E, int STAGES>
ATTENTION_KERNEL void attention_queries_grad(attention_shape shape, attention_grad<typename E::T> g)
{
    using T = typename E::T;
    using tile = typename E::tile;
    using layout = attention_grad_layout<E, STAGES>;
    CUDA_DYNAMIC_SHARED(T, queries);
    T *const dout = queries + layout::VALUES;
    float *const scratch = reinterpret_cast<float *>(queries + layout::SCRATCH);
    const attention_place at = attention_place_of(shape, shape.H, E::ROWS, true);
    const int key_head = shape.H + at.head / (shape.H / shape.K),
              start = attention_first_key<E>(shape, at.first),
              seen = attention_keys_seen(shape, at.first, E::ROWS);
    auto from = attention_rows_of(shape, g.qkv, shape.row, at.b, key_head, start);
    float shift[E::THREAD_ROWS], delta[E::THREAD_ROWS], dq[E::THREAD_ROWS][E::RESULTS] = {};

    const auto keys_of = [&](int stage) { return queries + layout::STAGE + stage * 2 * layout::OTHER; };
    const auto load = [&](int stage) {
        tile::template load<E::COLUMNS>(keys_of(stage), from, shape);
        tile::template load<E::COLUMNS>(keys_of(stage) + layout::OTHER, attention_values_beside(shape, from),
                                        shape);
        from.skip(E::COLUMNS);
    };
    tile::template load<E::ROWS>(queries, attention_rows_of(shape, g.qkv, shape.row, at.b, at.head, at.first),
                                 shape);
    tile::template load<E::ROWS>(
        dout, attention_rows_of(shape, g.dout, shape.H * shape.D, at.b, at.head, at.first), shape);
    load(0);
#pragma unroll
    for (int r = 0; r < E::THREAD_ROWS; r++) {
        const int query = at.first + E::row(r);
        const int64_t i = static_cast<int64_t>(at.b * shape.H + at.head) * shape.T + query;
        shift[r] = query < shape.T ? -ATTENTION_LOG2_E * g.lse[i] : 0;
        delta[r] = query < shape.T ? g.delta[i] : 0;
    }
    for (int first = start, stage = 0; first < seen; first += E::COLUMNS, stage ^= STAGES - 1) {
        const bool more = first + E::COLUMNS < seen;
        mma_copy_wait();
        __syncthreads(); /* these keys and values are here, and nobody needs those before */
        if (STAGES > 1 && more)
            load(stage ^ 1);
        float scores[E::THREAD_ROWS][E::SCORES], products[E::THREAD_ROWS][E::SCORES];
        E::score(scores, queries, keys_of(stage));
        attention_mask<E, true>(scores, shape, at.first, first);
        E::score(products, dout, keys_of(stage) + layout::OTHER);
        attention_slope_queries<E>(scores, products, shape.scale2, shift, delta);
        E::accumulate(dq, scores, keys_of(stage), scratch);
        if (STAGES == 1 && more) {
            __syncthreads(); /* nobody needs these keys and values any more */
            load(0);
        }
    }
    attention_write<E>(queries, dq, shape.scale,
                       attention_rows_of(shape, g.dqkv, shape.row, at.b, at.head, at.first), shape);
}

#endif
