/* DeepSpeed's JSON. Keys and defaults: deepspeed/runtime/constants.py and runtime/zero/config.py of 0.16. */
#include "jobs/frameworks.h"

#include "base/checked.h"
#include "jobs/setting.h"

#include <string.h>

#define COUNT(name, field, fallback)       SETTING(name, SETTING_COUNT, field, NULL, fallback)
#define BOOL(name, field, fallback)        SETTING(name, SETTING_BOOL, field, NULL, fallback)
#define TEXT(name, field)                  SETTING(name, SETTING_TEXT, field, NULL, NULL)
#define CHOICE(name, field, list, default) SETTING(name, SETTING_CHOICE, field, list, default)

#define ZERO "zero_optimization."

static const struct setting_rule rules[] = {
    COUNT("train_batch_size", batch.global, NULL),
    COUNT("train_micro_batch_size_per_gpu", batch.micro, NULL),
    COUNT("gradient_accumulation_steps", batch.accumulation, NULL),
    CHOICE(ZERO "stage", switches.zero_stage, "0|1|2|3", "0"),
    CHOICE(ZERO "offload_optimizer.device", shards.offload_optimizer, "none|cpu|nvme", "none"),
    CHOICE(ZERO "offload_param.device", shards.offload_parameters, "none|cpu|nvme", "none"),
    COUNT(ZERO "reduce_bucket_size", shards.reduce_bucket, "5e8"),
    COUNT(ZERO "allgather_bucket_size", shards.gather_bucket, "5e8"),
    BOOL(ZERO "overlap_comm", shards.overlap, NULL),
    BOOL(ZERO "contiguous_gradients", shards.contiguous_gradients, "true"),
    BOOL(ZERO "round_robin_gradients", shards.round_robin, "false"),
    COUNT(ZERO "stage3_prefetch_bucket_size", shards.prefetch_bucket, "5e7"),
    COUNT(ZERO "stage3_param_persistence_threshold", shards.persistence_threshold, "1e5"),
    COUNT(ZERO "stage3_max_live_parameters", shards.live_parameters, "1e9"),
    COUNT(ZERO "sub_group_size", shards.sub_group, "1e9"),
    BOOL("bf16.enabled", switches.bf16, "false"),
    BOOL("bfloat16.enabled", switches.bf16, NULL),
    BOOL("fp16.enabled", switches.fp16, "false"),
    BOOL("fp16.auto_cast", switches.fp16_autocast, NULL),
    TEXT("data_types.grad_accum_dtype", switches.gradient_dtype),
    TEXT("optimizer.type", optimizer.name),
    BOOL("activation_checkpointing.partition_activations", recompute.partitioned, NULL),
    BOOL("activation_checkpointing.cpu_checkpointing", recompute.on_cpu, NULL),
    {0},
};

static const char *const irrelevant[] = {"optimizer.params.*",
                                         "scheduler.*",
                                         "steps_per_print",
                                         "wall_clock_breakdown",
                                         "gradient_clipping",
                                         "fp16.loss_scale*",
                                         "fp16.initial_scale_power",
                                         "fp16.hysteresis",
                                         "fp16.min_loss_scale",
                                         "fp16.consecutive_hysteresis",
                                         "prescale_gradients",
                                         "gradient_predivide_factor",
                                         "tensorboard.*",
                                         "wandb.*",
                                         "csv_monitor.*",
                                         "flops_profiler.*",
                                         "zero_allow_untested_optimizer",
                                         "zero_force_ds_cpu_optimizer",
                                         "dump_state",
                                         "memory_breakdown",
                                         "comms_logger.*",
                                         "communication_data_type",
                                         "aio.*",
                                         "checkpoint.*",
                                         "activation_checkpointing.profile",
                                         "activation_checkpointing.synchronize_checkpoint_boundary",
                                         "activation_checkpointing.number_checkpoints",
                                         "activation_checkpointing.contiguous_memory_optimization",
                                         ZERO "stage3_max_reuse_distance",
                                         ZERO "stage3_gather_16bit_weights_on_model_save",
                                         ZERO "reduce_scatter",
                                         ZERO "allgather_partitions",
                                         ZERO "load_from_fp32_weights",
                                         ZERO "elastic_checkpoint",
                                         ZERO "offload_optimizer.*",
                                         ZERO "offload_param.*",
                                         ZERO "ignore_unused_parameters",
                                         ZERO "zero_hpz_partition_size",
                                         "seed",
                                         "train_iters",
                                         "compression_training.*",
                                         "elasticity.*",
                                         "autotuning.*",
                                         "data_efficiency.*",
                                         NULL};

static const struct setting_table table = {rules, irrelevant, "DeepSpeed 0.16", false};

/* "auto": Hugging Face fills these in from its own options. */
static void take_autos(struct training_job *job, struct pairs *pairs)
{
    int kept = 0;
    for (int i = 0; i < pairs->count; i++) {
        struct pair *p = &pairs->list[i];
        if (strcmp(p->value, "auto"))
            pairs->list[kept++] = *p;
        else
            job_note(job, FACT_DERIVED, p->key, "auto", "from the Trainer's options");
    }
    pairs->count = kept;
}

static bool was_auto(const struct training_job *job, const char *name)
{
    for (int i = 0; i < job->facts.count; i++)
        if (!strcmp(job->facts.list[i].name, name))
            return !strcmp(job->facts.list[i].value, "auto");
    return false;
}

/* Sizes that the integration of Hugging Face makes from the hidden size (transformers/integrations/deepspeed.py). */
static void size_autos(struct training_job *job, const bool autos[3])
{
    static const char *const names[3] = {ZERO "reduce_bucket_size", ZERO "stage3_prefetch_bucket_size",
                                         ZERO "stage3_param_persistence_threshold"};
    int64_t hidden = job->model.hidden, sizes[3] = {hidden * hidden, hidden * hidden / 10 * 9, 10 * hidden};
    int64_t *fields[3] = {&job->shards.reduce_bucket, &job->shards.prefetch_bucket,
                          &job->shards.persistence_threshold};
    for (int i = 0; i < 3; i++)
        if (autos[i] && hidden) {
            *fields[i] = sizes[i];
            job_note_count(job, FACT_DERIVED, names[i], sizes[i], "auto: from the hidden size");
        }
}

int deepspeed_read(struct training_job *job, const char *path, const struct job_files *files,
                   struct error *err)
{
    struct pairs pairs = {.file = path};
    struct job_switches before = job->switches;
    json_t *config;
    int status = job_file_json(job, files, path, &config, err);
    if (status > 0)
        job_note(job, FACT_MISSING, "DeepSpeed configuration", path,
                 "there is no such file; correct the path");
    if (status)
        return status < 0 ? -1 : 0;
    pairs_from_json(&pairs, job->facts.arena, config);
    json_decref(config);
    take_autos(job, &pairs);
    bool autos[3] = {was_auto(job, ZERO "reduce_bucket_size"),
                     was_auto(job, ZERO "stage3_prefetch_bucket_size"),
                     was_auto(job, ZERO "stage3_param_persistence_threshold")};
    bool bf16_auto = was_auto(job, "bf16.enabled"), fp16_auto = was_auto(job, "fp16.enabled");
    if (setting_read_pairs(&table, job, &pairs, err) || setting_defaults(&table, job, err))
        return -1;
    size_autos(job, autos);
    struct job_switches *s = &job->switches;
    s->bf16 = bf16_auto ? before.bf16 : s->bf16;
    s->fp16 = fp16_auto ? before.fp16 : s->fp16;
    s->deepspeed = true;
    job->precision = s->bf16                       ? JOB_BF16
                     : s->fp16 && s->fp16_autocast ? JOB_AUTOCAST_FP16
                     : s->fp16                     ? JOB_FP16
                                                   : JOB_FP32;
    /* Of bf16, gradients are summed in fp32 unless told otherwise; of fp16, in fp16. */
    job->gradients_fp32 = s->gradient_dtype ? !strcmp(s->gradient_dtype, "fp32") : s->bf16;
    job->shards.sharding = s->zero_stage ? JOB_ZERO1 + s->zero_stage - 1 : JOB_REPLICATED;
    if (job->shards.offload_optimizer)
        job->optimizer.offload = true;
    if (!job_was_given(job, ZERO "overlap_comm"))
        job->shards.overlap = s->zero_stage == 3;
    return 0;
}

void deepspeed_complete(struct training_job *job)
{
    struct job_batch *b = &job->batch;
    int64_t dp = job->layout.dp, together;
    if (!dp)
        return;
    if (!b->micro && b->global && checked_mul(dp, b->accumulation ? b->accumulation : 1, &together)) {
        b->micro = b->global / together;
        job_note_count(job, FACT_DERIVED, "train_micro_batch_size_per_gpu", b->micro,
                       "train_batch_size / (accumulation x ranks)");
    }
    if (!b->accumulation && b->global && b->micro && checked_mul(b->micro, dp, &together))
        b->accumulation = b->global / together;
    b->accumulation = b->accumulation ? b->accumulation : 1;
    if (!b->global && b->micro && checked_mul(b->micro, dp, &together))
        checked_mul(together, b->accumulation, &b->global);
}
