/* Which tensors live where in an arena: kept only by a poisoned device, to refuse a tensor placed over a living one. */
#ifndef MEMPLAN_DEVICE_PLACEMENTS_H
#define MEMPLAN_DEVICE_PLACEMENTS_H

#include <stdbool.h>
#include <stdint.h>

struct placement {
    int64_t offset, bytes;
    const char *name;
};

/* Starts zeroed. Sorted by offset; no two overlap. */
struct placements {
    struct placement *list;
    int count, room;
};

/* Adds `placement` and returns NULL; or returns a living one that it overlaps, and adds nothing. */
const struct placement *placements_add(struct placements *placements, struct placement placement);
/* False when nothing of `bytes` lives at `offset`. */
bool placements_remove(struct placements *placements, int64_t offset, int64_t bytes);
void placements_free(struct placements *placements);

#endif
