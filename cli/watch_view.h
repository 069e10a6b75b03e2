/* A run in progress as text: a page that fits a terminal, a line, or JSON. */
#ifndef MEMPLAN_CLI_WATCH_VIEW_H
#define MEMPLAN_CLI_WATCH_VIEW_H

#include "base/json.h"
#include "base/text.h"
#include "cli/watch_state.h"
#include "reports/ink_text.h"

#include <stdbool.h>

struct watch_paper {
    int columns, rows; /* that a page may have; rows 0: any number */
    enum ink ink;
};

/* Appends lines, none of them wider than the paper. What does not fit is left out from below, ranks first. */
void watch_view_page(const struct watch_state *watch, const struct watch_paper *paper, struct text *out);

/* Appends "step   12/60  loss  4.1234 ..." or, of a run that is over, how it ended; without a newline. */
void watch_view_line(const struct watch_state *watch, struct text *out);

/* Has nothing come for so long that the run may be dead? */
bool watch_view_is_silent(const struct watch_state *watch);

/* New reference. */
json_t *watch_view_json(const struct watch_state *watch);

#endif
