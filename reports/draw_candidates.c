/* Candidate plans, memory against time: down and to the left is better. */
#include "base/units.h"
#include "reports/draw.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* Where the sheet shows a candidate. */
struct place {
    double x, y;
};

static bool is_shown(const struct candidate *row)
{
    return candidates_bytes(row) && !isnan(row->step_seconds);
}

static struct place place_of(const struct candidate *row, const struct scale *x, const struct scale *y)
{
    return (struct place){scale_at(x, (double)candidates_bytes(row)), scale_at(y, row->step_seconds * 1e9)};
}

/* Dots that a text of this width, whose line ends or begins at `at`, would lie on. */
static int count_covered(const struct candidates *candidates, const struct scale *x, const struct scale *y,
                         struct place at, double width)
{
    double from = width < 0 ? at.x + width : at.x, to = width < 0 ? at.x : at.x + width;
    int covered = from < x->start || to > x->end ? 1000 : 0;
    for (int64_t i = 0; i < candidates->count; i++) {
        if (!is_shown(&candidates->rows[i]))
            continue;
        struct place dot = place_of(&candidates->rows[i], x, y);
        covered += dot.x > from - 5 && dot.x < to + 5 && dot.y > at.y - 15 && dot.y < at.y + 8;
    }
    return covered;
}

/* In the corner of the ring where the name hides the fewest others. */
static void name_chosen(const struct sheet *sheet, const struct candidates *candidates,
                        const struct candidate *row, const struct scale *x, const struct scale *y)
{
    static const struct place corners[] = {{16, -9}, {-16, -9}, {16, 20}, {-16, 20}};
    char text[96];
    bool narrow = sheet->width < 600;
    snprintf(text, sizeof text, narrow ? "chosen" : "chosen: dp %lld, micro-batch %lld", (long long)row->dp,
             (long long)row->micro_batch);
    double width = 7.0 * (double)strlen(text);
    struct place dot = place_of(row, x, y), best = dot;
    int least = INT_MAX;
    enum anchor anchor = ANCHOR_START;
    for (int i = 0; i < 4; i++) {
        struct place at = {dot.x + corners[i].x, dot.y + corners[i].y};
        bool left = corners[i].x < 0;
        int covered = count_covered(candidates, x, y, at, left ? -width : width);
        if (covered >= least)
            continue;
        least = covered;
        best = at;
        anchor = left ? ANCHOR_END : ANCHOR_START;
    }
    draw_text(sheet, best.x, best.y, anchor, "mark-text", text);
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
    for (int64_t i = candidates->count - 1; i >= 0; i--)
        if (is_shown(&candidates->rows[i])) {
            struct place at = place_of(&candidates->rows[i], &x, &y);
            draw_candidate(sheet, &candidates->rows[i], i, at.x, at.y);
        }
    for (int64_t i = 0; i < candidates->count; i++)
        if (candidates->rows[i].chosen && is_shown(&candidates->rows[i]))
            name_chosen(sheet, candidates, &candidates->rows[i], &x, &y);
    draw_end(sheet);
    return HEIGHT;
}
