/* The highest moment of a step on one rank: who holds the bytes, layer by layer and tensor by tensor, and which operation
 * makes it. One struct for what a program foretells and for what a run recorded, so that both read alike. */
#ifndef MEMPLAN_REPORTS_BREAKDOWN_H
#define MEMPLAN_REPORTS_BREAKDOWN_H

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"
#include "base/role.h"
#include "model/pipeline.h"
#include "profiler/store.h"
#include "reports/rank_table.h"
#include "reports/report.h"

#include <stdbool.h>
#include <stdint.h>

struct breakdown_layer {
    int64_t layer; /* -1: of no layer */
    int64_t by_role[ROLE_COUNT];
};

struct breakdown_tensor {
    const char *name;         /* "layer 3 qkv"; "(no tensor)" for bytes of none */
    const char *dims, *dtype; /* NULL: unknown */
    enum role role;
    int64_t layer;
    int64_t micro_batch; /* -1: of none */
    int64_t bytes;
};

struct breakdown_moment {
    const char *operation;     /* NULL: outside all operations */
    const char *phase, *part;  /* "backward", "layer 3"; part is NULL when it is unknown or none */
    int64_t micro_batch;       /* -1: none */
    int64_t step;              /* counted from 1; 0: none */
};

/* NAN: unknown. */
struct breakdown_steps {
    int64_t count, first, last; /* the numbers of the first and the last step, counted from 1 */
    double first_seconds, median_seconds, last_seconds;
    double first_loss, last_loss;
    double tokens_per_s; /* of the median step */
};

/* Texts that are unknown are NULL. */
struct breakdown {
    bool measured;
    int64_t run_id; /* measured only, as all of this block */
    const char *command, *started_at, *finished_at, *host, *policy;
    int64_t planned_steps;             /* that it was to have; 0: unknown */
    int64_t lowest_peak, highest_peak; /* over all ranks */
    struct breakdown_steps steps;
    struct store_runtime *runtime; /* what a GPU held besides tensors */
    int64_t runtime_count;
    const char **notes; /* of the recording: sentences */
    int64_t note_count;
    bool foretold; /* there is a prediction beside */
    int64_t predicted[ROLE_COUNT];
    int64_t predicted_arena_bytes;
    double predicted_seconds;

    const char *model, *device, *layout, *recompute;
    int64_t rank, ranks;
    int64_t stages; /* of the pipeline; 0: unknown, and so is `place`, where the rank stands */
    struct layout_place place;
    const char *place_name; /* NULL: unknown, or the layout has data-parallel ranks only */
    struct rank_row *rows;  /* foretold: a stage each; measured: a rank each */
    int64_t row_count;
    int64_t capacity_bytes; /* INT64_MAX: none */
    int64_t runtime_bytes;  /* foretold: of the capacity, what no tensor owns; in no other figure here */
    int64_t peak_bytes, arena_bytes, by_role[ROLE_COUNT];
    bool detailed; /* whether what follows is known: events reach the peak */
    struct breakdown_moment moment;
    struct breakdown_layer *layers; /* by rising layer */
    int64_t layer_count;
    struct breakdown_tensor *tensors; /* alive then, the largest first */
    int64_t tensor_count;
    const char *advice;
};

/* What a rank has. */
struct breakdown_room {
    int64_t capacity_bytes; /* INT64_MAX: no limit */
    int64_t runtime_bytes;  /* of it, what context and libraries take */
};

/* Of the stage that needs most, with the others beside it. Everything lives as long as the arena and borrows from the
 * programs. `device` is a name, or NULL. */
struct breakdown breakdown_of_pipeline(const struct pipeline *pipeline, const char *device,
                                       const struct breakdown_room *room, struct arena *arena);
/* `rank` -1: the one with the highest peak. Fails for a run that recorded no memory. */
int breakdown_of_run(struct store *store, int64_t run_id, int64_t rank, struct arena *arena,
                     struct breakdown *out, struct error *err);

/* The parts of this about GPUs: fills in what was recorded of the rank, and adds its keys. */
int breakdown_read_gpu(struct store *store, struct arena *arena, struct breakdown *breakdown, struct error *err);
void breakdown_add_gpu_keys(json_t *object, const struct breakdown *breakdown);

/* "backward of layer 0: attention, step 3"; NULL outside all operations. And the same as keys, a new reference. */
const char *breakdown_moment_text(const struct breakdown_moment *moment, struct arena *arena);
json_t *breakdown_moment_to_json(const struct breakdown_moment *moment);

/* What layer -1 stands for: "embedding, head"; of a stage that may have neither "outside layers". */
const char *breakdown_outside(bool staged);

/* The sections of its report, one by one. */
void breakdown_add_facts(struct report *report, const struct breakdown *breakdown);
void breakdown_add_moment(struct report *report, const struct breakdown *breakdown);
void breakdown_add_tensors(struct report *report, const struct breakdown *breakdown);
void breakdown_add_gpu(struct report *report, const struct breakdown *breakdown);
void breakdown_add_steps(struct report *report, const struct breakdown *breakdown);

struct report *breakdown_report(const struct breakdown *breakdown, struct arena *arena);
/* New reference. */
json_t *breakdown_to_json(const struct breakdown *breakdown);

#endif
