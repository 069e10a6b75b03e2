/* Stands in for the CUDA runtime in tests: device memory is host memory, streams do what they are asked at once, and what
 * the real one leaves undefined ends the program with a sentence.
 *
 * What waits for other ranks (double_nccl.c) is begun and left; a stream that needs its end, because it waited for an event behind
 * it, holds up the thread that asks the stream for more.
 *
 * It checks: that pointers are those of living memory and stay inside it; streams and events after their end; that work on
 * one stream waits for what it needs of another (double_order.h); that a thread asks streams of its own device only, and
 * records a device's events in its streams; that the host leaves pinned memory alone until a copy
 * from it is done, and does not read too early what a copy brings; that nothing is left when the program ends. Memory of a
 * device starts as NaN, and lies between guards.
 *
 * What a machine has, and what goes wrong on it, is in the environment:
 *
 *     DOUBLE_CUDA_DEVICES=1            GPUs; 0: none
 *     DOUBLE_CUDA_MEMORY=4GiB[,2GiB]   of each, or one after another (whole MiB or GiB)
 *     DOUBLE_CUDA_CAPABILITY=90
 *     DOUBLE_CUDA_PLACE=0              the first GPU's place on the PCI bus
 *     DOUBLE_CUDA_DRIVER=13000         the CUDA version of the driver; 0: there is none
 *     DOUBLE_CUDA_FAIL=NAME:N          the N-th call of that function, such as cudaMalloc:2, finds no memory
 *     DOUBLE_CUDA_FAIL=NAME:N:CODE     or fails with this number
 *     DOUBLE_CUDA_CONTEXTS=FILE        gets a line for each context: process and device
 *     DOUBLE_CUDA_LOG=FILE             what streams are asked, a line each, in the order of the asking: device, number of the
 *                                      stream, and a kernel, "cudaMemcpyAsync", "records EVENT" or "waits EVENT" */
#ifndef MEMPLAN_TESTS_CUDA_DOUBLE_RUNTIME_H
#define MEMPLAN_TESTS_CUDA_DOUBLE_RUNTIME_H

#include "tests/cuda/double_order.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Work for a stream: `run` may be called several times (a graph), `discard` once, after the last. Done before this returns,
 * unless the stream is being captured. The addresses that are not of device memory are left out of `accesses`. */
cudaError_t double_submit(cudaStream_t stream, const struct order_access *accesses, int count, void (*run)(void *work),
                          void (*discard)(void *work), void *work);

/* Work that is begun when all before it in the stream is done, and that others end: `begin` returns what `is_done` is asked about,
 * by whoever needs the end, without any lock. Works of one `queue` are begun before those in front of them in it are done. */
struct double_work {
    void (*run)(void *work); /* or, where this is NULL: */
    void *(*begin)(void *work);
    bool (*is_done)(void *token);
    const void *queue;
    void (*discard)(void *work);
    void *work;
};

cudaError_t double_submit_later(cudaStream_t stream, const struct order_access *accesses, int count,
                                const struct double_work *work);

/* From now on kernels launched by emulation are work for streams (double_launch.cc). */
void double_take_launches(void);

/* What a call of `name` is to return by DOUBLE_CUDA_FAIL: cudaSuccess nearly always. */
cudaError_t double_injected(const char *name);

/* Is it in living memory of a device, with so many bytes behind it? */
bool double_holds(const void *memory, size_t bytes);

/* Something undefined was done. Prints "double: ..." and ends the program, unless double_listen() wants it. */
void double_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From now on complaints are only kept: the last one, or "" when there was none since the last call of this. */
const char *double_listen(void);
/* Ends that. */
void double_unlisten(void);

/* Living things of all kinds; "" when nothing is left, else "2 streams, 1 device allocation (64 bytes)". */
const char *double_left(void);

#ifdef __cplusplus
}
#endif

#endif
