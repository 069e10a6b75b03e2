/* When each stage of a pipeline does what, within one step: time_model_pipeline() told as a story. Within a pass of a chunk its
 * layers are taken together: first what it recomputes, then what it computes, then what it exchanges with the other ranks of its
 * stage. */
#ifndef MEMPLAN_PLANNER_STEP_SPANS_H
#define MEMPLAN_PLANNER_STEP_SPANS_H

#include "base/arena.h"
#include "model/pipeline.h"
#include "planner/machine_speed.h"

#include <stdint.h>

enum step_work {
    STEP_FORWARD,
    STEP_BACKWARD, /* where it is in two halves, that of activations */
    STEP_WEIGHTS,  /* the other half */
    STEP_RECOMPUTE,
    STEP_EXCHANGE, /* in a layer, where computing waits for it; or what shows of sums over ranks behind backward */
    STEP_OPTIMIZER,
    STEP_WORKS,
};

struct step_span {
    double start_s, end_s; /* since the step began */
    enum step_work work;
    int64_t micro_batch; /* -1: of none */
};

/* One after another; between them the stage waits. */
struct step_lane {
    struct step_span *spans;
    int64_t count;
};

/* Sets lanes[pipeline->count], which live as long as the arena, and *total_s, the whole step. Fails as
 * time_model_pipeline() does. */
int step_spans_find(const struct pipeline *pipeline, const struct machine_speed *speed, struct arena *arena,
                    struct step_lane *lanes, double *total_s, struct error *err);

#endif
