/* memplan plan: the fastest configuration that fits. */
#include "base/arena.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/output.h"
#include "cli/plan_answer.h"
#include "cli/plan_for.h"
#include "model/recompute.h"
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
    const char *cluster, *headroom, *runs_on, *calibration, *output;
    bool json, quiet;
};

static const struct option_spec options[] = {
    {"cluster", 'c', OPTION_TEXT, "C", NULL,
     "NODESxRANKS:DEVICE(MEMORY),net=RATE, several joined by +; RATE is of a whole node, all its ports "
     "together; or a node of dgx-a100-40g, dgx-a100, dgx-h100, dgx-h200, dgx-b200 (4xdgx-h100: four); or a "
     "file",
     offsetof(struct plan_options, cluster)},
    {"headroom", 0, OPTION_TEXT, "BYTES", NULL,
     "of each rank's memory, stays free; default: as much as is not known of a card's context and libraries, "
     "where a plan can",
     offsetof(struct plan_options, headroom)},
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
    {"recompute", 0, OPTION_TEXT, "SET,...", NULL,
     "only plans whose layers recompute one of these: none,attention,norm1+norm2",
     offsetof(struct plan_options, configuration.recompute)},
    {"for", 0, OPTION_CHOICE, NULL, "megatron|torchtitan",
     "only plans that it runs as they are, schedule and recomputation",
     offsetof(struct plan_options, runs_on)},
    {"calibration", 0, OPTION_TEXT, "FILE", NULL,
     "calibration.json or run.db; default: rates measured now, on a CPU",
     offsetof(struct plan_options, calibration)},
    {"output", 'o', OPTION_TEXT, "FILE", NULL, "write the plan there", offsetof(struct plan_options, output)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout", offsetof(struct plan_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct plan_options, quiet)},
    CONFIGURATION_MODEL_OPTIONS(struct plan_options, configuration),
    {0},
};

static const struct option_absent absent[] = {
    {"stage-layers", "it chooses the layers of each stage; predict and train take them"},
    {"sequence-parallel", "it tries plans with and without; predict and train take it"},
    {"device", "--cluster says what there is, such as 1x8:h100-80g"},
    {"memory", "--cluster says it, as in '1x2:cpu(300MiB)'; --headroom leaves some of it free"},
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
    .absent = absent,
    .min_operands = 1,
    .max_operands = 1,
};

/* "none,attention,norm1+norm2": the only sets that a layer may recompute. */
static int read_sets(struct plan_answer *a, const char *text, struct error *err)
{
    struct arena *arena = arena_create();
    char *rest = arena_strdup(arena, text), *set;
    int status = 0;
    while (!status && (set = strsep(&rest, ","))) {
        int count = a->request.set_count++;
        a->sets = host_resize(a->sets, (size_t)a->request.set_count * sizeof *a->sets);
        status = recompute_parse_set(set, &a->model, &a->sets[count], err);
    }
    a->request.sets = a->sets;
    arena_free(arena);
    return status ? error_prefix(err, "--recompute %s", text) : 0;
}

static int search_for(struct plan_answer *a, const struct plan_options *o, const char *model,
                      struct error *err)
{
    enum export_target target;
    const struct model_overrides *changed = &o->configuration.model, none = {0};
    bool named = !memcmp(changed, &none, sizeof none);
    return export_target_find(o->runs_on, &target, err)
               ? -1
               : plan_for_search(a, target, named ? model : NULL, err);
}

/* What was asked for; else, where no other system's rules have a say, what is not known of contexts and libraries. */
static int set_headroom(struct plan_answer *a, const struct plan_options *o, struct error *err)
{
    int64_t ranks = cluster_ranks(&a->cluster), asked = 0;
    char has[UNITS_TEXT];
    if (o->headroom && units_parse_bytes(o->headroom, "--headroom", &asked, err))
        return -1;
    for (int g = 0; g < a->cluster.group_count; g++) {
        struct rank_device *device = &a->cluster.groups[g].device;
        int64_t unknown = o->runs_on ? 0 : prediction_runtime(device, ranks).error_bytes;
        device->headroom_bytes = o->headroom ? asked : unknown;
        if (asked >= device->capacity_bytes)
            return error_set(err, "--headroom %s leaves nothing of the %s of a rank; give less", o->headroom,
                             units_format_bytes(device->capacity_bytes, has));
    }
    return 0;
}

/* Where no plan leaves as much free as it should unasked, one that leaves less is still a plan. */
static int search_with_room(struct plan_answer *a, const struct plan_options *o, struct error *err)
{
    if (search_run(&a->request, &a->result, err))
        return -1;
    if (a->result.alternative_count || o->headroom)
        return 0;
    for (int g = 0; g < a->cluster.group_count; g++) {
        a->crowded |= a->cluster.groups[g].device.headroom_bytes > 0;
        a->cluster.groups[g].device.headroom_bytes = 0;
    }
    if (!a->crowded)
        return 0;
    search_clear(&a->result);
    return search_run(&a->request, &a->result, err);
}

static int search(struct plan_answer *a, const struct plan_options *o, const char *model, struct error *err)
{
    const struct configuration_options *c = &o->configuration;
    enum precision precision = PRECISION_FP32;
    if (c->precision && precision_find(c->precision, &precision, err))
        return -1;
    if (set_headroom(a, o, err))
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
    if (c->recompute && o->runs_on)
        return error_set(err, "--for %s chooses among what that can recompute; leave --recompute out",
                         o->runs_on);
    if (c->recompute && read_sets(a, c->recompute, err))
        return -1;
    a->request.memory = search_memory_open(&a->request);
    return o->runs_on ? search_for(a, o, model, err) : search_with_room(a, o, err);
}

/* Of nodes that are alike. How many ranks one machine's CPU is shared out to is no part of the machine. */
static void keep_nodes(struct plan_answer *a)
{
    const struct siting *siting = &a->result.alternatives[0].siting;
    const struct node_group *nodes = &a->cluster.groups[siting->parts[0].group];
    bool spans = speed_spans_nodes(&a->cluster, siting);
    if (nodes->device.card || spans)
        a->plan.ranks_per_node = nodes->ranks_per_node;
    if (!nodes->net_assumed || spans)
        a->plan.net_bytes_per_s = nodes->net_bytes_per_s;
}

static int adopt_best(struct plan_answer *a, const char *command, struct error *err)
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
    if (!a->plan.group_count)
        keep_nodes(a);
    snprintf(a->plan.made_by, sizeof a->plan.made_by, "%s", command);
    a->devices = host_alloc((size_t)best->layout.pp * sizeof *a->devices);
    siting_devices(&a->cluster, &best->layout, &best->siting, a->devices);
    return plan_pipeline(&a->plan, &a->pipeline, err);
}

/* How much the plan depends on the network: its step, were that a quarter as fast. */
static int try_quarter(struct plan_answer *a, struct error *err)
{
    const struct search_row *best = &a->result.alternatives[0];
    struct machine_speed slower[CLUSTER_GROUPS];
    struct step_time time;
    if (!speed_spans_nodes(&a->cluster, &best->siting))
        return 0;
    for (int g = 0; g < a->cluster.group_count; g++) {
        slower[g] = a->speed.groups[g];
        slower[g].net_bytes_per_s.value /= 4;
    }
    struct siting_speeds *speeds = siting_speeds_open(&a->cluster, slower);
    int status = time_model_pipeline(
        a->pipeline, siting_speeds_of_layout(speeds, &best->layout, &best->siting), NULL, &time, err);
    siting_speeds_close(speeds);
    a->quarter_s = status ? 0 : time.total;
    return status;
}

/* Other commands know a plan by its suffix. */
static int check_output(const char *path, struct error *err)
{
    if (!path || !strcmp(path, "-") || !strncmp(path, "/dev/", 5) || configuration_is_plan(path))
        return 0;
    int stem = (int)strcspn(path, ".");
    return error_set(
        err,
        "-o %s: a plan is written as JSON, and known by its name; write -o %.*s.json, and show it with: "
        "memplan report %.*s.json -o %s",
        path, stem, path, stem, path, path);
}

static int write_plan(const struct plan_answer *a, const char *path, struct error *err)
{
    int status = output_json(plan_to_json(&a->plan, a->pipeline), path, err);
    if (!status && strcmp(path, "-"))
        log_note("wrote %s; run it with: memplan train %s%s --data FILE", path, path,
                 strcmp(a->plan.device, "cpu") ? " --device cuda" : "");
    return status;
}

static int explain(struct plan_answer *a, bool found, struct error *err)
{
    if (!found)
        return ways_out_refusal(&a->request, &a->result, &a->refusal, err);
    remarks_find(&a->request, &a->result, &a->remarks);
    return try_quarter(a, err) || families_explain(&a->request, &a->result, err) ||
                   ways_out_faster(&a->request, &a->result, &a->unlocks, err)
               ? -1
               : 0;
}

static int make_plan(struct plan_answer *a, const struct plan_options *o, const char *model,
                     const char *command, struct error *err)
{
    if (search(a, o, model, err))
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
        return output_json(plan_answer_json(a), "-", err) ? -1 : !found;
    return plan_answer_print(a, err) ? -1 : !found;
}

static int run(int argc, char **argv, struct error *err)
{
    struct plan_options o = {0};
    const char *operands[COMMAND_OPERANDS];
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    log_set_quiet(o.quiet);
    struct plan_answer a = {0};
    char line[256];
    configuration_command_line(argc, argv, line, sizeof line);
    if (!o.cluster)
        return error_set(
            err,
            "--cluster is missing; say what there is, such as --cluster '1x2:cpu(300MiB)', 1x8:h100-80g or "
            "4xdgx-h100");
    if (check_output(o.output, err))
        return -1;
    if (!o.configuration.global_batch)
        return error_set(err, "--global-batch is missing; say how many sequences a step has over all ranks");
    if (model_read(operands[0], &o.configuration.model, &a.model, err) ||
        cluster_read(o.cluster, &a.cluster, err))
        return -1;
    if (a.model.note[0])
        log_note("note: %s", a.model.note);
    int status = make_plan(&a, &o, operands[0], line, err);
    pipeline_free(a.pipeline);
    free(a.devices);
    search_clear(&a.result);
    search_memory_close(a.request.memory);
    free(a.sets);
    text_free(&a.unlocks);
    text_free(&a.refusal);
    text_free(&a.verdict.own);
    remarks_clear(&a.remarks);
    speed_close(&a.speed);
    return status;
}

const struct command command_plan = {&spec, run};
