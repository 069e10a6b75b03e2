/* For each stream a table of the places that it touched, by their first byte. Work of another stream is compared with all of
 * them; where there is one stream there is nothing to compare with, and it costs nothing. */
#include "tests/cuda/double_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
    const char *start; /* NULL: an empty slot */
    size_t bytes;
    int64_t written, read; /* the stream's count at its last write and last read of it; 0: none */
    const char *writer, *reader;
};

struct places {
    struct place *slots;
    size_t count, room; /* a power of two, at most half full */
};

static struct places tables[ORDER_STREAMS];
static bool open_numbers[ORDER_STREAMS];
static int64_t counts[ORDER_STREAMS]; /* go on when a number is used again */

int order_open(struct order_stream *stream)
{
    for (int i = 0; i < ORDER_STREAMS; i++)
        if (!open_numbers[i]) {
            open_numbers[i] = true;
            memset(stream, 0, sizeof *stream);
            stream->number = i;
            stream->clock.seen[i] = counts[i];
            return i;
        }
    return -1;
}

void order_close(struct order_stream *stream)
{
    int n = stream->number;
    counts[n] = stream->clock.seen[n];
    open_numbers[n] = false;
    free(tables[n].slots);
    tables[n] = (struct places){0};
}

void order_see(struct order_clock *clock, const struct order_clock *other)
{
    for (int i = 0; i < ORDER_STREAMS; i++)
        if (other->seen[i] > clock->seen[i])
            clock->seen[i] = other->seen[i];
}

static struct place *slot_of(const struct places *table, const char *start)
{
    size_t mask = table->room - 1, slot = ((uintptr_t)start >> 4) * 0x9e3779b97f4a7c15u >> 20 & mask;
    while (table->slots[slot].start && table->slots[slot].start != start)
        slot = (slot + 1) & mask;
    return &table->slots[slot];
}

static void rebuild(struct places *table, size_t room, const char *from, size_t bytes)
{
    struct places next = {.slots = calloc(room, sizeof *next.slots), .room = room};
    for (size_t i = 0; i < table->room; i++) {
        const struct place *place = &table->slots[i];
        bool forgotten = place->start >= from && place->start < from + bytes;
        if (!place->start || forgotten)
            continue;
        *slot_of(&next, place->start) = *place;
        next.count++;
    }
    free(table->slots);
    *table = next;
}

void order_forget(const void *start, size_t bytes)
{
    for (int i = 0; i < ORDER_STREAMS; i++)
        if (tables[i].count)
            rebuild(&tables[i], tables[i].room, start, bytes);
}

static void remember(struct order_stream *stream, const struct order_access *access)
{
    struct places *table = &tables[stream->number];
    if (2 * (table->count + 1) > table->room)
        rebuild(table, table->room ? 2 * table->room : 256, NULL, 0);
    struct place *place = slot_of(table, access->start);
    if (!place->start) {
        *place = (struct place){.start = access->start};
        table->count++;
    }
    if (access->bytes > place->bytes)
        place->bytes = access->bytes;
    int64_t now = stream->clock.seen[stream->number];
    if (access->writes) {
        place->written = now;
        place->writer = access->what;
    } else {
        place->read = now;
        place->reader = access->what;
    }
}

static bool overlap(const struct place *place, const struct order_access *access)
{
    const char *start = access->start;
    size_t bytes = access->bytes ? access->bytes : 1, place_bytes = place->bytes ? place->bytes : 1;
    return place->start < start + bytes && start < place->start + place_bytes;
}

static const char *compare(const struct order_stream *stream, int other, const struct order_access *access)
{
    static char text[300];
    const struct places *table = &tables[other];
    int64_t seen = stream->clock.seen[other];
    for (size_t i = 0; table->count && i < table->room; i++) {
        const struct place *place = &table->slots[i];
        if (!place->start || !overlap(place, access))
            continue;
        bool after_write = place->written > seen, after_read = access->writes && place->read > seen;
        if (!after_write && !after_read)
            continue;
        snprintf(text, sizeof text, "%s %s %p on stream %d, which does not wait for %s on stream %d",
                 access->what, access->writes ? "writes" : "reads", access->start, stream->number,
                 after_write ? place->writer : place->reader, other);
        return text;
    }
    return NULL;
}

const char *order_work(struct order_stream *stream, const struct order_access *accesses, int count)
{
    const char *race = NULL;
    stream->clock.seen[stream->number]++;
    for (int i = 0; i < count; i++) {
        for (int other = 0; !race && other < ORDER_STREAMS; other++)
            if (other != stream->number)
                race = compare(stream, other, &accesses[i]);
        remember(stream, &accesses[i]);
    }
    return race;
}
