/* What is the same for every device: the ledger, capacity, arenas, observers and ranges. Each byte that a back end takes
 * or gives back passes through take() and give_back(), and each tensor through count(): nothing else changes the ledger. */
#include "device/device.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/units.h"
#include "device/backend.h"
#include "device/blocks.h"
#include "device/placements.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OBSERVERS = 4, POISON_BYTE = 0xff };

struct device_arena {
    struct device_arena *next;
    unsigned char *memory;
    int64_t bytes;
    struct placements living; /* kept only with poison */
};

struct device {
    const struct backend *backend;
    void *context;
    int64_t capacity;
    bool poison;
    struct device_usage usage;
    struct blocks blocks;
    struct device_arena *arenas;
    const struct observer *observers[MAX_OBSERVERS];
    int observer_count;
    struct range_event range; /* the open one; its operation is -1 while none is */
};

struct device *device_create(const struct backend *backend, void *context, int64_t capacity, bool poison)
{
    struct device *device = host_alloc(sizeof *device);
    device->backend = backend;
    device->context = context;
    device->capacity = capacity > 0 ? capacity : INT64_MAX;
    device->poison = poison;
    device->range.operation = -1;
    return device;
}

void device_close(struct device *device)
{
    if (!device)
        return;
    const struct backend *backend = device->backend;
    while (device->arenas)
        device_arena_close(device, device->arenas);
    for (size_t i = 0; i < device->blocks.room; i++) {
        const struct block *block = &device->blocks.slots[i];
        if (block->memory)
            backend->give_back(device->context, block->memory, block->bytes, false);
    }
    blocks_free(&device->blocks);
    if (backend->close)
        backend->close(device->context);
    free(device);
}

const char *device_name(const struct device *device)
{
    return device->backend->name;
}

void *device_context(const struct device *device)
{
    return device->context;
}

bool device_is_asynchronous(const struct device *device)
{
    return device->backend->finish != NULL;
}

struct device_usage device_usage(const struct device *device)
{
    struct device_usage usage = device->usage;
    const struct backend *backend = device->backend;
    usage.machine_peak_bytes =
        backend->held_peak ? backend->held_peak(device->context) : usage.reserved_peak_bytes;
    return usage;
}

static void peak_is_now(struct device_usage *usage)
{
    usage->peak_bytes = usage->live_bytes;
    memcpy(usage->at_peak, usage->live, sizeof usage->at_peak);
}

void device_watch_peak(struct device *device)
{
    device->usage.recent_peak_bytes = device->usage.live_bytes;
}

int device_observe(struct device *device, const struct observer *observer, struct error *err)
{
    if (device->observer_count == MAX_OBSERVERS)
        return error_set(err, "%s: %d observers listen already; remove one first", device_name(device),
                         MAX_OBSERVERS);
    device->observers[device->observer_count++] = observer;
    return 0;
}

void device_unobserve(struct device *device, const struct observer *observer)
{
    int kept = 0;
    for (int i = 0; i < device->observer_count; i++)
        if (device->observers[i] != observer)
            device->observers[kept++] = device->observers[i];
    device->observer_count = kept;
}

static void tell_observers(const struct device *device, int64_t bytes, const void *memory,
                           struct memory_tag tag, bool arena)
{
    struct memory_event event = {
        .time_ns = clock_ns(),
        .bytes = bytes,
        .address = (int64_t)(intptr_t)memory,
        .live_bytes = device->usage.live_bytes,
        .operation = device->range.operation,
        .tag = tag,
        .arena = arena,
    };
    for (int i = 0; i < device->observer_count; i++)
        if (device->observers[i]->memory)
            device->observers[i]->memory(device->observers[i]->context, &event);
}

/* A tensor appears (bytes > 0) or disappears (bytes < 0). */
static void count(struct device *device, int64_t bytes, const void *memory, struct memory_tag tag, bool arena)
{
    struct device_usage *usage = &device->usage;
    usage->live_bytes += bytes;
    usage->live[tag.role] += bytes;
    usage->allocations += bytes > 0;
    usage->recent_peak_bytes = max_i64(usage->recent_peak_bytes, usage->live_bytes);
    if (usage->live_bytes > usage->peak_bytes)
        peak_is_now(usage);
    if (device->observer_count)
        tell_observers(device, bytes, memory, tag, arena);
}

static void poison(const struct device *device, void *memory, int64_t bytes)
{
    if (device->poison)
        device->backend->fill(device->context, memory, POISON_BYTE, bytes);
}

/* "; held: parameter 100.00 MiB, activation 190.00 MiB, arenas 2.00 GiB": adds up to what is reserved. */
static void append_held(const struct device *device, struct error *err)
{
    int64_t held[ROLE_COUNT] = {0}, in_arenas = 0;
    for (size_t i = 0; i < device->blocks.room; i++)
        if (device->blocks.slots[i].memory)
            held[device->blocks.slots[i].tag.role] += device->blocks.slots[i].bytes;
    for (const struct device_arena *arena = device->arenas; arena; arena = arena->next)
        in_arenas += arena->bytes;
    char amount[UNITS_TEXT];
    const char *separator = "; held: ";
    for (int role = 0; role < ROLE_COUNT; role++) {
        if (!held[role])
            continue;
        error_append(err, "%s%s %s", separator, role_name(role), units_format_bytes(held[role], amount));
        separator = ", ";
    }
    if (in_arenas)
        error_append(err, "%sarenas %s", separator, units_format_bytes(in_arenas, amount));
    else if (!device->usage.reserved_bytes)
        error_append(err, "; nothing is held");
}

static int out_of_memory(const struct device *device, int64_t bytes, const char *what, struct error *err)
{
    int64_t left = device->capacity - device->usage.reserved_bytes;
    char need_text[UNITS_TEXT], left_text[UNITS_TEXT], capacity_text[UNITS_TEXT], short_text[UNITS_TEXT];
    units_format_bytes(bytes, need_text);
    if (bytes > left)
        error_set_kind(err, ERROR_MEMORY, "%s: %s needs %s but %s of %s are left (%s short)",
                       device_name(device), what, need_text, units_format_bytes(left, left_text),
                       units_format_bytes(device->capacity, capacity_text),
                       units_format_bytes(bytes - left, short_text));
    else
        error_set_kind(err, ERROR_MEMORY, "%s: %s needs %s but the machine has no more to give",
                       device_name(device), what, need_text);
    append_held(device, err);
    error_append(err, "; allow it more memory or run a smaller step");
    return -1;
}

/* Memory from the machine, within capacity; NULL with err. */
static void *take(struct device *device, int64_t bytes, bool arena, const char *what, struct error *err)
{
    struct device_usage *usage = &device->usage;
    if (bytes <= 0) {
        error_set(err, "%s: %s asks for %lld bytes; ask for at least 1", device_name(device), what,
                  (long long)bytes);
        return NULL;
    }
    void *memory = NULL;
    if (bytes <= device->capacity - usage->reserved_bytes)
        memory = device->backend->take(device->context, bytes, arena);
    if (!memory) {
        if (!device_finish(device, err))
            out_of_memory(device, bytes, what, err);
        return NULL;
    }
    usage->reserved_bytes += bytes;
    usage->reserved_peak_bytes = max_i64(usage->reserved_peak_bytes, usage->reserved_bytes);
    poison(device, memory, bytes);
    return memory;
}

static void give_back(struct device *device, void *memory, int64_t bytes, bool arena)
{
    poison(device, memory, bytes);
    device->backend->give_back(device->context, memory, bytes, arena);
    device->usage.reserved_bytes -= bytes;
}

void *device_alloc(struct device *device, int64_t bytes, struct memory_tag tag, struct error *err)
{
    void *memory = take(device, bytes, false, tag.name, err);
    if (!memory)
        return NULL;
    blocks_add(&device->blocks, (struct block){memory, bytes, tag});
    count(device, bytes, memory, tag, false);
    return memory;
}

void device_free(struct device *device, void *memory)
{
    if (!memory)
        return;
    struct block block;
    bool found = blocks_remove(&device->blocks, memory, &block);
    assert(found && "device_free() of an address that device_alloc() never returned, or freed twice");
    if (!found)
        return;
    /* Told before it happens, so that what giving back takes is not taken for the operation's own time. */
    count(device, -block.bytes, memory, block.tag, false);
    give_back(device, memory, block.bytes, false);
}

int device_arena_open(struct device *device, int64_t bytes, struct device_arena **out, struct error *err)
{
    void *memory = take(device, bytes, true, "an arena", err);
    if (!memory)
        return -1;
    struct device_arena *arena = host_alloc(sizeof *arena);
    arena->memory = memory;
    arena->bytes = bytes;
    arena->next = device->arenas;
    device->arenas = arena;
    *out = arena;
    return 0;
}

void device_arena_close(struct device *device, struct device_arena *arena)
{
    if (!arena)
        return;
    struct device_arena **link = &device->arenas;
    while (*link != arena)
        link = &(*link)->next;
    *link = arena->next;
    give_back(device, arena->memory, arena->bytes, true);
    placements_free(&arena->living);
    free(arena);
}

static bool fits(const struct device_arena *arena, int64_t offset, int64_t bytes)
{
    return offset >= 0 && offset % DEVICE_ALIGN == 0 && bytes > 0 && bytes <= arena->bytes &&
           offset <= arena->bytes - bytes;
}

static int refuse_fit(const struct device *device, const struct device_arena *arena, int64_t offset,
                      int64_t bytes, const char *what, struct error *err)
{
    if (offset % DEVICE_ALIGN)
        return error_set(err, "%s: %s is placed at offset %lld; offsets are multiples of %d",
                         device_name(device), what, (long long)offset, DEVICE_ALIGN);
    return error_set(
        err, "%s: %s of %lld bytes at offset %lld does not fit an arena of %lld bytes; place it inside",
        device_name(device), what, (long long)bytes, (long long)offset, (long long)arena->bytes);
}

static int refuse_overlap(const struct device *device, const struct placement *placed,
                          const struct placement *living, struct error *err)
{
    return error_set(
        err,
        "%s: %s at [%lld, %lld) overlaps %s, which still lives at [%lld, %lld); remove that first or "
        "place it elsewhere",
        device_name(device), placed->name, (long long)placed->offset,
        (long long)(placed->offset + placed->bytes), living->name, (long long)living->offset,
        (long long)(living->offset + living->bytes));
}

/* Called for every tensor of every step: constant time unless the device is poisoned. */
void *device_arena_place(struct device *device, struct device_arena *arena, int64_t offset, int64_t bytes,
                         struct memory_tag tag, struct error *err)
{
    if (!fits(arena, offset, bytes)) {
        refuse_fit(device, arena, offset, bytes, tag.name, err);
        return NULL;
    }
    if (device->poison) {
        struct placement placed = {offset, bytes, tag.name};
        const struct placement *living = placements_add(&arena->living, placed);
        if (living) {
            refuse_overlap(device, &placed, living, err);
            return NULL;
        }
        poison(device, arena->memory + offset, bytes);
    }
    count(device, bytes, arena->memory + offset, tag, true);
    return arena->memory + offset;
}

void device_arena_remove(struct device *device, struct device_arena *arena, void *memory, int64_t bytes,
                         struct memory_tag tag)
{
    if (device->poison) {
        bool found = placements_remove(&arena->living, (unsigned char *)memory - arena->memory, bytes);
        assert(found && "device_arena_remove() of a tensor that does not live there");
        (void)found;
        poison(device, memory, bytes);
    }
    count(device, -bytes, memory, tag, true);
}

void device_write(struct device *device, void *to, const void *from_host, int64_t bytes)
{
    device->backend->write(device->context, to, from_host, bytes);
}

void device_read(struct device *device, void *to_host, const void *from, int64_t bytes)
{
    device->backend->read(device->context, to_host, from, bytes);
}

void device_copy(struct device *device, void *to, const void *from, int64_t bytes)
{
    device->backend->copy(device->context, to, from, bytes);
}

int device_finish(struct device *device, struct error *err)
{
    return device->backend->finish ? device->backend->finish(device->context, err) : 0;
}

bool device_can_record(const struct device *device)
{
    return device->backend->record != NULL;
}

int device_record(struct device *device, struct error *err)
{
    return device->backend->record(device->context, err);
}

int device_recorded(struct device *device, struct error *err)
{
    return device->backend->recorded(device->context, err);
}

void device_rewrite(struct device *device)
{
    device->backend->rewrite(device->context);
}

int device_replay(struct device *device, struct error *err)
{
    return device->backend->replay(device->context, err);
}

void device_forget(struct device *device)
{
    if (device->backend->forget)
        device->backend->forget(device->context);
}

bool device_is_watched(const struct device *device)
{
    return device->backend->is_watched && device->backend->is_watched(device->context);
}

void device_label_begin(struct device *device, const char *text)
{
    device->backend->label(device->context, text);
}

void device_label_end(struct device *device)
{
    device->backend->label(device->context, NULL);
}

void device_range_begin(struct device *device, int64_t operation, int step)
{
    assert(device->range.operation == -1 && "ranges do not nest");
    for (int i = 0; i < device->observer_count; i++)
        if (device->observers[i]->begin)
            device->observers[i]->begin(device->observers[i]->context, operation, step);
    device->range = (struct range_event){.start_ns = clock_ns(), .operation = operation, .step = step};
}

void device_range_end(struct device *device)
{
    assert(device->range.operation != -1 && "device_range_end() without a range");
    device->range.end_ns = clock_ns();
    for (int i = 0; i < device->observer_count; i++)
        if (device->observers[i]->range)
            device->observers[i]->range(device->observers[i]->context, &device->range);
    device->range.operation = -1;
}
