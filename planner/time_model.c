#include "planner/time_model.h"

#include "base/arena.h"

#include <stdlib.h>

struct block_time time_model_block(const struct program *program, const struct block *block,
                                   const struct machine_speed *speed)
{
    struct block_time time = {0};
    for (int i = 0; i < block->op_count; i++) {
        const struct op *op = &block->ops[i];
        struct step_op step_op = {.kind = op->kind, .block = block, .op = op, .bucket = -1};
        struct work work = work_of(program, &step_op);
        double seconds = machine_speed_seconds(speed, op->kind, &work, program->layout.dp);
        if (i < block->forward_count)
            time.forward += seconds;
        else if (op->flags & OP_RECOMPUTE)
            time.recompute += seconds;
        else
            time.backward += seconds;
    }
    return time;
}

static double tail_seconds(const struct program *program, const struct machine_speed *speed,
                           enum op_kind kind, int64_t instance, int64_t bucket)
{
    struct step_op op = {.kind = kind, .instance = instance, .micro_batch = -1, .bucket = bucket};
    struct work work = work_of(program, &op);
    return machine_speed_seconds(speed, kind, &work, program->layout.dp);
}

void time_model_open(const struct program *program, const struct machine_speed *speed,
                     struct step_frame *frame)
{
    *frame = (struct step_frame){.program = program, .overlap = speed->overlap};
    frame->bucket_s = host_alloc((size_t)program->bucket_count * sizeof *frame->bucket_s);
    for (int i = 0; i < program->bucket_count; i++)
        frame->bucket_s[i] = tail_seconds(program, speed, OP_ALL_REDUCE, program->buckets[i].first, i);
    if (program->bucket_count)
        frame->loss_reduce_s = tail_seconds(program, speed, OP_REDUCE_LOSS, -1, -1);
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

/* The last micro-batch's backward, from the head down: when has instance `first` finished? Callers ask for lower and
 * lower instances. */
struct backward_clock {
    const struct timed_run *runs;
    int run;             /* the one in progress */
    int64_t below;       /* instances below that run */
    double before_run_s; /* of the runs above it */
};

static double finished_at(struct backward_clock *clock, int64_t first)
{
    const struct timed_run *run = &clock->runs[clock->run];
    while (first < clock->below) {
        clock->before_run_s += (double)run->count * (run->time.backward + run->time.recompute);
        run = &clock->runs[--clock->run];
        clock->below -= run->count;
    }
    int64_t done = clock->below + run->count - first;
    return clock->before_run_s + (double)done * (run->time.backward + run->time.recompute);
}

/* Buckets are reduced one after another, each when it is full. What ends after backward shows; what is hidden shows
 * too, as slower computation, where the two share cores. */
static double exposed_seconds(const struct step_frame *frame, const struct timed_run *runs, int run_count)
{
    const struct program *program = frame->program;
    if (!program->bucket_count)
        return 0;
    struct backward_clock clock = {.runs = runs, .run = run_count - 1};
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
    return exposed + (1 - frame->overlap) * (busy - exposed);
}

struct step_time time_model_runs(const struct step_frame *frame, const struct timed_run *runs, int run_count)
{
    struct step_time step = {.optimizer = frame->optimizer_s};
    for (int i = 0; i < run_count; i++) {
        double times = (double)runs[i].count * (double)frame->program->micro_batches;
        step.forward += times * runs[i].time.forward;
        step.backward += times * runs[i].time.backward;
        step.recompute += times * runs[i].time.recompute;
    }
    step.exposed_communication = exposed_seconds(frame, runs, run_count);
    step.total = step.forward + step.backward + step.recompute + step.exposed_communication + step.optimizer;
    return step;
}

struct step_time time_model_step(const struct program *program, const struct machine_speed *speed)
{
    struct step_frame frame;
    time_model_open(program, speed, &frame);
    struct timed_run *runs = host_alloc((size_t)program->run_count * sizeof *runs);
    for (int i = 0; i < program->run_count; i++) {
        const struct run *run = &program->runs[i];
        runs[i] =
            (struct timed_run){run->count, time_model_block(program, &program->blocks[run->block], speed)};
    }
    struct step_time step = time_model_runs(&frame, runs, program->run_count);
    free(runs);
    time_model_close(&frame);
    return step;
}
