/* Memory that kernels may touch: what tests gave them, the variables of their modules, and what the double of CUDA's runtime
 * gave out. Anything else, one byte behind included, is nobody's. */
#ifndef MEMPLAN_TESTS_PTX_PTX_MEMORY_H
#define MEMPLAN_TESTS_PTX_PTX_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ptx_span {
    const unsigned char *start;
    size_t bytes;
    bool constant; /* not to be written */
};

void ptx_memory_add(const void *start, size_t bytes, bool constant);
/* False: it was not there. */
bool ptx_memory_remove(const void *start);

/* With this address in it; all zeros when it is nobody's. */
struct ptx_span ptx_memory_find(const void *address);

/* ptx_doubles.c: what of this the double of the runtime gave out. */
struct ptx_span ptx_memory_of_doubles(const void *address);

#ifdef __cplusplus
}
#endif

#endif
