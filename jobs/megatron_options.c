/* Options of Megatron-LM's pretrain_*.py, and of the DeepSpeed fork of it; older spellings beside those of today. */
#include "jobs/megatron.h"

#include "jobs/deepspeed_config.h"
#include "jobs/program_words.h"
#include "jobs/setting.h"

#include "base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Unless a comment says otherwise: megatron/training/arguments.py of core 0.12.3 and 0.16.1, where some of them come from
 * megatron/core/transformer/transformer_config.py; both versions have the same defaults. */
static const struct setting_rule rules[] = {
    COUNT("--num-layers", model.layers, NULL),
    COUNT("--encoder-num-layers", model.layers, NULL),
    COUNT("--decoder-num-layers", model.layers, NULL),
    COUNT("--hidden-size", model.hidden, NULL),
    COUNT("--ffn-hidden-size", model.ffn, NULL),
    COUNT("--num-attention-heads", model.heads, NULL),
    COUNT("--kv-channels", model.head_size, NULL),
    ON("--group-query-attention", switches.group_query),
    COUNT("--num-query-groups", model.kv_heads,
          NULL), /* 1 in core 0.12, as many as heads in 0.16: asked for */
    COUNT("--num-key-value-heads", model.kv_heads, NULL),
    COUNT("--max-position-embeddings", model.max_seq_len, NULL),
    TEXT("--position-embedding-type", switches.position_type, "learned_absolute"),
    ON("--use-rotary-position-embeddings", switches.rotary),
    TEXT("--normalization", switches.normalization, "LayerNorm"),
    ON("--swiglu", model.gated),
    ON("--quick-geglu", model.gated),
    ON("--untie-embeddings-and-output-weights", switches.untied),
    ON("--disable-bias-linear", switches.disable_linear_bias),
    ON("--add-qkv-bias", model.qkv_bias),
    ON("--qk-layernorm", model.qk_norm),
    REAL("--attention-dropout", model.attention_dropout, "0.1"),
    REAL("--hidden-dropout", model.hidden_dropout, "0.1"),
    ON("--bert-no-binary-head", switches.no_binary_head),
    BEYOND("--spec", "layers of a specification of one's own", ""),
    BEYOND("--hybrid-override-pattern", "layers other than attention", ""),
    BEYOND("--hybrid-attention-ratio", "layers other than attention", "0.0"),
    BEYOND("--linear-attention-freq", "linear attention", ""),
    BEYOND("--experimental-attention-variant", "linear or sparse attention", ""),
    FLAG("--attention-output-gate", "gates behind attention"),
    BEYOND("--heterogeneous-layers-config-path", "layers that differ from each other", ""),
    FLAG("--fp32-residual-connection", "residuals in fp32"),
    FLAG("--embedding-weights-in-fp32", "embeddings in fp32"),
    FLAG("--kd", "a teacher beside the model"),
    FLAG("--mos", "a teacher beside the model"),

    /* megatron/training/tokenizer/tokenizer.py pads */
    COUNT("--vocab-size", model.vocab, NULL),
    COUNT("--padded-vocab-size", padded_vocab, NULL),
    COUNT("--make-vocab-size-divisible-by", vocab_divisor, "128"),
    TEXT("--tokenizer-type", switches.tokenizer, NULL),

    COUNT("--num-experts", model.experts.count, NULL),
    COUNT("--moe-router-topk", model.experts.active, "2"),
    COUNT("--moe-ffn-hidden-size", model.experts.ffn, NULL),
    COUNT("--moe-shared-expert-intermediate-size", model.experts.shared_ffn, NULL),
    ON("--moe-shared-expert-gate", model.experts.shared_gate),
    TEXT("--moe-layer-freq", switches.layer_frequency, "1"),
    ON("--moe-grouped-gemm", kernels.grouped_gemm),
    ON("--moe-permute-fusion", kernels.permute_fusion),
    ON("--moe-pad-expert-input-to-capacity", kernels.pads_experts),
    ON("--moe-layer-recompute", recompute.experts),
    TEXT("--moe-token-dispatcher-type", kernels.dispatcher, "allgather"),
    REAL("--moe-expert-capacity-factor", kernels.expert_capacity, NULL),
    BEYOND("--moe-latent-size", "experts in a smaller space", ""),
    COUNT("--mtp-num-layers", model.extra_layers, NULL),

    ON("--multi-latent-attention", switches.latent),
    COUNT("--q-lora-rank", model.latent.q_rank, NULL),
    COUNT("--kv-lora-rank", model.latent.kv_rank, "32"),
    COUNT("--qk-head-dim", model.latent.nope_size, "128"),
    COUNT("--qk-pos-emb-head-dim", model.latent.rope_size, "64"),
    COUNT("--v-head-dim", model.latent.value_size, "128"),

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
    ON("--enable-zbh1-pipeline", switches.zero_bubble),
    FLAG("--defer-embedding-wgrad-compute", "gradients of the embedding that are put off"),

    COUNT("--micro-batch-size", batch.micro, NULL),
    COUNT("--global-batch-size", batch.global, NULL),
    LIST("--rampup-batch-size", switches.rampup),
    COUNT("--seq-length", batch.sequence, NULL),
    COUNT("--encoder-seq-length", batch.sequence, NULL),

    ON("--bf16", switches.bf16),
    ON("--fp16", switches.fp16),
    TEXT("--fp8-format", kernels.fp8, NULL),
    ON("--fp8-param-gather", kernels.fp8_gather),
    ON("--fp8-param", kernels.fp8_gather),
    FLAG("--fp8-dot-product-attention", "attention in fp8"),
    FLAG("--fp8-multi-head-attention", "attention in fp8"),
    FLAG("--first-last-layers-bf16", "layers in bf16 beside others in fp8"),
    BEYOND("--fp4-format", "fp4", ""),
    ON("--accumulate-allreduce-grads-in-fp32", gradients_fp32),
    ON("--grad-reduce-in-bf16", switches.reduces_16bit),
    FLAG("--fp16-lm-cross-entropy", "a loss in 16 bits"),

    ON("--recompute-activations", switches.recompute_activations),
    CHOICE("--recompute-granularity", recompute.granularity, "none|selective|full", NULL),
    CHOICE("--recompute-method", recompute.method, "none|uniform|block", NULL),
    COUNT("--recompute-num-layers", recompute.layers, NULL),
    LIST("--recompute-modules", recompute.modules),
    ON("--distribute-saved-activations", recompute.partitioned),
    ON("--distribute-checkpointed-activations", recompute.partitioned),
    ON("--partition-activations", recompute.partitioned),
    ON("--checkpoint-in-cpu", recompute.on_cpu),
    ON("--checkpoint-activations", switches.checkpoint_activations),
    COUNT("--checkpoint-num-layers", recompute.layers, NULL),
    ON("--deepspeed-activation-checkpointing", switches.gradient_checkpointing),
    FLAG("--cpu-offloading", "activations that wait in host memory"),
    FLAG("--fine-grained-activation-offloading", "activations that wait in host memory"),

    ON("--use-distributed-optimizer", switches.distributed_optimizer),
    COUNT("--num-distributed-optimizer-instances", switches.replicate_degree, NULL), /* 1 */
    ON("--overlap-grad-reduce", shards.overlap_reduce),
    ON("--overlap-param-gather", shards.overlap_gather),
    ON("--use-precision-aware-optimizer", shards.precision_aware),
    TEXT("--main-grads-dtype", shards.main_gradients, "fp32"),
    TEXT("--main-params-dtype", shards.main_parameters, "fp32"),
    TEXT("--exp-avg-dtype", shards.exp_avg, "fp32"),
    TEXT("--exp-avg-sq-dtype", shards.exp_avg_sq, "fp32"),
    COUNT("--ddp-bucket-size", shards.reduce_bucket, NULL),
    TEXT("--optimizer", optimizer.name, "adam"),
    REAL("--sgd-momentum", optimizer.momentum, "0.9"),
    ON("--optimizer-cpu-offload", optimizer.offload),
    BEYOND("--optimizer-offload-fraction", "an optimizer that is on the host in part", "1.0"),
    ON("--cpu-optimizer", optimizer.offload),
    ON("--use-torch-fsdp2", switches.torch_fsdp2),
    ON("--torch-fsdp2-no-reshard-after-forward", switches.keeps_gathered),
    ON("--use-custom-fsdp", switches.custom_fsdp),
    ON("--use-megatron-fsdp", switches.custom_fsdp),
    TEXT("--data-parallel-sharding-strategy", switches.fsdp, NULL), /* no_shard */
    BEYOND("--outer-dp-sharding-strategy", "shards over two dimensions of ranks", "no_shard"),

    ON("--use-flash-attn", switches.flash),
    ON("--use-flash-attn-v1", switches.flash),
    ON("--use-flash-attn-v2", switches.flash),
    ON("--use-flash-attn-triton", switches.flash),
    ON("--use-flash-attn-builder", switches.flash),
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
    TEXT("--cross-entropy-fusion-impl", kernels.loss_implementation, NULL), /* native */
    FLAG("--enable-cuda-graph", "CUDA graphs, which keep memory of their own"),
    FLAG("--external-cuda-graph", "CUDA graphs, which keep memory of their own"),
    BEYOND("--cuda-graph-impl", "CUDA graphs, which keep memory of their own", "none"),

    /* Megatron-DeepSpeed, megatron/arguments.py of July 2025; the JSON's stage replaces --zero-stage's 1 */
    ON("--deepspeed", switches.deepspeed),
    TEXT("--deepspeed-config", switches.deepspeed_config, NULL),
    CHOICE("--zero-stage", switches.zero_stage, "0|1|2|3", NULL),
    {0},
};

/* Also of arguments.py; "--rope-*" begins several. */
static const char irrelevant[] =
    "--DDP-impl --adam-* --adlr-autoresume* --aggregated_slurm* --app-tag-* --apply-layernorm-1p "
    "--apply-query-key-layer-scaling --apply-residual-connection-post-layernorm --apply-wd-to-qk-layernorm "
    "--async-* --attention-softmax-in-fp32 --auto-detect-ckpt-format --calc-ft-timeouts "
    "--calculate-per-token-loss --check-* --ckpt-* --clip-grad --codecarbon-dir --config-logger-dir "
    "--contigious-checkpointing --cp-comm-type --cpu_torch_adam --data-args-path --data-cache-path "
    "--data-efficiency-curriculum-learning --data-impl --data-parallel-random-init --data-path "
    "--dataloader-* "
    "--ddp-average-in-collective --ddp-num-buckets --ddp-pad-buckets-for-high-nccl-busbw --decoupled-* "
    "--decrease-batch-size-if-needed --deterministic-mode --disable-bf16-reduced-precision-matmul "
    "--disable-gloo-process-groups --disable-jit-fuser --disable-msc --disable-straggler-on-startup "
    "--disable-tp-comm-* --dist-ckpt-* --distributed-* --ds-* --ds_fused_adam "
    "--dump-param-to-param-group-map "
    "--empty-unused-memory-level --enable-ft-package --end-weight-decay --eod-* --error-injection-* --eval-* "
    "--exit-* --fim-* --finetune --fp8-amax-* --fp8-interval --fp8-margin --fp8-recipe --ft-num-warmup-iters "
    "--hierarchical-context-parallel-sizes --high-priority-stream-groups --hysteresis --inference-* "
    "--init-method-* --init-model-with-meta-device --initial-loss-scale --inprocess-* --iterations-to-skip "
    "--job-name --kill-switch-* --layernorm-epsilon --lazy-mpu-init --legacy-tokenizer --load* --local-rank "
    "--log-* --logging-level --loss-scale* --lr --lr-* --manual-gc* --mask-prob --memory-snapshot-path "
    "--merge-file --microbatch-group-size-per-virtual-pipeline-stage --mid-level-dataset-surplus "
    "--min-loss-scale --min-lr --mock-data --moe-aux-loss-coeff --moe-input-jitter-eps "
    "--moe-per-layer-logging --moe-router-* --moe-shared-expert-overlap --moe-token-drop-policy "
    "--moe-use-legacy-grouped-gemm --moe-use-upcycling --moe-z-loss-coeff --mscale* "
    "--mtp-loss-scaling-factor "
    "--muon-* --nccl-communicator-config-path --no-align-* --no-async-tensor-model-parallel-allreduce "
    "--no-barrier-with-level-1-timing --no-check-for-nan-in-loss-and-grad --no-ckpt-* "
    "--no-clone-scatter-output-in-embedding --no-contiguous-buffers-in-local-ddp "
    "--no-create-attention-mask-in-dataloader --no-fp8-wgrad --no-gradient-reduce-div-fusion "
    "--no-initialization --no-load-* --no-log-loss-scale-to-tensorboard --no-manual-gc-eval "
    "--no-mmap-bin-files --no-mmap-warmup --no-one-logger --no-overlap-p2p-communication --no-pin-cpu-grads "
    "--no-pin-cpu-params --no-position-embedding --no-query-key-layer-scaling --no-rope-freq --no-save-* "
    "--no-scatter-gather-tensors-in-pipeline --no-use-tokenizer-model-from-checkpoint-args "
    "--no-weight-decay-cond-type --non-persistent-* --norm-epsilon --num-dataset-builder-threads "
    "--num-layers-at-end-in-bf16 --num-layers-at-start-in-bf16 --num-workers --object-storage-cache-path "
    "--one-logger-* --onnx-safe --openai-gelu --overlap-cpu-optimizer-d2h-h2d --overlap-p2p-communication* "
    "--overlap-param-gather-with-optimizer-step --override-opt-param-scheduler "
    "--override-opt_param-scheduler "
    "--per-dataset-sequences-path --per-split-data-args-path --persistent-save-interval "
    "--phase-transition-iterations --pipeline-model-parallel-comm-backend --pretrained-checkpoint --profile* "
    "--qk-clip* --record-memory-history --rerun-mode --reset-* --result-rejected-tracker-filename "
    "--return-data-index --rope-* --rotary-* --s3-cache-path --sample-rate --save* --seed --short-seq-prob "
    "--skip-train --split --squared-relu --start-weight-decay --straggler-* "
    "--suggested-communication-unit-size --synchronize-each-layer --te-rng-tracker --tensorboard-* "
    "--test-data-path --test-mode --tiktoken-* --timing-* --tokenizer-* --tp-comm-* "
    "--train-data-exact-num-epochs --train-data-path --train-desc-path --train-doc-idx-path --train-idx-path "
    "--train-iters --train-sample-idx-path --train-samples --train-sync-interval --train-tokens "
    "--transformer-pipeline-* --trust-remote-code --universal-checkpoint --use-checkpoint-args "
    "--use-checkpoint-opt_param-scheduler --use-cpu-initialization --use-dist-ckpt* --use-legacy-models "
    "--use-mcore-models --use-mp-args-from-checkpoint-args --use-persistent-ckpt-worker "
    "--use-pytorch-profiler --use-ring-exchange-p2p --use-rope-scaling --use-torch-optimizer-for-cpu-offload "
    "--use-tp-pp-dp-mapping --valid-data-path --vocab-extra-ids --vocab-file --wandb-* --warmup "
    "--weight-decay* --window-size --zero-allgather-* --zero-contigious-gradients --zero-reduce-*";

static const struct setting_table table = {rules, irrelevant, MEGATRON_VERSION, true};
static const struct setting_table fork_table = {rules, irrelevant, MEGATRON_DEEPSPEED_VERSION, true};

/* ---- the model ---- */

static void require_vocabulary(struct training_job *job)
{
    const char *tokenizer = job->switches.tokenizer;
    if (!job->model.vocab && tokenizer && !job_was_given(job, "--vocab-size"))
        job_note(job, FACT_MISSING, "--vocab-size", "?",
                 arena_printf(job->facts.arena,
                              "it is that of the %.60s, which is not read; give --with='--vocab-size N'",
                              tokenizer));
    else
        job_require(job, job->model.vocab, "--vocab-size", "30522");
}

static void read_vocabulary(struct training_job *job)
{
    struct job_model *m = &job->model;
    const char *tokenizer = job->switches.tokenizer;
    int64_t step, tp = job->layout.tp ? job->layout.tp : 1;
    bool bert = strstr(job->launch.program, "bert");
    if (!m->vocab && (tokenizer ? !strcmp(tokenizer, "GPT2BPETokenizer") : !bert)) {
        m->vocab = 50257;
        job_note_count(job, tokenizer ? FACT_DERIVED : FACT_DEFAULT, "--vocab-size", m->vocab,
                       tokenizer ? "of GPT2BPETokenizer"
                                 : "pretrain_gpt.py: GPT2BPETokenizer unless told otherwise");
    }
    if (m->vocab && tokenizer && !strcmp(tokenizer, "NullTokenizer"))
        m->vocab++; /* the end of a document */
    if (job->padded_vocab) {
        m->vocab = job->padded_vocab;
        return;
    }
    require_vocabulary(job);
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
    m->pooler = bert && !s->no_binary_head;
    m->head_transform = m->head_bias = bert;
    m->tied = !s->untied;
    m->proj_bias = m->ffn_bias = !s->disable_linear_bias;
    m->qkv_bias = m->qkv_bias || !s->disable_linear_bias;
    if (s->group_query)
        job_require(job, m->kv_heads, "--num-query-groups", "8");
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
    if (s->latent) {
        m->head_size = m->latent.nope_size + m->latent.rope_size;
        return;
    }
    static const char *const names[] = {"--kv-lora-rank", "--qk-head-dim", "--qk-pos-emb-head-dim",
                                        "--v-head-dim"};
    m->latent = (struct job_latent){0};
    for (int i = 0; i < 4; i++)
        job_drop_defaults(job, names[i]);
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
    if (r->granularity == JOB_RECOMPUTE_FULL && !r->layers) {
        r->layers = 1;
        job_note(job, FACT_DEFAULT, "--recompute-num-layers", "1", "Megatron-LM before core; core wants it");
    }
    if (r->granularity == JOB_RECOMPUTE_FULL && r->method == JOB_METHOD_NONE)
        job_note(job, FACT_MISSING, "--recompute-method", "?",
                 "Megatron-LM refuses full recomputation without; give --with='--recompute-method uniform'");
}

static void read_kernels(struct training_job *job)
{
    const struct job_switches *s = &job->switches;
    struct job_kernels *k = &job->kernels;
    const char *backend = s->attention_backend;
    if (k->loss_implementation && !k->cross_entropy_fusion)
        k->loss_implementation = NULL;
    k->transformer_engine = s->implementation && !strcmp(s->implementation, "transformer_engine");
    if (s->flash || (backend && (!strcmp(backend, "flash") || !strcmp(backend, "fused"))))
        k->attention = JOB_FLASH;
    else if (backend && (!strcmp(backend, "unfused") || !strcmp(backend, "local")))
        k->attention = JOB_EAGER;
}

/* What --data-parallel-sharding-strategy says matters to Megatron's own FSDP alone. */
static void read_sharding(struct training_job *job)
{
    static const struct {
        const char *name;
        int sharding;
        bool reshards;
    } strategies[] = {{"no_shard", JOB_REPLICATED, false},
                      {"optim", JOB_DISTRIBUTED_OPTIMIZER, false},
                      {"optim_grads", JOB_FSDP2, false},
                      {"optim_grads_params", JOB_FSDP2, true}};
    const struct job_switches *s = &job->switches;
    const char *strategy = s->fsdp ? s->fsdp : "no_shard";
    struct job_shards *shards = &job->shards;
    shards->sharding = s->torch_fsdp2             ? JOB_FSDP2
                       : s->distributed_optimizer ? JOB_DISTRIBUTED_OPTIMIZER
                                                  : JOB_REPLICATED;
    shards->reshard_after_forward = s->torch_fsdp2 && !s->keeps_gathered;
    for (size_t i = 0; s->custom_fsdp && i < sizeof strategies / sizeof strategies[0]; i++)
        if (!strcmp(strategies[i].name, strategy)) {
            shards->sharding = strategies[i].sharding;
            shards->reshard_after_forward = strategies[i].reshards;
        }
}

/* megatron/training/arguments.py of core_v0.12.0, validate_args(): offloading goes through the precision-aware optimizer, and that
 * through the distributed one. */
static void want_precision_aware(struct training_job *job)
{
    const struct job_switches *s = &job->switches;
    if (job_was_given(job, "--optimizer-cpu-offload") && !job->shards.precision_aware)
        job_note(job, FACT_MISSING, "--use-precision-aware-optimizer", "?",
                 "Megatron-LM refuses --optimizer-cpu-offload without; give "
                 "--with='--use-precision-aware-optimizer'");
    if (job->shards.precision_aware && !s->distributed_optimizer && !s->custom_fsdp)
        job_note(job, FACT_MISSING, "--use-distributed-optimizer", "?",
                 "Megatron-LM refuses --use-precision-aware-optimizer without; give "
                 "--with='--use-distributed-optimizer'");
}

/* Copies of the distributed optimizer, each over a part of the data-parallel ranks. */
static int read_instances(struct training_job *job, struct error *err)
{
    struct job_layout *l = &job->layout;
    int64_t instances = job->switches.replicate_degree;
    if (instances < 2 || !l->dp)
        return 0;
    if (l->dp % instances)
        return error_set(
            err,
            "--num-distributed-optimizer-instances %lld does not divide %lld data-parallel ranks; "
            "correct it",
            (long long)instances, (long long)l->dp);
    l->dp_replicate = instances;
    l->dp_shard = l->dp / instances;
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

/* pretrain_gpt.py makes a model for DeepSpeed's pipeline, be it of one stage, unless told otherwise; runtime/pipe/engine.py
 * asserts a stage of ZeRO below 2. */
static int read_pipeline_of_deepspeed(struct training_job *job, struct error *err)
{
    const struct job_switches *s = &job->switches;
    if (s->zero_stage < 2 || s->no_pipeline || job->model.kind == JOB_ENCODER)
        return 0;
    if (job->layout.pp > 1)
        return error_set(
            err,
            "ZeRO stage %d: DeepSpeed refuses it with --pipeline-model-parallel-size %lld; take stage "
            "1, or no pipeline and --no-pipeline-parallel",
            s->zero_stage, (long long)job->layout.pp);
    job_note(job, FACT_MISSING, "--no-pipeline-parallel", "?",
             "DeepSpeed's pipeline, be it of one stage, refuses ZeRO 2 and 3; give "
             "--with='--no-pipeline-parallel'");
    return 0;
}

static int read_deepspeed(struct training_job *job, const struct job_files *files, struct error *err)
{
    struct job_switches *s = &job->switches;
    if (job->model.experts.count > 1)
        job->beyond = "DeepSpeed's own mixtures of experts (--num-experts)";
    if (!s->deepspeed_config) {
        job_note(job, FACT_MISSING, "--deepspeed-config", "?",
                 "--deepspeed wants it; give --with='--deepspeed-config FILE'");
        return 0;
    }
    int asked = s->zero_stage;
    if (deepspeed_read(job, s->deepspeed_config, files, err))
        return -1;
    if (job_was_given(job, "--zero-stage") && job_was_given(job, "zero_optimization.stage") &&
        asked != s->zero_stage)
        return error_set(err,
                         "--zero-stage %d: stage is %d in %.80s, which is what DeepSpeed does; give both the "
                         "same",
                         asked, s->zero_stage, s->deepspeed_config);
    return read_pipeline_of_deepspeed(job, err);
}

/* Those of Megatron-LM beside pretrain_gpt.py and pretrain_bert.py, which have other models than these. */
static const struct program_words others[] = {
    {"t5 ul2", "an encoder with a decoder"},
    {"mamba hybrid", "layers other than attention"},
    {"vlm multimodal mimo llava vision vit dino inpaint classify", "a model that sees images"},
    {"ict retro realm biencoder orqa", "a model that retrieves"},
    {"dpo grpo ppo rl rlhf reward distill",
     "training that compares or rewards answers, or learns from another model"},
    {"generation generate server inference", "a program that trains nothing"},
    {0},
};

static void refuse_others(struct training_job *job)
{
    const char *program = job->launch.program, *what = program_words_find(program, others);
    if (!what && job_was_given(job, "--encoder-num-layers") && job_was_given(job, "--decoder-num-layers"))
        what = others[0].what;
    if (what && !job->beyond)
        job->beyond = arena_printf(job->facts.arena, "%s (%.60s)", what, program);
    program_refuse_unknown(job);
    if (!program_has_word(program, "gpt bert"))
        job->launch.taken_for = "pretrain_gpt.py";
}

int megatron_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                  struct error *err)
{
    struct job_switches *s = &job->switches;
    if (setting_read_words(&table, job, &launch->arguments, NULL, err))
        return -1;
    refuse_others(job);
    if (s->deepspeed && !job_was_given(job, "--transformer-impl")) {
        s->implementation = "local";
        job_note(job, FACT_DERIVED, "--transformer-impl", "local", fork_table.framework);
    }
    if (setting_defaults(s->deepspeed ? &fork_table : &table, job, err))
        return -1;
    job->precision = s->bf16 ? JOB_BF16 : s->fp16 ? JOB_FP16 : JOB_FP32;
    /* validate_args(): bf16 accumulates in fp32 unless told otherwise, fp16 where it is told to */
    job->gradients_fp32 = job->gradients_fp32 || !s->fp16;
    if (s->reduces_16bit || !strcmp(job->shards.main_gradients, "bf16"))
        job->gradients_fp32 = false;
    if (s->no_pipeline)
        job->layout.pp = 1;
    if (s->zero_bubble)
        job->layout.schedule = "zb-h1";
    if (job->optimizer.name && strcmp(job->optimizer.name, "sgd"))
        job_drop_defaults(job, "--sgd-momentum");
    read_sharding(job);
    want_precision_aware(job);
    read_recomputation(job);
    read_kernels(job);
    if (megatron_modules(job, err))
        return -1;
    if (read_model(job, err) || job_split_ranks(job, err) || read_instances(job, err) ||
        megatron_stages(job, err))
        return -1;
    if (s->deepspeed && read_deepspeed(job, files, err))
        return -1;
    job->shards.reduce_precision = job->gradients_fp32 ? "fp32" : "bf16"; /* as they are summed */
    return read_batch(job, err);
}
