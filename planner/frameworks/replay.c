#include "planner/frameworks/replay.h"

#include "base/arena.h"

#include <stdlib.h>

struct held {
    int block;
    enum role role;
    int label;
    int64_t bytes; /* of the block */
    int next;      /* of those that are not in use */
    bool used;
};

struct replay {
    struct caching_allocator *allocator;
    struct held *held;
    int count, room, spare;
    int64_t by_role[ROLE_COUNT], takes;
    int64_t census_take;
    struct replay_census *census; /* NULL: not wanted */
    enum replay_moment moment;
    struct replay_peak peak;
    bool too_large;
};

const char *replay_moment_name(enum replay_moment moment)
{
    static const char *const names[REPLAY_MOMENTS] = {
        "start",         "first forward",  "first backward",      "first optimizer step",
        "later forward", "later backward", "later optimizer step"};
    return names[moment];
}

struct replay *replay_create(const struct caching_allocator_options *options)
{
    struct replay *r = host_alloc(sizeof *r);
    r->allocator = caching_allocator_create(options);
    r->spare = -1;
    return r;
}

void replay_free(struct replay *r)
{
    if (!r)
        return;
    caching_allocator_free(r->allocator);
    free(r->held);
    free(r);
}

void replay_count_at(struct replay *r, int64_t take, struct replay_census *census)
{
    r->census_take = take;
    r->census = census;
}

void replay_enter(struct replay *r, enum replay_moment moment)
{
    r->moment = moment;
}

static int tensor_add(struct replay *r)
{
    int number = r->spare;
    if (number >= 0) {
        r->spare = r->held[number].next;
        return number;
    }
    if (r->count == r->room) {
        r->room = r->room ? 2 * r->room : 1024;
        r->held = host_resize(r->held, (size_t)r->room * sizeof *r->held);
    }
    return r->count++;
}

static void count_held(const struct replay *r)
{
    *r->census = (struct replay_census){0};
    for (int i = 0; i < r->count; i++)
        if (r->held[i].used) {
            r->census->count[r->held[i].label]++;
            r->census->bytes[r->held[i].label] += r->held[i].bytes;
        }
}

int replay_take(struct replay *r, double bytes, enum role role, int label, int stream)
{
    if (bytes < 1)
        return -1;
    if (!(bytes + (double)caching_allocator_figures(r->allocator).allocated_bytes < REPLAY_MOST_BYTES)) {
        r->too_large = true;
        return -1;
    }
    int block = caching_allocator_take(r->allocator, (int64_t)bytes, stream);
    if (block < 0)
        return -1;
    int64_t before = r->peak.bytes, now = caching_allocator_figures(r->allocator).allocated_bytes;
    int number = tensor_add(r);
    int64_t taken = caching_allocator_bytes(r->allocator, block);
    r->held[number] = (struct held){block, role, label, taken, -1, true};
    r->by_role[role] += taken;
    if (r->census && r->takes == r->census_take)
        count_held(r);
    if (now > before) {
        r->peak.bytes = now;
        r->peak.moment = r->moment;
        r->peak.take = r->takes;
        for (int i = 0; i < ROLE_COUNT; i++)
            r->peak.by_role[i] = r->by_role[i];
    }
    r->takes++;
    return number;
}

bool replay_is_too_large(const struct replay *r)
{
    return r->too_large;
}

void replay_release(struct replay *r, int number)
{
    if (number < 0)
        return;
    struct held *tensor = &r->held[number];
    caching_allocator_release(r->allocator, tensor->block);
    r->by_role[tensor->role] -= tensor->bytes;
    tensor->used = false;
    tensor->next = r->spare;
    r->spare = number;
}

void replay_drop(struct replay *r, int *tensor)
{
    replay_release(r, *tensor);
    *tensor = -1;
}

struct replay_peak replay_peak(const struct replay *r)
{
    return r->peak;
}

struct caching_allocator_figures replay_figures(const struct replay *r)
{
    return caching_allocator_figures(r->allocator);
}
