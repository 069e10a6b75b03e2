/* `accelerate launch`: its options, and the YAML that `accelerate config` writes. The options of FSDP and DeepSpeed are the
 * same words in both, below fsdp_config and deepspeed_config in the file. */
#include "jobs/accelerate_config.h"

#include "jobs/setting.h"

#include <string.h>

/* accelerate 1.15.0: commands/launch.py, and for defaults utils/dataclasses.py, which read_defaults() has. */
static const struct setting_rule rules[] = {
    COUNT("num_processes", launch.ranks, NULL),
    COUNT("num_machines", launch.nodes, NULL),
    TEXT("mixed_precision", switches.mixed_precision, NULL),
    BOOL("use_fsdp", switches.use_fsdp, NULL),
    BOOL("use_deepspeed", switches.deepspeed, NULL),
    TEXT("distributed_type", switches.distributed_type, NULL),
    COUNT("gradient_accumulation_steps", batch.accumulation, NULL),
    TEXT("fsdp_version", switches.fsdp_version, NULL),
    TEXT("fsdp_sharding_strategy", switches.fsdp, NULL),
    TEXT("fsdp_auto_wrap_policy", switches.wrap_policy, NULL),
    COUNT("fsdp_min_num_params", shards.unit_parameters, NULL),
    TEXT("fsdp_transformer_layer_cls_to_wrap", shards.wrap, NULL),
    TEXT("fsdp_reshard_after_forward", switches.reshard, NULL),
    CHOICE("fsdp_offload_params", shards.offload_parameters, "false|true", NULL),
    BOOL("fsdp_activation_checkpointing", switches.gradient_checkpointing, NULL),
    BOOL("fsdp_activation_checkpointing_offload", recompute.on_cpu, NULL),
    BOOL("fsdp_forward_prefetch", shards.prefetch_forward, NULL),
    BEYOND("fsdp_xla", "XLA", "false"),
    TEXT("deepspeed_config_file", switches.deepspeed_config, NULL),
    CHOICE("zero_stage", switches.zero_stage, "0|1|2|3", NULL),
    CHOICE("offload_optimizer_device", shards.offload_optimizer, "none|cpu|nvme", NULL),
    CHOICE("offload_param_device", shards.offload_parameters, "none|cpu|nvme", NULL),
    TEXT("dynamo_backend", switches.compile_choice, NULL),
    BEYOND("use_megatron_lm", "Megatron-LM inside of accelerate", "false"),
    BEYOND("parallelism_config_dp_replicate_size", "accelerate's parallelism_config", "1"),
    BEYOND("parallelism_config_dp_shard_size", "accelerate's parallelism_config", "1"),
    BEYOND("parallelism_config_tp_size", "accelerate's parallelism_config", "1"),
    BEYOND("parallelism_config_cp_size", "accelerate's parallelism_config", "1"),
    BEYOND("parallelism_config_sp_size", "accelerate's parallelism_config", "1"),
    BEYOND("tpu", "TPUs", "false"),
    {0},
};

static const char irrelevant[] =
    "aws_* compute_environment config_file cpu debug deepspeed_exclusion_filter deepspeed_hostfile "
    "deepspeed_inclusion_filter deepspeed_moe_layer_cls_names deepspeed_multinode_launcher downcast_bf16 "
    "dynamo_* enable_cpu_affinity env fp8_* fsdp_backward_prefetch* fsdp_cpu_ram_efficient_loading "
    "fsdp_limit_all_gathers fsdp_state_dict_type fsdp_sync_module_states fsdp_use_orig_params "
    "fsdp_xla_fsdp_* "
    "gpu_ids gradient_clipping log_dir m machine_rank main_process_* main_training_function max_restarts "
    "megatron_lm_* module monitor_interval mpirun_config.* mpirun_hostfile multi_gpu no_python "
    "no_tpu_cluster "
    "num_cpu_threads_per_process offload_optimizer_nvme_path offload_param_nvme_path parallelism_config_* "
    "quiet use_parallelism_config rdzv_* role sagemaker_* same_network tee tpu_* use_cpu vm zero3_init_flag "
    "zero3_save_16bit_model";

static const struct setting_table table = {rules, irrelevant, "accelerate 1", true};

/* "fsdp_config.fsdp_version" and "--fsdp_version" are fsdp_version. */
static const char *plain_name(const char *key)
{
    static const char *const groups[] = {"fsdp_config.", "deepspeed_config.", "dynamo_config.",
                                         "parallelism_config."};
    for (int i = 0; i < 4; i++)
        if (!strncmp(key, groups[i], strlen(groups[i])))
            return key + strlen(groups[i]);
    return key + strspn(key, "-");
}

/* What stands on the command line comes first, and has been read. */
static bool is_settled(const struct training_job *job, const char *key)
{
    return (!strcmp(key, "num_processes") && job->launch.ranks) ||
           (!strcmp(key, "num_machines") && job->launch.nodes);
}

static int read_config(struct training_job *job, const struct word *path, const struct job_files *files,
                       struct error *err)
{
    struct pairs pairs = {.file = path->text};
    int status = job_file_yaml(job, files, &pairs, err);
    if (status > 0)
        job_note(job, FACT_MISSING, "accelerate configuration", path->text,
                 "there is no such file; correct the path");
    if (status)
        return status < 0 ? -1 : 0;
    int kept = 0;
    for (int i = 0; i < pairs.count; i++) {
        pairs.list[i].key = plain_name(pairs.list[i].key);
        if (*pairs.list[i].value && !is_settled(job, pairs.list[i].key))
            pairs.list[kept++] = pairs.list[i];
    }
    pairs.count = kept;
    return setting_read_pairs(&table, job, &pairs, err);
}

/* The table's names have no dashes in front. */
static int apply_options(struct training_job *job, const struct words *options, struct error *err)
{
    for (int i = 0; i < options->count; i++) {
        const char *name = plain_name(options->list[i].text), *equals = strchr(name, '=');
        struct word option = options->list[i], value = option;
        bool next = !equals && i + 1 < options->count && options->list[i + 1].text[0] != '-';
        option.text = equals ? arena_printf(job->facts.arena, "%.*s", (int)(equals - name), name) : name;
        if (next)
            value = options->list[++i];
        else
            value.text = equals ? equals + 1 : "true";
        if (setting_apply(&table, job, &option, &value, err))
            return -1;
    }
    return 0;
}

static int read_options(struct training_job *job, const struct words *options, const struct job_files *files,
                        struct error *err)
{
    struct words kept = {arena_array(job->facts.arena, (size_t)options->count + 1, sizeof(struct word)), 0};
    for (int i = 0; i < options->count; i++) {
        const struct word *word = &options->list[i];
        bool config = !strncmp(word->text, "--config_file", 13) || !strncmp(word->text, "--config-file", 13);
        if (!config) {
            kept.list[kept.count++] = *word;
            continue;
        }
        struct word path = *word;
        if (word->text[13] == '=')
            path.text = word->text + 14;
        else if (i + 1 < options->count)
            path = options->list[++i];
        if (read_config(job, &path, files, err))
            return -1;
    }
    return apply_options(job, &kept, err);
}

/* DeepSpeedPlugin takes stage 2 where nothing says another. */
static void read_defaults(struct training_job *job)
{
    struct job_switches *s = &job->switches;
    if (s->deepspeed && !s->deepspeed_config && !job_was_given(job, "zero_stage")) {
        s->zero_stage = 2;
        job_note(job, FACT_DEFAULT, "zero_stage", "2", table.framework);
    }
}

int accelerate_read_fsdp(struct training_job *job, struct pairs *pairs, struct error *err)
{
    for (int i = 0; i < pairs->count; i++)
        if (strncmp(pairs->list[i].key, "fsdp_", 5))
            pairs->list[i].key = arena_printf(job->facts.arena, "fsdp_%s", pairs->list[i].key);
    return setting_read_pairs(&table, job, pairs, err);
}

int accelerate_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                    struct error *err)
{
    struct job_switches *s = &job->switches;
    if (read_options(job, &launch->kept, files, err))
        return -1;
    const char *kind = s->distributed_type ? s->distributed_type : "";
    s->use_fsdp = s->use_fsdp || !strcmp(kind, "FSDP");
    s->deepspeed = s->deepspeed || !strcmp(kind, "DEEPSPEED");
    if (!strcmp(kind, "MEGATRON_LM"))
        job->beyond = "Megatron-LM inside of accelerate (distributed_type)";
    if (s->mixed_precision && !strcmp(s->mixed_precision, "bf16"))
        s->bf16 = true;
    else if (s->mixed_precision && !strcmp(s->mixed_precision, "fp16"))
        s->fp16 = true;
    else if (s->mixed_precision && !strcmp(s->mixed_precision, "fp8"))
        job->kernels.fp8 = s->mixed_precision;
    read_defaults(job);
    return 0;
}
