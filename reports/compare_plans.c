#include "reports/compare_plans.h"

#include "base/text.h"
#include "base/units.h"
#include "model/recompute.h"
#include "reports/describe.h"
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

/* ----------------------------------------------------------------------------------------------------------- layout */

/* How many layers recompute anything, and in how many ways, where the whole list would be long. */
static const char *recompute_text(const struct compare_plan *plan, struct arena *arena)
{
    enum { SHORT = 40 };
    const struct program *first = plan->pipeline->stages[0];
    struct text text = {0};
    int64_t layers = 0;
    recompute_print(&first->model, first->recompute, &text);
    for (int64_t i = 0; i < first->model.layers; i++)
        layers += first->recompute[i] != 0;
    const char *out = text.length <= SHORT ? arena_strdup(arena, text.data)
                                           : arena_printf(arena, "layer by layer, in %" PRId64 " of %" PRId64,
                                                          layers, first->model.layers);
    text_free(&text);
    return out;
}

static const char *whole(int64_t number, struct arena *arena)
{
    return arena_printf(arena, "%" PRId64, number);
}

static const char *layers_text(const struct compare_plan *plan, struct arena *arena)
{
    struct text text = {0};
    layout_print_layers(stage_table_chunk_layers(plan->pipeline, arena), layout_chunks(layout_of(plan)),
                        &text);
    const char *out = arena_strdup(arena, text.data);
    text_free(&text);
    return out;
}

enum { LAYOUT_ROWS = 15 };

/* A name and a text of each. */
static void list_layout(const struct compare_plan *plan, struct arena *arena, const char *names[LAYOUT_ROWS],
                        const char *texts[LAYOUT_ROWS])
{
    const struct layout *l = layout_of(plan);
    const struct {
        const char *name, *text;
    } rows[LAYOUT_ROWS] = {
        {"model", plan->pipeline->stages[0]->model.name},
        {"device", plan->device},
        {"data-parallel ranks", whole(l->dp, arena)},
        {"tensor-parallel ranks", whole(l->tp, arena)},
        {"sequence parallel", l->sequence_parallel ? "yes" : "no"},
        {"pipeline stages", whole(l->pp, arena)},
        {"schedule", l->pp > 1 ? schedule_name(l->schedule) : "-"},
        {"chunks a stage", whole(l->virtual_stages, arena)},
        {"layers", layers_text(plan, arena)},
        {"micro-batch", whole(l->micro_batch, arena)},
        {"global batch", whole(l->global_batch, arena)},
        {"sequence", whole(l->seq_len, arena)},
        {"ZeRO", whole(l->zero, arena)},
        {"precision", precision_name(l->precision)},
        {"recompute", recompute_text(plan, arena)},
    };
    for (int i = 0; i < LAYOUT_ROWS; i++) {
        names[i] = rows[i].name;
        texts[i] = rows[i].text;
    }
}

/* Masks may differ where their descriptions agree. */
static bool same_masks(const struct compare_plan plans[2])
{
    const struct program *a = plans[0].pipeline->stages[0], *b = plans[1].pipeline->stages[0];
    return a->model.layers == b->model.layers &&
           !memcmp(a->recompute, b->recompute, (size_t)a->model.layers * sizeof *a->recompute);
}

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

static void add_layouts(struct report *report, const struct compare_plan plans[2])
{
    const char *names[LAYOUT_ROWS], *texts[2][LAYOUT_ROWS];
    struct arena *arena = report->arena;
    const char *heading = "Where the layouts differ";
    struct table *table = NULL;
    for (int i = 0; i < 2; i++)
        list_layout(&plans[i], arena, names, texts[i]);
    for (int row = 0; row < LAYOUT_ROWS; row++) {
        bool masks = row == LAYOUT_ROWS - 1 && !same_masks(plans);
        if (!strcmp(texts[0][row], texts[1][row]) && !masks)
            continue;
        if (!table)
            table = report_table(report, heading, columns_of(plans, TABLE_TEXT, TABLE_TEXT, arena), 3);
        table_add(table, (struct table_cell[]){cell_text(names[row]), cell_text(texts[0][row]),
                                               cell_text(texts[1][row])});
    }
    if (!table)
        report_remark(report, heading, "Nowhere: model, layout and recomputation are the same.");
}

/* ----------------------------------------------------------------------------------------------------------- memory */

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

/* What each stage takes at launch; a plan with fewer has blanks. */
static void add_stages(struct report *report, const struct compare_plan plans[2])
{
    int count[2] = {plans[0].pipeline->count, plans[1].pipeline->count};
    int most = count[0] > count[1] ? count[0] : count[1];
    if (most == 1)
        return;
    struct table *table = report_table(report, "The arena of each stage",
                                       columns_of(plans, TABLE_BYTES, TABLE_CHANGE, report->arena), 4);
    for (int i = 0; i < most; i++) {
        struct table_cell cells[4] = {cell_text(arena_printf(report->arena, "stage %d", i))};
        for (int p = 0; p < 2; p++)
            cells[1 + p] =
                i < count[p] ? cell_whole(plans[p].pipeline->stages[i]->arena_bytes) : cell_blank();
        cells[3] = i < count[0] && i < count[1] ? cell_whole(cells[2].whole - cells[1].whole) : cell_blank();
        table_add(table, cells);
    }
}

/* ------------------------------------------------------------------------------------------------------------ times */

static void add_seconds(struct table *table, const char *name, double first, double second)
{
    table_add(table, (struct table_cell[]){cell_text(name), cell_real(first), cell_real(second),
                                           cell_real(first > 0 ? second / first - 1 : NAN)});
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

static void add_times(struct report *report, const struct compare_plan plans[2])
{
    if (isnan(plans[0].step_seconds) || isnan(plans[1].step_seconds))
        return;
    struct table *table = report_table(report, "What a step is made of",
                                       columns_of(plans, TABLE_SECONDS, TABLE_PERCENT, report->arena), 4);
    for (int part = 0; part < COMPARE_PARTS; part++)
        if (plans[0].seconds[part] > 0 || plans[1].seconds[part] > 0)
            add_seconds(table, part_names[part], plans[0].seconds[part], plans[1].seconds[part]);
    add_seconds(table, "step", plans[0].step_seconds, plans[1].step_seconds);
    if (was_planned_otherwise(&plans[0]) || was_planned_otherwise(&plans[1]))
        add_seconds(table, "planned step", planned_step(&plans[0]), planned_step(&plans[1]));
}

struct comparison compare_plans_peaks(const struct compare_plan plans[2], struct arena *arena)
{
    struct comparison c = {.runs = true,
                           .first = plans[0].name,
                           .second = plans[1].name,
                           .rows = arena_array(arena, ROLE_COUNT, sizeof *c.rows),
                           .row_count = ROLE_COUNT};
    int64_t ranks = layout_ranks(layout_of(&plans[1])) / plans[1].pipeline->count;
    for (int role = 0; role < ROLE_COUNT; role++)
        c.rows[role] =
            (struct compare_row){plans[1].stage * ranks, (enum role)role, worst_of(&plans[0])->at_peak[role],
                                 worst_of(&plans[1])->at_peak[role]};
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
    for (int i = 0; i < 2; i++)
        report_fact(report, plans[i].name, "%s; recompute %s", describe_layout(layout_of(&plans[i]), arena),
                    recompute_text(&plans[i], arena));
    add_layouts(report, plans);
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
        "{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", "plans", "first",
        plans[0].name, "second", plans[1].name, "layouts",
        json_pack("[o, o]", layout_to_json(layout_of(&plans[0])), layout_to_json(layout_of(&plans[1]))),
        "peak_bytes", pair_of_whole(a->peak_bytes, b->peak_bytes), "arena_bytes",
        pair_of_whole(a->arena_bytes, b->arena_bytes), "needed_bytes",
        pair_of_whole(needed_of(&plans[0]), needed_of(&plans[1])), "by_role", roles_to_json(plans),
        "stage_arena_bytes", json_pack("[o, o]", stages_to_json(&plans[0]), stages_to_json(&plans[1])),
        "step_seconds", pair_of_real(plans[0].step_seconds, plans[1].step_seconds), "planned_step_seconds",
        pair_of_real(planned_step(&plans[0]), planned_step(&plans[1])), "step_parts", parts);
}
