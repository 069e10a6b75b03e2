/* One search for each schedule and for each set that all layers can have alike; and where first layers of each chunk may be
 * recomputed whole, one that chooses whole layers freely, whose plans are then held to the same number in every chunk: the least that
 * fits. No plan of the target is faster than the least bound of all of them. */
#include "planner/search_for.h"

#include "base/checked.h"
#include "model/plan.h"
#include "model/recompute.h"
#include "planner/export_recompute.h"

#include <math.h>
#include <string.h>

enum { MOST_ROWS = 8 };

/* What has been found so far. */
struct gathering {
    const struct search_request *request;
    enum export_target target;
    struct search_for *found;
    struct search_result *out;
    double best_s; /* infinite: none */
    struct error *err;
};

/* ------------------------------------------------------------------------------------------------------------ rows */

static void *copy(struct arena *arena, const void *from, size_t bytes)
{
    return memcpy(arena_alloc(arena, bytes), from, bytes);
}

static struct search_row keep_row(const struct gathering *g, const struct search_row *row)
{
    struct arena *arena = g->out->arena;
    struct search_row own = *row;
    own.masks = copy(arena, row->masks, (size_t)g->request->model->layers * sizeof *own.masks);
    own.chunk_layers =
        copy(arena, row->chunk_layers, (size_t)layout_chunks(&row->layout) * sizeof *own.chunk_layers);
    own.recompute = arena_strdup(arena, row->recompute);
    return own;
}

static bool same_shape(const struct layout *a, const struct layout *b)
{
    return a->dp == b->dp && a->tp == b->tp && a->pp == b->pp && a->micro_batch == b->micro_batch;
}

/* Into the list of the fastest of each shape, in order. */
static void add_row(struct gathering *g, const struct search_row *row)
{
    struct search_row *rows = g->out->alternatives;
    int64_t kept = 0, at = 0, count = g->out->alternative_count;
    for (int64_t i = 0; i < count; i++)
        if (same_shape(&rows[i].layout, &row->layout) && rows[i].time.total <= row->time.total)
            return;
    for (int64_t i = 0; i < count; i++)
        if (!same_shape(&rows[i].layout, &row->layout))
            rows[kept++] = rows[i];
    while (at < kept && rows[at].time.total <= row->time.total)
        at++;
    if (at < MOST_ROWS) {
        count = min_i64(kept, MOST_ROWS - 1);
        memmove(&rows[at + 1], &rows[at], (size_t)(count - at) * sizeof *rows);
        rows[at] = keep_row(g, row);
        kept = count + 1;
    }
    g->out->alternative_count = kept;
}

static void add_count(struct search_result *out, const struct search_result *own)
{
    out->count.shapes += own->count.shapes;
    out->count.beyond_bytes += own->count.beyond_bytes;
    out->count.beyond_time += own->count.beyond_time;
    out->count.layouts += own->count.layouts;
    out->count.layouts_beyond += own->count.layouts_beyond;
    out->count.composed += own->count.composed;
    out->count.replayed += own->count.replayed;
    out->count.built += own->count.built;
    out->count.effort += own->count.effort;
    out->candidates += own->candidates;
    out->feasible += own->feasible;
    out->bound_s = fmin(out->bound_s, own->bound_s);
    out->search_seconds += own->search_seconds;
}

/* ----------------------------------------------------------------------------------------------- the same in all layers */

static void remember(struct gathering *g, const struct search_request *request)
{
    struct search_for *found = g->found;
    found->request = *request;
    found->request.limit_s = 0;
    found->schedule = *request->schedule;
    memcpy(found->sets, request->sets, (size_t)request->set_count * sizeof *found->sets);
    found->request.schedule = &found->schedule;
    found->request.sets = found->sets;
}

static int search_alike(struct gathering *g, const struct search_request *request)
{
    struct search_result own;
    if (search_run(request, &own, g->err))
        return -1;
    add_count(g->out, &own);
    if (own.alternative_count && own.alternatives[0].time.total < g->best_s) {
        g->best_s = own.alternatives[0].time.total;
        remember(g, request);
    }
    for (int64_t i = 0; i < own.alternative_count; i++)
        add_row(g, &own.alternatives[i]);
    search_clear(&own);
    return 0;
}

/* -------------------------------------------------------------------------------------------- whole first layers of chunks */

/* A row's layout with a number of whole layers in every chunk. */
struct held {
    const struct gathering *gathering;
    const struct search_row *row;
    const struct rank_device **devices;
    struct siting_speeds *speeds;
    struct plan plan; /* borrows the row's layers; its masks are the arena's */
};

static int predict(const struct held *held, int64_t whole, bool timed, struct prediction *out)
{
    const struct search_row *row = held->row;
    struct export_recompute recompute = {.way = EXPORT_WHOLE, .count = whole};
    struct pipeline *pipeline;
    export_recompute_fill(&held->plan, &recompute, held->plan.recompute);
    if (plan_pipeline(&held->plan, &pipeline, held->gathering->err))
        return -1;
    const struct machine_speed *speed =
        timed ? siting_speeds_of_layout(held->speeds, &row->layout, &row->siting) : NULL;
    int status = prediction_make_placed(pipeline, held->devices, speed, out, held->gathering->err);
    pipeline_free(pipeline);
    return status;
}

/* The least number with which all fits, between none and `most`, which is more than any chunk has where none does. */
static int find_least(const struct held *held, int64_t most, int64_t *least)
{
    int64_t low = 0;
    *least = most + 1;
    while (low < *least) {
        struct prediction answer;
        int64_t middle = low + (*least - low) / 2;
        if (predict(held, middle, false, &answer))
            return -1;
        if (answer.needed_bytes <= rank_device_plannable(held->devices[answer.stage]))
            *least = middle;
        else
            low = middle + 1;
    }
    return 0;
}

static void adopt(struct gathering *g, const struct held *held, const struct prediction *answer)
{
    struct search_row row = *held->row;
    struct text text = {0};
    recompute_print(g->request->model, held->plan.recompute, &text);
    row.masks = held->plan.recompute;
    row.recompute = text.data;
    row.peak_bytes = answer->peak_bytes;
    row.arena_bytes = answer->arena_bytes;
    row.needed_bytes = answer->needed_bytes;
    row.bytes = (struct search_bytes){.stage = answer->stage};
    row.time = answer->time;
    add_row(g, &row);
    text_free(&text);
}

static int hold_row(struct gathering *g, const struct search_request *request, struct held *held)
{
    struct prediction answer;
    const struct search_row *row = held->row;
    int64_t most = 0, least;
    for (int64_t c = 0; c < layout_chunks(&row->layout); c++)
        most = max_i64(most, row->chunk_layers[c]);
    siting_devices(request->cluster, &row->layout, &row->siting, held->devices);
    held->plan.layout = row->layout;
    held->plan.chunk_layers = row->chunk_layers;
    if (find_least(held, most, &least))
        return -1;
    if (least > most)
        return 0;
    if (predict(held, least, true, &answer))
        return -1;
    g->out->feasible++;
    adopt(g, held, &answer);
    if (answer.time.total < g->best_s) {
        g->best_s = answer.time.total;
        remember(g, request);
    }
    return 0;
}

/* What may be faster than all so far is tried. */
static int search_blocks(struct gathering *g, const struct search_request *request)
{
    struct search_result own;
    if (search_run(request, &own, g->err))
        return -1;
    add_count(g->out, &own);
    struct held held = {.gathering = g, .plan = {.model = *request->model, .capacity_bytes = INT64_MAX}};
    held.plan.recompute = arena_array(own.arena, (size_t)request->model->layers, sizeof *held.plan.recompute);
    held.speeds = siting_speeds_open(request->cluster, request->speeds);
    int status = 0;
    for (int64_t i = 0; i < own.alternative_count && !status; i++) {
        held.row = &own.alternatives[i];
        held.devices = arena_array(own.arena, (size_t)held.row->layout.pp, sizeof *held.devices);
        if (held.row->time.total < g->best_s)
            status = hold_row(g, request, &held);
    }
    siting_speeds_close(held.speeds);
    search_clear(&own);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------- all */

/* Has the request any layout with it? */
static bool is_possible(const struct gathering *g, enum schedule_kind schedule)
{
    const struct search_request *r = g->request;
    bool chunks = schedule == SCHEDULE_INTERLEAVED;
    if (export_schedule(g->target, schedule) != schedule || (r->schedule && *r->schedule != schedule))
        return false;
    return chunks ? r->pp != 1 && r->virtual_stages != 1 : r->virtual_stages <= 1;
}

static double limit_of(const struct gathering *g)
{
    return isinf(g->best_s) ? g->request->limit_s : g->best_s;
}

static int search_schedule(struct gathering *g, enum schedule_kind schedule)
{
    uint32_t sets[EXPORT_SETS], whole[2] = {0, recompute_full(g->request->model)};
    int count = export_recompute_sets(g->target, g->request->model, sets);
    struct search_request request = *g->request;
    request.parts_need_replicas = export_parts_need_replicas(g->target, request.precision);
    request.even_nodes = export_needs_even_nodes(g->target);
    request.schedule = &schedule;
    request.set_count = 1;
    for (int i = 0; i < count; i++) {
        request.sets = &sets[i];
        request.limit_s = limit_of(g);
        if (search_alike(g, &request))
            return -1;
    }
    request.sets = whole;
    request.set_count = 2;
    request.limit_s = limit_of(g);
    /* What is told where nothing fits: 1F1B, which comes first, keeps the fewest activations. */
    if (!g->out->alternative_count && !g->found->request.sets)
        remember(g, &request);
    return g->target == EXPORT_MEGATRON ? search_blocks(g, &request) : 0;
}

int search_for_run(const struct search_request *request, enum export_target target, struct search_for *found,
                   struct search_result *out, struct error *err)
{
    static const enum schedule_kind kinds[] = {SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_GPIPE,
                                               SCHEDULE_ZB_H1};
    struct gathering g = {request, target, found, out, INFINITY, err};
    if (request->schedule && export_schedule(target, *request->schedule) != *request->schedule)
        return error_set(err, "--pipeline-schedule %s: %s has none; leave it out, or plan without --for",
                         schedule_name(*request->schedule), export_target_name(target));
    *out = (struct search_result){.arena = arena_create(), .bound_s = INFINITY};
    *found = (struct search_for){.request = *request};
    out->alternatives = arena_array(out->arena, MOST_ROWS, sizeof *out->alternatives);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (is_possible(&g, kinds[i]) && search_schedule(&g, kinds[i])) {
            search_clear(out);
            return -1;
        }
    return 0;
}
