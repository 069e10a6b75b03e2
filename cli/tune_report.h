/* What a search for a faster launch found: one page for all formats, and the same as JSON. */
#ifndef MEMPLAN_CLI_TUNE_REPORT_H
#define MEMPLAN_CLI_TUNE_REPORT_H

#include "base/json.h"
#include "cli/tune_search.h"
#include "reports/report.h"

struct tune_answer {
    const struct tune_request *request;
    const struct node_group *nodes;
    const struct tuning *tuning;
    const char *const *written; /* files, the script first; NULL ends them; NULL itself: nothing was written */
};

/* Whether there is a launch to change to: one that fits, and is faster or surer than the one that stands. */
bool tune_report_changes(const struct tune_answer *answer);
/* "1.36x faster: 21.2 s a step instead of 28.9 s, and fits: 61.0 of 79.1 GiB on h100-80g, 96% sure" */
const char *tune_report_sentence(const struct tune_answer *answer, struct arena *arena);
struct report *tune_report_page(const struct tune_answer *answer, struct arena *arena);
/* A new reference. */
json_t *tune_report_json(const struct tune_answer *answer, struct arena *arena);

#endif
