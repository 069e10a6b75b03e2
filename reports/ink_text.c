/* Text is measured in code points, which is right for everything but wide scripts. Quantities are aligned on their number,
 * with the unit in a column of its own: "474.70 MiB" above "512   B". */
#include "reports/ink_text.h"

#include "base/role.h"
#include "reports/palette.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { INDENT = 2, GAP = 2, MOST_COLUMNS = 12, BAR_MOST = 32, BAR_LEAST = 6, GAUGE_COLUMNS = 20 };

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Columns taken by the first `bytes` bytes: all but the continuation bytes of UTF-8. */
static int columns_of(const char *text, size_t bytes)
{
    int columns = 0;
    for (size_t i = 0; i < bytes; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

static int width_of(const char *text)
{
    return columns_of(text, strlen(text));
}

void ink_text_foreign(struct text *out, const char *text, size_t bytes)
{
    size_t start = out->length;
    text_printf(out, "%.*s", (int)bytes, text);
    for (size_t i = start; i < out->length; i++)
        if ((unsigned char)out->data[i] < ' ' || out->data[i] == 0x7f)
            out->data[i] = '?';
}

static void add_spaces(struct text *out, int count)
{
    for (int i = 0; i < count; i++)
        text_add(out, " ");
}

/* An escape for those terminals that have colours; "0" ends all. */
static void set_style(struct text *out, enum ink ink, const char *code)
{
    if (ink == INK_COLOURS)
        text_printf(out, "\033[%sm", code);
}

static void end_line(struct text *out)
{
    while (out->length && out->data[out->length - 1] == ' ')
        out->data[--out->length] = '\0';
    text_add(out, "\n");
}

/* ------------------------------------------------------------------------------------------------------------- bars */

int ink_text_bar(struct text *out, double share, int columns, enum ink ink)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    if (!(share > 0) || columns == 0)
        return 0;
    share = share < 1 ? share : 1;
    int fine = ink == INK_ASCII ? 1 : 8;
    int parts = larger((int)lround(share * columns * fine), fine > 1), whole = parts / fine;
    for (int i = 0; i < whole; i++)
        text_add(out, ink == INK_ASCII ? "#" : "█");
    text_add(out, eighths[parts % fine]);
    return whole + (parts % fine > 0);
}

/* In the colour of the role that the row is about, if any. */
static void add_row_bar(struct text *out, const struct table *table, const struct table_row *row,
                        const struct table_cell *cell, int columns, enum ink ink)
{
    int role =
        table->columns[0].kind == TABLE_TEXT && row->cells[0].filled ? role_find(row->cells[0].text) : -1;
    char colour[16];
    if (!cell->filled || !(cell->real > 0) || columns == 0)
        return;
    if (role >= 0) {
        snprintf(colour, sizeof colour, "38;5;%d", palette_terminal(palette_role((enum role)role)));
        set_style(out, ink, colour);
    }
    ink_text_bar(out, cell->real, columns, ink);
    if (role >= 0)
        set_style(out, ink, "0");
}

/* A bar in a trough, so that what is free can be seen too. Only a full one looks full. */
static void add_gauge(struct text *out, double share, enum ink ink)
{
    int filled = share < 1 ? smaller((int)lround(share * GAUGE_COLUMNS), GAUGE_COLUMNS - 1) : GAUGE_COLUMNS;
    if (ink == INK_ASCII)
        text_add(out, "[");
    for (int i = 0; i < GAUGE_COLUMNS; i++)
        if (ink == INK_ASCII)
            text_add(out, i < filled ? "#" : ".");
        else
            text_add(out, i < filled ? "█" : "░");
    text_add(out, ink == INK_ASCII ? "]  " : "  ");
}

/* ------------------------------------------------------------------------------------------------------- paragraphs */

/* Adds what stays on one line behind `spaces`, on a new line at `column` if need be; returns where the line stands then. */
static int add_piece(struct text *out, const char *piece, size_t bytes, int spaces, int at, int column)
{
    int width = columns_of(piece, bytes);
    if (at > column && at + spaces + width > INK_COLUMNS) {
        end_line(out);
        add_spaces(out, at = column);
        spaces = 0;
    }
    add_spaces(out, spaces);
    ink_text_foreign(out, piece, bytes);
    return at + spaces + width;
}

/* Words from the column where the line stands, later lines indented as far. A word for which no line has room is broken
 * behind commas and pluses, as sets of recomputation have them. */
static void add_wrapped(struct text *out, const char *words, int column)
{
    int at = column;
    for (const char *word = words; *word; word += strspn(word, " ")) {
        size_t left = strcspn(word, " ");
        bool broken = columns_of(word, left) > INK_COLUMNS - column;
        for (int spaces = word > words; left > 0; spaces = 0) {
            size_t bytes = broken ? strcspn(word, ",+ ") + 1 : left;
            bytes = bytes < left ? bytes : left;
            at = add_piece(out, word, bytes, spaces, at, column);
            word += bytes;
            left -= bytes;
        }
    }
    end_line(out);
}

static void add_facts(const struct report_fact *facts, enum ink ink, struct text *out)
{
    int label = 0;
    for (const struct report_fact *fact = facts; fact; fact = fact->next)
        label = larger(label, width_of(fact->label));
    if (facts)
        text_add(out, "\n");
    for (const struct report_fact *fact = facts; fact; fact = fact->next) {
        int column = INDENT + label + GAP;
        add_spaces(out, INDENT);
        text_add(out, fact->label);
        add_spaces(out, column - INDENT - width_of(fact->label));
        if (fact->gauge >= 0) {
            add_gauge(out, fact->gauge, ink);
            column += GAUGE_COLUMNS + (ink == INK_ASCII ? 4 : 2);
        }
        add_wrapped(out, fact->text, column);
    }
}

/* ----------------------------------------------------------------------------------------------------------- tables */

struct measure {
    int width, unit; /* `unit`: of the longest unit, 0 where numbers have none */
    int least;       /* that `width` may shrink to: of texts what stays readable, of numbers all of them */
};

enum { READABLE = 8 };

static bool on_the_left(enum table_kind kind)
{
    return kind == TABLE_TEXT || kind == TABLE_BAR;
}

/* The last word of "474.70 MiB"; "" where the kind has no units. */
static const char *unit_of(enum table_kind kind, const char *text)
{
    const char *space = strrchr(text, ' ');
    bool has = kind == TABLE_BYTES || kind == TABLE_CHANGE || kind == TABLE_SECONDS;
    return has && space ? space + 1 : "";
}

/* A row with nothing but its first cell is a heading inside the table: it may reach over the columns beside it. */
static bool is_heading(const struct table *table, const struct table_row *row)
{
    for (int i = 1; i < table->column_count; i++)
        if (row->cells[i].filled)
            return false;
    return table->column_count > 1 && table->columns[0].kind == TABLE_TEXT;
}

static void measure_column(const struct table *table, int column, struct measure *measure)
{
    enum table_kind kind = table->columns[column].kind;
    char room[TABLE_CELL];
    int number = 0;
    for (const struct table_row *row = table->rows; row; row = row->next) {
        if (is_heading(table, row))
            continue;
        const char *text = table_cell_text(kind, &row->cells[column], room), *unit = unit_of(kind, text);
        number = larger(number, width_of(text) - width_of(unit));
        measure->unit = larger(measure->unit, width_of(unit));
    }
    measure->least = kind == TABLE_TEXT ? READABLE : number + measure->unit;
    measure->width = larger(number + measure->unit, width_of(table->columns[column].heading));
}

/* Takes what is too wide from the widest columns that can do with less: texts, and headings that are longer than their numbers. */
static void fit_page(const struct table *table, struct measure *measures)
{
    for (;;) {
        int total = INDENT, widest = -1;
        for (int i = 0; i < table->column_count; i++) {
            bool bar = table->columns[i].kind == TABLE_BAR;
            total += bar ? 0 : (i ? GAP : 0) + measures[i].width;
            if (!bar && measures[i].width > larger(measures[i].least, READABLE) &&
                (widest < 0 || measures[i].width > measures[widest].width))
                widest = i;
        }
        if (total <= INK_COLUMNS || widest < 0)
            break;
        measures[widest].width--;
    }
}

/* Bars get what the others leave; too little is none at all. */
static int bar_columns(const struct table *table, const struct measure *measures)
{
    int left = INK_COLUMNS - INDENT;
    for (int i = 0; i < table->column_count - 1; i++)
        left -= measures[i].width + GAP;
    return left < BAR_LEAST ? 0 : left < BAR_MOST ? left : BAR_MOST;
}

/* The first `columns` columns of a text, with dots where something was left out. */
static void add_shortened(struct text *out, const char *text, int columns)
{
    if (width_of(text) <= columns) {
        ink_text_foreign(out, text, strlen(text));
        return;
    }
    size_t bytes = 0;
    while (columns_of(text, bytes + 1) <= columns - 3)
        bytes++;
    ink_text_foreign(out, text, bytes);
    text_add(out, "...");
}

static void add_aligned(struct text *out, enum table_kind kind, struct measure measure, const char *text)
{
    int width = smaller(width_of(text), measure.width), rest = measure.width - width;
    int behind = *text && measure.unit ? measure.unit - width_of(unit_of(kind, text)) : 0;
    if (!on_the_left(kind))
        add_spaces(out, rest - behind);
    add_shortened(out, text, measure.width);
    add_spaces(out, on_the_left(kind) ? rest : behind);
}

static void add_headings(const struct table *table, const struct measure *measures, struct text *out)
{
    bool any = false;
    for (int i = 0; i < table->column_count; i++)
        any |= table->columns[i].heading[0] != '\0';
    if (!any)
        return;
    add_spaces(out, INDENT);
    for (int i = 0; i < table->column_count; i++) {
        /* A heading stands over numbers and units alike. */
        struct measure measure = {.width = measures[i].width};
        add_aligned(out, table->columns[i].kind, measure, table->columns[i].heading);
        add_spaces(out, GAP);
    }
    end_line(out);
}

static void add_row(const struct table *table, const struct table_row *row, const struct measure *measures,
                    enum ink ink, struct text *out)
{
    char room[TABLE_CELL];
    add_spaces(out, INDENT);
    for (int i = 0; i < table->column_count; i++) {
        enum table_kind kind = table->columns[i].kind;
        if (kind == TABLE_BAR)
            add_row_bar(out, table, row, &row->cells[i], bar_columns(table, measures), ink);
        else
            add_aligned(out, kind, measures[i], table_cell_text(kind, &row->cells[i], room));
        add_spaces(out, GAP);
    }
    end_line(out);
}

/* Nothing of it is left out; what it is indented by, later lines are too. */
static void add_heading(const char *text, struct text *out)
{
    int indent = INDENT + (int)strspn(text, " ");
    add_spaces(out, indent);
    add_wrapped(out, text + strspn(text, " "), indent);
}

void ink_text_table(const struct table *table, enum ink ink, struct text *out)
{
    struct measure measures[MOST_COLUMNS] = {{.width = 0}};
    assert(table->column_count <= MOST_COLUMNS);
    for (int i = 0; i < table->column_count; i++)
        measure_column(table, i, &measures[i]);
    fit_page(table, measures);
    add_headings(table, measures, out);
    for (const struct table_row *row = table->rows; row; row = row->next)
        if (is_heading(table, row)) {
            add_heading(row->cells[0].text, out);
        } else {
            add_row(table, row, measures, ink, out);
        }
}

static void add_bold(const char *text, enum ink ink, struct text *out)
{
    set_style(out, ink, "1");
    add_wrapped(out, text, 0);
    set_style(out, ink, "0");
}

void ink_text_report(const struct report *report, enum ink ink, struct text *out)
{
    add_bold(report->title, ink, out);
    add_facts(report->facts, ink, out);
    for (const struct report_section *section = report->sections; section; section = section->next) {
        text_add(out, "\n");
        if (section->heading)
            add_bold(section->heading, ink, out);
        if (section->table) {
            ink_text_table(section->table, ink, out);
        } else {
            add_spaces(out, INDENT);
            add_wrapped(out, section->remark, INDENT);
        }
    }
}
