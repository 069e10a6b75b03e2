/* What a layer can save by recomputing, and what that costs: every set of dropped tensors (2^7 for the layers we know), and
 * those of them that no other set beats. Megatron-LM's none, selective and full are three of these sets; the ones between
 * are usually better. */
#ifndef MEMPLAN_PLANNER_FRONTIER_H
#define MEMPLAN_PLANNER_FRONTIER_H

#include "model/program.h"
#include "planner/time_model.h"

#include <stdint.h>

/* Bytes of tensors, as program_find_peak() adds them up. */
struct layer_bytes {
    int64_t saved;   /* kept by the layer from forward to backward */
    int64_t working; /* most alive while the layer itself runs, what it keeps included */
};

/* A layer with some tensors dropped. Layer 0 of an encoder needs no gradient of its input; elsewhere it is like the
 * others. */
struct layer_set {
    uint32_t mask;
    struct layer_bytes bytes, first_bytes;
};

/* All sets, with the bytes of one sequence: a micro-batch of B has B times as many. */
struct layer_sets {
    struct layer_set *sets; /* owned */
    int count;
};

/* `program` says model, sequence and precision. */
void layer_sets_create(const struct program *program, struct layer_sets *out);
void layer_sets_clear(struct layer_sets *sets);

/* A set on the frontier: no other needs as little of all three, bytes kept, bytes at work, and time. */
struct frontier_point {
    struct layer_set set; /* with the bytes of the micro-batch */
    struct block_time time, first_time;
};

/* Ordered by time of recomputation. */
struct frontier {
    const struct program *program; /* borrowed */
    struct frontier_point *points; /* owned */
    int count;
    struct block_time embed, head;
};

/* `program` is any with the micro-batch and the ranks in question; its recomputation does not matter. */
void frontier_create(const struct layer_sets *sets, const struct program *program,
                     const struct machine_speed *speed, struct frontier *out);
void frontier_clear(struct frontier *frontier);

#endif
