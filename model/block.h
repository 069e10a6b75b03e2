/* The parts a step is built from: embedding, one layer, head, and the ends of a pipeline stage that receive and send. A block
 * is a table of tensors and a list of operations, forward first and then backward; the step program repeats blocks over
 * layers and micro-batches (program.h).
 *
 * Letters: B micro-batch, T sequence, C hidden, H heads, K key/value heads, D head size, F feed-forward, V vocabulary.
 *
 * Between blocks two tensors flow. `x`, a block's input, is made by the block before (its `out`) and kept for backward.
 * `d`, the gradient of the residual stream, is one tensor per micro-batch: the head makes it, every block changes it in
 * place, the embedding consumes it. Where a stage ends, the blocks that receive and send stand for the head and the
 * embedding.
 *
 * Backward may be split into two halves that are not run together (ZB-H1): gradients of activations, for which the stage
 * before waits, and those of weights, for which nobody does. */
#ifndef MEMPLAN_MODEL_BLOCK_H
#define MEMPLAN_MODEL_BLOCK_H

#include "base/dtype.h"
#include "base/role.h"
#include "model/dims.h"
#include "model/layout.h"
#include "model/model.h"
#include "model/parameters.h"

#include <stdbool.h>
#include <stdint.h>

enum op_kind {
    /* kind               inputs                          outputs (a tensor in both is changed in place) */
    OP_LOAD_TOKENS,    /*                                 tokens */
    OP_LOAD_FEATURES,  /*                                 out */
    OP_LOAD_TARGETS,   /*                                 targets */
    OP_EMBED,          /* tokens wte wpe?                 out */
    OP_EMBED_GRAD,     /* d tokens                        dwte dwpe? */
    OP_NORM,           /* x w b? residual?                y mean? rstd */
    OP_NORM_GRAD,      /* dy x w mean? rstd               d dw db? */
    OP_MATMUL,         /* x w bias? residual?             y */
    OP_MATMUL_DGRAD,   /* dy w                            dx */
    OP_MATMUL_WGRAD,   /* dy x                            dw db? */
    OP_ROPE,           /* qkv                             qkv */
    OP_QK_NORM,        /* qkv q_norm k_norm               y: normed, turned as by OP_ROPE, with the values */
    OP_QK_NORM_GRAD,   /* dqkv qkv q_norm k_norm          dqkv dq_norm dk_norm */
    OP_ATTENTION,      /* qkv                             out lse */
    OP_ATTENTION_GRAD, /* dout qkv out lse                dqkv delta */
    OP_GELU,           /* x                               y */
    OP_GELU_GRAD,      /* d x                             d */
    OP_SWIGLU,         /* gate_up                         y, or GEGLU's */
    OP_SWIGLU_GRAD,    /* dy gate_up                      gate_up */
    OP_CROSS_ENTROPY,  /* logits targets                  logits loss */
    /* Between tensor-parallel ranks, and what they leave to do. A part is the rank's share of the sequence. */
    OP_ALL_GATHER,     /* part                            whole */
    OP_REDUCE_SCATTER, /* whole                           part */
    OP_SUM_PARTIAL,    /* y                               y: the sum over ranks */
    OP_MAX_PARTIAL,    /* y                               y: the largest over ranks */
    OP_RESIDUAL,       /* y residual bias?                y: + residual + bias */
    OP_LOGIT_MAX,      /* logits targets                  max */
    OP_LOGIT_SUMS,     /* logits targets max              sums */
    OP_CROSS_ENTROPY_SHARDED, /* logits targets max sums  logits loss */
    /* Between pipeline stages, and the copies that a backward in two halves needs. */
    OP_RECEIVE,        /*                                 y: from the buffer, once the message is there */
    OP_SEND,           /* x                               to the buffer, from where it leaves */
    OP_COPY,           /* x                               y */
    /* Not in blocks; the program adds them after backward. */
    OP_ALL_REDUCE,        /* gradients of a bucket, over data-parallel ranks */
    OP_SCATTER_GRADIENTS, /* the same with ZeRO: each rank gets the sum of its shards */
    OP_REDUCE_LOSS,       /* over data-parallel ranks and stages */
    OP_WAIT,
    OP_REDUCE_NORMS,  /* gradients of norm weights that each rank has a part of: program_reduces_norms() */
    OP_REDUCE_TIED,   /* the tied embedding's gradient, over the two stages that hold it */
    OP_SQUARE_SUM,
    OP_REDUCE_SQUARES, /* over all ranks that hold different gradients */
    OP_ADAMW,
    OP_GATHER_WEIGHTS, /* ZeRO: of a bucket, from the ranks that have updated their shards */
    OP_KINDS,
};

enum op_flag {
    OP_ADD = 1,        /* accumulates into its first output (activations' gradients) */
    OP_CAUSAL = 2,     /* attention under a causal mask */
    OP_INVERSE = 4,    /* RoPE turned back */
    OP_RMS = 8,        /* RMSNorm */
    OP_RECOMPUTE = 16, /* forward work done again during backward */
    OP_ADD_GRAD = 32,  /* not the first in its micro-batch to write its first output: accumulates even in micro-batch 0 */
};

/* Where a tensor's life begins and ends. */
enum span {
    SPAN_WEIGHT,   /* parameter: the whole run */
    SPAN_GRADIENT, /* of a parameter: the whole run */
    SPAN_LOSS,     /* the loss sum: the whole run */
    SPAN_INPUT,    /* x: made by the block before, dies here */
    SPAN_OUTPUT,   /* out: made here, dies in the block after */
    SPAN_STREAM,   /* d */
    SPAN_LOCAL,    /* made and dead within the block, perhaps kept from forward to backward */
};

/* What outlives one pass over its block is kept in a frame, and each frame has a place of its own while its micro-batch
 * needs it. */
enum frame {
    FRAME_NONE = -1,
    FRAME_INPUT,   /* from forward to backward, or to its input half */
    FRAME_WEIGHT,  /* from forward to the weight half */
    FRAME_DELAYED, /* from the input half to the weight half */
    FRAMES,
};

/* Every tensor starts on a multiple of this in the arena: a cache line, and what the device demands. */
enum { ARENA_ALIGN = 64 };

enum { OP_INPUTS = 5, OP_OUTPUTS = 3, BLOCK_TENSORS = 80, BLOCK_OPS = 64 };

struct tensor {
    const char *name;
    int64_t dims[TENSOR_DIMS];
    int64_t bytes;
    enum dtype dtype;
    enum role role;
    enum span span;
    enum part owner;     /* SPAN_WEIGHT and SPAN_GRADIENT: whose parameter; PART_EMBED for a tied head's wte */
    int parameter;       /* index in the owner's parameter list, or -1 */
    int drop_bit;        /* which bit of a recompute mask drops this tensor (and all that its operation makes), or -1 */
    int first, last;     /* first and last operation that touches it; -1: none */
    bool saved;          /* alive from forward to backward */
    enum frame frame;    /* that it is kept in */
    bool in_stream;      /* lies where d will lie: it dies before d is born */
    bool recomputed;     /* the second life of a tensor that recomputation dropped */
    int64_t offset;      /* from its frame; of `d`, from the stream's place; of what is not kept, see struct block */
};

struct op {
    enum op_kind kind;
    unsigned flags;
    int8_t inputs[OP_INPUTS], outputs[OP_OUTPUTS]; /* tensors of the block, in the order above; -1: absent */
    uint8_t births[4], deaths[8]; /* tensors whose life begins before / ends after this operation */
    uint8_t birth_count, death_count;
};

struct block_peak {
    int64_t bytes; /* live tensors of this block (with x, out, d), without weights and gradients */
    int op;        /* the first operation where they are live */
};

struct block {
    enum part part;
    const struct model *model; /* borrowed */
    uint32_t dropped;          /* recompute mask that was applied */
    struct parameter parameters[PART_PARAMETERS_MAX];
    int parameter_count;
    struct tensor tensors[BLOCK_TENSORS];
    int tensor_count;
    struct op ops[BLOCK_OPS];
    /* ops[0..forward_count) forward, [forward_count..input_count) backward or its input half, [input_count..op_count) the
     * weight half. */
    int forward_count, input_count, op_count;
    int input, output, stream;   /* tensor indices, or -1 */
    bool stream_ends;            /* d dies here: nothing before this block needs it */
    bool apart;                /* as block_measure() was told */
    bool overflow;               /* a size does not fit 63 bits: the block is unusable */

    /* Found by block_weigh(). */
    int64_t saved_bytes; /* kept for backward, x included and out not */
    int64_t later_bytes; /* kept between the halves of backward */
    struct block_peak forward, backward, weight;

    /* Found by block_measure() only. What is not kept lies in the holes of FRAME_INPUT or above it, and the output where the
     * next block's x is. */
    int64_t frame_bytes[FRAMES]; /* room for what is kept; the next block's frame starts there */
    int64_t extent;              /* highest byte used, from the start of FRAME_INPUT */
    int64_t stream_floor; /* likewise while d, or what lies in its place, is alive: d must lie above */
};

/* What a block depends on besides the model. */
struct block_shape {
    int64_t B, T;
    enum dtype dtype; /* weights and activations */
    int64_t tp;       /* ranks that share heads, feed-forward and vocabulary */
    bool sequence_parallel; /* between their regions each rank has T / tp of every sequence */
};

struct block_shape block_shape_of(const struct layout *layout);

/* Without recomputation and not yet measured. The first layer of an encoder needs no gradient of its input. */
void block_build_embed(struct block *block, const struct model *model, struct block_shape shape);
void block_build_layer(struct block *block, const struct model *model, struct block_shape shape, bool first);
void block_build_head(struct block *block, const struct model *model, struct block_shape shape);
/* In place of an embedding and of a head where a chunk of layers begins and ends inside the pipeline. */
void block_build_receive(struct block *block, const struct model *model, struct block_shape shape);
void block_build_send(struct block *block, const struct model *model, struct block_shape shape);

/* Splits backward: gradients of weight matrices move to the weight half. Once, after recompute_apply(), and only layers: a
 * head would keep its logits, and what an embedding does is nobody's input. What is made again is made in the input half. */
void block_split_backward(struct block *block);

/* Lives and peaks, for who compares blocks that are not going to be placed. Once, after recompute_apply(). */
void block_weigh(struct block *block);

/* Lives, peaks and places. Call once, after recompute_apply() and block_split_backward(); first for the head, whose x tells
 * whether the last layer's output lies in d's place (in_stream). `apart`: what lies above FRAME_INPUT may be moved, all of it
 * together, since other micro-batches' frames may follow there; so nothing lies across the frame's end, nothing is lent
 * d's place, and the output counts into the extent. */
void block_measure(struct block *block, bool apart);

/* The first and last operation during which the block has to count the tensor; false: it never does. */
bool block_counts(const struct block *block, const struct tensor *t, int *from, int *to);

/* Bytes of this block's tensors live during operation `op`, added to by_role; returns their sum. Weights, gradients and
 * the loss are not counted. */
int64_t block_live_at(const struct block *block, int op, int64_t by_role[ROLE_COUNT]);

bool block_op_writes(const struct op *op, int tensor); /* is it one of the outputs? */
const char *op_kind_name(enum op_kind kind); /* "matmul_wgrad" */
enum dtype wide_dtype(enum dtype dtype);     /* of gradients, statistics and moments */

#endif
