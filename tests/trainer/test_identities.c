/* What must hold of a whole model's loss and gradients whatever its weights are, and that a model can learn at all. */
#include "tests/test.h"
#include "tests/trainer/runs.h"
#include "tests/trainer/solo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 11, WINDOW = T + 1 };

/* Four sequences and the letter after each. No two begin alike, and none has a letter twice: the encoder knows no
 * positions, and would have to say the same for both. */
static const char windows[4][WINDOW + 1] = {"quick brownx", "fox jumpsedy", "the lazydogs", "pack myliquo"};

/* A text of these windows, in this order. */
static const char *write_windows(const char *folder, const char *order, char path[RUNS_PATH])
{
    char text[8 * WINDOW];
    int64_t bytes = 0;
    for (const char *which = order; *which; which++, bytes += WINDOW)
        memcpy(text + bytes, windows[*which - '0'], WINDOW);
    return runs_write_file(folder, order, text, bytes, path);
}

/* All in double, where only the order of sums is left to differ. */
static struct solo open_exact(const char *model, const char *layout, const char *data_path)
{
    struct solo solo;
    char exact[64];
    snprintf(exact, sizeof exact, "%s seq=%d fp64", layout, T);
    solo_open(&solo, runs_program(model, exact, "none"), &kernels_reference, data_path);
    solo_stir(&solo, 0.2);
    return solo;
}

TEST(identities_zero_logits, "a model of zeros is as surprised as chance: its loss is ln V")
{
    static const char *const models[] = {"gpt2-tiny",  "llama-tiny vocab=1000", "qwen3-tiny", "olmo2-tiny",
                                         "gemma-tiny", "gemma3-tiny",           "block-tiny"};
    const double vocab[] = {256, 1000, 256, 256, 256, 256, 10};
    for (int i = 0; i < 7; i++) {
        struct solo solo;
        solo_open(&solo, runs_program(models[i], "micro=2 seq=11", "none"), &kernels_cpu, "random");
        for (int64_t instance = 0; instance < solo.program->instances; instance++)
            for (int k = 0; k < program_block(solo.program, instance)->parameter_count; k++) {
                double *zeros = calloc((size_t)solo_count(&solo, instance, k), sizeof *zeros);
                solo_write(&solo, instance, k, STATE_WEIGHT, zeros);
                free(zeros);
            }
        ASSERT_NEAR(solo_loss(&solo), log(vocab[i]), 1e-6);
        solo_close(&solo);
    }
}

/* Kernels that keep what the loss is made from: the logits of one sequence. */
static float seen_logits[T * 256];

static int see_cross_entropy(const struct kernel_context *context, const struct cross_entropy_args *args,
                             struct error *err)
{
    ASSERT_INT(args->R, T);
    memcpy(seen_logits, args->logits, (size_t)(args->R * args->V) * sizeof(float));
    return kernels_cpu.cross_entropy(context, args, err);
}

static void logits_of(const char *model, const char *text, float logits[T * 256])
{
    char folder[RUNS_PATH], path[RUNS_PATH];
    struct kernel_table seeing = kernels_cpu;
    seeing.cross_entropy = see_cross_entropy;
    runs_open_folder(folder);
    runs_write_file(folder, "text", text, WINDOW, path);
    struct solo solo;
    solo_open(&solo, runs_program(model, "micro=1 seq=11", "none"), &seeing, path);
    solo_stir(&solo, 0.2);
    solo_loss(&solo);
    memcpy(logits, seen_logits, sizeof seen_logits);
    solo_close(&solo);
    runs_remove_folder(folder);
}

/* The first position whose logits change when the tokens from `cut` on do. */
static int first_change(const char *model, int cut)
{
    static float plain[T * 256], changed[T * 256];
    char text[] = "quick brownx";
    logits_of(model, text, plain);
    for (int t = cut; t < WINDOW; t++)
        text[t] ^= 1;
    logits_of(model, text, changed);
    int64_t columns = strstr(model, "block") ? 10 : 256;
    for (int t = 0; t < T; t++)
        if (memcmp(plain + t * columns, changed + t * columns, (size_t)columns * sizeof(float)))
            return t;
    return T;
}

TEST(identities_causal, "what a position predicts depends on no later token, bit for bit")
{
    for (int cut = 1; cut < T; cut++) {
        ASSERT_INT(first_change("gpt2-tiny", cut), cut);
        ASSERT_INT(first_change("llama-tiny", cut), cut);
        ASSERT_INT(first_change("qwen3-tiny", cut), cut);
        ASSERT_INT(first_change("olmo2-tiny", cut), cut);
        ASSERT_INT(first_change("gemma3-tiny", cut), cut);
    }
    ASSERT_INT(first_change("block-tiny", T - 1), 0);
}

TEST(identities_permuted, "the order of sequences in a batch changes neither loss nor gradients")
{
    char folder[RUNS_PATH], path[RUNS_PATH];
    runs_open_folder(folder);
    static const char *const models[] = {"gpt2-tiny",  "llama-tiny",  "qwen3-tiny", "olmo2-tiny",
                                         "gemma-tiny", "gemma3-tiny", "block-tiny"};
    for (int i = 0; i < 7; i++) {
        struct solo straight = open_exact(models[i], "micro=4", write_windows(folder, "0123", path));
        struct solo permuted = open_exact(models[i], "micro=4", write_windows(folder, "2031", path));
        double loss = solo_loss(&straight);
        ASSERT_NEAR(solo_loss(&permuted), loss, 1e-12 * loss);
        solo_assert_gradients(&permuted, &straight, 1e-12);
        solo_close(&straight);
        solo_close(&permuted);
    }
    runs_remove_folder(folder);
}

TEST(identities_doubled, "every sequence twice leaves the mean loss and the gradients as they were")
{
    char folder[RUNS_PATH], path[RUNS_PATH];
    runs_open_folder(folder);
    static const char *const models[] = {"gpt2-tiny",  "llama-tiny",  "qwen3-tiny", "olmo2-tiny",
                                         "gemma-tiny", "gemma3-tiny", "block-tiny"};
    for (int i = 0; i < 7; i++) {
        struct solo once = open_exact(models[i], "micro=2", write_windows(folder, "01", path));
        struct solo twice = open_exact(models[i], "micro=2 batch=4", write_windows(folder, "0101", path));
        double loss = solo_loss(&once);
        ASSERT_NEAR(solo_loss(&twice), loss, 1e-12 * loss);
        solo_assert_gradients(&twice, &once, 1e-12);
        solo_close(&once);
        solo_close(&twice);
    }
    runs_remove_folder(folder);
}

/* The same weights in both places give the same function, whose derivative by the shared matrix is the sum of those by
 * the two. */
TEST(identities_tied, "the gradient of a tied matrix is that of the embedding plus that of the head")
{
    struct solo tied = open_exact("gpt2-tiny vocab=19", "micro=2 batch=4", "random");
    struct solo untied = open_exact("gpt2-tiny vocab=19 untied", "micro=2 batch=4", "random");
    int64_t head = untied.program->instances - 1, count = solo_count(&tied, 0, 0);
    int wte = solo_find(&untied, 0, PARAM_WTE), matrix = solo_find(&untied, head, PARAM_HEAD);
    double *weights = solo_read(&untied, 0, wte, STATE_WEIGHT);
    solo_write(&untied, head, matrix, STATE_WEIGHT, weights);
    double loss = solo_loss(&tied);
    ASSERT_NEAR(solo_loss(&untied), loss, 1e-12 * loss);
    double *whole = solo_read(&tied, 0, wte, STATE_GRADIENT);
    double *sum = solo_read(&untied, 0, wte, STATE_GRADIENT);
    double *part = solo_read(&untied, head, matrix, STATE_GRADIENT);
    ASSERT(solo_distance(sum, whole, count) > 0.01);
    for (int64_t i = 0; i < count; i++)
        sum[i] += part[i];
    ASSERT(solo_distance(sum, whole, count) < 1e-12);
    free(weights);
    free(whole);
    free(sum);
    free(part);
    solo_close(&tied);
    solo_close(&untied);
}

/* Column sums of a (rows, columns) gradient. */
static void sum_rows(const struct solo *solo, int index, int64_t columns, double *sums)
{
    double *gradient = solo_read(solo, 0, index, STATE_GRADIENT);
    memset(sums, 0, (size_t)columns * sizeof *sums);
    for (int64_t i = 0; i < solo_count(solo, 0, index); i++)
        sums[i % columns] += gradient[i];
    free(gradient);
}

/* Every token's d goes to one row of each: the row of the token and the row of its position. */
TEST(identities_positions, "the rows of the positions' gradient add up to those of the embedding's")
{
    enum { C = 32 };
    double by_token[C], by_position[C];
    struct solo solo = open_exact("gpt2-tiny untied", "micro=2 batch=4", "random");
    solo_loss(&solo);
    sum_rows(&solo, solo_find(&solo, 0, PARAM_WTE), C, by_token);
    sum_rows(&solo, solo_find(&solo, 0, PARAM_WPE), C, by_position);
    ASSERT(solo_distance(by_token, by_position, C) < 1e-12);
    double *gradient = solo_read(&solo, 0, solo_find(&solo, 0, PARAM_WPE), STATE_GRADIENT);
    for (int64_t i = T * C; i < 64 * C; i++)
        ASSERT(gradient[i] == 0);
    free(gradient);
    solo_close(&solo);
}

/* The four sequences are in every batch: nothing but memory is needed. */
TEST(identities_overfit, "a small model learns one batch by heart")
{
    char folder[RUNS_PATH], path[RUNS_PATH];
    runs_open_folder(folder);
    static const char *const models[] = {"gpt2-tiny",  "llama-tiny",  "qwen3-tiny",          "olmo2-tiny",
                                         "gemma-tiny", "gemma3-tiny", "block-tiny vocab=256"};
    for (int i = 0; i < 7; i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct pipeline *pipeline =
                runs_pipeline(models[i], bf16 ? "micro=4 seq=11 bf16" : "micro=4 seq=11", "none");
            struct train_settings settings = runs_settings(150);
            settings.data_path = write_windows(folder, "0123", path);
            settings.rate.peak = 1e-2;
            settings.decay = 0;
            struct history history = runs_train(pipeline, &settings);
            ASSERT(history.loss[0] > 5);
            ASSERT_MSG(history.loss[149] < 0.05, "%s: the loss is still %g", models[i], history.loss[149]);
            pipeline_free(pipeline);
        }
    runs_remove_folder(folder);
}
