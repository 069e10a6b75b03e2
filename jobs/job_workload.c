/* From what a launch says to what predictions of memory are made from, field by field; and what no rule is about. */
#include "jobs/job_workload.h"

#include "base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool says(const char *text, const char *piece)
{
    return text && strcasestr(text, piece);
}

static bool is_megatron(const struct training_job *job)
{
    return job->framework == JOB_MEGATRON || job->framework == JOB_MEGATRON_DEEPSPEED;
}

static bool is_deepspeed(const struct workload *w)
{
    return w->sharding == WORKLOAD_ZERO1 || w->sharding == WORKLOAD_ZERO2 || w->sharding == WORKLOAD_ZERO3;
}

static bool is_fsdp(const struct workload *w)
{
    return w->sharding == WORKLOAD_FSDP1 || w->sharding == WORKLOAD_FSDP2;
}

static enum workload_library library_of(const struct training_job *job)
{
    switch (job->framework) {
    case JOB_MEGATRON:
        return job->kernels.transformer_engine ? WORKLOAD_MEGATRON : WORKLOAD_MEGATRON_LEGACY;
    case JOB_MEGATRON_DEEPSPEED:
        return WORKLOAD_MEGATRON_LEGACY;
    case JOB_TORCHTITAN:
        return WORKLOAD_TITAN;
    default:
        return WORKLOAD_TRANSFORMERS;
    }
}

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

/* "fp32", "bf16", "float16", "fp8" */
static int bytes_of(const char *type)
{
    return says(type, "8") ? 1 : says(type, "16") ? 2 : 4;
}

/* Megatron-LM's precision-aware optimizer chooses each state's type. Beside bf16 weights, TE's FusedAdam keeps of fp32 masters
 * only the 16 bits that these lack (store_param_remainders). */
static void set_states(const struct training_job *job, struct workload *w)
{
    const struct job_shards *s = &job->shards;
    if (s->precision_aware) {
        bool halves = job->precision == JOB_BF16 || says(s->main_parameters, "16");
        w->master_bytes = halves && w->master_bytes ? 2 : w->master_bytes;
        w->gradient_bytes = bytes_of(s->main_gradients);
        w->moment_bytes = (bytes_of(s->exp_avg) + bytes_of(s->exp_avg_sq) + 1) / 2;
    }
    if (s->masters_16bit && w->master_bytes)
        w->master_bytes = 2;
    if (s->moments_16bit)
        w->moment_bytes = 2;
}

static void set_precision(const struct training_job *job, struct workload *w)
{
    bool casts = job->precision == JOB_AUTOCAST_BF16 || job->precision == JOB_AUTOCAST_FP16;
    bool pure = job->precision == JOB_PURE_BF16, whole = job->precision == JOB_FP32;
    bool torch = w->library == WORKLOAD_TITAN || w->library == WORKLOAD_TRANSFORMERS;
    bool deepspeed = is_deepspeed(w);
    w->autocast = casts && !is_fsdp(w) && !deepspeed;
    w->compute_bytes = whole ? 4 : 2;
    w->weight_bytes = pure ? 2 : whole || w->autocast || (torch && !deepspeed) ? 4 : 2;
    w->master_bytes = w->weight_bytes == 2 && !pure ? 4 : 0;
    w->moment_bytes = pure ? 2 : 4;
    w->gradient_bytes = pure ? 2 : job->gradients_fp32 || whole ? 4 : 2;
    w->reduce_bytes = pure || says(job->shards.reduce_precision, "16") ? 2 : 4;
    if (torch && !deepspeed)
        w->gradient_bytes = w->weight_bytes;
    if (is_megatron(job))
        w->reduce_bytes = w->gradient_bytes;
    set_states(job, w);
}

/* torchtitan counts layers of which every so many-th is made again; or keeps the results of chosen operations. */
static enum workload_recompute titan_selective(int64_t every)
{
    return every == 0 ? WORKLOAD_EVERY_SECOND : every == 1 ? WORKLOAD_FULL : WORKLOAD_ALTERNATE;
}

static void set_recompute(const struct training_job *job, struct workload *w)
{
    static const enum workload_recompute policies[] = {
        [JOB_RECOMPUTE_NONE] = WORKLOAD_KEEPS_ALL,
        [JOB_RECOMPUTE_SELECTIVE] = WORKLOAD_CORE,
        [JOB_RECOMPUTE_FULL] = WORKLOAD_FULL,
    };
    const struct job_recompute_choice *r = &job->recompute;
    bool selective = r->granularity == JOB_RECOMPUTE_SELECTIVE;
    bool experts = (selective && says(r->modules, "moe")) || r->experts;
    w->recompute = policies[r->granularity];
    if (selective && job->framework == JOB_TORCHTITAN)
        w->recompute = titan_selective(r->layers);
    else if (experts && r->granularity != JOB_RECOMPUTE_FULL)
        w->recompute = says(r->modules, "layernorm") ? WORKLOAD_EXPERTS_AND_NORMS : WORKLOAD_EXPERTS;
    if (r->granularity == JOB_RECOMPUTE_FULL && r->method == JOB_METHOD_BLOCK)
        w->remade_layers = r->layers;
    w->inputs_offloaded = r->on_cpu && w->recompute != WORKLOAD_KEEPS_ALL;
}

/* ---- the optimizer ---- */

/* Names of all frameworks; those with one state count as SGD with momentum. `bytes`: of each state, 0: as the weights. */
static const struct {
    const char *name;
    enum workload_optimizer optimizer;
    enum workload_step step;
    int bytes;
} optimizers[] = {
    /* transformers/training_args.py, OptimizerNames; bitsandbytes' kernels need no temporaries */
    {"adamw_torch", WORKLOAD_ADAM, WORKLOAD_STEP_FOREACH, 0},
    {"adamw_torch_fused", WORKLOAD_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"adamw_apex_fused", WORKLOAD_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"adamw_anyprecision", WORKLOAD_ADAM, WORKLOAD_STEP_LOOP, 4},
    {"adamw_torch_8bit", WORKLOAD_ADAM8, WORKLOAD_STEP_LOOP, 0},
    {"adamw_bnb_8bit", WORKLOAD_ADAM8, WORKLOAD_STEP_FUSED, 0},
    {"adamw_8bit", WORKLOAD_ADAM8, WORKLOAD_STEP_FUSED, 0},
    {"paged_adamw", WORKLOAD_PAGED_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"paged_adamw_32bit", WORKLOAD_PAGED_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"paged_adamw_8bit", WORKLOAD_PAGED_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"adafactor", WORKLOAD_ADAFACTOR, WORKLOAD_STEP_LOOP, 0},
    {"sgd", WORKLOAD_SGD, WORKLOAD_STEP_FOREACH, 0},
    {"adagrad", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FOREACH, 0},
    {"rmsprop", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FOREACH, 0},
    {"rmsprop_bnb", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 4},
    {"rmsprop_bnb_32bit", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 4},
    {"rmsprop_bnb_8bit", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 1},
    {"lion_32bit", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 4},
    {"lion_8bit", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 1},
    {"paged_lion_32bit", WORKLOAD_PAGED_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"paged_lion_8bit", WORKLOAD_PAGED_ADAM, WORKLOAD_STEP_FUSED, 0},
    /* Megatron-LM; torchtitan; deepspeed/runtime/config.py */
    {"adam", WORKLOAD_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"adamw", WORKLOAD_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"lion", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 0},
};

static enum workload_step step_of(const char *implementation)
{
    return !strcmp(implementation, "foreach")    ? WORKLOAD_STEP_FOREACH
           : !strcmp(implementation, "for-loop") ? WORKLOAD_STEP_LOOP
                                                 : WORKLOAD_STEP_FUSED;
}

static int set_optimizer(const struct training_job *job, struct workload *w, struct error *err)
{
    const struct job_optimizer *o = &job->optimizer;
    size_t i = 0, count = sizeof optimizers / sizeof optimizers[0];
    const char *name = o->name ? o->name : "adam";
    while (i < count && strcasecmp(optimizers[i].name, name))
        i++;
    if (i == count)
        return error_set(err, "no rule is about the optimizer %.40s; try %s to see what that needs", name,
                         job->framework == JOB_HF_TRAINER ? "adamw_torch" : "adam");
    bool momentum = optimizers[i].optimizer == WORKLOAD_SGD && o->momentum > 0;
    w->optimizer = momentum ? WORKLOAD_SGD_MOMENTUM : optimizers[i].optimizer;
    w->step = o->implementation ? step_of(o->implementation) : optimizers[i].step;
    w->moment_bytes = optimizers[i].bytes ? optimizers[i].bytes : w->moment_bytes;
    w->step_in_backward = o->in_backward;
    w->offload_optimizer = o->offload || job->shards.offload_optimizer != JOB_OFFLOAD_NONE;
    w->offload_weights = job->shards.offload_parameters != JOB_OFFLOAD_NONE;
    /* FSDP's offload policy keeps states where the weights are. */
    w->offload_optimizer = w->offload_optimizer || (w->offload_weights && is_fsdp(w));
    return 0;
}

/* ---- kernels ---- */

static void set_attention(const struct training_job *job, struct workload *w)
{
    const struct job_kernels *k = &job->kernels;
    bool megatron = is_megatron(job), first = job_was_given(job, "--use-flash-attn-v1");
    bool eager = k->attention == JOB_EAGER ||
                 (k->attention == JOB_ATTENTION_DEFAULT && megatron && !k->transformer_engine);
    w->attention = !eager                                 ? WORKLOAD_FLASH
                   : megatron && k->masked_softmax_fusion ? WORKLOAD_FUSED_SOFTMAX
                                                          : WORKLOAD_EAGER;
    w->first_flash = megatron && first;
    /* Those take fewer keys than queries as they are (transformers/integrations/flash_attention.py, flex_attention.py). */
    if (!megatron && (k->attention == JOB_FLASH || k->attention == JOB_FLEX || k->attention == JOB_FLASH3))
        w->keys_expanded = false;
}

static void set_kernels(const struct training_job *job, struct workload *w)
{
    const struct job_kernels *k = &job->kernels;
    if (job->framework == JOB_MEGATRON)
        w->gate = k->bias_swiglu_fusion ? WORKLOAD_GATE_FUSED : WORKLOAD_GATE_WRITTEN;
    w->bias_apart = is_megatron(job) && !k->bias_gelu_fusion;
    if (says(k->loss_implementation, "te"))
        w->loss = WORKLOAD_LOSS_FUSED; /* TE's kernel writes the gradient over the logits */
    if (k->liger) {
        w->norm = WORKLOAD_NORM_FUSED;
        w->gate = WORKLOAD_GATE_FUSED;
        w->loss = WORKLOAD_LOSS_LINEAR;
        /* ops/fused_linear_cross_entropy.py: so that a chunk's logits are about as large as the head's input */
        w->loss_chunks = max_i64(w->model.vocab / max_i64(w->model.hidden, 1), 1);
        w->logits_held = 0;
    }
    if (job->framework == JOB_TORCHTITAN) /* nn.RMSNorm, which has a kernel since PyTorch 2.8 */
        w->norm = WORKLOAD_NORM_FUSED;
    w->expert_capacity = k->pads_experts ? k->expert_capacity : 0;
    /* torchao's Float8Linear keeps its input and weight as they were (torchao/float8/float8_linear.py). */
    w->fp8 = k->fp8 && job->framework == JOB_MEGATRON;
    w->compiled = k->compile;
    w->logits_whole = job->switches.whole_loss && w->tp > 1;
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
    w->accumulates_without_sync = s->syncs_late && is_fsdp(w);
    if (s->reduce_bucket && is_deepspeed(w))
        w->bucket_elements = s->reduce_bucket;
    if (is_megatron(job) && !is_fsdp(w))
        w->overlaps_gradients = s->overlap_reduce;
    if (is_deepspeed(w))
        w->overlaps_gradients = s->overlap;
}

/* Of a layer. "q_proj,v_proj": two. */
static int adapted_matrices(const struct training_job *job)
{
    const char *targets = job->adapter.targets;
    bool fused = !strcmp(job->model.type, "gpt2") || !strcmp(job->model.type, "gpt_neox");
    int matrices = (fused ? 2 : 4) + (job->model.gated ? 3 : 2), listed = 1;
    for (const char *c = targets ? targets : ""; *c; c++)
        listed += *c == ',';
    return says(targets, "all-linear") ? matrices : listed;
}

static void set_adapter(const struct training_job *job, struct workload *w)
{
    const struct job_adapter *a = &job->adapter;
    if (!a->rank)
        return;
    w->lora_rank = a->rank;
    w->lora_matrices = adapted_matrices(job);
    w->frozen_bits = a->weight_bits ? (int)a->weight_bits : 8 * w->weight_bytes;
    w->moment_bytes = 4; /* PEFT keeps adapters in fp32 (autocast_adapter_dtype) */
}

/* ---- what no rule is about ---- */

static const char *foreign_recompute(const struct training_job *job, const struct workload *w)
{
    const struct job_recompute_choice *r = &job->recompute;
    bool megatron = is_megatron(job);
    if (r->granularity == JOB_RECOMPUTE_BUDGET)
        return "recomputation within a budget of memory";
    if (job->framework == JOB_TORCHTITAN && r->granularity == JOB_RECOMPUTE_SELECTIVE && r->layers > 2)
        return "recomputation of every third layer, or fewer";
    if (!megatron || r->granularity == JOB_RECOMPUTE_NONE)
        return NULL;
    if (r->granularity == JOB_RECOMPUTE_FULL && r->method == JOB_METHOD_UNIFORM && r->layers > 1)
        return "recomputation in chunks of several layers";
    if (r->granularity == JOB_RECOMPUTE_SELECTIVE && r->modules && !says(r->modules, "core_attn") &&
        !says(r->modules, "moe"))
        return "recomputation of chosen modules other than attention and experts";
    return r->partitioned && w->tp > 1 ? "kept inputs that are split over tensor-parallel ranks" : NULL;
}

static const char *foreign_feature(const struct training_job *job, const struct workload *w)
{
    const struct job_experts *e = &job->model.experts;
    if (job->beyond)
        return job->beyond;
    if (job->kernels.fp8 && job->kernels.fp8_gather)
        return "weights gathered in fp8";
    if (job->kernels.fp8 && job->framework != JOB_TORCHTITAN &&
        !(job->framework == JOB_MEGATRON && job->kernels.transformer_engine))
        return "fp8 other than torchtitan's and Transformer Engine's";
    if (e->count && e->every != 1)
        return "layers of which every so many-th has experts";
    if (is_megatron(job) && job->model.extra_layers)
        return "layers that predict further tokens (--mtp-num-layers)";
    return foreign_recompute(job, w);
}

int job_workload(const struct training_job *job, struct workload *out, struct error *err)
{
    struct workload w = workload_default(library_of(job), sharding_of(job));
    set_model(job, &w);
    set_layout(job, &w);
    set_precision(job, &w);
    const char *feature = foreign_feature(job, &w);
    if (feature)
        return error_set(err, "no rule is about %s; leave it out to see what the job needs without", feature);
    if (set_activation(job, &w, err) || set_schedule(job, &w, err) || set_optimizer(job, &w, err))
        return -1;
    set_recompute(job, &w);
    set_attention(job, &w);
    set_kernels(job, &w);
    if (workload_set_allocator(&w, job->kernels.allocator, err))
        return -1;
    set_shards(job, &w);
    set_adapter(job, &w);
    *out = w;
    return 0;
}
