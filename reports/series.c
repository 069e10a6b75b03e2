/* Points, lives and steps from events. Which life an event ends is found by its key in a hash table: of several that are open
 * under one key (a message that is taken twice), the youngest of its size. Lives between two points that stay are dropped, so
 * that millions of events need room for what is alive and what is shown. */
#include "reports/series.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    int64_t key, life; /* the youngest open life + 1; 0: none */
    bool used;
};

struct open_life {
    struct series_life life;
    int64_t older; /* the one open under the same key before it, + 1; of an unused one the next unused, + 1 */
};

struct series_builder {
    struct arena *arena;
    struct series series;
    int64_t room, stretch; /* events that share two points; 1: every event has its own */
    struct series_point now, low, high;
    struct slot *slots; /* a power of two of them, at most half in use */
    int64_t slot_count, slots_used;
    struct open_life *open;
    int64_t open_count, open_room, unused; /* `unused`: the first of them, + 1 */
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

/* Keys without an open life are forgotten; the table grows where that does not make room enough. */
static void renew_slots(struct series_builder *b)
{
    int64_t count = b->slot_count, open = 0;
    for (int64_t i = 0; i < b->slot_count; i++)
        open += b->slots[i].life != 0;
    while (4 * open > count)
        count *= 2;
    struct slot *slots = host_alloc((size_t)count * sizeof *slots);
    for (int64_t i = 0; i < b->slot_count; i++)
        if (b->slots[i].life)
            *find_slot(slots, count, b->slots[i].key) = b->slots[i];
    free(b->slots);
    b->slots = slots;
    b->slot_count = count;
    b->slots_used = open;
}

static int64_t take_open(struct series_builder *b)
{
    if (b->unused) {
        int64_t taken = b->unused - 1;
        b->unused = b->open[taken].older;
        return taken;
    }
    if (b->open_count == b->open_room)
        b->open = host_resize(b->open, (size_t)(b->open_room = 2 * b->open_room + 256) * sizeof *b->open);
    return b->open_count++;
}

static void begin_life(struct series_builder *b, struct slot *slot, const struct series_event *event)
{
    int64_t taken = take_open(b);
    b->open[taken] = (struct open_life){{event->tensor, event->bytes, b->now.event, INT64_MAX}, slot->life};
    slot->life = taken + 1;
}

static bool within(const struct series_life *life, const struct series_point *point)
{
    return life->born <= point->event && point->event < life->died;
}

/* Does a point that stays, or may yet, fall into it? */
static bool is_shown(const struct series_builder *b, const struct series_life *life)
{
    const struct series *s = &b->series;
    int64_t last = s->point_count - 1;
    while (last >= 0 && s->points[last].event >= life->died)
        last--;
    return (last >= 0 && s->points[last].event >= life->born) || within(life, &b->low) ||
           within(life, &b->high);
}

static void keep_life(struct series_builder *b, const struct series_life *life)
{
    struct series *s = &b->series;
    if (s->life_count == b->lives_room)
        s->lives =
            host_resize(s->lives, (size_t)(b->lives_room = 2 * b->lives_room + 256) * sizeof *s->lives);
    s->lives[s->life_count++] = *life;
}

static void end_life(struct series_builder *b, struct slot *slot, const struct series_event *event)
{
    for (int64_t *link = &slot->life; *link; link = &b->open[*link - 1].older) {
        int64_t ended = *link - 1;
        struct series_life *life = &b->open[ended].life;
        if (life->bytes != -event->bytes)
            continue;
        life->died = b->now.event;
        if (is_shown(b, life))
            keep_life(b, life);
        life->bytes = 0;
        *link = b->open[ended].older;
        b->open[ended].older = b->unused;
        b->unused = ended + 1;
        return;
    }
}

static int by_birth(const void *left, const void *right)
{
    const struct series_life *a = left, *b = right;
    return (a->born > b->born) - (a->born < b->born);
}

/* Those that are open live to the end. */
static void finish_lives(struct series_builder *b)
{
    for (int64_t i = 0; i < b->open_count; i++)
        if (b->open[i].life.bytes)
            keep_life(b, &b->open[i].life);
    if (b->series.life_count)
        qsort(b->series.lives, (size_t)b->series.life_count, sizeof *b->series.lives, by_birth);
}

static void add_life(struct series_builder *b, const struct series_event *event)
{
    struct slot *slot = find_slot(b->slots, b->slot_count, event->key);
    if (!slot->used) {
        if (2 * (b->slots_used + 1) > b->slot_count) {
            renew_slots(b);
            slot = find_slot(b->slots, b->slot_count, event->key);
        }
        b->slots_used++;
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
    finish_lives(b);
    struct series s = b->series;
    s.points = settle(b, s.points, s.point_count, sizeof *s.points);
    s.lives = settle(b, s.lives, s.life_count, sizeof *s.lives);
    s.steps = settle(b, s.steps, s.step_count, sizeof *s.steps);
    *out = s;
    free(b->slots);
    free(b->open);
    free(b);
    return out;
}
