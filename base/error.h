/* How trouble travels: whoever first knows what went wrong writes one sentence into the caller's `struct error`;
 * only the command line prints it. */
#ifndef MEMPLAN_BASE_ERROR_H
#define MEMPLAN_BASE_ERROR_H

enum error_kind {
    ERROR_NONE,
    ERROR_INPUT,   /* cannot run: exit 2 */
    ERROR_MEMORY,  /* ran well, the answer is no: it does not fit, exit 1 */
    ERROR_STOPPED, /* another rank failed first; its message is the one to show */
};

enum { ERROR_ROOM = 600 };

struct error {
    enum error_kind kind;
    char text[ERROR_ROOM]; /* what is longer loses its middle */
};

/* Both write the message (thing, value, way out) and return -1, so that `return error_set(err, ...)` reads well.
 * error_set() is of kind ERROR_INPUT. A NULL `err` is allowed, here and below: the message is then lost, the -1 is not. */
int error_set(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
int error_set_kind(struct error *err, enum error_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a sentence to a message already set ("; try --micro-batch 2"). */
void error_append(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "PREFIX: " before a message already set. Returns -1. */
int error_prefix(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
