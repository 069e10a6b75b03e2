/* Operations of blocks that compute: from tensors to the arguments of a kernel. */
#include "trainer/call.h"

#include "base/checked.h"

#include <math.h>

/* Parameter gradients overwrite in the first micro-batch and accumulate afterwards. */
static bool adds_gradient(const struct call *c)
{
    return c->s->add_gradient || call_flag(c, OP_ADD_GRAD);
}

/* Copies the rows that this rank has of each sequence: all, or with sequence parallelism its part. */
int run_load(const struct call *c, struct error *err)
{
    (void)err;
    struct executor *e = c->e;
    const char *host = c->s->kind == OP_LOAD_TARGETS    ? (const void *)batch_targets(e->batch)
                       : c->s->kind == OP_LOAD_FEATURES ? batch_features(e->batch)
                                                        : (const void *)batch_tokens(e->batch);
    int64_t sequences = c->out[0].dims[0], bytes = c->out[0].bytes / sequences;
    int64_t parts = e->parts.program->layout.seq_len / c->out[0].dims[1];
    int64_t first = parts > 1 ? e->place.part : 0;
    for (int64_t i = 0; i < sequences; i++)
        device_write(e->parts.device, (char *)call_out(c, 0) + i * bytes, host + (i * parts + first) * bytes,
                     bytes);
    return 0;
}

/* Of the part of the vocabulary that this rank has, `held` tokens with padding. */
static int64_t first_token(const struct call *c, int64_t held)
{
    return c->e->place.part * held;
}

/* sqrt(C) as an activation, which is what transformers multiplies by. */
static double embedding_scale(const struct call *c, enum dtype dtype)
{
    const struct model *m = &c->e->parts.program->model;
    double scale = sqrt((double)m->hidden);
    return !m->scale_embedding ? 0 : dtype == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16((float)scale)) : scale;
}

/* The ranks' rows are summed, so one of them alone adds the positions. */
int run_embed(const struct call *c, struct error *err)
{
    struct embed_args args = {
        .B = c->out[0].dims[0],
        .T = c->out[0].dims[1],
        .C = c->out[0].dims[2],
        .V = c->in[1].dims[0],
        .first_token = first_token(c, c->in[1].dims[0]),
        .vocabulary = c->e->parts.program->model.vocab,
        .dtype = c->out[0].dtype,
        .scale = embedding_scale(c, c->out[0].dtype),
        .tokens = call_in(c, 0),
        .wte = call_in(c, 1),
        .wpe = c->e->place.part == 0 ? call_in(c, 2) : NULL,
        .x = call_out(c, 0),
    };
    return c->e->parts.kernels->embed(&c->e->context, &args, err);
}

int run_embed_grad(const struct call *c, struct error *err)
{
    struct embed_grad_args args = {
        .B = c->in[0].dims[0],
        .T = c->in[0].dims[1],
        .C = c->in[0].dims[2],
        .V = c->out[0].dims[0],
        .first_token = first_token(c, c->out[0].dims[0]),
        .vocabulary = c->e->parts.program->model.vocab,
        .positions = c->has_out[1] ? c->out[1].dims[0] : 0,
        .dtype = c->in[0].dtype,
        .scale = embedding_scale(c, c->in[0].dtype),
        .tokens = call_in(c, 1),
        .d = call_in(c, 0),
        .dwte = call_out(c, 0),
        .dwpe = call_out(c, 1),
        .add_wte = adds_gradient(c),
        .add_wpe = c->s->add_gradient,
    };
    return c->e->parts.kernels->embed_grad(&c->e->context, &args, err);
}

int run_norm(const struct call *c, struct error *err)
{
    struct norm_args args = {
        .R = placed_rows(&c->in[0]),
        .C = placed_columns(&c->in[0]),
        .dtype = c->in[0].dtype,
        .rms = call_flag(c, OP_RMS),
        .add_one = c->e->parts.program->model.norm_add_one,
        .eps = c->e->parts.program->model.norm_eps,
        .x = call_in(c, 0),
        .w = call_in(c, 1),
        .b = call_in(c, 2),
        .residual = call_in(c, 3),
        .y = call_out(c, 0),
        .mean = call_out(c, 1),
        .rstd = call_out(c, 2),
    };
    return c->e->parts.kernels->norm(&c->e->context, &args, err);
}

int run_norm_grad(const struct call *c, struct error *err)
{
    struct norm_grad_args args = {
        .R = placed_rows(&c->in[1]),
        .C = placed_columns(&c->in[1]),
        .dtype = c->in[1].dtype,
        .rms = call_flag(c, OP_RMS),
        .add_one = c->e->parts.program->model.norm_add_one,
        .dy = call_in(c, 0),
        .x = call_in(c, 1),
        .w = call_in(c, 2),
        .mean = call_in(c, 3),
        .rstd = call_in(c, 4),
        .d = call_out(c, 0),
        .dw = call_out(c, 1),
        .db = call_out(c, 2),
        .add_d = call_flag(c, OP_ADD),
        .add_w = adds_gradient(c),
    };
    return c->e->parts.kernels->norm_grad(&c->e->context, &args, err);
}

static struct matmul_args matmul_args_of(const struct call *c)
{
    return (struct matmul_args){
        .M = placed_rows(&c->in[0]),
        .N = placed_columns(&c->out[0]),
        .K = placed_columns(&c->in[0]),
        .dtype = c->in[0].dtype,
        .x = call_in(c, 0),
        .w = call_in(c, 1),
        .bias = call_in(c, 2),
        .residual = call_in(c, 3),
        .y = call_out(c, 0),
    };
}

int run_matmul(const struct call *c, struct error *err)
{
    struct matmul_args args = matmul_args_of(c);
    return c->e->parts.kernels->matmul(&c->e->context, &args, err);
}

int run_matmul_gelu(const struct call *matmul, const struct call *gelu, struct error *err)
{
    struct matmul_args args = matmul_args_of(matmul);
    return gelu->e->parts.kernels->matmul_gelu(&gelu->e->context, &args, call_out(gelu, 0), err);
}

static struct matmul_dgrad_args dgrad_args_of(const struct call *c)
{
    return (struct matmul_dgrad_args){
        .M = placed_rows(&c->in[0]),
        .N = placed_columns(&c->in[0]),
        .K = placed_columns(&c->out[0]),
        .dtype = c->in[0].dtype,
        .dy = call_in(c, 0),
        .w = call_in(c, 1),
        .dx = call_out(c, 0),
        .add = call_flag(c, OP_ADD),
    };
}

int run_matmul_dgrad(const struct call *c, struct error *err)
{
    struct matmul_dgrad_args args = dgrad_args_of(c);
    return c->e->parts.kernels->matmul_dgrad(&c->e->context, &args, err);
}

int run_dgrad_gelu(const struct call *dgrad, const struct call *gelu_grad, struct error *err)
{
    struct matmul_dgrad_args args = dgrad_args_of(dgrad);
    return dgrad->e->parts.kernels->matmul_dgrad_gelu(&dgrad->e->context, &args, call_in(gelu_grad, 1), err);
}

int run_matmul_wgrad(const struct call *c, struct error *err)
{
    struct matmul_wgrad_args args = {
        .M = placed_rows(&c->in[0]),
        .N = placed_columns(&c->in[0]),
        .K = placed_columns(&c->in[1]),
        .dtype = c->in[0].dtype,
        .dy = call_in(c, 0),
        .x = call_in(c, 1),
        .dw = call_out(c, 0),
        .db = call_out(c, 1),
        .add = adds_gradient(c),
    };
    return c->e->parts.kernels->matmul_wgrad(&c->e->context, &args, err);
}

/* Sizes of what lies in rows of qkv: this rank's heads. */
struct heads {
    int64_t B, T, H, K, D;
    enum dtype dtype;
};

static struct heads heads_of(const struct call *c, const struct placed *rows)
{
    const struct model *m = &c->e->parts.program->model;
    int64_t tp = c->e->parts.program->layout.tp;
    return (struct heads){
        .B = rows->dims[0],
        .T = rows->dims[1],
        .H = m->heads / tp,
        .K = m->kv_heads / tp,
        .D = m->head_size,
        .dtype = rows->dtype,
    };
}

static bool is_local(const struct call *c)
{
    const struct program *p = c->e->parts.program;
    return model_layer_is_local(&p->model, program_layer(p, c->s->instance));
}

static double theta_of(const struct call *c)
{
    const struct model *m = &c->e->parts.program->model;
    return m->local_theta > 0 && is_local(c) ? m->local_theta : m->rope_theta;
}

static int64_t window_of(const struct call *c)
{
    return is_local(c) ? c->e->parts.program->model.window : 0;
}

/* 0: the kernel's own. */
static double score_scale(const struct call *c)
{
    const struct model *m = &c->e->parts.program->model;
    return m->query_scalar > 0 ? 1 / sqrt(m->query_scalar) : 0;
}

int run_rope(const struct call *c, struct error *err)
{
    struct heads h = heads_of(c, &c->out[0]);
    struct rope_args args = {
        .B = h.B,
        .T = h.T,
        .H = h.H,
        .K = h.K,
        .D = h.D,
        .dtype = h.dtype,
        .unturned = c->e->parts.program->model.unturned,
        .theta = theta_of(c),
        .inverse = call_flag(c, OP_INVERSE),
        .qkv = call_out(c, 0),
    };
    return c->e->parts.kernels->rope(&c->e->context, &args, err);
}

/* What forward and backward have in common: the product, as input `qkv`, and the two weights behind it. */
static struct qk_norm_heads qk_norm_heads_of(const struct call *c, int qkv)
{
    const struct model *m = &c->e->parts.program->model;
    struct heads h = heads_of(c, &c->in[qkv]);
    return (struct qk_norm_heads){
        .B = h.B,
        .T = h.T,
        .H = h.H,
        .K = h.K,
        .D = h.D,
        .dtype = h.dtype,
        .whole = m->qk_norm_whole,
        .add_one = m->norm_add_one,
        .eps = m->norm_eps,
        .theta = theta_of(c),
        .qkv = call_in(c, qkv),
        .q_norm = call_in(c, qkv + 1),
        .k_norm = call_in(c, qkv + 2),
    };
}

int run_qk_norm(const struct call *c, struct error *err)
{
    struct qk_norm_args args = {qk_norm_heads_of(c, 0), call_out(c, 0)};
    return c->e->parts.kernels->qk_norm(&c->e->context, &args, err);
}

int run_qk_norm_grad(const struct call *c, struct error *err)
{
    struct qk_norm_grad_args args = {
        .heads = qk_norm_heads_of(c, 1),
        .dqkv = call_out(c, 0),
        .dq_norm = call_out(c, 1),
        .dk_norm = call_out(c, 2),
        .add = adds_gradient(c),
    };
    return c->e->parts.kernels->qk_norm_grad(&c->e->context, &args, err);
}

int run_attention(const struct call *c, struct error *err)
{
    struct heads h = heads_of(c, &c->in[0]);
    struct attention_args args = {
        .B = h.B,
        .T = h.T,
        .H = h.H,
        .K = h.K,
        .D = h.D,
        .dtype = h.dtype,
        .causal = call_flag(c, OP_CAUSAL),
        .window = window_of(c),
        .scale = score_scale(c),
        .qkv = call_in(c, 0),
        .out = call_out(c, 0),
        .lse = call_out(c, 1),
    };
    return c->e->parts.kernels->attention(&c->e->context, &args, err);
}

int run_attention_grad(const struct call *c, struct error *err)
{
    struct heads h = heads_of(c, &c->in[0]);
    struct attention_grad_args args = {
        .B = h.B,
        .T = h.T,
        .H = h.H,
        .K = h.K,
        .D = h.D,
        .dtype = h.dtype,
        .causal = call_flag(c, OP_CAUSAL),
        .window = window_of(c),
        .scale = score_scale(c),
        .dout = call_in(c, 0),
        .qkv = call_in(c, 1),
        .out = call_in(c, 2),
        .lse = call_in(c, 3),
        .dqkv = call_out(c, 0),
        .delta = call_out(c, 1),
    };
    return c->e->parts.kernels->attention_grad(&c->e->context, &args, err);
}

int run_gelu(const struct call *c, struct error *err)
{
    struct gelu_args args = {placed_elements(&c->in[0]), c->in[0].dtype, call_in(c, 0), call_out(c, 0)};
    return c->e->parts.kernels->gelu(&c->e->context, &args, err);
}

int run_gelu_grad(const struct call *c, struct error *err)
{
    struct gelu_grad_args args = {placed_elements(&c->in[0]), c->in[0].dtype, call_in(c, 1), call_out(c, 0)};
    return c->e->parts.kernels->gelu_grad(&c->e->context, &args, err);
}

int run_swiglu(const struct call *c, struct error *err)
{
    struct swiglu_args args = {placed_rows(&c->out[0]), placed_columns(&c->out[0]),
                               c->in[0].dtype,          call_in(c, 0),
                               call_out(c, 0),          c->e->parts.program->model.gelu_gate};
    return c->e->parts.kernels->swiglu(&c->e->context, &args, err);
}

int run_swiglu_grad(const struct call *c, struct error *err)
{
    struct swiglu_grad_args args = {placed_rows(&c->in[0]), placed_columns(&c->in[0]),
                                    c->in[0].dtype,         call_in(c, 0),
                                    call_out(c, 0),         c->e->parts.program->model.gelu_gate};
    return c->e->parts.kernels->swiglu_grad(&c->e->context, &args, err);
}

/* Names the rank, the step and the operation in which a run diverges. */
static int check_loss(const struct call *c, struct error *err)
{
    if (!call_may_read(c))
        return 0;
    double loss = executor_read_scalar(c->e, SCALAR_LOSS);
    return isfinite(loss)
               ? 0
               : error_set(err, "the loss is %g; lower --lr, or look at the data", call_shown(loss));
}

int run_cross_entropy(const struct call *c, struct error *err)
{
    struct cross_entropy_args args = {
        .R = placed_rows(&c->in[0]),
        .V = placed_columns(&c->in[0]),
        .dtype = c->in[0].dtype,
        .logits = call_out(c, 0),
        .targets = call_in(c, 1),
        .scale = c->e->loss_scale,
        .loss = call_out(c, 1),
        .gradient = c->e->training,
    };
    return c->e->parts.kernels->cross_entropy(&c->e->context, &args, err) || check_loss(c, err) ? -1 : 0;
}

int run_copy(const struct call *c, struct error *err)
{
    (void)err;
    device_copy(c->e->parts.device, call_out(c, 0), call_in(c, 0), c->out[0].bytes);
    return 0;
}

int run_residual(const struct call *c, struct error *err)
{
    struct residual_args args = {
        .R = placed_rows(&c->out[0]),
        .C = placed_columns(&c->out[0]),
        .dtype = c->out[0].dtype,
        .residual = call_in(c, 1),
        .bias = call_in(c, 2),
        .y = call_out(c, 0),
    };
    return c->e->parts.kernels->residual(&c->e->context, &args, err);
}

/* Logits are the first input, targets the second. */
static struct logit_shard logit_shard_of(const struct call *c, int targets)
{
    int64_t held = placed_columns(&c->in[0]), vocabulary = c->e->parts.program->model.vocab;
    int64_t first = first_token(c, held);
    return (struct logit_shard){
        .R = placed_rows(&c->in[0]),
        .V = held,
        .first_column = first,
        .valid = max_i64(0, min_i64(held, vocabulary - first)),
        .vocabulary = vocabulary,
        .dtype = c->in[0].dtype,
        .logits = call_in(c, 0),
        .targets = call_in(c, targets),
    };
}

int run_logit_max(const struct call *c, struct error *err)
{
    struct logit_max_args args = {.shard = logit_shard_of(c, 1), .max = call_out(c, 0)};
    return c->e->parts.kernels->logit_max(&c->e->context, &args, err);
}

int run_logit_sums(const struct call *c, struct error *err)
{
    struct logit_sums_args args = {logit_shard_of(c, 1), call_in(c, 2), call_out(c, 0)};
    return c->e->parts.kernels->logit_sums(&c->e->context, &args, err);
}

int run_cross_entropy_sharded(const struct call *c, struct error *err)
{
    struct cross_entropy_sharded_args args = {
        .shard = logit_shard_of(c, 1),
        .max = call_in(c, 2),
        .sums = call_in(c, 3),
        .scale = c->e->loss_scale,
        .loss = call_out(c, 1),
        .gradient = c->e->training,
    };
    return c->e->parts.kernels->cross_entropy_sharded(&c->e->context, &args, err) || check_loss(c, err) ? -1
                                                                                                        : 0;
}
