#include "planner/search.h"

#include "base/checked.h"
#include "base/clock.h"
#include "model/recompute.h"
#include "planner/bounds.h"
#include "planner/composition.h"
#include "planner/explanation.h"
#include "planner/node_heap.h"
#include "planner/schedule_memory.h"
#include "planner/search_memory.h"
#include "planner/space.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 8 };

/* A search in progress. */
struct search {
    const struct search_request *request;
    struct search_result *result;
    struct search_memory *memory;
    struct schedule_memory *schedules;
    struct bounds *bounds;
    struct node_heap nodes,
        uneven; /* uneven: with larger chunks, looked at when no others can be the fastest */
    struct search_row rows[MOST_ROWS]; /* the fastest of each shape, in order; [0] was built and fits */
    int row_count;
    double best_s;     /* of what was built */
    double peak_s;     /* the least of what has room at its peak */
    double unproved_s; /* the least bound of what was not tried in full */
    int64_t budget;    /* items of schedules to be replayed */
    int64_t effort;    /* left, of all that is done */
    int64_t most_effort;
    int64_t overdraft;    /* how far below 0 effort may go */
    int64_t most_sitings; /* of a shape */
    struct error *err;
};

/* ------------------------------------------------------------------------------------------------------------ effort */

/* In comparisons of two partial choices, some ns: all of it is some tenths of a second. */
enum {
    MOST_EFFORT = 64000000,
    MOST_ITEMS = 4000000,
    PER_ITEM = 4,
    PER_STAGE_BOUNDED = 32,
    PER_STAGE_BUILT = 20000
};

/* With none left, the search goes on for as much again with quick choices and one composition of each layout, and for three times
 * as much when there is no plan yet. */
static bool is_spent(const struct search *s)
{
    bool has_plan = s->row_count || s->request->limit_s > 0;
    return s->effort <= (has_plan ? -1 : -3) * s->overdraft;
}

/* What is left is far from what was asked for. */
static void spend_little(struct search *s)
{
    enum { LITTLE = MOST_EFFORT / 256 };
    int64_t effort = min_i64(s->effort, LITTLE);
    s->most_effort -= s->effort - effort;
    s->effort = effort;
    s->overdraft = min_i64(s->overdraft, LITTLE);
}

/* -------------------------------------------------------------------------------------------------------------- rows */

static bool same_shape(const struct layout *a, const struct layout *b)
{
    return a->dp == b->dp && a->tp == b->tp && a->pp == b->pp && a->micro_batch == b->micro_batch;
}

static int most_rows(const struct search *s)
{
    return s->request->alone ? 1 : MOST_ROWS;
}

/* No plan that takes as long is of interest. */
static double asked_limit(const struct search_request *request)
{
    return request->limit_s > 0 ? request->limit_s : INFINITY;
}

/* A plan of this shape must be faster than this to be of interest. */
static double row_limit(const struct search *s, const struct layout *layout)
{
    for (int i = 0; i < s->row_count; i++)
        if (same_shape(&s->rows[i].layout, layout))
            return s->rows[i].time.total;
    int most = most_rows(s);
    return s->row_count < most ? asked_limit(s->request) : s->rows[most - 1].time.total;
}

/* Puts the row in its place, instead of a slower one of its shape. */
static void add_row(struct search *s, const struct search_row *row)
{
    int at = 0, kept = 0;
    if (row->time.total >= row_limit(s, &row->layout))
        return;
    for (int i = 0; i < s->row_count; i++)
        if (!same_shape(&s->rows[i].layout, &row->layout))
            s->rows[kept++] = s->rows[i];
    s->row_count = kept < most_rows(s) ? kept : most_rows(s) - 1;
    while (at < s->row_count && s->rows[at].time.total <= row->time.total)
        at++;
    memmove(&s->rows[at + 1], &s->rows[at], (size_t)(s->row_count - at) * sizeof *s->rows);
    s->rows[at] = *row;
    s->row_count++;
}

/* ------------------------------------------------------------------------------------------------------- one layout */

/* Where the stages of a layout stand. */
struct site {
    struct stage_ground grounds[SITE_RUNS];
    struct costs_cache *caches[SITE_RUNS]; /* of each ground: what all layouts cost there */
    int count;
};

static void add_ground(struct search *s, const struct layout *layout, int64_t stages,
                       const struct stage_site *where, struct site *site)
{
    const struct machine_speed *speed = search_memory_speed(s->memory, where);
    int64_t room = siting_room(s->request->cluster, where->groups, layout_ranks(layout));
    site->caches[site->count] = search_memory_costs(s->memory, s->request, speed);
    site->grounds[site->count++] = (struct stage_ground){stages, speed, NULL, room};
}

/* The same for all layouts of a shape, but for what these cost: price_site(). */
static struct site place_site(struct search *s, const struct layout *layout, const struct siting *siting)
{
    struct site_run runs[SITE_RUNS];
    struct site site = {.count = 0};
    int count = siting_runs(s->request->cluster, layout, siting, runs);
    for (int i = 0; i < count; i++)
        add_ground(s, layout, runs[i].stages, &runs[i].site, &site);
    return site;
}

static void price_site(const struct layout *layout, bool with_options, struct site *site)
{
    for (int i = 0; i < site->count; i++) {
        struct costs *costs = costs_find(site->caches[i], layout);
        if (with_options)
            costs_open_options(site->caches[i], layout, costs);
        site->grounds[i].costs = costs;
    }
}

static struct site site_of(struct search *s, const struct layout *layout, const struct siting *siting,
                           bool with_options)
{
    struct site site = place_site(s, layout, siting);
    price_site(layout, with_options, &site);
    return site;
}

/* A layout that is being composed. */
struct candidate {
    struct stages stages;
    struct siting siting;
    struct composition *composition;
};

static void open_candidate(struct search *s, const struct node *node, struct candidate *candidate)
{
    const struct layout *layout = &node->layout;
    struct site site = site_of(s, layout, &node->siting, true);
    struct bounds_question question = {layout, site.grounds, site.count, false, node->larger};
    struct stages *stages = &candidate->stages;
    stages_open(s->request->model, layout, site.grounds, node->larger, stages);
    stages->effort = &s->effort;
    stages->schedules = s->schedules;
    stages->after_s = node->larger == LARGER_NONE ? 0 : bounds_after(s->bounds, &question);
    s->effort -= PER_ITEM * 2 * layout_chunks(layout) * layout_micro_batches(layout);
    candidate->siting = node->siting;
    candidate->composition = composition_open(stages);
}

static void close_candidate(struct candidate *candidate)
{
    composition_close(candidate->composition);
    stages_close(&candidate->stages);
}

/* Layers of each chunk and masks of all layers, from those of the stages. */
static void fill_masks(struct candidate *candidate, const struct composition_best *best,
                       int64_t *chunk_layers, uint32_t *masks)
{
    const struct stages *stages = &candidate->stages;
    int64_t layer = 0, pp = stages->layout.pp;
    for (int64_t chunk = 0; chunk < layout_chunks(&stages->layout); chunk++) {
        int64_t stage = chunk % pp;
        const struct stage_choice *choice =
            composition_choice(candidate->composition, stage, &best->splits[stage]);
        enum chunk_kind kind = stages_kind(stages, stage, &choice->form, chunk / pp);
        const struct cost_option *options = stages->list[stage].costs->options;
        chunk_layers[chunk] = choice->form.heights[kind];
        for (int64_t i = 0; i < chunk_layers[chunk]; i++)
            masks[layer++] = options[stage_choice_option(choice, kind, i)].mask;
    }
}

/* Those of the stage that has least left; built stages first. */
static void add_bytes(const struct search *s, struct candidate *candidate,
                      const struct composition_best *best, struct search_row *row)
{
    const struct layout *l = &candidate->stages.layout;
    int64_t least_left = INT64_MAX, worst = 0, ranks = l->dp * l->tp;
    for (int64_t i = 0; i < l->pp; i++) {
        int64_t peak = composition_choice(candidate->composition, i, &best->splits[i])->peak_bytes;
        int64_t built = *composition_arena(candidate->composition, i, &best->splits[i]);
        int64_t left = candidate->stages.list[i].room - max_i64(peak, built);
        if (left < least_left)
            worst = i;
        least_left = min_i64(least_left, left);
    }
    const struct stage_choice *choice =
        composition_choice(candidate->composition, worst, &best->splits[worst]);
    row->peak_bytes = choice->peak_bytes;
    row->arena_bytes = *composition_arena(candidate->composition, worst, &best->splits[worst]);
    row->bytes = explanation_bytes(&candidate->stages, worst, choice);
    row->group = siting_scarcest(s->request->cluster,
                                 siting_groups(&candidate->siting, worst * ranks, (worst + 1) * ranks),
                                 layout_ranks(l));
    const struct rank_device *device = &s->request->cluster->groups[row->group].device;
    row->needed_bytes =
        max_i64(row->peak_bytes, row->arena_bytes) + prediction_runtime(device, layout_ranks(l)).bytes;
}

static struct search_row row_of(struct search *s, struct candidate *candidate,
                                const struct composition_best *best)
{
    struct arena *arena = s->result->arena;
    const struct layout *l = &candidate->stages.layout;
    struct search_row row = {
        .layout = *l,
        .siting = candidate->siting,
        .masks = arena_array(arena, (size_t)s->request->model->layers, sizeof *row.masks),
        .chunk_layers = arena_array(arena, (size_t)layout_chunks(l), sizeof *row.chunk_layers),
        .time = composition_time(candidate->composition, best),
    };
    fill_masks(candidate, best, row.chunk_layers, row.masks);
    add_bytes(s, candidate, best, &row);
    struct text text = {0};
    recompute_print(s->request->model, row.masks, &text);
    row.recompute = arena_strdup(arena, text.data ? text.data : "");
    text_free(&text);
    return row;
}

/* Is it worth trying the other way up? Where chunks differ, arenas lie above their peaks by so much that it seldom takes off even half. */
static bool may_fit_turned(struct candidate *candidate, int64_t stage, const struct stage_split *split)
{
    int64_t arena = *composition_arena(candidate->composition, stage, split);
    int64_t peak = composition_choice(candidate->composition, stage, split)->peak_bytes;
    return candidate->stages.larger == LARGER_NONE ||
           arena - candidate->stages.list[stage].room <= (arena - peak) / 2;
}

/* Builds the first stage that was not built yet; *fits: all have been, and have room. Of larger chunks the last stage first: it is there
 * that a layout mostly fails for good. */
static int build_stages(struct search *s, struct candidate *candidate, const struct composition_best *best,
                        bool *fits)
{
    const struct layout *l = &candidate->stages.layout;
    int64_t *chunk_layers = host_alloc((size_t)layout_chunks(l) * sizeof *chunk_layers);
    uint32_t *masks = host_alloc((size_t)s->request->model->layers * sizeof *masks);
    struct program_spec spec = {s->request->model, l, masks, chunk_layers, 0};
    int status = 0;
    fill_masks(candidate, best, chunk_layers, masks);
    *fits = true;
    for (int64_t k = 0; k < l->pp && *fits && !status; k++) {
        spec.stage = candidate->stages.larger == LARGER_NONE ? k : l->pp - 1 - k;
        int64_t *arena = composition_arena(candidate->composition, spec.stage, &best->splits[spec.stage]);
        struct program *program;
        if (*arena)
            continue;
        status = program_create_stage(&spec, &program, s->err);
        if (status)
            break;
        *arena = program->arena_bytes;
        *fits = program->arena_bytes <= candidate->stages.list[spec.stage].room;
        bool again = !*fits && may_fit_turned(candidate, spec.stage, &best->splits[spec.stage]) &&
                     composition_turn_over(candidate->composition, spec.stage, &best->splits[spec.stage]);
        s->result->count.built++;
        s->effort -= PER_STAGE_BUILT + PER_ITEM * program->micro_batches * program->instances;
        program_free(program);
        if (again) {
            fill_masks(candidate, best, chunk_layers, masks);
            k--;
            *fits = true;
        }
    }
    free(chunk_layers);
    free(masks);
    return status;
}

/* The stage whose arena was too large must have a lower peak: a little at first, and after some attempts by all that was too
 * much, since an arena may stay above its peak by much. Where chunks differ it does, and each attempt is dear: by all at once. */
static void tighten(struct candidate *candidate, const struct composition_best *best, int attempt)
{
    enum { SMALL_STEPS = 24 };
    bool small = attempt < SMALL_STEPS && candidate->stages.larger == LARGER_NONE;
    for (int64_t i = 0; i < candidate->stages.layout.pp; i++) {
        int64_t arena = *composition_arena(candidate->composition, i, &best->splits[i]);
        int64_t room = candidate->stages.list[i].room;
        int64_t less = small ? 1 : max_i64(arena - room, 1);
        if (arena > room)
            composition_tighten(candidate->composition, i, &best->splits[i], less);
    }
}

/* At most *share of the items that may be replayed, but one composition in any case. */
static int search_composition(struct search *s, struct candidate *candidate, int64_t *share,
                              struct composition_best *best)
{
    int64_t items = max_i64(s->effort > 0 ? *share : 0, 1), left = items;
    int status = composition_search(candidate->composition, s->best_s, &left, best, s->err);
    *share -= items - left;
    s->budget -= items - left;
    s->effort -= PER_ITEM * (items - left);
    s->result->count.replayed++;
    return status;
}

/* Finds the fastest plan of the layout that really fits, if it is faster than all that is known. Others must have their share of
 * what may be spent. */
static int improve(struct search *s, struct candidate *candidate, double bound_s)
{
    enum { LAYOUTS = 4, MOST_ATTEMPTS = 64 };
    int64_t share = s->budget / LAYOUTS;
    int status = 0;
    bool found = true, fits = false;
    for (int attempt = 0; found && !fits && !status; attempt++) {
        struct composition_best best;
        if (is_spent(s) || (attempt >= MOST_ATTEMPTS && s->effort <= 0)) {
            s->unproved_s = fmin(s->unproved_s, bound_s);
            break;
        }
        status = search_composition(s, candidate, &share, &best);
        found = !status && best.step_s < s->best_s;
        if (!status && best.bound_s < fmin(best.step_s, s->best_s))
            s->unproved_s = fmin(s->unproved_s, best.bound_s);
        if (found) {
            s->peak_s = fmin(s->peak_s, best.step_s);
            fits = s->request->by_peak;
            status = fits ? 0 : build_stages(s, candidate, &best, &fits);
            if (!status && !fits)
                tighten(candidate, &best, attempt);
        }
        if (found && fits && !status) {
            struct search_row row = row_of(s, candidate, &best);
            s->best_s = best.step_s;
            s->result->feasible++;
            add_row(s, &row);
        }
        composition_best_clear(&best);
    }
    return status;
}

/* A plan of a shape that is none of the best's, as far as one composition tells. */
static int try_once(struct search *s, struct candidate *candidate)
{
    int64_t once = 1;
    struct composition_best best;
    double limit_s = row_limit(s, &candidate->stages.layout);
    int status = composition_search(candidate->composition, limit_s, &once, &best, s->err);
    if (!status && best.step_s < limit_s && best.step_s >= s->best_s) {
        struct search_row row = row_of(s, candidate, &best);
        s->result->feasible++;
        add_row(s, &row);
    }
    composition_best_clear(&best);
    return status;
}

/* What cannot be the fastest may still be a plan of another shape; it is told from others with quick choices. */
static double bound_of_other(struct search *s, struct candidate *candidate, double limit_s)
{
    enum { LITTLE = MOST_EFFORT / 1024 };
    int64_t little = LITTLE;
    if (s->request->alone || s->best_s >= limit_s)
        return INFINITY;
    candidate->stages.effort = &little;
    double bound_s = composition_bound(candidate->composition, s->best_s, limit_s);
    s->effort -= LITTLE - little;
    candidate->stages.effort = &s->effort;
    return bound_s;
}

static int compose(struct search *s, const struct node *node)
{
    struct candidate candidate;
    double limit_s = row_limit(s, &node->layout);
    int status = 0;
    open_candidate(s, node, &candidate);
    double bound_s = node->bound_s < s->best_s
                         ? composition_bound(candidate.composition, node->bound_s, s->best_s)
                         : INFINITY;
    if (isinf(bound_s) && !node->larger)
        bound_s = bound_of_other(s, &candidate, limit_s);
    s->result->count.composed++;
    if (bound_s < s->best_s)
        status = improve(s, &candidate, bound_s);
    if (!status && bound_s < limit_s && !s->request->alone && !node->larger)
        status = try_once(s, &candidate);
    close_candidate(&candidate);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------ levels */

/* A shape in all places. */
struct listing {
    struct search *search;
    const struct node *node;
    struct layout layout;
    int64_t sited;
};

/* On clusters of several groups that are far too large for a layout there are too many ways to place it. */
enum { MOST_SITINGS = 1000, FEW_SITINGS = 8, PER_PART = 32 };

/* What `count` layouts cost that stand on several groups: each of these has its prices and its stages. */
static void spend_on_siting(struct search *s, const struct siting *siting, int count)
{
    s->effort -= siting->count > 1 ? PER_PART * siting->count * count : 0;
}

static bool file_siting(void *context, const struct siting *siting)
{
    struct listing *listing = context;
    struct search *s = listing->search;
    if (s->request->even_nodes && !siting_is_even(s->request->cluster, siting))
        return true;
    if (listing->sited++ == s->most_sitings) {
        s->unproved_s = fmin(s->unproved_s, listing->node->bound_s);
        return false;
    }
    struct site site = site_of(s, &listing->layout, siting, false);
    struct bounds_question question = {&listing->layout, site.grounds, site.count, false, LARGER_LAST};
    double bound_s = fmax(bounds_of_work(s->bounds, &question), listing->node->bound_s);
    spend_on_siting(s, siting, 1);
    node_heap_push(&s->nodes, (struct node){.bound_s = bound_s,
                                            .level = LEVEL_SITED,
                                            .siting = *siting,
                                            .layout = listing->layout});
    return true;
}

static void list_sitings(struct search *s, const struct node *node)
{
    struct listing listing = {s, node, node->layout, 0};
    siting_visit(s->request->cluster, &listing.layout, file_siting, &listing);
}

static struct space_shape shape_of(const struct layout *l)
{
    return (struct space_shape){.tp = l->tp,
                                .pp = l->pp,
                                .dp = l->dp,
                                .micro_batch = l->micro_batch,
                                .sequence_parallel = l->sequence_parallel};
}

/* An encoder's chunks are alike, and of two stages with two chunks none is larger than others. Where devices differ, so do stages by more
 * than a layer. */
static bool may_be_larger(const struct search *s, const struct layout *l, const struct site *site)
{
    return l->virtual_stages > 1 && l->pp + l->virtual_stages > 4 && site->count == 1 &&
           !stages_are_alike(s->request->model);
}

/* For when no layout without larger chunks can be the fastest any more. */
static void set_aside(struct search *s, struct node *node)
{
    struct node aside = *node;
    aside.bound_s = node->larger_s;
    aside.larger = LARGER_LAST;
    node->larger_s = INFINITY;
    if (aside.bound_s < s->best_s)
        node_heap_push(&s->uneven, aside);
}

static void list_layouts(struct search *s, const struct node *node)
{
    struct layout *layouts;
    struct space_shape shape = shape_of(&node->layout);
    int count = space_layouts(s->request, &shape, &layouts);
    s->result->count.layouts += count;
    spend_on_siting(s, &node->siting, count);
    struct site site = place_site(s, &node->layout, &node->siting);
    for (int i = 0; i < count; i++) {
        struct node listed = {.level = LEVEL_LAYOUT, .siting = node->siting, .layout = layouts[i]};
        price_site(&layouts[i], false, &site);
        struct bounds_question question = {&layouts[i], site.grounds, site.count, false, LARGER_NONE};
        listed.bound_s = fmax(bounds_of_schedule(s->bounds, &question), node->bound_s);
        question.larger = LARGER_LAST;
        listed.larger_s = may_be_larger(s, &layouts[i], &site)
                              ? fmax(bounds_of_fullest(s->bounds, &question), node->bound_s)
                              : INFINITY;
        if (listed.bound_s < row_limit(s, &layouts[i])) {
            node_heap_push(&s->nodes, listed);
        } else {
            set_aside(s, &listed);
            s->result->count.layouts_beyond++;
        }
    }
    free(layouts);
}

/* With chunks like that, into the heap if it may be below the limit. */
static bool bound_with(struct search *s, const struct node *node, enum larger_chunks larger, double limit_s,
                       struct node_heap *heap)
{
    struct site site = site_of(s, &node->layout, &node->siting, false);
    struct bounds_question question = {&node->layout, site.grounds, site.count, false, larger};
    struct node bounded = *node;
    /* Sets to drop are only listed for what may need them. */
    if (larger != LARGER_NONE && bounds_of_schedule(s->bounds, &question) >= limit_s)
        return false;
    price_site(&node->layout, true, &site);
    double bound_s = bounds_of_layout(s->bounds, &question, limit_s);
    s->effort -= PER_STAGE_BOUNDED * node->layout.pp;
    if (bound_s >= limit_s)
        return false;
    bounded.bound_s = fmax(bound_s, node->bound_s);
    bounded.level = LEVEL_BOUNDED;
    bounded.larger = larger;
    node_heap_push(heap, bounded);
    return true;
}

static void bound_layout(struct search *s, struct node *node)
{
    set_aside(s, node);
    if (!bound_with(s, node, LARGER_NONE, row_limit(s, &node->layout), &s->nodes))
        s->result->count.layouts_beyond++;
}

static int look_closer(struct search *s, struct node *node)
{
    if (node->level == LEVEL_SHAPE)
        list_sitings(s, node);
    else if (node->level == LEVEL_SITED)
        list_layouts(s, node);
    else if (node->level == LEVEL_LAYOUT)
        bound_layout(s, node);
    else
        return compose(s, node);
    return 0;
}

static bool has_enough(const struct search *s)
{
    return s->request->any && s->row_count;
}

/* Is nothing to be spent on this any more? What is not tried then counts with its bound. */
static bool ends_with(struct search *s, const struct node *node)
{
    if (s->request->far_s > 0 && node->bound_s >= s->request->far_s)
        spend_little(s);
    if (!is_spent(s))
        return false;
    s->unproved_s = fmin(s->unproved_s, node->bound_s);
    return true;
}

/* With larger chunks, all that may be faster than the best so far: with a plan to beat, most of it is soon known to be slower. */
static int try_larger_chunks(struct search *s)
{
    struct node first;
    for (int64_t i = 0; i < s->nodes.count; i++)
        if (node_heap_take_larger(&s->nodes, i, &first))
            set_aside(s, &first);
    while (s->uneven.count && !has_enough(s)) {
        struct node node = node_heap_pop(&s->uneven);
        if (node.bound_s >= s->best_s || ends_with(s, &node)) {
            s->uneven.count = 0;
        } else if (node.level == LEVEL_LAYOUT) {
            bound_with(s, &node, LARGER_LAST, s->best_s, &s->uneven);
            bound_with(s, &node, LARGER_FIRST, s->best_s, &s->uneven);
        } else if (compose(s, &node)) {
            return -1;
        }
    }
    return 0;
}

/* Until nothing that is left can be faster; then a little longer, for other shapes that are almost as fast. */
static int run_search(struct search *s)
{
    enum { MORE_NODES = 400, MORE_COMPOSED = 12 };
    int64_t more_nodes = MORE_NODES, composed_until = INT64_MAX;
    while (s->nodes.count && s->result->count.composed < composed_until && more_nodes > 0 && !has_enough(s)) {
        struct node node = node_heap_pop(&s->nodes);
        if (ends_with(s, &node))
            break;
        if (node.bound_s >= s->best_s) {
            if (s->request->alone)
                break;
            if (composed_until == INT64_MAX && try_larger_chunks(s))
                return -1;
            more_nodes--;
            if (composed_until == INT64_MAX)
                composed_until = s->result->count.composed + MORE_COMPOSED;
        }
        if (look_closer(s, &node))
            return -1;
    }
    return try_larger_chunks(s);
}

/* ------------------------------------------------------------------------------------------------------------ shapes */

/* As many stages of each group as it has ranks for, where one layer takes least first: no siting has more layers a second. At
 * most the devices with most room have it. */
static struct site best_site(struct search *s, const struct layout *layout)
{
    const struct cluster *cluster = s->request->cluster;
    int64_t left = layout->pp, ranks = layout->dp * layout->tp;
    struct site all = {0}, out = {0};
    bool used[CLUSTER_GROUPS] = {false};
    for (int g = 0; g < cluster->group_count; g++) {
        bool together = layout->tp <= cluster->groups[g].ranks_per_node;
        struct stage_site where = {1U << g, 1U << g, together};
        int64_t most = (cluster_group_ranks(&cluster->groups[g]) + ranks - 1) / ranks;
        add_ground(s, layout, most, &where, &all);
    }
    price_site(layout, false, &all);
    while (left > 0 && out.count < cluster->group_count) {
        int next = -1;
        for (int g = 0; g < cluster->group_count; g++)
            if (!used[g] && (next < 0 || bounds_layer_seconds(&all.grounds[g]) <
                                             bounds_layer_seconds(&all.grounds[next])))
                next = g;
        used[next] = true;
        out.grounds[out.count] = all.grounds[next];
        out.grounds[out.count].stages = min_i64(left, all.grounds[next].stages);
        left -= out.grounds[out.count++].stages;
    }
    return out;
}

/* Files a shape by its bound, unless all ranks together are too small for it. */
static bool file_shape(void *context, const struct space_shape *shape)
{
    struct search *s = context;
    struct layout layout = space_layout(s->request, shape);
    struct site site = best_site(s, &layout);
    struct bounds_question question = {&layout, site.grounds, site.count, site.count > 1, LARGER_LAST};
    double room = 0;
    s->result->count.shapes++;
    for (int g = 0; g < s->request->cluster->group_count; g++)
        room = fmax(room, (double)siting_room(s->request->cluster, 1U << g, layout_ranks(&layout)));
    if (bounds_of_bytes(s->bounds, &layout, site.grounds[0].costs) > (double)layout.pp * room) {
        s->result->count.beyond_bytes++;
        return false;
    }
    node_heap_push(&s->nodes, (struct node){.bound_s = bounds_of_work(s->bounds, &question),
                                            .level = LEVEL_SHAPE,
                                            .layout = layout});
    return true;
}

/* Of three groups and more there are so many ways to place a shape that a first plan is sought among the first few of each. It is what
 * all must beat. */
static int search_few_sitings(struct search *s, int64_t most_tp)
{
    enum { GROUPS = 3 };
    if (s->request->cluster->group_count < GROUPS)
        return 0;
    int64_t effort = s->effort;
    s->most_sitings = FEW_SITINGS;
    s->effort /= 4;
    space_shapes(s->request, most_tp, file_shape, s);
    int status = run_search(s);
    s->nodes.count = s->uneven.count = 0;
    s->effort = effort;
    s->unproved_s = INFINITY;
    s->most_sitings = MOST_SITINGS;
    return status;
}

/* Tensor-parallel ranks of several nodes are paid for at the network's pace; more than two nodes' only where nothing else fits. */
static int search_shapes(struct search *s)
{
    int64_t node_ranks = cluster_ranks_per_node(s->request->cluster);
    int64_t most_tp = s->request->tp ? s->request->tp : 2 * node_ranks;
    if (search_few_sitings(s, most_tp))
        return -1;
    space_shapes(s->request, most_tp, file_shape, s);
    int status = run_search(s);
    if (!status && !s->row_count && isinf(s->unproved_s) && isinf(asked_limit(s->request)) &&
        2 * node_ranks < s->request->model->heads) {
        s->nodes.count = s->uneven.count = 0;
        space_shapes(s->request, s->request->model->heads, file_shape, s);
        status = run_search(s);
    }
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- request */

static int check_request(const struct search_request *r, struct error *err)
{
    int64_t ranks = cluster_ranks(r->cluster),
            asked = max_i64(r->dp, 1) * max_i64(r->tp, 1) * max_i64(r->pp, 1);
    if (r->global_batch < 1)
        return error_set(err, "--global-batch %lld: a step needs at least 1 sequence",
                         (long long)r->global_batch);
    if (asked > ranks)
        return asked == r->dp
                   ? error_set(err, "--dp %lld: the cluster has %lld ranks; use at most that many",
                               (long long)r->dp, (long long)ranks)
                   : error_set(err,
                               "--dp x --tp x --pp is %lld: the cluster has %lld ranks; use at most "
                               "that many",
                               (long long)asked, (long long)ranks);
    int64_t largest = 0;
    for (int g = 0; g < r->cluster->group_count; g++)
        largest = max_i64(largest, cluster_group_ranks(&r->cluster->groups[g]));
    if (r->tp > largest)
        return error_set(
            err,
            "--tp %lld: tensor-parallel ranks have devices of one kind, of which the cluster has "
            "%lld at most; use that many or fewer",
            (long long)r->tp, (long long)largest);
    struct layout layout = {.dp = max_i64(r->dp, 1),
                            .tp = max_i64(r->tp, 1),
                            .pp = max_i64(r->pp, 1),
                            .virtual_stages = max_i64(r->virtual_stages, 1),
                            .micro_batch = max_i64(r->micro_batch, 1),
                            .global_batch = r->global_batch,
                            .seq_len = r->seq_len,
                            .sequence_parallel = r->sequence_parallel == SEARCH_ON && r->tp > 1,
                            .schedule = r->schedule ? *r->schedule : SCHEDULE_1F1B,
                            .precision = r->precision};
    if (layout.schedule == SCHEDULE_INTERLEAVED && !r->virtual_stages)
        layout.schedule = SCHEDULE_1F1B; /* how many chunks is to be chosen */
    if (layout.virtual_stages > 1 && layout.pp == 1)
        layout.pp = 2; /* to be chosen */
    return layout_complete(&layout, r->model, err);
}

static void conclude(struct search *s)
{
    struct search_result *r = s->result;
    r->alternatives = arena_array(r->arena, MOST_ROWS, sizeof *r->alternatives);
    memcpy(r->alternatives, s->rows, (size_t)s->row_count * sizeof *s->rows);
    r->alternative_count = s->row_count;
    r->candidates = r->count.shapes + r->count.layouts;
    r->bound_s = fmin(s->peak_s, s->unproved_s);
    r->count.effort = s->most_effort - s->effort;
}

int search_run(const struct search_request *request, struct search_result *out, struct error *err)
{
    if (check_request(request, err))
        return -1;
    int64_t begin_ns = clock_ns(), parts = max_i64(request->effort_parts, 1);
    struct search_memory *own = request->memory ? NULL : search_memory_open(request);
    *out = (struct search_result){.arena = arena_create()};
    struct search s = {.request = request,
                       .result = out,
                       .memory = own ? own : request->memory,
                       .best_s = asked_limit(request),
                       .peak_s = INFINITY,
                       .unproved_s = INFINITY,
                       .budget = MOST_ITEMS / parts,
                       .effort = MOST_EFFORT / parts,
                       .most_effort = MOST_EFFORT / parts,
                       .overdraft = MOST_EFFORT / parts,
                       .most_sitings = MOST_SITINGS,
                       .err = err};
    s.bounds = bounds_open(request->model);
    s.schedules = schedule_memory_open();
    int status = search_shapes(&s);
    if (!status)
        conclude(&s);
    bounds_close(s.bounds);
    schedule_memory_close(s.schedules);
    search_memory_close(own);
    node_heap_clear(&s.nodes);
    node_heap_clear(&s.uneven);
    if (status)
        search_clear(out);
    else
        out->search_seconds = (double)(clock_ns() - begin_ns) * 1e-9;
    return status;
}

void search_clear(struct search_result *result)
{
    arena_free(result->arena);
    *result = (struct search_result){0};
}
