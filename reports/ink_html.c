/* A report as one page that needs nothing else: no network, no other file. Every picture stands over a table with its figures,
 * and the page says the same without its script, which adds pointing, zooming and sorting (html/page.js).
 *
 * Each picture is drawn twice, for wide and for narrow windows: text in it must not shrink with it. */
#include "base/units.h"
#include "reports/draw.h"
#include "reports/html_assets.h"
#include "reports/html_data.h"
#include "reports/html_header.h"
#include "reports/markup.h"
#include "reports/palette.h"
#include "reports/role_table.h"
#include "reports/writers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDE = 1000, NARROW = 360, LONG_TEXT = 40, LONG_TABLE = 12 };

struct page {
    const struct document *document;
    struct text *out;
};

static void add(const struct page *page, const char *html)
{
    text_add(page->out, html);
}

/* ------------------------------------------------------------------------------------------------------------ tables */

/* The exact value, for sorting and for those who point at it; the whole of a text that the column may cut off. */
static void add_exact(const struct page *page, enum table_kind kind, const struct table_cell *cell)
{
    if (kind == TABLE_TEXT && strlen(cell->text) > LONG_TEXT) {
        text_add(page->out, " title='");
        markup_add_text(page->out, cell->text);
        text_add(page->out, "'");
    } else if (kind == TABLE_BYTES || kind == TABLE_CHANGE)
        text_printf(page->out, " data-value='%lld' title='%lld bytes'", (long long)cell->whole,
                    (long long)cell->whole);
    else if (kind == TABLE_COUNT)
        text_printf(page->out, " data-value='%lld'", (long long)cell->whole);
    else if (kind == TABLE_SECONDS || kind == TABLE_PERCENT || kind == TABLE_NUMBER)
        text_printf(page->out, " data-value='%.9g'", cell->real);
}

static void add_cell(const struct page *page, enum table_kind kind, const struct table_cell *cell,
                     bool heads_row)
{
    char room[TABLE_CELL];
    const char *element = heads_row ? "th scope='row'" : "td";
    text_printf(page->out, "<%s class='%s'", element, kind == TABLE_TEXT ? "text" : "figure");
    if (cell->filled)
        add_exact(page, kind, cell);
    add(page, ">");
    const char *text = table_cell_text(kind, cell, room);
    if (heads_row && role_find(text) >= 0)
        palette_add_swatch(page->out, "role", text);
    markup_add_text(page->out, text);
    add(page, heads_row ? "</th>" : "</td>");
}

/* Not bars, which a picture shows; nor what no row has: a role that nobody holds. What is sorted keeps its columns. */
static bool shows_column(const struct table *table, int column, bool sortable)
{
    bool filled = sortable;
    for (const struct table_row *row = table->rows; row && !filled; row = row->next)
        filled = row->cells[column].filled;
    return filled && table->columns[column].kind != TABLE_BAR;
}

static void add_head_row(const struct page *page, const struct table *table, bool sortable)
{
    /* A head without a heading is there for those who hear the table, and takes no room. */
    bool headed = false;
    for (int i = 0; i < table->column_count; i++)
        headed |= *table->columns[i].heading != '\0';
    add(page, headed ? "<thead><tr>" : "<thead class='bare'><tr>");
    for (int i = 0; i < table->column_count; i++) {
        enum table_kind kind = table->columns[i].kind;
        if (!shows_column(table, i, sortable))
            continue;
        text_printf(page->out, "<th scope='col' class='%s'>", kind == TABLE_TEXT ? "text" : "figure");
        markup_add_text(page->out, table->columns[i].heading);
        add(page, "</th>");
    }
    add(page, "</tr></thead>");
}

static void add_table(const struct page *page, const struct table *table, const char *caption, bool sortable)
{
    text_printf(page->out, "<div class='scroll' tabindex='0'><table%s><caption>",
                sortable ? " class='sortable'" : "");
    markup_add_text(page->out, caption);
    add(page, "</caption>");
    add_head_row(page, table, sortable);
    add(page, "<tbody>\n");
    for (const struct table_row *row = table->rows; row; row = row->next) {
        add(page, "<tr>");
        for (int i = 0; i < table->column_count; i++)
            if (shows_column(table, i, sortable))
                add_cell(page, table->columns[i].kind, &row->cells[i], i == 0);
        add(page, "</tr>\n");
    }
    add(page, "</tbody></table></div>\n");
}

/* Under a picture a table waits to be opened, unless one works with it or it is short; elsewhere a long one does. */
static void add_figures(const struct page *page, const struct report_section *section)
{
    const char *heading = section->heading ? section->heading : "Figures";
    bool sortable = section->topic == TOPIC_CANDIDATES;
    bool folded = section->topic == TOPIC_MEMORY || section->topic == TOPIC_LAYERS ||
                  section->topic == TOPIC_STAGES || section->topic == TOPIC_TIMELINE ||
                  (section->topic == TOPIC_NONE && section->table->row_count > LONG_TABLE);
    if (folded)
        text_printf(page->out, "<details><summary>Table: %d row%s</summary>\n", section->table->row_count,
                    section->table->row_count == 1 ? "" : "s");
    add_table(page, section->table, heading, sortable);
    if (folded)
        add(page, "</details>\n");
}

/* ---------------------------------------------------------------------------------------------------------- pictures */

static void draw_topic(const struct page *page, const struct sheet *sheet, enum report_topic topic)
{
    const struct document *d = page->document;
    switch (topic) {
    case TOPIC_MEMORY:
        draw_memory(sheet, d->memory[0], d->breakdown.capacity_bytes);
        break;
    case TOPIC_ROLES:
        draw_roles(sheet, &d->breakdown);
        break;
    case TOPIC_LAYERS:
        draw_layers(sheet, &d->breakdown);
        break;
    case TOPIC_STAGES:
        draw_stages(sheet, &d->breakdown);
        break;
    case TOPIC_TIMELINE:
        draw_timeline(sheet, d->timeline);
        break;
    case TOPIC_CANDIDATES:
        draw_candidates(sheet, d->candidates);
        break;
    case TOPIC_PAIRS:
        draw_pairs(sheet, d->comparison);
        break;
    case TOPIC_NONE:
        break;
    }
}

static void add_legend_entry(const struct page *page, const char *scale, const char *name)
{
    add(page, "<li>");
    palette_add_swatch(page->out, scale, name);
    text_printf(page->out, "%s</li>", name);
}

static void add_role_legend(const struct page *page, const int64_t by_role[ROLE_COUNT])
{
    add(page, "<ul class='legend'>");
    for (int role = 0; role < ROLE_COUNT; role++)
        if (by_role[role])
            add_legend_entry(page, "role", role_name((enum role)role));
    add(page, "</ul>\n");
}

static void add_work_legend(const struct page *page)
{
    int64_t busy[ACTIVITY_COUNT] = {0};
    const struct timeline *timeline = page->document->timeline;
    for (int64_t i = 0; i < timeline->lane_count; i++)
        for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
            busy[activity] += timeline->lanes[i].busy_ns[activity];
    add(page, "<ul class='legend'>");
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
        if (busy[activity])
            add_legend_entry(page, "work", activity_name((enum activity)activity));
    add(page,
        "<li><svg class='swatch picture'><rect class='idle' width='14' height='14'/></svg>idle</li></ul>\n");
}

/* Adds what a picture shows of each role. */
static void see_roles(const struct document *d, enum report_topic topic, int64_t seen[ROLE_COUNT])
{
    const struct breakdown *b = &d->breakdown;
    for (int role = 0; role < ROLE_COUNT; role++) {
        for (int64_t i = 0; topic == TOPIC_MEMORY && i < d->memory[0]->step_count; i++)
            seen[role] += d->memory[0]->steps[i].highest.by_role[role];
        for (int64_t i = 0; topic == TOPIC_LAYERS && i < b->layer_count; i++)
            seen[role] += b->layers[i].by_role[role];
        for (int64_t i = 0; topic == TOPIC_STAGES && i < b->row_count; i++)
            seen[role] += b->rows[i].by_role[role];
    }
}

static void add_legend(const struct page *page, enum report_topic topic)
{
    int64_t seen[ROLE_COUNT] = {0};
    if (topic == TOPIC_TIMELINE)
        add_work_legend(page);
    if (topic != TOPIC_MEMORY && topic != TOPIC_LAYERS && topic != TOPIC_STAGES)
        return;
    see_roles(page->document, topic, seen);
    add_role_legend(page, seen);
}

static const char *explain(const struct page *page, enum report_topic topic)
{
    switch (topic) {
    case TOPIC_MEMORY:
        return page->document->memory[0]->axis == SERIES_NANOSECONDS
                   ? "Live bytes after every recorded event, stacked by role."
                   : "Live bytes after every operation of one step, stacked by role.";
    case TOPIC_ROLES:
        return page->document->breakdown.foretold
                   ? "Bars are measured; the upright line on each is what was predicted."
                   : NULL;
    case TOPIC_STAGES:
        return page->document->breakdown.foretold ? "Each rank's own peak, stacked by role; the line across "
                                                    "each column is what was predicted."
               : page->document->breakdown.measured ? "Each rank's own peak, stacked by role."
                                                    : "Each stage's own peak, stacked by role.";
    case TOPIC_TIMELINE:
        return page->document->timeline->foretold ? page->document->timeline->foretold
                                                  : "A lane for each rank. Numbers are micro-batches.";
    case TOPIC_CANDIDATES:
        return "Each dot is a configuration that fits, each cross one that does not. Down and to the left is "
               "better.";
    case TOPIC_PAIRS:
        return page->document->comparison->runs ? "Of each pair the paler bar is before, the other after; on "
                                                  "the right, by how much it grew."
                                                : "Of each pair the paler bar is what was predicted, the "
                                                  "other what was measured; on the right the error.";
    default:
        return NULL;
    }
}

static void add_picture(const struct page *page, enum report_topic topic)
{
    static const char *const names[] = {
        [TOPIC_MEMORY] = "memory", [TOPIC_ROLES] = "roles",       [TOPIC_LAYERS] = "layers",
        [TOPIC_STAGES] = "stages", [TOPIC_TIMELINE] = "timeline", [TOPIC_CANDIDATES] = "candidates",
        [TOPIC_PAIRS] = "pairs"};
    struct sheet sheet = {page->out, WIDE, ""};
    text_printf(page->out, "<figure id='%s'>\n", names[topic]);
    add_legend(page, topic);
    add(page, "<div class='wide'>");
    draw_topic(page, &sheet, topic);
    add(page, "</div><div class='narrow'>");
    sheet.width = NARROW;
    draw_topic(page, &sheet, topic);
    add(page, "</div>\n");
    if (topic == TOPIC_MEMORY || topic == TOPIC_TIMELINE || topic == TOPIC_CANDIDATES)
        text_printf(page->out, "<div class='readout' id='%s-readout' aria-live='polite'></div>\n",
                    names[topic]);
    add(page, "</figure>\n");
}

/* ---------------------------------------------------------------------------------------------------------- sections */

static void add_section(const struct page *page, const struct report_section *section)
{
    const char *text = explain(page, section->topic);
    /* What has no heading goes on with what stands before it. */
    add(page, section->heading ? "<section>\n" : "<section class='more'>\n");
    if (section->heading)
        markup_add_element(page->out, "h2", NULL, section->heading);
    if (text)
        markup_add_element(page->out, "p", "note", text);
    add(page, "\n");
    if (section->topic != TOPIC_NONE)
        add_picture(page, section->topic);
    if (section->table)
        add_figures(page, section);
    else
        markup_add_element(page->out, "p", NULL, section->remark);
    add(page, "</section>\n");
}

static void add_head(const struct page *page)
{
    add(page, "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
              "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
              "<meta name='color-scheme' content='light dark'>\n"
              "<link rel='icon' href='data:,'>\n<title>");
    markup_add_text(page->out, page->document->page->title);
    add(page, "</title>\n<style>\n");
    add(page, page_css);
    add(page, picture_css);
    add(page, "</style>\n</head>\n");
}

static int write_html(const struct document *d, enum ink ink, struct text *out, struct error *err)
{
    (void)ink, (void)err;
    struct page page = {d, out};
    add_head(&page);
    add(&page, "<body>\n<svg class='patterns' aria-hidden='true'>");
    palette_add_patterns(out, "");
    add(&page, "</svg>\n<main>\n");
    html_header_add(d, out);
    for (const struct report_section *section = d->page->sections; section; section = section->next)
        add_section(&page, section);
    add(&page, "</main>\n<footer>Written by memplan. The exact bytes of a figure are shown when you point at "
               "it.</footer>\n"
               "<script type='application/json' id='data'>");
    html_data_add(out, d);
    add(&page, "</script>\n<script>\n");
    add(&page, page_js);
    add(&page, "</script>\n</body>\n</html>\n");
    return 0;
}

const struct writer writer_html = {
    ".html", "a page with pictures", {.pictures = true, .points = 100000}, write_html};
