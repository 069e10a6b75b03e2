/* Megatron-LM's pretrain_*.py, and the DeepSpeed fork of it (Megatron-DeepSpeed). Names and defaults are those of
 * megatron/training/arguments.py in core 0.12; older spellings beside them. */
#include "jobs/frameworks.h"

#include "jobs/setting.h"

#include "base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ON(name, field)                    SETTING(name, SETTING_ON, field, NULL, NULL)
#define OFF(name, field)                   SETTING(name, SETTING_OFF, field, NULL, "not given")
#define COUNT(name, field, fallback)       SETTING(name, SETTING_COUNT, field, NULL, fallback)
#define REAL(name, field, fallback)        SETTING(name, SETTING_REAL, field, NULL, fallback)
#define TEXT(name, field, fallback)        SETTING(name, SETTING_TEXT, field, NULL, fallback)
#define LIST(name, field)                  SETTING(name, SETTING_LIST, field, NULL, NULL)
#define CHOICE(name, field, list, default) SETTING(name, SETTING_CHOICE, field, list, default)

static const struct setting_rule rules[] = {
    COUNT("--num-layers", model.layers, NULL),
    COUNT("--encoder-num-layers", model.layers, NULL),
    COUNT("--hidden-size", model.hidden, NULL),
    COUNT("--ffn-hidden-size", model.ffn, NULL),
    COUNT("--num-attention-heads", model.heads, NULL),
    COUNT("--kv-channels", model.head_size, NULL),
    ON("--group-query-attention", switches.group_query),
    COUNT("--num-query-groups", model.kv_heads, NULL),
    COUNT("--num-key-value-heads", model.kv_heads, NULL),
    COUNT("--max-position-embeddings", model.max_seq_len, NULL),
    TEXT("--position-embedding-type", switches.position_type, "learned_absolute"),
    ON("--use-rotary-position-embeddings", switches.rotary),
    TEXT("--normalization", switches.normalization, "LayerNorm"),
    ON("--swiglu", model.gated),
    ON("--untie-embeddings-and-output-weights", switches.untied),
    ON("--disable-bias-linear", switches.disable_linear_bias),
    ON("--add-qkv-bias", model.qkv_bias),
    ON("--qk-layernorm", model.qk_norm),
    REAL("--attention-dropout", model.attention_dropout, "0.1"),
    REAL("--hidden-dropout", model.hidden_dropout, "0.1"),
    COUNT("--vocab-size", model.vocab, NULL),
    COUNT("--padded-vocab-size", padded_vocab, NULL),
    COUNT("--make-vocab-size-divisible-by", vocab_divisor, "128"),
    TEXT("--tokenizer-type", switches.tokenizer, NULL),
    COUNT("--num-experts", model.experts.count, NULL),
    COUNT("--moe-router-topk", model.experts.active, "2"),
    COUNT("--moe-ffn-hidden-size", model.experts.ffn, NULL),
    COUNT("--moe-shared-expert-intermediate-size", model.experts.shared_ffn, NULL),
    TEXT("--moe-layer-freq", switches.layer_frequency, "1"),
    ON("--multi-latent-attention", switches.latent),
    COUNT("--q-lora-rank", model.latent.q_rank, NULL),
    COUNT("--kv-lora-rank", model.latent.kv_rank, NULL),
    COUNT("--qk-head-dim", model.latent.nope_size, NULL),
    COUNT("--qk-pos-emb-head-dim", model.latent.rope_size, NULL),
    COUNT("--v-head-dim", model.latent.value_size, NULL),
    ON("--moe-grouped-gemm", kernels.grouped_gemm),
    ON("--moe-permute-fusion", kernels.permute_fusion),
    ON("--moe-pad-expert-input-to-capacity", kernels.pads_experts),
    ON("--moe-layer-recompute", recompute.experts),
    TEXT("--moe-token-dispatcher-type", kernels.dispatcher, "allgather"),
    REAL("--moe-expert-capacity-factor", kernels.expert_capacity, NULL),
    COUNT("--mtp-num-layers", model.extra_layers, NULL),

    COUNT("--tensor-model-parallel-size", layout.tp, "1"),
    COUNT("--pipeline-model-parallel-size", layout.pp, "1"),
    COUNT("--context-parallel-size", layout.cp, "1"),
    COUNT("--ds-sequence-parallel-size", layout.cp, NULL),
    COUNT("--expert-model-parallel-size", layout.ep, "1"),
    COUNT("--expert-tensor-parallel-size", layout.etp, NULL),
    COUNT("--num-layers-per-virtual-pipeline-stage", layout.layers_per_virtual_stage, NULL),
    COUNT("--num-virtual-stages-per-pipeline-rank", layout.virtual_stages, NULL),
    COUNT("--decoder-first-pipeline-num-layers", layout.first_stage_layers, NULL),
    COUNT("--decoder-last-pipeline-num-layers", layout.last_stage_layers, NULL),
    TEXT("--pipeline-model-parallel-layout", layout.pipeline_layout, NULL),
    ON("--account-for-embedding-in-pipeline-split", layout.embedding_in_split),
    ON("--account-for-loss-in-pipeline-split", layout.loss_in_split),
    ON("--sequence-parallel", layout.sequence_parallel),
    ON("--no-pipeline-parallel", switches.no_pipeline),

    COUNT("--micro-batch-size", batch.micro, NULL),
    COUNT("--global-batch-size", batch.global, NULL),
    LIST("--rampup-batch-size", switches.rampup),
    COUNT("--seq-length", batch.sequence, NULL),

    ON("--bf16", switches.bf16),
    ON("--fp16", switches.fp16),
    TEXT("--fp8-format", kernels.fp8, NULL),
    ON("--accumulate-allreduce-grads-in-fp32", gradients_fp32),

    ON("--recompute-activations", switches.recompute_activations),
    CHOICE("--recompute-granularity", recompute.granularity, "none|selective|full", NULL),
    CHOICE("--recompute-method", recompute.method, "none|uniform|block", NULL),
    COUNT("--recompute-num-layers", recompute.layers, NULL),
    LIST("--recompute-modules", recompute.modules),
    ON("--distribute-saved-activations", recompute.partitioned),
    ON("--checkpoint-activations", switches.checkpoint_activations),
    COUNT("--checkpoint-num-layers", recompute.layers, NULL),
    ON("--deepspeed-activation-checkpointing", switches.gradient_checkpointing),

    ON("--use-distributed-optimizer", switches.distributed_optimizer),
    ON("--overlap-grad-reduce", shards.overlap_reduce),
    ON("--overlap-param-gather", shards.overlap_gather),
    ON("--use-precision-aware-optimizer", shards.precision_aware),
    TEXT("--main-grads-dtype", shards.main_gradients, "fp32"),
    TEXT("--main-params-dtype", shards.main_parameters, "fp32"),
    TEXT("--exp-avg-dtype", shards.exp_avg, "fp32"),
    TEXT("--exp-avg-sq-dtype", shards.exp_avg_sq, "fp32"),
    COUNT("--ddp-bucket-size", shards.reduce_bucket, NULL),
    TEXT("--optimizer", optimizer.name, "adam"),
    ON("--optimizer-cpu-offload", optimizer.offload),
    ON("--cpu-optimizer", optimizer.offload),
    ON("--use-torch-fsdp2", switches.torch_fsdp2),
    ON("--use-custom-fsdp", switches.custom_fsdp),
    TEXT("--data-parallel-sharding-strategy", switches.fsdp, NULL),

    ON("--use-flash-attn", switches.flash),
    ON("--use-flash-attn-v1", switches.flash),
    ON("--use-flash-attn-v2", switches.flash),
    TEXT("--attention-backend", switches.attention_backend, NULL),
    TEXT("--transformer-impl", switches.implementation, "transformer_engine"),
    OFF("--no-masked-softmax-fusion", kernels.masked_softmax_fusion),
    OFF("--no-bias-gelu-fusion", kernels.bias_gelu_fusion),
    OFF("--no-bias-swiglu-fusion", kernels.bias_swiglu_fusion),
    OFF("--no-bias-dropout-fusion", kernels.bias_dropout_fusion),
    OFF("--no-rope-fusion", kernels.rope_fusion),
    OFF("--no-gradient-accumulation-fusion", kernels.gradient_accumulation_fusion),
    OFF("--no-persist-layer-norm", kernels.persist_layer_norm),
    ON("--cross-entropy-loss-fusion", kernels.cross_entropy_fusion),

    ON("--deepspeed", switches.deepspeed),
    TEXT("--deepspeed-config", switches.deepspeed_config, NULL),
    CHOICE("--zero-stage", switches.zero_stage, "0|1|2|3", NULL),
    {0},
};

static const char *const irrelevant[] = {"--use-mcore-models",
                                         "--use-legacy-models",
                                         "--lr",
                                         "--lr-*",
                                         "--min-lr",
                                         "--weight-decay*",
                                         "--start-weight-decay",
                                         "--end-weight-decay",
                                         "--adam-*",
                                         "--sgd-momentum",
                                         "--clip-grad",
                                         "--train-iters",
                                         "--train-samples",
                                         "--train-tokens",
                                         "--exit-*",
                                         "--eval-*",
                                         "--log-*",
                                         "--save*",
                                         "--load*",
                                         "--no-load-*",
                                         "--no-save-*",
                                         "--ckpt-*",
                                         "--use-dist-ckpt*",
                                         "--dist-ckpt-*",
                                         "--async-save",
                                         "--data-path",
                                         "--data-cache-path",
                                         "--data-impl",
                                         "--data-args-path",
                                         "--split",
                                         "--train-data-path",
                                         "--valid-data-path",
                                         "--test-data-path",
                                         "--mock-data",
                                         "--vocab-file",
                                         "--merge-file",
                                         "--tokenizer-model",
                                         "--tokenizer-*",
                                         "--seed",
                                         "--init-method-*",
                                         "--norm-epsilon",
                                         "--layernorm-epsilon",
                                         "--rotary-*",
                                         "--rope-*",
                                         "--use-rope-scaling",
                                         "--no-rope-*",
                                         "--tensorboard-*",
                                         "--wandb-*",
                                         "--num-workers",
                                         "--distributed-*",
                                         "--local-rank",
                                         "--local_rank",
                                         "--timing-*",
                                         "--override-opt_param-scheduler",
                                         "--override-opt-param-scheduler",
                                         "--use-checkpoint-opt_param-scheduler",
                                         "--finetune",
                                         "--no-initialization",
                                         "--no-async-tensor-model-parallel-allreduce",
                                         "--tp-comm-*",
                                         "--manual-gc*",
                                         "--moe-router-load-balancing-type",
                                         "--moe-aux-loss-coeff",
                                         "--moe-z-loss-coeff",
                                         "--moe-router-dtype",
                                         "--moe-router-score-function",
                                         "--moe-router-enable-expert-bias",
                                         "--moe-router-bias-update-rate",
                                         "--moe-router-topk-scaling-factor",
                                         "--moe-router-pre-softmax",
                                         "--moe-router-num-groups",
                                         "--moe-router-group-topk",
                                         "--moe-per-layer-logging",
                                         "--initial-loss-scale",
                                         "--loss-scale*",
                                         "--hysteresis",
                                         "--min-loss-scale",
                                         "--attention-softmax-in-fp32",
                                         "--apply-layernorm-1p",
                                         "--no-query-key-layer-scaling",
                                         "--apply-query-key-layer-scaling",
                                         "--reset-*",
                                         "--eod-*",
                                         "--no-create-attention-mask-in-dataloader",
                                         "--transformer-pipeline-*",
                                         "--use-tp-pp-dp-mapping",
                                         "--profile*",
                                         "--check-for-nan-in-loss-and-grad",
                                         "--no-check-for-nan-in-loss-and-grad",
                                         "--dataloader-type",
                                         "--ds-*",
                                         "--universal-checkpoint",
                                         "--no-mmap-warmup",
                                         "--aggregated_slurm*",
                                         "--kill-switch-path",
                                         "--job-name",
                                         "--fp8-amax-*",
                                         "--fp8-margin",
                                         "--fp8-interval",
                                         "--codecarbon-dir",
                                         "--qk-clip*",
                                         "--calculate-per-token-loss",
                                         "--num-dataset-builder-threads",
                                         NULL};

static const struct setting_table table = {rules, irrelevant, "Megatron-LM core 0.12", true};
static const struct setting_table fork_table = {rules, irrelevant, "Megatron-DeepSpeed", true};

bool megatron_is(const struct launch *launch)
{
    bool layers = false, batch = false;
    for (int i = 0; i < launch->arguments.count; i++) {
        const char *text = launch->arguments.list[i].text;
        layers = layers || !strncmp(text, "--num-layers", 12) || !strncmp(text, "--encoder-num-layers", 20);
        batch = batch || !strncmp(text, "--micro-batch-size", 18) ||
                !strncmp(text, "--tensor-model-parallel", 23);
    }
    return (layers && batch) || strstr(launch->program, "pretrain_gpt") ||
           strstr(launch->program, "pretrain_bert");
}

/* ---- the model ---- */

static void read_vocabulary(struct training_job *job)
{
    struct job_model *m = &job->model;
    const char *tokenizer = job->switches.tokenizer;
    int64_t step, tp = job->layout.tp ? job->layout.tp : 1;
    if (!m->vocab && tokenizer && !strcmp(tokenizer, "GPT2BPETokenizer")) {
        m->vocab = 50257;
        job_note_count(job, FACT_DERIVED, "--vocab-size", m->vocab, "of GPT2BPETokenizer");
    }
    if (m->vocab && tokenizer && !strcmp(tokenizer, "NullTokenizer"))
        m->vocab++; /* the end of a document */
    if (job->padded_vocab) {
        m->vocab = job->padded_vocab;
        return;
    }
    job_require(job, m->vocab, "--vocab-size", "50257");
    if (!m->vocab || !checked_mul(job->vocab_divisor, tp, &step) || !step || step > 1LL << 40 ||
        m->vocab > 1 << 26)
        return;
    job->padded_vocab = m->vocab = round_up(m->vocab, step);
    job_note_count(job, FACT_DERIVED, "padded vocabulary", m->vocab,
                   "--make-vocab-size-divisible-by x tensor parallel");
}

static void read_experts(struct training_job *job)
{
    struct job_experts *e = &job->model.experts;
    const char *frequency = job->switches.layer_frequency;
    if (!e->count) {
        *e = (struct job_experts){0};
        job_drop_defaults(job, "--moe-");
        return;
    }
    e->ffn = e->ffn ? e->ffn : job->model.ffn;
    e->every = frequency ? strtoll(frequency, NULL, 10) : 1;
    if (e->every >= 1 && !strpbrk(frequency, "[]()+*"))
        return;
    /* "([0]*3+[1]*58)": so many dense layers first. */
    e->every = 1;
    int length = 0;
    long long dense = 0, rest = 0;
    if (sscanf(frequency, "([0]*%lld+[1]*%lld)%n", &dense, &rest, &length) == 2 && !frequency[length] &&
        dense >= 0)
        e->dense_layers = dense;
    else
        job_note(job, FACT_UNKNOWN, "--moe-layer-freq", frequency, "a pattern of layers that is not read");
}

static void read_shape(struct training_job *job)
{
    struct job_model *m = &job->model;
    const struct job_switches *s = &job->switches;
    bool bert = strstr(job->launch.program, "bert");
    snprintf(m->type, sizeof m->type, "%s", bert ? "bert" : "gpt");
    snprintf(m->name, sizeof m->name, "%s", bert ? "bert" : m->experts.count ? "mixture of experts" : "gpt");
    m->kind = bert ? JOB_ENCODER : JOB_DECODER;
    m->norm = s->normalization && !strcmp(s->normalization, "RMSNorm") ? JOB_RMS_NORM : JOB_LAYER_NORM;
    bool rope = s->rotary || (s->position_type && strncmp(s->position_type, "learned", 7) &&
                              strcmp(s->position_type, "none"));
    m->positions = rope                                                    ? JOB_ROPE
                   : s->position_type && !strcmp(s->position_type, "none") ? JOB_NO_POSITIONS
                                                                           : JOB_LEARNED;
    m->token_types = bert ? 2 : 0;
    m->pooler = m->head_transform = m->head_bias = bert;
    m->tied = !s->untied;
    m->proj_bias = m->ffn_bias = !s->disable_linear_bias;
    m->qkv_bias = m->qkv_bias || !s->disable_linear_bias;
    if (!m->kv_heads || (!s->group_query && !job_was_given(job, "--num-key-value-heads")))
        m->kv_heads = m->heads;
    if (!m->head_size && m->heads)
        m->head_size = m->hidden / m->heads;
    /* arguments.py: 4 h, and with --swiglu 2/3 of that in multiples of 64. */
    if (!m->ffn && m->hidden && m->hidden < 1 << 20) {
        m->ffn = m->gated ? 4 * m->hidden * 2 / 3 / 64 * 64 : 4 * m->hidden;
        job_note_count(job, FACT_DEFAULT, "--ffn-hidden-size", m->ffn,
                       "Megatron-LM: 4 x hidden, 2/3 of it gated");
    }
    if (!s->latent)
        m->latent = (struct job_latent){0};
    else if (!m->latent.kv_rank)
        m->latent = (struct job_latent){m->latent.q_rank, 32, 128, 64, 128};
    if (s->latent)
        m->head_size = m->latent.nope_size + m->latent.rope_size;
}

static int read_model(struct training_job *job, struct error *err)
{
    struct job_model *m = &job->model;
    read_vocabulary(job);
    read_shape(job);
    read_experts(job);
    job_require(job, m->layers,
                job_was_given(job, "--encoder-num-layers") ? "--encoder-num-layers" : "--num-layers", "32");
    job_require(job, m->hidden, "--hidden-size", "4096");
    job_require(job, m->heads, "--num-attention-heads", "32");
    job_require(job, m->max_seq_len, "--max-position-embeddings", "4096");
    if (job_count(job, FACT_MISSING))
        return 0;
    job->model_known = true;
    return job_model_check(m, "the launch line", err);
}

/* ---- the rest ---- */

static void read_recomputation(struct training_job *job)
{
    struct job_recompute_choice *r = &job->recompute;
    const struct job_switches *s = &job->switches;
    if (s->recompute_activations)
        r->granularity = JOB_RECOMPUTE_SELECTIVE;
    if (s->checkpoint_activations) {
        r->granularity = JOB_RECOMPUTE_FULL;
        r->method = JOB_METHOD_UNIFORM;
    }
    if (r->granularity == JOB_RECOMPUTE_FULL && !r->layers)
        r->layers = 1;
    if (r->granularity == JOB_RECOMPUTE_FULL && r->method == JOB_METHOD_NONE)
        job_note(job, FACT_MISSING, "--recompute-method", "?",
                 "Megatron-LM refuses full recomputation without; give --with='--recompute-method uniform'");
}

static void read_kernels(struct training_job *job)
{
    const struct job_switches *s = &job->switches;
    struct job_kernels *k = &job->kernels;
    const char *backend = s->attention_backend;
    k->transformer_engine = s->implementation && !strcmp(s->implementation, "transformer_engine");
    if (s->flash || (backend && (!strcmp(backend, "flash") || !strcmp(backend, "fused"))))
        k->attention = JOB_FLASH;
    else if (backend && (!strcmp(backend, "unfused") || !strcmp(backend, "local")))
        k->attention = JOB_EAGER;
}

static int read_virtual_stages(struct training_job *job, struct error *err)
{
    struct job_layout *l = &job->layout;
    int64_t per_stage = l->pp > 1 && job->model.layers ? job->model.layers / l->pp : 0;
    if (!l->virtual_stages)
        l->virtual_stages = 1;
    if (!l->layers_per_virtual_stage || !per_stage)
        return 0;
    if (per_stage % l->layers_per_virtual_stage)
        return error_set(
            err,
            "--num-layers-per-virtual-pipeline-stage %lld does not divide the %lld layers of a stage; "
            "correct it",
            (long long)l->layers_per_virtual_stage, (long long)per_stage);
    l->virtual_stages = per_stage / l->layers_per_virtual_stage;
    return 0;
}

static int read_batch(struct training_job *job, struct error *err)
{
    struct job_batch *b = &job->batch;
    int64_t together;
    job_require(job, b->micro, "--micro-batch-size", "1");
    job_require(job, b->sequence, "--seq-length", "4096");
    if (!b->micro || !job->layout.dp)
        return 0;
    if (!checked_mul(b->micro, job->layout.dp, &together))
        return error_set(err, "--micro-batch-size %lld is no real one; correct it", (long long)b->micro);
    if (!b->global) {
        b->global = together;
        job_note_count(job, FACT_DEFAULT, "--global-batch-size", together,
                       "Megatron-LM: micro-batch x data parallel");
    }
    if (b->global % together)
        return error_set(
            err,
            "--global-batch-size %lld is no multiple of micro-batch %lld x %lld data-parallel ranks; "
            "correct one of them",
            (long long)b->global, (long long)b->micro, (long long)job->layout.dp);
    b->accumulation = b->global / together;
    return 0;
}

static int read_deepspeed(struct training_job *job, const struct job_files *files, struct error *err)
{
    struct job_switches *s = &job->switches;
    if (s->zero_stage)
        job->shards.sharding = JOB_ZERO1 + s->zero_stage - 1;
    if (!s->deepspeed_config) {
        job_note(job, FACT_MISSING, "--deepspeed-config", "?",
                 "--deepspeed wants it; give --with='--deepspeed-config FILE'");
        return 0;
    }
    return deepspeed_read(job, s->deepspeed_config, files, err);
}

int megatron_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                  struct error *err)
{
    struct job_switches *s = &job->switches;
    job->framework = JOB_MEGATRON;
    if (setting_read_words(&table, job, &launch->arguments, NULL, err))
        return -1;
    job->framework = s->deepspeed ? JOB_MEGATRON_DEEPSPEED : JOB_MEGATRON;
    if (s->deepspeed && !job_was_given(job, "--transformer-impl")) {
        s->implementation = "local";
        job_note(job, FACT_DERIVED, "--transformer-impl", "local", fork_table.framework);
    }
    if (setting_defaults(s->deepspeed ? &fork_table : &table, job, err))
        return -1;
    job->precision = s->bf16 ? JOB_BF16 : s->fp16 ? JOB_FP16 : JOB_FP32;
    job->gradients_fp32 = job->gradients_fp32 || !s->fp16; /* arguments.py: bf16 accumulates in fp32 */
    if (s->no_pipeline)
        job->layout.pp = 1;
    job->shards.sharding = s->torch_fsdp2 || s->custom_fsdp ? JOB_FSDP2
                           : s->distributed_optimizer       ? JOB_DISTRIBUTED_OPTIMIZER
                                                            : JOB_REPLICATED;
    read_recomputation(job);
    read_kernels(job);
    if (read_model(job, err) || job_split_ranks(job, err) || read_virtual_stages(job, err))
        return -1;
    if (s->deepspeed && read_deepspeed(job, files, err))
        return -1;
    return read_batch(job, err);
}
