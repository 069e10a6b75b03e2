/* A training job of another framework: what is trained, on which layout, and with which kernels. The rules that turn it into
 * bytes and seconds are the framework's own (megatron.h). */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_JOB_H
#define MEMPLAN_PLANNER_FRAMEWORKS_JOB_H

#include "model/layout.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

enum job_recompute {
    JOB_KEEPS_ALL,
    JOB_SELECTIVE, /* the attention core is made again */
    JOB_FULL,      /* a layer keeps its input, and runs forward again before its backward */
};

enum job_attention {
    JOB_ATTENTION_EAGER,   /* scores, mask, softmax and weighted sum, each an operation of its own */
    JOB_ATTENTION_SOFTMAX, /* scale, mask and softmax in one kernel */
    JOB_ATTENTION_FLASH1,
    JOB_ATTENTION_FLASH2,
};

struct job {
    struct model model;
    struct layout layout; /* complete (layout_complete()); precision bf16 stands for fp16 too */
    enum job_recompute recompute;
    enum job_attention attention;
    bool norm_fused;        /* or several kernels, in fp32 */
    bool dropout;           /* masks are kept */
    bool inputs_whole;      /* with sequence parallelism, inputs of matrices are kept as gathered; or gathered again */
    bool logits_whole;      /* gathered before the loss; or each tensor-parallel rank keeps those of its part */
    int gradient_bytes;     /* of an element: 4 where sums are kept in fp32, else 2 */
    int fewer_at_ends;      /* layers that the first and the last chunk have less than the others */
    bool overlaps_gradients; /* their reduction runs beside backward */
};

/* Layers of a global chunk; and of stage `stage`, all its chunks together. */
int64_t job_chunk_layers(const struct job *job, int64_t chunk);
int64_t job_stage_layers(const struct job *job, int64_t stage);
/* Micro-batches, each through all of a stage's layers, whose activations stage `stage` keeps at most; a fraction where
 * chunks interleave. */
double job_kept_micro_batches(const struct job *job, int64_t stage);

#endif
