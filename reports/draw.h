/* Pictures as SVG elements, for SVG files and for pages alike. Colours of roles and of work are the palette's; everything else
 * is drawn with classes that html/picture.css gives a colour in light and in dark: .ink .soft .grid .mark .limit. */
#ifndef MEMPLAN_REPORTS_DRAW_H
#define MEMPLAN_REPORTS_DRAW_H

#include "base/text.h"
#include "reports/document.h"

#include <stdint.h>

/* A sheet to draw on. Units are pixels when the picture is shown as wide as it is. */
struct sheet {
    struct text *out;
    int width;
    const char *prefix; /* before the ids of patterns; see palette_add_patterns() */
};

/* Each draws one <svg> of its topic, whole, and returns its height, which follows from what there is to show. `series` has
 * points, the breakdown is detailed where layers are drawn. */
int draw_memory(const struct sheet *sheet, const struct series *series, int64_t capacity_bytes);
int draw_roles(const struct sheet *sheet, const struct breakdown *breakdown);
int draw_layers(const struct sheet *sheet, const struct breakdown *breakdown);
/* Of several ranks or stages. */
int draw_stages(const struct sheet *sheet, const struct breakdown *breakdown);
int draw_timeline(const struct sheet *sheet, const struct timeline *timeline);
int draw_pairs(const struct sheet *sheet, const struct comparison *comparison);
int draw_candidates(const struct sheet *sheet, const struct candidates *candidates);

/* What part of it is worth a first look: from the first step on, unless the peak comes before; and without a silence of more than
 * half of that, where a program warms up. */
void draw_memory_view(const struct series *series, int64_t *from, int64_t *to);

/* ------------------------------------------------------------------------------------------- what pictures are made of */

/* Where values lie: [low, high] on the sheet's [start, end]. */
struct scale {
    double low, high, start, end;
};
double scale_at(const struct scale *scale, double value);

/* Opens <svg> with a title and a text for those who hear it; draw_end() closes it. `class` names it. */
void draw_begin(const struct sheet *sheet, int height, const char *class, const char *title, const char *says);
void draw_end(const struct sheet *sheet);

enum anchor { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END };
void draw_text(const struct sheet *sheet, double x, double y, enum anchor anchor, const char *class,
               const char *text);
void draw_line(const struct sheet *sheet, double x1, double y1, double x2, double y2, const char *class);

/* The distance between round values, so that at most `most` fit in `span`: 1, 2 or 5 of a unit. Bytes: of B, KiB, MiB, ... */
double draw_step(double span, int most);
double draw_bytes_step(double span, int most);
/* Bytes with no more digits than a scale needs: "20 MiB". */
const char *draw_bytes(double bytes, char *out);
/* Nanoseconds, where `step` of them is one tick: "12.5 ms". */
const char *draw_time(double ns, double step, char *out);

/* A column of what each role holds, from the foot of `y` up. */
void draw_role_column(const struct sheet *sheet, const int64_t by_role[ROLE_COUNT], const struct scale *y, double x, double width);

/* Lines and figures for bytes, from 0 to scale->high, upwards at the left of `left` and across to `right`. */
void draw_bytes_axis(const struct sheet *sheet, const struct scale *scale, double left, double right, int most);

#endif
