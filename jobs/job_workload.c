/* From what a launch says to what predictions of memory are made from, field by field; and what no rule is about. */
#include "jobs/job_workload.h"

#include "base/checked.h"
#include "jobs/adapter_targets.h"
#include "jobs/frameworks.h"

#include <stdlib.h>
#include <string.h>

static enum workload_sharding sharding_of(const struct training_job *job)
{
    static const enum workload_sharding shardings[] = {
        [JOB_REPLICATED] = WORKLOAD_REPLICATED, [JOB_DISTRIBUTED_OPTIMIZER] = WORKLOAD_DISTRIBUTED_OPTIMIZER,
        [JOB_ZERO1] = WORKLOAD_ZERO1,           [JOB_ZERO2] = WORKLOAD_ZERO2,
        [JOB_ZERO3] = WORKLOAD_ZERO3,           [JOB_FSDP1] = WORKLOAD_FSDP1,
        [JOB_FSDP2] = WORKLOAD_FSDP2,
    };
    bool whole = job->shards.sharding == JOB_FSDP1 && job->shards.fsdp_strategy == JOB_NO_SHARD;
    return whole ? WORKLOAD_REPLICATED : shardings[job->shards.sharding];
}

static void set_model(const struct training_job *job, struct workload *w)
{
    const struct job_model *m = &job->model;
    w->model = (struct workload_model){
        .layers = m->layers,
        .hidden = m->hidden,
        .heads = m->heads,
        .kv_heads = m->kv_heads,
        .head_size = m->head_size,
        .ffn = m->ffn,
        .vocab = max_i64(m->vocab, job->padded_vocab),
        .positions = m->positions == JOB_LEARNED ? m->max_seq_len : 0,
        .token_types = m->token_types,
        .encoder = m->kind == JOB_ENCODER,
        .gated = m->gated,
        .tied = m->tied,
        .rms_norm = m->norm == JOB_RMS_NORM,
        .bias = m->ffn_bias,
        .qkv_bias = m->qkv_bias,
        .qk_norm = m->qk_norm,
        .pooler = m->pooler,
        .classes = m->classes,
        .experts = m->experts.count,
        .active_experts = m->experts.active,
        .expert_ffn = m->experts.ffn,
        .shared_ffn = m->experts.shared_ffn,
        .dense_layers = m->experts.dense_layers,
        .q_rank = m->latent.q_rank,
        .kv_rank = m->latent.kv_rank,
        .rope_size = m->latent.rope_size,
        .nope_size = m->latent.nope_size,
        .value_size = m->latent.value_size,
        .traits = m->traits,
        .parameters = (double)m->counted_parameters,
    };
    w->hidden_dropout = w->embedding_dropout = m->hidden_dropout > 0;
    w->attention_dropout = m->attention_dropout > 0;
}

/* Names of transformers/activations.py (ACT2CLS); gelu_python_tanh and gelu_accurate are written as gelu_new is. */
static const struct {
    const char *name;
    enum workload_activation activation;
} activations[] = {
    {"gelu", WORKLOAD_ACTIVATION_KERNEL},          {"gelu_pytorch_tanh", WORKLOAD_ACTIVATION_KERNEL},
    {"silu", WORKLOAD_ACTIVATION_KERNEL},          {"swish", WORKLOAD_ACTIVATION_KERNEL},
    {"leaky_relu", WORKLOAD_ACTIVATION_KERNEL},    {"relu6", WORKLOAD_ACTIVATION_KERNEL},
    {"relu", WORKLOAD_ACTIVATION_RESULT},          {"sigmoid", WORKLOAD_ACTIVATION_RESULT},
    {"tanh", WORKLOAD_ACTIVATION_RESULT},          {"gelu_new", WORKLOAD_ACTIVATION_NEW},
    {"gelu_python_tanh", WORKLOAD_ACTIVATION_NEW}, {"gelu_accurate", WORKLOAD_ACTIVATION_NEW},
    {"gelu_fast", WORKLOAD_ACTIVATION_FAST},       {"gelu_python", WORKLOAD_ACTIVATION_ERF},
    {"quick_gelu", WORKLOAD_ACTIVATION_QUICK},     {"gelu_10", WORKLOAD_ACTIVATION_CLIPPED},
};

/* Frameworks without such names have kernels. */
static int set_activation(const struct training_job *job, struct workload *w, struct error *err)
{
    const char *name = job->model.activation;
    size_t i = 0, count = sizeof activations / sizeof activations[0];
    if (job->model.gated || !*name)
        return 0;
    while (i < count && strcmp(activations[i].name, name))
        i++;
    if (i == count)
        return error_set(err, "no rule is about the activation %.40s; try gelu to see what that needs", name);
    w->model.activation = activations[i].activation;
    return 0;
}

/* torch.distributed.pipelining's names, and ours. */
static const struct {
    const char *name;
    enum schedule_kind kind;
    bool v_shaped;
} schedules[] = {
    {"1F1B", SCHEDULE_1F1B, false},
    {"GPipe", SCHEDULE_GPIPE, false},
    {"Interleaved1F1B", SCHEDULE_INTERLEAVED, false},
    {"ZBVZeroBubble", SCHEDULE_1F1B, true},
    {"DualPipeV", SCHEDULE_1F1B, true},
    {"zb-h1", SCHEDULE_ZB_H1, false},
};

static int set_schedule(const struct training_job *job, struct workload *w, struct error *err)
{
    const char *name = job->layout.schedule;
    if (!name || w->pp == 1)
        return 0;
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++)
        if (!strcasecmp(schedules[i].name, name)) {
            w->schedule = schedules[i].kind;
            w->v_shaped = schedules[i].v_shaped;
            return 0;
        }
    return error_set(err, "no rule is about the schedule %.40s; try 1F1B to see what that needs", name);
}

static void set_layout(const struct training_job *job, struct workload *w)
{
    const struct job_layout *l = &job->layout;
    w->dp = max_i64(l->dp, 1);
    w->tp = max_i64(l->tp, 1);
    w->pp = max_i64(l->pp, 1);
    w->cp = max_i64(l->cp, 1);
    w->ep = max_i64(l->ep, 1);
    w->virtual_stages = w->pp > 1 ? max_i64(l->virtual_stages, 1) : 1;
    w->chunk_layers = w->pp > 1 ? l->chunk_layers : NULL;
    w->sequence_parallel = l->sequence_parallel && w->tp > 1;
    w->shard_ranks = l->dp_replicate > 1 ? l->dp_shard * w->cp : 0;
    w->micro_batch = max_i64(job->batch.micro, 1);
    w->sequence = max_i64(job->batch.sequence, 1);
    w->micro_batches = job->batch.global ? max_i64(job->batch.global / (w->dp * w->micro_batch), 1)
                                         : max_i64(job->batch.accumulation, 1);
}

/* States that options choose a type for. */
static void set_states(const struct job_shards *shards, struct workload *w)
{
    if (shards->masters_16bit && w->master_bytes)
        w->master_bytes = 2;
    if (shards->moments_16bit)
        w->moment_bytes = 2;
}

static void set_precision(const struct training_job *job, struct workload *w)
{
    bool casts = job->precision == JOB_AUTOCAST_BF16 || job->precision == JOB_AUTOCAST_FP16;
    bool pure = job->precision == JOB_PURE_BF16, whole = job->precision == JOB_FP32;
    bool fp32_weights = whole || (casts && !workload_is_deepspeed(w));
    w->autocast = casts && !workload_is_fsdp(w) && !workload_is_deepspeed(w);
    w->compute_bytes = whole ? 4 : 2;
    w->weight_bytes = fp32_weights ? 4 : 2;
    w->master_bytes = fp32_weights || pure ? 0 : 4;
    w->moment_bytes = pure ? 2 : 4;
    w->gradient_bytes = pure ? 2 : job->gradients_fp32 || whole ? 4 : 2;
    w->reduce_bytes = pure || job_says(job->shards.reduce_precision, "16") ? 2 : 4;
}

static void set_recompute(const struct training_job *job, struct workload *w)
{
    static const enum workload_recompute policies[] = {
        [JOB_RECOMPUTE_NONE] = WORKLOAD_KEEPS_ALL,
        [JOB_RECOMPUTE_SELECTIVE] = WORKLOAD_MODULES,
        [JOB_RECOMPUTE_FULL] = WORKLOAD_FULL,
    };
    const struct job_recompute_choice *r = &job->recompute;
    w->recompute = policies[r->granularity];
    w->modules = r->made_again;
    if (r->granularity == JOB_RECOMPUTE_FULL && r->method == JOB_METHOD_BLOCK)
        w->remade_layers = r->layers;
}

/* ---- the optimizer ---- */

/* Names that mean the same everywhere. */
static const struct optimizer_rule optimizers[] = {
    {"adam", WORKLOAD_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"adamw", WORKLOAD_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"lion", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 0},
    {"sgd", WORKLOAD_SGD, WORKLOAD_STEP_FOREACH, 0},
    {"adagrad", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FOREACH, 0},
    {"rmsprop", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FOREACH, 0},
    {0},
};

static const struct optimizer_rule *find_optimizer(const struct optimizer_rule *list, const char *name)
{
    for (; list && list->name; list++)
        if (!strcasecmp(list->name, name))
            return list;
    return NULL;
}

static enum workload_step step_of(const char *implementation)
{
    return !strcmp(implementation, "foreach")    ? WORKLOAD_STEP_FOREACH
           : !strcmp(implementation, "for-loop") ? WORKLOAD_STEP_LOOP
                                                 : WORKLOAD_STEP_FUSED;
}

static int set_optimizer(const struct training_job *job, struct workload *w, struct error *err)
{
    const struct job_optimizer *o = &job->optimizer;
    const char *name = o->name ? o->name : "adam";
    const struct optimizer_rule *rule = find_optimizer(job->framework->modules->optimizers, name);
    rule = rule ? rule : find_optimizer(optimizers, name);
    if (!rule)
        return error_set(err, "no rule is about the optimizer %.40s; try %s to see what that needs", name,
                         job->framework->modules->optimizer);
    bool momentum = rule->optimizer == WORKLOAD_SGD && o->momentum > 0;
    w->optimizer = momentum ? WORKLOAD_SGD_MOMENTUM : rule->optimizer;
    w->step = o->implementation ? step_of(o->implementation) : rule->step;
    w->moment_bytes = rule->state_bytes ? rule->state_bytes : w->moment_bytes;
    w->step_in_backward = o->in_backward;
    w->offload_optimizer = o->offload || job->shards.offload_optimizer != JOB_OFFLOAD_NONE;
    w->offload_weights = job->shards.offload_parameters != JOB_OFFLOAD_NONE;
    /* FSDP's offload policy keeps states where the weights are. */
    w->offload_optimizer = w->offload_optimizer || (w->offload_weights && workload_is_fsdp(w));
    return 0;
}

/* ---- kernels ---- */

static void set_kernels(const struct training_job *job, struct workload *w)
{
    const struct job_kernels *k = &job->kernels;
    bool flash_2 = k->attention == JOB_FLASH || k->attention == JOB_FLASH3;
    bool scores = k->attention == JOB_EAGER || (job->model.traits.flash_2_alone && !flash_2);
    w->attention = scores ? WORKLOAD_EAGER : WORKLOAD_FLASH;
    if (k->liger || k->fused_norm)
        w->norm = WORKLOAD_NORM_FUSED;
    if (k->liger || k->fused_gate)
        w->gate = WORKLOAD_GATE_FUSED;
    if (k->liger || k->fused_head || k->cut_loss) {
        w->loss = WORKLOAD_LOSS_LINEAR;
        /* ops/fused_linear_cross_entropy.py: so that a chunk's logits are about as large as the head's input */
        w->loss_chunks = max_i64(w->model.vocab / max_i64(w->model.hidden, 1), 1);
        w->logits_held = 0;
    }
    if (k->cut_loss)
        w->loss_chunks = w->model.vocab; /* Wijmans et al. 2024: as good as none of them in memory */
    w->expert_capacity = k->pads_experts ? k->expert_capacity : 0;
    w->compiled = k->compile;
}

static void set_shards(const struct training_job *job, struct workload *w)
{
    const struct job_shards *s = &job->shards;
    bool keeps = s->fsdp_strategy == JOB_SHARD_GRAD_OP || s->fsdp_strategy == JOB_HYBRID_SHARD_ZERO2;
    if (w->sharding == WORKLOAD_FSDP1)
        w->reshards_after_forward = !keeps;
    if (w->sharding == WORKLOAD_FSDP2)
        w->reshards_after_forward = s->reshard_after_forward;
    w->wraps_layers = !s->whole_model;
    w->accumulates_without_sync = s->syncs_late && workload_is_fsdp(w);
    if (s->reduce_bucket && workload_is_deepspeed(w))
        w->bucket_elements = s->reduce_bucket;
    if (!workload_is_deepspeed(w))
        return;
    w->overlaps_gradients = s->overlap;
    w->reuse_elements = s->reuse_distance ? s->reuse_distance : w->reuse_elements;
}

/* Norms and, unless bitsandbytes' 4 bits stand beside bf16, the ends of a model that was prepared are in fp32
 * (trl/models/utils.py, peft/utils/other.py: prepare_model_for_kbit_training()). */
static void set_prepared(const struct training_job *job, struct workload *w)
{
    bool narrow = job->adapter.weight_bits == 4 && job->precision == JOB_AUTOCAST_BF16;
    w->wide_results = w->autocast;
    w->frozen_end_bytes = narrow ? 2 : 4;
}

static int set_adapter(const struct training_job *job, struct workload *w, struct error *err)
{
    const struct job_adapter *a = &job->adapter;
    if (!a->rank)
        return 0;
    w->lora_rank = a->rank;
    w->lora_dropout = a->dropout > 0;
    w->adapters_cast = a->cast;
    w->frozen_bits = a->weight_bits ? (int)a->weight_bits : 8 * w->weight_bytes;
    w->moment_bytes = 4; /* PEFT keeps adapters in fp32 (autocast_adapter_dtype) */
    if (a->prepared)
        set_prepared(job, w);
    return adapter_targets(job, w, &w->lora_linears, err);
}

/* ---- what no rule is about ---- */

static const char *foreign_feature(const struct training_job *job, const struct workload *w)
{
    const struct job_experts *e = &job->model.experts;
    if (job->beyond)
        return job->beyond;
    if (e->count && e->every != 1)
        return "layers of which every so many-th has experts";
    const struct framework_modules *modules = job->framework->modules;
    return modules->foreign ? modules->foreign(job, w) : NULL;
}

int job_workload_refuse(const char *feature, struct error *err)
{
    return error_set(err, "no rule is about %s; leave it out to see what the job needs without", feature);
}

int job_workload(const struct training_job *job, struct workload *out, struct error *err)
{
    const struct framework_modules *modules = job->framework->modules;
    struct workload w = workload_default(modules->library(job), sharding_of(job));
    set_model(job, &w);
    set_layout(job, &w);
    set_precision(job, &w);
    const char *feature = foreign_feature(job, &w);
    if (feature)
        return job_workload_refuse(feature, err);
    if (set_activation(job, &w, err) || set_schedule(job, &w, err) || set_optimizer(job, &w, err))
        return -1;
    if (workload_set_allocator(&w, job->kernels.allocator, err))
        return -1;
    set_states(&job->shards, &w);
    set_recompute(job, &w);
    set_kernels(job, &w);
    set_shards(job, &w);
    if (set_adapter(job, &w, err))
        return -1;
    if (modules->workload)
        modules->workload(job, &w);
    w.inputs_offloaded = job->recompute.on_cpu && w.recompute != WORKLOAD_KEEPS_ALL;
    *out = w;
    return 0;
}
