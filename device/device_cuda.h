/* What the CUDA back end shows to kernels and to NCCL: device_context() of such a device. */
#ifndef MEMPLAN_DEVICE_DEVICE_CUDA_H
#define MEMPLAN_DEVICE_DEVICE_CUDA_H

#include "device/cuda_library.h"

struct CUstream_st;

/* All work of a rank is put into `compute`, in order; exchanges with other ranks run beside it (comm_nccl.c). */
struct cuda_device {
    int ordinal;
    int capability;      /* 90: compute capability 9.0 */
    int multiprocessors;
    struct CUstream_st *compute; /* cudaStream_t */
};

/* Streams share the hardware's queues, of which CUDA takes 8 unless told: a message that waits for another GPU would hold up
 * whatever came later in its queue, and that may be what the other GPU waits for. 32 are the most; read when CUDA begins. What
 * the environment says already stays. Done when the library is loaded, before ranks have threads: another thread may read the
 * environment, and it must not change meanwhile. */
__attribute__((constructor)) void device_cuda_ask_for_queues(void);

/* Entries of struct cuda_library. */
int device_cuda_count(int *devices, struct error *err);
int device_cuda_describe(int ordinal, struct cuda_description *out, struct error *err);
int device_cuda_open(int ordinal, int used, const struct backend **backend, void **context, struct error *err);

int device_cuda_memory(void *context, struct cuda_memory *out, struct error *err);

/* "GPU 0: cudaMalloc failed: out of memory; ...": for calls of the CUDA runtime elsewhere. `status` is a cudaError_t other than
 * cudaSuccess. Returns -1. */
int device_cuda_error(int ordinal, const char *call, int status, struct error *err);
/* Its last part. */
const char *device_cuda_way_out(int status);

#endif
