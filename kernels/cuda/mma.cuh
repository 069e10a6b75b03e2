/* Tensor cores and asynchronous copies, a few instructions of PTX (ISA 7.0, sm_80) each behind a function. Behind
 * tests/cuda/cuhost.h the same functions do what the manual says the instruction does, lane by lane, so that the kernels'
 * addresses and layouts are tested without a GPU; only the spelling of the instructions is not.
 *
 * A 16 x 16 fragment `a`, a 16 x 8 fragment `b` and a 16 x 8 accumulator are spread over the lanes of a warp. With
 * row = lane / 4 and pair = 2 * (lane % 4), a lane holds (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
 *     a[0]: (row, pair), (row, pair + 1)    a[1]: the same of row + 8    a[2], a[3]: the same of pair + 8
 *     b[0]: (pair, row), (pair + 1, row)    b[1]: the same of pair + 8
 *     top:  (row, pair), (row, pair + 1)    bottom: the same of row + 8
 * so an accumulator's two halves, rounded, are the `a` of a next product. */
#ifndef MEMPLAN_KERNELS_CUDA_MMA_CUH
#define MEMPLAN_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/launch.cuh"

/* Two floats rounded to BF16, `low` in the low half: an element of a fragment. */
__device__ __forceinline__ uint32_t mma_pack(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

#ifdef __CUDACC__

/* (top, bottom) += a b, in F32. Volatile, because all lanes must come: the compiler shall not move it to where only some do. */
__device__ __forceinline__ void mma_multiply(float *top, float *bottom, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(top[0]), "+f"(top[1]), "+f"(bottom[0]), "+f"(bottom[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* A place in shared memory, as these instructions want it: offsets from it cost nothing, while a pointer for each access would
 * take a register. */
struct mma_place {
    unsigned address;
};

__device__ __forceinline__ mma_place mma_place_of(const void *shared)
{
    return {static_cast<unsigned>(__cvta_generic_to_shared(shared))};
}

/* Four 8 x 8 matrices of BF16 from shared memory: lanes 0..7 name the rows of the first (16 aligned bytes each, `offset`
 * elements from the place), lanes 8..15 those of the second, and so on. out[i] is (lane / 4, pair), (lane / 4, pair + 1) of
 * the i-th. */
__device__ __forceinline__ void mma_load(uint32_t *out, mma_place row, int offset)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row.address + 2 * offset)
                 : "memory");
}

/* The same with every matrix transposed: out[i] is (pair, lane / 4), (pair + 1, lane / 4). */
__device__ __forceinline__ void mma_load_transposed(uint32_t *out, mma_place row, int offset)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row.address + 2 * offset)
                 : "memory");
}

/* Starts a copy of 4 or 16 bytes from global to shared memory (`offset` bytes from the place), both aligned to as many; zeros
 * when not `valid`, and then nothing is read. The bytes are there for the calling thread after mma_copy_wait(), for others
 * after a barrier besides. */
template <int BYTES>
__device__ __forceinline__ void mma_copy(mma_place to, int offset, const void *global, bool valid)
{
    const unsigned shared = to.address + offset;
    const int bytes = valid ? BYTES : 0;
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(bytes)
                     : "memory");
}

/* Waits for all copies that this thread started. */
__device__ __forceinline__ void mma_copy_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* 2^x to 2 units in the last place; 0 below 2^-126. */
__device__ __forceinline__ float mma_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#else

#include <cmath>
#include <cstring>
#include <vector>

namespace mma_host
{

struct product {
    float *top, *bottom;
    const uint32_t *a, *b;
};

inline float element(uint32_t pair, int index)
{
    uint32_t bits = index ? pair & 0xffff0000u : pair << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Collects the fragments of 32 lanes into matrices, multiplies, and hands the sums back. */
inline void multiply(void *const *lanes, unsigned)
{
    float a[16][16], b[8][16]; /* b by columns */
    for (int lane = 0; lane < 32; lane++) {
        const auto *mine = static_cast<const product *>(lanes[lane]);
        const int row = lane / 4, pair = lane % 4 * 2;
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 2; k++)
                a[row + i % 2 * 8][pair + i / 2 * 8 + k] = element(mine->a[i], k);
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 2; k++)
                b[row][pair + i * 8 + k] = element(mine->b[i], k);
    }
    for (int lane = 0; lane < 32; lane++) {
        const auto *mine = static_cast<const product *>(lanes[lane]);
        const int row = lane / 4, pair = lane % 4 * 2;
        for (int e = 0; e < 2; e++) {
            float upper = 0, lower = 0;
            for (int k = 0; k < 16; k++) {
                upper += a[row][k] * b[pair + e][k];
                lower += a[row + 8][k] * b[pair + e][k];
            }
            mine->top[e] += upper;
            mine->bottom[e] += lower;
        }
    }
}

struct matrix_load {
    uint32_t *out;
    const bf16 *row;
};

template <bool TRANSPOSED> void load(void *const *lanes, unsigned)
{
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            bf16 pair[2];
            for (int e = 0; e < 2; e++) {
                const int along = lane % 4 * 2 + e, across = lane / 4;
                const int row = TRANSPOSED ? along : across, column = TRANSPOSED ? across : along;
                pair[e] = static_cast<const matrix_load *>(lanes[8 * i + row])->row[column];
            }
            memcpy(&static_cast<const matrix_load *>(lanes[lane])->out[i], pair, sizeof pair);
        }
}

/* A copy arrives as late as a GPU may let it: when its thread waits. */
struct copy {
    void *shared;
    const void *global;
    size_t bytes;
    bool valid;
};

inline std::vector<copy> &copies_of_thread()
{
    static thread_local std::vector<copy> started[1024];
    return started[cuhost::here->number];
}

inline const bf16 *row_at(const char *place, int offset)
{
    cuhost::check_aligned(place + 2 * offset, 16);
    return reinterpret_cast<const bf16 *>(place + 2 * offset);
}

} // namespace mma_host

inline void mma_multiply(float *top, float *bottom, const uint32_t *a, const uint32_t *b)
{
    mma_host::product mine = {top, bottom, a, b};
    cuhost::warp_meet(~0u, &mine, mma_host::multiply, cuhost::line_of());
}

struct mma_place {
    char *address;
};

inline mma_place mma_place_of(const void *shared)
{
    return {static_cast<char *>(const_cast<void *>(shared))};
}

inline void mma_load(uint32_t *out, mma_place row, int offset)
{
    mma_host::matrix_load mine = {out, mma_host::row_at(row.address, offset)};
    cuhost::warp_meet(~0u, &mine, mma_host::load<false>, cuhost::line_of());
}

inline void mma_load_transposed(uint32_t *out, mma_place row, int offset)
{
    mma_host::matrix_load mine = {out, mma_host::row_at(row.address, offset)};
    cuhost::warp_meet(~0u, &mine, mma_host::load<true>, cuhost::line_of());
}

/* Until the copy arrives the place holds NaN, for whoever does not wait. */
template <int BYTES> void mma_copy(mma_place to, int offset, const void *global, bool valid)
{
    static_assert(BYTES == 4 || BYTES == 16, "what the kernels copy at a time");
    cuhost::check_aligned(to.address + offset, BYTES);
    cuhost::check_aligned(global, BYTES);
    memset(to.address + offset, 0xff, BYTES);
    mma_host::copies_of_thread().push_back({to.address + offset, global, BYTES, valid});
}

inline void mma_copy_wait()
{
    for (const mma_host::copy &copy : mma_host::copies_of_thread()) {
        memset(copy.shared, 0, copy.bytes);
        if (copy.valid)
            memcpy(copy.shared, copy.global, copy.bytes);
    }
    mma_host::copies_of_thread().clear();
}

inline float mma_exp2(float x)
{
    return exp2f(x);
}

#endif

#endif
