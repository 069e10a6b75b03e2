/* What the files of workload_memory.h share: a rank as its steps are replayed, and the labels that tell a tensor's rule.
 *
 * workload_memory.c asks workload_step.c for steps; that goes through passes of layers (workload_layers.c) and ends of the
 * model (workload_ends.c), around which parameters are gathered and gradients reduced (workload_units.c), and at the end of
 * which the optimizer runs (workload_states.c). */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_PARTS_H
#define MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_PARTS_H

#include "planner/frameworks/layer_rules.h"
#include "planner/frameworks/loss_rules.h"
#include "planner/frameworks/replay.h"
#include "planner/frameworks/rank_rules.h"
#include "planner/frameworks/workload_memory.h"

enum {
    UNIT_TENSORS = MATRIX_EXPERTS + 1, /* enum layer_matrix; in the place of MATRIX_NONE: norms and what else is small */
    LAYER_ROWS = LAYER_RULES_MOST,
    ENDS = 16,
};

/* Labels of replay.h, in this order: rules of layers, gradients of what they make, rules of the loss, of its backward, and
 * rules of states by part. */
enum {
    LABEL_LAYER = 0,
    LABEL_LAYER_GRADIENT = LABEL_LAYER + LAYER_RULES_MOST,
    LABEL_LOSS = LABEL_LAYER_GRADIENT + LAYER_RULES_MOST,
    LABEL_LOSS_BACKWARD = LABEL_LOSS + LOSS_RULES_MOST,
    LABEL_RANK = LABEL_LOSS_BACKWARD + LOSS_RULES_MOST,
    LABELS = LABEL_RANK + RANK_RULES * MODEL_PARTS,
};
_Static_assert(LABELS <= REPLAY_LABELS, "more rules than labels");

/* Parameters of a layer, or of an end of the model, as tensors of a replay (-1: there is none). */
struct unit {
    double tensors[UNIT_TENSORS]; /* elements on this rank before any sharding over dp */
    int weights[UNIT_TENSORS], gradients[UNIT_TENSORS], whole[UNIT_TENSORS], casts[UNIT_TENSORS];
    int gathered, reduced, shard; /* flat buffers of collectives; the gradient's shard */
    enum model_part part;
    int64_t first, count; /* of the units that are gathered and reduced with it, itself among them */
};

/* One micro-batch in one chunk: what is kept of it. */
struct pass {
    int *kept; /* [layers of the chunk][LAYER_ROWS] */
    int ends[ENDS];
};

struct rank {
    const struct workload *w;
    struct replay *r;
    int64_t stage, layers, chunks;
    int64_t *first;     /* of the stage's layers, by chunk; one more: all */
    int64_t *starts;    /* of each chunk, the first layer's number in the model */
    struct unit *units; /* layers, then the embedding, then the head */
    struct pass *passes;
    int64_t micro_batches;
    int *states; /* optimizer states and temporaries: whatever is released together */
    int state_count, state_room;

    bool has_states;
    bool syncs; /* gradients are reduced in this backward pass */
    bool last;  /* backward pass of the step */

    /* DeepSpeed: flat buckets, with how much is in the one that is filled; gradients of the partition, and of this pass alone. */
    int buckets[2], partition, partition_of_pass;
    double in_bucket;
    bool made_gradients; /* in this pass */
};

/* Tensors that are released in time, each after so many more are made. */
struct temporaries {
    int tensors[LAYER_ROWS], life[LAYER_ROWS], count;
};

/* Replays a stage; *census (NULL: not wanted) is who holds what when tensor `census_take` was taken. capacity_bytes 0: without
 * end. */
struct stage_replay {
    int64_t stage, capacity_bytes, census_take;
    struct replay_census *census;
};
int workload_stage_replay(const struct workload *w, const struct stage_replay *ask, struct workload_memory *out,
                          struct error *err);
/* llm.c takes everything at start, so that it is a census by itself. */
void workload_llmc_census(const struct workload *w, struct replay_census *census);

/* workload_labels.c */
enum role workload_label_role(int label);
const char *workload_label_source(int label);
void workload_label_name(int label, struct text *out);
void workload_label_formula(const struct workload *w, int label, struct text *out);

/* workload_units.c */
bool workload_has_buffer(const struct workload *w); /* of gradients, from the start */
bool workload_trains(const struct workload *w);     /* all weights, and not adapters */
/* ZeRO-3 keeps a layer's weights after forward where backward asks for them soon. */
bool workload_reused_soon(const struct rank *rank, int64_t u);
double workload_shard_of(const struct rank *rank, int tensor);
double workload_trained(const struct rank *rank, const struct unit *unit, int tensor); /* elements */
int workload_trained_bytes(const struct workload *w); /* of each */
double workload_frozen_bytes(const struct workload *w); /* of each that is not, in layers */
double workload_unit_elements(const struct unit *unit);
int64_t workload_unit_count(const struct rank *rank);
void workload_units_open(struct rank *rank);
int workload_unit_take(struct rank *rank, const struct unit *unit, int tensor, enum rank_rule rule, double bytes,
                       int stream);
int workload_take(struct rank *rank, enum rank_rule rule, double bytes, int stream);
double workload_all_trained(const struct rank *rank); /* elements of all units: whole, and this rank's shard */
double workload_all_sharded(const struct rank *rank);
/* Unit `u` is made whole; `next` is gathered meanwhile, -1: nothing is. */
void workload_gather(struct rank *rank, int64_t u, int64_t next);
void workload_scatter(struct rank *rank, int64_t u);
/* By autocast; `made_again`: unit u is, in backward. */
void workload_cast_weights(struct rank *rank, int64_t u, bool made_again);
/* A frozen matrix, for one product; -1: it is used as it is. */
int workload_widen(struct rank *rank, int64_t u, enum layer_matrix matrix, bool backward);
void workload_drop_casts(struct rank *rank, int64_t u);
void workload_weight_gradient(struct rank *rank, int64_t u, int tensor);
void workload_unit_done(struct rank *rank, int64_t u); /* its backward: gradients go to their ranks */
void workload_pass_done(struct rank *rank);

/* workload_buckets.c */
void workload_buckets_open(struct rank *rank);
void workload_buckets_add(struct rank *rank, double elements); /* gradients that were just made */
void workload_buckets_close(struct rank *rank); /* the pass is over */

/* workload_states.c */
void workload_start(struct rank *rank); /* what is there before the first batch */
void workload_update(struct rank *rank);
void workload_zero_gradients(struct rank *rank);

/* workload_layers.c */
int64_t workload_global_layer(const struct rank *rank, int64_t local);
void workload_pass_time(struct rank *rank, struct temporaries *temporaries);
void workload_drop_all(struct rank *rank, struct temporaries *temporaries);
/* `again`: the parts that recomputation makes in backward; 0: it is the forward pass before that. */
void workload_layer_forward(struct rank *rank, int64_t local, int *kept, unsigned again);
void workload_layer_backward(struct rank *rank, int64_t local, int *kept);

/* workload_ends.c */
double workload_hidden_bytes(const struct workload *w); /* of the residual stream, of this rank's tokens */
void workload_embed_forward(struct rank *rank, struct pass *pass);
void workload_embed_backward(struct rank *rank, struct pass *pass);
void workload_head_forward(struct rank *rank, struct pass *pass);
void workload_head_backward(struct rank *rank, struct pass *pass);
void workload_ends_drop(struct rank *rank, struct pass *pass); /* what lives until backward is through */

#endif
