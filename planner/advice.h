/* What to change when a layout does not fit: the nearest changes that do, each built and measured. Changes that leave the
 * training and its ranks as they were (smaller micro-batches of the same global batch, recomputation, a schedule that keeps
 * fewer of them, sharding the optimizer's states) come first, the fastest of them first; then more ranks: replicas that shard, and tensor-parallel ones before
 * stages; then bf16, which changes the arithmetic; then shorter sequences, which change the task. On a card with units for bf16 that comes
 * before more ranks, which then compute in it too.
 *
 * More data-parallel ranks alone never help: each rank holds as much of the model, and its micro-batch stays as large. */
#ifndef MEMPLAN_PLANNER_ADVICE_H
#define MEMPLAN_PLANNER_ADVICE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "planner/cluster.h"
#include "planner/time_model.h"

#include <stdbool.h>
#include <stdint.h>

/* One change. */
struct advice {
    const char *options; /* "--micro-batch 2 --recompute norm1+gelu" */
    struct layout layout;
    uint32_t *masks;      /* recomputation by layer */
    int64_t arena_bytes, needed_bytes; /* needed: with the runtime of a card */
    bool in_doubt; /* it leaves less free than is not known of context and libraries: nothing leaves more */
    double step_s;
};

struct advice_list {
    struct arena *arena; /* owns everything below */
    struct advice *items;
    int count;
    int64_t longest;     /* tokens of a sequence, where they are many and as many as the model allows; else 0 */
    bool ranks_tried;    /* more tensor-parallel ranks and stages too */
    int64_t least_bytes; /* what a rank needs with micro-batches of 1 and all recomputation that helps */
};

/* On success the caller owns *out's contents: advice_clear(). An empty list is a success: nothing fits. */
int advice_find(const struct pipeline *pipeline, const struct rank_device *device,
                const struct machine_speed *speed, struct advice_list *out, struct error *err);
void advice_clear(struct advice_list *list);

/* "try --recompute norm1+norm2+gelu (needs 251 MiB) or --micro-batch 2 (needs 270 MiB)": the first two. */
void advice_print(const struct advice_list *list, struct text *out);

#endif
