/* The step programs of a whole layout: one per pipeline stage, which all ranks of the stage run. */
#ifndef MEMPLAN_MODEL_PIPELINE_H
#define MEMPLAN_MODEL_PIPELINE_H

#include "model/program.h"

struct pipeline {
    int count;                 /* layout.pp */
    struct program *stages[];
};

/* `spec->stage` is ignored. On success *out is the caller's: pipeline_free(). */
int pipeline_create(const struct program_spec *spec, struct pipeline **out, struct error *err);
void pipeline_free(struct pipeline *pipeline); /* NULL is fine */

/* The program that rank `rank` of layout_ranks() runs. */
const struct program *pipeline_of_rank(const struct pipeline *pipeline, int64_t rank);
/* The stage that takes most memory at launch (arena_bytes), the first of them: not always stage 0. */
int pipeline_worst(const struct pipeline *pipeline);

#endif
