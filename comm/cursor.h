/* Walking through a vector that lies in several spans. */
#ifndef MEMPLAN_COMM_CURSOR_H
#define MEMPLAN_COMM_CURSOR_H

#include "comm/comm.h"

/* A place in a vector: all elements of the spans, or only part `part` of `parts` equal ones of every span. */
struct cursor {
    const struct comm_span *span;
    int64_t element; /* within the part of this span; may be its end */
    int64_t element_bytes;
    int part, parts;
};

/* Before the first element. */
struct cursor cursor_open(const struct comm_span *spans, int part, int parts, enum dtype dtype);

/* The functions below stay within the vector only if their caller does. */

void cursor_skip(struct cursor *cursor, int64_t count);
/* Steps over the next elements that lie together, at most `most` of them, and returns how many; they start at *data. */
int64_t cursor_step(struct cursor *cursor, int64_t most, void **data);
/* The next `count` elements, to and from memory of the caller's. */
void cursor_read(struct cursor *cursor, void *to, int64_t count);
void cursor_write(struct cursor *cursor, const void *from, int64_t count);
/* From one vector to another. Where both are at the same place, nothing is touched. */
void cursor_copy(struct cursor *to, struct cursor *from, int64_t count);

#endif
