#include "planner/nearest.h"

#include "base/checked.h"
#include "model/recompute.h"
#include "planner/explanation.h"
#include "planner/search_memory.h"
#include "planner/space.h"
#include "planner/stage_choice.h"

#include <math.h>
#include <stdlib.h>

/* What is least short of room, as far as even stages with one set for all their layers tell. */
struct nearest {
    const struct search_request *request;
    struct costs_cache *costs; /* of bytes only, which are the same on all devices */
    struct search_row row;
    int64_t short_bytes;
    uint32_t mask;
    bool found;
};

/* Of one set for all layers, the one with the lowest peak: fills the choice with it. */
static int best_option(const struct stages *stages, int64_t stage, struct stage_choice *choice)
{
    int best = 0;
    int64_t least = INT64_MAX;
    for (int i = 0; i <= stages->list[stage].costs->option_count; i++) {
        bool last = i == stages->list[stage].costs->option_count;
        choice->odd = last ? best : i;
        for (int64_t k = 0; k < choice->form.heights[CHUNK_EVEN]; k++)
            choice->options[k] = choice->odd;
        choice->peak_bytes = stage_choice_peak(stages, stage, choice, NULL);
        best = choice->peak_bytes < least ? i : best;
        least = min_i64(least, choice->peak_bytes);
    }
    return best;
}

/* The first stages of their kind keep most, and the last has the head. */
static bool is_telling(const struct stages *stages, int64_t stage)
{
    return stage == 0 || stage == stages->layout.pp - 1 ||
           stages->list[stage].ground != stages->list[stage - 1].ground;
}

/* Of an even share of the layers. */
static struct stage_form even_form(const struct stages *stages, int64_t stage, const int64_t *chunk_layers)
{
    const struct layout *l = &stages->layout;
    struct stage_split split = {.end = -1};
    for (int64_t chunk = stage; chunk < layout_chunks(l); chunk += l->pp)
        split.layers += chunk_layers[chunk];
    if (stages->list[stage].apart)
        split.end = chunk_layers[stage ? layout_chunks(l) - 1 : 0];
    return stages_form(stages, stage, split);
}

/* The stage that is short of most decides. */
static void weigh_stages(struct nearest *n, const struct stages *stages, const struct siting *siting)
{
    int64_t model_layers = n->request->model->layers, chunks = layout_chunks(&stages->layout);
    int *options = host_alloc((size_t)model_layers * sizeof *options);
    int64_t *chunk_layers = host_alloc((size_t)chunks * sizeof *chunk_layers);
    struct search_row row = {.layout = stages->layout, .siting = *siting};
    int64_t most_short = INT64_MIN;
    uint32_t mask = 0;
    layout_spread_layers(&stages->layout, model_layers, chunk_layers);
    for (int64_t i = 0; i < stages->layout.pp; i++) {
        if (!is_telling(stages, i))
            continue;
        struct stage_choice choice = {.form = even_form(stages, i, chunk_layers), .options = options};
        int option = best_option(stages, i, &choice);
        if (choice.peak_bytes - stages->list[i].room <= most_short)
            continue;
        most_short = choice.peak_bytes - stages->list[i].room;
        row.peak_bytes = choice.peak_bytes;
        row.bytes = explanation_bytes(stages, i, &choice);
        mask = stages->list[i].costs->options[option].mask;
    }
    if (!n->found || most_short < n->short_bytes) {
        n->row = row;
        n->short_bytes = most_short;
        n->mask = mask;
    }
    n->found = true;
    free(options);
    free(chunk_layers);
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
    if (request->even_nodes && !siting_is_even(request->cluster, siting))
        return true;
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
    stages_open(request->model, w->layout, grounds, LARGER_LAST, &stages);
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

/* With its set in all layers. */
static void spread(const struct nearest *n, struct search_row *row, struct arena *arena)
{
    const struct model *model = n->request->model;
    struct text recompute = {0};
    row->masks = arena_array(arena, (size_t)model->layers, sizeof *row->masks);
    row->chunk_layers = arena_array(arena, (size_t)layout_chunks(&row->layout), sizeof *row->chunk_layers);
    layout_spread_layers(&row->layout, model->layers, row->chunk_layers);
    for (int64_t i = 0; i < model->layers; i++)
        row->masks[i] = n->mask;
    recompute_print(model, row->masks, &recompute);
    row->recompute = explanation_keep(arena, &recompute);
}

/* Its needs as its peak tells them. */
static void weigh_nearest(const struct nearest *n, struct search_row *row)
{
    const struct cluster *cluster = n->request->cluster;
    int64_t ranks = row->layout.dp * row->layout.tp, first = row->bytes.stage * ranks;
    row->group = siting_scarcest(cluster, siting_groups(&row->siting, first, first + ranks),
                                 layout_ranks(&row->layout));
    row->needed_bytes =
        row->peak_bytes +
        prediction_runtime(&cluster->groups[row->group].device, layout_ranks(&row->layout)).bytes;
}

/* Its needs as built. */
static int build_nearest(const struct nearest *n, struct search_row *row, struct error *err)
{
    const struct model *model = n->request->model;
    struct pipeline *pipeline;
    struct program_spec spec = {model, &row->layout, row->masks, row->chunk_layers, 0};
    if (pipeline_create(&spec, &pipeline, err))
        return -1;
    int status = predict_nearest(n->request, pipeline, row, err);
    pipeline_free(pipeline);
    return status;
}

static int find(const struct search_request *request, bool always_built, struct arena *arena,
                struct search_row *out, bool *found, struct error *err)
{
    struct search_memory *own = request->memory ? NULL : search_memory_open(request);
    struct nearest nearest = {.request = request,
                              .costs =
                                  search_memory_costs(own ? own : request->memory, request, request->speeds)};
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
        spread(&nearest, out, arena);
    if (*found && (always_built || nearest.short_bytes <= 0))
        status = build_nearest(&nearest, out, err);
    else if (*found)
        weigh_nearest(&nearest, out);
    search_memory_close(own);
    if (!*found || status)
        return status;
    out->reason = explanation_need(request, out, arena);
    return 0;
}

int nearest_find(const struct search_request *request, struct arena *arena, struct search_row *out,
                 bool *found, struct error *err)
{
    return find(request, true, arena, out, found, err);
}

int nearest_weigh(const struct search_request *request, struct arena *arena, struct search_row *out,
                  bool *found, struct error *err)
{
    return find(request, false, arena, out, found, err);
}
