/* Stages that pass micro-batches to each other train the model that one rank trains, in the predicted bytes, under every
 * schedule and with uneven stages, and agree on the validation loss. */
#include "tests/test.h"
#include "tests/trainer/runs.h"

#include <stdio.h>
#include <string.h>

static const char *const models[] = {
    "gpt2-tiny layers=4 vocab=251",
    "gpt2-tiny layers=4 untied vocab=50",
    "llama-tiny layers=4 heads=8 kv_heads=4 vocab=254",
    "qwen3-tiny layers=4 heads=8 kv_heads=4 vocab=254",
    "gemma-tiny layers=4 heads=8 kv_heads=4 vocab=254",
    "gemma3-tiny layers=4 heads=8 kv_heads=4 vocab=254",
    "olmo2-tiny layers=4 heads=8 kv_heads=4 vocab=254",
    "block-tiny layers=4",
};
enum { MODELS = sizeof models / sizeof models[0] };

/* What all of them do in a step. */
#define WORK "batch=8 seq=12 bucket=4096"

static const char *const layouts[] = {
    "pp=2 micro=1",
    "pp=2 micro=2 chunks=1,3",
    "pp=2 micro=1 gpipe",
    "pp=2 micro=1 zb-h1",
    "pp=2 micro=1 virtual=2",
    "pp=4 micro=1",
    "pp=4 micro=2 gpipe",
    "pp=4 micro=1 zb-h1",
    "pp=2 dp=2 micro=1 zb-h1",
    "pp=2 dp=2 micro=1 virtual=2 zero=1",
    "pp=2 tp=2 micro=2 zb-h1",
    "pp=2 tp=2 sp micro=2 zb-h1 chunks=3,1",
    "pp=2 dp=2 tp=2 sp micro=2 zero=1",
    "pp=2 micro=1 virtual=3 chunks=0,1,1,1,1,0",
    "pp=4 micro=1 chunks=0,2,2,0",
    "pp=2 micro=2 zb-h1 chunks=4,0",
    "pp=4 micro=1 gpipe chunks=0,3,1,0",
    "pp=2 dp=2 micro=1 virtual=3 zero=1",
    "pp=2 tp=2 sp micro=1 virtual=2 chunks=0,1,2,1",
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], BARE_ENDS = 6 };

/* In the last of them an embedding or a head stands alone, which an encoder's may not; OLMo 2's heads are not shared. */
static bool has_layout(const char *model, int i)
{
    bool encoder = !strncmp(model, "block", 5), olmo2 = !strncmp(model, "olmo2", 5);
    return !(encoder && i >= LAYOUTS - BARE_ENDS) && !(olmo2 && strstr(layouts[i], "tp="));
}

static struct pipeline *pipeline_of(const char *model, const char *layout, const char *recompute)
{
    char text[120];
    snprintf(text, sizeof text, "%s " WORK, layout);
    return runs_pipeline(model, text, recompute);
}

static struct history train(const char *model, const char *layout, const char *recompute)
{
    struct train_settings settings = runs_settings(4);
    struct pipeline *pipeline = pipeline_of(model, layout, recompute);
    struct history history = runs_train(pipeline, &settings);
    pipeline_free(pipeline);
    return history;
}

TEST_LOOP(pipeline_losses, "every pipeline has the losses and gradient norms of one rank", MODELS)
{
    struct history alone = train(models[_i], "micro=2", "none");
    for (int i = 0; i < LAYOUTS; i++) {
        if (!has_layout(models[_i], i))
            continue;
        struct history staged = train(models[_i], layouts[i], "none");
        struct distance d = runs_distance(&staged, &alone);
        ASSERT_MSG(d.loss <= 1e-5 && d.grad_norm <= 1e-5, "%s, %s: losses are %g apart, gradient norms %g",
                   models[_i], layouts[i], d.loss, d.grad_norm);
    }
}

TEST_LOOP(pipeline_bytes, "every stage takes the bytes that its program predicts, whatever is recomputed",
          MODELS)
{
    static const char *const sets[] = {"none", "full", "0=full,2-3=selective"};
    struct train_settings settings = runs_settings(2);
    for (int i = 0; i < LAYOUTS; i++)
        for (int policy = MEMORY_ARENA; policy <= MEMORY_TENSOR && has_layout(models[_i], i); policy++) {
            char where[200];
            const char *recompute = sets[(i + policy) % 3];
            struct pipeline *pipeline = pipeline_of(models[_i], layouts[i], recompute);
            snprintf(where, sizeof where, "%s, %s, recompute %s", models[_i], layouts[i], recompute);
            settings.policy = (enum memory_policy)policy;
            struct history history = runs_train(pipeline, &settings);
            runs_assert_bytes(&history, pipeline, settings.policy, where);
            pipeline_free(pipeline);
        }
}

static void see_validation(void *context, int64_t step, double loss)
{
    ASSERT_INT(step, 2);
    *(double *)context = loss;
}

static double validate(const char *model, const char *layout, const char *data_path)
{
    double loss = 0;
    struct error err = {0};
    struct train_settings settings = runs_settings(2);
    struct train_listener listener = {.context = &loss, .validation = see_validation};
    struct train_result result;
    struct pipeline *pipeline = pipeline_of(model, layout, "none");
    settings.data_path = data_path;
    settings.validate_every = 2;
    ASSERT_OK(train_run(pipeline, &settings, &listener, &result, &err));
    train_result_clear(&result);
    pipeline_free(pipeline);
    return loss;
}

TEST_LOOP(pipeline_validation, "the first rank reports the validation loss that the last stage found", MODELS)
{
    char folder[RUNS_PATH], path[RUNS_PATH], tokens[1000];
    for (int i = 0; i < 1000; i++)
        tokens[i] = (char)(i * i / 7 % 2);
    runs_open_folder(folder);
    runs_write_file(folder, "tokens.txt", tokens, sizeof tokens, path);
    double alone = validate(models[_i], "micro=1", path);
    ASSERT(alone > 0);
    for (int i = 0; i < LAYOUTS; i++)
        if (has_layout(models[_i], i) && strstr(layouts[i], "micro=1"))
            ASSERT_NEAR(validate(models[_i], layouts[i], path), alone, 1e-5 * alone);
    runs_remove_folder(folder);
}
