/* A string that grows: reports, JSON and messages are built in one of these and written once. */
#ifndef MEMPLAN_BASE_TEXT_H
#define MEMPLAN_BASE_TEXT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *data; /* always NUL-terminated once something was added; NULL while empty */
    size_t length, room;
};

void text_add(struct text *text, const char *piece);
void text_printf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text); /* leaves it empty and usable */

/* Of a path or a name. */
bool text_ends_with(const char *text, const char *end);
const char *text_base_name(const char *path); /* behind the last slash, within `path` */
/* What tells one of two paths from the other: its base name, or all of it where both have that. Points into the path. */
const char *text_name_apart(const char *const paths[2], int which);

/* Writes the text to `path` ("-" is stdout) so that a reader never sees half of it: temporary name in the same folder,
 * fsync, rename. A full disk or a closed stdout is an error. A file that is replaced keeps its permissions; a symbolic
 * link keeps pointing where it did; pipes and devices are written to directly; an SQLite database is never replaced. */
int text_write(const struct text *text, const char *path, struct error *err);

/* Reads a whole file, at most `limit` bytes; the caller frees *data, which is NUL-terminated. */
int text_read_file(const char *path, size_t limit, char **data, size_t *length, struct error *err);

#endif
