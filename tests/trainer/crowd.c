#include "tests/trainer/crowd.h"

#include "base/arena.h"
#include "base/checked.h"
#include "tests/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

void crowd_open(struct crowd *crowd, const char *model, const char *layout)
{
    struct error err = {0};
    *crowd = (struct crowd){.pipeline = runs_pipeline(model, layout, "none")};
    const struct program *first = crowd->pipeline->stages[0];
    crowd->catalogue = catalogue_of(&first->model);
    crowd->count = (int)layout_ranks(&first->layout);
    ASSERT(crowd->count <= RUNS_RANKS_MAX);
    for (int i = 0; i < crowd->count; i++) {
        const struct program *program = pipeline_of_rank(crowd->pipeline, i);
        ASSERT_OK(device_open_cpu(0, true, &crowd->devices[i], &err));
        ASSERT_OK(step_memory_open(program, crowd->devices[i], MEMORY_ARENA, &crowd->memories[i], &err));
        crowd->ranks[i] = (struct state_access){
            .program = program,
            .device = crowd->devices[i],
            .memory = crowd->memories[i],
            .place = layout_place_of(&program->layout, i),
        };
    }
}

void crowd_close(struct crowd *crowd)
{
    for (int i = 0; i < crowd->count; i++) {
        step_memory_close(crowd->memories[i]);
        device_close(crowd->devices[i]);
    }
    pipeline_free(crowd->pipeline);
}

/* A parameter of one rank: what it is in the whole. */
struct held {
    const struct crowd *crowd;
    const struct state_access *rank;
    const struct parameter *parameter;
    int64_t instance, number;
    int index;
};

/* Calls `visit` for every parameter of every rank. */
static void visit_all(const struct crowd *crowd, void (*visit)(const struct held *, void *), void *context)
{
    for (int i = 0; i < crowd->count; i++) {
        const struct state_access *rank = &crowd->ranks[i];
        for (int64_t instance = 0; instance < rank->program->instances; instance++) {
            const struct block *block = program_block(rank->program, instance);
            for (int k = 0; k < block->parameter_count; k++) {
                struct parameter_name name = program_parameter(rank->program, instance, k);
                int64_t number = catalogue_number(&crowd->catalogue, name);
                struct held held = {crowd, rank, &block->parameters[k], instance, number, k};
                visit(&held, context);
            }
        }
    }
}

/* Which element of the whole parameter an element of the rank's part is; -1: none, padding. */
static int64_t whole_element(const struct held *held, int64_t element)
{
    int64_t whole, tp = held->rank->program->layout.tp;
    parameters_stretch(held->parameter, tp, held->rank->place.part, element, &whole);
    return whole;
}

/* A state as it lies in memory, padding and all; the caller frees it. */
static float *read_memory(const struct held *held, enum state state, int64_t *count)
{
    struct placed t = program_state(held->rank->program, held->instance, held->index, state);
    *count = t.bytes / dtype_bytes(t.dtype);
    char *raw = host_alloc((size_t)t.bytes);
    float *values = host_alloc((size_t)*count * sizeof *values);
    device_read(held->rank->device, raw, step_memory_at(held->rank->memory, t.id), t.bytes);
    for (int64_t i = 0; i < *count; i++) {
        uint16_t half;
        memcpy(&half, raw + i * 2, sizeof half);
        if (t.dtype == DTYPE_BF16)
            values[i] = bf16_to_f32(half);
        else
            memcpy(&values[i], raw + i * (int64_t)sizeof *values, sizeof *values);
    }
    free(raw);
    return values;
}

static float expected_value(const struct held *held, enum state state, int64_t element, crowd_value *value)
{
    int64_t whole = element < held->parameter->count ? whole_element(held, element) : -1;
    if (whole < 0)
        return 0;
    bool rounded = state == STATE_WEIGHT && program_has_state(held->rank->program, STATE_MASTER);
    float exact = value(&held->crowd->catalogue, held->number, state, whole);
    return rounded ? bf16_to_f32(f32_to_bf16(exact)) : exact;
}

static void fail_element(const struct held *held, enum state state, int64_t element, float got, float wanted)
{
    const struct layout_place *place = &held->rank->place;
    ck_abort_msg("stage %d replica %d part %d: element %d of %s (%s) is %.9g, not %.9g", (int)place->stage,
                 (int)place->replica, (int)place->part, (int)element, held->parameter->name,
                 state_name(state), (double)got, (double)wanted);
}

/* Of gradients only ZeRO's padding: the rest is nobody's business before the first step. */
static void assert_state(const struct held *held, enum state state, crowd_value *value)
{
    int64_t count;
    struct weights_range range = weights_held(held->rank, held->instance, held->index, state);
    float *got = read_memory(held, state, &count);
    ASSERT(count >= range.count);
    for (int64_t i = state == STATE_GRADIENT ? range.count : 0; i < count; i++) {
        float wanted = i < range.count ? expected_value(held, state, range.first + i, value) : 0;
        if (memcmp(&got[i], &wanted, sizeof wanted)) /* ASSERT_MSG is too slow for every element */
            fail_element(held, state, range.first + i, got[i], wanted);
    }
    free(got);
}

static void assert_held(const struct held *held, void *context)
{
    crowd_value *const *value = context;
    for (int state = 0; state < STATE_COUNT; state++)
        if (program_has_state(held->rank->program, (enum state)state))
            assert_state(held, (enum state)state, *value);
}

void crowd_assert(const struct crowd *crowd, crowd_value *value)
{
    visit_all(crowd, assert_held, &value);
}

struct fill {
    const struct catalogue *catalogue;
    crowd_value *value;
    enum state state;
};

static void read_values(const void *context, const struct weights_window *w, float *out)
{
    const struct fill *fill = context;
    int64_t number = catalogue_number(fill->catalogue, w->name);
    for (int64_t row = 0; row < w->rows; row++)
        for (int64_t column = 0; column < w->columns; column++)
            *out++ = fill->value(fill->catalogue, number, fill->state,
                                 (w->row + row) * w->row_length + w->column + column);
}

void crowd_fill(const struct crowd *crowd, crowd_value *value)
{
    for (int i = 0; i < crowd->count; i++) {
        enum state states[] = {weights_exact_state(crowd->ranks[i].program), STATE_MOMENT1, STATE_MOMENT2};
        for (int which = 0; which < 3; which++) {
            struct fill fill = {&crowd->catalogue, value, states[which]};
            struct weights_source source = {read_values, &fill};
            weights_fill(&crowd->ranks[i], states[which], &source, 1);
        }
    }
}

/* Per parameter and element, how many ranks hold it in one state. */
struct tally {
    enum state state;
    int **holders;
};

static void count_held(const struct held *held, void *context)
{
    struct tally *tally = context;
    struct weights_range range = weights_held(held->rank, held->instance, held->index, tally->state);
    for (int64_t i = range.first; i < range.first + range.count; i++) {
        int64_t whole = whole_element(held, i);
        if (whole >= 0)
            tally->holders[held->number][whole]++;
    }
}

static void assert_tally(const struct crowd *crowd, const struct tally *tally, int64_t number)
{
    const struct program *first = crowd->pipeline->stages[0];
    const struct layout *l = &first->layout;
    const struct parameter *p = catalogue_parameter(&crowd->catalogue, number);
    bool sharded = l->zero && tally->state >= STATE_MASTER;
    bool tied = first->model.tied && l->pp > 1 && p->id == PARAM_WTE;
    int64_t expected = (sharded ? 1 : l->dp) * (p->sharing == SHARED_NOT ? l->tp : 1) * (tied ? 2 : 1);
    for (int64_t i = 0; i < p->full_count; i++)
        if (tally->holders[number][i] != expected)
            ck_abort_msg("%d ranks, not %d, hold element %d of %s (%s)", tally->holders[number][i],
                         (int)expected, (int)i, p->name, state_name(tally->state));
}

void crowd_assert_complete(const struct crowd *crowd)
{
    int64_t count = catalogue_count(&crowd->catalogue);
    for (int state = 0; state < STATE_COUNT; state++) {
        if (!program_has_state(crowd->pipeline->stages[0], (enum state)state))
            continue;
        struct tally tally = {(enum state)state, host_alloc((size_t)count * sizeof(int *))};
        for (int64_t i = 0; i < count; i++)
            tally.holders[i] =
                host_alloc((size_t)catalogue_parameter(&crowd->catalogue, i)->full_count * sizeof(int));
        visit_all(crowd, count_held, &tally);
        for (int64_t i = 0; i < count; i++) {
            assert_tally(crowd, &tally, i);
            free(tally.holders[i]);
        }
        free(tally.holders);
    }
}

struct worker {
    void (*work)(const struct state_access *rank, struct comm *comm, void *context);
    const struct state_access *rank;
    struct comm *comm;
    void *context;
};

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    worker->work(worker->rank, worker->comm, worker->context);
    return NULL;
}

void crowd_each(const struct crowd *crowd,
                void (*work)(const struct state_access *rank, struct comm *comm, void *context),
                void *context)
{
    struct error err = {0};
    struct comm *comms[RUNS_RANKS_MAX];
    struct worker workers[RUNS_RANKS_MAX];
    pthread_t threads[RUNS_RANKS_MAX];
    ASSERT_OK(comm_open_threads(crowd->count, comms, &err));
    for (int i = 0; i < crowd->count; i++) {
        workers[i] = (struct worker){work, &crowd->ranks[i], comms[i], context};
        ASSERT_INT(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < crowd->count; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < crowd->count; i++)
        comm_close(comms[i]);
}
