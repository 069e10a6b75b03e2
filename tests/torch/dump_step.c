/* Two training steps of a model, as a file that PyTorch can be compared with: what was read, the weights before, the
 * gradients of both steps, the weights after, and as notes the model, the layout, the losses and the settings of AdamW.
 *
 *     dump_step MODEL OUT.safetensors [options]
 *
 * Everything is random by a fixed seed, biases and norms too: those that training starts from (0 and 1) would hide
 * mistakes in them. The second step sees moments that are not zero and weights that have moved. */
#include "base/arena.h"
#include "base/options.h"
#include "model/recompute.h"
#include "trainer/execute.h"
#include "trainer/random.h"
#include "trainer/safetensors.h"
#include "trainer/weights.h"
#include "tests/model/first_stage.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 2, SEED = 7, THREADS = 2, NUMBER = 32, NOTES = 12 };

/* Large enough to see each term: a clipped gradient, a decay that is a tenth of the update. */
static const struct update update = {
    .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .max_norm = 0.5};

struct choices {
    struct model_overrides model;
    struct layout layout;
    const char *precision, *recompute;
};

/* What goes into the file, in order; names and numbers are the arena's. */
struct dump {
    struct arena *arena;
    struct safetensors_entry *entries;
    const void **numbers;
    int count;
    struct safetensors_note notes[NOTES];
    int note_count;
};

/* A rank of its own, with everything it works with. */
struct bench {
    struct program *program;
    struct data *data;
    struct device *device;
    struct step_memory *memory;
    struct executor *executor;
};

#define COUNT(NAME, FIELD, HELP)                                                                             \
    {                                                                                                        \
        .name = NAME, .kind = OPTION_COUNT, .argument = "N", .help = HELP,                                   \
        .offset = offsetof(struct choices, FIELD)                                                            \
    }

static const struct option_spec options[] = {
    COUNT("layers", model.layers, "layers of the model"),
    COUNT("hidden", model.hidden, "hidden size"),
    COUNT("heads", model.heads, "query heads"),
    COUNT("vocab", model.vocab, "tokens, or classes of an encoder"),
    COUNT("seq-len", layout.seq_len, "tokens of a sequence"),
    COUNT("micro-batch", layout.micro_batch, "sequences of a micro-batch"),
    COUNT("global-batch", layout.global_batch, "sequences of a step"),
    {.name = "precision",
     .kind = OPTION_CHOICE,
     .choices = "fp32|bf16",
     .help = "of weights and activations (fp32)",
     .offset = offsetof(struct choices, precision)},
    {.name = "recompute",
     .kind = OPTION_TEXT,
     .argument = "WHAT",
     .help = "what backward makes again (none)",
     .offset = offsetof(struct choices, recompute)},
    {0},
};

static const struct command_spec command = {
    .name = "dump_step",
    .summary = "two training steps as a file",
    .usage = "dump_step MODEL OUT.safetensors [options]",
    .about = "Runs two training steps on the CPU and writes what PyTorch needs to do the same.",
    .examples = {"dump_step gpt2-tiny gpt2.safetensors",
                 "dump_step llama-tiny l.safetensors --recompute full"},
    .options = options,
    .min_operands = 2,
    .max_operands = 2,
};

static int read_program(const char *source, const struct choices *choices, struct program **out,
                        struct error *err)
{
    struct model model;
    struct layout layout = choices->layout;
    if (model_read(source, &choices->model, &model, err) ||
        precision_find(choices->precision, &layout.precision, err) || layout_complete(&layout, &model, err))
        return -1;
    uint32_t *masks = host_alloc((size_t)model.layers * sizeof *masks);
    int status = recompute_parse(choices->recompute, &model, masks, err) ||
                 program_create(&model, &layout, masks, out, err);
    free(masks);
    return status ? -1 : 0;
}

/* Memory is one arena, as in `train`, and poisoned: what is read outside its life is a NaN. */
static int bench_open(struct bench *bench, struct error *err)
{
    const struct program *program = bench->program;
    const struct model *model = &program->model;
    struct data_spec spec = {
        .path = "random",
        .vocab = model->vocab,
        .seq_len = program->layout.seq_len,
        .feature_dim = model->family == MODEL_ENCODER ? model->hidden : 0,
        .seed = SEED,
        .threads = THREADS,
    };
    if (data_open(&spec, &bench->data, err) || device_open_cpu(0, true, &bench->device, err) ||
        step_memory_open(program, bench->device, MEMORY_ARENA, &bench->memory, err))
        return -1;
    bench->executor = executor_create(&(struct executor_parts){
        .program = program,
        .device = bench->device,
        .kernels = &kernels_cpu,
        .memory = bench->memory,
        .data = bench->data,
        .threads = THREADS,
    });
    return 0;
}

static void bench_close(struct bench *bench)
{
    executor_free(bench->executor);
    step_memory_close(bench->memory);
    device_close(bench->device);
    data_close(bench->data);
    program_free(bench->program);
}

static struct state_access bench_states(const struct bench *bench)
{
    return (struct state_access){.program = bench->program, .device = bench->device, .memory = bench->memory};
}

static struct dump dump_create(const struct program *program)
{
    struct arena *arena = arena_create();
    /* Weights before and after, gradients of each step; inputs and targets. */
    size_t most = (size_t)program->parameter_tensors * (2 + STEPS) + 2;
    return (struct dump){
        .arena = arena,
        .entries = arena_array(arena, most, sizeof(struct safetensors_entry)),
        .numbers = arena_array(arena, most, sizeof(void *)),
    };
}

static void add_note(struct dump *dump, const char *key, const char *value)
{
    dump->notes[dump->note_count++] = (struct safetensors_note){key, value};
}

static void add_number(struct dump *dump, const char *key, double value)
{
    add_note(dump, key, arena_printf(dump->arena, "%.17g", value));
}

/* Takes over `object`. */
static void add_json(struct dump *dump, const char *key, json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    add_note(dump, key, arena_strdup(dump->arena, text));
    free(text);
    json_decref(object);
}

/* Zeroed room for the numbers of one more tensor of the file. */
static void *add_tensor(struct dump *dump, const char *name, enum dtype dtype, int dim_count,
                        const int64_t *dims)
{
    struct safetensors_entry *entry = &dump->entries[dump->count];
    *entry = (struct safetensors_entry){.name = name, .dtype = dtype, .dim_count = dim_count};
    size_t bytes = (size_t)dtype_bytes(dtype);
    for (int i = 0; i < dim_count; i++) {
        entry->dims[i] = dims[i];
        bytes *= (size_t)dims[i];
    }
    void *numbers = arena_alloc(dump->arena, bytes);
    dump->numbers[dump->count++] = numbers;
    return numbers;
}

/* One state of every parameter: "LABEL/layer 0/qkv". */
static void add_states(struct dump *dump, const struct bench *bench, const char *label, enum state state)
{
    struct state_access access = bench_states(bench);
    for (int64_t instance = 0; instance < bench->program->instances; instance++) {
        const struct block *block = program_block(bench->program, instance);
        char part[PROGRAM_NAME];
        program_instance_name(bench->program, instance, part);
        for (int k = 0; k < block->parameter_count; k++) {
            const struct parameter *p = &block->parameters[k];
            const char *name = arena_printf(dump->arena, "%s/%s/%s", label, part, p->name);
            float *values = add_tensor(dump, name, DTYPE_F32, p->dims[1] ? 2 : 1, p->dims);
            weights_read(&access, instance, k, state, 0, p->count, values);
        }
    }
}

/* The samples of all steps, read from the data set beside the executor. */
static void add_samples(struct dump *dump, const struct bench *bench)
{
    const struct program *program = bench->program;
    int64_t count = STEPS * program->layout.global_batch;
    int64_t dims[] = {count, program->layout.seq_len, program->model.hidden};
    int32_t *targets = add_tensor(dump, "targets", DTYPE_I32, 2, dims);
    if (program->model.family == MODEL_ENCODER) {
        float *features = add_tensor(dump, "features", DTYPE_F32, 3, dims);
        data_fill_features(bench->data, DATA_TRAINING, 0, count, features, targets);
    } else {
        int32_t *tokens = add_tensor(dump, "tokens", DTYPE_I32, 2, dims);
        data_fill(bench->data, DATA_TRAINING, 0, count, tokens, targets);
    }
}

static void add_settings(struct dump *dump, const struct program *program)
{
    add_json(dump, "model", model_to_json(&program->model));
    add_json(dump, "layout", layout_to_json(&program->layout));
    add_json(dump, "adamw",
             json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "lr", update.lr, "beta1", update.beta1, "beta2",
                       update.beta2, "eps", update.eps, "decay", update.decay, "max_norm", update.max_norm));
}

/* Rounded to bf16, so that the weights of bf16 training and its master weights are the same numbers. */
static void randomize_parameter(const struct bench *bench, int64_t instance, int index)
{
    struct state_access access = bench_states(bench);
    const struct parameter *p = &program_block(bench->program, instance)->parameters[index];
    double deviation = p->dims[1] ? 1 / sqrt((double)p->dims[1]) : 0.1;
    float *values = host_alloc((size_t)p->count * sizeof *values);
    struct random_stream stream = random_stream(SEED, (uint64_t)instance * PARAM_IDS + p->id);
    random_fill_normal(stream, 0, deviation, values, p->count);
    for (int64_t i = 0; i < p->count; i++)
        values[i] = bf16_to_f32(f32_to_bf16((float)p->init_value + values[i]));
    weights_write(&access, instance, index, weights_exact_state(bench->program), 0, p->count, values);
    free(values);
}

static void randomize_weights(const struct bench *bench)
{
    struct state_access access = bench_states(bench);
    weights_initialize(&access, SEED, THREADS); /* the moments */
    for (int64_t instance = 0; instance < bench->program->instances; instance++)
        for (int k = 0; k < program_block(bench->program, instance)->parameter_count; k++)
            randomize_parameter(bench, instance, k);
}

static int add_step(struct dump *dump, const struct bench *bench, int step, struct error *err)
{
    struct step_result result;
    if (executor_step(bench->executor, step, &update, &result, err))
        return -1;
    add_number(dump, arena_printf(dump->arena, "loss %d", step), result.loss);
    add_number(dump, arena_printf(dump->arena, "grad_norm %d", step), result.grad_norm);
    add_states(dump, bench, arena_printf(dump->arena, "gradient %d", step), STATE_GRADIENT);
    return 0;
}

static int dump_write(const struct dump *dump, const char *path, struct error *err)
{
    struct safetensors_writer *writer;
    if (safetensors_create(path, dump->entries, dump->count, dump->notes, dump->note_count, &writer, err))
        return -1;
    for (int i = 0; i < dump->count; i++) {
        const struct safetensors_entry *entry = &dump->entries[i];
        int64_t bytes = dtype_bytes(entry->dtype);
        for (int k = 0; k < entry->dim_count; k++)
            bytes *= entry->dims[k];
        if (safetensors_write_at(writer, i, 0, dump->numbers[i], bytes, err)) {
            safetensors_abort(writer);
            return -1;
        }
    }
    return safetensors_commit(writer, err);
}

static int run_steps(struct bench *bench, const char *path, struct error *err)
{
    if (bench_open(bench, err))
        return -1;
    enum state exact = weights_exact_state(bench->program);
    struct dump dump = dump_create(bench->program);
    add_settings(&dump, bench->program);
    add_samples(&dump, bench);
    randomize_weights(bench);
    add_states(&dump, bench, "before", exact);
    int status = 0;
    for (int step = 0; !status && step < STEPS; step++)
        status = add_step(&dump, bench, step, err);
    if (!status) {
        add_states(&dump, bench, "after", exact);
        status = dump_write(&dump, path, err);
    }
    arena_free(dump.arena);
    return status;
}

int main(int argc, char **argv)
{
    struct choices choices = {.precision = "fp32", .recompute = "none"};
    struct error err = {0};
    struct bench bench = {0};
    bool help = false;
    const char **operands = host_alloc((size_t)argc * sizeof *operands);
    int status = options_parse(&command, argc, argv, &choices, operands, &help, &err) < 0;
    if (!status && help) {
        struct text page = {0};
        options_help(&command, &page);
        fputs(page.data, stdout);
        text_free(&page);
    } else if (!status) {
        status =
            read_program(operands[0], &choices, &bench.program, &err) || run_steps(&bench, operands[1], &err);
    }
    if (status)
        fprintf(stderr, "dump_step: %s\n", err.text);
    bench_close(&bench);
    free(operands);
    return status ? 2 : 0;
}
