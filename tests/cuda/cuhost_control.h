/* What a test sets in the emulation of CUDA kernels (tests/cuda/cuhost.h); for C and C++. */
#ifndef MEMPLAN_TESTS_CUDA_CUHOST_CONTROL_H
#define MEMPLAN_TESTS_CUDA_CUHOST_CONTROL_H

#ifdef __cplusplus
extern "C" {
#endif

/* In which order the threads of a block take turns, and blocks run. */
enum cuhost_order { CUHOST_ASCENDING, CUHOST_DESCENDING, CUHOST_ROTATED, CUHOST_ORDERS };

/* For all launches from now on. Before the first call $CUHOST_ORDER says it: ascending (also when unset), descending or
 * rotated. $CUHOST_THREADS operating-system threads (1 when unset) share the blocks of a launch. */
void cuhost_set_order(enum cuhost_order order);

#ifdef __cplusplus
}
#endif

#endif
