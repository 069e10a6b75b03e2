/* Memory over time on one rank: the live bytes after every event, by role, and from when until when each tensor lived. Built
 * from a run's recorded events or from a walk over a program; there time is counted in operations.
 *
 * More events than a picture can use become buckets, of each of which the lowest and the highest moment stay: what is left
 * are real moments, and the peak is always one of them. */
#ifndef MEMPLAN_REPORTS_SERIES_H
#define MEMPLAN_REPORTS_SERIES_H

#include "base/arena.h"
#include "base/error.h"
#include "base/role.h"
#include "model/program.h"
#include "profiler/store.h"

#include <stdint.h>

enum series_axis {
    SERIES_NANOSECONDS, /* since the start of the run */
    SERIES_OPERATIONS,  /* done so far in the step */
};

struct series_point {
    int64_t at;
    int64_t event;     /* its number, from 0 */
    int64_t operation; /* index in `operations`; -1: outside all */
    int64_t live_bytes, by_role[ROLE_COUNT];
    int step; /* counted from 1; 0: before the first */
};

struct series_tensor {
    const char *name; /* "qkv", without its layer; "(no tensor)" */
    enum role role;
    int64_t layer, micro_batch; /* -1: of none */
};

struct series_life {
    int64_t tensor; /* index in `tensors` */
    int64_t bytes;
    int64_t born, died; /* alive from event `born` until before event `died`; INT64_MAX: to the end */
};

struct series_operation {
    const char *kind, *phase, *part; /* "matmul", "forward", "layer 3"; part is NULL when it is unknown or none */
    int64_t micro_batch;             /* -1: of none */
};

struct series_step {
    int step; /* counted from 1; 0: before the first */
    int64_t first_at, last_at, events;
    struct series_point highest; /* the first of the highest */
};

struct series {
    enum series_axis axis;
    int64_t rank;
    int64_t events; /* that happened; points are as many or fewer */
    struct series_point *points;
    int64_t point_count, peak; /* points[peak] is the first of the highest */
    struct series_life *lives; /* of which a point tells, in order of birth */
    int64_t life_count;
    struct series_tensor *tensors;
    int64_t tensor_count;
    struct series_operation *operations;
    int64_t operation_count;
    struct series_step *steps; /* in order */
    int64_t step_count;
};

enum { SERIES_ALL = 0 };

/* Everything lives as long as the arena. `limit` is about the number of points (SERIES_ALL: one for each event). *out is NULL
 * when the rank recorded no memory. `program` is that of the rank, or NULL. */
int series_of_run(struct store *store, int64_t run_id, int64_t rank, const struct program *program, int64_t limit,
                  struct arena *arena, struct series **out, struct error *err);
/* One step of a rank that runs the program. */
struct series *series_of_program(const struct program *program, int64_t rank, int64_t limit, struct arena *arena);

/* For those who build one: an event at a time, in order. */

struct series_event {
    int64_t at, operation, tensor; /* indices, as above */
    int64_t bytes;                 /* > 0 taken, < 0 given back */
    int64_t live_bytes;            /* after it */
    int64_t key;                   /* the same when it is taken and when it is given back */
    enum role role;
    int step;
};

struct series_builder;
/* `events` will be added at most; more are left out. */
struct series_builder *series_begin(struct arena *arena, int64_t events, int64_t limit);
void series_add(struct series_builder *builder, const struct series_event *event);
/* Frees the builder. Tensors, operations and the axis are the caller's to set. */
struct series *series_end(struct series_builder *builder);

#endif
