/* Notes and the progress line on stderr. The line owns the last line of the terminal: whoever prints clears it first, and the
 * next progress_show() draws it again. All calls come from one thread; what draws for it, where a command watches work that
 * does not say how far it is, is a second one, and `lock` is between them. */
#include "base/log.h"

#include "base/clock.h"
#include "base/text.h"
#include "base/units.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { BAR_CELLS = 24, USUAL_COLUMNS = 80 };

static const int64_t redraw_ns = 100000000; /* ten a second */
static const int64_t patience_ns = 1000000000;

static bool is_quiet;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Work whose speed is known from `start_ns` on. */
struct work {
    char label[64];
    int64_t start_ns; /* 0: there is none */
    int64_t first;    /* `done` at the start: a resumed run does not begin at 0 */
};

/* What progress_show() shows: one bar at a time. */
static struct {
    struct work work;
    int64_t drawn_ns;
    bool visible; /* a line stands on the last line of the terminal, this one or that of watched work */
} bar;

static struct {
    int64_t began_ns;
    struct work work; /* from when it was first known how far it is */
    bool counted;
    _Atomic int64_t done, total;
    pthread_t thread;
    bool on;
    pthread_cond_t ended;
} watched = {.ended = PTHREAD_COND_INITIALIZER};

void log_set_quiet(bool quiet)
{
    pthread_mutex_lock(&lock);
    is_quiet = quiet;
    pthread_mutex_unlock(&lock);
}

static void bar_clear(void)
{
    if (bar.visible)
        fputs("\r\033[K", stderr);
    bar.visible = false;
}

static void print_line(const char *prefix, const char *format, va_list args)
{
    pthread_mutex_lock(&lock);
    bar_clear();
    fputs(prefix, stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    pthread_mutex_unlock(&lock);
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
static void add_figures(struct text *line, const struct work *work, int64_t done, int64_t total,
                        int64_t now_ns)
{
    double elapsed_s = (double)(now_ns - work->start_ns) / 1e9;
    text_printf(line, "  %lld", (long long)done);
    if (total > 0)
        text_printf(line, "/%lld", (long long)total);
    if (done <= work->first || elapsed_s <= 0)
        return;
    double per_s = (double)(done - work->first) / elapsed_s;
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

static void draw_line(const struct text *line, int64_t now_ns)
{
    fprintf(stderr, "\r%.*s\033[K", terminal_columns(), line->data);
    fflush(stderr);
    bar.visible = true;
    bar.drawn_ns = now_ns;
}

static void draw_bar(const struct work *work, int64_t done, int64_t total, const char *extra, int64_t now_ns)
{
    struct text line = {0};
    text_add(&line, work->label);
    if (total > 0)
        add_cells(&line, done < 0 ? 0 : done > total ? total : done, total);
    add_figures(&line, work, done, total, now_ns);
    if (*extra)
        text_printf(&line, "  %s", extra);
    draw_line(&line, now_ns);
    text_free(&line);
}

static struct work begin_work(const char *label, int64_t now_ns, int64_t first)
{
    struct work work = {.start_ns = now_ns, .first = first};
    snprintf(work.label, sizeof work.label, "%s", label);
    return work;
}

void progress_show(const char *label, int64_t done, int64_t total, const char *extra)
{
    pthread_mutex_lock(&lock);
    int64_t now_ns = clock_ns();
    bool is_new = !bar.work.start_ns || strncmp(bar.work.label, label, sizeof bar.work.label - 1);
    bool is_due = is_new || !bar.visible || now_ns - bar.drawn_ns >= redraw_ns;
    if (!is_quiet && is_due && isatty(STDERR_FILENO)) {
        if (is_new)
            bar.work = begin_work(label, now_ns, done);
        draw_bar(&bar.work, done, total, extra, now_ns);
    }
    pthread_mutex_unlock(&lock);
}

static void clear_now(void)
{
    bar_clear();
    fflush(stderr);
}

void progress_hide(void)
{
    pthread_mutex_lock(&lock);
    clear_now();
    pthread_mutex_unlock(&lock);
}

void progress_end(void)
{
    pthread_mutex_lock(&lock);
    clear_now();
    bar.work.start_ns = 0;
    pthread_mutex_unlock(&lock);
}

/* ---------------------------------------------------------------------------------------------------------- watched work */

static void draw_watched(int64_t now_ns)
{
    int64_t done = watched.done, total = watched.total;
    if (total > 0 && done < total) {
        if (!watched.counted)
            watched.work = begin_work(watched.work.label, now_ns, done);
        watched.counted = true;
        draw_bar(&watched.work, done, total, "", now_ns);
        return;
    }
    struct text line = {0};
    char seconds[UNITS_TEXT];
    units_format_seconds((double)(now_ns - watched.began_ns) / 1e9, seconds);
    text_printf(&line, "%s  %s", watched.work.label, seconds);
    draw_line(&line, now_ns);
    text_free(&line);
}

/* Ten times a second, once the first has gone by. */
static void *keep_line(void *unused)
{
    pthread_mutex_lock(&lock);
    for (int64_t wake_ns = watched.began_ns + patience_ns; watched.on;) {
        int64_t now_ns = clock_ns();
        if (now_ns >= wake_ns) {
            if (!is_quiet && !bar.work.start_ns)
                draw_watched(now_ns);
            wake_ns = now_ns + redraw_ns;
        }
        struct timespec until = {.tv_sec = wake_ns / 1000000000, .tv_nsec = wake_ns % 1000000000};
        pthread_cond_clockwait(&watched.ended, &lock, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&lock);
    return unused;
}

void progress_watch(const char *label)
{
    if (watched.on || !isatty(STDERR_FILENO))
        return;
    watched.began_ns = clock_ns();
    watched.work = begin_work(label, watched.began_ns, 0);
    watched.counted = false;
    watched.done = watched.total = 0;
    watched.on = true;
    if (pthread_create(&watched.thread, NULL, keep_line, NULL))
        watched.on = false;
}

void progress_count(int64_t done, int64_t total)
{
    watched.done = done;
    watched.total = total;
}

void progress_unwatch(void)
{
    if (!watched.on)
        return;
    pthread_mutex_lock(&lock);
    watched.on = false;
    pthread_cond_signal(&watched.ended);
    pthread_mutex_unlock(&lock);
    pthread_join(watched.thread, NULL);
    progress_hide();
}
