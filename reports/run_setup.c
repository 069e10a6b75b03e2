#include "reports/run_setup.h"

#include "model/recompute.h"
#include "reports/stage_table.h"

#include <stdlib.h>

json_t *run_setup_layout(const struct pipeline *pipeline)
{
    const struct program *first = pipeline->stages[0];
    struct text recompute = {0};
    json_t *layout = layout_to_json(&first->layout);
    recompute_print(&first->model, first->recompute, &recompute);
    json_object_set_new(layout, "recompute", json_string(recompute.data));
    text_free(&recompute);
    if (pipeline->count == 1)
        return layout;
    struct arena *arena = arena_create();
    const int64_t *layers = stage_table_chunk_layers(pipeline, arena);
    json_t *list = json_array();
    for (int64_t i = 0; i < layout_chunks(&first->layout); i++)
        json_array_append_new(list, json_integer(layers[i]));
    json_object_set_new(layout, "stages", list);
    arena_free(arena);
    return layout;
}

/* New reference; NULL: there is no such text, or it is no JSON. */
static json_t *parse(const char *text)
{
    return text ? json_loads(text, 0, NULL) : NULL;
}

/* NULL: the list is missing, or does not share out the model's layers. */
static const int64_t *read_chunk_layers(const json_t *layout, const struct run_setup *setup,
                                        struct arena *arena)
{
    const json_t *list = json_object_get(layout, "stages");
    int64_t count = layout_chunks(&setup->layout), left = setup->model.layers;
    if (!list || (int64_t)json_array_size(list) != count)
        return NULL;
    int64_t *layers = arena_array(arena, (size_t)count, sizeof *layers);
    for (int64_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(list, (size_t)i);
        layers[i] = json_integer_value(entry);
        if (!json_is_integer(entry) || layers[i] < layout_least_layers(&setup->layout, &setup->model, i) ||
            layers[i] > left)
            return NULL;
        left -= layers[i];
    }
    return left == 0 ? layers : NULL;
}

void run_setup_read(const struct store_run *run, struct arena *arena, struct run_setup *out)
{
    json_t *model = parse(run->model_json), *layout = parse(run->layout_json);
    const char *recompute = NULL;
    *out = (struct run_setup){0};
    out->has_model = model && model_from_json(model, "model", &out->model, NULL) == 0;
    out->has_layout = layout && layout_from_json(layout, "layout", &out->layout, NULL) == 0;
    if (out->has_layout)
        jsonfile_text_optional(layout, "recompute", "layout", &recompute, NULL);
    out->recompute = recompute ? arena_strdup(arena, recompute) : NULL;
    if (out->has_model && out->has_layout && layout_complete(&out->layout, &out->model, NULL) == 0)
        out->chunk_layers = read_chunk_layers(layout, out, arena);
    json_decref(model);
    json_decref(layout);
}

struct pipeline *run_setup_pipeline(const struct run_setup *setup)
{
    struct pipeline *pipeline = NULL;
    struct layout layout = setup->layout;
    if (!setup->has_model || !setup->recompute || layout_complete(&layout, &setup->model, NULL))
        return NULL;
    uint32_t *masks = host_alloc((size_t)setup->model.layers * sizeof *masks);
    struct program_spec spec = {
        .model = &setup->model, .layout = &layout, .recompute = masks, .chunk_layers = setup->chunk_layers};
    if (recompute_parse(setup->recompute, &setup->model, masks, NULL) ||
        pipeline_create(&spec, &pipeline, NULL))
        pipeline = NULL;
    free(masks);
    return pipeline;
}
