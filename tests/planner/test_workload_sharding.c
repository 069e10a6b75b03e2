/* What FSDP, pipelines of it, and Megatron's own modules hold besides layers: each rule by its formula, as a difference. */
#include "tests/test.h"

#include "planner/frameworks/layer_rules.h"
#include "planner/frameworks/loss_rules.h"
#include "planner/frameworks/workload_memory.h"
#include "planner/frameworks/workload_terms.h"

#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

/* A layer of 4 x 1024 x 1024 + 3 x 1024 x 4096 weights, norms besides; two tables of 32,768 x 1,024. */
static struct workload small(enum workload_library library, enum workload_sharding sharding)
{
    struct workload w = workload_default(library, sharding);
    w.model = (struct workload_model){.layers = 8,
                                      .hidden = 1024,
                                      .heads = 16,
                                      .kv_heads = 16,
                                      .head_size = 64,
                                      .ffn = 4096,
                                      .vocab = 32768,
                                      .gated = true,
                                      .rms_norm = true};
    w.dp = 4;
    w.sequence = 128;
    return w;
}

static struct workload_memory answer(const struct workload *w)
{
    struct error err = {0};
    struct workload_memory m;
    ASSERT_OK(workload_memory(w, &m, &err));
    return m;
}

/* Bytes of the term with that name at the peak of stage 0; 0: there is none. */
static double term_bytes(const struct workload *w, const char *name)
{
    struct arena *arena = arena_create();
    struct error err = {0};
    struct workload_terms terms;
    double bytes = 0;
    ASSERT_OK(workload_terms(w, 0, arena, &terms, &err));
    for (int i = 0; i < terms.count; i++)
        if (!strcmp(terms.list[i].name, name))
            bytes = (double)terms.list[i].bytes;
    arena_free(arena);
    return bytes;
}

/* All weights in fp32, then all of them again in one tensor. With layers that are wrapped it is one layer at a time. */
TEST(workload_flatten, "FSDP1 without wrapped layers has the whole model on the card twice at the start")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_FSDP1);
    double weights = 4 * workload_parameters(&w);
    w.dp = 64;
    w.reduce_bytes = 2;
    struct workload_memory wrapped = answer(&w);
    w.wraps_layers = false;
    struct workload_memory whole = answer(&w);
    ASSERT_INT(whole.peak.moment, REPLAY_START);
    ASSERT_NEAR((double)whole.peak.bytes, 2 * weights, 0.02 * weights);
    ASSERT((double)wrapped.peak.bytes < 1.2 * weights);
}

/* At the end of backward: gradients of all views, and the one they are concatenated to, in 16 bits. */
TEST(workload_flat_gradient, "autograd concatenates the gradients of an FSDP1 unit")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_FSDP1);
    w.wraps_layers = false;
    w.weight_bytes = w.reduce_bytes = w.moment_bytes = 2;
    w.recompute = WORKLOAD_FULL;
    double gradients = 2 * workload_parameters(&w), sharded = 2 * 3 * workload_parameters(&w) / 4;
    ASSERT_NEAR((double)answer(&w).peak.bytes, 3 * gradients + sharded, 0.05 * gradients);
}

/* Both tables, 2 x 64 MiB in 16 bits, are gathered at the first layer's backward; as units of their own none is. */
TEST(workload_root, "FSDP's root keeps what is in no layer gathered until backward is through")
{
    struct workload w = small(WORKLOAD_TITAN, WORKLOAD_FSDP2);
    w.loss = WORKLOAD_LOSS_FUSED;
    w.sequence = 16384;
    w.wraps_ends = false;
    ASSERT_NEAR(term_bytes(&w, "gathered weights of embedding"), 64.0 * (1 << 20), 4096);
    w.wraps_ends = true;
    ASSERT_NEAR(term_bytes(&w, "gathered weights of embedding"), 0, 1);
}

/* torch.distributed.pipelining: until the last micro-batch gradients of the stage are whole, in fp32. */
TEST(workload_pipelined_fsdp, "a pipeline of FSDP2 keeps whole gradients in the type of the reduction")
{
    struct workload w = small(WORKLOAD_TITAN, WORKLOAD_FSDP2);
    w.pp = 2;
    w.micro_batches = 8;
    w.reshards_after_forward = false;
    w.recompute = WORKLOAD_FULL;
    double layers = 4 * workload_layer_parameters(&w, 0);
    ASSERT_NEAR(term_bytes(&w, "gradients, before they are reduced of layers"), 4 * layers, 0.01 * layers);
    w.pp = 1;
    ASSERT(term_bytes(&w, "gradients, before they are reduced of layers") < 0.5 * 4 * layers);
}

/* 16 heads x 512 x 512 x 4 B. */
TEST(workload_softmax_input, "before PyTorch 1.11 softmax keeps its input")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.sequence = 512;
    w.compute_bytes = 4;
    w.attention = WORKLOAD_EAGER;
    double without = layer_kept_bytes(&w, 0);
    w.softmax_keeps_input = true;
    ASSERT_NEAR(layer_kept_bytes(&w, 0) - without, 16.0 * 512 * 512 * 4, 1);
}

/* 16 heads x 512 x 512 x 2 B, once. */
TEST(workload_memory_buffer, "Megatron's own attention keeps one buffer that scores are added to")
{
    struct workload w = small(WORKLOAD_MEGATRON_LEGACY, WORKLOAD_REPLICATED);
    w.sequence = 512;
    w.attention = WORKLOAD_FUSED_SOFTMAX;
    ASSERT_NEAR(term_bytes(&w, "Megatron's global memory buffer"), 16.0 * 512 * 512 * 2, 1);
    w.attention = WORKLOAD_FLASH;
    ASSERT_NEAR(term_bytes(&w, "Megatron's global memory buffer"), 0, 1);
    w.sequence_parallel = true;
    w.tp = 2;
    ASSERT_NEAR(term_bytes(&w, "Megatron's global memory buffer"), 1024.0 * 512 * 2, 1);
}

/* Logits and their gradient in 16 bits, 32,768 x 4,096 x 2 B = 256 MiB each; plain cross-entropy has three in fp32 besides. */
TEST(workload_kernel_loss, "flash_attn's cross-entropy has logits and their gradient, and no copy in fp32")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_FSDP1);
    w.recompute = WORKLOAD_FULL;
    w.sequence = 4096;
    w.logits_held = 0;
    w.loss = WORKLOAD_LOSS_KERNEL;
    ASSERT_NEAR(term_bytes(&w, "logits"), 0.25 * GIB, 1);
    ASSERT_NEAR(term_bytes(&w, "gradient of logits"), 0.25 * GIB, 1);
    ASSERT_NEAR(term_bytes(&w, "log-softmax"), 0, 1);
}

/* 32,768 / 2 words x 4,096 tokens x 4 B = 256 MiB: log-softmax, the gradient that is filled in, exp(x) and their sum are alive
 * together, one more than where one rank has all words; with logits gathered first it is as there. */
TEST(workload_parallel_loss, "loss_parallel() needs four matrices of logits in fp32")
{
    struct workload w = small(WORKLOAD_TITAN, WORKLOAD_FSDP2);
    w.tp = 2;
    w.recompute = WORKLOAD_FULL;
    w.sequence = 4096;
    w.optimizer = WORKLOAD_SGD;
    ASSERT_INT(loss_rule_kind(&w), WORKLOAD_LOSS_PARALLEL);
    double matrices = term_bytes(&w, "log-softmax") + term_bytes(&w, "gradient of log-softmax") +
                      term_bytes(&w, "probabilities") + term_bytes(&w, "probabilities less one at targets");
    ASSERT_NEAR(matrices, GIB, 1);
    w.logits_whole = true;
    ASSERT_INT(loss_rule_kind(&w), WORKLOAD_LOSS_UPCAST);
    w.logits_whole = false;
    w.tp = 1;
    ASSERT_INT(loss_rule_kind(&w), WORKLOAD_LOSS_UPCAST);
}

/* Half of 4,096 tokens x 32,768 words: 2 + 3 x 4 bytes each, 896 MiB. */
TEST(workload_linear_loss, "a loss that has the head in it has logits of a chunk alone")
{
    struct workload w = small(WORKLOAD_TITAN, WORKLOAD_FSDP2);
    w.recompute = WORKLOAD_FULL;
    w.sequence = 4096;
    w.loss = WORKLOAD_LOSS_LINEAR;
    w.loss_chunks = 2;
    double chunk = term_bytes(&w, "logits of a chunk") + term_bytes(&w, "logits of a chunk in fp32") +
                   term_bytes(&w, "log-softmax of a chunk") + term_bytes(&w, "gradient of a chunk");
    ASSERT_NEAR(chunk, 896.0 * (1 << 20), 1);
    ASSERT_NEAR(term_bytes(&w, "logits"), 0, 1);
}

/* From a card that is large enough down to one on which it does not fit: what is reserved is never more than there is, and
 * less where caches had to be given back. */
TEST(workload_reserved_is_capped, "what is reserved is no more than the card has")
{
    struct workload w = small(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.sequence =
        4096; /* the loss and the optimizer's step each take what the other's pieces are too small for */
    w.recompute = WORKLOAD_FULL;
    struct workload_memory free = answer(&w), within;
    int tight = 0;
    w.capacity_bytes = free.device_bytes + 2 * free.doubt_bytes;
    for (within = answer(&w); !within.out_of_memory; within = answer(&w)) {
        ASSERT(within.device_bytes <= w.capacity_bytes);
        tight += within.reserved_bytes < free.reserved_bytes;
        w.capacity_bytes -= 10 << 20;
    }
    ASSERT(tight > 0);
    ASSERT(w.capacity_bytes > free.peak.bytes);
}
