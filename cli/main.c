/* memplan: finds the command and prints what it could not do. */
#include "base/arena.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/output.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command *const commands[] = {
    &command_describe, &command_predict, &command_plan,      &command_profile, &command_train,
    &command_report,   &command_compare, &command_calibrate, &command_check, &command_export,  &command_env,
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static int print_help(struct error *err)
{
    struct text out = {0};
    text_add(&out,
             "memplan: will a training step fit in memory, and what is the fastest way to make it fit?\n\n"
             "Usage: memplan COMMAND [arguments]\n\n");
    for (int i = 0; i < COMMANDS; i++)
        text_printf(&out, "  %-10s %s\n", commands[i]->spec->name, commands[i]->spec->summary);
    text_add(&out, "\n`memplan COMMAND --help` shows a command's options, with examples.\n\n"
                   "Exit status: 0 yes or done; 1 ran well, the answer is no; 2 could not run.\n");
    return output_text(&out, "-", err);
}

static int unknown_command(const char *word, struct error *err)
{
    const char *names[COMMANDS + 1] = {0};
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i]->spec->name;
    const char *near = options_nearest(word, names);
    if (near)
        return error_set(err, "there is no command \"%s\"; did you mean %s?", word, near);
    return error_set(err, "there is no command \"%s\"; `memplan --help` lists them", word);
}

static int run(int argc, char **argv, struct error *err)
{
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return print_help(err);
    if (!strcmp(argv[1], "--version"))
        return printf("memplan %s\n", MEMPLAN_VERSION) < 0 ? error_set(err, "cannot write to stdout") : 0;
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(argv[1], commands[i]->spec->name))
            return commands[i]->run(argc - 1, argv + 1, err);
    return unknown_command(argv[1], err);
}

int command_parse(const struct command_spec *spec, int argc, char **argv, void *target,
                  const char *operands[COMMAND_OPERANDS], struct error *err)
{
    bool help = false;
    const char **all = host_alloc((size_t)argc * sizeof(const char *));
    int count = options_parse(spec, argc, argv, target, all, &help, err);
    for (int i = 0; i < COMMAND_OPERANDS; i++)
        operands[i] = i < count ? all[i] : NULL;
    free(all);
    if (count < 0)
        return -1;
    if (!help)
        return 1;
    struct text out = {0};
    options_help(spec, &out);
    return output_text(&out, "-", err);
}

int main(int argc, char **argv)
{
    /* A reader that goes away and a disk that fills are errors with a message, not deaths. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    struct error err = {0};
    int status = run(argc, argv, &err);
    progress_end();
    if (status >= 0 && (fflush(stdout) || ferror(stdout)))
        status = error_set(
            &err, "the answer could not be written to stdout; is the disk full, or the reader gone?");
    if (status >= 0)
        return status;
    /* An argument that is quoted may hold line ends or a terminal's commands; the message stays one line. */
    for (char *c = err.text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    if (err.kind != ERROR_STOPPED)
        log_error("%s", err.text);
    return err.kind == ERROR_MEMORY ? 1 : 2;
}
