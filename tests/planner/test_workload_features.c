/* Adapters, fp8, padded experts, context parallelism, offload: each rule by its formula, as a difference. */
#include "tests/test.h"

#include "planner/frameworks/layer_rules.h"
#include "planner/frameworks/workload_memory.h"
#include "tests/planner/workload_sample.h"

#include <string.h>

/* 512 tokens; hidden 1,024, 16 heads of 64, of keys 4, ffn 4,096. */
static struct workload small(enum workload_library library, enum workload_sharding sharding)
{
    struct workload w = workload_default(library, sharding);
    w.model = (struct workload_model){.layers = 4,
                                      .hidden = 1024,
                                      .heads = 16,
                                      .kv_heads = 4,
                                      .head_size = 64,
                                      .ffn = 4096,
                                      .vocab = 1000,
                                      .gated = true,
                                      .rms_norm = true};
    w.dp = 4;
    w.sequence = 512;
    return w;
}

static const struct layer_rule *rule_of(const struct workload *w, const char *name)
{
    unsigned holds = layer_conditions(w, w->model.experts > 0);
    for (int i = 0; i < layer_rule_count; i++)
        if (!strcmp(layer_rules[i].name, name) &&
            (layer_rules[i].conditions & holds) == layer_rules[i].conditions)
            return &layer_rules[i];
    return NULL;
}

static double bytes_of(const struct workload *w, const char *name)
{
    const struct layer_rule *rule = rule_of(w, name);
    ASSERT_MSG(rule, "no rule \"%s\"", name);
    return layer_rule_kept(w, rule, layer_parts_again(w, 0)) ? layer_rule_bytes(w, rule) : 0;
}

/* Of all parts of a layer: attention's and the feed-forward's are two rules. */
static double adapted_bytes(const struct workload *w, enum layer_width first)
{
    unsigned holds = layer_conditions(w, false);
    double bytes = 0;
    for (int i = 0; i < layer_rule_count; i++)
        if (layer_rules[i].width >= first && layer_rules[i].width <= first + 2 &&
            (layer_rules[i].conditions & holds) == layer_rules[i].conditions)
            bytes += layer_rule_bytes(w, &layer_rules[i]);
    return bytes;
}

static struct workload_memory answer(const struct workload *w)
{
    struct error err = {0};
    struct workload_memory m;
    ASSERT_OK(workload_memory(w, &m, &err));
    return m;
}

/* Queries 1024 + 1024, values 1024 + 256; keys likewise; the projection 1024 + 1024; two of 1024 + 4096, and one. Rank 8. */
TEST(workload_adapters, "adapters have the elements of their matrices")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.lora_rank = 8;
    w.lora_linears = LINEAR_Q | LINEAR_V;
    ASSERT_NEAR(workload_adapter_parameters(&w, MATRIX_QKV, false), 8 * (2048 + 1280), 1e-6);
    ASSERT_NEAR(workload_adapter_parameters(&w, MATRIX_PROJ, false), 0, 1e-6);
    w.lora_linears = ALL_SEVEN;
    ASSERT_NEAR(workload_adapter_parameters(&w, MATRIX_QKV, false), 8 * (2048 + 2 * 1280), 1e-6);
    ASSERT_NEAR(workload_adapter_parameters(&w, MATRIX_PROJ, false), 8 * 2048, 1e-6);
    ASSERT_NEAR(workload_adapter_parameters(&w, MATRIX_UP, false), 8 * 2 * 5120, 1e-6);
    ASSERT_NEAR(workload_adapter_parameters(&w, MATRIX_DOWN, false), 8 * 5120, 1e-6);
}

/* A frozen matrix keeps no input: norm 2 (2 x 1024 B a token) and the gated product (2 x 4096 B) go; queries and values have
 * adapters, so norm 1 stays (DeepSpeed has adapters in 16 bits, which read it as it is); fused attention keeps its result; norms'
 * weights are frozen. */
TEST(workload_adapters_kept, "of a frozen matrix without adapter no input is kept")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_ZERO2);
    w.lora_rank = 8;
    w.lora_linears = LINEAR_Q | LINEAR_V;
    ASSERT_NEAR(bytes_of(&w, "norm 1"), 2.0 * 1024 * 512, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "attention"), 2.0 * 1024 * 512, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "norm 2"), 0, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "gated"), 0, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "norm 1, before its weight"), 0, 1e-6);
    ASSERT_NEAR(adapted_bytes(&w, WIDTH_ADAPTERS), 2.0 * 2 * 8 * 512, 1e-6);
    w.attention = WORKLOAD_EAGER;
    ASSERT_NEAR(bytes_of(&w, "attention"), 0, 1e-6);
    w.lora_linears = ALL_SEVEN;
    ASSERT_NEAR(bytes_of(&w, "norm 2"), 2.0 * 1024 * 512, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "gated"), 2.0 * 4096 * 512, 1e-6);
    w.lora_rank = 0;
    ASSERT_NEAR(bytes_of(&w, "norm 1, before its weight"), 2.0 * 1024 * 512, 1e-6);
}

/* Inputs of products are a byte an element, and the projection's is kept besides attention's own result; weights of layers are
 * there in fp8 and transposed. */
TEST(workload_fp8, "with fp8 inputs are kept in 8 bits, and weights cached twice")
{
    struct workload w = small(WORKLOAD_MEGATRON, WORKLOAD_REPLICATED);
    w.fp8 = true;
    ASSERT_NEAR(bytes_of(&w, "norm 1"), 1024.0 * 512, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "norm 2"), 1024.0 * 512, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "gated"), 4096.0 * 512, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "attention"), 2.0 * 1024 * 512, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "attention in fp8"), 1024.0 * 512, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "gate"), 2.0 * 4096 * 512, 1e-6);
    double with = (double)answer(&w).states_bytes, matrices = 4 * (workload_layer_parameters(&w, 0) - 2048);
    w.fp8 = false;
    ASSERT_NEAR(with - (double)answer(&w).states_bytes, 2 * matrices, 0.02 * matrices); /* rests of blocks */
}

/* Two of eight experts for each token: 2 x 1024 elements a token are sent, and with a capacity of 1.5 half as many again. */
TEST(workload_capacity_factor, "experts' tokens are padded to the capacity")
{
    struct workload w = small(WORKLOAD_MEGATRON, WORKLOAD_REPLICATED);
    w.model.experts = 8;
    w.model.active_experts = 2;
    w.model.expert_ffn = 2048;
    ASSERT_NEAR(bytes_of(&w, "sent tokens"), 2.0 * 2 * 1024 * 512, 1e-6);
    w.expert_capacity = 1.5;
    ASSERT_NEAR(bytes_of(&w, "sent tokens"), 1.5 * 2.0 * 2 * 1024 * 512, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "experts' gate"), 1.5 * 2.0 * 2 * 2048 * 512, 1e-6);
}

/* 512 tokens of 1024. Weights are cached when they are cast, what they multiply is not. */
TEST(workload_casts_again, "under autocast each product keeps its input, but not where one product is three")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.model.gated = true;
    ASSERT_NEAR(bytes_of(&w, "norm 1, cast again"), 0, 1e-6);
    w.autocast = true;
    ASSERT_NEAR(bytes_of(&w, "norm 1, cast again"), 2 * 2.0 * 1024 * 512, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "norm 2, cast again"), 2.0 * 1024 * 512, 1e-6);
    w.model.traits.joint_qkv = true; /* as GPT-2's */
    w.model.gated = false;
    ASSERT_NEAR(bytes_of(&w, "norm 1, cast again"), 0, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "norm 2, cast again"), 0, 1e-6);
}

/* Queries and values: 1024 inputs each. All seven: six of 1024, and 4096 to come down from. */
TEST(workload_adapter_inputs,
     "each adapter has a copy of its input where that is cast or dropped out, else none has")
{
    const double all = (6 * 1024 + 4096) * 512;
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.model.gated = true;
    w.lora_rank = 8;
    w.lora_linears = LINEAR_Q | LINEAR_V;
    ASSERT_NEAR(adapted_bytes(&w, WIDTH_ADAPTER_INPUTS), 4.0 * 2 * 1024 * 512, 1e-6);
    w.lora_linears = ALL_SEVEN;
    ASSERT_NEAR(adapted_bytes(&w, WIDTH_ADAPTER_INPUTS), 4 * all, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "norm 2"), 0, 1e-6); /* which nobody reads but to copy it */
    w.autocast = true;
    ASSERT_NEAR(adapted_bytes(&w, WIDTH_ADAPTER_INPUTS), 2 * all, 1e-6);
    w.autocast = false;
    w.adapters_cast = true;
    ASSERT_NEAR(adapted_bytes(&w, WIDTH_ADAPTER_INPUTS), 2 * all, 1e-6);
    w.adapters_cast = false;
    w.sharding = WORKLOAD_ZERO2;
    ASSERT_NEAR(adapted_bytes(&w, WIDTH_ADAPTER_INPUTS), 0, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "norm 2"), 2.0 * 1024 * 512, 1e-6);
    w.lora_dropout = true;
    ASSERT_NEAR(adapted_bytes(&w, WIDTH_ADAPTER_INPUTS), 2 * all, 1e-6);
    ASSERT_NEAR(adapted_bytes(&w, WIDTH_ADAPTER_MASKS), all, 1e-6);
}

/* A layer of 4096 x 1024: cast to 16 bits it is 2 x 12 x 2^20 B or so. */
TEST(workload_frozen_casts,
     "frozen weights are cast for one product at a time, and stay where backward reads them")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.dp = 1;
    w.autocast = true;
    w.weight_bytes = w.gradient_bytes = 4;
    w.master_bytes = 0;
    w.optimizer = WORKLOAD_NO_OPTIMIZER;
    w.loss = WORKLOAD_LOSS_CLASSES;
    w.lora_rank = 8;
    w.lora_linears = LINEAR_Q;
    w.frozen_bits = 32;
    double matrices = 4 * (workload_layer_parameters(&w, 0) - 2048), one = 1024.0 * 4096;
    int64_t kept = answer(&w).peak.by_role[ROLE_WORKSPACE];
    ASSERT_NEAR((double)(kept - w.cublas_bytes), 2 * matrices + 2.0 * 1024 * (double)w.model.vocab,
                0.05 * matrices);
    w.recompute = WORKLOAD_FULL;
    int64_t again = answer(&w).peak.by_role[ROLE_WORKSPACE];
    ASSERT((double)(again - w.cublas_bytes) < 2 * (matrices / 4 + one));
    w.recompute = WORKLOAD_KEEPS_ALL;
    w.frozen_bits = 4; /* nothing of a quantized layer is cast: bitsandbytes widens it */
    w.frozen_end_bytes = 2;
    ASSERT((double)(answer(&w).peak.by_role[ROLE_WORKSPACE] - w.cublas_bytes) < 2.2 * one);
}

/* Experts' feed-forwards of 256 have adapters of their own, 8 x (1024 + 256) each; the router's is 8 x (1024 + 16). */
TEST(workload_expert_adapters,
     "adapters beside experts are counted by expert, and stand where their names say")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.model.gated = true;
    w.model.experts = 16;
    w.model.active_experts = 2;
    w.model.expert_ffn = 256;
    w.lora_rank = 8;
    w.lora_linears = LINEAR_Q | LINEAR_EXPERT_GATE | LINEAR_EXPERT_UP | LINEAR_EXPERT_DOWN | LINEAR_ROUTER;
    ASSERT_NEAR(workload_adapter_parameters(&w, MATRIX_EXPERTS, true), 16 * 3 * 8 * 1280.0, 1e-6);
    ASSERT_NEAR(workload_adapter_parameters(&w, MATRIX_NONE, true), 8 * (1024 + 16), 1e-6);
    ASSERT_NEAR(workload_adapter_parameters(&w, MATRIX_EXPERTS, false), 0, 1e-6);
    ASSERT_NEAR(workload_adapter_parameters(&w, MATRIX_UP, true), 0, 1e-6);
    w.dp = 1;
    w.master_bytes = 0;
    int64_t with = answer(&w).states_bytes;
    w.lora_linears = LINEAR_Q;
    double adapters = 4 * (16 * 3 * 8 * 1280.0 + 8 * (1024 + 16)); /* with gradients and moments 16 B each */
    ASSERT_NEAR((double)(with - answer(&w).states_bytes), 16 * adapters,
                0.06 * 16 * adapters); /* and rests of blocks */
}

/* A layer of 12 x 2^20 elements or so is gathered in 16 bits, or as it is packed. */
TEST(workload_gathered_packed, "quantized weights are gathered as they are packed")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_FSDP1);
    w.loss = WORKLOAD_LOSS_CLASSES;
    w.lora_rank = 8;
    w.lora_linears = ALL_SEVEN;
    w.frozen_bits = 16;
    int64_t whole = answer(&w).peak.by_role[ROLE_COMMUNICATION];
    w.frozen_bits = 4;
    double layer = workload_layer_parameters(&w, 0);
    ASSERT((double)(whole - answer(&w).peak.by_role[ROLE_COMMUNICATION]) > layer);
}

/* Of 200,000 rows, which are 600 MB of fp32 moments more than 8-bit ones. */
TEST(workload_adapters_adam8, "8-bit moments of a frozen embedding are none, in fp32 neither")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.model.vocab = 200000;
    w.lora_rank = 8;
    w.lora_linears = LINEAR_Q;
    int64_t adam = answer(&w).states_bytes;
    w.optimizer = WORKLOAD_ADAM8;
    ASSERT(answer(&w).states_bytes < adam);
}

/* 128 of 512 tokens a rank. Ring: keys and values of all, 2 x 256 elements each, while attention runs. Heads exchanged: the
 * projection's input besides attention's result. */
TEST(workload_context_parallel, "context parallelism sends keys and values round, or exchanges heads")
{
    struct workload w = small(WORKLOAD_TITAN, WORKLOAD_FSDP2);
    w.cp = 4;
    ASSERT_NEAR(layer_rule_bytes(&w, rule_of(&w, "keys and values of all ranks")), 2.0 * 2 * 256 * 512, 1e-6);
    ASSERT_NEAR(layer_rule_bytes(&w, rule_of(&w, "attention, exchanged back")), 0, 1e-6);
    w.sharding = WORKLOAD_ZERO3;
    ASSERT_NEAR(layer_rule_bytes(&w, rule_of(&w, "keys and values of all ranks")), 0, 1e-6);
    ASSERT_NEAR(bytes_of(&w, "attention, exchanged back"), 2.0 * 1024 * 128, 1e-6);
}

/* Between steps nothing is on the card but cuBLAS's workspace: shards of weights, gradients and states are in host memory. */
TEST(workload_fsdp_offload, "FSDP2's offload leaves no shard on the card")
{
    struct workload w = small(WORKLOAD_TITAN, WORKLOAD_FSDP2);
    w.offload_weights = w.offload_optimizer = true;
    ASSERT_INT(answer(&w).states_bytes, w.cublas_bytes);
}

/* Before the first use of a 4-bit matrix it is made 16-bit: the largest, 1024 x 4096 x 2 B, comes and goes. */
TEST(workload_dequantized, "4-bit weights are made 16-bit while they are used")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.dp = 1;
    w.sequence = 8; /* so that nothing else is as large */
    w.loss = WORKLOAD_LOSS_CLASSES;
    w.lora_rank = 8;
    w.lora_linears = LINEAR_Q | LINEAR_V;
    w.frozen_bits = 16;
    w.optimizer = WORKLOAD_NO_OPTIMIZER;
    struct workload_memory sixteen = answer(&w);
    w.frozen_bits = 4;
    struct workload_memory four = answer(&w);
    double above =
        (double)(four.peak.bytes - four.states_bytes) - (double)(sixteen.peak.bytes - sixteen.states_bytes);
    ASSERT_NEAR(above, 1024.0 * 4096 * 2, 0.1 * 1024 * 4096);
}

/* A step of transformers in fp32, whose peak is in the loss's backward: log-softmax and two gradients of it are there whoever
 * holds the logits (ModelOutput.logits), which are 4 bytes each, 2 where they are computed in 16 bits. */
TEST(workload_logits_held, "logits that the caller holds have the size that they were computed in")
{
    for (int bytes = 2; bytes <= 4; bytes += 2) {
        struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
        w.dp = 1;
        w.model.vocab = 200000;
        w.compute_bytes = bytes;
        w.weight_bytes = w.gradient_bytes = 4;
        w.master_bytes = 0;
        w.optimizer = WORKLOAD_NO_OPTIMIZER;
        int64_t held = answer(&w).peak.bytes;
        w.logits_held = 0;
        /* up to 1 MiB a tensor is not split off */
        ASSERT_NEAR((double)(held - answer(&w).peak.bytes), bytes * 512.0 * 200000, 1 << 20);
    }
}

/* Of four layers, in 16 bits, with adapters of rank 8 beside all seven matrices. */
TEST(workload_adapter_bytes,
     "PEFT's adapters, their gradients and their states are in fp32 beside 16-bit weights")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.dp = 1;
    w.master_bytes = 0;
    w.step = WORKLOAD_STEP_FUSED;
    w.lora_linears = ALL_SEVEN;
    w.lora_rank = 8;
    struct workload_memory few = answer(&w);
    w.lora_rank = 16;
    struct workload_memory many = answer(&w);
    /* each matrix has rank x (inputs + outputs): 2 x 2,048 of queries and the projection, 2 x 1,280, 3 x 5,120 */
    double more = 4 * 8.0 * (2 * 2048 + 2 * 1280 + 3 * 5120), rounding = 4 * 7 * 512;
    ASSERT_NEAR((double)(many.peak.by_role[ROLE_PARAMETER] - few.peak.by_role[ROLE_PARAMETER]), 4 * more,
                rounding);
    ASSERT_NEAR((double)(many.peak.by_role[ROLE_OPTIMIZER] - few.peak.by_role[ROLE_OPTIMIZER]), 8 * more,
                2 * rounding);
    w.sharding = WORKLOAD_FSDP2; /* which casts them */
    w.weight_bytes = 2;
    double sharded = (double)answer(&w).peak.by_role[ROLE_PARAMETER];
    w.lora_rank = 8;
    double grown =
        sharded - (double)answer(&w).peak.by_role[ROLE_PARAMETER]; /* and a layer's that is gathered */
    ASSERT(grown > 2 * more - rounding && grown < 2.5 * more + rounding);
}

TEST(workload_pooler, "a pooler has its h x h weights and states whatever the head is")
{
    for (int classes = 0; classes < 3; classes += 2) {
        struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
        w.dp = 1;
        w.master_bytes = 0;
        w.model.encoder = true;
        w.model.classes = classes;
        double without = (double)answer(&w).peak.by_role[ROLE_PARAMETER];
        w.model.pooler = true;
        double pooler = 1024.0 * 1024 + 1024;
        ASSERT_NEAR((double)answer(&w).peak.by_role[ROLE_PARAMETER] - without, 2 * pooler, 1024);
    }
}
