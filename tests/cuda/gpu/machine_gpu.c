/* A GPU. Tests work in pinned memory, which its kernels read and write where it is, across the bus: slow, and enough for tests.
 * There is one order of threads, the GPU's, so runs "in three orders" must give the same bits three times. */
#include "tests/cuda/cuhost_control.h"
#include "tests/cuda/machine.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

bool machine_is_emulated(void)
{
    return false;
}

static void must(cudaError_t status, const char *call)
{
    if (status == cudaSuccess)
        return;
    fprintf(stderr, "%s failed: %s (%s)\n", call, cudaGetErrorString(status), cudaGetErrorName(status));
    abort();
}

#define MUST(function, ...) must(function(__VA_ARGS__), #function)

void *machine_alloc(size_t bytes)
{
    void *memory = NULL;
    MUST(cudaHostAlloc, &memory, bytes ? bytes : 1, cudaHostAllocMapped | cudaHostAllocPortable);
    return memory;
}

void machine_free(void *memory)
{
    if (memory)
        MUST(cudaFreeHost, memory);
}

int machine_finish(struct error *err)
{
    cudaError_t status = cudaDeviceSynchronize();
    if (status == cudaSuccess)
        return 0;
    return error_set(err, "a kernel failed: %s (%s)", cudaGetErrorString(status), cudaGetErrorName(status));
}

const char *machine_left(void)
{
    return "";
}

void cuhost_set_order(enum cuhost_order order)
{
    (void)order;
}
