#include "planner/stages.h"

#include "base/arena.h"
#include "model/program_build.h"

#include <stdlib.h>

/* ----------------------------------------------------------------------------------------------------------- moments */

/* In every form: a larger chunk keeps what an even one does and a layer more, so that as many pairs with more of them larger keep more. */
static bool at_least(const struct stage_moment *a, const struct stage_moment *b)
{
    const int64_t *x = a->kept, *y = b->kept;
    return a->work == b->work && a->kind == b->kind && x[CHUNK_LARGER] >= y[CHUNK_LARGER] &&
           x[CHUNK_EVEN] + x[CHUNK_LARGER] >= y[CHUNK_EVEN] + y[CHUNK_LARGER] &&
           x[CHUNK_END] >= y[CHUNK_END] && a->later[CHUNK_EVEN] >= b->later[CHUNK_EVEN];
}

/* Keeps those that no other equals or exceeds. *last: which one did so the last time, mostly the same again. */
static void add_moment(struct stage_moments *moments, struct stage_moment moment, int *last)
{
    int kept = 0;
    if (*last < moments->count && at_least(&moments->list[*last], &moment))
        return;
    for (int i = 0; i < moments->count; i++)
        if (at_least(&moments->list[i], &moment)) {
            *last = i;
            return;
        }
    for (int i = 0; i < moments->count; i++)
        if (!at_least(&moment, &moments->list[i]))
            moments->list[kept++] = moments->list[i];
    moments->list = host_resize(moments->list, (size_t)(kept + 1) * sizeof *moments->list);
    moments->list[kept++] = moment;
    moments->count = kept;
}

/* Interleaved stages begin with fewer passes than a round and a half of all their chunks have, and then go on in rounds that are alike. */
static struct schedule_shape telling_shape(const struct layout *layout)
{
    enum { ROUNDS = 3 };
    struct schedule_shape shape = layout_schedule(layout);
    if (shape.pp == 1)
        shape.micro_batches = 1; /* the others repeat it */
    if (shape.kind == SCHEDULE_INTERLEAVED)
        shape.micro_batches = min_i64(shape.micro_batches, ROUNDS * shape.pp);
    return shape;
}

/* As program_find_peak() goes through a schedule. */
static void list_moments(const struct stages *stages, int64_t number, const struct stage_form *form,
                         struct stage_moments *out)
{
    struct schedule_shape shape = telling_shape(&stages->layout);
    struct schedule_cursor walk = schedule_walk(&shape, number);
    struct stage_moment now = {0};
    int last[SCHEDULE_BACKWARD_WEIGHT + 1][CHUNK_KINDS] = {{0}}; /* of each work and kind */
    for (struct schedule_item item; schedule_next(&walk, &item);) {
        enum chunk_kind kind = stages_kind(stages, number, form, item.chunk);
        if (item.work == SCHEDULE_BACKWARD_WEIGHT)
            now.later[kind]--;
        else if (item.work != SCHEDULE_FORWARD)
            now.kept[kind]--;
        now.work = item.work;
        now.kind = (int)kind;
        add_moment(out, now, &last[now.work][kind]);
        if (item.work == SCHEDULE_FORWARD)
            now.kept[kind]++;
        else if (item.work == SCHEDULE_BACKWARD_INPUT)
            now.later[kind]++;
    }
}

const struct stage_moments *stages_moments(const struct stages *stages, int64_t stage,
                                           const struct stage_form *form)
{
    struct stage_moments *moments = &stages->list[stage].moments[form->counts[CHUNK_LARGER]];
    if (!moments->list)
        list_moments(stages, stage, form, moments);
    return moments;
}

int64_t stages_in_flight(const struct layout *layout, int64_t stage)
{
    int64_t m = layout_micro_batches(layout), p = layout->pp, v = layout->virtual_stages;
    if (p == 1)
        return 1;
    switch (layout->schedule) {
    case SCHEDULE_GPIPE:
        return m;
    case SCHEDULE_INTERLEAVED:
        return min_i64(v * m, 2 * (p - stage - 1) + (v - 1) * p + 1);
    default:
        return min_i64(m, p - stage);
    }
}

/* ------------------------------------------------------------------------------------------------------------ stages */

/* Enough of a program to ask for the sizes of its states. */
static struct program probe_of(const struct model *model, const struct layout *layout)
{
    return (struct program){.model = *model, .layout = *layout};
}

static int64_t other_states(const struct program *probe, int64_t message_bytes)
{
    int64_t bytes = 0;
    for (int i = 0; i < SCALAR_COUNT; i++)
        bytes += program_scalar(probe, (enum scalar)i).bytes;
    return bytes + (probe->layout.pp > 1 ? 2 * BUFFER_KINDS * message_bytes : 0);
}

static void open_stage(const struct stages *stages, int64_t number, int ground, const struct stage_ground *on,
                       struct stage *out)
{
    const struct layout *l = &stages->layout;
    struct program probe = probe_of(stages->model, l);
    bool first = number == 0, last = number == l->pp - 1, single = l->virtual_stages == 1;
    *out = (struct stage){.number = number,
                          .ground = ground,
                          .speed = on->speed,
                          .costs = on->costs,
                          .room = on->room,
                          .apart = !single && (first || last)};
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        bool end = single || kind == CHUNK_END;
        out->bottom[kind] = end && first ? COST_EMBED : COST_RECEIVE;
        out->top[kind] = end && last ? COST_HEAD : COST_SEND;
    }
    out->state_bytes = other_states(&probe, out->costs->message_bytes);
    for (int64_t chunk = 0; chunk < l->virtual_stages; chunk++) {
        bool end = out->apart && chunk == (first ? 0 : l->virtual_stages - 1);
        int kind = end ? CHUNK_END : CHUNK_EVEN;
        out->state_bytes +=
            costs_states(out->costs, l, out->bottom[kind]) + costs_states(out->costs, l, out->top[kind]);
    }
    out->layer_state_bytes = costs_states(out->costs, l, COST_LAYER);
    out->moments = host_alloc((size_t)l->virtual_stages * sizeof *out->moments);
}

void stages_open(const struct model *model, const struct layout *layout, const struct stage_ground *grounds,
                 enum larger_chunks larger, struct stages *out)
{
    int ground = 0;
    *out = (struct stages){.model = model, .layout = *layout, .larger = larger};
    out->list = host_alloc((size_t)layout->pp * sizeof *out->list);
    for (int64_t i = 0, begin = 0; i < layout->pp; i++) {
        if (i == begin + grounds[ground].stages)
            begin += grounds[ground++].stages;
        open_stage(out, i, ground, &grounds[ground], &out->list[i]);
    }
}

void stages_close(struct stages *stages)
{
    for (int64_t i = 0; stages->list && i < stages->layout.pp; i++) {
        for (int64_t k = 0; k < stages->layout.virtual_stages; k++)
            free(stages->list[i].moments[k].list);
        free(stages->list[i].moments);
    }
    free(stages->list);
    stages->list = NULL;
}

/* ------------------------------------------------------------------------------------------------------------- forms */

bool stages_are_alike(const struct model *model)
{
    return model->family == MODEL_ENCODER;
}

struct stage_form stages_form(const struct stages *stages, int64_t stage, struct stage_split split)
{
    bool apart = stages->list[stage].apart;
    int64_t chunks = stages->layout.virtual_stages - apart, layers = split.layers - (apart ? split.end : 0);
    int64_t larger = layers % chunks, height = layers / chunks;
    return (struct stage_form){.split = split,
                               .counts = {chunks - larger, larger, apart},
                               .heights = {height, height + 1, apart ? split.end : 0},
                               .kinds = apart    ? CHUNK_END + 1
                                        : larger ? CHUNK_LARGER + 1
                                                 : CHUNK_EVEN + 1};
}

enum chunk_kind stages_kind(const struct stages *stages, int64_t stage, const struct stage_form *form,
                            int64_t chunk)
{
    bool apart = stages->list[stage].apart, first = stage == 0;
    int64_t last = stages->layout.virtual_stages - 1;
    if (apart && chunk == (first ? 0 : last))
        return CHUNK_END;
    int64_t before = chunk - (apart && first),
            behind = last - chunk - (apart && !first); /* of those that are no end */
    return (stages->larger == LARGER_FIRST ? before : behind) < form->counts[CHUNK_LARGER] ? CHUNK_LARGER
                                                                                           : CHUNK_EVEN;
}

/* -------------------------------------------------------------------------------------------------------------- time */

static void add_passes(struct stage_passes *passes, const struct block_time *time, int64_t count)
{
    passes->forward_s += (double)count * (time->forward + time->forward_exchange);
    passes->input_s += (double)count * (time->backward + time->recompute + time->backward_exchange);
    passes->weight_s += (double)count * time->weight;
}

struct stage_passes stages_passes(const struct stages *stages, int64_t stage, const struct stage_form *form,
                                  int kind, double recompute_s)
{
    const struct stage *s = &stages->list[stage];
    const struct block_time *times = s->costs->times;
    bool first = s->bottom[kind] == COST_EMBED && s->costs->first_differs;
    struct stage_passes passes = {.input_s = recompute_s};
    add_passes(&passes, &times[s->bottom[kind]], 1);
    add_passes(&passes, &times[COST_FIRST], first);
    add_passes(&passes, &times[COST_LAYER], form->heights[kind] - first);
    add_passes(&passes, &times[s->top[kind]], 1);
    return passes;
}

static void sketch_run(struct stage_sketch *sketch, const struct costs *costs, enum cost_part part,
                       int64_t count)
{
    struct program *p = &sketch->program;
    if (!count)
        return;
    sketch->runs[p->run_count] =
        (struct timed_run){count, costs->times[part], part == COST_LAYER || part == COST_FIRST};
    p->runs[p->run_count++] = (struct run){.block = (int)part, .first = p->instances, .count = count};
    p->instances += count;
}

void stages_sketch(const struct stages *stages, int64_t stage, const struct stage_form *form,
                   struct stage_sketch *out)
{
    const struct layout *l = &stages->layout;
    const struct stage *s = &stages->list[stage];
    size_t chunks = (size_t)l->virtual_stages;
    struct program *p = &out->program;
    *out = (struct stage_sketch){.program = probe_of(stages->model, l),
                                 .runs = host_alloc(4 * chunks * sizeof *out->runs),
                                 .form = *form};
    p->stage = stage;
    p->micro_batches = layout_micro_batches(l);
    p->tied_copy = p->model.tied && l->pp > 1 && (stage == 0 || stage == l->pp - 1);
    p->blocks = (struct block *)s->costs->blocks; /* read only */
    p->block_count = COST_PARTS;
    p->runs = host_alloc(4 * chunks * sizeof *p->runs);
    p->chunks = host_alloc(chunks * sizeof *p->chunks);
    for (int64_t i = 0; i < l->virtual_stages; i++) {
        enum chunk_kind kind = stages_kind(stages, stage, form, i);
        int64_t layers = form->heights[kind];
        bool first = s->bottom[kind] == COST_EMBED && s->costs->first_differs;
        struct chunk *chunk = &p->chunks[p->chunk_count++];
        *chunk = (struct chunk){.global = i * l->pp + stage, .first = p->instances, .layers = layers};
        sketch_run(out, s->costs, s->bottom[kind], 1);
        sketch_run(out, s->costs, COST_FIRST, first);
        sketch_run(out, s->costs, COST_LAYER, layers - first);
        sketch_run(out, s->costs, s->top[kind], 1);
        chunk->count = p->instances - chunk->first;
    }
    program_list_buckets(p);
    time_model_open(p, s->speed, &out->frame);
}

void stage_sketch_clear(struct stage_sketch *sketch)
{
    time_model_close(&sketch->frame);
    free(sketch->program.buckets);
    free(sketch->program.runs);
    free(sketch->program.chunks);
    free(sketch->runs);
}

struct stage_tail stage_sketch_tail(struct stage_sketch *sketch, const double recompute_s[CHUNK_KINDS])
{
    const struct program *p = &sketch->program;
    const struct stage_form *form = &sketch->form;
    double seconds = 0;
    for (int kind = 0; kind < form->kinds; kind++)
        seconds += (double)form->counts[kind] * recompute_s[kind];
    for (int i = 0; i < p->run_count; i++)
        if (sketch->runs[i].layers)
            sketch->runs[i].time.recompute = seconds / (double)form->split.layers;
    sketch->frame.program = p;
    return time_model_tail(&sketch->frame, sketch->runs, p->run_count);
}
