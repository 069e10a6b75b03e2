/* Runs all stages of a pipeline against a clock, plainly, with no work behind the items: whether they end is the check of every
 * schedule, and when they end is the time of a step, which planner/timeline.h must come to by its shorter way. Which item waits for
 * which does not depend on times, so what ends once always ends. */
#ifndef MEMPLAN_TESTS_SCHEDULE_REPLAY_H
#define MEMPLAN_TESTS_SCHEDULE_REPLAY_H

#include "model/schedule.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

/* One side of a message: when it was started, and for which message. */
struct side {
    double at_s;
    int64_t tag;
};

/* All messages that a stage sends in one direction: its n-th send is its neighbour's n-th receive. */
struct channel {
    struct side *sends, *receives;
    int sent, posted; /* started so far */
};

/* A send or receive that was started; no channel: nothing to wait for. */
struct started {
    struct channel *channel;
    int number;
};

struct stage {
    const struct schedule *schedule;
    int item; /* at `count` the stage waits for its last send, after that it is done */
    bool ran; /* this item has run, but the send of the one before has not ended */
    double clock_s, busy_s;
    struct started receive, next_receive; /* of this item and of the one after */
    struct started send, last_send;       /* of this item and of the one before */
};

struct replay {
    struct stage *stages;
    struct channel *channels; /* by sender and direction */
    int64_t pp;
    bool rendezvous;
    const struct schedule_times *times; /* NULL: everything takes no time */
    const struct schedule *crossed;     /* where a message first met another one than its own */
    int crossed_item;
};

static inline int check_pipeline(const struct schedule *const *schedules, struct error *err);
static inline void replay_open(struct replay *r, const struct schedule *const *schedules);
static inline int replay_run(struct replay *r, struct error *err);
static inline void replay_close(struct replay *r);

/* Is this a pipeline? `stages` are all of them, in order. Each item runs exactly once and after what it depends on, every
 * send has its receive, and nobody waits for ever; with `rendezvous` a send ends only when its receive has started, without
 * it at once. */
static inline int schedule_check(const struct schedule *const *schedules, bool rendezvous, struct error *err)
{
    if (check_pipeline(schedules, err))
        return -1;
    struct replay r = {.rendezvous = rendezvous};
    replay_open(&r, schedules);
    int status = replay_run(&r, err);
    replay_close(&r);
    return status;
}

/* Runs the stages against the clock. *step_s is when the last stage is done; bubbles[stage] (NULL: not wanted) is the idle
 * time until then as a fraction of the stage's work, which is (p-1)/m for gpipe and 1f1b and (p-1)/(vm) for interleaved
 * when all chunks are equal and messages free. Fails as schedule_check() does. */
static inline int schedule_replay(const struct schedule *const *schedules, const struct schedule_times *times,
                    double *step_s, double *bubbles, struct error *err)
{
    if (check_pipeline(schedules, err))
        return -1;
    struct replay r = {.rendezvous = true, .times = times};
    replay_open(&r, schedules);
    int status = replay_run(&r, err);
    if (!status) {
        *step_s = 0;
        for (int64_t i = 0; i < r.pp; i++)
            *step_s = fmax(*step_s, r.stages[i].clock_s);
        for (int64_t i = 0; i < r.pp && bubbles; i++)
            bubbles[i] = r.stages[i].busy_s > 0 ? *step_s / r.stages[i].busy_s - 1 : 0;
    }
    replay_close(&r);
    return status;
}

/* Starts what an item sends or receives, if anything. */
static inline struct started start(struct replay *r, const struct stage *stage, int item, bool send)
{
    const struct schedule *schedule = stage->schedule;
    if (item >= schedule->count)
        return (struct started){0};
    struct schedule_messages messages =
        schedule_messages(&schedule->shape, schedule->stage, &schedule->items[item]);
    struct schedule_message m = send ? messages.send : messages.receive;
    if (m.peer < 0)
        return (struct started){0};
    struct channel *c = &r->channels[(send ? schedule->stage : m.peer) * SCHEDULE_DIRECTIONS + m.direction];
    int number = send ? c->sent++ : c->posted++;
    (send ? c->sends : c->receives)[number] = (struct side){stage->clock_s, m.tag};
    bool met = number < (send ? c->posted : c->sent);
    if (met && c->sends[number].tag != c->receives[number].tag && !r->crossed) {
        r->crossed = schedule;
        r->crossed_item = item;
    }
    return (struct started){c, number};
}

/* When the message has passed; infinite while its other side has not started. */
static inline double passed_s(const struct replay *r, struct started s)
{
    if (!s.channel)
        return 0;
    if (s.number >= s.channel->sent || s.number >= s.channel->posted)
        return INFINITY;
    return fmax(s.channel->sends[s.number].at_s, s.channel->receives[s.number].at_s) +
           (r->times ? r->times->message_s : 0);
}

static inline double work_s(const struct replay *r, const struct stage *stage)
{
    if (!r->times)
        return 0;
    const struct schedule_item *item = &stage->schedule->items[stage->item];
    int64_t chunk = item->chunk * r->pp + stage->schedule->stage;
    switch (item->work) {
    case SCHEDULE_FORWARD:
        return r->times->forward_s[chunk];
    case SCHEDULE_BACKWARD_INPUT:
        return r->times->backward_input_s[chunk];
    case SCHEDULE_BACKWARD_WEIGHT:
        return r->times->backward_weight_s[chunk];
    default:
        return r->times->backward_input_s[chunk] + r->times->backward_weight_s[chunk];
    }
}

/* Waits for the receive, runs the item and starts its send; false while the receive is out. */
static inline bool run_item(struct replay *r, struct stage *stage)
{
    double ready_s = passed_s(r, stage->receive);
    if (isinf(ready_s))
        return false;
    double seconds = work_s(r, stage);
    stage->clock_s = fmax(stage->clock_s, ready_s) + seconds;
    stage->busy_s += seconds;
    stage->send = start(r, stage, stage->item, true);
    stage->ran = true;
    return true;
}

/* Waits for the send of the item before and goes on to the next item; false while that send is out. */
static inline bool leave_item(struct replay *r, struct stage *stage)
{
    double sent_s = r->rendezvous ? passed_s(r, stage->last_send) : 0;
    if (isinf(sent_s))
        return false;
    stage->clock_s = fmax(stage->clock_s, sent_s);
    stage->item++;
    stage->ran = false;
    stage->last_send = stage->send;
    stage->send = (struct started){0};
    stage->receive = stage->next_receive;
    stage->next_receive = start(r, stage, stage->item + 1, false);
    return true;
}

static inline bool done(const struct stage *stage)
{
    return stage->item > stage->schedule->count;
}

/* As far as a stage gets alone; false if nowhere. */
static inline bool advance(struct replay *r, struct stage *stage)
{
    bool moved = false;
    while (!done(stage)) {
        bool runs = !stage->ran && stage->item < stage->schedule->count;
        if (!(runs ? run_item(r, stage) : leave_item(r, stage)))
            break;
        moved = true;
    }
    return moved;
}

static inline void replay_open(struct replay *r, const struct schedule *const *schedules)
{
    const struct schedule_shape *shape = &schedules[0]->shape;
    int64_t pairs = shape->virtual_stages * shape->micro_batches;
    r->pp = shape->pp;
    r->stages = host_alloc((size_t)r->pp * sizeof *r->stages);
    r->channels = host_alloc((size_t)r->pp * SCHEDULE_DIRECTIONS * sizeof *r->channels);
    for (int64_t i = 0; i < r->pp * SCHEDULE_DIRECTIONS; i++) {
        r->channels[i].sends = host_alloc((size_t)pairs * sizeof(struct side));
        r->channels[i].receives = host_alloc((size_t)pairs * sizeof(struct side));
    }
    for (int64_t i = 0; i < r->pp; i++) {
        struct stage *stage = &r->stages[i];
        stage->schedule = schedules[i];
        stage->receive = start(r, stage, 0, false);
        stage->next_receive = start(r, stage, 1, false);
    }
}

static inline void replay_close(struct replay *r)
{
    for (int64_t i = 0; i < r->pp * SCHEDULE_DIRECTIONS; i++) {
        free(r->channels[i].sends);
        free(r->channels[i].receives);
    }
    free(r->channels);
    free(r->stages);
}

static const char *work_name(enum schedule_work work)
{
    static const char *const names[] = {"forward", "backward", "input half of backward",
                                        "weight half of backward"};
    return names[work];
}

static inline int item_error(struct error *err, const struct schedule *schedule, int k, const char *trouble)
{
    const struct schedule_item *item = &schedule->items[k];
    return error_set(err, "stage %d, item %d (%s of micro-batch %d, chunk %d) %s", schedule->stage, k,
                     work_name(item->work), item->micro_batch, item->chunk, trouble);
}

static inline int stuck_error(const struct stage *stage, struct error *err)
{
    const struct schedule *schedule = stage->schedule;
    bool receives = !stage->ran && stage->item < schedule->count;
    /* The send that is out is that of the item before. */
    return item_error(err, schedule, receives ? stage->item : stage->item - 1,
                      receives
                          ? "waits for ever for its receive; the stage that sends must come to it first"
                          : "waits for ever for its send; the stage that receives must come to it first");
}

static inline int replay_run(struct replay *r, struct error *err)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t i = 0; i < r->pp; i++)
            moved |= advance(r, &r->stages[i]);
    }
    if (r->crossed)
        return item_error(
            err, r->crossed, r->crossed_item,
            "meets another message than its own; neighbours must send and receive in one order");
    for (int64_t i = 0; i < r->pp; i++)
        if (!done(&r->stages[i]))
            return stuck_error(&r->stages[i], err);
    return 0;
}

/* Marks of a pair, in a bit set. */
enum { DONE_FORWARD = 1, DONE_INPUT = 2, DONE_WEIGHT = 4, DONE_ALL = 7 };

static inline unsigned marks_of(enum schedule_work work)
{
    static const unsigned marks[] = {DONE_FORWARD, DONE_INPUT | DONE_WEIGHT, DONE_INPUT, DONE_WEIGHT};
    return marks[work];
}

/* What an item of the same pair must have done before. */
static inline unsigned marks_before(enum schedule_work work)
{
    static const unsigned marks[] = {0, DONE_FORWARD, DONE_FORWARD, DONE_FORWARD | DONE_INPUT};
    return marks[work];
}

/* With one stage the neighbouring chunks are its own, and no message makes one wait for the other. */
static inline bool neighbour_done(const struct schedule *schedule, const unsigned char *done,
                           const struct schedule_item *item)
{
    const struct schedule_shape *shape = &schedule->shape;
    int64_t pair = item->chunk * shape->micro_batches + item->micro_batch;
    if (shape->pp > 1 || item->work == SCHEDULE_BACKWARD_WEIGHT)
        return true;
    if (item->work == SCHEDULE_FORWARD)
        return item->chunk == 0 || (done[pair - shape->micro_batches] & DONE_FORWARD);
    return item->chunk == shape->virtual_stages - 1 || (done[pair + shape->micro_batches] & DONE_INPUT);
}

static inline int check_item(const struct schedule *schedule, int k, unsigned char *done, struct error *err)
{
    const struct schedule_item *item = &schedule->items[k];
    const struct schedule_shape *shape = &schedule->shape;
    if (item->chunk < 0 || item->chunk >= shape->virtual_stages || item->micro_batch < 0 ||
        item->micro_batch >= shape->micro_batches)
        return item_error(err, schedule, k, "is not of this pipeline; it must be left out");
    unsigned char *pair = &done[item->chunk * shape->micro_batches + item->micro_batch];
    if (*pair & marks_of(item->work))
        return item_error(err, schedule, k, "runs twice; once is enough");
    if ((*pair & marks_before(item->work)) != marks_before(item->work) ||
        !neighbour_done(schedule, done, item))
        return item_error(err, schedule, k, "comes before what it depends on; it must follow it");
    *pair |= (unsigned char)marks_of(item->work);
    return 0;
}

/* Each item of one stage exactly once, in an order that the stage itself can keep. */
static inline int check_stage(const struct schedule *schedule, struct error *err)
{
    int64_t micro_batches = schedule->shape.micro_batches,
            pairs = micro_batches * schedule->shape.virtual_stages;
    unsigned char *done = host_alloc((size_t)pairs);
    int status = 0;
    for (int k = 0; k < schedule->count && !status; k++)
        status = check_item(schedule, k, done, err);
    for (int64_t pair = 0; pair < pairs && !status; pair++)
        if (done[pair] != DONE_ALL)
            status = error_set(err,
                               "stage %d never finishes micro-batch %lld in chunk %lld; its forward and its "
                               "backward must be items of the schedule",
                               schedule->stage, (long long)(pair % micro_batches),
                               (long long)(pair / micro_batches));
    free(done);
    return status;
}

static inline int check_pipeline(const struct schedule *const *schedules, struct error *err)
{
    const struct schedule_shape *first = &schedules[0]->shape;
    for (int64_t i = 0; i < first->pp; i++) {
        const struct schedule_shape *shape = &schedules[i]->shape;
        if (schedules[i]->stage != i || shape->pp != first->pp ||
            shape->virtual_stages != first->virtual_stages || shape->micro_batches != first->micro_batches)
            return error_set(err,
                             "schedule %lld is that of stage %d or of another pipeline; give those of one, "
                             "by stage",
                             (long long)i, schedules[i]->stage);
        if (check_stage(schedules[i], err))
            return -1;
    }
    return 0;
}

#endif
