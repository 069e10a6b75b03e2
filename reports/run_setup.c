#include "reports/run_setup.h"

#include "base/json.h"
#include "model/recompute.h"

#include <stdlib.h>

/* New reference; NULL: there is no such text, or it is no JSON. */
static json_t *parse(const char *text)
{
    return text ? json_loads(text, 0, NULL) : NULL;
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
    json_decref(model);
    json_decref(layout);
}

struct program *run_setup_program(const struct run_setup *setup)
{
    struct program *program = NULL;
    struct layout layout = setup->layout;
    if (!setup->has_model || !setup->recompute || layout_complete(&layout, &setup->model, NULL))
        return NULL;
    uint32_t *masks = host_alloc((size_t)setup->model.layers * sizeof *masks);
    if (recompute_parse(setup->recompute, &setup->model, masks, NULL) ||
        program_create(&setup->model, &layout, masks, &program, NULL))
        program = NULL;
    free(masks);
    return program;
}
