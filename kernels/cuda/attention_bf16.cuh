/* The products of attention in BF16, on tensor cores (mma.cuh). A warp owns MT times 16 rows; scores stay in its registers,
 * where an accumulator, rounded to BF16, is the left factor of the next product, as in FlashAttention-2 (Dao 2023,
 * arXiv:2307.08691). mma.sync runs on sm_80 and later; sm_90's own wgmma, which is faster there, is not used. */
#ifndef MEMPLAN_KERNELS_CUDA_ATTENTION_BF16_CUH
#define MEMPLAN_KERNELS_CUDA_ATTENTION_BF16_CUH

#include "kernels/cuda/attention_tile.cuh"

/* Tiles of SIZE elements a row; the block's own tile has 64 MT rows, the other tile COLUMNS. */
template <int SIZE_, int MT, int COLUMNS_> struct attention_bf16 {
    using T = bf16;
    enum {
        SIZE = SIZE_,
        COLUMNS = COLUMNS_,
        WARP_ROWS = 16 * MT,
        ROWS = WARP_ROWS * ATTENTION_WARPS,
        SCRATCH_BYTES = 0,
        ROW_LANES = 4,        /* lanes that share a row */
        THREAD_ROWS = 2 * MT, /* of a thread */
        SCORES = COLUMNS / 4, /* of a thread in a row */
        RESULTS = SIZE / 4,
    };
    using tile = attention_tile<T, SIZE>;
    static_assert(SIZE % 16 == 0 && COLUMNS % 16 == 0, "fragments are 16 x 16");

    __device__ __forceinline__ static int lane()
    {
        return threadIdx.x % 32;
    }

    __device__ __forceinline__ static int first_row()
    {
        return threadIdx.x / 32 * WARP_ROWS;
    }

    /* The thread's r-th row in the tile, and the c-th score's or result's column. */
    __device__ __forceinline__ static int row(int r)
    {
        return first_row() + r / 2 * 16 + r % 2 * 8 + lane() / 4;
    }

    __device__ __forceinline__ static int column(int c)
    {
        return c / 2 * 8 + lane() % 4 * 2 + c % 2;
    }

    /* scores = own other^T, where own and other are tiles of ROWS and COLUMNS rows. */
    __device__ __forceinline__ static void score(float (&scores)[THREAD_ROWS][SCORES], const T *own,
                                                 const T *other)
    {
        const mma_place left =
            mma_place_of(own + (first_row() + lane() % 16) * tile::PITCH + lane() / 16 * 8);
        const mma_place right =
            mma_place_of(other + (lane() / 16 * 8 + lane() % 8) * tile::PITCH + lane() / 8 % 2 * 8);
#pragma unroll
        for (int r = 0; r < THREAD_ROWS; r++)
#pragma unroll
            for (int c = 0; c < SCORES; c++)
                scores[r][c] = 0;
#pragma unroll
        for (int k = 0; k < SIZE; k += 16) {
            uint32_t a[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++)
                mma_load(a[m], left, m * 16 * tile::PITCH + k);
#pragma unroll
            for (int n = 0; n < COLUMNS; n += 16) {
                uint32_t b[4];
                mma_load(b, right, n * tile::PITCH + k);
#pragma unroll
                for (int m = 0; m < MT; m++)
                    multiply(scores[2 * m] + n / 4, scores[2 * m + 1] + n / 4, a[m], b);
            }
        }
    }

    /* results += weights other; nothing is needed of `scratch`. */
    __device__ __forceinline__ static void accumulate(float (&results)[THREAD_ROWS][RESULTS],
                                                      const float (&weights)[THREAD_ROWS][SCORES],
                                                      const T *other, float *)
    {
        const mma_place right = mma_place_of(other + lane() % 16 * tile::PITCH + lane() / 16 * 8);
#pragma unroll
        for (int k = 0; k < COLUMNS; k += 16) {
            uint32_t a[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float *pair = weights[2 * m + i % 2] + k / 4 + i / 2 * 2;
                    a[m][i] = mma_pack(pair[0], pair[1]);
                }
#pragma unroll
            for (int n = 0; n < SIZE; n += 16) {
                uint32_t b[4];
                mma_load_transposed(b, right, k * tile::PITCH + n);
#pragma unroll
                for (int m = 0; m < MT; m++)
                    multiply(results[2 * m] + n / 4, results[2 * m + 1] + n / 4, a[m], b);
            }
        }
    }

    /* Puts factor[r] * results into the thread's places of a tile. */
    __device__ __forceinline__ static void put(T *to, const float (&results)[THREAD_ROWS][RESULTS],
                                               const float (&factor)[THREAD_ROWS])
    {
#pragma unroll
        for (int r = 0; r < THREAD_ROWS; r++)
#pragma unroll
            for (int c = 0; c < RESULTS; c += 2)
                *reinterpret_cast<uint32_t *>(to + row(r) * tile::PITCH + column(c)) =
                    mma_pack(factor[r] * results[r][c], factor[r] * results[r][c + 1]);
    }

  private:
    /* 16 rows times 16 columns: two instructions side by side. */
    __device__ __forceinline__ static void multiply(float *top, float *bottom, const uint32_t *a,
                                                    const uint32_t *b)
    {
        mma_multiply(top, bottom, a, b);
        mma_multiply(top + 2, bottom + 2, a, b + 2);
    }
};

#endif
