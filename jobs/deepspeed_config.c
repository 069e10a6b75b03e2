/* DeepSpeed's JSON. */
#include "jobs/deepspeed_config.h"

#include "base/checked.h"
#include "jobs/setting.h"

#include <string.h>

#define ZERO "zero_optimization."

/* Defaults of DeepSpeed 0.19.8. */
static const struct setting_rule rules[] = {
    /* runtime/constants.py */
    COUNT("train_batch_size", batch.global, NULL),
    COUNT("train_micro_batch_size_per_gpu", batch.micro, NULL),
    COUNT("gradient_accumulation_steps", batch.accumulation, NULL),
    TEXT("optimizer.type", optimizer.name, NULL),
    REAL("optimizer.params.momentum", optimizer.momentum, NULL),
    TEXT("data_types.grad_accum_dtype", switches.gradient_dtype, NULL),
    BEYOND("torch_autocast.enabled", "PyTorch's autocast under DeepSpeed", "false"),
    BEYOND("amp.enabled", "Apex's mixed precision", "false"),
    /* runtime/precision_config.py */
    BOOL("bf16.enabled", switches.bf16, "false"),
    BOOL("bfloat16.enabled", switches.bf16, NULL),
    BOOL("bf16.bf16_master_weights_and_grads", shards.masters_16bit, NULL),
    BOOL("bf16.bf16_optimizer_states", shards.moments_16bit, NULL),
    BOOL("fp16.enabled", switches.fp16, "false"),
    BOOL("fp16.auto_cast", switches.fp16_autocast, NULL),
    BOOL("fp16.fp16_master_weights_and_grads", shards.masters_16bit, NULL),
    /* runtime/zero/config.py */
    CHOICE(ZERO "stage", switches.zero_stage, "0|1|2|3", "0"),
    CHOICE(ZERO "cpu_offload", shards.offload_optimizer, "false|true", NULL),
    CHOICE(ZERO "cpu_offload_param", shards.offload_parameters, "false|true", NULL),
    COUNT(ZERO "reduce_bucket_size", shards.reduce_bucket, "5e8"),
    COUNT(ZERO "allgather_bucket_size", shards.gather_bucket, "5e8"),
    BOOL(ZERO "overlap_comm", shards.overlap, NULL),
    BOOL(ZERO "contiguous_gradients", shards.contiguous_gradients, "true"),
    BOOL(ZERO "round_robin_gradients", shards.round_robin, "false"),
    COUNT(ZERO "stage3_prefetch_bucket_size", shards.prefetch_bucket, "5e7"),
    COUNT(ZERO "stage3_param_persistence_threshold", shards.persistence_threshold, "1e5"),
    COUNT(ZERO "stage3_max_live_parameters", shards.live_parameters, "1e9"),
    COUNT(ZERO "stage3_max_reuse_distance", shards.reuse_distance, "1e9"),
    COUNT(ZERO "sub_group_size", shards.sub_group, "1e9"),
    BEYOND(ZERO "zero_hpz_partition_size", "ZeRO++'s second copy of the weights", "1"),
    BEYOND(ZERO "zero_quantized_weights", "ZeRO++'s quantized weights", "false"),
    BEYOND(ZERO "zero_quantized_nontrainable_weights", "ZeRO++'s quantized weights", "false"),
    BEYOND(ZERO "zero_quantized_gradients", "ZeRO++'s quantized gradients", "false"),
    BEYOND(ZERO "mics_shard_size", "MiCS", "-1"),
    BEYOND(ZERO "stage3_module_granularity_threshold", "modules that are gathered as one", "0"),
    BEYOND(ZERO "stage3_model_persistence_threshold", "a limit on weights that stay gathered",
           "9223372036854775807"),
    BEYOND("tensor_parallel.autotp_size", "DeepSpeed's tensor parallelism", "0"),
    BEYOND("sequence_parallel_size", "DeepSpeed's sequence parallelism", "1"),
    /* runtime/zero/offload_config.py */
    CHOICE(ZERO "offload_optimizer.device", shards.offload_optimizer, "none|cpu|nvme", "none"),
    BEYOND(ZERO "offload_optimizer.ratio", "an optimizer that is on the host in part", "1.0"),
    BEYOND(ZERO "offload_optimizer.super_offload", "SuperOffload", "false"),
    CHOICE(ZERO "offload_param.device", shards.offload_parameters, "none|cpu|nvme", "none"),
    /* runtime/activation_checkpointing/config.py */
    BOOL("activation_checkpointing.partition_activations", recompute.partitioned, NULL),
    BOOL("activation_checkpointing.cpu_checkpointing", recompute.on_cpu, NULL),
    {0},
};

static const char irrelevant[] =
    "activation_checkpointing.contiguous_memory_optimization activation_checkpointing.number_checkpoints "
    "activation_checkpointing.profile activation_checkpointing.synchronize_checkpoint_boundary aio.* "
    "autotuning.* bf16.check_grad_overflow bf16.immediate_grad_update checkpoint.* comet.* comms_logger.* "
    "communication_data_type compression_training.* csv_monitor.* data_efficiency.* data_types.buffer_dtype "
    "data_types.keep_in_fp32_modules data_types.param_dtype dataloader_drop_last disable_allgather "
    "disable_python_gc dump_state elasticity.* flops_profiler.* fp16.consecutive_hysteresis fp16.hysteresis "
    "fp16.initial_scale_power fp16.loss_scale* fp16.min_loss_scale gradient_allreduce_op gradient_clipping "
    "gradient_predivide_factor log_level memory_breakdown monitor_config.* optimizer.params.* "
    "prescale_gradients scheduler.* seed seq_parallel_communication_data_type sparse_gradients "
    "steps_per_print tensorboard.* train_iters use_data_before_expert_parallelism wall_clock_breakdown "
    "wandb.* zero_allow_untested_optimizer zero_force_ds_cpu_optimizer "
    "zero_optimization.allgather_partitions "
    "zero_optimization.compute_grad_norm zero_optimization.cpu_offload_use_pin_memory "
    "zero_optimization.elastic_checkpoint zero_optimization.enable_sanity_checks "
    "zero_optimization.ignore_unused_parameters zero_optimization.leaf_module.* "
    "zero_optimization.legacy_stage1 zero_optimization.load_from_fp32_weights "
    "zero_optimization.log_trace_cache_warnings zero_optimization.memory_efficient_linear "
    "zero_optimization.offload_optimizer.* zero_optimization.offload_param.* "
    "zero_optimization.override_module_apply zero_optimization.parameter_alignment "
    "zero_optimization.pipeline_loading_checkpoint zero_optimization.reduce_scatter "
    "zero_optimization.stage3_allgather_sequential "
    "zero_optimization.stage3_gather_16bit_weights_on_model_save "
    "zero_optimization.stage3_gather_fp16_weights_on_model_save "
    "zero_optimization.stage3_use_all_reduce_for_fetch_params "
    "zero_optimization.use_multi_rank_bucket_allreduce";

static const struct setting_table table = {rules, irrelevant, "DeepSpeed 0.19", false};

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
    int64_t hidden = job->model.hidden, sizes[3] = {hidden * hidden, hidden * hidden * 9 / 10, 10 * hidden};
    int64_t *fields[3] = {&job->shards.reduce_bucket, &job->shards.prefetch_bucket,
                          &job->shards.persistence_threshold};
    for (int i = 0; i < 3; i++)
        if (autos[i] && hidden) {
            *fields[i] = sizes[i];
            job_note_count(job, FACT_DERIVED, names[i], sizes[i], "auto: from the hidden size");
        }
}

/* runtime/engine.py, get_data_types(): the weights' own type, but for bf16 without ZeRO. */
void deepspeed_gradients(struct training_job *job)
{
    const struct job_switches *s = &job->switches;
    const char *dtype = s->gradient_dtype; /* "fp32", "float32", "float" (runtime/config.py, DtypeEnum) */
    bool fp32 = dtype && (strstr(dtype, "32") || text_ends_with(dtype, "float"));
    job->gradients_fp32 = dtype ? fp32 : s->bf16 && !s->zero_stage;
    job->shards.sharding = s->zero_stage ? JOB_ZERO1 + s->zero_stage - 1 : JOB_REPLICATED;
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
    deepspeed_gradients(job);
    if (job->shards.offload_optimizer)
        job->optimizer.offload = true;
    if (!job_was_given(job, ZERO "overlap_comm"))
        job->shards.overlap = s->zero_stage == 3;
    return 0;
}

int deepspeed_complete(struct training_job *job, struct error *err)
{
    struct job_batch *b = &job->batch;
    int64_t dp = job->layout.dp, each, together;
    if (!dp)
        return 0;
    if (!checked_mul(dp, b->accumulation ? b->accumulation : 1, &each) ||
        !checked_mul(each, b->micro ? b->micro : 1, &together))
        return error_set(
            err, "%lld ranks x %lld micro-batches of %lld sequences are no real batch; correct one of them",
            (long long)dp, (long long)b->accumulation, (long long)b->micro);
    if (!b->micro && b->global) {
        b->micro = b->global / each;
        together = each * b->micro;
        job_note_count(job, FACT_DERIVED, "train_micro_batch_size_per_gpu", b->micro,
                       "train_batch_size / (accumulation x ranks)");
    }
    if (!b->accumulation && together && b->global)
        b->accumulation = b->global / together;
    if (!b->global && b->micro)
        b->global = together;
    b->accumulation = b->accumulation ? b->accumulation : 1;
    return 0;
}
