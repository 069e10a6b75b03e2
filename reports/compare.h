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
#include "reports/layout_table.h"
#include "reports/report.h"
#include "reports/stage_table.h"

#include <stdbool.h>
#include <stdint.h>

/* Which rank of a run stands beside which of the other. */
enum compare_pairing {
    COMPARE_BY_RANK,  /* equal numbers: the layouts agree on what a rank does, or nobody says what they are */
    COMPARE_BY_STAGE, /* as many stages, with ranks laid out otherwise: of each stage the rank with the highest peak */
    COMPARE_FULLEST,  /* nothing in common: of each run the rank with the highest peak */
};

struct compare_row {
    int64_t rank;        /* of two runs: the second's */
    int64_t before_rank; /* of two runs: the first's */
    int64_t stage;       /* by stage: of the pipeline */
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
    const char *first, *second; /* "the plan", "run 3"; of two runs the names of their files */
    const char *remark;         /* of two runs: other models, and why ranks are not paired by number; or NULL */
    struct layout_facts layouts[2]; /* `layout` is NULL where a recording does not say what it was */
    enum compare_pairing pairing; /* of a plan by rank */
    struct compare_row *rows; /* ROLE_COUNT for each pair of ranks, in order of rank or stage, then of role */
    int64_t row_count;

    struct stage_bytes stage_peaks[2]; /* the highest of each stage, where ranks are not paired by number; else none */

    /* The largest difference of a row or of a rank's sum, and the largest as a part of its rank's measured peak (of two
     * runs: the first one's). */
    int64_t max_error_bytes;
    double max_error_fraction;

    /* On the rank where the second run is highest (of a plan: the first that needs most), most changed first. Empty when a run
     * recorded no events, or a plan and its run agree. */
    int64_t changed_rank, changed_before_rank; /* of two runs: the second's, and the first's */
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

struct compare_run {
    struct store *store; /* both may be the same */
    int64_t run_id;
    const char *name; /* "run.db", or "run.db (run 2)"; borrowed */
};
/* The first run is what was before. Where their layouts differ, ranks are paired by what they do (enum compare_pairing). */
int compare_runs(const struct compare_run runs[2], struct arena *arena, struct comparison *out, struct error *err);

/* The ROLE_COUNT rows of the rank that differs most. */
const struct compare_row *compare_worst(const struct comparison *comparison);
/* What a pair of ranks is called, within a sentence: "rank 3", "the fullest rank of stage 1", "the fullest rank". */
const char *compare_pair_name(const struct comparison *comparison, const struct compare_row *row, struct arena *arena);

struct report *compare_report(const struct comparison *comparison, struct arena *arena);
/* New reference. */
json_t *compare_to_json(const struct comparison *comparison);

#endif
