/* Words of a shell script, expanded without running anything: what bash's manual calls parameter expansion, arithmetic
 * expansion and quote removal. For the shell*.c files alone. */
#ifndef MEMPLAN_JOBS_SHELL_EXPAND_H
#define MEMPLAN_JOBS_SHELL_EXPAND_H

#include "jobs/shell_scope.h"

#include <stdbool.h>
#include <stdint.h>

enum shell_mode { SHELL_WORD, SHELL_DOUBLE, SHELL_HERE };

/* Past the construct at `at`: a character, a quoted piece, $(...), ${...}. NULL: it does not end. */
const char *shell_skip(const char *at, const char *end, int depth);
/* The length of the name that begins there, 0: none does. */
size_t shell_name_length(const char *at, const char *end);

/* Appends to *out; `line` is that of `from`. */
int shell_expand(struct scope *scope, const char *from, const char *end, int line, enum shell_mode mode, int depth,
                 struct glyphs *out, struct error *err);

/* The value of an arithmetic expression; false: something in it is unknown or beyond us. */
bool shell_arithmetic(const struct scope *scope, const char *from, const char *end, int64_t *out);

#endif
