#include "reports/compare_plans.h"

#include "base/units.h"
#include "reports/describe.h"
#include "reports/layout_table.h"
#include "reports/role_table.h"
#include "reports/stage_table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const part_names[COMPARE_PARTS] = {
    "forward", "backward", "recompute", "exposed communication", "bubble", "optimizer"};

static const struct program *worst_of(const struct compare_plan *plan)
{
    return plan->pipeline->stages[plan->stage];
}

static const struct layout *layout_of(const struct compare_plan *plan)
{
    return &plan->pipeline->stages[0]->layout;
}

static int64_t needed_of(const struct compare_plan *plan)
{
    return worst_of(plan)->arena_bytes + plan->room.runtime_bytes;
}

static struct layout_facts facts_of(const struct compare_plan *plan, struct arena *arena)
{
    struct layout_facts facts = layout_facts_of(plan->pipeline, arena);
    facts.device = plan->device;
    return facts;
}

static void add_layouts(struct report *report, const struct compare_plan plans[2],
                        const struct layout_facts facts[2])
{
    const char *const names[2] = {plans[0].name, plans[1].name};
    if (!layout_table_add(report, names, facts))
        report_remark(report, "Where the layouts differ",
                      "Nowhere: model, layout and recomputation are the same.");
}

/* ----------------------------------------------------------------------------------------------------------- memory */

static const struct table_column *columns_of(const struct compare_plan plans[2], enum table_kind kind,
                                             enum table_kind change, struct arena *arena)
{
    struct table_column *columns = arena_array(arena, 4, sizeof *columns);
    columns[0] = (struct table_column){"", TABLE_TEXT};
    for (int i = 0; i < 2; i++)
        columns[1 + i] = (struct table_column){plans[i].name, kind};
    columns[3] = (struct table_column){"change", change};
    return columns;
}

static void add_bytes(struct table *table, const char *name, int64_t first, int64_t second)
{
    table_add(table, (struct table_cell[]){cell_text(name), cell_whole(first), cell_whole(second),
                                           cell_whole(second - first)});
}

static void add_memory(struct report *report, const struct compare_plan plans[2])
{
    struct table *table = report_table(report, "Who holds the bytes, on the rank that has least left",
                                       columns_of(plans, TABLE_BYTES, TABLE_CHANGE, report->arena), 4);
    const struct program *a = worst_of(&plans[0]), *b = worst_of(&plans[1]);
    report_set_topic(report, TOPIC_PAIRS);
    for (int role = 0; role < ROLE_COUNT; role++)
        if (a->at_peak[role] || b->at_peak[role])
            add_bytes(table, role_name((enum role)role), a->at_peak[role], b->at_peak[role]);
    add_bytes(table, "peak", a->peak_bytes, b->peak_bytes);
    add_bytes(table, "arena", a->arena_bytes, b->arena_bytes);
    if (plans[0].room.runtime_bytes || plans[1].room.runtime_bytes) {
        add_bytes(table, "runtime", plans[0].room.runtime_bytes, plans[1].room.runtime_bytes);
        add_bytes(table, "needed", needed_of(&plans[0]), needed_of(&plans[1]));
    }
    if (plans[0].room.capacity_bytes != INT64_MAX && plans[1].room.capacity_bytes != INT64_MAX)
        add_bytes(table, "capacity", plans[0].room.capacity_bytes, plans[1].room.capacity_bytes);
}

/* What each stage takes at launch. */
static void add_stages(struct report *report, const struct compare_plan plans[2])
{
    struct stage_bytes bytes[2];
    for (int p = 0; p < 2; p++) {
        const struct pipeline *pipeline = plans[p].pipeline;
        int64_t *of_stages = arena_array(report->arena, (size_t)pipeline->count, sizeof *of_stages);
        for (int i = 0; i < pipeline->count; i++)
            of_stages[i] = pipeline->stages[i]->arena_bytes;
        bytes[p] = (struct stage_bytes){plans[p].name, of_stages, pipeline->count};
    }
    stage_table_add_pair(report, "The arena of each stage", bytes);
}

/* ------------------------------------------------------------------------------------------------------------ times */

/* "+6.2%", "-27.1%"; "12x" where per cent are too many to read; nothing of nothing. */
static struct table_cell change_cell(double first, double second, struct arena *arena)
{
    enum { MANY = 10 };
    char percent[TABLE_CELL];
    double change = second / first - 1;
    if (!(first > 0) || isnan(change))
        return cell_blank();
    if (change + 1 >= MANY)
        return cell_text(arena_printf(arena, "%.3gx", change + 1));
    return cell_text(
        arena_printf(arena, "%s%s", change >= 0.0005 ? "+" : "", table_percent_text(change, percent)));
}

static void add_seconds(struct table *table, const char *name, double first, double second,
                        struct arena *arena)
{
    table_add(table, (struct table_cell[]){cell_text(name), cell_real(first), cell_real(second),
                                           change_cell(first, second, arena)});
}

static double planned_step(const struct compare_plan *plan)
{
    return plan->planned_seconds > 0 ? plan->planned_seconds : NAN;
}

/* Was it made with other rates than there are here? */
static bool was_planned_otherwise(const struct compare_plan *plan)
{
    return fabs(planned_step(plan) / plan->step_seconds - 1) > 0.005;
}

/* Of which the rates here say that the other is faster. */
static bool turn_over(const struct compare_plan plans[2])
{
    double planned = planned_step(&plans[1]) - planned_step(&plans[0]),
           here = plans[1].step_seconds - plans[0].step_seconds;
    return planned * here < 0;
}

static void add_times(struct report *report, const struct compare_plan plans[2])
{
    if (isnan(plans[0].step_seconds) || isnan(plans[1].step_seconds))
        return;
    struct table *table = report_table(report, "What a step is made of",
                                       columns_of(plans, TABLE_SECONDS, TABLE_QUANTITY, report->arena), 4);
    for (int part = 0; part < COMPARE_PARTS; part++)
        if (plans[0].seconds[part] > 0 || plans[1].seconds[part] > 0)
            add_seconds(table, part_names[part], plans[0].seconds[part], plans[1].seconds[part],
                        report->arena);
    add_seconds(table, "step", plans[0].step_seconds, plans[1].step_seconds, report->arena);
    if (was_planned_otherwise(&plans[0]) || was_planned_otherwise(&plans[1]))
        add_seconds(table, "planned step", planned_step(&plans[0]), planned_step(&plans[1]), report->arena);
    if (turn_over(plans))
        report_remark(report, NULL,
                      "The planned steps are in the other order: those are of the rates that each plan was "
                      "made with, and the steps "
                      "above them of rates that both have alike. Neither was measured by a run.");
}

struct comparison compare_plans_peaks(const struct compare_plan plans[2], struct arena *arena)
{
    struct comparison c = {.runs = true,
                           .pairing = COMPARE_FULLEST,
                           .first = plans[0].name,
                           .second = plans[1].name,
                           .rows = arena_array(arena, ROLE_COUNT, sizeof *c.rows),
                           .row_count = ROLE_COUNT};
    int64_t ranks[2];
    for (int p = 0; p < 2; p++)
        ranks[p] = plans[p].stage * layout_ranks(layout_of(&plans[p])) / plans[p].pipeline->count;
    for (int role = 0; role < ROLE_COUNT; role++)
        c.rows[role] = (struct compare_row){.rank = ranks[1],
                                            .before_rank = ranks[0],
                                            .role = (enum role)role,
                                            .predicted_bytes = worst_of(&plans[0])->at_peak[role],
                                            .measured_bytes = worst_of(&plans[1])->at_peak[role]};
    return c;
}

struct report *compare_plans_report(const struct compare_plan plans[2], struct arena *arena)
{
    char bytes[2][UNITS_TEXT], seconds[2][UNITS_TEXT];
    const char *steps = "";
    for (int i = 0; i < 2; i++) {
        units_format_bytes(needed_of(&plans[i]), bytes[i]);
        units_format_seconds(plans[i].step_seconds, seconds[i]);
    }
    if (!isnan(plans[0].step_seconds) && !isnan(plans[1].step_seconds))
        steps = arena_printf(arena, ", %s and %s a step", seconds[0], seconds[1]);
    struct report *report = report_create(arena, "%s and %s: %s and %s needed on a rank%s", plans[0].name,
                                          plans[1].name, bytes[0], bytes[1], steps);
    const struct layout_facts facts[2] = {facts_of(&plans[0], arena), facts_of(&plans[1], arena)};
    for (int i = 0; i < 2; i++)
        report_fact(report, plans[i].name, "%s; recompute %s", describe_layout(facts[i].layout, arena),
                    facts[i].recompute_shown ? facts[i].recompute_shown : facts[i].recompute);
    add_layouts(report, plans, facts);
    add_memory(report, plans);
    add_stages(report, plans);
    add_times(report, plans);
    return report;
}

/* ------------------------------------------------------------------------------------------------------------- JSON */

static json_t *pair_of_whole(int64_t first, int64_t second)
{
    return json_pack("[I, I]", (json_int_t)first, (json_int_t)second);
}

static json_t *real_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *pair_of_real(double first, double second)
{
    return json_pack("[o, o]", real_or_null(first), real_or_null(second));
}

static json_t *roles_to_json(const struct compare_plan plans[2])
{
    json_t *out = json_object();
    for (int role = 0; role < ROLE_COUNT; role++) {
        int64_t runtime[2] = {0, 0};
        for (int i = 0; role == ROLE_RUNTIME && i < 2; i++)
            runtime[i] = plans[i].room.runtime_bytes;
        json_object_set_new(out, role_name((enum role)role),
                            pair_of_whole(worst_of(&plans[0])->at_peak[role] + runtime[0],
                                          worst_of(&plans[1])->at_peak[role] + runtime[1]));
    }
    return out;
}

static json_t *stages_to_json(const struct compare_plan *plan)
{
    json_t *out = json_array();
    for (int i = 0; i < plan->pipeline->count; i++)
        json_array_append_new(out, json_integer(plan->pipeline->stages[i]->arena_bytes));
    return out;
}

json_t *compare_plans_to_json(const struct compare_plan plans[2])
{
    const struct program *a = worst_of(&plans[0]), *b = worst_of(&plans[1]);
    json_t *parts = json_object();
    for (int part = 0; part < COMPARE_PARTS; part++)
        json_object_set_new(parts, part_names[part],
                            pair_of_real(plans[0].seconds[part], plans[1].seconds[part]));
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", "plans", "first",
        jsonfile_string(plans[0].name), "second", jsonfile_string(plans[1].name), "layouts",
        json_pack("[o, o]", layout_to_json(layout_of(&plans[0])), layout_to_json(layout_of(&plans[1]))),
        "peak_bytes", pair_of_whole(a->peak_bytes, b->peak_bytes), "arena_bytes",
        pair_of_whole(a->arena_bytes, b->arena_bytes), "needed_bytes",
        pair_of_whole(needed_of(&plans[0]), needed_of(&plans[1])), "by_role", roles_to_json(plans),
        "stage_arena_bytes", json_pack("[o, o]", stages_to_json(&plans[0]), stages_to_json(&plans[1])),
        "step_seconds", pair_of_real(plans[0].step_seconds, plans[1].step_seconds), "planned_step_seconds",
        pair_of_real(planned_step(&plans[0]), planned_step(&plans[1])), "step_parts", parts);
}
