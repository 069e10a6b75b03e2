#include "reports/html_header.h"

#include "base/units.h"
#include "reports/markup.h"
#include "reports/palette.h"
#include "reports/role_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_headline(struct text *out, const char *label, const char *value, const char *below)
{
    text_add(out, "<div>");
    markup_add_element(out, "dt", NULL, label);
    markup_add_element(out, "dd", NULL, value);
    if (below)
        markup_add_element(out, "dd", "below", below);
    text_add(out, "</div>\n");
}

/* --------------------------------------------------------------------------------------------------------------- bars */

/* Where less of the capacity is used than this, the bar is of what is used: slivers say nothing. */
static const double least_share = 0.1;

static void add_piece(struct text *out, const int64_t by_role[ROLE_COUNT], int role, int64_t before,
                      double whole)
{
    char bytes[UNITS_TEXT], share[TABLE_CELL];
    double part = (double)by_role[role] / (double)role_table_total(by_role);
    text_printf(
        out,
        "<rect x='%.3f%%' width='%.3f%%' height='100%%' fill='url(#role-%s)'><title>%s %s, %s</title></rect>",
        100 * (double)before / whole, 100 * (double)by_role[role] / whole, role_name((enum role)role),
        role_name((enum role)role), units_format_bytes(by_role[role], bytes),
        table_percent_text(part, share));
}

/* `whole` bytes are as wide as the page. */
static void add_bar(struct text *out, const int64_t by_role[ROLE_COUNT], int64_t whole, const char *says)
{
    int64_t before = 0;
    text_add(out, "<svg class='hero picture' role='img' aria-label='");
    markup_add_text(out, says);
    text_add(out, "'><rect class='idle' width='100%' height='100%'/>");
    for (int role = 0; role < ROLE_COUNT; role++) {
        if (by_role[role] > 0)
            add_piece(out, by_role, role, before, (double)whole);
        before += by_role[role];
    }
    text_add(out, "</svg>\n");
}

static void add_entry(struct text *out, const char *name, int64_t bytes)
{
    char text[UNITS_TEXT];
    text_printf(out, "%s <b>%s</b></li>", name, units_format_bytes(bytes, text));
}

/* What the pieces of the bar are, with figures; and what is left of the capacity, where the bar shows it. */
static void add_bar_legend(struct text *out, const int64_t by_role[ROLE_COUNT], int64_t free_bytes)
{
    text_add(out, "<ul class='legend'>");
    for (int role = 0; role < ROLE_COUNT; role++) {
        if (!by_role[role])
            continue;
        text_add(out, "<li>");
        palette_add_swatch(out, "role", role_name((enum role)role));
        add_entry(out, role_name((enum role)role), by_role[role]);
    }
    if (free_bytes > 0) {
        text_add(out, "<li><svg class='swatch picture'><rect class='idle' width='14' height='14'/></svg>");
        add_entry(out, "free at the peak", free_bytes);
    }
    text_add(out, "</ul>\n");
}

/* What context and libraries will take is not free either. */
static void add_peak_bar(struct text *out, const struct breakdown *b)
{
    int64_t by_role[ROLE_COUNT];
    memcpy(by_role, b->by_role, sizeof by_role);
    by_role[ROLE_RUNTIME] += b->runtime_bytes;
    int64_t held = role_table_total(by_role);
    bool limited = b->capacity_bytes != INT64_MAX && held <= b->capacity_bytes &&
                   (double)held >= least_share * (double)b->capacity_bytes;
    if (held <= 0)
        return;
    add_bar(out, by_role, limited ? b->capacity_bytes : held,
            limited ? "Who holds how much of the capacity at the peak" : "Who holds how much at the peak");
    add_bar_legend(out, by_role, limited ? b->capacity_bytes - held : 0);
}

/* ----------------------------------------------------------------------------------------------------- a run or a plan */

static void add_peak_headline(struct text *out, const struct breakdown *b)
{
    char peak[UNITS_TEXT], limit[UNITS_TEXT], share[TABLE_CELL], below[2 * UNITS_TEXT + TABLE_CELL];
    text_printf(out, "<div class='peak' data-bytes='%lld'>", (long long)b->peak_bytes);
    markup_add_element(out, "dt", NULL, b->measured ? "peak, measured" : "peak, predicted");
    markup_add_element(out, "dd", NULL, units_format_bytes(b->peak_bytes, peak));
    if (b->capacity_bytes != INT64_MAX) {
        double part = (double)b->peak_bytes / (double)b->capacity_bytes;
        snprintf(below, sizeof below, "%s of %s", table_percent_text(part, share),
                 units_format_bytes(b->capacity_bytes, limit));
        markup_add_element(out, "dd", part > 1 ? "below over" : "below", below);
    }
    text_add(out, "</div>\n");
}

static void add_predicted_headline(struct text *out, const struct breakdown *b)
{
    char value[UNITS_TEXT], change[TABLE_CELL], below[TABLE_CELL + 16];
    int64_t predicted = role_table_total(b->predicted);
    snprintf(below, sizeof below, "error %s", table_change_text(predicted - b->peak_bytes, change));
    add_headline(out, "predicted", units_format_bytes(predicted, value), below);
}

static void add_step_headline(struct text *out, const struct document *d)
{
    const struct breakdown *b = &d->breakdown;
    char value[UNITS_TEXT], rate[UNITS_TEXT], below[UNITS_TEXT + 16];
    bool known = isfinite(b->steps.tokens_per_s);
    if (b->measured && isfinite(b->steps.median_seconds)) {
        snprintf(below, sizeof below, "%s tokens/s",
                 known ? units_format_count(llround(b->steps.tokens_per_s), rate) : "");
        add_headline(out, "step, median", units_format_seconds(b->steps.median_seconds, value),
                     known ? below : NULL);
    } else if (!b->measured && d->timeline) {
        double seconds = (double)(d->timeline->end_ns - d->timeline->start_ns) * 1e-9;
        add_headline(out, "step, predicted", units_format_seconds(seconds, value), NULL);
    }
}

static void add_headlines(struct text *out, const struct document *d)
{
    const struct breakdown *b = &d->breakdown;
    char value[UNITS_TEXT], below[UNITS_TEXT + 16];
    text_add(out, "<dl class='headlines'>\n");
    add_peak_headline(out, b);
    if (b->foretold)
        add_predicted_headline(out, b);
    if (!b->measured && b->arena_bytes)
        add_headline(out, "arena", units_format_bytes(b->arena_bytes, value), "one block, taken at launch");
    add_step_headline(out, d);
    snprintf(below, sizeof below, b->stages > 1 ? "on %lld stages" : "all alike", (long long)b->stages);
    bool alike = b->stages > 1 || (!b->measured && b->ranks > 1);
    add_headline(out, b->ranks == 1 ? "rank" : "ranks", units_format_count(b->ranks, value),
                 alike ? below : NULL);
    text_add(out, "</dl>\n");
}

static void add_facts(struct text *out, const struct report *page)
{
    text_add(out, "<dl class='facts'>\n");
    for (const struct report_fact *fact = page->facts; fact; fact = fact->next) {
        if (fact->gauge >= 0)
            continue; /* the headline has it */
        text_add(out, "<div>");
        markup_add_element(out, "dt", NULL, fact->label);
        markup_add_element(out, "dd", NULL, fact->text);
        text_add(out, "</div>\n");
    }
    text_add(out, "</dl>\n");
}

static void add_header(struct text *out, const struct document *d)
{
    const struct breakdown *b = &d->breakdown;
    text_add(out, "<header>\n<p class='kicker'>memplan report</p>\n");
    markup_add_element(out, "h1", NULL, b->model ? b->model : "a run");
    text_add(out, "\n");
    add_headlines(out, d);
    add_peak_bar(out, b);
    markup_add_element(out, "p", "advice", b->advice);
    text_add(out, "\n");
    add_facts(out, d->page);
    text_add(out, "</header>\n");
}

/* -------------------------------------------------------------------------------------------------------- a comparison */

/* Both in the same scale; the pairs of bars below them name the roles. */
static void add_two_bars(struct text *out, const struct comparison *c, const int64_t first[ROLE_COUNT],
                         const int64_t second[ROLE_COUNT])
{
    int64_t one = role_table_total(first), other = role_table_total(second);
    int64_t whole = one > other ? one : other;
    if (whole <= 0)
        return;
    add_bar(out, first, whole, c->runs ? "The peak before, by role" : "The peak predicted, by role");
    add_bar(out, second, whole, c->runs ? "The peak after, by role" : "The peak measured, by role");
}

/* The two peaks of the rank that differs most. */
static void add_comparison_header(struct text *out, const struct document *d)
{
    const struct comparison *c = d->comparison;
    const struct compare_row *rows = compare_worst(c);
    int64_t first[ROLE_COUNT], second[ROLE_COUNT];
    char value[UNITS_TEXT], below[TABLE_CELL];
    for (int role = 0; role < ROLE_COUNT; role++) {
        first[role] = rows[role].predicted_bytes;
        second[role] = rows[role].measured_bytes;
    }
    int64_t before = role_table_total(first), after = role_table_total(second);
    int64_t change = c->runs ? after - before : before - after;
    const char *ranks = compare_pair_name(c, rows, d->arena);
    text_add(out, "<header>\n<p class='kicker'>memplan compare</p>\n");
    markup_add_element(out, "h1", "sentence", d->page->title);
    text_add(out, "\n<dl class='headlines'>\n");
    add_headline(out, c->runs ? "peak before" : "peak, predicted", units_format_bytes(before, value),
                 c->first);
    add_headline(out, c->runs ? "peak after" : "peak, measured", units_format_bytes(after, value), c->second);
    add_headline(out, c->runs ? "change" : "error", table_change_text(change, below), ranks);
    text_add(out, "</dl>\n");
    add_two_bars(out, c, first, second);
    text_add(out, "</header>\n");
}

void html_header_add(const struct document *document, struct text *out)
{
    if (document->comparison)
        add_comparison_header(out, document);
    else
        add_header(out, document);
}
