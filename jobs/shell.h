/* Reads a shell script without running any of it. Assignments, quoting, arrays, ${NAME:-default} and $((arithmetic)) are
 * worked out; functions are read where they are called, with the call's arguments; of conditions and cases of which every word
 * is known, outside of loops, the branch that runs is read. What would need running (loops, other conditions, command
 * substitution) is not, and whatever depends on it becomes a word that says so. */
#ifndef MEMPLAN_JOBS_SHELL_H
#define MEMPLAN_JOBS_SHELL_H

#include "base/arena.h"
#include "base/error.h"
#include "jobs/word.h"

#include <stddef.h>

struct shell_command {
    struct words words;
    int line; /* in the script; of what another file starts, in that */
    const char *inside; /* "an if", "a loop", "a function ...": it may run, or not, or often; NULL: it runs once */
};

/* A file that the script writes before the launch, from a here-document. */
struct shell_file {
    const char *name;
    const char *text;
    int line; /* of its first line in the script */
};

/* A variable that the caller gives: it replaces whatever the script says. */
struct shell_variable {
    const char *name, *value;
};

/* A variable that others than the script read, as the script leaves it: PYTORCH_CUDA_ALLOC_CONF, HF_HOME. */
struct shell_setting {
    const char *name;
    struct word value;
};

struct shell_input {
    const char *text;
    size_t length;
    const char *file; /* for messages */
    int first_line;
    const struct shell_variable *given;
    int given_count;
    const char *const *arguments; /* $1, $2, ... */
    int argument_count;
};

struct shell_script {
    struct shell_command *commands;
    int command_count;
    struct shell_file *files;
    int file_count;
    struct word *skipped; /* what was not executed, and changes what comes after: `source env.sh`, `eval` */
    int skipped_count;
    struct word missing; /* the first script that it starts and that is not there; no text: none */
    struct words batch; /* the options of #SBATCH lines */
    struct shell_setting *settings;
    int setting_count;
};

/* Everything in *out lives as long as the arena. Fails on what no shell would read, and on what grows without end. */
int shell_read(const struct shell_input *input, struct arena *arena, struct shell_script *out, struct error *err);

#endif
