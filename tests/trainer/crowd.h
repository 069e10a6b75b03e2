/* The memory of every rank of a layout, without a step that runs: what initial weights, checkpoints and public weights are
 * tested on, as values of the whole model's elements. */
#ifndef MEMPLAN_TESTS_TRAINER_CROWD_H
#define MEMPLAN_TESTS_TRAINER_CROWD_H

#include "comm/comm.h"
#include "model/pipeline.h"
#include "tests/trainer/runs.h"
#include "trainer/catalogue.h"
#include "trainer/weights.h"

struct crowd {
    struct pipeline *pipeline;
    struct catalogue catalogue;
    int count; /* ranks */
    struct device *devices[RUNS_RANKS_MAX];
    struct step_memory *memories[RUNS_RANKS_MAX];
    struct state_access ranks[RUNS_RANKS_MAX];
};

/* `model` and `layout` as in runs.h. Memory is poisoned. Ended by crowd_close(). */
void crowd_open(struct crowd *crowd, const char *model, const char *layout);
void crowd_close(struct crowd *crowd);

/* What element `element` of the whole parameter with this number is to be in a state. */
typedef float crowd_value(const struct catalogue *catalogue, int64_t number, enum state state, int64_t element);

/* Fills what is kept (the exact state and both moments) of all ranks. */
void crowd_fill(const struct crowd *crowd, crowd_value *value);
/* The same states and the weights of all ranks hold these bits, element by element, and zeros in all padding, that of the
 * gradients included. */
void crowd_assert(const struct crowd *crowd, crowd_value *value);
/* Each element of the model is held by as many ranks as the layout says: by one of each `dp`, or all of them when it is not
 * sharded; by one of each `tp`, or all of them when it is not shared; by both ends when it is tied. */
void crowd_assert_complete(const struct crowd *crowd);

/* Runs `work` for every rank in a thread of its own, with a comm of all ranks, and returns when all have returned. */
void crowd_each(const struct crowd *crowd, void (*work)(const struct state_access *rank, struct comm *comm, void *context),
                void *context);

#endif
