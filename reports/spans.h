/* What the ranks were doing, when: every recorded operation with what kind of work it is, and the stretches of equal work that
 * pictures draw; or what they are foretold to do. Time is in nanoseconds since the start of the run. */
#ifndef MEMPLAN_REPORTS_SPANS_H
#define MEMPLAN_REPORTS_SPANS_H

#include "base/arena.h"
#include "base/error.h"
#include "model/pipeline.h"
#include "profiler/store.h"

#include <stdbool.h>
#include <stdint.h>

enum activity {
    ACTIVITY_FORWARD,
    ACTIVITY_BACKWARD,
    ACTIVITY_WEIGHTS, /* its half that makes gradients of weights, where a schedule has it apart */
    ACTIVITY_RECOMPUTE, /* forward work done again for backward */
    ACTIVITY_OPTIMIZER,
    ACTIVITY_COMMUNICATION,
    ACTIVITY_WAIT, /* for a message, or for communication that runs beside */
    ACTIVITY_COUNT,
};

/* "forward", "backward", "weights", "recompute", "optimizer", "communication", "waiting". */
const char *activity_name(enum activity activity);

struct work_span {
    int64_t start_ns, end_ns;
    enum activity activity;
    int step;            /* counted from 1, as everywhere here */
    int64_t micro_batch; /* -1: of none */
    /* Of a stretch of several operations NULL; part also where it is unknown. */
    const char *kind, *phase, *part;
    const char *detail; /* the shape; NULL likewise */
    int64_t operations; /* 1, or how many a stretch has */
};

struct lane {
    int64_t rank, ranks;     /* of a plan all of a stage, from `rank` on; else 1 */
    int64_t stage;           /* -1: unknown */
    struct work_span *spans; /* by step, then by start */
    int64_t span_count;
    struct work_span *stretches; /* neighbours of the same activity and micro-batch as one, likewise */
    int64_t stretch_count;
    int64_t busy_ns[ACTIVITY_COUNT]; /* overlapping spans count once each */
    int64_t idle_ns;                 /* no operation ran */
};

struct timeline_step {
    int step;
    int64_t start_ns, end_ns; /* the earliest and the latest of all ranks */
};

struct timeline {
    const char *foretold; /* from what, as a sentence; NULL: it was recorded */
    struct lane *lanes;   /* by rank */
    int64_t lane_count;
    struct timeline_step *steps; /* rising */
    int64_t step_count;
    int64_t start_ns, end_ns;
};

/* One step of `length_ns` that a plan foretells. The caller has filled in the ranks and the stretches of the lanes, and keeps
 * them and the text for as long as the arena. */
struct timeline *spans_foretold(struct lane *lanes, int64_t count, int64_t length_ns, const char *how,
                                struct arena *arena);

enum { SPANS_LAST_STEP = 0, SPANS_ALL_STEPS = -1 };

/* Everything lives as long as the arena. `step`: a number, which must have been recorded, or one of the above. *out is NULL when no
 * operations were recorded. `pipeline` is what was run, or NULL. */
int spans_of_run(struct store *store, int64_t run_id, const struct pipeline *pipeline, int step,
                 struct arena *arena, struct timeline **out, struct error *err);

#endif
