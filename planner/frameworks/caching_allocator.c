/* The allocator's two pools, each with a list of free blocks per stream in order of size, then address. */
#include "planner/frameworks/caching_allocator.h"

#include "base/arena.h"
#include "base/checked.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The constants at the top of CUDACachingAllocator.cpp. */
enum {
    MIN_BLOCK = 512,
    SMALL_SIZE = 1 << 20,    /* the largest request of the small pool */
    SMALL_BUFFER = 2 << 20,  /* its segments */
    LARGE_BUFFER = 20 << 20, /* segments for requests below MIN_LARGE */
    MIN_LARGE = 10 << 20,
    ROUND_LARGE = 2 << 20, /* larger ones have segments of their own, rounded up to this */
};

enum { NONE = -1 };

struct block {
    int64_t bytes, address, requested;
    int previous, next; /* in the segment */
    int segment;
    int64_t freed_at; /* how many requests its pool had seen */
    bool used, small;
    signed char stream;
};

struct segment {
    int64_t bytes;
    int first; /* block, NONE: given back */
    bool expandable;
};

struct free_list {
    int *blocks;
    int count, room;
};

struct caching_allocator {
    struct caching_allocator_options options;
    struct caching_allocator_figures figures;
    struct block *blocks;
    int block_count, block_room, spare; /* a chain of unused numbers through `next` */
    struct segment *segments;
    int segment_count, segment_room;
    struct free_list lists[2][CACHING_ALLOCATOR_STREAMS];
    int64_t requests[2];
    int grown[2][CACHING_ALLOCATOR_STREAMS]; /* the expandable segment, NONE */
    int64_t next_address;
};

struct caching_allocator *caching_allocator_create(const struct caching_allocator_options *options)
{
    struct caching_allocator *a = host_alloc(sizeof *a);
    a->options = *options;
    a->spare = NONE;
    for (int pool = 0; pool < 2; pool++)
        for (int stream = 0; stream < CACHING_ALLOCATOR_STREAMS; stream++)
            a->grown[pool][stream] = NONE;
    return a;
}

void caching_allocator_free(struct caching_allocator *a)
{
    if (!a)
        return;
    for (int pool = 0; pool < 2; pool++)
        for (int stream = 0; stream < CACHING_ALLOCATOR_STREAMS; stream++)
            free(a->lists[pool][stream].blocks);
    free(a->blocks);
    free(a->segments);
    free(a);
}

struct caching_allocator_figures caching_allocator_figures(const struct caching_allocator *a)
{
    return a->figures;
}

/* roundup_power2_divisions() */
static int64_t divisions_of(const struct caching_allocator_options *options, int64_t bytes)
{
    int size = 0;
    while (size < CACHING_ALLOCATOR_SIZES - 1 && bytes >> (21 + size))
        size++;
    return options->power2_divisions[size];
}

/* round_size(), roundup_power2_next_division() */
int64_t caching_allocator_rounded(const struct caching_allocator_options *options, int64_t bytes)
{
    if (bytes < MIN_BLOCK)
        return MIN_BLOCK;
    int64_t divisions = divisions_of(options, bytes);
    if (divisions > 1 && bytes > MIN_BLOCK * divisions) {
        int64_t power = 1;
        while (power * 2 <= bytes)
            power *= 2;
        return power == bytes ? bytes : round_up(bytes, power / divisions);
    }
    return round_up(bytes, MIN_BLOCK);
}

/* get_allocation_size() */
static int64_t segment_bytes(int64_t bytes)
{
    if (bytes <= SMALL_SIZE)
        return SMALL_BUFFER;
    return bytes < MIN_LARGE ? LARGE_BUFFER : round_up(bytes, ROUND_LARGE);
}

/* BlockComparatorSize: size, then address; streams have lists of their own. */
static bool before(const struct block *a, int64_t bytes, int64_t address)
{
    return a->bytes != bytes ? a->bytes < bytes : a->address < address;
}

static int list_find(const struct caching_allocator *a, const struct free_list *list, int64_t bytes,
                     int64_t address)
{
    int low = 0, high = list->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (before(&a->blocks[list->blocks[middle]], bytes, address))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct free_list *list_of(struct caching_allocator *a, const struct block *block)
{
    return &a->lists[block->small][(int)block->stream];
}

static void list_add(struct caching_allocator *a, int number)
{
    struct block *block = &a->blocks[number];
    struct free_list *list = list_of(a, block);
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->blocks = host_resize(list->blocks, (size_t)list->room * sizeof *list->blocks);
    }
    int at = list_find(a, list, block->bytes, block->address);
    memmove(list->blocks + at + 1, list->blocks + at, (size_t)(list->count - at) * sizeof *list->blocks);
    list->blocks[at] = number;
    list->count++;
    block->freed_at = a->requests[block->small];
}

static void list_remove(struct caching_allocator *a, int number)
{
    const struct block *block = &a->blocks[number];
    struct free_list *list = list_of(a, block);
    int at = list_find(a, list, block->bytes, block->address);
    assert(at < list->count && list->blocks[at] == number);
    list->count--;
    memmove(list->blocks + at, list->blocks + at + 1, (size_t)(list->count - at) * sizeof *list->blocks);
}

static int block_add(struct caching_allocator *a)
{
    int number = a->spare;
    if (number != NONE) {
        a->spare = a->blocks[number].next;
    } else {
        if (a->block_count == a->block_room) {
            a->block_room = a->block_room ? 2 * a->block_room : 256;
            a->blocks = host_resize(a->blocks, (size_t)a->block_room * sizeof *a->blocks);
        }
        number = a->block_count++;
    }
    a->blocks[number] = (struct block){.previous = NONE, .next = NONE, .segment = NONE};
    return number;
}

static void block_drop(struct caching_allocator *a, int number)
{
    a->blocks[number].next = a->spare;
    a->spare = number;
}

static void count_reserved(struct caching_allocator *a, int64_t bytes)
{
    struct caching_allocator_figures *f = &a->figures;
    f->reserved_bytes += bytes;
    f->max_reserved_bytes = max_i64(f->max_reserved_bytes, f->reserved_bytes);
}

static void count_used(struct caching_allocator *a, const struct block *block, int sign)
{
    struct caching_allocator_figures *f = &a->figures;
    f->allocated_bytes += sign * block->bytes;
    f->requested_bytes += sign * block->requested;
    f->max_allocated_bytes = max_i64(f->max_allocated_bytes, f->allocated_bytes);
    f->max_requested_bytes = max_i64(f->max_requested_bytes, f->requested_bytes);
}

/* What an expandable segment can grow at counts as the largest block of all. */
static bool ends_segment(const struct caching_allocator *a, int number)
{
    return a->segments[a->blocks[number].segment].expandable && a->blocks[number].next == NONE;
}

/* get_free_block(): the smallest that is large enough; of those too large to be split, only near fits. NONE: there is none. */
static int find_block(struct caching_allocator *a, int64_t bytes, bool small, int stream)
{
    struct free_list *list = &a->lists[small][stream];
    int64_t limit = a->options.max_split_bytes ? a->options.max_split_bytes : INT64_MAX;
    a->requests[small]++;
    int at = list_find(a, list, bytes, -1);
    if (at == list->count)
        return NONE;
    if (ends_segment(a, list->blocks[at]) && at + 1 < list->count)
        at++;
    int number = list->blocks[at];
    const struct block *block = &a->blocks[number];
    if (bytes < limit && block->bytes >= limit)
        return NONE;
    int64_t rounding = a->options.max_rounding_bytes ? a->options.max_rounding_bytes : LARGE_BUFFER;
    if (bytes >= limit && block->bytes >= bytes + rounding)
        return NONE;
    list_remove(a, number);
    return number;
}

/* allowed_memory_maximum; 0: without end. */
static int64_t allowed_bytes(const struct caching_allocator *a)
{
    double fraction = a->options.memory_fraction > 0 ? a->options.memory_fraction : 1;
    return (int64_t)(fraction * (double)a->options.capacity_bytes);
}

static bool has_room(const struct caching_allocator *a, int64_t bytes)
{
    return !a->options.capacity_bytes || a->figures.reserved_bytes + bytes <= allowed_bytes(a);
}

static int segment_add(struct caching_allocator *a, int first, bool expandable)
{
    if (a->segment_count == a->segment_room) {
        a->segment_room = a->segment_room ? 2 * a->segment_room : 64;
        a->segments = host_resize(a->segments, (size_t)a->segment_room * sizeof *a->segments);
    }
    a->segments[a->segment_count] = (struct segment){0, first, expandable};
    return a->segment_count++;
}

static int block_add_at(struct caching_allocator *a, int64_t bytes, bool small, int stream, int64_t address)
{
    int number = block_add(a);
    struct block *block = &a->blocks[number];
    block->bytes = bytes;
    block->small = small;
    block->stream = (signed char)stream;
    block->address = address;
    return number;
}

/* cudaMalloc of a segment, in alloc_block(). */
static int new_segment(struct caching_allocator *a, int64_t bytes, bool small, int stream)
{
    int64_t size = segment_bytes(bytes);
    if (!has_room(a, size))
        return NONE;
    int number = block_add_at(a, size, small, stream, a->next_address);
    a->next_address += size;
    int segment = segment_add(a, number, false);
    a->segments[segment].bytes = size;
    a->blocks[number].segment = segment;
    count_reserved(a, size);
    return number;
}

static int segment_last(const struct caching_allocator *a, int segment)
{
    int number = a->segments[segment].first;
    while (a->blocks[number].next != NONE)
        number = a->blocks[number].next;
    return number;
}

/* try_allocate_expandable_block(), map_block(): the segment of the pool and stream grows at its end by whole pages of
 * 2 MiB or 20 MiB; a free block at its end grows with it. */
static int grow_segment(struct caching_allocator *a, int64_t bytes, bool small, int stream)
{
    int64_t page = small ? SMALL_BUFFER : LARGE_BUFFER;
    int segment = a->grown[small][stream];
    int last = segment == NONE ? NONE : segment_last(a, segment);
    bool joins = last != NONE && !a->blocks[last].used;
    int64_t more = round_up(bytes - (joins ? a->blocks[last].bytes : 0), page);
    if (!has_room(a, more))
        return NONE;
    count_reserved(a, more);
    if (joins) {
        list_remove(a, last);
        a->blocks[last].bytes += more;
        a->segments[segment].bytes += more;
        return last;
    }
    int64_t address = last == NONE ? a->next_address : a->blocks[last].address + a->blocks[last].bytes;
    if (last == NONE)
        a->next_address += 1LL << 50; /* addresses for any card's memory */
    int number = block_add_at(a, more, small, stream, address);
    if (segment == NONE)
        a->grown[small][stream] = segment = segment_add(a, number, true);
    a->segments[segment].bytes += more;
    a->blocks[number].segment = segment;
    a->blocks[number].previous = last;
    if (last != NONE)
        a->blocks[last].next = number;
    return number;
}

/* release_block(), and unmap_block() for what ends an expandable segment: back to the driver. */
static int64_t give_back(struct caching_allocator *a, int number)
{
    struct block block = a->blocks[number];
    struct segment *segment = &a->segments[block.segment];
    int64_t page = block.small ? SMALL_BUFFER : LARGE_BUFFER;
    if (!segment->expandable && (block.previous != NONE || block.next != NONE))
        return 0;
    if (segment->expandable && (block.next != NONE || block.bytes < page))
        return 0;
    int64_t bytes = segment->expandable ? block.bytes / page * page : block.bytes;
    list_remove(a, number);
    count_reserved(a, -bytes);
    segment->bytes -= bytes;
    if (bytes < block.bytes) {
        a->blocks[number].bytes -= bytes;
        list_add(a, number);
        return bytes;
    }
    if (block.previous != NONE)
        a->blocks[block.previous].next = NONE;
    else
        segment->first = NONE;
    if (segment->first == NONE && segment->expandable)
        a->grown[block.small][(int)block.stream] = NONE;
    block_drop(a, number);
    return bytes;
}

/* release_cached_blocks() */
void caching_allocator_empty(struct caching_allocator *a)
{
    for (int pool = 0; pool < 2; pool++)
        for (int stream = 0; stream < CACHING_ALLOCATOR_STREAMS; stream++) {
            struct free_list *list = &a->lists[pool][stream];
            for (int i = list->count - 1; i >= 0; i--)
                if (i < list->count)
                    give_back(a, list->blocks[i]);
        }
}

/* release_available_cached_blocks(), with max_split_size_mb only: of blocks that are never split the smallest that is large
 * enough, or the largest until enough is back. */
static bool give_back_oversize(struct caching_allocator *a, int64_t bytes, int stream)
{
    struct free_list *list = &a->lists[0][stream];
    int64_t limit = a->options.max_split_bytes, back = 0;
    if (!limit)
        return false;
    int at = list_find(a, list, max_i64(bytes, limit), -1);
    if (at < list->count)
        return give_back(a, list->blocks[at]) >= bytes;
    for (int i = list->count - 1; i >= 0 && back < bytes; i--) {
        if (a->blocks[list->blocks[i]].bytes < limit)
            break;
        back += give_back(a, list->blocks[i]);
    }
    return back >= bytes;
}

/* garbage_collect_cached_blocks(): above the threshold, whole free segments that have not been used for longer than the
 * average go, until reserved memory is below it. */
static void collect_garbage(struct caching_allocator *a)
{
    int64_t threshold = (int64_t)(a->options.gc_threshold * (double)allowed_bytes(a));
    int64_t target = a->figures.reserved_bytes - threshold, back = 0;
    bool any = true;
    while (any && back < target) {
        int64_t age = 0, count = 0;
        any = false;
        for (int stream = 0; stream < CACHING_ALLOCATOR_STREAMS; stream++)
            for (int i = 0; i < a->lists[0][stream].count; i++) {
                const struct block *block = &a->blocks[a->lists[0][stream].blocks[i]];
                if (block->previous != NONE || block->next != NONE)
                    continue;
                age += a->requests[0] - block->freed_at;
                count++;
            }
        for (int stream = 0; count && stream < CACHING_ALLOCATOR_STREAMS; stream++)
            for (int i = 0; i < a->lists[0][stream].count; i++) {
                int number = a->lists[0][stream].blocks[i];
                const struct block *block = &a->blocks[number];
                if (block->previous != NONE || block->next != NONE ||
                    (a->requests[0] - block->freed_at) * count < age)
                    continue;
                back += give_back(a, number);
                any = true;
                i--;
            }
    }
}

static int take_from_driver(struct caching_allocator *a, int64_t bytes, bool small, int stream)
{
    return a->options.expandable_segments ? grow_segment(a, bytes, small, stream)
                                          : new_segment(a, bytes, small, stream);
}

/* malloc(): a cached block; else the driver; else the driver once more when caches are given back. */
static int find_memory(struct caching_allocator *a, int64_t bytes, bool small, int stream)
{
    int number = find_block(a, bytes, small, stream);
    if (number != NONE)
        return number;
    if (a->options.gc_threshold > 0 && a->options.memory_fraction > 0 && a->options.capacity_bytes)
        collect_garbage(a); /* set_fraction && ... */
    number = take_from_driver(a, bytes, small, stream);
    if (number != NONE)
        return number;
    a->figures.retries++;
    if (give_back_oversize(a, bytes, stream))
        number = take_from_driver(a, bytes, small, stream);
    if (number != NONE)
        return number;
    caching_allocator_empty(a);
    return take_from_driver(a, bytes, small, stream);
}

/* should_split() */
static bool is_split(const struct caching_allocator *a, const struct block *block, int64_t bytes)
{
    int64_t rest = block->bytes - bytes;
    if (block->small || a->segments[block->segment].expandable)
        return rest >= MIN_BLOCK;
    return (!a->options.max_split_bytes || bytes < a->options.max_split_bytes) && rest > SMALL_SIZE;
}

static void split(struct caching_allocator *a, int number, int64_t bytes)
{
    int rest = block_add(a);
    struct block *block = &a->blocks[number];
    a->blocks[rest] = *block;
    a->blocks[rest].bytes -= bytes;
    a->blocks[rest].address += bytes;
    a->blocks[rest].previous = number;
    if (block->next != NONE)
        a->blocks[block->next].previous = rest;
    block->next = rest;
    block->bytes = bytes;
    list_add(a, rest);
}

int caching_allocator_take(struct caching_allocator *a, int64_t bytes, int stream)
{
    assert(bytes >= 0 && stream >= 0 && stream < CACHING_ALLOCATOR_STREAMS);
    int64_t rounded = caching_allocator_rounded(&a->options, bytes);
    bool small = rounded <= SMALL_SIZE;
    if (a->figures.out_of_memory)
        return NONE; /* the program has ended */
    if (!bytes)
        return block_add(a);
    int number = find_memory(a, rounded, small, stream);
    if (number == NONE) {
        if (!a->figures.out_of_memory)
            a->figures.refused_bytes = bytes;
        a->figures.out_of_memory = true;
        return NONE;
    }
    if (is_split(a, &a->blocks[number], rounded))
        split(a, number, rounded);
    a->blocks[number].used = true;
    a->blocks[number].requested = bytes;
    count_used(a, &a->blocks[number], 1);
    return number;
}

int64_t caching_allocator_bytes(const struct caching_allocator *a, int number)
{
    return a->blocks[number].bytes;
}

/* try_merge_blocks(): `from` becomes part of `into`, its neighbour. */
static void join(struct caching_allocator *a, int into, int from)
{
    struct block *to = &a->blocks[into], *of = &a->blocks[from];
    list_remove(a, from);
    to->bytes += of->bytes;
    if (of->address < to->address) {
        to->address = of->address;
        to->previous = of->previous;
        if (to->previous != NONE)
            a->blocks[to->previous].next = into;
        else
            a->segments[to->segment].first = into;
    } else {
        to->next = of->next;
        if (to->next != NONE)
            a->blocks[to->next].previous = into;
    }
    block_drop(a, from);
}

/* free_block() */
void caching_allocator_release(struct caching_allocator *a, int number)
{
    struct block *block = &a->blocks[number];
    if (!block->bytes) {
        block_drop(a, number);
        return;
    }
    assert(block->used);
    count_used(a, block, -1);
    block->used = false;
    if (block->previous != NONE && !a->blocks[block->previous].used)
        join(a, number, block->previous);
    if (block->next != NONE && !a->blocks[block->next].used)
        join(a, number, block->next);
    list_add(a, number);
}
