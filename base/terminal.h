/* A view that has the whole terminal to itself, and gives it back as it was: at its end, on a signal, when the process is
 * stopped (Ctrl-Z) or crashes. Only SIGKILL leaves it as it is. One view at a time, drawn on stdout, from one thread. */
#ifndef MEMPLAN_BASE_TERMINAL_H
#define MEMPLAN_BASE_TERMINAL_H

#include "base/error.h"

#include <stdint.h>

/* 80 by 24 where stdout does not say. */
void terminal_size(int *columns, int *rows);

/* From here on signals are told by terminal_wait(). */
int terminal_open(struct error *err);
/* Fine when nothing is open. */
void terminal_close(void);

enum terminal_event {
    TERMINAL_TIME,  /* nothing happened for so long */
    TERMINAL_KEY,   /* *key was pressed */
    TERMINAL_DRAW,  /* another size, or back from a stop: draw again */
    TERMINAL_LEAVE, /* Ctrl-C, or the terminal is gone */
};

/* Waits at most `ms`. SIGTERM, SIGHUP and SIGQUIT end the process here, as they would have, with the terminal given back. */
enum terminal_event terminal_wait(int64_t ms, char *key);

/* Replaces what is shown. `frame` is lines, each shorter than the terminal is wide; those below the
 * last row are left out. */
int terminal_draw(const char *frame, struct error *err);

#endif
