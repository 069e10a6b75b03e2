/* A word of a launch line, and where it stands: what every reader of options is given. */
#ifndef MEMPLAN_JOBS_WORD_H
#define MEMPLAN_JOBS_WORD_H

#include <ctype.h>
#include <stdbool.h>

struct word {
    const char *text;
    const char *file;    /* "run.sh"; NULL: typed on the command line */
    int line;            /* in that file */
    const char *unknown; /* what it depends on and nothing here says ("$NODES is set nowhere"); NULL: it is known */
    const char *name;    /* the variable that would say, for `--set NAME=...`; NULL: none would */
    bool added;          /* stands for what a condition may add behind the rest: nothing, or options */
    const char *more;    /* of such a word, what may be added, as the script writes it */
};

struct words {
    struct word *list;
    int count;
};

/* "--name", "-n"; but not "-1". */
static inline bool word_is_option(const char *text)
{
    return text[0] == '-' && (text[1] == '-' || isalpha((unsigned char)text[1]));
}

/* A file that is larger is no launch script and no configuration. */
enum { JOBS_FILE_BYTES = 4 << 20 };

#endif
