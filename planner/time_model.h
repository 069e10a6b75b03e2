/* Seconds of one training step of one rank. The program's blocks are costed once each and multiplied by how often they
 * occur; only the buckets of gradients are replayed in time, because how much of their all-reduce shows depends on
 * how much backward is left when each is full. docs/time-model.md has the formulas. */
#ifndef MEMPLAN_PLANNER_TIME_MODEL_H
#define MEMPLAN_PLANNER_TIME_MODEL_H

#include "model/program.h"
#include "planner/machine_speed.h"

#include <stdint.h>

/* In seconds. */
struct step_time {
    double forward, backward; /* recomputation not included */
    double recompute;
    double exposed_communication; /* what communication adds to the step */
    double optimizer;
    double total;
};

struct step_time time_model_step(const struct program *program, const struct machine_speed *speed);

/* For searches, which time many arrangements of the same blocks. */

/* Seconds of a block, once. */
struct block_time {
    double forward, backward, recompute;
};
struct block_time time_model_block(const struct program *program, const struct block *block,
                                   const struct machine_speed *speed);

/* Instances one after another that take the same time. */
struct timed_run {
    int64_t count;
    struct block_time time;
};

/* What all arrangements share. */
struct step_frame {
    const struct program *program; /* borrowed; its recomputation does not matter */
    double *bucket_s;              /* by bucket; owned */
    double loss_reduce_s, optimizer_s;
    double overlap; /* machine_speed.h */
};

void time_model_open(const struct program *program, const struct machine_speed *speed,
                     struct step_frame *frame);
void time_model_close(struct step_frame *frame);
/* The runs cover all instances, from the embedding to the head. */
struct step_time time_model_runs(const struct step_frame *frame, const struct timed_run *runs, int run_count);

#endif
