#include "planner/composition.h"

#include "base/arena.h"
#include "base/checked.h"
#include "planner/shown_chains.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct composition {
    const struct stages *stages;
    struct cells cells;
    struct schedule_memory *own_schedules; /* where the stages have none */
    struct known_schedule *known;          /* NULL with one stage */
    struct timeline *timeline;             /* its clock, once it was needed */
    int64_t pp, layers;
    double
        last_half_s; /* what the first stage does after its last input half; nothing where backward is whole */
    double tail_s;   /* the least tail */
    double at_once;  /* stages that have cores at a time */
    double *behind_s;       /* [stage]: of P_i, what does not depend on layers */
    double *fill_s;         /* [stage]: until the first micro-batch gets there, but for layers */
    double *behind_layer_s; /* [stage]: the least that it grows by a layer */
    double forward_layer_s; /* the least that a layer takes forward */
    double row_s;           /* through one chunk of each stage, forward, but for layers */
    int64_t base;      /* with larger chunks, stages but the ends have so many layers, or one more; 0: any */
    double *by_base_s; /* [base]: no step is shorter, as composition_bound() found */
    int64_t *fewest;   /* [stage]: layers of it and all behind it, at least */
    int64_t *most;     /* [stage]: likewise at most, for the limit */
    double *
        allowed_s; /* [stage * (layers + 1) + layers left]: how much may come before, for the limit; < 0: no way */
    double bound_s; /* composition_bound()'s answer */
    /* In a search. */
    struct shown_chains *shown; /* NULL with one stage */
    double proved_s;            /* no step is shorter, but for what was found */
    double limit_s;             /* of the table, or the best step where that is less */
    double most_s;              /* what is slower is not wanted */
    bool tried;                 /* some composition */
    int64_t untried_items;      /* spent before that */
    bool hoping, hope; /* cells are as they are weighed; one composition of such cells is below the limit */
    struct cell **chosen;
    struct next *nexts;
    int next_count, next_room;
    struct composition_best *best;
    int64_t *budget;
};

/* Some stage has at least the average of layers, and what comes after all have met grows with them. */
static double least_tail(struct composition *c)
{
    int64_t v = c->stages->layout.virtual_stages, most = (c->layers + c->pp - 1) / c->pp;
    double tail_s = INFINITY, none[CHUNK_KINDS] = {0};
    if (stages_are_alike(c->stages->model))
        most = (c->layers / v + c->pp - 1) / c->pp * v;
    for (int64_t i = 0; i < c->pp; i++) {
        const struct cell_row *row = cells_row(&c->cells, i, most);
        for (int k = 0; k < row->count && c->cells.likes[i] == i; k++)
            tail_s = fmin(tail_s, stage_sketch_tail(cells_sketch(&c->cells, &row->list[k]), none).after_s);
    }
    return tail_s;
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
        sum_s += time_model_round(&t[COST_RECEIVE]) + 2 * c->cells.message_s;
        sum_s += i == c->pp - 1 ? time_model_round(&last[COST_HEAD]) : time_model_round(&t[COST_SEND]);
        layer_s = fmin(layer_s, time_model_round(&t[COST_LAYER]));
        least_forward_s = fmin(least_forward_s, forward_seconds(&t[COST_LAYER]));
        c->row_s += fmin(forward_seconds(&t[COST_RECEIVE]), i ? INFINITY : forward_seconds(&t[COST_EMBED])) +
                    forward_seconds(&t[COST_SEND]) + c->cells.message_s;
    }
    c->fill_s = host_alloc((size_t)c->pp * sizeof *c->fill_s);
    c->forward_layer_s = least_forward_s;
    for (int64_t i = 1; i < c->pp; i++) {
        const struct block_time *t = list[i - 1].costs->times;
        c->fill_s[i] = c->fill_s[i - 1] + forward_seconds(&t[i == 1 ? COST_EMBED : COST_RECEIVE]) +
                       forward_seconds(&t[COST_SEND]) + c->cells.message_s;
    }
}

static bool is_end(const struct composition *c, int64_t stage)
{
    return stage == 0 || stage == c->pp - 1;
}

/* What stages need at least is summed from the last one on. */
static void set_base(struct composition *c, int64_t base)
{
    c->base = base;
    for (int64_t i = c->pp - 1; i >= 0; i--)
        c->fewest[i] = c->fewest[i + 1] + (base && !is_end(c, i) ? base : cells_fewest(&c->cells, i));
}

struct composition *composition_open(const struct stages *stages)
{
    struct composition *c = host_alloc(sizeof *c);
    const struct layout *l = &stages->layout;
    c->stages = stages;
    c->pp = l->pp;
    c->layers = stages->model->layers;
    const struct stage *first = &stages->list[0];
    c->at_once = machine_speed_stages_at_once(first->speed, l);
    cells_open(stages, &c->cells);
    if (c->pp > 1) {
        struct schedule_shape shape = layout_schedule(l);
        c->own_schedules = stages->schedules ? NULL : schedule_memory_open();
        c->known = schedule_memory_find(stages->schedules ? stages->schedules : c->own_schedules, &shape);
        c->shown = shown_chains_open(&c->cells, c->known);
    }
    c->allowed_s = host_alloc((size_t)((c->pp + 1) * (c->layers + 1)) * sizeof *c->allowed_s);
    c->chosen = host_alloc((size_t)c->pp * sizeof *c->chosen);
    c->tail_s = stages->after_s > 0 ? stages->after_s : least_tail(c);
    sum_behind(c);
    c->fewest = host_alloc((size_t)(c->pp + 1) * sizeof *c->fewest);
    c->most = host_alloc((size_t)(c->pp + 1) * sizeof *c->most);
    c->by_base_s = host_alloc((size_t)(c->layers + 1) * sizeof *c->by_base_s);
    set_base(c, 0);
    /* Of as many layers as it has at least. */
    if (l->schedule == SCHEDULE_ZB_H1 && c->pp > 1)
        c->last_half_s =
            stages_passes(stages, 0, &(struct stage_form){.heights = {cells_fewest(&c->cells, 0)}},
                          CHUNK_EVEN, 0)
                .weight_s;
    return c;
}

void composition_close(struct composition *c)
{
    if (!c)
        return;
    shown_chains_close(c->shown);
    schedule_memory_close(c->own_schedules);
    cells_close(&c->cells);
    free(c->nexts);
    free(c->by_base_s);
    free(c->allowed_s);
    free(c->behind_s);
    free(c->fill_s);
    free(c->fewest);
    free(c->most);
    free(c->behind_layer_s);
    free(c->chosen);
    free(c);
}

/* The cell of a stage with this split. */
static struct cell *cell_of(struct composition *c, int64_t stage, const struct stage_split *split)
{
    const struct cell_row *row = cells_row(&c->cells, stage, split->layers);
    int at = 0;
    while (row->list[at].form.split.end != split->end)
        at++;
    return &row->list[at];
}

const struct stage_choice *composition_choice(struct composition *c, int64_t stage,
                                              const struct stage_split *split)
{
    return &cells_find(&c->cells, cell_of(c, stage, split))->choice;
}

int64_t *composition_arena(struct composition *c, int64_t stage, const struct stage_split *split)
{
    return &cell_of(c, stage, split)->arena_bytes;
}

bool composition_turn_over(struct composition *c, int64_t stage, const struct stage_split *split)
{
    return cells_turn_over(&c->cells, cell_of(c, stage, split));
}

void composition_tighten(struct composition *c, int64_t stage, const struct stage_split *split, int64_t less)
{
    cells_tighten(cell_of(c, stage, split), less);
}

/* ------------------------------------------------------------------------------------------------------------- table */

/* As fmax(), but no call: the table is filled over and over. */
static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double lesser(double a, double b)
{
    return a < b ? a : b;
}

/* Layers that a chunk may have less than an even share of its stage, or more. */
static double uneven_part(const struct composition *c)
{
    double v = (double)c->stages->layout.virtual_stages;
    return c->stages->larger == LARGER_NONE ? 0 : (v - 1) / v;
}

/* Of what the stages behind have together, layers in their last chunks, at least: of every stage but the last, a share. */
static double last_chunks(const struct composition *c, int64_t stage, int64_t behind)
{
    int64_t v = c->stages->layout.virtual_stages;
    if (v == 1 || stages_are_alike(c->stages->model))
        return (double)(behind / v);
    double between = (double)(c->pp - 2 - stage), others = (double)(behind - c->most[c->pp - 1]) / (double)v;
    others -= c->stages->larger == LARGER_FIRST ? between * uneven_part(c) : 0;
    return stage >= c->pp - 2 ? 0 : larger(between, others);
}

/* A micro-batch from the stage's first chunk to its last, `left` layers being left with the stage, which has `own`: layers on the way,
 * at least. All but those in first chunks before it and in last chunks from it on, which have their share and less than a layer more, where
 * the larger ones are there; and each chunk on the way has a layer, but a bare embedding. */
static double filling_layers(const struct composition *c, int64_t stage, int64_t left, int64_t own)
{
    double v = (double)c->stages->layout.virtual_stages, pp = (double)c->pp;
    if (stages_are_alike(c->stages->model))
        return (v - 1) * ((double)c->layers / v - 1);
    int64_t larger_ones = c->stages->larger == LARGER_FIRST ? stage : min_i64(stage, 1);
    double before = (double)(c->layers - left) / v + (double)larger_ones * uneven_part(c);
    double behind = stage ? ((double)left + (v - 1) * (pp - (double)stage)) / v
                          : ((double)own + v - 2) / (v - 1) + ((double)(left - own) + (v - 1) * (pp - 1)) / v;
    return larger((double)c->layers - before - behind, (v - 1) * pp - (stage == 0));
}

/* The longest chain of the stage, which is one of `left` layers that are left with it. */
static double longest_chain(const struct composition *c, const struct cell *cell, int64_t left)
{
    int64_t stage = cell->stage, own = cell->form.split.layers;
    double longest_s = cell->work_s, v = (double)c->stages->layout.virtual_stages;
    double round_s = c->behind_s[stage] + last_chunks(c, stage, left - own) * c->behind_layer_s[stage];
    double filling_s =
        v == 1 ? 0 : (v - 1) * c->row_s + filling_layers(c, stage, left, own) * c->forward_layer_s;
    for (int i = 0; i < cell->chain_count; i++) {
        const struct chain *chain = &cell->chains[i];
        longest_s =
            larger(longest_s, chain->own_s + chain->rounds * round_s + (chain->fills ? filling_s : 0));
    }
    return longest_s;
}

/* Until the first micro-batch gets to the stage, when `left` layers are left then. An encoder's first layer is none of those that
 * are counted. */
static double least_fill(const struct composition *c, int64_t stage, int64_t left)
{
    int64_t v = c->stages->layout.virtual_stages, before = (c->layers - left) / v;
    if (stages_are_alike(c->stages->model))
        before -= 1;
    else if (v > 1)
        before = stage - 1; /* a layer each, but for a bare embedding */
    return c->fill_s[stage] + larger((double)before, 0) * c->forward_layer_s;
}

/* How much may come before this cell's stage when `left` layers are left with it. */
static double allowed_with(struct composition *c, const struct cell *cell, int64_t left, double limit_s)
{
    int64_t stage = cell->stage;
    double behind = c->allowed_s[(stage + 1) * (c->layers + 1) + left - cell->form.split.layers];
    if (behind < 0)
        return -1;
    double own_s = longest_chain(c, cell, left);
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

/* How many layers may be left with this cell's stage. */
static void find_left(const struct composition *c, const struct cell *cell, int64_t *low, int64_t *high)
{
    int64_t stage = cell->stage, layers = cell->form.split.layers;
    *low = max_i64(layers + c->fewest[stage + 1], c->layers - (c->most[0] - c->most[stage]));
    *high = min_i64(layers + c->most[stage + 1], c->layers - (c->fewest[0] - c->fewest[stage]));
}

static bool is_usable(const struct composition *c, const struct cell *cell)
{
    return cell->state == CELL_KNOWN || (c->hoping && cell->state == CELL_WEIGHED);
}

static bool is_allowed(struct composition *c, const struct cell *cell, double limit_s)
{
    int64_t low, high;
    find_left(c, cell, &low, &high);
    while (low <= high && allowed_with(c, cell, low, limit_s) < 0)
        low++;
    return low <= high;
}

/* Can the cell stay below the limit if it need not recompute, or as little as one sees at once? Spares finding out what it recomputes. */
static bool has_hope(struct composition *c, struct cell *cell, double limit_s)
{
    if (cell->state <= CELL_HOPED) {
        cells_hope(&c->cells, cell);
        if (!is_allowed(c, cell, limit_s))
            return false;
        cells_weigh(&c->cells, cell);
    }
    return cell->state != CELL_WEIGHED || is_allowed(c, cell, limit_s);
}

/* With this cell, how much may come before its stage for every number of layers that may be left. */
static void fill_entries(struct composition *c, const struct cell *cell, double limit_s)
{
    int64_t low, high;
    double *allowed = &c->allowed_s[cell->stage * (c->layers + 1)];
    find_left(c, cell, &low, &high);
    spend(c, max_i64(high - low + 1, 0) / TABLE_PARTS);
    for (int64_t left = low; left <= high; left++)
        allowed[left] = larger(allowed[left], allowed_with(c, cell, left, limit_s));
}

static void fill_stage(struct composition *c, int64_t stage, double limit_s)
{
    int64_t others = c->most[0] - (c->most[stage] - c->most[stage + 1]);
    int64_t layers = max_i64(c->fewest[stage] - c->fewest[stage + 1], c->layers - others);
    bool single = c->stages->layout.virtual_stages == 1;
    for (; layers <= c->most[stage] - c->most[stage + 1]; layers++) {
        const struct cell_row *row = cells_row(&c->cells, stage, layers);
        for (int k = 0; k < row->count; k++) {
            if (!has_hope(c, &row->list[k], limit_s))
                continue;
            struct cell *cell = c->hoping ? &row->list[k] : cells_find(&c->cells, &row->list[k]);
            if (is_usable(c, cell))
                fill_entries(c, cell, limit_s);
            else if (single && cell->room == c->stages->list[stage].room)
                return; /* where so many do not fit, more do not */
        }
    }
}

/* What stages have time for without recomputation, from the last one on; more would be asked for nothing. */
static void sum_most(struct composition *c, double limit_s)
{
    for (int64_t i = c->pp - 1; i >= 0; i--) {
        int64_t fewest = c->fewest[i] - c->fewest[i + 1], most = c->layers - (c->fewest[0] - fewest);
        int64_t layers = fewest - 1;
        if (c->base && !is_end(c, i))
            most = min_i64(most, c->base + 1);
        while (layers < most && cells_least_work(&c->cells, i, layers + 1) <= limit_s)
            layers++;
        c->most[i] = c->most[i + 1] + (layers < fewest ? 0 : layers);
    }
}

/* Fills the table, from the last stage on; is the limit within reach? */
static bool fill_table(struct composition *c, double step_limit_s)
{
    double limit_s = step_limit_s - c->tail_s - c->last_half_s;
    int64_t row = c->layers + 1;
    sum_most(c, limit_s);
    for (int64_t i = 0; i < row * (c->pp + 1); i++)
        c->allowed_s[i] = -1;
    if (c->most[0] < c->layers)
        return false;
    c->allowed_s[c->pp * row] = INFINITY;
    for (int64_t stage = c->pp - 1; stage >= 0; stage--)
        fill_stage(c, stage, limit_s);
    return c->allowed_s[c->layers] >= 0;
}

/* ------------------------------------------------------------------------------------------------------------ search */

static int open_timeline(struct composition *c, struct error *err)
{
    return c->known && !c->timeline ? known_schedule_clock(c->known, &c->timeline, err) : 0;
}

/* What its choice recomputes, or what any must, where not all were tried. */
enum recomputed { AS_CHOSEN, AT_LEAST };

/* Replays the schedule with these cells; `ends_s` and `tails` have room for all stages. Tails of cells that are hoped for are not known. */
static double step_of(struct composition *c, struct cell *const *cells, enum recomputed which, double *ends_s,
                      struct stage_tail *tails)
{
    const struct layout *l = &c->stages->layout;
    size_t chunks = (size_t)layout_chunks(l);
    double *seconds = host_alloc(3 * chunks * sizeof *seconds);
    struct schedule_times times = {seconds, seconds + chunks, seconds + 2 * chunks, c->cells.message_s};
    for (int64_t i = 0; i < c->pp; i++) {
        const struct stage_choice *choice = &cells[i]->choice;
        const struct stage_form *form = &cells[i]->form;
        const double *recompute_s = which == AT_LEAST ? choice->least_s : choice->recompute_s;
        tails[i] = c->hoping ? (struct stage_tail){0, c->tail_s}
                             : stage_sketch_tail(cells_sketch(&c->cells, cells[i]), choice->recompute_s);
        for (int64_t chunk = 0; chunk < l->virtual_stages; chunk++) {
            int kind = (int)stages_kind(c->stages, i, form, chunk);
            struct stage_passes p = stages_passes(c->stages, i, form, kind, recompute_s[kind]);
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
        work_s += c->chosen[i]->all_s + c->chosen[i]->sum_s;
    }
    return work_s / c->at_once + c->tail_s >= fmin(c->best->step_s, c->most_s);
}

/* The best so far may not be the fastest where stages of these cells might recompute less: no step with them is shorter than this. (The
 * less is recomputed, the less hides sums of gradients; so these are as with the choices.) */
static double least_step(struct composition *c, double *ends_s, struct stage_tail *tails)
{
    bool cut = false;
    for (int64_t i = 0; i < c->pp; i++)
        cut |= c->chosen[i]->choice.least_total_s < c->chosen[i]->choice.total_s;
    if (!cut)
        return INFINITY;
    *c->budget -= c->timeline ? timeline_items(c->timeline) : 1;
    return step_of(c, c->chosen, AT_LEAST, ends_s, tails);
}

/* Where larger chunks may be and none is, the composition is another search's. */
static bool is_of_another(const struct composition *c)
{
    bool wanted = c->stages->larger == LARGER_NONE;
    for (int64_t i = 0; i < c->pp; i++)
        wanted |= c->chosen[i]->form.counts[CHUNK_LARGER] > 0;
    return !wanted;
}

/* What the replay was so long for, all others must do too. */
static void show_chain(struct composition *c, const double *ends_s, const struct stage_tail *tails)
{
    int64_t end = 0, after = 0;
    for (int64_t i = 1; i < c->pp; i++) {
        end = ends_s[i] + tails[i].before_s > ends_s[end] + tails[end].before_s ? i : end;
        after = tails[i].after_s > tails[after].after_s ? i : after;
    }
    shown_chains_add(c->shown, end, after);
}

/* Finds what those chosen recompute that were only weighed, while there is effort for it. False: all were known. */
static bool find_chosen(struct composition *c)
{
    bool found = false;
    for (int64_t i = 0; i < c->pp && c->hope && !(c->stages->effort && *c->stages->effort <= 0); i++)
        if (c->chosen[i]->state == CELL_WEIGHED) {
            found = true;
            c->hope = cells_find(&c->cells, c->chosen[i])->state == CELL_KNOWN;
        }
    return found;
}

/* As little as one sees at once that they recompute; what is fast enough that way, with what they must. */
static void try_hope(struct composition *c)
{
    struct error err;
    if (open_timeline(c, &err)) {
        c->hope = true; /* composition_search() will say so */
        return;
    }
    double *ends_s = host_alloc((size_t)c->pp * sizeof *ends_s);
    struct stage_tail *tails = host_alloc((size_t)c->pp * sizeof *tails);
    *c->budget -= timeline_items(c->timeline);
    c->hope = step_of(c, c->chosen, AT_LEAST, ends_s, tails) < c->limit_s;
    if (c->hope && find_chosen(c)) {
        *c->budget -= timeline_items(c->timeline);
        c->hope = c->hope && step_of(c, c->chosen, AT_LEAST, ends_s, tails) < c->limit_s;
    }
    show_chain(c, ends_s, tails);
    free(ends_s);
    free(tails);
}

static void try_chosen(struct composition *c)
{
    c->tried = true;
    bool of_another = is_of_another(c);
    if (c->hoping && !of_another) {
        try_hope(c);
        return;
    }
    if (of_another || (c->at_once < (double)c->pp && cores_are_too_slow(c))) {
        *c->budget -= 1;
        return;
    }
    double *ends_s = host_alloc((size_t)c->pp * sizeof *ends_s);
    struct stage_tail *tails = host_alloc((size_t)c->pp * sizeof *tails);
    double step_s = step_of(c, c->chosen, AS_CHOSEN, ends_s, tails);
    if (c->shown)
        show_chain(c, ends_s, tails);
    c->best->bound_s = fmin(c->best->bound_s, least_step(c, ends_s, tails));
    *c->budget -= c->timeline ? timeline_items(c->timeline) : 1;
    if (step_s < c->best->step_s && step_s < c->most_s) {
        c->best->step_s = step_s;
        c->limit_s = fmin(c->limit_s, step_s);
        for (int64_t i = 0; i < c->pp; i++)
            c->best->splits[i] = c->chosen[i]->form.split;
    }
    free(ends_s);
    free(tails);
}

/* A cell of a stage that can still stay below the limit. */
struct next {
    struct cell *cell;
    double least_s, spare_s; /* no step with it is shorter; time that it leaves */
};

static bool is_sooner(const struct next *a, const struct next *b)
{
    return a->least_s < b->least_s || (a->least_s == b->least_s && a->spare_s > b->spare_s);
}

static void add_next(struct composition *c, int begin, struct next next)
{
    int at = c->next_count++;
    if (at == c->next_room) {
        c->next_room = 2 * c->next_room + 64;
        c->nexts = host_resize(c->nexts, (size_t)c->next_room * sizeof *c->nexts);
    }
    for (; at > begin && is_sooner(&next, &c->nexts[at - 1]); at--)
        c->nexts[at] = c->nexts[at - 1];
    c->nexts[at] = next;
}

/* Sums in another order differ in the last bits. */
static bool is_too_slow(const struct composition *c, double least_s)
{
    return least_s + (c->hoping ? c->tail_s : 0) >= c->limit_s * (1 - 1e-12);
}

static double least_with(struct composition *c, const struct cell *cell, int64_t left)
{
    return c->shown ? shown_chains_with(c->shown, cell, left) : 0;
}

/* In items that are replayed, what it takes to weigh a cell, and by one more chain. */
enum { PER_CELL = 4, CELLS_PER_ITEM = 4 };
/* One composition is tried however small the budget, but it may be that none comes to its end. */
enum { MOST_UNTRIED = 200000 };

/* The likeliest first. */
static void list_nexts(struct composition *c, int64_t stage, int64_t left, double before_s, double limit_s)
{
    double excess_s = limit_s - (c->limit_s - c->tail_s - c->last_half_s);
    int64_t fewest = c->fewest[stage] - c->fewest[stage + 1];
    int64_t most = min_i64(c->most[stage] - c->most[stage + 1], left - c->fewest[stage + 1]);
    int begin = c->next_count, weighed = 0;
    for (int64_t layers = fewest; layers <= most; layers++) {
        const struct cell_row *row = &c->cells.rows[stage * (c->layers + 1) + layers];
        for (int k = 0; k < row->count; k++) {
            if (!is_usable(c, &row->list[k]))
                continue;
            weighed++;
            double spare_s = allowed_with(c, &row->list[k], left, limit_s) - before_s;
            if (spare_s < 0 || spare_s < excess_s)
                continue;
            double least_s = least_with(c, &row->list[k], left);
            if (!is_too_slow(c, least_s))
                add_next(c, begin, (struct next){&row->list[k], least_s, spare_s});
        }
    }
    int64_t items = 1 + weighed * (PER_CELL + (c->shown ? shown_chains_count(c->shown) : 0)) / CELLS_PER_ITEM;
    if (c->tried || c->hoping)
        *c->budget -= items;
    else if ((c->untried_items += items) > MOST_UNTRIED)
        *c->budget = 0;
}

/* Of hopes one is enough. */
static bool goes_on(const struct composition *c)
{
    return *c->budget > 0 && !(c->hoping && c->hope);
}

/* Gives layers to `stage` and those behind it, `before_s` being what comes before, the likeliest first. The table was made for a limit
 * at least as large as the one that holds now. */
static void choose_from(struct composition *c, int64_t stage, int64_t left, double before_s, double limit_s)
{
    if (stage == c->pp) {
        try_chosen(c);
        return;
    }
    int begin = c->next_count;
    list_nexts(c, stage, left, before_s, limit_s);
    for (int i = begin; i < c->next_count && goes_on(c); i++) {
        struct next next = c->nexts[i];
        double spare_s = next.spare_s + c->limit_s - c->tail_s - c->last_half_s - limit_s;
        if (spare_s < 0 || !is_usable(c, next.cell) || is_too_slow(c, least_with(c, next.cell, left)))
            continue; /* by what was found, or shown, since it was listed */
        c->chosen[stage] = next.cell;
        if (c->shown)
            shown_chains_take(c->shown, next.cell);
        choose_from(c, stage + 1, left - next.cell->form.split.layers, before_s + next.cell->before_s,
                    limit_s);
    }
    c->next_count = begin;
}

/* Which cells the chains may be of, for this limit. */
static void list_allowed(struct composition *c, double limit_s)
{
    shown_chains_forget(c->shown, !c->hoping);
    for (int64_t stage = c->pp - 1; stage >= 0; stage--)
        for (int64_t layers = c->fewest[stage] - c->fewest[stage + 1];
             layers <= c->most[stage] - c->most[stage + 1]; layers++) {
            const struct cell_row *row = &c->cells.rows[stage * (c->layers + 1) + layers];
            for (int k = 0; k < row->count; k++) {
                struct cell *cell = &row->list[k];
                int64_t low, high;
                if (!is_usable(c, cell))
                    continue;
                for (find_left(c, cell, &low, &high); low <= high; low++)
                    if (allowed_with(c, cell, low, limit_s) >= 0)
                        shown_chains_allow(c->shown, cell, low);
            }
        }
    shown_chains_begin(c->shown);
}

static double find_bound(struct composition *c, double from_s, double limit_s)
{
    enum { STEPS = 8 };
    /* With larger chunks, what is found soon shows better bounds than this. */
    int steps = c->stages->larger == LARGER_NONE ? STEPS : 0;
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
    for (int i = 0; i < steps; i++) {
        double middle = (low + high) / 2;
        *(fill_table(c, middle) ? &high : &low) = middle;
    }
    return low;
}

/* With larger chunks stages wait for each other so much that mostly none is fast enough, even with as little recomputation as one sees at
 * once: then what each recomputes need not be found out. */
static bool has_any_hope(struct composition *c, double limit_s)
{
    enum { MOST_ITEMS = 200000 };
    int64_t budget = MOST_ITEMS;
    c->hoping = true;
    c->hope = c->tried = false;
    c->budget = &budget;
    c->limit_s = c->most_s = limit_s;
    if (fill_table(c, limit_s)) {
        list_allowed(c, limit_s - c->tail_s - c->last_half_s);
        choose_from(c, 0, c->layers, 0, limit_s - c->tail_s - c->last_half_s);
    }
    c->hoping = false;
    spend(c, MOST_ITEMS - budget + shown_chains_effort(c->shown));
    return c->hope || budget <= 0;
}

/* With larger chunks: which bases the limit leaves time for. Without, and where all stages are ends, there is one, 0. */
static void find_bases(struct composition *c, double limit_s, int64_t *low, int64_t *high)
{
    int64_t others = c->pp - 2;
    *low = *high = 0;
    set_base(c, 0);
    if (c->stages->larger == LARGER_NONE || others < 1)
        return;
    sum_most(c, limit_s - c->tail_s - c->last_half_s);
    int64_t ends = c->most[0] - c->most[1] + c->most[c->pp - 1];
    int64_t ends_least = c->fewest[0] - c->fewest[1] + c->fewest[c->pp - 1];
    *low = max_i64((c->layers - ends + others - 1) / others - 1, c->stages->layout.virtual_stages);
    *high = min_i64((c->layers - ends_least) / others, c->most[1] - c->most[2]);
}

double composition_bound(struct composition *c, double from_s, double limit_s)
{
    int64_t low, high;
    bool hopes = c->stages->larger != LARGER_NONE && isfinite(limit_s);
    c->bound_s = INFINITY;
    for (int64_t i = 0; i <= c->layers; i++)
        c->by_base_s[i] = INFINITY;
    find_bases(c, limit_s, &low, &high);
    for (int64_t base = low; base <= high; base++) {
        set_base(c, base);
        if (!hopes || has_any_hope(c, limit_s))
            c->by_base_s[base] = find_bound(c, from_s, limit_s);
        c->bound_s = lesser(c->bound_s, c->by_base_s[base]);
    }
    return c->bound_s;
}

/* All compositions below `near_s`, as far as the budget goes. */
static void try_all_below(struct composition *c, double near_s)
{
    double limit_s = near_s - c->tail_s - c->last_half_s;
    c->limit_s = near_s;
    if (fill_table(c, near_s)) {
        if (c->shown)
            list_allowed(c, limit_s);
        choose_from(c, 0, c->layers, 0, limit_s);
        if (c->shown)
            spend(c, shown_chains_effort(c->shown));
    }
    if (*c->budget > 0)
        c->proved_s = near_s;
    else if (c->shown)
        c->proved_s = larger(c->proved_s, lesser(near_s, shown_chains_least(c->shown)));
}

/* The limit is approached from below, so that nobody asks what far too many layers would recompute. All below it is tried; so once the best
 * step is below, it is the best. */
static void search_base(struct composition *c, int64_t base)
{
    struct composition_best *best = c->best;
    double near_s = c->by_base_s[base], growth = 1.01;
    set_base(c, base);
    c->proved_s = near_s;
    for (; near_s < fmin(c->most_s, best->step_s) && *c->budget > 0; growth = fmin(growth * growth, 2)) {
        near_s = fmin(near_s * growth, fmin(c->most_s, best->step_s));
        try_all_below(c, near_s);
    }
    if (*c->budget <= 0)
        best->bound_s = fmin(best->bound_s, c->proved_s);
}

int composition_search(struct composition *c, double limit_s, int64_t *budget, struct composition_best *out,
                       struct error *err)
{
    *out = (struct composition_best){
        .step_s = INFINITY, .bound_s = INFINITY, .splits = host_alloc((size_t)c->pp * sizeof *out->splits)};
    if (open_timeline(c, err))
        return -1;
    c->best = out;
    c->budget = budget;
    c->most_s = limit_s;
    c->tried = false;
    c->untried_items = 0;
    for (int64_t base = 0; base <= c->layers; base++)
        if (c->by_base_s[base] < fmin(limit_s, out->step_s))
            search_base(c, base);
    out->bound_s = fmax(fmin(out->bound_s, fmin(limit_s, out->step_s)), c->bound_s);
    return 0;
}

void composition_best_clear(struct composition_best *best)
{
    free(best->splits);
    best->splits = NULL;
}

struct step_time composition_time(struct composition *c, const struct composition_best *best)
{
    double *ends_s = host_alloc((size_t)c->pp * sizeof *ends_s);
    struct stage_tail *tails = host_alloc((size_t)c->pp * sizeof *tails);
    struct step_time least = {.bubble = INFINITY};
    for (int64_t i = 0; i < c->pp; i++)
        c->chosen[i] = cells_find(&c->cells, cell_of(c, i, &best->splits[i]));
    double total_s = step_of(c, c->chosen, AS_CHOSEN, ends_s, tails);
    for (int64_t i = 0; i < c->pp; i++) {
        struct stage_sketch *sketch = cells_sketch(&c->cells, c->chosen[i]);
        /* A sketch serves several stages: this one's recomputation. */
        stage_sketch_tail(sketch, c->chosen[i]->choice.recompute_s);
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
