#include "jobs/job_workload.h"

#include "base/checked.h"

#include <string.h>

static bool says(const char *text, const char *piece)
{
    return text && strcasestr(text, piece);
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

static void set_layout(const struct training_job *job, struct workload *w)
{
    const struct job_layout *l = &job->layout;
    w->dp = max_i64(l->dp, 1);
    w->tp = max_i64(l->tp, 1);
    w->pp = max_i64(l->pp, 1);
    w->cp = max_i64(l->cp, 1);
    w->ep = max_i64(l->ep, 1);
    w->virtual_stages = max_i64(l->virtual_stages, 1);
    w->sequence_parallel = l->sequence_parallel && w->tp > 1;
    w->shard_ranks = l->dp_replicate > 1 ? l->dp_shard : 0;
    w->micro_batch = max_i64(job->batch.micro, 1);
    w->sequence = max_i64(job->batch.sequence, 1);
    w->micro_batches = job->batch.global ? max_i64(job->batch.global / (w->dp * w->micro_batch), 1)
                                         : max_i64(job->batch.accumulation, 1);
}

static void set_precision(const struct training_job *job, struct workload *w)
{
    bool casts = job->precision == JOB_AUTOCAST_BF16 || job->precision == JOB_AUTOCAST_FP16;
    bool pure = job->precision == JOB_PURE_BF16, whole = job->precision == JOB_FP32;
    bool torch = w->library == WORKLOAD_TITAN || w->library == WORKLOAD_TRANSFORMERS;
    bool fsdp = w->sharding == WORKLOAD_FSDP1 || w->sharding == WORKLOAD_FSDP2;
    bool deepspeed =
        w->sharding == WORKLOAD_ZERO1 || w->sharding == WORKLOAD_ZERO2 || w->sharding == WORKLOAD_ZERO3;
    w->autocast = casts && !fsdp && !deepspeed;
    w->compute_bytes = whole ? 4 : 2;
    w->weight_bytes = pure ? 2 : whole || w->autocast || (torch && !deepspeed) ? 4 : 2;
    w->master_bytes = w->weight_bytes == 2 && !pure ? 4 : 0;
    w->moment_bytes = pure ? 2 : 4;
    w->gradient_bytes = pure ? 2 : job->gradients_fp32 || whole ? 4 : 2;
    w->reduce_bytes = pure || says(job->shards.reduce_precision, "16") ? 2 : 4;
    if (torch && !deepspeed)
        w->gradient_bytes = w->weight_bytes;
}

static void set_recompute(const struct training_job *job, struct workload *w)
{
    static const enum workload_recompute policies[] = {
        [JOB_RECOMPUTE_NONE] = WORKLOAD_KEEPS_ALL,
        [JOB_RECOMPUTE_SELECTIVE] = WORKLOAD_CORE,
        [JOB_RECOMPUTE_FULL] = WORKLOAD_FULL,
    };
    const struct job_recompute_choice *r = &job->recompute;
    w->recompute = policies[r->granularity];
    if (r->granularity == JOB_RECOMPUTE_SELECTIVE && job->framework == JOB_TORCHTITAN)
        w->recompute = r->layers > 1 ? WORKLOAD_ALTERNATE : WORKLOAD_EVERY_SECOND;
    if (r->granularity == JOB_RECOMPUTE_SELECTIVE && says(r->modules, "moe"))
        w->recompute = says(r->modules, "layernorm") ? WORKLOAD_EXPERTS_AND_NORMS : WORKLOAD_EXPERTS;
    w->inputs_offloaded = r->on_cpu;
}

static void set_optimizer(const struct training_job *job, struct workload *w)
{
    const struct job_optimizer *o = &job->optimizer;
    bool eight = says(o->name, "8bit") || says(o->name, "8-bit");
    w->optimizer = eight                        ? WORKLOAD_ADAM8
                   : says(o->name, "paged")     ? WORKLOAD_PAGED_ADAM
                   : says(o->name, "adafactor") ? WORKLOAD_ADAFACTOR
                   : says(o->name, "sgd")       ? WORKLOAD_SGD_MOMENTUM
                                                : WORKLOAD_ADAM;
    if (o->foreach || o->fused || says(o->name, "fused"))
        w->step = o->foreach ? WORKLOAD_STEP_FOREACH : WORKLOAD_STEP_FUSED;
    w->step_in_backward = o->in_backward;
    w->offload_optimizer = o->offload || job->shards.offload_optimizer != JOB_OFFLOAD_NONE;
    w->offload_weights = job->shards.offload_parameters != JOB_OFFLOAD_NONE;
}

static void set_kernels(const struct training_job *job, struct workload *w)
{
    const struct job_kernels *k = &job->kernels;
    bool megatron = job->framework == JOB_MEGATRON || job->framework == JOB_MEGATRON_DEEPSPEED;
    bool eager = k->attention == JOB_EAGER ||
                 (k->attention == JOB_ATTENTION_DEFAULT && megatron && !k->transformer_engine);
    w->attention = !eager                                 ? WORKLOAD_FLASH
                   : megatron && k->masked_softmax_fusion ? WORKLOAD_FUSED_SOFTMAX
                                                          : WORKLOAD_EAGER;
    if (megatron)
        w->gate = k->bias_swiglu_fusion ? WORKLOAD_GATE_FUSED : WORKLOAD_GATE_WRITTEN;
    if (k->liger) {
        w->norm = WORKLOAD_NORM_FUSED;
        w->gate = WORKLOAD_GATE_FUSED;
        w->loss = WORKLOAD_LOSS_FUSED;
        w->logits_held = 0;
    }
    if (job->framework == JOB_TORCHTITAN) /* nn.RMSNorm, which has a kernel since PyTorch 2.8 */
        w->norm = WORKLOAD_NORM_FUSED;
    w->compiled = k->compile;
    w->logits_whole = job->switches.whole_loss;
    w->expandable_segments = says(k->allocator, "expandable_segments:True");
}

static void set_shards(const struct training_job *job, struct workload *w)
{
    const struct job_shards *s = &job->shards;
    bool keeps = s->fsdp_strategy == JOB_SHARD_GRAD_OP || s->fsdp_strategy == JOB_HYBRID_SHARD_ZERO2;
    if (w->sharding == WORKLOAD_FSDP1)
        w->reshards_after_forward = !keeps;
    if (w->sharding == WORKLOAD_FSDP2)
        w->reshards_after_forward = s->reshard_after_forward;
    if (s->reduce_bucket)
        w->bucket_elements = s->reduce_bucket;
    w->lora_rank = job->adapter.rank;
    w->lora_matrices = says(job->adapter.targets, "all") ? 7 : 2;
    w->frozen_bits = job->adapter.weight_bits ? (int)job->adapter.weight_bits : 16;
}

int job_workload(const struct training_job *job, struct workload *out, struct error *err)
{
    struct workload w = workload_default(library_of(job), sharding_of(job));
    if (job->kernels.fp8)
        return error_set(err, "no rule is about fp8; leave it out to see what 16 bits need");
    if (job->layout.pipeline_layout || job->layout.first_stage_layers || job->layout.last_stage_layers)
        return error_set(err, "no rule is about stages with different numbers of layers");
    set_model(job, &w);
    set_layout(job, &w);
    set_precision(job, &w);
    set_recompute(job, &w);
    set_optimizer(job, &w);
    set_kernels(job, &w);
    set_shards(job, &w);
    *out = w;
    return 0;
}
