/* Which recomputation of a plan other systems have: the plan's own, or the least that gives up all that the plan gives up. */
#ifndef MEMPLAN_PLANNER_EXPORT_RECOMPUTE_H
#define MEMPLAN_PLANNER_EXPORT_RECOMPUTE_H

#include "planner/export.h"

#include <stdbool.h>

enum export_way {
    EXPORT_NOTHING, /* is recomputed */
    EXPORT_WHOLE,   /* whole layers: the first `count` of every chunk of the pipeline */
    EXPORT_MODULES, /* the same modules of every layer */
};

struct export_recompute {
    enum export_way way;
    int64_t count;
    bool all;         /* that is every layer */
    unsigned modules; /* bits, in the order of export_module_name() */
    bool exact;       /* as the plan says */
};

/* `target` is one of those that export_restricts() names. */
struct export_recompute export_recompute_of(enum export_target target, const struct plan *plan);
/* The same as a mask for each layer. */
void export_recompute_fill(const struct plan *plan, const struct export_recompute *recompute, uint32_t *masks);
/* What --recompute-modules calls it; NULL: there are no more. */
const char *export_module_name(int module);

enum { EXPORT_SETS = 16 };
/* The sets that the target can give up in every layer alike, nothing and whole layers among them. Returns how many. */
int export_recompute_sets(enum export_target target, const struct model *model, uint32_t sets[EXPORT_SETS]);

#endif
