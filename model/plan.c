#include "model/plan.h"

#include "base/arena.h"
#include "base/text.h"
#include "model/recompute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void plan_clear(struct plan *plan)
{
    free(plan->recompute);
    free(plan->chunk_layers);
    plan->recompute = NULL;
    plan->chunk_layers = NULL;
}

static int check_version(const json_t *object, const char *where, struct error *err)
{
    int64_t version;
    if (!json_object_get(object, "memplan_plan"))
        return error_set(
            err,
            "%s: not a plan: it has no \"memplan_plan\"; `memplan plan MODEL ... -o plan.json` makes one",
            where);
    if (jsonfile_int(object, "memplan_plan", where, &version, err))
        return -1;
    if (version < 1)
        return error_set(err, "%s: plan version %lld does not exist; versions begin at 1", where,
                         (long long)version);
    if (version > PLAN_VERSION)
        return error_set(
            err,
            "%s: made by a newer memplan (plan version %lld, this one reads up to %d); update memplan, "
            "or make the plan again with this one",
            where, (long long)version, PLAN_VERSION);
    return 0;
}

/* ---- stages: one entry per chunk of the pipeline, in its order ---- */

/* Layers `first` .. `first + layers - 1`, which are chunk `number` of the pipeline. */
struct stretch {
    int64_t number, first, layers;
};

/* An entry may say where it stands; then that must be where it does. */
static int check_place(const json_t *entry, const char *where, const struct stretch *stretch,
                       const struct layout *layout, struct error *err)
{
    const int64_t stage = stretch->number % layout->pp, chunk = stretch->number / layout->pp;
    int64_t said_stage = stage, said_chunk = chunk, said_first = stretch->first;
    if (jsonfile_int_optional(entry, "stage", where, &said_stage, err) ||
        jsonfile_int_optional(entry, "chunk", where, &said_chunk, err) ||
        jsonfile_int_optional(entry, "first_layer", where, &said_first, err))
        return -1;
    if (said_stage != stage || said_chunk != chunk)
        return error_set(err, "%s is stage %lld, chunk %lld, but in its place comes stage %lld, chunk %lld",
                         where, (long long)said_stage, (long long)said_chunk, (long long)stage,
                         (long long)chunk);
    if (said_first != stretch->first)
        return error_set(err, "%s begins with layer %lld, but its layers follow those before: %lld", where,
                         (long long)said_first, (long long)stretch->first);
    return 0;
}

/* The layers of one entry; *stretch holds the even split's and becomes the entry's own. */
static int read_stretch(const json_t *entry, const char *where, const struct plan *plan,
                        struct stretch *stretch, struct error *err)
{
    int64_t left = plan->model.layers - stretch->first;
    if (check_place(entry, where, stretch, &plan->layout, err) ||
        jsonfile_int_optional(entry, "layers", where, &stretch->layers, err))
        return -1;
    int64_t least = layout_least_layers(&plan->layout, &plan->model, stretch->number);
    if (stretch->layers < least)
        return error_set(err, "%s has %lld layers, and needs %lld at least; %s", where,
                         (long long)stretch->layers, (long long)least,
                         plan->model.family == MODEL_ENCODER || plan->layout.pp == 1
                             ? "every stage has layers"
                             : "only the embedding and the head may stand alone");
    bool last = stretch->number == layout_chunks(&plan->layout) - 1;
    if (stretch->layers > left || (last && stretch->layers < left))
        return error_set(err,
                         "%s has %lld layers from layer %lld on, where %lld are left; all stages together "
                         "must have the %lld of %s",
                         where, (long long)stretch->layers, (long long)stretch->first, (long long)left,
                         (long long)plan->model.layers, plan->model.name);
    return 0;
}

/* Fills the masks of the entry's own layers; a text that drops something of others is refused. */
static int read_recompute(const json_t *entry, const char *where, const struct stretch *stretch,
                          struct plan *plan, struct error *err)
{
    const char *text = "none";
    const struct model *model = &plan->model;
    if (jsonfile_text_optional(entry, "recompute", where, &text, err))
        return -1;
    uint32_t *masks = host_alloc((size_t)model->layers * sizeof *masks);
    int status = recompute_parse(text, model, masks, err);
    if (status)
        error_prefix(err, "%s", where);
    for (int64_t layer = 0; !status && layer < model->layers; layer++) {
        bool own = layer >= stretch->first && layer < stretch->first + stretch->layers;
        if (own)
            plan->recompute[layer] = masks[layer];
        else if (strchr(text, '=') && masks[layer])
            status =
                error_set(err, "%s: recompute \"%s\" names layer %lld, but its layers go from %lld to %lld",
                          where, text, (long long)layer, (long long)stretch->first,
                          (long long)(stretch->first + stretch->layers - 1));
    }
    free(masks);
    return status;
}

static int read_stage(const json_t *entry, const char *file, struct stretch *stretch, struct plan *plan,
                      struct error *err)
{
    char where[256];
    snprintf(where, sizeof where, "%s: stages[%lld]", file, (long long)stretch->number);
    if (!json_is_object(entry))
        return error_set(err, "%s is not an object; it needs {\"layers\": ..., \"recompute\": ...}", where);
    return read_stretch(entry, where, plan, stretch, err) || read_recompute(entry, where, stretch, plan, err)
               ? -1
               : 0;
}

static int read_stages(const json_t *object, const char *where, struct plan *plan, struct error *err)
{
    json_t *stages;
    const struct layout *layout = &plan->layout;
    int64_t chunks = layout_chunks(layout);
    if (jsonfile_array(object, "stages", where, &stages, err))
        return -1;
    if ((int64_t)json_array_size(stages) != chunks)
        return error_set(
            err,
            "%s: %zu entries in \"stages\", but pp %lld with virtual_stages %lld cuts the layers into %lld",
            where, json_array_size(stages), (long long)layout->pp, (long long)layout->virtual_stages,
            (long long)chunks);
    plan->recompute = host_alloc((size_t)plan->model.layers * sizeof *plan->recompute);
    plan->chunk_layers = host_alloc((size_t)chunks * sizeof *plan->chunk_layers);
    layout_spread_layers(layout, plan->model.layers, plan->chunk_layers);
    struct stretch stretch = {0};
    for (; stretch.number < chunks; stretch.number++) {
        stretch.layers = plan->chunk_layers[stretch.number];
        if (read_stage(json_array_get(stages, (size_t)stretch.number), where, &stretch, plan, err))
            return -1;
        plan->chunk_layers[stretch.number] = stretch.layers;
        stretch.first += stretch.layers;
    }
    return 0;
}

static int read_predicted(const json_t *object, const char *where, struct plan *plan, struct error *err)
{
    json_t *predicted;
    if (!json_object_get(object, "predicted"))
        return 0;
    if (jsonfile_object(object, "predicted", where, &predicted, err))
        return -1;
    return jsonfile_real_optional(predicted, "step_seconds", where, &plan->step_seconds, err);
}

/* ---- nodes that are alike ---- */

/* Far above any cluster, so that products of them fit 63 bits. */
enum { MOST_NODES = 1 << 20, MOST_RANKS = 1 << 30 };

static int read_nodes(const json_t *object, const char *where, struct plan *plan, struct error *err)
{
    if (jsonfile_int_optional(object, "ranks_per_node", where, &plan->ranks_per_node, err) ||
        jsonfile_real_optional(object, "net_bytes_per_s", where, &plan->net_bytes_per_s, err))
        return -1;
    if (plan->ranks_per_node < 0 || plan->ranks_per_node > MOST_NODES)
        return error_set(err, "%s: ranks_per_node is %lld; a node has 1 to %d, and left out it is not said",
                         where, (long long)plan->ranks_per_node, MOST_NODES);
    if (!(plan->net_bytes_per_s >= 0))
        return error_set(err,
                         "%s: net_bytes_per_s is %g; a network has a rate above 0, and left out it is "
                         "not said",
                         where, plan->net_bytes_per_s);
    return 0;
}

/* ---- groups: on which nodes the ranks are, where they differ ---- */

static int read_group(const json_t *entry, const char *where, struct plan_group *out, struct error *err)
{
    const char *device;
    struct plan_group group = {.nodes = 1};
    if (jsonfile_text(entry, "device", where, &device, err) ||
        jsonfile_int(entry, "capacity_bytes", where, &group.capacity_bytes, err) ||
        jsonfile_int_optional(entry, "nodes", where, &group.nodes, err) ||
        jsonfile_int(entry, "ranks_per_node", where, &group.ranks_per_node, err) ||
        jsonfile_int(entry, "ranks", where, &group.ranks, err) ||
        jsonfile_real(entry, "net_bytes_per_s", where, &group.net_bytes_per_s, err))
        return -1;
    if (strlen(device) >= sizeof group.device)
        return error_set(err, "%s: device \"%.20s...\" is longer than any device's name", where, device);
    if (group.capacity_bytes < 1 || group.nodes < 1 || group.ranks_per_node < 1 || group.ranks < 1 ||
        group.nodes > MOST_NODES || group.ranks_per_node > MOST_NODES || group.ranks > MOST_RANKS ||
        !(group.net_bytes_per_s > 0))
        return error_set(
            err,
            "%s has a number that no nodes have; a group is 1 to %d nodes with 1 to %d ranks each, "
            "of which 1 to %d are used, with a capacity and a network above 0",
            where, MOST_NODES, MOST_NODES, MOST_RANKS);
    snprintf(group.device, sizeof group.device, "%s", device);
    *out = group;
    return 0;
}

static int read_groups(const json_t *object, const char *where, struct plan *plan, struct error *err)
{
    json_t *groups;
    if (!json_object_get(object, "groups"))
        return 0;
    if (jsonfile_array(object, "groups", where, &groups, err))
        return -1;
    if (json_array_size(groups) > PLAN_GROUPS)
        return error_set(err, "%s: %zu entries in \"groups\"; a plan has %d at most", where,
                         json_array_size(groups), PLAN_GROUPS);
    for (; plan->group_count < (int)json_array_size(groups); plan->group_count++) {
        char place[256];
        snprintf(place, sizeof place, "%s: groups[%d]", where, plan->group_count);
        if (read_group(json_array_get(groups, (size_t)plan->group_count), place,
                       &plan->groups[plan->group_count], err))
            return -1;
    }
    return 0;
}

static json_t *groups_to_json(const struct plan *plan)
{
    json_t *out = json_array();
    for (int i = 0; i < plan->group_count; i++) {
        const struct plan_group *g = &plan->groups[i];
        json_array_append_new(out, json_pack("{s:s, s:I, s:I, s:I, s:f, s:I}", "device", g->device,
                                             "capacity_bytes", (json_int_t)g->capacity_bytes, "nodes",
                                             (json_int_t)g->nodes, "ranks_per_node",
                                             (json_int_t)g->ranks_per_node, "net_bytes_per_s",
                                             g->net_bytes_per_s, "ranks", (json_int_t)g->ranks));
    }
    return out;
}

int plan_from_json(const json_t *object, const char *where, struct plan *out, struct error *err)
{
    struct plan plan = {.capacity_bytes = INT64_MAX, .device = "cpu"};
    const char *device = "cpu", *made_by = "";
    json_t *model, *layout;
    if (check_version(object, where, err) || jsonfile_object(object, "model", where, &model, err) ||
        jsonfile_object(object, "layout", where, &layout, err) ||
        model_from_json(model, where, &plan.model, err) ||
        layout_from_json(layout, where, &plan.layout, err) ||
        jsonfile_text_optional(object, "device", where, &device, err) ||
        jsonfile_text_optional(object, "made_by", where, &made_by, err) ||
        jsonfile_int_optional(object, "capacity_bytes", where, &plan.capacity_bytes, err) ||
        read_nodes(object, where, &plan, err) || read_groups(object, where, &plan, err) ||
        read_predicted(object, where, &plan, err))
        return -1;
    if (plan.capacity_bytes < 1)
        return error_set(err, "%s: capacity_bytes is %lld; leave it out for no limit", where,
                         (long long)plan.capacity_bytes);
    if (strlen(device) >= sizeof plan.device)
        return error_set(err, "%s: device \"%.20s...\" is longer than any device's name", where, device);
    if (layout_complete(&plan.layout, &plan.model, err))
        return error_prefix(err, "%s", where);
    snprintf(plan.device, sizeof plan.device, "%s", device);
    snprintf(plan.made_by, sizeof plan.made_by, "%s", made_by);
    if (read_stages(object, where, &plan, err)) {
        plan_clear(&plan);
        return -1;
    }
    *out = plan;
    return 0;
}

int plan_read(const char *path, struct plan *out, struct error *err)
{
    json_t *object;
    if (jsonfile_read(path, &object, err))
        return -1;
    int status = plan_from_json(object, path, out, err);
    json_decref(object);
    return status;
}

/* The recomputation of some layers, numbered as those of the model. */
static json_t *recompute_to_json(const struct plan *plan, const struct stretch *stretch)
{
    const uint32_t *own = plan->recompute + stretch->first;
    struct text text = {0};
    bool uniform = true;
    for (int64_t i = 1; i < stretch->layers; i++)
        uniform = uniform && own[i] == own[0];
    if (!stretch->layers)
        return json_string("none");
    if (uniform) {
        recompute_print_set(&plan->model, own[0], &text);
    } else {
        uint32_t *masks = host_alloc((size_t)plan->model.layers * sizeof *masks);
        memcpy(masks + stretch->first, own, (size_t)stretch->layers * sizeof *masks);
        recompute_print(&plan->model, masks, &text);
        free(masks);
    }
    json_t *out = json_string(text.data);
    text_free(&text);
    return out;
}

static json_t *stages_to_json(const struct plan *plan)
{
    const struct layout *layout = &plan->layout;
    int64_t chunks = layout_chunks(layout);
    int64_t *layers = host_alloc((size_t)chunks * sizeof *layers);
    if (plan->chunk_layers)
        memcpy(layers, plan->chunk_layers, (size_t)chunks * sizeof *layers);
    else
        layout_spread_layers(layout, plan->model.layers, layers);
    json_t *out = json_array();
    for (struct stretch stretch = {0}; stretch.number < chunks;
         stretch.first += stretch.layers, stretch.number++) {
        stretch.layers = layers[stretch.number];
        json_t *entry = json_pack("{s:I}", "stage", (json_int_t)(stretch.number % layout->pp));
        if (layout->virtual_stages > 1)
            json_object_set_new(entry, "chunk", json_integer(stretch.number / layout->pp));
        json_object_set_new(entry, "first_layer", json_integer(stretch.first));
        json_object_set_new(entry, "layers", json_integer(stretch.layers));
        json_object_set_new(entry, "recompute", recompute_to_json(plan, &stretch));
        json_array_append_new(out, entry);
    }
    free(layers);
    return out;
}

static json_t *predicted_to_json(const struct plan *plan, const struct pipeline *pipeline)
{
    const struct program *worst = pipeline->stages[pipeline_worst(pipeline)];
    json_t *stages = json_array();
    for (int i = 0; i < pipeline->count; i++) {
        const struct program *stage = pipeline->stages[i];
        json_array_append_new(stages, json_pack("{s:i, s:I, s:I}", "stage", i, "peak_bytes",
                                                (json_int_t)stage->peak_bytes, "arena_bytes",
                                                (json_int_t)stage->arena_bytes));
    }
    return json_pack("{s:I, s:I, s:f, s:o}", "peak_bytes", (json_int_t)worst->peak_bytes, "arena_bytes",
                     (json_int_t)worst->arena_bytes, "step_seconds", plan->step_seconds, "stages", stages);
}

json_t *plan_to_json(const struct plan *plan, const struct pipeline *pipeline)
{
    json_t *out = json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "memplan_plan", PLAN_VERSION,
                            "made_by", jsonfile_string(plan->made_by), "model", model_to_json(&plan->model),
                            "layout", layout_to_json(&plan->layout), "stages", stages_to_json(plan), "device",
                            jsonfile_string(plan->device), "capacity_bytes", (json_int_t)plan->capacity_bytes,
                            "predicted", predicted_to_json(plan, pipeline));
    if (plan->ranks_per_node)
        json_object_set_new(out, "ranks_per_node", json_integer(plan->ranks_per_node));
    if (plan->net_bytes_per_s > 0)
        json_object_set_new(out, "net_bytes_per_s", json_real(plan->net_bytes_per_s));
    if (plan->group_count)
        json_object_set_new(out, "groups", groups_to_json(plan));
    return out;
}

static struct program_spec spec_of(const struct plan *plan)
{
    return (struct program_spec){
        .model = &plan->model,
        .layout = &plan->layout,
        .recompute = plan->recompute,
        .chunk_layers = plan->chunk_layers,
    };
}

int plan_pipeline(const struct plan *plan, struct pipeline **out, struct error *err)
{
    struct program_spec spec = spec_of(plan);
    return pipeline_create(&spec, out, err);
}
