/* What the functions that run operations share with the loop that calls them (execute.c). Private to these files:
 *
 *     run_kernels      operations of blocks that compute
 *     run_collectives  operations of all kinds that exchange with other ranks
 *     run_optimizer    what follows backward on this rank
 *
 * Every shape is read off the tensors, so none of them holds a formula of its own. */
#ifndef MEMPLAN_TRAINER_CALL_H
#define MEMPLAN_TRAINER_CALL_H

#include "trainer/batch.h"
#include "trainer/execute.h"
#include "trainer/labels.h"
#include "trainer/messages.h"

#include <math.h>

/* How a step is done: operation by operation; the same, and the device writes them down; or from that recording, when the
 * host keeps the ledger and writes what changes, and runs no operation else. */
enum executor_mode { EXECUTOR_RUN, EXECUTOR_RECORD, EXECUTOR_REPLAY };

struct executor {
    struct executor_parts parts;
    struct layout_place place;
    struct kernel_context context;
    struct batch *batch;             /* the micro-batch at hand, on the host */
    struct messages *messages;       /* between pipeline stages */
    struct labels labels;
    struct comm_span *spans, *pieces; /* room for every gradient or sequence, and for this rank's piece of each */
    double loss_scale;               /* 1 / tokens over which the loss is averaged */
    bool training;                   /* false: forward only, and the loss leaves no gradient */
    const struct update *update;
    int64_t step;
    enum executor_mode mode;
    bool ran_step;          /* at least one, so that all that is made at a first use is there */
    struct error unrecorded; /* why there is no recording */
};

/* The operation at hand, with its tensors resolved. */
struct call {
    struct executor *e;
    const struct step_op *s;
    struct placed in[OP_INPUTS], out[OP_OUTPUTS];
    bool has_in[OP_INPUTS], has_out[OP_OUTPUTS];
};

typedef int runner(const struct call *call, struct error *err);

runner run_load, run_embed, run_embed_grad, run_norm, run_norm_grad, run_matmul, run_matmul_dgrad,
    run_matmul_wgrad, run_rope, run_qk_norm, run_qk_norm_grad, run_attention, run_attention_grad, run_gelu, run_gelu_grad, run_swiglu,
    run_swiglu_grad, run_cross_entropy, run_residual, run_logit_max, run_logit_sums,
    run_cross_entropy_sharded, run_copy;
runner run_all_gather, run_reduce_scatter, run_combine_partial, run_all_reduce,
    run_scatter_gradients, run_gather_weights, run_reduce_loss, run_reduce_norms, run_reduce_tied,
    run_reduce_squares, run_wait, run_receive, run_send;
runner run_square_sum, run_adamw;

/* Two operations in one (pairs.h). */
int run_matmul_gelu(const struct call *matmul, const struct call *gelu, struct error *err);
int run_dgrad_gelu(const struct call *dgrad, const struct call *gelu_grad, struct error *err);

static inline void *call_address(const struct executor *e, const struct placed *t)
{
    return step_memory_at(e->parts.memory, t->id);
}

static inline void *call_element(const struct executor *e, const struct placed *t, int64_t element)
{
    return (char *)call_address(e, t) + element * dtype_bytes(t->dtype);
}

static inline void *call_in(const struct call *c, int slot)
{
    return c->has_in[slot] ? call_address(c->e, &c->in[slot]) : NULL;
}

static inline void *call_out(const struct call *c, int slot)
{
    return c->has_out[slot] ? call_address(c->e, &c->out[slot]) : NULL;
}

static inline bool call_flag(const struct call *c, enum op_flag bit)
{
    return (c->s->op->flags & bit) != 0;
}

static inline int64_t placed_columns(const struct placed *t)
{
    return dims_columns(t->dims);
}

static inline int64_t placed_rows(const struct placed *t)
{
    return dims_rows(t->dims);
}

static inline int64_t placed_elements(const struct placed *t)
{
    return t->bytes / dtype_bytes(t->dtype);
}

/* What this rank updates of a parameter, in one of its states: with ZeRO its shard, which is all that there is of the
 * optimizer's. Without padding; it may be nothing. */
struct comm_span executor_own(const struct executor *executor, int64_t instance, int index, enum state state);

/* May an operation look at its results? Where the device works beside the host that waits until the end of the step. */
static inline bool call_may_read(const struct call *c)
{
    return !device_is_asynchronous(c->e->parts.device);
}

/* For messages: the sign of what is no number says nothing. */
static inline double call_shown(double value)
{
    return isnan(value) ? (double)NAN : value;
}

double executor_read_scalar(const struct executor *executor, enum scalar scalar);

#endif
