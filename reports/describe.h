/* Every tensor a rank holds of a program, by name: what `describe` shows, and what recordings call the program's ids. */
#ifndef MEMPLAN_REPORTS_DESCRIBE_H
#define MEMPLAN_REPORTS_DESCRIBE_H

#include "base/arena.h"
#include "base/json.h"
#include "model/pipeline.h"
#include "reports/report.h"

#include <stdint.h>

/* One row, ready for a table of tensors in run.db. */
struct described {
    int64_t id;
    const char *name;  /* "layer 3 qkv", "layer 3 qkv gradient"; unique within its micro-batch, but for "partial", of which
                        * tensor-parallel ranks exchange several in a layer */
    const char *dims;  /* "2x64x768" */
    const char *dtype; /* "F32" */
    enum role role;
    int64_t layer;       /* -1: embedding, head, scalars */
    int64_t micro_batch; /* -1: lives for the whole run */
    int64_t bytes;
};

/* States, scalars, message buffers, and the tensors of the micro-batches 0 .. micro_batches-1, in order of id; tensors that
 * no operation touches are left out. *rows belongs to the arena. Returns how many there are. */
int64_t describe_tensors(const struct program *program, int64_t micro_batches, struct arena *arena,
                         struct described **rows);

/* "qkv" for "layer 3 qkv" of layer 3; other names as they are. Points into `name`. */
const char *describe_short_name(const char *name, int64_t layer);

/* Where a recorded operation belongs: "layer 3", or "embed", "head" and "from stage 0", which only the rank's program tells
 * apart. NULL: unknown, or none. `program` may be NULL. */
const char *describe_part(const struct program *program, int64_t operation_id, int64_t layer, struct arena *arena);

/* "dp 2, tp 4, pp 2 1f1b, micro-batch 4, global batch 8, sequence 1024, fp32"; what is not used is not named. */
const char *describe_layout(const struct layout *layout, struct arena *arena);

/* All stages; equal layers once. Lives as long as the arena, and borrows from the programs. */
struct report *describe_report(const struct pipeline *pipeline, struct arena *arena);
/* `parameters` of the whole model, `stages`, and of each stage `tensors` of the states and of one micro-batch. New
 * reference. */
json_t *describe_to_json(const struct pipeline *pipeline);

#endif
