/* What is searched: every layout that the trainer runs on a cluster and whose sizes divide as they must. An encoder's chunks are
 * alike (stages.h), so several of them need a divisor of its layers; of others the ends of the pipeline may be shorter, down to none. */
#ifndef MEMPLAN_PLANNER_SPACE_H
#define MEMPLAN_PLANNER_SPACE_H

#include "planner/search.h"

#include <stdint.h>

/* What bounds the time of a layout most: how ranks are spent, and the micro-batch. A layout is a shape with a schedule, chunks
 * per stage, and ZeRO or not. */
struct space_shape {
    int64_t tp, pp, dp, micro_batch;
    bool sequence_parallel;
};

/* Calls `visit` for every shape of the request with at most `most_tp` tensor-parallel ranks. A micro-batch for which `visit`
 * returns false is too large for these ranks, and so are all larger ones. */
void space_shapes(const struct search_request *request, int64_t most_tp,
                  bool (*visit)(void *context, const struct space_shape *shape), void *context);

/* As 1f1b without ZeRO; complete but for what only layout_complete() checks. */
struct layout space_layout(const struct search_request *request, const struct space_shape *shape);

/* The layouts of a shape; *out is the caller's to free. Returns how many. */
int space_layouts(const struct search_request *request, const struct space_shape *shape, struct layout **out);

#endif
