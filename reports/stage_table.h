/* The stages of a pipeline, for every report: which layers and which ranks are whose. */
#ifndef MEMPLAN_REPORTS_STAGE_TABLE_H
#define MEMPLAN_REPORTS_STAGE_TABLE_H

#include "base/arena.h"
#include "model/pipeline.h"
#include "reports/rank_table.h"

#include <stdint.h>

/* The layers of the model that a stage has, rising; *layers belongs to the arena. Returns how many. */
int64_t stage_table_list_layers(const struct program *program, struct arena *arena, int64_t **layers);
/* How many layers each chunk of the pipeline has, layout_chunks() of them; as struct program_spec wants it. */
const int64_t *stage_table_chunk_layers(const struct pipeline *pipeline, struct arena *arena);

/* "stage 1, replica 0, part 1" of a rank; NULL when all ranks are data-parallel ones. */
const char *stage_table_place(const struct layout *layout, int64_t rank, struct arena *arena);

/* What is foretold for each stage: pipeline->count rows. */
struct rank_row *stage_table_rows(const struct pipeline *pipeline, struct arena *arena);

/* Bytes of the stages of one of two pipelines. */
struct stage_bytes {
    const char *name; /* heads the column; borrowed, as long as the report */
    const int64_t *bytes;
    int64_t count;
};
/* Adds a table of both with the change, where either has several stages; the one with fewer has blanks. */
void stage_table_add_pair(struct report *report, const char *heading, const struct stage_bytes sides[2]);

#endif
