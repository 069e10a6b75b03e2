#include "planner/composition.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct composition {
    const struct stages *stages;
    struct cells cells;
    struct timeline *timeline; /* made when first needed; NULL with one stage */
    int64_t pp, layers;        /* of one chunk of each stage together */
    double
        last_half_s; /* what the first stage does after its last input half; nothing where backward is whole */
    double tail_s;   /* the least tail */
    double at_once;  /* stages that have cores at a time */
    double *behind_s;       /* [stage]: of P_i, what does not depend on layers */
    double *fill_s;         /* [stage]: until the first micro-batch gets there, but for layers */
    double fill_layer_s;    /* the least that a layer adds */
    double *behind_layer_s; /* [stage]: the least that it grows by a layer */
    double *
        allowed_s; /* [stage * (layers + 1) + layers left]: how much may come before, for the limit; < 0: no way */
    double bound_s; /* composition_bound()'s answer */
    /* In a search. */
    double limit_s; /* of the table, or the best step where that is less */
    double most_s;  /* what is slower is not wanted */
    int64_t *chosen;
    struct composition_best *best;
    int64_t *budget;
};

/* Some stage has at least the average of layers, and what comes after all have met grows with them. */
static double least_tail(struct composition *c)
{
    int64_t most = (c->layers + c->pp - 1) / c->pp;
    double tail_s = INFINITY, none[2] = {0, 0};
    for (int64_t i = 0; i < c->pp; i++)
        if (!i || c->cells.likes[i] != c->cells.likes[i - 1])
            tail_s = fmin(tail_s, stage_sketch_tail(cells_sketch(&c->cells, i, most), none).after_s);
    return tail_s;
}

/* Forward and back, without weight halves, which nobody waits for. */
static double round_seconds(const struct block_time *t)
{
    return t->forward + t->forward_exchange + t->backward + t->backward_exchange;
}

static double forward_seconds(const struct block_time *t)
{
    return t->forward + t->forward_exchange;
}

static void sum_behind(struct composition *c)
{
    const struct stage *list = c->stages->list;
    const struct block_time *last = list[c->pp - 1].costs->times;
    double least_forward_s = INFINITY, sum_s = 0, layer_s = INFINITY;
    c->behind_s = host_alloc((size_t)c->pp * sizeof *c->behind_s);
    c->behind_layer_s = host_alloc((size_t)c->pp * sizeof *c->behind_layer_s);
    for (int64_t i = c->pp - 1; i >= 0; i--) {
        const struct block_time *t = list[i].costs->times;
        c->behind_s[i] = sum_s;
        c->behind_layer_s[i] = isinf(layer_s) ? 0 : layer_s;
        sum_s += round_seconds(&t[COST_RECEIVE]) + 2 * c->cells.message_s;
        sum_s += i == c->pp - 1 ? round_seconds(&last[COST_HEAD]) : round_seconds(&t[COST_SEND]);
        layer_s = fmin(layer_s, round_seconds(&t[COST_LAYER]));
        least_forward_s = fmin(least_forward_s, forward_seconds(&t[COST_LAYER]));
        c->cells.row_s +=
            fmin(forward_seconds(&t[COST_RECEIVE]), i ? INFINITY : forward_seconds(&t[COST_EMBED])) +
            forward_seconds(&t[COST_SEND]) + c->cells.message_s;
    }
    c->fill_s = host_alloc((size_t)c->pp * sizeof *c->fill_s);
    c->fill_layer_s = least_forward_s;
    for (int64_t i = 1; i < c->pp; i++) {
        const struct block_time *t = list[i - 1].costs->times;
        c->fill_s[i] = c->fill_s[i - 1] + forward_seconds(&t[i == 1 ? COST_EMBED : COST_RECEIVE]) +
                       forward_seconds(&t[COST_SEND]) + c->cells.message_s;
    }
    c->cells.row_s += (double)(c->layers - list[0].costs->first_differs) * least_forward_s;
}

struct composition *composition_open(const struct stages *stages)
{
    struct composition *c = host_alloc(sizeof *c);
    const struct layout *l = &stages->layout;
    c->stages = stages;
    c->pp = l->pp;
    c->layers = stages->model->layers / l->virtual_stages;
    const struct stage *first = &stages->list[0];
    c->at_once = machine_speed_stages_at_once(first->speed, l);
    cells_open(stages, &c->cells);
    c->allowed_s = host_alloc((size_t)((c->pp + 1) * (c->layers + 1)) * sizeof *c->allowed_s);
    c->chosen = host_alloc((size_t)c->pp * sizeof *c->chosen);
    c->tail_s = least_tail(c);
    sum_behind(c);
    /* Of a layer at least. */
    if (l->schedule == SCHEDULE_ZB_H1 && c->pp > 1)
        c->last_half_s = stages_passes(stages, 0, 1, 0, 0).weight_s;
    return c;
}

void composition_close(struct composition *c)
{
    if (!c)
        return;
    timeline_free(c->timeline);
    cells_close(&c->cells);
    free(c->allowed_s);
    free(c->behind_s);
    free(c->fill_s);
    free(c->behind_layer_s);
    free(c->chosen);
    free(c);
}

const struct stage_choice *composition_choice(struct composition *c, int64_t stage, int64_t layers)
{
    return &cells_find(&c->cells, stage, layers)->choice;
}

int64_t *composition_arena(struct composition *c, int64_t stage, int64_t layers)
{
    return &cells_at(&c->cells, stage, layers)->arena_bytes;
}

bool composition_turn_over(struct composition *c, int64_t stage, int64_t layers)
{
    return cells_turn_over(&c->cells, stage, layers);
}

void composition_tighten(struct composition *c, int64_t stage, int64_t layers, int64_t less)
{
    cells_tighten(&c->cells, stage, layers, less);
}

/* ------------------------------------------------------------------------------------------------------------- table */

/* Even without recomputation, is the stage too slow for the limit? Spares finding out what it recomputes. */
static bool too_slow(struct composition *c, int64_t stage, int64_t layers, double limit_s)
{
    struct cell *cell = cells_at(&c->cells, stage, layers);
    double work_s = cell->state == CELL_KNOWN ? cell->work_s : cells_least_work(&c->cells, stage, layers);
    return work_s > limit_s;
}

/* As fmax(), but no call: the table is filled over and over. */
static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double lesser(double a, double b)
{
    return a < b ? a : b;
}

/* The longest chain of the stage when those behind it have so many layers. */
static double longest_chain(const struct composition *c, int64_t stage, const struct cell *cell,
                            int64_t behind)
{
    double longest_s = cell->work_s;
    double round_s = c->behind_s[stage] + (double)behind * c->behind_layer_s[stage];
    for (int i = 0; i < cell->chain_count; i++)
        longest_s = larger(longest_s, cell->chains[i].own_s + cell->chains[i].rounds * round_s);
    return longest_s;
}

/* Until the first micro-batch gets to the stage, when `left` layers are left then. An encoder's first layer is none of those that
 * are counted. */
static double least_fill(const struct composition *c, int64_t stage, int64_t left)
{
    double before = (double)(c->layers - left - c->stages->list[0].costs->first_differs);
    return c->fill_s[stage] + larger(before, 0) * c->fill_layer_s;
}

/* How much may come before this stage when it has `layers` layers and `left` are left with it. */
static double allowed_with(struct composition *c, int64_t stage, int64_t layers, int64_t left, double limit_s)
{
    const struct cell *cell = cells_find(&c->cells, stage, layers);
    if (cell->state != CELL_KNOWN)
        return -1;
    double behind = c->allowed_s[(stage + 1) * (c->layers + 1) + left - layers];
    if (behind < 0)
        return -1;
    double own_s = longest_chain(c, stage, cell, left - layers);
    /* Whatever the stages before it still do when it is done, its gradients must be summed. */
    double summed_s = least_fill(c, stage, left) + cell->sum_s;
    if (summed_s + cell->before_s > behind || summed_s + own_s > limit_s ||
        summed_s + cell->all_s > limit_s + c->last_half_s)
        return -1;
    return lesser(limit_s - own_s, behind - cell->before_s) - (stage == 0 ? cell->sum_s : 0);
}

/* Entries of the table count as effort too: so many as a comparison. */
enum { TABLE_PARTS = 4 };

static void spend(struct composition *c, int64_t effort)
{
    if (c->stages->effort)
        *c->stages->effort -= effort;
}

/* Fills the table, from the last stage on; is the limit within reach? */
static bool fill_table(struct composition *c, double step_limit_s)
{
    double limit_s = step_limit_s - c->tail_s - c->last_half_s;
    int64_t row = c->layers + 1;
    for (int64_t left = 0; left <= c->layers; left++)
        c->allowed_s[c->pp * row + left] = left ? -1 : INFINITY;
    for (int64_t stage = c->pp - 1; stage >= 0; stage--) {
        double *allowed = &c->allowed_s[stage * row];
        for (int64_t left = 0; left <= c->layers; left++)
            allowed[left] = -1;
        /* Others need a layer each. */
        for (int64_t layers = 1; layers <= c->layers - (c->pp - 1); layers++) {
            if (too_slow(c, stage, layers, limit_s))
                break;
            const struct cell *cell = cells_find(&c->cells, stage, layers);
            if (cell->state != CELL_KNOWN && cell->room == c->stages->list[stage].room)
                break; /* where so many do not fit, more do not */
            spend(c, (c->layers - layers - c->pp + 2) / TABLE_PARTS);
            for (int64_t left = layers + c->pp - 1 - stage; left <= c->layers - stage; left++)
                allowed[left] = larger(allowed[left], allowed_with(c, stage, layers, left, limit_s));
        }
    }
    return c->allowed_s[c->layers] >= 0;
}

static double find_bound(struct composition *c, double from_s, double limit_s)
{
    enum { STEPS = 8 };
    double low = from_s, growth = 1.02, high;
    if (fill_table(c, low))
        return low;
    /* In small steps, so that nobody asks what far too many layers would recompute. */
    for (;; low = high, growth *= growth) {
        high = fmin(limit_s, low * growth);
        if (fill_table(c, high))
            break;
        if (high >= limit_s || growth > 1e6)
            return INFINITY;
    }
    for (int i = 0; i < STEPS; i++) {
        double middle = (low + high) / 2;
        *(fill_table(c, middle) ? &high : &low) = middle;
    }
    return low;
}

double composition_bound(struct composition *c, double from_s, double limit_s)
{
    c->bound_s = find_bound(c, from_s, limit_s);
    return c->bound_s;
}

/* ------------------------------------------------------------------------------------------------------------ search */

static int open_timeline(struct composition *c, struct error *err)
{
    struct schedule_shape shape = layout_schedule(&c->stages->layout);
    return c->pp > 1 && !c->timeline ? timeline_create(&shape, &c->timeline, err) : 0;
}

/* Replays the schedule with these layers; `ends_s` and `tails` have room for all stages. */
static double step_of(struct composition *c, const int64_t *layers, double *ends_s, struct stage_tail *tails)
{
    const struct layout *l = &c->stages->layout;
    size_t chunks = (size_t)layout_chunks(l);
    double *seconds = host_alloc(3 * chunks * sizeof *seconds);
    struct schedule_times times = {seconds, seconds + chunks, seconds + 2 * chunks, c->cells.message_s};
    for (int64_t i = 0; i < c->pp; i++) {
        const struct stage_choice *choice = composition_choice(c, i, layers[i]);
        tails[i] = stage_sketch_tail(cells_sketch(&c->cells, i, layers[i]), choice->recompute_s);
        for (int64_t chunk = 0; chunk < l->virtual_stages; chunk++) {
            int kind = stages_kind(c->stages, i, chunk);
            struct stage_passes p = stages_passes(c->stages, i, layers[i], kind, choice->recompute_s[kind]);
            seconds[chunk * c->pp + i] = p.forward_s;
            seconds[(int64_t)chunks + chunk * c->pp + i] = p.input_s;
            seconds[2 * (int64_t)chunks + chunk * c->pp + i] = p.weight_s;
        }
    }
    if (c->timeline)
        timeline_run(c->timeline, &times, ends_s);
    else
        ends_s[0] = (double)layout_micro_batches(l) * (seconds[0] + seconds[1] + seconds[2]);
    struct time_question question = {l, &times, c->at_once};
    double step_s = time_model_together(&question, ends_s, tails, NULL);
    free(seconds);
    return step_s;
}

/* Where stages share cores: no step is shorter than the cores take for all their work. */
static bool cores_are_too_slow(struct composition *c)
{
    double work_s = 0;
    for (int64_t i = 0; i < c->pp; i++) {
        const struct cell *cell = cells_at(&c->cells, i, c->chosen[i]);
        work_s += cell->all_s + cell->sum_s;
    }
    return work_s / c->at_once + c->tail_s >= fmin(c->best->step_s, c->most_s);
}

static void try_chosen(struct composition *c)
{
    if (c->at_once < (double)c->pp && cores_are_too_slow(c)) {
        *c->budget -= 1;
        return;
    }
    double *ends_s = host_alloc((size_t)c->pp * sizeof *ends_s);
    struct stage_tail *tails = host_alloc((size_t)c->pp * sizeof *tails);
    double step_s = step_of(c, c->chosen, ends_s, tails);
    *c->budget -= c->timeline ? timeline_items(c->timeline) : 1;
    if (step_s < c->best->step_s && step_s < c->most_s) {
        c->best->step_s = step_s;
        c->limit_s = fmin(c->limit_s, step_s);
        memcpy(c->best->layers, c->chosen, (size_t)c->pp * sizeof *c->chosen);
    }
    free(ends_s);
    free(tails);
}

/* Gives layers to `stage` and those behind it, `before_s` being what comes before. Of the numbers that can still stay below the
 * limit, those that leave most time first. The table was made for a limit at least as large as the one that holds now. */
static void choose_from(struct composition *c, int64_t stage, int64_t left, double before_s, double limit_s)
{
    if (stage == c->pp) {
        try_chosen(c);
        return;
    }
    double spent = INFINITY; /* numbers with more time to spare have been tried */
    int64_t last = 0;
    while (*c->budget > 0) {
        double best = -1, excess = limit_s - (c->limit_s - c->tail_s - c->last_half_s);
        int64_t next = 0;
        for (int64_t layers = 1; layers <= left; layers++) {
            if (cells_at(&c->cells, stage, layers)->state != CELL_KNOWN)
                continue;
            double spare = allowed_with(c, stage, layers, left, limit_s) - before_s;
            bool later = spare < spent || (spare == spent && layers > last);
            if (later && spare >= excess && spare > best) {
                best = spare;
                next = layers;
            }
        }
        if (!next)
            return;
        c->chosen[stage] = next;
        choose_from(c, stage + 1, left - next, before_s + cells_at(&c->cells, stage, next)->before_s,
                    limit_s);
        spent = best;
        last = next;
    }
    c->best->proved = false;
}

int composition_search(struct composition *c, double limit_s, int64_t *budget, struct composition_best *out,
                       struct error *err)
{
    *out = (struct composition_best){
        .step_s = INFINITY, .proved = true, .layers = host_alloc((size_t)c->pp * sizeof *out->layers)};
    if (open_timeline(c, err))
        return -1;
    c->best = out;
    c->budget = budget;
    c->most_s = limit_s;
    /* The limit is approached from below, so that nobody asks what far too many layers would recompute. All below it is tried;
     * so once the best step is below, it is the best. */
    double near_s = c->bound_s, growth = 1.01;
    for (; near_s < fmin(limit_s, out->step_s) && *budget > 0; growth = fmin(growth * growth, 2)) {
        near_s = fmin(near_s * growth, fmin(limit_s, out->step_s));
        c->limit_s = near_s;
        if (fill_table(c, near_s))
            choose_from(c, 0, c->layers, 0, near_s - c->tail_s - c->last_half_s);
    }
    out->proved = out->proved && !c->cells.cut && near_s >= fmin(limit_s, out->step_s);
    return 0;
}

void composition_best_clear(struct composition_best *best)
{
    free(best->layers);
    best->layers = NULL;
}

struct step_time composition_time(struct composition *c, const struct composition_best *best)
{
    double *ends_s = host_alloc((size_t)c->pp * sizeof *ends_s);
    struct stage_tail *tails = host_alloc((size_t)c->pp * sizeof *tails);
    struct step_time least = {.bubble = INFINITY};
    double total_s = step_of(c, best->layers, ends_s, tails);
    for (int64_t i = 0; i < c->pp; i++) {
        const struct stage_sketch *sketch = cells_sketch(&c->cells, i, best->layers[i]);
        /* A sketch serves several stages: this one's recomputation. */
        stage_sketch_tail((struct stage_sketch *)sketch,
                          composition_choice(c, i, best->layers[i])->recompute_s);
        struct step_time own = time_model_runs(&sketch->frame, sketch->runs, sketch->program.run_count);
        own.bubble = c->pp > 1 ? total_s - own.total : 0;
        own.total = total_s;
        if (own.bubble < least.bubble)
            least = own;
    }
    free(ends_s);
    free(tails);
    return least;
}
