/* Notes and the progress bar on stderr. The bar owns the last line of the terminal: whoever prints clears
 * it first, and the next progress_show() draws it again. All calls come from one thread. */
#include "base/log.h"

#include "base/clock.h"
#include "base/text.h"
#include "base/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_CELLS = 24, USUAL_COLUMNS = 80 };

static const int64_t redraw_ns = 100000000; /* ten a second */

static bool is_quiet;

/* The work in progress: one bar at a time. */
static struct {
    char label[64];
    int64_t start_ns, drawn_ns;
    int64_t first; /* `done` of the first call: a resumed run does not start at 0 */
    bool visible;  /* stands on the last line of the terminal */
} bar;

void log_set_quiet(bool quiet)
{
    is_quiet = quiet;
}

static void bar_clear(void)
{
    if (bar.visible)
        fputs("\r\033[K", stderr);
    bar.visible = false;
}

static void print_line(const char *prefix, const char *format, va_list args)
{
    bar_clear();
    fputs(prefix, stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void log_note(const char *format, ...)
{
    if (is_quiet)
        return;
    va_list args;
    va_start(args, format);
    print_line("", format, args);
    va_end(args);
}

void log_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("memplan: ", format, args);
    va_end(args);
}

/* "412/1000  3.21/s  3 min 03 s left"; without a total, "412  3.21/s". */
static void add_figures(struct text *line, int64_t done, int64_t total, double elapsed_s)
{
    text_printf(line, "  %lld", (long long)done);
    if (total > 0)
        text_printf(line, "/%lld", (long long)total);
    if (done <= bar.first || elapsed_s <= 0)
        return;
    double per_s = (double)(done - bar.first) / elapsed_s;
    if (per_s < 999.5)
        text_printf(line, "  %.3g/s", per_s);
    else
        text_printf(line, "  %.0f/s", per_s);
    char left[UNITS_TEXT];
    if (done < total)
        text_printf(line, "  %s left", units_format_seconds((double)(total - done) / per_s, left));
}

static void add_cells(struct text *line, int64_t done, int64_t total)
{
    int full = (int)((double)done / (double)total * BAR_CELLS);
    text_add(line, "  [");
    for (int i = 0; i < BAR_CELLS; i++)
        text_add(line, i < full ? "#" : ".");
    text_add(line, "]");
}

/* A line longer than the terminal would wrap, and could not be cleared. The last column stays free for the
 * cursor. */
static int terminal_columns(void)
{
    struct winsize size;
    bool known = !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col > 1;
    return (known ? size.ws_col : USUAL_COLUMNS) - 1;
}

static void bar_draw(int64_t done, int64_t total, const char *extra, int64_t now_ns)
{
    struct text line = {0};
    text_add(&line, bar.label);
    if (total > 0)
        add_cells(&line, done < 0 ? 0 : done > total ? total : done, total);
    add_figures(&line, done, total, (double)(now_ns - bar.start_ns) / 1e9);
    if (*extra)
        text_printf(&line, "  %s", extra);
    fprintf(stderr, "\r%.*s\033[K", terminal_columns(), line.data);
    fflush(stderr);
    text_free(&line);
    bar.visible = true;
    bar.drawn_ns = now_ns;
}

void progress_show(const char *label, int64_t done, int64_t total, const char *extra)
{
    int64_t now_ns = clock_ns();
    bool is_new = !bar.start_ns || strncmp(bar.label, label, sizeof bar.label - 1);
    if (is_quiet || (!is_new && bar.visible && now_ns - bar.drawn_ns < redraw_ns))
        return;
    if (!isatty(STDERR_FILENO))
        return;
    if (is_new) {
        snprintf(bar.label, sizeof bar.label, "%s", label);
        bar.start_ns = now_ns;
        bar.first = done;
    }
    bar_draw(done, total, extra, now_ns);
}

void progress_hide(void)
{
    bar_clear();
    fflush(stderr);
}

void progress_end(void)
{
    bar_clear();
    bar.start_ns = 0;
}
