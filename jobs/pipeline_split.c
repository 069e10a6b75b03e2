#include "jobs/pipeline_split.h"

#include <string.h>

int64_t *pipeline_split_new(struct training_job *job, int64_t count)
{
    int64_t *layers = arena_array(job->facts.arena, (size_t)count, sizeof *layers);
    memset(layers, 0, (size_t)count * sizeof *layers);
    return layers;
}

void pipeline_split_note(struct training_job *job, int64_t count, const char *origin)
{
    const int64_t *layers = job->layout.chunk_layers;
    struct text list = {0};
    bool even = true;
    for (int64_t i = 0; i < count; i++) {
        even = even && layers[i] == layers[0];
        text_printf(&list, i ? ", %lld" : "%lld", (long long)layers[i]);
    }
    if (!even)
        job_note(job, FACT_DERIVED, "layers of the pipeline's chunks",
                 arena_strdup(job->facts.arena, list.data), origin);
    text_free(&list);
}
