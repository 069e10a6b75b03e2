/* One stage of a pipeline, weighed without building it: what it has, and what it takes. The bytes that it needs with so many layers,
 * and what these should drop, are stage_choice.h's. */
#ifndef MEMPLAN_PLANNER_STAGES_H
#define MEMPLAN_PLANNER_STAGES_H

#include "planner/costs.h"

#include <stdbool.h>
#include <stdint.h>

/* While a chunk runs a pass: how many micro-batches of each kind of chunk are kept meanwhile. */
struct stage_moment {
    enum schedule_work work;
    int kind;
    int64_t kept[2], later[2]; /* for backward, and for its weight half */
};

/* Stages one after another that stand on devices of the same kind. */
struct stage_ground {
    int64_t stages;
    const struct machine_speed *speed;
    const struct costs *costs; /* at that speed */
    int64_t room;              /* bytes of tensors that a rank may have at the peak */
};

struct stage {
    int64_t number; /* of the pipeline */
    int ground;     /* counted from the first stage on */
    const struct machine_speed *speed;
    const struct costs *costs;
    int64_t room;
    int kinds;      /* of chunks: those with the embedding or the head differ from others of their stage */
    int64_t chunks[2];
    enum cost_part bottom[2], top[2];
    struct stage_moment *moments; /* all that may be the peak; owned */
    int moment_count;
    int64_t state_bytes, layer_state_bytes; /* of its ends, scalars and buffers; of a layer of each chunk */
};

/* What the stages of a layout have in common. */
struct stages {
    const struct model *model;
    struct layout layout;
    struct stage *list; /* pp of them; owned */
    /* What choices may still cost, in comparisons of a few ns; with none left stage_choice_find() makes do with quick ones. NULL:
     * as many as they take. */
    int64_t *effort;
};

/* `layout` is complete; the grounds, with costs of that layout, are of all its stages. */
void stages_open(const struct model *model, const struct layout *layout, const struct stage_ground *grounds,
                 struct stages *out);
void stages_close(struct stages *stages);

/* Micro-batches that stage `stage` keeps at least, when it keeps most: without going through the schedule. */
int64_t stages_in_flight(const struct layout *layout, int64_t stage);

/* Seconds of one micro-batch through a chunk. */
struct stage_passes {
    double forward_s, input_s, weight_s; /* exchanges and recomputation included */
};
struct stage_passes stages_passes(const struct stages *stages, int64_t stage, int64_t layers, int kind,
                                  double recompute_s);

/* A stage as a program that has its runs and buckets, and nothing else: enough for what comes behind backward. */
struct stage_sketch {
    struct program program;
    struct step_frame frame;
    struct timed_run *runs;
};
void stages_sketch(const struct stages *stages, int64_t stage, int64_t layers, struct stage_sketch *out);
void stage_sketch_clear(struct stage_sketch *sketch);
struct stage_tail stage_sketch_tail(struct stage_sketch *sketch, const double recompute_s[2]);

/* Which kind the stage's chunk `chunk` is. */
int stages_kind(const struct stages *stages, int64_t stage, int64_t chunk);

#endif
