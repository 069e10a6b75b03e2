#include "planner/cells.h"

#include "base/arena.h"
#include "base/checked.h"

#include <math.h>
#include <stdlib.h>

/* Stages in the middle that stand on the same ground differ in what they keep, and in nothing that a sketch has. */
static void list_likes(struct cells *c)
{
    const struct stage *list = c->stages->list;
    for (int64_t i = 0; i < c->pp; i++) {
        bool middle = i > 1 && i < c->pp - 1;
        c->likes[i] = middle && list[i].ground == list[i - 1].ground ? c->likes[i - 1] : i;
    }
}

void cells_open(const struct stages *stages, struct cells *c)
{
    const struct layout *l = &stages->layout;
    const struct stage *first = &stages->list[0];
    *c = (struct cells){.stages = stages, .pp = l->pp, .layers = stages->model->layers};
    c->message_s = c->pp > 1 ? time_model_message(l, first->costs->message_bytes, first->speed) : 0;
    c->rows = host_alloc((size_t)(c->pp * (c->layers + 1)) * sizeof *c->rows);
    c->likes = host_alloc((size_t)c->pp * sizeof *c->likes);
    c->forward_s = host_alloc((size_t)l->virtual_stages * sizeof *c->forward_s);
    c->backward_s = host_alloc((size_t)l->virtual_stages * sizeof *c->backward_s);
    list_likes(c);
}

static void close_cell(struct cell *cell)
{
    stage_choice_clear(&cell->choice);
    if (cell->sketch)
        stage_sketch_clear(cell->sketch);
    free(cell->sketch);
}

void cells_close(struct cells *c)
{
    for (int64_t i = 0; i < c->pp * (c->layers + 1); i++) {
        for (int k = 0; k < c->rows[i].count; k++)
            close_cell(&c->rows[i].list[k]);
        free(c->rows[i].list);
    }
    free(c->rows);
    free(c->likes);
    free(c->forward_s);
    free(c->backward_s);
}

/* ------------------------------------------------------------------------------------------------------------ splits */

/* May its chunk with the embedding or the head have no layers? */
static bool may_be_bare(const struct cells *c, int64_t stage)
{
    return c->pp > 1 && (stage == 0 || stage == c->pp - 1) && !stages_are_alike(c->stages->model);
}

int64_t cells_fewest(const struct cells *c, int64_t stage)
{
    return c->stages->layout.virtual_stages - may_be_bare(c, stage);
}

/* Chunks of a stage have as many layers, or where that is asked for one more; an end has also one or two fewer than the least of others, or
 * none. An encoder's are alike. */
static bool is_wanted(const struct cells *c, int64_t stage, const struct stage_form *form)
{
    enum { SHORTER = 2 };
    int64_t height = form->heights[CHUNK_EVEN], end = form->split.end;
    bool single = c->stages->layout.virtual_stages == 1, larger = form->counts[CHUNK_LARGER];
    if (height < 1 - (single && may_be_bare(c, stage)) || (larger && c->stages->larger == LARGER_NONE))
        return false;
    if (!c->stages->list[stage].apart || end == height)
        return true;
    return !stages_are_alike(c->stages->model) && end <= height + larger &&
           (end == 0 || end >= height - SHORTER);
}

/* Of a stage without a chunk apart there is one split. Returns how many there are; `out` has room for them, or is NULL. */
static int list_splits(const struct cells *c, int64_t stage, int64_t layers, struct cell *out)
{
    bool apart = c->stages->list[stage].apart;
    int64_t most = layers / c->stages->layout.virtual_stages + 1;
    int count = 0;
    for (int64_t end = apart ? 0 : -1; end <= (apart ? most : -1); end++) {
        struct stage_form form = stages_form(c->stages, stage, (struct stage_split){layers, end});
        if (end > layers || !is_wanted(c, stage, &form))
            continue;
        if (out)
            out[count] = (struct cell){.stage = stage, .form = form, .room = c->stages->list[stage].room};
        count++;
    }
    return count;
}

const struct cell_row *cells_row(struct cells *c, int64_t stage, int64_t layers)
{
    struct cell_row *row = &c->rows[stage * (c->layers + 1) + layers];
    if (!row->list) {
        row->count = list_splits(c, stage, layers, NULL);
        row->list = host_alloc((size_t)max_i64(row->count, 1) * sizeof *row->list);
        list_splits(c, stage, layers, row->list);
    }
    return row;
}

struct stage_sketch *cells_sketch(struct cells *c, struct cell *cell)
{
    int64_t like = c->likes[cell->stage];
    struct cell *owner = like == cell->stage ? cell : &cells_row(c, like, cell->form.split.layers)->list[0];
    if (!owner->sketch) {
        owner->sketch = host_alloc(sizeof *owner->sketch);
        stages_sketch(c->stages, owner->stage, &owner->form, owner->sketch);
    }
    return owner->sketch;
}

/* ------------------------------------------------------------------------------------------------------------- times */

/* One micro-batch through all chunks; *first: through the first one. */
static struct stage_passes all_passes(const struct cells *c, int64_t stage, const struct stage_form *form,
                                      const double recompute_s[CHUNK_KINDS], struct stage_passes *first)
{
    struct stage_passes all = {0};
    enum chunk_kind first_kind = stages_kind(c->stages, stage, form, 0);
    for (int kind = 0; kind < form->kinds; kind++) {
        double count = (double)form->counts[kind];
        struct stage_passes p = stages_passes(c->stages, stage, form, kind, recompute_s[kind]);
        all.forward_s += count * p.forward_s;
        all.input_s += count * p.input_s;
        all.weight_s += count * p.weight_s;
        if (kind == (int)first_kind)
            *first = p;
    }
    return all;
}

/* The terms of the bound. */
static void weigh_cell(const struct cells *c, const struct cell *cell, const double recompute_s[CHUNK_KINDS],
                       double *work_s, double *before_s)
{
    int64_t micro_batches = layout_micro_batches(&c->stages->layout);
    struct stage_passes first = {0}, all = all_passes(c, cell->stage, &cell->form, recompute_s, &first);
    bool halves = c->stages->layout.schedule == SCHEDULE_ZB_H1 && c->pp > 1;
    double late = halves ? (double)min_i64(micro_batches, cell->stage + 1) : 0;
    *work_s = (double)micro_batches * (all.forward_s + all.input_s + all.weight_s) - late * all.weight_s;
    /* Stage 0 ends with a weight half, of which the composition knows the least. */
    *before_s = first.forward_s + first.input_s + (halves ? 0 : first.weight_s) + 2 * c->message_s;
}

static double all_seconds(const struct cells *c, const struct cell *cell,
                          const double recompute_s[CHUNK_KINDS])
{
    struct stage_passes first, all = all_passes(c, cell->stage, &cell->form, recompute_s, &first);
    return (double)layout_micro_batches(&c->stages->layout) * (all.forward_s + all.input_s + all.weight_s);
}

static void add_chain(struct cell *cell, double own_s, double rounds, bool fills)
{
    cell->chains[cell->chain_count++] = (struct chain){own_s, rounds, fills};
}

/* Of a stage with one chunk, whose passes take turns. */
static void list_turns(const struct cells *c, const struct stage_passes *p, struct cell *cell)
{
    bool halves = c->stages->layout.schedule == SCHEDULE_ZB_H1;
    int64_t stage = cell->stage, m = layout_micro_batches(&c->stages->layout), w = min_i64(m, c->pp - stage);
    double f = p->forward_s, b = p->input_s + (halves ? 0 : p->weight_s), own_s = (double)m * (f + b);
    /* Weight halves that come before the last forward, and before the last backward. */
    double early_s = halves ? (double)max_i64(m - w - stage, 0) * p->weight_s : 0;
    double late_s = halves ? (double)max_i64(m - 1 - stage, 0) * p->weight_s : 0;
    add_chain(cell, own_s - (double)(w - 1) * b + early_s, 1, false);
    add_chain(cell, own_s - (double)(w - 1) * f + late_s, 1, false);
    int64_t rounds = (m - 1) / w + 1;
    if (rounds < 2)
        return;
    add_chain(cell, own_s - (double)(w - 1) * (f + b) + early_s, 2, false);
    add_chain(cell, own_s - (double)((rounds - 1) * (w - 1)) * (f + b), (double)rounds, false);
}

/* Of an interleaved stage, the first `count` passes in one direction: groups of p through each chunk in turn. */
static double first_passes(const struct cells *c, const double *seconds, int64_t count, bool backward)
{
    int64_t v = c->stages->layout.virtual_stages, round = v * c->pp, over = count % round;
    double sum_s = 0;
    for (int64_t i = 0; i < v; i++) {
        int64_t times = count / round * c->pp + min_i64(max_i64(over - i * c->pp, 0), c->pp);
        sum_s += (double)times * seconds[backward ? v - 1 - i : i];
    }
    return sum_s;
}

/* Passes of chunks: some take turns, before the last forward and behind the first backward. */
static void list_interleaved(struct cells *c, const double recompute_s[CHUNK_KINDS], struct cell *cell)
{
    const struct layout *l = &c->stages->layout;
    int64_t v = l->virtual_stages, passes = v * layout_micro_batches(l), stage = cell->stage;
    int64_t waiting = 2 * (c->pp - stage - 1) + (v - 1) * c->pp + 1, turns = max_i64(passes - waiting, 0);
    for (int64_t i = 0; i < v; i++) {
        enum chunk_kind kind = stages_kind(c->stages, stage, &cell->form, i);
        struct stage_passes p = stages_passes(c->stages, stage, &cell->form, (int)kind, recompute_s[kind]);
        c->forward_s[i] = p.forward_s;
        c->backward_s[i] = p.input_s + p.weight_s;
    }
    double forward_s = first_passes(c, c->forward_s, passes, false);
    double backward_s = first_passes(c, c->backward_s, passes, true);
    double turns_forward_s = forward_s - first_passes(c, c->forward_s, passes - turns, false);
    double turns_backward_s = first_passes(c, c->backward_s, turns, true);
    double back_s = backward_s - first_passes(c, c->backward_s, passes - (v - 1) * c->pp - 1, true);
    double begin_s = c->forward_s[v - 1] + turns_forward_s;
    add_chain(cell, forward_s + turns_backward_s + back_s, 1, false);
    add_chain(cell, begin_s + backward_s, 1, true);
    if (turns > 0)
        add_chain(cell, begin_s + turns_backward_s + back_s, 2, true);
}

static void list_chains(struct cells *c, const double recompute_s[CHUNK_KINDS], struct cell *cell)
{
    const struct layout *l = &c->stages->layout;
    double m = (double)layout_micro_batches(l);
    cell->chain_count = 0;
    if (c->pp == 1)
        return;
    if (l->virtual_stages > 1) {
        list_interleaved(c, recompute_s, cell);
        return;
    }
    struct stage_passes p =
        stages_passes(c->stages, cell->stage, &cell->form, CHUNK_EVEN, recompute_s[CHUNK_EVEN]);
    if (l->schedule == SCHEDULE_GPIPE)
        add_chain(cell, m * (p.forward_s + p.input_s + p.weight_s), 1, false);
    else
        list_turns(c, &p, cell);
}

void cells_hope(struct cells *c, struct cell *cell)
{
    static const double none[CHUNK_KINDS] = {0};
    if (cell->state != CELL_UNKNOWN)
        return;
    cell->state = CELL_HOPED;
    weigh_cell(c, cell, none, &cell->work_s, &cell->before_s);
    list_chains(c, none, cell);
    cell->all_s = all_seconds(c, cell, none);
    cell->sum_s = 0;
}

void cells_weigh(struct cells *c, struct cell *cell)
{
    double *least_s = cell->choice.least_s;
    if (cell->state > CELL_HOPED)
        return;
    cell->state = CELL_IMPOSSIBLE;
    bool rough = c->stages->layout.virtual_stages > 1 && !stages_are_alike(c->stages->model);
    if (rough && !stage_choice_least(c->stages, cell->stage, &cell->form, cell->room, least_s))
        return;
    cell->state = CELL_WEIGHED;
    cell->sum_s = 0;
    weigh_cell(c, cell, least_s, &cell->work_s, &cell->before_s);
    list_chains(c, least_s, cell);
    cell->all_s = all_seconds(c, cell, least_s);
}

/* What all chunks together recompute at least, beyond the least of each kind. */
static double recompute_beyond(const struct cells *c, const struct cell *cell)
{
    double beyond_s = cell->choice.least_total_s;
    for (int kind = 0; kind < cell->form.kinds; kind++)
        beyond_s -= (double)cell->form.counts[kind] * cell->choice.least_s[kind];
    return (double)layout_micro_batches(&c->stages->layout) * fmax(beyond_s, 0);
}

struct cell *cells_find(struct cells *c, struct cell *cell)
{
    if (cell->state > CELL_WEIGHED)
        return cell;
    cell->state = CELL_IMPOSSIBLE;
    if (!stage_choice_find(c->stages, cell->stage, &cell->form, cell->room, &cell->choice))
        return cell;
    const double *least_s = cell->choice.least_s;
    cell->state = CELL_KNOWN;
    weigh_cell(c, cell, least_s, &cell->work_s, &cell->before_s);
    list_chains(c, least_s, cell);
    /* The less is recomputed, the less of the exchange is hidden: so no choice has less of it exposed. */
    struct stage_tail tail = stage_sketch_tail(cells_sketch(c, cell), cell->choice.recompute_s);
    cell->sum_s = tail.before_s;
    cell->after_s = tail.after_s;
    cell->all_s = all_seconds(c, cell, least_s);
    double more_s = recompute_beyond(c, cell);
    cell->work_s += more_s;
    cell->all_s += more_s;
    return cell;
}

double cells_least_work(struct cells *c, int64_t stage, int64_t layers)
{
    static const double none[CHUNK_KINDS] = {0};
    const struct cell_row *row = cells_row(c, stage, layers);
    double work_s = 0, before_s;
    if (row->count)
        weigh_cell(c, &row->list[0], none, &work_s, &before_s);
    return work_s;
}

/* ---------------------------------------------------------------------------------------------------- as it was built */

/* Where the lowest layer is apart, it stays. */
static void reverse(int *options, int64_t from, int64_t count)
{
    for (int64_t low = from, high = count - 1; low < high; low++, high--) {
        int option = options[low];
        options[low] = options[high];
        options[high] = option;
    }
}

bool cells_turn_over(struct cells *c, struct cell *cell)
{
    int64_t layers = cell->form.heights[CHUNK_EVEN];
    int64_t from = cell->stage == 0 && c->stages->list[0].costs->first_differs;
    if (cell->lowest_peak || layers - from < 2)
        return false;
    reverse(cell->choice.options, from, layers);
    int64_t peak = stage_choice_peak(c->stages, cell->stage, &cell->choice, NULL);
    if (peak > cell->room) {
        reverse(cell->choice.options, from, layers);
        return false;
    }
    cell->lowest_peak = min_i64(cell->choice.peak_bytes, peak);
    cell->choice.peak_bytes = peak;
    cell->arena_bytes = 0;
    return true;
}

void cells_tighten(struct cell *cell, int64_t less)
{
    int64_t peak = cell->lowest_peak ? cell->lowest_peak : cell->choice.peak_bytes;
    stage_choice_clear(&cell->choice);
    *cell =
        (struct cell){.stage = cell->stage, .form = cell->form, .room = peak - less, .sketch = cell->sketch};
}
