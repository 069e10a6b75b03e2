/* A table before it is inked: columns that say what kind of quantity they hold, and rows of raw values. Writers (ink_text.h)
 * choose the units, the widths and the strokes. A table lives in the arena it was created in. */
#ifndef MEMPLAN_REPORTS_TABLE_H
#define MEMPLAN_REPORTS_TABLE_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum table_kind {
    TABLE_TEXT,     /* on the left; shortened where the page is too narrow */
    TABLE_QUANTITY, /* a text on the right, for columns whose rows differ in unit */
    TABLE_COUNT,
    TABLE_BYTES,
    TABLE_CHANGE,   /* bytes with a sign */
    TABLE_SECONDS,
    TABLE_PERCENT,  /* 0.062 is 6.2% */
    TABLE_NUMBER,   /* a loss or a norm: four decimals */
    TABLE_BAR,      /* 1 is the longest; only in the last column, where it takes the room that is left */
};

struct table_column {
    const char *heading; /* "" for none */
    enum table_kind kind;
};

struct table_cell {
    bool filled;      /* false: blank */
    const char *text; /* TABLE_TEXT, TABLE_QUANTITY; borrowed, as long as the table */
    int64_t whole;    /* TABLE_COUNT, TABLE_BYTES, TABLE_CHANGE */
    double real;      /* the others */
};

struct table_row {
    struct table_row *next;
    const struct table_cell *cells; /* one for each column */
};

struct table {
    struct arena *arena;
    const struct table_column *columns;
    int column_count;
    struct table_row *rows, *last;
    int row_count;
};

/* `columns` are borrowed, as long as the table. */
struct table *table_create(struct arena *arena, const struct table_column *columns, int column_count);
/* Copies one cell for each column. A row with only its first cell filled, a text, is a heading inside the table. */
void table_add(struct table *table, const struct table_cell *cells);

/* What a cell says, without alignment: "474.70 MiB". Written to out[TABLE_CELL] where it is not the cell's own text; blank
 * cells and bars say "". */
enum { TABLE_CELL = 48 };
const char *table_cell_text(enum table_kind kind, const struct table_cell *cell, char *out);
/* What such a cell says, for texts around tables, written to out[TABLE_CELL]. A change: "+1.00 KiB". A share: "6.2%", none "0%", and
 * one that is there never reads as none, "<0.1%". */
const char *table_change_text(int64_t bytes, char *out);
const char *table_percent_text(double share, char *out);

static inline struct table_cell cell_text(const char *text)
{
    return (struct table_cell){.filled = true, .text = text};
}

static inline struct table_cell cell_whole(int64_t whole)
{
    return (struct table_cell){.filled = true, .whole = whole};
}

/* NAN, an unknown, is blank. */
static inline struct table_cell cell_real(double real)
{
    return (struct table_cell){.filled = real == real, .real = real};
}

static inline struct table_cell cell_blank(void)
{
    return (struct table_cell){.filled = false};
}

#endif
