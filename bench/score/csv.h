/* Tables with a header line and commas between fields; no quotes. */
#ifndef MEMPLAN_BENCH_SCORE_CSV_H
#define MEMPLAN_BENCH_SCORE_CSV_H

#include "base/arena.h"
#include "base/error.h"

#include <stdint.h>

struct csv {
    int columns, rows;
    char **names;  /* by column */
    char ***cells; /* by row and column */
};

/* Lines that begin with '#' are left out. Everything belongs to the arena. */
int csv_read(const char *path, struct arena *arena, struct csv *out, struct error *err);
/* "" when there is no such column. */
const char *csv_text(const struct csv *csv, int row, const char *column);
int64_t csv_int(const struct csv *csv, int row, const char *column, int64_t otherwise);
double csv_real(const struct csv *csv, int row, const char *column); /* NAN when empty */

#endif
