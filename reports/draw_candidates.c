/* Candidate plans, memory against time: down and to the left is better. */
#include "base/units.h"
#include "reports/draw.h"

#include <math.h>
#include <stdio.h>

enum { LEFT = 76, RIGHT = 20, TOP = 26, BOTTOM = 48, HEIGHT = 340 };

static void draw_candidate(const struct sheet *sheet, const struct candidate *row, int64_t index, double x,
                           double y)
{
    text_printf(sheet->out, "<g class='candidate' data-row='%lld'>", (long long)index);
    if (row->chosen)
        text_printf(sheet->out, "<circle cx='%.1f' cy='%.1f' r='10' class='ring'/>", x, y);
    if (row->fits)
        text_printf(sheet->out, "<circle cx='%.1f' cy='%.1f' r='5' class='%s'/>", x, y,
                    row->chosen ? "mark" : "dot");
    else
        text_printf(sheet->out, "<path d='M%.1f %.1fl8 8m0-8l-8 8' class='cross'/>", x - 4, y - 4);
    text_add(sheet->out, "</g>\n");
}

static void name_chosen(const struct sheet *sheet, const struct candidate *row, double x, double y)
{
    char text[96];
    bool narrow = sheet->width<600, right = x> sheet->width - (narrow ? 80 : 190);
    snprintf(text, sizeof text, narrow ? "chosen" : "chosen: dp %lld, micro-batch %lld", (long long)row->dp,
             (long long)row->micro_batch);
    draw_text(sheet, x + (right ? -16 : 16), y - 9, right ? ANCHOR_END : ANCHOR_START, "mark-text", text);
}

static void draw_capacity(const struct sheet *sheet, const struct scale *x, int64_t capacity_bytes)
{
    char bytes[UNITS_TEXT], text[64];
    if ((double)capacity_bytes > x->high)
        return;
    double at = scale_at(x, (double)capacity_bytes);
    snprintf(text, sizeof text, "capacity %s", units_format_bytes(capacity_bytes, bytes));
    draw_line(sheet, at, TOP, at, HEIGHT - BOTTOM, "limit");
    draw_text(sheet, at + (at > sheet->width / 2.0 ? -6 : 6), TOP - 8,
              at > sheet->width / 2.0 ? ANCHOR_END : ANCHOR_START, "limit-text", text);
}

static void draw_axes(const struct sheet *sheet, const struct scale *x, const struct scale *y)
{
    char text[UNITS_TEXT];
    double step = draw_step(y->high, 5);
    for (double ns = 0; ns <= y->high; ns += step) {
        double at = scale_at(y, ns);
        draw_line(sheet, LEFT, at, x->end, at, ns > 0 ? "grid" : "axis");
        draw_text(sheet, LEFT - 8, at + 4, ANCHOR_END, "soft", draw_time(ns, step, text));
    }
    double bytes_step = draw_bytes_step(x->high, sheet->width < 600 ? 4 : 8);
    for (double bytes = 0; bytes <= x->high; bytes += bytes_step)
        draw_text(sheet, scale_at(x, bytes), HEIGHT - BOTTOM + 19, ANCHOR_MIDDLE, "soft",
                  bytes > 0 ? draw_bytes(bytes, text) : "0");
    draw_text(sheet, x->end, HEIGHT - 8, ANCHOR_END, "soft", "memory per rank");
    draw_text(sheet, LEFT, TOP - 10, ANCHOR_END, "soft", "step time");
}

int draw_candidates(const struct sheet *sheet, const struct candidates *candidates)
{
    double most_bytes = 1, most_ns = 1;
    bool limited = candidates->capacity_bytes != INT64_MAX;
    for (int64_t i = 0; i < candidates->count; i++) {
        const struct candidate *row = &candidates->rows[i];
        most_bytes = fmax(most_bytes, (double)candidates_bytes(row));
        most_ns = fmax(most_ns, row->step_seconds * 1e9);
    }
    if (limited && (double)candidates->capacity_bytes < 2 * most_bytes)
        most_bytes = fmax(most_bytes, (double)candidates->capacity_bytes);
    struct scale x = {0, most_bytes * 1.06, LEFT, sheet->width - RIGHT};
    struct scale y = {0, most_ns * 1.1, HEIGHT - BOTTOM, TOP};
    draw_begin(sheet, HEIGHT, "candidates", "Candidate plans, memory against time",
               "Dots fit, crosses do not, a ring marks the chosen plan. The table has the figures.");
    draw_axes(sheet, &x, &y);
    if (limited)
        draw_capacity(sheet, &x, candidates->capacity_bytes);
    for (int64_t i = candidates->count - 1; i >= 0; i--) {
        const struct candidate *row = &candidates->rows[i];
        if (!candidates_bytes(row) || isnan(row->step_seconds))
            continue;
        double at = scale_at(&x, (double)candidates_bytes(row)), up = scale_at(&y, row->step_seconds * 1e9);
        draw_candidate(sheet, row, i, at, up);
        if (row->chosen)
            name_chosen(sheet, row, at, up);
    }
    draw_end(sheet);
    return HEIGHT;
}
