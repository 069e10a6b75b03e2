/* Axolotl's keys, in its YAML or as options on the line: what each fills, its default in 0.18, and what they mean together. */
#include "jobs/axolotl.h"

#include "jobs/hf.h"

#include <string.h>

/* src/axolotl/utils/schemas/: config.py, model.py, training.py, peft.py, fsdp.py; integrations/<plugin>/args.py */
static const struct setting_rule rules[] = {
    TEXT("--base_model", switches.model_path, NULL),
    TEXT("--base_model_config", switches.config_name, NULL),
    TEXT("--revision_of_model", switches.revision, NULL),
    COUNT("--sequence_len", batch.sequence, "512"),
    COUNT("--micro_batch_size", batch.micro, "1"),
    COUNT("--gradient_accumulation_steps", batch.accumulation, "1"),
    TEXT("--bf16", own[AXOLOTL_BF16], "auto"),
    BOOL("--bfloat16", own_switch[AXOLOTL_BFLOAT16], NULL),
    BOOL("--fp16", switches.fp16, NULL),
    BOOL("--float16", switches.fp16, NULL),
    TEXT("--optimizer", optimizer.name, "adamw_torch_fused"),
    TEXT("--gradient_checkpointing", own[AXOLOTL_CHECKPOINTING], "false"),
    TEXT("--activation_offloading", own[AXOLOTL_OFFLOADING], "false"),
    TEXT("--torch_compile", own[AXOLOTL_COMPILE], "false"),
    TEXT("--attn_implementation", own[AXOLOTL_ATTENTION], NULL),
    BOOL("--flash_attention", own_switch[AXOLOTL_FLASH], NULL),
    BOOL("--flex_attention", own_switch[AXOLOTL_FLEX], NULL),
    BOOL("--sdp_attention", own_switch[AXOLOTL_SDP], NULL),
    BOOL("--eager_attention", own_switch[AXOLOTL_EAGER], NULL),
    TEXT("--deepspeed", switches.deepspeed_config, NULL),
    LIST("--fsdp", switches.fsdp),
    TEXT("--fsdp_version", switches.fsdp_version, NULL),
    COUNT("--dp_replicate_size", layout.dp_replicate, NULL),
    COUNT("--dp_shard_size", layout.dp_shard, NULL),
    TEXT("--adapter", own[AXOLOTL_ADAPTER], NULL),
    BOOL("--load_in_4bit", switches.load_4bit, NULL),
    BOOL("--load_in_8bit", switches.load_8bit, NULL),
    COUNT("--lora_r", switches.lora_rank, NULL),
    COUNT("--lora_alpha", switches.lora_alpha, NULL),
    REAL("--lora_dropout", adapter.dropout, NULL),
    LIST("--lora_target_modules", adapter.targets),
    BOOL("--lora_target_linear", own_switch[AXOLOTL_ALL_LINEAR], NULL),
    BOOL("--lora_mlp_kernel", own_switch[AXOLOTL_MLP_KERNEL], NULL),
    BOOL("--lora_qkv_kernel", own_switch[AXOLOTL_QKV_KERNEL], NULL),
    BOOL("--lora_o_kernel", own_switch[AXOLOTL_O_KERNEL], NULL),
    LIST("--plugins", own[AXOLOTL_PLUGINS]),
    BOOL("--liger_rms_norm", kernels.fused_norm, NULL),
    BOOL("--liger_glu_activation", kernels.fused_gate, NULL),
    BOOL("--liger_swiglu", kernels.fused_gate, NULL),
    BOOL("--liger_fused_linear_cross_entropy", kernels.fused_head, NULL),
    BEYOND("--liger_cross_entropy", "Liger's cross-entropy without the head", "false"),
    BOOL("--cut_cross_entropy", kernels.cut_loss, NULL),
    BOOL("--trust_remote_code", own_switch[AXOLOTL_REMOTE_CODE], NULL),
    BEYOND("--xformers_attention", "xFormers' attention", "false"),
    BEYOND("--sage_attention", "SageAttention", "false"),
    BEYOND("--s2_attention", "shifted attention", "false"),
    BEYOND("--flash_attn_cross_entropy", "flash_attn's cross-entropy", "false"),
    BEYOND("--flash_attn_fuse_mlp", "flash_attn's feed-forward", "false"),
    BEYOND("--flash_optimum", "BetterTransformer", "false"),
    BEYOND("--sweep", "a sweep of several jobs", ""),
    BEYOND("--chunked_cross_entropy", "a loss in chunks", "false"),
    BEYOND("--tiled_mlp", "feed-forwards in tiles", "false"),
    BEYOND("--layer_offloading", "layers that wait in host memory", "false"),
    BEYOND("--selective_checkpointing", "selective recomputation", "false"),
    BEYOND("--selective_checkpointing.*", "selective recomputation", "false"),
    BEYOND("--tensor_parallel_size", "tensor parallelism through accelerate", "1"),
    BEYOND("--context_parallel_size", "context parallelism through accelerate", "1"),
    BEYOND("--sequence_parallel_degree", "context parallelism through accelerate", "1"),
    BEYOND("--expert_parallel_size", "expert parallelism", "1"),
    BEYOND("--quantize_moe_experts", "experts in 4 or 8 bits", "false"),
    BEYOND("--experts_implementation", "another kernel for experts", "eager"),
    BEYOND("--model_quantization_config", "weights in fp8 or MXFP4", ""),
    BEYOND("--gptq", "GPTQ's weights", "false"),
    BEYOND("--use_onebitllms", "weights of one bit", "false"),
    BEYOND("--qat.*", "training for quantization", ""),
    BEYOND("--ebft.*", "training on features of answers", ""),
    BEYOND("--model_config.*", "another configuration of the model than its folder has", ""),
    BEYOND("--overrides_of_model_config.*", "another configuration of the model than its folder has", ""),
    BEYOND("--processor_type", "images or sound beside text", ""),
    BEYOND("--llama4_linearized_experts", "another kernel for experts", "false"),
    BEYOND("--use_scattermoe", "another kernel for experts", "false"),
    BEYOND("--use_sonicmoe", "another kernel for experts", "false"),
    BEYOND("--fp8", "fp8 through accelerate", "false"),
    BEYOND("--fp32_norms", "norms in fp32", "false"),
    BEYOND("--rl", "training that compares or rewards answers", ""),
    BEYOND("--reward_model", "training of a model that rewards", "false"),
    BEYOND("--process_reward_model", "training of a model that rewards", "false"),
    BEYOND("--relora", "ReLoRA", "false"),
    BEYOND("--peft_use_dora", "DoRA", "false"),
    BEYOND("--peft_layer_replication", "layers that are replicated", ""),
    BEYOND("--peft_layers_to_transform", "adapters of chosen layers", ""),
    BEYOND("--peft_trainable_token_indices", "tokens that are trained beside adapters", ""),
    BEYOND("--lora_modules_to_save", "modules trained whole beside adapters", ""),
    BEYOND("--lora_target_parameters", "adapters of parameters that belong to no linear layer", ""),
    BEYOND("--lora_rank_pattern.*", "adapters of several ranks", ""),
    BEYOND("--unfrozen_parameters", "some parameters trained, others frozen", ""),
    BEYOND("--lisa_n_layers", "LISA", "0"),
    BEYOND("--optim_target_modules", "an optimizer of chosen modules", ""),
    {0},
};

static const char irrelevant[] =
    "--accelerator_config --adam_* --added_tokens_overrides --auto_find_batch_size "
    "--auto_resume_from_checkpoints --axolotl_config_path --batch_flattening --batch_size --bench_* "
    "--bnb_config_kwargs* "
    "--chat_template* --chunked_cross_entropy_num_chunks --cloud --comet_* --cosine_* --curriculum_sampling "
    "--dataloader_* --dataset* --ddp* --debug* --default_system_message --device* --dion_* --do_* --dpo_* "
    "--eaft_* --early_stopping_patience --embedding_lr* --embeddings_skip_upcast --eot_tokens --eta_min "
    "--eval_* "
    "--evals_per_epoch --excess_length_strategy --experimental_skip_move_to_device --fix_untrained_tokens "
    "--flex_attn_compile_kwargs* --freeze_mm_modules --fsdp_final_state_dict_type --gc_* --generat* "
    "--gradient_checkpointing_kwargs* --gradio_* --greater_is_better --group_by_length --heads_k_stride "
    "--hf_* --hub_* --include_* --is_* --jagged_* --kto_* --learning_rate "
    "--liger_layer_norm --liger_rope "
    "--liger_use_token_scaling --lisa_* --load_best_model_at_end --local_rank --logging_steps "
    "--lora_alpha_pattern* --lora_embedding_kernel --lora_fan_in_fan_out --lora_model_dir --lora_on_cpu "
    "--loraplus_* --loss_watchdog_* --low_cpu_mem_usage --lr_* --main_process_port --max_grad_norm "
    "--max_prompt_len --max_steps --mean_resizing_embeddings --merge_* --metric_for_best_model "
    "--min_sample_len --mlflow_* --model_type --multipack_real_batches --neftune_noise_alpha "
    "--noisy_embedding_alpha --num_dataset_shards_to_save --num_epochs --num_generation_samples "
    "--optim_args* --orpo_alpha --otel_* --output_dir --overrides_of_model_kwargs* --pad_to_* "
    "--peft_autocast_adapter_dtype --peft_ensure_weight_tying --peft_init_lora_weights --peft_use_rslora "
    "--precompute_ref_log_probs --preprocess_iterable --pretrain_* --pretraining_* --profiler_* "
    "--push_dataset_to_hub --qlora_sharded_model_loading --ray_* --remove_unused_columns "
    "--resize_token_embeddings_to_32x --resources_per_worker* --resume_from_checkpoint --ring_attn_func "
    "--sample_packing* --save_* --saves_per_epoch --sdpa_varlen --seed --shrink_embeddings --shuffle_* "
    "--skip_prepare_dataset --special_tokens* --streaming* --strict --swanlab_* --test_datasets* --tf32 "
    "--tiled_mlp_* --trl.* --tokenizer_* --tokens* --torch_compile_* --torch_empty_cache_steps "
    "--torchdistx_path "
    "--total_num_tokens --trackio_* --train_on_inputs --type_of_model --use_comet --use_mlflow "
    "--use_otel_metrics --use_ray --use_swanlab --use_tensorboard --use_trackio --use_wandb --val_set_size "
    "--wandb_* "
    "--warmup_* --weight_decay --world_size";

static const struct setting_table table = {rules, irrelevant, AXOLOTL_VERSION, true};

static bool says_yes(const char *text)
{
    static const char *const no[] = {"", "false", "no", "off", "0", "none"};
    for (size_t i = 0; text && i < sizeof no / sizeof no[0]; i++)
        if (!strcasecmp(text, no[i]))
            return false;
    return text != NULL;
}

/* The first feature that no rule is about is kept. */
static void beyond(struct training_job *job, const char *feature)
{
    job->beyond = job->beyond ? job->beyond : feature;
}

/* ---- what the keys mean ---- */

/* utils/config/__init__.py, resolve_dtype(): weights are loaded in the type that is computed in. "auto" is bf16 where the GPU has
 * it, else fp16, which is as large. */
static void set_type(struct training_job *job)
{
    struct job_switches *s = &job->switches;
    const char *bf16 = job->own[AXOLOTL_BF16];
    bool automatic = !strcasecmp(bf16, "auto"), whole = !strcasecmp(bf16, "full");
    bool half = job->own_switch[AXOLOTL_BFLOAT16] || (automatic ? !s->fp16 : says_yes(bf16));
    s->bf16 = half && !whole;
    s->fp16 = s->fp16 && !half;
    s->dtype = half ? "bfloat16" : s->fp16 || s->load_8bit ? "float16" : "float32";
    s->fsdp2_raises_nothing = true; /* monkeypatch/accelerate/fsdp2.py */
    job_note(job, FACT_DERIVED, "weights", s->dtype, "loaded in the type that is computed in");
}

/* schemas/enums.py, LEGACY_ATTN_FLAG_TO_IMPL, and its names in transformers. */
static void set_attention(struct training_job *job)
{
    static const struct {
        const char *name;
        int flag; /* an older switch for it; -1: none */
        enum job_kernel kernel;
    } names[] = {{"flex_attention", AXOLOTL_FLEX, JOB_FLEX},
                 {"flash_attention_2", AXOLOTL_FLASH, JOB_FLASH},
                 {"flash_attention_3", -1, JOB_FLASH3},
                 {"kernels-community/flash-attn3", -1, JOB_FLASH3},
                 {"kernels-community/flash-attn2", -1, JOB_FLASH},
                 {"kernels-community/flash-attn", -1, JOB_FLASH},
                 {"sdpa", AXOLOTL_SDP, JOB_SDPA},
                 {"eager", AXOLOTL_EAGER, JOB_EAGER}};
    const char *name = job->own[AXOLOTL_ATTENTION];
    job->kernels.attention = JOB_SDPA;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (name ? !strcmp(names[i].name, name) : names[i].flag >= 0 && job->own_switch[names[i].flag]) {
            job->kernels.attention = names[i].kernel;
            return;
        }
    if (name)
        beyond(job, arena_printf(job->facts.arena, "the attention %.60s", name));
    else
        job_note(job, FACT_DEFAULT, "--attn_implementation", "sdpa", "transformers, where the model has it");
}

/* loaders/model.py, _apply_activation_checkpointing(): adapters keep all and send it away, what is trained whole makes layers
 * again and sends their inputs away. fsdp_config may have asked for recomputation too. */
static void set_recomputation(struct training_job *job)
{
    const char *checkpointing = job->own[AXOLOTL_CHECKPOINTING], *away = job->own[AXOLOTL_OFFLOADING];
    bool both = !strncasecmp(checkpointing, "offload", 7); /* the older way to say it */
    bool inputs = !strcmp(away, "hidden_states");
    job->switches.gradient_checkpointing = job->switches.gradient_checkpointing || says_yes(checkpointing);
    job->recompute.on_cpu = both || says_yes(away);
    if (job->recompute.on_cpu && !inputs && says_yes(job->own[AXOLOTL_ADAPTER]))
        beyond(job, "activations that wait in host memory beside an adapter (--activation_offloading)");
}

/* loaders/adapter.py; loaders/model.py, _set_quantization_config(). */
static int set_adapter(struct training_job *job, struct error *err)
{
    struct job_switches *s = &job->switches;
    const char *adapter = says_yes(job->own[AXOLOTL_ADAPTER]) ? job->own[AXOLOTL_ADAPTER] : NULL;
    bool quantized = adapter && !strcmp(adapter, "qlora");
    if (!adapter && (s->load_4bit || s->load_8bit))
        return error_set(err, "Axolotl refuses load_in_%dbit without an adapter; add adapter: %s, or drop it",
                         s->load_4bit ? 4 : 8, s->load_4bit ? "qlora" : "lora");
    if (quantized && (!s->load_4bit || s->load_8bit))
        return error_set(err,
                         "Axolotl refuses adapter: qlora with other than 4-bit weights; set load_in_4bit: "
                         "true and leave load_in_8bit out");
    if (!adapter)
        return 0;
    if (!quantized && strcmp(adapter, "lora"))
        beyond(job, arena_printf(job->facts.arena, "the adapter %.40s", adapter));
    if (!quantized && s->load_4bit)
        job_note(job, FACT_DERIVED, "frozen weights", s->dtype,
                 "load_in_4bit counts with adapter: qlora only");
    s->peft = true;
    s->load_4bit = quantized;
    job->adapter.double_quantized = quantized;
    if (job->own_switch[AXOLOTL_ALL_LINEAR])
        job->adapter.targets = "all-linear";
    if (!job->adapter.targets)
        job_note(job, FACT_MISSING, "--lora_target_modules", "?",
                 "nothing says it; give --with='--lora_target_linear true'");
    job_require(job, s->lora_rank, "--lora_r", "16");
    return 0;
}

bool axolotl_has_plugin(const struct training_job *job, const char *name)
{
    return job_says(job->own[AXOLOTL_PLUGINS], name);
}

/* Liger's keys and Cut Cross-Entropy mean something with their plugins alone; other plugins may do anything. */
static void set_plugins(struct training_job *job)
{
    static const char *const liger[] = {"--liger_rms_norm", "--liger_glu_activation", "--liger_swiglu",
                                        "--liger_fused_linear_cross_entropy"};
    const char *at = job->own[AXOLOTL_PLUGINS] ? job->own[AXOLOTL_PLUGINS] : "";
    struct arena *arena = job->facts.arena;
    struct job_kernels *k = &job->kernels;
    for (size_t length; *at; at += length + (at[length] == ',')) {
        length = strcspn(at, ",");
        const char *name = arena_printf(arena, "%.*s", (int)length, at);
        if (!strstr(name, "LigerPlugin") && !strstr(name, "CutCrossEntropyPlugin") &&
            !strstr(name, "SwanLabPlugin"))
            beyond(job, arena_printf(arena, "the plugin %.80s", name));
    }
    k->cut_loss = axolotl_has_plugin(job, "CutCrossEntropyPlugin") &&
                  (k->cut_loss || !job_was_given(job, "--cut_cross_entropy"));
    if (!axolotl_has_plugin(job, "LigerPlugin")) {
        k->fused_norm = k->fused_gate = k->fused_head = false;
        for (size_t i = 0; i < sizeof liger / sizeof liger[0]; i++)
            if (job_was_given(job, liger[i]))
                job_note(job, FACT_IRRELEVANT, liger[i], "", "without its plugin it does nothing");
    }
    k->liger = k->fused_norm && k->fused_gate && k->fused_head;
}

/* config.py, check_auto_enable_lora_kernels(): they keep less of a layer than its modules do. */
static void note_adapter_kernels(struct training_job *job)
{
    const struct job_switches *s = &job->switches;
    const bool *own = job->own_switch;
    bool said = job_was_given(job, "--lora_mlp_kernel") || job_was_given(job, "--lora_qkv_kernel") ||
                job_was_given(job, "--lora_o_kernel");
    bool automatic = !said && !s->load_8bit && !own[AXOLOTL_REMOTE_CODE] &&
                     (job->launch.ranks <= 1 || job->shards.sharding != JOB_FSDP1);
    if (s->peft && (automatic || own[AXOLOTL_MLP_KERNEL] || own[AXOLOTL_QKV_KERNEL] || own[AXOLOTL_O_KERNEL]))
        job_note(job, FACT_UNKNOWN, "lora_*_kernel", automatic ? "on by itself" : "on",
                 "what these kernels save is not counted");
}

/* loaders/model.py, _configure_embedding_dtypes(): what is trained whole by DDP gets its ends in fp32, and only attention that
 * needs 16 bits, or Cut Cross-Entropy, takes that back. */
static void refuse_mixed_ends(struct training_job *job)
{
    const struct job_switches *s = &job->switches;
    int attention = job->kernels.attention;
    bool plain = attention == JOB_SDPA || attention == JOB_EAGER;
    if (plain && !s->peft && !s->deepspeed && strcmp(s->dtype, "float32") &&
        job->shards.sharding == JOB_REPLICATED && !job->kernels.cut_loss)
        beyond(job, "embeddings in fp32 beside 16-bit weights (Axolotl's without attn_implementation: "
                    "flash_attention_2)");
}

/* FSDP2's mesh. */
static int set_mesh(struct training_job *job, struct error *err)
{
    struct job_layout *l = &job->layout;
    if ((!l->dp_replicate && !l->dp_shard) || !l->dp || job->beyond)
        return 0;
    int64_t copies = l->dp_replicate ? l->dp_replicate : 1,
            share = l->dp_shard ? l->dp_shard : l->dp / copies;
    if (l->dp % copies)
        return error_set(err, "dp_replicate_size %lld does not divide %lld ranks; correct it",
                         (long long)copies, (long long)l->dp);
    if (l->dp / copies != share)
        return error_set(
            err, "dp_replicate_size %lld x dp_shard_size %lld are not %lld ranks; correct one of them",
            (long long)copies, (long long)share, (long long)l->dp);
    l->dp_replicate = copies;
    l->dp_shard = share;
    return 0;
}

int axolotl_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                 struct error *err)
{
    struct axolotl_line line = axolotl_split(&launch->arguments, job->facts.arena);
    struct job_switches *s = &job->switches;
    if (!line.own.count || !axolotl_is_file(&line.own, 0))
        return error_set(err, "%s: axolotl is given no YAML; name it: axolotl train config.yml",
                         job_origin(job, &job->launch.where));
    if (hf_read_options(job, &table, &line.own, files, err) || setting_defaults(&table, job, err))
        return -1;
    set_type(job);
    set_attention(job);
    set_recomputation(job);
    set_plugins(job);
    if (set_adapter(job, err))
        return -1;
    job->kernels.compile = says_yes(job->own[AXOLOTL_COMPILE]);
    s->use_fsdp = job->shards.key_prefix || (s->fsdp && *s->fsdp);
    if (hf_complete(job, &table, files, err) || set_mesh(job, err))
        return -1;
    note_adapter_kernels(job);
    refuse_mixed_ends(job);
    return 0;
}
