/* What changed between the peaks of two ranks. Private to the files that compare. */
#ifndef MEMPLAN_REPORTS_COMPARE_CHANGES_H
#define MEMPLAN_REPORTS_COMPARE_CHANGES_H

#include "reports/breakdown.h"
#include "reports/compare.h"

/* Fills in layers, tensors, and whether the peak moved; nothing where either is without detail. Texts are borrowed from the
 * breakdowns, arrays belong to the arena. */
void compare_find_changes(struct comparison *comparison, const struct breakdown *before, const struct breakdown *after,
                          struct arena *arena);

#endif
