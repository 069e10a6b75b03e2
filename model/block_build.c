/* The blocks of each family, operation by operation. The order is the order of execution, chosen so that every tensor dies
 * as early as it can: a weight gradient comes before the input gradient of the same matmul, which frees the matmul's input
 * first. Gradients change in place wherever the mathematics allows. */
#include "model/block.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

/* The letters of block.h, as far as this rank has them: its heads, its part of the feed-forward and the vocabulary; S is T,
 * or the rank's part of it between the tensor-parallel regions. With the two types in use. */
struct builder {
    struct block *block;
    const struct model *model;
    int64_t B, T, S, C, H, K, D, F, V, tp;
    bool sequence_parallel;
    enum dtype dtype, wide;
    enum part part;
};

enum dtype wide_dtype(enum dtype dtype)
{
    return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

struct block_shape block_shape_of(const struct layout *layout)
{
    return (struct block_shape){
        .B = layout->micro_batch,
        .T = layout->seq_len,
        .dtype = precision_dtype(layout->precision),
        .tp = layout->tp,
        .sequence_parallel = layout->sequence_parallel,
    };
}

static struct builder builder_start(struct block *block, const struct model *m, struct block_shape shape,
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

static int add_tensor(struct builder *b, const char *name, enum role role, enum span span, enum dtype dtype,
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

/* (B, T, columns), made in forward; recomputation may drop it. */
static int add_activation(struct builder *b, const char *name, int64_t columns)
{
    return add_tensor(b, name, ROLE_ACTIVATION, SPAN_LOCAL, b->dtype, b->B, b->T, columns);
}

/* (B, S, C): between the tensor-parallel regions. */
static int add_residual_sized(struct builder *b, const char *name, enum role role, enum span span)
{
    return add_tensor(b, name, role, span, b->dtype, b->B, b->S, b->C);
}

static int add_narrow(struct builder *b, const char *name)
{
    return add_residual_sized(b, name, ROLE_ACTIVATION, SPAN_LOCAL);
}

/* (B, T, C) that collectives gather or are about to sum. */
static int add_exchanged(struct builder *b, const char *name)
{
    return add_tensor(b, name, ROLE_COMMUNICATION, SPAN_LOCAL, b->dtype, b->B, b->T, b->C);
}

/* (B, S) in the wide type: norm statistics. */
static int add_statistic(struct builder *b, const char *name)
{
    return add_tensor(b, name, ROLE_ACTIVATION, SPAN_LOCAL, b->wide, b->B, b->S, 0);
}

/* `ends`: no block below needs the gradient of this one's input. */
static int add_stream(struct builder *b, bool ends)
{
    b->block->stream_ends = ends;
    int t = add_residual_sized(b, "d_stream", ROLE_ACTIVATION, SPAN_STREAM);
    b->block->stream = t;
    return t;
}

static int add_input(struct builder *b, enum role role)
{
    int t = add_residual_sized(b, "x", role, SPAN_INPUT);
    b->block->input = t;
    return t;
}

static int add_output(struct builder *b, enum role role)
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

static int add_parameter_tensor(struct builder *b, enum part owner, enum parameter_id id, bool gradient)
{
    struct parameter p;
    int index = find_parameter(b, owner, id, &p);
    if (index < 0)
        return -1;
    int t = add_tensor(b, p.name, gradient ? ROLE_GRADIENT : ROLE_PARAMETER,
                       gradient ? SPAN_GRADIENT : SPAN_WEIGHT, gradient ? b->wide : b->dtype, p.dims[0],
                       p.dims[1], 0);
    b->block->tensors[t].owner = owner;
    b->block->tensors[t].parameter = index;
    return t;
}

static int weight(struct builder *b, enum parameter_id id)
{
    return add_parameter_tensor(b, b->part, id, false);
}

static int gradient(struct builder *b, enum parameter_id id)
{
    return add_parameter_tensor(b, b->part, id, true);
}

struct slots {
    int8_t at[OP_INPUTS];
};

#define IN(...)  ((struct slots){{__VA_ARGS__}})
#define OUT(...) ((struct slots){{__VA_ARGS__}})

/* Slots not written in IN() or OUT() are zero, so the count says how many were meant. */
static void add_op(struct builder *b, enum op_kind kind, unsigned flags, int in_count, struct slots in,
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

/* All that is left is backward, whole. */
static void end_block(struct builder *b)
{
    b->block->input_count = b->block->op_count;
}

static void end_forward(struct builder *b)
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

/* What recomputation may drop: all that forward makes in a layer, except what is made together with its output (the
 * encoder's last norm statistics), since making that again would make the output again. Tensors of one operation share a
 * bit: making one of them again makes all. What collectives exchange is never kept, and has none. */
static void number_droppable(struct builder *b)
{
    struct block *block = b->block;
    int bit = 0;
    for (int i = 0; i < block->op_count; i++) {
        const struct op *op = &block->ops[i];
        if (op->outputs[0] != block->output)
            bit = number_outputs(block, op, bit);
    }
}

static void add_norm(struct builder *b, unsigned rms, int x, int w, int bias, int y, int mean, int rstd)
{
    add_op(b, OP_NORM, rms, 3, IN(x, w, bias), 3, OUT(y, mean, rstd));
}

static void add_matmul(struct builder *b, int x, int w, int bias, int residual, int y)
{
    add_op(b, OP_MATMUL, 0, 4, IN(x, w, bias, residual), 1, OUT(y));
}

static void add_wgrad(struct builder *b, int dy, int x, int dw, int db)
{
    add_op(b, OP_MATMUL_WGRAD, 0, 2, IN(dy, x), 2, OUT(dw, db));
}

/* dx = dy w, or dx += dy w. */
static void add_dgrad(struct builder *b, unsigned add, int dy, int w, int dx)
{
    add_op(b, OP_MATMUL_DGRAD, add, 2, IN(dy, w), 1, OUT(dx));
}

static void add_norm_grad(struct builder *b, unsigned flags, int dy, int x, int w, int mean, int rstd, int d,
                          int dw, int db)
{
    add_op(b, OP_NORM_GRAD, flags, 5, IN(dy, x, w, mean, rstd), 3, OUT(d, dw, db));
}

/* The regions. Entering one, a part of the sequence becomes all of it; leaving one, partial sums over the ranks' inputs
 * become the sum, of which each rank keeps its part. Without sequence parallelism only the sum is left; with one rank,
 * nothing. */

static void add_exchange(struct builder *b, enum op_kind kind, int from, int to)
{
    add_op(b, kind, 0, 1, IN(from), 1, OUT(to));
}

/* The whole of `part`. */
static int enter(struct builder *b, int part, const char *name)
{
    if (!b->sequence_parallel)
        return part;
    int whole = add_exchanged(b, name);
    add_exchange(b, OP_ALL_GATHER, part, whole);
    return whole;
}

/* Where a product that has to be summed over ranks may write, when the sum goes to `y`. */
static int partial_place(struct builder *b, int y, const char *name)
{
    return b->sequence_parallel ? add_exchanged(b, name) : y;
}

static void leave(struct builder *b, int partial, int y)
{
    if (b->sequence_parallel)
        add_exchange(b, OP_REDUCE_SCATTER, partial, y);
    else if (b->tp > 1)
        add_exchange(b, OP_SUM_PARTIAL, y, y);
}

/* y = residual + bias + x w^T, where each rank has some of the columns of x and w. */
static void add_row_parallel(struct builder *b, int x, int w, int bias, int residual, int y)
{
    if (b->tp == 1) {
        add_matmul(b, x, w, bias, residual, y);
        return;
    }
    int partial = partial_place(b, y, "partial");
    add_matmul(b, x, w, -1, -1, partial);
    leave(b, partial, y);
    add_op(b, OP_RESIDUAL, 0, 3, IN(y, residual, bias), 1, OUT(y));
}

/* dx = dy w, where each rank has some of the columns of dy and rows of w. */
static void add_column_parallel_dgrad(struct builder *b, int dy, int w, int dx)
{
    int partial = partial_place(b, dx, "partial");
    add_dgrad(b, 0, dy, w, partial);
    leave(b, partial, dx);
}

/* The same, added to d. */
static void add_column_parallel_dgrad_to(struct builder *b, int dy, int w, int d, const char *name)
{
    if (b->tp == 1) {
        add_dgrad(b, OP_ADD, dy, w, d);
        return;
    }
    int dx = add_narrow(b, name);
    add_column_parallel_dgrad(b, dy, w, dx);
    add_op(b, OP_RESIDUAL, 0, 3, IN(d, dx, -1), 1, OUT(d));
}

void block_build_embed(struct block *block, const struct model *model, struct block_shape shape)
{
    struct builder b = builder_start(block, model, shape, PART_EMBED);
    if (model->family == MODEL_ENCODER) {
        int out = add_output(&b, ROLE_INPUT);
        add_op(&b, OP_LOAD_FEATURES, 0, 0, IN(0), 1, OUT(out));
        end_forward(&b);
        end_block(&b);
        return;
    }
    int wte = weight(&b, PARAM_WTE), wpe = weight(&b, PARAM_WPE);
    int tokens = add_tensor(&b, "tokens", ROLE_INPUT, SPAN_LOCAL, DTYPE_I32, b.B, b.T, 0);
    int out = add_output(&b, ROLE_ACTIVATION);
    add_op(&b, OP_LOAD_TOKENS, 0, 0, IN(0), 1, OUT(tokens));
    int partial = partial_place(&b, out, "partial");
    add_op(&b, OP_EMBED, 0, 3, IN(tokens, wte, wpe), 1, OUT(partial));
    leave(&b, partial, out);
    end_forward(&b);
    int d = enter(&b, add_stream(&b, true), "d_whole");
    int dwte = gradient(&b, PARAM_WTE), dwpe = gradient(&b, PARAM_WPE);
    add_op(&b, OP_EMBED_GRAD, model->tied ? OP_ADD_GRAD : 0, 2, IN(d, tokens), 2, OUT(dwte, dwpe));
    end_block(&b);
}

void block_build_receive(struct block *block, const struct model *model, struct block_shape shape)
{
    struct builder b = builder_start(block, model, shape, PART_RECEIVE);
    add_op(&b, OP_RECEIVE, 0, 0, IN(0), 1, OUT(add_output(&b, ROLE_ACTIVATION)));
    end_forward(&b);
    add_op(&b, OP_SEND, 0, 1, IN(add_stream(&b, true)), 0, OUT(0));
    end_block(&b);
}

void block_build_send(struct block *block, const struct model *model, struct block_shape shape)
{
    struct builder b = builder_start(block, model, shape, PART_SEND);
    add_op(&b, OP_SEND, 0, 1, IN(add_input(&b, ROLE_ACTIVATION)), 0, OUT(0));
    end_forward(&b);
    add_op(&b, OP_RECEIVE, 0, 0, IN(0), 1, OUT(add_stream(&b, false)));
    end_block(&b);
}

/* The loss, and the gradient of the logits in their place. Ranks that share the vocabulary exchange a maximum and two sums
 * per position, never the logits. */
static void add_loss(struct builder *b, int logits, int targets, int loss)
{
    if (b->tp == 1) {
        add_op(b, OP_CROSS_ENTROPY, 0, 2, IN(logits, targets), 2, OUT(logits, loss));
        return;
    }
    int max = add_tensor(b, "logit_max", ROLE_COMMUNICATION, SPAN_LOCAL, b->wide, b->B, b->T, 0);
    int sums = add_tensor(b, "logit_sums", ROLE_COMMUNICATION, SPAN_LOCAL, b->wide, 2, b->B, b->T);
    add_op(b, OP_LOGIT_MAX, 0, 2, IN(logits, targets), 1, OUT(max));
    add_exchange(b, OP_MAX_PARTIAL, max, max);
    add_op(b, OP_LOGIT_SUMS, 0, 3, IN(logits, targets, max), 1, OUT(sums));
    add_exchange(b, OP_SUM_PARTIAL, sums, sums);
    add_op(b, OP_CROSS_ENTROPY_SHARDED, 0, 4, IN(logits, targets, max, sums), 2, OUT(logits, loss));
}

void block_build_head(struct block *block, const struct model *model, struct block_shape shape)
{
    struct builder b = builder_start(block, model, shape, PART_HEAD);
    bool encoder = model->family == MODEL_ENCODER;
    unsigned rms = model->family == MODEL_LLAMA ? OP_RMS : 0;
    enum part owner = model->tied ? PART_EMBED : PART_HEAD;
    enum parameter_id matrix = model->tied ? PARAM_WTE : PARAM_HEAD;

    int x = add_input(&b, ROLE_ACTIVATION);
    int w = add_parameter_tensor(&b, owner, matrix, false), bias = weight(&b, PARAM_HEAD_BIAS);
    int targets = add_tensor(&b, "targets", ROLE_INPUT, SPAN_LOCAL, DTYPE_I32, b.B, b.T, 0);
    int norm_w = weight(&b, PARAM_FINAL_NORM), norm_b = weight(&b, PARAM_FINAL_NORM_BIAS);
    int y = x, mean = -1, rstd = -1;
    if (!encoder) {
        y = add_narrow(&b, "final_norm");
        mean = rms ? -1 : add_statistic(&b, "final_mean");
        rstd = add_statistic(&b, "final_rstd");
    }
    int logits = add_activation(&b, "logits", b.V);
    int loss = add_tensor(&b, "loss", ROLE_ACTIVATION, SPAN_LOSS, b.wide, 1, 0, 0);
    if (!encoder)
        add_norm(&b, rms, x, norm_w, norm_b, y, mean, rstd);
    int whole = enter(&b, y, "final_whole");
    add_matmul(&b, whole, w, bias, -1, logits);
    add_op(&b, OP_LOAD_TARGETS, 0, 0, IN(0), 1, OUT(targets));
    add_loss(&b, logits, targets, loss);
    end_forward(&b);

    int d = add_stream(&b, false);
    int dw = add_parameter_tensor(&b, owner, matrix, true), db = gradient(&b, PARAM_HEAD_BIAS);
    add_wgrad(&b, logits, whole, dw, db);
    add_column_parallel_dgrad(&b, logits, w, d);
    if (!encoder)
        add_norm_grad(&b, rms, d, x, norm_w, mean, rstd, d, gradient(&b, PARAM_FINAL_NORM),
                      gradient(&b, PARAM_FINAL_NORM_BIAS));
    end_block(&b);
}

/* What the attention half of a layer leaves behind for its backward half. */
struct attention_tensors {
    int whole, qkv_w, proj_w, qkv, att, lse;
};

/* y = x + proj(attention(qkv(input))) */
static struct attention_tensors attention_forward(struct builder *b, int input, int residual, int y)
{
    struct attention_tensors a = {.qkv_w = weight(b, PARAM_QKV), .proj_w = weight(b, PARAM_PROJ)};
    int qkv_bias = weight(b, PARAM_QKV_BIAS), proj_bias = weight(b, PARAM_PROJ_BIAS);
    a.qkv = add_activation(b, "qkv", (b->H + 2 * b->K) * b->D);
    a.att = add_activation(b, "attention", b->H * b->D);
    a.lse = add_tensor(b, "lse", ROLE_ACTIVATION, SPAN_LOCAL, b->wide, b->B, b->H, b->T);
    a.whole = enter(b, input, "whole1");
    add_matmul(b, a.whole, a.qkv_w, qkv_bias, -1, a.qkv);
    if (b->model->family == MODEL_LLAMA)
        add_op(b, OP_ROPE, 0, 1, IN(a.qkv), 1, OUT(a.qkv));
    add_op(b, OP_ATTENTION, b->model->family == MODEL_ENCODER ? 0 : OP_CAUSAL, 1, IN(a.qkv), 2,
           OUT(a.att, a.lse));
    add_row_parallel(b, a.att, a.proj_w, proj_bias, residual, y);
    return a;
}

/* From d, the gradient of y, to dqkv, the gradient of the packed heads; weight gradients of proj on the way. */
static int attention_backward(struct builder *b, const struct attention_tensors *a, int d)
{
    bool rope = b->model->family == MODEL_LLAMA;
    int datt = add_activation(b, "d_attention", b->H * b->D);
    int dqkv = add_activation(b, "d_qkv", (b->H + 2 * b->K) * b->D);
    int delta = add_tensor(b, "delta", ROLE_WORKSPACE, SPAN_LOCAL, b->wide, b->B, b->H, b->T);
    int whole = enter(b, d, "d_whole1");
    add_wgrad(b, whole, a->att, gradient(b, PARAM_PROJ), gradient(b, PARAM_PROJ_BIAS));
    add_dgrad(b, 0, whole, a->proj_w, datt);
    add_op(b, OP_ATTENTION_GRAD, b->model->family == MODEL_ENCODER ? 0 : OP_CAUSAL, 4,
           IN(datt, a->qkv, a->att, a->lse), 2, OUT(dqkv, delta));
    if (rope)
        add_op(b, OP_ROPE, OP_INVERSE, 1, IN(dqkv), 1, OUT(dqkv));
    return dqkv;
}

struct mlp_tensors {
    int whole, up_w, down_w, up, act;
};

/* y = residual + down(activation(up(input))) */
static struct mlp_tensors mlp_forward(struct builder *b, int input, int residual, int y)
{
    bool gated = b->model->family == MODEL_LLAMA;
    struct mlp_tensors m = {.up_w = weight(b, PARAM_UP), .down_w = weight(b, PARAM_DOWN)};
    int up_bias = weight(b, PARAM_UP_BIAS), down_bias = weight(b, PARAM_DOWN_BIAS);
    m.up = add_activation(b, gated ? "gate_up" : "up", gated ? 2 * b->F : b->F);
    m.act = add_activation(b, gated ? "swiglu" : "gelu", b->F);
    m.whole = enter(b, input, "whole2");
    add_matmul(b, m.whole, m.up_w, up_bias, -1, m.up);
    add_op(b, gated ? OP_SWIGLU : OP_GELU, 0, 1, IN(m.up), 1, OUT(m.act));
    add_row_parallel(b, m.act, m.down_w, down_bias, residual, y);
    return m;
}

/* From d, the gradient of y, to the gradient of up's output (returned); weight gradients of down on the way. */
static int mlp_backward(struct builder *b, const struct mlp_tensors *m, int d)
{
    bool gated = b->model->family == MODEL_LLAMA;
    int dact = add_activation(b, gated ? "d_swiglu" : "d_gelu", b->F);
    int whole = enter(b, d, "d_whole2");
    add_wgrad(b, whole, m->act, gradient(b, PARAM_DOWN), gradient(b, PARAM_DOWN_BIAS));
    add_dgrad(b, 0, whole, m->down_w, dact);
    if (!gated) {
        add_op(b, OP_GELU_GRAD, 0, 2, IN(dact, m->up), 1, OUT(dact));
        return dact;
    }
    add_op(b, OP_SWIGLU_GRAD, 0, 2, IN(dact, m->up), 1, OUT(m->up));
    return m->up;
}

/* x -> x + attention(norm(x)) -> + mlp(norm(.)): GPT-2 and Llama. */
static void build_pre_norm(struct builder *b)
{
    unsigned rms = b->model->family == MODEL_LLAMA ? OP_RMS : 0;
    int x = add_input(b, ROLE_ACTIVATION), out = add_output(b, ROLE_ACTIVATION);
    int norm1_w = weight(b, PARAM_NORM1), norm2_w = weight(b, PARAM_NORM2);
    int norm1 = add_narrow(b, "norm1");
    int mean1 = rms ? -1 : add_statistic(b, "mean1"), rstd1 = add_statistic(b, "rstd1");
    int mid = add_narrow(b, "mid");
    add_norm(b, rms, x, norm1_w, weight(b, PARAM_NORM1_BIAS), norm1, mean1, rstd1);
    struct attention_tensors a = attention_forward(b, norm1, x, mid);
    int norm2 = add_narrow(b, "norm2");
    int mean2 = rms ? -1 : add_statistic(b, "mean2"), rstd2 = add_statistic(b, "rstd2");
    add_norm(b, rms, mid, norm2_w, weight(b, PARAM_NORM2_BIAS), norm2, mean2, rstd2);
    struct mlp_tensors m = mlp_forward(b, norm2, mid, out);
    end_forward(b);
    number_droppable(b);

    int d = add_stream(b, false);
    int dup = mlp_backward(b, &m, d);
    int dnorm2 = add_narrow(b, "d_norm2");
    add_wgrad(b, dup, m.whole, gradient(b, PARAM_UP), gradient(b, PARAM_UP_BIAS));
    add_column_parallel_dgrad(b, dup, m.up_w, dnorm2);
    add_norm_grad(b, rms | OP_ADD, dnorm2, mid, norm2_w, mean2, rstd2, d, gradient(b, PARAM_NORM2),
                  gradient(b, PARAM_NORM2_BIAS));
    int dqkv = attention_backward(b, &a, d);
    int dnorm1 = add_narrow(b, "d_norm1");
    add_wgrad(b, dqkv, a.whole, gradient(b, PARAM_QKV), gradient(b, PARAM_QKV_BIAS));
    add_column_parallel_dgrad(b, dqkv, a.qkv_w, dnorm1);
    add_norm_grad(b, rms | OP_ADD, dnorm1, x, norm1_w, mean1, rstd1, d, gradient(b, PARAM_NORM1),
                  gradient(b, PARAM_NORM1_BIAS));
}

/* x -> norm(x + attention(x)) -> norm(. + mlp(.)): the encoder. */
static void build_post_norm(struct builder *b, bool first)
{
    int x = add_input(b, first ? ROLE_INPUT : ROLE_ACTIVATION), out = add_output(b, ROLE_ACTIVATION);
    int norm1_w = weight(b, PARAM_NORM1), norm2_w = weight(b, PARAM_NORM2);
    int sum1 = add_narrow(b, "sum1"), norm1 = add_narrow(b, "norm1");
    int mean1 = add_statistic(b, "mean1"), rstd1 = add_statistic(b, "rstd1");
    int sum2 = add_narrow(b, "sum2");
    int mean2 = add_statistic(b, "mean2"), rstd2 = add_statistic(b, "rstd2");
    struct attention_tensors a = attention_forward(b, x, x, sum1);
    add_norm(b, 0, sum1, norm1_w, weight(b, PARAM_NORM1_BIAS), norm1, mean1, rstd1);
    struct mlp_tensors m = mlp_forward(b, norm1, norm1, sum2);
    add_norm(b, 0, sum2, norm2_w, weight(b, PARAM_NORM2_BIAS), out, mean2, rstd2);
    end_forward(b);
    number_droppable(b);

    int d = add_stream(b, first);
    add_norm_grad(b, 0, d, sum2, norm2_w, mean2, rstd2, d, gradient(b, PARAM_NORM2),
                  gradient(b, PARAM_NORM2_BIAS));
    int dup = mlp_backward(b, &m, d);
    add_wgrad(b, dup, m.whole, gradient(b, PARAM_UP), gradient(b, PARAM_UP_BIAS));
    add_column_parallel_dgrad_to(b, dup, m.up_w, d, "d_norm1");
    add_norm_grad(b, 0, d, sum1, norm1_w, mean1, rstd1, d, gradient(b, PARAM_NORM1),
                  gradient(b, PARAM_NORM1_BIAS));
    int dqkv = attention_backward(b, &a, d);
    add_wgrad(b, dqkv, a.whole, gradient(b, PARAM_QKV), gradient(b, PARAM_QKV_BIAS));
    if (!first)
        add_column_parallel_dgrad_to(b, dqkv, a.qkv_w, d, "d_x");
}

void block_build_layer(struct block *block, const struct model *model, struct block_shape shape, bool first)
{
    struct builder b = builder_start(block, model, shape, PART_LAYER);
    if (model->family == MODEL_ENCODER)
        build_post_norm(&b, first);
    else
        build_pre_norm(&b);
    end_block(&b);
}

bool block_op_writes(const struct op *op, int tensor)
{
    for (int i = 0; i < OP_OUTPUTS; i++)
        if (op->outputs[i] == tensor)
            return true;
    return false;
}

const char *op_kind_name(enum op_kind kind)
{
    static const char *const names[OP_KINDS] = {
        [OP_LOAD_TOKENS] = "load_tokens",
        [OP_LOAD_FEATURES] = "load_features",
        [OP_LOAD_TARGETS] = "load_targets",
        [OP_EMBED] = "embed",
        [OP_EMBED_GRAD] = "embed_grad",
        [OP_NORM] = "norm",
        [OP_NORM_GRAD] = "norm_grad",
        [OP_MATMUL] = "matmul",
        [OP_MATMUL_DGRAD] = "matmul_dgrad",
        [OP_MATMUL_WGRAD] = "matmul_wgrad",
        [OP_ROPE] = "rope",
        [OP_ATTENTION] = "attention",
        [OP_ATTENTION_GRAD] = "attention_grad",
        [OP_GELU] = "gelu",
        [OP_GELU_GRAD] = "gelu_grad",
        [OP_SWIGLU] = "swiglu",
        [OP_SWIGLU_GRAD] = "swiglu_grad",
        [OP_CROSS_ENTROPY] = "cross_entropy",
        [OP_ALL_GATHER] = "all_gather",
        [OP_REDUCE_SCATTER] = "reduce_scatter",
        [OP_SUM_PARTIAL] = "sum_partial",
        [OP_MAX_PARTIAL] = "max_partial",
        [OP_RESIDUAL] = "residual",
        [OP_LOGIT_MAX] = "logit_max",
        [OP_LOGIT_SUMS] = "logit_sums",
        [OP_CROSS_ENTROPY_SHARDED] = "cross_entropy_sharded",
        [OP_RECEIVE] = "receive",
        [OP_SEND] = "send",
        [OP_COPY] = "copy",
        [OP_ALL_REDUCE] = "all_reduce",
        [OP_SCATTER_GRADIENTS] = "scatter_gradients",
        [OP_REDUCE_LOSS] = "reduce_loss",
        [OP_WAIT] = "wait",
        [OP_REDUCE_NORMS] = "reduce_norms",
        [OP_REDUCE_TIED] = "reduce_tied",
        [OP_SQUARE_SUM] = "square_sum",
        [OP_REDUCE_SQUARES] = "reduce_squares",
        [OP_ADAMW] = "adamw",
        [OP_GATHER_WEIGHTS] = "gather_weights",
    };
    return names[kind];
}
