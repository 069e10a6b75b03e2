/* Seconds of one training step. A program's blocks are costed once each and multiplied by how often they occur; only the
 * buckets of gradients are replayed in time, because how much of their reduction shows depends on how much backward is left
 * when each is full, and the schedule of a pipeline, because its stages wait for each other. docs/time-model.md has the
 * formulas. */
#ifndef MEMPLAN_PLANNER_TIME_MODEL_H
#define MEMPLAN_PLANNER_TIME_MODEL_H

#include "model/pipeline.h"
#include "planner/machine_speed.h"

#include <stdbool.h>
#include <stdint.h>

/* In seconds. */
struct step_time {
    double forward, backward; /* recomputation not included */
    double recompute;         /* with what tensor-parallel ranks exchange again for it */
    double
        exposed_communication; /* what communication adds to the step: all that tensor-parallel ranks exchange within
                                   * their layers, copies to and from messages, and what is not hidden of the rest */
    double bubble;             /* of a pipeline: waiting for messages, and for slower stages */
    double optimizer;
    double total; /* the sum of all these */
};

/* Of one rank; of a pipeline's stage, as if it never waited for another. */
struct step_time time_model_step(const struct program *program, const struct machine_speed *speed);

/* Of all stages together: *out has the parts of the stage that waits least. `stages` (NULL: not wanted) receives one for
 * each stage; all have the same total. Of one stage, both are time_model_step(). Fails only when the schedule does. */
int time_model_pipeline(const struct pipeline *pipeline, const struct machine_speed *speed,
                        struct step_time *stages, struct step_time *out, struct error *err);

/* For searches, which time many arrangements of the same blocks. */

/* Seconds of a block, once. Where backward is in two halves, `backward` is that of activations; else it is all. */
struct block_time {
    double forward, backward, weight;
    double recompute;                           /* exchanges made again included */
    double forward_exchange, backward_exchange; /* with other ranks, where computing waits for it */
};
/* Forward and back, without weight halves, which no other stage waits for. */
static inline double time_model_round(const struct block_time *t)
{
    return t->forward + t->forward_exchange + t->backward + t->backward_exchange;
}

struct block_time time_model_block(const struct program *program, const struct block *block,
                                   const struct machine_speed *speed);

/* Of one operation of it. */
double time_model_op(const struct program *program, const struct block *block, int op,
                     const struct machine_speed *speed);

/* Instances one after another that take the same time. */
struct timed_run {
    int64_t count;
    struct block_time time;
    bool layers; /* or the block at an end */
};

/* Those of a whole program, as many as it has runs. To be freed with free(). */
struct timed_run *time_model_list(const struct program *program, const struct machine_speed *speed);

/* What all arrangements share. */
struct step_frame {
    const struct program *program; /* borrowed; its recomputation does not matter */
    double *bucket_s;              /* by bucket; owned */
    double loss_reduce_s;          /* runs beside backward like the buckets, and last of them */
    double tail_reduce_s;          /* whatever ranks do together after backward */
    double optimizer_s;
    double overlap; /* machine_speed.h */
};

void time_model_open(const struct program *program, const struct machine_speed *speed,
                     struct step_frame *frame);
void time_model_close(struct step_frame *frame);
/* The runs cover all instances, from the embedding to the head. */
struct step_time time_model_runs(const struct step_frame *frame, const struct timed_run *runs, int run_count);

/* What a stage does behind its last backward. */
struct stage_tail {
    double
        before_s; /* until its gradients and the loss are summed: then all stages meet, in the norm of the gradient */
    double after_s; /* from then on */
};
struct stage_tail time_model_tail(const struct step_frame *frame, const struct timed_run *runs,
                                  int run_count);
/* A pipeline whose schedule is timed. */
struct time_question {
    const struct layout *layout;
    const struct schedule_times *times;
    double at_once; /* machine_speed_stages_at_once() */
};
/* The step, from when each stage ends its schedule. Where fewer stages can run at once than there are, no sooner than the
 * cores have done the work of all. *met_s (NULL: not wanted): when all have their gradients summed. */
double time_model_together(const struct time_question *question, const double *ends_s, const struct stage_tail *tails,
                           double *met_s);
/* A message of so many bytes from one stage to the next. */
double time_model_message(const struct layout *layout, int64_t bytes, const struct machine_speed *speed);

#endif
