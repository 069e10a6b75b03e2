#include "tests/trainer/runs.h"

#include "base/arena.h"
#include "model/recompute.h"
#include "tests/test.h"
#include "trainer/checkpoint.h"

#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A word of a spec that names a number: "layers=3". */
struct field {
    const char *key;
    int64_t *value;
};

/* Returns false when the word is none of the fields. */
static bool set_field(const char *word, const struct field *fields)
{
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : 0;
    for (; equals && fields->key; fields++)
        if (strlen(fields->key) == length && !strncmp(word, fields->key, length))
            return *fields->value = atoll(equals + 1), true;
    return false;
}

static struct model parse_model(const char *text)
{
    struct model model;
    struct error err = {0};
    struct model_overrides o = {0};
    bool untied = false;
    const struct field fields[] = {{"layers", &o.layers},
                                   {"hidden", &o.hidden},
                                   {"heads", &o.heads},
                                   {"kv_heads", &o.kv_heads},
                                   {"ffn", &o.ffn},
                                   {"vocab", &o.vocab},
                                   {0}};
    char copy[200], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    const char *preset = strsep(&rest, " ");
    for (char *word; (word = strsep(&rest, " "));) {
        bool is_untied = !strcmp(word, "untied");
        ASSERT_MSG(is_untied || set_field(word, fields), "%s: no model has \"%s\"", text, word);
        untied |= is_untied;
    }
    ASSERT_OK(model_read(preset, &o, &model, &err));
    model.tied = model.tied && !untied;
    return model;
}

static struct layout parse_layout(const char *text, const struct model *model)
{
    struct error err = {0};
    struct layout l = {0};
    const struct field fields[] = {
        {"dp", &l.dp},       {"micro", &l.micro_batch},   {"batch", &l.global_batch},
        {"seq", &l.seq_len}, {"bucket", &l.bucket_bytes}, {0}};
    char copy[200], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; (word = strsep(&rest, " "));)
        if (word[0] && !set_field(word, fields))
            ASSERT_OK(precision_find(word, &l.precision, &err));
    ASSERT_OK(layout_complete(&l, model, &err));
    return l;
}

struct program *runs_program(const char *model_text, const char *layout_text, const char *recompute)
{
    struct error err = {0};
    struct model model = parse_model(model_text);
    struct layout layout = parse_layout(layout_text, &model);
    struct program *program;
    uint32_t *masks = host_alloc((size_t)model.layers * sizeof *masks);
    ASSERT_OK(recompute_parse(recompute, &model, masks, &err));
    ASSERT_OK(program_create(&model, &layout, masks, &program, &err));
    free(masks);
    return program;
}

struct pipeline *runs_alone(const struct program *program)
{
    struct pipeline *alone = host_alloc(sizeof *alone + sizeof *alone->stages);
    alone->count = 1;
    alone->stages[0] = (struct program *)program;
    return alone;
}

struct train_settings runs_settings(int64_t steps)
{
    struct train_settings settings = train_defaults();
    settings.steps = steps;
    settings.rate = (struct learning_rate){.kind = LEARNING_RATE_CONSTANT, .peak = 1e-3};
    settings.threads = 1;
    settings.poison = true;
    return settings;
}

/* Counts the tensors of rank 0. */
struct witness {
    struct history *history;
    int64_t living;
    struct observer observer;
};

static void see_memory(void *context, const struct memory_event *event)
{
    struct witness *witness = context;
    witness->living += event->bytes > 0 ? 1 : -1;
    if (witness->living > witness->history->most_tensors)
        witness->history->most_tensors = witness->living;
}

static int see_start(void *context, int rank, struct device *device, const struct program *program,
                     struct error *err)
{
    (void)program;
    struct witness *witness = context;
    return rank == 0 ? device_observe(device, &witness->observer, err) : 0;
}

static void see_step(void *context, const struct step_report *report)
{
    struct history *history = ((struct witness *)context)->history;
    if (report->rank != 0)
        return;
    ASSERT(history->steps < RUNS_STEPS_MAX);
    if (history->steps == 0)
        history->first_step = report->step;
    history->loss[history->steps] = report->loss;
    history->grad_norm[history->steps++] = report->grad_norm;
}

int runs_try(const struct program *program, const struct train_settings *settings, struct history *out,
             struct error *err)
{
    *out = (struct history){0};
    struct witness witness = {.history = out};
    witness.observer = (struct observer){.context = &witness, .memory = see_memory};
    struct train_listener listener = {.context = &witness, .start = see_start, .step = see_step};
    struct train_result result;
    struct pipeline *alone = runs_alone(program);
    int status = train_run(alone, settings, &listener, &result, err);
    free(alone);
    ASSERT(result.ranks <= RUNS_RANKS_MAX);
    out->ranks = result.ranks;
    if (result.usage)
        memcpy(out->usage, result.usage, (size_t)result.ranks * sizeof *result.usage);
    train_result_clear(&result);
    return status;
}

struct history runs_train(const struct program *program, const struct train_settings *settings)
{
    struct error err = {0};
    struct history history;
    ASSERT_OK(runs_try(program, settings, &history, &err));
    return history;
}

struct history runs_train_weights(const struct program *program, const struct train_settings *settings)
{
    char folder[RUNS_PATH];
    runs_open_folder(folder);
    struct train_settings writing = *settings;
    writing.checkpoint_folder = folder;
    struct history history = runs_train(program, &writing);
    history.weights = runs_read_weights(program, folder, &history.weight_count);
    runs_remove_folder(folder);
    return history;
}

void runs_clear(struct history *history)
{
    free(history->weights);
    history->weights = NULL;
}

struct error runs_fail(const struct program *program, const struct train_settings *settings)
{
    struct error err = {0};
    struct history history;
    ASSERT_INT(runs_try(program, settings, &history, &err), -1);
    return err;
}

float *runs_read_weights(const struct program *program, const char *folder, int64_t *count)
{
    struct error err = {0};
    struct device *device;
    struct step_memory *memory;
    struct checkpoint_info info;
    ASSERT_OK(device_open_cpu(0, false, &device, &err));
    ASSERT_OK(step_memory_open(program, device, MEMORY_ARENA, &memory, &err));
    struct state_access access = {program, device, memory};
    ASSERT_OK(checkpoint_read(folder, &access, &info, &err));
    float *weights = host_alloc((size_t)model_parameters(&program->model) * sizeof *weights);
    *count = 0;
    for (int64_t i = 0; i < program->instances; i++) {
        const struct block *block = program_block(program, i);
        for (int k = 0; k < block->parameter_count; k++) {
            int64_t elements = block->parameters[k].count;
            weights_read(&access, i, k, weights_exact_state(program), 0, elements, weights + *count);
            *count += elements;
        }
    }
    ASSERT_INT(*count, model_parameters(&program->model));
    step_memory_close(memory);
    device_close(device);
    return weights;
}

static void assert_comparable(const struct history *got, const struct history *expected)
{
    ASSERT_INT(got->first_step, expected->first_step);
    ASSERT_INT(got->steps, expected->steps);
    ASSERT_INT(got->weight_count, expected->weight_count);
}

void runs_assert_same(const struct history *got, const struct history *expected)
{
    assert_comparable(got, expected);
    for (int64_t i = 0; i < got->steps; i++) {
        ASSERT_MSG(got->loss[i] == expected->loss[i], "step %lld: loss %.17g is not %.17g", (long long)i,
                   got->loss[i], expected->loss[i]);
        ASSERT_MSG(got->grad_norm[i] == expected->grad_norm[i], "step %lld: gradient norm %.17g is not %.17g",
                   (long long)i, got->grad_norm[i], expected->grad_norm[i]);
    }
    size_t bytes = (size_t)got->weight_count * sizeof(float);
    ASSERT_MSG(!bytes || !memcmp(got->weights, expected->weights, bytes), "final weights differ");
}

void runs_assert_near(const struct history *got, const struct history *expected, double tolerance)
{
    assert_comparable(got, expected);
    for (int64_t i = 0; i < got->steps; i++)
        ASSERT_MSG(fabs(got->loss[i] - expected->loss[i]) <= tolerance * expected->loss[i],
                   "step %lld: loss %.9g is not near %.9g", (long long)i, got->loss[i], expected->loss[i]);
    double apart = 0, norm = 0;
    for (int64_t i = 0; i < got->weight_count; i++) {
        double difference = (double)got->weights[i] - (double)expected->weights[i];
        apart += difference * difference;
        norm += (double)expected->weights[i] * (double)expected->weights[i];
    }
    ASSERT_MSG(sqrt(apart) <= tolerance * sqrt(norm), "final weights are %g of their norm apart",
               sqrt(apart / norm));
}

void runs_open_folder(char folder[RUNS_PATH])
{
    strcpy(folder, "/tmp/memplan-runs-XXXXXX");
    ASSERT(mkdtemp(folder) != NULL);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

void runs_remove_folder(const char *folder)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *runs_write_file(const char *folder, const char *name, const void *text, int64_t bytes,
                            char path[RUNS_PATH])
{
    ASSERT(snprintf(path, RUNS_PATH, "%s/%s", folder, name) < RUNS_PATH);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ASSERT(file >= 0);
    ASSERT_INT(write(file, text, (size_t)bytes), bytes);
    close(file);
    return path;
}
