/* Measured cases as workloads: each line of cases.jsonl, its numbers read here and its free text by the rules of case_rules.c.
 * What a case says and no rule reads is listed, and so is what it leaves out and was assumed. */
#ifndef MEMPLAN_BENCH_SCORE_MEASURED_CASES_H
#define MEMPLAN_BENCH_SCORE_MEASURED_CASES_H

#include "base/arena.h"
#include "base/json.h"
#include "planner/frameworks/workload.h"

struct measured_case {
    const char *id, *family, *scope, *framework, *quality, *what, *unit, *notes, *model;
    const json_t *record;
    struct workload workload;
    double value;       /* in bytes, or NAN for an outcome */
    bool out_of_memory; /* for an outcome */
    bool last_stage;    /* is what was logged */
    bool sequence_given;
    bool held_out;       /* rules were made without looking at it */
    const char *refused; /* why no workload can be made; NULL: it can */
    struct text unread, assumed;
};

struct measured_cases {
    struct measured_case *list;
    int count;
    json_t *records;
};

/* Everything lives as long as the arena, except records: measured_cases_close(). */
int measured_cases_open(const char *path, struct arena *arena, struct measured_cases *out, struct error *err);
void measured_cases_close(struct measured_cases *cases);

/* `value` in bytes, of a unit that names one; NAN. */
double measured_bytes(double value, const char *unit);

#endif
