/* A cursor remembers a span and an element in it, and moves to the next span only when somebody asks for more: at the end
 * of a vector there may be none. */
#include "comm/cursor.h"

#include "base/checked.h"

#include <string.h>

static int64_t span_count(const struct cursor *cursor)
{
    return cursor->span->count / cursor->parts;
}

struct cursor cursor_open(const struct comm_span *spans, int part, int parts, enum dtype dtype)
{
    return (struct cursor){spans, 0, dtype_bytes(dtype), part, parts};
}

void cursor_skip(struct cursor *cursor, int64_t count)
{
    void *data;
    while (count > 0)
        count -= cursor_step(cursor, count, &data);
}

int64_t cursor_step(struct cursor *cursor, int64_t most, void **data)
{
    while (cursor->element == span_count(cursor)) {
        cursor->span++;
        cursor->element = 0;
    }
    int64_t in_part = span_count(cursor);
    int64_t count = min_i64(most, in_part - cursor->element);
    int64_t element = cursor->part * in_part + cursor->element;
    *data = (unsigned char *)cursor->span->data + element * cursor->element_bytes;
    cursor->element += count;
    return count;
}

void cursor_read(struct cursor *cursor, void *to, int64_t count)
{
    void *data;
    for (int64_t at = 0, piece; at < count; at += piece) {
        piece = cursor_step(cursor, count - at, &data);
        memcpy((unsigned char *)to + at * cursor->element_bytes, data,
               (size_t)(piece * cursor->element_bytes));
    }
}

void cursor_write(struct cursor *cursor, const void *from, int64_t count)
{
    void *data;
    for (int64_t at = 0, piece; at < count; at += piece) {
        piece = cursor_step(cursor, count - at, &data);
        memcpy(data, (const unsigned char *)from + at * cursor->element_bytes,
               (size_t)(piece * cursor->element_bytes));
    }
}

void cursor_copy(struct cursor *to, struct cursor *from, int64_t count)
{
    void *source, *target;
    for (int64_t piece; count > 0; count -= piece) {
        piece = cursor_step(from, count, &source);
        int64_t wanted = piece;
        piece = cursor_step(to, wanted, &target);
        from->element -= wanted - piece;
        if (target != source)
            memcpy(target, source, (size_t)(piece * to->element_bytes));
    }
}
