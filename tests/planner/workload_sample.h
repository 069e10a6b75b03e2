/* Jobs of other frameworks that several tests are about. */
#ifndef MEMPLAN_TESTS_WORKLOAD_SAMPLE_H
#define MEMPLAN_TESTS_WORKLOAD_SAMPLE_H

#include "planner/frameworks/workload.h"

/* Of a gated layer: all linear layers. */
enum {
    ALL_SEVEN = LINEAR_Q | LINEAR_K | LINEAR_V | LINEAR_O | LINEAR_GATE | LINEAR_UP | LINEAR_DOWN,
};

static inline struct workload_model sample_llama_8b(void)
{
    return (struct workload_model){.layers = 32,
                                   .hidden = 4096,
                                   .heads = 32,
                                   .kv_heads = 8,
                                   .head_size = 128,
                                   .ffn = 14336,
                                   .vocab = 128256,
                                   .gated = true,
                                   .rms_norm = true};
}

/* torchtitan's Llama 8B on 8 ranks, one sequence of 8,192 tokens each. */
static inline struct workload sample_titan(void)
{
    struct workload w = workload_default(WORKLOAD_TITAN, WORKLOAD_FSDP2);
    w.model = sample_llama_8b();
    w.dp = 8;
    w.sequence = 8192;
    return w;
}

#endif
