/* Every layout trains alike. The same model, from the same seed, on the same global batches, run by any number of ranks
 * in any arrangement, must report the losses and gradient norms of one rank and end with its weights; where the order
 * of the operations is the same, to the bit. And every rank takes the bytes that its program predicts. */
#include "tests/test.h"
#include "tests/trainer/runs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tied embeddings, biases and positions, in an odd number of layers; untied, grouped-query heads, and enough layers for
 * 4 stages of 2 chunks; normed queries and keys in heads wider than the model, tied. The vocabulary is divided by no number of ranks. */
static const struct {
    const char *text;
    int layers, most_tp;
    const char *recomputes[5];
} models[] = {
    {"gpt2-tiny layers=5 hidden=16 heads=4 vocab=23",
     5,
     4,
     {"none", "selective", "full", "norm1+norm2+gelu", "0-1=full,2=selective,4=norm1+gelu"}},
    {"llama-tiny layers=8 hidden=16 heads=8 kv_heads=4 ffn=12 vocab=23",
     8,
     4,
     {"none", "selective", "full", "norm1+norm2+swiglu", "0-2=full,3=selective,5-7=norm1+swiglu"}},
    {"qwen3-tiny untied layers=5 hidden=16 heads=8 kv_heads=4 ffn=12 vocab=23",
     5,
     4,
     {"none", "qk_norm", "full", "qkv+norm2+swiglu", "0-1=full,2=qk_norm,4=qkv+attention"}},
    {"gemma3-tiny layers=5 hidden=16 heads=8 kv_heads=4 ffn=12 vocab=23",
     5,
     4,
     {"none", "proj+down", "full", "norm1+mid+geglu", "0-1=full,2=qk_norm,4=qkv+attention"}},
    {"olmo2-tiny layers=8 hidden=16 heads=8 kv_heads=4 ffn=12 vocab=23",
     8,
     1,
     {"none", "proj+down", "full", "mid+swiglu", "0-1=full,2=qk_norm,4=qkv+attention"}},
};
enum { GPT2, LLAMA, QWEN3, GEMMA3, OLMO2, MODELS, RECOMPUTES = 5 };

/* The global batch. */
#define BATCH          "batch=8 seq=8 micro=1"
#define BATCH_OF_PAIRS "batch=8 seq=8 micro=2"

/* A configuration of a run, its three strings; and all of it, for messages. */
struct configuration {
    char model[100], layout[120], recompute[60], text[300];
    enum memory_policy policy;
};

static struct configuration configuration_of(const char *model, const char *layout, const char *recompute)
{
    struct configuration c = {.policy = MEMORY_ARENA};
    snprintf(c.model, sizeof c.model, "%s", model);
    snprintf(c.layout, sizeof c.layout, "%s", layout);
    snprintf(c.recompute, sizeof c.recompute, "%s", recompute);
    snprintf(c.text, sizeof c.text, "%s, %s, %s", model, layout, recompute);
    return c;
}

/* Ranks that wait for each other for ever would leave nothing but a test's time limit: says who they were. */
enum { RUN_LIMIT_S = RUNS_SANITIZED ? 200 : 60 };
static const char *running;

static void tell_who_hangs(int number)
{
    static const char words[] = ": this run does not end\n";
    (void)number;
    bool told = write(STDERR_FILENO, running, strlen(running)) > 0 &&
                write(STDERR_FILENO, words, sizeof words - 1) > 0;
    _exit(told ? 1 : 2);
}

/* The run of a configuration, with its final weights; its bytes are compared with those predicted. */
static struct history train(const struct configuration *c, const struct train_settings *settings)
{
    struct error err = {0};
    char folder[RUNS_PATH];
    struct history history;
    struct train_settings writing = *settings;
    struct pipeline *pipeline = runs_pipeline(c->model, c->layout, c->recompute);
    runs_open_folder(folder);
    writing.policy = c->policy;
    writing.checkpoint_folder = folder;
    running = c->text;
    signal(SIGALRM, tell_who_hangs);
    alarm(RUN_LIMIT_S);
    ASSERT_MSG(runs_try(pipeline, &writing, &history, &err) == 0, "%s: %s", c->text, err.text);
    alarm(0);
    runs_assert_bytes(&history, pipeline, c->policy, c->text);
    history.weights = runs_read_weights(&history.model, folder, &history.weight_count);
    runs_remove_folder(folder);
    pipeline_free(pipeline);
    return history;
}

static void assert_distance(const struct history *got, const struct history *expected, struct distance most,
                            const char *where)
{
    struct distance d = runs_distance(got, expected);
    ASSERT_MSG(d.loss <= most.loss && d.grad_norm <= most.grad_norm && d.weights <= most.weights,
               "%s: losses up to %g apart, gradient norms %g, final weights %g", where, d.loss, d.grad_norm,
               d.weights);
}

/* Runs of the same model, each against the first of them. */
struct series {
    struct train_settings settings;
    struct distance most;
    struct history first;
};

static struct series series_open(const struct configuration *first, const struct train_settings *settings,
                                 struct distance most)
{
    return (struct series){*settings, most, train(first, settings)};
}

static void series_add(const struct series *series, const struct configuration *c)
{
    struct history history = train(c, &series->settings);
    assert_distance(&history, &series->first, series->most, c->text);
    runs_clear(&history);
}

static void series_close(struct series *series)
{
    runs_clear(&series->first);
}

/* The matrix: every (dp, tp, pp) of 1, 2 and 4 on at most 8 ranks, each with and without sequence parallelism where tp
 * > 1, ZeRO-1 where dp > 1, and under every schedule where pp > 1: 93 layouts, 5 fewer where the layers are too few for
 * 8 chunks. What else a run can vary goes round among them: recomputation, uneven stages, the size of buckets and
 * micro-batches, and the memory policy. */

enum { MATRIX_MOST = 100 };

struct matrix {
    int model, count;
    struct configuration list[MATRIX_MOST];
};

/* One chunk has all layers but one of each of the others. */
static const char *uneven(int layers, int chunks, int largest, char out[40])
{
    int length = snprintf(out, 40, " chunks=");
    for (int i = 0; i < chunks; i++)
        length += snprintf(out + length, 40 - (size_t)length, i ? ",%d" : "%d",
                           i == largest ? layers - chunks + 1 : 1);
    return out;
}

/* Most runs have pairs, to be quick, where that leaves a micro-batch for each stage. */
static const char *batch_of(int dp, int pp, int number)
{
    bool pairs = dp * pp <= 4 && number % 4 > 0;
    return pairs ? BATCH_OF_PAIRS : BATCH;
}

static void matrix_add(struct matrix *matrix, int dp, int tp, int pp, const char *words, int chunks)
{
    char layout[120], split[40];
    int number = matrix->count, layers = models[matrix->model].layers;
    if (chunks > layers)
        return;
    ASSERT(number < MATRIX_MOST);
    snprintf(layout, sizeof layout, "dp=%d tp=%d pp=%d %s%s%s%s", dp, tp, pp, batch_of(dp, pp, number), words,
             number % 3 == 1 ? uneven(layers, chunks, number % chunks, split) : "",
             number % 2 ? " bucket=3000" : "");
    struct configuration *c = &matrix->list[matrix->count++];
    *c = configuration_of(models[matrix->model].text, layout,
                          models[matrix->model].recomputes[number % RECOMPUTES]);
    c->policy = number % 4 == 3 ? MEMORY_TENSOR : MEMORY_ARENA;
}

static void matrix_add_schedules(struct matrix *matrix, int dp, int tp, int pp, const char *words)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1", "interleaved virtual=2"};
    char longer[80];
    for (int i = 0; i < (pp > 1 ? 4 : 0); i++) {
        snprintf(longer, sizeof longer, "%s %s", words, schedules[i]);
        matrix_add(matrix, dp, tp, pp, longer, i == 3 ? 2 * pp : pp);
    }
    if (pp == 1)
        matrix_add(matrix, dp, tp, pp, words, 1);
}

static struct matrix matrix_of(int model)
{
    struct matrix matrix = {.model = model};
    for (int dp = 1; dp <= 4; dp *= 2)
        for (int tp = 1; tp <= models[model].most_tp; tp *= 2)
            for (int pp = 1; pp <= 4 && dp * tp * pp <= 8; pp *= 2)
                for (int zero = 0; zero <= (dp > 1); zero++)
                    for (int sp = 0; sp <= (tp > 1); sp++) {
                        char words[40];
                        snprintf(words, sizeof words, "%s%s", zero ? " zero=1" : "", sp ? " sp" : "");
                        matrix_add_schedules(&matrix, dp, tp, pp, words);
                    }
    return matrix;
}

/* Losses, norms and weights of one rank within this after 20 steps, in fp32. */
static const struct distance rounding = {1e-5, 1e-5, 1e-5};
enum { STEPS = RUNS_SANITIZED ? 3 : 20, FEW_STEPS = 3, MATRIX_LOOPS = 31 };

static void train_share(int model, int layouts, int loop)
{
    struct matrix matrix = matrix_of(model);
    struct configuration alone = configuration_of(models[model].text, BATCH, "none");
    struct train_settings settings = runs_settings(STEPS);
    struct series series = series_open(&alone, &settings, rounding);
    ASSERT_INT(matrix.count, layouts);
    for (int i = loop; i < matrix.count; i += MATRIX_LOOPS)
        series_add(&series, &matrix.list[i]);
    series_close(&series);
}

TEST_DEFINE(layouts_gpt2, "GPT-2 learns the same, and takes the predicted bytes, under each of 88 layouts",
            MATRIX_LOOPS, true)
{
    train_share(0, 88, _i);
}

TEST_DEFINE(layouts_llama, "Llama learns the same, and takes the predicted bytes, under each of 93 layouts",
            MATRIX_LOOPS, true)
{
    train_share(1, 93, _i);
}

TEST_DEFINE(layouts_qwen3, "Qwen3 learns the same, and takes the predicted bytes, under each of 88 layouts",
            MATRIX_LOOPS, true)
{
    train_share(2, 88, _i);
}

TEST_DEFINE(layouts_olmo2, "OLMo 2 learns the same, and takes the predicted bytes, under each of 37 layouts",
            MATRIX_LOOPS, true)
{
    train_share(OLMO2, 37, _i);
}

TEST_DEFINE(layouts_gemma3,
            "Gemma 3 learns the same, and takes the predicted bytes, under each of 88 layouts", MATRIX_LOOPS,
            true)
{
    train_share(GEMMA3, 88, _i);
}

/* Where only the order of the sum of squares differs: the same bits when nothing is clipped by it. */
static const struct distance only_norm = {0, 1e-6, 0};
static const struct distance nothing = {0, 0, 0};

/* Every layout against the first, few steps long. */
static void assert_alike(const char *model, const char *const *layouts, int count, double max_norm,
                         struct distance most)
{
    struct configuration c = configuration_of(model, layouts[0], "none");
    struct train_settings settings = runs_settings(FEW_STEPS);
    settings.max_norm = max_norm;
    struct series series = series_open(&c, &settings, most);
    for (int i = 1; i < count; i++) {
        c = configuration_of(model, layouts[i], "none");
        series_add(&series, &c);
    }
    series_close(&series);
}

/* Whether a model of the list can be shared by tensor-parallel ranks, where the layout has them. */
static bool can_run(int model, const char *layout)
{
    return models[model].most_tp > 1 || !strstr(layout, "tp=");
}

#define COUNT_OF(list) ((int)(sizeof(list) / sizeof *(list)))
#define ASSERT_ALIKE(model, layouts, max_norm, most)                                                         \
    assert_alike(model, layouts, COUNT_OF(layouts), max_norm, most)

/* Each parameter is on one stage, which adds up its gradient over the micro-batches in their order, as one rank does. */
TEST(layouts_pipeline_exact, "stages learn the bits of one rank, whatever the schedule and the split")
{
    static const char *const layouts[] = {
        BATCH,
        BATCH " pp=2 gpipe",
        BATCH " pp=2 1f1b chunks=3,5",
        BATCH " pp=2 zb-h1 chunks=7,1",
        BATCH " pp=2 virtual=2 chunks=1,3,2,2",
        BATCH " pp=4 gpipe chunks=1,1,2,4",
        BATCH " pp=4 1f1b",
        BATCH " pp=4 zb-h1 chunks=1,3,3,1",
        BATCH " pp=4 virtual=2",
        BATCH " pp=2 virtual=3 chunks=0,2,2,2,1,1",
        BATCH " pp=4 1f1b chunks=0,4,4,0",
    };
    ASSERT_ALIKE(models[1].text, layouts, 0, only_norm);
    ASSERT_ALIKE("gpt2-tiny untied layers=8 hidden=16 heads=4 vocab=23", layouts, 0, only_norm);
}

/* The gradient of a tied embedding is summed per stage before the two are added, so one rank's bits are out of reach,
 * but not those of another schedule. */
TEST(layouts_schedules_exact, "the schedules of a split learn the same bits, whatever else is parallel")
{
    static const char *const alone[] = {BATCH " pp=4 1f1b", BATCH " pp=4 gpipe", BATCH " pp=4 zb-h1"};
    static const char *const with_dp[] = {BATCH " pp=2 dp=2 zero=1 1f1b", BATCH " pp=2 dp=2 zero=1 gpipe",
                                          BATCH " pp=2 dp=2 zero=1 zb-h1"};
    static const char *const with_tp[] = {BATCH " pp=2 tp=2 sp 1f1b", BATCH " pp=2 tp=2 sp gpipe",
                                          BATCH " pp=2 tp=2 sp zb-h1"};
    for (int i = 0; i < MODELS; i++) {
        ASSERT_ALIKE(models[i].text, alone, 1, nothing);
        ASSERT_ALIKE(models[i].text, with_dp, 1, nothing);
        if (can_run(i, with_tp[0]))
            ASSERT_ALIKE(models[i].text, with_tp, 1, nothing);
    }
}

TEST(layouts_interleaved_exact, "chunks of a stage change only the order in which squares are added up")
{
    static const char *const layouts[] = {BATCH " pp=2 dp=2 tp=2 1f1b", BATCH " pp=2 dp=2 tp=2 virtual=2"};
    for (int i = 0; i < MODELS; i++)
        if (can_run(i, layouts[0]))
            ASSERT_ALIKE(models[i].text, layouts, 0, only_norm);
}

/* A reduce-scatter adds the ranks in the order of an all-reduce. */
TEST(layouts_zero_exact, "shards of the optimizer's states, and buckets of any size, change no bit")
{
    static const char *const layouts[] = {
        BATCH " dp=4",        BATCH " dp=4 bucket=1",        BATCH " dp=4 bucket=5000",
        BATCH " dp=4 zero=1", BATCH " dp=4 zero=1 bucket=1", BATCH " dp=4 zero=1 bucket=5000"};
    for (int i = 0; i < MODELS; i++)
        ASSERT_ALIKE(models[i].text, layouts, 0, only_norm);
}

TEST(layouts_recompute_exact, "recomputation changes no bit under any kind of parallelism")
{
    static const char *const layouts[] = {BATCH " dp=2 zero=1",
                                          BATCH " tp=4",
                                          BATCH " tp=2 sp",
                                          BATCH " pp=4 1f1b",
                                          BATCH " pp=2 zb-h1",
                                          BATCH " pp=2 tp=2 dp=2 sp zero=1 virtual=2",
                                          BATCH " pp=2 tp=2 sp bf16 zb-h1"};
    struct train_settings settings = runs_settings(FEW_STEPS);
    for (int m = 0; m < MODELS; m++)
        for (int i = 0; i < COUNT_OF(layouts); i++) {
            if (!can_run(m, layouts[i]))
                continue;
            struct configuration c = configuration_of(models[m].text, layouts[i], "none");
            struct series series = series_open(&c, &settings, nothing);
            for (int k = 1; k < RECOMPUTES; k++) {
                c = configuration_of(models[m].text, layouts[i], models[m].recomputes[k]);
                series_add(&series, &c);
            }
            series_close(&series);
        }
}

/* Ranks meet each other at other moments in every run. */
TEST(layouts_repeat, "a run repeated under the same layout gives the same bits")
{
    static const char *const layouts[] = {
        BATCH " dp=4 zero=1 bucket=3000", BATCH " tp=4 sp",
        BATCH " pp=2 virtual=2",          BATCH " dp=2 tp=2 pp=2 sp zero=1 virtual=2",
        BATCH " dp=2 pp=4 zb-h1",         BATCH " dp=2 tp=4 bf16"};
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        const char *const twice[] = {layouts[i], layouts[i]};
        for (int m = 0; m < MODELS; m++)
            if (can_run(m, layouts[i]))
                ASSERT_ALIKE(models[m].text, twice, 1, nothing);
    }
}

/* What ranks add up has been rounded to bf16 before, by 2^-9 at most; one rank rounds their sum alone. In the loss, a
 * mean over 64 tokens, less than one rounding must be left of that, and in norms over all parameters no more than four.
 * Measured: 9.7e-5, 4.9e-3, 2.8e-3 at most. */
TEST(layouts_bf16, "in bf16 every kind of parallelism stays within a few roundings of one rank")
{
    static const char *const layouts[] = {
        BATCH " bf16",
        BATCH " bf16 dp=4 zero=1",
        BATCH " bf16 tp=2",
        BATCH " bf16 tp=4 sp",
        BATCH " bf16 pp=4 zb-h1",
        BATCH " bf16 dp=2 tp=2 pp=2 sp zero=1 virtual=2",
        BATCH " bf16 dp=2 pp=4 1f1b",
    };
    static const struct distance roundings = {0x1p-10, 0x1p-7, 0x1p-7};
    for (int i = 0; i < MODELS; i++) {
        struct train_settings settings = runs_settings(STEPS);
        /* Normed queries and keys turn by the rate over the size of their weights, here 0.02: at 1e-3, runs that differ by one
         * rounding in bf16 part too fast to be compared. */
        settings.rate.peak = i == QWEN3 || i == GEMMA3 ? 1e-4 : 1e-3;
        struct configuration c = configuration_of(models[i].text, layouts[0], "none");
        struct series series = series_open(&c, &settings, roundings);
        for (int k = 1; k < COUNT_OF(layouts); k++) {
            if (!can_run(i, layouts[k]))
                continue;
            c = configuration_of(models[i].text, layouts[k], models[i].recomputes[k % RECOMPUTES]);
            series_add(&series, &c);
        }
        series_close(&series);
    }
}
