#include "model/pipeline.h"

#include "base/arena.h"

#include <stdlib.h>

int pipeline_create(const struct program_spec *spec, struct pipeline **out, struct error *err)
{
    int64_t count = spec->layout->pp;
    struct pipeline *pipeline = host_alloc(sizeof *pipeline + (size_t)count * sizeof *pipeline->stages);
    struct program_spec stage = *spec;
    for (stage.stage = 0; stage.stage < count; stage.stage++) {
        if (program_create_stage(&stage, &pipeline->stages[stage.stage], err)) {
            pipeline_free(pipeline);
            return -1;
        }
        pipeline->count++;
    }
    *out = pipeline;
    return 0;
}

void pipeline_free(struct pipeline *pipeline)
{
    if (!pipeline)
        return;
    for (int i = 0; i < pipeline->count; i++)
        program_free(pipeline->stages[i]);
    free(pipeline);
}

const struct program *pipeline_of_rank(const struct pipeline *pipeline, int64_t rank)
{
    return pipeline->stages[layout_place_of(&pipeline->stages[0]->layout, rank).stage];
}

int pipeline_worst(const struct pipeline *pipeline)
{
    int worst = 0;
    for (int i = 1; i < pipeline->count; i++)
        if (pipeline->stages[i]->arena_bytes > pipeline->stages[worst]->arena_bytes)
            worst = i;
    return worst;
}
