/* What the stages of a plan will do in a step, for reports to draw: the planner knows it, and reports/ may not ask the
 * planner. */
#ifndef MEMPLAN_CLI_FORETELL_H
#define MEMPLAN_CLI_FORETELL_H

#include "base/arena.h"
#include "base/error.h"
#include "model/plan.h"
#include "reports/spans.h"

/* `calibration`: calibration.json or a run.db, or NULL. Without one the rates are a data sheet's or nominal ones, and the step
 * is drawn as long as the plan says. *out lives as long as the arena; NULL when the plan is for a GPU of a machine that is not
 * this one. */
int foretell_timeline(const struct plan *plan, const struct pipeline *pipeline, const char *calibration,
                      struct arena *arena, struct timeline **out, struct error *err);

#endif
