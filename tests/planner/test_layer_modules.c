/* Modules that Megatron-LM makes again: what each takes off what a layer keeps, by its formula; that they are made one after the
 * other in backward; and what each costs. */
#include "tests/test.h"

#include "planner/cluster.h"
#include "planner/frameworks/layer_rules.h"
#include "planner/frameworks/workload_memory.h"
#include "planner/frameworks/workload_time.h"

/* 512 tokens on a rank: hidden 1,024, 16 heads of 64, of keys 4, ffn 4,096; experts' 768, shared ones' 512. */
enum {
    TOKENS = 512,
    HIDDEN = 1024,
    HEADS = 16,
    FFN = 4096,
    EXPERTS = 8,
    ACTIVE = 2,
    EXPERT_FFN = 768,
    SHARED = 512
};

static struct workload llama(enum workload_library library)
{
    struct workload w = workload_default(library, WORKLOAD_DISTRIBUTED_OPTIMIZER);
    w.model = (struct workload_model){.layers = 4,
                                      .hidden = HIDDEN,
                                      .heads = HEADS,
                                      .kv_heads = 4,
                                      .head_size = 64,
                                      .ffn = FFN,
                                      .vocab = 1000,
                                      .gated = true,
                                      .rms_norm = true};
    w.gate = WORKLOAD_GATE_FUSED;
    w.sequence = TOKENS;
    return w;
}

static struct workload mixture(void)
{
    struct workload w = llama(WORKLOAD_MEGATRON);
    w.model.experts = EXPERTS;
    w.model.active_experts = ACTIVE;
    w.model.expert_ffn = EXPERT_FFN;
    w.model.shared_ffn = SHARED;
    w.model.dense_layers = 1;
    return w;
}

static struct workload latent(enum workload_library library)
{
    struct workload w = llama(library);
    w.model.kv_heads = HEADS;
    w.model.q_rank = 256;
    w.model.kv_rank = 128;
    w.model.nope_size = 64;
    w.model.rope_size = 32;
    w.model.value_size = 64;
    w.model.qk_norm = true;
    return w;
}

/* What a layer keeps less. */
static double saved_bytes(struct workload w, unsigned modules, int64_t layer)
{
    double whole = layer_kept_bytes(&w, layer);
    w.recompute = WORKLOAD_MODULES;
    w.modules = modules;
    return whole - layer_kept_bytes(&w, layer);
}

enum {
    NORM = 2 * HIDDEN * TOKENS + 4 * TOKENS, /* its result and its statistics */
    GATED = 3 * 2 * FFN * TOKENS,
    ROUTED = TOKENS * (4 * 2 * EXPERTS + 2 * ACTIVE * HIDDEN + 3 * 2 * ACTIVE * EXPERT_FFN),
    SHARED_BYTES = TOKENS * 4 * 2 * SHARED,
};

TEST(layer_modules_dense, "of a dense layer each module takes off what it makes")
{
    struct workload te = llama(WORKLOAD_MEGATRON), local = llama(WORKLOAD_MEGATRON_LEGACY);
    ASSERT_NEAR(saved_bytes(te, WORKLOAD_CORE_ATTN, 0), 4 * HEADS * TOKENS, 0.5); /* log-sum-exp */
    ASSERT_NEAR(saved_bytes(te, WORKLOAD_LAYERNORM, 0), 0, 0.5);                  /* joined to the products */
    ASSERT_NEAR(saved_bytes(te, WORKLOAD_MLP, 0), GATED + NORM, 0.5);
    ASSERT_NEAR(saved_bytes(te, WORKLOAD_CORE_ATTN | WORKLOAD_LAYERNORM | WORKLOAD_MLP, 0),
                GATED + NORM + 4 * HEADS * TOKENS, 0.5);
    ASSERT_NEAR(saved_bytes(local, WORKLOAD_LAYERNORM, 0), 2 * NORM, 0.5);
    ASSERT_NEAR(saved_bytes(local, WORKLOAD_MLP, 0), GATED, 0.5);
    ASSERT_NEAR(saved_bytes(local, WORKLOAD_LAYERNORM | WORKLOAD_MLP, 0), GATED + 2 * NORM, 0.5);
    te.attention = WORKLOAD_FUSED_SOFTMAX;
    ASSERT_NEAR(saved_bytes(te, WORKLOAD_CORE_ATTN, 0), 2.0 * HEADS * TOKENS * TOKENS, 0.5);
    te.attention_dropout = true;
    ASSERT_NEAR(saved_bytes(te, WORKLOAD_CORE_ATTN, 0), 5.0 * HEADS * TOKENS * TOKENS, 0.5);
}

TEST(layer_modules_experts,
     "of a layer of experts each module takes off what it makes, and of dense ones nothing")
{
    struct workload w = mixture();
    ASSERT_NEAR(saved_bytes(w, WORKLOAD_MOE, 1), ROUTED + SHARED_BYTES, 0.5);
    ASSERT_NEAR(saved_bytes(w, WORKLOAD_MOE_ACT, 1), 2 * ACTIVE * EXPERT_FFN * TOKENS, 0.5);
    ASSERT_NEAR(saved_bytes(w, WORKLOAD_SHARED_EXPERTS, 1), SHARED_BYTES, 0.5);
    ASSERT_NEAR(saved_bytes(w, WORKLOAD_LAYERNORM, 1), NORM, 0.5); /* before experts it stands apart */
    ASSERT_NEAR(saved_bytes(w, WORKLOAD_MOE | WORKLOAD_MOE_ACT | WORKLOAD_SHARED_EXPERTS, 1),
                ROUTED + SHARED_BYTES, 0.5);
    ASSERT_NEAR(saved_bytes(w, WORKLOAD_MLP, 1), 0, 0.5);
    ASSERT_NEAR(saved_bytes(w, WORKLOAD_MOE | WORKLOAD_MOE_ACT | WORKLOAD_SHARED_EXPERTS, 0), 0, 0.5);
    ASSERT_NEAR(saved_bytes(w, WORKLOAD_MLP, 0), GATED + NORM, 0.5);
}

TEST(layer_modules_latent,
     "queries, keys and values are made out of compressed ones, with the norm that is joined")
{
    double made = TOKENS * 2.0 * HEADS * (3 * (64 + 32)), normed = TOKENS * 2.0 * (256 + 128);
    ASSERT_NEAR(saved_bytes(latent(WORKLOAD_MEGATRON), WORKLOAD_MLA_UP_PROJ, 0), made + normed, 0.5);
    ASSERT_NEAR(saved_bytes(latent(WORKLOAD_MEGATRON_LEGACY), WORKLOAD_MLA_UP_PROJ, 0), made, 0.5);
    ASSERT_NEAR(saved_bytes(latent(WORKLOAD_MEGATRON), WORKLOAD_LAYERNORM, 0), NORM, 0.5); /* the first */
}

static int64_t peak_bytes(struct workload w, unsigned modules)
{
    struct error err = {0};
    struct workload_memory m;
    w.recompute = modules ? WORKLOAD_MODULES : WORKLOAD_KEEPS_ALL;
    w.modules = modules;
    ASSERT_OK(workload_memory(&w, &m, &err));
    return m.peak.bytes;
}

/* Of one layer, with most in its feed-forward: when that is made again, scores are not there. */
TEST(layer_modules_in_turn, "modules are made again one after the other, when backward comes to them")
{
    struct workload w = llama(WORKLOAD_MEGATRON);
    w.model.layers = 1;
    w.model.vocab = 8;
    w.model.ffn = 16384;
    w.attention = WORKLOAD_FUSED_SOFTMAX;
    w.sequence = 1024;
    double scores = 2.0 * HEADS * 1024 * 1024;
    int64_t both = peak_bytes(w, WORKLOAD_CORE_ATTN | WORKLOAD_MLP);
    ASSERT((double)(peak_bytes(w, 0) - both) > 0.9 * scores);
    ASSERT((double)(peak_bytes(w, WORKLOAD_MLP) - both) > 0.9 * scores);
    ASSERT(both <= peak_bytes(w, WORKLOAD_CORE_ATTN));
}

TEST(layer_modules_many, "with many layers a module saves as much of each as its layers keep less")
{
    struct workload w = llama(WORKLOAD_MEGATRON);
    w.model.layers = 32;
    for (unsigned modules = 1; modules <= WORKLOAD_MLP; modules++) {
        double less = (double)(peak_bytes(w, 0) - peak_bytes(w, modules));
        double layers = 32 * saved_bytes(w, modules, 0);
        ASSERT(less <= layers && less >= 30.0 / 32 * layers);
    }
}

static double seconds(struct workload w, unsigned modules)
{
    struct error err = {0};
    struct cluster cluster;
    struct machine_speed speed;
    struct workload_time time;
    ASSERT_OK(cluster_read("1x8:h100-80g", &cluster, &err));
    machine_speed_for_group(&cluster.groups[0], PRECISION_BF16, 1, &speed);
    w.recompute = modules ? WORKLOAD_MODULES : WORKLOAD_KEEPS_ALL;
    w.modules = modules;
    ASSERT_OK(workload_time(&w, NULL, &speed, &time, &err));
    return time.seconds;
}

TEST(layer_modules_cost, "what is made again takes time, and less than the whole forward pass")
{
    struct workload dense = llama(WORKLOAD_MEGATRON), experts = mixture(),
                    compressed = latent(WORKLOAD_MEGATRON);
    static const unsigned of_dense[] = {WORKLOAD_CORE_ATTN, WORKLOAD_MLP},
                          of_experts[] = {WORKLOAD_MOE_ACT, WORKLOAD_SHARED_EXPERTS, WORKLOAD_MOE,
                                          WORKLOAD_LAYERNORM};
    struct workload *all[] = {&dense, &experts, &compressed};
    for (int i = 0; i < 3; i++) {
        all[i]->sequence = 4096;
        all[i]->micro_batch = 4; /* so that the card decides */
        all[i]->recompute = WORKLOAD_FULL;
    }
    double none = seconds(dense, 0), routed = seconds(experts, 0), latent_s = seconds(compressed, 0);
    for (int i = 0; i < 2; i++)
        ASSERT(seconds(dense, of_dense[i]) > 1.005 * none && seconds(dense, of_dense[i]) < 1.3 * none);
    for (int i = 0; i < 4; i++)
        ASSERT(seconds(experts, of_experts[i]) > routed && seconds(experts, of_experts[i]) < 1.4 * routed);
    ASSERT(seconds(compressed, WORKLOAD_MLA_UP_PROJ) > 1.005 * latent_s);
    ASSERT_NEAR(seconds(dense, WORKLOAD_LAYERNORM), none, 1e-9); /* there is none apart */
    ASSERT_NEAR(seconds(dense, WORKLOAD_CORE_ATTN | WORKLOAD_MLP) - none,
                seconds(dense, WORKLOAD_CORE_ATTN) + seconds(dense, WORKLOAD_MLP) - 2 * none, 1e-4 * none);
}
