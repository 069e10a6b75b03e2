#include "reports/draw.h"

#include "base/units.h"
#include "reports/markup.h"

#include <math.h>
#include <stdio.h>

double scale_at(const struct scale *s, double value)
{
    return s->high > s->low ? s->start + (value - s->low) / (s->high - s->low) * (s->end - s->start)
                            : s->start;
}

void draw_begin(const struct sheet *sheet, int height, const char *class, const char *title, const char *says)
{
    text_printf(sheet->out,
                "<svg xmlns='http://www.w3.org/2000/svg' class='picture %s' viewBox='0 0 %d %d' width='%d' "
                "height='%d' role='img' aria-label='",
                class, sheet->width, height, sheet->width, height);
    markup_add_text(sheet->out, title);
    text_add(sheet->out, ". ");
    markup_add_text(sheet->out, says);
    text_add(sheet->out, "'>\n");
}

void draw_end(const struct sheet *sheet)
{
    text_add(sheet->out, "</svg>\n");
}

void draw_text(const struct sheet *sheet, double x, double y, enum anchor anchor, const char *class,
               const char *text)
{
    static const char *const anchors[] = {"", " text-anchor='middle'", " text-anchor='end'"};
    text_printf(sheet->out, "<text x='%.1f' y='%.1f' class='%s'%s>", x, y, class, anchors[anchor]);
    markup_add_text(sheet->out, text);
    text_add(sheet->out, "</text>\n");
}

void draw_line(const struct sheet *sheet, double x1, double y1, double x2, double y2, const char *class)
{
    text_printf(sheet->out, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' class='%s'/>\n", x1, y1, x2, y2,
                class);
}

/* ------------------------------------------------------------------------------------------------------------- scales */

double draw_step(double span, int most)
{
    double unit = pow(10, floor(log10(span / most)));
    static const double steps[] = {1, 2, 5, 10};
    int i = 0;
    while (i < 3 && span / (steps[i] * unit) > most)
        i++;
    return steps[i] * unit;
}

double draw_bytes_step(double span, int most)
{
    double unit = 1;
    while (span >= 1024 * unit)
        unit *= 1024;
    double step = draw_step(span / unit, most) * unit;
    return step < 1 ? 1 : step;
}

const char *draw_bytes(double bytes, char *out)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;
    for (; bytes >= 1023.5 && unit < 5; unit++)
        bytes /= 1024;
    snprintf(out, UNITS_TEXT, "%.4g %s", bytes, units[unit]);
    return out;
}

const char *draw_time(double ns, double step, char *out)
{
    static const struct {
        double ns;
        const char *name;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}, {1, "ns"}};
    int unit = 0;
    while (unit < 3 && step < units[unit].ns * 0.5)
        unit++;
    double digits = -floor(log10(step / units[unit].ns) + 1e-9);
    snprintf(out, UNITS_TEXT, "%.*f %s", digits > 0 ? (int)digits : 0, ns / units[unit].ns, units[unit].name);
    return out;
}

void draw_bytes_axis(const struct sheet *sheet, const struct scale *scale, double left, double right,
                     int most)
{
    char text[UNITS_TEXT];
    double step = draw_bytes_step(scale->high, most);
    for (double bytes = 0; bytes <= scale->high; bytes += step) {
        double y = scale_at(scale, bytes);
        draw_line(sheet, left, y, right, y, bytes > 0 ? "grid" : "axis");
        draw_text(sheet, left - 8, y + 4, ANCHOR_END, "soft", bytes > 0 ? draw_bytes(bytes, text) : "0");
    }
}
