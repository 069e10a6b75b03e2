/* The main picture alone, as an SVG file: memory over time, or by role where no events were recorded, or the two
 * peaks of a comparison. Colours follow the
 * viewer's light or dark mode. */
#include "reports/draw.h"
#include "reports/html_assets.h"
#include "reports/markup.h"
#include "reports/palette.h"
#include "reports/writers.h"

#include "base/role.h"

#include <string.h>

enum { WIDTH = 1000, MARGIN = 24, HEAD = 64, LEGEND = 34 };

static void add_legend(const struct sheet *sheet, const int64_t by_role[ROLE_COUNT], double y)
{
    double x = 76;
    for (int role = 0; role < ROLE_COUNT; role++) {
        if (!by_role[role])
            continue;
        const char *name = role_name((enum role)role);
        text_printf(sheet->out,
                    "<rect x='%.1f' y='%.1f' width='14' height='14' class='area' fill='url(#%srole-%s)'/>\n",
                    x, y - 11, sheet->prefix, name);
        draw_text(sheet, x + 20, y, ANCHOR_START, "ink", name);
        x += 44 + 7 * (double)strlen(name);
    }
}

/* The roles that hold anything at any time. */
static void find_roles(const struct document *d, int64_t seen[ROLE_COUNT])
{
    for (int role = 0; role < ROLE_COUNT; role++)
        for (int64_t i = 0; d->memory_count && i < d->memory[0]->step_count; i++)
            seen[role] += d->memory[0]->steps[i].highest.by_role[role];
}

static int draw_main(const struct document *d, const struct sheet *sheet)
{
    if (d->comparison)
        return draw_pairs(sheet, d->comparison);
    if (d->memory_count)
        return draw_memory(sheet, d->memory[0], d->breakdown.capacity_bytes);
    return draw_roles(sheet, &d->breakdown);
}

/* Bars have the names of the roles beside them. */
static int add_memory_legend(const struct document *d, const struct sheet *sheet, int y)
{
    int64_t seen[ROLE_COUNT] = {0};
    if (d->memory_count == 0)
        return 0;
    find_roles(d, seen);
    add_legend(sheet, seen, y + 14);
    return LEGEND;
}

static int write_svg(const struct document *d, enum ink ink, struct text *out, struct error *err)
{
    (void)ink, (void)err;
    struct text drawn = {0};
    struct sheet inner = {&drawn, WIDTH - MARGIN, ""}, sheet = {out, WIDTH, ""};
    int height = HEAD + draw_main(d, &inner);
    text_add(&drawn, "</g>\n");
    height += add_memory_legend(d, &inner, height) + MARGIN;
    draw_begin(&sheet, height, "file", d->page->title, "");
    text_printf(out, "<style><![CDATA[\n%s]]></style>\n", picture_css);
    palette_add_patterns(out, "");
    text_printf(out, "<rect width='%d' height='%d' fill='var(--paper)'/>\n", WIDTH, height);
    text_printf(out, "<g transform='translate(%d 30)' style='font-size:17px;font-weight:600'>", MARGIN);
    draw_text(&sheet, 0, 0, ANCHOR_START, "ink", d->page->title);
    text_printf(out, "</g><g transform='translate(0 %d)'>\n%s", HEAD - 16, drawn.data);
    draw_end(&sheet);
    text_free(&drawn);
    return 0;
}

const struct writer writer_svg = {
    ".svg", "the main picture", {.pictures = true, .points = 100000}, write_svg};
