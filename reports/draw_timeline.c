/* What the ranks did in one step, a lane for each; or what the stages of a plan will do. A lane is drawn in cells of half a
 * pixel: of all work in a cell, that which fills most of it is shown; so the picture has a size that does not depend on how many
 * operations there were. Lanes of one stage stand close together, and waiting is a thin line: what works stands out. */
#include "base/units.h"
#include "reports/draw.h"
#include "reports/palette.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RIGHT = 16, TOP = 6, BOTTOM = 30, CELLS_PER_PIXEL = 2, STAGE_GAP = 4, NAME_HEIGHT = 13 };

static const double waiting_share = 0.3; /* of a lane's height */

struct cell {
    int64_t covered_ns, best_ns;  /* by `work` */
    const struct work_span *work; /* NULL: idle */
};

struct picture {
    const struct sheet *sheet;
    const struct timeline *timeline;
    struct scale x;
    double lane_height;
    double *tops; /* of the lanes, and the foot of the last */
    struct cell *cells;
    int64_t cell_count;
    double cell_ns;
};

static void cover(const struct picture *p, const struct work_span *work)
{
    int64_t origin = (int64_t)p->x.low;
    int64_t first = (int64_t)((double)(work->start_ns - origin) / p->cell_ns);
    int64_t last = (int64_t)((double)(work->end_ns - origin) / p->cell_ns);
    for (int64_t i = first < 0 ? 0 : first; i <= last && i < p->cell_count; i++) {
        double from = p->x.low + (double)i * p->cell_ns, to = from + p->cell_ns;
        double start = (double)work->start_ns > from ? (double)work->start_ns : from;
        double end = (double)work->end_ns < to ? (double)work->end_ns : to;
        int64_t ns = end > start ? (int64_t)(end - start) : 0;
        struct cell *cell = &p->cells[i];
        cell->covered_ns += ns;
        if (ns > cell->best_ns) {
            cell->best_ns = ns;
            cell->work = work;
        }
    }
}

static bool same_work(const struct work_span *a, const struct work_span *b)
{
    return a == b || (a && b && a->activity == b->activity && a->micro_batch == b->micro_batch);
}

static bool begins_stage(const struct timeline *timeline, int64_t lane)
{
    return lane == 0 || timeline->lanes[lane].stage != timeline->lanes[lane - 1].stage;
}

static void place_lanes(struct picture *p, struct arena *arena)
{
    const struct timeline *t = p->timeline;
    double top = TOP;
    p->tops = arena_array(arena, (size_t)t->lane_count + 1, sizeof *p->tops);
    for (int64_t i = 0; i < t->lane_count; i++) {
        bool apart = i > 0 && !t->foretold && begins_stage(t, i);
        p->tops[i] = top += apart ? STAGE_GAP : 0;
        top += p->lane_height;
    }
    p->tops[t->lane_count] = top;
}

/* Cells that say the same are one block. */
static int64_t end_of_block(const struct picture *p, int64_t first)
{
    int64_t end = first + 1;
    while (end < p->cell_count && same_work(p->cells[end].work, p->cells[first].work))
        end++;
    return end;
}

/* Blocks are strokes as wide as the lane is high: a third of what outlines would take. */
static void draw_activity(const struct picture *p, double top, double height, enum activity activity)
{
    struct text *out = p->sheet->out;
    double thick = activity == ACTIVITY_WAIT ? height * waiting_share : height;
    bool any = false;
    for (int64_t first = 0, end; first < p->cell_count; first = end) {
        const struct work_span *work = p->cells[first].work;
        end = end_of_block(p, first);
        if (!work || work->activity != activity)
            continue;
        double width = (double)(end - first) / CELLS_PER_PIXEL;
        if (!any)
            text_printf(out, "<path fill='none' stroke='url(#%swork-%s)' stroke-width='%.1f' d='",
                        p->sheet->prefix, activity_name(activity), thick);
        any = true;
        text_printf(out, "M%g %gh%g", p->x.start + (double)first / CELLS_PER_PIXEL, top + height / 2,
                    width > 4 ? width - 0.7 : width);
    }
    if (any)
        text_add(out, "'/>\n");
}

/* The number of the micro-batch, where there is room for it. */
static void number_blocks(const struct picture *p, double top, double height)
{
    char number[24];
    for (int64_t first = 0, end; height >= 14 && first < p->cell_count; first = end) {
        const struct work_span *work = p->cells[first].work;
        end = end_of_block(p, first);
        double width = (double)(end - first) / CELLS_PER_PIXEL;
        if (!work || work->micro_batch < 0 || work->activity > ACTIVITY_WEIGHTS || width < 16)
            continue;
        snprintf(number, sizeof number, "%lld", (long long)work->micro_batch);
        draw_text(p->sheet, p->x.start + (double)first / CELLS_PER_PIXEL + width / 2, top + height / 2 + 3.5,
                  ANCHOR_MIDDLE, work->activity == ACTIVITY_FORWARD ? "on-light" : "on-dark", number);
    }
}

static void draw_lane(const struct picture *p, int64_t index)
{
    const struct lane *lane = &p->timeline->lanes[index];
    double gap = p->lane_height > 12 ? 3 : 1, top = p->tops[index];
    memset(p->cells, 0, (size_t)p->cell_count * sizeof *p->cells);
    for (int64_t i = 0; i < lane->stretch_count; i++)
        cover(p, &lane->stretches[i]);
    text_printf(p->sheet->out, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' class='idle'/>\n",
                p->x.start, top, p->x.end - p->x.start, p->lane_height - gap);
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
        draw_activity(p, top, p->lane_height - gap, (enum activity)activity);
    number_blocks(p, top, p->lane_height - gap);
}

/* Every lane where there is room; else the first of each stage, or of several stages. */
static void draw_names(const struct picture *p)
{
    char name[64];
    const struct timeline *t = p->timeline;
    double free_from = 0;
    bool crowded = p->lane_height<NAME_HEIGHT, wide = p->x.start> 100;
    for (int64_t i = 0; i < t->lane_count; i++) {
        const struct lane *lane = &t->lanes[i];
        double middle = p->tops[i] + p->lane_height / 2;
        if (middle < free_from || (crowded && lane->stage >= 0 && !begins_stage(t, i)))
            continue;
        if (t->foretold || (crowded && lane->stage >= 0))
            snprintf(name, sizeof name, "stage %lld", (long long)lane->stage);
        else
            snprintf(name, sizeof name, lane->stage >= 0 && wide ? "rank %lld, stage %lld" : "rank %lld",
                     (long long)lane->rank, (long long)lane->stage);
        draw_text(p->sheet, p->x.start - 8, middle + 3, ANCHOR_END, "soft small", name);
        free_from = middle + NAME_HEIGHT;
    }
}

static void draw_axis(const struct picture *p, double foot)
{
    char text[UNITS_TEXT];
    double length = p->x.high - p->x.low, step = draw_step(length, p->sheet->width < 600 ? 4 : 9);
    for (double at = 0; at <= length; at += step) {
        double x = scale_at(&p->x, p->x.low + at);
        draw_line(p->sheet, x, TOP, x, foot + 5, "grid");
        draw_text(p->sheet, x, foot + 19, x > p->x.end - 24 ? ANCHOR_END : ANCHOR_MIDDLE, "soft",
                  draw_time(at, step, text));
    }
}

static double choose_height(int64_t lanes)
{
    double height = 560.0 / (double)lanes;
    return height > 28 ? 28 : height < 8 ? 8 : height;
}

int draw_timeline(const struct sheet *sheet, const struct timeline *timeline)
{
    double left = sheet->width < 600 ? 60 : 112;
    struct picture p = {
        .sheet = sheet,
        .timeline = timeline,
        .x = {(double)timeline->start_ns, (double)timeline->end_ns, left, sheet->width - RIGHT},
        .lane_height = choose_height(timeline->lane_count),
        .cell_count = (int64_t)(sheet->width - RIGHT - left) * CELLS_PER_PIXEL,
    };
    struct arena *arena = arena_create();
    place_lanes(&p, arena);
    double foot = p.tops[timeline->lane_count];
    p.cell_ns = (p.x.high - p.x.low) / (double)p.cell_count;
    if (p.cell_ns <= 0)
        p.cell_ns = 1;
    p.cells = host_alloc((size_t)p.cell_count * sizeof *p.cells);
    draw_begin(sheet, (int)foot + BOTTOM, "timeline",
               timeline->foretold ? "What each stage will do, over time" : "What each rank did, over time",
               "The table says how long each spends on what.");
    text_printf(sheet->out, "<rect class='plot' x='%.0f' y='%d' width='%.0f' height='%.1f' data-tops='", left,
                TOP, p.x.end - left, foot - TOP);
    for (int64_t i = 0; i <= timeline->lane_count; i++)
        text_printf(sheet->out, "%s%.1f", i ? " " : "", p.tops[i]);
    text_add(sheet->out, "'/>\n<g class='ticks'>\n");
    draw_axis(&p, foot);
    text_add(sheet->out, "</g>\n<g class='lanes'>\n");
    for (int64_t i = 0; i < timeline->lane_count; i++)
        draw_lane(&p, i);
    text_add(sheet->out, "</g>\n");
    draw_names(&p);
    draw_end(sheet);
    arena_free(arena);
    free(p.cells);
    return (int)foot + BOTTOM;
}
