/* Measured cases against predictions: every row's error, and what they add up to. */
#ifndef MEMPLAN_BENCH_SCORE_CASES_H
#define MEMPLAN_BENCH_SCORE_CASES_H

#include "base/arena.h"
#include "base/json.h"

/* Appends a table to `table`; *rows and *totals are new references. Fails when the file is no list of cases. */
int cases_score(const char *path, struct arena *arena, struct text *table, json_t **rows, json_t **totals,
                struct error *err);

#endif
