/* memplan report: the breakdown of a recorded run or of a plan. */
#include "base/log.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/output.h"
#include "reports/breakdown.h"

#include <string.h>

struct report_options {
    const char *output;
    int64_t run, rank;
    bool json, quiet;
};

static const struct option_spec options[] = {
    {"output", 'o', OPTION_TEXT, "FILE", NULL,
     "write there; .json gives JSON, .txt text; default text on stdout",
     offsetof(struct report_options, output)},
    {"run", 0, OPTION_POSITIVE, "ID", NULL, "which run of the database; default the latest",
     offsetof(struct report_options, run)},
    {"rank", 0, OPTION_COUNT, "N", NULL, "which rank; default the one with the highest peak",
     offsetof(struct report_options, rank)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout",
     offsetof(struct report_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct report_options, quiet)},
    {0},
};

static const struct command_spec spec = {
    .name = "report",
    .summary = "who holds the bytes, from a recorded run or a plan",
    .usage = "report run.db|plan.json [-o out.json]",
    .about = "Shows the breakdown at the peak of the rank that needs most, by role, layer and tensor; what "
             "makes that peak; the other ranks and pipeline stages beside it; predicted beside measured; and "
             "how fast the steps were.",
    .examples = {"memplan report run.db", "memplan report plan.json -o plan-report.json"},
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
};

enum format { FORMAT_TEXT, FORMAT_JSON };

static int choose_format(const struct report_options *o, enum format *format, struct error *err)
{
    *format = o->json ? FORMAT_JSON : FORMAT_TEXT;
    if (!o->output || !strcmp(o->output, "-"))
        return 0;
    const char *dot = strrchr(o->output, '.');
    if (dot && !strcmp(dot, ".json"))
        *format = FORMAT_JSON;
    else if (!dot || strcmp(dot, ".txt"))
        return error_set(err, "-o %s: this version writes .txt and .json; choose one of these names",
                         o->output);
    return 0;
}

static int write_answer(const struct breakdown *breakdown, const struct report_options *o,
                        struct arena *arena, struct error *err)
{
    enum format format;
    if (choose_format(o, &format, err))
        return -1;
    const char *path = o->output ? o->output : "-";
    return format == FORMAT_JSON ? output_json(breakdown_to_json(breakdown), path, err)
                                 : output_report(breakdown_report(breakdown, arena), path, err);
}

static int report_plan(const char *path, const struct report_options *o, struct error *err)
{
    struct plan plan;
    struct pipeline *pipeline;
    if (plan_read(path, &plan, err))
        return -1;
    int status = plan_pipeline(&plan, &pipeline, err);
    if (!status) {
        struct arena *arena = arena_create();
        struct breakdown breakdown = breakdown_of_pipeline(pipeline, plan.device, plan.capacity_bytes, arena);
        status = write_answer(&breakdown, o, arena, err);
        arena_free(arena);
        pipeline_free(pipeline);
    }
    plan_clear(&plan);
    return status;
}

static int report_run(const char *path, const struct report_options *o, struct error *err)
{
    struct store *store;
    if (store_open_read(path, &store, err))
        return -1;
    struct arena *arena = arena_create();
    struct breakdown breakdown;
    int64_t run_id = o->run;
    int status = run_id ? 0 : store_latest_run(store, &run_id, err);
    if (!status)
        status = breakdown_of_run(store, run_id, o->rank, arena, &breakdown, err);
    if (!status)
        status = write_answer(&breakdown, o, arena, err);
    arena_free(arena);
    store_close(store);
    return status;
}

static int run(int argc, char **argv, struct error *err)
{
    struct report_options o = {.rank = -1};
    const char *operands[COMMAND_OPERANDS];
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    log_set_quiet(o.quiet);
    return configuration_is_plan(operands[0]) ? report_plan(operands[0], &o, err)
                                              : report_run(operands[0], &o, err);
}

const struct command command_report = {&spec, run};
