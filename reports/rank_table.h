/* Who needs how much: the ranks of a plan stage by stage, those of a run rank by rank, equal ones named once. */
#ifndef MEMPLAN_REPORTS_RANK_TABLE_H
#define MEMPLAN_REPORTS_RANK_TABLE_H

#include "base/json.h"
#include "base/role.h"
#include "reports/report.h"

#include <stdbool.h>
#include <stdint.h>

/* All ranks of a stage, or one rank of a run. */
struct rank_row {
    int64_t stage;         /* of the pipeline; -1: unknown */
    int64_t first, count;  /* ranks */
    const int64_t *layers; /* of the stage, rising; NULL: unknown */
    int64_t layer_count;
    int64_t peak_bytes, arena_bytes, by_role[ROLE_COUNT];
    int64_t predicted_bytes; /* beside what was measured; -1: none */
    const char *device;      /* of the stage, where stages have different ones; else NULL */
};

/* Adds a section with peaks and, when there are several stages, one by role; none where all rows are equal and of one stage.
 * Rows are in order of rank, and have one rank each or are one each of a stage. */
void rank_table_add(struct report *report, const struct rank_row *rows, int64_t count, bool measured);

/* [{stage, first_rank, ranks, layers, peak_bytes, arena_bytes, by_role}], of a run with predicted_bytes. New reference. */
json_t *rank_table_to_json(const struct rank_row *rows, int64_t count, bool measured);

#endif
