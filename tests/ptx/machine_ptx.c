/* PTX that is interpreted (ptx_runtime.h): kernels are done when their launch returns, and all memory is the host's, of which they
 * may touch what tests and the double of the runtime gave out. */
#include "base/arena.h"
#include "tests/cuda/double_memory.h"
#include "tests/cuda/double_runtime.h"
#include "tests/cuda/machine.h"
#include "tests/ptx/ptx_memory.h"

#include <stdlib.h>

bool machine_is_emulated(void)
{
    return true;
}

void *machine_alloc(size_t bytes)
{
    void *memory = host_alloc(bytes);
    ptx_memory_add(memory, bytes, false);
    return memory;
}

void machine_free(void *memory)
{
    ASSERT(!memory || ptx_memory_remove(memory));
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
