/* memplan plan: the fastest configuration that fits. */
#include "base/arena.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/output.h"
#include "cli/speed.h"
#include "planner/explanation.h"
#include "planner/families.h"
#include "planner/search.h"
#include "planner/search_memory.h"
#include "planner/ways_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plan_options {
    struct configuration_options configuration;
    const char *cluster, *calibration, *output;
    bool json, quiet;
};

static const struct option_spec options[] = {
    {"cluster", 'c', OPTION_TEXT, "C", NULL,
     "NODESxRANKS:DEVICE(MEMORY), several joined by +, a preset or a file: '1x4:cpu(300MiB)'",
     offsetof(struct plan_options, cluster)},
    {"global-batch", 0, OPTION_POSITIVE, "N", NULL, "sequences per step over all ranks",
     offsetof(struct plan_options, configuration.global_batch)},
    {"dp", 0, OPTION_POSITIVE, "N", NULL, "only plans with so many data-parallel ranks",
     offsetof(struct plan_options, configuration.dp)},
    {"tp", 0, OPTION_POSITIVE, "N", NULL, "only plans with so many tensor-parallel ranks",
     offsetof(struct plan_options, configuration.tp)},
    {"pp", 0, OPTION_POSITIVE, "N", NULL, "only plans with so many pipeline stages",
     offsetof(struct plan_options, configuration.pp)},
    {"virtual-stages", 0, OPTION_POSITIVE, "N", NULL, "only plans with so many chunks of layers per stage",
     offsetof(struct plan_options, configuration.virtual_stages)},
    {"pipeline-schedule", 0, OPTION_CHOICE, NULL, "gpipe|1f1b|interleaved|zb-h1",
     "only plans with this schedule", offsetof(struct plan_options, configuration.pipeline_schedule)},
    {"zero", 0, OPTION_CHOICE, NULL, "0|1", "only plans that shard the optimizer states, or do not",
     offsetof(struct plan_options, configuration.zero)},
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
        "Chooses how many ranks share data, tensors and pipeline stages, the schedule, the layers of each "
        "stage, the micro-batch and, layer by layer, which activations are recomputed, so that every rank "
        "fits and the step is as fast as the time model can make it; and says why the rest is slower or does "
        "not fit. Exit status 1: nothing fits.",
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
    enum schedule_kind schedule; /* that was asked for */
    struct search_result result;
    struct plan plan;                   /* borrows its masks and layers from the result */
    struct pipeline *pipeline;          /* of the plan; NULL: nothing fits */
    const struct rank_device **devices; /* of each of its stages */
    struct text unlocks, refusal;
};

static json_t *row_to_json(const struct search_row *row)
{
    const struct layout *l = &row->layout;
    const struct step_time *t = &row->time;
    json_t *out = layout_to_json(l);
    json_t *more =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "recompute", row->recompute,
                  "peak_bytes", (json_int_t)row->peak_bytes, "arena_bytes", (json_int_t)row->arena_bytes,
                  "needed_bytes", (json_int_t)row->needed_bytes, "worst_stage", (json_int_t)row->bytes.stage,
                  "step_seconds", t->total, "compute_seconds", t->forward + t->backward, "recompute_seconds",
                  t->recompute, "exposed_communication_seconds", t->exposed_communication, "bubble_seconds",
                  t->bubble, "optimizer_seconds", t->optimizer);
    json_object_update(out, more);
    json_decref(more);
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

/* What predictions with these rates are mostly within, as a share of the step: of several kinds of ranks, the worst. */
static double doubt_of(const struct answer *a)
{
    double most = 0;
    for (int g = 0; g < a->cluster.group_count; g++)
        most = fmax(most, machine_speed_doubt(&a->speed.groups[g]));
    return most;
}

static json_t *to_json(const struct answer *a)
{
    const struct search_result *r = &a->result;
    json_t *out = json_object();
    json_object_set_new(out, "plan", a->pipeline ? plan_to_json(&a->plan, a->pipeline) : json_null());
    json_object_set_new(out, "candidates", json_integer(r->candidates));
    json_object_set_new(out, "feasible", json_integer(r->feasible));
    json_object_set_new(out, "search_seconds", json_real(r->search_seconds));
    if (a->pipeline) {
        json_object_set_new(out, "bound_seconds", json_real(r->bound_s));
        json_object_set_new(out, "step_error_seconds",
                            json_real(r->alternatives[0].time.total * doubt_of(a)));
    }
    if (a->unlocks.data)
        json_object_set_new(out, "unlocks", json_string(a->unlocks.data));
    json_object_set_new(out, "alternatives", rows_to_json(r->alternatives, r->alternative_count));
    json_object_set_new(out, "rejected", rows_to_json(r->rejected, r->rejected_count));
    if (!a->pipeline) {
        json_object_set_new(out, "short_bytes", json_integer(r->short_bytes));
        json_object_set_new(out, "enough_bytes", json_integer(r->enough_bytes));
        if (r->enough_nodes)
            json_object_set_new(out, "enough_nodes", json_integer(r->enough_nodes));
        json_object_set_new(out, "reason", json_string(a->refusal.data));
    }
    return out;
}

static void add_alternatives(struct report *report, struct arena *arena, const struct search_result *r)
{
    /* Computing is the rest of the step, and chunks stand behind their stages: 80 columns are few. */
    enum { COLUMNS = 8 };
    static const struct table_column columns[COLUMNS] = {
        {"dp*tp*pp", TABLE_TEXT},  {"schedule", TABLE_TEXT},     {"micro", TABLE_COUNT},
        {"needed", TABLE_BYTES},   {"step", TABLE_SECONDS},      {"exposed", TABLE_SECONDS},
        {"bubble", TABLE_SECONDS}, {"recompute", TABLE_SECONDS},
    };
    struct table *table = report_table(report, "Plans that fit, fastest first", columns, COLUMNS);
    for (int64_t i = 0; i < r->alternative_count; i++) {
        const struct search_row *row = &r->alternatives[i];
        const struct layout *l = &row->layout;
        const char *chunks =
            l->virtual_stages == 1 ? "" : arena_printf(arena, "x%lld", (long long)l->virtual_stages);
        const struct table_cell cells[COLUMNS] = {
            cell_text(arena_printf(arena, "%lld*%lld*%lld%s", (long long)l->dp, (long long)l->tp,
                                   (long long)l->pp, chunks)),
            cell_text(l->pp == 1 ? "-" : schedule_name(l->schedule)),
            cell_whole(l->micro_batch),
            cell_whole(row->needed_bytes),
            cell_real(row->time.total),
            cell_real(row->time.exposed_communication),
            cell_real(row->time.bubble),
            cell_real(row->time.recompute),
        };
        table_add(table, cells);
    }
}

static bool is_mixed(const struct answer *a)
{
    return a->cluster.group_count > 1;
}

/* "16 a100-80g, 8 h100-80g": ranks that have no part in the plan. */
static void print_idle(const struct answer *a, struct text *out)
{
    const struct siting *siting = &a->result.alternatives[0].siting;
    for (int g = 0; g < a->cluster.group_count; g++) {
        int64_t idle = cluster_group_ranks(&a->cluster.groups[g]);
        for (int i = 0; i < siting->count; i++)
            idle -= siting->parts[i].group == g ? siting->parts[i].ranks : 0;
        if (idle)
            text_printf(out, "%s%lld %s", out->length ? ", " : "", (long long)idle,
                        a->cluster.groups[g].device.name);
    }
}

/* What each stage has, where stages have different devices. */
static void add_stages(struct report *report, struct arena *arena, const struct answer *a)
{
    enum { COLUMNS = 6 };
    static const struct table_column columns[COLUMNS] = {{"stage", TABLE_COUNT},  {"ranks", TABLE_TEXT},
                                                         {"device", TABLE_TEXT},  {"layers", TABLE_COUNT},
                                                         {"needed", TABLE_BYTES}, {"of", TABLE_BYTES}};
    struct table *table = report_table(report, "Stages", columns, COLUMNS);
    const struct search_row *best = &a->result.alternatives[0];
    int64_t ranks = best->layout.dp * best->layout.tp;
    for (int i = 0; i < a->pipeline->count; i++) {
        struct prediction prediction;
        struct text names = {0};
        prediction_make(a->pipeline->stages[i], a->devices[i], NULL, &prediction);
        siting_print(&a->cluster, siting_groups(&best->siting, i * ranks, (i + 1) * ranks), &names);
        const struct table_cell cells[COLUMNS] = {
            cell_whole(i),
            cell_text(
                arena_printf(arena, "%lld-%lld", (long long)(i * ranks), (long long)((i + 1) * ranks - 1))),
            cell_text(arena_strdup(arena, names.data)),
            cell_whole(best->layout.virtual_stages * best->chunk_layers[i]),
            cell_whole(prediction.needed_bytes),
            cell_whole(prediction.capacity_bytes),
        };
        table_add(table, cells);
        text_free(&names);
    }
}

static void add_rejected(struct report *report, const struct answer *a)
{
    const struct search_result *r = &a->result;
    for (int64_t i = 0; i < r->rejected_count; i++)
        report_remark(report, i ? NULL : "Why not", "%s", r->rejected[i].reason);
    if (a->unlocks.data)
        report_remark(report, "What a change would unlock", "%s", a->unlocks.data);
}

/* "8, 8, 7, 8" of each stage, as many chunks are alike; and of many stages "1, 62 times 2, 1". */
static void print_layers(const struct search_row *row, struct text *out)
{
    enum { FEW_STAGES = 16 };
    int64_t stages = row->layout.pp, alike = 1;
    for (int64_t i = 0; i < stages; i += alike) {
        long long layers = (long long)(row->layout.virtual_stages * row->chunk_layers[i]);
        alike = 1;
        while (stages > FEW_STAGES && i + alike < stages &&
               row->chunk_layers[i + alike] == row->chunk_layers[i])
            alike++;
        text_add(out, i ? ", " : "");
        if (alike > 1)
            text_printf(out, "%lld times ", (long long)alike);
        text_printf(out, "%lld", layers);
    }
}

/* All of it, unless that would fill the page: each range of layers is in the plan. */
static void add_recompute(struct report *report, const char *recompute)
{
    enum { MOST = 500 };
    int64_t ranges = 1;
    for (const char *c = recompute; *c; c++)
        ranges += *c == ',';
    if (strlen(recompute) <= MOST)
        report_fact(report, "recompute", "%s", recompute);
    else
        report_fact(report, "recompute",
                    "layer by layer, in %lld ranges of layers: too many to list; -o and --json have them",
                    (long long)ranges);
}

static void add_rates(struct report *report, const struct answer *a)
{
    for (int g = 0; g < a->cluster.group_count; g++) {
        struct text speed = {0};
        machine_speed_describe(&a->speed.groups[g], &speed);
        if (is_mixed(a))
            report_fact(report, "rates", "%s: %s", a->cluster.groups[g].device.name, speed.data);
        else
            report_fact(report, "rates", "%s", speed.data);
        text_free(&speed);
    }
}

/* The share of the step that some plan might save, for all that the search knows. It is rounded up: a bound stays one. */
static void add_step(struct report *report, const struct answer *a)
{
    const struct search_result *r = &a->result;
    double step_s = r->alternatives[0].time.total, gain = 1 - r->bound_s / step_s;
    char time[UNITS_TEXT], what[80] = "proved the fastest in this model";
    if (gain > 5e-5)
        snprintf(what, sizeof what, "at most %.1f%% could be gained", ceil(1000 * gain) / 10);
    report_fact(report, "step", "%s, give or take %.0f%%; %s", units_format_seconds(step_s, time),
                100 * doubt_of(a), what);
}

static int print_answer(const struct answer *a, struct error *err)
{
    const struct search_result *r = &a->result;
    const struct search_row *best = &r->alternatives[0];
    char took[UNITS_TEXT], count[UNITS_TEXT];
    struct text chosen = {0}, layers = {0}, idle = {0};
    struct arena *arena = arena_create();
    struct report *report = report_create(arena, "Plan for %s", a->model.name);
    explanation_plan(best, &chosen);
    report_fact(report, "chosen", "%s", chosen.data);
    if (best->layout.pp > 1) {
        print_layers(best, &layers);
        report_fact(report, "layers", "%s", layers.data);
    }
    add_recompute(report, best->recompute);
    report_capacity(report, "needed", best->needed_bytes,
                    a->cluster.groups[best->group].device.capacity_bytes);
    print_idle(a, &idle);
    if (is_mixed(a) && idle.length)
        report_fact(report, "idle", "%s", idle.data);
    add_step(report, a);
    add_rates(report, a);
    report_fact(report, "search", "%s configurations in %s", units_format_count(r->candidates, count),
                units_format_seconds(r->search_seconds, took));
    if (is_mixed(a))
        add_stages(report, arena, a);
    add_alternatives(report, arena, r);
    add_rejected(report, a);
    int status = output_report(report, "-", err);
    text_free(&chosen);
    text_free(&layers);
    text_free(&idle);
    arena_free(arena);
    return status;
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
        .speeds = a->speed.groups,
        .global_batch = c->global_batch,
        .seq_len = c->seq_len,
        .dp = c->dp,
        .tp = c->tp,
        .pp = c->pp,
        .virtual_stages = c->virtual_stages,
        .micro_batch = c->micro_batch,
        .zero = !c->zero          ? SEARCH_ANY
                : *c->zero == '1' ? SEARCH_ON
                                  : SEARCH_OFF,
        .precision = precision,
    };
    if (c->pipeline_schedule && schedule_find(c->pipeline_schedule, &a->schedule, err))
        return -1;
    a->request.schedule = c->pipeline_schedule ? &a->schedule : NULL;
    a->request.memory = search_memory_open(&a->request);
    return search_run(&a->request, &a->result, err);
}

static int adopt_best(struct answer *a, const char *command, struct error *err)
{
    const struct search_row *best = &a->result.alternatives[0];
    a->plan = (struct plan){
        .model = a->model,
        .layout = best->layout,
        .recompute = best->masks,
        .chunk_layers = best->chunk_layers,
        .step_seconds = best->time.total,
    };
    siting_to_plan(&a->cluster, &best->siting, &a->plan);
    snprintf(a->plan.made_by, sizeof a->plan.made_by, "%s", command);
    a->devices = host_alloc((size_t)best->layout.pp * sizeof *a->devices);
    siting_devices(&a->cluster, &best->layout, &best->siting, a->devices);
    return plan_pipeline(&a->plan, &a->pipeline, err);
}

static int write_plan(const struct answer *a, const char *path, struct error *err)
{
    int status = output_json(plan_to_json(&a->plan, a->pipeline), path, err);
    if (!status && strcmp(path, "-"))
        log_note("wrote %s; run it with: memplan train %s --data FILE", path, path);
    return status;
}

static int explain(struct answer *a, bool found, struct error *err)
{
    if (!found)
        return ways_out_refusal(&a->request, &a->result, &a->refusal, err);
    return families_explain(&a->request, &a->result, err) ||
                   ways_out_faster(&a->request, &a->result, &a->unlocks, err)
               ? -1
               : 0;
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
    if (explain(a, found, err))
        return -1;
    if (o->json)
        return output_json(to_json(a), "-", err) ? -1 : !found;
    return found ? print_answer(a, err) : error_set_kind(err, ERROR_MEMORY, "%s", a->refusal.data);
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
    free(a.devices);
    search_clear(&a.result);
    search_memory_close(a.request.memory);
    text_free(&a.unlocks);
    text_free(&a.refusal);
    speed_close(&a.speed);
    return status;
}

const struct command command_plan = {&spec, run};
