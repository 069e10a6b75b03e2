/* Who holds the bytes at the allocated peak of a stage: every tensor that is alive then, with the rule that says so. Equal
 * rules are one term, over layers and micro-batches, with a count; the terms add up to the peak, to the byte.
 *
 * Costs a second replay, and only when asked: workload_memory() does nothing for it. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_TERMS_H
#define MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_TERMS_H

#include "base/arena.h"
#include "base/error.h"
#include "base/role.h"
#include "planner/frameworks/replay.h"
#include "planner/frameworks/workload.h"

struct workload_term {
    const char *name; /* "keys", "gradient of keys", "weights of layers" */
    enum role role;
    int64_t count; /* of tensors */
    int64_t bytes; /* of all of them, as the allocator rounds them */
    const char *formula; /* of one tensor: "2 x kv_heads x head_size x tokens / tp" */
    const char *source;  /* where the rule is from: a paper's section, a function of the framework */
};

struct workload_terms {
    struct workload_term *list; /* the most bytes first */
    int count;
    int64_t bytes; /* the peak: workload_memory.peak.bytes of that stage */
    enum replay_moment moment;
};

/* Of pipeline stage `stage`: workload_memory.stage is the one that needs most. All of it lives as long as the arena. Fails as
 * workload_stage_memory() does. */
int workload_terms(const struct workload *workload, int64_t stage, struct arena *arena, struct workload_terms *out,
                   struct error *err);

#endif
