/* The configurations that a search for a plan weighed: memory against time, and which one it chose. Read from the document
 * that `plan --json` writes. */
#ifndef MEMPLAN_REPORTS_CANDIDATES_H
#define MEMPLAN_REPORTS_CANDIDATES_H

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"
#include "reports/report.h"

#include <stdbool.h>
#include <stdint.h>

struct candidate {
    int64_t dp, tp, pp, micro_batch;
    const char *recompute;
    int64_t peak_bytes, arena_bytes;                                       /* 0: the search did not get that far */
    double step_seconds, recompute_seconds, exposed_communication_seconds; /* NAN: unknown */
    bool fits, chosen;
    const char *reason; /* why it was rejected, as too large or too slow; NULL: it was not */
};

struct candidates {
    int64_t capacity_bytes; /* INT64_MAX: none */
    int64_t weighed;        /* by the search, of which these are the best; 0: unknown */
    struct candidate *rows; /* what fits, fastest first; then what does not, the nearest first */
    int64_t count;
};

/* What it takes of a rank, as far as that is known: the arena, else the peak, else 0. */
int64_t candidates_bytes(const struct candidate *candidate);

/* NULL in *out when the document has no alternatives. Everything lives as long as the arena. */
int candidates_from_json(const json_t *document, const char *where, int64_t capacity_bytes, struct arena *arena,
                         struct candidates **out, struct error *err);

/* Adds a section with a row for each. Returns the table. */
struct table *candidates_add(struct report *report, const struct candidates *candidates);

#endif
