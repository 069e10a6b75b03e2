/* The ranks of a tensor-parallel group one after another, for the tests of kernels that know a part of the vocabulary:
 * who holds which columns, and the reductions between kernels as plain loops. */
#ifndef MEMPLAN_TESTS_KERNELS_SHARDS_H
#define MEMPLAN_TESTS_KERNELS_SHARDS_H

#include "base/arena.h"
#include "base/checked.h"
#include "kernels/kernels.h"
#include "kernels/reference/element.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS_MAX = 4 };

struct shards {
    int ranks;
    int64_t R, V, vocabulary; /* V: columns of each rank; the last ranks may have padding */
    enum dtype dtype;
    const int32_t *targets;
    void *logits[SHARDS_MAX]; /* (R, V) each */
};

/* Rank i holds the columns from i V on: those below the vocabulary are tokens. */
static inline struct logit_shard shards_of(const struct shards *shards, int rank)
{
    int64_t first = rank * shards->V;
    return (struct logit_shard){.R = shards->R,
                                .V = shards->V,
                                .first_column = first,
                                .valid = max_i64(0, min_i64(shards->V, shards->vocabulary - first)),
                                .vocabulary = shards->vocabulary,
                                .dtype = shards->dtype,
                                .logits = shards->logits[rank],
                                .targets = shards->targets};
}

/* What an all-reduce leaves on every rank: the largest element of `parts`, or their sum. */
static inline void *shards_reduce(const struct shards *shards, void *const *parts, int64_t count, bool largest)
{
    const enum dtype wide = element_wide(shards->dtype);
    void *all = host_alloc((size_t)(count * dtype_bytes(wide)));
    for (int64_t i = 0; i < count; i++) {
        double value = largest ? -INFINITY : 0;
        for (int rank = 0; rank < shards->ranks; rank++) {
            double part = element_get(wide, parts[rank], i);
            value = largest ? fmax(value, part) : value + part;
        }
        element_set(wide, all, i, value);
    }
    return all;
}

static inline void *shards_max(const struct kernel_table *table, const struct kernel_context *context,
                               const struct shards *shards)
{
    struct error err = {0};
    int64_t bytes = shards->R * dtype_bytes(element_wide(shards->dtype));
    void *parts[SHARDS_MAX];
    for (int rank = 0; rank < shards->ranks; rank++) {
        parts[rank] = host_alloc((size_t)bytes);
        struct logit_max_args args = {.shard = shards_of(shards, rank), .max = parts[rank]};
        ASSERT_OK(table->logit_max(context, &args, &err));
    }
    void *max = shards_reduce(shards, parts, shards->R, true);
    for (int rank = 0; rank < shards->ranks; rank++)
        free(parts[rank]);
    return max;
}

static inline void *shards_sums(const struct kernel_table *table, const struct kernel_context *context,
                                const struct shards *shards, const void *max)
{
    struct error err = {0};
    int64_t bytes = 2 * shards->R * dtype_bytes(element_wide(shards->dtype));
    void *parts[SHARDS_MAX];
    for (int rank = 0; rank < shards->ranks; rank++) {
        parts[rank] = host_alloc((size_t)bytes);
        struct logit_sums_args args = {.shard = shards_of(shards, rank), .max = max, .sums = parts[rank]};
        ASSERT_OK(table->logit_sums(context, &args, &err));
    }
    void *sums = shards_reduce(shards, parts, 2 * shards->R, false);
    for (int rank = 0; rank < shards->ranks; rank++)
        free(parts[rank]);
    return sums;
}

/* The loss that all ranks agree on, to the bit; with `gradient` their logits become it. */
static inline double shards_loss(const struct kernel_table *table, const struct kernel_context *context,
                                 const struct shards *shards, double scale, bool gradient)
{
    struct error err = {0};
    void *max = shards_max(table, context, shards), *sums = shards_sums(table, context, shards, max);
    double losses[SHARDS_MAX];
    for (int rank = 0; rank < shards->ranks; rank++) {
        double loss[1] = {0}; /* room for F32 and F64, both zero */
        struct cross_entropy_sharded_args args = {.shard = shards_of(shards, rank), .max = max, .sums = sums};
        args.scale = scale, args.loss = loss, args.gradient = gradient;
        ASSERT_OK(table->cross_entropy_sharded(context, &args, &err));
        losses[rank] = element_get(element_wide(shards->dtype), loss, 0);
        ASSERT(memcmp(&losses[rank], &losses[0], sizeof losses[0]) == 0);
    }
    free(max);
    free(sums);
    return losses[0];
}

#endif
