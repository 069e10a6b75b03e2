/* Tables with a header line and commas between fields; no quotes. What is no number where one must be is refused by file, line
 * and value. */
#ifndef MEMPLAN_BENCH_SCORE_CSV_H
#define MEMPLAN_BENCH_SCORE_CSV_H

#include "base/arena.h"
#include "base/error.h"

#include <stdint.h>

struct csv {
    const char *path;
    int columns, rows;
    char **names;  /* by column */
    char ***cells; /* by row and column */
    int *lines;    /* of the file, by row, from 1 */
};

/* Lines that begin with '#' are left out. Everything belongs to the arena. Fails on a line with more or fewer fields than the first. */
int csv_read(const char *path, struct arena *arena, struct csv *out, struct error *err);
/* "" when there is no such column. */
const char *csv_text(const struct csv *csv, int row, const char *column);
/* A whole number from `least` on; `otherwise` where the field is empty or there is no such column. */
int csv_int(const struct csv *csv, int row, const char *column, int64_t least, int64_t otherwise, int64_t *out,
            struct error *err);
/* A number above 0; NAN where it is empty. */
int csv_real(const struct csv *csv, int row, const char *column, double *out, struct error *err);
/* Puts file and line before the message, and the column with its value. Returns -1. */
int csv_refuse(const struct csv *csv, int row, const char *column, struct error *err, const char *why);

#endif
