/* The CPU as a device. Large blocks are mappings of their own, so that what is freed leaves the process at once and its
 * resident set is an outside witness of the ledger. */
#include "device/backend.h"
#include "device/device.h"

#include "base/checked.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Below MAPPED_BYTES the C library's pools are faster than a system call, and small enough not to blur the witness.
 * Huge pages save page faults and TLB misses; blocks that hold one ask for them. */
enum { MAPPED_BYTES = 1 << 20, HUGE_PAGES_BYTES = 4 << 20 };

/* What is taken is made resident at once: an arena's memory runs out at launch or never, and no operation pays for the page
 * faults of what it writes first. False when there is not that much memory. An old kernel does not know the request, and
 * then who writes first touches the pages. */
static bool make_resident(void *memory, int64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    return !madvise(memory, (size_t)bytes, MADV_POPULATE_WRITE) || errno != ENOMEM;
#else
    (void)memory, (void)bytes;
    return true;
#endif
}

static void *cpu_take(void *context, int64_t bytes, bool arena)
{
    (void)context, (void)arena;
    if (bytes < MAPPED_BYTES)
        return aligned_alloc(DEVICE_ALIGN, (size_t)round_up(bytes, DEVICE_ALIGN));
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_PAGES_BYTES)
        madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
    if (!make_resident(memory, bytes)) {
        munmap(memory, (size_t)bytes);
        return NULL;
    }
    return memory;
}

static void cpu_give_back(void *context, void *memory, int64_t bytes, bool arena)
{
    (void)context, (void)arena;
    if (bytes < MAPPED_BYTES)
        free(memory);
    else
        munmap(memory, (size_t)bytes);
}

static void cpu_fill(void *context, void *memory, int byte, int64_t bytes)
{
    (void)context;
    memset(memory, byte, (size_t)bytes);
}

static void cpu_copy(void *context, void *to, const void *from, int64_t bytes)
{
    (void)context;
    memcpy(to, from, (size_t)bytes);
}

static const struct backend cpu = {
    .name = "cpu",
    .take = cpu_take,
    .give_back = cpu_give_back,
    .fill = cpu_fill,
    .write = cpu_copy,
    .read = cpu_copy,
    .copy = cpu_copy,
};

int device_open_cpu(int64_t capacity, bool poison, struct device **out, struct error *err)
{
    (void)err;
    *out = device_create(&cpu, NULL, capacity, poison);
    return 0;
}
