/* The main picture alone, as an SVG file: memory over time, or by role where no events were recorded, or the two
 * peaks of a comparison. Colours follow the
 * viewer's light or dark mode. */
#include "reports/draw.h"
#include "reports/html_assets.h"
#include "reports/markup.h"
#include "reports/palette.h"
#include "reports/writers.h"

#include "base/role.h"

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
        x += 112;
    }
}

/* The roles that hold anything at any time. */
static void find_roles(const struct document *d, int64_t seen[ROLE_COUNT])
{
    for (int role = 0; role < ROLE_COUNT; role++)
        for (int64_t i = 0; d->memory_count && i < d->memory[0]->step_count; i++)
            seen[role] += d->memory[0]->steps[i].highest.by_role[role];
}

static int write_svg(const struct document *d, enum ink ink, struct text *out, struct error *err)
{
    (void)ink, (void)err;
    int64_t seen[ROLE_COUNT] = {0};
    struct sheet sheet = {out, WIDTH, ""};
    int picture = d->memory_count ? 380
                  : d->comparison ? 330
                                  : 240,
        height = HEAD + picture + LEGEND + MARGIN;
    draw_begin(&sheet, height, "file", d->page->title, "");
    text_add(out, "<style>");
    markup_add_text(out, picture_css);
    text_add(out, "</style>\n");
    palette_add_patterns(out, "");
    text_printf(out, "<rect width='%d' height='%d' fill='var(--paper)'/>\n", WIDTH, height);
    text_printf(out, "<g transform='translate(%d 30)' style='font-size:17px;font-weight:600'>", MARGIN);
    draw_text(&sheet, 0, 0, ANCHOR_START, "ink", d->page->title);
    text_printf(out, "</g><g transform='translate(0 %d)'>\n", HEAD - 16);
    if (d->comparison)
        draw_pairs(&sheet, d->comparison);
    else if (d->memory_count)
        draw_memory(&sheet, d->memory[0], d->breakdown.capacity_bytes);
    else
        draw_roles(&sheet, &d->breakdown);
    text_add(out, "</g>\n");
    find_roles(d, seen);
    add_legend(&sheet, seen, HEAD + picture + 14);
    draw_end(&sheet);
    return 0;
}

const struct writer writer_svg = {
    ".svg", "the main picture", {.pictures = true, .points = 100000}, write_svg};
