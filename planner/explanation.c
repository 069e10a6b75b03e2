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
        layer_bytes += stages->costs->options[options[i]].pile.saved;
        later_bytes += stages->costs->options[options[i]].pile.later;
    }
    bytes.states = s->state_bytes + layers * s->layer_state_bytes;
    bytes.kept_micro_batches = moment.kept[0] + moment.kept[1] + moment.later[0] + moment.later[1];
    for (int kind = 0; kind < s->kinds; kind++)
        bytes.kept += moment.kept[kind] * (layer_bytes + stages->costs->piles[s->bottom[kind]].saved +
                                           stages->costs->piles[s->top[kind]].saved) +
                      moment.later[kind] * later_bytes;
    bytes.working = peak - bytes.states - bytes.kept;
    const struct pile *top = &stages->costs->piles[s->top[moment.kind]];
    if (s->top[moment.kind] == COST_HEAD)
        bytes.head = max_i64(top->forward, top->backward);
    return bytes;
}

/* "stage 3 needs 83.2 GiB of 79.2 GiB: ..." */
static void print_bytes(const struct search_bytes *b, int64_t needed, int64_t capacity, int64_t stages,
                        struct text *out)
{
    char need[UNITS_TEXT], have[UNITS_TEXT], states[UNITS_TEXT], kept[UNITS_TEXT], working[UNITS_TEXT];
    if (stages > 1)
        text_printf(out, "stage %lld needs ", (long long)b->stage);
    else
        text_printf(out, "a rank needs ");
    text_printf(out, "%s of %s: states %s", units_format_bytes(needed, need),
                units_format_bytes(capacity, have), units_format_bytes(b->states, states));
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

/* The layout that needs least, as far as even stages with one set for all their layers tell. */
struct nearest {
    const struct search_request *request;
    struct costs_cache *costs;
    struct search_row row;
    uint32_t mask;
    bool found;
};

/* Of one set for all layers, the one with the lowest peak. */
static int best_option(const struct stages *stages, int64_t stage, int64_t layers, int *options,
                       int64_t *peak)
{
    int best = 0;
    *peak = INT64_MAX;
    for (int i = 0; i < stages->costs->option_count; i++) {
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

static void weigh_layout(struct nearest *n, const struct layout *layout)
{
    const struct model *model = n->request->model;
    struct costs *costs = costs_find(n->costs, layout);
    int *options = host_alloc((size_t)model->layers * sizeof *options);
    int64_t chunks = layout_chunks(layout), most = (model->layers + chunks - 1) / chunks, peak;
    struct stages stages;
    struct search_row row = {.layout = *layout};
    costs_open_options(n->costs, layout, costs);
    stages_open(model, n->request->speed, layout, costs, &stages);
    /* The first stage keeps most, and the last has the head. */
    for (int end = 0; end <= (layout->pp > 1); end++) {
        int64_t stage = end ? layout->pp - 1 : 0, layers = end ? model->layers / chunks : most;
        int option = best_option(&stages, stage, layers, options, &peak);
        if (peak > row.peak_bytes) {
            row.peak_bytes = peak;
            row.bytes = explanation_bytes(&stages, stage, layers, options);
            n->mask = row.peak_bytes < n->row.peak_bytes || !n->found ? costs->options[option].mask : n->mask;
        }
    }
    if (!n->found || row.peak_bytes < n->row.peak_bytes)
        n->row = row;
    n->found = true;
    stages_close(&stages);
    free(options);
}

/* States and the least activations of an even share, quickly. */
static double rough_bytes(struct nearest *n, const struct layout *layout)
{
    const struct costs *costs = costs_find(n->costs, layout);
    double layers = ceil((double)n->request->model->layers / (double)layout->pp);
    double in_flight = (double)stages_in_flight(layout, 0);
    double head =
        layout->pp == 1
            ? (double)(stages_part_states(layout, costs, COST_HEAD) + costs->piles[COST_HEAD].backward)
            : 0;
    return layers * (double)stages_part_states(layout, costs, COST_LAYER) +
           (double)stages_part_states(layout, costs, COST_EMBED) + head +
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
    struct prediction prediction;
    int status =
        prediction_make_pipeline(pipeline, &n->request->cluster->device, n->request->speed, &prediction, err);
    row->peak_bytes = prediction.peak_bytes;
    row->arena_bytes = prediction.arena_bytes;
    row->needed_bytes = prediction.needed_bytes;
    row->time = prediction.time;
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
    print_bytes(&row->bytes, row->needed_bytes, request->cluster->device.capacity_bytes, row->layout.pp,
                &text);
    return keep_text(arena, &text);
}

/* *found is false when the request has no layout at all. */
static int find_nearest(const struct search_request *request, struct arena *arena, struct search_row *out,
                        bool *found, struct error *err)
{
    struct nearest nearest = {
        .request = request,
        .costs = costs_open(request->model, request->speed, request->sets, request->set_count)};
    struct near_list list = {.nearest = &nearest};
    space_shapes(request, request->model->heads, note_shape, &list);
    for (int i = 0; i < list.count; i++)
        weigh_layout(&nearest, &list.layouts[i]);
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

/* `bound_s`: none of them is faster. One that is faster than the plan was left out by a search that gave up. */
static void explain_row(const struct families *f, const char *name, const struct search_row *row,
                        double bound_s, struct text *out)
{
    enum { SAME = 10000 }; /* to 0.01%, as it is printed */
    const struct search_row *plan = &f->result->alternatives[0];
    const struct cluster *cluster = f->request->cluster;
    bool crosses = cluster->nodes > 1 && cluster->ranks_per_node % row->layout.tp;
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
    int64_t most = min_i64(2 * f->request->cluster->ranks_per_node, cluster_ranks(f->request->cluster));
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
        struct cluster cluster = *request->cluster;
        struct search_request more = *request;
        struct search_result own;
        int64_t bytes = (int64_t)((double)cluster.device.capacity_bytes * shares[i]);
        cluster.device.capacity_bytes += bytes;
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

/* The least capacity with which there is a plan, to the byte where searches spend little: at most `enough`, and more than what there
 * is. *row becomes what is planned with it. */
static int find_enough_bytes(const struct search_request *request, struct arena *arena,
                             struct search_row *row, struct error *err)
{
    enum { MOST_EFFORT = 64000000 };
    int64_t have = request->cluster->device.capacity_bytes, enough = row->needed_bytes, spent = 0;
    struct cluster cluster = *request->cluster;
    struct search_request more = *request;
    more.cluster = &cluster;
    more.effort_parts = UNLOCK_PARTS;
    while (enough - have > 1 && spent < MOST_EFFORT) {
        struct search_result own;
        cluster.device.capacity_bytes = have + (enough - have) / 2;
        if (search_run(&more, &own, err))
            return -1;
        if (own.alternative_count) {
            *row = copy_row(arena, &own.alternatives[0], request->model->layers);
            enough = row->needed_bytes;
        } else {
            have = cluster.device.capacity_bytes;
        }
        spent += own.count.effort;
        search_clear(&own);
    }
    return 0;
}

/* Twice as many nodes, and so on, until there is a plan. */
static int find_enough_nodes(const struct search_request *request, int64_t *nodes, struct error *err)
{
    enum { DOUBLINGS = 6 };
    struct cluster cluster = *request->cluster;
    struct search_request more = *request;
    *nodes = 0;
    more.cluster = &cluster;
    more.effort_parts = UNLOCK_PARTS;
    if (request->dp && request->tp && request->pp)
        return 0;
    for (int i = 0; i < DOUBLINGS && !*nodes; i++) {
        struct search_result own;
        cluster.nodes *= 2;
        if (search_run(&more, &own, err))
            return -1;
        *nodes = own.alternative_count ? cluster.nodes : 0;
        search_clear(&own);
    }
    return 0;
}

int explanation_refusal(const struct search_request *request, struct search_result *result, struct text *out,
                        struct error *err)
{
    char capacity[UNITS_TEXT], missing[UNITS_TEXT], enough[UNITS_TEXT];
    struct families f = {.request = request, .result = result};
    struct search_row row;
    bool found;
    int64_t have = request->cluster->device.capacity_bytes;
    if (find_nearest(request, result->arena, &row, &found, err) ||
        (found && find_enough_bytes(request, result->arena, &row, err)) ||
        find_enough_nodes(request, &result->enough_nodes, err))
        return -1;
    text_printf(out, "no plan for %s in %s per rank", request->model->name,
                units_format_bytes(have, capacity));
    if (!found) {
        text_add(out, ": no layout of this kind can be run; leave some of it to be chosen");
        return 0;
    }
    row.reason = reason_of(request, &row, result->arena);
    add_rejected(&f, &row);
    result->enough_bytes = row.needed_bytes;
    result->short_bytes = row.needed_bytes - have;
    text_printf(out, ": the nearest is short of %s (%s); %s per rank would do",
                units_format_bytes(result->short_bytes, missing), row.reason,
                units_format_bytes(result->enough_bytes, enough));
    if (result->enough_nodes)
        text_printf(out, ", or %lld nodes like these", (long long)result->enough_nodes);
    else
        text_add(out, "; use devices with more memory, or a smaller model");
    return 0;
}
