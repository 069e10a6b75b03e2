/* `accelerate launch`: its options, and the YAML that `accelerate config` writes. The options of FSDP and DeepSpeed are the
 * same words in both, below fsdp_config and deepspeed_config in the file. Names of accelerate 1.x. */
#include "jobs/frameworks.h"

#include "jobs/setting.h"
#include "jobs/yaml.h"

#include <string.h>

#define COUNT(name, field)        SETTING(name, SETTING_COUNT, field, NULL, NULL)
#define BOOL(name, field)         SETTING(name, SETTING_BOOL, field, NULL, NULL)
#define TEXT(name, field)         SETTING(name, SETTING_TEXT, field, NULL, NULL)
#define CHOICE(name, field, list) SETTING(name, SETTING_CHOICE, field, list, NULL)

static const struct setting_rule rules[] = {
    COUNT("num_processes", launch.ranks),
    COUNT("num_machines", launch.nodes),
    TEXT("mixed_precision", switches.mixed_precision),
    BOOL("use_fsdp", switches.use_fsdp),
    BOOL("use_deepspeed", switches.deepspeed),
    TEXT("distributed_type", switches.distributed_type),
    COUNT("gradient_accumulation_steps", batch.accumulation),
    TEXT("fsdp_version", switches.fsdp_version),
    TEXT("fsdp_sharding_strategy", switches.fsdp),
    TEXT("fsdp_auto_wrap_policy", switches.wrap_policy),
    TEXT("fsdp_transformer_layer_cls_to_wrap", shards.wrap),
    TEXT("fsdp_reshard_after_forward", switches.reshard),
    BOOL("fsdp_offload_params", shards.offload_parameters),
    BOOL("fsdp_activation_checkpointing", switches.gradient_checkpointing),
    BOOL("fsdp_forward_prefetch", shards.prefetch_forward),
    TEXT("deepspeed_config_file", switches.deepspeed_config),
    CHOICE("zero_stage", switches.zero_stage, "0|1|2|3"),
    CHOICE("offload_optimizer_device", shards.offload_optimizer, "none|cpu|nvme"),
    CHOICE("offload_param_device", shards.offload_parameters, "none|cpu|nvme"),
    {0},
};

static const char *const irrelevant[] = {"compute_environment",
                                         "debug",
                                         "downcast_bf16",
                                         "machine_rank",
                                         "main_training_function",
                                         "rdzv_backend",
                                         "same_network",
                                         "tpu_*",
                                         "use_cpu",
                                         "main_process_*",
                                         "num_cpu_threads_per_process",
                                         "enable_cpu_affinity",
                                         "fsdp_backward_prefetch*",
                                         "fsdp_cpu_ram_efficient_loading",
                                         "fsdp_state_dict_type",
                                         "fsdp_sync_module_states",
                                         "fsdp_use_orig_params",
                                         "fsdp_min_num_params",
                                         "deepspeed_multinode_launcher",
                                         "zero3_init_flag",
                                         "zero3_save_16bit_model",
                                         "gradient_clipping",
                                         "gpu_ids",
                                         "multi_gpu",
                                         "dynamo_*",
                                         "tee",
                                         "role",
                                         "max_restarts",
                                         "monitor_interval",
                                         "deepspeed_hostfile",
                                         "module",
                                         "m",
                                         "fsdp_config",
                                         "deepspeed_config",
                                         "rdzv_conf",
                                         NULL};

static const struct setting_table table = {rules, irrelevant, "accelerate 1", true};

/* "fsdp_config.fsdp_version" and "--fsdp_version" are fsdp_version. */
static const char *plain_name(const char *key)
{
    static const char *const groups[] = {"fsdp_config.", "deepspeed_config."};
    for (int i = 0; i < 2; i++)
        if (!strncmp(key, groups[i], strlen(groups[i])))
            return key + strlen(groups[i]);
    return key + strspn(key, "-");
}

static int read_config(struct training_job *job, const struct word *path, const struct job_files *files,
                       struct error *err)
{
    struct pairs pairs = {.file = path->text};
    const char *text;
    size_t length;
    int status = job_file_text(job, files, path->text, &text, &length, err);
    if (status > 0)
        job_note(job, FACT_MISSING, "accelerate configuration", path->text,
                 "there is no such file; correct the path");
    if (status)
        return status < 0 ? -1 : 0;
    if (yaml_read(text, length, job->facts.arena, &pairs, err))
        return -1;
    int64_t ranks = job->launch.ranks, nodes = job->launch.nodes;
    int kept = 0;
    for (int i = 0; i < pairs.count; i++) {
        pairs.list[i].key = plain_name(pairs.list[i].key);
        if (*pairs.list[i].value)
            pairs.list[kept++] = pairs.list[i];
    }
    pairs.count = kept;
    for (int i = 0; i < files->edits.count; i++) {
        const struct job_edit *edit = &files->edits.list[i];
        if (edit->place == JOB_EDIT_FILE && !strcmp(edit->file, path->text))
            pairs_add(&pairs, job->facts.arena, edit->name, edit->value, 0);
    }
    if (setting_read_pairs(&table, job, &pairs, err))
        return -1;
    /* What stood on the command line comes first. */
    job->launch.ranks = ranks ? ranks : job->launch.ranks;
    job->launch.nodes = nodes ? nodes : job->launch.nodes;
    return 0;
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

int accelerate_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                    struct error *err)
{
    struct job_switches *s = &job->switches;
    if (read_options(job, &launch->accelerate_options, files, err))
        return -1;
    const char *kind = s->distributed_type ? s->distributed_type : "";
    s->use_fsdp = s->use_fsdp || !strcmp(kind, "FSDP");
    s->deepspeed = s->deepspeed || !strcmp(kind, "DEEPSPEED");
    if (s->mixed_precision && !strcmp(s->mixed_precision, "bf16"))
        s->bf16 = true;
    else if (s->mixed_precision && !strcmp(s->mixed_precision, "fp16"))
        s->fp16 = true;
    return 0;
}
