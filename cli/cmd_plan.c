/* memplan plan: the fastest configuration that fits. */
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/output.h"
#include "cli/speed.h"
#include "planner/search.h"

#include <stdio.h>
#include <string.h>

struct plan_options {
    struct configuration_options configuration;
    const char *cluster, *calibration, *output;
    bool json, quiet;
};

static const struct option_spec options[] = {
    {"cluster", 'c', OPTION_TEXT, "C", NULL,
     "NODESxRANKS:DEVICE(MEMORY), a preset or a file: '1x4:cpu(300MiB)'",
     offsetof(struct plan_options, cluster)},
    {"global-batch", 0, OPTION_POSITIVE, "N", NULL, "sequences per step over all ranks",
     offsetof(struct plan_options, configuration.global_batch)},
    {"dp", 0, OPTION_POSITIVE, "N", NULL, "only plans with so many data-parallel ranks",
     offsetof(struct plan_options, configuration.dp)},
    {"micro-batch", 0, OPTION_POSITIVE, "N", NULL, "only plans with this micro-batch",
     offsetof(struct plan_options, configuration.micro_batch)},
    {"calibration", 0, OPTION_TEXT, "FILE", NULL,
     "calibration.json or run.db; default: rates measured now, on a CPU",
     offsetof(struct plan_options, calibration)},
    {"output", 'o', OPTION_TEXT, "FILE", NULL, "write the plan there", offsetof(struct plan_options, output)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout", offsetof(struct plan_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct plan_options, quiet)},
    CONFIGURATION_MODEL_OPTIONS(struct plan_options, configuration),
    {0},
};

static const struct command_spec spec = {
    .name = "plan",
    .summary = "the fastest configuration that fits, with its reasons",
    .usage = "plan MODEL --cluster C --global-batch N [--seq-len S] [-o plan.json]",
    .about =
        "Chooses the data-parallel degree, the micro-batch and, layer by layer, which activations are "
        "recomputed, so that "
        "every rank fits and the step is as fast as the time model can make it. Exit status 1: nothing fits.",
    .examples = {"memplan plan gpt2-small-bytes --cluster '1x2:cpu(150MiB)' --global-batch 16 -o plan.json",
                 "memplan plan gpt2-124m --cluster '1x8:a100-40g' --global-batch 64 --precision bf16"},
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
};

/* What was asked and found. */
struct answer {
    struct model model;
    struct cluster cluster;
    struct device_speed speed;
    struct search_request request;
    struct search_result result;
    struct plan plan;          /* borrows its masks from the result */
    struct pipeline *pipeline; /* of the plan; NULL: nothing fits */
};

static json_t *row_to_json(const struct search_row *row)
{
    json_t *out =
        json_pack("{s:I, s:i, s:i, s:I, s:s, s:I, s:I, s:f, s:f, s:f, s:f}", "dp", (json_int_t)row->layout.dp,
                  "tp", 1, "pp", 1, "micro_batch", (json_int_t)row->layout.micro_batch, "recompute",
                  row->recompute, "peak_bytes", (json_int_t)row->peak_bytes, "arena_bytes",
                  (json_int_t)row->arena_bytes, "step_seconds", row->time.total, "recompute_seconds",
                  row->time.recompute, "exposed_communication_seconds", row->time.exposed_communication,
                  "optimizer_seconds", row->time.optimizer);
    if (row->reason)
        json_object_set_new(out, "reason", json_string(row->reason));
    return out;
}

static json_t *rows_to_json(const struct search_row *rows, int64_t count)
{
    json_t *out = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(out, row_to_json(&rows[i]));
    return out;
}

static json_t *to_json(const struct answer *a)
{
    const struct search_result *r = &a->result;
    json_t *out = json_object();
    json_object_set_new(out, "plan", a->pipeline ? plan_to_json(&a->plan, a->pipeline) : json_null());
    json_object_set_new(out, "candidates", json_integer(r->candidates));
    json_object_set_new(out, "feasible", json_integer(r->feasible));
    json_object_set_new(out, "search_seconds", json_real(r->search_seconds));
    json_object_set_new(out, "alternatives", rows_to_json(r->alternatives, r->alternative_count));
    json_object_set_new(out, "rejected", rows_to_json(r->rejected, r->rejected_count));
    if (!a->pipeline) {
        json_object_set_new(out, "short_bytes", json_integer(r->short_bytes));
        json_object_set_new(out, "enough_bytes", json_integer(r->enough_bytes));
    }
    return out;
}

static void add_alternatives(struct report *report, const struct search_result *r)
{
    enum { MOST_ROWS = 8 };
    static const struct table_column columns[] = {
        {"dp", TABLE_COUNT},
        {"micro", TABLE_COUNT},
        {"recompute", TABLE_TEXT},
        {"arena", TABLE_BYTES},
        {"step", TABLE_SECONDS},
        {"recomputing", TABLE_SECONDS},
        {"communication", TABLE_SECONDS},
    };
    struct table *table = report_table(report, "Plans that fit, fastest first", columns, 7);
    for (int64_t i = 0; i < r->alternative_count && i < MOST_ROWS; i++) {
        const struct search_row *row = &r->alternatives[i];
        const struct table_cell cells[] = {
            cell_whole(row->layout.dp),
            cell_whole(row->layout.micro_batch),
            cell_text(row->recompute),
            cell_whole(row->arena_bytes),
            cell_real(row->time.total),
            cell_real(row->time.recompute),
            cell_real(row->time.exposed_communication),
        };
        table_add(table, cells);
    }
}

static void add_rejected(struct report *report, const struct search_result *r)
{
    enum { MOST_ROWS = 4 };
    for (int64_t i = 0; i < r->rejected_count && i < MOST_ROWS; i++)
        report_remark(report, i ? NULL : "Rejected, the nearest first", "%s", r->rejected[i].reason);
}

static int print_answer(const struct answer *a, struct error *err)
{
    const struct search_result *r = &a->result;
    const struct search_row *best = &r->alternatives[0];
    char time[UNITS_TEXT], memory[UNITS_TEXT], count[UNITS_TEXT];
    struct text speed = {0};
    struct arena *arena = arena_create();
    struct report *report = report_create(arena, "Plan for %s", a->model.name);
    machine_speed_describe(&a->speed.speed, &speed);
    report_fact(report, "chosen", "dp %lld, micro-batch %lld, recompute %s", (long long)best->layout.dp,
                (long long)best->layout.micro_batch, best->recompute);
    report_capacity(report, "needed", best->needed_bytes, a->cluster.device.capacity_bytes);
    report_fact(report, "step", "%s predicted", units_format_seconds(best->time.total, time));
    report_fact(report, "rates", "%s", speed.data);
    report_fact(report, "search", "%s configurations in %s", units_format_count(r->candidates, count),
                units_format_seconds(r->search_seconds, memory));
    add_alternatives(report, r);
    add_rejected(report, r);
    int status = output_report(report, "-", err);
    text_free(&speed);
    arena_free(arena);
    return status;
}

static int explain_refusal(const struct answer *a, struct error *err)
{
    struct text why = {0};
    search_explain(&a->request, &a->result, &why);
    error_set_kind(err, ERROR_MEMORY, "%s", why.data);
    text_free(&why);
    return -1;
}

static int search(struct answer *a, const struct plan_options *o, struct error *err)
{
    const struct configuration_options *c = &o->configuration;
    enum precision precision = PRECISION_FP32;
    if (c->precision && precision_find(c->precision, &precision, err))
        return -1;
    if (speed_open(&a->cluster, precision, o->calibration, true, &a->speed, err))
        return -1;
    a->request = (struct search_request){
        .model = &a->model,
        .cluster = &a->cluster,
        .speed = &a->speed.speed,
        .global_batch = c->global_batch,
        .seq_len = c->seq_len,
        .dp = c->dp,
        .micro_batch = c->micro_batch,
        .precision = precision,
    };
    return search_run(&a->request, &a->result, err);
}

static int adopt_best(struct answer *a, const char *command, struct error *err)
{
    const struct search_row *best = &a->result.alternatives[0];
    a->plan = (struct plan){
        .model = a->model,
        .layout = best->layout,
        .recompute = best->masks,
        .capacity_bytes = a->cluster.device.capacity_bytes,
        .step_seconds = best->time.total,
    };
    snprintf(a->plan.device, sizeof a->plan.device, "%s", a->cluster.device.name);
    snprintf(a->plan.made_by, sizeof a->plan.made_by, "%s", command);
    return plan_pipeline(&a->plan, &a->pipeline, err);
}

static int write_plan(const struct answer *a, const char *path, struct error *err)
{
    int status = output_json(plan_to_json(&a->plan, a->pipeline), path, err);
    if (!status && strcmp(path, "-"))
        log_note("wrote %s; run it with: memplan train %s --data FILE", path, path);
    return status;
}

static int make_plan(struct answer *a, const struct plan_options *o, const char *command, struct error *err)
{
    if (search(a, o, err))
        return -1;
    bool found = a->result.alternative_count > 0;
    if (found && adopt_best(a, command, err))
        return -1;
    if (found && o->output && write_plan(a, o->output, err))
        return -1;
    if (found && o->output && !strcmp(o->output, "-"))
        return 0;
    if (o->json)
        return output_json(to_json(a), "-", err) ? -1 : !found;
    return found ? print_answer(a, err) : explain_refusal(a, err);
}

static int run(int argc, char **argv, struct error *err)
{
    struct plan_options o = {0};
    const char *operands[COMMAND_OPERANDS];
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    log_set_quiet(o.quiet);
    struct answer a = {0};
    char line[256];
    configuration_command_line(argc, argv, line, sizeof line);
    if (!o.cluster)
        return error_set(
            err,
            "--cluster is missing; say what there is, such as --cluster '1x2:cpu(300MiB)' or 1x8:h100-80g");
    if (!o.configuration.global_batch)
        return error_set(err, "--global-batch is missing; say how many sequences a step has over all ranks");
    if (model_read(operands[0], &o.configuration.model, &a.model, err) ||
        cluster_read(o.cluster, &a.cluster, err))
        return -1;
    if (a.model.note[0])
        log_note("note: %s", a.model.note);
    int status = make_plan(&a, &o, line, err);
    pipeline_free(a.pipeline);
    search_clear(&a.result);
    speed_close(&a.speed);
    return status;
}

const struct command command_plan = {&spec, run};
