/* A sorted array: some hundred tensors live at a time, so moving the tail costs less than a tree would. */
#include "device/placements.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* Index of the first placement that ends after `offset`. */
static int find(const struct placements *placements, int64_t offset)
{
    int low = 0, high = placements->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const struct placement *at = &placements->list[middle];
        if (at->offset + at->bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct placement *placements_add(struct placements *placements, struct placement placement)
{
    int at = find(placements, placement.offset);
    if (at < placements->count && placements->list[at].offset < placement.offset + placement.bytes)
        return &placements->list[at];
    if (placements->count == placements->room) {
        placements->room = placements->room ? 2 * placements->room : 64;
        placements->list = host_resize(placements->list, (size_t)placements->room * sizeof placement);
    }
    struct placement *slot = placements->list + at;
    memmove(slot + 1, slot, (size_t)(placements->count - at) * sizeof placement);
    *slot = placement;
    placements->count++;
    return NULL;
}

bool placements_remove(struct placements *placements, int64_t offset, int64_t bytes)
{
    int at = find(placements, offset);
    struct placement *slot = placements->list + at;
    if (at == placements->count || slot->offset != offset || slot->bytes != bytes)
        return false;
    placements->count--;
    memmove(slot, slot + 1, (size_t)(placements->count - at) * sizeof *slot);
    return true;
}

void placements_free(struct placements *placements)
{
    free(placements->list);
    *placements = (struct placements){0};
}
