#include "planner/cells.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

/* Stages in the middle that stand on the same ground differ in what they keep, and in nothing that a sketch has. */
static void list_likes(struct cells *c)
{
    const struct stage *list = c->stages->list;
    for (int64_t i = 0; i < c->pp; i++) {
        bool middle = i > 1 && i < c->pp - 1;
        c->likes[i] = middle && list[i].ground == list[i - 1].ground ? c->likes[i - 1] : c->like_count++;
    }
}

void cells_open(const struct stages *stages, struct cells *c)
{
    const struct layout *l = &stages->layout;
    const struct stage *first = &stages->list[0];
    *c = (struct cells){.stages = stages, .pp = l->pp, .layers = stages->model->layers / l->virtual_stages};
    c->message_s = c->pp > 1 ? time_model_message(l, first->costs->message_bytes, first->speed) : 0;
    size_t count = (size_t)(c->pp * (c->layers + 1));
    c->list = host_alloc(count * sizeof *c->list);
    c->likes = host_alloc((size_t)c->pp * sizeof *c->likes);
    list_likes(c);
    c->sketches = host_alloc((size_t)(c->like_count * (c->layers + 1)) * sizeof(struct stage_sketch *));
    for (size_t i = 0; i < count; i++)
        c->list[i].room = stages->list[(int64_t)i / (c->layers + 1)].room;
}

void cells_close(struct cells *c)
{
    for (int64_t i = 0; i < c->pp * (c->layers + 1); i++)
        stage_choice_clear(&c->list[i].choice);
    for (int64_t i = 0; i < c->like_count * (c->layers + 1); i++)
        if (c->sketches[i]) {
            stage_sketch_clear(c->sketches[i]);
            free(c->sketches[i]);
        }
    free(c->list);
    free(c->likes);
    free(c->sketches);
}

struct stage_sketch *cells_sketch(struct cells *c, int64_t stage, int64_t layers)
{
    struct stage_sketch **sketch = &c->sketches[c->likes[stage] * (c->layers + 1) + layers];
    if (!*sketch) {
        *sketch = host_alloc(sizeof **sketch);
        stages_sketch(c->stages, stage, layers, *sketch);
    }
    return *sketch;
}

struct cell *cells_at(struct cells *c, int64_t stage, int64_t layers)
{
    return &c->list[stage * (c->layers + 1) + layers];
}

/* One micro-batch through all chunks; *first: through the first one. */
static struct stage_passes all_passes(const struct cells *c, int64_t stage, int64_t layers,
                                      const double recompute_s[2], struct stage_passes *first)
{
    struct stage_passes all = {0};
    const struct stage *s = &c->stages->list[stage];
    int first_kind = stages_kind(c->stages, stage, 0);
    for (int kind = 0; kind < s->kinds; kind++) {
        if (!s->chunks[kind])
            continue;
        struct stage_passes p = stages_passes(c->stages, stage, layers, kind, recompute_s[kind]);
        all.forward_s += (double)s->chunks[kind] * p.forward_s;
        all.input_s += (double)s->chunks[kind] * p.input_s;
        all.weight_s += (double)s->chunks[kind] * p.weight_s;
        if (kind == first_kind)
            *first = p;
    }
    return all;
}

/* The terms of the bound. */
static void weigh_cell(const struct cells *c, int64_t stage, int64_t layers, const double recompute_s[2],
                       double *work_s, double *before_s)
{
    int64_t micro_batches = layout_micro_batches(&c->stages->layout);
    struct stage_passes first = {0}, all = all_passes(c, stage, layers, recompute_s, &first);
    bool halves = c->stages->layout.schedule == SCHEDULE_ZB_H1 && c->pp > 1;
    double late = halves ? (double)min_i64(micro_batches, stage + 1) : 0;
    *work_s = (double)micro_batches * (all.forward_s + all.input_s + all.weight_s) - late * all.weight_s;
    /* All stages begin with a layer at least, and stage 0 ends with a weight half. */
    *before_s = first.forward_s + first.input_s + (halves ? 0 : first.weight_s) + 2 * c->message_s;
}

static double all_seconds(const struct cells *c, int64_t stage, int64_t layers, const double recompute_s[2])
{
    struct stage_passes first, all = all_passes(c, stage, layers, recompute_s, &first);
    return (double)layout_micro_batches(&c->stages->layout) * (all.forward_s + all.input_s + all.weight_s);
}

static void add_chain(struct cell *cell, double own_s, double rounds)
{
    cell->chains[cell->chain_count++] = (struct chain){own_s, rounds};
}

/* The least of the stage's kinds of chunks. */
static struct stage_passes least_passes(const struct cells *c, int64_t stage, int64_t layers,
                                        const double recompute_s[2])
{
    struct stage_passes least = {INFINITY, INFINITY, INFINITY};
    const struct stage *s = &c->stages->list[stage];
    for (int kind = 0; kind < s->kinds; kind++) {
        if (!s->chunks[kind])
            continue;
        struct stage_passes p = stages_passes(c->stages, stage, layers, kind, recompute_s[kind]);
        least.forward_s = fmin(least.forward_s, p.forward_s);
        least.input_s = fmin(least.input_s, p.input_s);
        least.weight_s = fmin(least.weight_s, p.weight_s);
    }
    return least;
}

/* Of a stage with one chunk, whose passes take turns. */
static void list_turns(const struct cells *c, int64_t stage, const struct stage_passes *p, struct cell *cell)
{
    bool halves = c->stages->layout.schedule == SCHEDULE_ZB_H1;
    int64_t m = layout_micro_batches(&c->stages->layout), w = min_i64(m, c->pp - stage);
    double f = p->forward_s, b = p->input_s + (halves ? 0 : p->weight_s), own_s = (double)m * (f + b);
    /* Weight halves that come before the last forward, and before the last backward. */
    double early_s = halves ? (double)max_i64(m - w - stage, 0) * p->weight_s : 0;
    double late_s = halves ? (double)max_i64(m - 1 - stage, 0) * p->weight_s : 0;
    add_chain(cell, own_s - (double)(w - 1) * b + early_s, 1);
    add_chain(cell, own_s - (double)(w - 1) * f + late_s, 1);
    int64_t rounds = (m - 1) / w + 1;
    if (rounds < 2)
        return;
    add_chain(cell, own_s - (double)(w - 1) * (f + b) + early_s, 2);
    add_chain(cell, own_s - (double)((rounds - 1) * (w - 1)) * (f + b), (double)rounds);
}

static void list_chains(const struct cells *c, int64_t stage, int64_t layers, const double recompute_s[2],
                        struct cell *cell)
{
    const struct layout *l = &c->stages->layout;
    struct stage_passes p = least_passes(c, stage, layers, recompute_s);
    double m = (double)layout_micro_batches(l), v = (double)l->virtual_stages, pp = (double)c->pp;
    double b = p.input_s + p.weight_s, t = p.forward_s + b;
    cell->chain_count = 0;
    if (c->pp == 1)
        return;
    if (l->schedule == SCHEDULE_GPIPE) {
        add_chain(cell, m * t, 1);
    } else if (l->schedule == SCHEDULE_INTERLEAVED) {
        /* Passes of chunks: some take turns, before the last forward and behind the first backward. */
        double w = 2 * (pp - (double)stage - 1) + (v - 1) * pp + 1, turns = fmax(v * m - w, 0);
        double back = (v - 1) * pp;
        add_chain(cell, v * m * p.forward_s + (turns + 1 + back) * b, 1);
        add_chain(cell, (v - 1) * c->row_s + (turns + 1) * p.forward_s + v * m * b, 1);
        if (turns > 0)
            add_chain(cell, (v - 1) * c->row_s + (turns + 1) * t + back * b, 2);
    } else {
        list_turns(c, stage, &p, cell);
    }
}

struct cell *cells_find(struct cells *c, int64_t stage, int64_t layers)
{
    struct cell *cell = cells_at(c, stage, layers);
    if (cell->state != CELL_UNKNOWN)
        return cell;
    cell->state = CELL_IMPOSSIBLE;
    if (stage_choice_find(c->stages, stage, layers, cell->room, &cell->choice)) {
        cell->state = CELL_KNOWN;
        weigh_cell(c, stage, layers, cell->choice.least_s, &cell->work_s, &cell->before_s);
        list_chains(c, stage, layers, cell->choice.least_s, cell);
        c->cut |= cell->choice.least_s[0] < cell->choice.recompute_s[0];
        /* The less is recomputed, the less of the exchange is hidden: so no choice has less of it exposed. */
        double sum_s = stage_sketch_tail(cells_sketch(c, stage, layers), cell->choice.recompute_s).before_s;
        cell->all_s = all_seconds(c, stage, layers, cell->choice.least_s);
        cell->sum_s = sum_s;
    }
    return cell;
}

double cells_least_work(const struct cells *c, int64_t stage, int64_t layers)
{
    static const double none[2] = {0, 0};
    double work_s, before_s;
    weigh_cell(c, stage, layers, none, &work_s, &before_s);
    return work_s;
}

/* Where the lowest layer is apart, it stays. */
static void reverse(int *options, int64_t from, int64_t count)
{
    for (int64_t low = from, high = count - 1; low < high; low++, high--) {
        int option = options[low];
        options[low] = options[high];
        options[high] = option;
    }
}

bool cells_turn_over(struct cells *c, int64_t stage, int64_t layers)
{
    struct cell *cell = cells_at(c, stage, layers);
    int *options = cell->choice.options;
    int64_t from = stage == 0 && c->stages->list[0].costs->first_differs;
    if (cell->lowest_peak || layers - from < 2)
        return false;
    reverse(options, from, layers);
    int64_t peak = stage_choice_peak(c->stages, stage, layers, options, NULL);
    if (peak > cell->room) {
        reverse(options, from, layers);
        return false;
    }
    cell->lowest_peak = min_i64(cell->choice.peak_bytes, peak);
    cell->choice.peak_bytes = peak;
    cell->arena_bytes = 0;
    return true;
}

void cells_tighten(struct cells *c, int64_t stage, int64_t layers, int64_t less)
{
    struct cell *cell = cells_at(c, stage, layers);
    int64_t peak = cell->lowest_peak ? cell->lowest_peak : cell->choice.peak_bytes;
    stage_choice_clear(&cell->choice);
    *cell = (struct cell){.room = peak - less};
}
