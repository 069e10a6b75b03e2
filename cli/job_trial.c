#include "cli/job_trial.h"

#include "base/checked.h"
#include "jobs/job_workload.h"
#include "planner/frameworks/workload_time.h"

#include <math.h>

/* Stages that workload_memory() looks at, where there are as many: both ends, and the first between them. */
enum { STAGES_LOOKED_AT = 3 };

const double job_trial_sure = 0.9, job_trial_gain = 0.01;

int job_trial_read(const struct job_trials *trials, struct job_edits edits, struct arena *arena,
                   struct training_job *out)
{
    struct jobs_request launch = *trials->launch;
    struct error err = {0};
    launch.edits = edits;
    return jobs_read(&launch, arena, out, &err) || job_count(out, FACT_MISSING) ? -1 : 0;
}

double job_trial_seconds(const struct job_trials *trials, const struct workload *w, struct error *err)
{
    struct workload_time time;
    if (!trials->speeds) {
        error_set(err, "how fast this device is, is not known");
        return NAN;
    }
    if (workload_time(w, NULL, &trials->speeds[w->compute_bytes < 4], &time, err))
        return NAN;
    return time.seconds / (double)(w->dp * w->micro_batch * w->micro_batches);
}

/* Stages that are looked at, their layers, micro-batches until all moments were seen. */
int64_t job_trial_work(const struct workload *w, int64_t stages)
{
    int64_t layers = (w->model.layers + w->pp - 1) / w->pp;
    int64_t passes = w->virtual_stages > 1 ? 2 * w->pp : w->pp + 2;
    return min_i64(w->pp, min_i64(stages, STAGES_LOOKED_AT)) * layers * min_i64(w->micro_batches, passes);
}

int job_trial_judge(struct job_trials *trials, const struct training_job *job, int64_t first, double enough,
                    struct job_verdict *out, bool *partly, struct error *err)
{
    if (first >= 0) {
        if (job_verdict_make(job, trials->device, first, out, err))
            return -1;
        trials->work += job_trial_work(&out->workload, 1);
        *partly = out->workload.pp > 1;
        if (!*partly || out->probability < enough)
            return 0;
    }
    if (job_verdict_make(job, trials->device, -1, out, err))
        return -1;
    trials->work += job_trial_work(&out->workload, STAGES_LOOKED_AT);
    *partly = false;
    return 0;
}

/* Then a stage may as well have one of all its layers, of which no more is under way. */
static bool has_even_chunks(const struct workload *w)
{
    int64_t chunks = w->pp * w->virtual_stages;
    for (int64_t i = 1; w->chunk_layers && i < chunks; i++)
        if (w->chunk_layers[i] != w->chunk_layers[0])
            return false;
    return w->model.layers % chunks == 0;
}

bool job_trial_is_hopeless(struct job_trials *trials, const struct training_job *job, int64_t *needed_bytes)
{
    struct workload least;
    struct job_verdict verdict;
    struct error unheard = {0};
    *needed_bytes = INT64_MAX;
    if (job_workload(job, &least, &unheard))
        return true;
    least.capacity_bytes = trials->device->capacity_bytes;
    least.recompute = WORKLOAD_FULL;
    least.modules = 0;
    least.remade_layers = 0;
    least.micro_batch = 1;
    least.micro_batches = 1;
    if (has_even_chunks(&least)) {
        least.virtual_stages = 1;
        least.chunk_layers = NULL;
    }
    if (least.virtual_stages > 1) /* interleaved schedules have as many as stages */
        least.micro_batches = least.pp;
    least.allocator.expandable_segments = true;
    if (job_verdict_of(&least, job->launch.ranks, -1, &verdict, &unheard))
        return false;
    trials->work += job_trial_work(&least, STAGES_LOOKED_AT);
    *needed_bytes = verdict.needed_bytes;
    return verdict.probability < job_trial_sure;
}
