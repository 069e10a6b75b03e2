/* The main picture alone, as an SVG file: memory over time, or by role where no events were recorded, or the two peaks of a
 * comparison; and of several ranks or stages what they do meanwhile. Colours follow the viewer's light or dark mode. */
#include "reports/draw.h"
#include "reports/html_assets.h"
#include "reports/markup.h"
#include "reports/palette.h"
#include "reports/writers.h"

#include "base/role.h"

#include <string.h>

enum { WIDTH = 1000, MARGIN = 24, HEAD = 48, LEGEND = 34 };

/* Pictures and legends below one another; `y` is where the next one goes. */
struct stack {
    struct sheet sheet;
    double x;
    int y;
};

/* `scale` is "role" or "work". */
static void add_legend_entry(struct stack *stack, const char *scale, const char *name)
{
    const struct sheet *sheet = &stack->sheet;
    double y = stack->y + 30;
    text_printf(sheet->out,
                "<rect x='%.1f' y='%.1f' width='14' height='14' class='area' fill='url(#%s%s-%s)'/>\n",
                stack->x, y - 11, sheet->prefix, scale, name);
    draw_text(sheet, stack->x + 20, y, ANCHOR_START, "ink", name);
    stack->x += 44 + 7 * (double)strlen(name);
}

static void begin_legend(struct stack *stack)
{
    stack->x = 76;
}

static void end_legend(struct stack *stack)
{
    stack->y += LEGEND;
}

/* The roles that hold anything at any time. */
static void add_role_legend(struct stack *stack, const struct series *series)
{
    begin_legend(stack);
    for (int role = 0; role < ROLE_COUNT; role++) {
        int64_t seen = 0;
        for (int64_t i = 0; i < series->step_count; i++)
            seen += series->steps[i].highest.by_role[role];
        if (seen)
            add_legend_entry(stack, "role", role_name((enum role)role));
    }
    end_legend(stack);
}

static void add_work_legend(struct stack *stack, const struct timeline *timeline)
{
    begin_legend(stack);
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++) {
        int64_t busy_ns = 0;
        for (int64_t i = 0; i < timeline->lane_count; i++)
            busy_ns += timeline->lanes[i].busy_ns[activity];
        if (busy_ns)
            add_legend_entry(stack, "work", activity_name((enum activity)activity));
    }
    end_legend(stack);
}

static void begin_picture(const struct stack *stack)
{
    text_printf(stack->sheet.out, "<g transform='translate(0 %d)'>\n", stack->y);
}

static void end_picture(struct stack *stack, int height)
{
    text_add(stack->sheet.out, "</g>\n");
    stack->y += height;
}

/* Bars have the names of the roles beside them. */
static void add_main(struct stack *stack, const struct document *d)
{
    const struct sheet *sheet = &stack->sheet;
    begin_picture(stack);
    if (d->comparison)
        end_picture(stack, draw_pairs(sheet, d->comparison));
    else if (d->memory_count == 0)
        end_picture(stack, draw_roles(sheet, &d->breakdown));
    else
        end_picture(stack, draw_memory(sheet, d->memory[0], d->breakdown.capacity_bytes));
    if (d->memory_count)
        add_role_legend(stack, d->memory[0]);
}

/* A stage beside the others, under the same legend. */
static void add_stages(struct stack *stack, const struct document *d)
{
    if (d->comparison || d->breakdown.stages < 2)
        return;
    stack->y += MARGIN;
    begin_picture(stack);
    end_picture(stack, draw_stages(&stack->sheet, &d->breakdown));
}

static void add_timeline(struct stack *stack, const struct timeline *timeline)
{
    if (!timeline || timeline->lane_count == 1)
        return;
    stack->y += MARGIN;
    begin_picture(stack);
    end_picture(stack, draw_timeline(&stack->sheet, timeline));
    add_work_legend(stack, timeline);
}

static int write_svg(const struct document *d, enum ink ink, struct text *out, struct error *err)
{
    (void)ink, (void)err;
    struct text drawn = {0};
    struct stack stack = {{&drawn, WIDTH - MARGIN, ""}, 0, HEAD};
    struct sheet sheet = {out, WIDTH, ""};
    add_main(&stack, d);
    add_stages(&stack, d);
    add_timeline(&stack, d->timeline);
    int height = stack.y + MARGIN;
    draw_begin(&sheet, height, "file", d->page->title, "");
    text_printf(out, "<style><![CDATA[\n%s]]></style>\n", picture_css);
    palette_add_patterns(out, "");
    text_printf(out, "<rect width='%d' height='%d' fill='var(--paper)'/>\n", WIDTH, height);
    text_printf(out, "<g transform='translate(%d 30)' style='font-size:17px;font-weight:600'>", MARGIN);
    draw_text(&sheet, 0, 0, ANCHOR_START, "ink", d->page->title);
    text_printf(out, "</g>\n%s", drawn.data);
    draw_end(&sheet);
    text_free(&drawn);
    return 0;
}

const struct writer writer_svg = {
    ".svg", "the main pictures", {.pictures = true, .points = 100000}, write_svg};
