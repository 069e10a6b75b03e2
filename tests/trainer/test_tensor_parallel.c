/* Ranks that share heads, feed-forward and vocabulary train the model that one rank trains: the same losses and gradient
 * norms up to rounding, in the predicted bytes, and the same bits when repeated. Vocabularies are not divisible by 4. */
#include "tests/test.h"
#include "tests/trainer/runs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const models[] = {
    "gpt2-tiny vocab=251",
    "gpt2-tiny untied vocab=50",
    "llama-tiny heads=8 kv_heads=4 vocab=254",
    "qwen3-tiny heads=8 kv_heads=4 vocab=254",
    "gemma-tiny heads=8 kv_heads=4 vocab=254",
    "gemma3-tiny heads=8 kv_heads=4 vocab=254",
    "block-tiny",
};
enum { MODELS = sizeof models / sizeof models[0] };

/* What all of them do in a step. */
#define WORK "batch=4 seq=12 bucket=4096"

static const char *const layouts[] = {
    "tp=2 micro=2",
    "tp=2 sp micro=2",
    "tp=4 micro=2",
    "tp=4 sp micro=2",
    "dp=2 tp=2 micro=1",
    "dp=2 tp=4 sp micro=1",
    "dp=4 tp=2 sp micro=1",
    "dp=4 zero=1 micro=1",
    "dp=2 tp=4 zero=1 micro=1",
    "dp=4 tp=2 sp zero=1 micro=1",
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static struct pipeline *pipeline_of(const char *model, const char *layout, const char *precision,
                                    const char *recompute)
{
    char text[120];
    snprintf(text, sizeof text, "%s %s %s", layout, WORK, precision);
    return runs_pipeline(model, text, recompute);
}

static struct history train(const char *model, const char *layout, const char *recompute)
{
    struct train_settings settings = runs_settings(4);
    struct pipeline *pipeline = pipeline_of(model, layout, "", recompute);
    struct history history = runs_train(pipeline, &settings);
    pipeline_free(pipeline);
    return history;
}

static void assert_bytes(const char *model, const char *layout, const char *precision, const char *recompute)
{
    char where[200];
    snprintf(where, sizeof where, "%s, %s %s, recompute %s", model, layout, precision, recompute);
    struct pipeline *pipeline = pipeline_of(model, layout, precision, recompute);
    struct train_settings settings = runs_settings(2);
    for (int policy = MEMORY_ARENA; policy <= MEMORY_TENSOR; policy++) {
        settings.policy = (enum memory_policy)policy;
        struct history history = runs_train(pipeline, &settings);
        ASSERT_INT(history.ranks, layout_ranks(&pipeline->stages[0]->layout));
        runs_assert_bytes(&history, pipeline, settings.policy, where);
    }
    pipeline_free(pipeline);
}

TEST_LOOP(tensor_parallel_losses,
          "ranks that share a model, alone and as replicas, have the losses and gradient norms of one rank",
          MODELS)
{
    struct history alone = train(models[_i], "micro=2", "none");
    for (int i = 0; i < LAYOUTS; i++) {
        struct history shared = train(models[_i], layouts[i], "none");
        struct distance d = runs_distance(&shared, &alone);
        ASSERT_MSG(d.loss <= 1e-5 && d.grad_norm <= 1e-5, "%s, %s: losses are %g apart, gradient norms %g",
                   models[_i], layouts[i], d.loss, d.grad_norm);
    }
}

/* No parameter of 21 or 7 rows divides by 4; of 5 biases shared by 4 replicas the last has none, and of 2 classes every
 * tensor-parallel rank has one. */
TEST(tensor_parallel_padded_shards,
     "shards of optimizer states that need padding, or are empty, change nothing")
{
    static const char *const odd[][2] = {
        {"gpt2-tiny hidden=21 heads=3 vocab=50", "dp=4 zero=1 micro=1"},
        {"gpt2-tiny hidden=21 heads=3 vocab=50", "dp=2 tp=3 sp zero=1 micro=1"},
        {"block-tiny hidden=21 heads=3 vocab=5", "dp=4 zero=1 micro=1"},
        {"block-tiny vocab=2", "dp=2 tp=2 sp zero=1 micro=1"},
    };
    for (int i = 0; i < 4; i++) {
        struct history alone = train(odd[i][0], "micro=2", "none");
        struct history sharded = train(odd[i][0], odd[i][1], "none");
        runs_assert_near(&sharded, &alone, 1e-5);
        assert_bytes(odd[i][0], odd[i][1], "bf16", "full");
    }
}

/* Recomputation does again what forward did, in the same order; what is gathered is gathered again. */
TEST_LOOP(tensor_parallel_recompute, "shared models learn the same bits whatever is recomputed", MODELS)
{
    static const char *const sets[] = {"selective", "full"};
    for (int i = 1; i <= 3; i += 2) {
        struct history plain = train(models[_i], layouts[i], "none");
        for (int k = 0; k < 2; k++) {
            struct history other = train(models[_i], layouts[i], sets[k]);
            runs_assert_same(&other, &plain);
        }
    }
}

TEST_LOOP(tensor_parallel_repeat, "a shared model trained twice has the same bits", MODELS)
{
    for (int i = 0; i < LAYOUTS; i += 3) {
        struct history first = train(models[_i], layouts[i], "none");
        struct history again = train(models[_i], layouts[i], "none");
        runs_assert_same(&again, &first);
    }
}

TEST_LOOP(tensor_parallel_bytes,
          "every rank of a shared model takes the predicted bytes, role by role, what is exchanged included",
          MODELS)
{
    static const char *const recomputes[] = {"none", "selective", "full"};
    for (int i = 0; i < LAYOUTS; i++) {
        assert_bytes(models[_i], layouts[i], "fp32", recomputes[i % 3]);
        assert_bytes(models[_i], layouts[i], "bf16", recomputes[(i + 1) % 3]);
    }
}

/* What a listener hears of validations. */
struct heard {
    int count;
    double loss[8];
};

static void hear_validation(void *context, int64_t step, double loss)
{
    struct heard *heard = context;
    (void)step;
    ASSERT(heard->count < 8);
    heard->loss[heard->count++] = loss;
}

static struct heard validate(const char *layout, const char *path)
{
    struct error err = {0};
    struct heard heard = {0};
    struct train_result result;
    struct train_listener listener = {.context = &heard, .validation = hear_validation};
    struct train_settings settings = runs_settings(4);
    settings.data_path = path;
    settings.validate_every = 2;
    struct pipeline *pipeline = pipeline_of("gpt2-tiny", layout, "", "none");
    ASSERT_OK(train_run(pipeline, &settings, &listener, &result, &err));
    train_result_clear(&result);
    pipeline_free(pipeline);
    return heard;
}

TEST(tensor_parallel_validation, "ranks that share a model validate together, and one of them reports it")
{
    char folder[RUNS_PATH], path[RUNS_PATH], text[4000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i * i % 23);
    runs_open_folder(folder);
    runs_write_file(folder, "a.txt", text, sizeof text, path);
    struct heard alone = validate("micro=2", path), shared = validate("dp=2 tp=2 sp micro=2", path);
    runs_remove_folder(folder);
    ASSERT_INT(alone.count, 2);
    ASSERT_INT(shared.count, 2);
    for (int i = 0; i < 2; i++)
        ASSERT_NEAR(shared.loss[i], alone.loss[i], 1e-5 * alone.loss[i]);
}

/* The ranks that do not have the first tokens. */
static int spoil_upper_half(const struct kernel_context *context, const struct embed_grad_args *args,
                            struct error *err)
{
    if (kernels_cpu.embed_grad(context, args, err))
        return -1;
    if (args->first_token > 0)
        *(float *)args->dwte = NAN;
    return 0;
}

TEST(tensor_parallel_diverges, "a gradient that is no number ends all ranks, and names the one that had it")
{
    struct kernel_table kernels = kernels_cpu;
    kernels.embed_grad = spoil_upper_half;
    struct train_settings settings = runs_settings(3);
    settings.kernels = &kernels;
    struct pipeline *pipeline = pipeline_of(models[0], layouts[0], "", "none");
    struct error err = runs_fail(pipeline, &settings);
    ASSERT_HAS(err.text, "rank 1: step 1, optimizer embed square_sum: the gradient norm is ");
    ASSERT_HAS(err.text, "--lr");
    pipeline_free(pipeline);
}
