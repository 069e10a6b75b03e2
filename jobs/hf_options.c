/* Hugging Face: scripts that parse TrainingArguments (run_clm.py, TRL's sft.py). Names and defaults of transformers 4.50 and
 * TRL 0.16. */
#include "jobs/frameworks.h"

#include "base/checked.h"
#include "jobs/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(name, field, fallback)       SETTING(name, SETTING_COUNT, field, NULL, fallback)
#define REAL(name, field)                  SETTING(name, SETTING_REAL, field, NULL, NULL)
#define BOOL(name, field, fallback)        SETTING(name, SETTING_BOOL, field, NULL, fallback)
#define TEXT(name, field, fallback)        SETTING(name, SETTING_TEXT, field, NULL, fallback)
#define LIST(name, field)                  SETTING(name, SETTING_LIST, field, NULL, NULL)
#define CHOICE(name, field, list, default) SETTING(name, SETTING_CHOICE, field, list, default)

static const struct setting_rule rules[] = {
    TEXT("--model_name_or_path", switches.model_path, NULL),
    TEXT("--config_name", switches.config_name, NULL),
    TEXT("--config_overrides", switches.config_overrides, NULL),
    TEXT("--model_type", switches.model_name, NULL),
    TEXT("--torch_dtype", switches.dtype, "float32"),
    CHOICE("--attn_implementation", kernels.attention, "default|eager|sdpa|flash_attention_2|flex_attention",
           "sdpa"),
    COUNT("--per_device_train_batch_size", batch.micro, "8"),
    COUNT("--gradient_accumulation_steps", batch.accumulation, "1"),
    BOOL("--gradient_checkpointing", switches.gradient_checkpointing, NULL),
    COUNT("--block_size", batch.sequence, NULL),
    COUNT("--max_seq_length", batch.sequence, NULL),
    COUNT("--max_length", batch.sequence, NULL),
    BOOL("--bf16", switches.bf16, NULL),
    BOOL("--fp16", switches.fp16, NULL),
    TEXT("--optim", optimizer.name, "adamw_torch"),
    LIST("--fsdp", switches.fsdp),
    TEXT("--fsdp_config", switches.fsdp_config, NULL),
    TEXT("--deepspeed", switches.deepspeed_config, NULL),
    BOOL("--torch_compile", kernels.compile, "false"),
    BOOL("--use_liger_kernel", kernels.liger, "false"),
    BOOL("--use_liger", kernels.liger, NULL),
    BOOL("--packing", batch.packing, NULL),
    BOOL("--group_by_length", batch.group_by_length, NULL),
    BOOL("--use_peft", switches.peft, NULL),
    COUNT("--lora_r", switches.lora_rank, "16"),
    COUNT("--lora_alpha", switches.lora_alpha, "32"),
    REAL("--lora_dropout", adapter.dropout),
    LIST("--lora_target_modules", adapter.targets),
    BOOL("--load_in_4bit", switches.load_4bit, NULL),
    BOOL("--load_in_8bit", switches.load_8bit, NULL),
    BOOL("--use_bnb_nested_quant", adapter.double_quantized, NULL),
    COUNT("--ddp_bucket_cap_mb", shards.reduce_bucket, NULL),
    {0},
};

static const char *const irrelevant[] = {"--output_dir",
                                         "--overwrite_output_dir",
                                         "--do_train",
                                         "--do_eval",
                                         "--do_predict",
                                         "--dataset_*",
                                         "--train_file",
                                         "--validation_file",
                                         "--validation_split_percentage",
                                         "--tokenizer_name",
                                         "--use_fast_tokenizer",
                                         "--learning_rate",
                                         "--weight_decay",
                                         "--adam_*",
                                         "--max_grad_norm",
                                         "--num_train_epochs",
                                         "--max_steps",
                                         "--lr_scheduler_*",
                                         "--warmup_*",
                                         "--logging_*",
                                         "--log_*",
                                         "--save_*",
                                         "--eval_*",
                                         "--evaluation_strategy",
                                         "--per_device_eval_batch_size",
                                         "--seed",
                                         "--data_seed",
                                         "--report_to",
                                         "--run_name",
                                         "--push_to_hub",
                                         "--hub_*",
                                         "--tf32",
                                         "--dataloader_*",
                                         "--ddp_timeout",
                                         "--ddp_find_unused_parameters",
                                         "--ddp_backend",
                                         "--local_rank",
                                         "--remove_unused_columns",
                                         "--preprocessing_num_workers",
                                         "--streaming",
                                         "--max_train_samples",
                                         "--max_eval_samples",
                                         "--low_cpu_mem_usage",
                                         "--cache_dir",
                                         "--trust_remote_code",
                                         "--load_best_model_at_end",
                                         "--metric_for_best_model",
                                         "--disable_tqdm",
                                         "--gradient_checkpointing_kwargs",
                                         "--resume_from_checkpoint",
                                         "--bf16_full_eval",
                                         "--fp16_full_eval",
                                         "--token",
                                         "--model_revision",
                                         "--keep_linebreaks",
                                         "--overwrite_cache",
                                         "--use_auth_token",
                                         "--lora_task_type",
                                         "--bnb_4bit_*",
                                         "--eos_token",
                                         "--chat_template_path",
                                         "--torch_compile_*",
                                         "--include_*",
                                         "--label_*",
                                         "--skip_memory_metrics",
                                         "--save_total_limit",
                                         "--prediction_loss_only",
                                         "--neftune_noise_alpha",
                                         "--optim_args",
                                         "--assistant_only_loss",
                                         "--mlm_probability",
                                         "--line_by_line",
                                         "--pad_to_max_length",
                                         NULL};

static const struct setting_table table = {rules, irrelevant, "transformers 4.50 and TRL 0.16", true};

static bool has_option(const struct launch *launch, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < launch->arguments.count; i++) {
        const char *text = launch->arguments.list[i].text;
        if (!strncmp(text, name, length) && (!text[length] || text[length] == '='))
            return true;
    }
    return false;
}

bool hf_is(const struct launch *launch)
{
    return has_option(launch, "--model_name_or_path") ||
           has_option(launch, "--per_device_train_batch_size") || has_option(launch, "--config_name") ||
           has_option(launch, "--output_dir") ||
           (launch->arguments.count == 1 && strstr(launch->arguments.list[0].text, ".json"));
}

/* run_clm.py args.json: the options as the keys of an object. */
static int read_arguments(struct training_job *job, const struct launch *launch,
                          const struct job_files *files, struct error *err)
{
    const struct words *w = &launch->arguments;
    if (w->count != 1 || w->list[0].text[0] == '-')
        return setting_read_words(&table, job, w, NULL, err);
    struct pairs pairs = {.file = w->list[0].text};
    json_t *object;
    int status = job_file_json(job, files, pairs.file, &object, err);
    if (status > 0)
        return error_set(err, "%s: there is no such file of options; correct the path", pairs.file);
    if (status)
        return -1;
    pairs_from_json(&pairs, job->facts.arena, object);
    json_decref(object);
    for (int i = 0; i < pairs.count; i++)
        pairs.list[i].key = arena_printf(job->facts.arena, "--%s", pairs.list[i].key);
    return setting_read_pairs(&table, job, &pairs, err);
}

/* ---- the model ---- */

static int override_field(struct training_job *job, const char *name, size_t length, int64_t value)
{
    struct job_model *m = &job->model;
    const struct {
        const char *name;
        int64_t *field;
    } fields[] = {{"n_embd", &m->hidden},
                  {"hidden_size", &m->hidden},
                  {"n_layer", &m->layers},
                  {"num_hidden_layers", &m->layers},
                  {"n_head", &m->heads},
                  {"num_attention_heads", &m->heads},
                  {"n_positions", &m->max_seq_len},
                  {"max_position_embeddings", &m->max_seq_len},
                  {"vocab_size", &m->vocab},
                  {"intermediate_size", &m->ffn},
                  {"n_inner", &m->ffn},
                  {"num_key_value_heads", &m->kv_heads}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strlen(fields[i].name) == length && !strncmp(fields[i].name, name, length)) {
            *fields[i].field = value;
            return 0;
        }
    return -1;
}

/* "n_embd=1024,n_layer=24": of a model made from nothing. */
static int apply_overrides(struct training_job *job, struct error *err)
{
    struct job_model *m = &job->model;
    const char *text = job->switches.config_overrides;
    bool whole_heads = m->kv_heads == m->heads;
    if (!text)
        return 0;
    for (const char *at = text; at && *at;) {
        const char *equals = strchr(at, '='), *comma = strchr(at, ',');
        if (!equals || (comma && comma < equals))
            return error_set(err, "--config_overrides \"%.80s\" is no list of name=value; correct it", text);
        if (override_field(job, at, (size_t)(equals - at), strtoll(equals + 1, NULL, 10)))
            job_note(job, FACT_UNKNOWN,
                     arena_printf(job->facts.arena, "--config_overrides %.*s", (int)(equals - at), at),
                     equals + 1, "no key that decides memory is known by that name");
        at = comma ? comma + 1 : NULL;
    }
    if (whole_heads)
        m->kv_heads = m->heads;
    snprintf(m->name, sizeof m->name, "%.40s, changed", m->type);
    if (m->heads > 0)
        m->head_size = m->hidden / m->heads;
    if (m->norm == JOB_LAYER_NORM && m->hidden > 0 && m->hidden < 1 << 20)
        m->ffn = 4 * m->hidden;
    return job_model_check(m, "--config_overrides", err);
}

static int read_model(struct training_job *job, const struct job_files *files, struct error *err)
{
    const struct job_switches *s = &job->switches;
    const char *option = files->model ? "--model" : s->config_name ? "--config_name" : "--model_name_or_path";
    const char *source = files->model ? files->model : s->config_name ? s->config_name : s->model_path;
    if (!source && s->model_name && !strcmp(s->model_name, "gpt2"))
        source = "gpt2-124m", option = "--model_type gpt2";
    if (!source) {
        if (!job_was_given(job, "--model_name_or_path"))
            job_note(job, FACT_MISSING, "--model_name_or_path", "?", "nothing says it; give --model FOLDER");
        return 0;
    }
    int status = job_read_model(job, files, source, option, err);
    if (status > 0)
        job_note(job, FACT_MISSING, option, source,
                 "there is no such folder here; give --model FOLDER with its config.json, or the name of a "
                 "preset");
    if (status)
        return status < 0 ? -1 : 0;
    if (s->model_name && !strcmp(s->model_name, "gpt2"))
        job->model.hidden_dropout = job->model.attention_dropout = 0.1;
    return apply_overrides(job, err);
}

/* ---- the rest ---- */

static int read_fsdp_config(struct training_job *job, const struct job_files *files, struct error *err)
{
    const char *path = job->switches.fsdp_config;
    json_t *config;
    if (!path)
        return 0;
    struct pairs pairs = {.file = path};
    int status = job_file_json(job, files, path, &config, err);
    if (status > 0)
        job_note(job, FACT_MISSING, "--fsdp_config", path, "there is no such file; correct the path");
    if (status)
        return status < 0 ? -1 : 0;
    pairs_from_json(&pairs, job->facts.arena, config);
    json_decref(config);
    for (int i = 0; i < pairs.count; i++) {
        const struct pair *p = &pairs.list[i];
        const char *name = strncmp(p->key, "fsdp_", 5) ? p->key : p->key + 5;
        if (!strcmp(name, "activation_checkpointing"))
            job->switches.gradient_checkpointing |= !strcmp(p->value, "true");
        else if (!strcmp(name, "transformer_layer_cls_to_wrap"))
            job->shards.wrap = p->value;
        else if (!strcmp(name, "version"))
            job->switches.fsdp_version = p->value;
        else if (!strcmp(name, "reshard_after_forward"))
            job->switches.reshard = p->value;
        else if (strcmp(name, "backward_prefetch") && strcmp(name, "use_orig_params") &&
                 strcmp(name, "sync_module_states") && strcmp(name, "cpu_ram_efficient_loading") &&
                 strcmp(name, "limit_all_gathers") && strcmp(name, "forward_prefetch")) {
            job_note(job, FACT_UNKNOWN, p->key, p->value, path);
            continue;
        }
        job_note(job, FACT_READ, arena_printf(job->facts.arena, "fsdp_config.%s", name), p->value, path);
    }
    return 0;
}

/* "full_shard auto_wrap offload", "FULL_SHARD", "1". */
static void read_fsdp(struct training_job *job)
{
    struct job_switches *s = &job->switches;
    const char *text = s->fsdp ? s->fsdp : "";
    if (!s->use_fsdp && !*text)
        return;
    job->shards.sharding = s->fsdp_version && !strcmp(s->fsdp_version, "2") ? JOB_FSDP2 : JOB_FSDP1;
    if (strcasestr(text, "hybrid_shard_zero2"))
        job->shards.fsdp_strategy = JOB_HYBRID_SHARD_ZERO2;
    else if (strcasestr(text, "hybrid_shard"))
        job->shards.fsdp_strategy = JOB_HYBRID_SHARD;
    else if (strcasestr(text, "shard_grad_op") || !strcmp(text, "2"))
        job->shards.fsdp_strategy = JOB_SHARD_GRAD_OP;
    else if (strcasestr(text, "no_shard") || !strcmp(text, "3"))
        job->shards.fsdp_strategy = JOB_NO_SHARD;
    job->shards.reshard_after_forward = job->shards.fsdp_strategy == JOB_FULL_SHARD;
    if (s->reshard)
        job->shards.reshard_after_forward = !strcasecmp(s->reshard, "true");
    if (strcasestr(text, "offload"))
        job->shards.offload_parameters = JOB_OFFLOAD_CPU;
}

static void read_adapter(struct training_job *job)
{
    const struct job_switches *s = &job->switches;
    struct job_adapter *a = &job->adapter;
    if (s->peft) {
        a->rank = s->lora_rank;
        a->alpha = s->lora_alpha;
        if (!a->targets)
            job_note(job, FACT_DEFAULT, "--lora_target_modules", a->targets = "q_proj,v_proj", "PEFT");
    }
    if (!s->peft)
        job_drop_defaults(job, "--lora");
    a->weight_bits = s->load_4bit ? 4 : s->load_8bit ? 8 : 0;
}

/* run_clm.py cuts texts into blocks of what the model can read, 1024 at most. */
static void read_sequence(struct training_job *job)
{
    if (job->batch.sequence || !job->model.max_seq_len)
        return;
    job->batch.sequence = job->model.max_seq_len < 1024 ? job->model.max_seq_len : 1024;
    job_note_count(job, FACT_DEFAULT, "--block_size", job->batch.sequence,
                   "run_clm.py and TRL: at most 1024");
}

static void read_precision(struct training_job *job)
{
    const struct job_switches *s = &job->switches;
    bool bf16_weights = s->dtype && (!strcmp(s->dtype, "bfloat16") || !strcmp(s->dtype, "torch.bfloat16"));
    if (s->deepspeed)
        return;
    job->precision = bf16_weights ? JOB_PURE_BF16
                     : s->bf16    ? JOB_AUTOCAST_BF16
                     : s->fp16    ? JOB_AUTOCAST_FP16
                                  : JOB_FP32;
    bool shards = job->shards.sharding == JOB_FSDP1 || job->shards.sharding == JOB_FSDP2;
    if (bf16_weights && shards && (s->bf16 || s->fp16) && !job->adapter.rank) {
        /* accelerate/utils/fsdp_utils.py, and Accelerator.prepare_model() for FSDP1 */
        job->precision = s->bf16 ? JOB_AUTOCAST_BF16 : JOB_AUTOCAST_FP16;
        job_note(job, FACT_DERIVED, "weights", "fp32",
                 "under FSDP, accelerate raises them when mixed precision is on");
    }
    if (s->dtype && !strcmp(s->dtype, "auto"))
        job->precision = !strcmp(job->model.counted_dtype, "BF16") ? JOB_PURE_BF16 : job->precision;
    job->gradients_fp32 = job->precision != JOB_PURE_BF16;
}

static int read_deepspeed(struct training_job *job, const struct job_files *files, struct error *err)
{
    struct job_switches *s = &job->switches;
    if (s->deepspeed_config)
        return deepspeed_read(job, s->deepspeed_config, files, err);
    if (!s->deepspeed)
        return 0;
    /* accelerate's own options for it */
    job->shards.sharding = s->zero_stage ? JOB_ZERO1 + s->zero_stage - 1 : JOB_REPLICATED;
    job->precision = s->bf16 ? JOB_BF16 : s->fp16 ? JOB_FP16 : JOB_FP32;
    job->gradients_fp32 = s->bf16;
    job->optimizer.offload = job->shards.offload_optimizer != JOB_OFFLOAD_NONE;
    return 0;
}

int hf_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
            struct error *err)
{
    job->framework = JOB_HF_TRAINER;
    if (read_arguments(job, launch, files, err) || setting_defaults(&table, job, err))
        return -1;
    if (read_model(job, files, err) || read_fsdp_config(job, files, err) || job_split_ranks(job, err) ||
        read_deepspeed(job, files, err))
        return -1;
    read_fsdp(job);
    read_adapter(job);
    read_sequence(job);
    read_precision(job);
    if (job->switches.gradient_checkpointing)
        job->recompute.granularity = JOB_RECOMPUTE_FULL;
    if (job->recompute.granularity == JOB_RECOMPUTE_FULL)
        job->recompute = (struct job_recompute_choice){.granularity = JOB_RECOMPUTE_FULL,
                                                       .method = JOB_METHOD_UNIFORM,
                                                       .layers = 1,
                                                       .partitioned = job->recompute.partitioned,
                                                       .on_cpu = job->recompute.on_cpu};
    job->optimizer.foreach = job->optimizer.name && !strncmp(job->optimizer.name, "adamw_torch", 11);
    job->optimizer.fused = job->optimizer.name && strstr(job->optimizer.name, "fused");
    deepspeed_complete(job);
    return 0;
}
