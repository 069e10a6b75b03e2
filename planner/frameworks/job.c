#include "planner/frameworks/job.h"

#include "base/checked.h"

int64_t job_chunk_layers(const struct job *job, int64_t chunk)
{
    int64_t chunks = layout_chunks(&job->layout), fewer = chunks > 1 ? job->fewer_at_ends : 0;
    int64_t layers = job->model.layers + 2 * fewer;
    return layers / chunks + (chunk < layers % chunks) - (chunk == 0 || chunk == chunks - 1 ? fewer : 0);
}

int64_t job_stage_layers(const struct job *job, int64_t stage)
{
    int64_t layers = 0;
    for (int64_t g = stage; g < layout_chunks(&job->layout); g += job->layout.pp)
        layers += job_chunk_layers(job, g);
    return layers;
}

/* The table of model/schedule.h, in micro-batches. Under zb-h1 a stage keeps what it waits to finish besides. */
double job_kept_micro_batches(const struct job *job, int64_t stage)
{
    const struct layout *l = &job->layout;
    int64_t m = layout_micro_batches(l), later = l->pp - stage - 1, v = l->virtual_stages;
    switch (l->schedule) {
    case SCHEDULE_GPIPE:
        return (double)m;
    case SCHEDULE_INTERLEAVED:
        return (double)min_i64(v * m, 2 * later + (v - 1) * l->pp + 1) / (double)v;
    case SCHEDULE_ZB_H1:
        return (double)min_i64(m, l->pp);
    default:
        return (double)min_i64(m, later + 1);
    }
}
