/* What the ranks hold at their peaks: a column for each, those of a stage side by side, so that a pipeline out of balance shows
 * at a glance. Where there are more ranks than room, the highest of each stage stands for it. */
#include "base/units.h"
#include "reports/draw.h"
#include "reports/role_table.h"

#include <stdio.h>

enum { LEFT = 76, RIGHT = 16, TOP = 22, BOTTOM = 44, HEIGHT = 280, WIDEST = 64, FARTHEST = 220 };

/* Columns and the gaps between stages, in units of a column's step. */
static const double stage_gap = 0.6;

struct plot {
    const struct sheet *sheet;
    const struct rank_row **rows;
    int64_t count;
    struct scale y;
    double step, width; /* of columns */
};

static bool begins_stage(const struct plot *p, int64_t i)
{
    return i == 0 || p->rows[i]->stage != p->rows[i - 1]->stage;
}

/* Rows are by rank, and so by stage. */
static void choose_rows(const struct breakdown *b, struct plot *p)
{
    int64_t most = (int64_t)(p->sheet->width - LEFT - RIGHT) / 5;
    for (int64_t i = 0; i < b->row_count; i++) {
        const struct rank_row *row = &b->rows[i], *last = p->count ? p->rows[p->count - 1] : NULL;
        bool merged = b->row_count > most && last && last->stage == row->stage;
        if (!merged)
            p->rows[p->count++] = row;
        else if (row->peak_bytes > last->peak_bytes)
            p->rows[p->count - 1] = row;
    }
}

static void choose_step(struct plot *p)
{
    double gaps = 0;
    for (int64_t i = 1; i < p->count; i++)
        gaps += begins_stage(p, i) ? stage_gap : 0;
    p->step = (p->sheet->width - LEFT - RIGHT) / ((double)p->count + gaps);
    p->step = p->step > FARTHEST ? FARTHEST : p->step;
    p->width = p->step * 0.8 > WIDEST ? WIDEST : p->step * 0.8;
}

/* A stage's number under its columns, where the one before leaves room. */
static void name_stage(const struct plot *p, int64_t i, double from, double to, double *free_from)
{
    char name[32];
    double middle = (from + to) / 2;
    bool staged = p->rows[i]->stage >= 0;
    snprintf(name, sizeof name, "%lld", (long long)(staged ? p->rows[i]->stage : p->rows[i]->first));
    if (middle < *free_from)
        return;
    draw_text(p->sheet, middle, p->y.start + 17, ANCHOR_MIDDLE, "soft", name);
    *free_from = middle + 26;
}

static void draw_columns(const struct plot *p, bool foretold)
{
    double x = LEFT, from = LEFT, free_from = 0;
    for (int64_t i = 0; i < p->count; i++, x += p->step) {
        const struct rank_row *row = p->rows[i];
        bool apart = row->stage < 0 || begins_stage(p, i);
        if (i > 0 && apart && row->stage >= 0)
            x += p->step * stage_gap;
        from = apart ? x : from;
        double left = x + (p->step - p->width) / 2;
        draw_role_column(p->sheet, row->by_role, &p->y, left, p->width);
        if (foretold && row->predicted_bytes >= 0) {
            double y = scale_at(&p->y, (double)row->predicted_bytes);
            double out = p->step - p->width > 6 ? 3 : 0;
            draw_line(p->sheet, left - out, y, left + p->width + out, y, "foretold");
        }
        if (i + 1 == p->count || row->stage < 0 || begins_stage(p, i + 1))
            name_stage(p, i, from, x + p->step, &free_from);
    }
}

static void draw_capacity(const struct plot *p, int64_t capacity_bytes)
{
    char bytes[UNITS_TEXT], text[96];
    double y = scale_at(&p->y, (double)capacity_bytes), right = p->sheet->width - RIGHT;
    snprintf(text, sizeof text, "capacity %s", units_format_bytes(capacity_bytes, bytes));
    draw_line(p->sheet, LEFT, y, right, y, "limit");
    draw_text(p->sheet, right, y - 6, ANCHOR_END, "limit-text", text);
}

static int64_t find_highest(const struct breakdown *b)
{
    int64_t highest = 1;
    for (int64_t i = 0; i < b->row_count; i++) {
        const struct rank_row *row = &b->rows[i];
        highest = row->peak_bytes > highest ? row->peak_bytes : highest;
        highest = b->foretold && row->predicted_bytes > highest ? row->predicted_bytes : highest;
    }
    return highest;
}

int draw_stages(const struct sheet *sheet, const struct breakdown *b)
{
    struct arena *arena = arena_create();
    struct plot p = {.sheet = sheet, .rows = arena_array(arena, (size_t)b->row_count, sizeof *p.rows)};
    int64_t highest = find_highest(b);
    /* Where the highest would be a stump below it, the capacity is left out: the picture of memory over time names it. */
    bool limited = b->capacity_bytes != INT64_MAX && (double)b->capacity_bytes < 2.5 * (double)highest;
    int64_t top = limited && b->capacity_bytes > highest ? b->capacity_bytes : highest;
    p.y = (struct scale){0, (double)top * 1.04, HEIGHT - BOTTOM, TOP};
    choose_rows(b, &p);
    choose_step(&p);
    bool staged = b->rows[0].stage >= 0;
    draw_begin(sheet, HEIGHT, "stages", staged ? "Peaks by stage and rank" : "Peaks by rank",
               "Stacked by role. The tables have the figures.");
    draw_bytes_axis(sheet, &p.y, LEFT, sheet->width - RIGHT, 5);
    draw_columns(&p, b->foretold);
    if (limited)
        draw_capacity(&p, b->capacity_bytes);
    draw_text(sheet, LEFT - 8, p.y.start + 17, ANCHOR_END, "soft", staged ? "stage" : "rank");
    draw_end(sheet);
    arena_free(arena);
    return HEIGHT;
}
