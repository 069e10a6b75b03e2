/* A plan that another system runs as it is, and that fits there by that system's own rules: the search counts what memplan's trainer
 * needs, and the rules what the other takes besides. */
#ifndef MEMPLAN_CLI_PLAN_FOR_H
#define MEMPLAN_CLI_PLAN_FOR_H

#include "cli/plan_answer.h"
#include "planner/export.h"

/* Fills answer->result and answer->within, and answer->request with what explains them. `model` is as on the command line; NULL: fields
 * of it were replaced, and nobody but memplan knows it. */
int plan_for_search(struct plan_answer *answer, enum export_target target, const char *model, struct error *err);

#endif
