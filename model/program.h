/* The step program of one rank: what a training step does, as data. Blocks (block.h) are repeated over layers and
 * micro-batches by a schedule; reductions, clipping and the optimizer follow. Everything that wants to know something about
 * a step reads it: bytes (here), time (planner/), execution (trainer/), recordings and reports, which join on its ids.
 *
 *     micro-batch m = 0 .. M-1:  forward  embedding, layers 0 .. L-1, head
 *                                backward head, layers L-1 .. 0, embedding
 *                                (in the last one, each full bucket of gradients starts its all-reduce)
 *     then                       wait, sum of squared gradients, AdamW of every part
 *
 * With tensor parallelism the blocks hold this rank's share, and the collectives between ranks are operations of theirs.
 *
 * The program is stored once per distinct block; a cursor walks the whole of it, operation by operation. Peak arithmetic
 * does not walk: it adds up blocks. */
#ifndef MEMPLAN_MODEL_PROGRAM_H
#define MEMPLAN_MODEL_PROGRAM_H

#include "base/error.h"
#include "model/block.h"
#include "model/layout.h"

#include <stdbool.h>
#include <stdint.h>

enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_REDUCE, PHASE_OPTIMIZER, PHASE_COUNT };

/* What a rank keeps of every parameter, in the order in which it lies in the arena. */
enum state {
    STATE_WEIGHT,
    STATE_GRADIENT,
    STATE_MASTER, /* bf16 training only */
    STATE_MOMENT1,
    STATE_MOMENT2,
    STATE_COUNT,
};

enum scalar { SCALAR_LOSS, SCALAR_SQUARE_SUM, SCALAR_COUNT };

/* `count` instances in a row of the same block. Instance 0 is the embedding, 1 .. L the layers, L + 1 the head. */
struct run {
    int block;
    int64_t first, count; /* instances */
    int64_t parameter_base; /* number of parameters (tensors) before this run */
    int64_t tensor_base, op_base; /* of the instances before, within a micro-batch */
    int64_t state_base[STATE_COUNT]; /* arena offset of its first parameter's state */
    int64_t frame_base;   /* arena offset of its first frame */
};

/* Gradients of the instances first .. last, all-reduced together. */
struct bucket {
    int64_t first, last, bytes;
};

struct program {
    struct model model;
    struct layout layout;
    uint32_t *recompute; /* mask per layer */
    struct block *blocks;
    int block_count;
    struct run *runs;
    int run_count;
    struct bucket *buckets; /* in the order in which backward fills them; none when dp is 1 */
    int bucket_count;
    int64_t instances, micro_batches;
    int64_t parameter_tensors;         /* how many parameter tensors the rank holds */
    int64_t tensors_per_micro_batch, ops_per_micro_batch;
    int64_t scalar_offset[SCALAR_COUNT], stream_offset;

    /* The answer. Bytes are those of tensors alive; arena_bytes is the placed peak: one allocation that holds them all. */
    int64_t persistent_bytes; /* parameters, gradients, optimizer, scalars: there before and after every step */
    int64_t peak_bytes, at_peak[ROLE_COUNT];
    int64_t arena_bytes;
    struct program_peak {
        enum phase phase;
        int64_t instance; /* where the peak is first reached */
        int op;           /* in its block */
    } peak;
};

/* `layout` must be complete (layout_complete()). `recompute` has a mask per layer, or is NULL for none; it is copied. On
 * success *out is the caller's: program_free(). Fails only when sizes overflow. */
int program_create(const struct model *model, const struct layout *layout, const uint32_t *recompute,
                   struct program **out, struct error *err);
void program_free(struct program *program); /* NULL is fine */

/* Recomputes peak_bytes, at_peak and peak: arithmetic over blocks, whatever the number of layers and micro-batches.
 * program_create() has called it. */
void program_find_peak(struct program *program);

const struct run *program_run(const struct program *program, int64_t instance);
const struct block *program_block(const struct program *program, int64_t instance);
/* Which layer an instance is; -1: it is none. */
int64_t program_layer(const struct program *program, int64_t instance);
/* "embed", "layer 3", "head": written to out[PROGRAM_NAME]. */
enum { PROGRAM_NAME = 32 };
const char *program_instance_name(const struct program *program, int64_t instance, char *out);
const char *phase_name(enum phase phase);
const char *state_name(enum state state); /* "weight", "gradient", "master", "moment1", "moment2" */

/* A tensor of the step: what it is, and where it lies. */
struct placed {
    int64_t id;     /* unique in the program; recordings carry it */
    int64_t offset; /* in the arena */
    int64_t bytes;
    int64_t dims[TENSOR_DIMS];
    enum dtype dtype;
    enum role role;
    const char *name;    /* within its instance: "qkv" */
    int64_t instance;    /* whose it is; -1 for scalars */
    int64_t micro_batch; /* -1: lives for the whole run */
    bool recomputed;
};

bool program_has_state(const struct program *program, enum state state);
/* State of parameter `index` of an instance. */
struct placed program_state(const struct program *program, int64_t instance, int index, enum state state);
struct placed program_scalar(const struct program *program, enum scalar scalar);
/* Tensor `index` of an instance's block, resolved to its owner: the output of the block before for x, the head's d for
 * d, a weight or gradient, the loss. */
struct placed program_tensor(const struct program *program, int64_t instance, int64_t micro_batch, int index);
/* How many ids there are: they are 0 .. count-1. */
int64_t program_tensor_count(const struct program *program);
int64_t program_op_count(const struct program *program);
/* The instance of the operation with this id; -1: it belongs to none, or the program has no such operation. */
int64_t program_op_instance(const struct program *program, int64_t id);

/* One operation as it happens. */
struct step_op {
    int64_t id; /* unique in the program; recordings carry it */
    enum op_kind kind;
    enum phase phase;
    int64_t instance;    /* -1 when it belongs to no part of the model */
    int64_t micro_batch; /* -1 after backward */
    const struct block *block; /* NULL after backward */
    const struct op *op;       /* NULL after backward */
    bool add_gradient; /* this micro-batch is not the first: gradients accumulate */
    int64_t bucket;    /* OP_ALL_REDUCE: which; -1: the loss */
};

/* A walk over the whole step, in the order of execution. */
struct program_cursor {
    const struct program *program;
    int stage;
    int64_t micro_batch, instance, position;
    int64_t next_bucket;
};

struct program_cursor program_walk(const struct program *program);
bool program_next(struct program_cursor *cursor, struct step_op *out);

#endif
