#include "planner/explanation.h"

#include "base/checked.h"
#include "base/units.h"
#include "model/recompute.h"
#include "planner/space.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------- words */

struct search_bytes explanation_bytes(const struct stages *stages, int64_t stage, int64_t layers,
                                      const int *options)
{
    struct search_bytes bytes = {.stage = stage};
    struct stage_moment moment = {0};
    const struct stage *s = &stages->list[stage];
    int64_t peak = stages_peak(stages, stage, layers, options, &moment), layer_bytes = 0, later_bytes = 0;
    for (int64_t i = 0; i < layers; i++) {
        layer_bytes += s->costs->options[options[i]].pile.saved;
        later_bytes += s->costs->options[options[i]].pile.later;
    }
    bytes.states = s->state_bytes + layers * s->layer_state_bytes;
    bytes.kept_micro_batches = moment.kept[0] + moment.kept[1] + moment.later[0] + moment.later[1];
    for (int kind = 0; kind < s->kinds; kind++)
        bytes.kept += moment.kept[kind] * (layer_bytes + s->costs->piles[s->bottom[kind]].saved +
                                           s->costs->piles[s->top[kind]].saved) +
                      moment.later[kind] * later_bytes;
    bytes.working = peak - bytes.states - bytes.kept;
    const struct pile *top = &s->costs->piles[s->top[moment.kind]];
    if (s->top[moment.kind] == COST_HEAD)
        bytes.head = max_i64(top->forward, top->backward);
    return bytes;
}

/* "stage 3 on a100-80g needs 83.2 GiB of 79.2 GiB: ..."; the device is named where there are several kinds. */
static void print_bytes(const struct search_row *row, const struct cluster *cluster, struct text *out)
{
    const struct search_bytes *b = &row->bytes;
    const struct rank_device *device = &cluster->groups[row->group].device;
    char need[UNITS_TEXT], have[UNITS_TEXT], states[UNITS_TEXT], kept[UNITS_TEXT], working[UNITS_TEXT];
    if (row->layout.pp > 1)
        text_printf(out, "stage %lld", (long long)b->stage);
    else
        text_add(out, "a rank");
    if (cluster->group_count > 1)
        text_printf(out, " on %s", device->name);
    text_printf(out, " needs %s of %s: states %s", units_format_bytes(row->needed_bytes, need),
                units_format_bytes(device->capacity_bytes, have), units_format_bytes(b->states, states));
    if (b->kept)
        text_printf(out, ", activations of %lld micro-batches %s", (long long)b->kept_micro_batches,
                    units_format_bytes(b->kept, kept));
    text_printf(out, ", the one at work %s", units_format_bytes(b->working, working));
    if (b->head)
        text_printf(out, ", of which logits and the head %s", units_format_bytes(b->head, working));
}

void explanation_plan(const struct search_row *row, struct text *out)
{
    const struct layout *l = &row->layout;
    text_printf(out, "dp %lld x tp %lld x pp %lld", (long long)l->dp, (long long)l->tp, (long long)l->pp);
    if (l->pp > 1)
        text_printf(out, " (%s", schedule_name(l->schedule));
    if (l->virtual_stages > 1)
        text_printf(out, ", %lld chunks a stage", (long long)l->virtual_stages);
    text_printf(out, "%s, micro-batch %lld", l->pp > 1 ? ")" : "", (long long)l->micro_batch);
    if (l->zero)
        text_add(out, ", ZeRO");
    if (l->sequence_parallel)
        text_add(out, ", sequence parallel");
    enum { SHORT = 48 };
    text_printf(out, ", recompute %s", strlen(row->recompute) <= SHORT ? row->recompute : "layer by layer");
}

static const char *keep_text(struct arena *arena, struct text *text)
{
    const char *copy = arena_strdup(arena, text->data ? text->data : "");
    text_free(text);
    return copy;
}

/* A row of another search, in this result's arena. */
static struct search_row copy_row(struct arena *arena, const struct search_row *row, int64_t layers)
{
    struct search_row copy = *row;
    size_t chunks = (size_t)layout_chunks(&row->layout);
    copy.masks = arena_array(arena, (size_t)layers, sizeof *copy.masks);
    copy.chunk_layers = arena_array(arena, chunks, sizeof *copy.chunk_layers);
    memcpy(copy.masks, row->masks, (size_t)layers * sizeof *copy.masks);
    memcpy(copy.chunk_layers, row->chunk_layers, chunks * sizeof *copy.chunk_layers);
    copy.recompute = arena_strdup(arena, row->recompute);
    return copy;
}

/* ----------------------------------------------------------------------------------------------------------- nearest */

/* What is least short of room, as far as even stages with one set for all their layers tell. */
struct nearest {
    const struct search_request *request;
    struct costs_cache *costs; /* of bytes only, which are the same on all devices */
    struct search_row row;
    int64_t short_bytes;
    uint32_t mask;
    bool found;
};

/* Of one set for all layers, the one with the lowest peak. */
static int best_option(const struct stages *stages, int64_t stage, int64_t layers, int *options,
                       int64_t *peak)
{
    int best = 0;
    *peak = INT64_MAX;
    for (int i = 0; i < stages->list[stage].costs->option_count; i++) {
        for (int64_t k = 0; k < layers; k++)
            options[k] = i;
        int64_t bytes = stages_peak(stages, stage, layers, options, NULL);
        best = bytes < *peak ? i : best;
        *peak = min_i64(*peak, bytes);
    }
    for (int64_t k = 0; k < layers; k++)
        options[k] = best;
    return best;
}

/* The first stages of their kind keep most, and the last has the head. */
static bool is_telling(const struct stages *stages, int64_t stage)
{
    return stage == 0 || stage == stages->layout.pp - 1 ||
           stages->list[stage].ground != stages->list[stage - 1].ground;
}

/* The stage that is short of most decides. */
static void weigh_stages(struct nearest *n, const struct stages *stages, const struct siting *siting)
{
    int64_t model_layers = n->request->model->layers, chunks = layout_chunks(&stages->layout);
    int *options = host_alloc((size_t)model_layers * sizeof *options);
    struct search_row row = {.layout = stages->layout, .siting = *siting};
    int64_t most_short = INT64_MIN;
    uint32_t mask = 0;
    for (int64_t i = 0; i < stages->layout.pp; i++) {
        int64_t peak, layers = i && i == stages->layout.pp - 1 ? model_layers / chunks
                                                               : (model_layers + chunks - 1) / chunks;
        if (!is_telling(stages, i))
            continue;
        int option = best_option(stages, i, layers, options, &peak);
        if (peak - stages->list[i].room <= most_short)
            continue;
        most_short = peak - stages->list[i].room;
        row.peak_bytes = peak;
        row.bytes = explanation_bytes(stages, i, layers, options);
        mask = stages->list[i].costs->options[option].mask;
    }
    if (!n->found || most_short < n->short_bytes) {
        n->row = row;
        n->short_bytes = most_short;
        n->mask = mask;
    }
    n->found = true;
    free(options);
}

/* A layout that is weighed in all its places, or the first of many. */
struct weighing {
    struct nearest *nearest;
    const struct layout *layout;
    int left;
};

static bool weigh_siting(void *context, const struct siting *siting)
{
    struct weighing *w = context;
    const struct search_request *request = w->nearest->request;
    struct costs *costs = costs_find(w->nearest->costs, w->layout);
    struct site_run runs[SITE_RUNS];
    struct stage_ground grounds[SITE_RUNS];
    struct stages stages;
    int count = siting_runs(request->cluster, w->layout, siting, runs);
    costs_open_options(w->nearest->costs, w->layout, costs);
    for (int i = 0; i < count; i++)
        grounds[i] = (struct stage_ground){
            runs[i].stages, request->speeds, costs,
            siting_room(request->cluster, runs[i].site.groups, layout_ranks(w->layout))};
    stages_open(request->model, w->layout, grounds, &stages);
    weigh_stages(w->nearest, &stages, siting);
    stages_close(&stages);
    return --w->left > 0;
}

/* States and the least activations of an even share, quickly. */
static double rough_bytes(struct nearest *n, const struct layout *layout)
{
    const struct costs *costs = costs_find(n->costs, layout);
    double layers = ceil((double)n->request->model->layers / (double)layout->pp);
    double in_flight = (double)stages_in_flight(layout, 0);
    double head = layout->pp == 1
                      ? (double)(costs_states(costs, layout, COST_HEAD) + costs->piles[COST_HEAD].backward)
                      : 0;
    return layers * (double)costs_states(costs, layout, COST_LAYER) +
           (double)costs_states(costs, layout, COST_EMBED) + head +
           in_flight * layers * (double)costs->message_bytes + (double)costs->piles[COST_LAYER].backward;
}

enum { NEAR_LAYOUTS = 16 };

struct near_list {
    struct nearest *nearest;
    struct layout layouts[NEAR_LAYOUTS];
    double bytes[NEAR_LAYOUTS];
    int count;
};

static bool note_shape(void *context, const struct space_shape *shape)
{
    struct near_list *list = context;
    struct layout *layouts;
    int count = space_layouts(list->nearest->request, shape, &layouts);
    for (int i = 0; i < count; i++) {
        double bytes = rough_bytes(list->nearest, &layouts[i]);
        int at = list->count < NEAR_LAYOUTS ? list->count++ : NEAR_LAYOUTS - 1;
        if (at == NEAR_LAYOUTS - 1 && list->bytes[at] && list->bytes[at] <= bytes)
            continue;
        for (; at > 0 && list->bytes[at - 1] > bytes; at--) {
            list->bytes[at] = list->bytes[at - 1];
            list->layouts[at] = list->layouts[at - 1];
        }
        list->bytes[at] = bytes;
        list->layouts[at] = layouts[i];
    }
    free(layouts);
    return false; /* larger micro-batches need more */
}

static int predict_nearest(const struct search_request *request, const struct pipeline *pipeline,
                           struct search_row *row, struct error *err)
{
    struct prediction prediction;
    struct siting_speeds *speeds = siting_speeds_open(request->cluster, request->speeds);
    const struct rank_device **devices = host_alloc((size_t)pipeline->count * sizeof *devices);
    siting_devices(request->cluster, &row->layout, &row->siting, devices);
    int status = prediction_make_placed(
        pipeline, devices, siting_speeds_of_layout(speeds, &row->layout, &row->siting), &prediction, err);
    for (int g = 0; g < request->cluster->group_count; g++)
        if (devices[prediction.stage] == &request->cluster->groups[g].device)
            row->group = g;
    row->peak_bytes = prediction.peak_bytes;
    row->arena_bytes = prediction.arena_bytes;
    row->needed_bytes = prediction.needed_bytes;
    row->time = prediction.time;
    free(devices);
    siting_speeds_close(speeds);
    return status;
}

/* Builds it, with its set in all layers; its needs as built. */
static int build_nearest(struct nearest *n, struct search_row *row, struct arena *arena, struct error *err)
{
    const struct model *model = n->request->model;
    struct pipeline *pipeline;
    row->masks = arena_array(arena, (size_t)model->layers, sizeof *row->masks);
    row->chunk_layers = arena_array(arena, (size_t)layout_chunks(&row->layout), sizeof *row->chunk_layers);
    layout_spread_layers(&row->layout, model->layers, row->chunk_layers);
    for (int64_t i = 0; i < model->layers; i++)
        row->masks[i] = n->mask;
    struct program_spec spec = {model, &row->layout, row->masks, row->chunk_layers, 0};
    if (pipeline_create(&spec, &pipeline, err))
        return -1;
    int status = predict_nearest(n->request, pipeline, row, err);
    struct text recompute = {0};
    recompute_print(model, row->masks, &recompute);
    row->recompute = keep_text(arena, &recompute);
    pipeline_free(pipeline);
    return status;
}

/* What it is and needs. */
static const char *reason_of(const struct search_request *request, const struct search_row *row,
                             struct arena *arena)
{
    struct text text = {0};
    explanation_plan(row, &text);
    text_add(&text, ": ");
    print_bytes(row, request->cluster, &text);
    return keep_text(arena, &text);
}

/* *found is false when the request has no layout at all. */
static int find_nearest(const struct search_request *request, struct arena *arena, struct search_row *out,
                        bool *found, struct error *err)
{
    struct nearest nearest = {
        .request = request,
        .costs = costs_open(request->model, request->speeds, request->sets, request->set_count)};
    struct near_list list = {.nearest = &nearest};
    space_shapes(request, request->model->heads, note_shape, &list);
    for (int i = 0; i < list.count; i++) {
        enum { SITINGS = 64 };
        struct weighing weighing = {&nearest, &list.layouts[i], SITINGS};
        siting_visit(request->cluster, &list.layouts[i], weigh_siting, &weighing);
    }
    int status = 0;
    *found = nearest.found;
    *out = nearest.row;
    if (*found)
        status = build_nearest(&nearest, out, arena, err);
    costs_close(nearest.costs);
    if (!*found || status)
        return status;
    out->reason = reason_of(request, out, arena);
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- families */

/* Each family's search, and each with more memory, has this part of what a search may spend. */
enum { FAMILY_PARTS = 16, UNLOCK_PARTS = 4 };

struct family {
    const char *name; /* "tp=16" */
    struct search_request request;
};

struct families {
    const struct search_request *request;
    struct search_result *result;
    int64_t room;
};

static void add_rejected(struct families *f, const struct search_row *row)
{
    struct search_result *r = f->result;
    if (r->rejected_count == f->room) {
        f->room = 2 * f->room + 16;
        struct search_row *larger = arena_array(r->arena, (size_t)f->room, sizeof *larger);
        if (r->rejected_count)
            memcpy(larger, r->rejected, (size_t)r->rejected_count * sizeof *larger);
        r->rejected = larger;
    }
    r->rejected[r->rejected_count++] = *row;
}

/* What makes the difference: the part of the step that grew most. */
static const char *slower_part(const struct step_time *plan, const struct step_time *other)
{
    static const char *const names[] = {"computing", "recomputation", "exposed communication", "bubble",
                                        "optimizer"};
    double more[] = {other->forward + other->backward - plan->forward - plan->backward,
                     other->recompute - plan->recompute,
                     other->exposed_communication - plan->exposed_communication, other->bubble - plan->bubble,
                     other->optimizer - plan->optimizer};
    int most = 0;
    for (int i = 1; i < 5; i++)
        most = more[i] > more[most] ? i : most;
    return names[most];
}

/* "1.4x", "0.84%": by how much. */
static void print_factor(double ratio, struct text *out)
{
    if (ratio >= 1.1)
        text_printf(out, "%.1fx", ratio);
    else
        text_printf(out, "%.2f%%", 100 * (ratio - 1));
}

/* Have tensor-parallel ranks to go through the network? */
static bool crosses_nodes(const struct cluster *cluster, const struct search_row *row)
{
    for (int i = 0; i < row->siting.count; i++) {
        int64_t each = cluster->groups[row->siting.parts[i].group].ranks_per_node;
        if (row->siting.parts[i].ranks > each && each % row->layout.tp)
            return true;
    }
    return false;
}

/* `bound_s`: none of them is faster. One that is faster than the plan was left out by a search that gave up. */
static void explain_row(const struct families *f, const char *name, const struct search_row *row,
                        double bound_s, struct text *out)
{
    enum { SAME = 10000 }; /* to 0.01%, as it is printed */
    const struct search_row *plan = &f->result->alternatives[0];
    bool crosses = crosses_nodes(f->request->cluster, row);
    double ratio = row->time.total / plan->time.total;
    text_printf(out, "%s%s: ", name, crosses ? " crosses nodes" : "");
    if (fabs(ratio - 1) * SAME < 0.5) {
        text_add(out, "as fast (");
    } else if (ratio < 1) {
        print_factor(1 / ratio, out);
        text_add(out, " faster, found after the search had stopped; ask for it (");
    } else {
        print_factor(ratio, out);
        text_printf(out, " slower %s, mostly by %s (",
                    bound_s * (1 + 1.0 / SAME) >= row->time.total ? "at best" : "as far as it was tried",
                    slower_part(&plan->time, &row->time));
    }
    explanation_plan(row, out);
    text_add(out, ")");
}

/* No plan was found before the search stopped. */
static void explain_bound(const struct families *f, const char *name, double bound_s, struct text *out)
{
    double ratio = bound_s / f->result->alternatives[0].time.total;
    text_printf(out, "%s: ", name);
    if (ratio > 1) {
        text_add(out, "at least ");
        print_factor(ratio, out);
        text_add(out, " slower, if it fits at all");
    } else {
        text_add(out, "none found that fits; it could not be more than ");
        print_factor(1 / ratio, out);
        text_add(out, " faster");
    }
}

/* The best of a family, or what comes nearest to fitting, and why it is not the plan. */
static int try_family(struct families *f, const struct family *family, struct error *err)
{
    struct search_result own;
    struct error refused = {0};
    struct text text = {0};
    struct arena *arena = f->result->arena;
    if (search_run(&family->request, &own, &refused))
        return 0; /* nothing of this kind can be run */
    int status = 0;
    if (own.alternative_count) {
        struct search_row row = copy_row(arena, &own.alternatives[0], f->request->model->layers);
        explain_row(f, family->name, &row, own.bound_s, &text);
        row.reason = keep_text(arena, &text);
        add_rejected(f, &row);
    } else if (own.bound_s < INFINITY) {
        struct search_row row = {.layout = f->result->alternatives[0].layout, .recompute = ""};
        explain_bound(f, family->name, own.bound_s, &text);
        row.reason = keep_text(arena, &text);
        add_rejected(f, &row);
    } else {
        struct search_row row;
        bool found;
        status = find_nearest(&family->request, arena, &row, &found, err);
        if (!status && found) {
            text_printf(&text, "%s does not fit: the nearest, %s", family->name, row.reason);
            row.reason = keep_text(arena, &text);
            add_rejected(f, &row);
        }
    }
    search_clear(&own);
    return status;
}

/* All that the plan has, so that one thing can be changed. */
static struct search_request as_planned(const struct families *f)
{
    const struct layout *l = &f->result->alternatives[0].layout;
    struct search_request request = *f->request;
    request.dp = l->dp;
    request.tp = l->tp;
    request.pp = l->pp;
    request.virtual_stages = l->virtual_stages;
    request.micro_batch = l->micro_batch;
    request.zero = l->zero ? SEARCH_ON : SEARCH_OFF;
    request.sequence_parallel = l->sequence_parallel ? SEARCH_ON : SEARCH_OFF;
    request.schedule = &l->schedule;
    return request;
}

static int try_named(struct families *f, const struct search_request *request, struct error *err,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

static int try_named(struct families *f, const struct search_request *request, struct error *err,
                     const char *format, ...)
{
    char name[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    struct family family = {name, *request};
    family.request.effort_parts = FAMILY_PARTS;
    return try_family(f, &family, err);
}

static int try_parts(struct families *f, struct error *err)
{
    const struct layout *l = &f->result->alternatives[0].layout;
    int64_t most =
        min_i64(2 * cluster_ranks_per_node(f->request->cluster), cluster_ranks(f->request->cluster));
    for (int64_t tp = 1; tp <= most && !f->request->tp; tp *= 2) {
        struct search_request request = *f->request;
        request.tp = tp;
        bool possible = f->request->model->heads % tp == 0 && f->request->model->kv_heads % tp == 0;
        if (tp != l->tp && possible && try_named(f, &request, err, "tp=%lld", (long long)tp))
            return -1;
    }
    return 0;
}

/* With the plan's tensor-parallel ranks: half as many stages and twice as many, and so with micro-batches. */
static int try_neighbours(struct families *f, struct error *err)
{
    const struct layout *l = &f->result->alternatives[0].layout;
    for (int twice = 0; twice <= 1; twice++) {
        int64_t pp = twice ? 2 * l->pp : l->pp / 2,
                micro_batch = twice ? 2 * l->micro_batch : l->micro_batch / 2;
        struct search_request request = *f->request;
        request.tp = l->tp;
        request.pp = pp;
        if (pp && !f->request->pp && try_named(f, &request, err, "pp=%lld", (long long)pp))
            return -1;
        request.pp = f->request->pp;
        request.micro_batch = micro_batch;
        if (micro_batch && !f->request->micro_batch &&
            try_named(f, &request, err, "micro-batch %lld", (long long)micro_batch))
            return -1;
    }
    return 0;
}

static int try_switches(struct families *f, struct error *err)
{
    const struct layout *l = &f->result->alternatives[0].layout;
    struct search_request request = as_planned(f);
    request.zero = l->zero ? SEARCH_OFF : SEARCH_ON;
    if (l->dp > 1 && f->request->zero == SEARCH_ANY &&
        try_named(f, &request, err, "%s ZeRO", l->zero ? "without" : "with"))
        return -1;
    request = as_planned(f);
    request.sequence_parallel = l->sequence_parallel ? SEARCH_OFF : SEARCH_ON;
    if (l->tp > 1 && f->request->sequence_parallel == SEARCH_ANY &&
        try_named(f, &request, err, "%s sequence parallelism", l->sequence_parallel ? "without" : "with"))
        return -1;
    for (int kind = 0; kind < SCHEDULE_KINDS && l->pp > 1 && !f->request->schedule; kind++) {
        enum schedule_kind schedule = (enum schedule_kind)kind;
        request = as_planned(f);
        request.schedule = &schedule;
        request.virtual_stages = 0;
        if (schedule != l->schedule && try_named(f, &request, err, "schedule %s", schedule_name(schedule)))
            return -1;
    }
    return 0;
}

/* Megatron-LM's sets for all layers alike, in the plan's own layout. */
static int try_sets(struct families *f, struct error *err)
{
    const struct model *model = f->request->model;
    const uint32_t sets[] = {0, recompute_selective(model), recompute_full(model)};
    static const char *const names[] = {"none", "selective", "full"};
    for (int i = 0; i < 3 && !f->request->sets; i++) {
        struct search_request request = as_planned(f);
        request.sets = &sets[i];
        request.set_count = 1;
        if (strcmp(f->result->alternatives[0].recompute, names[i]) &&
            try_named(f, &request, err, "recompute %s in all layers", names[i]))
            return -1;
    }
    return 0;
}

int explanation_families(const struct search_request *request, struct search_result *result,
                         struct error *err)
{
    struct families f = {.request = request, .result = result};
    if (!result->alternative_count)
        return 0;
    return try_parts(&f, err) || try_neighbours(&f, err) || try_switches(&f, err) || try_sets(&f, err) ? -1
                                                                                                       : 0;
}

/* ----------------------------------------------------------------------------------------------------------- changes */

int explanation_unlocks(const struct search_request *request, const struct search_result *result,
                        struct text *out, struct error *err)
{
    /* Shares of the capacity; less than 1% is not worth saying. */
    static const double shares[] = {0.05, 0.25};
    double plan_s = result->alternatives[0].time.total;
    for (int i = 0; i < 2; i++) {
        int64_t bytes = (int64_t)((double)request->cluster->groups[0].device.capacity_bytes * shares[i]);
        struct cluster cluster = cluster_with_memory(request->cluster, bytes);
        struct search_request more = *request;
        struct search_result own;
        more.cluster = &cluster;
        more.effort_parts = UNLOCK_PARTS;
        if (search_run(&more, &own, err))
            return -1;
        double gain = own.alternative_count ? plan_s / own.alternatives[0].time.total - 1 : 0;
        if (gain > 0.01) {
            char text[UNITS_TEXT];
            text_printf(out, "with %s more per rank %.1f%% faster: ", units_format_bytes(bytes, text),
                        100 * gain);
            explanation_plan(&own.alternatives[0], out);
        }
        search_clear(&own);
        if (gain > 0.01)
            break;
    }
    return 0;
}

/* How much more every rank must have for this row of a cluster with `more_bytes` more. */
static int64_t bytes_missing(const struct cluster *cluster, const struct search_row *row)
{
    return row->needed_bytes - cluster->groups[row->group].device.capacity_bytes;
}

/* The fewest bytes more on every rank with which there is a plan, to the byte where searches spend little: at most what the row
 * lacks. *row becomes what is planned with it. */
static int find_enough_bytes(const struct search_request *request, struct arena *arena,
                             struct search_row *row, struct error *err)
{
    enum { MOST_EFFORT = 64000000 };
    int64_t too_few = 0, enough = bytes_missing(request->cluster, row), spent = 0;
    struct search_request more = *request;
    more.effort_parts = UNLOCK_PARTS;
    while (enough - too_few > 1 && spent < MOST_EFFORT) {
        struct search_result own;
        int64_t middle = too_few + (enough - too_few) / 2;
        struct cluster cluster = cluster_with_memory(request->cluster, middle);
        more.cluster = &cluster;
        if (search_run(&more, &own, err))
            return -1;
        if (own.alternative_count) {
            *row = copy_row(arena, &own.alternatives[0], request->model->layers);
            enough = bytes_missing(request->cluster, row);
        } else {
            too_few = middle;
        }
        spent += own.count.effort;
        search_clear(&own);
    }
    return 0;
}

static int try_nodes(const struct search_request *request, int64_t times, bool *found, struct error *err)
{
    struct cluster cluster = cluster_with_nodes(request->cluster, times);
    struct search_request more = *request;
    struct search_result own;
    more.cluster = &cluster;
    more.effort_parts = UNLOCK_PARTS;
    if (search_run(&more, &own, err))
        return -1;
    *found = own.alternative_count > 0;
    search_clear(&own);
    return 0;
}

/* Twice as many nodes of each kind, and so on, until there is a plan; then the fewest between that and the half of it. */
static int find_enough_nodes(const struct search_request *request, int64_t *nodes, struct error *err)
{
    enum { MOST_TIMES = 64 };
    int64_t enough = 1;
    bool found = false;
    *nodes = 0;
    if (request->dp && request->tp && request->pp)
        return 0;
    while (!found && enough < MOST_TIMES)
        if (try_nodes(request, enough *= 2, &found, err))
            return -1;
    for (int64_t too_few = enough / 2; found && enough - too_few > 1;) {
        bool fits;
        int64_t middle = (enough + too_few) / 2;
        if (try_nodes(request, middle, &fits, err))
            return -1;
        *(fits ? &enough : &too_few) = middle;
    }
    *nodes = found ? enough * cluster_nodes(request->cluster) : 0;
    return 0;
}

/* What was asked for may be what is in the way. */
static int try_freely(const struct search_request *request, struct text *out, struct error *err)
{
    struct search_request freely = {.model = request->model,
                                    .cluster = request->cluster,
                                    .speeds = request->speeds,
                                    .global_batch = request->global_batch,
                                    .seq_len = request->seq_len,
                                    .precision = request->precision,
                                    .effort_parts = UNLOCK_PARTS};
    struct search_result own;
    bool asked = request->dp || request->tp || request->pp || request->virtual_stages ||
                 request->micro_batch || request->zero != SEARCH_ANY ||
                 request->sequence_parallel != SEARCH_ANY || request->schedule || request->sets;
    if (!asked)
        return 0;
    if (search_run(&freely, &own, err))
        return -1;
    if (own.alternative_count) {
        text_add(out, "; with nothing asked for there is a plan here: ");
        explanation_plan(&own.alternatives[0], out);
    }
    search_clear(&own);
    return 0;
}

static int64_t least_capacity(const struct cluster *cluster)
{
    int64_t least = INT64_MAX;
    for (int g = 0; g < cluster->group_count; g++)
        least = min_i64(least, cluster->groups[g].device.capacity_bytes);
    return least;
}

static void print_capacities(const struct cluster *cluster, struct text *out)
{
    char capacity[UNITS_TEXT];
    for (int g = 0; g < cluster->group_count; g++) {
        const struct rank_device *device = &cluster->groups[g].device;
        text_printf(out, "%s%s", g ? " and " : "", units_format_bytes(device->capacity_bytes, capacity));
        if (cluster->group_count > 1)
            text_printf(out, " (%s)", device->name);
    }
    text_add(out, " per rank");
}

/* What would do. */
static void print_ways_out(const struct search_request *request, const struct search_result *result,
                           struct text *out)
{
    char enough[UNITS_TEXT];
    const struct cluster *cluster = request->cluster;
    if (cluster->group_count == 1)
        text_printf(out, "%s per rank would do", units_format_bytes(result->enough_bytes, enough));
    else
        text_printf(out, "%s more on every rank would do", units_format_bytes(result->short_bytes, enough));
    if (!result->enough_nodes)
        text_add(out, "; use devices with more memory, or a smaller model");
    else if (cluster->group_count == 1)
        text_printf(out, ", or %lld nodes like these", (long long)result->enough_nodes);
    else
        text_printf(out, ", or %lld times the nodes",
                    (long long)(result->enough_nodes / cluster_nodes(cluster)));
}

int explanation_refusal(const struct search_request *request, struct search_result *result, struct text *out,
                        struct error *err)
{
    char missing[UNITS_TEXT];
    struct families f = {.request = request, .result = result};
    struct search_row row;
    bool found;
    if (find_nearest(request, result->arena, &row, &found, err) ||
        (found && find_enough_bytes(request, result->arena, &row, err)) ||
        find_enough_nodes(request, &result->enough_nodes, err))
        return -1;
    text_printf(out, "no plan for %s in ", request->model->name);
    print_capacities(request->cluster, out);
    if (!found) {
        text_add(out, ": no layout of this kind can be run; leave some of it to be chosen");
        return try_freely(request, out, err);
    }
    row.reason = reason_of(request, &row, result->arena);
    add_rejected(&f, &row);
    result->short_bytes = bytes_missing(request->cluster, &row);
    result->enough_bytes = result->short_bytes + least_capacity(request->cluster);
    text_printf(out, ": the nearest is short of %s (%s); ", units_format_bytes(result->short_bytes, missing),
                row.reason);
    print_ways_out(request, result, out);
    return try_freely(request, out, err);
}
