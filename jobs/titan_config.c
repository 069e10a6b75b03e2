/* torchtitan: a TOML file, and options that override its keys. Names, defaults and flavors of torchtitan 0.1 (May 2025), and
 * the older spellings of some. */
#include "jobs/frameworks.h"

#include "base/checked.h"
#include "jobs/setting.h"
#include "jobs/toml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(name, field, fallback)       SETTING(name, SETTING_COUNT, field, NULL, fallback)
#define BOOL(name, field, fallback)        SETTING(name, SETTING_BOOL, field, NULL, fallback)
#define TEXT(name, field, fallback)        SETTING(name, SETTING_TEXT, field, NULL, fallback)
#define CHOICE(name, field, list, default) SETTING(name, SETTING_CHOICE, field, list, default)

static const struct setting_rule rules[] = {
    TEXT("model.name", switches.model_name, "llama3"),
    TEXT("model.flavor", switches.flavor, "debugmodel"),
    COUNT("training.local_batch_size", batch.micro, "8"),
    COUNT("training.batch_size", batch.micro, NULL),
    COUNT("training.seq_len", batch.sequence, "2048"),
    TEXT("training.global_batch_size", switches.global_batch, "-1"),
    TEXT("training.mixed_precision_param", shards.parameter_precision, "bfloat16"),
    TEXT("training.mixed_precision_reduce", shards.reduce_precision, "float32"),
    TEXT("training.dtype", switches.dtype, "float32"),
    BOOL("training.compile", kernels.compile, "false"),
    BOOL("training.enable_cpu_offload", shards.offload_parameters, NULL),
    BOOL("compile.enable", kernels.compile, NULL),
    TEXT("compile.components", kernels.compile_parts, NULL),
    COUNT("parallelism.data_parallel_replicate_degree", switches.replicate_degree, "1"),
    TEXT("parallelism.data_parallel_shard_degree", switches.shard_degree, "-1"),
    TEXT("parallelism.fsdp_reshard_after_forward", switches.reshard, "default"),
    COUNT("parallelism.tensor_parallel_degree", layout.tp, "1"),
    BOOL("parallelism.disable_loss_parallel", switches.whole_loss, "false"),
    COUNT("parallelism.pipeline_parallel_degree", layout.pp, "1"),
    TEXT("parallelism.pipeline_parallel_schedule", layout.schedule, "1F1B"),
    COUNT("parallelism.pipeline_parallel_microbatch_size", switches.pipeline_micro_batch, NULL),
    COUNT("parallelism.pipeline_parallel_layers_per_stage", layout.layers_per_virtual_stage, NULL),
    COUNT("parallelism.context_parallel_degree", layout.cp, "1"),
    COUNT("parallelism.expert_parallel_degree", layout.ep, "1"),
    COUNT("parallelism.expert_tensor_parallel_degree", layout.etp, NULL),
    CHOICE("activation_checkpoint.mode", recompute.granularity, "none|selective|full", "selective"),
    TEXT("activation_checkpoint.selective_ac_option", recompute.modules, "2"),
    TEXT("optimizer.name", optimizer.name, "AdamW"),
    TEXT("optimizer.implementation", optimizer.implementation, "fused"),
    BOOL("optimizer.early_step_in_backward", optimizer.in_backward, "false"),
    TEXT("float8.recipe_name", kernels.fp8, NULL),
    BOOL("float8.enable_fsdp_float8_all_gather", kernels.fp8_gather, NULL),
    {0},
};

static const char *const irrelevant[] = {"job.*",
                                         "profiling.*",
                                         "metrics.*",
                                         "lr_scheduler.*",
                                         "checkpoint.*",
                                         "comm.*",
                                         "experimental.*",
                                         "fault_tolerance.*",
                                         "validation.*",
                                         "memory_estimation.*",
                                         "model.tokenizer_path",
                                         "model.hf_assets_path",
                                         "model.norm_type",
                                         "model.converters",
                                         "model.print_after_conversion",
                                         "optimizer.lr",
                                         "optimizer.eps",
                                         "optimizer.beta1",
                                         "optimizer.beta2",
                                         "optimizer.weight_decay",
                                         "training.steps",
                                         "training.max_norm",
                                         "training.dataset*",
                                         "training.data*",
                                         "training.gc_*",
                                         "training.seed",
                                         "training.deterministic",
                                         "training.warmup_steps",
                                         "float8.precompute_*",
                                         "float8.filter_fqns",
                                         "float8.force_*",
                                         "parallelism.enable_async_tensor_parallel",
                                         "parallelism.enable_compiled_autograd",
                                         "parallelism.context_parallel_rotate_method",
                                         "activation_checkpoint.per_op_*",
                                         NULL};

static const struct setting_table table = {rules, irrelevant, "torchtitan 0.1", true};

/* torchtitan/models/.../__init__.py; `vocab`: of the tokenizer that its recipes use. */
static const struct {
    const char *name, *flavor;
    struct job_model model;
} flavors[] = {
#define LLAMA3(flavor_, layers_, hidden_, heads_, kv_, ffn_, vocab_)                                         \
    {                                                                                                        \
        "llama3", flavor_,                                                                                   \
        {                                                                                                    \
            .type = "llama", .norm = JOB_RMS_NORM, .positions = JOB_ROPE, .layers = layers_,                 \
            .hidden = hidden_, .heads = heads_, .kv_heads = kv_, .head_size = hidden_ / heads_, .ffn = ffn_, \
            .vocab = vocab_, .max_seq_len = 131072, .gated = true, .norm_eps = 1e-5, .rope_theta = 500000,   \
            .activation = "silu"                                                                             \
        }                                                                                                    \
    }
    LLAMA3("debugmodel", 6, 256, 16, 16, 768, 2048),
    LLAMA3("8B", 32, 4096, 32, 8, 14336, 128256),
    LLAMA3("70B", 80, 8192, 64, 8, 28672, 128256),
    LLAMA3("405B", 126, 16384, 128, 8, 53248, 128256),
#undef LLAMA3
    {"deepseek_v3",
     "16B",
     {.type = "deepseek_v3",
      .norm = JOB_RMS_NORM,
      .positions = JOB_ROPE,
      .layers = 27,
      .hidden = 2048,
      .heads = 16,
      .kv_heads = 16,
      .head_size = 192,
      .ffn = 10944,
      .vocab = 102400,
      .max_seq_len = 16384,
      .gated = true,
      .norm_eps = 1e-5,
      .rope_theta = 10000,
      .activation = "silu",
      .experts = {.count = 64, .active = 6, .ffn = 1408, .shared_ffn = 2816, .dense_layers = 1, .every = 1},
      .latent = {.kv_rank = 512, .nope_size = 128, .rope_size = 64, .value_size = 128}}},
    {"deepseek_v3",
     "671B",
     {.type = "deepseek_v3",
      .norm = JOB_RMS_NORM,
      .positions = JOB_ROPE,
      .layers = 61,
      .hidden = 7168,
      .heads = 128,
      .kv_heads = 128,
      .head_size = 192,
      .ffn = 18432,
      .vocab = 129280,
      .max_seq_len = 16384,
      .gated = true,
      .norm_eps = 1e-5,
      .rope_theta = 10000,
      .activation = "silu",
      .experts = {.count = 256,
                  .active = 8,
                  .ffn = 2048,
                  .shared_ffn = 2048,
                  .router_bias = true,
                  .dense_layers = 3,
                  .every = 1},
      .latent = {.q_rank = 1536, .kv_rank = 512, .nope_size = 128, .rope_size = 64, .value_size = 128}}},
};

bool titan_is(const struct launch *launch)
{
    for (int i = 0; i < launch->arguments.count; i++)
        if (!strncmp(launch->arguments.list[i].text, "--job.config", 12))
            return true;
    return strstr(launch->program, "torchtitan") != NULL;
}

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

static int read_model(struct training_job *job, const struct job_files *files, struct error *err)
{
    const struct job_switches *s = &job->switches;
    if (files->model) {
        int status = job_read_model(job, files, files->model, "--model", err);
        return status > 0
                   ? error_set(err, "--model %s: there is no such folder or preset; correct it", files->model)
                   : status;
    }
    for (size_t i = 0; i < sizeof flavors / sizeof flavors[0]; i++)
        if (!strcmp(flavors[i].name, s->model_name) && !strcmp(flavors[i].flavor, s->flavor)) {
            job->model = flavors[i].model;
            snprintf(job->model.name, sizeof job->model.name, "%s %s", s->model_name, s->flavor);
            job->model_known = true;
            return 0;
        }
    job_note(job, FACT_MISSING, "model.flavor", s->flavor,
             arena_printf(job->facts.arena,
                          "no flavor of %s by that name is known; give --model FOLDER with a config.json",
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
    job->framework = JOB_TORCHTITAN;
    if (read_arguments(job, &launch->arguments, files, err) || setting_defaults(&table, job, err))
        return -1;
    if (read_model(job, files, err) || job_split_ranks(job, err) || read_sharding(job, err))
        return -1;
    bool bf16 = !strcmp(s->dtype, "bfloat16");
    bool casts = !strcmp(job->shards.parameter_precision, "bfloat16");
    job->precision = bf16 ? JOB_PURE_BF16 : casts ? JOB_AUTOCAST_BF16 : JOB_FP32;
    job->gradients_fp32 = !bf16;
    job->layout.sequence_parallel = job->layout.tp > 1;
    job->layout.virtual_stages = 1;
    job->kernels.attention = JOB_SDPA;
    job->kernels.vocabulary_parallel_loss = job->layout.tp > 1 && !s->whole_loss;
    job->optimizer.fused = !strcmp(job->optimizer.implementation, "fused");
    job->optimizer.foreach = !strcmp(job->optimizer.implementation, "foreach");
    if (job->recompute.granularity == JOB_RECOMPUTE_SELECTIVE && strcmp(job->recompute.modules, "op"))
        job->recompute.layers = strtoll(job->recompute.modules, NULL, 10);
    read_batch(job);
    return 0;
}
