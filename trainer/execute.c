/* The loop: takes what an operation gives birth to, finds the function that runs it, gives back what dies after it. */
#include "trainer/execute.h"

#include "base/arena.h"
#include "base/checked.h"
#include "trainer/batch.h"
#include "trainer/call.h"
#include "trainer/pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static runner *const runners[OP_KINDS] = {
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
    [OP_QK_NORM] = run_qk_norm,
    [OP_QK_NORM_GRAD] = run_qk_norm_grad,
    [OP_ATTENTION] = run_attention,
    [OP_ATTENTION_GRAD] = run_attention_grad,
    [OP_GELU] = run_gelu,
    [OP_GELU_GRAD] = run_gelu_grad,
    [OP_SWIGLU] = run_swiglu,
    [OP_SWIGLU_GRAD] = run_swiglu_grad,
    [OP_CROSS_ENTROPY] = run_cross_entropy,
    [OP_ALL_GATHER] = run_all_gather,
    [OP_REDUCE_SCATTER] = run_reduce_scatter,
    [OP_SUM_PARTIAL] = run_combine_partial,
    [OP_MAX_PARTIAL] = run_combine_partial,
    [OP_RESIDUAL] = run_residual,
    [OP_LOGIT_MAX] = run_logit_max,
    [OP_LOGIT_SUMS] = run_logit_sums,
    [OP_CROSS_ENTROPY_SHARDED] = run_cross_entropy_sharded,
    [OP_RECEIVE] = run_receive,
    [OP_SEND] = run_send,
    [OP_COPY] = run_copy,
    [OP_ALL_REDUCE] = run_all_reduce,
    [OP_SCATTER_GRADIENTS] = run_scatter_gradients,
    [OP_REDUCE_LOSS] = run_reduce_loss,
    [OP_WAIT] = run_wait,
    [OP_REDUCE_NORMS] = run_reduce_norms,
    [OP_REDUCE_TIED] = run_reduce_tied,
    [OP_SQUARE_SUM] = run_square_sum,
    [OP_REDUCE_SQUARES] = run_reduce_squares,
    [OP_ADAMW] = run_adamw,
    [OP_GATHER_WEIGHTS] = run_gather_weights,
};

static bool is_sharded(enum state state)
{
    return state != STATE_WEIGHT && state != STATE_GRADIENT;
}

struct comm_span executor_own(const struct executor *e, int64_t instance, int index, enum state state)
{
    struct placed t = program_state(e->parts.program, instance, index, state);
    struct state_shard shard = program_shard(e->parts.program, instance, index, e->place.replica);
    return (struct comm_span){call_element(e, &t, is_sharded(state) ? 0 : shard.first), shard.count};
}

struct executor *executor_create(const struct executor_parts *parts)
{
    const struct program *p = parts->program;
    size_t spans = (size_t)max_i64(p->parameter_tensors + 1, p->layout.micro_batch);
    struct executor *e = host_alloc(sizeof *e);
    e->parts = *parts;
    e->place = layout_place_of(&p->layout, parts->rank);
    e->context.threads = parts->threads;
    e->context.device = parts->kernel_device;
    e->batch = batch_create(p, parts->data);
    e->messages = messages_create(p, parts->device, parts->memory, parts->groups.pipeline);
    e->labels = labels_for(parts->device, p);
    e->spans = host_alloc(spans * sizeof *e->spans);
    e->pieces = host_alloc(spans * sizeof *e->pieces);
    return e;
}

void executor_free(struct executor *e)
{
    if (!e)
        return;
    messages_free(e->messages);
    batch_free(e->batch);
    free(e->spans);
    free(e->pieces);
    free(e);
}

/* Tensor `slot` of the block as the operation sees it: a weight has its shape, whatever pads it in memory. */
static struct placed resolve_tensor(const struct call *c, int slot)
{
    const struct step_op *s = c->s;
    struct placed t = program_tensor(c->e->parts.program, s->instance, s->micro_batch, slot);
    memcpy(t.dims, s->block->tensors[slot].dims, sizeof t.dims);
    return t;
}

static void resolve(struct call *c)
{
    const struct op *op = c->s->op;
    for (int i = 0; op && i < OP_INPUTS; i++) {
        c->has_in[i] = op->inputs[i] >= 0;
        if (c->has_in[i])
            c->in[i] = resolve_tensor(c, op->inputs[i]);
    }
    for (int i = 0; op && i < OP_OUTPUTS; i++) {
        c->has_out[i] = op->outputs[i] >= 0;
        if (c->has_out[i])
            c->out[i] = resolve_tensor(c, op->outputs[i]);
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

static bool loads(enum op_kind kind)
{
    return kind == OP_LOAD_TOKENS || kind == OP_LOAD_FEATURES || kind == OP_LOAD_TARGETS;
}

static bool is_in_recording(const struct executor *e, enum op_kind kind)
{
    return e->mode == EXECUTOR_REPLAY && !loads(kind);
}

static int run_alone_or_paired(const struct call *call, struct error *err)
{
    const struct kernel_table *kernels = call->e->parts.kernels;
    bool may_pair = call->e->parts.pair_operations && kernels->matmul_gelu && kernels->matmul_dgrad_gelu;
    enum pair pair = may_pair ? pair_of(call->s) : PAIR_NONE;
    if (pair == PAIR_NONE)
        return runners[call->s->kind](call, err);
    if (pair == PAIR_WITH_OTHER)
        return 0;
    struct step_op neighbour = pair_neighbour(call->s, pair == PAIR_MATMUL_GELU ? -1 : 1);
    struct call other = {.e = call->e, .s = &neighbour};
    resolve(&other);
    return pair == PAIR_MATMUL_GELU ? run_matmul_gelu(&other, call, err) : run_dgrad_gelu(call, &other, err);
}

static int compute(struct call *call, struct error *err)
{
    struct labels *labels = &call->e->labels;
    resolve(call);
    labels_begin_operation(labels, call->s);
    int status = run_alone_or_paired(call, err);
    labels_end_operation(labels);
    return status;
}

static int run_op(struct executor *e, const struct step_op *s, struct error *err)
{
    device_range_begin(e->parts.device, s->id, (int)e->step);
    struct call call = {.e = e, .s = s};
    bool exchanges = s->item >= 0 && e->mode != EXECUTOR_REPLAY;
    int status = exchanges ? messages_at_item(e->messages, s->item, err) : 0;
    if (!status)
        status = take_births(e, s, err);
    if (!status) {
        status = is_in_recording(e, s->kind) ? 0 : compute(&call, err);
        if (!status)
            give_deaths(e, s);
    }
    device_range_end(e->parts.device);
    if (!status || (err && err->kind == ERROR_STOPPED))
        return status;
    char name[PROGRAM_NAME] = "";
    if (s->instance >= 0)
        program_instance_name(e->parts.program, s->instance, name);
    return error_prefix(err, "%sstep %lld, %s %s %s", e->training ? "" : "validation after ",
                        (long long)e->step + 1, phase_name(s->phase), name, op_kind_name(s->kind));
}

static void write_scalar(struct executor *e, enum scalar scalar, double value)
{
    struct placed t = program_scalar(e->parts.program, scalar);
    float narrow = (float)value;
    device_write(e->parts.device, call_address(e, &t),
                 t.dtype == DTYPE_F64 ? (void *)&value : (void *)&narrow, t.bytes);
}

double executor_read_scalar(const struct executor *e, enum scalar scalar)
{
    struct placed t = program_scalar(e->parts.program, scalar);
    double wide = 0;
    float narrow = 0;
    device_read(e->parts.device, t.dtype == DTYPE_F64 ? (void *)&wide : (void *)&narrow, call_address(e, &t),
                t.bytes);
    return t.dtype == DTYPE_F64 ? wide : (double)narrow;
}

/* Where a replica's share of a step's samples begins, and each micro-batch in it. */
static int64_t first_sample(const struct executor *e, int64_t micro_batch)
{
    const struct layout *l = &e->parts.program->layout;
    return e->step * l->global_batch + e->place.replica * (l->global_batch / l->dp) +
           micro_batch * l->micro_batch;
}

/* All operations in order, as far as the mode has them run. */
static int walk_step(struct executor *e, struct error *err)
{
    write_scalar(e, SCALAR_LOSS, 0);
    write_scalar(e, SCALAR_SQUARE_SUM, 0);
    bool recorded = e->mode == EXECUTOR_REPLAY;
    if (!recorded)
        messages_begin_walk(e->messages, false);
    struct program_cursor cursor = program_walk(e->parts.program);
    int64_t loaded = -1;
    for (struct step_op s; program_next(&cursor, &s);) {
        if (loads(s.kind) && s.micro_batch != loaded) {
            loaded = s.micro_batch;
            batch_load(e->batch, DATA_TRAINING, first_sample(e, loaded));
        }
        if (run_op(e, &s, err))
            return -1;
    }
    return recorded ? 0 : messages_end_walk(e->messages, err);
}

/* A rank alone goes on without. Others may have recorded what needs this rank to record it too, so there it is a failure. */
static int give_up_recording(struct executor *e, struct error *err)
{
    if (layout_ranks(&e->parts.program->layout) == 1)
        return 0;
    *err = e->unrecorded;
    return error_prefix(err, "step %lld cannot be recorded, and other ranks may have done so; use --no-graph",
                        (long long)e->step + 1);
}

/* The first recording is the last when it fails: *recorded says whether the step was done. */
static int record_step(struct executor *e, bool *recorded, struct error *err)
{
    *recorded = false;
    if (device_record(e->parts.device, &e->unrecorded))
        return give_up_recording(e, err);
    e->mode = EXECUTOR_RECORD;
    int status = walk_step(e, err);
    e->mode = EXECUTOR_RUN;
    if (status) {
        device_forget(e->parts.device);
        return -1;
    }
    if (device_recorded(e->parts.device, &e->unrecorded))
        return give_up_recording(e, err);
    e->mode = EXECUTOR_REPLAY;
    *recorded = true;
    return 0;
}

static int replay_step(struct executor *e, struct error *err)
{
    device_rewrite(e->parts.device);
    return walk_step(e, err) || device_replay(e->parts.device, err) ? -1 : 0;
}

/* The first step is never recorded: in it kernels are loaded and algorithms chosen, which a recording must not hold. */
static bool wants_recording(const struct executor *e)
{
    return e->parts.record_steps && e->ran_step && device_can_record(e->parts.device) &&
           e->unrecorded.kind == ERROR_NONE;
}

static int run_step(struct executor *e, const char **note, struct error *err)
{
    bool recorded;
    if (e->mode == EXECUTOR_REPLAY)
        return replay_step(e, err);
    if (wants_recording(e)) {
        if (record_step(e, &recorded, err))
            return -1;
        if (recorded)
            return 0;
        error_prefix(&e->unrecorded, "steps are not recorded, and run operation by operation");
        *note = e->unrecorded.text;
    }
    return walk_step(e, err);
}

static int begin_step(struct executor *e, struct error *err)
{
    struct step_args args = {e->update->lr, e->update->beta1, e->update->beta2, e->step + 1};
    const struct kernel_table *kernels = e->parts.kernels;
    return kernels->begin_step ? kernels->begin_step(&e->context, &args, err) : 0;
}

/* Reads what the step has made. On a device that works beside the host, what went wrong shows here. */
static int end_step(struct executor *e, struct step_result *out, struct error *err)
{
    const struct kernel_table *kernels = e->parts.kernels;
    out->loss = executor_read_scalar(e, SCALAR_LOSS);
    out->grad_norm = sqrt(executor_read_scalar(e, SCALAR_SQUARE_SUM));
    if (kernels->check && kernels->check(&e->context, err))
        return error_prefix(err, "step %lld", (long long)e->step + 1);
    if (!isfinite(out->loss) || !isfinite(out->grad_norm))
        return error_set(
            err, "step %lld: the loss is %g and the gradient norm %g; lower --lr, or look at the data",
            (long long)e->step + 1, call_shown(out->loss), call_shown(out->grad_norm));
    return 0;
}

int executor_step(struct executor *e, int64_t step, const struct update *update, struct step_result *out,
                  struct error *err)
{
    const struct layout *l = &e->parts.program->layout;
    *out = (struct step_result){0};
    e->step = step;
    e->update = update;
    e->training = true;
    e->loss_scale = 1 / ((double)l->global_batch * (double)l->seq_len);
    labels_begin_step(&e->labels, "step", step);
    int status = begin_step(e, err) || run_step(e, &out->note, err) || end_step(e, out, err) ? -1 : 0;
    labels_end_step(&e->labels);
    e->ran_step = !status;
    return status;
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

/* The last stage knows it, and tells the others. */
static int read_validation_loss(struct executor *e, double *loss, struct error *err)
{
    struct comm *pipeline = e->parts.groups.pipeline;
    struct placed t = program_scalar(e->parts.program, SCALAR_LOSS);
    struct comm_span span = {call_address(e, &t), 1};
    if (pipeline && comm_all_reduce(pipeline, &span, 1, t.dtype, COMM_SUM, err))
        return -1;
    *loss = executor_read_scalar(e, SCALAR_LOSS);
    return 0;
}

static int validate(struct executor *e, int64_t batches, double *loss, struct error *err)
{
    const struct layout *l = &e->parts.program->layout;
    const struct kernel_table *kernels = e->parts.kernels;
    enum executor_mode mode = e->mode;
    e->mode = EXECUTOR_RUN;
    e->training = false;
    e->loss_scale = 1 / ((double)batches * (double)l->micro_batch * (double)l->seq_len);
    write_scalar(e, SCALAR_LOSS, 0);
    for (int64_t i = 0; i < batches; i++) {
        batch_load(e->batch, DATA_VALIDATION, i * l->micro_batch);
        messages_begin_walk(e->messages, true);
        struct program_cursor cursor = program_walk_forward(e->parts.program);
        for (struct step_op s; program_next(&cursor, &s);)
            if (run_op(e, &s, err))
                return -1;
        give_kept(e);
        if (messages_end_walk(e->messages, err))
            return -1;
    }
    e->mode = mode;
    if (read_validation_loss(e, loss, err))
        return -1;
    return kernels->check ? kernels->check(&e->context, err) : 0;
}

int executor_validate(struct executor *e, int64_t batches, double *loss, struct error *err)
{
    labels_begin_step(&e->labels, "validation after step", e->step);
    int status = validate(e, batches, loss, err);
    labels_end_step(&e->labels);
    return status;
}
