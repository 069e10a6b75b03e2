#include "reports/rank_table.h"

#include "base/units.h"
#include "reports/json_values.h"
#include "reports/ranges.h"

#include <string.h>

enum { MOST_ROWS = 16, STAGE_COLUMNS = 2 };

/* The first STAGE_COLUMNS are left out where there is one stage. */
static const struct table_column predicted_columns[] = {{"stage", TABLE_TEXT},  {"layers", TABLE_TEXT},
                                                        {"ranks", TABLE_TEXT},  {"peak", TABLE_BYTES},
                                                        {"arena", TABLE_BYTES}, {"", TABLE_BAR}};
static const struct table_column measured_columns[] = {
    {"stage", TABLE_TEXT},      {"layers", TABLE_TEXT},  {"ranks", TABLE_TEXT}, {"measured", TABLE_BYTES},
    {"predicted", TABLE_BYTES}, {"error", TABLE_CHANGE}, {"", TABLE_BAR}};
static const struct table_column role_columns[] = {{"stage", TABLE_TEXT},      {"ranks", TABLE_TEXT},
                                                   {"parameter", TABLE_BYTES}, {"gradient", TABLE_BYTES},
                                                   {"optimizer", TABLE_BYTES}, {"activation", TABLE_BYTES},
                                                   {"other", TABLE_BYTES}};

/* Rows with the same figures. */
struct group {
    const struct rank_row *row;
    const char *ranks; /* "0-3, 8" */
};

static bool equal_rows(const struct rank_row *a, const struct rank_row *b)
{
    return a->stage == b->stage && a->peak_bytes == b->peak_bytes && a->arena_bytes == b->arena_bytes &&
           a->predicted_bytes == b->predicted_bytes && !memcmp(a->by_role, b->by_role, sizeof a->by_role);
}

static const char *print_ranks(const struct rank_row *rows, int64_t count, int64_t at, struct arena *arena)
{
    if (rows[at].count > 1)
        return arena_printf(arena, "%lld-%lld", (long long)rows[at].first,
                            (long long)(rows[at].first + rows[at].count - 1));
    int64_t *ranks = arena_array(arena, (size_t)count, sizeof *ranks), found = 0;
    for (int64_t i = at; i < count; i++)
        if (equal_rows(&rows[i], &rows[at]))
            ranks[found++] = rows[i].first;
    return ranges_print(arena, ranks, found);
}

static const char *name_ranks(const struct rank_row *rows, int64_t count, int64_t at, struct arena *arena)
{
    const char *ranks = print_ranks(rows, count, at, arena);
    return rows[at].device ? arena_printf(arena, "%s on %s", ranks, rows[at].device) : ranks;
}

static bool seen_before(const struct rank_row *rows, int64_t at)
{
    for (int64_t i = 0; i < at; i++)
        if (equal_rows(&rows[i], &rows[at]))
            return true;
    return false;
}

/* The first MOST_ROWS groups; sets *found to how many there are in all. */
static int64_t list_groups(const struct rank_row *rows, int64_t count, struct arena *arena,
                           struct group groups[MOST_ROWS], int64_t *found)
{
    *found = 0;
    for (int64_t i = 0; i < count; i++) {
        if (seen_before(rows, i))
            continue;
        if (*found < MOST_ROWS)
            groups[*found] = (struct group){&rows[i], name_ranks(rows, count, i, arena)};
        ++*found;
    }
    return *found < MOST_ROWS ? *found : MOST_ROWS;
}

static int64_t highest_peak(const struct rank_row *rows, int64_t count)
{
    int64_t highest = 1;
    for (int64_t i = 0; i < count; i++)
        highest = rows[i].peak_bytes > highest ? rows[i].peak_bytes : highest;
    return highest;
}

static struct table_cell stage_cell(struct arena *arena, const struct rank_row *row)
{
    return cell_text(row->stage < 0 ? "" : arena_printf(arena, "%lld", (long long)row->stage));
}

static void add_peak(struct table *table, const struct group *group, bool staged, bool measured,
                     int64_t highest)
{
    const struct rank_row *row = group->row;
    bool foretold = row->predicted_bytes >= 0;
    struct table_cell cells[7] = {
        stage_cell(table->arena, row),
        cell_text(ranges_print(table->arena, row->layers, row->layer_count)),
        cell_text(group->ranks),
        cell_whole(row->peak_bytes),
        measured ? cell_blank() : cell_whole(row->arena_bytes),
    };
    if (measured && foretold) {
        cells[4] = cell_whole(row->predicted_bytes);
        cells[5] = cell_whole(row->predicted_bytes - row->peak_bytes);
    }
    cells[measured ? 6 : 5] = cell_real((double)row->peak_bytes / (double)highest);
    table_add(table, cells + (staged ? 0 : STAGE_COLUMNS));
}

static void add_roles(struct report *report, const struct group *groups, int64_t count)
{
    struct table *table = report_table(report, "Their peaks by role", role_columns, 7);
    for (int64_t i = 0; i < count; i++) {
        const int64_t *by_role = groups[i].row->by_role;
        int64_t other = by_role[ROLE_WORKSPACE] + by_role[ROLE_COMMUNICATION] + by_role[ROLE_INPUT] +
                        by_role[ROLE_RUNTIME];
        table_add(table, (struct table_cell[]){
                             stage_cell(table->arena, groups[i].row), cell_text(groups[i].ranks),
                             cell_whole(by_role[ROLE_PARAMETER]), cell_whole(by_role[ROLE_GRADIENT]),
                             cell_whole(by_role[ROLE_OPTIMIZER]), cell_whole(by_role[ROLE_ACTIVATION]),
                             cell_whole(other)});
    }
}

void rank_table_add(struct report *report, const struct rank_row *rows, int64_t count, bool measured)
{
    struct group groups[MOST_ROWS];
    char highest[UNITS_TEXT];
    int64_t found, listed = list_groups(rows, count, report->arena, groups, &found);
    bool staged = count > 0 && rows[count - 1].stage > 0;
    if (found <= 1 && !staged)
        return;
    int columns = (measured ? 7 : 6) - (staged ? 0 : STAGE_COLUMNS);
    struct table *table = report_table(
        report, staged ? "Stages" : "Ranks",
        (measured ? measured_columns : predicted_columns) + (staged ? 0 : STAGE_COLUMNS), columns);
    report_set_topic(report, TOPIC_STAGES);
    for (int64_t i = 0; i < listed; i++)
        add_peak(table, &groups[i], staged, measured, highest_peak(rows, count));
    if (found > listed)
        report_remark(report, NULL, "%lld more are not shown; the highest peak of all is %s.",
                      (long long)(found - listed), units_format_bytes(highest_peak(rows, count), highest));
    if (staged)
        add_roles(report, groups, listed);
}

static json_t *layers_list(const struct rank_row *row)
{
    if (!row->layers)
        return json_null();
    json_t *list = json_array();
    for (int64_t i = 0; i < row->layer_count; i++)
        json_array_append_new(list, json_integer(row->layers[i]));
    return list;
}

json_t *rank_table_to_json(const struct rank_row *rows, int64_t count, bool measured)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) {
        json_t *by_role = json_object();
        json_values_add_roles(by_role, rows[i].by_role);
        json_t *row = json_pack("{s:o, s:I, s:I, s:o, s:I, s:I, s:o}", "stage", json_values_id(rows[i].stage),
                                "first_rank", (json_int_t)rows[i].first, "ranks", (json_int_t)rows[i].count,
                                "layers", layers_list(&rows[i]), "peak_bytes", (json_int_t)rows[i].peak_bytes,
                                "arena_bytes", (json_int_t)rows[i].arena_bytes, "by_role", by_role);
        if (rows[i].device)
            json_object_set_new(row, "device", json_string(rows[i].device));
        if (measured)
            json_object_set_new(row, "predicted_bytes", json_values_id(rows[i].predicted_bytes));
        json_array_append_new(list, row);
    }
    return list;
}
