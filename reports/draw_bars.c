/* Who holds the bytes at the peak: a bar for every role, and a column for every layer; of two peaks a pair of bars each. */
#include "base/units.h"
#include "reports/draw.h"
#include "reports/palette.h"
#include "reports/role_table.h"

#include <stdio.h>

static void draw_bar(const struct sheet *sheet, enum role role, double x, double y, double width,
                     double height)
{
    text_printf(sheet->out,
                "<rect x='%.1f' y='%.1f' width='%.2f' height='%.2f' class='area' fill='url(#%srole-%s)'/>\n",
                x, y, width, height, sheet->prefix, role_name(role));
}

/* ------------------------------------------------------------------------------------------------------------- roles */

enum { ROW = 30, BAR = 18, NAMES = 118, FIGURES = 104, SHARE = 52, FOOT = 6 };

static void draw_role(const struct sheet *sheet, const struct breakdown *b, enum role role, double y,
                      const struct scale *scale)
{
    char bytes[UNITS_TEXT];
    double middle = y + ROW / 2.0;
    int64_t held = b->by_role[role], total = role_table_total(b->by_role);
    draw_text(sheet, NAMES - 12, middle + 4, ANCHOR_END, "ink", role_name(role));
    draw_line(sheet, NAMES, middle, scale->end, middle, "grid");
    if (held)
        draw_bar(sheet, role, NAMES, middle - BAR / 2.0, scale_at(scale, (double)held) - NAMES, BAR);
    if (b->foretold && b->predicted[role]) {
        double x = scale_at(scale, (double)b->predicted[role]);
        draw_line(sheet, x, middle - BAR / 2.0 - 4, x, middle + BAR / 2.0 + 4, "foretold");
    }
    draw_text(sheet, sheet->width - SHARE, middle + 4, ANCHOR_END, "ink", units_format_bytes(held, bytes));
    char share[TABLE_CELL];
    table_percent_text(total ? (double)held / (double)total : 0, share);
    draw_text(sheet, sheet->width, middle + 4, ANCHOR_END, "soft small", share);
}

static bool shows(const struct breakdown *b, int role)
{
    return b->by_role[role] || (b->foretold && b->predicted[role]);
}

int draw_roles(const struct sheet *sheet, const struct breakdown *b)
{
    int rows = 0;
    int64_t most = 1;
    for (int role = 0; role < ROLE_COUNT; role++) {
        rows += shows(b, role);
        most = b->by_role[role] > most ? b->by_role[role] : most;
        most = b->foretold && b->predicted[role] > most ? b->predicted[role] : most;
    }
    struct scale scale = {0, (double)most, NAMES, sheet->width - FIGURES - SHARE};
    draw_begin(sheet, rows * ROW + FOOT, "roles", "Bytes by role at the peak",
               b->foretold
                   ? "Bars are measured, upright lines are what was predicted. The table has the figures."
                   : "The table has the figures.");
    double y = 0;
    for (int role = 0; role < ROLE_COUNT; role++)
        if (shows(b, role)) {
            draw_role(sheet, b, (enum role)role, y, &scale);
            y += ROW;
        }
    draw_end(sheet);
    return rows * ROW + FOOT;
}

/* ------------------------------------------------------------------------------------------------------------- pairs */

enum { PAIR_ROW = 40, PAIR_BAR = 12 };

static void draw_pair(const struct sheet *sheet, const struct comparison *c, const struct compare_row *row,
                      double y, const struct scale *scale)
{
    char text[TABLE_CELL];
    double middle = y + PAIR_ROW / 2.0;
    int64_t change =
        c->runs ? row->measured_bytes - row->predicted_bytes : row->predicted_bytes - row->measured_bytes;
    draw_text(sheet, NAMES - 12, middle + 4, ANCHOR_END, "ink", role_name(row->role));
    text_add(sheet->out, "<g class='paler'>");
    draw_bar(sheet, row->role, NAMES, middle - PAIR_BAR - 1,
             scale_at(scale, (double)row->predicted_bytes) - NAMES, PAIR_BAR);
    text_add(sheet->out, "</g>");
    draw_bar(sheet, row->role, NAMES, middle + 1, scale_at(scale, (double)row->measured_bytes) - NAMES,
             PAIR_BAR);
    draw_text(sheet, sheet->width, middle + 4, ANCHOR_END, change ? "mark-text" : "soft",
              table_change_text(change, text));
}

int draw_pairs(const struct sheet *sheet, const struct comparison *c)
{
    const struct compare_row *rows = compare_worst(c);
    int count = 0;
    int64_t most = 1;
    for (int role = 0; role < ROLE_COUNT; role++) {
        count += rows[role].predicted_bytes || rows[role].measured_bytes;
        most = rows[role].predicted_bytes > most ? rows[role].predicted_bytes : most;
        most = rows[role].measured_bytes > most ? rows[role].measured_bytes : most;
    }
    struct scale scale = {0, (double)most, NAMES, sheet->width - FIGURES};
    draw_begin(sheet, count * PAIR_ROW + FOOT, "pairs", "Bytes by role at the two peaks",
               "The table has the figures.");
    double y = 0;
    for (int role = 0; role < ROLE_COUNT; role++)
        if (rows[role].predicted_bytes || rows[role].measured_bytes) {
            draw_pair(sheet, c, &rows[role], y, &scale);
            y += PAIR_ROW;
        }
    draw_end(sheet);
    return count * PAIR_ROW + FOOT;
}

/* ------------------------------------------------------------------------------------------------------------ layers */

enum { LEFT = 76, RIGHT = 16, TOP = 12, BOTTOM = 44, LAYERS_HEIGHT = 300 };

void draw_role_column(const struct sheet *sheet, const int64_t by_role[ROLE_COUNT], const struct scale *y,
                      double x, double width)
{
    int64_t below = 0;
    for (int role = 0; role < ROLE_COUNT; role++) {
        if (by_role[role] <= 0)
            continue;
        double top = scale_at(y, (double)(below + by_role[role]));
        draw_bar(sheet, (enum role)role, x, top, width, scale_at(y, (double)below) - top);
        below += by_role[role];
    }
}

/* What belongs to no layer stands first, a little apart. */
static double place_of(const struct breakdown *b, int64_t i, double step)
{
    bool apart = b->layers[0].layer < 0;
    return LEFT + step * ((double)i + (apart && i > 0 ? 0.6 : 0) + 0.5);
}

int draw_layers(const struct sheet *sheet, const struct breakdown *b)
{
    int64_t most = 1;
    char name[32];
    for (int64_t i = 0; i < b->layer_count; i++) {
        int64_t bytes = role_table_total(b->layers[i].by_role);
        most = bytes > most ? bytes : most;
    }
    double foot = LAYERS_HEIGHT - BOTTOM, right = sheet->width - RIGHT;
    double step = (right - LEFT) / ((double)b->layer_count + 0.6);
    step = step > 150 ? 150 : step;
    double width = step * 0.74 > 64 ? 64 : step * 0.74;
    int64_t every = (int64_t)draw_step((double)b->layer_count, (int)((right - LEFT) / 30));
    struct scale y = {0, (double)most * 1.05, foot, TOP};
    draw_begin(sheet, LAYERS_HEIGHT, "layers", "Bytes by layer at the peak", "The table has the figures.");
    draw_bytes_axis(sheet, &y, LEFT, right, 5);
    for (int64_t i = 0; i < b->layer_count; i++) {
        double x = place_of(b, i, step);
        int64_t layer = b->layers[i].layer;
        draw_role_column(sheet, b->layers[i].by_role, &y, x - width / 2, width);
        snprintf(name, sizeof name, "%lld", (long long)layer);
        if (layer >= 0 && layer % (every > 0 ? every : 1) == 0)
            draw_text(sheet, x, foot + 17, ANCHOR_MIDDLE, "soft", name);
        else if (layer < 0)
            draw_text(sheet, LEFT, foot + 36, ANCHOR_START, "soft", breakdown_outside(b->stages > 1));
    }
    if (b->layers[0].layer < 0)
        draw_line(sheet, place_of(b, 0, step), foot + 4, place_of(b, 0, step), foot + 24, "axis");
    draw_text(sheet, place_of(b, b->layer_count - 1, step), foot + 36, ANCHOR_MIDDLE, "soft", "layer");
    draw_end(sheet);
    return LAYERS_HEIGHT;
}
