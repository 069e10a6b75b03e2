#include "tests/model/first_stage.h"
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

enum { CHUNKS_MAX = 32 };

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

/* "1,2,1" to layers per chunk. */
static void parse_chunks(const char *text, int64_t chunks[CHUNKS_MAX])
{
    for (int i = 0; text; i++, text = strchr(text, ',')) {
        ASSERT(i < CHUNKS_MAX);
        text += text[0] == ',';
        chunks[i] = atoll(text);
    }
}

/* A model has layers, so none of its chunks do only where the text has named none. */
static bool has_chunks(const int64_t chunks[CHUNKS_MAX])
{
    int64_t sum = 0;
    for (int i = 0; i < CHUNKS_MAX; i++)
        sum += chunks[i];
    return sum > 0;
}

/* Returns false when the word is no schedule. */
static bool set_schedule(const char *word, struct layout *layout)
{
    struct error err;
    return schedule_find(word, &layout->schedule, &err) == 0;
}

/* Fills chunks only when the text names them. */
static struct layout parse_layout(const char *text, const struct model *model, int64_t chunks[CHUNKS_MAX])
{
    struct error err = {0};
    struct layout l = {0};
    int64_t zero = 0;
    const struct field fields[] = {{"dp", &l.dp},
                                   {"tp", &l.tp},
                                   {"pp", &l.pp},
                                   {"zero", &zero},
                                   {"micro", &l.micro_batch},
                                   {"batch", &l.global_batch},
                                   {"seq", &l.seq_len},
                                   {"bucket", &l.bucket_bytes},
                                   {"virtual", &l.virtual_stages},
                                   {0}};
    char copy[200], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; (word = strsep(&rest, " "));) {
        if (!strcmp(word, "sp"))
            l.sequence_parallel = true;
        else if (!strncmp(word, "chunks=", 7))
            parse_chunks(word + 7, chunks);
        else if (word[0] && !set_field(word, fields) && !set_schedule(word, &l))
            ASSERT_OK(precision_find(word, &l.precision, &err));
    }
    l.zero = (int)zero;
    ASSERT_OK(layout_complete(&l, model, &err));
    return l;
}

struct pipeline *runs_pipeline(const char *model_text, const char *layout_text, const char *recompute)
{
    struct error err = {0};
    struct pipeline *pipeline;
    int64_t chunks[CHUNKS_MAX] = {0};
    struct model model = parse_model(model_text);
    struct layout layout = parse_layout(layout_text, &model, chunks);
    uint32_t *masks = host_alloc((size_t)model.layers * sizeof *masks);
    ASSERT_OK(recompute_parse(recompute, &model, masks, &err));
    struct program_spec spec = {.model = &model,
                                .layout = &layout,
                                .recompute = masks,
                                .chunk_layers = has_chunks(chunks) ? chunks : NULL};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    free(masks);
    return pipeline;
}

struct program *runs_program(const char *model, const char *layout, const char *recompute)
{
    struct pipeline *pipeline = runs_pipeline(model, layout, recompute);
    ASSERT_INT(pipeline->count, 1);
    struct program *program = pipeline->stages[0];
    free(pipeline);
    return program;
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

/* Counts the tensors of rank 0, and compares what the ranks report. */
struct witness {
    struct history *history;
    int64_t living;
    int64_t reported;       /* steps that some rank has reported */
    struct step_report odd; /* one that differed from another rank's, when `disagree` */
    bool disagree;
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

/* Ranks report their steps in order, but not in step with each other. */
static void see_step(void *context, const struct step_report *report)
{
    struct witness *witness = context;
    struct history *history = witness->history;
    if (witness->reported == 0)
        history->first_step = report->step;
    int64_t at = report->step - history->first_step;
    ASSERT(at >= 0 && at < RUNS_STEPS_MAX);
    if (at == witness->reported) {
        history->loss[at] = report->loss;
        history->grad_norm[at] = report->grad_norm;
        witness->reported++;
    } else if (history->loss[at] != report->loss || history->grad_norm[at] != report->grad_norm) {
        witness->disagree = true;
        witness->odd = *report;
    }
    history->steps += report->rank == 0;
}

static int check_agree(const struct witness *witness, struct error *err)
{
    const struct step_report *odd = &witness->odd;
    int64_t at = odd->step - witness->history->first_step;
    if (!witness->disagree)
        return 0;
    return error_set(err,
                     "step %lld: loss %.17g and gradient norm %.17g on rank %d, %.17g and %.17g on another",
                     (long long)odd->step, odd->loss, odd->grad_norm, odd->rank, witness->history->loss[at],
                     witness->history->grad_norm[at]);
}

int runs_try(const struct pipeline *pipeline, const struct train_settings *settings, struct history *out,
             struct error *err)
{
    *out = (struct history){.model = pipeline->stages[0]->model};
    struct witness witness = {.history = out};
    witness.observer = (struct observer){.context = &witness, .memory = see_memory};
    struct train_listener listener = {.context = &witness, .start = see_start, .step = see_step};
    struct train_result result;
    int status = train_run(pipeline, settings, &listener, &result, err);
    ASSERT(result.ranks <= RUNS_RANKS_MAX);
    out->ranks = result.ranks;
    if (result.usage)
        memcpy(out->usage, result.usage, (size_t)result.ranks * sizeof *result.usage);
    train_result_clear(&result);
    return status ? status : check_agree(&witness, err);
}

struct history runs_train(const struct pipeline *pipeline, const struct train_settings *settings)
{
    struct error err = {0};
    struct history history;
    ASSERT_OK(runs_try(pipeline, settings, &history, &err));
    return history;
}

struct history runs_train_weights(const struct pipeline *pipeline, const struct train_settings *settings)
{
    char folder[RUNS_PATH];
    runs_open_folder(folder);
    struct train_settings writing = *settings;
    writing.checkpoint_folder = folder;
    struct history history = runs_train(pipeline, &writing);
    history.weights = runs_read_weights(&history.model, folder, &history.weight_count);
    runs_remove_folder(folder);
    return history;
}

void runs_clear(struct history *history)
{
    free(history->weights);
    history->weights = NULL;
}

struct error runs_fail(const struct pipeline *pipeline, const struct train_settings *settings)
{
    struct error err = {0};
    struct history history;
    ASSERT_INT(runs_try(pipeline, settings, &history, &err), -1);
    return err;
}

/* A program of one rank: it holds every parameter once. Of the layout nothing matters but that. */
static struct program *whole_model(const struct model *model)
{
    struct error err = {0};
    struct program *program;
    struct layout layout = {.micro_batch = 1, .seq_len = 1};
    ASSERT_OK(layout_complete(&layout, model, &err));
    ASSERT_OK(program_create(model, &layout, NULL, &program, &err));
    return program;
}

float *runs_read_weights(const struct model *model, const char *folder, int64_t *count)
{
    struct error err = {0};
    struct device *device;
    struct step_memory *memory;
    struct checkpoint_info info;
    struct program *program = whole_model(model);
    ASSERT_OK(device_open_cpu(0, false, &device, &err));
    ASSERT_OK(step_memory_open(program, device, MEMORY_ARENA, &memory, &err));
    struct state_access access = {.program = program, .device = device, .memory = memory};
    ASSERT_OK(checkpoint_read(folder, &access, &info, &err));
    float *weights = host_alloc((size_t)model_parameters(model) * sizeof *weights);
    *count = 0;
    for (int64_t i = 0; i < program->instances; i++) {
        const struct block *block = program_block(program, i);
        for (int k = 0; k < block->parameter_count; k++) {
            int64_t elements = block->parameters[k].count;
            weights_read(&access, i, k, STATE_WEIGHT, 0, elements, weights + *count);
            *count += elements;
        }
    }
    ASSERT_INT(*count, model_parameters(model));
    step_memory_close(memory);
    device_close(device);
    program_free(program);
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

static double relative(double got, double expected)
{
    return got == expected ? 0 : fabs(got - expected) / fabs(expected);
}

/* Unlike fmax() it keeps a NaN. */
static double larger(double a, double b)
{
    return a >= b || isnan(a) ? a : b;
}

struct distance runs_distance(const struct history *got, const struct history *expected)
{
    struct distance distance = {0};
    double apart = 0, norm = 0;
    assert_comparable(got, expected);
    for (int64_t i = 0; i < got->steps; i++) {
        distance.loss = larger(distance.loss, relative(got->loss[i], expected->loss[i]));
        distance.grad_norm = larger(distance.grad_norm, relative(got->grad_norm[i], expected->grad_norm[i]));
    }
    for (int64_t i = 0; i < got->weight_count; i++) {
        double difference = (double)got->weights[i] - (double)expected->weights[i];
        apart += difference * difference;
        norm += (double)expected->weights[i] * (double)expected->weights[i];
    }
    distance.weights = apart == 0 ? 0 : sqrt(apart / norm);
    return distance;
}

void runs_assert_near(const struct history *got, const struct history *expected, double tolerance)
{
    struct distance d = runs_distance(got, expected);
    ASSERT_MSG(d.loss <= tolerance, "losses are up to %g apart", d.loss);
    ASSERT_MSG(d.grad_norm <= tolerance, "gradient norms are up to %g apart", d.grad_norm);
    ASSERT_MSG(d.weights <= tolerance, "final weights are %g of their norm apart", d.weights);
}

#define ASSERT_BYTES(got, expected, what)                                                                    \
    ASSERT_MSG((got) == (expected), "%s, rank %d: %s are %lld, not %lld", where, rank, what,                 \
               (long long)(got), (long long)(expected))

void runs_assert_bytes(const struct history *history, const struct pipeline *pipeline,
                       enum memory_policy policy, const char *where)
{
    for (int rank = 0; rank < history->ranks; rank++) {
        const struct program *program = pipeline_of_rank(pipeline, rank);
        const struct device_usage *usage = &history->usage[rank];
        ASSERT_BYTES(usage->peak_bytes, program->peak_bytes, "bytes at the peak");
        for (int role = 0; role < ROLE_COUNT; role++)
            ASSERT_BYTES(usage->at_peak[role], program->at_peak[role], role_name((enum role)role));
        ASSERT_BYTES(usage->live_bytes, program->persistent_bytes, "bytes after the last step");
        ASSERT_BYTES(usage->reserved_peak_bytes,
                     policy == MEMORY_ARENA ? program->arena_bytes : program->peak_bytes,
                     "bytes taken from the machine");
    }
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
