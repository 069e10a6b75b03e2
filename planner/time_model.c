#include "planner/time_model.h"

#include "base/arena.h"
#include "planner/timeline.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Which of a block's sums operation `index` belongs to. */
static double *sum_of(struct block_time *time, const struct block *block, int index)
{
    const struct op *op = &block->ops[index];
    bool exchange = work_communicates(op->kind);
    if (op->flags & OP_RECOMPUTE)
        return &time->recompute;
    if (index < block->forward_count)
        return exchange ? &time->forward_exchange : &time->forward;
    if (index < block->input_count)
        return exchange ? &time->backward_exchange : &time->backward;
    return &time->weight;
}

static struct work block_work(const struct program *program, const struct block *block, const struct op *op)
{
    struct step_op step_op = {.kind = op->kind, .block = block, .op = op, .bucket = -1};
    return work_of(program, &step_op);
}

double time_model_op(const struct program *program, const struct block *block, int op,
                     const struct machine_speed *speed)
{
    struct work work = block_work(program, block, &block->ops[op]);
    return machine_speed_layout_seconds(speed, block->ops[op].kind, &work, &program->layout);
}

struct block_time time_model_block(const struct program *program, const struct block *block,
                                   const struct machine_speed *speed)
{
    struct block_time time = {0};
    for (int i = 0; i < block->op_count; i++)
        *sum_of(&time, block, i) += time_model_op(program, block, i, speed);
    return time;
}

/* One pass through a block, exchanges included. */
static double forward_pass(const struct block_time *time)
{
    return time->forward + time->forward_exchange;
}

static double backward_pass(const struct block_time *time)
{
    return time->backward + time->recompute + time->backward_exchange;
}

static double tail_seconds(const struct program *program, const struct machine_speed *speed,
                           enum op_kind kind, int64_t instance, int64_t bucket)
{
    struct step_op op = {.kind = kind, .instance = instance, .micro_batch = -1, .bucket = bucket};
    struct work work = work_of(program, &op);
    return machine_speed_layout_seconds(speed, kind, &work, &program->layout);
}

/* The same of what all ranks of a group do together once; nothing where this layout has no such group. */
static double group_seconds(const struct program *program, const struct machine_speed *speed,
                            enum op_kind kind)
{
    return work_group_of(&program->layout, kind).ranks > 1 ? tail_seconds(program, speed, kind, -1, -1) : 0;
}

static void cost_reductions(const struct program *program, const struct machine_speed *speed,
                            struct step_frame *frame)
{
    bool shards = program->layout.zero;
    frame->bucket_s = host_alloc((size_t)program->bucket_count * sizeof *frame->bucket_s);
    for (int i = 0; i < program->bucket_count; i++) {
        int64_t first = program->buckets[i].first;
        frame->bucket_s[i] =
            tail_seconds(program, speed, shards ? OP_SCATTER_GRADIENTS : OP_ALL_REDUCE, first, i);
        if (shards)
            frame->tail_reduce_s += tail_seconds(program, speed, OP_GATHER_WEIGHTS, first, i);
    }
    frame->loss_reduce_s = group_seconds(program, speed, OP_REDUCE_LOSS);
    if (program_reduces_norms(program))
        frame->tail_reduce_s += group_seconds(program, speed, OP_REDUCE_NORMS);
    frame->tail_reduce_s += group_seconds(program, speed, OP_REDUCE_SQUARES);
    if (program->tied_copy)
        frame->tail_reduce_s += group_seconds(program, speed, OP_REDUCE_TIED);
}

void time_model_open(const struct program *program, const struct machine_speed *speed,
                     struct step_frame *frame)
{
    double *seconds =
        host_alloc((size_t)program->block_count * sizeof *seconds); /* of each block; 0: not known yet */
    *frame = (struct step_frame){.program = program, .overlap = speed->overlap};
    cost_reductions(program, speed, frame);
    for (int i = 0; i < program->run_count; i++) {
        const struct run *run = &program->runs[i];
        if (seconds[run->block] <= 0)
            seconds[run->block] = tail_seconds(program, speed, OP_SQUARE_SUM, run->first, -1) +
                                  tail_seconds(program, speed, OP_ADAMW, run->first, -1);
        frame->optimizer_s += (double)run->count * seconds[run->block];
    }
    free(seconds);
}

void time_model_close(struct step_frame *frame)
{
    free(frame->bucket_s);
    frame->bucket_s = NULL;
}

/* The last micro-batch's backward, from the head down, or its weight half where that is apart: when has instance `first`
 * finished? Callers ask for lower and lower instances. Chunks of a stage are taken to follow one another, and what layers
 * recompute to be spread evenly over them: then a step depends on the sets of its layers through their sums only. */
struct backward_clock {
    const struct timed_run *runs;
    bool halves;
    double recompute_s;  /* of a layer, on average */
    int run;             /* the one in progress */
    int64_t below;       /* instances below that run */
    double before_run_s; /* of the runs above it */
};

/* Of one instance of the run in progress. */
static double instance_seconds(const struct backward_clock *clock)
{
    const struct timed_run *run = &clock->runs[clock->run];
    if (clock->halves)
        return run->time.weight;
    return run->layers ? backward_pass(&run->time) - run->time.recompute + clock->recompute_s
                       : backward_pass(&run->time);
}

static double mean_recompute(const struct timed_run *runs, int run_count)
{
    double seconds = 0, layers = 0;
    for (int i = 0; i < run_count; i++)
        if (runs[i].layers) {
            seconds += (double)runs[i].count * runs[i].time.recompute;
            layers += (double)runs[i].count;
        }
    return layers > 0 ? seconds / layers : 0;
}

static double finished_at(struct backward_clock *clock, int64_t first)
{
    while (first < clock->below) {
        clock->before_run_s += (double)clock->runs[clock->run].count * instance_seconds(clock);
        clock->below -= clock->runs[--clock->run].count;
    }
    int64_t done = clock->below + clock->runs[clock->run].count - first;
    return clock->before_run_s + (double)done * instance_seconds(clock);
}

struct stage_tail time_model_tail(const struct step_frame *frame, const struct timed_run *runs, int run_count)
{
    const struct program *program = frame->program;
    struct backward_clock clock = {.runs = runs,
                                   .run = run_count - 1,
                                   .halves = program->layout.schedule == SCHEDULE_ZB_H1,
                                   .recompute_s = mean_recompute(runs, run_count)};
    clock.below = program->instances - runs[run_count - 1].count;
    double link_free_at = 0, busy = frame->loss_reduce_s;
    for (int i = 0; i < program->bucket_count; i++) {
        double full_at = finished_at(&clock, program->buckets[i].first);
        link_free_at = (link_free_at > full_at ? link_free_at : full_at) + frame->bucket_s[i];
        busy += frame->bucket_s[i];
    }
    double backward_end = finished_at(&clock, 0);
    double late = link_free_at > backward_end ? link_free_at - backward_end : 0;
    double exposed = late + frame->loss_reduce_s;
    return (struct stage_tail){exposed + (1 - frame->overlap) * (busy - exposed),
                               frame->tail_reduce_s + frame->optimizer_s};
}

static struct step_time sum_up(const struct step_frame *frame, const struct timed_run *runs, int run_count,
                               struct stage_tail *tail)
{
    struct step_time step = {.optimizer = frame->optimizer_s};
    for (int i = 0; i < run_count; i++) {
        const struct block_time *time = &runs[i].time;
        double times = (double)runs[i].count * (double)frame->program->micro_batches;
        step.forward += times * time->forward;
        step.backward += times * (time->backward + time->weight);
        step.recompute += times * time->recompute;
        step.exposed_communication += times * (time->forward_exchange + time->backward_exchange);
    }
    *tail = time_model_tail(frame, runs, run_count);
    step.exposed_communication += tail->before_s + frame->tail_reduce_s;
    step.total = step.forward + step.backward + step.recompute + step.exposed_communication + step.optimizer;
    return step;
}

struct step_time time_model_runs(const struct step_frame *frame, const struct timed_run *runs, int run_count)
{
    struct stage_tail tail;
    return sum_up(frame, runs, run_count, &tail);
}

struct timed_run *time_model_list(const struct program *program, const struct machine_speed *speed)
{
    struct timed_run *runs = host_alloc((size_t)program->run_count * sizeof *runs);
    for (int i = 0; i < program->run_count; i++) {
        const struct run *run = &program->runs[i];
        const struct block *block = &program->blocks[run->block];
        runs[i] = (struct timed_run){run->count, time_model_block(program, block, speed),
                                     block->part == PART_LAYER};
    }
    return runs;
}

static struct step_time time_stage(const struct program *program, const struct machine_speed *speed,
                                   const struct timed_run *runs, struct stage_tail *tail)
{
    struct step_frame frame;
    time_model_open(program, speed, &frame);
    struct step_time step = sum_up(&frame, runs, program->run_count, tail);
    time_model_close(&frame);
    return step;
}

struct step_time time_model_step(const struct program *program, const struct machine_speed *speed)
{
    struct stage_tail tail;
    speed = machine_speed_of_stage(speed, program->stage);
    struct timed_run *runs = time_model_list(program, speed);
    struct step_time step = time_stage(program, speed, runs, &tail);
    free(runs);
    return step;
}

/* --------------------------------------------------------------------------------------------------------- pipeline */

/* Seconds of each global chunk's passes. */
struct passes {
    double *forward_s, *backward_input_s, *backward_weight_s;
};

static void add_passes(const struct program *program, const struct timed_run *runs, struct passes *passes)
{
    int run = 0;
    for (int c = 0; c < program->chunk_count; c++) {
        const struct chunk *chunk = &program->chunks[c];
        for (; run < program->run_count && program->runs[run].first < chunk->first + chunk->count; run++) {
            const struct block_time *time = &runs[run].time;
            double count = (double)runs[run].count;
            passes->forward_s[chunk->global] += count * forward_pass(time);
            passes->backward_input_s[chunk->global] += count * backward_pass(time);
            passes->backward_weight_s[chunk->global] += count * time->weight;
        }
    }
}

double time_model_message(const struct layout *layout, int64_t bytes, const struct machine_speed *speed)
{
    struct work work = {.bytes_sent = (double)bytes, .group = work_group_of(layout, OP_SEND)};
    return machine_speed_message_seconds(speed, &work, layout_ranks(layout));
}

/* Until as many stages have work as have cores, and, *end_s, once they no longer have: for how long how many stages' cores stand
 * idle. Weight halves, which nobody waits for, fill the end. */
static double idle_seconds(const struct time_question *q, double *end_s)
{
    double fill_s = 0;
    bool fills = q->layout->schedule == SCHEDULE_ZB_H1;
    *end_s = 0;
    for (int64_t k = 1; k < q->layout->pp && (double)k < q->at_once; k++) {
        const struct schedule_times *times = q->times;
        double idle = q->at_once - (double)k;
        fill_s += idle * (times->forward_s[k - 1] + times->message_s);
        *end_s += fills ? 0 : idle * (times->backward_input_s[k - 1] + times->backward_weight_s[k - 1]);
    }
    return fill_s;
}

/* The cores' clock: when all work is done that comes before the stages meet. Sums of gradients may fill the end. */
static double shared_seconds(const struct time_question *q, const struct stage_tail *tails)
{
    int64_t chunks = layout_chunks(q->layout);
    double passes_s = 0, sums_s = 0, end_s, fill_s = idle_seconds(q, &end_s);
    for (int64_t g = 0; g < chunks; g++)
        passes_s += q->times->forward_s[g] + q->times->backward_input_s[g] + q->times->backward_weight_s[g];
    for (int64_t i = 1; i < q->layout->pp; i++)
        sums_s += tails[i].before_s;
    double work_s = (double)layout_micro_batches(q->layout) * passes_s + tails[0].before_s;
    return (work_s + fill_s + fmax(sums_s, end_s)) / q->at_once;
}

double time_model_together(const struct time_question *q, const double *ends_s,
                           const struct stage_tail *tails, double *met_out)
{
    double met_s = 0, after_s = 0, all_s = 0;
    for (int64_t i = 0; i < q->layout->pp; i++) {
        met_s = fmax(met_s, ends_s[i] + tails[i].before_s);
        after_s = fmax(after_s, tails[i].after_s);
        all_s += tails[i].after_s;
    }
    if (q->at_once < (double)q->layout->pp) {
        met_s = fmax(met_s, shared_seconds(q, tails));
        after_s = fmax(after_s, all_s / q->at_once);
    }
    if (met_out)
        *met_out = met_s;
    return met_s + after_s;
}

/* Of a whole step. */
static int replay(const struct time_question *q, const struct stage_tail *tails, double *seconds,
                  struct error *err)
{
    struct schedule_shape shape = layout_schedule(q->layout);
    struct timeline *timeline;
    if (timeline_create(&shape, &timeline, err))
        return -1;
    double *ends_s = host_alloc((size_t)shape.pp * sizeof *ends_s);
    timeline_run(timeline, q->times, ends_s);
    *seconds = time_model_together(q, ends_s, tails, NULL);
    free(ends_s);
    timeline_free(timeline);
    return 0;
}

/* Stages end together: they meet in the gradient norm, and the next step begins for all. What a stage does not need of the
 * time until then is its bubble. Returns which has least of it. */
static int spread_bubbles(struct step_time *stages, int count, double total_s)
{
    int slowest = 0;
    for (int i = 0; i < count; i++) {
        stages[i].bubble = total_s - stages[i].total;
        stages[i].total = total_s;
        if (stages[i].bubble < stages[slowest].bubble)
            slowest = i;
    }
    return slowest;
}

static int time_stages(const struct pipeline *pipeline, const struct machine_speed *speed,
                       struct passes *passes, struct step_time *stages, struct step_time *out,
                       struct error *err)
{
    double total_s;
    struct stage_tail *tails = host_alloc((size_t)pipeline->count * sizeof *tails);
    for (int i = 0; i < pipeline->count; i++) {
        const struct program *program = pipeline->stages[i];
        const struct machine_speed *own = machine_speed_of_stage(speed, i);
        struct timed_run *runs = time_model_list(program, own);
        stages[i] = time_stage(program, own, runs, &tails[i]);
        add_passes(program, runs, passes);
        free(runs);
    }
    const struct program *first = pipeline->stages[0];
    /* All messages are as large as a block's x. */
    int64_t message_bytes = program_buffer(first, BUFFER_SEND, 0).bytes;
    struct schedule_times times = {passes->forward_s, passes->backward_input_s, passes->backward_weight_s,
                                   time_model_message(&first->layout, message_bytes, speed)};
    struct time_question question = {
        &first->layout, &times,
        machine_speed_stages_at_once(machine_speed_of_stage(speed, 0), &first->layout)};
    int status = replay(&question, tails, &total_s, err);
    if (!status)
        *out = stages[spread_bubbles(stages, pipeline->count, total_s)];
    free(tails);
    return status;
}

int time_model_pipeline(const struct pipeline *pipeline, const struct machine_speed *speed,
                        struct step_time *stages, struct step_time *out, struct error *err)
{
    if (pipeline->count == 1) {
        *out = time_model_step(pipeline->stages[0], speed);
        if (stages)
            stages[0] = *out;
        return 0;
    }
    size_t chunks = (size_t)layout_chunks(&pipeline->stages[0]->layout);
    double *seconds = host_alloc(3 * chunks * sizeof *seconds);
    struct passes passes = {seconds, seconds + chunks, seconds + 2 * chunks};
    struct step_time *own = host_alloc((size_t)pipeline->count * sizeof *own);
    int status = time_stages(pipeline, speed, &passes, stages ? stages : own, out, err);
    free(own);
    free(seconds);
    return status;
}
