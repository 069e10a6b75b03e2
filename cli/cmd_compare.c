/* memplan compare: a plan against a run, or two plans or two runs side by side. */
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/output.h"
#include "cli/planned_pair.h"
#include "reports/compare.h"

#include <inttypes.h>
#include <stdio.h>

struct compare_options {
    const char *output;
    int64_t run, before, drift;
    bool json, quiet;
};

static const struct option_spec options[] = {
    {"output", 'o', OPTION_TEXT, "FILE", NULL,
     "write there: .html, .svg, .csv, .json or .txt; default text on stdout",
     offsetof(struct compare_options, output)},
    {"run", 0, OPTION_POSITIVE, "ID", NULL, "which run of the last database; default the latest",
     offsetof(struct compare_options, run)},
    {"before", 0, OPTION_POSITIVE, "ID", NULL, "which run of the first database; default the latest",
     offsetof(struct compare_options, before)},
    {"drift", 0, OPTION_BYTES, "BYTES", NULL,
     "plan against run: exit 1 when a figure differs by more; default 0",
     offsetof(struct compare_options, drift)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout",
     offsetof(struct compare_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct compare_options, quiet)},
    {0},
};

static const struct command_spec spec = {
    .name = "compare",
    .summary = "plan against run, or two plans or two runs, to the byte",
    .usage = "compare PLAN.JSON|RUN.DB PLAN.JSON|RUN.DB",
    .about = "Sets what was predicted beside what the device's ledger measured, by rank and role; or two "
             "plans side by side, with layout, memory and the parts of a step; or two runs, "
             "with the layers and tensors that changed; where their layouts differ, ranks that do the same, "
             "or hold "
             "most, stand beside each other. A plan and its run differ by 0 bytes; else the exit "
             "status is 1.",
    .examples = {"memplan compare plan.json run.db", "memplan compare before.json after.json"},
    .options = options,
    .min_operands = 2,
    .max_operands = 2,
};

/* A run of a recording that is open. */
struct opened {
    struct store *store;
    int64_t run_id;
};

static int open_run(const char *path, int64_t wanted, struct opened *out, struct error *err)
{
    if (store_open_read(path, &out->store, err))
        return -1;
    out->run_id = wanted;
    if (wanted || !store_latest_run(out->store, &out->run_id, err))
        return 0;
    store_close(out->store);
    return -1;
}

static int with_plan(const char *path, const struct opened *run, struct arena *arena, struct comparison *out,
                     struct pipeline **pipeline, struct error *err)
{
    struct plan plan;
    if (plan_read(path, &plan, err))
        return -1;
    int status = plan_pipeline(&plan, pipeline, err);
    plan_clear(&plan);
    return status ? -1 : compare_plan_with_run(*pipeline, run->store, run->run_id, arena, out, err);
}

/* "run.db", and which run of it where there are several. */
static int name_run(const char *const paths[2], int which, const struct opened *run, struct arena *arena,
                    const char **out, struct error *err)
{
    struct store_run *runs;
    int64_t count;
    bool is_same = file_is_same(paths[0], paths[1]);
    const char *name = is_same ? text_base_name(paths[which]) : text_name_apart(paths, which);
    if (store_read_runs(run->store, arena, &runs, &count, err))
        return -1;
    *out = count > 1 ? arena_printf(arena, "%s (run %" PRId64 ")", name, run->run_id) : name;
    return 0;
}

static int with_run(const char *const paths[2], int64_t wanted, const struct opened *after,
                    struct arena *arena, struct comparison *out, struct error *err)
{
    struct opened before;
    if (open_run(paths[0], wanted, &before, err))
        return -1;
    struct compare_run runs[2] = {{before.store, before.run_id, NULL}, {after->store, after->run_id, NULL}};
    int status = name_run(paths, 0, &before, arena, &runs[0].name, err) ||
                         name_run(paths, 1, after, arena, &runs[1].name, err) ||
                         compare_runs(runs, arena, out, err)
                     ? -1
                     : 0;
    store_close(before.store);
    return status;
}

static int write_comparison(const struct comparison *comparison, const struct output_choice *choice,
                            struct arena *arena, struct error *err)
{
    struct document document;
    document_of_comparison(comparison, arena, &document);
    return output_document(&document, choice, err);
}

/* An option that would change nothing is a misunderstanding. */
static int check_options(const char *const operands[], const struct compare_options *o, int plans,
                         struct error *err)
{
    if (plans == 2 && (o->run || o->before || o->drift))
        return error_set(err, "%s is for a recording, and %s and %s are plans; leave it out",
                         o->run      ? "--run"
                         : o->before ? "--before"
                                     : "--drift",
                         operands[0], operands[1]);
    if (plans == 1 && o->before)
        return error_set(err,
                         "--before %" PRId64
                         " picks a run of the first of two databases, and %s is a plan; use --run",
                         o->before, operands[0]);
    if (!plans && o->drift)
        return error_set(err, "--drift is for a plan against a run, and %s is a recording; leave it out",
                         operands[0]);
    return 0;
}

/* Of a plan, which is first, and a recording, or of two recordings. */
static int compare_run(const char *const operands[], const struct compare_options *o, bool from_plan,
                       const struct output_choice *choice, struct error *err)
{
    struct opened run;
    struct comparison comparison;
    struct pipeline *pipeline = NULL;
    if (open_run(operands[1], o->run, &run, err))
        return -1;
    struct arena *arena = arena_create();
    int status = from_plan ? with_plan(operands[0], &run, arena, &comparison, &pipeline, err)
                           : with_run(operands, o->before, &run, arena, &comparison, err);
    if (!status)
        status = write_comparison(&comparison, choice, arena, err);
    if (!status && !comparison.runs)
        status = comparison.max_error_bytes > o->drift;
    arena_free(arena);
    pipeline_free(pipeline);
    store_close(run.store);
    return status;
}

/* A plan and a run may be named in either order. */
static int compare(const char *const operands[], const struct compare_options *o, struct error *err)
{
    struct output_choice choice;
    bool first = configuration_is_plan(operands[0]), second = configuration_is_plan(operands[1]);
    bool turned = second && !first;
    const char *const ordered[2] = {operands[turned], operands[!turned]};
    if (output_choose(o->output, o->json, &choice, err) || check_options(ordered, o, first + second, err))
        return -1;
    return first && second ? planned_pair_compare(ordered, &choice, err)
                           : compare_run(ordered, o, first || second, &choice, err);
}

static int run(int argc, char **argv, struct error *err)
{
    struct compare_options o = {0};
    const char *operands[COMMAND_OPERANDS];
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    log_set_quiet(o.quiet);
    return compare(operands, &o, err);
}

const struct command command_compare = {&spec, run};
