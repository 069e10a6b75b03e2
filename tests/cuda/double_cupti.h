/* Stands in for CUPTI in tests: tells its subscriber what the CUDA double is asked, and delivers records in the buffers that it
 * is given, in the layouts of NVIDIA's own headers. Buffers are asked for and given back on threads of its own, and those
 * with kernels before those that say which operation they belong to, as the real one does.
 *
 * It checks: sizes of structs, alignment of buffers, that what was enabled is disabled, that external ids are popped as often
 * as they are pushed, that a subscriber is gone at the end.
 *
 * What goes wrong is in the environment:
 *
 *     DOUBLE_CUPTI_FAIL=NAME:CODE     that function, such as cuptiSubscribe_v2, fails with this number
 *     DOUBLE_CUPTI_HOLDER=NAME        another tool of this name has subscribed
 *     DOUBLE_CUPTI_SILENT=N           the first N allocations have no record
 *     DOUBLE_CUPTI_DROP=N             the first N records of work of the GPU are dropped
 *     DOUBLE_CUPTI_BEHIND=MIB[:N]     before the N-th work of a GPU, somebody's library allocates this much on it, and
 *                                     keeps it until nobody watches any more
 *     DOUBLE_CUPTI_LIBRARY=FILE       that library: somebody_asks(cudaMalloc, &memory, bytes); else the double itself
 *     DOUBLE_CUPTI_HIDDEN=MIB[:N]     likewise, but no call shows it (as for the code of kernels) */
#ifndef MEMPLAN_TESTS_CUDA_DOUBLE_CUPTI_H
#define MEMPLAN_TESTS_CUDA_DOUBLE_CUPTI_H

#include <stddef.h>

/* What it takes of the device's memory once work is timed, as the real one: 3 buffers of 4 MiB. */
enum { DOUBLE_CUPTI_TIMELINE_BYTES = 3 * (4 << 20) };

/* Memory as NCCL and the allocator of PyTorch take it: a handle, mapped once. Returns the handle. */
unsigned long long double_cupti_create(int device, size_t bytes);
void double_cupti_map(unsigned long long handle, unsigned long long address, size_t bytes);
void double_cupti_unmap(unsigned long long address, size_t bytes);
void double_cupti_release(unsigned long long handle);

/* A named range of NVTX begins; its number is for its end. `domain`: NULL is the default one. */
unsigned double_cupti_range_begin(const char *domain, const char *name);
void double_cupti_range_end(const char *domain, unsigned number);

#endif
