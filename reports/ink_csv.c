/* All tables as CSV (RFC 4180), one below the other: a line with the table's name, its columns, its rows, an empty line. Bytes
 * are whole numbers, times seconds, shares fractions; where the rows of a column differ in unit, cells have theirs. */
#include "reports/writers.h"

#include <math.h>
#include <string.h>

static void add_field(struct text *out, const char *text)
{
    if (!text[strcspn(text, "\",\r\n")]) {
        text_add(out, text);
        return;
    }
    text_add(out, "\"");
    for (const char *at = text; *at; at++)
        text_add(out, *at == '"' ? "\"\"" : (const char[]){*at, '\0'});
    text_add(out, "\"");
}

static void add_cell(struct text *out, enum table_kind kind, const struct table_cell *cell)
{
    if (!cell->filled)
        return;
    switch (kind) {
    case TABLE_TEXT:
    case TABLE_QUANTITY:
        add_field(out, cell->text);
        break;
    case TABLE_COUNT:
    case TABLE_BYTES:
    case TABLE_CHANGE:
        text_printf(out, "%lld", (long long)cell->whole);
        break;
    default:
        text_printf(out, "%.9g", cell->real);
    }
}

static const char *unit_of(enum table_kind kind)
{
    return kind == TABLE_BYTES || kind == TABLE_CHANGE ? " bytes" : kind == TABLE_SECONDS ? " seconds" : "";
}

static void add_table(struct text *out, const struct table *table)
{
    for (int i = 0; i < table->column_count; i++) {
        if (table->columns[i].kind == TABLE_BAR)
            continue;
        const char *name = table->columns[i].heading, *unit = unit_of(table->columns[i].kind);
        struct text heading = {0};
        text_printf(&heading, "%s%s", name, *name ? unit : unit + (*unit == ' '));
        text_add(out, i ? "," : "");
        add_field(out, heading.data);
        text_free(&heading);
    }
    text_add(out, "\r\n");
    for (const struct table_row *row = table->rows; row; row = row->next) {
        for (int i = 0; i < table->column_count; i++) {
            if (table->columns[i].kind == TABLE_BAR)
                continue;
            text_add(out, i ? "," : "");
            add_cell(out, table->columns[i].kind, &row->cells[i]);
        }
        text_add(out, "\r\n");
    }
}

static int write_csv(const struct document *d, enum ink ink, struct text *out, struct error *err)
{
    (void)ink, (void)err;
    add_field(out, d->page->title);
    text_add(out, "\r\n");
    for (const struct report_fact *fact = d->page->facts; fact; fact = fact->next) {
        add_field(out, fact->label);
        text_add(out, ",");
        add_field(out, fact->text);
        text_add(out, "\r\n");
    }
    for (const struct report_section *section = d->page->sections; section; section = section->next) {
        if (!section->table)
            continue;
        text_add(out, "\r\n");
        add_field(out, section->heading ? section->heading : "");
        text_add(out, "\r\n");
        add_table(out, section->table);
    }
    return 0;
}

const struct writer writer_csv = {".csv", "the tables", {.pictures = true, .points = 1000}, write_csv};
