#include "reports/table.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct table *table_create(struct arena *arena, const struct table_column *columns, int column_count)
{
    struct table *table = arena_alloc(arena, sizeof *table);
    *table = (struct table){.arena = arena, .columns = columns, .column_count = column_count};
    return table;
}

void table_add(struct table *table, const struct table_cell *cells)
{
    struct table_row *row = arena_alloc(table->arena, sizeof *row);
    struct table_cell *copy = arena_array(table->arena, (size_t)table->column_count, sizeof *copy);
    memcpy(copy, cells, (size_t)table->column_count * sizeof *copy);
    row->cells = copy;
    if (table->last)
        table->last->next = row;
    else
        table->rows = row;
    table->last = row;
    table->row_count++;
}

const char *table_change_text(int64_t bytes, char *out)
{
    char magnitude[UNITS_TEXT];
    snprintf(out, TABLE_CELL, "%s%s", bytes > 0 ? "+" : "", units_format_bytes(bytes, magnitude));
    return out;
}

const char *table_percent_text(double share, char *out)
{
    if (share == 0)
        snprintf(out, TABLE_CELL, "0%%");
    else if (fabs(share) < 0.0005)
        snprintf(out, TABLE_CELL, share > 0 ? "<0.1%%" : "-<0.1%%");
    else if (fabs(share) >= 100) /* nobody reads so many per cent */
        snprintf(out, TABLE_CELL, "%.3gx", share);
    else
        snprintf(out, TABLE_CELL, "%.1f%%", 100 * share);
    return out;
}

static const char *number_text(double number, char *out)
{
    snprintf(out, TABLE_CELL, fabs(number) < 10000 ? "%.4f" : "%.4e", number);
    return out;
}

const char *table_cell_text(enum table_kind kind, const struct table_cell *cell, char *out)
{
    if (!cell->filled)
        return "";
    switch (kind) {
    case TABLE_TEXT:
    case TABLE_QUANTITY:
        return cell->text;
    case TABLE_COUNT:
        return units_format_count(cell->whole, out);
    case TABLE_BYTES:
        return units_format_bytes(cell->whole, out);
    case TABLE_CHANGE:
        return table_change_text(cell->whole, out);
    case TABLE_SECONDS:
        return units_format_seconds(cell->real, out);
    case TABLE_PERCENT:
        return table_percent_text(cell->real, out);
    case TABLE_NUMBER:
        return number_text(cell->real, out);
    case TABLE_BAR:
        break;
    }
    return "";
}
