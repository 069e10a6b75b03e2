#include "cli/job_verdict.h"

#include "base/arena.h"
#include "cli/capacity.h"
#include "model/recompute.h"

#include <string.h>

/* ---- what is in the way ---- */

static const char *foreign_framework(const struct training_job *job)
{
    static const char *const names[] = {
        [JOB_HF_TRAINER] = "the Trainer's memory (autocast, the loss on whole logits, foreach optimizers)",
        [JOB_TORCHTITAN] = "torchtitan's memory (FSDP2 units, mixed precision)",
        [JOB_MEGATRON_DEEPSPEED] = "DeepSpeed's engine (its flat buffers and buckets)",
    };
    return names[job->framework];
}

static const char *foreign_sharding(const struct training_job *job)
{
    switch (job->shards.sharding) {
    case JOB_REPLICATED:
    case JOB_DISTRIBUTED_OPTIMIZER:
        return NULL;
    case JOB_FSDP1:
    case JOB_FSDP2:
        return "fully sharded data parallelism";
    default:
        return "ZeRO through DeepSpeed";
    }
}

static const char *foreign_precision(const struct training_job *job)
{
    if (job->kernels.fp8)
        return "fp8";
    if (job->precision == JOB_FP32 || job->precision == JOB_BF16)
        return NULL;
    return job->precision == JOB_FP16 ? "fp16, whose gradients are kept in 16 bits"
                                      : "autocast, or 16-bit optimizer states";
}

static const char *foreign_layout(const struct training_job *job)
{
    const struct job_layout *l = &job->layout;
    if (l->cp > 1)
        return "context parallelism";
    if (l->ep > 1)
        return "expert parallelism";
    if (l->first_stage_layers || l->last_stage_layers || l->pipeline_layout || l->embedding_in_split ||
        l->loss_in_split)
        return "stages with different numbers of layers";
    if (l->pp > 1 && job->model.layers % (l->pp * l->virtual_stages))
        return "layers that do not divide over the stages";
    return NULL;
}

static const char *foreign_kernels(const struct training_job *job)
{
    const struct job_kernels *k = &job->kernels;
    if (job->model.hidden_dropout > 0 || job->model.attention_dropout > 0)
        return "dropout, whose masks are kept (it is 0.1 unless --attention-dropout and --hidden-dropout say "
               "0)";
    if (k->attention == JOB_EAGER || (k->attention == JOB_ATTENTION_DEFAULT && !k->transformer_engine))
        return "attention that keeps its scores (no --use-flash-attn, nor Transformer Engine)";
    return NULL;
}

static const char *foreign_optimizer(const struct training_job *job)
{
    const struct job_shards *s = &job->shards;
    const char *const types[] = {s->main_gradients, s->main_parameters, s->exp_avg, s->exp_avg_sq};
    if (job->optimizer.offload || s->offload_optimizer || s->offload_parameters)
        return "offloading to the host";
    if (job->optimizer.name && strcmp(job->optimizer.name, "adam"))
        return "an optimizer other than Adam";
    for (int i = 0; i < 4; i++)
        if (types[i] && strcmp(types[i], "fp32"))
            return "optimizer states below fp32";
    return job->adapter.rank ? "LoRA" : NULL;
}

static const char *foreign_recompute(const struct training_job *job)
{
    const struct job_recompute_choice *r = &job->recompute;
    if (r->partitioned || r->on_cpu)
        return "kept inputs that are split or moved to the host";
    if (r->modules && r->granularity == JOB_RECOMPUTE_SELECTIVE && strcmp(r->modules, "core_attn"))
        return "recomputation of chosen modules";
    if (r->granularity == JOB_RECOMPUTE_FULL && (r->method != JOB_METHOD_UNIFORM || r->layers > 1))
        return "recomputation of blocks of layers, or of some of them";
    return NULL;
}

static int refuse(const char *feature, struct error *err)
{
    return error_set(
        err,
        "no verdict for this job: memplan does not predict %s; `memplan check --explain` shows what was "
        "understood",
        feature);
}

static int check_features(const struct training_job *job, struct model *model, struct error *err)
{
    const char *(*const checks[])(const struct training_job *) = {
        foreign_sharding,  foreign_precision, foreign_layout,    foreign_kernels,
        foreign_optimizer, foreign_recompute, foreign_framework,
    };
    const char *why = NULL;
    if (!job_model_to_model(&job->model, model, &why))
        return refuse(why, err);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if ((why = checks[i](job)))
            return refuse(why, err);
    return 0;
}

/* ---- the job as a plan ---- */

static void set_recompute(const struct training_job *job, struct plan *plan)
{
    uint32_t mask = job->recompute.granularity == JOB_RECOMPUTE_SELECTIVE ? recompute_selective(&plan->model)
                    : job->recompute.granularity == JOB_RECOMPUTE_FULL    ? recompute_full(&plan->model)
                                                                          : 0;
    plan->recompute = host_alloc((size_t)plan->model.layers * sizeof *plan->recompute);
    for (int64_t i = 0; i < plan->model.layers; i++)
        plan->recompute[i] = mask;
}

static int make_plan(const struct training_job *job, struct plan *plan, struct error *err)
{
    const struct job_layout *l = &job->layout;
    plan->layout = (struct layout){
        .dp = l->dp,
        .tp = l->tp,
        .pp = l->pp,
        .virtual_stages = l->virtual_stages,
        .zero = job->shards.sharding == JOB_DISTRIBUTED_OPTIMIZER,
        .sequence_parallel = l->sequence_parallel && l->tp > 1,
        .micro_batch = job->batch.micro,
        .global_batch = job->batch.global,
        .seq_len = job->batch.sequence,
        .precision = job->precision == JOB_BF16 ? PRECISION_BF16 : PRECISION_FP32,
    };
    if (model_check(&plan->model, err) || layout_complete(&plan->layout, &plan->model, err))
        return -1;
    set_recompute(job, plan);
    return 0;
}

int job_verdict_make(const struct training_job *job, const char *device, int64_t memory,
                     struct job_verdict *out, struct error *err)
{
    struct job_verdict v = {.plan = {.capacity_bytes = INT64_MAX}};
    if (check_features(job, &v.plan.model, err) ||
        capacity_read_device(device, job->launch.ranks, &v.device, err))
        return -1;
    if (memory)
        v.device.capacity_bytes = memory;
    v.plan.capacity_bytes = v.device.capacity_bytes;
    if (make_plan(job, &v.plan, err) || plan_pipeline(&v.plan, &v.pipeline, err) ||
        prediction_make_pipeline(v.pipeline, &v.device, NULL, &v.answer, err)) {
        job_verdict_clear(&v);
        return -1;
    }
    *out = v;
    return 0;
}

void job_verdict_clear(struct job_verdict *verdict)
{
    pipeline_free(verdict->pipeline);
    plan_clear(&verdict->plan);
    *verdict = (struct job_verdict){0};
}
