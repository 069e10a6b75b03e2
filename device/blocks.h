/* The separate allocations of a device, found by address: what device_free() must know about the block it is given. A
 * table beside the memory, because a header inside it would be out of the host's reach on a GPU. */
#ifndef MEMPLAN_DEVICE_BLOCKS_H
#define MEMPLAN_DEVICE_BLOCKS_H

#include "device/observe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block {
    void *memory;
    int64_t bytes;
    struct memory_tag tag;
};

/* Starts zeroed. To visit every block, walk slots[0..room) and skip those whose memory is NULL. */
struct blocks {
    struct block *slots;
    size_t count, room; /* room: a power of two, or 0 */
};

void blocks_add(struct blocks *blocks, struct block block);
/* Removes the block at `memory` and copies it to *out; false when there is none. */
bool blocks_remove(struct blocks *blocks, const void *memory, struct block *out);
void blocks_free(struct blocks *blocks);

#endif
