/* The emulation: kernels are done when their launch returns, and all memory is the host's. */
#include "base/arena.h"
#include "tests/cuda/double_runtime.h"
#include "tests/cuda/machine.h"

#include <stdlib.h>

bool machine_is_emulated(void)
{
    return true;
}

void *machine_alloc(size_t bytes)
{
    return host_alloc(bytes);
}

void machine_free(void *memory)
{
    free(memory);
}

int machine_finish(struct error *err)
{
    (void)err;
    return 0;
}

const char *machine_left(void)
{
    return double_left();
}
