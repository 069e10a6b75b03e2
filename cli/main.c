/* memplan: finds the command and prints what it could not do. */
#include "base/json.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/spinning.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Does it run a model's operations on this machine, if only to measure them? */
static bool computes(const struct command *command)
{
    return command == &command_train || command == &command_profile || command == &command_plan ||
           command == &command_env;
}

static int run(int argc, char **argv, struct error *err)
{
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return command_help.run(1, argv, err);
    if (!strcmp(argv[1], "--version"))
        return printf("memplan %s\n", MEMPLAN_VERSION) < 0 ? error_set(err, "cannot write to stdout") : 0;
    const struct command *command = command_find(argv[1], err);
    if (!command)
        return -1;
    if (computes(command))
        spinning_limit(argv);
    /* Until it answers, or says itself how far it is. */
    progress_watch(command->spec->name);
    return command->run(argc - 1, argv + 1, err);
}

/* An argument that is quoted may hold line ends, a terminal's commands, or bytes that are no text; the message stays one line
 * that everybody can read. */
static void make_printable(struct error *err)
{
    for (char *c = err->text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    json_t *valid = jsonfile_string(err->text);
    snprintf(err->text, sizeof err->text, "%s", json_string_value(valid));
    json_decref(valid);
}

int main(int argc, char **argv)
{
    /* A reader that goes away and a disk that fills are errors with a message, not deaths. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    struct error err = {0};
    int status = run(argc, argv, &err);
    progress_unwatch();
    progress_end();
    if (status >= 0 && (fflush(stdout) || ferror(stdout)))
        status = error_set(
            &err, "the answer could not be written to stdout; is the disk full, or the reader gone?");
    if (status >= 0)
        return status;
    make_printable(&err);
    if (err.kind != ERROR_STOPPED)
        log_error("%s", err.text);
    return err.kind == ERROR_MEMORY ? 1 : 2;
}
