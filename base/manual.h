/* Man pages and bash completion, from the tables that also parse the command line (base/options.h). */
#ifndef MEMPLAN_BASE_MANUAL_H
#define MEMPLAN_BASE_MANUAL_H

#include "base/options.h"

/* Words that the free text of an option may be, for completion, such as the names of known cards. An option may have several. */
struct manual_values {
    const char *command, *option;
    const char *const *words; /* NULL-terminated */
};

/* A program and its commands. */
struct manual {
    const char *program, *version, *summary;    /* "memplan", "0.1.0", what it is for in one line */
    const char *exit_status;                    /* a sentence for every page */
    const struct command_spec *const *commands; /* NULL-terminated */
    const struct manual_values *values;         /* ends with a zeroed entry */
};

/* Append a page of section 1 as roff: of a command, "PROGRAM-COMMAND(1)"; of the whole, with a list of them. */
void manual_command_page(const struct manual *manual, const struct command_spec *command, struct text *out);
void manual_program_page(const struct manual *manual, struct text *out);

/* Appends a script for bash: commands, options and their choices or known values; other words are completed as files. Where a
 * command takes a MODEL the words that `presets` prints are offered too. */
void manual_completion(const struct manual *manual, const char *presets, struct text *out);

#endif
