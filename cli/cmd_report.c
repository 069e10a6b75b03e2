/* memplan report: what a recorded run or a plan shows, as text, a page, a picture, tables or a trace. */
#include "base/log.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/foretell.h"
#include "cli/output.h"
#include "cli/standing.h"
#include "planner/prediction.h"
#include "reports/document.h"
#include "reports/writers.h"

#include <string.h>

struct report_options {
    const char *output, *calibration;
    int64_t run, rank, step;
    bool json, quiet;
};

static const struct option_spec options[] = {
    {"output", 'o', OPTION_TEXT, "FILE", NULL,
     "write there: .html, .svg, .csv, .trace.json, .json or .txt; default text on stdout",
     offsetof(struct report_options, output)},
    {"run", 0, OPTION_POSITIVE, "ID", NULL, "which run of the database; default the latest",
     offsetof(struct report_options, run)},
    {"rank", 0, OPTION_COUNT, "N", NULL, "which rank; default the one with the highest peak",
     offsetof(struct report_options, rank)},
    {"step", 0, OPTION_POSITIVE, "N", NULL,
     "which step the timeline shows, counted from 1; default the last that was recorded",
     offsetof(struct report_options, step)},
    {"calibration", 0, OPTION_TEXT, "FILE", NULL,
     "calibration.json or run.db: measured times for the timeline of a plan",
     offsetof(struct report_options, calibration)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout",
     offsetof(struct report_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct report_options, quiet)},
    {0},
};

static const struct command_spec spec = {
    .name = "report",
    .summary = "who holds the bytes, from a recorded run or a plan",
    .usage = "report run.db|plan.json [-o report.html]",
    .about = "Shows memory over time and the breakdown at the peak of the rank that needs most, by role, "
             "layer and tensor; what "
             "makes that peak; the other ranks and pipeline stages beside it; predicted beside measured; and "
             "how fast the steps were.",
    .examples = {"memplan report run.db", "memplan report run.db -o report.html"},
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
};

/* A plan.json, or what `plan --json` answered: the plan with the configurations it was chosen from. */
static int read_plan(const char *path, struct plan *plan, json_t **document, struct error *err)
{
    if (jsonfile_read(path, document, err))
        return -1;
    const json_t *inner = json_object_get(*document, "plan");
    if (!json_is_object(inner) && json_object_get(*document, "alternatives")) {
        json_decref(*document);
        return error_set(err, "%s: holds no plan, because nothing fitted; plan again with more memory", path);
    }
    int status = plan_from_json(inner ? inner : *document, path, plan, err);
    if (status)
        json_decref(*document);
    return status;
}

/* A plan as it was read, and what it is read with. */
struct planned {
    const char *path, *calibration;
    struct plan plan;
    struct pipeline *pipeline;
    json_t *json;
};

/* Adds what the devices of the plan's ranks are, and take for themselves. */
static int add_devices(const struct planned *p, struct arena *arena, struct document_plan *out,
                       struct error *err)
{
    struct standing standing;
    const struct layout *layout = &p->plan.layout;
    if (!standing_is_known(&p->plan))
        return 0;
    int status = standing_open(&p->plan, &(struct standing_choice){0}, &standing, err);
    if (!status) {
        const struct rank_device *worst = standing.devices[pipeline_worst(p->pipeline)];
        out->stage_devices = standing_names(&standing, layout, arena);
        out->room.runtime_bytes = prediction_runtime(worst, layout_ranks(layout)).bytes;
    }
    standing_close(&standing);
    return status;
}

static int write_plan(const struct planned *p, const struct output_choice *answer, struct arena *arena,
                      struct error *err)
{
    struct candidates *candidates;
    struct timeline *timeline = NULL;
    struct document document;
    const struct document_needs *needs = &answer->writer->needs;
    if (candidates_from_json(p->json, p->path, p->plan.capacity_bytes, arena, &candidates, err) ||
        (needs->pictures && foretell_timeline(&p->plan, p->pipeline, p->calibration, arena, &timeline, err)))
        return -1;
    struct document_plan plan = {.pipeline = p->pipeline,
                                 .device = p->plan.device,
                                 .room = {.capacity_bytes = p->plan.capacity_bytes},
                                 .candidates = candidates,
                                 .timeline = timeline};
    if (add_devices(p, arena, &plan, err))
        return -1;
    document_of_plan(&plan, needs, arena, &document);
    return output_document(&document, answer, err);
}

static int report_plan(const char *path, const char *calibration, const struct output_choice *answer,
                       struct error *err)
{
    struct planned planned = {.path = path, .calibration = calibration};
    if (read_plan(path, &planned.plan, &planned.json, err))
        return -1;
    int status = plan_pipeline(&planned.plan, &planned.pipeline, err);
    if (!status) {
        struct arena *arena = arena_create();
        status = write_plan(&planned, answer, arena, err);
        arena_free(arena);
        pipeline_free(planned.pipeline);
    }
    plan_clear(&planned.plan);
    json_decref(planned.json);
    return status;
}

/* Of one moment, even while the run goes on. */
static int report_run(const char *path, const struct report_options *o, const struct output_choice *answer,
                      struct error *err)
{
    struct store *store;
    if (store_open_read(path, &store, err))
        return -1;
    struct arena *arena = arena_create();
    struct document document;
    int64_t run_id = o->run;
    struct document_needs needs = answer->writer->needs;
    needs.progress = progress_count;
    int status = store_freeze(store, err);
    if (!status && !run_id)
        status = store_latest_run(store, &run_id, err);
    if (!status)
        status = document_of_run(store, run_id, o->rank, (int)o->step, &needs, arena, &document, err);
    if (!status)
        status = output_document(&document, answer, err);
    arena_free(arena);
    store_close(store);
    return status;
}

static const struct report_options unchosen = {.rank = -1, .step = SPANS_LAST_STEP};

/* The step is that of the timeline, which text and JSON leave out, and a trace has of all steps. */
static int check_step(const struct report_options *o, const struct output_choice *answer, struct error *err)
{
    const struct document_needs *needs = &answer->writer->needs;
    if (o->step == unchosen.step || (needs->pictures && !needs->all_steps))
        return 0;
    if (needs->all_steps)
        return error_set(err, "--step %lld: a trace has all steps; leave it out", (long long)o->step);
    return error_set(err,
                     "--step %lld picks the step of the timeline, and %s has none; leave it out, or write "
                     "-o report.html, .svg or .csv",
                     (long long)o->step, answer->writer->what);
}

/* An option that would change nothing is a misunderstanding. */
static int check_options(const char *path, const struct report_options *o, bool of_plan,
                         const struct output_choice *answer, struct error *err)
{
    const char *unused = o->run != unchosen.run     ? "--run"
                         : o->rank != unchosen.rank ? "--rank"
                         : o->step != unchosen.step ? "--step"
                                                    : NULL;
    if (of_plan && unused)
        return error_set(err, "%s picks a part of a recording, and %s is a plan; leave it out", unused, path);
    if (!of_plan && o->calibration)
        return error_set(
            err, "--calibration %s: %s is a recording, whose times were measured, and no plan; leave it out",
            o->calibration, path);
    return check_step(o, answer, err);
}

static int run(int argc, char **argv, struct error *err)
{
    struct report_options o = unchosen;
    struct output_choice answer;
    const char *operands[COMMAND_OPERANDS];
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    log_set_quiet(o.quiet);
    if (output_choose(o.output, o.json, &answer, err))
        return -1;
    bool of_plan = configuration_is_plan(operands[0]);
    if (check_options(operands[0], &o, of_plan, &answer, err))
        return -1;
    return of_plan ? report_plan(operands[0], o.calibration, &answer, err)
                   : report_run(operands[0], &o, &answer, err);
}

const struct command command_report = {&spec, run};
