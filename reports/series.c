/* Points, lives and steps from events. Which life an event ends is found by its key in a hash table: of several that are open
 * under one key (a message that is taken twice), the youngest of its size. */
#include "reports/series.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    int64_t key, life; /* the youngest open life + 1; 0: none */
    bool used;
};

struct series_builder {
    struct arena *arena;
    struct series series;
    int64_t room, stretch; /* events that share two points; 1: every event has its own */
    struct series_point now, low, high;
    struct slot *slots; /* a power of two of them, at most half in use */
    int64_t slot_count, slots_used;
    int64_t *older; /* by life: the one open under the same key before it, + 1 */
    int64_t lives_room, steps_room;
};

struct series_builder *series_begin(struct arena *arena, int64_t events, int64_t limit)
{
    struct series_builder *b = host_alloc(sizeof *b);
    int64_t buckets = limit / 2;
    b->arena = arena;
    b->room = events;
    b->stretch = limit == SERIES_ALL || events <= limit ? 1 : (events + buckets - 1) / buckets;
    b->series.points = host_alloc(((size_t)(2 * (events / b->stretch)) + 4) * sizeof *b->series.points);
    b->slot_count = 1024;
    b->slots = host_alloc((size_t)b->slot_count * sizeof *b->slots);
    return b;
}

/* ----------------------------------------------------------------------------------------------------------- points */

static void push(struct series_builder *b, const struct series_point *point)
{
    struct series *s = &b->series;
    if (s->point_count && s->points[s->point_count - 1].event == point->event)
        return;
    if (s->point_count == 0 || point->live_bytes > s->points[s->peak].live_bytes)
        s->peak = s->point_count;
    s->points[s->point_count++] = *point;
}

static void push_bucket(struct series_builder *b)
{
    bool rising = b->low.event < b->high.event;
    push(b, rising ? &b->low : &b->high);
    push(b, rising ? &b->high : &b->low);
}

static void add_point(struct series_builder *b)
{
    int64_t place = b->now.event % b->stretch;
    if (place == 0 || b->now.live_bytes < b->low.live_bytes)
        b->low = b->now;
    if (place == 0 || b->now.live_bytes > b->high.live_bytes)
        b->high = b->now;
    if (place == b->stretch - 1)
        push_bucket(b);
}

static void add_to_step(struct series_builder *b)
{
    struct series *s = &b->series;
    if (s->step_count == 0 || s->steps[s->step_count - 1].step != b->now.step) {
        if (s->step_count == b->steps_room)
            s->steps =
                host_resize(s->steps, (size_t)(b->steps_room = 2 * b->steps_room + 16) * sizeof *s->steps);
        s->steps[s->step_count++] =
            (struct series_step){.step = b->now.step, .first_at = b->now.at, .highest = b->now};
    }
    struct series_step *step = &s->steps[s->step_count - 1];
    step->last_at = b->now.at;
    step->events++;
    if (b->now.live_bytes > step->highest.live_bytes)
        step->highest = b->now;
}

/* ------------------------------------------------------------------------------------------------------------ lives */

static struct slot *find_slot(struct slot *slots, int64_t count, int64_t key)
{
    uint64_t mixed = (uint64_t)key * 0x9e3779b97f4a7c15u;
    int64_t at = (int64_t)(mixed >> 20) & (count - 1);
    while (slots[at].used && slots[at].key != key)
        at = (at + 1) & (count - 1);
    return &slots[at];
}

static void grow_slots(struct series_builder *b)
{
    int64_t count = 2 * b->slot_count;
    struct slot *slots = host_alloc((size_t)count * sizeof *slots);
    for (int64_t i = 0; i < b->slot_count; i++)
        if (b->slots[i].used)
            *find_slot(slots, count, b->slots[i].key) = b->slots[i];
    free(b->slots);
    b->slots = slots;
    b->slot_count = count;
}

static void begin_life(struct series_builder *b, struct slot *slot, const struct series_event *event)
{
    struct series *s = &b->series;
    if (s->life_count == b->lives_room) {
        b->lives_room = 2 * b->lives_room + 256;
        s->lives = host_resize(s->lives, (size_t)b->lives_room * sizeof *s->lives);
        b->older = host_resize(b->older, (size_t)b->lives_room * sizeof *b->older);
    }
    s->lives[s->life_count] = (struct series_life){event->tensor, event->bytes, b->now.event, INT64_MAX};
    b->older[s->life_count] = slot->life;
    slot->life = ++s->life_count;
}

static void end_life(struct series_builder *b, struct slot *slot, const struct series_event *event)
{
    for (int64_t *link = &slot->life; *link; link = &b->older[*link - 1]) {
        struct series_life *life = &b->series.lives[*link - 1];
        if (life->bytes != -event->bytes)
            continue;
        life->died = b->now.event;
        *link = b->older[*link - 1];
        return;
    }
}

static void add_life(struct series_builder *b, const struct series_event *event)
{
    struct slot *slot = find_slot(b->slots, b->slot_count, event->key);
    if (!slot->used) {
        if (2 * ++b->slots_used > b->slot_count) {
            grow_slots(b);
            slot = find_slot(b->slots, b->slot_count, event->key);
        }
        *slot = (struct slot){.key = event->key, .used = true};
    }
    if (event->bytes > 0)
        begin_life(b, slot, event);
    else
        end_life(b, slot, event);
}

/* -------------------------------------------------------------------------------------------------------- in and out */

void series_add(struct series_builder *b, const struct series_event *event)
{
    if (b->series.events == b->room)
        return;
    b->now.at = event->at;
    b->now.event = b->series.events++;
    b->now.operation = event->operation;
    b->now.step = event->step;
    b->now.live_bytes = event->live_bytes;
    b->now.by_role[event->role] += event->bytes;
    add_point(b);
    add_to_step(b);
    if (event->bytes)
        add_life(b, event);
}

/* Moves a block to the arena. */
static void *settle(struct series_builder *b, void *block, int64_t count, size_t size)
{
    void *array = arena_array(b->arena, (size_t)count, size);
    if (count)
        memcpy(array, block, (size_t)count * size);
    free(block);
    return array;
}

struct series *series_end(struct series_builder *b)
{
    struct series *out = arena_alloc(b->arena, sizeof *out);
    if (b->series.events % b->stretch)
        push_bucket(b);
    if (b->series.events)
        push(b, &b->now);
    struct series s = b->series;
    s.points = settle(b, s.points, s.point_count, sizeof *s.points);
    s.lives = settle(b, s.lives, s.life_count, sizeof *s.lives);
    s.steps = settle(b, s.steps, s.step_count, sizeof *s.steps);
    *out = s;
    free(b->slots);
    free(b->older);
    free(b);
    return out;
}
