#include "cli/commands.h"

#include "base/arena.h"
#include "base/file.h"
#include "cli/output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const struct command *const commands_all[] = {
    &command_describe,  &command_predict, &command_plan,  &command_profile, &command_train,
    &command_report,    &command_compare, &command_watch, &command_check,   &command_tune,
    &command_calibrate, &command_export,  &command_env,   &command_help,    NULL,
};

const struct command *command_find(const char *name, struct error *err)
{
    enum { MOST = sizeof commands_all / sizeof commands_all[0] };
    const char *names[MOST] = {0};
    for (int i = 0; commands_all[i]; i++) {
        names[i] = commands_all[i]->spec->name;
        if (!strcmp(names[i], name))
            return commands_all[i];
    }
    const char *near = options_nearest(name, names);
    if (near)
        error_set(err, "there is no command \"%s\"; did you mean %s?", name, near);
    else
        error_set(err, "there is no command \"%s\"; `memplan --help` lists them", name);
    return NULL;
}

static const char *text_of(const struct option_spec *option, const void *target)
{
    return option->kind == OPTION_TEXT ? *(const char *const *)((const char *)target + option->offset) : NULL;
}

/* The answer must not take the place of what it was made from. */
static int check_output(const struct command_spec *spec, const void *target, const char *const *operands,
                        int count, struct error *err)
{
    const struct option_spec *o = spec->options;
    const char *output = NULL, *input = NULL;
    struct stat there;
    for (; !options_is_end(o) && !output; o++)
        output = o->letter == 'o' ? text_of(o, target) : NULL;
    if (!output || stat(output, &there) || !S_ISREG(there.st_mode))
        return 0;
    for (int i = 0; i < count && !input; i++)
        input = file_is_same(operands[i], output) ? operands[i] : NULL;
    for (o = spec->options; !options_is_end(o) && !input; o++)
        if (o->letter != 'o' && text_of(o, target) && file_is_same(text_of(o, target), output))
            input = text_of(o, target);
    if (!input)
        return 0;
    return error_set(err, "-o %s: that is the file which %s reads, and would be lost; name another", output,
                     spec->name);
}

int command_parse_all(const struct command_spec *spec, int argc, char **argv, void *target,
                      const char **operands, int *count, struct error *err)
{
    bool help = false;
    struct text page = {0};
    *count = options_parse(spec, argc, argv, target, operands, &help, err);
    if (*count < 0)
        return -1;
    if (!help)
        return check_output(spec, target, operands, *count, err) ? -1 : 1;
    options_help(spec, &page);
    return output_text(&page, "-", err);
}

int command_parse(const struct command_spec *spec, int argc, char **argv, void *target,
                  const char *operands[COMMAND_OPERANDS], struct error *err)
{
    int count;
    const char **all = host_alloc((size_t)argc * sizeof *all);
    int go_on = command_parse_all(spec, argc, argv, target, all, &count, err);
    for (int i = 0; i < COMMAND_OPERANDS; i++)
        operands[i] = i < count ? all[i] : NULL;
    free(all);
    return go_on;
}
