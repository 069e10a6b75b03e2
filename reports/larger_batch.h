/* Whether a larger micro-batch would fit as well: told only after the step with it was built. */
#ifndef MEMPLAN_REPORTS_LARGER_BATCH_H
#define MEMPLAN_REPORTS_LARGER_BATCH_H

#include "base/arena.h"
#include "model/pipeline.h"

#include <stdint.h>

/* "--micro-batch 4 would use them: it needs 61.20 GiB", the largest that fits beside `runtime_bytes`, which no tensor owns; else
 * "too little for --micro-batch 2, which needs 85.10 GiB". NULL: the global batch divides into no larger ones. The recomputation
 * is the pipeline's own. The text belongs to the arena. */
const char *larger_batch_find(const struct pipeline *pipeline, int64_t capacity_bytes, int64_t runtime_bytes,
                              struct arena *arena);

#endif
