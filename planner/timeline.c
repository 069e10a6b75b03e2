#include "planner/timeline.h"

#include "base/arena.h"

#include <stdbool.h>
#include <stdlib.h>

/* An item of a stage. Stage i has items [i * count, (i + 1) * count). */
struct entry {
    int sender;   /* the item whose message it receives; -1: none */
    int receiver; /* the item that receives its message; -1: none */
    int seconds;  /* which of the chunks' passes it is */
    int position; /* within its stage */
};

/* An item happens in two steps: it runs, once its message is there, and is left, once the message of the item before is gone.
 * A message passes once it was sent and its receive was posted, which happens two items ahead (schedule.h). */
struct timeline {
    struct schedule_shape shape;
    int count; /* items per stage */
    struct entry *entries;
    int *order; /* 2 * item + (left ? 1 : 0), such that all that a step waits for comes before it */
    double *ran_s, *left_s;
    double *seconds;  /* of passes, as in enum schedule_work; each by global chunk */
    double message_s; /* of the last run */
};

enum { PASSES = SCHEDULE_BACKWARD_WEIGHT + 1 };

/* Lists what each stage does, an entry's sender being the tag that it receives for now; *sender: the item that sends each tag. */
static void list_entries(struct timeline *t, int *sender)
{
    int64_t chunks = t->shape.pp * t->shape.virtual_stages;
    for (int64_t i = 0; i < t->shape.pp; i++) {
        struct schedule_cursor walk = schedule_walk(&t->shape, i);
        struct schedule_item item;
        for (int k = 0; schedule_next(&walk, &item); k++) {
            struct schedule_messages m = schedule_messages(&t->shape, i, &item);
            t->entries[i * t->count + k] = (struct entry){
                .sender = m.receive.peer >= 0 ? (int)m.receive.tag : -1,
                .receiver = -1,
                .seconds = (int)(item.work * chunks + item.chunk * t->shape.pp + i),
                .position = k,
            };
            if (m.send.peer >= 0)
                sender[m.send.tag] = (int)(i * t->count + k);
        }
    }
}

/* Neighbours send and receive in one order, so a tag leads to the item that has its other end. */
static void join_messages(struct timeline *t, const int *sender)
{
    for (int k = 0; k < t->shape.pp * t->count; k++)
        if (t->entries[k].sender >= 0) {
            t->entries[k].sender = sender[t->entries[k].sender];
            t->entries[t->entries[k].sender].receiver = k;
        }
}

/* How far each stage has come: items that ran and items that it left. */
struct progress {
    int *ran, *left;
};

/* Was the receive of this item posted? Those of the first two are at once. */
static bool is_posted(const struct timeline *t, const struct progress *p, int item)
{
    return t->entries[item].position < 2 || p->left[item / t->count] >= t->entries[item].position - 1;
}

static bool has_run(const struct timeline *t, const struct progress *p, int item)
{
    return p->ran[item / t->count] > t->entries[item].position;
}

/* The next step of a stage, or -1 while it waits for another. */
static int next_step(const struct timeline *t, const struct progress *p, int stage)
{
    int ran = p->ran[stage], left = p->left[stage], first = stage * t->count;
    if (ran > left) {
        int before = ran > 1 ? t->entries[first + ran - 2].receiver : -1;
        return before >= 0 && !is_posted(t, p, before) ? -1 : 2 * (first + ran - 1) + 1;
    }
    if (ran == t->count)
        return -1;
    int sender = t->entries[first + ran].sender;
    return sender >= 0 && !has_run(t, p, sender) ? -1 : 2 * (first + ran);
}

static void find_order(struct timeline *t)
{
    struct progress p = {host_alloc((size_t)t->shape.pp * sizeof(int)),
                         host_alloc((size_t)t->shape.pp * sizeof(int))};
    int64_t found = 0, before = -1;
    while (found > before) {
        before = found;
        for (int i = 0; i < t->shape.pp; i++)
            for (int step; (step = next_step(t, &p, i)) >= 0;) {
                t->order[found++] = step;
                (*(step % 2 ? &p.left[i] : &p.ran[i]))++;
            }
    }
    free(p.ran);
    free(p.left);
}

int timeline_create(const struct schedule_shape *shape, struct timeline **out, struct error *err)
{
    if (schedule_shape_check(shape, err))
        return -1;
    struct timeline *t = host_alloc(sizeof *t);
    int64_t pairs = shape->virtual_stages * shape->micro_batches;
    t->shape = *shape;
    t->count = (int)(pairs * (shape->kind == SCHEDULE_ZB_H1 ? 3 : 2));
    size_t items = (size_t)(shape->pp * t->count);
    t->entries = host_alloc(items * sizeof *t->entries);
    t->order = host_alloc(2 * items * sizeof *t->order);
    t->ran_s = host_alloc(items * sizeof *t->ran_s);
    t->left_s = host_alloc(items * sizeof *t->left_s);
    t->seconds = host_alloc((size_t)timeline_passes(shape) * sizeof *t->seconds);
    int64_t tags = shape->micro_batches * shape->pp * shape->virtual_stages * SCHEDULE_DIRECTIONS;
    int *sender = host_alloc((size_t)tags * sizeof *sender);
    list_entries(t, sender);
    join_messages(t, sender);
    free(sender);
    find_order(t);
    *out = t;
    return 0;
}

void timeline_free(struct timeline *t)
{
    if (!t)
        return;
    free(t->entries);
    free(t->order);
    free(t->ran_s);
    free(t->left_s);
    free(t->seconds);
    free(t);
}

int64_t timeline_passes(const struct schedule_shape *shape)
{
    return PASSES * shape->pp * shape->virtual_stages;
}

int64_t timeline_items(const struct timeline *t)
{
    return t->shape.pp * t->count;
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* When the receive of an item was posted. */
static double posted_s(const struct timeline *t, int item)
{
    return t->entries[item].position < 2 ? 0 : t->left_s[item - 2];
}

static void run_step(struct timeline *t, int step, double message_s)
{
    int item = step / 2;
    const struct entry *entry = &t->entries[item];
    if (step % 2) {
        int receiver = entry->position ? entry[-1].receiver : -1;
        double sent_s = receiver < 0 ? 0 : later(t->ran_s[item - 1], posted_s(t, receiver)) + message_s;
        t->left_s[item] = later(t->ran_s[item], sent_s);
        return;
    }
    double ready_s = entry->sender < 0 ? 0 : later(t->ran_s[entry->sender], posted_s(t, item)) + message_s;
    double clock_s = entry->position ? t->left_s[item - 1] : 0;
    t->ran_s[item] = later(clock_s, ready_s) + t->seconds[entry->seconds];
}

double timeline_run(struct timeline *t, const struct schedule_times *times, double *ends_s)
{
    int64_t chunks = t->shape.pp * t->shape.virtual_stages, steps = 2 * timeline_items(t);
    double latest_s = 0;
    t->message_s = times->message_s;
    for (int64_t c = 0; c < chunks; c++) {
        t->seconds[SCHEDULE_FORWARD * chunks + c] = times->forward_s[c];
        t->seconds[SCHEDULE_BACKWARD * chunks + c] = times->backward_input_s[c] + times->backward_weight_s[c];
        t->seconds[SCHEDULE_BACKWARD_INPUT * chunks + c] = times->backward_input_s[c];
        t->seconds[SCHEDULE_BACKWARD_WEIGHT * chunks + c] = times->backward_weight_s[c];
    }
    for (int64_t k = 0; k < steps; k++)
        run_step(t, t->order[k], times->message_s);
    for (int64_t i = 0; i < t->shape.pp; i++) {
        /* The message of the last item passes too. */
        int last = (int)((i + 1) * t->count) - 1, receiver = t->entries[last].receiver;
        ends_s[i] = t->left_s[last];
        if (receiver >= 0)
            ends_s[i] = later(ends_s[i], later(t->ran_s[last], posted_s(t, receiver)) + times->message_s);
        latest_s = later(latest_s, ends_s[i]);
    }
    return latest_s;
}

/* A step that has happened: the item ran, or was left. */
struct event {
    int item;
    bool left;
};

/* What the message waited for that `sender` sends to `receiver`. */
static struct event before_message(const struct timeline *t, int sender, int receiver)
{
    bool posted_last = posted_s(t, receiver) > t->ran_s[sender];
    return posted_last ? (struct event){receiver - 2, true} : (struct event){sender, false};
}

/* What the event waited for, *messages counted; the item is -1 where it is the first. */
static struct event before_event(const struct timeline *t, struct event e, int64_t *messages)
{
    const struct entry *entry = &t->entries[e.item];
    if (e.left) {
        if (t->left_s[e.item] <= t->ran_s[e.item])
            return (struct event){e.item, false};
        ++*messages;
        return before_message(t, e.item - 1, entry[-1].receiver);
    }
    double clock_s = entry->position ? t->left_s[e.item - 1] : 0;
    if (entry->sender >= 0) {
        struct event sent = before_message(t, entry->sender, e.item);
        double sent_s = sent.left ? t->left_s[sent.item] : t->ran_s[sent.item];
        if (sent_s + t->message_s > clock_s) {
            ++*messages;
            return sent;
        }
    }
    return entry->position ? (struct event){e.item - 1, true} : (struct event){-1, true};
}

int64_t timeline_way(const struct timeline *t, int64_t stage, int *counts)
{
    int last = (int)((stage + 1) * t->count) - 1, receiver = t->entries[last].receiver;
    int64_t messages = 0, passes = timeline_passes(&t->shape);
    struct event e = {last, true};
    for (int64_t i = 0; i < passes; i++)
        counts[i] = 0;
    if (receiver >= 0 && later(t->ran_s[last], posted_s(t, receiver)) + t->message_s > t->left_s[last]) {
        messages = 1;
        e = before_message(t, last, receiver);
    }
    for (; e.item >= 0; e = before_event(t, e, &messages))
        if (!e.left)
            counts[t->entries[e.item].seconds]++;
    return messages;
}

double timeline_start(const struct timeline *t, int64_t stage, int64_t position)
{
    int64_t item = stage * t->count + position;
    return t->ran_s[item] - t->seconds[t->entries[item].seconds];
}
