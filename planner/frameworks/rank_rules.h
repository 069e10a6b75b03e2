/* What a rank holds besides what its layers and the loss make: weights, gradients, states of the optimizer, buffers of whoever
 * shards and reduces, temporaries of the step. One rule a line, with its formula and source, in rank_rules.c; the code that
 * takes and releases them is workload_states.c and those beside it. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_RANK_RULES_H
#define MEMPLAN_PLANNER_FRAMEWORKS_RANK_RULES_H

#include "base/role.h"

enum rank_rule {
    RANK_WEIGHT,
    RANK_FROZEN,
    RANK_ADAPTER,
    RANK_CUBLAS,
    RANK_MEMORY_BUFFER,
    RANK_GRADIENT_BUFFER,
    RANK_HEAD_GRADIENT,
    RANK_MASTER,
    RANK_MOMENT_1,
    RANK_MOMENT_2,
    RANK_MOMENTS_8BIT,
    RANK_MOMENTS_EMBEDDING,
    RANK_DDP_BUCKETS,
    RANK_PARTITION_GRADIENT,
    RANK_FLAT_BUCKET,
    RANK_BUCKET_COPY,
    RANK_OFFLOAD_BUFFER,
    RANK_GATHERED,
    RANK_WHOLE,
    RANK_CAST,
    RANK_FP8_WEIGHT,
    RANK_WIDENED,
    RANK_FLATTENED,
    RANK_WEIGHT_GRADIENT,
    RANK_FLAT_GRADIENT,
    RANK_REDUCE_INPUT,
    RANK_SHARD_GRADIENT,
    RANK_STEP_FLAT,
    RANK_STEP_CAST,
    RANK_STEP_FOREACH,
    RANK_STEP_LOOP,
    RANK_TOKENS,
    RANK_EMBEDDING_MASK,
    RANK_HEAD_INPUT,
    RANK_HEAD_NORM,
    RANK_STREAM_GRADIENT,
    RANK_LLMC_ENCODED,
    RANK_LLMC_GRADIENTS,
    RANK_LLMC_GELU,
    RANK_RULES
};

/* Of which part of the model. */
enum model_part { OF_ALL, OF_LAYERS, OF_EXPERTS, OF_EMBEDDING, OF_HEAD, MODEL_PARTS };

struct rank_rule_row {
    const char *name;
    enum role role;
    const char *formula; /* of one tensor; docs/memory-model.md, section 11, has the symbols */
    const char *source;
};

extern const struct rank_rule_row rank_rules[RANK_RULES];
const char *model_part_name(enum model_part part); /* "layers"; "" for none */

#endif
