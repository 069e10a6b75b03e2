/* memplan watch: a live view of a run that is being recorded. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/watch_view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct watch_options {
    int64_t run;
    double interval;
    bool once, json;
};

static const struct option_spec options[] = {
    {"run", 0, OPTION_POSITIVE, "ID", NULL, "which run of the database; default the latest",
     offsetof(struct watch_options, run)},
    {"interval", 0, OPTION_REAL, "SECONDS", NULL, "look for new rows so often; default 0.5",
     offsetof(struct watch_options, interval)},
    {"once", 0, OPTION_FLAG, NULL, NULL, "show how things stand, and end",
     offsetof(struct watch_options, once)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON line on stdout each time that something is new",
     offsetof(struct watch_options, json)},
    {0},
};

static const struct command_spec spec = {
    .name = "watch",
    .summary = "live view of a running train or profile",
    .usage = "watch run.db [options]",
    .about =
        "Shows a run that `memplan train` or `memplan profile` records with -o, while it goes on: its memory "
        "by role "
        "against the capacity, loss, speed, time left, and each rank. It only reads the database, and never "
        "holds "
        "up the run. On a terminal it is a page that follows the window's size; q or Ctrl-C leaves it, and "
        "the run "
        "goes on. Elsewhere it is a line for each look with news. It ends when the run has ended: with exit "
        "status 1 if steps were left to do.",
    .examples = {"memplan watch run.db", "memplan watch run.db --once --json"},
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
};

static struct watch_paper paper_of_terminal(void)
{
    return (struct watch_paper){.ink = output_ink(STDOUT_FILENO)};
}

static int print_page(const struct watch_state *watch, struct error *err)
{
    struct text out = {0};
    struct watch_paper paper = paper_of_terminal();
    int rows;
    terminal_size(&paper.columns, &rows);
    watch_view_page(watch, &paper, &out);
    return output_text(&out, "-", err);
}

static int print_line(const struct watch_state *watch, bool json, struct error *err)
{
    struct text out = {0};
    if (json) {
        json_t *document = watch_view_json(watch);
        char *line = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(10));
        text_add(&out, line);
        free(line);
        json_decref(document);
    } else {
        watch_view_line(watch, &out);
    }
    text_add(&out, "\n");
    return output_text(&out, "-", err);
}

/* ------------------------------------------------------------------------------------------------------------ no terminal */

static void pause_for(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(fmod(seconds, 1) * 1e9)};
    nanosleep(&time, NULL);
}

static int follow_lines(struct watch_state *watch, const struct watch_options *o, struct error *err)
{
    bool news = true, was_silent = false;
    for (int64_t told = -1;; pause_for(o->interval)) {
        if (told >= 0 && watch_look(watch, &news, err))
            return -1;
        bool is_silent = watch_view_is_silent(watch);
        bool worth = is_silent != was_silent || (o->json ? news : watch_steps_done(watch) != told);
        was_silent = is_silent;
        if ((worth || watch_is_over(watch)) && print_line(watch, o->json, err))
            return -1;
        if (watch_is_over(watch))
            return 0;
        told = watch_steps_done(watch);
    }
}

/* --------------------------------------------------------------------------------------------------------------- terminal */

static int draw(const struct watch_state *watch, struct error *err)
{
    struct text frame = {0};
    struct watch_paper paper = paper_of_terminal();
    terminal_size(&paper.columns, &paper.rows);
    paper.columns--;
    watch_view_page(watch, &paper, &frame);
    int status = terminal_draw(frame.data, err);
    text_free(&frame);
    return status;
}

/* Until the run is over or somebody wants to leave. Whatever else is pressed, however fast, puts no look off. */
static int follow_page(struct watch_state *watch, const struct watch_options *o, struct error *err)
{
    int64_t interval_ns = (int64_t)(o->interval * 1e9), next_ns = clock_ns() + interval_ns;
    char key = 0;
    while (!watch_is_over(watch)) {
        if (draw(watch, err))
            return -1;
        int64_t left_ms = (next_ns - clock_ns()) / 1000000 + 1;
        enum terminal_event event = terminal_wait(max_i64(left_ms, 0), &key);
        if (event == TERMINAL_LEAVE || (event == TERMINAL_KEY && (key == 'q' || key == 'Q')))
            break;
        bool news;
        if (clock_ns() < next_ns)
            continue;
        if (watch_look(watch, &news, err))
            return -1;
        next_ns = clock_ns() + interval_ns;
    }
    return 0;
}

/* What was seen last stays behind, on the screen that was there before. */
static int follow_on_terminal(struct watch_state *watch, const struct watch_options *o, struct error *err)
{
    if (terminal_open(err))
        return -1;
    int status = follow_page(watch, o, err);
    terminal_close();
    return status ? -1 : print_page(watch, err);
}

static int follow(struct watch_state *watch, const struct watch_options *o, struct error *err)
{
    progress_unwatch();
    bool news;
    if (watch_look(watch, &news, err))
        return -1;
    if (o->once)
        return o->json ? print_line(watch, true, err) : print_page(watch, err);
    if (o->json || !isatty(STDOUT_FILENO))
        return follow_lines(watch, o, err);
    return follow_on_terminal(watch, o, err);
}

static int run(int argc, char **argv, struct error *err)
{
    struct watch_options o = {.interval = 0.5};
    const char *operands[COMMAND_OPERANDS];
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    if (!(o.interval >= 0.01 && o.interval <= 3600))
        return error_set(err, "--interval %g is out of range; write seconds from 0.01 to 3600, such as 0.5",
                         o.interval);
    struct watch_state watch;
    watch_open(&watch, operands[0], o.run);
    int status = follow(&watch, &o, err);
    if (!status)
        status = watch_ended_early(&watch);
    watch_clear(&watch);
    return status;
}

const struct command command_watch = {&spec, run};
