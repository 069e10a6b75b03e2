/* Comparisons in words and in JSON. Ranks with the same figures share a table, so that 64 ranks read like one. */
#include "base/units.h"
#include "reports/breakdown.h"
#include "reports/compare.h"
#include "reports/describe.h"
#include "reports/json_values.h"
#include "reports/ranges.h"

#include <string.h>

enum { MOST_GROUPS = 3, MOST_CHANGES = 10 };

static const struct table_column plan_columns[] = {{"", TABLE_TEXT},
                                                   {"predicted", TABLE_BYTES},
                                                   {"measured", TABLE_BYTES},
                                                   {"error", TABLE_CHANGE},
                                                   {"of the peak", TABLE_PERCENT}};
static const struct table_column run_columns[] = {{"", TABLE_TEXT},
                                                  {"before", TABLE_BYTES},
                                                  {"after", TABLE_BYTES},
                                                  {"change", TABLE_CHANGE},
                                                  {"of the peak", TABLE_PERCENT}};
static const struct table_column change_columns[] = {{"", TABLE_TEXT},
                                                     {"role", TABLE_TEXT},
                                                     {"before", TABLE_BYTES},
                                                     {"after", TABLE_BYTES},
                                                     {"change", TABLE_CHANGE}};
static const struct table_column missed_columns[] = {{"", TABLE_TEXT},
                                                     {"role", TABLE_TEXT},
                                                     {"predicted", TABLE_BYTES},
                                                     {"measured", TABLE_BYTES},
                                                     {"error", TABLE_CHANGE}};

/* An error is positive where too much was predicted; a change where the second run holds more. */
static int64_t difference_of(const struct comparison *c, int64_t first, int64_t second)
{
    return c->runs ? second - first : first - second;
}

static bool equal_ranks(const struct compare_row *a, const struct compare_row *b)
{
    for (int role = 0; role < ROLE_COUNT; role++)
        if (a[role].predicted_bytes != b[role].predicted_bytes ||
            a[role].measured_bytes != b[role].measured_bytes)
            return false;
    return true;
}

/* The sums of one rank; returns the peak that differences are a part of. */
static int64_t sum_rank(const struct comparison *c, const struct compare_row *rows, int64_t *first,
                        int64_t *second)
{
    *first = *second = 0;
    for (int role = 0; role < ROLE_COUNT; role++) {
        *first += rows[role].predicted_bytes;
        *second += rows[role].measured_bytes;
    }
    return c->runs ? *first : *second;
}

static void add_row(struct table *table, const struct comparison *c, const char *name, int64_t first,
                    int64_t second, int64_t peak_bytes)
{
    int64_t difference = difference_of(c, first, second);
    double share = difference && peak_bytes ? (double)difference / (double)peak_bytes : NAN;
    table_add(table, (struct table_cell[]){cell_text(name), cell_whole(first), cell_whole(second),
                                           cell_whole(difference), cell_real(share)});
}

static void add_rank(struct report *report, const struct comparison *c, const char *heading,
                     const struct compare_row *rows)
{
    struct table *table = report_table(report, heading, c->runs ? run_columns : plan_columns, 5);
    int64_t first, second, peak_bytes = sum_rank(c, rows, &first, &second);
    for (int role = 0; role < ROLE_COUNT; role++)
        if (rows[role].predicted_bytes || rows[role].measured_bytes)
            add_row(table, c, role_name((enum role)role), rows[role].predicted_bytes,
                    rows[role].measured_bytes, peak_bytes);
    add_row(table, c, "total", first, second, peak_bytes);
}

static int64_t number_of(const struct comparison *c, const struct compare_row *row)
{
    return c->pairing == COMPARE_BY_STAGE ? row->stage : row->rank;
}

/* The ranks, or stages, equal to the one whose rows begin at `at`; none when an earlier one is too. */
static int64_t collect_equal(const struct comparison *c, int64_t at, int64_t *numbers)
{
    int64_t count = 0;
    for (int64_t i = 0; i < c->row_count; i += ROLE_COUNT) {
        if (!equal_ranks(&c->rows[i], &c->rows[at]))
            continue;
        if (i < at)
            return 0;
        numbers[count++] = number_of(c, &c->rows[i]);
    }
    return count;
}

struct rank_group {
    const struct compare_row *rows;
    const char *name;
    int64_t ranks, error_bytes;
};

static int largest_error_first(const void *left, const void *right)
{
    const struct rank_group *a = left, *b = right;
    if (a->error_bytes != b->error_bytes)
        return a->error_bytes < b->error_bytes ? 1 : -1;
    return a->rows < b->rows ? -1 : 1;
}

static int64_t error_of(const struct comparison *c, const struct compare_row *rows)
{
    int64_t first, second, most;
    sum_rank(c, rows, &first, &second);
    most = llabs(first - second);
    for (int role = 0; role < ROLE_COUNT; role++) {
        int64_t error = llabs(rows[role].predicted_bytes - rows[role].measured_bytes);
        most = error > most ? error : most;
    }
    return most;
}

const struct compare_row *compare_worst(const struct comparison *c)
{
    const struct compare_row *worst = c->rows;
    for (int64_t i = 0; i < c->row_count; i += ROLE_COUNT)
        if (error_of(c, &c->rows[i]) > error_of(c, worst))
            worst = &c->rows[i];
    return worst;
}

const char *compare_pair_name(const struct comparison *c, const struct compare_row *row, struct arena *arena)
{
    if (c->pairing == COMPARE_BY_RANK)
        return arena_printf(arena, "rank %lld", (long long)row->rank);
    if (c->pairing == COMPARE_BY_STAGE)
        return arena_printf(arena, "the fullest rank of stage %lld", (long long)row->stage);
    return "the fullest rank";
}

/* What stands over the figures of so many pairs that are alike, the first of which is `row`. */
static const char *pairs_heading(const struct comparison *c, const struct compare_row *row,
                                 const int64_t *numbers, int64_t count, struct arena *arena)
{
    const char *thing = c->pairing == COMPARE_BY_STAGE ? "Stage" : "Rank";
    const char *name =
        c->pairing == COMPARE_FULLEST ? "The fullest rank" : ranges_name(arena, thing, numbers, count);
    if (count > 1)
        return arena_printf(arena, "%s (%s)", name,
                            c->pairing == COMPARE_BY_STAGE ? "each, on its fullest rank" : "each");
    if (c->pairing == COMPARE_BY_RANK)
        return name;
    return arena_printf(arena, "%s: rank %lld before, rank %lld after", name, (long long)row->before_rank,
                        (long long)row->rank);
}

static void add_ranks(struct report *report, const struct comparison *c)
{
    size_t most = (size_t)(c->row_count / ROLE_COUNT);
    struct rank_group *groups = arena_array(report->arena, most, sizeof *groups);
    int64_t *numbers = arena_array(report->arena, most, sizeof *numbers), count = 0, left_out = 0;
    for (int64_t i = 0; i < c->row_count; i += ROLE_COUNT) {
        int64_t equal = collect_equal(c, i, numbers);
        if (equal == 0)
            continue;
        const char *heading = pairs_heading(c, &c->rows[i], numbers, equal, report->arena);
        groups[count++] = (struct rank_group){&c->rows[i], heading, equal, error_of(c, &c->rows[i])};
    }
    qsort(groups, (size_t)count, sizeof *groups, largest_error_first);
    for (int64_t i = 0; i < count; i++)
        if (i < MOST_GROUPS) {
            add_rank(report, c, groups[i].name, groups[i].rows);
            report_set_topic(report, i == 0 ? TOPIC_PAIRS : TOPIC_NONE);
        } else {
            left_out += groups[i].ranks;
        }
    if (left_out)
        report_remark(report, NULL, "%lld more %s differ no more than these.", (long long)left_out,
                      c->pairing == COMPARE_BY_STAGE ? "stages" : "ranks");
}

static const char *short_name(const struct compare_change *change)
{
    return change->name ? describe_short_name(change->name, change->layer) : "";
}

static bool equal_changes(const struct compare_change *a, const struct compare_change *b)
{
    return a->role == b->role && a->before_bytes == b->before_bytes && a->after_bytes == b->after_bytes &&
           (a->layer < 0) == (b->layer < 0) && !strcmp(short_name(a), short_name(b));
}

/* The layers that changed as changes[at] did; none when an earlier one did too. */
static int64_t collect_layers(const struct compare_change *changes, int64_t count, int64_t at,
                              int64_t *layers)
{
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!equal_changes(&changes[i], &changes[at]))
            continue;
        if (i < at)
            return 0;
        layers[found++] = changes[i].layer;
    }
    return found;
}

static const char *change_name(struct arena *arena, const struct comparison *c,
                               const struct compare_change *change, const int64_t *layers, int64_t count)
{
    if (change->layer < 0)
        return change->name ? change->name : breakdown_outside(c->staged);
    const char *where = ranges_name(arena, "layer", layers, count), *each = count > 1 ? " (each)" : "";
    return arena_printf(arena, "%s%s%s%s", where, change->name ? " " : "", short_name(change), each);
}

static void add_changes(struct report *report, const struct comparison *c, const char *heading,
                        const struct compare_change *changes, int64_t count)
{
    if (count == 0)
        return;
    struct table *table = report_table(report, heading, c->runs ? change_columns : missed_columns, 5);
    int64_t *layers = arena_array(report->arena, (size_t)count, sizeof *layers), left_out = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t equal = collect_layers(changes, count, i, layers);
        if (equal && table->row_count == MOST_CHANGES)
            left_out += equal;
        else if (equal)
            table_add(table,
                      (struct table_cell[]){
                          cell_text(change_name(report->arena, c, &changes[i], layers, equal)),
                          cell_text(role_name(changes[i].role)), cell_whole(changes[i].before_bytes),
                          cell_whole(changes[i].after_bytes),
                          cell_whole(difference_of(c, changes[i].before_bytes, changes[i].after_bytes))});
    }
    if (left_out)
        report_remark(report, NULL, "%lld more %s less.", (long long)left_out,
                      c->runs ? "changed" : "differ");
}

/* "3 tensors, 24.00 KiB" */
static const char *count_tensors(struct arena *arena, int64_t count, int64_t bytes)
{
    char size[UNITS_TEXT];
    return arena_printf(arena, "%lld tensor%s, %s", (long long)count, count == 1 ? "" : "s",
                        units_format_bytes(bytes, size));
}

/* The pair of ranks on which changes were looked for. */
static const char *changed_name(const struct comparison *c, struct arena *arena)
{
    const struct compare_row *row = c->rows;
    while (row->rank != c->changed_rank)
        row++;
    return arena_printf(arena, "on %s", compare_pair_name(c, row, arena));
}

static void add_peaks(struct report *report, const struct comparison *c, const char *rank)
{
    struct arena *arena = report->arena;
    if (!c->located)
        return;
    const char *first = breakdown_moment_text(&c->first_moment, arena),
               *second = breakdown_moment_text(&c->second_moment, arena);
    const char *heading =
        arena_printf(arena, c->runs ? "Whether the peak moved, %s" : "Where the peak was, %s", rank);
    first = first ? first : "outside all operations";
    second = second ? second : "outside all operations";
    if (!c->moved)
        report_remark(report, heading, c->runs ? "No: it is still at %s." : "As predicted: %s.", second);
    else if (c->runs)
        report_remark(report, heading, "Yes. Before: %s. After: %s.", first, second);
    else
        report_remark(report, heading, "Predicted: %s. Measured: %s.", first, second);
    if (c->arrived)
        report_remark(report, NULL, "Alive at the peak of %s, and not at that of %s: %s.", c->second,
                      c->first, count_tensors(arena, c->arrived, c->arrived_bytes));
    if (c->left)
        report_remark(report, NULL, "Alive at the peak of %s, and not at that of %s: %s.", c->first,
                      c->second, count_tensors(arena, c->left, c->left_bytes));
}

struct report *compare_report(const struct comparison *c, struct arena *arena)
{
    char most[UNITS_TEXT], share[TABLE_CELL];
    struct report *report;
    const char *first = c->runs ? c->first : "The plan";
    if (c->max_error_bytes == 0)
        report = report_create(arena, "%s and %s agree to the byte", first, c->second);
    else
        report =
            report_create(arena, "%s and %s differ by up to %s, %s of the %s peak", first, c->second,
                          units_format_bytes(c->max_error_bytes, most),
                          table_percent_text(c->max_error_fraction, share), c->runs ? "first" : "measured");
    if (c->remark)
        report_remark(report, NULL, "%s", c->remark);
    if (c->layouts[0].layout && c->layouts[1].layout)
        layout_table_add(report,
                         c->runs ? (const char *[]){"before", "after"} : (const char *[]){"plan", "run"},
                         c->layouts);
    add_ranks(report, c);
    stage_table_add_pair(report, "The highest peak of each stage", c->stage_peaks);
    const char *rank = changed_name(c, arena);
    const char *what = c->runs ? "that changed" : "that differ";
    add_peaks(report, c, rank);
    add_changes(report, c, arena_printf(arena, "Layers %s, %s", what, rank), c->layers, c->layer_count);
    add_changes(report, c, arena_printf(arena, "Tensors %s, %s", what, rank), c->tensors, c->tensor_count);
    return report;
}

/* ------------------------------------------------------------------------------------------------------------- JSON */

static json_t *rows_list(const struct comparison *c)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < c->row_count; i++) {
        const struct compare_row *row = &c->rows[i];
        json_t *object = json_pack("{s:I, s:s, s:I, s:I}", "rank", (json_int_t)row->rank, "role",
                                   role_name(row->role), "predicted_bytes", (json_int_t)row->predicted_bytes,
                                   "measured_bytes", (json_int_t)row->measured_bytes);
        if (c->runs)
            json_object_set_new(object, "before_rank", json_integer(row->before_rank));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *stage_peaks_list(const struct stage_bytes peaks[2])
{
    json_t *list = json_array();
    for (int64_t stage = 0; stage < peaks[0].count || stage < peaks[1].count; stage++) {
        json_t *sides[2];
        for (int i = 0; i < 2; i++)
            sides[i] = stage < peaks[i].count ? json_integer(peaks[i].bytes[stage]) : json_null();
        json_array_append_new(list, json_pack("{s:I, s:o, s:o}", "stage", (json_int_t)stage, "before_bytes",
                                              sides[0], "after_bytes", sides[1]));
    }
    return list;
}

static json_t *layouts_list(const struct layout_facts facts[2])
{
    json_t *list = json_array();
    for (int i = 0; i < 2; i++)
        json_array_append_new(list, facts[i].layout ? layout_to_json(facts[i].layout) : json_null());
    return list;
}

/* Of two runs: which ranks stand beside which. */
static void add_pairing(json_t *object, const struct comparison *c)
{
    static const char *const pairings[] = {
        [COMPARE_BY_RANK] = "rank", [COMPARE_BY_STAGE] = "stage", [COMPARE_FULLEST] = "fullest rank"};
    json_object_set_new(object, "paired_by", json_string(pairings[c->pairing]));
    json_object_set_new(object, "stage_peaks", stage_peaks_list(c->stage_peaks));
    json_object_set_new(object, "changed_before_rank", json_integer(c->changed_before_rank));
}

static json_t *changes_list(const struct compare_change *changes, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) {
        json_t *change =
            json_pack("{s:o, s:s, s:I, s:I}", "layer", json_values_id(changes[i].layer), "role",
                      role_name(changes[i].role), "before_bytes", (json_int_t)changes[i].before_bytes,
                      "after_bytes", (json_int_t)changes[i].after_bytes);
        if (changes[i].name)
            json_object_set_new(change, "name", jsonfile_string(changes[i].name));
        json_array_append_new(list, change);
    }
    return list;
}

json_t *compare_to_json(const struct comparison *c)
{
    json_t *object =
        json_pack("{s:s, s:o, s:o, s:o, s:I, s:f, s:o}", "kind", c->runs ? "runs" : "plan and run", "first",
                  jsonfile_string(c->first), "second", jsonfile_string(c->second), "remark",
                  jsonfile_string(c->remark), "max_error_bytes", (json_int_t)c->max_error_bytes,
                  "max_error_fraction", c->max_error_fraction, "rows", rows_list(c));
    json_object_set_new(object, "layouts", layouts_list(c->layouts));
    if (c->runs)
        add_pairing(object, c);
    json_object_set_new(object, "changed_rank", json_integer(c->changed_rank));
    json_object_set_new(object, "changed_layers", changes_list(c->layers, c->layer_count));
    json_object_set_new(object, "changed_tensors", changes_list(c->tensors, c->tensor_count));
    json_object_set_new(object, "peak_moved", c->located ? json_boolean(c->moved) : json_null());
    if (c->located) {
        json_object_set_new(object, "first_peak_at", breakdown_moment_to_json(&c->first_moment));
        json_object_set_new(object, "second_peak_at", breakdown_moment_to_json(&c->second_moment));
        json_object_set_new(object, "arrived_bytes", json_integer(c->arrived_bytes));
        json_object_set_new(object, "left_bytes", json_integer(c->left_bytes));
    }
    return object;
}
