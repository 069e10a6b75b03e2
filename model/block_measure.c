/* Places of one block's tensors.
 *
 * In the arena a block owns a frame. What it keeps for backward lies in [0, frame_bytes) with its input `x` at 0, so that the
 * next block's frame, whose `x` is this block's output, begins at frame_bytes. Everything else of the block lives only
 * while the block itself runs, when no frame above it is in use: it may lie anywhere that nothing alive occupies, above the
 * frame or in its holes. `d` has one place for the whole step, above all that lives with it. Placing it all well is a
 * two-dimensional packing of a few dozen rectangles (time x bytes), done greedily in several orders; the best wins. */
#include "base/checked.h"
#include "model/block.h"

#include <stdlib.h>
#include <string.h>

/* A tensor to place: a rectangle of `size` bytes by the operations [from, to], with `above` more on top of it where d
 * will lie. */
struct item {
    int tensor;
    bool output;
    int64_t size, above, offset;
    int from, to;
};

struct frame_items {
    struct item items[BLOCK_TENSORS];
    int count, fixed; /* items[0..fixed) have their offsets */
    int64_t boundary; /* no item lies across it; 0: there is none */
};

static bool overlaps_in_time(const struct item *a, const struct item *b)
{
    return a->from <= b->to && b->from <= a->to;
}

static bool crosses(int64_t offset, const struct item *item, int64_t boundary)
{
    return offset < boundary && boundary < offset + item->size;
}

/* The lowest offset where `item` meets nothing among placed[0..count), in the order of their offsets, that is alive with it,
 * nor the boundary. */
static int64_t lowest_gap(const struct item *item, struct item *const *placed, int count, int64_t boundary)
{
    int64_t offset = crosses(0, item, boundary) ? boundary : 0;
    for (int i = 0; i < count; i++) {
        const struct item *p = placed[i];
        if (p->offset >= offset + item->size)
            break;
        if (!overlaps_in_time(item, p) || p->offset + p->size <= offset)
            continue;
        offset = p->offset + p->size;
        if (crosses(offset, item, boundary))
            offset = boundary;
    }
    return offset;
}

static void insert_by_offset(struct item **placed, int count, struct item *item)
{
    for (; count > 0 && placed[count - 1]->offset > item->offset; count--)
        placed[count] = placed[count - 1];
    placed[count] = item;
}

/* How high the item and d reach, but for the output, which the frame of the next block holds as its x. */
static int64_t reach_of(const struct item *item)
{
    return item->output ? 0 : item->offset + item->size + item->above;
}

/* Places the free items in the order given; returns how high all reach, or as soon as that is clear, `limit` or more. */
static int64_t place_in_order(struct frame_items *packing, struct item *const *order, int64_t limit)
{
    struct item *placed[BLOCK_TENSORS];
    int count = 0;
    int64_t reach = 0;
    for (; count < packing->fixed; count++) {
        insert_by_offset(placed, count, &packing->items[count]);
        reach = max_i64(reach, reach_of(&packing->items[count]));
    }
    for (; count < packing->count && reach < limit; count++) {
        struct item *item = order[count - packing->fixed];
        item->offset = lowest_gap(item, placed, count, packing->boundary);
        insert_by_offset(placed, count, item);
        reach = max_i64(reach, reach_of(item));
    }
    return reach;
}

static int by_size(const void *a, const void *b)
{
    const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;
    return x->size != y->size ? (x->size < y->size ? 1 : -1) : x->tensor - y->tensor;
}

static int by_birth(const void *a, const void *b)
{
    const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;
    return x->from != y->from ? x->from - y->from : by_size(a, b);
}

static int by_area(const void *a, const void *b)
{
    const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;
    double ax = (double)x->size * (x->to - x->from + 1), ay = (double)y->size * (y->to - y->from + 1);
    return ax != ay ? (ax < ay ? 1 : -1) : x->tensor - y->tensor;
}

static int by_death(const void *a, const void *b)
{
    const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;
    return x->to != y->to ? y->to - x->to : by_size(a, b);
}

typedef int (*compare)(const void *, const void *);
static const compare orders[] = {by_size, by_birth, by_area, by_death};
/* Shuffles are tried only while no order came within 1/256 of the bound. */
enum { ORDERS = sizeof orders / sizeof orders[0], SHUFFLES = 200, GOOD_ENOUGH = 256 };

static void shuffle(struct item **order, int count, uint32_t *state)
{
    for (int i = count - 1; i > 0; i--) {
        *state = *state * 1664525u + 1013904223u;
        int j = (int)(*state >> 8) % (i + 1);
        struct item *swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

/* Leaves the best offsets found in the items; a reach of `enough` ends the search. */
static void pack(struct frame_items *packing, int64_t enough)
{
    struct item *order[BLOCK_TENSORS];
    int free_count = packing->count - packing->fixed;
    for (int i = 0; i < free_count; i++)
        order[i] = &packing->items[packing->fixed + i];
    struct frame_items best = {0};
    int64_t best_reach = INT64_MAX;
    uint32_t state = 1;
    for (int try = 0; try < ORDERS + SHUFFLES && best_reach > enough; try++) {
        if (try < ORDERS)
            qsort(order, (size_t)free_count, sizeof *order, orders[try]);
        else
            shuffle(order, free_count, &state);
        int64_t reach = place_in_order(packing, order, best_reach);
        if (reach < best_reach) {
            best_reach = reach;
            best = *packing;
        }
    }
    *packing = best;
}

static int64_t padded(int64_t bytes)
{
    return round_up(bytes, ARENA_ALIGN);
}

static bool counted_at(const struct block *block, const struct tensor *t, int op)
{
    int from, to;
    return block_counts(block, t, &from, &to) && from <= op && op <= to;
}

/* Is the place of d in use during `op`: by d, or by what it is lent to? */
static bool stream_in_use(const struct block *block, int op)
{
    for (int i = 0; i < block->tensor_count; i++) {
        const struct tensor *t = &block->tensors[i];
        if ((t->span == SPAN_STREAM || t->in_stream) && counted_at(block, t, op))
            return true;
    }
    return false;
}

static int64_t stream_bytes(const struct block *block)
{
    return block->stream < 0 ? 0 : padded(block->tensors[block->stream].bytes);
}

static void add_item(struct frame_items *packing, const struct block *block, int index, int from, int to)
{
    const struct tensor *t = &block->tensors[index];
    bool held_above = t->span == SPAN_OUTPUT && !block->apart;
    struct item item = {index, held_above, padded(t->bytes), 0, t->offset, from, to};
    for (int op = from; op <= to && !item.above && !block->apart; op++)
        if (stream_in_use(block, op))
            item.above = stream_bytes(block);
    packing->items[packing->count++] = item;
}

/* In FRAME_INPUT, its holes, or above it? */
static bool in_input_frame(const struct tensor *t)
{
    return t->frame == FRAME_NONE || t->frame == FRAME_INPUT;
}

/* Items of the phase [begin, end) in and above FRAME_INPUT: first those whose offsets are decided, then the others. `d` has
 * a place of its own. */
static void collect(const struct block *block, int begin, int end, struct frame_items *packing)
{
    packing->count = 0;
    packing->boundary = block->apart ? block->frame_bytes[FRAME_INPUT] : 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < block->tensor_count; i++) {
            const struct tensor *t = &block->tensors[i];
            bool fixed = t->frame == FRAME_INPUT || t->span == SPAN_OUTPUT;
            int from, to;
            if (fixed != (pass == 0) || t->span == SPAN_STREAM || t->in_stream || !in_input_frame(t) ||
                !block_counts(block, t, &from, &to))
                continue;
            if (from < end && to >= begin)
                add_item(packing, block, i, from > begin ? from : begin, to < end - 1 ? to : end - 1);
        }
        if (pass == 0)
            packing->fixed = packing->count;
    }
}

static void pack_phase(struct block *block, int begin, int end, int64_t enough)
{
    struct frame_items packing;
    collect(block, begin, end, &packing);
    pack(&packing, enough);
    for (int i = packing.fixed; i < packing.count; i++)
        block->tensors[packing.items[i].tensor].offset = packing.items[i].offset;
}

/* What one frame keeps, in [0, frame_bytes): x first, then in an order that leaves useful holes as backward frees them. */
static void place_kept(struct block *block, enum frame frame, compare order)
{
    struct item items[BLOCK_TENSORS], *sorted[BLOCK_TENSORS];
    int count = 0;
    for (int i = 0; i < block->tensor_count; i++) {
        const struct tensor *t = &block->tensors[i];
        if (t->frame == frame && t->span != SPAN_INPUT && !t->in_stream) {
            items[count] = (struct item){i, false, padded(t->bytes), 0, 0, t->first, t->last};
            sorted[count] = &items[count];
            count++;
        }
    }
    qsort(sorted, (size_t)count, sizeof *sorted, order);
    struct tensor *x = block->input >= 0 ? &block->tensors[block->input] : NULL;
    int64_t next = 0;
    if (x && x->frame == frame && !x->in_stream) {
        x->offset = 0;
        next = padded(x->bytes);
    }
    for (int i = 0; i < count; i++) {
        block->tensors[sorted[i]->tensor].offset = next;
        next += sorted[i]->size;
    }
    block->frame_bytes[frame] = next;
}

static void place_frames(struct block *block, compare order)
{
    for (int frame = 0; frame < FRAMES; frame++)
        place_kept(block, (enum frame)frame, order);
    if (block->output >= 0)
        block->tensors[block->output].offset = block->frame_bytes[FRAME_INPUT];
}

/* The largest tensor of the head that is dead when its backward makes d may have d's place. Without this the arena would
 * hold both, and the peak only one. */
static void lend_stream_place(struct block *block)
{
    if (block->part != PART_HEAD || block->apart)
        return;
    const struct tensor *d = &block->tensors[block->stream];
    struct tensor *lent = NULL;
    for (int i = 0; i < block->tensor_count; i++) {
        struct tensor *t = &block->tensors[i];
        if (t->saved && t->last < d->first && padded(t->bytes) <= padded(d->bytes) &&
            (!lent || t->bytes > lent->bytes))
            lent = t;
    }
    if (lent)
        lent->in_stream = true;
}

/* Does the tensor lie in FRAME_INPUT or above it? The output lies in a frame of the next block, if that keeps it. */
static bool framed(const struct block *block, const struct tensor *t)
{
    return t->span != SPAN_STREAM && (t->span != SPAN_OUTPUT || block->apart) && !t->in_stream &&
           in_input_frame(t);
}

static int64_t framed_bytes(const struct block *block, int op)
{
    int64_t bytes = 0;
    for (int i = 0; i < block->tensor_count; i++)
        if (framed(block, &block->tensors[i]) && counted_at(block, &block->tensors[i], op))
            bytes += padded(block->tensors[i].bytes);
    return bytes;
}

static int64_t extent_at(const struct block *block, int op)
{
    int64_t extent = 0;
    for (int i = 0; i < block->tensor_count; i++) {
        const struct tensor *t = &block->tensors[i];
        if (framed(block, t) && counted_at(block, t, op))
            extent = max_i64(extent, t->offset + padded(t->bytes));
    }
    return extent;
}

/* Room that d takes above the rest of a block: none when it lies elsewhere. */
static int64_t stream_room(const struct block *block, int op)
{
    return !block->apart && stream_in_use(block, op) ? stream_bytes(block) : 0;
}

/* How high frame, temporaries and d above them reach, as they are placed now. */
static int64_t find_reach(struct block *block)
{
    int64_t reach = 0;
    block->extent = block->stream_floor = 0;
    for (int op = 0; op < block->op_count; op++) {
        int64_t extent = extent_at(block, op);
        block->extent = max_i64(block->extent, extent);
        if (stream_in_use(block, op))
            block->stream_floor = max_i64(block->stream_floor, extent);
        reach = max_i64(reach, extent + stream_room(block, op));
    }
    return reach;
}

/* What find_reach() cannot be below, however well the block is placed. */
static int64_t reach_bound(const struct block *block)
{
    int64_t bound = 0;
    for (int op = 0; op < block->op_count; op++)
        bound = max_i64(bound, framed_bytes(block, op) + stream_room(block, op));
    return bound;
}

static void place(struct block *block)
{
    lend_stream_place(block);
    int64_t bound = reach_bound(block), enough = bound + bound / GOOD_ENOUGH, best_reach = INT64_MAX;
    struct block best;
    for (int i = 0; i < ORDERS && best_reach > enough; i++) {
        place_frames(block, orders[i]);
        pack_phase(block, 0, block->forward_count, enough);
        pack_phase(block, block->forward_count, block->input_count, enough);
        int64_t found = find_reach(block);
        if (found < best_reach) {
            best_reach = found;
            best = *block;
        }
    }
    *block = best;
}

void block_measure(struct block *block, bool apart)
{
    block->apart = apart;
    block_weigh(block);
    place(block);
}
