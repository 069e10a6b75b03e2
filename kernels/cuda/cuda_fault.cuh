/* How a kernel notes what only the device can see (cuda_context.h says what becomes of it). */
#ifndef MEMPLAN_KERNELS_CUDA_FAULT_CUH
#define MEMPLAN_KERNELS_CUDA_FAULT_CUH

#include "kernels/cuda/launch.cuh"

/* The least is kept, so it does not depend on who came first. */
__device__ __forceinline__ void note_fault(uint64_t *fault, enum cuda_fault kind, int64_t r, int32_t value)
{
    const uint64_t noted =
        static_cast<uint64_t>(kind) << 63 | static_cast<uint64_t>(r) << 32 | static_cast<uint32_t>(value);
    atomicMin(reinterpret_cast<unsigned long long *>(fault), static_cast<unsigned long long>(noted));
}

#endif
