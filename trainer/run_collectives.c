/* Operations that exchange with other ranks: within blocks over the tensor-parallel group, which the next operation waits
 * for; after backward over the others. */
#include "trainer/call.h"

static enum dtype gradient_dtype(const struct executor *e)
{
    return wide_dtype(precision_dtype(e->parts.program->layout.precision));
}

/* `part` (B, S, C) and `whole` (B, T, C) as spans: the rows of every sequence are shared out among the ranks. Returns how
 * many there are. */
static int list_sequences(const struct executor *e, const struct placed *part, const struct placed *whole)
{
    int count = (int)whole->dims[0];
    int64_t rows = whole->dims[1] * whole->dims[2], part_rows = part->dims[1] * part->dims[2];
    for (int i = 0; i < count; i++) {
        e->spans[i] = (struct comm_span){call_element(e, whole, i * rows), rows};
        e->pieces[i] = (struct comm_span){call_element(e, part, i * part_rows), part_rows};
    }
    return count;
}

int run_all_gather(const struct call *c, struct error *err)
{
    struct comm *group = c->e->parts.groups.tensor;
    int count = list_sequences(c->e, &c->in[0], &c->out[0]);
    return comm_all_gather(group, c->e->pieces, c->e->spans, count, c->in[0].dtype, err);
}

int run_reduce_scatter(const struct call *c, struct error *err)
{
    struct comm *group = c->e->parts.groups.tensor;
    int count = list_sequences(c->e, &c->out[0], &c->in[0]);
    return comm_reduce_scatter(group, c->e->spans, c->e->pieces, count, c->in[0].dtype, err);
}

int run_combine_partial(const struct call *c, struct error *err)
{
    struct comm *group = c->e->parts.groups.tensor;
    struct comm_span span = {call_out(c, 0), placed_elements(&c->out[0])};
    enum comm_reduction reduction = c->s->kind == OP_MAX_PARTIAL ? COMM_MAX : COMM_SUM;
    return comm_all_reduce(group, &span, 1, c->out[0].dtype, reduction, err);
}

/* All parameters of a bucket in one state, whole and padded, and this replica's piece of each. Returns how many. */
static int list_bucket(const struct call *c, enum state state)
{
    const struct executor *e = c->e;
    const struct program *p = e->parts.program;
    const struct bucket *bucket = &p->buckets[c->s->bucket];
    int count = 0;
    for (int64_t i = bucket->first; i <= bucket->last; i++)
        for (int k = 0; k < program_block(p, i)->parameter_count; k++) {
            struct placed t = program_state(p, i, k, state);
            int64_t part = placed_elements(&t) / p->layout.dp;
            e->spans[count] = (struct comm_span){call_address(e, &t), placed_elements(&t)};
            e->pieces[count++] = (struct comm_span){call_element(e, &t, e->place.replica * part), part};
        }
    return count;
}

/* In the first step a GPU has nothing to do beside its replicas' exchanges: they connect then, and computation loads kernels, and
 * both ask for the same lock of the driver's (docs/gpus.md). All replicas of a stage wait at the same places. */
static int settle_first(const struct call *c, struct error *err)
{
    struct device *device = c->e->parts.device;
    if (c->e->ran_step || !device_is_asynchronous(device))
        return 0;
    return comm_wait(c->e->parts.groups.data, err) || device_finish(device, err) ? -1 : 0;
}

int run_all_reduce(const struct call *c, struct error *err)
{
    int count = list_bucket(c, STATE_GRADIENT);
    return comm_start_all_reduce(c->e->parts.groups.data, c->e->spans, count, gradient_dtype(c->e), COMM_SUM,
                                 NULL, err) ||
                   settle_first(c, err)
               ? -1
               : 0;
}

int run_scatter_gradients(const struct call *c, struct error *err)
{
    int count = list_bucket(c, STATE_GRADIENT);
    return comm_start_reduce_scatter(c->e->parts.groups.data, c->e->spans, c->e->pieces, count,
                                     gradient_dtype(c->e), NULL, err) ||
                   settle_first(c, err)
               ? -1
               : 0;
}

int run_gather_weights(const struct call *c, struct error *err)
{
    int count = list_bucket(c, STATE_WEIGHT);
    return comm_start_all_gather(c->e->parts.groups.data, c->e->pieces, c->e->spans, count,
                                 precision_dtype(c->e->parts.program->layout.precision), NULL, err) ||
                   settle_first(c, err)
               ? -1
               : 0;
}

int run_reduce_loss(const struct call *c, struct error *err)
{
    struct placed t = program_scalar(c->e->parts.program, SCALAR_LOSS);
    struct comm_span span = {call_address(c->e, &t), 1};
    return comm_start_all_reduce(c->e->parts.groups.loss, &span, 1, t.dtype, COMM_SUM, NULL, err);
}

/* For what was started and left to run beside backward. */
int run_wait(const struct call *c, struct error *err)
{
    const struct groups *groups = &c->e->parts.groups;
    if (groups->data && comm_wait(groups->data, err))
        return -1;
    return groups->loss ? comm_wait(groups->loss, err) : 0;
}

/* Under sequence parallelism a norm sees a part of the sequence, and those of queries and keys see a part of the heads, so that
 * their weights' gradients are partial sums. Those of the other parameters that every rank holds are whole. */
static bool sums_in_parts(const struct program *p, enum op_kind kind)
{
    return kind == OP_QK_NORM_GRAD || (kind == OP_NORM_GRAD && p->layout.sequence_parallel);
}

int run_reduce_norms(const struct call *c, struct error *err)
{
    const struct executor *e = c->e;
    const struct program *p = e->parts.program;
    int count = 0;
    for (int64_t i = 0; i < p->instances; i++) {
        const struct block *block = program_block(p, i);
        for (const struct op *op = block->ops; op < block->ops + block->op_count; op++)
            for (int slot = 1; sums_in_parts(p, op->kind) && slot < OP_OUTPUTS; slot++)
                if (op->outputs[slot] >= 0)
                    e->spans[count++] =
                        executor_own(e, i, block->tensors[op->outputs[slot]].parameter, STATE_GRADIENT);
    }
    return comm_all_reduce(e->parts.groups.tensor, e->spans, count, gradient_dtype(e), COMM_SUM, err);
}

/* The embedding and its copy on another stage. */
int run_reduce_tied(const struct call *c, struct error *err)
{
    const struct executor *e = c->e;
    const struct program *p = e->parts.program;
    int count = 0;
    for (int64_t i = 0; i < p->instances; i++)
        for (int k = 0; k < program_block(p, i)->parameter_count; k++) {
            struct parameter_name name = program_parameter(p, i, k);
            if (name.part == PART_EMBED && name.id == PARAM_WTE)
                e->spans[count++] = executor_own(e, i, k, STATE_GRADIENT);
        }
    return comm_all_reduce(e->parts.groups.embedding, e->spans, count, gradient_dtype(e), COMM_SUM, err);
}

int run_reduce_squares(const struct call *c, struct error *err)
{
    struct placed t = program_scalar(c->e->parts.program, SCALAR_SQUARE_SUM);
    struct comm_span span = {call_address(c->e, &t), 1};
    return comm_all_reduce(c->e->parts.groups.norm, &span, 1, t.dtype, COMM_SUM, err);
}

int run_receive(const struct call *c, struct error *err)
{
    return messages_receive(c->e->messages, call_out(c, 0), err);
}

int run_send(const struct call *c, struct error *err)
{
    return messages_send(c->e->messages, call_in(c, 0), err);
}
