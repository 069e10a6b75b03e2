/* What the double of CUDA's runtime gave out is memory that kernels may touch: devices' and pinned. */
#include "tests/cuda/double_memory.h"
#include "tests/cuda/double_shared.h"
#include "tests/ptx/ptx_memory.h"

struct ptx_span ptx_memory_of_doubles(const void *address)
{
    struct ptx_span span = {0};
    pthread_mutex_lock(&double_lock);
    const struct memory_block *block = memory_find(address);
    if (block)
        span = (struct ptx_span){block->start, block->bytes, false};
    pthread_mutex_unlock(&double_lock);
    return span;
}
