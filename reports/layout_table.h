/* How the steps of two configurations are laid out, side by side: plans and recorded runs alike. */
#ifndef MEMPLAN_REPORTS_LAYOUT_TABLE_H
#define MEMPLAN_REPORTS_LAYOUT_TABLE_H

#include "base/arena.h"
#include "model/pipeline.h"
#include "reports/report.h"

#include <stdbool.h>
#include <stdint.h>

/* What is not known is NULL. */
struct layout_facts {
    const char *model, *device;
    const struct layout *layout;
    const int64_t *chunk_layers;        /* of each chunk of the pipeline */
    const char *recompute;              /* all of it, as on the command line */
    const char *recompute_shown;        /* where that is long, in how many layers; NULL: as it is */
};

/* Model, layout, layers and recomputation of a pipeline; the device is the caller's to set. Lives as long as the arena. */
struct layout_facts layout_facts_of(const struct pipeline *pipeline, struct arena *arena);

/* Adds "Where the layouts differ", a row for each thing that does. `names` head the columns, and are borrowed. False: nothing that is
 * known of both is different, and there is no table. */
bool layout_table_add(struct report *report, const char *const names[2], const struct layout_facts facts[2]);

#endif
