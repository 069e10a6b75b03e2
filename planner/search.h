/* The fastest way to make a step fit: every number of data-parallel ranks, every micro-batch, and for each of them the
 * cheapest recomputation, exactly. What is returned was built as a program and fits to the byte. */
#ifndef MEMPLAN_PLANNER_SEARCH_H
#define MEMPLAN_PLANNER_SEARCH_H

#include "base/arena.h"
#include "base/error.h"
#include "planner/cluster.h"
#include "planner/prediction.h"
#include "planner/time_model.h"

#include <stdbool.h>
#include <stdint.h>

struct search_request {
    const struct model *model;
    const struct cluster *cluster;
    const struct machine_speed *speed;
    int64_t global_batch;    /* sequences per step over all ranks */
    int64_t seq_len;         /* 0: the model's */
    int64_t dp, micro_batch; /* 0: choose */
    enum precision precision;
};

/* One configuration. */
struct search_row {
    struct layout layout;
    uint32_t *masks;       /* recomputation by layer */
    const char *recompute; /* the same as text, for --recompute */
    int64_t peak_bytes, arena_bytes, needed_bytes;
    struct step_time time;
    const char *reason; /* rejected rows: "dp=1 micro-batch=8 recompute=none needs 412 MiB of 300 MiB: ..." */
};

struct search_result {
    struct arena *arena;             /* owns everything below */
    struct search_row *alternatives; /* what fits, fastest first: [0] is the plan */
    int64_t alternative_count;
    struct search_row *rejected; /* what does not, the nearest first */
    int64_t rejected_count;
    int64_t candidates; /* configurations weighed */
    int64_t feasible;   /* of those, the ones whose peak is within the capacity */
    double search_seconds;
    /* When nothing fits: the configuration that needs least is rejected[0]. */
    int64_t short_bytes;    /* by so much */
    int64_t enough_bytes;   /* a capacity that would do */
};

/* Fails only on a request that makes no sense; that nothing fits is an answer. On success the caller owns *out's contents:
 * search_clear(). */
int search_run(const struct search_request *request, struct search_result *out, struct error *err);
void search_clear(struct search_result *result);

/* "no plan for gpt2-124m in 300 MiB per rank: the nearest, ..., is short of ...; 512 MiB would do". */
void search_explain(const struct search_request *request, const struct search_result *result,
                    struct text *out);

#endif
