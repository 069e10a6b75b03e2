/* The memory of the CUDA double: blocks of devices and pinned blocks of the host, found by any address inside them. */
#ifndef MEMPLAN_TESTS_CUDA_DOUBLE_MEMORY_H
#define MEMPLAN_TESTS_CUDA_DOUBLE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MEMORY_PINNED = -1 };

struct memory_block {
    unsigned char *start;
    size_t bytes;
    int device; /* or MEMORY_PINNED */
    void *pool; /* NULL: an allocation of its own */
};

/* Filled with 0xff, between guards, aligned to 256 bytes; NULL when the host has no more. */
void *memory_take(size_t bytes, int device, void *pool);
/* False when a guard was written over: then the block is gone nevertheless. */
bool memory_give_back(const struct memory_block *block);

/* The block with this address in it, or NULL; good until the next call of the two above. */
const struct memory_block *memory_find(const void *address);

/* Blocks and bytes of one device, or pinned ones. */
size_t memory_count(int device, size_t *bytes);
/* Blocks of one pool. */
size_t memory_count_pool(const void *pool);

#endif
