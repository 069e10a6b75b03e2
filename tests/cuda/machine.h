/* What is below the tests of the CUDA back end: the emulation and its doubles (machine_emulated.c), or a GPU and NVIDIA's own
 * libraries (gpu/machine_gpu.c). The same test files are linked with either. */
#ifndef MEMPLAN_TESTS_CUDA_MACHINE_H
#define MEMPLAN_TESTS_CUDA_MACHINE_H

#include "base/dtype.h"
#include "base/error.h"
#include "tests/test.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For tests of what only doubles can show: injected failures, other machines, exact counts of what the driver holds. */
bool machine_is_emulated(void);
#define NEEDS_DOUBLES                                                                                        \
    do {                                                                                                     \
        if (!machine_is_emulated())                                                                          \
            SKIP("only doubles can show it");                                                                \
    } while (0)

/* Memory that host and kernels both reach: the host's own in the emulation, to the byte; pinned and mapped on a GPU. */
void *machine_alloc(size_t bytes);
void machine_free(void *memory); /* NULL is fine */

/* Random elements, as random_buffer() has them, and a copy of something of the host's. */
void *machine_random(uint64_t seed, enum dtype dtype, int64_t count);
void *machine_copy(const void *from, size_t bytes);

/* Waits for all kernels of this process. 0, or -1 with what one of them met. */
int machine_finish(struct error *err);

/* A kernel, or the reference of one, that must be launched and end well; with an `err` in scope. */
#define MACHINE_RUN(launch)                                                                                  \
    do {                                                                                                     \
        ASSERT_OK(launch);                                                                                   \
        ASSERT_OK(machine_finish(&err));                                                                     \
    } while (0)

/* What is left that was taken from the CUDA runtime, by kinds; "" on a GPU, which does not tell. */
const char *machine_left(void);

#endif
