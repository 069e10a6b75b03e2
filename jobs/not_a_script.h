/* Files that are given to `memplan check` and are no script of a shell: what each is, and which command reads it. */
#ifndef MEMPLAN_JOBS_NOT_A_SCRIPT_H
#define MEMPLAN_JOBS_NOT_A_SCRIPT_H

#include "base/error.h"

#include <stddef.h>

/* Fails, with a sentence that says what the file is and the way on, where its name or its text says that it is another kind of
 * file. 0: it may well be a script. */
int not_a_script_refuse(const char *file, const char *text, size_t length, struct error *err);

#endif
