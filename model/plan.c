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

/* One stage in this version: all layers. */
static int read_stages(const json_t *object, const char *where, struct plan *plan, struct error *err)
{
    json_t *stages;
    if (jsonfile_array(object, "stages", where, &stages, err))
        return -1;
    if (json_array_size(stages) != 1)
        return error_set(err, "%s: %zu pipeline stages; this version runs plans of 1 stage", where,
                         json_array_size(stages));
    const json_t *stage = json_array_get(stages, 0);
    if (!json_is_object(stage))
        return error_set(err, "%s: stages[0] is not an object; it needs {\"recompute\": ...}", where);
    int64_t first = 0, layers = plan->model.layers;
    const char *recompute = "none";
    if (jsonfile_int_optional(stage, "first_layer", where, &first, err) ||
        jsonfile_int_optional(stage, "layers", where, &layers, err) ||
        jsonfile_text_optional(stage, "recompute", where, &recompute, err))
        return -1;
    if (first != 0 || layers != plan->model.layers)
        return error_set(
            err, "%s: stage 0 has %lld layers from layer %lld on, but a plan of 1 stage has all %lld from 0",
            where, (long long)layers, (long long)first, (long long)plan->model.layers);
    plan->recompute = host_alloc((size_t)plan->model.layers * sizeof *plan->recompute);
    if (recompute_parse(recompute, &plan->model, plan->recompute, err))
        return error_prefix(err, "%s", where);
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

json_t *plan_to_json(const struct plan *plan, const struct program *program)
{
    struct text recompute = {0};
    recompute_print(&plan->model, plan->recompute, &recompute);
    json_t *stage =
        json_pack("{s:i, s:i, s:I, s:s}", "stage", 0, "first_layer", 0, "layers",
                  (json_int_t)plan->model.layers, "recompute", recompute.data ? recompute.data : "none");
    text_free(&recompute);
    json_t *predicted =
        json_pack("{s:I, s:I, s:f}", "peak_bytes", (json_int_t)program->peak_bytes, "arena_bytes",
                  (json_int_t)program->arena_bytes, "step_seconds", plan->step_seconds);
    return json_pack("{s:i, s:o, s:o, s:o, s:s, s:[o], s:o, s:I, s:o}", "memplan_plan", PLAN_VERSION,
                     "made_by", jsonfile_string(plan->made_by), "model", model_to_json(&plan->model),
                     "layout", layout_to_json(&plan->layout), "schedule", "1f1b", "stages", stage, "device",
                     jsonfile_string(plan->device), "capacity_bytes", (json_int_t)plan->capacity_bytes,
                     "predicted", predicted);
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

int plan_program(const struct plan *plan, struct program **out, struct error *err)
{
    struct program_spec spec = spec_of(plan);
    return program_create_stage(&spec, out, err);
}
