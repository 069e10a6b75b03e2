/* Two plan files side by side: the planner foretells both, on the nodes that each says, and reports/ may not ask it. */
#ifndef MEMPLAN_CLI_PLANNED_PAIR_H
#define MEMPLAN_CLI_PLANNED_PAIR_H

#include "base/error.h"
#include "cli/output.h"

int planned_pair_compare(const char *const paths[2], const struct output_choice *choice, struct error *err);

#endif
