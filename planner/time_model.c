#include "planner/time_model.h"

#include "base/arena.h"

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

struct block_time time_model_block(const struct program *program, const struct block *block,
                                   const struct machine_speed *speed)
{
    struct block_time time = {0};
    int64_t ranks = layout_ranks(&program->layout);
    for (int i = 0; i < block->op_count; i++) {
        struct work work = block_work(program, block, &block->ops[i]);
        *sum_of(&time, block, i) += machine_speed_seconds(speed, block->ops[i].kind, &work, ranks);
    }
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
    return machine_speed_seconds(speed, kind, &work, layout_ranks(&program->layout));
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
    frame->tail_reduce_s += group_seconds(program, speed, OP_REDUCE_NORMS);
    frame->tail_reduce_s += group_seconds(program, speed, OP_REDUCE_SQUARES);
    if (program->tied_copy)
        frame->tail_reduce_s += group_seconds(program, speed, OP_REDUCE_TIED);
}

void time_model_open(const struct program *program, const struct machine_speed *speed,
                     struct step_frame *frame)
{
    *frame = (struct step_frame){.program = program, .overlap = speed->overlap};
    cost_reductions(program, speed, frame);
    for (int i = 0; i < program->run_count; i++) {
        const struct run *run = &program->runs[i];
        double seconds = tail_seconds(program, speed, OP_SQUARE_SUM, run->first, -1) +
                         tail_seconds(program, speed, OP_ADAMW, run->first, -1);
        frame->optimizer_s += (double)run->count * seconds;
    }
}

void time_model_close(struct step_frame *frame)
{
    free(frame->bucket_s);
    frame->bucket_s = NULL;
}

/* The last micro-batch's backward, from the head down, or its weight half where that is apart: when has instance `first`
 * finished? Callers ask for lower and lower instances. Chunks of a stage are taken to follow one another. */
struct backward_clock {
    const struct timed_run *runs;
    bool halves;
    int run;             /* the one in progress */
    int64_t below;       /* instances below that run */
    double before_run_s; /* of the runs above it */
};

/* Of one instance of the run in progress. */
static double instance_seconds(const struct backward_clock *clock)
{
    const struct block_time *time = &clock->runs[clock->run].time;
    return clock->halves ? time->weight : backward_pass(time);
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

/* What reductions add after backward. Buckets are reduced one after another, each when it is full. What ends after
 * backward shows; what is hidden shows too, as slower computation, where the two share cores. */
static double exposed_seconds(const struct step_frame *frame, const struct timed_run *runs, int run_count)
{
    const struct program *program = frame->program;
    struct backward_clock clock = {
        .runs = runs, .run = run_count - 1, .halves = program->layout.schedule == SCHEDULE_ZB_H1};
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
    return exposed + (1 - frame->overlap) * (busy - exposed) + frame->tail_reduce_s;
}

/* *tail_s: how much of it comes after the last backward. */
static struct step_time sum_up(const struct step_frame *frame, const struct timed_run *runs, int run_count,
                               double *tail_s)
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
    double exposed = exposed_seconds(frame, runs, run_count);
    step.exposed_communication += exposed;
    step.total = step.forward + step.backward + step.recompute + step.exposed_communication + step.optimizer;
    *tail_s = exposed + step.optimizer;
    return step;
}

struct step_time time_model_runs(const struct step_frame *frame, const struct timed_run *runs, int run_count)
{
    double tail_s;
    return sum_up(frame, runs, run_count, &tail_s);
}

/* Of all runs of a program; to be freed. */
static struct timed_run *time_runs(const struct program *program, const struct machine_speed *speed)
{
    struct timed_run *runs = host_alloc((size_t)program->run_count * sizeof *runs);
    for (int i = 0; i < program->run_count; i++) {
        const struct run *run = &program->runs[i];
        runs[i] =
            (struct timed_run){run->count, time_model_block(program, &program->blocks[run->block], speed)};
    }
    return runs;
}

static struct step_time time_stage(const struct program *program, const struct machine_speed *speed,
                                   const struct timed_run *runs, double *tail_s)
{
    struct step_frame frame;
    time_model_open(program, speed, &frame);
    struct step_time step = sum_up(&frame, runs, program->run_count, tail_s);
    time_model_close(&frame);
    return step;
}

struct step_time time_model_step(const struct program *program, const struct machine_speed *speed)
{
    double tail_s;
    struct timed_run *runs = time_runs(program, speed);
    struct step_time step = time_stage(program, speed, runs, &tail_s);
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

/* All messages are as large as a block's x, which the first block of all sends on. */
static double message_seconds(const struct program *program, const struct machine_speed *speed)
{
    const struct chunk *chunk = &program->chunks[0];
    const struct block *sender = program_block(program, chunk->first + chunk->count - 1);
    struct work work = block_work(program, sender, &sender->ops[0]);
    return machine_speed_message_seconds(speed, &work, layout_ranks(&program->layout));
}

static int replay(const struct layout *layout, const struct schedule_times *times, double *seconds,
                  struct error *err)
{
    struct schedule_shape shape = layout_schedule(layout);
    struct schedule **schedules = host_alloc((size_t)shape.pp * sizeof *schedules);
    int status = 0;
    for (int64_t i = 0; i < shape.pp && !status; i++)
        status = schedule_create(&shape, i, &schedules[i], err);
    if (!status)
        status = schedule_replay((const struct schedule *const *)schedules, times, seconds, NULL, err);
    for (int64_t i = 0; i < shape.pp; i++)
        schedule_free(schedules[i]);
    free(schedules);
    return status;
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
    double tail_s = 0, replayed_s;
    for (int i = 0; i < pipeline->count; i++) {
        double own_tail_s;
        const struct program *program = pipeline->stages[i];
        struct timed_run *runs = time_runs(program, speed);
        stages[i] = time_stage(program, speed, runs, &own_tail_s);
        add_passes(program, runs, passes);
        free(runs);
        tail_s = own_tail_s > tail_s ? own_tail_s : tail_s;
    }
    struct schedule_times times = {passes->forward_s, passes->backward_input_s, passes->backward_weight_s,
                                   message_seconds(pipeline->stages[0], speed)};
    if (replay(&pipeline->stages[0]->layout, &times, &replayed_s, err))
        return -1;
    *out = stages[spread_bubbles(stages, pipeline->count, replayed_s + tail_s)];
    return 0;
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
