#include "planner/step_spans.h"

#include "planner/time_model.h"
#include "planner/timeline.h"

#include <stdlib.h>

struct stage {
    const struct program *program;
    struct block_time *chunks; /* the sum of each chunk's blocks */
    struct stage_tail tail;
    double optimizer_s;
};

struct story {
    struct schedule_shape shape;
    struct timeline *timeline;
    struct stage *stages;
    double *ends_s, met_s, total_s;
    double stretch; /* 1, or where stages wait for cores how much later all begins than by the schedule */
};

/* ------------------------------------------------------------------------------------------------------- how long */

static void add_run(struct block_time *sum, const struct timed_run *run)
{
    double count = (double)run->count;
    sum->forward += count * run->time.forward;
    sum->backward += count * run->time.backward;
    sum->weight += count * run->time.weight;
    sum->recompute += count * run->time.recompute;
    sum->forward_exchange += count * run->time.forward_exchange;
    sum->backward_exchange += count * run->time.backward_exchange;
}

static void time_stage(const struct program *program, const struct machine_speed *speed, struct arena *arena,
                       struct stage *stage)
{
    struct step_frame frame;
    struct timed_run *runs = time_model_list(program, speed);
    *stage = (struct stage){
        .program = program,
        .chunks = arena_array(arena, (size_t)program->chunk_count, sizeof *stage->chunks),
    };
    for (int c = 0, run = 0; c < program->chunk_count; c++) {
        const struct chunk *chunk = &program->chunks[c];
        for (; run < program->run_count && program->runs[run].first < chunk->first + chunk->count; run++)
            add_run(&stage->chunks[c], &runs[run]);
    }
    time_model_open(program, speed, &frame);
    stage->tail = time_model_tail(&frame, runs, program->run_count);
    stage->optimizer_s = frame.optimizer_s;
    time_model_close(&frame);
    free(runs);
}

static double backward_pass(const struct block_time *time)
{
    return time->recompute + time->backward + time->backward_exchange;
}

/* Of one stage nothing is sent. */
static double message_seconds(const struct pipeline *pipeline, const struct machine_speed *speed)
{
    const struct program *first = pipeline->stages[0];
    if (pipeline->count == 1)
        return 0;
    return time_model_message(&first->layout, program_buffer(first, BUFFER_SEND, 0).bytes, speed);
}

/* When the last stage's gradients would be summed if none waited for cores. */
static double last_summed(const struct story *s)
{
    double last_s = 0;
    for (int64_t i = 0; i < s->shape.pp; i++) {
        double summed_s = s->ends_s[i] + s->stages[i].tail.before_s;
        last_s = summed_s > last_s ? summed_s : last_s;
    }
    return last_s;
}

static void run_timeline(struct story *s, double message_s, double at_once, struct arena *arena)
{
    size_t chunks = (size_t)(s->shape.pp * s->shape.virtual_stages);
    double *forward_s = arena_array(arena, 3 * chunks, sizeof *forward_s);
    double *input_s = forward_s + chunks, *weight_s = forward_s + 2 * chunks;
    struct stage_tail *tails = arena_array(arena, (size_t)s->shape.pp, sizeof *tails);
    for (int64_t i = 0; i < s->shape.pp; i++) {
        const struct program *program = s->stages[i].program;
        for (int c = 0; c < program->chunk_count; c++) {
            const struct block_time *time = &s->stages[i].chunks[c];
            int64_t global = program->chunks[c].global;
            forward_s[global] = time->forward + time->forward_exchange;
            input_s[global] = backward_pass(time);
            weight_s[global] = time->weight;
        }
        tails[i] = s->stages[i].tail;
    }
    struct schedule_times times = {forward_s, input_s, weight_s, message_s};
    struct time_question question = {&s->stages[0].program->layout, &times, at_once};
    s->ends_s = arena_array(arena, (size_t)s->shape.pp, sizeof *s->ends_s);
    timeline_run(s->timeline, &times, s->ends_s);
    s->total_s = time_model_together(&question, s->ends_s, tails, &s->met_s);
    s->stretch = s->met_s / last_summed(s);
}

/* ----------------------------------------------------------------------------------------------------------- when */

/* A pass has up to three spans, and behind the passes come three more. */
enum { SPANS_OF_ITEM = 3, SPANS_OF_TAIL = 3 };

/* Goes on where the last span ended, or at `from`; what takes no time is left out. */
static double add_span(struct step_lane *lane, double from_s, double seconds, enum step_work work,
                       int64_t micro_batch)
{
    if (seconds > 0)
        lane->spans[lane->count++] = (struct step_span){from_s, from_s + seconds, work, micro_batch};
    return from_s + seconds;
}

static void add_item(struct step_lane *lane, const struct block_time *time, const struct schedule_item *item,
                     double from_s)
{
    int64_t micro_batch = item->micro_batch;
    switch (item->work) {
    case SCHEDULE_FORWARD:
        from_s = add_span(lane, from_s, time->forward, STEP_FORWARD, micro_batch);
        add_span(lane, from_s, time->forward_exchange, STEP_EXCHANGE, micro_batch);
        return;
    case SCHEDULE_BACKWARD_WEIGHT:
        add_span(lane, from_s, time->weight, STEP_WEIGHTS, micro_batch);
        return;
    case SCHEDULE_BACKWARD:
    case SCHEDULE_BACKWARD_INPUT:
        from_s = add_span(lane, from_s, time->recompute, STEP_RECOMPUTE, micro_batch);
        from_s = add_span(lane, from_s, time->backward, STEP_BACKWARD, micro_batch);
        add_span(lane, from_s, time->backward_exchange, STEP_EXCHANGE, micro_batch);
    }
}

/* Stages meet once all their gradients are summed, and go on together. */
static void add_tail(const struct story *s, int64_t stage, struct step_lane *lane)
{
    const struct stage *own = &s->stages[stage];
    add_span(lane, s->ends_s[stage] * s->stretch, own->tail.before_s, STEP_EXCHANGE, -1);
    double from_s = add_span(lane, s->met_s, own->tail.after_s - own->optimizer_s, STEP_EXCHANGE, -1);
    add_span(lane, from_s, own->optimizer_s, STEP_OPTIMIZER, -1);
}

static void tell_stage(const struct story *s, int64_t stage, struct arena *arena, struct step_lane *lane)
{
    struct schedule_cursor walk = schedule_walk(&s->shape, stage);
    struct schedule_item item;
    int64_t items = timeline_items(s->timeline) / s->shape.pp;
    lane->spans = arena_array(arena, (size_t)(SPANS_OF_ITEM * items + SPANS_OF_TAIL), sizeof *lane->spans);
    lane->count = 0;
    for (int64_t k = 0; schedule_next(&walk, &item); k++)
        add_item(lane, &s->stages[stage].chunks[item.chunk], &item,
                 timeline_start(s->timeline, stage, k) * s->stretch);
    add_tail(s, stage, lane);
}

int step_spans_find(const struct pipeline *pipeline, const struct machine_speed *speed, struct arena *arena,
                    struct step_lane *lanes, double *total_s, struct error *err)
{
    struct story s = {.shape = layout_schedule(&pipeline->stages[0]->layout)};
    if (timeline_create(&s.shape, &s.timeline, err))
        return -1;
    s.stages = arena_array(arena, (size_t)pipeline->count, sizeof *s.stages);
    for (int i = 0; i < pipeline->count; i++)
        time_stage(pipeline->stages[i], machine_speed_of_stage(speed, i), arena, &s.stages[i]);
    double at_once =
        machine_speed_stages_at_once(machine_speed_of_stage(speed, 0), &pipeline->stages[0]->layout);
    run_timeline(&s, message_seconds(pipeline, speed), at_once, arena);
    for (int i = 0; i < pipeline->count; i++)
        tell_stage(&s, i, arena, &lanes[i]);
    *total_s = s.total_s;
    timeline_free(s.timeline);
    return 0;
}
