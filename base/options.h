/* Command lines from tables: one table per command drives parsing, --help, man pages and completion. */
#ifndef MEMPLAN_BASE_OPTIONS_H
#define MEMPLAN_BASE_OPTIONS_H

#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

enum option_kind {
    OPTION_FLAG,           /* bool */
    OPTION_COUNT,          /* int64_t, >= 0 */
    OPTION_POSITIVE,       /* int64_t, >= 1 */
    OPTION_REAL,           /* double */
    OPTION_BYTES,          /* int64_t, >= 0, accepts units */
    OPTION_POSITIVE_BYTES, /* likewise, >= 1 */
    OPTION_TEXT,           /* const char *, points into argv */
    OPTION_CHOICE,         /* const char *, one of `choices` ("fp32|bf16") */
    OPTION_HEADING         /* no option: `help` is a heading in --help */
};

struct option_spec {
    const char *name; /* long name without dashes: "micro-batch" */
    char letter;      /* one-letter form, or 0 */
    enum option_kind kind;
    const char *argument; /* what the value is called in help: "BYTES"; NULL for flags, and to show the choices */
    const char *choices; /* OPTION_CHOICE only: "none|selective|full" */
    const char *help;    /* a phrase; may name the default */
    size_t offset;       /* of the field in the struct that options_parse() fills */
};

/* An option of other commands that this one has not, and why: "--cluster says it". */
struct option_absent {
    const char *name, *why;
};

struct command_spec {
    const char *name;                  /* "train" */
    const char *summary;               /* one line for `memplan --help` */
    const char *usage;                 /* "train MODEL|PLAN --data FILE [options]" */
    const char *about;                 /* a paragraph for --help */
    const char *examples[2];           /* whole lines to paste: "memplan train plan.json --data corpus.txt" */
    const struct option_spec *options; /* ends with a zeroed entry */
    const struct option_absent *absent; /* ends with a zeroed entry; NULL: none */
    int min_operands, max_operands;    /* max -1: any number, as for the command behind "--" */
};

/* Parses argv[1..argc) into `target` (fields not named stay as they are) and `operands` (room for `argc`). Accepts
 * --name value, --name=value, -o value, "--". An unknown option names the nearest known one. Returns the number of
 * operands, or -1 with err set. *help is set to true when --help or -h was given (and parsing stops there). */
int options_parse(const struct command_spec *command, int argc, char **argv, void *target,
                  const char **operands, bool *help, struct error *err);

/* Appends the help page; 80 columns; ends with the two examples. */
void options_help(const struct command_spec *command, struct text *out);

/* Is this the entry that ends a table? For other readers of tables. */
bool options_is_end(const struct option_spec *option);

/* The entry of `names` (NULL-terminated) nearest to `word` by edit distance, or NULL when nothing is near. */
const char *options_nearest(const char *word, const char *const *names);

#endif
