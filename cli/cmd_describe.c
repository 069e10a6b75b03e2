/* memplan describe: every tensor a rank holds. */
#include "base/log.h"
#include "base/units.h"
#include "cli/capacity.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/output.h"
#include "cli/standing.h"
#include "model/parameters.h"
#include "model/presets.h"
#include "planner/prediction.h"
#include "reports/describe.h"

#include <stdio.h>

struct describe_options {
    struct configuration_options configuration;
    const char *device;
    bool json, list, quiet;
};

static const struct option_spec options[] = {
    {"device", 'd', OPTION_TEXT, "D", NULL,
     "cpu, a card such as h100-80g, or cuda for the GPUs here: also whether it holds what is listed",
     offsetof(struct describe_options, device)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout",
     offsetof(struct describe_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct describe_options, quiet)},
    {"list", 0, OPTION_FLAG, NULL, NULL, "the names of all presets", offsetof(struct describe_options, list)},
    CONFIGURATION_MODEL_OPTIONS(struct describe_options, configuration),
    CONFIGURATION_LAYOUT_OPTIONS(struct describe_options, configuration),
    {0},
};

static const struct command_spec spec = {
    .name = "describe",
    .summary = "every tensor a rank holds: shape, role, bytes",
    .usage = "describe MODEL|PLAN [layout options]",
    .about =
        "Lists parameters, gradients, optimizer states and the activations of one micro-batch, with "
        "exact bytes, as a rank of each pipeline stage holds them. MODEL is a preset, a JSON file, a "
        "Hugging Face config.json, the folder that holds one, or a model's name on the hub (from its cache "
        "or the sizes that memplan knows; nothing is downloaded).",
    .examples = {"memplan describe gpt2-124m --micro-batch 4 --seq-len 256",
                 "memplan describe llama3-8b --precision bf16 --tp 2 --pp 4 --json"},
    .options = options,
    .max_operands = 1,
};

/* A line each: name, parameters, and what the hub calls it. */
static int print_presets(struct error *err)
{
    struct text list = {0};
    for (const char *const *name = model_preset_names(); *name; name++) {
        char count[UNITS_TEXT];
        const struct model *model = presets_find(*name);
        const char *hub = presets_hub_name(*name);
        units_format_rate((double)model_parameters(model), "", count);
        char *billions = strchr(count, 'G');
        if (billions)
            *billions = 'B';
        text_printf(&list, "%-17s %7s%s%s\n", *name, count, hub ? "   " : "", hub ? hub : "");
    }
    int status = fputs(list.data, stdout) < 0 ? error_set(err, "cannot write to stdout") : 0;
    text_free(&list);
    return status;
}

/* What the stage with least left needs of its device; of no device nothing. */
struct holding {
    bool asked;
    struct standing standing;
    struct prediction answer;
};

static int hold(struct plan *plan, const char *device, bool automatic, struct holding *out, struct error *err)
{
    *out = (struct holding){.asked = device != NULL};
    if (automatic && !device)
        return error_set(err,
                         "--recompute auto needs a capacity; give --device, or use it with predict, train or "
                         "profile");
    if (!device)
        return 0;
    if (standing_open(plan, &(struct standing_choice){.device = device}, &out->standing, err))
        return -1;
    return automatic ? capacity_choose_recompute(plan, out->standing.devices, out->standing.pace, err) : 0;
}

static int print(const struct pipeline *pipeline, const struct holding *h, struct error *err)
{
    struct arena *arena = arena_create();
    struct report *report = describe_report(pipeline, arena);
    if (h->asked) {
        report_fact(report, "device", "%s", h->standing.devices[h->answer.stage]->name);
        report_capacity(report, "needed", h->answer.needed_bytes, h->answer.capacity_bytes);
    }
    int status = output_report(report, "-", err);
    arena_free(arena);
    return status;
}

static json_t *to_json(const struct pipeline *pipeline, const struct holding *h)
{
    json_t *out = describe_to_json(pipeline);
    if (h->asked) {
        json_object_set_new(out, "device", json_string(h->standing.devices[h->answer.stage]->name));
        json_object_set_new(out, "needed_bytes", json_integer(h->answer.needed_bytes));
        json_object_set_new(out, "capacity_bytes", json_integer(h->answer.capacity_bytes));
    }
    return out;
}

static int describe(struct plan *plan, const struct describe_options *o, bool automatic, struct error *err)
{
    struct holding holding;
    struct pipeline *pipeline = NULL;
    int status = hold(plan, o->device, automatic, &holding, err) || plan_pipeline(plan, &pipeline, err);
    if (!status && holding.asked)
        status = prediction_make_placed(pipeline, holding.standing.devices, NULL, &holding.answer, err);
    if (!status)
        status =
            o->json ? output_json(to_json(pipeline, &holding), "-", err) : print(pipeline, &holding, err);
    pipeline_free(pipeline);
    if (holding.asked)
        standing_close(&holding.standing);
    return status ? -1 : 0;
}

static int run(int argc, char **argv, struct error *err)
{
    struct describe_options o = {0};
    const char *operands[COMMAND_OPERANDS];
    bool automatic;
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    log_set_quiet(o.quiet);
    if (o.list)
        return print_presets(err);
    if (!operands[0])
        return error_set(err,
                         "describe: name a model or a plan; `memplan describe --list` shows the presets");
    struct plan plan;
    if (configuration_resolve(operands[0], &o.configuration, &plan, &automatic, err))
        return -1;
    int status = describe(&plan, &o, automatic, err);
    plan_clear(&plan);
    return status;
}

const struct command command_describe = {&spec, run};
