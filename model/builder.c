/* See builder.h. */
#include "model/builder.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

struct builder builder_start(struct block *block, const struct model *m, struct block_shape shape,
                             enum part part)
{
    memset(block, 0, sizeof *block);
    block->part = part;
    block->model = m;
    block->parameter_count = parameters_of(m, part, shape.tp, block->parameters);
    block->input = block->output = block->stream = -1;
    return (struct builder){
        .block = block,
        .model = m,
        .B = shape.B,
        .T = shape.T,
        .S = shape.sequence_parallel ? shape.T / shape.tp : shape.T,
        .C = m->hidden,
        .H = m->heads / shape.tp,
        .K = m->kv_heads / shape.tp,
        .D = m->head_size,
        .F = m->ffn / shape.tp,
        .V = parameters_vocabulary_part(m, shape.tp),
        .tp = shape.tp,
        .sequence_parallel = shape.sequence_parallel,
        .dtype = shape.dtype,
        .wide = wide_dtype(shape.dtype),
        .part = part,
    };
}

int builder_tensor(struct builder *b, const char *name, enum role role, enum span span, enum dtype dtype,
                   int64_t d0, int64_t d1, int64_t d2)
{
    struct block *block = b->block;
    assert(block->tensor_count < BLOCK_TENSORS);
    int64_t bytes = dtype_bytes(dtype);
    int64_t dims[3] = {d0, d1, d2};
    for (int i = 0; i < 3; i++)
        if (dims[i] && !checked_mul(bytes, dims[i], &bytes))
            block->overflow = true;
    block->tensors[block->tensor_count] = (struct tensor){
        .name = name,
        .dims = {d0, d1, d2},
        .bytes = bytes,
        .dtype = dtype,
        .role = role,
        .span = span,
        .owner = b->part,
        .parameter = -1,
        .drop_bit = -1,
    };
    return block->tensor_count++;
}

int builder_activation(struct builder *b, const char *name, int64_t columns)
{
    return builder_tensor(b, name, ROLE_ACTIVATION, SPAN_LOCAL, b->dtype, b->B, b->T, columns);
}

/* (B, S, C): between the tensor-parallel regions. */
static int add_residual_sized(struct builder *b, const char *name, enum role role, enum span span)
{
    return builder_tensor(b, name, role, span, b->dtype, b->B, b->S, b->C);
}

int builder_narrow(struct builder *b, const char *name)
{
    return add_residual_sized(b, name, ROLE_ACTIVATION, SPAN_LOCAL);
}

/* (B, T, C) that collectives gather or are about to sum. */
static int add_exchanged(struct builder *b, const char *name)
{
    return builder_tensor(b, name, ROLE_COMMUNICATION, SPAN_LOCAL, b->dtype, b->B, b->T, b->C);
}

int builder_statistic(struct builder *b, const char *name)
{
    return builder_tensor(b, name, ROLE_ACTIVATION, SPAN_LOCAL, b->wide, b->B, b->S, 0);
}

int builder_stream(struct builder *b, bool ends)
{
    b->block->stream_ends = ends;
    int t = add_residual_sized(b, "d_stream", ROLE_ACTIVATION, SPAN_STREAM);
    b->block->stream = t;
    return t;
}

int builder_input(struct builder *b, enum role role)
{
    int t = add_residual_sized(b, "x", role, SPAN_INPUT);
    b->block->input = t;
    return t;
}

int builder_output(struct builder *b, enum role role)
{
    int t = add_residual_sized(b, "out", role, SPAN_OUTPUT);
    b->block->output = t;
    return t;
}

/* Index of parameter `id` in the list of `owner`, or -1 when this model has none. */
static int find_parameter(const struct builder *b, enum part owner, enum parameter_id id,
                          struct parameter *found)
{
    struct parameter list[PART_PARAMETERS_MAX];
    for (int i = 0, n = parameters_of(b->model, owner, b->tp, list); i < n; i++)
        if (list[i].id == id) {
            *found = list[i];
            return i;
        }
    return -1;
}

int builder_parameter_tensor(struct builder *b, enum part owner, enum parameter_id id, bool gradient)
{
    struct parameter p;
    int index = find_parameter(b, owner, id, &p);
    if (index < 0)
        return -1;
    int t = builder_tensor(b, p.name, gradient ? ROLE_GRADIENT : ROLE_PARAMETER,
                           gradient ? SPAN_GRADIENT : SPAN_WEIGHT, gradient ? b->wide : b->dtype, p.dims[0],
                           p.dims[1], 0);
    b->block->tensors[t].owner = owner;
    b->block->tensors[t].parameter = index;
    return t;
}

int builder_weight(struct builder *b, enum parameter_id id)
{
    return builder_parameter_tensor(b, b->part, id, false);
}

int builder_gradient(struct builder *b, enum parameter_id id)
{
    return builder_parameter_tensor(b, b->part, id, true);
}

void builder_op(struct builder *b, enum op_kind kind, unsigned flags, int in_count, struct slots in,
                int out_count, struct slots out)
{
    struct block *block = b->block;
    assert(block->op_count < BLOCK_OPS);
    struct op *op = &block->ops[block->op_count++];
    op->kind = kind;
    op->flags = flags;
    for (int i = 0; i < OP_INPUTS; i++)
        op->inputs[i] = i < in_count ? in.at[i] : -1;
    for (int i = 0; i < OP_OUTPUTS; i++)
        op->outputs[i] = i < out_count ? out.at[i] : -1;
}

void builder_end_block(struct builder *b)
{
    b->block->input_count = b->block->op_count;
}

void builder_end_forward(struct builder *b)
{
    b->block->forward_count = b->block->op_count;
}

/* Gives the tensors that `op` makes the next bit, unless an operation before it has numbered them (RoPE turns qkv in
 * place). */
static int number_outputs(struct block *block, const struct op *op, int bit)
{
    bool fresh = false;
    for (int i = 0; i < OP_OUTPUTS; i++) {
        struct tensor *t = op->outputs[i] >= 0 ? &block->tensors[op->outputs[i]] : NULL;
        if (t && t->span == SPAN_LOCAL && t->role != ROLE_COMMUNICATION && t->drop_bit < 0) {
            t->drop_bit = bit;
            fresh = true;
        }
    }
    return bit + fresh;
}

void builder_number_droppable(struct builder *b)
{
    struct block *block = b->block;
    int bit = 0;
    for (int i = 0; i < block->op_count; i++) {
        const struct op *op = &block->ops[i];
        if (op->outputs[0] != block->output)
            bit = number_outputs(block, op, bit);
    }
}

void builder_norm(struct builder *b, unsigned rms, int x, int w, int bias, int y, int mean, int rstd)
{
    builder_op(b, OP_NORM, rms, 3, IN(x, w, bias), 3, OUT(y, mean, rstd));
}

void builder_norm_behind(struct builder *b, int x, int w, int residual, int y, int rstd)
{
    builder_op(b, OP_NORM, OP_RMS, 4, IN(x, w, -1, residual), 3, OUT(y, -1, rstd));
}

void builder_matmul(struct builder *b, int x, int w, int bias, int residual, int y)
{
    builder_op(b, OP_MATMUL, 0, 4, IN(x, w, bias, residual), 1, OUT(y));
}

void builder_wgrad(struct builder *b, int dy, int x, int dw, int db)
{
    builder_op(b, OP_MATMUL_WGRAD, 0, 2, IN(dy, x), 2, OUT(dw, db));
}

void builder_dgrad(struct builder *b, unsigned add, int dy, int w, int dx)
{
    builder_op(b, OP_MATMUL_DGRAD, add, 2, IN(dy, w), 1, OUT(dx));
}

void builder_norm_grad(struct builder *b, unsigned flags, int dy, int x, int w, int mean, int rstd, int d,
                       int dw, int db)
{
    builder_op(b, OP_NORM_GRAD, flags, 5, IN(dy, x, w, mean, rstd), 3, OUT(d, dw, db));
}

void builder_exchange(struct builder *b, enum op_kind kind, int from, int to)
{
    builder_op(b, kind, 0, 1, IN(from), 1, OUT(to));
}

int builder_enter(struct builder *b, int part, const char *name)
{
    if (!b->sequence_parallel)
        return part;
    int whole = add_exchanged(b, name);
    builder_exchange(b, OP_ALL_GATHER, part, whole);
    return whole;
}

int builder_partial_place(struct builder *b, int y, const char *name)
{
    return b->sequence_parallel ? add_exchanged(b, name) : y;
}

void builder_leave(struct builder *b, int partial, int y)
{
    if (b->sequence_parallel)
        builder_exchange(b, OP_REDUCE_SCATTER, partial, y);
    else if (b->tp > 1)
        builder_exchange(b, OP_SUM_PARTIAL, y, y);
}

void builder_row_parallel(struct builder *b, int x, int w, int bias, int residual, int y)
{
    if (b->tp == 1) {
        builder_matmul(b, x, w, bias, residual, y);
        return;
    }
    int partial = builder_partial_place(b, y, "partial");
    builder_matmul(b, x, w, -1, -1, partial);
    builder_leave(b, partial, y);
    if (residual >= 0)
        builder_op(b, OP_RESIDUAL, 0, 3, IN(y, residual, bias), 1, OUT(y));
}

void builder_column_parallel_dgrad(struct builder *b, int dy, int w, int dx)
{
    int partial = builder_partial_place(b, dx, "partial");
    builder_dgrad(b, 0, dy, w, partial);
    builder_leave(b, partial, dx);
}

void builder_column_parallel_dgrad_to(struct builder *b, int dy, int w, int d, const char *name)
{
    if (b->tp == 1) {
        builder_dgrad(b, OP_ADD, dy, w, d);
        return;
    }
    int dx = builder_narrow(b, name);
    builder_column_parallel_dgrad(b, dy, w, dx);
    builder_op(b, OP_RESIDUAL, 0, 3, IN(d, dx, -1), 1, OUT(d));
}
