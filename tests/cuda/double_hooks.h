/* What the CUDA double (double_runtime.c) tells the CUPTI double (double_cupti.c): where the real libraries meet inside of the
 * driver. Called without the caller's lock, on the thread that asked. */
#ifndef MEMPLAN_TESTS_CUDA_DOUBLE_HOOKS_H
#define MEMPLAN_TESTS_CUDA_DOUBLE_HOOKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `pool`: NULL for an allocation of its own. `pool_bytes`: what the pool holds of the device, `pool_used_bytes`: of that in
 * use. */
struct hook_memory {
    int device;
    void *address;
    size_t bytes;
    void *pool, *stream;
    uint64_t pool_bytes, pool_used_bytes;
};

void double_hook_given(const struct hook_memory *memory);
void double_hook_taken_back(const struct hook_memory *memory);

/* A kernel by its name; or "cudaMemcpyAsync", "cudaMemsetAsync". */
void double_hook_work(int device, int stream, const char *name, size_t bytes);

/* Bytes of the device that are in use and that no call has asked for: CUPTI's own, and injected ones. */
size_t double_hook_device_bytes(int device);

#ifdef __cplusplus
}
#endif

#endif
