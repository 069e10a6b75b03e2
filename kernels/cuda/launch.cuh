/* What every .cu file starts from: the one way to launch a kernel and the two ways to have shared memory, so that the same
 * files are compiled by nvcc for a GPU and, behind tests/cuda/cuhost.h, by a C++ compiler for tests on the host; and the
 * choice of a kernel's instance from a dtype.
 *
 *     CUDA_LAUNCH((gelu_kernel<T, N>), grid, block, shared_bytes, stream, arguments...)
 *     CUDA_SHARED(float, parts, 32);            inside a kernel: float *parts, of the block
 *     CUDA_DYNAMIC_SHARED(float, tile);         the same with the launch's shared_bytes
 *
 * Both kinds of shared memory hold anything at first. All threads of a block must reach a barrier (none may have left), and
 * all lanes of its mask a warp function, at the same line. No atomicAdd() of floats: sums have a fixed order. */
#ifndef MEMPLAN_KERNELS_CUDA_LAUNCH_CUH
#define MEMPLAN_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include <cuda_bf16.h>

#include <cstdint>
#include <cstring>

extern "C" {
#include "device/device_cuda.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/cuda_table.h"
}

#ifdef __CUDACC__

#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                          \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)
#define CUDA_SHARED(type, name, count) __shared__ type name[count]
#define CUDA_DYNAMIC_SHARED(type, name)                                                                      \
    extern __shared__ __align__(16) unsigned char cuda_dynamic_shared[];                                     \
    type *name = reinterpret_cast<type *>(cuda_dynamic_shared)
/* An access of so many bytes at this address; the emulation ends the program where a GPU would end the kernel. */
#define CUDA_ALIGNED(pointer, bytes) ((void)0)
/* Lets a kernel be launched with more than 48 KiB of dynamic shared memory; gives a cudaError_t. */
#define CUDA_ALLOW_SHARED(kernel, bytes)                                                                     \
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes))

#else

#ifndef MEMPLAN_TESTS_CUDA_CUHOST_H
#error "compile with nvcc, or with -include tests/cuda/cuhost.h for the host"
#endif
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                          \
    cuhost::launch({#kernel, nullptr, grid, block, static_cast<size_t>(shared_bytes), stream},               \
                   kernel __VA_OPT__(, ) __VA_ARGS__)
/* The address of `name##_place` tells this array from the block's others. */
#define CUDA_SHARED(type, name, count)                                                                       \
    static const char name##_place = 0;                                                                      \
    type *name = static_cast<type *>(cuhost::static_shared(&name##_place, sizeof(type) * (count)))
#define CUDA_DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(cuhost::dynamic_shared())
#define CUDA_ALIGNED(pointer, bytes) cuhost::check_aligned(pointer, bytes)
#define CUDA_ALLOW_SHARED(kernel, bytes)                                                                     \
    cuhost::allow_shared(reinterpret_cast<const void *>(kernel), static_cast<size_t>(bytes))

#endif

using bf16 = __nv_bfloat16;

static inline const struct cuda_context *cuda_of(const struct kernel_context *context)
{
    return static_cast<const struct cuda_context *>(context->device);
}

/* After a launch: 0, or -1 with the runtime's words. Trouble while the kernel runs shows when the host next synchronises. */
static inline int cuda_launched(const char *kernel, struct error *err)
{
    cudaError_t status = cudaGetLastError();
    if (status == cudaSuccess)
        return 0;
    return error_set(err, "the CUDA kernel %s could not be launched: %s (%s); %s", kernel,
                     cudaGetErrorString(status), cudaGetErrorName(status),
                     device_cuda_way_out(static_cast<int>(status)));
}

/* Are all of these addresses fit for accesses of 16 bytes? NULL is. */
template <typename... Pointers> static inline bool cuda_are_aligned(Pointers... pointers)
{
    return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

/* Do rows of this many elements start at multiples of 16 bytes, when the first does? */
static inline bool cuda_packs_rows(enum dtype dtype, int64_t columns)
{
    return columns * dtype_bytes(dtype) % 16 == 0;
}

/* Elements of T in 16 bytes. */
template <typename T> constexpr int cuda_pack = 16 / static_cast<int>(sizeof(T));

__host__ __device__ static inline int64_t cuda_divide_up(int64_t count, int64_t by)
{
    return (count + by - 1) / by;
}

/* Whole warps, at least one, at most `most` threads. */
static inline unsigned cuda_threads(int64_t wanted, unsigned most)
{
    int64_t threads = cuda_divide_up(wanted, 32) * 32;
    return threads < 32 ? 32 : threads > most ? most : static_cast<unsigned>(threads);
}

/* Calls Launch::run<T, N>(arguments...), T being the dtype's type and N how many elements a thread takes at a time: those of
 * 16 bytes, or 1 when the tensors' places and widths do not allow it. */
template <typename Launch, typename... Arguments>
static void cuda_choose(enum dtype dtype, bool packed, Arguments... arguments)
{
    if (dtype == DTYPE_BF16 && packed)
        Launch::template run<bf16, cuda_pack<bf16>>(arguments...);
    else if (dtype == DTYPE_BF16)
        Launch::template run<bf16, 1>(arguments...);
    else if (packed)
        Launch::template run<float, cuda_pack<float>>(arguments...);
    else
        Launch::template run<float, 1>(arguments...);
}

#endif
