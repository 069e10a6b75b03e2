/* The orders and messages of pipeline schedules. All kinds are one rule with two numbers: how many passes may wait
 * for their backward, and how many weight halves are put off. */
#include "model/schedule.h"

#include "base/arena.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

/* Beyond any step that trains; keeps every count and tag far from overflow. */
enum { MOST_CHUNKS = 1 << 20, MOST_PAIRS = 1 << 22 };

static const char *const kind_names[SCHEDULE_KINDS] = {"1f1b", "gpipe", "interleaved", "zb-h1"};

const char *schedule_name(enum schedule_kind kind)
{
    return kind_names[kind];
}

int schedule_find(const char *name, enum schedule_kind *out, struct error *err)
{
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
        if (!strcmp(name, kind_names[kind]))
            return *out = (enum schedule_kind)kind, 0;
    return error_set(err, "schedule \"%s\" is unknown; use gpipe, 1f1b, interleaved or zb-h1", name);
}

static int check_interleaved(const struct schedule_shape *shape, struct error *err)
{
    long long pp = shape->pp, micro_batches = shape->micro_batches;
    if (shape->virtual_stages == 1)
        return error_set(
            err, "--pipeline-schedule interleaved with --virtual-stages 1 gains nothing over 1f1b and keeps "
                 "more; use --virtual-stages 2 or more, or --pipeline-schedule 1f1b");
    if (micro_batches % pp)
        return error_set(
            err,
            "--pipeline-schedule interleaved runs micro-batches in groups of --pp %lld, which %lld "
            "micro-batches do not fill; use %lld micro-batches or --pipeline-schedule 1f1b",
            pp, micro_batches, (long long)round_up(micro_batches, pp));
    return 0;
}

int schedule_shape_check(const struct schedule_shape *shape, struct error *err)
{
    long long pp = shape->pp, chunks = shape->virtual_stages, micro_batches = shape->micro_batches;
    if (pp < 1)
        return error_set(err, "--pp %lld: a pipeline has at least one stage; use 1 or more", pp);
    if (chunks < 1)
        return error_set(err, "--virtual-stages %lld: a stage has at least one chunk; use 1 or more", chunks);
    if (micro_batches < 1)
        return error_set(err, "a step of %lld micro-batches has nothing to run; use 1 or more",
                         micro_batches);
    if (pp > MOST_CHUNKS / chunks)
        return error_set(err, "--pp %lld with --virtual-stages %lld makes more than %d chunks; use fewer", pp,
                         chunks, MOST_CHUNKS);
    if (micro_batches > MOST_PAIRS / chunks)
        return error_set(err,
                         "%lld micro-batches in %lld chunks per stage are more than %d passes; use a larger "
                         "--micro-batch",
                         micro_batches, chunks, MOST_PAIRS);
    if (shape->kind == SCHEDULE_INTERLEAVED)
        return check_interleaved(shape, err);
    if (chunks > 1)
        return error_set(err,
                         "--pipeline-schedule %s has one chunk per stage, not --virtual-stages %lld; use "
                         "--pipeline-schedule interleaved or --virtual-stages 1",
                         schedule_name(shape->kind), chunks);
    return 0;
}

static int64_t pair_count(const struct schedule_shape *shape)
{
    return shape->virtual_stages * shape->micro_batches;
}

static bool splits_backward(const struct schedule_shape *shape)
{
    return shape->kind == SCHEDULE_ZB_H1;
}

/* A stage runs forward whenever fewer pairs than this wait for their backward: the whole difference between gpipe, 1f1b and
 * interleaved. One more than the warm-up passes of Megatron-LM. */
static int64_t most_waiting(const struct schedule_shape *shape, int64_t stage)
{
    int64_t after = shape->pp - stage - 1;
    switch (shape->kind) {
    case SCHEDULE_GPIPE:
        return shape->micro_batches;
    case SCHEDULE_INTERLEAVED:
        return 2 * after + (shape->virtual_stages - 1) * shape->pp + 1;
    default:
        return after + 1;
    }
}

/* How many weight halves a stage puts off: as many as there are stages before it, because that is how much earlier its last
 * gradient must leave for the first stage to be in time. With none put off every stage would keep what 1f1b keeps, for a
 * bubble of (p-1)(T_F + T_B) instead of (p-1)(T_F + T_B - T_W), T_B being the input half. */
static int64_t weight_delay(int64_t stage)
{
    return stage;
}

struct schedule_cursor schedule_walk(const struct schedule_shape *shape, int64_t stage)
{
    return (struct schedule_cursor){.shape = *shape, .stage = stage};
}

static enum schedule_work next_work(const struct schedule_cursor *c)
{
    int64_t pairs = pair_count(&c->shape);
    bool split = splits_backward(&c->shape);
    if (split && c->backwards - c->weights > weight_delay(c->stage))
        return SCHEDULE_BACKWARD_WEIGHT;
    if (c->forwards < pairs && c->forwards - c->backwards < most_waiting(&c->shape, c->stage))
        return SCHEDULE_FORWARD;
    if (c->backwards < pairs)
        return split ? SCHEDULE_BACKWARD_INPUT : SCHEDULE_BACKWARD;
    return SCHEDULE_BACKWARD_WEIGHT;
}

bool schedule_next(struct schedule_cursor *c, struct schedule_item *out)
{
    int64_t pairs = pair_count(&c->shape), pp = c->shape.pp, chunks = c->shape.virtual_stages;
    if ((splits_backward(&c->shape) ? c->weights : c->backwards) == pairs)
        return false;
    enum schedule_work work = next_work(c);
    int64_t *done = work == SCHEDULE_FORWARD           ? &c->forwards
                    : work == SCHEDULE_BACKWARD_WEIGHT ? &c->weights
                                                       : &c->backwards;
    int64_t nth = (*done)++;
    *out = (struct schedule_item){.work = work, .micro_batch = (int)nth};
    if (chunks > 1) {
        /* pp micro-batches pass through a chunk, then through the next one. */
        int64_t group = nth / (pp * chunks), chunk = nth / pp % chunks;
        out->chunk = (int)(work == SCHEDULE_FORWARD ? chunk : chunks - 1 - chunk);
        out->micro_batch = (int)(group * pp + nth % pp);
    }
    return true;
}

int schedule_create(const struct schedule_shape *shape, int64_t stage, struct schedule **out,
                    struct error *err)
{
    if (schedule_shape_check(shape, err))
        return -1;
    if (stage < 0 || stage >= shape->pp)
        return error_set(err, "stage %lld is not in a pipeline of --pp %lld; use 0 to %lld", (long long)stage,
                         (long long)shape->pp, (long long)shape->pp - 1);
    int64_t count = pair_count(shape) * (splits_backward(shape) ? 3 : 2);
    struct schedule *schedule = host_alloc(sizeof *schedule + (size_t)count * sizeof(struct schedule_item));
    schedule->shape = *shape;
    schedule->stage = (int)stage;
    struct schedule_cursor walk = schedule_walk(shape, stage);
    while (schedule_next(&walk, &schedule->items[schedule->count]))
        schedule->count++;
    *out = schedule;
    return 0;
}

void schedule_free(struct schedule *schedule)
{
    free(schedule);
}

/* The message that leads to global chunk `to`, seen from a stage whose peer holds global chunk `there`. */
static struct schedule_message message(const struct schedule_shape *shape, enum schedule_direction direction,
                                       int64_t to, int64_t there, int micro_batch)
{
    int64_t chunks = shape->pp * shape->virtual_stages;
    if (shape->pp == 1 || there < 0 || there >= chunks)
        return (struct schedule_message){.peer = -1};
    return (struct schedule_message){
        .peer = (int)(there % shape->pp),
        .direction = direction,
        .chunk = (int)to,
        .micro_batch = micro_batch,
        .tag = (micro_batch * chunks + to) * SCHEDULE_DIRECTIONS + direction,
    };
}

struct schedule_messages schedule_messages(const struct schedule_shape *shape, int64_t stage,
                                           const struct schedule_item *item)
{
    int64_t here = item->chunk * shape->pp + stage;
    if (item->work == SCHEDULE_BACKWARD_WEIGHT)
        return (struct schedule_messages){{.peer = -1}, {.peer = -1}};
    enum schedule_direction direction =
        item->work == SCHEDULE_FORWARD ? SCHEDULE_ACTIVATION : SCHEDULE_GRADIENT;
    int64_t ahead = direction == SCHEDULE_ACTIVATION ? 1 : -1;
    return (struct schedule_messages){
        .receive = message(shape, direction, here, here - ahead, item->micro_batch),
        .send = message(shape, direction, here + ahead, here + ahead, item->micro_batch),
    };
}
