#include "cli/plan_answer.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/units.h"
#include "cli/output.h"
#include "model/recompute.h"
#include "model/work.h"
#include "planner/explanation.h"
#include "planner/prediction.h"
#include "planner/product_rate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static double doubt_of(const struct plan_answer *a)
{
    return speed_doubt(&a->speed, &a->result.alternatives[0].siting);
}

/* ---- how fast that is ---- */

static struct throughput throughput_of(const struct plan_answer *a)
{
    const struct search_row *best = &a->result.alternatives[0];
    return speed_throughput(&a->cluster, &best->siting, a->pipeline, best->time.total);
}

static bool spans_nodes(const struct plan_answer *a)
{
    return speed_spans_nodes(&a->cluster, &a->result.alternatives[0].siting);
}

/* Of the stage that has least left. */
static struct runtime_term runtime_of_best(const struct plan_answer *a)
{
    const struct search_row *best = &a->result.alternatives[0];
    return prediction_runtime(&a->cluster.groups[best->group].device, layout_ranks(&best->layout));
}

static int64_t bytes_left(const struct plan_answer *a)
{
    const struct search_row *best = &a->result.alternatives[0];
    return a->cluster.groups[best->group].device.capacity_bytes - best->needed_bytes;
}

static bool is_in_doubt(const struct plan_answer *a)
{
    return bytes_left(a) < runtime_of_best(a).error_bytes;
}

/* ---- JSON ---- */

/* Nothing but its name where the rules say nothing, and why. */
static json_t *verdict_to_json(const struct plan_verdict *v)
{
    json_t *out = json_pack("{s:s, s:b}", "system", v->system, "judged", v->judged);
    if (v->judged)
        json_object_update_new(out, json_pack("{s:I, s:I}", "needed_bytes", (json_int_t)v->needed_bytes,
                                              "capacity_bytes", (json_int_t)v->capacity_bytes));
    else
        json_object_set_new(out, "reason", jsonfile_string(v->why.text));
    if (v->own_s > 0)
        json_object_set_new(out, "own_step_seconds", json_real(v->own_s));
    return out;
}

static void add_plan_facts(const struct plan_answer *a, json_t *out)
{
    if (a->verdict.system)
        json_object_set_new(out, "for", verdict_to_json(&a->verdict));
    struct throughput throughput = throughput_of(a);
    double step_s = a->result.alternatives[0].time.total;
    json_object_set_new(out, "bound_seconds", json_real(a->result.bound_s));
    json_object_set_new(out, "step_error_seconds", json_real(step_s * doubt_of(a)));
    speed_throughput_to_json(&throughput, out);
    json_object_set_new(out, "in_doubt", json_boolean(is_in_doubt(a)));
    json_object_set_new(out, "runtime_error_bytes", json_integer(runtime_of_best(a).error_bytes));
    if (!spans_nodes(a))
        return;
    json_object_set_new(out, "networks", speed_networks_to_json(&a->cluster));
    json_object_set_new(out, "quarter_network_step_seconds", json_real(a->quarter_s));
}

static json_t *remarks_to_json(const struct remarks *remarks)
{
    const struct text *texts[] = {&remarks->batch, &remarks->bubble, &remarks->precision, &remarks->network};
    json_t *out = json_array();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i]->length)
            json_array_append_new(out, json_string(texts[i]->data));
    return out;
}

json_t *plan_answer_json(const struct plan_answer *a)
{
    const struct search_result *r = &a->result;
    json_t *out = json_object();
    json_object_set_new(out, "plan", a->pipeline ? plan_to_json(&a->plan, a->pipeline) : json_null());
    json_object_set_new(out, "candidates", json_integer(r->candidates));
    json_object_set_new(out, "feasible", json_integer(r->feasible));
    json_object_set_new(out, "search_seconds", json_real(r->search_seconds));
    if (a->pipeline)
        add_plan_facts(a, out);
    json_object_set_new(out, "remarks", remarks_to_json(&a->remarks));
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

/* ---- text ---- */

/* "zb-h1"; with several chunks a stage "1f1b x4", since `interleaved` is 1f1b over chunks. */
static const char *short_schedule(const struct layout *l, struct arena *arena)
{
    const char *name = l->schedule == SCHEDULE_INTERLEAVED ? "1f1b" : schedule_name(l->schedule);
    if (l->pp == 1)
        return "-";
    return l->virtual_stages == 1 ? name
                                  : arena_printf(arena, "%s x%lld", name, (long long)l->virtual_stages);
}

static void add_alternatives(struct report *report, struct arena *arena, const struct search_result *r)
{
    /* Computing is the rest of the step: 80 columns are few, and a layout is never shortened. */
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
        const struct table_cell cells[COLUMNS] = {
            cell_text(
                arena_printf(arena, "%lld*%lld*%lld", (long long)l->dp, (long long)l->tp, (long long)l->pp)),
            cell_text(short_schedule(l, arena)),
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

static bool is_mixed(const struct plan_answer *a)
{
    return a->cluster.group_count > 1;
}

/* "16 a100-80g, 8 h100-80g": ranks that have no part in the plan. */
static void print_idle(const struct plan_answer *a, struct text *out)
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

/* Layers of all chunks of a stage. */
static int64_t layers_of(const struct search_row *row, int64_t stage)
{
    int64_t layers = 0;
    for (int64_t chunk = stage; chunk < layout_chunks(&row->layout); chunk += row->layout.pp)
        layers += row->chunk_layers[chunk];
    return layers;
}

/* What each stage has, where stages have different devices. */
static void add_stages(struct report *report, struct arena *arena, const struct plan_answer *a)
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
            cell_whole(layers_of(best, i)),
            cell_whole(prediction.needed_bytes),
            cell_whole(prediction.capacity_bytes),
        };
        table_add(table, cells);
        text_free(&names);
    }
}

static void add_rejected(struct report *report, const struct plan_answer *a)
{
    const struct search_result *r = &a->result;
    for (int64_t i = 0; i < r->rejected_count; i++)
        report_remark(report, i ? NULL : "Why not", "%s", r->rejected[i].reason);
    if (a->unlocks.data)
        report_remark(report, "What a change would unlock", "%s", a->unlocks.data);
}

/* "10 on each of 8 stages"; "8, 8, 7, 8"; and of many stages "1, then 62 stages of 2, then 1". */
static void print_layers(const struct search_row *row, struct text *out)
{
    enum { FEW_STAGES = 16 };
    int64_t stages = row->layout.pp, alike = 1;
    for (int64_t i = 0; i < stages; i += alike) {
        long long layers = (long long)layers_of(row, i);
        for (alike = 1; i + alike < stages && layers_of(row, i + alike) == layers;)
            alike++;
        if (alike == stages) {
            text_printf(out, "%lld on each of %lld stages", layers, (long long)stages);
            return;
        }
        alike = stages > FEW_STAGES ? alike : 1;
        text_add(out, !i ? "" : stages > FEW_STAGES ? ", then " : ", ");
        if (alike > 1)
            text_printf(out, "%lld stages of ", (long long)alike);
        text_printf(out, "%lld", layers);
    }
}

/* Layers that drop the same, and the stages that have them. */
struct set_use {
    uint32_t mask;
    int64_t layers;
    bool *stages;
};

/* Fills list[layers]; returns how many sets there are, the one of most layers first. */
static int list_sets(const struct search_row *row, int64_t layers, struct arena *arena, struct set_use *list)
{
    int count = 0;
    int64_t chunk = 0, chunk_end = row->chunk_layers[0];
    for (int64_t layer = 0; layer < layers; layer++) {
        int at = 0;
        while (layer >= chunk_end)
            chunk_end += row->chunk_layers[++chunk];
        while (at < count && list[at].mask != row->masks[layer])
            at++;
        if (at == count)
            list[count++] = (struct set_use){
                row->masks[layer], 0, arena_array(arena, (size_t)row->layout.pp, sizeof *list[at].stages)};
        list[at].layers++;
        list[at].stages[chunk % row->layout.pp] = true;
    }
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && list[k].layers > list[k - 1].layers; k--) {
            struct set_use swap = list[k];
            list[k] = list[k - 1];
            list[k - 1] = swap;
        }
    return count;
}

/* " (stages 0-3, 7)"; nothing where every stage has some. */
static void print_stages(const bool *has, int64_t stages, struct text *out)
{
    int64_t count = 0, last = 0;
    for (int64_t i = 0; i < stages; i++)
        count += has[i];
    if (count == stages)
        return;
    text_add(out, count == 1 ? " (stage " : " (stages ");
    for (int64_t i = 0, printed = 0; i < stages; i = last + 1) {
        for (last = i; has[i] && last + 1 < stages && has[last + 1];)
            last++;
        if (!has[i])
            continue;
        text_printf(out, "%s%lld", printed++ ? ", " : "", (long long)i);
        if (last > i)
            text_printf(out, "-%lld", (long long)last);
    }
    text_add(out, ")");
}

/* "norm1+norm2 in 6 of 80 layers (stage 0), norm1 in 2 (stage 0), nothing in the others"; unless the plan is told with all of it.
 * Which layer drops what, -o and --json have. */
static void add_recompute(struct report *report, const struct plan_answer *a, struct arena *arena)
{
    enum { MOST_SETS = 4 };
    const struct search_row *row = &a->result.alternatives[0];
    int64_t layers = a->model.layers, told = 0;
    struct set_use *list = arena_array(arena, (size_t)layers, sizeof *list);
    int count = list_sets(row, layers, arena, list), printed = 0;
    bool nothing = false;
    struct text text = {0};
    for (int i = 0; i < count && !explanation_has_recompute(row); i++) {
        nothing = nothing || !list[i].mask;
        if (!list[i].mask || printed == MOST_SETS)
            continue;
        text_add(&text, printed ? ", " : "");
        recompute_print_set(&a->model, list[i].mask, &text);
        text_printf(&text, printed ? " in %lld" : " in %lld of %lld layers", (long long)list[i].layers,
                    (long long)layers);
        print_stages(list[i].stages, row->layout.pp, &text);
        told += list[i].layers;
        printed++;
    }
    if (printed && printed + nothing < count)
        text_printf(&text, ", less common sets in others (-o and --json have them all)%s",
                    nothing ? ", nothing in the rest" : "");
    else if (printed && told < layers)
        text_add(&text, ", nothing in the others");
    if (printed)
        report_fact(report, "recompute", "%s", text.data);
    text_free(&text);
}

/* What products reach on a group's devices, in the stages that have ranks there; 0: none has. */
static double products_per_s(const struct plan_answer *a, int group)
{
    const struct search_row *best = &a->result.alternatives[0];
    int64_t ranks = best->layout.dp * best->layout.tp;
    struct product_work sum = {0};
    for (int i = 0; i < a->pipeline->count; i++)
        if (siting_groups(&best->siting, i * ranks, (i + 1) * ranks) & 1U << group)
            product_rate_add(a->pipeline->stages[i], &a->speed.groups[group], &sum);
    return sum.seconds > 0 ? sum.flops / sum.seconds : 0;
}

/* Groups without a part in the plan have no rates. */
static void add_rates(struct report *report, const struct plan_answer *a)
{
    for (int g = 0; g < a->cluster.group_count; g++) {
        struct text speed = {0};
        const struct rank_device *device = &a->cluster.groups[g].device;
        double rate = products_per_s(a, g);
        if (!(rate > 0))
            continue;
        machine_speed_describe(&a->speed.groups[g], rate, &speed);
        if (is_mixed(a))
            report_fact(report, "rates", "%s: %s", device->name, speed.data);
        else
            report_fact(report, "rates", "%s", speed.data);
        if (device->card && !a->speed.groups[g].calibration)
            report_fact(report, "evidence", "speed of %s in %s: %s", device->name,
                        precision_name(a->plan.layout.precision),
                        cards_evidence_text(a->speed.groups[g].evidence));
        text_free(&speed);
    }
}

/* The share of the step that some plan might save, for all that the search knows. It is rounded up: a bound stays one. */
static void add_step(struct report *report, const struct plan_answer *a)
{
    const struct search_result *r = &a->result;
    double step_s = r->alternatives[0].time.total, gain = 1 - r->bound_s / step_s;
    char time[UNITS_TEXT], what[80] = "proved the fastest of all searched";
    if (gain > 5e-5)
        snprintf(what, sizeof what, "at most %.1f%% could be gained", ceil(1000 * gain) / 10);
    report_fact(report, "step", "%s, give or take %.0f%%; %s", units_format_seconds(step_s, time),
                100 * doubt_of(a), what);
}

/* What tensors take is exact; what a context and libraries take is not. */
static void add_caution(struct report *report, const struct plan_answer *a)
{
    int64_t error_bytes = runtime_of_best(a).error_bytes;
    char left[UNITS_TEXT], error[UNITS_TEXT];
    if (!is_in_doubt(a))
        return;
    report_fact(report, "caution",
                "%s to spare, and what context and libraries take is known to within %s: it may not fit; "
                "%s",
                units_format_bytes(bytes_left(a), left), units_format_bytes(error_bytes, error),
                a->crowded ? "no plan leaves as much free" : "a larger --headroom leaves room for that");
}

/* What the rules of the system say that the plan is for. */
static void add_verdict(struct report *report, const struct plan_verdict *v)
{
    char needed[UNITS_TEXT], capacity[UNITS_TEXT];
    if (v->judged)
        report_fact(report, "rules",
                    "by those of %s a rank needs %s of %s, with room for what no rule accounts for",
                    v->system, units_format_bytes(v->needed_bytes, needed),
                    units_format_bytes(v->capacity_bytes, capacity));
    else if (v->system)
        report_fact(report, "rules", "whether it fits, those of %s do not say: %s", v->system, v->why.text);
    if (v->own_s > 0)
        report_fact(report, "its price", "memplan's own trainer takes %s, with what %s has not: %s",
                    units_format_seconds(v->own_s, needed), v->system, v->own.data);
}

/* What joins the nodes, and how much depends on it. */
static void add_network(struct report *report, const struct plan_answer *a)
{
    double ratio = a->quarter_s / a->result.alternatives[0].time.total;
    char time[UNITS_TEXT];
    if (!spans_nodes(a))
        return;
    speed_add_networks(report, &a->cluster, "net=");
    if (ratio < 1.01)
        report_fact(report, "on a quarter", "of that network this plan is as fast, to 1%%");
    else
        report_fact(report, "on a quarter", "of that network this plan takes %s, %.3gx as long",
                    units_format_seconds(a->quarter_s, time), ratio);
}

/* What was asked, as a reader may want to ask it again. */
static void add_remarks(struct report *report, const struct remarks *remarks)
{
    const struct {
        const char *name;
        const struct text *text;
    } list[] = {{"batch", &remarks->batch},
                {"bubble", &remarks->bubble},
                {"precision", &remarks->precision},
                {"net=", &remarks->network}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].text->length)
            report_fact(report, list[i].name, "%s", list[i].text->data);
}

static void add_search(struct report *report, const struct search_result *r)
{
    char took[UNITS_TEXT], count[UNITS_TEXT];
    report_fact(report, "search", "%s configurations in %s", units_format_count(r->candidates, count),
                units_format_seconds(r->search_seconds, took));
}

static void add_facts(struct report *report, struct arena *arena, const struct plan_answer *a)
{
    const struct search_row *best = &a->result.alternatives[0];
    struct throughput throughput = throughput_of(a);
    struct text chosen = {0}, layers = {0}, idle = {0};
    explanation_plan(best, &chosen);
    report_fact(report, "chosen", "%s", chosen.data);
    if (best->layout.pp > 1) {
        print_layers(best, &layers);
        report_fact(report, "layers", "%s", layers.data);
    }
    add_recompute(report, a, arena);
    add_step(report, a);
    speed_add_throughput(report, &throughput);
    report_capacity(report, "needed", best->needed_bytes,
                    a->cluster.groups[best->group].device.capacity_bytes);
    add_caution(report, a);
    add_verdict(report, &a->verdict);
    print_idle(a, &idle);
    if (idle.length)
        report_fact(report, "idle", "%s", idle.data);
    add_remarks(report, &a->remarks);
    add_rates(report, a);
    add_network(report, a);
    add_search(report, &a->result);
    text_free(&chosen);
    text_free(&layers);
    text_free(&idle);
}

/* "no plan for ... per rank: why", the first of it as a title. */
static struct report *explain_refusal(const struct plan_answer *a, struct arena *arena)
{
    const char *text = a->refusal.data, *why = strstr(text, " per rank: ");
    int title = why ? (int)(why - text) + (int)strlen(" per rank") : (int)strlen(text);
    struct report *report = report_create(arena, "N%.*s", title - 1, text + 1);
    if (why)
        report_remark(report, NULL, "%s", why + strlen(" per rank: "));
    return report;
}

static struct report *explain_plan(const struct plan_answer *a, struct arena *arena)
{
    struct report *report = report_create(arena, "Plan for %s", a->model.name);
    add_facts(report, arena, a);
    if (is_mixed(a))
        add_stages(report, arena, a);
    add_alternatives(report, arena, &a->result);
    add_rejected(report, a);
    return report;
}

int plan_answer_print(const struct plan_answer *a, struct error *err)
{
    struct arena *arena = arena_create();
    const struct report *report = a->pipeline ? explain_plan(a, arena) : explain_refusal(a, arena);
    int status = output_report(report, "-", err);
    arena_free(arena);
    return status;
}
