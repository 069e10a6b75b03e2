/* Mistakes of combined parallelism that other trainers have made, and that no message told of: the loss goes down all the
 * same. Each test is one of them. They look at what every rank holds: its weights and gradients are copied from its memory
 * after a step, and are compared with those of one rank, element by element. */
#include "base/arena.h"
#include "tests/test.h"
#include "tests/trainer/runs.h"
#include "tests/trainer/solo.h"
#include "trainer/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tied, with biases and positions; untied, with grouped-query heads. The vocabulary is odd. */
static const char *const gpt2 = "gpt2-tiny layers=4 hidden=16 heads=4 vocab=23";
static const char *const llama = "llama-tiny layers=4 hidden=16 heads=8 kv_heads=4 ffn=12 vocab=23";

enum { BATCH = 8, SEQ = 8 };
#define STEP " batch=8 seq=8 "
static const char *const alone = "micro=8" STEP;

enum { PARAMETERS_MOST = 128, IDS_MOST = 1024 };

/* What one rank holds, by its own count of parameters. */
struct held {
    struct device *device;
    const struct program *program; /* of its stage */
    struct layout_place place;
    const void *addresses[IDS_MOST]; /* of its states, by id */
    float *weights[PARAMETERS_MOST], *gradients[PARAMETERS_MOST];
    struct observer observer;
};

/* All ranks after the last step of a run. */
struct view {
    struct pipeline *pipeline; /* owned */
    struct program *whole; /* one rank's program: its parameters, one after another, are the model's; owned */
    int64_t last_step;
    double loss, grad_norm;
    int ranks;
    struct held held[RUNS_RANKS_MAX];
};

static void see_memory(void *context, const struct memory_event *event)
{
    struct held *held = context;
    if (event->bytes > 0 && event->tag.tensor >= 0 && event->tag.tensor < IDS_MOST)
        held->addresses[event->tag.tensor] = (const void *)event->address;
}

static int see_start(void *context, int rank, struct device *device, const struct program *program,
                     struct error *err)
{
    struct view *view = context;
    struct held *held = &view->held[rank];
    held->device = device;
    held->program = program;
    held->place = layout_place_of(&program->layout, rank);
    held->observer = (struct observer){.context = held, .memory = see_memory};
    return device_observe(device, &held->observer, err);
}

static float *copy_state(const struct held *held, int64_t instance, int index, enum state state)
{
    struct placed t = program_state(held->program, instance, index, state);
    int64_t bytes = program_block(held->program, instance)->parameters[index].count * (int64_t)sizeof(float);
    float *copy = host_alloc((size_t)bytes);
    ASSERT(t.dtype == DTYPE_F32 && t.id < IDS_MOST && held->addresses[t.id]);
    device_read(held->device, copy, held->addresses[t.id], bytes);
    return copy;
}

static void see_step(void *context, const struct step_report *report)
{
    struct view *view = context;
    struct held *held = &view->held[report->rank];
    if (report->step != view->last_step)
        return;
    view->loss = report->loss;
    view->grad_norm = report->grad_norm;
    for (int64_t i = 0, n = 0; i < held->program->instances; i++)
        for (int k = 0; k < program_block(held->program, i)->parameter_count; k++, n++) {
            ASSERT(n < PARAMETERS_MOST);
            held->weights[n] = copy_state(held, i, k, STATE_WEIGHT);
            held->gradients[n] = copy_state(held, i, k, STATE_GRADIENT);
        }
}

/* Runs, and copies what all ranks hold after the last step; ended by view_close(). */
static struct view *view_open(const char *model, const char *layout, const struct train_settings *settings)
{
    struct error err = {0};
    struct train_result result;
    struct view *view = host_alloc(sizeof *view);
    view->pipeline = runs_pipeline(model, layout, "none");
    view->whole = runs_program(model, alone, "none");
    view->last_step = settings->steps - 1;
    struct train_listener listener = {.context = view, .start = see_start, .step = see_step};
    ASSERT_MSG(train_run(view->pipeline, settings, &listener, &result, &err) == 0, "%s, %s: %s", model,
               layout, err.text);
    view->ranks = result.ranks;
    train_result_clear(&result);
    return view;
}

static void view_close(struct view *view)
{
    for (int rank = 0; rank < view->ranks; rank++)
        for (int n = 0; n < PARAMETERS_MOST; n++) {
            free(view->held[rank].weights[n]);
            free(view->held[rank].gradients[n]);
        }
    pipeline_free(view->pipeline);
    program_free(view->whole);
    free(view);
}

static const struct parameter *parameter_at(const struct program *program, int64_t instance, int index)
{
    return &program_block(program, instance)->parameters[index];
}

/* Where a parameter begins among the model's elements. */
static int64_t whole_base(const struct program *whole, struct parameter_name name)
{
    int64_t base = 0;
    for (int64_t i = 0; i < whole->instances; i++)
        for (int k = 0; k < program_block(whole, i)->parameter_count; k++) {
            struct parameter_name other = program_parameter(whole, i, k);
            if (other.part == name.part && other.layer == name.layer && other.id == name.id)
                return base;
            base += parameter_at(whole, i, k)->count;
        }
    ck_abort_msg("the model has no parameter %d of layer %d", (int)name.id, (int)name.layer);
}

/* Which of the model's elements each element of a rank's parameter is; -1: padding. The caller frees it. */
static int64_t *positions_of(const struct view *view, const struct held *held, int64_t instance, int index)
{
    const struct parameter *p = parameter_at(held->program, instance, index);
    int64_t base = whole_base(view->whole, program_parameter(held->program, instance, index));
    int64_t *positions = host_alloc((size_t)p->count * sizeof *positions), global;
    for (int64_t i = 0; i < p->count;) {
        int64_t end = i + parameters_stretch(p, held->program->layout.tp, held->place.part, i, &global);
        for (int64_t at = global < 0 ? -1 : base + global; i < end; i++) {
            positions[i] = at;
            at += at >= 0;
        }
    }
    return positions;
}

/* "rank 3, layer 2 norm1", for messages; valid until the next call. */
static const char *name_of(const struct view *view, const struct held *held, int64_t instance, int index)
{
    static char name[PROGRAM_NAME + 64];
    char part[PROGRAM_NAME];
    snprintf(name, sizeof name, "rank %d, %s %s", (int)(held - view->held),
             program_instance_name(held->program, instance, part),
             parameter_at(held->program, instance, index)->name);
    return name;
}

/* The elements of a parameter's gradient that are there: with ZeRO the rank's shard. */
static struct state_shard gradient_shard(const struct held *held, int64_t instance, int index)
{
    return program_shard(held->program, instance, index, held->place.replica);
}

/* A rank's gradient of one parameter against the same elements of one rank's, `expected`: |a - b| / |b|. */
static double gradient_distance(const struct view *view, const struct held *held, int64_t instance, int index,
                                const float *gradient, const float *expected)
{
    double apart = 0, norm = 0;
    struct state_shard shard = gradient_shard(held, instance, index);
    int64_t *positions = positions_of(view, held, instance, index);
    for (int64_t i = shard.first; i < shard.first + shard.count; i++) {
        double right = positions[i] < 0 ? 0 : (double)expected[positions[i]],
               off = (double)gradient[i] - right;
        apart += off * off;
        norm += right * right;
    }
    free(positions);
    return apart == 0 ? 0 : sqrt(apart / norm);
}

/* The gradients of a run of one rank, in the order of the model. The caller frees them. */
static float *whole_gradients(const struct view *one)
{
    const struct held *held = &one->held[0];
    float *all = host_alloc((size_t)model_parameters(&one->whole->model) * sizeof *all), *next = all;
    for (int64_t i = 0, n = 0; i < held->program->instances; i++)
        for (int k = 0; k < program_block(held->program, i)->parameter_count; k++, n++) {
            int64_t count = parameter_at(held->program, i, k)->count;
            memcpy(next, held->gradients[n], (size_t)count * sizeof *next);
            next += count;
        }
    return all;
}

/* Every rank's gradients of every parameter against those of one rank. */
static void assert_gradients(const struct view *got, const struct view *one, const char *layout)
{
    float *expected = whole_gradients(one);
    for (int rank = 0; rank < got->ranks; rank++) {
        const struct held *held = &got->held[rank];
        for (int64_t i = 0, n = 0; i < held->program->instances; i++)
            for (int k = 0; k < program_block(held->program, i)->parameter_count; k++, n++) {
                double d = gradient_distance(got, held, i, k, held->gradients[n], expected);
                ASSERT_MSG(d <= 1e-5, "%s: %s: the gradient is %g of its norm from that of one rank", layout,
                           name_of(got, held, i, k), d);
            }
    }
    free(expected);
}

/* What all ranks hold of the same parameter of the model is the same, bit for bit, and together they hold all of it.
 * Returns how many elements more than one rank holds. */
static int64_t assert_same_weights(const struct view *view, const char *layout)
{
    int64_t count = model_parameters(&view->whole->model), twice = 0, once = 0;
    float *values = host_alloc((size_t)count * sizeof *values);
    bool *seen = host_alloc((size_t)count * sizeof *seen);
    for (int rank = 0; rank < view->ranks; rank++) {
        const struct held *held = &view->held[rank];
        for (int64_t i = 0, n = 0; i < held->program->instances; i++)
            for (int k = 0; k < program_block(held->program, i)->parameter_count; k++, n++) {
                int64_t *at = positions_of(view, held, i, k);
                for (int64_t e = 0; e < parameter_at(held->program, i, k)->count; e++) {
                    if (at[e] < 0)
                        continue;
                    float *value = &values[at[e]];
                    ASSERT_MSG(!seen[at[e]] || !memcmp(value, &held->weights[n][e], sizeof *value),
                               "%s: %s: element %lld is %.9g, and %.9g on a rank before", layout,
                               name_of(view, held, i, k), (long long)e, (double)held->weights[n][e],
                               (double)*value);
                    *value = held->weights[n][e];
                    twice += seen[at[e]];
                    once += !seen[at[e]];
                    seen[at[e]] = true;
                }
                free(at);
            }
    }
    ASSERT_INT(once, count);
    free(values);
    free(seen);
    return twice;
}

/* A checkpoint of step 0 to start runs from: initial weights with noise, so that no gradient is small by symmetry and no
 * two layers are alike; or zeros. */
static void write_start(const char *model, bool zeros, char folder[RUNS_PATH])
{
    struct error err = {0};
    struct solo solo;
    solo_open(&solo, runs_program(model, alone, "none"), &kernels_cpu, "random");
    solo_stir(&solo, 0.2);
    for (int64_t i = 0; zeros && i < solo.program->instances; i++)
        for (int k = 0; k < program_block(solo.program, i)->parameter_count; k++) {
            double *none = calloc((size_t)solo_count(&solo, i, k), sizeof *none);
            solo_write(&solo, i, k, STATE_WEIGHT, none);
            free(none);
        }
    runs_open_folder(folder);
    struct checkpoint_info info = {.step = 0, .seed = 1, .global_batch = BATCH, .seq_len = SEQ};
    ASSERT_OK(checkpoint_write(folder, &solo.access, &info, NULL, &err));
    solo_close(&solo);
}

/* Runs of one model from the same noisy weights. */
struct lab {
    const char *model;
    char folder[RUNS_PATH];
    struct train_settings settings;
    struct view *one; /* one rank */
};

static struct lab lab_open(const char *model, int64_t steps)
{
    struct lab lab = {.model = model, .settings = runs_settings(steps)};
    write_start(model, false, lab.folder);
    lab.settings.resume_folder = lab.folder;
    lab.one = view_open(model, alone, &lab.settings);
    return lab;
}

/* The folder's name lies in the struct, wherever that has been copied to. */
static struct view *lab_view(struct lab *lab, const char *layout)
{
    lab->settings.resume_folder = lab->folder;
    return view_open(lab->model, layout, &lab->settings);
}

static void lab_close(struct lab *lab)
{
    view_close(lab->one);
    runs_remove_folder(lab->folder);
}

/* Which parameters a mistake would count wrongly. */
typedef bool chosen(const struct parameter *parameter);

static bool is_replicated(const struct parameter *p)
{
    return p->sharing == SHARED_NOT;
}

static bool is_embedding(const struct parameter *p)
{
    return p->id == PARAM_WTE;
}

/* The share of the gradient's square that the chosen parameters have. */
static double square_share(const struct view *one, chosen *choose)
{
    double some = 0, all = 0;
    const struct held *held = &one->held[0];
    for (int64_t i = 0, n = 0; i < held->program->instances; i++)
        for (int k = 0; k < program_block(held->program, i)->parameter_count; k++, n++) {
            const struct parameter *p = parameter_at(held->program, i, k);
            for (int64_t e = 0; e < p->count; e++) {
                double square = (double)held->gradients[n][e] * (double)held->gradients[n][e];
                all += square;
                some += choose(p) ? square : 0;
            }
        }
    return some / all;
}

static void assert_close(double got, double expected, double tolerance, const char *what, const char *model,
                         const char *layout)
{
    ASSERT_MSG(fabs(got - expected) <= tolerance * expected, "%s, %s: the %s is %.9g, not %.9g", model,
               layout, what, got, expected);
}

/* Norms of the first step within rounding of one rank's. What the chosen parameters have of it is large enough that
 * counting them twice, or not at all, would show. */
static void assert_norm(struct lab *lab, chosen *choose, const char *const *layouts, int count)
{
    double share = square_share(lab->one, choose);
    ASSERT_MSG(share > 0.01, "only %g of the square of the norm is at stake", share);
    for (int i = 0; i < count; i++) {
        struct view *view = lab_view(lab, layouts[i]);
        assert_close(view->grad_norm, lab->one->grad_norm, 1e-5, "gradient norm", lab->model, layouts[i]);
        view_close(view);
    }
}

/* What a run of several ranks must have in common with that of one. */
typedef void check_run(const struct lab *lab, const struct view *view, const char *layout);

static void check_loss(const struct lab *lab, const struct view *view, const char *layout)
{
    assert_close(view->loss, lab->one->loss, 1e-6, "loss", lab->model, layout);
}

static void check_gradients(const struct lab *lab, const struct view *view, const char *layout)
{
    assert_gradients(view, lab->one, layout);
}

/* Means over the batch. */
static void check_means(const struct lab *lab, const struct view *view, const char *layout)
{
    check_loss(lab, view, layout);
    check_gradients(lab, view, layout);
}

/* The first step of both models under each of the layouts. */
static void check_layouts(const char *const *layouts, int count, check_run *check)
{
    const char *const models[] = {gpt2, llama};
    for (int m = 0; m < 2; m++) {
        struct lab lab = lab_open(models[m], 1);
        for (int i = 0; i < count; i++) {
            struct view *view = lab_view(&lab, layouts[i]);
            check(&lab, view, layouts[i]);
            view_close(view);
        }
        lab_close(&lab);
    }
}

#define COUNT_OF(list) ((int)(sizeof(list) / sizeof *(list)))

/* TransformerEngine PR 715: norms 1.36 to 1.52 times too large. */
TEST(silent_norm_replicated, "what tensor-parallel ranks all hold is counted once in the gradient's norm")
{
    static const char *const layouts[] = {"micro=2 tp=2" STEP, "micro=2 tp=4" STEP, "micro=2 tp=4 sp" STEP,
                                          "micro=2 tp=2 dp=2 zero=1" STEP, "micro=2 tp=2 pp=2" STEP};
    const char *const models[] = {gpt2, llama};
    for (int i = 0; i < 2; i++) {
        struct lab lab = lab_open(models[i], 1);
        assert_norm(&lab, is_replicated, layouts, COUNT_OF(layouts));
        lab_close(&lab);
    }
}

/* Megatron-LM PR 7228: sqrt(2) too large where the embedding dominates. */
TEST(silent_norm_tied,
     "an embedding on the first stage and on the last is counted once in the gradient's norm")
{
    static const char *const layouts[] = {"micro=1 pp=2 1f1b" STEP, "micro=1 pp=4 zb-h1" STEP,
                                          "micro=1 pp=2 virtual=2" STEP, "micro=1 pp=2 tp=2 sp" STEP,
                                          "micro=1 pp=2 dp=2 zero=1" STEP};
    struct lab lab = lab_open(gpt2, 1);
    assert_norm(&lab, is_embedding, layouts, COUNT_OF(layouts));
    lab_close(&lab);
}

/* Megatron-LM issue 7452. A parameter with no gradient worth the name could be left out unnoticed, so each has one. */
TEST(silent_norm_complete, "no parameter is left out of the gradient's norm where ranks share it")
{
    static const char *const layouts[] = {"micro=2 tp=2" STEP, "micro=2 tp=4 sp" STEP,
                                          "micro=1 tp=2 dp=2 pp=2 zero=1" STEP};
    const char *const models[] = {gpt2, llama};
    for (int m = 0; m < 2; m++) {
        struct lab lab = lab_open(models[m], 1);
        const struct held *held = &lab.one->held[0];
        double norm = lab.one->grad_norm;
        for (int64_t i = 0, n = 0; i < held->program->instances; i++)
            for (int k = 0; k < program_block(held->program, i)->parameter_count; k++, n++) {
                double square = 0;
                for (int64_t e = 0; e < parameter_at(held->program, i, k)->count; e++)
                    square += pow((double)held->gradients[n][e], 2);
                ASSERT_MSG(square > 1e-5 * norm * norm, "%s, %s: only %g of the square of the norm",
                           models[m], name_of(lab.one, held, i, k), square / (norm * norm));
            }
        for (int i = 0; i < COUNT_OF(layouts); i++) {
            struct view *view = lab_view(&lab, layouts[i]);
            assert_close(view->grad_norm, norm, 1e-6, "gradient norm", models[m], layouts[i]);
            view_close(view);
        }
        lab_close(&lab);
    }
}

/* llm.c PR 524: each rank took the norm of gradients of which only one shard was a sum. Clipping is what the norm is for, so
 * it clips hard here. */
TEST(silent_norm_zero, "with ZeRO-1 the norm is that of all shards, at every step, and clips as on one rank")
{
    static const char *const layouts[] = {"micro=2 dp=4 zero=1" STEP, "micro=2 dp=2 zero=1 bucket=1" STEP,
                                          "micro=1 dp=4 tp=2 zero=1" STEP, "micro=1 dp=2 pp=2 zero=1" STEP};
    struct train_settings settings = runs_settings(10);
    settings.max_norm = 0.01;
    const char *const models[] = {gpt2, llama};
    for (int m = 0; m < 2; m++) {
        struct pipeline *one = runs_pipeline(models[m], alone, "none");
        struct history expected = runs_train_weights(one, &settings);
        ASSERT(expected.grad_norm[9] > 10 * settings.max_norm);
        for (int i = 0; i < COUNT_OF(layouts); i++) {
            struct pipeline *several = runs_pipeline(models[m], layouts[i], "none");
            struct history got = runs_train_weights(several, &settings);
            runs_assert_near(&got, &expected, 1e-5);
            runs_clear(&got);
            pipeline_free(several);
        }
        runs_clear(&expected);
        pipeline_free(one);
    }
}

/* Megatron-LM issue 7452: gathered logits counted once per rank made it the right loss and log(tp). */
TEST(silent_loss_vocabulary, "a loss from shards of the vocabulary is the loss from all of it")
{
    static const char *const layouts[] = {"micro=2 tp=2" STEP, "micro=2 tp=4" STEP, "micro=2 tp=4 sp" STEP,
                                          "micro=1 tp=2 pp=2" STEP, "micro=1 tp=2 dp=4" STEP};
    check_layouts(layouts, COUNT_OF(layouts), check_loss);
}

/* bionemo-recipes PR 631. A model of zeros gives every letter the same logit, and so would it the padding: 21 letters on 4
 * ranks are padded to 24, and of 9 the last rank has none but padding. */
TEST(silent_loss_padding, "padding of the vocabulary is no letter: a model of zeros has the loss ln V")
{
    static const char *const layouts[] = {"micro=2 tp=2" STEP, "micro=2 tp=4" STEP, "micro=2 tp=4 sp" STEP,
                                          "micro=1 tp=4 pp=2" STEP};
    const int vocabularies[] = {21, 9};
    for (int m = 0; m < 4; m++) {
        char model[120], folder[RUNS_PATH];
        int vocabulary = vocabularies[m % 2];
        snprintf(model, sizeof model, "%s hidden=16 heads=4 vocab=%d",
                 m < 2 ? "gpt2-tiny" : "llama-tiny kv_heads=4", vocabulary);
        write_start(model, true, folder);
        struct train_settings settings = runs_settings(1);
        settings.resume_folder = folder;
        for (int i = 0; i < COUNT_OF(layouts); i++) {
            struct view *view = view_open(model, layouts[i], &settings);
            assert_close(view->loss, log(vocabulary), 1e-6, "loss", model, layouts[i]);
            view_close(view);
        }
        runs_remove_folder(folder);
    }
}

/* Megatron-LM issue 3943, DeepSpeed issues 1488 and 5583. */
TEST(silent_loss_tokens, "loss and gradients are means over the global batch, however it is dealt and cut")
{
    static const char *const layouts[] = {"micro=1" STEP,
                                          "micro=4" STEP,
                                          "micro=1 dp=2" STEP,
                                          "micro=2 dp=4" STEP,
                                          "micro=1 dp=4 zero=1" STEP,
                                          "micro=1 dp=2 pp=2 gpipe" STEP,
                                          "micro=2 dp=2 tp=2 sp" STEP};
    check_layouts(layouts, COUNT_OF(layouts), check_means);
}

/* Megatron-LM issue 7452. With a learning rate of 0 the weights of a run are those it began with: what stage s holds as
 * layer l must be layer l of the checkpoint it was read from, and be layer l again in the one that it writes. */
TEST(silent_layer_numbers,
     "the layers of a stage are read from a checkpoint, and written to it, under their numbers "
     "in the model")
{
    static const char *const layouts[] = {"micro=1 pp=2" STEP, "micro=1 pp=4" STEP,
                                          "micro=1 pp=2 chunks=1,3" STEP, "micro=1 pp=2 virtual=2" STEP,
                                          "micro=1 pp=2 dp=2 tp=2 zero=1" STEP};
    struct lab lab = lab_open(llama, 1);
    int64_t count;
    float *start = runs_read_weights(&lab.one->whole->model, lab.folder, &count);
    lab.settings.rate.peak = 0;
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        char folder[RUNS_PATH];
        runs_open_folder(folder);
        lab.settings.checkpoint_folder = folder;
        struct view *view = lab_view(&lab, layouts[i]);
        assert_same_weights(view, layouts[i]);
        for (int rank = 0; rank < view->ranks; rank++) {
            const struct held *held = &view->held[rank];
            for (int64_t instance = 0, n = 0; instance < held->program->instances; instance++)
                for (int k = 0; k < program_block(held->program, instance)->parameter_count; k++, n++) {
                    int64_t *at = positions_of(view, held, instance, k);
                    for (int64_t e = 0; e < parameter_at(held->program, instance, k)->count; e++)
                        ASSERT_MSG(at[e] < 0 || held->weights[n][e] == start[at[e]],
                                   "%s: %s: not what was read", layouts[i], name_of(view, held, instance, k));
                    free(at);
                }
        }
        float *written = runs_read_weights(&view->whole->model, folder, &count);
        ASSERT_MSG(!memcmp(written, start, (size_t)count * sizeof *start), "%s: the layers moved",
                   layouts[i]);
        free(written);
        view_close(view);
        runs_remove_folder(folder);
    }
    free(start);
    lab_close(&lab);
}

/* Megatron-LM issue 7452: each rank has the gradient from its part of the sequence alone. It is true of the weights of
 * norms, and of the biases that are added to what is divided. */
TEST(silent_sequence_gradients,
     "under sequence parallelism every rank has the whole gradient of what all of them hold")
{
    static const char *const layouts[] = {"micro=2 tp=2 sp" STEP, "micro=2 tp=4 sp" STEP,
                                          "micro=1 tp=2 dp=2 sp zero=1" STEP, "micro=1 tp=2 pp=2 sp" STEP,
                                          "micro=1 tp=2 pp=2 sp zb-h1" STEP};
    check_layouts(layouts, COUNT_OF(layouts), check_gradients);
}

/* 20 steps, after which everything that several ranks hold must be the same bits on all of them. */
static void assert_stays_equal(const char *model, const char *layout)
{
    struct train_settings settings = runs_settings(20);
    struct view *view = view_open(model, layout, &settings);
    ASSERT(assert_same_weights(view, layout) > 0);
    view_close(view);
}

TEST(silent_tied_drift, "a tied embedding stays the same bits on the first stage and on the last")
{
    static const char *const layouts[] = {"micro=1 pp=2" STEP, "micro=1 pp=4 zb-h1" STEP,
                                          "micro=1 pp=2 virtual=2" STEP, "micro=1 pp=2 tp=2 sp" STEP,
                                          "micro=1 pp=2 dp=2 tp=2 zero=1" STEP};
    for (int i = 0; i < COUNT_OF(layouts); i++)
        assert_stays_equal(gpt2, layouts[i]);
}

TEST(silent_replica_drift,
     "what tensor-parallel ranks all hold stays the same bits on all, and so do replicas")
{
    static const char *const layouts[] = {"micro=2 tp=2" STEP, "micro=2 tp=4 sp" STEP,
                                          "micro=2 dp=4 zero=1" STEP,
                                          "micro=1 dp=2 tp=2 pp=2 sp zero=1" STEP};
    const char *const models[] = {gpt2, llama};
    for (int i = 0; i < 2 * COUNT_OF(layouts); i++)
        assert_stays_equal(models[i % 2], layouts[i / 2]);
}
