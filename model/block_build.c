/* The blocks of each family, operation by operation. The order is the order of execution, chosen so that every tensor dies
 * as early as it can: a weight gradient comes before the input gradient of the same matmul, which frees the matmul's input
 * first. Gradients change in place wherever the mathematics allows. */
#include "model/block.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

/* The letters of block.h, with the two types in use. */
struct builder {
    struct block *block;
    const struct model *model;
    int64_t B, T, C, H, K, D, F, V;
    enum dtype dtype, wide;
    enum part part;
};

enum dtype wide_dtype(enum dtype dtype)
{
    return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

static struct builder builder_start(struct block *block, const struct model *m, struct block_shape shape,
                                    enum part part)
{
    memset(block, 0, sizeof *block);
    block->part = part;
    block->model = m;
    block->parameter_count = parameters_of(m, part, block->parameters);
    block->input = block->output = block->stream = -1;
    return (struct builder){
        .block = block,
        .model = m,
        .B = shape.B,
        .T = shape.T,
        .C = m->hidden,
        .H = m->heads,
        .K = m->kv_heads,
        .D = m->head_size,
        .F = m->ffn,
        .V = m->vocab,
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

/* (B, T) in the wide type: norm statistics. */
static int add_statistic(struct builder *b, const char *name)
{
    return add_tensor(b, name, ROLE_ACTIVATION, SPAN_LOCAL, b->wide, b->B, b->T, 0);
}

/* `ends`: no block below needs the gradient of this one's input. */
static int add_stream(struct builder *b, bool ends)
{
    b->block->stream_ends = ends;
    int t = add_tensor(b, "d", ROLE_ACTIVATION, SPAN_STREAM, b->dtype, b->B, b->T, b->C);
    b->block->stream = t;
    return t;
}

static int add_input(struct builder *b, enum role role)
{
    int t = add_tensor(b, "x", role, SPAN_INPUT, b->dtype, b->B, b->T, b->C);
    b->block->input = t;
    return t;
}

static int add_output(struct builder *b, enum role role)
{
    int t = add_tensor(b, "out", role, SPAN_OUTPUT, b->dtype, b->B, b->T, b->C);
    b->block->output = t;
    return t;
}

/* Index of parameter `id` in the list of `owner`, or -1 when this model has none. */
static int find_parameter(const struct model *m, enum part owner, enum parameter_id id,
                          struct parameter *found)
{
    struct parameter list[PART_PARAMETERS_MAX];
    for (int i = 0, n = parameters_of(m, owner, list); i < n; i++)
        if (list[i].id == id) {
            *found = list[i];
            return i;
        }
    return -1;
}

static int add_parameter_tensor(struct builder *b, enum part owner, enum parameter_id id, bool gradient)
{
    struct parameter p;
    int index = find_parameter(b->model, owner, id, &p);
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
        if (t && t->span == SPAN_LOCAL && t->drop_bit < 0) {
            t->drop_bit = bit;
            fresh = true;
        }
    }
    return bit + fresh;
}

/* What recomputation may drop: all that forward makes in a layer, except what is made together with its output (the
 * encoder's last norm statistics), since making that again would make the output again. Tensors of one operation share a
 * bit: making one of them again makes all. */
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

void block_build_embed(struct block *block, const struct model *model, struct block_shape shape)
{
    struct builder b = builder_start(block, model, shape, PART_EMBED);
    if (model->family == MODEL_ENCODER) {
        int out = add_output(&b, ROLE_INPUT);
        add_op(&b, OP_LOAD_FEATURES, 0, 0, IN(0), 1, OUT(out));
        end_forward(&b);
        return;
    }
    int wte = weight(&b, PARAM_WTE), wpe = weight(&b, PARAM_WPE);
    int tokens = add_tensor(&b, "tokens", ROLE_INPUT, SPAN_LOCAL, DTYPE_I32, b.B, b.T, 0);
    int out = add_output(&b, ROLE_ACTIVATION);
    add_op(&b, OP_LOAD_TOKENS, 0, 0, IN(0), 1, OUT(tokens));
    add_op(&b, OP_EMBED, 0, 3, IN(tokens, wte, wpe), 1, OUT(out));
    end_forward(&b);
    int d = add_stream(&b, true);
    int dwte = gradient(&b, PARAM_WTE), dwpe = gradient(&b, PARAM_WPE);
    add_op(&b, OP_EMBED_GRAD, model->tied ? OP_ADD_GRAD : 0, 2, IN(d, tokens), 2, OUT(dwte, dwpe));
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
        y = add_activation(&b, "final_norm", b.C);
        mean = rms ? -1 : add_statistic(&b, "final_mean");
        rstd = add_statistic(&b, "final_rstd");
    }
    int logits = add_activation(&b, "logits", b.V);
    int loss = add_tensor(&b, "loss", ROLE_ACTIVATION, SPAN_LOSS, b.wide, 1, 0, 0);
    if (!encoder)
        add_norm(&b, rms, x, norm_w, norm_b, y, mean, rstd);
    add_matmul(&b, y, w, bias, -1, logits);
    add_op(&b, OP_LOAD_TARGETS, 0, 0, IN(0), 1, OUT(targets));
    add_op(&b, OP_CROSS_ENTROPY, 0, 2, IN(logits, targets), 2, OUT(logits, loss));
    end_forward(&b);

    int d = add_stream(&b, false);
    int dw = add_parameter_tensor(&b, owner, matrix, true), db = gradient(&b, PARAM_HEAD_BIAS);
    add_wgrad(&b, logits, y, dw, db);
    add_dgrad(&b, 0, logits, w, d);
    if (!encoder)
        add_norm_grad(&b, rms, d, x, norm_w, mean, rstd, d, gradient(&b, PARAM_FINAL_NORM),
                      gradient(&b, PARAM_FINAL_NORM_BIAS));
}

/* What the attention half of a layer leaves behind for its backward half. */
struct attention_tensors {
    int qkv_w, proj_w, qkv, att, lse;
};

/* y = x + proj(attention(qkv(input))) */
static struct attention_tensors attention_forward(struct builder *b, int input, int residual, int y)
{
    struct attention_tensors a = {.qkv_w = weight(b, PARAM_QKV), .proj_w = weight(b, PARAM_PROJ)};
    int qkv_bias = weight(b, PARAM_QKV_BIAS), proj_bias = weight(b, PARAM_PROJ_BIAS);
    a.qkv = add_activation(b, "qkv", (b->H + 2 * b->K) * b->D);
    a.att = add_activation(b, "attention", b->H * b->D);
    a.lse = add_tensor(b, "lse", ROLE_ACTIVATION, SPAN_LOCAL, b->wide, b->B, b->H, b->T);
    add_matmul(b, input, a.qkv_w, qkv_bias, -1, a.qkv);
    if (b->model->family == MODEL_LLAMA)
        add_op(b, OP_ROPE, 0, 1, IN(a.qkv), 1, OUT(a.qkv));
    add_op(b, OP_ATTENTION, b->model->family == MODEL_ENCODER ? 0 : OP_CAUSAL, 1, IN(a.qkv), 2,
           OUT(a.att, a.lse));
    add_matmul(b, a.att, a.proj_w, proj_bias, residual, y);
    return a;
}

/* From d, the gradient of y, to dqkv, the gradient of the packed heads; weight gradients of proj on the way. */
static int attention_backward(struct builder *b, const struct attention_tensors *a, int d)
{
    bool rope = b->model->family == MODEL_LLAMA;
    int datt = add_activation(b, "d_attention", b->H * b->D);
    int dqkv = add_activation(b, "d_qkv", (b->H + 2 * b->K) * b->D);
    int delta = add_tensor(b, "delta", ROLE_WORKSPACE, SPAN_LOCAL, b->wide, b->B, b->H, b->T);
    add_wgrad(b, d, a->att, gradient(b, PARAM_PROJ), gradient(b, PARAM_PROJ_BIAS));
    add_dgrad(b, 0, d, a->proj_w, datt);
    add_op(b, OP_ATTENTION_GRAD, b->model->family == MODEL_ENCODER ? 0 : OP_CAUSAL, 4,
           IN(datt, a->qkv, a->att, a->lse), 2, OUT(dqkv, delta));
    if (rope)
        add_op(b, OP_ROPE, OP_INVERSE, 1, IN(dqkv), 1, OUT(dqkv));
    return dqkv;
}

struct mlp_tensors {
    int up_w, down_w, up, act;
};

/* y = residual + down(activation(up(input))) */
static struct mlp_tensors mlp_forward(struct builder *b, int input, int residual, int y)
{
    bool gated = b->model->family == MODEL_LLAMA;
    struct mlp_tensors m = {.up_w = weight(b, PARAM_UP), .down_w = weight(b, PARAM_DOWN)};
    int up_bias = weight(b, PARAM_UP_BIAS), down_bias = weight(b, PARAM_DOWN_BIAS);
    m.up = add_activation(b, gated ? "gate_up" : "up", gated ? 2 * b->F : b->F);
    m.act = add_activation(b, gated ? "swiglu" : "gelu", b->F);
    add_matmul(b, input, m.up_w, up_bias, -1, m.up);
    add_op(b, gated ? OP_SWIGLU : OP_GELU, 0, 1, IN(m.up), 1, OUT(m.act));
    add_matmul(b, m.act, m.down_w, down_bias, residual, y);
    return m;
}

/* From d, the gradient of y, to the gradient of up's output (returned); weight gradients of down on the way. */
static int mlp_backward(struct builder *b, const struct mlp_tensors *m, int d)
{
    bool gated = b->model->family == MODEL_LLAMA;
    int dact = add_activation(b, gated ? "d_swiglu" : "d_gelu", b->F);
    add_wgrad(b, d, m->act, gradient(b, PARAM_DOWN), gradient(b, PARAM_DOWN_BIAS));
    add_dgrad(b, 0, d, m->down_w, dact);
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
    int norm1 = add_activation(b, "norm1", b->C);
    int mean1 = rms ? -1 : add_statistic(b, "mean1"), rstd1 = add_statistic(b, "rstd1");
    int mid = add_activation(b, "mid", b->C);
    add_norm(b, rms, x, norm1_w, weight(b, PARAM_NORM1_BIAS), norm1, mean1, rstd1);
    struct attention_tensors a = attention_forward(b, norm1, x, mid);
    int norm2 = add_activation(b, "norm2", b->C);
    int mean2 = rms ? -1 : add_statistic(b, "mean2"), rstd2 = add_statistic(b, "rstd2");
    add_norm(b, rms, mid, norm2_w, weight(b, PARAM_NORM2_BIAS), norm2, mean2, rstd2);
    struct mlp_tensors m = mlp_forward(b, norm2, mid, out);
    end_forward(b);
    number_droppable(b);

    int d = add_stream(b, false);
    int dup = mlp_backward(b, &m, d);
    int dnorm2 = add_activation(b, "d_norm2", b->C);
    add_wgrad(b, dup, norm2, gradient(b, PARAM_UP), gradient(b, PARAM_UP_BIAS));
    add_dgrad(b, 0, dup, m.up_w, dnorm2);
    add_norm_grad(b, rms | OP_ADD, dnorm2, mid, norm2_w, mean2, rstd2, d, gradient(b, PARAM_NORM2),
                  gradient(b, PARAM_NORM2_BIAS));
    int dqkv = attention_backward(b, &a, d);
    int dnorm1 = add_activation(b, "d_norm1", b->C);
    add_wgrad(b, dqkv, norm1, gradient(b, PARAM_QKV), gradient(b, PARAM_QKV_BIAS));
    add_dgrad(b, 0, dqkv, a.qkv_w, dnorm1);
    add_norm_grad(b, rms | OP_ADD, dnorm1, x, norm1_w, mean1, rstd1, d, gradient(b, PARAM_NORM1),
                  gradient(b, PARAM_NORM1_BIAS));
}

/* x -> norm(x + attention(x)) -> norm(. + mlp(.)): the encoder. */
static void build_post_norm(struct builder *b, bool first)
{
    int x = add_input(b, first ? ROLE_INPUT : ROLE_ACTIVATION), out = add_output(b, ROLE_ACTIVATION);
    int norm1_w = weight(b, PARAM_NORM1), norm2_w = weight(b, PARAM_NORM2);
    int sum1 = add_activation(b, "sum1", b->C), norm1 = add_activation(b, "norm1", b->C);
    int mean1 = add_statistic(b, "mean1"), rstd1 = add_statistic(b, "rstd1");
    int sum2 = add_activation(b, "sum2", b->C);
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
    add_wgrad(b, dup, norm1, gradient(b, PARAM_UP), gradient(b, PARAM_UP_BIAS));
    add_dgrad(b, OP_ADD, dup, m.up_w, d);
    add_norm_grad(b, 0, d, sum1, norm1_w, mean1, rstd1, d, gradient(b, PARAM_NORM1),
                  gradient(b, PARAM_NORM1_BIAS));
    int dqkv = attention_backward(b, &a, d);
    add_wgrad(b, dqkv, x, gradient(b, PARAM_QKV), gradient(b, PARAM_QKV_BIAS));
    if (!first)
        add_dgrad(b, OP_ADD, dqkv, a.qkv_w, d);
}

void block_build_layer(struct block *block, const struct model *model, struct block_shape shape, bool first)
{
    struct builder b = builder_start(block, model, shape, PART_LAYER);
    if (model->family == MODEL_ENCODER)
        build_post_norm(&b, first);
    else
        build_pre_norm(&b);
}

const char *op_kind_name(enum op_kind kind)
{
    static const char *const names[OP_KINDS] = {
        "load_tokens",    "load_features", "load_targets", "embed",        "embed_grad",  "norm",
        "norm_grad",      "matmul",        "matmul_dgrad", "matmul_wgrad", "rope",        "attention",
        "attention_grad", "gelu",          "gelu_grad",    "swiglu",       "swiglu_grad", "cross_entropy",
        "all_reduce",     "wait",          "square_sum",   "adamw",
    };
    return names[kind];
}
