/* Whole jobs of other frameworks: effects that people have measured, each by its formula, and a few published figures. */
#include "tests/planner/workload_sample.h"
#include "tests/test.h"

#include "planner/frameworks/workload_memory.h"

#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

/* With torchtitan's own choice of what is made again. */
static struct workload titan(void)
{
    struct workload w = sample_titan();
    w.recompute = WORKLOAD_EVERY_SECOND;
    return w;
}

static struct workload_memory answer(const struct workload *w)
{
    struct error err = {0};
    struct workload_memory m;
    ASSERT_OK(workload_memory(w, &m, &err));
    ASSERT(m.reserved_bytes >= m.peak.bytes && m.device_bytes >= m.reserved_bytes);
    return m;
}

/* Adam's moments are 8 B x parameters / shards: 7.48 GiB; what was reserved after the first step grows by as much. */
TEST(workload_moments,
     "states of the optimizer appear at the first step, 8 bytes a parameter over the shards")
{
    struct workload w = titan();
    struct workload_memory m = answer(&w);
    double moments = 8 * workload_parameters(&w) / 8;
    ASSERT_NEAR((double)(m.peak.bytes - m.first_allocated_bytes), moments, 0.001 * moments);
    ASSERT_NEAR((double)(m.reserved_bytes - m.first_reserved_bytes), moments, 0.1 * moments);
    /* 16 bytes a parameter between steps: weights, gradients, moments; and cuBLAS's workspace. */
    ASSERT_NEAR((double)m.states_bytes, 16 * workload_parameters(&w) / 8, 0.02 * GIB);
}

/* Weights in 16 bits of all blocks but the last, which stays gathered anyway: 31 x 218 M x 2 B = 12.6 GiB. */
TEST(workload_reshard, "without resharding after forward, gathered layers stay until backward")
{
    struct workload w = titan();
    struct workload_memory with = answer(&w);
    w.reshards_after_forward = false;
    struct workload_memory without = answer(&w);
    double blocks = 31 * 2 * workload_layer_parameters(&w, 0), table = 2.0 * 4096 * 128256;
    ASSERT_NEAR((double)(without.peak.bytes - with.peak.bytes), blocks + table, 0.02 * blocks);
}

/* At the loss: log-softmax, its gradient and that of the logits, each in fp32; compiled in chunks, two in 16 bits. */
TEST(workload_loss, "a fused loss saves what cross-entropy keeps of the logits")
{
    struct workload w = titan();
    double logits = 8192.0 * 128256;
    struct workload_memory plain = answer(&w);
    w.loss = WORKLOAD_LOSS_FUSED;
    struct workload_memory fused = answer(&w);
    ASSERT((double)(plain.peak.bytes - fused.peak.bytes) > 5 * logits);
    ASSERT((double)(plain.peak.bytes - fused.peak.bytes) <= 12 * logits);
}

TEST(workload_zero_alone, "ZeRO shards nothing when there is one data-parallel rank")
{
    struct workload w = workload_default(WORKLOAD_MEGATRON_LEGACY, WORKLOAD_ZERO2);
    w.model = sample_llama_8b();
    w.sequence = 128;
    double bytes = 2 + 12; /* weights, masters and moments: what backward made goes in the step */
    ASSERT_NEAR((double)answer(&w).states_bytes, bytes * workload_parameters(&w), 0.1 * GIB);
    w.dp = 8;
    ASSERT_NEAR((double)answer(&w).states_bytes, (2 + 12.0 / 8) * workload_parameters(&w), 0.1 * GIB);
}

/* One rank's gradients: whole, or an eighth. */
TEST(workload_no_sync, "accumulating without synchronization keeps whole gradients")
{
    struct workload w = titan();
    w.recompute = WORKLOAD_FULL;
    w.sequence = 512;
    w.weight_bytes = w.reduce_bytes = 2;
    w.micro_batches = 2;
    double gradients = 2 * workload_parameters(&w);
    struct workload_memory sync = answer(&w);
    w.accumulates_without_sync = true;
    struct workload_memory whole = answer(&w);
    ASSERT((double)(whole.peak.bytes - sync.peak.bytes) > 0.6 * gradients);
}

/* _foreach_sqrt() of all second moments at once. */
TEST(workload_foreach, "foreach AdamW needs a copy of all second moments")
{
    struct workload w = workload_default(WORKLOAD_TITAN, WORKLOAD_REPLICATED);
    w.model = sample_llama_8b();
    w.sequence = 128;
    w.weight_bytes = w.moment_bytes = 2;
    w.master_bytes = 0;
    struct workload_memory fused = answer(&w);
    w.step = WORKLOAD_STEP_FOREACH;
    struct workload_memory foreach = answer(&w);
    ASSERT_NEAR((double)(foreach.peak.bytes - fused.states_bytes), 2 * workload_parameters(&w), 0.01 * GIB);
    ASSERT_INT(foreach.peak.moment, REPLAY_FIRST_UPDATE);
}

/* "Vocabulary parallelism" (arXiv 2411.05288), table 5: 1F1B on 8 stages, 14.86 GiB at 32k words, and 25.64 at 256k. */
static struct workload gpt_4b(int64_t vocab)
{
    struct workload w = workload_default(WORKLOAD_MEGATRON_LEGACY, WORKLOAD_REPLICATED);
    w.model = (struct workload_model){.layers = 32,
                                      .hidden = 3072,
                                      .heads = 24,
                                      .kv_heads = 24,
                                      .head_size = 128,
                                      .ffn = 12288,
                                      .vocab = vocab,
                                      .positions = 2048,
                                      .bias = true};
    w.pp = 8;
    w.micro_batches = 128;
    w.sequence = 2048;
    w.gradient_bytes = 2;
    w.hidden_dropout = w.attention_dropout = w.embedding_dropout = true;
    return w;
}

TEST(workload_pipeline, "a pipeline's first stage keeps most; with a large vocabulary its ends win")
{
    struct error err = {0};
    struct workload w = gpt_4b(32000);
    struct workload_memory m = answer(&w), stages[8];
    ASSERT_INT(m.stage, 0);
    ASSERT_NEAR((double)m.peak.bytes / GIB, 14.86, 0.15);
    for (int stage = 0; stage < 8; stage++)
        ASSERT_OK(workload_stage_memory(&w, stage, &stages[stage], &err));
    for (int stage = 1; stage < 6; stage++)
        ASSERT(stages[stage].peak.bytes > stages[stage + 1].peak.bytes);
    w = gpt_4b(256000);
    ASSERT_NEAR((double)answer(&w).peak.bytes / GIB, 25.64, 0.26);
}

/* Stage 4 of 8 has half as many passes under way as stage 0, and 16 layers of 32; made again, its first 12 keep little. */
TEST(workload_uneven,
     "of uneven stages the one that needs most is found, wherever it is, and layers are made again by chunk")
{
    static const int64_t chunks[] = {1, 2, 1, 2, 16, 4, 3, 3}, one_less[] = {1, 2, 1, 2, 15, 4, 3, 3};
    struct error err = {0};
    struct workload w = gpt_4b(32000);
    w.micro_batch = 4; /* so that passes outweigh the optimizer's step */
    struct workload_memory even = answer(&w), one;
    w.chunk_layers = chunks;
    struct workload_memory m = answer(&w);
    ASSERT_INT(m.stage, 4);
    ASSERT(m.peak.bytes > even.peak.bytes);
    for (int stage = 0; stage < 8; stage++) {
        ASSERT_OK(workload_stage_memory(&w, stage, &one, &err));
        ASSERT(one.peak.bytes <= m.peak.bytes);
    }
    w.recompute = WORKLOAD_FULL;
    w.remade_layers = 12;
    ASSERT_OK(workload_stage_memory(&w, 4, &one, &err));
    double kept = (double)one.peak.by_role[ROLE_ACTIVATION] / (double)m.peak.by_role[ROLE_ACTIVATION];
    ASSERT_MSG(kept > 4.0 / 16 && kept < 0.45, "%.3f", kept);
    w.chunk_layers = one_less;
    ASSERT_INT(workload_memory(&w, &one, &err), -1);
    ASSERT_HAS(err.text, "have 31 layers, and the model 32");
}

/* Half of 1F1B's activations: p + 2 passes of half a stage, not p of a whole one. */
TEST(workload_v_shape, "a V-shaped pipeline keeps half of what 1F1B keeps")
{
    struct workload w = gpt_4b(32000);
    double layers = (double)answer(&w).peak.by_role[ROLE_ACTIVATION];
    w.v_shaped = true;
    w.virtual_stages = 2;
    double half = (double)answer(&w).peak.by_role[ROLE_ACTIVATION];
    ASSERT(half < 0.75 * layers && half > 0.5 * layers);
}

/* llm.c's log, pull request 309: 237 x 2 of weights and gradients, 3 x 474 of states, 13,629 of activations, 240 of their
 * gradients, 896 beside: 16,661 MiB. */
TEST(workload_llmc, "llm.c takes what its log says")
{
    struct workload w = workload_default(WORKLOAD_LLMC, WORKLOAD_REPLICATED);
    w.model = (struct workload_model){.layers = 12,
                                      .hidden = 768,
                                      .heads = 12,
                                      .kv_heads = 12,
                                      .head_size = 64,
                                      .ffn = 3072,
                                      .vocab = 50304,
                                      .positions = 1024,
                                      .tied = true,
                                      .bias = true};
    w.dp = 4;
    w.micro_batch = 32;
    w.sequence = 1024;
    w.gradient_bytes = 2;
    w.context_bytes = 896LL << 20;
    w.projections_kept = true; /* it is of 2024-05 */
    ASSERT_NEAR((double)answer(&w).device_bytes / (1 << 20), 16661, 17);
    w.sharding = WORKLOAD_DISTRIBUTED_OPTIMIZER;
    ASSERT_NEAR((double)answer(&w).device_bytes / (1 << 20), 15593, 17);
}

/* Pull request 676, of 2024-07: 12,042 MiB of activations with -r 2. Two norms of 24 layers less than with -r 1: 40 MiB each. */
TEST(workload_llmc_recompute, "llm.c takes no GELU from -r 1 on, and no norm with -r 2")
{
    struct workload w = workload_default(WORKLOAD_LLMC, WORKLOAD_REPLICATED);
    w.model = (struct workload_model){.layers = 24,
                                      .hidden = 1024,
                                      .heads = 16,
                                      .kv_heads = 16,
                                      .head_size = 64,
                                      .ffn = 4096,
                                      .vocab = 50304,
                                      .positions = 1024,
                                      .tied = true,
                                      .bias = true};
    w.micro_batch = 20;
    w.sequence = 1024;
    double all = (double)answer(&w).peak.by_role[ROLE_ACTIVATION] / (1 << 20);
    w.recompute = WORKLOAD_MODULES;
    w.modules = WORKLOAD_GELU;
    double without_gelu = (double)answer(&w).peak.by_role[ROLE_ACTIVATION] / (1 << 20);
    w.modules = WORKLOAD_GELU | WORKLOAD_NORM_RESULTS;
    double least = (double)answer(&w).peak.by_role[ROLE_ACTIVATION] / (1 << 20);
    ASSERT_NEAR(least, 12042, 1);
    ASSERT_NEAR(without_gelu - least, 2 * 24 * 40, 1e-3);
    ASSERT_NEAR(all - without_gelu, 23 * 4 * 40, 1e-3);
}

TEST(workload_capacity, "a job that is larger than its card runs out of memory, and one that is not does not")
{
    struct workload w = titan();
    w.capacity_bytes = 80LL << 30;
    ASSERT(!answer(&w).out_of_memory);
    w.capacity_bytes = 40LL << 30;
    ASSERT(answer(&w).out_of_memory);
    /* Between allocated and reserved: caches are given back, and it runs. */
    struct workload_memory m = answer(&w);
    w.capacity_bytes = m.device_bytes;
    w.allocator.expandable_segments = true;
    ASSERT(answer(&w).reserved_bytes < m.reserved_bytes);
}

TEST(workload_too_large, "sizes whose tensors no counter holds are refused, and not wrapped around")
{
    struct workload w = sample_titan();
    struct workload_memory memory;
    struct error err = {0};
    w.attention = WORKLOAD_EAGER; /* scores of 32 heads: 2^24 x 2^56 x 2^5 x 2 bytes are 2^86 */
    w.micro_batch = 1 << 24;
    w.sequence = 1 << 28;
    ASSERT_INT(workload_memory(&w, &memory, &err), -1);
    ASSERT_HAS(err.text, "micro-batches of 16777216 sequences of 268435456");
    w.attention = WORKLOAD_FLASH;
    w.micro_batch = 1 << 10; /* some 10 MB a token, 1.4e15 of all: no tensor alone is so large */
    w.sequence = 1 << 17;
    ASSERT_INT(workload_memory(&w, &memory, &err), -1);
    w.micro_batch = 1 << 6; /* 9e13 */
    ASSERT_OK(workload_memory(&w, &memory, &err));
    ASSERT(memory.peak.bytes > 10000000000000);
}

TEST(workload_frozen, "frozen 4-bit weights have no gradients, nor states")
{
    struct workload w = workload_default(WORKLOAD_TITAN, WORKLOAD_REPLICATED);
    w.model = sample_llama_8b();
    w.sequence = 512;
    w.lora_rank = 8;
    w.lora_linears = LINEAR_Q | LINEAR_V;
    w.frozen_bits = 4;
    double tables = 2.0 * 4096 * 128256, layers = workload_parameters(&w) - tables;
    ASSERT_NEAR((double)answer(&w).states_bytes, 0.5 * layers + 2 * tables, 0.3 * GIB);
}

TEST(workload_refused, "a job that is none is refused by the name of what is wrong")
{
    struct error err = {0};
    struct workload w = titan();
    struct workload_memory m;
    w.model.hidden = 0;
    ASSERT(workload_memory(&w, &m, &err) < 0);
    ASSERT_HAS(err.text, "hidden is 0");
    w = titan();
    w.pp = 64;
    ASSERT(workload_memory(&w, &m, &err) < 0);
    ASSERT_HAS(err.text, "smaller pp");
}
