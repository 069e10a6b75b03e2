/* The promise of the whole program: the bytes that a step program predicts are those that the device counts, for every
 * shape, on every rank, under both memory policies. Memory is poisoned, so a tensor that is used before or after its life
 * makes the loss NaN, which ends the run. */
#include "base/checked.h"
#include "tests/test.h"
#include "tests/trainer/runs.h"
#include "trainer/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Where a configuration is in its stream of random numbers. */
struct draw {
    struct random_stream stream;
    uint64_t place;
};

/* One of the choices; NULL ends them. */
static const char *draw_one(struct draw *draw, const char *const *choices)
{
    int count = 0;
    while (choices[count])
        count++;
    return choices[random_below(draw->stream, draw->place++, count)];
}

static int64_t draw_number(struct draw *draw, int64_t least, int64_t most)
{
    return least + random_below(draw->stream, draw->place++, most - least + 1);
}

enum { SHAPES = 5, RANKS_MOST = 8, LAYERS_MOST = 6 };

/* The three strings of runs_pipeline(), and all of them for messages. */
struct configuration {
    char model[100], layout[160], recompute[100], text[380];
};

/* One family's choices. Head sizes are odd where RoPE allows it. Each shape comes with the most ranks that can share it. */
struct family {
    const char *preset;
    struct shape {
        const char *text;
        int64_t most_tp;
    } shapes[SHAPES];
    const char *recomputes[8];
};

static const struct family gpt2 = {
    "gpt2-tiny",
    {{"hidden=32 heads=4", 4},
     {"hidden=21 heads=3", 1},
     {"hidden=20 heads=4 ffn=12", 4},
     {"hidden=8 heads=1 ffn=7", 1},
     {"hidden=48 heads=2", 2}},
    {"none", "selective", "full", "norm1+norm2+gelu", "qkv", "mid+up", "attention+gelu+mean2", NULL},
};

static const struct family llama = {
    "llama-tiny",
    {{"hidden=32 heads=4 kv_heads=2", 2},
     {"hidden=30 heads=5 kv_heads=1 ffn=33", 1},
     {"hidden=36 heads=6 kv_heads=3 ffn=17", 1},
     {"hidden=16 heads=8 kv_heads=4 ffn=12", 4},
     {"hidden=24 heads=4 kv_heads=4", 4}},
    {"none", "selective", "full", "norm1+norm2+swiglu", "qkv", "mid+gate_up", "attention+rstd1", NULL},
};

static const struct family qwen3 = {
    "qwen3-tiny",
    {{"hidden=32 heads=4 kv_heads=2", 2},
     {"hidden=30 heads=5 kv_heads=1 ffn=33", 1},
     {"hidden=36 heads=6 kv_heads=3 ffn=17", 1},
     {"hidden=16 heads=8 kv_heads=4 ffn=12", 4},
     {"hidden=24 heads=4 kv_heads=4", 4}},
    {"none", "selective", "full", "norm1+norm2+swiglu", "qkv", "qk_norm+mid", "attention+qkv+qk_norm", NULL},
};

static const struct family olmo2 = {
    "olmo2-tiny",
    {{"hidden=32 heads=4 kv_heads=2", 1},
     {"hidden=30 heads=5 kv_heads=1 ffn=33", 1},
     {"hidden=36 heads=6 kv_heads=3 ffn=17", 1},
     {"hidden=16 heads=8 kv_heads=4 ffn=12", 1},
     {"hidden=24 heads=4 kv_heads=4", 1}},
    {"none", "selective", "full", "proj+mid+swiglu", "qkv", "qk_norm+down", "attention+qkv+proj", NULL},
};

static const struct family gemma = {
    "gemma-tiny",
    {{"hidden=32 heads=4 kv_heads=2", 2},
     {"hidden=30 heads=5 kv_heads=1 ffn=33", 1},
     {"hidden=36 heads=6 kv_heads=3 ffn=17", 1},
     {"hidden=16 heads=8 kv_heads=4 ffn=12", 4},
     {"hidden=24 heads=4 kv_heads=4", 4}},
    {"none", "selective", "full", "norm1+norm2+geglu", "qkv", "mid+gate_up", "attention+rstd1", NULL},
};

static const struct family gemma3 = {
    "gemma3-tiny",
    {{"hidden=32 heads=4 kv_heads=2", 2},
     {"hidden=30 heads=5 kv_heads=1 ffn=33", 1},
     {"hidden=36 heads=6 kv_heads=3 ffn=17", 1},
     {"hidden=16 heads=8 kv_heads=4 ffn=12", 4},
     {"hidden=24 heads=4 kv_heads=4", 4}},
    {"none", "selective", "full", "proj+mid+geglu", "qkv+norm1", "qk_norm+down", "attention+norm2+proj",
     NULL},
};

static const struct family encoder = {
    "block-tiny",
    {{"hidden=32 heads=4", 4},
     {"hidden=21 heads=3", 1},
     {"hidden=33 heads=11", 1},
     {"hidden=28 heads=4 ffn=20", 4},
     {"hidden=40 heads=2", 2}},
    {"none", "selective", "full", "norm1+gelu", "qkv", "sum1+up", "attention+sum2", NULL},
};

/* Layers up to a drawn one have one set, the others another. */
static void mix_recompute(struct draw *draw, const struct family *family, int64_t layers, char out[100])
{
    long long split = draw_number(draw, 0, layers - 1);
    const char *low = draw_one(draw, family->recomputes), *high = draw_one(draw, family->recomputes);
    int length = snprintf(out, 100, "0-%lld=%s", split, low);
    if (split < layers - 1)
        snprintf(out + length, 100 - (size_t)length, ",%lld-%lld=%s", split + 1, (long long)layers - 1, high);
}

/* 1, 2 or 4, at most `most`. */
static int64_t draw_ranks(struct draw *draw, int64_t most)
{
    int64_t power = draw_number(draw, 0, 2);
    while (power > 0 && 1 << power > most)
        power--;
    return 1 << power;
}

/* Any schedule that `layers` on `pp` stages allow; how many micro-batches it takes at a time goes to *group. */
static const char *draw_schedule(struct draw *draw, int64_t pp, int64_t layers, int64_t *group)
{
    static const char *const plain[] = {"1f1b", "gpipe", "zb-h1", NULL};
    *group = 1;
    if (pp == 1)
        return "";
    if (layers < 2 * pp || draw_number(draw, 0, 3) > 0)
        return draw_one(draw, plain);
    *group = pp;
    return layers >= 3 * pp && draw_number(draw, 0, 1) ? "virtual=3" : "virtual=2";
}

static void draw_layout(struct draw *draw, int64_t most_tp, int64_t layers, char out[160])
{
    static const char *const precisions[] = {"fp32", "bf16", NULL};
    int64_t tp = draw_ranks(draw, most_tp), pp = draw_ranks(draw, min_i64(layers, RANKS_MOST / tp));
    int64_t dp = draw_ranks(draw, RANKS_MOST / tp / pp), micro = draw_number(draw, 1, 3), group;
    const char *schedule = draw_schedule(draw, pp, layers, &group);
    int64_t batch = dp * micro * group * draw_number(draw, 1, 8 / group);
    bool sp = tp > 1 && draw_number(draw, 0, 1), zero = dp > 1 && draw_number(draw, 0, 1);
    int64_t seq = sp ? tp * draw_number(draw, 1, 32 / tp) : draw_number(draw, 1, 33);
    snprintf(out, 160, "dp=%lld tp=%lld pp=%lld %s%s%s micro=%lld batch=%lld seq=%lld bucket=%lld %s",
             (long long)dp, (long long)tp, (long long)pp, schedule, sp ? " sp" : "", zero ? " zero=1" : "",
             (long long)micro, (long long)batch, (long long)seq, (long long)draw_number(draw, 1, 30000),
             draw_one(draw, precisions));
}

static struct configuration configure(const struct family *family, int number)
{
    struct configuration c;
    struct draw draw = {.stream = random_stream(7, (uint64_t)number)};
    int64_t layers = draw_number(&draw, 1, LAYERS_MOST), vocab = draw_number(&draw, 5, 300);
    const struct shape *shape = &family->shapes[draw_number(&draw, 0, SHAPES - 1)];
    snprintf(c.model, sizeof c.model, "%s layers=%lld vocab=%lld %s", family->preset, (long long)layers,
             (long long)vocab, shape->text);
    draw_layout(&draw, shape->most_tp, layers, c.layout);
    if (draw_number(&draw, 0, 1))
        mix_recompute(&draw, family, layers, c.recompute);
    else
        snprintf(c.recompute, sizeof c.recompute, "%s", draw_one(&draw, family->recomputes));
    snprintf(c.text, sizeof c.text, "%s, %s, %s", c.model, c.layout, c.recompute);
    return c;
}

/* The arena's promise without a pipeline: at most 1% above the peak. In a model so small that rounding its tensors up to
 * cache lines takes more than that, the rounding: less than 64 bytes for each tensor that lives. */
static int64_t arena_limit(const struct program *program, int64_t most_tensors)
{
    return program->peak_bytes + max_i64(program->peak_bytes / 100, 64 * most_tensors);
}

/* Two steps: what the first leaves behind must not raise the second. */
static void measure(const struct configuration *c)
{
    struct error err = {0};
    struct pipeline *pipeline = runs_pipeline(c->model, c->layout, c->recompute);
    struct train_settings settings = runs_settings(2);
    for (int policy = MEMORY_ARENA; policy <= MEMORY_TENSOR; policy++) {
        settings.policy = (enum memory_policy)policy;
        struct history history;
        ASSERT_MSG(runs_try(pipeline, &settings, &history, &err) == 0, "%s: %s", c->text, err.text);
        ASSERT_INT(history.steps, 2);
        ASSERT(isfinite(history.loss[0]) && isfinite(history.loss[1]));
        runs_assert_bytes(&history, pipeline, settings.policy, c->text);
        const struct program *program = pipeline->stages[0];
        ASSERT_MSG(pipeline->count > 1 || program->arena_bytes <= arena_limit(program, history.most_tensors),
                   "%s: an arena of %lld for a peak of %lld in %lld tensors", c->text,
                   (long long)program->arena_bytes, (long long)program->peak_bytes,
                   (long long)history.most_tensors);
    }
    pipeline_free(pipeline);
}

/* Each loop is a process of its own; together they measure 100 configurations of each family. Under a sanitizer a
 * configuration takes a second, so fewer must do. */
enum { LOOPS = 5, PER_LOOP = RUNS_SANITIZED ? 2 : 20 };

static void measure_some(const struct family *family, int loop)
{
    for (int i = 0; i < PER_LOOP; i++) {
        struct configuration c = configure(family, loop * PER_LOOP + i);
        measure(&c);
    }
}

TEST_LOOP(bytes_gpt2,
          "whatever its shape and layout, GPT-2 takes the predicted bytes to the byte, on every rank", LOOPS)
{
    measure_some(&gpt2, _i);
}

TEST_LOOP(bytes_llama,
          "whatever its shape and layout, Llama takes the predicted bytes to the byte, on every rank", LOOPS)
{
    measure_some(&llama, _i);
}

TEST_LOOP(bytes_qwen3,
          "whatever its shape and layout, Qwen3 takes the predicted bytes to the byte, on every rank", LOOPS)
{
    measure_some(&qwen3, _i);
}

TEST_LOOP(bytes_olmo2,
          "whatever its shape and layout, OLMo 2 takes the predicted bytes to the byte, on every rank", LOOPS)
{
    measure_some(&olmo2, _i);
}

TEST_LOOP(bytes_gemma,
          "whatever its shape and layout, Gemma takes the predicted bytes to the byte, on every rank", LOOPS)
{
    measure_some(&gemma, _i);
}

TEST_LOOP(bytes_gemma3,
          "whatever its shape and layout, Gemma 3 takes the predicted bytes to the byte, on every rank",
          LOOPS)
{
    measure_some(&gemma3, _i);
}

TEST_LOOP(bytes_encoder,
          "whatever its shape and layout, the encoder takes the predicted bytes to the byte, on every rank",
          LOOPS)
{
    measure_some(&encoder, _i);
}

TEST(bytes_presets, "the tiny presets at their full length take the predicted bytes")
{
    static const char *const presets[] = {"gpt2-tiny",  "llama-tiny",  "qwen3-tiny", "olmo2-tiny",
                                          "gemma-tiny", "gemma3-tiny", "block-tiny"};
    static const char *const precisions[] = {"fp32", "bf16"};
    for (int i = 0; i < 14; i++) {
        struct configuration c = {.recompute = "none"};
        snprintf(c.model, sizeof c.model, "%s", presets[i / 2]);
        snprintf(c.layout, sizeof c.layout, "micro=2 %s", precisions[i % 2]);
        snprintf(c.text, sizeof c.text, "%s, %s", c.model, c.layout);
        measure(&c);
    }
}

/* Someone else's bytes on the device. */
static int take_more(void *context, int rank, struct device *device, const struct program *program,
                     struct error *err)
{
    (void)rank, (void)program;
    struct memory_tag tag = {.tensor = -1, .role = ROLE_WORKSPACE, .name = "a stranger"};
    return device_alloc(device, *(const int64_t *)context, tag, err) ? 0 : -1;
}

/* Proof that the comparisons above can fail: the device counts what the program knows nothing of. */
TEST(bytes_stranger, "23 bytes that the program does not know of raise the measured peak by exactly 23")
{
    struct error err = {0};
    struct train_result result;
    int64_t extra = 23;
    struct train_listener listener = {.context = &extra, .start = take_more};
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", "micro=1 seq=17", "none");
    const struct program *program = pipeline->stages[0];
    struct train_settings settings = runs_settings(1);
    for (int policy = MEMORY_ARENA; policy <= MEMORY_TENSOR; policy++) {
        settings.policy = (enum memory_policy)policy;
        ASSERT_OK(train_run(pipeline, &settings, &listener, &result, &err));
        ASSERT_INT(result.usage[0].peak_bytes - program->peak_bytes, 23);
        for (int role = 0; role < ROLE_COUNT; role++)
            ASSERT_INT(result.usage[0].at_peak[role] - program->at_peak[role],
                       role == ROLE_WORKSPACE ? 23 : 0);
        train_result_clear(&result);
    }
    pipeline_free(pipeline);
}
