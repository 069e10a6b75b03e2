/* What goes to stderr while a command works: notes and a progress line. Library folders do not call this; cli/ does,
 * from one thread; only progress_count() may come from any. */
#ifndef MEMPLAN_BASE_LOG_H
#define MEMPLAN_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

void log_set_quiet(bool quiet);
/* One line; the newline is added. */
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "memplan: " + message, always shown. */
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A bar on a terminal, nothing elsewhere or when quiet: label, done/total, rate, time left. `extra` (may be "") is shown
 * at the end. At most ten redraws a second. A `total` of 0 is an unknown one: then only the count and the rate. Another
 * label starts another bar; the rate counts from the first call. progress_end() clears it. */
void progress_show(const char *label, int64_t done, int64_t total, const char *extra);
void progress_end(void);
/* For whoever prints something else on the terminal: the line is free, until the next progress_show(). */
void progress_hide(void);

/* For work that does not call progress_show() as it goes: after a second, and until progress_unwatch(), a thread keeps a line
 * like the bar's on the terminal: `label`, and for how long it has been going on. It makes way for a bar that progress_show()
 * shows, and for notes. Nothing elsewhere or when quiet. */
void progress_watch(const char *label);
void progress_unwatch(void);
/* How far the watched work is; from then on the line has a bar with rate and time left. */
void progress_count(int64_t done, int64_t total);

#endif
