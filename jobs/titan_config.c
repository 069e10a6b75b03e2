/* torchtitan: a TOML file, and options that override its keys; older spellings beside those of today. */
#include "jobs/titan.h"

#include "base/checked.h"
#include "jobs/setting.h"
#include "jobs/toml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys and defaults of torchtitan 0.2.2, torchtitan/config/job_config.py; those of 0.1.0 (config_manager.py) are the same. The
 * releases after 0.2 are configured in Python, not in TOML. */
static const struct setting_rule rules[] = {
    TEXT("model.name", switches.model_name, "llama3"),
    TEXT("model.flavor", switches.flavor, "debugmodel"),
    LIST("model.converters", switches.converters),
    TEXT("config", switches.python_config, NULL), /* after 0.2: a function that is not executed */
    COUNT("training.local_batch_size", batch.micro, "8"),
    COUNT("training.batch_size", batch.micro, NULL), /* before 0.1 */
    COUNT("training.seq_len", batch.sequence, "2048"),
    TEXT("training.global_batch_size", switches.global_batch, "-1"),
    TEXT("training.mixed_precision_param", shards.parameter_precision, "bfloat16"),
    TEXT("training.mixed_precision_reduce", shards.reduce_precision, "float32"),
    TEXT("training.dtype", switches.dtype, "float32"),
    BOOL("training.compile", kernels.compile, "false"), /* 0.1; compile.enable since */
    CHOICE("training.enable_cpu_offload", shards.offload_parameters, "false|true", NULL),
    BOOL("compile.enable", kernels.compile, NULL),
    TEXT("compile.components", kernels.compile_parts, NULL),
    COUNT("parallelism.data_parallel_replicate_degree", switches.replicate_degree, "1"),
    TEXT("parallelism.data_parallel_shard_degree", switches.shard_degree, "-1"),
    TEXT("parallelism.fsdp_reshard_after_forward", switches.reshard, "default"),
    COUNT("parallelism.tensor_parallel_degree", layout.tp, "1"),
    BOOL("parallelism.disable_loss_parallel", switches.whole_loss, "false"),
    COUNT("parallelism.pipeline_parallel_degree", layout.pp, "1"),
    TEXT("parallelism.pipeline_parallel_schedule", layout.schedule, "1F1B"),
    BEYOND("parallelism.pipeline_parallel_schedule_csv", "a schedule of one's own", ""),
    LIST("parallelism.pipeline_parallel_split_points", layout.split_points), /* before 0.2 */
    LIST("parallelism.module_fqns_per_model_part", layout.pipeline_layout),
    COUNT("parallelism.pipeline_parallel_microbatch_size", switches.pipeline_micro_batch, NULL), /* 1 */
    COUNT("parallelism.pipeline_parallel_layers_per_stage", layout.layers_per_virtual_stage, NULL),
    COUNT("parallelism.pipeline_parallel_first_stage_less_layers", layout.first_less, "1"),
    COUNT("parallelism.pipeline_parallel_last_stage_less_layers", layout.last_less, "1"),
    COUNT("parallelism.context_parallel_degree", layout.cp, "1"),
    COUNT("parallelism.expert_parallel_degree", layout.ep, "1"),
    COUNT("parallelism.expert_tensor_parallel_degree", layout.etp, NULL), /* 1 */
    CHOICE("activation_checkpoint.mode", recompute.granularity, "none|selective|full|memory_budget",
           "selective"),
    TEXT("activation_checkpoint.selective_ac_option", recompute.modules, "2"),
    TEXT("optimizer.name", optimizer.name, "AdamW"),
    TEXT("optimizer.implementation", optimizer.implementation, "fused"),
    BOOL("optimizer.early_step_in_backward", optimizer.in_backward, "false"),
    TEXT("float8.recipe_name", kernels.fp8, NULL),
    BOOL("float8.enable_fsdp_float8_all_gather", kernels.fp8_gather, NULL),
    TEXT("quantize.linear.float8.recipe_name", kernels.fp8, NULL),
    BOOL("quantize.linear.float8.enable_fsdp_float8_all_gather", kernels.fp8_gather, NULL),
    {0},
};

static const char irrelevant[] =
    "activation_checkpoint.debug activation_checkpoint.determinism_check activation_checkpoint.early_stop "
    "activation_checkpoint.memory_budget activation_checkpoint.per_op_* "
    "activation_checkpoint.preserve_rng_state activation_checkpoint.visualize_memory_budget_pareto "
    "checkpoint.* comm.* compile.backend debug.* experimental.* fault_tolerance.* float8.* job.* "
    "lr_scheduler.* memory_estimation.* metrics.* model.hf_assets_path model.norm_type "
    "model.print_after_conversion model.tokenizer_path mx.* optimizer.* "
    "parallelism.context_parallel_load_balancer parallelism.context_parallel_rotate_method "
    "parallelism.enable_async_tensor_parallel parallelism.enable_compiled_autograd "
    "parallelism.expert_parallel_comm_backend parallelism.pipeline_parallel_expert_parallel_overlap "
    "profiling.* quantize.* training.data* training.deterministic training.gc_* training.max_norm "
    "training.seed training.steps training.warmup_steps validation.*";

static const struct setting_table table = {rules, irrelevant, TITAN_VERSION, true};

/* What all flavors share. */
#define DECODER                                                                                              \
    .norm = JOB_RMS_NORM, .positions = JOB_ROPE, .gated = true, .norm_eps = 1e-5, .activation = "silu"
#define LLAMA3(flavor, layers_, hidden_, heads_, kv_heads_, ffn_, vocab_)                                    \
    {                                                                                                        \
        "llama3", flavor,                                                                                    \
        {                                                                                                    \
            DECODER, .type = "llama", .layers = layers_, .hidden = hidden_, .heads = heads_,                 \
                     .kv_heads = kv_heads_, .head_size = hidden_ / heads_, .ffn = ffn_, .vocab = vocab_,     \
                     .max_seq_len = 131072, .rope_theta = 500000                                             \
        }                                                                                                    \
    }
#define QWEN3(flavor, layers_, hidden_, heads_, kv_heads_, ffn_, tied_, experts_)                            \
    {                                                                                                        \
        "qwen3", flavor,                                                                                     \
        {                                                                                                    \
            DECODER, .type = "qwen3", .layers = layers_, .hidden = hidden_, .heads = heads_,                 \
                     .kv_heads = kv_heads_, .head_size = 128, .ffn = ffn_, .vocab = 151936,                  \
                     .max_seq_len = 4096, .rope_theta = 1000000, .qk_norm = true, .tied = tied_,             \
                     .experts = experts_                                                                     \
        }                                                                                                    \
    }
#define NO_EXPERTS                                                                                           \
    {                                                                                                        \
        0                                                                                                    \
    }
#define EXPERTS(ffn_)                                                                                        \
    {                                                                                                        \
        .count = 128, .active = 8, .ffn = ffn_, .every = 1                                                   \
    }
#define DEEPSEEK(flavor, layers_, hidden_, heads_, ffn_, vocab_, q_rank_, count_, active_, expert_ffn,       \
                 shared, dense, bias)                                                                        \
    {                                                                                                        \
        "deepseek_v3", flavor,                                                                               \
        {                                                                                                    \
            DECODER, .type = "deepseek_v3", .layers = layers_, .hidden = hidden_, .heads = heads_,           \
                     .kv_heads = heads_, .head_size = 192, .ffn = ffn_, .vocab = vocab_,                     \
                     .max_seq_len = 16384, .rope_theta = 10000,                                              \
                     .experts = {.count = count_,                                                            \
                                 .active = active_,                                                          \
                                 .ffn = expert_ffn,                                                          \
                                 .shared_ffn = shared,                                                       \
                                 .router_bias = bias,                                                        \
                                 .dense_layers = dense,                                                      \
                                 .every = 1},                                                                \
                     .latent = {                                                                             \
                         .q_rank = q_rank_,                                                                  \
                         .kv_rank = 512,                                                                     \
                         .nope_size = 128,                                                                   \
                         .rope_size = 64,                                                                    \
                         .value_size = 128                                                                   \
                     }                                                                                       \
        }                                                                                                    \
    }

/* torchtitan/models/.../__init__.py of 0.2.2; those of other attention kernels ("8B_flex") are the same models. */
static const struct {
    const char *name, *flavor;
    struct job_model model;
} flavors[] = {
    LLAMA3("debugmodel", 6, 256, 16, 16, 768, 2048),
    LLAMA3("8B", 32, 4096, 32, 8, 14336, 128256),
    LLAMA3("70B", 80, 8192, 64, 8, 28672, 128256),
    LLAMA3("405B", 126, 16384, 128, 8, 53248, 128256),
    QWEN3("0.6B", 28, 1024, 16, 8, 3072, true, NO_EXPERTS),
    QWEN3("1.7B", 28, 2048, 16, 8, 6144, true, NO_EXPERTS),
    QWEN3("4B", 36, 2560, 32, 8, 9728, true, NO_EXPERTS),
    QWEN3("8B", 36, 4096, 32, 8, 12288, false, NO_EXPERTS),
    QWEN3("14B", 40, 5120, 40, 8, 17408, false, NO_EXPERTS),
    QWEN3("32B", 64, 5120, 64, 8, 25600, false, NO_EXPERTS),
    QWEN3("30B-A3B", 48, 2048, 32, 4, 6144, false, EXPERTS(768)),
    QWEN3("235B-A22B", 94, 4096, 64, 4, 12288, false, EXPERTS(1536)),
    DEEPSEEK("debugmodel", 6, 256, 16, 1024, 2048, 0, 8, 3, 256, 512, 1, false),
    DEEPSEEK("16B", 27, 2048, 16, 10944, 102400, 0, 64, 6, 1408, 2816, 1, false),
    DEEPSEEK("236B", 60, 5120, 128, 12288, 102400, 1536, 160, 6, 1536, 3072, 1, false),
    DEEPSEEK("671B", 61, 7168, 128, 18432, 129280, 1536, 256, 8, 2048, 2048, 3, true),
};

/* ---- files and options ---- */

static int read_file(struct training_job *job, const struct word *path, const struct job_files *files,
                     struct error *err)
{
    struct pairs pairs = {.file = path->text};
    const char *text;
    size_t length;
    if (path->unknown) {
        job_note(job, FACT_MISSING, "--job.config_file", path->text,
                 path->name
                     ? arena_printf(job->facts.arena, "%s; give --set %s=FILE", path->unknown, path->name)
                     : path->unknown);
        return 0;
    }
    int status = job_file_text(job, files, path->text, &text, &length, err);
    if (status > 0)
        job_note(job, FACT_MISSING, "--job.config_file", path->text,
                 "there is no such file; correct the path");
    if (status)
        return status < 0 ? -1 : 0;
    job_note(job, FACT_READ, "--job.config_file", path->text, job_origin(job, path));
    if (toml_read(text, length, job->facts.arena, &pairs, err))
        return -1;
    return setting_read_pairs(&table, job, &pairs, err);
}

/* An option without its dashes is a key of the file. */
static int read_override(struct training_job *job, const struct words *w, int *at, struct error *err)
{
    const char *name = w->list[*at].text + 2, *equals = strchr(name, '=');
    struct word key = w->list[*at], value = key;
    key.text = equals ? arena_printf(job->facts.arena, "%.*s", (int)(equals - name), name) : name;
    value.text = equals ? equals + 1 : "true";
    ++*at;
    if (!equals && *at < w->count && strncmp(w->list[*at].text, "--", 2))
        value = w->list[(*at)++];
    return setting_apply(&table, job, &key, &value, err);
}

static int read_arguments(struct training_job *job, const struct words *w, const struct job_files *files,
                          struct error *err)
{
    static const char option[] = "--job.config";
    for (int at = 0; at < w->count; at++) {
        const char *equals = strchr(w->list[at].text, '=');
        struct word path = w->list[at];
        if (strncmp(path.text, option, sizeof option - 1))
            continue;
        if (equals)
            path.text = equals + 1;
        else if (at + 1 < w->count)
            path = w->list[at + 1];
        if (read_file(job, &path, files, err))
            return -1;
    }
    for (int at = 0; at < w->count;) {
        const struct word *word = &w->list[at];
        if (!strncmp(word->text, option, sizeof option - 1)) {
            at += strchr(word->text, '=') ? 1 : 2;
        } else if (!strncmp(word->text, "--", 2)) {
            if (read_override(job, w, &at, err))
                return -1;
        } else {
            if (*word->text)
                job_note(job, FACT_UNKNOWN, word->text, "",
                         word->unknown ? word->unknown : job_origin(job, word));
            at++;
        }
    }
    return 0;
}

/* ---- the model ---- */

/* "8B_flex" and "8B_varlen" are 8B. */
static bool is_flavor(const char *given, const char *flavor)
{
    size_t length = strlen(flavor);
    const char *rest = given + length;
    return !strncmp(given, flavor, length) &&
           (!*rest || !strncmp(rest, "_flex", 5) || !strncmp(rest, "_varlen", 7));
}

static int read_model(struct training_job *job, const struct job_files *files, struct error *err)
{
    const struct job_switches *s = &job->switches;
    if (files->model) {
        const char *why;
        int status = job_read_model(job, files, files->model, "--model", &why, err);
        return status > 0 ? error_set(err, "--model %s", why) : status;
    }
    for (size_t i = 0; i < sizeof flavors / sizeof flavors[0]; i++)
        if (!strcmp(flavors[i].name, s->model_name) && is_flavor(s->flavor, flavors[i].flavor)) {
            job->model = flavors[i].model;
            snprintf(job->model.name, sizeof job->model.name, "%s %s", s->model_name, s->flavor);
            job->model_known = true;
            return 0;
        }
    job_note(job, FACT_MISSING, "model.flavor", s->flavor,
             arena_printf(job->facts.arena,
                          "no flavor of %s by that name is known; give --model FOLDER with a config.json, or "
                          "--model NAME of a model on the hub",
                          s->model_name));
    return 0;
}

/* ---- the rest ---- */

/* -1 shards over all ranks that are left. Context-parallel ranks share the weights too. */
static int read_sharding(struct training_job *job, struct error *err)
{
    struct job_switches *s = &job->switches;
    struct job_layout *l = &job->layout;
    int64_t replicas = s->replicate_degree ? s->replicate_degree : 1;
    int64_t shard = strtoll(s->shard_degree, NULL, 10);
    l->dp_replicate = replicas;
    if (l->dp && shard < 1) {
        if (l->dp % replicas)
            return error_set(
                err,
                "data_parallel_replicate_degree %lld does not divide %lld data-parallel ranks; correct it",
                (long long)replicas, (long long)l->dp);
        shard = l->dp / replicas;
        job_note_count(job, FACT_DERIVED, "parallelism.data_parallel_shard_degree", shard,
                       "-1: all ranks that are left");
    }
    int64_t product;
    if (l->dp && (!checked_mul(shard, replicas, &product) || product != l->dp))
        return error_set(
            err, "%lld replicas x %lld shards are not the %lld data-parallel ranks; correct one of them",
            (long long)replicas, (long long)shard, (long long)l->dp);
    l->dp_shard = shard > 0 ? shard : 0;
    bool shards = l->dp_shard > 1 || l->cp > 1;
    job->shards.sharding = shards ? JOB_FSDP2 : JOB_REPLICATED;
    job->shards.fsdp_strategy = replicas > 1 ? JOB_HYBRID_SHARD : JOB_FULL_SHARD;
    job->shards.reshard_after_forward =
        !strcmp(s->reshard, "always") || (!strcmp(s->reshard, "default") && l->pp == 1);
    return 0;
}

/* A section about float8 does nothing unless a converter is asked for. */
static void read_float8(struct training_job *job)
{
    const char *converters = job->switches.converters;
    bool converts = converters && (strstr(converters, "float8") || strstr(converters, "mx"));
    if (!converts)
        job->kernels.fp8 = NULL;
    else if (!job->kernels.fp8)
        job->kernels.fp8 = converters;
}

static void read_batch(struct training_job *job)
{
    struct job_batch *b = &job->batch;
    int64_t given = strtoll(job->switches.global_batch, NULL, 10), together;
    int64_t split = job->switches.pipeline_micro_batch;
    if (!job->layout.dp || !checked_mul(b->micro, job->layout.dp, &together) || !together)
        return;
    b->global = given > 0 ? given : together;
    b->accumulation = b->global / together;
    if (job->layout.pp > 1) {
        /* A pipeline cuts the local batch into micro-batches of one sequence unless told otherwise. */
        split = split ? split : 1;
        b->accumulation *= b->micro / split > 0 ? b->micro / split : 1;
        b->micro = split;
        job_note_count(job, FACT_DERIVED, "micro-batch", split,
                       "what the pipeline cuts the local batch into");
    }
}

int titan_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
               struct error *err)
{
    struct job_switches *s = &job->switches;
    if (read_arguments(job, &launch->arguments, files, err) || setting_defaults(&table, job, err))
        return -1;
    if (s->python_config)
        job_note(job, FACT_MISSING, "--config", s->python_config,
                 "a configuration in Python is not executed; give its options in a TOML file, "
                 "--job.config_file FILE");
    if (read_model(job, files, err) || job_split_ranks(job, err) || read_sharding(job, err))
        return -1;
    bool bf16 = !strcmp(s->dtype, "bfloat16");
    bool casts = !strcmp(job->shards.parameter_precision, "bfloat16");
    /* FSDP casts; else autocast does, but not beside tensor or pipeline parallel ranks (distributed/utils.py, maybe_enable_amp). */
    if (casts && !bf16 && job->shards.sharding == JOB_REPLICATED && job->layout.tp * job->layout.pp > 1) {
        casts = false;
        job_note(job, FACT_DERIVED, "training.mixed_precision_param", "float32",
                 "torchtitan casts nothing with tensor or pipeline parallel ranks and without FSDP");
    }
    job->precision = bf16 ? JOB_PURE_BF16 : casts ? JOB_AUTOCAST_BF16 : JOB_FP32;
    job->gradients_fp32 = !bf16;
    job->layout.sequence_parallel = job->layout.tp > 1;
    job->kernels.attention = strstr(s->flavor, "_flex") ? JOB_FLEX : JOB_SDPA;
    job->kernels.vocabulary_parallel_loss = job->layout.tp > 1 && !s->whole_loss;
    if (job->recompute.granularity == JOB_RECOMPUTE_SELECTIVE && strcmp(job->recompute.modules, "op"))
        job->recompute.layers = strtoll(job->recompute.modules, NULL, 10);
    read_float8(job);
    if (titan_stages(job, err))
        return -1;
    read_batch(job);
    return 0;
}
