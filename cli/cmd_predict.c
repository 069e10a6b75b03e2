/* memplan predict: will a configuration fit, who holds the bytes, how long is a step; before anything runs. */
#include "base/arena.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/capacity.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/output.h"
#include "cli/standing.h"
#include "planner/advice.h"
#include "planner/prediction.h"
#include "reports/breakdown.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct predict_options {
    struct configuration_options configuration;
    const char *device, *net, *calibration;
    int64_t memory;
    bool json, quiet;
};

static const struct option_spec options[] = {
    {"device", 'd', OPTION_TEXT, "D", NULL,
     "cpu, a card such as h100-80g, or cuda for the GPUs here; default cpu",
     offsetof(struct predict_options, device)},
    {"memory", 0, OPTION_POSITIVE_BYTES, "BYTES", NULL,
     "what each rank has; default all of the card, or its share of the machine",
     offsetof(struct predict_options, memory)},
    {"net", 0, OPTION_TEXT, "RATE", NULL,
     "of a whole node to others, all its ports together, such as 3200Gb/s; default the plan's, or what nodes "
     "with such cards have",
     offsetof(struct predict_options, net)},
    {"calibration", 0, OPTION_TEXT, "FILE", NULL,
     "calibration.json or run.db: measured times instead of nominal ones",
     offsetof(struct predict_options, calibration)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout",
     offsetof(struct predict_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct predict_options, quiet)},
    CONFIGURATION_MODEL_OPTIONS(struct predict_options, configuration),
    CONFIGURATION_LAYOUT_OPTIONS(struct predict_options, configuration),
    {0},
};

static const struct command_spec spec = {
    .name = "predict",
    .summary = "fits or not, before launch; the peak by role",
    .usage = "predict MODEL|PLAN --device D [layout options]",
    .about = "Computes the exact peak of a training step on the ranks of every pipeline stage, and the arena "
             "that `train` would take; and compares the stage that needs most with what the device holds; "
             "where it does not fit, says what would. Exit status 0: it fits; 1: it does not.",
    .examples =
        {"memplan predict gpt2-124m --micro-batch 4 --seq-len 256 --memory 2GiB",
         "memplan predict llama3-70b --precision bf16 --tp 8 --sequence-parallel --pp 4 --device h100-80g"},
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
};

/* A prediction and what it was made from. */
struct question {
    struct plan plan;
    struct standing
        standing; /* where the plan's ranks are; if nobody says: of one machine, or eight cards to a node */
    struct pipeline *pipeline;
    struct prediction
        answer; /* bytes of the stage that needs most, which decides; seconds of the whole step */
    struct prediction *stages; /* bytes of each stage */
};

/* Are there several kinds of devices? */
static bool is_mixed(const struct question *q)
{
    return q->standing.cluster.group_count > 1;
}

static bool spans_nodes(const struct question *q)
{
    return speed_spans_nodes(&q->standing.cluster, &q->standing.siting);
}

/* How many ranks run a stage's program: those from stage * this on. */
static int64_t ranks_per_stage(const struct question *q)
{
    return layout_ranks(&q->plan.layout) / q->pipeline->count;
}

static json_t *stages_to_json(const struct question *q)
{
    json_t *out = json_array();
    int64_t ranks = ranks_per_stage(q);
    for (int i = 0; i < q->pipeline->count; i++) {
        const struct prediction *a = &q->stages[i];
        const struct rank_device *device = q->standing.devices[i];
        json_t *stage = json_pack("{s:i, s:I, s:I, s:I, s:I}", "stage", i, "first_rank",
                                  (json_int_t)(i * ranks), "ranks", (json_int_t)ranks, "peak_bytes",
                                  (json_int_t)a->peak_bytes, "arena_bytes", (json_int_t)a->arena_bytes);
        if (is_mixed(q)) {
            json_object_set_new(stage, "device", json_string(device->name));
            json_object_set_new(stage, "capacity_bytes", json_integer(device->capacity_bytes));
        }
        for (int role = 0; role < ROLE_COUNT; role++)
            json_object_set_new(stage, role_name((enum role)role), json_integer(a->by_role[role]));
        json_array_append_new(out, stage);
    }
    return out;
}

/* A plan may have been made with rates that were measured then. */
static bool was_planned_otherwise(const struct question *q)
{
    double planned = q->plan.step_seconds, now = q->answer.time.total;
    return planned > 0 && fabs(planned / now - 1) > 0.005;
}

static const char *rates_source(const struct question *q)
{
    const struct cluster *cluster = &q->standing.cluster;
    if (q->standing.pace->calibration)
        return "the calibration";
    if (!cluster->groups[0].device.card)
        return "nominal rates; see --calibration";
    return speed_rates_text(&q->standing.speed, cluster);
}

/* Which ranks decide; nothing where all are alike. */
static void add_worst(struct report *report, const struct question *q)
{
    int64_t ranks = ranks_per_stage(q), first = q->answer.stage * ranks;
    if (q->pipeline->count == 1)
        return;
    if (ranks == 1)
        report_fact(report, "most needs", "stage %lld, rank %lld", (long long)q->answer.stage,
                    (long long)first);
    else
        report_fact(report, "most needs", "stage %lld, ranks %lld-%lld", (long long)q->answer.stage,
                    (long long)first, (long long)(first + ranks - 1));
}

static struct throughput throughput_of(const struct question *q)
{
    return speed_throughput(&q->standing.cluster, &q->standing.siting, q->pipeline, q->answer.time.total);
}

static void add_planned_step(struct report *report, const struct question *q)
{
    char time[UNITS_TEXT];
    if (was_planned_otherwise(q))
        report_fact(report, "planned step", "%s, with the rates that the plan was made with",
                    units_format_seconds(q->plan.step_seconds, time));
}

static void add_verdict(struct report *report, const struct question *q)
{
    const struct prediction *a = &q->answer;
    char time[UNITS_TEXT], room[UNITS_TEXT], runtime[UNITS_TEXT], error[UNITS_TEXT];
    int64_t left = a->capacity_bytes - a->needed_bytes;
    struct throughput throughput = throughput_of(q);
    add_worst(report, q);
    report_fact(report, a->fits ? "fits" : "does not fit", "%s %s%s",
                units_format_bytes(left < 0 ? -left : left, room), left < 0 ? "short" : "to spare",
                a->in_doubt ? ", within the error of the runtime term" : "");
    if (a->runtime.bytes)
        report_capacity(report, "needed", a->needed_bytes, a->capacity_bytes);
    if (a->runtime.bytes && q->standing.devices[a->stage]->kernel_bytes)
        report_fact(report, "of that, runtime",
                    "%s, what kernels work in; the context is no part of the capacity",
                    units_format_bytes(a->runtime.bytes, runtime));
    else if (a->runtime.bytes)
        report_fact(
            report, "of that, runtime", "%s, give or take %s: context and libraries, which no tensor owns",
            units_format_bytes(a->runtime.bytes, runtime), units_format_bytes(a->runtime.error_bytes, error));
    report_fact(report, "step", "%s, give or take %.0f%% (from %s)",
                units_format_seconds(a->time.total, time),
                100 * speed_doubt(&q->standing.speed, &q->standing.siting), rates_source(q));
    add_planned_step(report, q);
    speed_add_throughput(report, &throughput);
    if (!spans_nodes(q))
        return;
    if (!is_mixed(q))
        report_fact(report, "nodes", "%lld of %lld %s each", (long long)q->standing.cluster.groups[0].nodes,
                    (long long)q->standing.cluster.groups[0].ranks_per_node, q->standing.devices[0]->name);
    speed_add_networks(report, &q->standing.cluster, "--net");
}

/* What would do, for a prediction that does not fit; else there is none of it. */
struct advised {
    struct text text;
    struct advice_list list;
};

static void clear_advice(struct advised *advised)
{
    text_free(&advised->text);
    advice_clear(&advised->list);
}

/* Nothing is tried where what every change keeps is too much, so that the answer for a large model comes at once. */
static void find_advice(const struct question *q, struct advised *out)
{
    const struct prediction *a = &q->answer;
    const struct program *program = q->pipeline->stages[a->stage];
    const struct rank_device *device = q->standing.devices[a->stage];
    char states[UNITS_TEXT];
    *out = (struct advised){0};
    if (a->fits)
        return;
    if (is_mixed(q)) {
        text_printf(
            &out->text,
            "It does not fit on %s; `memplan plan --cluster` shares out the layers by what each device "
            "holds.",
            device->name);
    } else if (!device->card && program->persistent_bytes > a->capacity_bytes) {
        text_printf(
            &out->text,
            "It does not fit; parameters, gradients and optimizer state alone take %s on a rank, whatever "
            "the batch: split the model further (--tp, --pp), shard the optimizer state (--zero 1 with "
            "--dp), or use a device with more memory.",
            units_format_bytes(program->persistent_bytes, states));
    } else if (!advice_find(q->pipeline, device, q->standing.pace, &out->list, NULL)) {
        text_add(&out->text, "It does not fit; ");
        advice_print(&out->list, &out->text);
        text_add(&out->text, ".");
    }
}

static json_t *changes_to_json(const struct advice_list *list)
{
    json_t *out = json_array();
    for (int i = 0; i < list->count; i++) {
        const struct advice *item = &list->items[i];
        json_array_append_new(out, json_pack("{s:s, s:I, s:f, s:b}", "options", item->options, "needed_bytes",
                                             (json_int_t)item->needed_bytes, "step_seconds", item->step_s,
                                             "in_doubt", item->in_doubt));
    }
    return out;
}

/* What is asked about, and how fast it is. */
static void add_asked(const struct question *q, json_t *out)
{
    struct throughput throughput = throughput_of(q);
    json_object_set_new(out, "model", model_to_json(&q->plan.model));
    json_object_set_new(out, "layout", layout_to_json(&q->pipeline->stages[0]->layout));
    speed_throughput_to_json(&throughput, out);
}

static json_t *to_json(const struct question *q)
{
    struct advised advised;
    find_advice(q, &advised);
    const struct prediction *a = &q->answer;
    const struct step_time *step = &a->time;
    json_t *time =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "forward", step->forward, "backward", step->backward,
                  "recompute", step->recompute, "exposed_communication", step->exposed_communication,
                  "bubble", step->bubble, "optimizer", step->optimizer);
    json_t *out = json_pack(
        "{s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:I, s:o}", "fits", a->fits, "in_doubt",
        a->in_doubt, "capacity_bytes", (json_int_t)a->capacity_bytes, "peak_bytes", (json_int_t)a->peak_bytes,
        "arena_bytes", (json_int_t)a->arena_bytes, "needed_bytes", (json_int_t)a->needed_bytes,
        "runtime_error_bytes", (json_int_t)a->runtime.error_bytes, "step_seconds", step->total,
        "step_error_seconds", step->total * speed_doubt(&q->standing.speed, &q->standing.siting),
        "step_parts", time, "worst_stage", (json_int_t)a->stage, "stages", stages_to_json(q));
    add_asked(q, out);
    json_object_set_new(out, "advice", jsonfile_string(advised.text.data));
    json_object_set_new(out, "changes", changes_to_json(&advised.list));
    clear_advice(&advised);
    if (was_planned_otherwise(q))
        json_object_set_new(out, "planned_step_seconds", json_real(q->plan.step_seconds));
    if (spans_nodes(q))
        json_object_set_new(out, "networks", speed_networks_to_json(&q->standing.cluster));
    return out;
}

static int print_answer(const struct question *q, struct error *err)
{
    struct arena *arena = arena_create();
    const char *const *names = standing_names(&q->standing, &q->plan.layout, arena);
    struct breakdown_room room = {q->answer.capacity_bytes, q->answer.runtime.bytes};
    struct breakdown breakdown = breakdown_of_pipeline(
        q->pipeline, names ? q->plan.device : q->standing.devices[0]->name, &room, arena);
    for (int i = 0; names && i < q->pipeline->count; i++)
        breakdown.rows[i].device = names[i];
    struct advised advised;
    find_advice(q, &advised);
    if (advised.text.data)
        breakdown.advice = arena_strdup(arena, advised.text.data);
    clear_advice(&advised);
    struct report *report = breakdown_report(&breakdown, arena);
    add_verdict(report, q);
    int status = output_report(report, "-", err);
    arena_free(arena);
    return status;
}

static int predict(struct question *q, struct error *err)
{
    const struct standing *s = &q->standing;
    q->stages = host_alloc((size_t)q->pipeline->count * sizeof *q->stages);
    for (int i = 0; i < q->pipeline->count; i++)
        prediction_make(q->pipeline->stages[i], s->devices[i], NULL, &q->stages[i]);
    return prediction_make_placed(q->pipeline, s->devices, s->pace, &q->answer, err);
}

static int ask(struct question *q, const struct predict_options *o, bool automatic, struct error *err)
{
    struct standing_choice choice = {o->device, o->memory, o->net, o->calibration};
    if (standing_open(&q->plan, &choice, &q->standing, err))
        return -1;
    const struct standing *s = &q->standing;
    if (!is_mixed(q))
        q->plan.capacity_bytes = s->devices[0]->capacity_bytes;
    if (automatic && capacity_choose_recompute(&q->plan, s->devices, s->pace, err))
        return -1;
    return plan_pipeline(&q->plan, &q->pipeline, err) || predict(q, err) ? -1 : 0;
}

static int run(int argc, char **argv, struct error *err)
{
    struct predict_options o = {0};
    const char *operands[COMMAND_OPERANDS];
    bool automatic;
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    log_set_quiet(o.quiet);
    struct question q = {0};
    if (configuration_resolve(operands[0], &o.configuration, &q.plan, &automatic, err))
        return -1;
    int status = ask(&q, &o, automatic, err);
    if (!status)
        status = o.json ? output_json(to_json(&q), "-", err) : print_answer(&q, err);
    if (!status)
        status = q.answer.fits ? 0 : 1;
    pipeline_free(q.pipeline);
    free(q.stages);
    standing_close(&q.standing);
    plan_clear(&q.plan);
    return status;
}

const struct command command_predict = {&spec, run};
