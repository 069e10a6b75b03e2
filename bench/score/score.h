/* How true the planner is about jobs that others measured. */
#ifndef MEMPLAN_BENCH_SCORE_SCORE_H
#define MEMPLAN_BENCH_SCORE_SCORE_H

#include "base/json.h"
#include "bench/score/csv.h"
#include "planner/frameworks/workload_memory.h"
#include "planner/frameworks/workload_time.h"

#include <stdbool.h>

/* What the trainer of the sweep holds that no rule is about: of its code a later version is public, which does not explain it
 * (docs/time-model.md, section 10). */
struct trainer {
    double gathered_bytes; /* for each logit that tensor-parallel ranks gather */
    double activation_share; /* of activations, in fragments */
};
extern const struct trainer sweep_trainer;

/* What is known of one row, before and after. Seconds and bytes are NAN where a table has none. */
struct verdict {
    const char *problem; /* rows of a problem compete with each other */
    const char *model;   /* its name */
    const char *where;   /* file and line */
    struct workload job;
    double measured_s, predicted_s;
    double allocated_bytes;        /* measured */
    struct workload_memory memory; /* predicted */
    double needed_bytes, doubt_bytes; /* of a card, by all; and give or take */
    const struct trainer *trainer; /* NULL: what rules say is all */
    bool fits, sure;               /* predicted; and with doubt kept free */
    bool out_of_memory;            /* measured */
    bool fitted;                   /* constants were fitted to this row among others */
};

struct verdicts {
    struct verdict *rows;
    int count;
    int refused;         /* rows that no rule predicts */
    struct error reason; /* of the first */
};

/* Which rows to add up. */
enum share { SHARE_ALL, SHARE_FITTED, SHARE_NOT_FITTED };

/* Read rows, with their measurements. *out is the arena's. A row that says what cannot be is refused by file, line and value. */
int rows_read_sweep(const char *path, struct arena *arena, struct verdicts *out, struct error *err);
int rows_read_steps(const char *path, struct arena *arena, struct verdicts *out, struct error *err);
int rows_read_published(const char *path, struct arena *arena, struct verdicts *out, struct error *err);

/* Fills what is predicted, for A100-80GB, eight a node with eight ports of 200 Gb/s. What cannot be predicted is left out, and
 * counted. */
int verdicts_predict(struct verdicts *verdicts, struct error *err);
/* Seconds alone, with other habits; outcomes alone, with another trainer. */
int verdicts_predict_times(struct verdicts *verdicts, const struct workload_habits *habits, struct error *err);
int verdicts_predict_memory(struct verdicts *verdicts, const struct trainer *trainer, struct error *err);

/* Relative errors of seconds; or, where those are not measured, of allocated bytes. */
struct errors {
    int count;
    double mean, most, bias;
};
double verdict_error(const struct verdict *verdict); /* NAN when nothing was measured */
/* Of the rows of one problem, or with NULL of all. */
struct errors verdicts_errors(const struct verdicts *verdicts, const char *problem, enum share share);

struct outcomes {
    int count, missed, false_alarms;
};
struct outcomes verdicts_outcomes(const struct verdicts *verdicts, enum share share);

/* Of each problem, what a careful planner would run: of the plans that fit with doubt kept free, the fastest; where others are slower by
 * less than the time model can tell, the one with most room. */
struct choices {
    int problems, out_of_memory;
    double mean_regret, most_regret;
    int best; /* picks that were the fastest measured */
};
struct choices verdicts_choices(const struct verdicts *verdicts);
/* The pick of a problem, NULL when nothing fits; and the fastest that was measured. */
const struct verdict *verdicts_pick(const struct verdicts *verdicts, const char *problem);
const struct verdict *verdicts_fastest(const struct verdicts *verdicts, const char *problem);
/* Is row `row` the first of its problem? */
bool verdicts_first(const struct verdicts *verdicts, int row);

json_t *verdicts_to_json(const struct verdicts *verdicts);

#endif
