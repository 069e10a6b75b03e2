/* A report as one page that needs nothing else: no network, no other file. Every picture stands over a table with its figures,
 * and the page says the same without its script, which adds pointing, zooming and sorting (html/page.js).
 *
 * Each picture is drawn twice, for wide and for narrow windows: text in it must not shrink with it. */
#include "base/units.h"
#include "reports/draw.h"
#include "reports/html_assets.h"
#include "reports/html_data.h"
#include "reports/markup.h"
#include "reports/palette.h"
#include "reports/role_table.h"
#include "reports/writers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDE = 1000, NARROW = 360, LONG_TEXT = 40 };

struct page {
    const struct document *document;
    struct text *out;
};

static void add(const struct page *page, const char *html)
{
    text_add(page->out, html);
}

static void add_element(const struct page *page, const char *element, const char *class, const char *text)
{
    text_printf(page->out, "<%s", element);
    if (class)
        text_printf(page->out, " class='%s'", class);
    add(page, ">");
    markup_add_text(page->out, text);
    text_printf(page->out, "</%s>", element);
}

/* `scale` is "role" or "work". */
static void add_swatch(const struct page *page, const char *scale, const char *name)
{
    text_printf(
        page->out,
        "<svg class='swatch' aria-hidden='true'><rect width='14' height='14' fill='url(#%s-%s)'/></svg>",
        scale, name);
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
        add_swatch(page, "role", text);
    markup_add_text(page->out, text);
    add(page, heads_row ? "</th>" : "</td>");
}

static void add_table(const struct page *page, const struct table *table, const char *caption, bool sortable)
{
    text_printf(page->out, "<div class='scroll' tabindex='0'><table%s><caption>",
                sortable ? " class='sortable'" : "");
    markup_add_text(page->out, caption);
    add(page, "</caption><thead><tr>");
    for (int i = 0; i < table->column_count; i++) {
        enum table_kind kind = table->columns[i].kind;
        if (kind != TABLE_BAR) {
            text_printf(page->out, "<th scope='col' class='%s'>", kind == TABLE_TEXT ? "text" : "figure");
            markup_add_text(page->out, table->columns[i].heading);
            add(page, "</th>");
        }
    }
    add(page, "</tr></thead><tbody>\n");
    for (const struct table_row *row = table->rows; row; row = row->next) {
        add(page, "<tr>");
        for (int i = 0; i < table->column_count; i++)
            if (table->columns[i].kind != TABLE_BAR)
                add_cell(page, table->columns[i].kind, &row->cells[i], i == 0);
        add(page, "</tr>\n");
    }
    add(page, "</tbody></table></div>\n");
}

/* Under a picture a long table waits to be opened. */
static void add_figures(const struct page *page, const struct report_section *section)
{
    const char *heading = section->heading ? section->heading : "Figures";
    bool sortable = section->topic == TOPIC_CANDIDATES;
    bool folded = section->topic != TOPIC_NONE && section->topic != TOPIC_PAIRS &&
                  section->topic != TOPIC_CANDIDATES && section->topic != TOPIC_ROLES &&
                  section->topic != TOPIC_PAIRS;
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
    add_swatch(page, scale, name);
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

static void add_legend(const struct page *page, enum report_topic topic)
{
    const struct document *d = page->document;
    int64_t seen[ROLE_COUNT] = {0};
    if (topic == TOPIC_TIMELINE)
        add_work_legend(page);
    for (int role = 0; role < ROLE_COUNT; role++) {
        seen[role] = d->breakdown.by_role[role];
        for (int64_t i = 0; topic == TOPIC_MEMORY && i < d->memory[0]->step_count; i++)
            seen[role] += d->memory[0]->steps[i].highest.by_role[role];
    }
    if (topic == TOPIC_MEMORY || topic == TOPIC_LAYERS)
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
    static const char *const names[] = {"", "memory", "roles", "layers", "timeline", "candidates", "pairs"};
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
        add_element(page, "h2", NULL, section->heading);
    if (text)
        add_element(page, "p", "note", text);
    add(page, "\n");
    if (section->topic != TOPIC_NONE)
        add_picture(page, section->topic);
    if (section->table)
        add_figures(page, section);
    else
        add_element(page, "p", NULL, section->remark);
    add(page, "</section>\n");
}

static void add_headline(const struct page *page, const char *label, const char *value, const char *below)
{
    add(page, "<div>");
    add_element(page, "dt", NULL, label);
    add_element(page, "dd", NULL, value);
    if (below)
        add_element(page, "dd", "below", below);
    add(page, "</div>\n");
}

static const char *print_share(double share, char out[TABLE_CELL])
{
    struct table_cell cell = cell_real(share);
    return table_cell_text(TABLE_PERCENT, &cell, out);
}

static void add_peak_headline(const struct page *page)
{
    const struct breakdown *b = &page->document->breakdown;
    char peak[UNITS_TEXT], limit[UNITS_TEXT], share[TABLE_CELL];
    bool limited = b->capacity_bytes != INT64_MAX;
    double part = limited ? (double)b->peak_bytes / (double)b->capacity_bytes : 0;
    text_printf(page->out, "<div class='peak' data-bytes='%lld'>", (long long)b->peak_bytes);
    add_element(page, "dt", NULL, b->measured ? "peak, measured" : "peak, predicted");
    add_element(page, "dd", NULL, units_format_bytes(b->peak_bytes, peak));
    if (limited)
        text_printf(page->out,
                    "<dd class='gauge%s' aria-hidden='true'><i style='width:%.2f%%'></i></dd><dd "
                    "class='below'>%s of %s</dd>",
                    part > 0.95 ? " full" : "", part > 1 ? 100 : 100 * part, print_share(part, share),
                    units_format_bytes(b->capacity_bytes, limit));
    add(page, "</div>\n");
}

static void add_headlines(const struct page *page)
{
    const struct breakdown *b = &page->document->breakdown;
    char value[UNITS_TEXT], below[96];
    add(page, "<dl class='headlines'>\n");
    add_peak_headline(page);
    if (b->foretold) {
        int64_t error = role_table_total(b->predicted) - b->peak_bytes;
        struct table_cell cell = cell_whole(error);
        char change[TABLE_CELL];
        snprintf(below, sizeof below, "error %s", table_cell_text(TABLE_CHANGE, &cell, change));
        add_headline(page, "predicted", units_format_bytes(role_table_total(b->predicted), value), below);
    }
    if (b->measured && isfinite(b->steps.median_seconds)) {
        char rate[UNITS_TEXT];
        snprintf(below, sizeof below, "%s tokens/s",
                 units_format_count(llround(b->steps.tokens_per_s), rate));
        add_headline(page, "step, median", units_format_seconds(b->steps.median_seconds, value),
                     isfinite(b->steps.tokens_per_s) ? below : NULL);
    }
    if (!b->measured && b->arena_bytes)
        add_headline(page, "arena", units_format_bytes(b->arena_bytes, value), "one block, taken at launch");
    snprintf(below, sizeof below, b->stages > 1 ? "on %lld stages" : "all alike", (long long)b->stages);
    bool alike = b->stages > 1 || (!b->measured && b->ranks > 1);
    add_headline(page, b->ranks == 1 ? "rank" : "ranks", units_format_count(b->ranks, value),
                 alike ? below : NULL);
    add(page, "</dl>\n");
}

static void add_facts(const struct page *page)
{
    add(page, "<dl class='facts'>\n");
    for (const struct report_fact *fact = page->document->page->facts; fact; fact = fact->next) {
        if (fact->gauge >= 0)
            continue; /* the headline has it */
        add(page, "<div>");
        add_element(page, "dt", NULL, fact->label);
        add_element(page, "dd", NULL, fact->text);
        add(page, "</div>\n");
    }
    add(page, "</dl>\n");
}

/* The two peaks of the rank that differs most. */
static void add_comparison_header(const struct page *page)
{
    const struct comparison *c = page->document->comparison;
    const struct compare_row *rows = compare_worst(c);
    int64_t first = 0, second = 0;
    char value[UNITS_TEXT], below[TABLE_CELL], rank[40];
    for (int role = 0; role < ROLE_COUNT; role++) {
        first += rows[role].predicted_bytes;
        second += rows[role].measured_bytes;
    }
    struct table_cell change = cell_whole(c->runs ? second - first : first - second);
    snprintf(rank, sizeof rank, "rank %lld", (long long)rows[0].rank);
    add(page, "<header>\n<p class='kicker'>memplan compare</p>\n");
    add_element(page, "h1", "sentence", page->document->page->title);
    add(page, "\n<dl class='headlines'>\n");
    add_headline(page, c->runs ? "peak before" : "peak, predicted", units_format_bytes(first, value),
                 c->first);
    add_headline(page, c->runs ? "peak after" : "peak, measured", units_format_bytes(second, value),
                 c->second);
    add_headline(page, c->runs ? "change" : "error", table_cell_text(TABLE_CHANGE, &change, below), rank);
    add(page, "</dl>\n</header>\n");
}

static void add_header(const struct page *page)
{
    const struct breakdown *b = &page->document->breakdown;
    add(page, "<header>\n<p class='kicker'>memplan report</p>\n");
    add_element(page, "h1", NULL, b->model ? b->model : "a run");
    add(page, "\n");
    add_headlines(page);
    add_element(page, "p", "advice", b->advice);
    add(page, "\n");
    add_facts(page);
    add(page, "</header>\n");
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
    if (d->comparison)
        add_comparison_header(&page);
    else
        add_header(&page);
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
