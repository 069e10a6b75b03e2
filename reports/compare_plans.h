/* Two plans side by side: where their layouts differ, who holds the bytes of the rank that has least left, and what a step is made of. */
#ifndef MEMPLAN_REPORTS_COMPARE_PLANS_H
#define MEMPLAN_REPORTS_COMPARE_PLANS_H

#include "base/arena.h"
#include "base/json.h"
#include "model/pipeline.h"
#include "reports/breakdown.h"
#include "reports/compare.h"
#include "reports/report.h"

#include <stdint.h>

enum compare_part {
    COMPARE_FORWARD,
    COMPARE_BACKWARD,
    COMPARE_RECOMPUTE,
    COMPARE_COMMUNICATION,
    COMPARE_BUBBLE,
    COMPARE_OPTIMIZER,
    COMPARE_PARTS,
};

struct compare_plan {
    const char *name; /* of its file */
    const char *device;
    const struct pipeline *pipeline;
    struct breakdown_room room;
    int64_t stage; /* that has least left */
    double seconds[COMPARE_PARTS], step_seconds; /* NAN: nobody here knows its device */
    double planned_seconds; /* of the step, with the rates that it was planned with; 0: its file says none */
};

/* The peaks of the ranks that have least left, as pictures of two runs would show them. */
struct comparison compare_plans_peaks(const struct compare_plan plans[2], struct arena *arena);
/* Lives as long as the arena, and borrows from the pipelines. */
struct report *compare_plans_report(const struct compare_plan plans[2], struct arena *arena);
/* {kind: "plans", first, second, layouts, peak_bytes, arena_bytes, needed_bytes, by_role, stage_arena_bytes, step_seconds,
 * planned_step_seconds, step_parts}: of each figure a pair, the first plan's and the second's. New reference. */
json_t *compare_plans_to_json(const struct compare_plan plans[2]);

#endif
