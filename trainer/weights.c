#include "trainer/weights.h"

#include "base/arena.h"
#include "base/checked.h"
#include "trainer/random.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Host buffers hold about this many elements at a time: whole rows, and at least one. */
enum { PIECE = 1 << 16 };

enum state weights_exact_state(const struct program *program)
{
    return program_has_state(program, STATE_MASTER) ? STATE_MASTER : STATE_WEIGHT;
}

static const struct parameter *parameter_at(const struct state_access *access, int64_t instance, int index)
{
    return &program_block(access->program, instance)->parameters[index];
}

struct weights_range weights_held(const struct state_access *access, int64_t instance, int index,
                                  enum state state)
{
    if (state < STATE_MASTER)
        return (struct weights_range){0, parameter_at(access, instance, index)->count};
    struct state_shard shard = program_shard(access->program, instance, index, access->place.replica);
    return (struct weights_range){shard.first, shard.count};
}

/* `place` counts elements of what lies in memory. */
static char *element_address(const struct state_access *access, const struct placed *t, int64_t place)
{
    return (char *)step_memory_at(access->memory, t->id) + place * dtype_bytes(t->dtype);
}

void weights_read(const struct state_access *access, int64_t instance, int index, enum state state,
                  int64_t first, int64_t count, float *out)
{
    struct weights_range held = weights_held(access, instance, index, state);
    assert(first >= held.first && first + count <= held.first + held.count);
    struct placed t = program_state(access->program, instance, index, state);
    const char *from = element_address(access, &t, first - held.first);
    int64_t bytes = count * dtype_bytes(t.dtype);
    if (t.dtype == DTYPE_F32) {
        device_read(access->device, out, from, bytes);
        return;
    }
    void *raw = host_alloc((size_t)bytes);
    device_read(access->device, raw, from, bytes);
    for (int64_t i = 0; i < count; i++)
        out[i] = t.dtype == DTYPE_BF16 ? bf16_to_f32(((uint16_t *)raw)[i]) : (float)((double *)raw)[i];
    free(raw);
}

static void write_converted(const struct state_access *access, const struct placed *t, int64_t place,
                            int64_t count, const float *values)
{
    int64_t bytes = count * dtype_bytes(t->dtype);
    if (t->dtype == DTYPE_F32) {
        device_write(access->device, element_address(access, t, place), values, bytes);
        return;
    }
    void *raw = host_alloc((size_t)bytes);
    for (int64_t i = 0; i < count; i++)
        if (t->dtype == DTYPE_BF16)
            ((uint16_t *)raw)[i] = f32_to_bf16(values[i]);
        else
            ((double *)raw)[i] = (double)values[i];
    device_write(access->device, element_address(access, t, place), raw, bytes);
    free(raw);
}

static void write_held(const struct state_access *access, int64_t instance, int index, enum state state,
                       int64_t first, int64_t count, const float *values)
{
    struct weights_range held = weights_held(access, instance, index, state);
    int64_t begin = max_i64(first, held.first), end = min_i64(first + count, held.first + held.count);
    struct placed t = program_state(access->program, instance, index, state);
    if (begin < end)
        write_converted(access, &t, begin - held.first, end - begin, values + (begin - first));
}

void weights_write(const struct state_access *access, int64_t instance, int index, enum state state,
                   int64_t first, int64_t count, const float *values)
{
    write_held(access, instance, index, state, first, count, values);
    if (state == STATE_MASTER)
        write_held(access, instance, index, STATE_WEIGHT, first, count, values);
}

/* What ZeRO adds behind the elements of a parameter, so that every rank's shard is as large. */
static void clear_padding(const struct state_access *access, int64_t instance, int index)
{
    for (int state = 0; state < STATE_COUNT; state++) {
        if (!program_has_state(access->program, (enum state)state))
            continue;
        struct placed t = program_state(access->program, instance, index, (enum state)state);
        int64_t real = weights_held(access, instance, index, (enum state)state).count;
        int64_t padding = t.bytes / dtype_bytes(t.dtype) - real;
        float *zeros = host_alloc((size_t)padding * sizeof *zeros + 1);
        write_converted(access, &t, real, padding, zeros);
        free(zeros);
    }
}

/* A parameter's state that is being filled. */
struct filling {
    const struct state_access *access;
    const struct weights_source *source;
    const struct parameter *parameter;
    int64_t instance;
    int index;
    enum state state;
    int64_t columns; /* of the rank's part */
};

/* The largest window that holds row `row` and what follows it, up to `rows` rows. Row -1: they are padding of the
 * vocabulary. */
static struct weights_window window_at(const struct filling *f, int64_t row, int64_t rows)
{
    const struct program *program = f->access->program;
    const struct parameter *p = f->parameter;
    int64_t whole,
        stretch = parameters_stretch(p, program->layout.tp, f->access->place.part, row * f->columns, &whole);
    int64_t row_length = max_i64(1, p->full_dims[1]);
    return (struct weights_window){
        .name = program_parameter(program, f->instance, f->index),
        .parameter = p,
        .row = whole < 0 ? -1 : whole / row_length,
        .rows = p->sharing == SHARED_COLUMNS ? rows : min_i64(rows, stretch / f->columns),
        .column = whole < 0 ? 0 : whole % row_length,
        .columns = f->columns,
        .row_length = row_length,
    };
}

static void fill_rows(const struct filling *f, int64_t first, int64_t rows)
{
    float *values = host_alloc((size_t)(rows * f->columns) * sizeof *values);
    for (int64_t done = 0; done < rows;) {
        struct weights_window window = window_at(f, first + done, rows - done);
        if (window.row >= 0)
            f->source->read(f->source->context, &window, values + done * f->columns);
        done += window.rows;
    }
    weights_write(f->access, f->instance, f->index, f->state, first * f->columns, rows * f->columns, values);
    free(values);
}

static void fill_parameter(const struct filling *f, int threads)
{
    enum state widest = f->state == STATE_MASTER ? STATE_WEIGHT : f->state;
    struct weights_range range = weights_held(f->access, f->instance, f->index, widest);
    int64_t begin = range.first / f->columns, step = max_i64(1, PIECE / f->columns);
    int64_t end = range.count ? (range.first + range.count - 1) / f->columns + 1 : begin;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (end - begin > step)
    for (int64_t row = begin; row < end; row += step)
        fill_rows(f, row, min_i64(step, end - row));
    clear_padding(f->access, f->instance, f->index);
}

void weights_fill(const struct state_access *access, enum state state, const struct weights_source *source,
                  int threads)
{
    for (int64_t instance = 0; instance < access->program->instances; instance++)
        for (int k = 0; k < program_block(access->program, instance)->parameter_count; k++) {
            const struct parameter *p = parameter_at(access, instance, k);
            struct filling f = {access, source, p, instance, k, state, max_i64(1, p->dims[1])};
            fill_parameter(&f, threads);
        }
}

/* A part's streams of random values, by the parameter's id; the ids from here on draw none. A constant, so that a seed goes on to
 * mean the same weights when ids are added. */
static const uint64_t streams = PARAM_HEAD_BIAS + 1;

struct initial {
    uint64_t seed;
    int64_t layers;
};

static struct random_stream initial_stream(const struct initial *initial, struct parameter_name name)
{
    int64_t part = name.part == PART_EMBED   ? 0
                   : name.part == PART_LAYER ? 1 + name.layer
                                             : 1 + initial->layers;
    return random_stream(initial->seed, (uint64_t)part * streams + name.id);
}

static void read_initial(const void *context, const struct weights_window *w, float *out)
{
    struct random_stream stream = initial_stream(context, w->name);
    const struct parameter *p = w->parameter;
    assert(p->init_std == 0 || (uint64_t)w->name.id < streams);
    for (int64_t row = 0; row < w->rows; row++, out += w->columns)
        if (p->init_std > 0)
            random_fill_normal(stream, (uint64_t)((w->row + row) * w->row_length + w->column), p->init_std,
                               out, w->columns);
        else
            for (int64_t i = 0; i < w->columns; i++)
                out[i] = (float)p->init_value;
}

static void read_zeros(const void *context, const struct weights_window *w, float *out)
{
    (void)context;
    memset(out, 0, (size_t)(w->rows * w->columns) * sizeof *out);
}

void weights_initialize(const struct state_access *access, uint64_t seed, int threads)
{
    struct initial initial = {seed, access->program->model.layers};
    struct weights_source values = {read_initial, &initial}, zeros = {read_zeros, NULL};
    weights_fill(access, weights_exact_state(access->program), &values, threads);
    weights_fill(access, STATE_MOMENT1, &zeros, threads);
    weights_fill(access, STATE_MOMENT2, &zeros, threads);
}
