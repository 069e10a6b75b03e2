/* Everything a report has to show, before any of it is inked: the numbers, the tables, and what pictures are drawn from. All
 * formats are written from one of these, so they cannot disagree. Read writers.h next. */
#ifndef MEMPLAN_REPORTS_DOCUMENT_H
#define MEMPLAN_REPORTS_DOCUMENT_H

#include "base/arena.h"
#include "base/error.h"
#include "model/pipeline.h"
#include "profiler/store.h"
#include "reports/breakdown.h"
#include "reports/candidates.h"
#include "reports/compare.h"
#include "reports/report.h"
#include "reports/series.h"
#include "reports/spans.h"

#include <stdbool.h>
#include <stdint.h>

/* What a format has a use for: nobody reads a million events to print a page of text. */
struct document_needs {
    bool pictures;  /* memory over time, and spans */
    bool all_ranks; /* memory over time of every rank, and not just of the one that is shown */
    bool all_steps; /* spans of every recorded step */
    int64_t points; /* of memory over time, about so many (divided among ranks) */
    void (*progress)(int64_t done, int64_t total); /* NULL, or told how far the reading of a run is, in ranks */
};

struct document {
    struct arena *arena;
    const struct comparison *comparison; /* NULL: of one run or one plan, all that follows */
    struct breakdown breakdown;          /* of a comparison zero, like all behind the page */
    const struct report *summary;        /* the page of text */
    const struct report *page;           /* all tables, each with its topic */
    struct series **memory;              /* the shown rank's first; none where no events were recorded */
    int64_t memory_count;
    const struct timeline *timeline;     /* NULL: none recorded, none foretold */
    const struct candidates *candidates; /* NULL: none given */
    const json_t *answer; /* what JSON says instead of the breakdown or the comparison; NULL: that */
};

/* Everything lives as long as the arena. `rank` -1: the one with the highest peak; `step` of the timeline: see spans.h. */
int document_of_run(struct store *store, int64_t run_id, int64_t rank, int step,
                    const struct document_needs *needs, struct arena *arena, struct document *out,
                    struct error *err);
/* What there is to show of a plan. The document borrows all of it. */
struct document_plan {
    const struct pipeline *pipeline;
    const char *device;                  /* a name, or NULL */
    struct breakdown_room room;
    const struct candidates *candidates; /* NULL: none */
    const struct timeline *timeline;     /* what spans_foretold() made, or NULL */
    const char *const *stage_devices;    /* names, where stages have different ones; else NULL */
};

void document_of_plan(const struct document_plan *plan, const struct document_needs *needs,
                      struct arena *arena, struct document *out);

/* Of a page and its JSON that others made: both are borrowed. The breakdown has what pictures and headlines need: model (the
 * headline), advice, by_role, peak_bytes, capacity_bytes, ranks, stages. */
void document_of_answer(const struct report *page, const json_t *answer, const struct breakdown *breakdown,
                        struct arena *arena, struct document *out);

/* Of two plans: all is borrowed, the answer for as long as the document is written. */
void document_of_plans(const struct comparison *peaks, const struct report *page, const json_t *answer,
                       struct arena *arena, struct document *out);

/* Borrows the comparison. */
void document_of_comparison(const struct comparison *comparison, struct arena *arena, struct document *out);

#endif
