/* What both machines have in common. */
#include "tests/cuda/machine.h"

#include "tests/kernels/fill.h"

#include <string.h>

void *machine_random(uint64_t seed, enum dtype dtype, int64_t count)
{
    void *memory = machine_alloc((size_t)(count * dtype_bytes(dtype)));
    random_fill(seed, dtype, memory, count);
    return memory;
}

void *machine_copy(const void *from, size_t bytes)
{
    return memcpy(machine_alloc(bytes), from, bytes);
}
