/* The products of attention in F32, by fused multiply-adds: F32 means 24 bits of mantissa, so TF32 tensor cores (11 bits) are
 * not used. 8 x 16 threads share a tile; a thread has THREAD_ROWS rows and every 16th column, so that a warp's reads of the
 * other tile touch 16 rows in different banks and its reads of the own tile are broadcasts. */
#ifndef MEMPLAN_KERNELS_CUDA_ATTENTION_F32_CUH
#define MEMPLAN_KERNELS_CUDA_ATTENTION_F32_CUH

#include "kernels/cuda/attention_tile.cuh"

/* As attention_bf16; the block's own tile has 8 THREAD_ROWS rows. */
template <int SIZE_, int THREAD_ROWS_, int COLUMNS_> struct attention_f32 {
    using T = float;
    enum {
        SIZE = SIZE_,
        COLUMNS = COLUMNS_,
        THREAD_ROWS = THREAD_ROWS_,
        WARP_ROWS = 2 * THREAD_ROWS,
        ROWS = WARP_ROWS * ATTENTION_WARPS,
        ROW_LANES = 16,
        SCORES = COLUMNS / ROW_LANES,
        RESULTS = SIZE / ROW_LANES,
        SCRATCH_PITCH = COLUMNS + 16, /* two rows next to each other in different halves of the banks */
        SCRATCH_BYTES = ROWS * SCRATCH_PITCH * 4,
        RUN = RESULTS % 4 == 0 ? 4 : 2, /* results side by side */
    };
    using tile = attention_tile<T, SIZE>;
    static_assert(SIZE % 32 == 0 && COLUMNS % 16 == 0, "a thread has whole runs of columns");

    __device__ __forceinline__ static int lane()
    {
        return threadIdx.x % ROW_LANES;
    }

    __device__ __forceinline__ static int first_row()
    {
        return threadIdx.x / 32 * WARP_ROWS;
    }

    __device__ __forceinline__ static int row(int r)
    {
        return first_row() + r * 2 + threadIdx.x / ROW_LANES % 2;
    }

    __device__ __forceinline__ static int column(int c)
    {
        return c * ROW_LANES + lane();
    }

    __device__ __forceinline__ static void score(float (&scores)[THREAD_ROWS][SCORES], const T *own,
                                                 const T *other)
    {
#pragma unroll
        for (int r = 0; r < THREAD_ROWS; r++)
#pragma unroll
            for (int c = 0; c < SCORES; c++)
                scores[r][c] = 0;
#pragma unroll 2
        for (int k = 0; k < SIZE; k += 4) {
            float left[THREAD_ROWS][4];
#pragma unroll
            for (int r = 0; r < THREAD_ROWS; r++)
                load_pack(own + row(r) * tile::PITCH + k, left[r]);
#pragma unroll
            for (int c = 0; c < SCORES; c++) {
                float right[4];
                load_pack(other + column(c) * tile::PITCH + k, right);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int r = 0; r < THREAD_ROWS; r++)
                        scores[r][c] = fmaf(left[r][i], right[i], scores[r][c]);
            }
        }
    }

    /* The weights of a row are spread over 16 lanes, and each needs all: they meet in `scratch`, where a warp has its own
     * rows. */
    __device__ __forceinline__ static void accumulate(float (&results)[THREAD_ROWS][RESULTS],
                                                      const float (&weights)[THREAD_ROWS][SCORES],
                                                      const T *other, float *scratch)
    {
        __syncwarp();
#pragma unroll
        for (int r = 0; r < THREAD_ROWS; r++)
#pragma unroll
            for (int c = 0; c < SCORES; c++)
                scratch[row(r) * SCRATCH_PITCH + column(c)] = weights[r][c];
        __syncwarp();
#pragma unroll 1
        for (int k = 0; k < COLUMNS; k += 4) {
            float left[THREAD_ROWS][4];
#pragma unroll
            for (int r = 0; r < THREAD_ROWS; r++)
                load_pack(scratch + row(r) * SCRATCH_PITCH + k, left[r]);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < RESULTS; c += RUN) {
                    float right[RUN];
                    load_pack(other + (k + i) * tile::PITCH + run(c), right);
#pragma unroll
                    for (int e = 0; e < RUN; e++)
#pragma unroll
                        for (int r = 0; r < THREAD_ROWS; r++)
                            results[r][c + e] = fmaf(left[r][i], right[e], results[r][c + e]);
                }
        }
    }

    __device__ __forceinline__ static void put(T *to, const float (&results)[THREAD_ROWS][RESULTS],
                                               const float (&factor)[THREAD_ROWS])
    {
#pragma unroll
        for (int r = 0; r < THREAD_ROWS; r++)
#pragma unroll
            for (int c = 0; c < RESULTS; c++)
                to[row(r) * tile::PITCH + run(c) + c % RUN] = factor[r] * results[r][c];
    }

  private:
    /* The first column of the run that result c is in. */
    __device__ __forceinline__ static int run(int c)
    {
        return (c / RUN * ROW_LANES + lane()) * RUN;
    }
};

#endif
