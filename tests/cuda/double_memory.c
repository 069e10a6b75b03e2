/* A sorted list of blocks. */
#include "tests/cuda/double_memory.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 256, GUARD = 0xa5, FRESH = 0xff };

static struct memory_block *list;
static size_t count, room;

/* How many blocks start at or before the address. */
static size_t place_of(const void *address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((const unsigned char *)address >= list[middle].start)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct memory_block *memory_find(const void *address)
{
    size_t place = place_of(address);
    if (!place)
        return NULL;
    const struct memory_block *block = &list[place - 1];
    return (const unsigned char *)address < block->start + block->bytes ? block : NULL;
}

/* The guard behind a block begins at its last byte, or a bit later: sizes are no multiples of anything. */
void *memory_take(size_t bytes, int device, void *pool)
{
    size_t whole = (bytes + 2 * GUARD_BYTES + 255) / 256 * 256;
    unsigned char *memory = aligned_alloc(256, whole);
    if (!memory)
        return NULL;
    memset(memory, GUARD, GUARD_BYTES);
    memset(memory + GUARD_BYTES, FRESH, bytes);
    memset(memory + GUARD_BYTES + bytes, GUARD, GUARD_BYTES);
    if (count == room) {
        room = room ? 2 * room : 256;
        list = realloc(list, room * sizeof *list);
    }
    struct memory_block block = {memory + GUARD_BYTES, bytes, device, pool};
    size_t place = place_of(block.start);
    memmove(list + place + 1, list + place, (count - place) * sizeof *list);
    list[place] = block;
    count++;
    return block.start;
}

static bool is_guard(const unsigned char *memory)
{
    for (int i = 0; i < GUARD_BYTES; i++)
        if (memory[i] != GUARD)
            return false;
    return true;
}

bool memory_give_back(const struct memory_block *block)
{
    struct memory_block copy = *block;
    size_t place = (size_t)(block - list);
    bool whole = is_guard(copy.start - GUARD_BYTES) && is_guard(copy.start + copy.bytes);
    memmove(list + place, list + place + 1, (count - place - 1) * sizeof *list);
    count--;
    free(copy.start - GUARD_BYTES);
    return whole;
}

size_t memory_count(int device, size_t *bytes)
{
    size_t blocks = 0;
    *bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (list[i].device == device) {
            blocks++;
            *bytes += list[i].bytes;
        }
    return blocks;
}

size_t memory_count_pool(const void *pool)
{
    size_t blocks = 0;
    for (size_t i = 0; i < count; i++)
        blocks += list[i].pool == pool;
    return blocks;
}
