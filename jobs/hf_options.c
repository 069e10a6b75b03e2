/* Hugging Face: scripts that parse TrainingArguments (run_clm.py, TRL's sft.py). */
#include "jobs/hf.h"

#include "base/checked.h"
#include "jobs/accelerate_config.h"
#include "jobs/deepspeed_config.h"
#include "jobs/hf_programs.h"
#include "jobs/program_words.h"
#include "jobs/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct setting_rule rules[] = {
    /* transformers 4.57.6: examples/pytorch/language-modeling/run_clm.py; an absent type is fp32 (5.0 takes the file's) */
    TEXT("--model_name_or_path", switches.model_path, NULL),
    TEXT("--config_name", switches.config_name, NULL),
    TEXT("--model_revision", switches.revision, NULL),
    TEXT("--revision", switches.revision, NULL),
    TEXT("--cache_dir", switches.cache_folder, NULL),
    TEXT("--config_overrides", switches.config_overrides, NULL),
    TEXT("--model_type", switches.model_name, NULL),
    TEXT("--torch_dtype", switches.dtype, "float32"),
    TEXT("--dtype", switches.dtype, NULL),
    COUNT("--block_size", batch.sequence, NULL),
    COUNT("--max_seq_length", batch.sequence, NULL),
    COUNT("--model_max_length", batch.sequence, NULL), /* scripts that follow Stanford Alpaca's train.py */
    COUNT("--source_max_len", switches.source_length, NULL), /* artidoro/qlora's qlora.py */
    COUNT("--target_max_len", switches.target_length, NULL),
    COUNT("--bits", switches.bits, NULL), /* its, and LLaVA's */
    BOOL("--double_quant", adapter.double_quantized, NULL),
    LIST("--lora_modules", adapter.targets),
    BOOL("--use_lora", switches.peft, NULL),
    BOOL("--lora_enable", switches.peft, NULL), /* LLaVA */
    BOOL("--lora", switches.peft, NULL),
    BOOL("--use_qlora", switches.load_4bit, NULL),
    BOOL("--q_lora", switches.load_4bit, NULL), /* FastChat's train_lora.py */
    /* PEFT's examples/sft/train.py */
    COUNT("--max_seq_len", batch.sequence, NULL),
    BOOL("--use_peft_lora", switches.peft, NULL),
    BOOL("--use_4bit_quantization", switches.load_4bit, NULL),
    BOOL("--use_4bit_qunatization", switches.load_4bit, NULL), /* as it was spelled for a year */
    BOOL("--use_8bit_quantization", switches.load_8bit, NULL),
    BOOL("--use_8bit_qunatization", switches.load_8bit, NULL),
    BOOL("--use_nested_quant", adapter.double_quantized, NULL),
    TEXT("--bnb_4bit_quant_storage_dtype", switches.packed_in, NULL),
    BOOL("--use_flash_attn", switches.flash, NULL),
    BEYOND("--use_unsloth", "Unsloth's kernels", "false"),
    /* modeling_utils.py: scaled_dot_product_attention() where the model has it */
    CHOICE("--attn_implementation", kernels.attention,
           "default|eager|sdpa|flash_attention_2|flex_attention|flash_attention_3", "sdpa"),
    /* training_args.py */
    COUNT("--per_device_train_batch_size", batch.micro, "8"),
    COUNT("--per_gpu_train_batch_size", batch.micro, NULL),
    COUNT("--gradient_accumulation_steps", batch.accumulation, "1"),
    BOOL("--gradient_checkpointing", switches.gradient_checkpointing, NULL),
    BOOL("--bf16", switches.bf16, NULL),
    BOOL("--fp16", switches.fp16, NULL),
    TEXT("--optim", optimizer.name, "adamw_torch_fused"), /* adamw_torch before PyTorch 2.8 */
    BOOL("--adafactor", switches.adafactor, NULL),
    LIST("--fsdp", switches.fsdp),
    TEXT("--fsdp_config", switches.fsdp_config, NULL),
    TEXT("--fsdp_transformer_layer_cls_to_wrap", shards.wrap, NULL),
    COUNT("--fsdp_min_num_params", shards.unit_parameters, NULL),
    TEXT("--deepspeed", switches.deepspeed_config, NULL),
    BOOL("--torch_compile", kernels.compile, "false"),
    TEXT("--torch_compile_backend", switches.compile_choice, NULL),
    TEXT("--torch_compile_mode", switches.compile_choice, NULL),
    TEXT("--torchdynamo", switches.compile_choice, NULL),
    BOOL("--use_liger_kernel", kernels.liger, "false"),
    BOOL("--use_liger", kernels.liger, NULL),
    BEYOND("--liger_kernel_config", "a choice among Liger's kernels", ""),
    BEYOND("--optim_target_modules", "an optimizer of chosen modules", ""),
    BEYOND("--parallelism_config", "accelerate's parallelism_config", ""),
    BEYOND("--mp_parameters", "SageMaker's model parallelism", ""),
    /* TRL 0.23.0: trainer/sft_config.py, trainer/model_config.py. read_trl_defaults() has the others. */
    COUNT("--max_length", batch.sequence, NULL),
    BOOL("--activation_offloading", recompute.on_cpu, NULL),
    BEYOND("--model_init_kwargs", "arguments of from_pretrained()", ""),
    BEYOND("--loss_type", "another loss", "nll"),
    BOOL("--use_peft", switches.peft, NULL),
    COUNT("--lora_r", switches.lora_rank, "16"),
    COUNT("--lora_rank", switches.lora_rank, NULL),
    COUNT("--lora_dim", switches.lora_rank, NULL),
    COUNT("--lora_alpha", switches.lora_alpha, "32"),
    REAL("--lora_dropout", adapter.dropout, NULL),
    LIST("--lora_target_modules", adapter.targets),
    BEYOND("--lora_target_parameters", "adapters of parameters that belong to no linear layer", ""),
    BEYOND("--lora_modules_to_save", "modules trained whole beside adapters", ""),
    BEYOND("--use_dora", "DoRA", "false"),
    BEYOND("--accelerate_config", "a configuration that TRL has inside (give it with accelerate launch)",
           "single_gpu"),
    BOOL("--load_in_4bit", switches.load_4bit, NULL),
    BOOL("--load_in_8bit", switches.load_8bit, NULL),
    BOOL("--use_bnb_nested_quant", adapter.double_quantized, NULL),
    {0},
};

static const char irrelevant[] =
    "--accelerator_config --adam_* --add_special_tokens --append_concat_token --assistant_only_loss "
    "--auto_find_batch_size "
    "--average_tokens_across_devices --batch_eval_metrics --bf16_full_eval --bnb_4bit_* "
    "--chat_template_* --completion_only_loss --data_path --data_seed --dataloader_* --dataset_* "
    "--ddp_backend --ddp_broadcast_buffers --ddp_bucket_cap_mb --ddp_find_unused_parameters --ddp_timeout "
    "--debug --disable_tqdm --do_eval --do_predict --do_train --eos_token --eval_* --evaluation_strategy "
    "--fp16_backend --fp16_full_eval --fp16_opt_level --full_determinism --gradient_checkpointing_kwargs "
    "--gradient_checkpointing_use_reentrant --greater_is_better --group_by_length --half_precision_backend "
    "--hub_* --ignore_bias_buffers --ignore_data_skip --include_* --jit_mode_eval --keep_linebreaks "
    "--label_* "
    "--lazy_preprocess --learning_rate --length_column_name --line_by_line --load_best_model_at_end "
    "--local_rank --log_* --logging_* --lora_task_type --low_cpu_mem_usage --lr_scheduler_* "
    "--max_eval_samples --max_grad_norm --max_predict_samples --max_steps --max_train_samples "
    "--metric_for_best_model --mlm_probability --neftune_noise_alpha --no_cuda "
    "--num_train_epochs --optim_args --output_dir --overwrite_cache --overwrite_output_dir --packing "
    "--packing_strategy --pad_to_max_length --pad_to_multiple_of --pad_token --padding_free --past_index "
    "--per_device_eval_batch_size --per_gpu_eval_batch_size --prediction_loss_only "
    "--preprocessing_num_workers --project --push_to_hub* --ray_scope --remove_unused_columns --report_to "
    "--restore_callback_states_from_checkpoint --resume_from_checkpoint --router_aux_loss_coef --run_name "
    "--save_* --seed --shuffle_dataset --skip_memory_metrics --streaming --tf32 --token --tokenizer_name "
    "--torch_empty_cache_steps --tpu_* --trackio_* --train_file --truncation_mode --trust_remote_code "
    "--quant_type --splits --use_auth --use_auth_token --use_cpu --use_fast_tokenizer "
    "--use_legacy_prediction_loop --use_mps_device "
    "--use_reentrant --use_rslora --validation_file --validation_split_percentage --warmup_* --weight_decay";

static const struct setting_table trainer = {rules, irrelevant, HF_VERSION, true};

static bool has_default(const struct setting_rule *rule, size_t offset)
{
    for (; rule->name; rule++)
        if (rule->offset == offset && rule->fallback && rule->kind != SETTING_BEYOND)
            return true;
    return false;
}

struct setting_table hf_options_with(const struct setting_table *own, struct arena *arena)
{
    int first = 0, others = sizeof rules / sizeof rules[0];
    while (own->rules[first].name)
        first++;
    struct setting_rule *all = arena_array(arena, (size_t)(first + others), sizeof *all);
    memcpy(all, own->rules, (size_t)first * sizeof *all);
    memcpy(all + first, rules, (size_t)others * sizeof *all);
    for (struct setting_rule *rule = all + first; rule->name; rule++)
        if (rule->kind != SETTING_BEYOND && has_default(own->rules, rule->offset))
            rule->fallback = NULL;
    return (struct setting_table){all, arena_printf(arena, "%s %s", own->irrelevant, irrelevant),
                                  own->framework, true};
}

/* Takes the keys of FSDP's configuration out: those below fsdp_config, and one of them that a change which is tried says anew,
 * of which the last part alone is there. Keys without a value say nothing. */
static struct pairs take_fsdp(struct training_job *job, struct pairs *pairs)
{
    static const char group[] = "fsdp_config.";
    struct pairs taken = {.file = pairs->file};
    size_t length = sizeof group - 1;
    int kept = 0;
    for (int i = 0; i < pairs->count; i++) {
        const struct pair *p = &pairs->list[i];
        bool below = !strncmp(p->key, group, length);
        const char *key = below ? p->key + length : p->key;
        if (!*p->value)
            continue;
        if (below || (!p->line && pairs_find(&taken, key)))
            pairs_add(&taken, job->facts.arena, key, p->value, p->line);
        else
            pairs->list[kept++] = *p;
        if (below)
            job->shards.key_prefix = strncmp(key, "fsdp_", 5) ? "" : "fsdp_";
    }
    pairs->count = kept;
    return taken;
}

/* The keys of an object, or of YAML, are options. */
static int read_options_file(struct training_job *job, const struct setting_table *table,
                             const struct word *file, const struct job_files *files, struct error *err)
{
    struct pairs pairs = {.file = file->text};
    json_t *object = NULL;
    bool json = hf_is_json(pairs.file);
    int status =
        json ? job_file_json(job, files, pairs.file, &object, err) : job_file_yaml(job, files, &pairs, err);
    if (status > 0)
        return error_set(err, "%s: there is no such file of options; correct the path", pairs.file);
    if (status)
        return -1;
    if (json)
        pairs_from_json(&pairs, job->facts.arena, object);
    json_decref(object);
    struct pairs fsdp = take_fsdp(job, &pairs);
    for (int i = 0; i < pairs.count; i++)
        pairs.list[i].key = arena_printf(job->facts.arena, "--%s", pairs.list[i].key);
    return setting_read_pairs(table, job, &pairs, err) || accelerate_read_fsdp(job, &fsdp, err) ? -1 : 0;
}

/* run_clm.py args.json, run_sft.py args.yaml --bf16, sft.py --config args.yaml --bf16: what stands on the line comes before the
 * file, so it is read behind it. */
int hf_read_options(struct training_job *job, const struct setting_table *table,
                    const struct words *arguments, const struct job_files *files, struct error *err)
{
    struct words rest = *arguments;
    int at = hf_options_file(&rest);
    if (at < 0)
        return setting_read_words(table, job, &rest, NULL, err);
    if (read_options_file(job, table, &rest.list[at], files, err))
        return -1;
    struct words before = {rest.list, at ? at - 1 : 0}; /* without --config itself */
    rest = (struct words){rest.list + at + 1, rest.count - at - 1};
    return setting_read_words(table, job, &before, NULL, err) ||
                   setting_read_words(table, job, &rest, NULL, err)
               ? -1
               : 0;
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

/* AutoModelForSequenceClassification: BERT's pooler, or RoBERTa's dense layer, and a row for each class. */
static void set_classes(struct training_job *job)
{
    struct job_model *m = &job->model;
    m->classes = 2; /* configuration_utils.py: num_labels; three of MNLI make no difference */
    m->pooler = m->kind == JOB_ENCODER;
    m->head_transform = m->head_bias = false;
    job_note_count(job, FACT_DEFAULT, "classes", m->classes,
                   "a classifier of sequences, by the program's name");
}

static int read_model(struct training_job *job, const struct setting_table *table,
                      const struct job_files *files, struct error *err)
{
    const struct job_switches *s = &job->switches;
    const char *path = setting_name(table, job, offsetof(struct training_job, switches.model_path));
    const char *config = setting_name(table, job, offsetof(struct training_job, switches.config_name));
    const char *option = files->model ? "--model" : s->config_name ? config : path;
    const char *source = files->model ? files->model : s->config_name ? s->config_name : s->model_path;
    if (!source && s->model_name && !strcmp(s->model_name, "gpt2"))
        source = "gpt2-124m", option = "--model_type gpt2";
    if (!source) {
        if (!job_was_given(job, path))
            job_note(job, FACT_MISSING, path, "?", "nothing says it; give --model FOLDER");
        return 0;
    }
    const char *why;
    int status = job_read_model(job, files, source, option, &why, err);
    if (status > 0)
        job_note(job, FACT_MISSING, option, source, why);
    if (status)
        return status < 0 ? -1 : 0;
    if (s->model_name && !strcmp(s->model_name, "gpt2"))
        job->model.hidden_dropout = job->model.attention_dropout = 0.1;
    if (hf_program_kind(job->launch.program, NULL) == HF_CLASSIFIES)
        set_classes(job);
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
    return accelerate_read_fsdp(job, &pairs, err);
}

/* "full_shard auto_wrap", or accelerate's numbers, from 1 in the order of enum job_fsdp_strategy. */
static int strategy_of(const char *text)
{
    static const char *const names[] = {"", "shard_grad_op", "no_shard", "hybrid_shard",
                                        "hybrid_shard_zero2"};
    if (text[0] >= '1' && text[0] <= '5' && !text[1])
        return text[0] - '1';
    for (int strategy = JOB_HYBRID_SHARD_ZERO2; strategy > JOB_FULL_SHARD; strategy--)
        if (strcasestr(text, names[strategy]))
            return strategy;
    return JOB_FULL_SHARD;
}

/* What is one unit: nothing wraps layers unless a policy says so (accelerate/utils/dataclasses.py: NO_WRAP). */
static bool wraps_layers(const struct training_job *job, const char *options)
{
    const char *policy = job->switches.wrap_policy;
    if (strcasestr(options, "auto_wrap"))
        return true;
    if (policy && strcasestr(policy, "SIZE_BASED"))
        return job->shards.unit_parameters > 0 || !job_was_given(job, "fsdp_min_num_params");
    return policy && !strcasestr(policy, "NO_WRAP");
}

/* "full_shard auto_wrap offload", "FULL_SHARD", "1". Of FSDP2 only reshard_after_forward says whether weights stay. */
static void read_fsdp(struct training_job *job)
{
    struct job_switches *s = &job->switches;
    struct job_shards *shards = &job->shards;
    const char *text = s->fsdp ? s->fsdp : "";
    if ((!s->use_fsdp && !*text) || !strcasecmp(text, "false"))
        return;
    bool second = s->fsdp_version && !strcmp(s->fsdp_version, "2");
    shards->sharding = second ? JOB_FSDP2 : JOB_FSDP1;
    shards->fsdp_strategy = second ? JOB_FULL_SHARD : strategy_of(*text || !s->reshard ? text : s->reshard);
    shards->reshard_after_forward =
        second ? !s->reshard || strcasecmp(s->reshard, "false")
               : shards->fsdp_strategy == JOB_FULL_SHARD || shards->fsdp_strategy == JOB_HYBRID_SHARD;
    shards->whole_model = !wraps_layers(job, text);
    if (strcasestr(text, "offload"))
        shards->offload_parameters = JOB_OFFLOAD_CPU;
    bool hybrid =
        shards->fsdp_strategy == JOB_HYBRID_SHARD || shards->fsdp_strategy == JOB_HYBRID_SHARD_ZERO2;
    if (hybrid && job->launch.nodes > 1 && job->layout.dp % job->launch.nodes == 0) {
        job->layout.dp_replicate = job->launch.nodes;
        job->layout.dp_shard = job->layout.dp / job->launch.nodes;
    }
    /* trainer.py runs all micro-batches but the last under accelerator.no_sync(). */
    shards->syncs_late = job->batch.accumulation > 1;
    if (!s->bf16 && !s->fp16)
        return;
    shards->reduce_precision = s->bf16 ? "bf16" : "fp16"; /* accelerate's set_mixed_precision() */
}

static bool is_trl(const struct training_job *job)
{
    return hf_program_kind(job->launch.program, NULL) == HF_TRL;
}

/* Of PEFT 0.21.2, peft/utils/constants.py; NULL: PEFT refuses a model of that type without targets. */
static const char *default_targets(const char *type)
{
    static const struct {
        const char *type, *targets;
    } known[] = {
        {"gpt2", "c_attn"},           {"gpt_neox", "query_key_value"}, {"bert", "query,value"},
        {"roberta", "query,value"},   {"xlm-roberta", "query,value"},  {"llama", "q_proj,v_proj"},
        {"mistral", "q_proj,v_proj"}, {"mixtral", "q_proj,v_proj"},    {"qwen2", "q_proj,v_proj"},
        {"qwen3", "q_proj,v_proj"},   {"opt", "q_proj,v_proj"},        {"gptj", "q_proj,v_proj"},
        {"gemma", "q_proj,v_proj"},   {"gemma2", "q_proj,v_proj"},     {"gemma3_text", "q_proj,v_proj"},
        {"bloom", "query_key_value"}, {"falcon", "query_key_value"},   {"phi", "q_proj,v_proj,fc1,fc2"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].type, type))
            return known[i].targets;
    return NULL;
}

static int weight_bits(const struct job_switches *s)
{
    return s->load_4bit || s->bits == 4 ? 4 : s->load_8bit || s->bits == 8 ? 8 : 0;
}

static bool is_peft_example(const struct training_job *job)
{
    return job_was_given(job, "--use_peft_lora");
}

/* TRL's model_config.py; PEFT's examples/sft/train.py, which has other ones. Elsewhere there is no dropout. */
static void read_adapter_defaults(struct training_job *job)
{
    static const char example[] = "PEFT's examples/sft/train.py";
    struct job_adapter *a = &job->adapter;
    bool peft = is_peft_example(job);
    if ((peft || is_trl(job)) && !job_was_given(job, "--lora_dropout")) {
        a->dropout = peft ? 0.1 : 0.05;
        job_note(job, FACT_DEFAULT, "--lora_dropout", peft ? "0.1" : "0.05", peft ? example : "TRL 0.23");
    }
    if (peft && !job_was_given(job, "--lora_r")) {
        a->rank = 64;
        job_note(job, FACT_DEFAULT, "--lora_r", "64", example);
    }
    if (peft && !a->targets && !job_was_given(job, "--lora_target_modules")) {
        a->targets = "q_proj,k_proj,v_proj,o_proj,down_proj,up_proj,gate_proj";
        job_note(job, FACT_DEFAULT, "--lora_target_modules", a->targets, example);
    }
}

static void read_adapter(struct training_job *job)
{
    const struct job_switches *s = &job->switches;
    struct job_adapter *a = &job->adapter;
    if (s->peft) {
        a->rank = s->lora_rank;
        a->alpha = s->lora_alpha;
        read_adapter_defaults(job);
        bool given = a->targets || job_was_given(job, "--lora_target_modules") || !job->model_known;
        if (!given && (a->targets = default_targets(job->model.type)))
            job_note(job, FACT_DEFAULT, "--lora_target_modules", a->targets, "PEFT 0.21");
        else if (!given)
            job_note(job, FACT_MISSING, "--lora_target_modules", "?",
                     "PEFT has no default for this model; give --with='--lora_target_modules q_proj v_proj'");
    }
    if (!s->peft)
        job_drop_defaults(job, "--lora");
    a->weight_bits = weight_bits(s);
}

/* TRL cuts texts at 1024 tokens. run_clm.py and run_mlm.py cut them into blocks as long as the tokenizer allows; where that is
 * more than the model has positions, as long as these, 1024 at most. */
static void read_sequence(struct training_job *job)
{
    int64_t positions = job->model.max_seq_len - job->model.unused_positions, limit = job->tokenizer_limit;
    if (limit && job->batch.sequence > limit && job_was_given(job, "--block_size")) {
        job->batch.sequence = limit;
        job_note_count(job, FACT_DERIVED, "sequence", limit, "run_clm.py: no more than the tokenizer allows");
    }
    const struct job_switches *s = &job->switches;
    if (!job->batch.sequence && s->source_length && s->target_length &&
        checked_add(s->source_length, s->target_length, &job->batch.sequence)) {
        job_note_count(job, FACT_DERIVED, "sequence", job->batch.sequence,
                       "--source_max_len and --target_max_len");
    }
    if (!job->batch.sequence && job->model.classes) {
        job->batch.sequence = 128;
        job_note(job, FACT_DEFAULT, "--max_seq_length", "128", "run_glue.py of transformers 4.57");
    }
    if (job->batch.sequence || positions <= 0)
        return;
    bool whole = limit && limit <= positions && !is_trl(job);
    bool guessed = !job->tokenizer_known && positions > 1024 && !is_trl(job);
    job->batch.sequence = whole ? limit : positions < 1024 ? positions : 1024;
    job_note_count(job, FACT_DEFAULT, "--block_size", job->batch.sequence,
                   whole ? "model_max_length of the tokenizer"
                   : guessed
                       ? "run_clm.py: at most 1024, unless the tokenizer, which is not here, allows more"
                       : "run_clm.py and TRL: at most 1024");
}

/* Whether TRL's SFTTrainer, which PEFT's example is written around, calls prepare_model_for_kbit_training(), as qlora.py and
 * FastChat's train_lora.py do: not where 4-bit weights are split, and so not on the card yet (trl/models/utils.py,
 * prepare_peft_model()). */
static bool is_prepared(const struct training_job *job)
{
    bool split = job->shards.sharding != JOB_REPLICATED && job->adapter.weight_bits == 4;
    bool prepares = is_trl(job) || is_peft_example(job) || hf_program_adapts(job->launch.program);
    return job->adapter.weight_bits && !split && prepares;
}

/* Autocast goes on around frozen weights of any type: of those in 16 bits nothing is cast but what adapters do. */
static void read_adapter_types(struct training_job *job, bool half_weights)
{
    const struct job_switches *s = &job->switches;
    struct job_adapter *a = &job->adapter;
    if (!a->rank || (!s->bf16 && !s->fp16) || job->shards.sharding != JOB_REPLICATED)
        return;
    a->prepared = is_prepared(job);
    if (a->prepared)
        job->precision = s->bf16 ? JOB_AUTOCAST_BF16 : JOB_AUTOCAST_FP16;
    a->cast = half_weights && !a->prepared;
}

static void read_precision(struct training_job *job)
{
    const struct job_switches *s = &job->switches;
    /* What 4-bit weights are packed in is the type of all others, if it is one of numbers (PEFT's examples/sft/utils.py). */
    bool packed = s->load_4bit && is_peft_example(job) && job_says(s->packed_in, "float");
    const char *dtype = packed                                 ? s->packed_in
                        : s->dtype && strcmp(s->dtype, "auto") ? s->dtype
                                                               : job->model.dtype;
    bool half_weights = strstr(dtype, "float16") != NULL;
    if (s->deepspeed)
        return;
    job->precision = half_weights ? JOB_PURE_BF16
                     : s->bf16    ? JOB_AUTOCAST_BF16
                     : s->fp16    ? JOB_AUTOCAST_FP16
                                  : JOB_FP32;
    bool raises =
        job->shards.sharding == JOB_FSDP1 || (job->shards.sharding == JOB_FSDP2 && !s->fsdp2_raises_nothing);
    if (half_weights && raises && (s->bf16 || s->fp16) && !job->adapter.rank) {
        /* accelerate/utils/fsdp_utils.py, and Accelerator.prepare_model() for FSDP1 */
        job->precision = s->bf16 ? JOB_AUTOCAST_BF16 : JOB_AUTOCAST_FP16;
        job_note(job, FACT_DERIVED, "weights", "fp32",
                 "under FSDP, accelerate raises them when mixed precision is on");
    }
    read_adapter_types(job, half_weights);
    job->gradients_fp32 = job->precision != JOB_PURE_BF16;
}

static int read_deepspeed(struct training_job *job, const struct job_files *files, struct error *err)
{
    struct job_switches *s = &job->switches;
    struct job_recompute_choice recompute = job->recompute;
    if (s->deepspeed_config) {
        int status = deepspeed_read(job, s->deepspeed_config, files, err);
        job->recompute = recompute; /* its models do not call deepspeed.checkpointing */
        return status;
    }
    if (!s->deepspeed)
        return 0;
    /* accelerate's own options for it */
    job->precision = s->bf16 ? JOB_BF16 : s->fp16 ? JOB_FP16 : JOB_FP32;
    deepspeed_gradients(job);
    job->optimizer.offload = job->shards.offload_optimizer != JOB_OFFLOAD_NONE;
    return 0;
}

/* Recomputation, torch.compile and the optimizer. */
static void read_step(struct training_job *job)
{
    const struct job_switches *s = &job->switches;
    struct job_recompute_choice *r = &job->recompute;
    const char *compiles = s->compile_choice;
    if (s->gradient_checkpointing)
        *r = (struct job_recompute_choice){.granularity = JOB_RECOMPUTE_FULL,
                                           .method = JOB_METHOD_UNIFORM,
                                           .layers = 1,
                                           .on_cpu = r->on_cpu};
    else if (r->on_cpu)
        job->beyond = "activations that wait in host memory (--activation_offloading)";
    /* training_args.py: a back end or a mode asks for it */
    job->kernels.compile = job->kernels.compile || (compiles && strcasecmp(compiles, "no"));
    if (s->adafactor)
        job->optimizer.name = "adafactor";
    if (s->flash)
        job->kernels.attention = JOB_FLASH;
}

/* What TRL's own classes of options have instead: trainer/sft_config.py. */
static void read_trl_defaults(struct training_job *job)
{
    struct job_switches *s = &job->switches;
    if (!is_trl(job))
        return;
    if (!job_was_given(job, "--gradient_checkpointing") && !s->gradient_checkpointing) {
        s->gradient_checkpointing = true;
        job_note(job, FACT_DEFAULT, "--gradient_checkpointing", "true", "TRL 0.23");
    }
    if (!job_was_given(job, "--bf16") && !s->bf16 && !s->fp16) {
        s->bf16 = true;
        job_note(job, FACT_DEFAULT, "--bf16", "true", "TRL 0.23: unless --fp16");
    }
}

int hf_complete(struct training_job *job, const struct setting_table *table, const struct job_files *files,
                struct error *err)
{
    if (read_model(job, table, files, err) || read_fsdp_config(job, files, err) || job_split_ranks(job, err))
        return -1;
    program_refuse_unknown(job);
    read_trl_defaults(job);
    if (read_deepspeed(job, files, err))
        return -1;
    read_fsdp(job);
    read_adapter(job);
    read_sequence(job);
    read_precision(job);
    read_step(job);
    return deepspeed_complete(job, err);
}

/* ---- programs ---- */

static void beyond(struct training_job *job, const char *feature)
{
    job->beyond = job->beyond ? job->beyond : feature;
}

/* Adapters that are asked for in a program that is not known. TRL's programs leave --lora_r alone without --use_peft. */
static void read_program_adapters(struct training_job *job, enum hf_program kind)
{
    static const char *const ranks[] = {"--lora_r", "--lora_rank", "--lora_dim"};
    struct job_switches *s = &job->switches;
    const char *program = job->launch.program;
    bool said = job_was_given(job, "--use_peft") || job_was_given(job, "--use_lora") ||
                job_was_given(job, "--lora_enable") || job_was_given(job, "--use_peft_lora");
    if (!said && hf_program_adapts(program)) {
        s->peft = true;
        job_note(job, FACT_DERIVED, "adapters", "of PEFT", "the program's name says so");
    }
    if (s->peft && job->adapter.targets && !strcmp(job->adapter.targets, "all"))
        job->adapter.targets = "all-linear";
    for (int i = 0; i < 3 && !said && !s->peft && kind != HF_TRL; i++)
        if (job_was_given(job, ranks[i]) && s->lora_rank)
            beyond(job,
                   arena_printf(
                       job->facts.arena,
                       "adapters (%s) of a program that is not known, %.60s (with --with=--use_peft they are "
                       "taken for PEFT's)",
                       ranks[i], program));
    if (!s->peft && weight_bits(s))
        beyond(job,
               arena_printf(job->facts.arena,
                            "weights of %d bits that are trained themselves, which the Trainer refuses (with "
                            "--with=--use_peft adapters are)",
                            weight_bits(s)));
}

static void read_program(struct training_job *job)
{
    struct arena *arena = job->facts.arena;
    const char *program = job->launch.program, *what = NULL;
    enum hf_program kind = hf_program_kind(program, &what);
    if (kind == HF_OTHER)
        beyond(job, arena_printf(arena, "%s (%.60s)", what, program));
    if (kind == HF_UNKNOWN && !is_peft_example(job))
        job->launch.taken_for = "run_clm.py";
    read_program_adapters(job, kind);
}

/* TrainingArguments.n_gpu of one process that sees several: Trainer wraps the model in nn.DataParallel. */
static void note_data_parallel(struct training_job *job, const struct job_files *files)
{
    int64_t devices = job->launch.launchers ? 0 : job_environment_devices(job, files);
    if (devices > 1 && !job->beyond)
        job->beyond =
            arena_printf(job->facts.arena, "nn.DataParallel over the %lld GPUs of CUDA_VISIBLE_DEVICES",
                         (long long)devices);
}

int hf_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
            struct error *err)
{
    if (hf_read_options(job, &trainer, &launch->arguments, files, err) ||
        setting_defaults(&trainer, job, err))
        return -1;
    read_program(job);
    note_data_parallel(job, files);
    return hf_complete(job, &trainer, files, err);
}
