/* Open addressing with linear probing, at most half full. A removal moves later blocks back, so that there are no
 * tombstones and a table that sees a million allocations stays as fast as a new one. */
#include "device/blocks.h"

#include "base/arena.h"

#include <stdlib.h>

enum { FIRST_ROOM = 64 };

/* Where the probe for `memory` begins. Addresses are multiples of 64; the multiplier spreads them (Fibonacci hashing). */
static size_t home(const struct blocks *blocks, const void *memory)
{
    return (size_t)(((uint64_t)(uintptr_t)memory >> 6) * 0x9e3779b97f4a7c15u >> 32) & (blocks->room - 1);
}

/* The slot that holds `memory`, or the empty one where it belongs. */
static size_t find(const struct blocks *blocks, const void *memory)
{
    size_t slot = home(blocks, memory);
    while (blocks->slots[slot].memory && blocks->slots[slot].memory != memory)
        slot = (slot + 1) & (blocks->room - 1);
    return slot;
}

static void grow(struct blocks *blocks)
{
    struct blocks larger = {.count = blocks->count, .room = blocks->room ? 2 * blocks->room : FIRST_ROOM};
    larger.slots = host_alloc(larger.room * sizeof *larger.slots);
    for (size_t i = 0; i < blocks->room; i++)
        if (blocks->slots[i].memory)
            larger.slots[find(&larger, blocks->slots[i].memory)] = blocks->slots[i];
    free(blocks->slots);
    *blocks = larger;
}

void blocks_add(struct blocks *blocks, struct block block)
{
    if (2 * (blocks->count + 1) > blocks->room)
        grow(blocks);
    blocks->slots[find(blocks, block.memory)] = block;
    blocks->count++;
}

/* Fills the hole with the next block of the run that may stand there: one whose probe began at or before the hole. */
static void close_hole(struct blocks *blocks, size_t hole)
{
    size_t mask = blocks->room - 1;
    for (size_t next = (hole + 1) & mask; blocks->slots[next].memory; next = (next + 1) & mask) {
        size_t probe_length = (next - home(blocks, blocks->slots[next].memory)) & mask;
        if (probe_length < ((next - hole) & mask))
            continue;
        blocks->slots[hole] = blocks->slots[next];
        hole = next;
    }
    blocks->slots[hole] = (struct block){0};
}

bool blocks_remove(struct blocks *blocks, const void *memory, struct block *out)
{
    if (!blocks->count)
        return false;
    size_t slot = find(blocks, memory);
    if (!blocks->slots[slot].memory)
        return false;
    *out = blocks->slots[slot];
    close_hole(blocks, slot);
    blocks->count--;
    return true;
}

void blocks_free(struct blocks *blocks)
{
    free(blocks->slots);
    *blocks = (struct blocks){0};
}
