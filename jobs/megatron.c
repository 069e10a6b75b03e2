/* Megatron-LM and its DeepSpeed fork as entries of the table: how their launches look, and what their modules do. */
#include "jobs/megatron.h"

#include <string.h>

static bool is_any(const struct launch *launch)
{
    bool layers = false, batch = false;
    for (int i = 0; i < launch->arguments.count; i++) {
        const char *text = launch->arguments.list[i].text;
        layers = layers || !strncmp(text, "--num-layers", 12) || !strncmp(text, "--encoder-num-layers", 20);
        batch = batch || !strncmp(text, "--micro-batch-size", 18) ||
                !strncmp(text, "--tensor-model-parallel", 23);
    }
    return (layers && batch) || strstr(launch->program, "pretrain_gpt") ||
           strstr(launch->program, "pretrain_bert");
}

/* The fork without --deepspeed is Megatron-LM of that time. */
static bool is_fork(const struct launch *launch)
{
    bool deepspeed = false;
    for (int i = 0; i < launch->arguments.count; i++)
        deepspeed = deepspeed || !strcmp(launch->arguments.list[i].text, "--deepspeed");
    return deepspeed && is_any(launch);
}

/* ---- as a workload ---- */

static enum workload_library library(const struct training_job *job)
{
    return job->kernels.transformer_engine ? WORKLOAD_MEGATRON : WORKLOAD_MEGATRON_LEGACY;
}

static enum workload_library library_of_fork(const struct training_job *job)
{
    (void)job;
    return WORKLOAD_MEGATRON_LEGACY;
}

static void set_attention(const struct training_job *job, struct workload *w)
{
    const struct job_kernels *k = &job->kernels;
    bool scores =
        k->attention == JOB_EAGER || (k->attention == JOB_ATTENTION_DEFAULT && !k->transformer_engine);
    w->attention = !scores                    ? WORKLOAD_FLASH
                   : k->masked_softmax_fusion ? WORKLOAD_FUSED_SOFTMAX
                                              : WORKLOAD_EAGER;
    w->first_flash = job_was_given(job, "--use-flash-attn-v1");
}

/* "fp32", "bf16", "float16", "fp8" */
static int bytes_of(const char *type)
{
    return job_says(type, "8") ? 1 : job_says(type, "16") ? 2 : 4;
}

/* The precision-aware optimizer chooses each state's type. Beside bf16 weights, TE's FusedAdam keeps of fp32 masters only the
 * 16 bits that these lack (store_param_remainders). */
static void set_states(const struct training_job *job, struct workload *w)
{
    const struct job_shards *s = &job->shards;
    bool halves = job->precision == JOB_BF16 || job_says(s->main_parameters, "16");
    if (!s->precision_aware)
        return;
    w->master_bytes = halves && w->master_bytes ? 2 : w->master_bytes;
    w->gradient_bytes = bytes_of(s->main_gradients);
    w->moment_bytes = (bytes_of(s->exp_avg) + bytes_of(s->exp_avg_sq) + 1) / 2;
}

static void set_workload_of_both(const struct training_job *job, struct workload *w)
{
    const struct job_kernels *k = &job->kernels;
    bool buckets = w->sharding == WORKLOAD_REPLICATED || w->sharding == WORKLOAD_DISTRIBUTED_OPTIMIZER;
    set_attention(job, w);
    set_states(job, w);
    w->bias_apart = !k->bias_gelu_fusion;
    if (buckets)
        w->overlaps_gradients = job->shards.overlap_reduce;
}

static void set_workload(const struct training_job *job, struct workload *w)
{
    const struct job_kernels *k = &job->kernels;
    set_workload_of_both(job, w);
    w->gate = k->bias_swiglu_fusion ? WORKLOAD_GATE_FUSED : WORKLOAD_GATE_WRITTEN;
    w->fp8 = k->fp8;
    w->fp8_weights = k->fp8 && k->fp8_gather;
    if (job_says(k->loss_implementation, "te"))
        w->loss = WORKLOAD_LOSS_FUSED; /* TE's kernel writes the gradient over the logits */
}

/* ---- what no rule is about ---- */

static const char *foreign_recompute(const struct training_job *job, const struct workload *w)
{
    const struct job_recompute_choice *r = &job->recompute;
    if (r->granularity == JOB_RECOMPUTE_NONE)
        return NULL;
    if (r->granularity == JOB_RECOMPUTE_FULL && r->method == JOB_METHOD_UNIFORM && r->layers > 1)
        return "recomputation in chunks of several layers";
    if (r->unruled)
        return arena_printf(job->facts.arena, "recomputation of %s (--recompute-modules)", r->unruled);
    return r->partitioned && w->tp > 1 ? "kept inputs that are split over tensor-parallel ranks" : NULL;
}

static const char *foreign(const struct training_job *job, const struct workload *w)
{
    if (job->kernels.fp8 && (job->framework != &megatron_framework || !job->kernels.transformer_engine))
        return "fp8 other than Transformer Engine's (--fp8-format)";
    if (job->model.extra_layers)
        return "layers that predict further tokens (--mtp-num-layers)";
    return foreign_recompute(job, w);
}

/* ---- the entries ---- */

static const char programs[] = "pretrain_*";

static const struct framework_modules modules = {
    .library = library,
    .workload = set_workload,
    .foreign = foreign,
    .optimizer = "adam",
};

static const char vital[] = "--vocab-size|--padded-vocab-size|--tokenizer-type|--vocab-file --bf16|--fp16";

const struct framework megatron_framework = {
    .name = "Megatron-LM",
    .version = MEGATRON_VERSION,
    .programs = programs,
    .vital = vital,
    .is = is_any,
    .read = megatron_read,
    .changes = megatron_changes,
    .modules = &modules,
};

static const struct framework_modules modules_of_fork = {
    .library = library_of_fork,
    .workload = set_workload_of_both,
    .foreign = foreign,
    .optimizer = "adam",
};

const struct framework megatron_deepspeed_framework = {
    .name = "Megatron-DeepSpeed",
    .version = MEGATRON_DEEPSPEED_VERSION,
    .programs = programs,
    .vital = vital,
    .is = is_fork,
    .read = megatron_read,
    .changes = megatron_changes,
    .modules = &modules_of_fork,
};
