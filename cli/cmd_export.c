/* memplan export: a plan as what another system starts. */
#include "base/log.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "planner/export.h"

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
    {"ranks-per-node", 0, OPTION_POSITIVE, "N", NULL, "default 8 on GPUs, and all ranks on a CPU",
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

/* As in DGX and HGX machines. */
enum { CARDS_PER_NODE = 8 };

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

static int export_plan(const char *path, const struct plan *plan, const struct export_options *o,
                       struct error *err)
{
    enum export_target target;
    struct export_result result;
    int64_t usual = plan->group_count             ? plan->groups[0].ranks_per_node
                    : strcmp(plan->device, "cpu") ? CARDS_PER_NODE
                                                  : layout_ranks(&plan->layout);
    struct export_request request = {
        .plan = plan,
        .plan_path = path,
        .data = o->data,
        .steps = o->steps,
        .ranks_per_node = o->ranks_per_node ? o->ranks_per_node : usual,
    };
    if (export_target_find(o->to, &target, err) || export_write(target, &request, &result, err))
        return -1;
    int status = write_answer(o, &result, err);
    text_free(&result.body);
    text_free(&result.notes);
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
