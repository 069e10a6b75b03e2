/* One stage of a pipeline, weighed without building it: what it has, and what it takes. The bytes that it needs with so many layers,
 * and what these should drop, are stage_choice.h's. */
#ifndef MEMPLAN_PLANNER_STAGES_H
#define MEMPLAN_PLANNER_STAGES_H

#include "planner/costs.h"

#include <stdbool.h>
#include <stdint.h>

/* Where the larger chunks of all stages of a layout are, if there are any. The last ones keep fewer micro-batches, and are not waited for
 * when the pipeline fills; nor are the first ones between a micro-batch's way in and its way back. In all stages alike, or they would wait
 * for each other in turn. */
enum larger_chunks { LARGER_NONE, LARGER_LAST, LARGER_FIRST };

/* How the layers of a stage are shared out over its chunks: as evenly as they go, what is over to the larger ones. The chunk with the embedding or the head is none of these where there are others: it may be shorter, down to no
 * layers. (What the search plans is narrower: cells.c.) */
struct stage_split {
    int64_t layers; /* of all chunks of the stage */
    int64_t end;    /* of the chunk with the embedding or the head; -1: the stage has none apart from others */
};

/* What tells the chunks of a stage apart. */
enum chunk_kind {
    CHUNK_EVEN,  /* of a stage with one chunk the only kind, with whatever ends it has */
    CHUNK_LARGER, /* with a layer more */
    CHUNK_END,
    CHUNK_KINDS,
};

/* A stage with its layers. */
struct stage_form {
    struct stage_split split;
    int64_t counts[CHUNK_KINDS], heights[CHUNK_KINDS]; /* chunks, and layers of each; even chunks are always there */
    int kinds;                                         /* those beyond do not occur */
};

/* While a chunk runs a pass: how many micro-batches of each kind of chunk are kept meanwhile. */
struct stage_moment {
    enum schedule_work work;
    int kind;
    int64_t kept[CHUNK_KINDS], later[CHUNK_KINDS]; /* for backward, and for its weight half, which stages with one chunk alone have */
};

/* All that may be the peak. */
struct stage_moments {
    struct stage_moment *list; /* NULL: not known yet */
    int count;
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
    bool apart;     /* it has a chunk with the embedding or the head, and others */
    enum cost_part bottom[CHUNK_KINDS], top[CHUNK_KINDS];
    struct stage_moments *moments; /* by how many chunks are larger; owned */
    int64_t state_bytes, layer_state_bytes; /* of the ends of its chunks, scalars and buffers; of a layer */
};

/* What the stages of a layout have in common. */
struct stages {
    const struct model *model;
    struct layout layout;
    enum larger_chunks larger;
    struct stage *list; /* pp of them; owned */
    /* What choices may still cost, in comparisons of a few ns; with none left stage_choice_find() makes do with quick ones. NULL:
     * as many as they take. */
    int64_t *effort;
    double after_s; /* when all have met at least so much is left to do, however layers are shared out; 0: not known */
    struct schedule_memory *schedules; /* of all layouts; NULL: this one is alone */
};

/* `layout` is complete; the grounds, with costs of that layout, are of all its stages. */
void stages_open(const struct model *model, const struct layout *layout, const struct stage_ground *grounds,
                 enum larger_chunks larger, struct stages *out);
void stages_close(struct stages *stages);

/* Do all chunks of a stage have as many layers? An encoder's do: its first layer, which is a part of its own, is the lowest of one
 * chunk then, and all others have one as high. */
bool stages_are_alike(const struct model *model);

struct stage_form stages_form(const struct stages *stages, int64_t stage, struct stage_split split);
/* Which kind the stage's chunk `chunk` is; its layers are that kind's height. */
enum chunk_kind stages_kind(const struct stages *stages, int64_t stage, const struct stage_form *form, int64_t chunk);
/* They stay as long as the stages. */
const struct stage_moments *stages_moments(const struct stages *stages, int64_t stage, const struct stage_form *form);

/* (Chunk, micro-batch) pairs that stage `stage` keeps at least, when it keeps most: without going through the schedule. */
int64_t stages_in_flight(const struct layout *layout, int64_t stage);

/* Seconds of one micro-batch through a chunk. */
struct stage_passes {
    double forward_s, input_s, weight_s; /* exchanges and recomputation included */
};
struct stage_passes stages_passes(const struct stages *stages, int64_t stage, const struct stage_form *form, int kind,
                                  double recompute_s);

/* A stage as a program that has its runs and buckets, and nothing else: enough for what comes behind backward. */
struct stage_sketch {
    struct program program;
    struct step_frame frame;
    struct timed_run *runs;
    struct stage_form form;
};
void stages_sketch(const struct stages *stages, int64_t stage, const struct stage_form *form, struct stage_sketch *out);
void stage_sketch_clear(struct stage_sketch *sketch);
struct stage_tail stage_sketch_tail(struct stage_sketch *sketch, const double recompute_s[CHUNK_KINDS]);

#endif
