#include "cli/job_verdict.h"

#include "base/checked.h"
#include "jobs/job_workload.h"

int job_verdict_make(const struct training_job *job, const struct rank_device *device, int64_t stage,
                     struct job_verdict *out, struct error *err)
{
    struct workload w;
    if (job_workload(job, &w, err))
        return -1;
    w.capacity_bytes = device->capacity_bytes;
    if (device->card && device->card->cublas_workspace_bytes)
        w.cublas_bytes = device->card->cublas_workspace_bytes;
    return job_verdict_of(&w, job->launch.ranks, stage, out, err);
}

int job_verdict_of(const struct workload *w, int64_t ranks, int64_t stage, struct job_verdict *out,
                   struct error *err)
{
    *out = (struct job_verdict){.workload = *w, .capacity_bytes = w->capacity_bytes};
    int failed = stage < 0 ? workload_memory(w, &out->memory, err)
                           : workload_stage_memory(w, min_i64(stage, w->pp - 1), &out->memory, err);
    if (failed)
        return -1;
    /* Pipelines are the outermost of all groups in Megatron-LM, DeepSpeed and torchtitan alike. */
    out->ranks = ranks / w->pp;
    out->first_rank = out->memory.stage * out->ranks;
    out->needed_bytes = workload_odds_needed_bytes(w, &out->memory);
    const struct workload_memory *m = &out->memory;
    out->fragment_bytes =
        out->needed_bytes - m->peak.bytes - m->context_bytes - m->nccl_bytes - m->doubt_bytes;
    out->probability = workload_odds_fits(w, &out->memory, &out->jobs);
    out->fits = out->probability >= 0.5;
    for (int i = 0; i < WORKLOAD_FIGURES; i++) {
        out->intervals[i] = workload_odds_interval(
            w, (enum workload_figure)i, workload_figure_bytes(&out->memory, (enum workload_figure)i));
        if (out->fits) /* no tool will show more than there is */
            out->intervals[i].high_bytes = min_i64(out->intervals[i].high_bytes, out->capacity_bytes);
    }
    return 0;
}
