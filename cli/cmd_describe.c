/* memplan describe: every tensor a rank holds. */
#include "base/log.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/output.h"
#include "reports/describe.h"

#include <stdio.h>

struct describe_options {
    struct configuration_options configuration;
    bool json, list, quiet;
};

static const struct option_spec options[] = {
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

static int print_presets(struct error *err)
{
    for (const char *const *name = model_preset_names(); *name; name++)
        if (printf("%s\n", *name) < 0)
            return error_set(err, "cannot write to stdout");
    return 0;
}

static int describe(const struct plan *plan, bool json, struct error *err)
{
    struct pipeline *pipeline;
    if (plan_pipeline(plan, &pipeline, err))
        return -1;
    struct arena *arena = arena_create();
    int status = json ? output_json(describe_to_json(pipeline), "-", err)
                      : output_report(describe_report(pipeline, arena), "-", err);
    arena_free(arena);
    pipeline_free(pipeline);
    return status;
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
    int status =
        automatic ? error_set(err, "--recompute auto needs a capacity; use it with predict, train or profile")
                  : describe(&plan, o.json, err);
    plan_clear(&plan);
    return status;
}

const struct command command_describe = {&spec, run};
