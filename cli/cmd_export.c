/* memplan export: a plan as what another system starts. */
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/standing.h"
#include "planner/export.h"
#include "planner/prediction.h"

#include <string.h>

struct export_options {
    const char *to, *data, *output;
    int64_t steps, ranks_per_node;
    bool json, quiet;
};

static const struct option_spec options[] = {
    {"to", 0, OPTION_CHOICE, NULL, "megatron|torchtitan|slurm|mpirun", "what is to run it",
     offsetof(struct export_options, to)},
    {"data", 0, OPTION_TEXT, "FILE", NULL, "what it trains on; default: left open",
     offsetof(struct export_options, data)},
    {"steps", 0, OPTION_POSITIVE, "N", NULL, "training steps", offsetof(struct export_options, steps)},
    {"ranks-per-node", 0, OPTION_POSITIVE, "N", NULL,
     "default the plan's; of a plan that does not say, 8 on GPUs and all on a CPU",
     offsetof(struct export_options, ranks_per_node)},
    {"output", 'o', OPTION_TEXT, "FILE", NULL, "write it there; default stdout",
     offsetof(struct export_options, output)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout, with the notes",
     offsetof(struct export_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct export_options, quiet)},
    {0},
};

static const struct command_spec spec = {
    .name = "export",
    .summary = "a plan as another system's launch script",
    .usage = "export plan.json --to megatron|torchtitan|slurm|mpirun",
    .about =
        "Prints what starts the plan's layout and recomputation elsewhere: a script with Megatron-LM's "
        "options, a TOML file for torchtitan, or a script for sbatch or a line of mpirun, which run memplan "
        "train. What of the plan the other system cannot do is said on stderr. Nothing is run.",
    .examples = {"memplan export plan.json --to megatron -o train.sh",
                 "memplan export plan.json --to slurm --data corpus.txt | sbatch"},
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
};

static json_t *notes_to_json(const struct text *notes)
{
    json_t *list = json_array();
    for (const char *line = notes->data; line && *line; line += strcspn(line, "\n") + 1)
        json_array_append_new(list, json_stringn(line, strcspn(line, "\n")));
    return list;
}

static void print_notes(const struct text *notes)
{
    for (const char *line = notes->data; line && *line; line += strcspn(line, "\n") + 1)
        log_note("note: %.*s", (int)strcspn(line, "\n"), line);
}

static int write_answer(const struct export_options *o, struct export_result *result, struct error *err)
{
    if (o->json) {
        json_t *document =
            json_pack("{s:s, s:o, s:o}", "to", o->to, "text", jsonfile_string(result->body.data), "notes",
                      notes_to_json(&result->notes));
        return output_json(document, "-", err);
    }
    print_notes(&result->notes);
    progress_unwatch();
    return text_write(&result->body, o->output ? o->output : "-", err);
}

/* By the same model, whatever the plan's file says. */
static int predict(const struct plan *plan, const struct standing *standing, struct prediction *out,
                   struct error *err)
{
    struct pipeline *pipeline;
    if (plan_pipeline(plan, &pipeline, err))
        return -1;
    int status = prediction_make_placed(pipeline, standing->devices, standing->pace, out, err);
    pipeline_free(pipeline);
    return status;
}

/* Adds what the plan's nodes would do with what was written, beside what they do with the plan. */
static int add_price(const struct plan *plan, const struct export_options *o, struct export_result *result,
                     struct error *err)
{
    struct plan written = *plan;
    struct standing standing;
    struct prediction planned, runs;
    char steps[2][UNITS_TEXT], bytes[2][UNITS_TEXT];
    if (!result->differs || !standing_is_known(plan))
        return 0;
    written.layout.schedule = result->schedule;
    written.recompute = result->recompute;
    int status = standing_open(plan, &(struct standing_choice){0}, &standing, err) ||
                 predict(plan, &standing, &planned, err) || predict(&written, &standing, &runs, err);
    standing_close(&standing);
    if (status)
        return -1;
    text_printf(
        &result->notes,
        "what is written takes %s a step and %s on a rank%s, by the same model as the plan's %s and %s; "
        "`memplan plan --for %s` finds the fastest plan that runs there as it is\n",
        units_format_seconds(runs.time.total, steps[0]), units_format_bytes(runs.needed_bytes, bytes[0]),
        runs.fits ? "" : ", which does not fit", units_format_seconds(planned.time.total, steps[1]),
        units_format_bytes(planned.needed_bytes, bytes[1]), o->to);
    return 0;
}

/* What the plan says; else eight cards to a node, as in DGX and HGX machines, and CPU ranks all on one. */
static int64_t usual_ranks_per_node(const struct plan *plan)
{
    enum { CARDS_PER_NODE = 8 };
    if (plan->group_count)
        return plan->groups[0].ranks_per_node;
    if (plan->ranks_per_node)
        return plan->ranks_per_node;
    return strcmp(plan->device, "cpu") ? CARDS_PER_NODE : layout_ranks(&plan->layout);
}

static int export_plan(const char *path, const struct plan *plan, const struct export_options *o,
                       struct error *err)
{
    enum export_target target;
    struct export_result result;
    struct export_request request = {
        .plan = plan,
        .plan_path = path,
        .data = o->data,
        .steps = o->steps,
        .ranks_per_node = o->ranks_per_node ? o->ranks_per_node : usual_ranks_per_node(plan),
    };
    if (export_target_find(o->to, &target, err) || export_write(target, &request, &result, err))
        return -1;
    int status = add_price(plan, o, &result, err);
    if (!status)
        status = write_answer(o, &result, err);
    export_clear(&result);
    return status;
}

static int run(int argc, char **argv, struct error *err)
{
    struct export_options o = {0};
    const char *operands[COMMAND_OPERANDS];
    struct plan plan;
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    log_set_quiet(o.quiet);
    if (!o.to)
        return error_set(err, "--to is missing; say megatron, torchtitan, slurm or mpirun");
    if (plan_read(operands[0], &plan, err))
        return -1;
    int status = export_plan(operands[0], &plan, &o, err);
    plan_clear(&plan);
    return status;
}

const struct command command_export = {&spec, run};
