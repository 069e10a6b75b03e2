/* What libmemplan_cuda.so holds: the one symbol that the program looks for. No part of the program itself. */
#include "comm/comm_nccl.h"
#include "device/cuda_library.h"
#include "device/device_cuda.h"
#include "kernels/kernels.h"
#include "profiler/cupti.h"

static int open_comm(struct comm *host, const void *context, struct comm **out, struct error *err)
{
    return comm_nccl_open(host, context, out, err);
}

__attribute__((visibility("default"))) const struct cuda_library memplan_cuda_library = {
    .version = CUDA_LIBRARY_VERSION,
    .count = device_cuda_count,
    .describe = device_cuda_describe,
    .open = device_cuda_open,
    .memory = device_cuda_memory,
    .profiler = &cupti_profiler,
    .kernels = &kernels_cuda,
    .open_comm = open_comm,
};
