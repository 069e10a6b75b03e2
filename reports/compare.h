/* A plan against a run of it, or one run against another: the bytes of every rank and role at the peak, side by side. */
#ifndef MEMPLAN_REPORTS_COMPARE_H
#define MEMPLAN_REPORTS_COMPARE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"
#include "base/role.h"
#include "model/pipeline.h"
#include "profiler/store.h"
#include "reports/breakdown.h"
#include "reports/report.h"

#include <stdbool.h>
#include <stdint.h>

struct compare_row {
    int64_t rank;
    enum role role;
    int64_t predicted_bytes; /* of two runs: what the first one measured */
    int64_t measured_bytes;  /* of two runs: what the second one measured */
};

/* What changed on one rank. */
struct compare_change {
    const char *name; /* NULL: a whole layer */
    int64_t layer;    /* -1: of no layer */
    enum role role;
    int64_t before_bytes, after_bytes;
};

struct comparison {
    bool runs;                  /* run against run */
    const char *first, *second; /* "the plan", "run 3" */
    const char *remark;         /* why they may differ, or NULL */
    struct compare_row *rows;   /* ROLE_COUNT for each rank, in order of rank, then of role */
    int64_t row_count;

    /* The largest difference of a row or of a rank's sum, and the largest as a part of its rank's measured peak (of two
     * runs: the first one's). */
    int64_t max_error_bytes;
    double max_error_fraction;

    /* On the rank where the second run is highest (of a plan: the first that needs most), most changed first. Empty when a run
     * recorded no events, or a plan and its run agree. */
    int64_t changed_rank;
    bool staged; /* the second run had several stages */
    struct compare_change *layers, *tensors;
    int64_t layer_count, tensor_count;

    /* Likewise, whether the change moved the peak: to another operation, of whatever step. */
    bool located; /* both moments are known */
    bool moved;
    struct breakdown_moment first_moment, second_moment;
    int64_t arrived_bytes, left_bytes; /* of tensors alive at the second's peak only, at the first's only */
    int64_t arrived, left;             /* how many */
};

/* Everything lives as long as the arena. Both refuse a run whose ranks have no final figures. The first holds each rank
 * against its own stage's program, and also refuses a run that trained another model or had another number of ranks: it is no
 * run of that plan. */
int compare_plan_with_run(const struct pipeline *plan, struct store *store, int64_t run_id,
                          struct arena *arena, struct comparison *out, struct error *err);
/* The two stores may be the same. Ranks that only one run has are left out. */
int compare_runs(struct store *before, int64_t before_id, struct store *after, int64_t after_id,
                 struct arena *arena, struct comparison *out, struct error *err);

/* The ROLE_COUNT rows of the rank that differs most. */
const struct compare_row *compare_worst(const struct comparison *comparison);

struct report *compare_report(const struct comparison *comparison, struct arena *arena);
/* New reference. */
json_t *compare_to_json(const struct comparison *comparison);

#endif
