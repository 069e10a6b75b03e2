#include "cli/watch_view.h"

#include "base/clock.h"
#include "base/units.h"
#include "reports/palette.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SILENCE_S = 30,     /* without news for so long, a run may be dead */
    GAUGE_COLUMNS = 24, /* bars of the head, where there is room */
    LEAST_BAR = 4,
};

/* --------------------------------------------------------------------------------------------------- lines and colours */

/* One line at a time: what is wider than the paper is cut off, escapes not counted. */
struct page {
    const struct watch_paper *paper;
    struct text *out;
    struct text line;
    int lines;
};

static bool has_room(const struct page *page)
{
    return !page->paper->rows || page->lines < page->paper->rows;
}

/* Bytes of the piece at `text` that stay together, and the columns that they take. */
static size_t piece_at(const char *text, int *columns)
{
    size_t bytes = 1;
    *columns = *text != '\033';
    if (*text == '\033')
        return strcspn(text, "m") + 1;
    while (((unsigned char)text[bytes] & 0xc0) == 0x80)
        bytes++;
    return bytes;
}

static int columns_of(const struct page *page)
{
    int columns = 0, width;
    const char *text = page->line.data ? page->line.data : "";
    for (; *text; text += piece_at(text, &width), columns += width)
        ;
    return columns;
}

static void end_line(struct page *page)
{
    int columns = 0, width;
    const char *text = page->line.data ? page->line.data : "";
    size_t length = 0, kept = 0;
    while (text[length]) {
        size_t bytes = piece_at(text + length, &width);
        if (width && columns + width > page->paper->columns)
            break;
        columns += width;
        length += bytes;
        if (text[length - 1] != ' ')
            kept = length;
    }
    if (has_room(page))
        text_printf(page->out, "%.*s%s\n", (int)kept, text,
                    page->paper->ink == INK_COLOURS && kept && memchr(text, '\033', kept) ? "\033[0m" : "");
    page->lines++;
    text_free(&page->line);
}

/* NULL is fine. */
static void add_foreign(struct page *page, const char *text)
{
    if (text)
        ink_text_foreign(&page->line, text, strlen(text));
}

static void go_to(struct page *page, int column)
{
    int spaces = column - columns_of(page);
    text_printf(&page->line, "%*s", spaces > 0 ? spaces : 0, "");
}

static void set_colour(struct page *page, const char *colour)
{
    if (page->paper->ink == INK_COLOURS)
        text_printf(&page->line, "\033[38;5;%dm", palette_terminal(colour));
}

static void set_style(struct page *page, const char *code)
{
    if (page->paper->ink == INK_COLOURS)
        text_printf(&page->line, "\033[%sm", code);
}

/* ------------------------------------------------------------------------------------------------------------- bars */

/* A bar in a trough; none where the paper is narrow. */
static void add_gauge(struct page *page, double share)
{
    int columns = page->paper->columns - 56;
    columns = columns > GAUGE_COLUMNS ? GAUGE_COLUMNS : columns;
    if (columns < LEAST_BAR || isnan(share))
        return;
    bool ascii = page->paper->ink == INK_ASCII;
    text_add(&page->line, ascii ? "[" : "");
    for (int used = ink_text_bar(&page->line, share, columns, page->paper->ink); used < columns; used++)
        text_add(&page->line, ascii ? "." : "░");
    text_add(&page->line, ascii ? "]  " : "  ");
}

/* The values as a curve of so many columns, the mean of those that share one. Without blocks there is none. */
static void add_sparkline(struct page *page, const double *values, int64_t count, int columns)
{
    static const char *const levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double low = INFINITY, high = -INFINITY;
    if (page->paper->ink == INK_ASCII || count < 2 || columns < LEAST_BAR)
        return;
    for (int64_t i = 0; i < count; i++) {
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    columns = count < columns ? (int)count : columns;
    for (int column = 0; column < columns; column++) {
        int64_t first = column * count / columns, end = (column + 1) * count / columns;
        double sum = 0;
        for (int64_t i = first; i < end; i++)
            sum += values[i];
        double share = high > low ? (sum / (double)(end - first) - low) / (high - low) : 0;
        text_add(&page->line, levels[(int)lround(fmin(fmax(share, 0), 1) * 7)]);
    }
}

/* --------------------------------------------------------------------------------------------------------------- head */

static double silent_s(const struct watch_state *watch)
{
    return (double)(clock_ns() - watch->news_ns) * 1e-9;
}

bool watch_view_is_silent(const struct watch_state *watch)
{
    return !watch_is_over(watch) && silent_s(watch) > fmax(SILENCE_S, 10 * watch_step_seconds(watch));
}

/* "running for 3 min 04 s", "done after 3 min 04 s", or what else there is to say of how it goes. */
static void add_condition(const struct watch_state *watch, struct text *out)
{
    char time[UNITS_TEXT];
    if (watch_is_over(watch))
        text_printf(out, "%s after %s", watch_ended_early(watch) ? "ended early," : "done",
                    units_format_seconds(watch_seconds_since_start(watch), time));
    else if (watch_view_is_silent(watch))
        text_printf(out, "no news for %s; was it killed?",
                    units_format_seconds(floor(silent_s(watch)), time));
    else
        text_printf(out, "running for %s", units_format_seconds(watch_seconds_since_start(watch), time));
}

static void add_head(struct page *page, const struct watch_state *watch)
{
    set_style(page, "1");
    add_foreign(page, watch->run.model ? watch->run.model : "a model without a name");
    set_style(page, "0");
    text_printf(&page->line, "  run %lld, ", (long long)watch->run_id);
    add_condition(watch, &page->line);
    end_line(page);
    add_foreign(page, watch->run.command);
    end_line(page);
    end_line(page);
}

static void add_label(struct page *page, const char *label)
{
    text_printf(&page->line, "  %-8s", label);
}

static void add_steps(struct page *page, const struct watch_state *watch)
{
    int64_t done = watch_steps_done(watch), steps = watch->run.steps;
    double left = watch_seconds_left(watch);
    char time[UNITS_TEXT];
    add_label(page, "step");
    if (steps) {
        add_gauge(page, (double)done / (double)steps);
        text_printf(&page->line, "%" PRId64 " of %" PRId64 ", %.1f%%", done, steps,
                    100 * (double)done / (double)steps);
    } else {
        text_printf(&page->line, "%" PRId64, done);
    }
    if (left > 0 && !watch_view_is_silent(watch))
        text_printf(&page->line, "   %s left", units_format_seconds(left, time));
    end_line(page);
}

static void add_loss(struct page *page, const struct watch_state *watch)
{
    add_label(page, "loss");
    if (isnan(watch->loss))
        text_add(&page->line, "no step is done yet");
    else
        text_printf(&page->line, "%.4f  ", watch->loss);
    int room = page->paper->columns - columns_of(page);
    set_colour(page, palette_role(ROLE_OPTIMIZER));
    add_sparkline(page, watch->losses, watch->loss_count, room > 60 ? 60 : room);
    end_line(page);
}

static void add_speed(struct page *page, const struct watch_state *watch)
{
    char time[UNITS_TEXT], rate[UNITS_TEXT];
    double seconds = watch_step_seconds(watch);
    add_label(page, "speed");
    if (watch->time_count)
        text_printf(&page->line, "%s, %s a step",
                    units_format_rate(watch_tokens_per_s(watch), "tokens/s", rate),
                    units_format_seconds(seconds, time));
    else if (!isnan(seconds))
        text_printf(&page->line, "%s a step, foretold", units_format_seconds(seconds, time));
    else
        text_add(&page->line, "unknown before the first step");
    end_line(page);
}

/* ------------------------------------------------------------------------------------------------------------- memory */

/* "123.96 MiB of 160.00 MiB, 77.5%" */
static void add_share(struct text *out, int64_t bytes, int64_t capacity_bytes)
{
    char have[UNITS_TEXT], all[UNITS_TEXT], percent[TABLE_CELL];
    text_add(out, units_format_bytes(bytes, have));
    if (!capacity_bytes)
        return;
    double share = (double)bytes / (double)capacity_bytes;
    text_printf(out, " of %s, %s", units_format_bytes(capacity_bytes, all),
                table_percent_text(share, percent));
}

/* Of the rank that needs most, seen or foretold. */
static int64_t most_bytes(const struct watch_state *watch)
{
    const struct watch_rank *rank = &watch->ranks[watch_worst_rank(watch)];
    return rank->peak_bytes ? rank->peak_bytes : rank->predicted_bytes;
}

/* Shares and bars of roles and ranks are of the capacity; where little of it is used they would all be nothing, and are of
 * the peak. */
static bool is_of_capacity(const struct watch_state *watch)
{
    return most_bytes(watch) > watch->run.capacity_bytes / 10;
}

static int64_t scale_of(const struct watch_state *watch)
{
    int64_t most = most_bytes(watch);
    return watch->run.capacity_bytes && is_of_capacity(watch) ? watch->run.capacity_bytes : most ? most : 1;
}

/* A rank's bytes at its peak by role: what was seen, or before that what was foretold. */
static const int64_t *roles_of(const struct watch_rank *rank)
{
    return rank->peak_bytes ? rank->at_peak : rank->predicted;
}

static void add_memory(struct page *page, const struct watch_state *watch)
{
    const struct watch_rank *rank = &watch->ranks[watch_worst_rank(watch)];
    int64_t capacity = watch->run.capacity_bytes;
    add_label(page, "memory");
    add_gauge(page, capacity ? (double)most_bytes(watch) / (double)capacity : NAN);
    add_share(&page->line, most_bytes(watch), capacity);
    end_line(page);
    end_line(page);
    text_printf(&page->line, "%s", rank->peak_bytes ? "At the peak so far" : "At the peak, foretold");
    if (watch->run.ranks > 1)
        text_printf(&page->line, ", rank %d", watch_worst_rank(watch));
    text_printf(&page->line, ", in shares of the %s",
                capacity && is_of_capacity(watch) ? "capacity" : "peak");
    end_line(page);
}

static void add_role(struct page *page, const char *name, const char *colour, int64_t bytes, int64_t scale)
{
    char size[UNITS_TEXT], percent[TABLE_CELL];
    double share = (double)bytes / (double)scale;
    text_printf(&page->line, "  %-13s %10s %7s  ", name, units_format_bytes(bytes, size),
                table_percent_text(share, percent));
    int columns = page->paper->columns - columns_of(page) - 1;
    if (colour)
        set_colour(page, colour);
    if (columns >= LEAST_BAR)
        ink_text_bar(&page->line, share, columns > 44 ? 44 : columns, page->paper->ink);
    end_line(page);
}

static void add_roles(struct page *page, const struct watch_state *watch)
{
    const struct watch_rank *rank = &watch->ranks[watch_worst_rank(watch)];
    const int64_t *bytes = roles_of(rank);
    int64_t sum = 0;
    for (int role = 0; role < ROLE_COUNT; role++) {
        sum += bytes[role];
        if (bytes[role])
            add_role(page, role_name((enum role)role), palette_role((enum role)role), bytes[role],
                     scale_of(watch));
    }
    if (is_of_capacity(watch) && watch->run.capacity_bytes > sum)
        add_role(page, "free", NULL, watch->run.capacity_bytes - sum, scale_of(watch));
}

/* -------------------------------------------------------------------------------------------------------------- ranks */

static void add_rank(struct page *page, const struct watch_state *watch, int number)
{
    const struct watch_rank *rank = &watch->ranks[number];
    char peak[UNITS_TEXT], time[UNITS_TEXT], percent[TABLE_CELL];
    double share = (double)rank->peak_bytes / (double)scale_of(watch);
    text_printf(&page->line, "  %4d  %7" PRId64 "  ", number, rank->next_step);
    text_printf(&page->line, "%9s  ", rank->next_step ? units_format_seconds(rank->seconds, time) : "");
    if (!rank->peak_bytes && !rank->next_step && !rank->is_done) {
        text_add(&page->line, "nothing recorded yet");
    } else {
        text_printf(&page->line, "%10s %7s", units_format_bytes(rank->peak_bytes, peak),
                    table_percent_text(share, percent));
    }
    text_add(&page->line, "  ");
    int columns = page->paper->columns - columns_of(page) - 6;
    if (rank->peak_bytes && columns >= LEAST_BAR)
        ink_text_bar(&page->line, share, columns > 24 ? 24 : columns, page->paper->ink);
    if (rank->is_done) {
        go_to(page, columns_of(page) + 2);
        text_add(&page->line, "done");
    }
    end_line(page);
}

/* As many as there is room for; the last line then says how many there are besides. */
static void add_ranks(struct page *page, const struct watch_state *watch)
{
    int count = watch->run.ranks, left = page->paper->rows - page->lines - 2;
    if (count < 2 || (page->paper->rows && left < 2))
        return;
    int shown = !page->paper->rows || count <= left ? count : left - 1;
    end_line(page);
    text_printf(&page->line, "  %4s  %7s  %9s  %10s", "rank", "steps", "a step", "peak");
    end_line(page);
    for (int rank = 0; rank < shown; rank++)
        add_rank(page, watch, rank);
    if (shown < count) {
        text_printf(&page->line, "  and %d more ranks; the highest peak is rank %d's", count - shown,
                    watch_worst_rank(watch));
        end_line(page);
    }
}

void watch_view_page(const struct watch_state *watch, const struct watch_paper *paper, struct text *out)
{
    struct page page = {.paper = paper, .out = out};
    add_head(&page, watch);
    add_steps(&page, watch);
    add_loss(&page, watch);
    add_speed(&page, watch);
    add_memory(&page, watch);
    add_roles(&page, watch);
    add_ranks(&page, watch);
}

/* --------------------------------------------------------------------------------------------------------- line, JSON */

void watch_view_line(const struct watch_state *watch, struct text *out)
{
    const struct watch_rank *rank = &watch->ranks[watch_worst_rank(watch)];
    char time[UNITS_TEXT];
    double left = watch_seconds_left(watch);
    text_printf(out, "step %4" PRId64, watch_steps_done(watch));
    if (watch->run.steps)
        text_printf(out, "/%" PRId64, watch->run.steps);
    if (!isnan(watch->loss))
        text_printf(out, "  loss %7.4f", watch->loss);
    if (watch->time_count)
        text_printf(out, "  %7.0f tokens/s", watch_tokens_per_s(watch));
    text_add(out, "  ");
    add_share(out, rank->peak_bytes, watch->run.capacity_bytes);
    text_add(out, "  ");
    if (left > 0 && !watch_view_is_silent(watch))
        text_printf(out, "%s left", units_format_seconds(left, time));
    else
        add_condition(watch, out);
}

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *rank_to_json(const struct watch_rank *rank, int number)
{
    json_t *by_role = json_object();
    for (int role = 0; role < ROLE_COUNT; role++)
        json_object_set_new(by_role, role_name((enum role)role), json_integer(rank->at_peak[role]));
    return json_pack("{s:i, s:I, s:o, s:I, s:I, s:b, s:o}", "rank", number, "steps_done",
                     (json_int_t)rank->next_step, "step_seconds",
                     number_or_null(rank->next_step ? rank->seconds : NAN), "peak_bytes",
                     (json_int_t)rank->peak_bytes, "predicted_bytes", (json_int_t)rank->predicted_bytes,
                     "done", rank->is_done, "at_peak", by_role);
}

json_t *watch_view_json(const struct watch_state *watch)
{
    json_t *ranks = json_array();
    for (int rank = 0; rank < watch->run.ranks; rank++)
        json_array_append_new(ranks, rank_to_json(&watch->ranks[rank], rank));
    const char *state = watch_view_is_silent(watch) ? "silent"
                        : !watch_is_over(watch)     ? "running"
                        : watch_ended_early(watch)  ? "ended early"
                                                    : "done";
    json_t *out = json_pack("{s:I, s:o, s:o, s:s, s:I}", "run_id", (json_int_t)watch->run_id, "model",
                            jsonfile_string(watch->run.model), "command", jsonfile_string(watch->run.command),
                            "state", state, "steps_done", (json_int_t)watch_steps_done(watch));
    json_object_set_new(out, "steps", watch->run.steps ? json_integer(watch->run.steps) : json_null());
    json_object_set_new(out, "loss", number_or_null(watch->loss));
    json_object_set_new(out, "tokens_per_second", number_or_null(watch_tokens_per_s(watch)));
    json_object_set_new(out, "step_seconds", number_or_null(watch_step_seconds(watch)));
    json_object_set_new(out, "seconds", number_or_null(watch_seconds_since_start(watch)));
    json_object_set_new(out, "seconds_left", number_or_null(watch_seconds_left(watch)));
    json_object_set_new(out, "capacity_bytes",
                        watch->run.capacity_bytes ? json_integer(watch->run.capacity_bytes) : json_null());
    json_object_set_new(out, "ranks", ranks);
    return out;
}
