/* The step program of one rank: what a training step does, as data. Blocks (block.h) are repeated over layers and
 * micro-batches by a schedule; reductions, clipping and the optimizer follow. Everything that wants to know something about
 * a step reads it: bytes (here), time (planner/), execution (trainer/), recordings and reports, which join on its ids.
 *
 *     the schedule's items, each a chunk of layers and a micro-batch:
 *                 forward  embedding (or: receive x), layers, head (or: send x)
 *                 backward head (or: receive d), layers, embedding (or: send d)
 *                 (in the last micro-batch, each full bucket of gradients starts its reduction)
 *     then        wait; sum of squared gradients, AdamW of every part; with ZeRO, gather the weights
 *
 * Without a pipeline there is one chunk, all of the model, and micro-batch follows micro-batch. All ranks of a stage have
 * the same program. With tensor parallelism the blocks hold a rank's share, and the collectives between ranks are operations
 * of theirs. A pipeline's last stage holds a copy of a tied embedding as the matrix of its head; the gradients of both are
 * summed, so that they stay equal.
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

/* Where messages between stages are received and sent from, the size of x each. Item k of the schedule uses those of k % 2,
 * so that a message passes while the next item runs (schedule.h). */
enum buffer { BUFFER_RECEIVE, BUFFER_SEND, BUFFER_KINDS };

/* Chunk c of the stage: an embedding or a receiving block, layers, a head or a sending block. */
struct chunk {
    int64_t global;       /* its number in the whole pipeline: c * pp + stage */
    int64_t first, count; /* instances, ends included */
    int64_t first_layer, layers; /* of the model */
};

/* `count` instances in a row of the same block. Instances are numbered within the stage, chunk after chunk. */
struct run {
    int block;
    int64_t first, count; /* instances */
    int64_t first_layer;  /* of the model, when these are layers */
    int64_t parameter_base; /* number of parameters (tensors) before this run */
    int64_t tensor_base, op_base; /* of the instances before, within a micro-batch */
    int64_t state_base[STATE_COUNT]; /* arena offset of its first parameter's state */
    int64_t frame_base[FRAMES]; /* of its first instance, from the start of its chunk's slot */
    int64_t moved_from; /* from this instance of the run on, what lies above the frames lies above all slots instead */
};

/* Gradients of the instances first .. last, all-reduced together. */
struct bucket {
    int64_t first, last, bytes;
};

struct program {
    struct model model;
    struct model block_model; /* the same, but untied where the pair of a tied embedding is on two stages */
    struct layout layout;
    uint32_t *recompute; /* mask per layer of the model */
    int64_t stage;       /* of the pipeline */
    struct chunk *chunks;
    int chunk_count;
    bool tied_copy; /* the stage's embedding or head is one of a tied pair on two stages */
    struct block *blocks;
    int block_count;
    struct run *runs;
    int run_count;
    struct bucket *buckets; /* in the order in which backward fills them; none when dp is 1 */
    int bucket_count;
    int64_t instances, micro_batches;
    int64_t parameter_tensors;         /* how many parameter tensors the rank holds */
    int64_t tensors_per_micro_batch, ops_per_micro_batch;
    int64_t scalar_offset[SCALAR_COUNT], buffer_offset[BUFFER_KINDS][2], stream_offset, moved_offset;
    /* Where each chunk and micro-batch has its frames: [chunk * slot_micro_batches + micro_batch % slot_micro_batches], a
     * slot with room for the frames of all instances of the chunk. */
    int64_t *slots[FRAMES];
    int64_t slot_micro_batches; /* 1 when one micro-batch ends before the next begins, else all */
    /* Instead of all that, in a few pipelines: rows of offsets of the passing tensors of a micro-batch, by id; NULL: none.
     * Where there are fewer rows than micro-batches, those from `repeated` on repeat `period` rows, up to the last ones. */
    int64_t *places, place_rows, repeated, period;
    /* And in nearly all: lanes of equally tall slots (lanes.h), and in which lane and where in its
     * slot the passing tensors of lane_period micro-batches lie, by id; the micro-batches after them do likewise. */
    struct program_lane {
        int64_t base, height;
        int32_t *slots; /* by chunk and micro-batch, as above, which slot it has; NULL: there is one */
    } *lanes;           /* NULL: none */
    struct lane_place {
        int lane;
        int64_t offset;
    } *lane_places;
    int lane_count;
    int64_t lane_period;

    /* The answer. Bytes are those of tensors alive; arena_bytes is the placed peak: one allocation that holds them all. */
    int64_t persistent_bytes; /* parameters, gradients, optimizer, scalars: there before and after every step */
    int64_t peak_bytes, at_peak[ROLE_COUNT];
    int64_t arena_bytes;
    struct program_peak {
        enum phase phase;
        int64_t instance;    /* where the peak is first reached */
        int64_t micro_batch; /* while this one is at work */
        int op;              /* in its block */
    } peak;
};

/* What a program is made from; borrowed while it is made. */
struct program_spec {
    const struct model *model;
    const struct layout *layout;    /* complete: layout_complete() */
    const uint32_t *recompute;      /* a mask per layer of the model; NULL: nothing is recomputed */
    const int64_t *chunk_layers;    /* layers of each chunk of the pipeline in order, each at least
                                     * layout_least_layers(), layout_chunks() of them; NULL: layout_spread_layers() */
    int64_t stage;
};

/* On success *out is the caller's: program_free(). Fails only when sizes overflow. */
int program_create_stage(const struct program_spec *spec, struct program **out, struct error *err);
void program_free(struct program *program); /* NULL is fine */

/* Recomputes peak_bytes, at_peak and peak: arithmetic over blocks, whatever the number of layers, and without a pipeline
 * whatever that of micro-batches. program_create_stage() has called it. */
void program_find_peak(struct program *program);

const struct run *program_run(const struct program *program, int64_t instance);
const struct block *program_block(const struct program *program, int64_t instance);
enum part program_part(const struct program *program, int64_t instance);
/* Which layer of the model an instance is; -1: it is none. */
int64_t program_layer(const struct program *program, int64_t instance);
/* The instance that holds this layer of the model; -1: another stage does. */
int64_t program_find_layer(const struct program *program, int64_t layer);
/* Likewise of PART_EMBED or PART_HEAD. */
int64_t program_find_part(const struct program *program, enum part part);
/* "embed", "layer 3", "head", "from stage 0", "to stage 2, chunk 1": written to out[PROGRAM_NAME]. */
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
/* Do tensor-parallel ranks have parts of the gradients of norm weights, which OP_REDUCE_NORMS adds up? With sequence
 * parallelism of all norms, since each rank normed its rows only; else of those of queries and keys, since each has its heads. */
bool program_reduces_norms(const struct program *program);
/* State of parameter `index` of an instance. With ZeRO, weights and gradients are padded to a multiple of dp elements, and
 * of the optimizer's states a rank has its shard only: bytes are of what lies in memory. */
struct placed program_state(const struct program *program, int64_t instance, int index, enum state state);

/* The elements of a parameter whose optimizer states data-parallel rank `replica` has: of the first parameter->count, those
 * from `first` on; none when count is 0. Without ZeRO, all. Element `first` of the parameter is element 0 of the states. */
struct state_shard {
    int64_t first, count;  /* real elements */
    int64_t padded_count;  /* with padding: what lies in memory, the same on every rank */
};
struct state_shard program_shard(const struct program *program, int64_t instance, int index, int64_t replica);

/* Which parameter of the model a stage's parameter is: part, layer and id. The copy of a tied embedding is PART_EMBED's. */
struct parameter_name {
    enum part part;
    int64_t layer; /* of the model; -1 outside layers */
    enum parameter_id id;
    bool copy; /* another stage holds the same one: this one is neither written to checkpoints nor part of the norm */
};
struct parameter_name program_parameter(const struct program *program, int64_t instance, int index);

struct placed program_scalar(const struct program *program, enum scalar scalar);
/* `turn` is 0 or 1. Present with more than one stage. */
struct placed program_buffer(const struct program *program, enum buffer buffer, int turn);
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
    int64_t bucket;    /* OP_ALL_REDUCE, OP_SCATTER_GRADIENTS, OP_GATHER_WEIGHTS: which */
    int64_t item;      /* of the schedule; -1 after backward */
};

/* A walk over the whole step, in the order of execution. */
struct program_cursor {
    const struct program *program;
    struct schedule_cursor schedule;
    struct schedule_item item;
    int64_t item_number; /* -1 before the first */
    int64_t instance, position;
    int64_t next_bucket;
    enum { WALK_ITEMS, WALK_BUCKETS, WALK_TAIL, WALK_END } stretch;
    bool forward_only;
};

struct program_cursor program_walk(const struct program *program);
/* One micro-batch forward through every chunk of the stage, as validation runs it: item c is chunk c. */
struct program_cursor program_walk_forward(const struct program *program);
bool program_next(struct program_cursor *cursor, struct step_op *out);

#endif
