/* Memory over time, stacked by role. A column of pixels may have thousands of events: of each its lowest and its highest moment
 * are drawn, so that no peak is lost. html/page.js draws the same way when somebody zooms in. */
#include "base/units.h"
#include "reports/draw.h"
#include "reports/palette.h"
#include "reports/role_table.h"

#include <stdlib.h>
#include <string.h>

enum { LEFT = 76, RIGHT = 16, TOP = 34, BOTTOM = 30 };

struct plot {
    const struct sheet *sheet;
    const struct series *series;
    struct scale x, y;
    const struct series_point **drawn; /* two for each column at most, and one before the first */
    int64_t drawn_count;
};

/* The end of the longest time without an event, or `from` where none takes more than half of what is left. */
static int64_t skip_silence(const struct series *series, int64_t from, int64_t to)
{
    int64_t end = from, longest = (to - from) / 2;
    for (int64_t i = 1; i < series->point_count; i++) {
        int64_t before = series->points[i - 1].at, at = series->points[i].at;
        before = before > from ? before : from;
        if (at > from && at - before > longest) {
            longest = at - before;
            end = at;
        }
    }
    return end;
}

void draw_memory_view(const struct series *series, int64_t *from, int64_t *to)
{
    *from = series->points[0].at;
    *to = series->points[series->point_count - 1].at;
    for (int64_t i = 0; i < series->step_count; i++)
        if (series->steps[i].step > 0) {
            if (series->points[series->peak].at >= series->steps[i].first_at)
                *from = series->steps[i].first_at;
            break;
        }
    /* A first step that warms up for longer than all others take would leave them a sliver at the end. */
    int64_t busy_from = skip_silence(series, *from, *to);
    if (series->axis == SERIES_NANOSECONDS && busy_from <= series->points[series->peak].at &&
        busy_from > *from)
        *from = busy_from - (*to - busy_from) / 24;
    if (*to <= *from)
        *to = *from + 1;
}

static void keep(struct plot *p, const struct series_point *point)
{
    if (p->drawn_count == 0 || p->drawn[p->drawn_count - 1] != point)
        p->drawn[p->drawn_count++] = point;
}

static void keep_column(struct plot *p, const struct series_point *low, const struct series_point *high)
{
    keep(p, low->event < high->event ? low : high);
    keep(p, low->event < high->event ? high : low);
}

static void choose_points(struct plot *p)
{
    const struct series *s = p->series;
    const struct series_point *low = NULL, *high = NULL;
    int column = -1;
    p->drawn = host_alloc((size_t)(2 * p->sheet->width + 8) * sizeof *p->drawn);
    for (int64_t i = 0; i < s->point_count; i++) {
        const struct series_point *point = &s->points[i];
        bool before = (double)point->at <= p->x.low;
        int here = before ? 0 : (int)scale_at(&p->x, (double)point->at);
        if (low && (here != column || before))
            keep_column(p, low, high);
        if (before)
            p->drawn_count = 0; /* of those, the last remains */
        if (here != column || before)
            low = high = point;
        low = point->live_bytes < low->live_bytes ? point : low;
        high = point->live_bytes > high->live_bytes ? point : high;
        column = here;
    }
    if (low)
        keep_column(p, low, high);
}

/* What lies below a role, and it included. */
static double height_at(const struct plot *p, const struct series_point *point, int roles)
{
    int64_t bytes = 0;
    for (int role = 0; role < roles; role++)
        bytes += point->by_role[role];
    return scale_at(&p->y, (double)bytes);
}

static double x_of(const struct plot *p, int64_t i)
{
    double at = (double)p->drawn[i]->at;
    return scale_at(&p->x, at < p->x.low ? p->x.low : at);
}

/* Along the top of the role to the right, and back along its foot. */
static void draw_area(const struct plot *p, int role)
{
    struct text *out = p->sheet->out;
    int64_t last = p->drawn_count - 1;
    text_printf(out, "<path class='area' data-role='%s' fill='url(#%srole-%s)' d='M%.1f %.1f",
                role_name((enum role)role), p->sheet->prefix, role_name((enum role)role), x_of(p, 0),
                height_at(p, p->drawn[0], role + 1));
    for (int64_t i = 1; i <= last; i++)
        text_printf(out, "H%.1fV%.1f", x_of(p, i), height_at(p, p->drawn[i], role + 1));
    text_printf(out, "H%.1f", p->x.end);
    for (int64_t i = last; i >= 0; i--)
        text_printf(out, "V%.1fH%.1f", height_at(p, p->drawn[i], role), x_of(p, i));
    text_add(out, "Z'/>\n");
}

static void draw_areas(const struct plot *p)
{
    text_printf(p->sheet->out, "<g class='areas'>\n");
    for (int role = 0; role < ROLE_COUNT; role++) {
        bool any = false;
        for (int64_t i = 0; i < p->drawn_count && !any; i++)
            any = p->drawn[i]->by_role[role] != 0;
        if (any)
            draw_area(p, role);
    }
    text_add(p->sheet->out, "</g>\n");
}

/* ------------------------------------------------------------------------------------------------------------- frame */

static void draw_time_axis(const struct plot *p, double foot)
{
    char text[UNITS_TEXT];
    bool time = p->series->axis == SERIES_NANOSECONDS;
    double step = draw_step(p->x.high - p->x.low, p->sheet->width < 600 ? 4 : 9);
    step = !time && step < 1 ? 1 : step;
    text_add(p->sheet->out, "<g class='ticks'>\n");
    for (double at = 0; at <= p->x.high; at += step) {
        if (at < p->x.low) {
            at += step * (double)(int64_t)((p->x.low - at) / step);
            if (at < p->x.low)
                continue;
        }
        double x = scale_at(&p->x, at);
        draw_line(p->sheet, x, foot, x, foot + 5, "axis");
        draw_text(p->sheet, x, foot + 19, x > p->x.end - 24 ? ANCHOR_END : ANCHOR_MIDDLE, "soft",
                  time ? draw_time(at, step, text) : units_format_count((int64_t)at, text));
    }
    text_add(p->sheet->out, "</g>\n");
}

static void draw_steps(const struct plot *p)
{
    char text[UNITS_TEXT + 8];
    double free_from = p->x.start;
    text_add(p->sheet->out, "<g class='steps'>\n");
    for (int64_t i = 0; i < p->series->step_count && p->series->axis == SERIES_NANOSECONDS; i++) {
        const struct series_step *step = &p->series->steps[i];
        double x = scale_at(&p->x, (double)step->first_at);
        bool begins = x >= p->x.start - 0.5;
        if (step->step == 0 || x > p->x.end || (!begins && (double)step->last_at <= p->x.low))
            continue;
        x = begins ? x : p->x.start;
        bool labelled = x >= free_from && x < p->x.end - 44;
        if (begins)
            draw_line(p->sheet, x, p->y.end - (labelled ? 8 : 0), x, p->y.start, "step");
        snprintf(text, sizeof text, "step %d", step->step);
        if (labelled)
            draw_text(p->sheet, x + 4, p->y.end - 1, ANCHOR_START, "soft small", text);
        free_from = labelled ? x + 60 : free_from;
    }
    text_add(p->sheet->out, "</g>\n");
}

static void draw_capacity(const struct plot *p, int64_t capacity_bytes)
{
    char bytes[UNITS_TEXT], text[96];
    if (capacity_bytes == INT64_MAX)
        return;
    bool inside = (double)capacity_bytes <= p->y.high;
    snprintf(text, sizeof text, inside ? "capacity %s" : "capacity %s, far above",
             units_format_bytes(capacity_bytes, bytes));
    double y = inside ? scale_at(&p->y, (double)capacity_bytes) : p->y.end;
    if (inside)
        draw_line(p->sheet, p->x.start, y, p->x.end, y, "limit");
    draw_text(p->sheet, p->x.end, inside ? y - 6 : 14, ANCHOR_END, "limit-text", text);
}

static void draw_peak(const struct plot *p)
{
    char bytes[UNITS_TEXT], text[64];
    const struct series_point *peak = &p->series->points[p->series->peak];
    double x = scale_at(&p->x, (double)peak->at), y = scale_at(&p->y, (double)peak->live_bytes);
    bool right = x > p->x.end - 130;
    snprintf(text, sizeof text, "peak %s", units_format_bytes(peak->live_bytes, bytes));
    text_printf(p->sheet->out,
                "<g class='peak' data-bytes='%lld'><circle cx='%.1f' cy='%.1f' r='4.5' class='mark'/>\n",
                (long long)peak->live_bytes, x, y);
    draw_text(p->sheet, x + (right ? -9 : 9), y - 7, right ? ANCHOR_END : ANCHOR_START, "mark-text", text);
    text_add(p->sheet->out, "</g>\n");
}

/* The capacity is in the picture where the peak would still be seen beside it. */
static double top_of(int64_t peak_bytes, int64_t capacity_bytes)
{
    double peak = (double)peak_bytes;
    bool near = capacity_bytes != INT64_MAX && (double)capacity_bytes < 4 * peak;
    double top = near && (double)capacity_bytes > peak ? (double)capacity_bytes : peak;
    return top * 1.12;
}

/* What page.js needs to know to draw in the same place. */
static void add_geometry(const struct plot *p)
{
    text_printf(p->sheet->out,
                "<rect class='plot' x='%.0f' y='%.0f' width='%.0f' height='%.0f' data-top='%.0f' "
                "data-from='%.0f' data-to='%.0f'/>\n",
                p->x.start, p->y.end, p->x.end - p->x.start, p->y.start - p->y.end, p->y.high, p->x.low,
                p->x.high);
}

int draw_memory(const struct sheet *sheet, const struct series *series, int64_t capacity_bytes)
{
    int height = sheet->width < 600 ? 300 : 380;
    int64_t from, to;
    char says[160], bytes[UNITS_TEXT];
    int64_t peak_bytes = series->points[series->peak].live_bytes;
    draw_memory_view(series, &from, &to);
    struct plot plot = {
        .sheet = sheet,
        .series = series,
        .x = {(double)from, (double)to, LEFT, sheet->width - RIGHT},
        .y = {0, top_of(peak_bytes, capacity_bytes), height - BOTTOM, TOP},
    };
    snprintf(says, sizeof says,
             "Live bytes of rank %lld, stacked by role; the highest are %s. The table has the figures.",
             (long long)series->rank, units_format_bytes(peak_bytes, bytes));
    draw_begin(sheet, height, "memory", "Memory over time", says);
    add_geometry(&plot);
    draw_bytes_axis(sheet, &plot.y, LEFT, sheet->width - RIGHT, 6);
    choose_points(&plot);
    draw_areas(&plot);
    draw_steps(&plot);
    draw_time_axis(&plot, height - BOTTOM);
    draw_capacity(&plot, capacity_bytes);
    draw_peak(&plot);
    text_add(sheet->out, "<g class='cursor'></g>\n");
    draw_end(sheet);
    free(plot.drawn);
    return height;
}
