/* The blocks of each family, operation by operation. The order is the order of execution, chosen so that every tensor dies
 * as early as it can: a weight gradient comes before the input gradient of the same matmul, which frees the matmul's input
 * first. Gradients change in place wherever the mathematics allows. */
#include "model/block.h"

#include "model/builder.h"

void block_build_embed(struct block *block, const struct model *model, struct block_shape shape)
{
    struct builder b = builder_start(block, model, shape, PART_EMBED);
    if (model->family == MODEL_ENCODER) {
        int out = builder_output(&b, ROLE_INPUT);
        builder_op(&b, OP_LOAD_FEATURES, 0, 0, IN(0), 1, OUT(out));
        builder_end_forward(&b);
        builder_end_block(&b);
        return;
    }
    int wte = builder_weight(&b, PARAM_WTE), wpe = builder_weight(&b, PARAM_WPE);
    int tokens = builder_tensor(&b, "tokens", ROLE_INPUT, SPAN_LOCAL, DTYPE_I32, b.B, b.T, 0);
    int out = builder_output(&b, ROLE_ACTIVATION);
    builder_op(&b, OP_LOAD_TOKENS, 0, 0, IN(0), 1, OUT(tokens));
    int partial = builder_partial_place(&b, out, "partial");
    builder_op(&b, OP_EMBED, 0, 3, IN(tokens, wte, wpe), 1, OUT(partial));
    builder_leave(&b, partial, out);
    builder_end_forward(&b);
    int d = builder_enter(&b, builder_stream(&b, true), "d_whole");
    int dwte = builder_gradient(&b, PARAM_WTE), dwpe = builder_gradient(&b, PARAM_WPE);
    builder_op(&b, OP_EMBED_GRAD, model->tied ? OP_ADD_GRAD : 0, 2, IN(d, tokens), 2, OUT(dwte, dwpe));
    builder_end_block(&b);
}

void block_build_receive(struct block *block, const struct model *model, struct block_shape shape)
{
    struct builder b = builder_start(block, model, shape, PART_RECEIVE);
    builder_op(&b, OP_RECEIVE, 0, 0, IN(0), 1, OUT(builder_output(&b, ROLE_ACTIVATION)));
    builder_end_forward(&b);
    builder_op(&b, OP_SEND, 0, 1, IN(builder_stream(&b, true)), 0, OUT(0));
    builder_end_block(&b);
}

void block_build_send(struct block *block, const struct model *model, struct block_shape shape)
{
    struct builder b = builder_start(block, model, shape, PART_SEND);
    builder_op(&b, OP_SEND, 0, 1, IN(builder_input(&b, ROLE_ACTIVATION)), 0, OUT(0));
    builder_end_forward(&b);
    builder_op(&b, OP_RECEIVE, 0, 0, IN(0), 1, OUT(builder_stream(&b, false)));
    builder_end_block(&b);
}

/* The loss, and the gradient of the logits in their place. Ranks that share the vocabulary exchange a maximum and two sums
 * per position, never the logits. */
static void add_loss(struct builder *b, int logits, int targets, int loss)
{
    if (b->tp == 1) {
        builder_op(b, OP_CROSS_ENTROPY, 0, 2, IN(logits, targets), 2, OUT(logits, loss));
        return;
    }
    int max = builder_tensor(b, "logit_max", ROLE_COMMUNICATION, SPAN_LOCAL, b->wide, b->B, b->T, 0);
    int sums = builder_tensor(b, "logit_sums", ROLE_COMMUNICATION, SPAN_LOCAL, b->wide, 2, b->B, b->T);
    builder_op(b, OP_LOGIT_MAX, 0, 2, IN(logits, targets), 1, OUT(max));
    builder_exchange(b, OP_MAX_PARTIAL, max, max);
    builder_op(b, OP_LOGIT_SUMS, 0, 3, IN(logits, targets, max), 1, OUT(sums));
    builder_exchange(b, OP_SUM_PARTIAL, sums, sums);
    builder_op(b, OP_CROSS_ENTROPY_SHARDED, 0, 4, IN(logits, targets, max, sums), 2, OUT(logits, loss));
}

void block_build_head(struct block *block, const struct model *model, struct block_shape shape)
{
    struct builder b = builder_start(block, model, shape, PART_HEAD);
    bool encoder = model->family == MODEL_ENCODER;
    unsigned rms = model->family == MODEL_LLAMA ? OP_RMS : 0;
    enum part owner = model->tied ? PART_EMBED : PART_HEAD;
    enum parameter_id matrix = model->tied ? PARAM_WTE : PARAM_HEAD;

    int x = builder_input(&b, ROLE_ACTIVATION);
    int w = builder_parameter_tensor(&b, owner, matrix, false), bias = builder_weight(&b, PARAM_HEAD_BIAS);
    int targets = builder_tensor(&b, "targets", ROLE_INPUT, SPAN_LOCAL, DTYPE_I32, b.B, b.T, 0);
    int norm_w = builder_weight(&b, PARAM_FINAL_NORM), norm_b = builder_weight(&b, PARAM_FINAL_NORM_BIAS);
    int y = x, mean = -1, rstd = -1;
    if (!encoder) {
        y = builder_narrow(&b, "final_norm");
        mean = rms ? -1 : builder_statistic(&b, "final_mean");
        rstd = builder_statistic(&b, "final_rstd");
    }
    int logits = builder_activation(&b, "logits", b.V);
    int loss = builder_tensor(&b, "loss", ROLE_ACTIVATION, SPAN_LOSS, b.wide, 1, 0, 0);
    if (!encoder)
        builder_norm(&b, rms, x, norm_w, norm_b, y, mean, rstd);
    int whole = builder_enter(&b, y, "final_whole");
    builder_matmul(&b, whole, w, bias, -1, logits);
    builder_op(&b, OP_LOAD_TARGETS, 0, 0, IN(0), 1, OUT(targets));
    add_loss(&b, logits, targets, loss);
    builder_end_forward(&b);

    int d = builder_stream(&b, false);
    int dw = builder_parameter_tensor(&b, owner, matrix, true), db = builder_gradient(&b, PARAM_HEAD_BIAS);
    builder_wgrad(&b, logits, whole, dw, db);
    builder_column_parallel_dgrad(&b, logits, w, d);
    if (!encoder)
        builder_norm_grad(&b, rms, d, x, norm_w, mean, rstd, d, builder_gradient(&b, PARAM_FINAL_NORM),
                          builder_gradient(&b, PARAM_FINAL_NORM_BIAS));
    builder_end_block(&b);
}

/* What the attention half of a layer leaves behind for its backward half. */
struct attention_tensors {
    int whole, qkv_w, q_norm, k_norm, proj_w, qkv, att, lse;
    int heads; /* qkv as attention reads it */
};

/* Gives queries and keys their positions: turned in place, or where they are normed first beside the product, whose own values
 * the way back needs. */
static int place_heads(struct builder *b, const struct attention_tensors *a)
{
    if (b->model->qk_norm) {
        int heads = builder_activation(b, "qk_norm", (b->H + 2 * b->K) * b->D);
        builder_op(b, OP_QK_NORM, 0, 3, IN(a->qkv, a->q_norm, a->k_norm), 1, OUT(heads));
        return heads;
    }
    if (b->model->family == MODEL_LLAMA)
        builder_op(b, OP_ROPE, 0, 1, IN(a->qkv), 1, OUT(a->qkv));
    return a->qkv;
}

/* And takes them from their gradients. */
static void place_heads_backward(struct builder *b, const struct attention_tensors *a, int dqkv)
{
    if (b->model->qk_norm)
        builder_op(b, OP_QK_NORM_GRAD, 0, 4, IN(dqkv, a->qkv, a->q_norm, a->k_norm), 3,
                   OUT(dqkv, builder_gradient(b, PARAM_Q_NORM), builder_gradient(b, PARAM_K_NORM)));
    else if (b->model->family == MODEL_LLAMA)
        builder_op(b, OP_ROPE, OP_INVERSE, 1, IN(dqkv), 1, OUT(dqkv));
}

/* y = residual + proj(attention(qkv(input))) */
static struct attention_tensors attention_forward(struct builder *b, int input, int residual, int y)
{
    struct attention_tensors a = {.qkv_w = builder_weight(b, PARAM_QKV),
                                  .q_norm = builder_weight(b, PARAM_Q_NORM),
                                  .k_norm = builder_weight(b, PARAM_K_NORM),
                                  .proj_w = builder_weight(b, PARAM_PROJ)};
    int qkv_bias = builder_weight(b, PARAM_QKV_BIAS), proj_bias = builder_weight(b, PARAM_PROJ_BIAS);
    a.qkv = builder_activation(b, "qkv", (b->H + 2 * b->K) * b->D);
    a.att = builder_activation(b, "attention", b->H * b->D);
    a.lse = builder_tensor(b, "lse", ROLE_ACTIVATION, SPAN_LOCAL, b->wide, b->B, b->H, b->T);
    a.whole = builder_enter(b, input, "whole1");
    builder_matmul(b, a.whole, a.qkv_w, qkv_bias, -1, a.qkv);
    a.heads = place_heads(b, &a);
    builder_op(b, OP_ATTENTION, b->model->family == MODEL_ENCODER ? 0 : OP_CAUSAL, 1, IN(a.heads), 2,
               OUT(a.att, a.lse));
    builder_row_parallel(b, a.att, a.proj_w, proj_bias, residual, y);
    return a;
}

/* From d, the gradient of y, to dqkv, the gradient of the packed heads; weight gradients of proj on the way. */
static int attention_backward(struct builder *b, const struct attention_tensors *a, int d)
{
    int datt = builder_activation(b, "d_attention", b->H * b->D);
    int dqkv = builder_activation(b, "d_qkv", (b->H + 2 * b->K) * b->D);
    int delta = builder_tensor(b, "delta", ROLE_WORKSPACE, SPAN_LOCAL, b->wide, b->B, b->H, b->T);
    int whole = builder_enter(b, d, "d_whole1");
    builder_wgrad(b, whole, a->att, builder_gradient(b, PARAM_PROJ), builder_gradient(b, PARAM_PROJ_BIAS));
    builder_dgrad(b, 0, whole, a->proj_w, datt);
    builder_op(b, OP_ATTENTION_GRAD, b->model->family == MODEL_ENCODER ? 0 : OP_CAUSAL, 4,
               IN(datt, a->heads, a->att, a->lse), 2, OUT(dqkv, delta));
    place_heads_backward(b, a, dqkv);
    return dqkv;
}

struct mlp_tensors {
    int whole, up_w, down_w, up, act;
};

/* y = residual + down(activation(up(input))) */
static struct mlp_tensors mlp_forward(struct builder *b, int input, int residual, int y)
{
    bool gated = b->model->family == MODEL_LLAMA;
    struct mlp_tensors m = {.up_w = builder_weight(b, PARAM_UP), .down_w = builder_weight(b, PARAM_DOWN)};
    int up_bias = builder_weight(b, PARAM_UP_BIAS), down_bias = builder_weight(b, PARAM_DOWN_BIAS);
    m.up = builder_activation(b, gated ? "gate_up" : "up", gated ? 2 * b->F : b->F);
    m.act = builder_activation(b, b->model->gelu_gate ? "geglu" : gated ? "swiglu" : "gelu", b->F);
    m.whole = builder_enter(b, input, "whole2");
    builder_matmul(b, m.whole, m.up_w, up_bias, -1, m.up);
    builder_op(b, gated ? OP_SWIGLU : OP_GELU, 0, 1, IN(m.up), 1, OUT(m.act));
    builder_row_parallel(b, m.act, m.down_w, down_bias, residual, y);
    return m;
}

/* From d, the gradient of y, to the gradient of up's output (returned); weight gradients of down on the way. */
static int mlp_backward(struct builder *b, const struct mlp_tensors *m, int d)
{
    bool gated = b->model->family == MODEL_LLAMA;
    int dact = builder_activation(b, b->model->gelu_gate ? "d_geglu" : gated ? "d_swiglu" : "d_gelu", b->F);
    int whole = builder_enter(b, d, "d_whole2");
    builder_wgrad(b, whole, m->act, builder_gradient(b, PARAM_DOWN), builder_gradient(b, PARAM_DOWN_BIAS));
    builder_dgrad(b, 0, whole, m->down_w, dact);
    if (!gated) {
        builder_op(b, OP_GELU_GRAD, 0, 2, IN(dact, m->up), 1, OUT(dact));
        return dact;
    }
    builder_op(b, OP_SWIGLU_GRAD, 0, 2, IN(dact, m->up), 1, OUT(m->up));
    return m->up;
}

/* x -> x + attention(norm(x)) -> + mlp(norm(.)): GPT-2 and Llama. */
static void build_pre_norm(struct builder *b)
{
    unsigned rms = b->model->family == MODEL_LLAMA ? OP_RMS : 0;
    int x = builder_input(b, ROLE_ACTIVATION), out = builder_output(b, ROLE_ACTIVATION);
    int norm1_w = builder_weight(b, PARAM_NORM1), norm2_w = builder_weight(b, PARAM_NORM2);
    int norm1 = builder_narrow(b, "norm1");
    int mean1 = rms ? -1 : builder_statistic(b, "mean1"), rstd1 = builder_statistic(b, "rstd1");
    int mid = builder_narrow(b, "mid");
    builder_norm(b, rms, x, norm1_w, builder_weight(b, PARAM_NORM1_BIAS), norm1, mean1, rstd1);
    struct attention_tensors a = attention_forward(b, norm1, x, mid);
    int norm2 = builder_narrow(b, "norm2");
    int mean2 = rms ? -1 : builder_statistic(b, "mean2"), rstd2 = builder_statistic(b, "rstd2");
    builder_norm(b, rms, mid, norm2_w, builder_weight(b, PARAM_NORM2_BIAS), norm2, mean2, rstd2);
    struct mlp_tensors m = mlp_forward(b, norm2, mid, out);
    builder_end_forward(b);
    builder_number_droppable(b);

    int d = builder_stream(b, false);
    int dup = mlp_backward(b, &m, d);
    int dnorm2 = builder_narrow(b, "d_norm2");
    builder_wgrad(b, dup, m.whole, builder_gradient(b, PARAM_UP), builder_gradient(b, PARAM_UP_BIAS));
    builder_column_parallel_dgrad(b, dup, m.up_w, dnorm2);
    builder_norm_grad(b, rms | OP_ADD, dnorm2, mid, norm2_w, mean2, rstd2, d,
                      builder_gradient(b, PARAM_NORM2), builder_gradient(b, PARAM_NORM2_BIAS));
    int dqkv = attention_backward(b, &a, d);
    int dnorm1 = builder_narrow(b, "d_norm1");
    builder_wgrad(b, dqkv, a.whole, builder_gradient(b, PARAM_QKV), builder_gradient(b, PARAM_QKV_BIAS));
    builder_column_parallel_dgrad(b, dqkv, a.qkv_w, dnorm1);
    builder_norm_grad(b, rms | OP_ADD, dnorm1, x, norm1_w, mean1, rstd1, d, builder_gradient(b, PARAM_NORM1),
                      builder_gradient(b, PARAM_NORM1_BIAS));
}

/* The gradient of a norm that stands behind attention or the feed-forward, from d, which goes on past it. */
static int norm_behind_backward(struct builder *b, int d, int x, enum parameter_id id, int rstd,
                                const char *name)
{
    int dx = builder_narrow(b, name);
    builder_norm_grad(b, OP_RMS, d, x, builder_weight(b, id), -1, rstd, dx, builder_gradient(b, id), -1);
    return dx;
}

/* A norm before attention or the feed-forward, with what its way back needs. */
struct norm_before {
    enum parameter_id id;
    int x, y, rstd; /* y is x where the model has none */
};

static struct norm_before norm_before(struct builder *b, int x, enum parameter_id id, const char *name,
                                      const char *statistic)
{
    int w = builder_weight(b, id);
    struct norm_before norm = {id, x, x, -1};
    if (w < 0)
        return norm;
    norm.y = builder_narrow(b, name);
    norm.rstd = builder_statistic(b, statistic);
    builder_norm(b, OP_RMS, x, w, -1, norm.y, -1, norm.rstd);
    return norm;
}

/* d += the gradient of the norm's x, by way of the product `dy w` that is the gradient of its y. */
static void norm_before_backward(struct builder *b, const struct norm_before *norm, int dy, int w, int d,
                                 const char *name)
{
    if (norm->rstd < 0) {
        builder_column_parallel_dgrad_to(b, dy, w, d, name);
        return;
    }
    int dnorm = builder_narrow(b, name);
    builder_column_parallel_dgrad(b, dy, w, dnorm);
    builder_norm_grad(b, OP_RMS | OP_ADD, dnorm, norm->x, builder_weight(b, norm->id), -1, norm->rstd, d,
                      builder_gradient(b, norm->id), -1);
}

/* x -> x + norm(attention(x)) -> . + norm(mlp(.)): OLMo 2; and Gemma 3, which norms what both read besides. */
static void build_norms_behind(struct builder *b)
{
    int x = builder_input(b, ROLE_ACTIVATION), out = builder_output(b, ROLE_ACTIVATION);
    struct norm_before norm1 = norm_before(b, x, PARAM_NORM1, "norm1", "rstd1");
    int proj = builder_narrow(b, "proj"), rstd1 = builder_statistic(b, "post_rstd1");
    int mid = builder_narrow(b, "mid");
    struct attention_tensors a = attention_forward(b, norm1.y, -1, proj);
    builder_norm_behind(b, proj, builder_weight(b, PARAM_POST_NORM1), x, mid, rstd1);
    struct norm_before norm2 = norm_before(b, mid, PARAM_NORM2, "norm2", "rstd2");
    int down = builder_narrow(b, "down"), rstd2 = builder_statistic(b, "post_rstd2");
    struct mlp_tensors m = mlp_forward(b, norm2.y, -1, down);
    builder_norm_behind(b, down, builder_weight(b, PARAM_POST_NORM2), mid, out, rstd2);
    builder_end_forward(b);
    builder_number_droppable(b);

    int d = builder_stream(b, false);
    int ddown = norm_behind_backward(b, d, down, PARAM_POST_NORM2, rstd2, "d_down");
    int dup = mlp_backward(b, &m, ddown);
    builder_wgrad(b, dup, m.whole, builder_gradient(b, PARAM_UP), -1);
    norm_before_backward(b, &norm2, dup, m.up_w, d, norm2.rstd < 0 ? "d_mid" : "d_norm2");
    int dproj = norm_behind_backward(b, d, proj, PARAM_POST_NORM1, rstd1, "d_proj");
    int dqkv = attention_backward(b, &a, dproj);
    builder_wgrad(b, dqkv, a.whole, builder_gradient(b, PARAM_QKV), builder_gradient(b, PARAM_QKV_BIAS));
    norm_before_backward(b, &norm1, dqkv, a.qkv_w, d, norm1.rstd < 0 ? "d_x" : "d_norm1");
}

/* x -> norm(x + attention(x)) -> norm(. + mlp(.)): the encoder. */
static void build_post_norm(struct builder *b, bool first)
{
    int x = builder_input(b, first ? ROLE_INPUT : ROLE_ACTIVATION), out = builder_output(b, ROLE_ACTIVATION);
    int norm1_w = builder_weight(b, PARAM_NORM1), norm2_w = builder_weight(b, PARAM_NORM2);
    int sum1 = builder_narrow(b, "sum1"), norm1 = builder_narrow(b, "norm1");
    int mean1 = builder_statistic(b, "mean1"), rstd1 = builder_statistic(b, "rstd1");
    int sum2 = builder_narrow(b, "sum2");
    int mean2 = builder_statistic(b, "mean2"), rstd2 = builder_statistic(b, "rstd2");
    struct attention_tensors a = attention_forward(b, x, x, sum1);
    builder_norm(b, 0, sum1, norm1_w, builder_weight(b, PARAM_NORM1_BIAS), norm1, mean1, rstd1);
    struct mlp_tensors m = mlp_forward(b, norm1, norm1, sum2);
    builder_norm(b, 0, sum2, norm2_w, builder_weight(b, PARAM_NORM2_BIAS), out, mean2, rstd2);
    builder_end_forward(b);
    builder_number_droppable(b);

    int d = builder_stream(b, first);
    builder_norm_grad(b, 0, d, sum2, norm2_w, mean2, rstd2, d, builder_gradient(b, PARAM_NORM2),
                      builder_gradient(b, PARAM_NORM2_BIAS));
    int dup = mlp_backward(b, &m, d);
    builder_wgrad(b, dup, m.whole, builder_gradient(b, PARAM_UP), builder_gradient(b, PARAM_UP_BIAS));
    builder_column_parallel_dgrad_to(b, dup, m.up_w, d, "d_norm1");
    builder_norm_grad(b, 0, d, sum1, norm1_w, mean1, rstd1, d, builder_gradient(b, PARAM_NORM1),
                      builder_gradient(b, PARAM_NORM1_BIAS));
    int dqkv = attention_backward(b, &a, d);
    builder_wgrad(b, dqkv, a.whole, builder_gradient(b, PARAM_QKV), builder_gradient(b, PARAM_QKV_BIAS));
    if (!first)
        builder_column_parallel_dgrad_to(b, dqkv, a.qkv_w, d, "d_x");
}

void block_build_layer(struct block *block, const struct model *model, struct block_shape shape, bool first)
{
    struct builder b = builder_start(block, model, shape, PART_LAYER);
    if (model->family == MODEL_ENCODER)
        build_post_norm(&b, first);
    else if (model->norms != NORMS_BEFORE)
        build_norms_behind(&b);
    else
        build_pre_norm(&b);
    builder_end_block(&b);
}
