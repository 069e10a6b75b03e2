/* The commands. Each parses its own arguments (argv[0] is the command's name) and returns the exit status: 0 yes or done,
 * 1 ran well and the answer is no, or -1 with err set. */
#ifndef MEMPLAN_CLI_COMMANDS_H
#define MEMPLAN_CLI_COMMANDS_H

#include "base/error.h"
#include "base/options.h"

#define MEMPLAN_VERSION "0.1.0"

struct command {
    const struct command_spec *spec;
    int (*run)(int argc, char **argv, struct error *err);
};

extern const struct command command_describe, command_predict, command_plan, command_profile, command_train,
    command_report, command_compare, command_watch, command_calibrate, command_check, command_tune, command_export,
    command_env, command_help;

/* In the order of the list, NULL at the end. */
extern const struct command *const commands_all[];
/* NULL when there is none of that name; err then names the nearest. */
const struct command *command_find(const char *name, struct error *err);

/* Parses the arguments, or prints the help page when it was asked for. Returns 1: go on, 0: the help page was all, or -1.
 * `operands` has room for argc. */
int command_parse_all(const struct command_spec *spec, int argc, char **argv, void *target, const char **operands,
                      int *count, struct error *err);

enum { COMMAND_OPERANDS = 4 }; /* of commands that take a few: no more */

/* The same. Operands that were not given are NULL. */
int command_parse(const struct command_spec *spec, int argc, char **argv, void *target,
                  const char *operands[COMMAND_OPERANDS], struct error *err);

#endif
