/* What a run trained, as the texts in its row of run.db say it: model, layout and recomputation, written by one function and
 * read back by another. Each may be missing: the file may be another tool's, or an older one. */
#ifndef MEMPLAN_REPORTS_RUN_SETUP_H
#define MEMPLAN_REPORTS_RUN_SETUP_H

#include "base/arena.h"
#include "base/json.h"
#include "model/pipeline.h"
#include "profiler/store.h"

#include <stdbool.h>

struct run_setup {
    bool has_model, has_layout;
    struct model model;
    struct layout layout;        /* complete when there is a model that it suits */
    const char *recompute;       /* as on the command line; NULL: unknown */
    const int64_t *chunk_layers; /* layers of each chunk of the pipeline; NULL: an even split */
};

/* For layout_json: the layout, with the recomputation and the layers of each chunk. New reference. */
json_t *run_setup_layout(const struct pipeline *pipeline);

/* Texts and arrays live as long as the arena. */
void run_setup_read(const struct store_run *run, struct arena *arena, struct run_setup *out);
/* The step programs that were run, whose ids the recording carries: pipeline_free(). NULL when the row does not say all. */
struct pipeline *run_setup_pipeline(const struct run_setup *setup);

#endif
