/* DeepSpeed's flat buckets and the gradients of its partitions. */
#include "tests/test.h"

#include "planner/frameworks/workload_memory.h"
#include "planner/frameworks/workload_terms.h"

#include <string.h>

static const double mib = 1 << 20;

/* So few tokens, and so small a vocabulary, that states decide. */
static struct workload zero(enum workload_sharding sharding)
{
    struct workload w = workload_default(WORKLOAD_TRANSFORMERS, sharding);
    w.model = (struct workload_model){.layers = 24,
                                      .hidden = 2048,
                                      .heads = 16,
                                      .kv_heads = 16,
                                      .head_size = 128,
                                      .ffn = 8192,
                                      .vocab = 1000,
                                      .rms_norm = true};
    w.dp = 8;
    w.sequence = 16;
    return w;
}

static struct workload_memory answer(const struct workload *w)
{
    struct workload_memory out;
    struct error err = {0};
    ASSERT_OK(workload_memory(w, &out, &err));
    return out;
}

/* What the terms of that name hold at the peak. */
static double held(const struct workload *w, const char *name)
{
    struct workload_terms terms;
    struct error err = {0};
    struct arena *arena = arena_create();
    double bytes = 0;
    ASSERT_OK(workload_terms(w, 0, arena, &terms, &err));
    for (int i = 0; i < terms.count; i++)
        if (!strncmp(terms.list[i].name, name, strlen(name)))
            bytes += (double)terms.list[i].bytes;
    arena_free(arena);
    return bytes;
}

TEST(workload_buckets_zero2, "ZeRO-2 has one bucket in backward, and two where communication overlaps")
{
    struct workload w = zero(WORKLOAD_ZERO2);
    w.optimizer = WORKLOAD_NO_OPTIMIZER; /* so that the peak is in backward */
    ASSERT_INT(w.overlaps_gradients, false);
    ASSERT_NEAR(held(&w, "reduction bucket"), 2.0 * 5e8, 3 * mib);
    double one = (double)answer(&w).peak.bytes;
    w.overlaps_gradients = true;
    ASSERT_NEAR(held(&w, "reduction bucket"), 2 * 2.0 * 5e8, 3 * mib);
    ASSERT_NEAR((double)answer(&w).peak.bytes - one, 2.0 * 5e8, 3 * mib);
    w.bucket_elements = 200000000;
    ASSERT_NEAR(held(&w, "reduction bucket"), 2 * 2.0 * 2e8, 3 * mib);
}

/* Nothing of gradients is left: not on one rank either, where the partition is all there is. */
TEST(workload_buckets_between,
     "ZeRO-1 and 2 hold no gradients between steps; ZeRO-3 holds its partition's and its bucket")
{
    struct workload one = zero(WORKLOAD_ZERO1), two = zero(WORKLOAD_ZERO2), three = zero(WORKLOAD_ZERO3);
    double parameters = workload_parameters(&one), states = 2 * parameters + 12 * parameters / 8;
    ASSERT_NEAR((double)answer(&two).states_bytes, states, 50 * mib);
    ASSERT_NEAR((double)answer(&one).states_bytes, states, 50 * mib);
    ASSERT_NEAR((double)answer(&three).states_bytes, (2 + 2 + 12) * parameters / 8 + 2 * 5e8, 50 * mib);
}

/* Micro-batches after the first have a partition of their own, which is added to what there is. */
TEST(workload_buckets_accumulate, "accumulating adds a second partition of gradients")
{
    struct workload w = zero(WORKLOAD_ZERO2);
    w.optimizer = WORKLOAD_NO_OPTIMIZER;
    double share = 2 * workload_parameters(&w) / 8;
    ASSERT_NEAR(held(&w, "gradients of the partition"), share, 3 * mib);
    w.micro_batches = 2;
    ASSERT_NEAR(held(&w, "gradients of the partition"), 2 * share, 3 * mib);
}

/* A copy of the bucket as it is sent: of all gradients, where they are less than a bucket has room for. */
TEST(workload_buckets_copy, "a bucket is copied when it is reduced")
{
    struct workload w = zero(WORKLOAD_ZERO2);
    w.optimizer = WORKLOAD_NO_OPTIMIZER;
    double full = held(&w, "copy of a bucket");
    ASSERT(full > 2 * 4.8e8 && full <= 2 * 5e8 + 3 * mib);
    w.model.layers = 2;
    w.bucket_elements = 1000000000;
    ASSERT_NEAR(held(&w, "copy of a bucket"), 2 * workload_parameters(&w), 5 * mib);
}

/* With logits the peak is the loss's backward, before any gradient of a weight. */
TEST(workload_buckets_early, "before 0.16.5 a bucket is there before the loss's backward")
{
    struct workload w = zero(WORKLOAD_ZERO2);
    w.model.vocab = 100000;
    w.sequence = 8192;
    w.recompute = WORKLOAD_FULL;
    ASSERT_NEAR(held(&w, "reduction bucket"), 0, 1);
    double late = (double)answer(&w).peak.bytes;
    w.buckets_early = true;
    ASSERT_NEAR((double)answer(&w).peak.bytes - late, 2.0 * 5e8, 3 * mib);
}

/* The step flattens 16 bits, and casts them to 32: both are there with what backward left. */
TEST(workload_buckets_step, "the step has gradients of the partition twice in 16 bits and once in 32")
{
    struct workload w = zero(WORKLOAD_ZERO2);
    w.dp = 1; /* so that the step is the peak */
    double parameters = workload_parameters(&w);
    ASSERT_NEAR((double)answer(&w).peak.bytes, (2 + 12 + 2 + 2 + 4) * parameters, 50 * mib);
    w.offload_optimizer = true; /* weights; in backward a bucket, its copy, a gradient, and one on its way */
    struct workload_memory away = answer(&w);
    ASSERT_INT(away.peak.by_role[ROLE_OPTIMIZER], 0);
    ASSERT_NEAR((double)away.states_bytes, 2 * parameters + 2 * 2048.0 * 8192, 50 * mib);
}

/* 1.2e9 elements in 24 layers: those whose way to the end and back is under 1e9 elements stay until backward. */
TEST(workload_buckets_reuse,
     "ZeRO-3 keeps the last layers whole until backward, as far as elements may be reused")
{
    struct workload w = zero(WORKLOAD_ZERO3);
    double layer = workload_layer_parameters(&w, 0);
    struct workload_memory some = answer(&w);
    w.reuse_elements = 0;
    struct workload_memory none = answer(&w);
    double kept = (double)(some.forward_allocated_bytes - none.forward_allocated_bytes);
    ASSERT(kept > 2 * 4.0e8 && kept < 2 * 5.5e8);
    w.reuse_elements = (int64_t)(1.5 * layer + 3e6); /* the last alone */
    ASSERT_NEAR((double)(answer(&w).forward_allocated_bytes - none.forward_allocated_bytes), 2 * layer,
                5 * mib);
}
