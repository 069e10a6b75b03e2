/* Tiles of attention: a few rows of one head, between global memory, where the rows of a head are far apart, and shared
 * memory, where they lie side by side as D elements padded with zeros to SIZE. A row takes 16 bytes more than it holds, so
 * that 8 rows at the same column lie in different banks (SIZE elements are an even number of 16 bytes).
 *
 * Every block has ATTENTION_THREADS threads, and a warp owns a quarter of the block's own tile: no other warp reads those
 * rows or computes their results. */
#ifndef MEMPLAN_KERNELS_CUDA_ATTENTION_TILE_CUH
#define MEMPLAN_KERNELS_CUDA_ATTENTION_TILE_CUH

#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"

enum { ATTENTION_THREADS = 128, ATTENTION_WARPS = 4 };

/* Two blocks per multiprocessor leave a thread all the registers that it can have. */
#define ATTENTION_KERNEL __global__ __launch_bounds__(ATTENTION_THREADS, 2)

constexpr float ATTENTION_LOG2_E = 1.4426950408889634f;

/* What all blocks of a launch know. */
struct attention_shape {
    int T, H, K, D;
    int row; /* elements of a row of qkv: (H + 2K) D */
    bool causal;
    bool wide;    /* every head's rows start at multiples of 16 bytes, and are as long */
    int window;   /* keys that a query sees, its own and those before; T where there is no window */
    float scale;  /* 1 / sqrt(D), or what is given */
    float scale2; /* the same for exponents of 2: log2(e) times it */
};

/* Some of the rows of one head in global memory: `count` of them exist, `stride` elements apart. */
template <typename T> struct attention_rows {
    T *first;
    int stride, count;

    __device__ __forceinline__ void skip(int rows)
    {
        first += static_cast<int64_t>(rows) * stride;
        count -= rows;
    }
};

/* The rows of head `head` of `width` elements per position, from position `at` on, in sequence b. */
template <typename T>
__device__ __forceinline__ attention_rows<T> attention_rows_of(const attention_shape &shape, T *tensor,
                                                               int width, int64_t b, int head, int at)
{
    return {tensor + (b * shape.T + at) * width + static_cast<int64_t>(head) * shape.D, width, shape.T - at};
}

template <typename T, int SIZE> struct attention_tile {
    enum {
        PACK = 16 / sizeof(T), /* elements of an access */
        PITCH = SIZE + PACK,
        PACKS = SIZE / PACK,
        STEP = ATTENTION_THREADS / PACKS, /* rows that the threads load at a time */
    };

    /* Starts to fill COUNT rows; those that do not exist, and columns from D on, become zeros. After mma_copy_wait() and a
     * barrier all threads may read. */
    template <int COUNT>
    __device__ static void load(T *tile, const attention_rows<const T> &rows, const attention_shape &shape)
    {
        if (shape.wide) {
            const int row = threadIdx.x / PACKS, column = threadIdx.x % PACKS * PACK;
            const T *from = rows.first + (row * rows.stride + column);
            const mma_place to = mma_place_of(tile + row * PITCH + column);
            if (row >= STEP)
                return;
#pragma unroll
            for (int i = 0; i < COUNT; i += STEP)
                if (COUNT % STEP == 0 || i + row < COUNT)
                    mma_copy<16>(to, i * PITCH * static_cast<int>(sizeof(T)), from + i * rows.stride,
                                 i + row < rows.count && column < shape.D);
        } else {
#pragma unroll 1 /* the products need the registers */
            for (int at = threadIdx.x; at < COUNT * SIZE; at += ATTENTION_THREADS) {
                const int row = at / SIZE, column = at % SIZE;
                const bool valid = row < rows.count && column < shape.D;
                from_float(valid ? to_float(rows.first[row * rows.stride + column]) : 0.0f,
                           tile + row * PITCH + column);
            }
        }
    }

    /* Writes the COUNT rows from `first_row` on, which the calling warp has put into the tile. */
    template <int COUNT>
    __device__ static void store(const T *tile, int first_row, const attention_rows<T> &rows,
                                 const attention_shape &shape)
    {
        const int lane = threadIdx.x % 32, left = rows.count - first_row, count = left < COUNT ? left : COUNT;
        const T *from = tile + first_row * PITCH;
        T *to = rows.first + first_row * rows.stride;
        __syncwarp();
        if (shape.wide) {
            for (int at = lane; at < count * PACKS; at += 32) {
                const int row = at / PACKS, column = at % PACKS * PACK;
                if (column >= shape.D)
                    continue;
                CUDA_ALIGNED(to + row * rows.stride + column, sizeof(uint4));
                *reinterpret_cast<uint4 *>(to + row * rows.stride + column) =
                    *reinterpret_cast<const uint4 *>(from + row * PITCH + column);
            }
        } else {
#pragma unroll 1
            for (int at = lane; at < count * SIZE; at += 32)
                if (at % SIZE < shape.D)
                    to[at / SIZE * rows.stride + at % SIZE] = from[at / SIZE * PITCH + at % SIZE];
        }
    }
};

/* The maximum or sum over the LANES neighbouring lanes that share a row. */
template <int LANES> __device__ __forceinline__ float attention_row_max(float value)
{
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

template <int LANES> __device__ __forceinline__ float attention_row_sum(float value)
{
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2)
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

#endif
