#include "planner/stages.h"

#include "base/arena.h"
#include "model/program_build.h"

#include <stdlib.h>

/* ----------------------------------------------------------------------------------------------------------- moments */

static bool at_least(const struct stage_moment *a, const struct stage_moment *b)
{
    return a->work == b->work && a->kind == b->kind && a->kept[0] >= b->kept[0] && a->kept[1] >= b->kept[1] &&
           a->later[0] >= b->later[0] && a->later[1] >= b->later[1];
}

/* Keeps those that no other equals or exceeds. *last: which one did so the last time, mostly the same again. */
static void add_moment(struct stage *stage, struct stage_moment moment, int *last)
{
    int kept = 0;
    if (*last < stage->moment_count && at_least(&stage->moments[*last], &moment))
        return;
    for (int i = 0; i < stage->moment_count; i++)
        if (at_least(&stage->moments[i], &moment)) {
            *last = i;
            return;
        }
    for (int i = 0; i < stage->moment_count; i++)
        if (!at_least(&moment, &stage->moments[i]))
            stage->moments[kept++] = stage->moments[i];
    stage->moments = host_resize(stage->moments, (size_t)(kept + 1) * sizeof *stage->moments);
    stage->moments[kept++] = moment;
    stage->moment_count = kept;
}

/* As program_find_peak() goes through a schedule. */
static void list_moments(const struct stages *stages, struct stage *stage)
{
    struct schedule_shape shape = layout_schedule(&stages->layout);
    if (shape.pp == 1)
        shape.micro_batches = 1; /* the others repeat it */
    struct schedule_cursor walk = schedule_walk(&shape, stage->number);
    struct stage_moment now = {0};
    int last[SCHEDULE_BACKWARD_WEIGHT + 1][2] = {{0}}; /* of each work and kind */
    for (struct schedule_item item; schedule_next(&walk, &item);) {
        int kind = stages_kind(stages, stage->number, item.chunk);
        if (item.work == SCHEDULE_BACKWARD_WEIGHT)
            now.later[kind]--;
        else if (item.work != SCHEDULE_FORWARD)
            now.kept[kind]--;
        now.work = item.work;
        now.kind = kind;
        add_moment(stage, now, &last[now.work][kind]);
        if (item.work == SCHEDULE_FORWARD)
            now.kept[kind]++;
        else if (item.work == SCHEDULE_BACKWARD_INPUT)
            now.later[kind]++;
    }
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

int stages_kind(const struct stages *stages, int64_t stage, int64_t chunk)
{
    const struct layout *l = &stages->layout;
    bool end = (stage == 0 && chunk == 0) || (stage == l->pp - 1 && chunk == l->virtual_stages - 1);
    return end && l->virtual_stages > 1;
}

static void open_stage(const struct stages *stages, int64_t number, int ground, const struct stage_ground *on,
                       struct stage *out)
{
    const struct layout *l = &stages->layout;
    struct program probe = probe_of(stages->model, l);
    *out = (struct stage){.number = number,
                          .ground = ground,
                          .speed = on->speed,
                          .costs = on->costs,
                          .room = on->room,
                          .kinds = 1};
    for (int64_t chunk = 0; chunk < l->virtual_stages; chunk++) {
        int kind = stages_kind(stages, number, chunk);
        int64_t global = chunk * l->pp + number;
        out->kinds = kind + 1 > out->kinds ? kind + 1 : out->kinds;
        out->chunks[kind]++;
        out->bottom[kind] = global == 0 ? COST_EMBED : COST_RECEIVE;
        out->top[kind] = global == layout_chunks(l) - 1 ? COST_HEAD : COST_SEND;
    }
    out->state_bytes = other_states(&probe, out->costs->message_bytes);
    for (int kind = 0; kind < out->kinds; kind++)
        out->state_bytes += out->chunks[kind] * (costs_states(out->costs, l, out->bottom[kind]) +
                                                 costs_states(out->costs, l, out->top[kind]));
    out->layer_state_bytes = l->virtual_stages * costs_states(out->costs, l, COST_LAYER);
    list_moments(stages, out);
}

void stages_open(const struct model *model, const struct layout *layout, const struct stage_ground *grounds,
                 struct stages *out)
{
    int ground = 0;
    *out = (struct stages){.model = model, .layout = *layout};
    out->list = host_alloc((size_t)layout->pp * sizeof *out->list);
    for (int64_t i = 0, begin = 0; i < layout->pp; i++) {
        if (i == begin + grounds[ground].stages)
            begin += grounds[ground++].stages;
        open_stage(out, i, ground, &grounds[ground], &out->list[i]);
    }
}

void stages_close(struct stages *stages)
{
    for (int64_t i = 0; stages->list && i < stages->layout.pp; i++)
        free(stages->list[i].moments);
    free(stages->list);
    stages->list = NULL;
}

/* -------------------------------------------------------------------------------------------------------------- time */

static void add_passes(struct stage_passes *passes, const struct block_time *time, int64_t count)
{
    passes->forward_s += (double)count * (time->forward + time->forward_exchange);
    passes->input_s += (double)count * (time->backward + time->recompute + time->backward_exchange);
    passes->weight_s += (double)count * time->weight;
}

struct stage_passes stages_passes(const struct stages *stages, int64_t stage, int64_t layers, int kind,
                                  double recompute_s)
{
    const struct stage *s = &stages->list[stage];
    const struct block_time *times = s->costs->times;
    bool first = s->bottom[kind] == COST_EMBED && s->costs->first_differs;
    struct stage_passes passes = {.input_s = recompute_s};
    add_passes(&passes, &times[s->bottom[kind]], 1);
    add_passes(&passes, &times[COST_FIRST], first);
    add_passes(&passes, &times[COST_LAYER], layers - first);
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

void stages_sketch(const struct stages *stages, int64_t stage, int64_t layers, struct stage_sketch *out)
{
    const struct layout *l = &stages->layout;
    const struct stage *s = &stages->list[stage];
    size_t chunks = (size_t)l->virtual_stages;
    struct program *p = &out->program;
    *out = (struct stage_sketch){.program = probe_of(stages->model, l),
                                 .runs = host_alloc(4 * chunks * sizeof *out->runs)};
    p->stage = stage;
    p->micro_batches = layout_micro_batches(l);
    p->tied_copy = p->model.tied && l->pp > 1 && (stage == 0 || stage == l->pp - 1);
    p->blocks = (struct block *)s->costs->blocks; /* read only */
    p->block_count = COST_PARTS;
    p->runs = host_alloc(4 * chunks * sizeof *p->runs);
    p->chunks = host_alloc(chunks * sizeof *p->chunks);
    for (int64_t i = 0; i < l->virtual_stages; i++) {
        int kind = stages_kind(stages, stage, i);
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

struct stage_tail stage_sketch_tail(struct stage_sketch *sketch, const double recompute_s[2])
{
    const struct program *p = &sketch->program;
    double seconds = 0, layers = 0;
    for (int i = 0; i < p->chunk_count; i++) {
        bool end = p->chunk_count > 1 &&
                   (p->chunks[i].global == 0 || p->chunks[i].global == layout_chunks(&p->layout) - 1);
        seconds += recompute_s[end];
        layers += (double)p->chunks[i].layers;
    }
    for (int i = 0; i < p->run_count; i++)
        if (sketch->runs[i].layers)
            sketch->runs[i].time.recompute = seconds / layers;
    sketch->frame.program = p;
    return time_model_tail(&sketch->frame, sketch->runs, p->run_count);
}
