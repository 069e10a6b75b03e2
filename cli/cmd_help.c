/* memplan help: the list of commands, a command's page of help, man pages, completion. All of it comes from the option
 * tables. */
#include "base/manual.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "planner/cards.h"
#include "planner/cluster.h"

/* One line of a man page, and two of the list, which is 80 columns wide. */
#define SUMMARY_BEGIN "will a training step fit in memory, and what is the fastest way"
#define SUMMARY_END   "to make it fit?"
#define SUMMARY       SUMMARY_BEGIN " " SUMMARY_END
#define EXIT_STATUS   "0 yes or done; 1 ran well, the answer is no; 2 could not run."

enum { MOST_COMMANDS = 64 };

struct help_options {
    bool man;
    const char *completion;
};

static const struct option_spec options[] = {
    {"man", 0, OPTION_FLAG, NULL, NULL, "the man page, as roff", offsetof(struct help_options, man)},
    {"completion", 0, OPTION_CHOICE, NULL, "bash", "a script that completes commands and options",
     offsetof(struct help_options, completion)},
    {0},
};

static const struct command_spec spec = {
    .name = "help",
    .summary = "this list, or a command's page; man pages and completion",
    .usage = "help [COMMAND] [--man] [--completion bash]",
    .about = "Shows the list of commands, or the page of one. `make install` puts what --man and "
             "--completion print "
             "where man and bash look for it.",
    .examples = {"memplan help train", "source <(memplan help --completion bash)"},
    .options = options,
    .min_operands = 0,
    .max_operands = 1,
};

static void add_list(struct text *out)
{
    text_add(out, "memplan: " SUMMARY_BEGIN "\n" SUMMARY_END "\n\nUsage: memplan COMMAND [arguments]\n\n");
    for (int i = 0; commands_all[i]; i++)
        text_printf(out, "  %-10s %s\n", commands_all[i]->spec->name, commands_all[i]->spec->summary);
    text_add(out, "\n`memplan COMMAND --help` shows a command's options, with examples.\n\n"
                  "Exit status: " EXIT_STATUS "\n");
}

/* `specs` is room for the table of commands. */
static struct manual manual_of(const struct command_spec *specs[MOST_COMMANDS],
                               const struct manual_values *values)
{
    int count = 0;
    for (; commands_all[count] && count < MOST_COMMANDS - 1; count++)
        specs[count] = commands_all[count]->spec;
    specs[count] = NULL;
    return (struct manual){.program = "memplan",
                           .version = MEMPLAN_VERSION,
                           .summary = SUMMARY,
                           .exit_status = EXIT_STATUS,
                           .commands = specs,
                           .values = values};
}

/* Where this machine can run a step. */
static const char *const own_devices[] = {"cpu", "cuda", NULL};

static int run(int argc, char **argv, struct error *err)
{
    struct help_options o = {0};
    const char *operands[COMMAND_OPERANDS];
    const struct command_spec *specs[MOST_COMMANDS];
    const struct command *command = NULL;
    struct text out = {0};
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    if (operands[0] && !(command = command_find(operands[0], err)))
        return -1;
    const struct manual_values values[] = {{"train", "device", own_devices},
                                           {"profile", "device", own_devices},
                                           {"describe", "device", own_devices},
                                           {"describe", "device", cards_names()},
                                           {"predict", "device", own_devices},
                                           {"predict", "device", cards_names()},
                                           {"check", "device", cards_names()},
                                           {"plan", "cluster", cluster_presets()},
                                           {0}};
    struct manual manual = manual_of(specs, values);
    if (o.completion)
        manual_completion(&manual, "memplan describe --list 2>/dev/null | cut -d' ' -f1", &out);
    else if (o.man && command)
        manual_command_page(&manual, command->spec, &out);
    else if (o.man)
        manual_program_page(&manual, &out);
    else if (command)
        options_help(command->spec, &out);
    else
        add_list(&out);
    return output_text(&out, "-", err);
}

const struct command command_help = {&spec, run};
