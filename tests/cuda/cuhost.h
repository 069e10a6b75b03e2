/* Runs CUDA kernels on the host, from the same .cu files, for tests without a GPU: a compiler for C++ reads this header
 * first (`g++ -x c++ -include tests/cuda/cuhost.h`) and finds what nvcc would have built in.
 *
 * Blocks run one after another. The threads of a block are fibers of one operating-system thread: each runs until it waits
 * at a barrier or in a warp function, then the next one does. What a GPU leaves to chance is chosen here: the order of
 * threads and blocks (cuhost_set_order), which must never change a bit of a result. What a GPU leaves undefined ends the
 * program with a sentence: a barrier or a warp function that not all reach, a shuffle from a lane that takes no part,
 * blocks and shared memory beyond a GPU's limits. Shared memory starts as NaN, and each array is an allocation of its own,
 * so that the address sanitizer sees an access out of bounds; so it does in device memory that is malloc'ed.
 *
 * Not emulated: blocks at the same time, textures, clusters, cooperative groups; tensor cores and asynchronous copies have a
 * host version in kernels/cuda/mma.cuh. No atomicAdd() of floats: its result depends on the order. */
#ifndef MEMPLAN_TESTS_CUDA_CUHOST_H
#define MEMPLAN_TESTS_CUDA_CUHOST_H

#ifdef __CUDACC__
#error "cuhost.h takes the place of nvcc; do not give it to nvcc"
#endif

#include <cuda_runtime.h>

#include <cuda_bf16.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__    static const
#define __forceinline__ inline
#define __launch_bounds__(...)
/* Shared arrays are made by CUDA_SHARED() and CUDA_DYNAMIC_SHARED() of kernels/cuda/launch.cuh: a variable could not be
 * filled with NaN for each block, nor guarded. */
#define __shared__ static_assert(false, "write CUDA_SHARED(type, name, count), see kernels/cuda/launch.cuh");

/* ---- for tests and doubles, in C too: tests/cuda/cuhost_control.h ---- */

#include "tests/cuda/cuhost_control.h"

namespace cuhost
{

/* A launch on a stream: `work` runs all of its blocks. */
using submit_hook = void (*)(void *stream, const char *kernel, std::function<void()> work);

/* From now on launches are handed to `hook`, which runs their work when the stream gets there, perhaps more than once (a
 * graph). NULL, as at the start: they run at once. */
void set_submit_hook(submit_hook hook);

/* What a kernel is given may point to what it touches: pointers among its arguments, those to const being for reading only,
 * and every word of its structs, which may be a pointer to be written through. */
struct memory_use {
    const void *start;
    bool writes;
};

/* Of the launch for which the hook is called now. */
const std::vector<memory_use> &launch_uses();

/* Ends the program with "cuhost: KERNEL, block X, thread Y: " and this sentence. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- for the built-in names below ---- */

struct block_place {
    uint3 index;
    dim3 size, grid;
};

struct thread_place {
    uint3 index;
    unsigned number; /* in the block: x fastest */
    const block_place *block;
};

/* The thread that runs now. */
extern __thread const thread_place *here;

struct source_line {
    const char *file;
    int line;
};

/* Where the caller of a built-in function is: as a default argument these name the caller's line. */
inline source_line line_of(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    return {file, line};
}

/* Waits for every thread of the block. */
void block_barrier(source_line where);

/* What a warp does when all lanes of `mask` are there: lane[i] is what lane i brought, for i in mask. */
using combine = void (*)(void *const *lane, unsigned mask);

/* Waits for the lanes of `mask` that the block has, all of which must be at this line; the last to come calls `how` once. */
void warp_meet(unsigned mask, void *mine, combine how, source_line where);

/* An access of so many bytes must be at a multiple of as many. */
void check_aligned(const void *pointer, size_t bytes);

/* The block's array of this place in the source. */
void *static_shared(const void *place, size_t bytes);
void *dynamic_shared();

/* As cudaFuncSetAttribute(): this kernel may ask for more than 48 KiB. */
cudaError_t allow_shared(const void *kernel, size_t bytes);

struct launch_shape {
    const char *name;
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    void *stream;
};

void submit(const launch_shape &shape, std::function<void()> thread, std::vector<memory_use> uses);

template <typename T> void list_uses(const T &argument, std::vector<memory_use> &uses)
{
    if constexpr (std::is_pointer_v<T>) {
        uses.push_back({argument, !std::is_const_v<std::remove_pointer_t<T>>});
    } else if constexpr (std::is_class_v<T>) {
        for (size_t at = 0; at + sizeof(void *) <= sizeof argument; at += sizeof(void *)) {
            void *word;
            memcpy(&word, reinterpret_cast<const char *>(&argument) + at, sizeof word);
            uses.push_back({word, true});
        }
    }
}

/* The arguments are copied now, whenever the kernel runs. */
template <typename... Parameters, typename... Arguments>
void launch(launch_shape shape, void (*kernel)(Parameters...), Arguments &&...arguments)
{
    std::tuple<std::decay_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
    std::vector<memory_use> uses;
    std::apply([&uses](const auto &...argument) { (list_uses(argument, uses), ...); }, values);
    shape.kernel = reinterpret_cast<const void *>(kernel);
    submit(shape, [kernel, values] { std::apply(kernel, values); }, std::move(uses));
}

inline unsigned lane()
{
    return here->number % 32;
}

/* ---- warp functions ---- */

template <typename T> struct shuffled {
    T value, result;
    unsigned source;
};

template <typename T> void shuffle_all(void *const *lane, unsigned mask)
{
    for (unsigned i = 0; i < 32; i++) {
        if (!(mask >> i & 1))
            continue;
        auto *mine = static_cast<shuffled<T> *>(lane[i]);
        if (!(mask >> mine->source & 1))
            fail("lane %u shuffles from lane %u, which takes no part", i, mine->source);
        mine->result = static_cast<shuffled<T> *>(lane[mine->source])->value;
    }
}

template <typename T> T shuffle(unsigned mask, T value, unsigned source, source_line where)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    shuffled<T> mine = {value, value, source};
    warp_meet(mask, &mine, shuffle_all<T>, where);
    return mine.result;
}

struct ballot {
    bool vote;
    unsigned votes;
};

inline void count_votes(void *const *lane, unsigned mask)
{
    unsigned votes = 0;
    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1)
            votes |= static_cast<unsigned>(static_cast<ballot *>(lane[i])->vote) << i;
    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1)
            static_cast<ballot *>(lane[i])->votes = votes;
}

inline void only_meet(void *const *, unsigned)
{
}

} // namespace cuhost

#define threadIdx (cuhost::here->index)
#define blockIdx  (cuhost::here->block->index)
#define blockDim  (cuhost::here->block->size)
#define gridDim   (cuhost::here->block->grid)
#define warpSize  32

inline void __syncthreads(cuhost::source_line where = cuhost::line_of(__builtin_FILE(), __builtin_LINE()))
{
    cuhost::block_barrier(where);
}

inline void __syncwarp(unsigned mask = ~0u,
                       cuhost::source_line where = cuhost::line_of(__builtin_FILE(), __builtin_LINE()))
{
    cuhost::warp_meet(mask, nullptr, cuhost::only_meet, where);
}

/* Of the lane `source` of the caller's group of `width` lanes. */
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              cuhost::source_line where = cuhost::line_of(__builtin_FILE(), __builtin_LINE()))
{
    unsigned within = static_cast<unsigned>(width) - 1, lane = cuhost::lane();
    return cuhost::shuffle(mask, value, (lane & ~within) | (static_cast<unsigned>(source) & within), where);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  cuhost::source_line where = cuhost::line_of(__builtin_FILE(), __builtin_LINE()))
{
    unsigned within = static_cast<unsigned>(width) - 1, lane = cuhost::lane();
    unsigned source = lane ^ static_cast<unsigned>(bits);
    bool later_group = (source & ~within) > (lane & ~within);
    return cuhost::shuffle(mask, value, later_group ? lane : source, where);
}

/* Of the lane `distance` after the caller, or the caller's own beyond the group's end. */
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   cuhost::source_line where = cuhost::line_of(__builtin_FILE(), __builtin_LINE()))
{
    unsigned lane = cuhost::lane(), place = lane & (static_cast<unsigned>(width) - 1);
    bool inside = place + distance < static_cast<unsigned>(width);
    return cuhost::shuffle(mask, value, inside ? lane + distance : lane, where);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 cuhost::source_line where = cuhost::line_of(__builtin_FILE(), __builtin_LINE()))
{
    unsigned lane = cuhost::lane(), place = lane & (static_cast<unsigned>(width) - 1);
    return cuhost::shuffle(mask, value, place >= distance ? lane - distance : lane, where);
}

inline unsigned __ballot_sync(unsigned mask, int vote,
                              cuhost::source_line where = cuhost::line_of(__builtin_FILE(), __builtin_LINE()))
{
    cuhost::ballot mine = {vote != 0, 0};
    cuhost::warp_meet(mask, &mine, cuhost::count_votes, where);
    return mine.votes;
}

inline int __any_sync(unsigned mask, int vote,
                      cuhost::source_line where = cuhost::line_of(__builtin_FILE(), __builtin_LINE()))
{
    return __ballot_sync(mask, vote, where) != 0;
}

inline int __all_sync(unsigned mask, int vote,
                      cuhost::source_line where = cuhost::line_of(__builtin_FILE(), __builtin_LINE()))
{
    return __ballot_sync(mask, !vote, where) == 0;
}

inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

/* ---- atomics: real ones, because blocks may run on several operating-system threads ---- */

template <typename T> T atomicAdd(T *place, std::common_type_t<T> value)
{
    static_assert(std::is_integral_v<T>, "a sum of floats depends on the order; reduce in a fixed one");
    return __atomic_fetch_add(place, value, __ATOMIC_RELAXED);
}

template <typename T> T atomicExch(T *place, std::common_type_t<T> value)
{
    return __atomic_exchange_n(place, value, __ATOMIC_RELAXED);
}

template <typename T> T atomicCAS(T *place, std::common_type_t<T> expected, std::common_type_t<T> value)
{
    __atomic_compare_exchange_n(place, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

template <typename T> T atomicMin(T *place, std::common_type_t<T> value)
{
    T old = __atomic_load_n(place, __ATOMIC_RELAXED);
    while (value < old &&
           !__atomic_compare_exchange_n(place, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    return old;
}

template <typename T> T atomicMax(T *place, std::common_type_t<T> value)
{
    T old = __atomic_load_n(place, __ATOMIC_RELAXED);
    while (value > old &&
           !__atomic_compare_exchange_n(place, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    return old;
}

inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* ---- loads and stores with a hint for the cache, and numbers seen as bits ---- */

template <typename T> T __ldg(const T *from)
{
    return *from;
}

template <typename T> T __ldcs(const T *from)
{
    return *from;
}

template <typename T> T __ldcg(const T *from)
{
    return *from;
}

template <typename T> void __stcs(T *to, T value)
{
    *to = value;
}

template <typename T> void __stcg(T *to, T value)
{
    *to = value;
}

inline unsigned __float_as_uint(float value)
{
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float __uint_as_float(unsigned bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
