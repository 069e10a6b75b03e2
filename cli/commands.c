#include "cli/commands.h"

#include "base/arena.h"
#include "cli/output.h"

#include <stdlib.h>
#include <string.h>

const struct command *const commands_all[] = {
    &command_describe, &command_predict,
    &command_plan,     &command_profile,
    &command_train,    &command_report,
    &command_compare,  &command_watch,
    &command_check,    &command_calibrate,
    &command_export,   &command_env,
    &command_help,     NULL,
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
