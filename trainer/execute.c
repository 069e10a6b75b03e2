/* From operations to kernel calls. Every shape is read off the tensors, so this file holds no formula of its own. */
#include "trainer/execute.h"

#include "base/arena.h"
#include "base/checked.h"
#include "trainer/batch.h"

#include <math.h>
#include <stdlib.h>

struct executor {
    struct executor_parts parts;
    struct kernel_context context;
    struct batch *batch;     /* the micro-batch at hand, on the host */
    struct comm_span *spans; /* room for every gradient */
    double loss_scale;       /* 1 / tokens over which the loss is averaged */
    bool training;           /* false: forward only, and the loss leaves no gradient */
    const struct update *update;
    int64_t step;
};

/* The operation at hand, with its tensors resolved. */
struct call {
    struct executor *e;
    const struct step_op *s;
    struct placed in[OP_INPUTS], out[OP_OUTPUTS];
    bool has_in[OP_INPUTS], has_out[OP_OUTPUTS];
};

static void *address(const struct executor *e, const struct placed *t)
{
    return step_memory_at(e->parts.memory, t->id);
}

static void *in_at(const struct call *c, int slot)
{
    return c->has_in[slot] ? address(c->e, &c->in[slot]) : NULL;
}

static void *out_at(const struct call *c, int slot)
{
    return c->has_out[slot] ? address(c->e, &c->out[slot]) : NULL;
}

static bool flag(const struct call *c, enum op_flag bit)
{
    return (c->s->op->flags & bit) != 0;
}

/* Parameter gradients overwrite in the first micro-batch and accumulate afterwards. */
static bool adds_gradient(const struct call *c)
{
    return c->s->add_gradient || flag(c, OP_ADD_GRAD);
}

static int64_t columns(const struct placed *t)
{
    return dims_columns(t->dims);
}

static int64_t rows(const struct placed *t)
{
    return dims_rows(t->dims);
}

static int64_t elements(const struct placed *t)
{
    return t->bytes / dtype_bytes(t->dtype);
}

static int run_load(const struct call *c, struct error *err)
{
    (void)err;
    struct executor *e = c->e;
    const void *host = c->s->kind == OP_LOAD_TARGETS    ? batch_targets(e->batch)
                       : c->s->kind == OP_LOAD_FEATURES ? batch_features(e->batch)
                                                        : (const void *)batch_tokens(e->batch);
    device_write(e->parts.device, out_at(c, 0), host, c->out[0].bytes);
    return 0;
}

static int run_embed(const struct call *c, struct error *err)
{
    struct embed_args args = {
        .B = c->out[0].dims[0],
        .T = c->out[0].dims[1],
        .C = c->out[0].dims[2],
        .V = c->in[1].dims[0],
        .vocabulary = c->in[1].dims[0],
        .dtype = c->out[0].dtype,
        .tokens = in_at(c, 0),
        .wte = in_at(c, 1),
        .wpe = in_at(c, 2),
        .x = out_at(c, 0),
    };
    return c->e->parts.kernels->embed(&c->e->context, &args, err);
}

static int run_embed_grad(const struct call *c, struct error *err)
{
    struct embed_grad_args args = {
        .B = c->in[0].dims[0],
        .T = c->in[0].dims[1],
        .C = c->in[0].dims[2],
        .V = c->out[0].dims[0],
        .vocabulary = c->out[0].dims[0],
        .positions = c->has_out[1] ? c->out[1].dims[0] : 0,
        .dtype = c->in[0].dtype,
        .tokens = in_at(c, 1),
        .d = in_at(c, 0),
        .dwte = out_at(c, 0),
        .dwpe = out_at(c, 1),
        .add_wte = adds_gradient(c),
        .add_wpe = c->s->add_gradient,
    };
    return c->e->parts.kernels->embed_grad(&c->e->context, &args, err);
}

static int run_norm(const struct call *c, struct error *err)
{
    struct norm_args args = {
        .R = rows(&c->in[0]),
        .C = columns(&c->in[0]),
        .dtype = c->in[0].dtype,
        .rms = flag(c, OP_RMS),
        .eps = c->e->parts.program->model.norm_eps,
        .x = in_at(c, 0),
        .w = in_at(c, 1),
        .b = in_at(c, 2),
        .y = out_at(c, 0),
        .mean = out_at(c, 1),
        .rstd = out_at(c, 2),
    };
    return c->e->parts.kernels->norm(&c->e->context, &args, err);
}

static int run_norm_grad(const struct call *c, struct error *err)
{
    struct norm_grad_args args = {
        .R = rows(&c->in[1]),
        .C = columns(&c->in[1]),
        .dtype = c->in[1].dtype,
        .rms = flag(c, OP_RMS),
        .dy = in_at(c, 0),
        .x = in_at(c, 1),
        .w = in_at(c, 2),
        .mean = in_at(c, 3),
        .rstd = in_at(c, 4),
        .d = out_at(c, 0),
        .dw = out_at(c, 1),
        .db = out_at(c, 2),
        .add_d = flag(c, OP_ADD),
        .add_w = adds_gradient(c),
    };
    return c->e->parts.kernels->norm_grad(&c->e->context, &args, err);
}

static int run_matmul(const struct call *c, struct error *err)
{
    struct matmul_args args = {
        .M = rows(&c->in[0]),
        .N = columns(&c->out[0]),
        .K = columns(&c->in[0]),
        .dtype = c->in[0].dtype,
        .x = in_at(c, 0),
        .w = in_at(c, 1),
        .bias = in_at(c, 2),
        .residual = in_at(c, 3),
        .y = out_at(c, 0),
    };
    return c->e->parts.kernels->matmul(&c->e->context, &args, err);
}

static int run_matmul_dgrad(const struct call *c, struct error *err)
{
    struct matmul_dgrad_args args = {
        .M = rows(&c->in[0]),
        .N = columns(&c->in[0]),
        .K = columns(&c->out[0]),
        .dtype = c->in[0].dtype,
        .dy = in_at(c, 0),
        .w = in_at(c, 1),
        .dx = out_at(c, 0),
        .add = flag(c, OP_ADD),
    };
    return c->e->parts.kernels->matmul_dgrad(&c->e->context, &args, err);
}

static int run_matmul_wgrad(const struct call *c, struct error *err)
{
    struct matmul_wgrad_args args = {
        .M = rows(&c->in[0]),
        .N = columns(&c->in[0]),
        .K = columns(&c->in[1]),
        .dtype = c->in[0].dtype,
        .dy = in_at(c, 0),
        .x = in_at(c, 1),
        .dw = out_at(c, 0),
        .db = out_at(c, 1),
        .add = adds_gradient(c),
    };
    return c->e->parts.kernels->matmul_wgrad(&c->e->context, &args, err);
}

static int run_rope(const struct call *c, struct error *err)
{
    const struct model *m = &c->e->parts.program->model;
    struct rope_args args = {
        .B = c->out[0].dims[0],
        .T = c->out[0].dims[1],
        .H = m->heads,
        .K = m->kv_heads,
        .D = m->head_size,
        .dtype = c->out[0].dtype,
        .theta = m->rope_theta,
        .inverse = flag(c, OP_INVERSE),
        .qkv = out_at(c, 0),
    };
    return c->e->parts.kernels->rope(&c->e->context, &args, err);
}

static int run_attention(const struct call *c, struct error *err)
{
    const struct model *m = &c->e->parts.program->model;
    struct attention_args args = {
        .B = c->in[0].dims[0],
        .T = c->in[0].dims[1],
        .H = m->heads,
        .K = m->kv_heads,
        .D = m->head_size,
        .dtype = c->in[0].dtype,
        .causal = flag(c, OP_CAUSAL),
        .qkv = in_at(c, 0),
        .out = out_at(c, 0),
        .lse = out_at(c, 1),
    };
    return c->e->parts.kernels->attention(&c->e->context, &args, err);
}

static int run_attention_grad(const struct call *c, struct error *err)
{
    const struct model *m = &c->e->parts.program->model;
    struct attention_grad_args args = {
        .B = c->in[0].dims[0],
        .T = c->in[0].dims[1],
        .H = m->heads,
        .K = m->kv_heads,
        .D = m->head_size,
        .dtype = c->in[0].dtype,
        .causal = flag(c, OP_CAUSAL),
        .dout = in_at(c, 0),
        .qkv = in_at(c, 1),
        .out = in_at(c, 2),
        .lse = in_at(c, 3),
        .dqkv = out_at(c, 0),
        .delta = out_at(c, 1),
    };
    return c->e->parts.kernels->attention_grad(&c->e->context, &args, err);
}

static int run_gelu(const struct call *c, struct error *err)
{
    struct gelu_args args = {elements(&c->in[0]), c->in[0].dtype, in_at(c, 0), out_at(c, 0)};
    return c->e->parts.kernels->gelu(&c->e->context, &args, err);
}

static int run_gelu_grad(const struct call *c, struct error *err)
{
    struct gelu_grad_args args = {elements(&c->in[0]), c->in[0].dtype, in_at(c, 1), out_at(c, 0)};
    return c->e->parts.kernels->gelu_grad(&c->e->context, &args, err);
}

static int run_swiglu(const struct call *c, struct error *err)
{
    struct swiglu_args args = {rows(&c->out[0]), columns(&c->out[0]), c->in[0].dtype, in_at(c, 0),
                               out_at(c, 0)};
    return c->e->parts.kernels->swiglu(&c->e->context, &args, err);
}

static int run_swiglu_grad(const struct call *c, struct error *err)
{
    struct swiglu_grad_args args = {rows(&c->in[0]), columns(&c->in[0]), c->in[0].dtype, in_at(c, 0),
                                    out_at(c, 0)};
    return c->e->parts.kernels->swiglu_grad(&c->e->context, &args, err);
}

static int run_cross_entropy(const struct call *c, struct error *err)
{
    struct cross_entropy_args args = {
        .R = rows(&c->in[0]),
        .V = columns(&c->in[0]),
        .dtype = c->in[0].dtype,
        .logits = out_at(c, 0),
        .targets = in_at(c, 1),
        .scale = c->e->loss_scale,
        .loss = out_at(c, 1),
        .gradient = c->e->training,
    };
    return c->e->parts.kernels->cross_entropy(&c->e->context, &args, err);
}

/* Gradients of the bucket's instances. */
static int run_all_reduce(const struct call *c, struct error *err)
{
    const struct executor *e = c->e;
    const struct program *p = e->parts.program;
    const struct bucket *bucket = &p->buckets[c->s->bucket];
    enum dtype dtype = wide_dtype(precision_dtype(p->layout.precision));
    int count = 0;
    for (int64_t i = bucket->first; i <= bucket->last; i++)
        for (int k = 0; k < program_block(p, i)->parameter_count; k++) {
            struct placed t = program_state(p, i, k, STATE_GRADIENT);
            e->spans[count++] = (struct comm_span){address(e, &t), elements(&t)};
        }
    return comm_start_all_reduce(e->parts.comm, e->spans, count, dtype, COMM_SUM, NULL, err);
}

static int run_reduce_loss(const struct call *c, struct error *err)
{
    const struct executor *e = c->e;
    struct placed t = program_scalar(e->parts.program, SCALAR_LOSS);
    struct comm_span span = {address(e, &t), 1};
    return comm_start_all_reduce(e->parts.comm, &span, 1, t.dtype, COMM_SUM, NULL, err);
}

static int run_wait(const struct call *c, struct error *err)
{
    return comm_wait(c->e->parts.comm, err);
}

static int run_square_sum(const struct call *c, struct error *err)
{
    const struct executor *e = c->e;
    const struct program *p = e->parts.program;
    struct placed total = program_scalar(p, SCALAR_SQUARE_SUM);
    for (int k = 0; k < program_block(p, c->s->instance)->parameter_count; k++) {
        struct placed g = program_state(p, c->s->instance, k, STATE_GRADIENT);
        struct square_sum_args args = {elements(&g), g.dtype, address(e, &g), address(e, &total)};
        if (e->parts.kernels->square_sum(&e->context, &args, err))
            return -1;
    }
    return 0;
}

static void *state_at(const struct executor *e, int64_t instance, int index, enum state state)
{
    struct placed t = program_state(e->parts.program, instance, index, state);
    return address(e, &t);
}

static int run_adamw(const struct call *c, struct error *err)
{
    const struct executor *e = c->e;
    const struct program *p = e->parts.program;
    const struct update *u = e->update;
    int64_t instance = c->s->instance;
    const struct block *block = program_block(p, instance);
    struct placed square_sum = program_scalar(p, SCALAR_SQUARE_SUM);
    for (int k = 0; k < block->parameter_count; k++) {
        struct placed w = program_state(p, instance, k, STATE_WEIGHT);
        struct adamw_args args = {
            .count = block->parameters[k].count,
            .dtype = w.dtype,
            .w = address(e, &w),
            .g = state_at(e, instance, k, STATE_GRADIENT),
            .m = state_at(e, instance, k, STATE_MOMENT1),
            .v = state_at(e, instance, k, STATE_MOMENT2),
            .master = program_has_state(p, STATE_MASTER) ? state_at(e, instance, k, STATE_MASTER) : NULL,
            .lr = u->lr,
            .beta1 = u->beta1,
            .beta2 = u->beta2,
            .eps = u->eps,
            .decay = block->parameters[k].decay ? u->decay : 0,
            .t = e->step + 1,
            .square_sum = address(e, &square_sum),
            .max_norm = u->max_norm,
        };
        if (e->parts.kernels->adamw(&e->context, &args, err))
            return -1;
    }
    return 0;
}

typedef int (*runner)(const struct call *, struct error *);

static const runner runners[OP_KINDS] = {
    [OP_LOAD_TOKENS] = run_load,
    [OP_LOAD_FEATURES] = run_load,
    [OP_LOAD_TARGETS] = run_load,
    [OP_EMBED] = run_embed,
    [OP_EMBED_GRAD] = run_embed_grad,
    [OP_NORM] = run_norm,
    [OP_NORM_GRAD] = run_norm_grad,
    [OP_MATMUL] = run_matmul,
    [OP_MATMUL_DGRAD] = run_matmul_dgrad,
    [OP_MATMUL_WGRAD] = run_matmul_wgrad,
    [OP_ROPE] = run_rope,
    [OP_ATTENTION] = run_attention,
    [OP_ATTENTION_GRAD] = run_attention_grad,
    [OP_GELU] = run_gelu,
    [OP_GELU_GRAD] = run_gelu_grad,
    [OP_SWIGLU] = run_swiglu,
    [OP_SWIGLU_GRAD] = run_swiglu_grad,
    [OP_CROSS_ENTROPY] = run_cross_entropy,
    [OP_ALL_REDUCE] = run_all_reduce,
    [OP_REDUCE_LOSS] = run_reduce_loss,
    [OP_WAIT] = run_wait,
    [OP_SQUARE_SUM] = run_square_sum,
    [OP_ADAMW] = run_adamw,
};

struct executor *executor_create(const struct executor_parts *parts)
{
    struct executor *e = host_alloc(sizeof *e);
    e->parts = *parts;
    e->context.threads = parts->threads;
    e->batch = batch_create(parts->program, parts->data);
    e->spans = host_alloc((size_t)(parts->program->parameter_tensors + 1) * sizeof *e->spans);
    return e;
}

void executor_free(struct executor *e)
{
    if (!e)
        return;
    batch_free(e->batch);
    free(e->spans);
    free(e);
}

static void resolve(struct call *c)
{
    const struct step_op *s = c->s;
    for (int i = 0; s->op && i < OP_INPUTS; i++) {
        c->has_in[i] = s->op->inputs[i] >= 0;
        if (c->has_in[i])
            c->in[i] = program_tensor(c->e->parts.program, s->instance, s->micro_batch, s->op->inputs[i]);
    }
    for (int i = 0; s->op && i < OP_OUTPUTS; i++) {
        c->has_out[i] = s->op->outputs[i] >= 0;
        if (c->has_out[i])
            c->out[i] = program_tensor(c->e->parts.program, s->instance, s->micro_batch, s->op->outputs[i]);
    }
}

static int take_births(struct executor *e, const struct step_op *s, struct error *err)
{
    for (int i = 0; s->op && i < s->op->birth_count; i++) {
        struct placed t = program_tensor(e->parts.program, s->instance, s->micro_batch, s->op->births[i]);
        if (step_memory_take(e->parts.memory, &t, err))
            return -1;
    }
    return 0;
}

static void give_deaths(struct executor *e, const struct step_op *s)
{
    for (int i = 0; s->op && i < s->op->death_count; i++) {
        struct placed t = program_tensor(e->parts.program, s->instance, s->micro_batch, s->op->deaths[i]);
        step_memory_give(e->parts.memory, &t);
    }
}

static int run_op(struct executor *e, const struct step_op *s, struct error *err)
{
    device_range_begin(e->parts.device, s->id, (int)e->step);
    struct call call = {.e = e, .s = s};
    int status = take_births(e, s, err);
    if (!status) {
        resolve(&call);
        status = runners[s->kind](&call, err);
        if (!status)
            give_deaths(e, s);
    }
    device_range_end(e->parts.device);
    if (!status || (err && err->kind == ERROR_STOPPED))
        return status;
    char name[PROGRAM_NAME] = "";
    if (s->instance >= 0)
        program_instance_name(e->parts.program, s->instance, name);
    return error_prefix(err, "step %lld, %s %s %s", (long long)e->step, phase_name(s->phase), name,
                        op_kind_name(s->kind));
}

static void write_scalar(struct executor *e, enum scalar scalar, double value)
{
    struct placed t = program_scalar(e->parts.program, scalar);
    float narrow = (float)value;
    device_write(e->parts.device, address(e, &t), t.dtype == DTYPE_F64 ? (void *)&value : (void *)&narrow,
                 t.bytes);
}

static double read_scalar(struct executor *e, enum scalar scalar)
{
    struct placed t = program_scalar(e->parts.program, scalar);
    double wide = 0;
    float narrow = 0;
    device_read(e->parts.device, t.dtype == DTYPE_F64 ? (void *)&wide : (void *)&narrow, address(e, &t),
                t.bytes);
    return t.dtype == DTYPE_F64 ? wide : (double)narrow;
}

/* Where this rank's share of a step's samples begins, and each micro-batch in it. */
static int64_t first_sample(const struct executor *e, int64_t micro_batch)
{
    const struct layout *l = &e->parts.program->layout;
    return e->step * l->global_batch + comm_rank(e->parts.comm) * (l->global_batch / l->dp) +
           micro_batch * l->micro_batch;
}

int executor_step(struct executor *e, int64_t step, const struct update *update, struct step_result *out,
                  struct error *err)
{
    const struct layout *l = &e->parts.program->layout;
    e->step = step;
    e->update = update;
    e->training = true;
    e->loss_scale = 1 / ((double)l->global_batch * (double)l->seq_len);
    write_scalar(e, SCALAR_LOSS, 0);
    write_scalar(e, SCALAR_SQUARE_SUM, 0);
    struct program_cursor cursor = program_walk(e->parts.program);
    int64_t loaded = -1;
    for (struct step_op s; program_next(&cursor, &s);) {
        if (s.micro_batch > loaded) {
            loaded = s.micro_batch;
            batch_load(e->batch, DATA_TRAINING, first_sample(e, loaded));
        }
        if (run_op(e, &s, err))
            return -1;
    }
    out->loss = read_scalar(e, SCALAR_LOSS);
    out->grad_norm = sqrt(read_scalar(e, SCALAR_SQUARE_SUM));
    return 0;
}

/* Ends every life that forward began and backward would have ended. */
static void give_kept(struct executor *e)
{
    const struct program *p = e->parts.program;
    for (int64_t instance = 0; instance < p->instances; instance++) {
        const struct block *block = program_block(p, instance);
        for (int op = block->forward_count; op < block->op_count; op++)
            for (int i = 0; i < block->ops[op].death_count; i++) {
                int index = block->ops[op].deaths[i];
                if (block->tensors[index].saved) {
                    struct placed t = program_tensor(p, instance, 0, index);
                    step_memory_give(e->parts.memory, &t);
                }
            }
    }
}

int executor_validate(struct executor *e, int64_t batches, double *loss, struct error *err)
{
    const struct layout *l = &e->parts.program->layout;
    e->training = false;
    e->loss_scale = 1 / ((double)batches * (double)l->micro_batch * (double)l->seq_len);
    write_scalar(e, SCALAR_LOSS, 0);
    for (int64_t i = 0; i < batches; i++) {
        batch_load(e->batch, DATA_VALIDATION, i * l->micro_batch);
        struct program_cursor cursor = program_walk(e->parts.program);
        for (struct step_op s; program_next(&cursor, &s) && s.phase == PHASE_FORWARD;)
            if (run_op(e, &s, err))
                return -1;
        give_kept(e);
    }
    *loss = read_scalar(e, SCALAR_LOSS);
    return 0;
}
