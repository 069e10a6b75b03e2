/* The stages of a pipeline, for every report: which layers and which ranks are whose. */
#ifndef MEMPLAN_REPORTS_STAGES_H
#define MEMPLAN_REPORTS_STAGES_H

#include "base/arena.h"
#include "model/pipeline.h"
#include "reports/rank_table.h"

#include <stdint.h>

/* The layers of the model that a stage has, rising; *layers belongs to the arena. Returns how many. */
int64_t stages_list_layers(const struct program *program, struct arena *arena, int64_t **layers);
/* Of a whole pipeline: "layers 0-5 | 6-11"; "layers 0-11" when there is one stage. */
const char *stages_split(const struct pipeline *pipeline, struct arena *arena);
/* How many layers each chunk of the pipeline has, layout_chunks() of them; as struct program_spec wants it. */
const int64_t *stages_chunk_layers(const struct pipeline *pipeline, struct arena *arena);

/* "stage 1, replica 0, part 1" of a rank; NULL when all ranks are data-parallel ones. */
const char *stages_place(const struct layout *layout, int64_t rank, struct arena *arena);

/* What is foretold for each stage: pipeline->count rows. */
struct rank_row *stages_rows(const struct pipeline *pipeline, struct arena *arena);

#endif
