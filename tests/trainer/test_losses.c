/* What must not change a run does not: recomputation, memory policy and repetition keep every bit; ranks, the cut into
 * micro-batches and other kernels keep the numbers up to rounding. */
#include "tests/test.h"
#include "tests/trainer/runs.h"

static const char *const models[] = {"gpt2-tiny layers=3",  "llama-tiny layers=3", "block-tiny layers=3",
                                     "qwen3-tiny layers=3", "olmo2-tiny layers=3", "gemma-tiny layers=3",
                                     "gemma3-tiny layers=3"};
enum { MODELS = sizeof models / sizeof models[0] };

static struct history train(const char *model, const char *layout, const char *recompute,
                            const struct train_settings *settings)
{
    struct pipeline *pipeline = runs_pipeline(model, layout, recompute);
    struct history history = runs_train_weights(pipeline, settings);
    pipeline_free(pipeline);
    return history;
}

/* Every variant against the same run without recomputation. */
static void assert_recompute_changes_nothing(const char *model, const char *layout,
                                             const char *const *variants, int count)
{
    struct train_settings settings = runs_settings(5);
    struct history plain = train(model, layout, "none", &settings);
    for (int i = 0; i < count; i++) {
        struct history other = train(model, layout, variants[i], &settings);
        runs_assert_same(&other, &plain);
        runs_clear(&other);
    }
    runs_clear(&plain);
}

static const char *const gpt2_sets[] = {
    "selective", "full", "norm1+gelu", "qkv+mid", "0=full,1=norm2+mean2", "0-1=attention+up,2=qkv+lse+norm1"};
static const char *const llama_sets[] = {"selective", "full", "norm1+swiglu", "0=full,1=norm2+rstd2",
                                         "0-1=attention+gate_up,2=qkv+lse+norm1"};
static const char *const qwen3_sets[] = {"qk_norm", "full", "norm1+qkv", "0=full,1=qk_norm+rstd2",
                                         "0-1=attention+qk_norm,2=qkv+lse+norm1"};
static const char *const olmo2_sets[] = {"qk_norm", "full", "proj+qkv", "0=full,1=mid+down",
                                         "0-1=attention+post_rstd1,2=qk_norm+proj+down"};
static const char *const gemma_sets[] = {"selective", "full", "norm1+geglu", "0=full,1=norm2+rstd2",
                                         "0-1=attention+gate_up,2=qkv+lse+norm1"};
static const char *const gemma3_sets[] = {"qk_norm", "full", "proj+norm1", "0=full,1=mid+down+norm2",
                                          "0-1=attention+post_rstd1,2=qk_norm+proj+down"};
static const char *const encoder_sets[] = {"selective", "full", "norm1+gelu", "0=full,1=sum1+mean1",
                                           "0-1=attention+up,2=qkv+lse+sum2"};

TEST(losses_recompute_gpt2, "GPT-2 learns the same bits whatever is recomputed")
{
    assert_recompute_changes_nothing(models[0], "micro=2 batch=4 seq=19", gpt2_sets, 6);
    assert_recompute_changes_nothing(models[0], "micro=2 batch=4 seq=19 bf16", gpt2_sets, 6);
}

TEST(losses_recompute_qwen3, "Qwen3 learns the same bits whatever is recomputed")
{
    assert_recompute_changes_nothing(models[3], "micro=2 batch=4 seq=19", qwen3_sets, 5);
    assert_recompute_changes_nothing(models[3], "micro=2 batch=4 seq=19 bf16", qwen3_sets, 5);
}

TEST(losses_recompute_olmo2, "OLMo 2 learns the same bits whatever is recomputed")
{
    assert_recompute_changes_nothing(models[4], "micro=2 batch=4 seq=19", olmo2_sets, 5);
    assert_recompute_changes_nothing(models[4], "micro=2 batch=4 seq=19 bf16", olmo2_sets, 5);
}

TEST(losses_recompute_gemma, "Gemma learns the same bits whatever is recomputed")
{
    assert_recompute_changes_nothing(models[5], "micro=2 batch=4 seq=19", gemma_sets, 5);
    assert_recompute_changes_nothing(models[5], "micro=2 batch=4 seq=19 bf16", gemma_sets, 5);
}

TEST(losses_recompute_gemma3, "Gemma 3 learns the same bits whatever is recomputed")
{
    assert_recompute_changes_nothing(models[6], "micro=2 batch=4 seq=19", gemma3_sets, 5);
    assert_recompute_changes_nothing(models[6], "micro=2 batch=4 seq=19 bf16", gemma3_sets, 5);
}

TEST(losses_recompute_llama, "Llama learns the same bits whatever is recomputed")
{
    assert_recompute_changes_nothing(models[1], "micro=2 batch=4 seq=19", llama_sets, 5);
    assert_recompute_changes_nothing(models[1], "micro=2 batch=4 seq=19 bf16", llama_sets, 5);
}

TEST(losses_recompute_encoder, "the encoder learns the same bits whatever is recomputed")
{
    assert_recompute_changes_nothing(models[2], "micro=2 batch=4 seq=19", encoder_sets, 5);
    assert_recompute_changes_nothing(models[2], "micro=2 batch=4 seq=19 bf16", encoder_sets, 5);
}

TEST(losses_policy, "an arena and tensors of their own give the same bits")
{
    for (int i = 0; i < MODELS; i++) {
        struct train_settings settings = runs_settings(5);
        struct history arena = train(models[i], "dp=2 micro=1 batch=4 seq=19", "0=full", &settings);
        settings.policy = MEMORY_TENSOR;
        settings.poison = false;
        struct history tensor = train(models[i], "dp=2 micro=1 batch=4 seq=19", "0=full", &settings);
        runs_assert_same(&tensor, &arena);
        runs_clear(&arena);
        runs_clear(&tensor);
    }
}

TEST(losses_repeat, "a run repeated with the same threads gives the same bits")
{
    for (int i = 0; i < MODELS; i++) {
        struct train_settings settings = runs_settings(5);
        settings.threads = 2;
        for (int ranks = 1; ranks <= 2; ranks++) {
            const char *layout = ranks == 1 ? "micro=2 batch=4 seq=33" : "dp=2 micro=2 batch=4 seq=33 bf16";
            struct history first = train(models[i], layout, "none", &settings);
            struct history again = train(models[i], layout, "none", &settings);
            runs_assert_same(&again, &first);
            runs_clear(&first);
            runs_clear(&again);
        }
    }
}

/* The same 8 sequences per step, however they are dealt. Sums come in another order, so the last bits differ. */
static void assert_dealt_alike(const char *const *layouts, int count)
{
    for (int i = 0; i < MODELS; i++) {
        struct train_settings settings = runs_settings(20);
        struct history whole = train(models[i], layouts[0], "none", &settings);
        for (int k = 1; k < count; k++) {
            struct history dealt = train(models[i], layouts[k], "none", &settings);
            runs_assert_near(&dealt, &whole, 1e-5);
            runs_clear(&dealt);
        }
        runs_clear(&whole);
    }
}

TEST(losses_ranks, "1, 2 and 4 ranks learn the same from the same global batch, 20 steps long")
{
    static const char *const layouts[] = {"micro=2 batch=8 seq=17", "dp=2 micro=2 batch=8 seq=17 bucket=1000",
                                          "dp=4 micro=2 batch=8 seq=17 bucket=30000",
                                          "dp=4 micro=2 batch=8 seq=17"};
    assert_dealt_alike(layouts, 4);
}

TEST(losses_micro_batches, "a global batch cut into other micro-batches teaches the same")
{
    static const char *const layouts[] = {"micro=8 batch=8 seq=17", "micro=4 batch=8 seq=17",
                                          "micro=1 batch=8 seq=17"};
    assert_dealt_alike(layouts, 3);
}

/* bf16 keeps 8 bits: one rounding is 2^-9, 0.002. */
TEST(losses_kernels, "the fast kernels learn what the plain ones do")
{
    for (int i = 0; i < 2 * MODELS; i++) {
        bool bf16 = i >= MODELS;
        const char *layout = bf16 ? "micro=2 batch=4 seq=17 bf16" : "micro=2 batch=4 seq=17";
        struct train_settings settings = runs_settings(5);
        struct history fast = train(models[i % MODELS], layout, "none", &settings);
        settings.kernels = &kernels_reference;
        struct history plain = train(models[i % MODELS], layout, "none", &settings);
        runs_assert_near(&fast, &plain, bf16 ? 1e-2 : 1e-5);
        runs_clear(&fast);
        runs_clear(&plain);
    }
}
