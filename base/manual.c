#include "base/manual.h"

#include <ctype.h>
#include <string.h>

/* --------------------------------------------------------------------------------------------------------------- roff */

/* Prose as roff takes it literally: hyphens that can be pasted, no escapes, no requests. */
static void add_escaped(struct text *out, const char *prose)
{
    if (*prose == '.' || *prose == '\'')
        text_add(out, "\\&");
    for (; *prose; prose++)
        if (*prose == '\\')
            text_add(out, "\\e");
        else if (*prose == '-')
            text_add(out, "\\-");
        else
            text_printf(out, "%c", *prose);
}

static void add_in_font(struct text *out, char font, const char *word)
{
    text_printf(out, "\\f%c", font);
    add_escaped(out, word);
    text_add(out, "\\fR");
}

static void add_section(struct text *out, const char *heading)
{
    text_printf(out, ".SH %s\n", heading);
}

static void add_paragraph(struct text *out, const char *prose)
{
    add_escaped(out, prose);
    text_add(out, "\n");
}

static void add_title(const struct manual *manual, const char *command, const char *summary, struct text *out)
{
    struct text name = {0};
    text_printf(&name, "%s%s%s", manual->program, command ? "-" : "", command ? command : "");
    text_add(out, ".TH \"");
    for (const char *c = name.data; *c; c++)
        text_printf(out, "%s%c", *c == '-' ? "\\" : "", toupper((unsigned char)*c));
    text_printf(out, "\" 1 \"\" \"%s %s\" \"User Commands\"\n", manual->program, manual->version);
    /* As they are, so that what is pasted from a page works: no hyphenation, no spread lines. */
    text_add(out, ".nh\n.ad l\n");
    add_section(out, "NAME");
    add_escaped(out, name.data);
    text_add(out, " \\- ");
    add_paragraph(out, summary);
    text_free(&name);
}

static void add_option(struct text *out, const struct option_spec *option)
{
    const char *value = option->argument ? option->argument : option->choices;
    text_add(out, ".TP\n");
    if (option->letter) {
        add_in_font(out, 'B', (char[]){'-', option->letter, '\0'});
        text_add(out, option->name ? ", " : "");
    }
    if (option->name) {
        text_add(out, "\\fB\\-\\-");
        add_escaped(out, option->name);
        text_add(out, "\\fR");
    }
    if (option->kind != OPTION_FLAG && value) {
        text_add(out, " ");
        add_in_font(out, 'I', value);
    }
    text_add(out, "\n");
    add_escaped(out, option->help ? option->help : "");
    if (option->kind == OPTION_CHOICE && option->argument) {
        text_add(out, "; one of ");
        add_escaped(out, option->choices);
    }
    text_add(out, "\n");
}

static void add_see_also(const struct manual *manual, const struct command_spec *self, struct text *out)
{
    add_section(out, "SEE ALSO");
    if (self)
        text_printf(out, "\\fB%s\\fR(1)", manual->program);
    for (int i = 0; manual->commands[i]; i++)
        if (manual->commands[i] != self)
            text_printf(out, "%s\\fB%s\\-%s\\fR(1)", self || i ? ",\n" : "", manual->program,
                        manual->commands[i]->name);
    text_add(out, "\n");
}

void manual_command_page(const struct manual *manual, const struct command_spec *command, struct text *out)
{
    static const struct option_spec help = {
        .name = "help", .letter = 'h', .kind = OPTION_FLAG, .help = "show a page of help"};
    add_title(manual, command->name, command->summary, out);
    add_section(out, "SYNOPSIS");
    add_in_font(out, 'B', manual->program);
    text_add(out, " ");
    add_paragraph(out, command->usage);
    add_section(out, "DESCRIPTION");
    add_paragraph(out, command->about);
    add_section(out, "OPTIONS");
    add_option(out, &help);
    for (const struct option_spec *option = command->options; !options_is_end(option); option++)
        if (option->kind == OPTION_HEADING)
            text_printf(out, ".SS %s\n", option->help);
        else
            add_option(out, option);
    add_section(out, "EXIT STATUS");
    add_paragraph(out, manual->exit_status);
    add_section(out, "EXAMPLES");
    for (int i = 0; i < 2 && command->examples[i]; i++) {
        text_add(out, i ? ".PP\n.nf\n" : ".nf\n");
        add_paragraph(out, command->examples[i]);
        text_add(out, ".fi\n");
    }
    add_see_also(manual, command, out);
}

void manual_program_page(const struct manual *manual, struct text *out)
{
    add_title(manual, NULL, manual->summary, out);
    add_section(out, "SYNOPSIS");
    add_in_font(out, 'B', manual->program);
    text_add(out, " \\fICOMMAND\\fR [arguments]\n");
    add_section(out, "COMMANDS");
    for (int i = 0; manual->commands[i]; i++) {
        text_printf(out, ".TP\n\\fB%s\\-%s\\fR(1)\n", manual->program, manual->commands[i]->name);
        add_paragraph(out, manual->commands[i]->summary);
    }
    add_section(out, "EXIT STATUS");
    add_paragraph(out, manual->exit_status);
    add_see_also(manual, NULL, out);
}

/* --------------------------------------------------------------------------------------------------------- completion */

/* The choices "a|b" as the words "a b". */
static void add_words(struct text *out, const char *choices)
{
    for (; *choices; choices++)
        text_printf(out, "%c", *choices == '|' ? ' ' : *choices);
}

static void add_values(struct text *out, const struct manual *manual, const struct command_spec *command,
                       const struct option_spec *option)
{
    for (const struct manual_values *values = manual->values; values->option; values++)
        if (!strcmp(values->command, command->name) && !strcmp(values->option, option->name))
            for (const char *const *word = values->words; *word; word++)
                text_printf(out, "%s ", *word);
}

static void add_choices(struct text *out, const struct manual *manual, const struct command_spec *command)
{
    for (const struct option_spec *option = command->options; !options_is_end(option); option++) {
        if (option->kind != OPTION_CHOICE && option->kind != OPTION_TEXT)
            continue;
        struct text words = {0};
        if (option->kind == OPTION_CHOICE)
            add_words(&words, option->choices);
        else
            add_values(&words, manual, command, option);
        if (words.length) {
            text_printf(out, "    %s:--%s", command->name, option->name);
            if (option->letter)
                text_printf(out, " | %s:-%c", command->name, option->letter);
            text_printf(out, ") words='%s' ;;\n", words.data);
        }
        text_free(&words);
    }
}

static void add_option_words(struct text *out, const struct command_spec *command)
{
    text_printf(out, "        %s) words='--help", command->name);
    for (const struct option_spec *option = command->options; !options_is_end(option); option++) {
        if (option->letter)
            text_printf(out, " -%c", option->letter);
        if (option->name)
            text_printf(out, " --%s", option->name);
    }
    text_add(out, "' ;;\n");
}

/* Commands whose usage names a MODEL, as one pattern of case; false: there are none. */
static bool add_model_commands(const struct manual *manual, struct text *out)
{
    bool any = false;
    for (int i = 0; manual->commands[i]; i++) {
        if (!strstr(manual->commands[i]->usage, "MODEL"))
            continue;
        text_printf(out, "%s%s", any ? " | " : "", manual->commands[i]->name);
        any = true;
    }
    return any;
}

void manual_completion(const struct manual *manual, const char *presets, struct text *out)
{
    struct text models = {0};
    text_printf(out,
                "# bash completion of %s %s, made by the program itself.\n"
                "_%s() {\n"
                "    local word=${COMP_WORDS[COMP_CWORD]} words='' before=${COMP_WORDS[COMP_CWORD - 1]}\n"
                "    [ \"$before\" = = ] && before=${COMP_WORDS[COMP_CWORD - 2]}\n"
                "    [ \"$word\" = = ] && before=${COMP_WORDS[COMP_CWORD - 1]} && word=''\n"
                "    case $COMP_CWORD:${COMP_WORDS[1]}:$before in\n"
                "    1:*) words='",
                manual->program, manual->version, manual->program);
    for (int i = 0; manual->commands[i]; i++)
        text_printf(out, "%s%s", i ? " " : "", manual->commands[i]->name);
    text_add(out, "' ;;\n    esac\n    case ${COMP_WORDS[1]}:$before in\n");
    for (int i = 0; manual->commands[i]; i++)
        add_choices(out, manual, manual->commands[i]);
    text_add(out, "    esac\n"
                  "    if [ -z \"$words\" ] && [[ $word == -* ]]; then\n"
                  "        case ${COMP_WORDS[1]} in\n");
    for (int i = 0; manual->commands[i]; i++)
        add_option_words(out, manual->commands[i]);
    text_add(out, "        esac\n    fi\n");
    if (add_model_commands(manual, &models))
        text_printf(out,
                    "    if [ -z \"$words\" ] && [[ $before != -* ]]; then\n"
                    "        case ${COMP_WORDS[1]} in\n"
                    "        %s) words=$(%s 2>/dev/null) ;;\n"
                    "        esac\n    fi\n",
                    models.data, presets);
    /* No words: bash completes files. */
    text_printf(out,
                "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
                "}\n"
                "complete -o default -F _%s %s\n",
                manual->program, manual->program);
    text_free(&models);
}
