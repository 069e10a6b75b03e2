/* Command lines from tables. Parsing walks argv once and stores each value through its offset; the help
 * page walks the same table, so the two cannot disagree. */
#include "base/options.h"

#include "base/foreign_words.h"
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PAGE_COLUMNS = 80, HELP_COLUMN = 26, LONGEST_WORD = 63, ALL_NAMES = 256 };

bool options_is_end(const struct option_spec *option)
{
    return !option->name && !option->letter && option->kind != OPTION_HEADING;
}

/* Reading values. `word` is the option as it was typed, for messages. */

/* A number that was not given is often 0, so that a 0 that was typed would pass for it. */
static int check_positive(const char *word, int64_t value, struct error *err)
{
    if (value > 0)
        return 0;
    return error_set(err, "%s: 0 is too few; write 1 or more, or leave it out", word);
}

/* "2k": thousands or 1,024s, which nobody can know but who wrote it. */
static int refuse_suffix(const char *word, const char *value, long long count, char suffix, struct error *err)
{
    bool kilo = tolower((unsigned char)suffix) == 'k';
    long long binary = kilo ? 1024 : 1024 * 1024, decimal = kilo ? 1000 : 1000 * 1000;
    return error_set(err, "%s: \"%s\" is not a whole number; write %lld, or %lld if that is meant", word,
                     value, count * binary, count * decimal);
}

static int read_count(const char *word, const char *value, int least, int64_t *out, struct error *err)
{
    if (value[0] == '-' && isdigit((unsigned char)value[1]))
        return error_set(err, "%s: %s is negative; write %d or more", word, value, least);
    char *end = NULL;
    errno = 0;
    long long count = isdigit((unsigned char)value[0]) ? strtoll(value, &end, 10) : 0;
    if (end && *end && strchr("kKmM", *end) && !end[1] && count < 1000000)
        return refuse_suffix(word, value, count, *end, err);
    if (!end || *end)
        return error_set(err, "%s: \"%s\" is not a whole number; write digits only, like 128", word, value);
    if (errno == ERANGE)
        return error_set(err, "%s: %s is too large; the most is %lld", word, value, (long long)INT64_MAX);
    *out = count;
    return 0;
}

static int read_real(const char *word, const char *value, double *out, struct error *err)
{
    /* strtod() also takes "inf", "0x10" and leading spaces. */
    char *end = NULL;
    double real = strspn(value, "+-.0123456789eE") == strlen(value) ? strtod(value, &end) : 0;
    if (!end || end == value || *end)
        return error_set(err, "%s: \"%s\" is not a number; write one like 0.5 or 3e-4", word, value);
    if (!isfinite(real))
        return error_set(err, "%s: %s is too large; write a smaller number", word, value);
    *out = real;
    return 0;
}

/* The choices, split at "|", as "fp32, bf16". */
static void add_choices(struct text *out, const char *choices)
{
    for (const char *choice = choices; *choice; choice += *choice == '|') {
        size_t length = strcspn(choice, "|");
        text_printf(out, "%s%.*s", choice == choices ? "" : ", ", (int)length, choice);
        choice += length;
    }
}

/* The choice that the value is but for its case; NULL: none. */
static const char *find_choice(const char *choices, const char *value)
{
    size_t length = strlen(value);
    for (const char *choice = choices;; choice++) {
        size_t here = strcspn(choice, "|");
        if (here == length && !strncasecmp(choice, value, length))
            return choice;
        choice += here;
        if (!*choice)
            return NULL;
    }
}

/* Whoever reads the value compares it with the choices as they are written: it is written so, where it stands. */
static int read_choice(const struct option_spec *option, const char *word, char *value, const char **out,
                       struct error *err)
{
    const char *choice = find_choice(option->choices, value);
    if (choice) {
        if (memcmp(value, choice, strlen(value)) != 0)
            memcpy(value, choice, strlen(value));
        *out = value;
        return 0;
    }
    struct text list = {0};
    const char *said = option->name ? foreign_words_value(option->name, value) : NULL;
    add_choices(&list, option->choices);
    error_set(err, "%s: \"%s\" is not a choice; use one of %s", word, value, list.data);
    if (said)
        error_append(err, "; %s", said);
    text_free(&list);
    return -1;
}

static int read_value(const struct option_spec *option, const char *word, char *value, void *target,
                      struct error *err)
{
    void *field = (char *)target + option->offset;
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return 0;
    case OPTION_COUNT:
        return read_count(word, value, 0, field, err);
    case OPTION_POSITIVE:
        return read_count(word, value, 1, field, err) ? -1 : check_positive(word, *(int64_t *)field, err);
    case OPTION_REAL:
        return read_real(word, value, field, err);
    case OPTION_BYTES:
        return units_parse_bytes(value, word, field, err);
    case OPTION_POSITIVE_BYTES:
        return units_parse_bytes(value, word, field, err) ? -1 : check_positive(word, *(int64_t *)field, err);
    case OPTION_TEXT:
        *(const char **)field = value;
        return 0;
    case OPTION_CHOICE:
        return read_choice(option, word, value, field, err);
    case OPTION_HEADING: /* has no name to be found by */
        break;
    }
    return 0;
}

/* Finding options. */

static const struct option_spec *find_letter(const struct command_spec *command, char letter)
{
    for (const struct option_spec *option = command->options; !options_is_end(option); option++)
        if (option->letter == letter)
            return option;
    return NULL;
}

static const struct option_spec *find_name(const struct command_spec *command, const char *name,
                                           size_t length)
{
    for (const struct option_spec *option = command->options; !options_is_end(option); option++)
        if (option->name && strlen(option->name) == length && !memcmp(option->name, name, length))
            return option;
    return NULL;
}

/* What another program calls something that this command has, or that memplan has not; 0: it is no such word. */
static int refuse_foreign(const struct command_spec *command, const char *word, const char *name,
                          struct error *err)
{
    const struct foreign_word *foreign = foreign_words_find(name);
    if (!foreign || (!foreign->ours && !find_name(command, "zero", strlen("zero"))))
        return 0;
    if (!foreign->ours)
        return error_set(err, "unknown option %s: %s", word, foreign->said);
    if (!find_name(command, foreign->ours, strcspn(foreign->ours, " ")))
        return 0;
    return error_set(err, "unknown option %s; memplan's word is --%s", word, foreign->ours);
}

/* What other commands have and this one has not; 0: it is no such option. */
static int refuse_absent(const struct command_spec *command, const char *word, const char *name,
                         struct error *err)
{
    for (const struct option_absent *absent = command->absent; absent && absent->name; absent++)
        if (!strcmp(absent->name, name))
            return error_set(err, "%s has no %s: %s", command->name, word, absent->why);
    return 0;
}

static int unknown_option(const struct command_spec *command, const char *word, struct error *err)
{
    if (word[1] != '-' && find_letter(command, word[1]))
        return error_set(err, "unknown option %s; write -%c %s", word, word[1], word + 2);
    const char *names[ALL_NAMES] = {"help"};
    int count = 1;
    for (const struct option_spec *option = command->options; !options_is_end(option); option++)
        if (option->name && count < ALL_NAMES - 1)
            names[count++] = option->name;
    char typed[LONGEST_WORD + 2];
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(word, "="), word);
    const char *name = typed + strspn(typed, "-");
    if (refuse_absent(command, typed, name, err) || refuse_foreign(command, word, name, err))
        return -1;
    const char *near = find_name(command, name, strlen(name)) ? name : options_nearest(name, names);
    if (near)
        return error_set(err, "unknown option %s; did you mean --%s?", word, near);
    return error_set(err, "unknown option %s; \"memplan %s --help\" lists them", word, command->name);
}

/* What parsing has reached. */
struct walk {
    const struct command_spec *command;
    int argc, next; /* argv[next] comes next */
    char **argv;
    void *target;
};

/* One option: its word, and the value behind "=" or in the next word. A next word that starts with "--" is
 * taken for an option, because a forgotten value is likelier than such a value; "--name=--value" still
 * works. */
static int parse_option(struct walk *walk, struct error *err)
{
    char *word = walk->argv[walk->next++];
    bool is_long = word[1] == '-';
    char *equals = is_long ? strchr(word, '=') : NULL;
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    const struct option_spec *option = is_long       ? find_name(walk->command, word + 2, length - 2)
                                       : length == 2 ? find_letter(walk->command, word[1])
                                                     : NULL;
    if (!option)
        return unknown_option(walk->command, word, err);
    char name[LONGEST_WORD + 1];
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    if (option->kind == OPTION_FLAG && equals)
        return error_set(err, "%s takes no value; write %s alone", name, name);
    char *value = equals ? equals + 1 : NULL;
    if (option->kind != OPTION_FLAG && !value) {
        char *next = walk->next < walk->argc ? walk->argv[walk->next] : NULL;
        if (!next || !strncmp(next, "--", 2))
            return error_set(err, "%s needs a value; write %s %s", name, name,
                             option->argument ? option->argument : option->choices);
        value = next;
        walk->next++;
    }
    return read_value(option, name, value, walk->target, err);
}

static int check_operands(const struct command_spec *command, int count, const char **operands,
                          struct error *err)
{
    if (count < command->min_operands)
        return error_set(err, "%d operand%s given, at least %d needed; usage: memplan %s", count,
                         count == 1 ? "" : "s", command->min_operands, command->usage);
    if (command->max_operands >= 0 && count > command->max_operands)
        return error_set(err, "\"%s\" is one word too many; usage: memplan %s",
                         operands[command->max_operands], command->usage);
    return 0;
}

int options_parse(const struct command_spec *command, int argc, char **argv, void *target,
                  const char **operands, bool *help, struct error *err)
{
    struct walk walk = {.command = command, .argc = argc, .next = 1, .argv = argv, .target = target};
    int count = 0;
    bool options_end = false;
    while (walk.next < argc) {
        const char *word = argv[walk.next];
        if (options_end || word[0] != '-' || !word[1]) {
            operands[count++] = word;
            walk.next++;
        } else if (!strcmp(word, "--")) {
            options_end = true;
            walk.next++;
        } else if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
            *help = true;
            return count;
        } else if (parse_option(&walk, err)) {
            return -1;
        }
    }
    return check_operands(command, count, operands, err) ? -1 : count;
}

/* The help page. */

/* Columns on the screen: continuation bytes of UTF-8 take none. */
static int columns(const char *text, size_t bytes)
{
    int count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* Bytes of the words at the start of `prose` that stay on one line: one word, or an option and its value. */
static size_t unbroken(const char *prose)
{
    const char *option = prose + (prose[0] == '[');
    size_t bytes = strcspn(prose, " ");
    const char *value = prose + bytes + strspn(prose + bytes, " ");
    bool has_value =
        option[0] == '-' && option[1] != ' ' && !memchr(prose, '=', bytes) && *value && *value != '-';
    return has_value ? (size_t)(value - prose) + strcspn(value, " ") : bytes;
}

/* Adds the words of `prose`, starting at `column` and going on at `indent`. `joint` ends a line that goes
 * on: "" or, for a command to be pasted into a shell, " \". */
static void add_wrapped(struct text *out, const char *prose, int column, int indent, const char *joint)
{
    int room = PAGE_COLUMNS - (int)strlen(joint);
    bool first = true;
    for (const char *word = prose + strspn(prose, " "); *word; word += strspn(word, " ")) {
        size_t bytes = unbroken(word);
        int width = columns(word, bytes);
        if (!first && column + 1 + width > room) {
            text_printf(out, "%s\n%*s", joint, indent, "");
            column = indent;
        } else if (!first) {
            text_add(out, " ");
            column++;
        }
        text_printf(out, "%.*s", (int)bytes, word);
        column += width;
        word += bytes;
        first = false;
    }
    text_add(out, "\n");
}

/* "  -o, --output FILE" */
static void add_option_name(struct text *line, const struct option_spec *option)
{
    if (option->letter)
        text_printf(line, "  -%c%s", option->letter, option->name ? ", " : "");
    else
        text_add(line, "      ");
    if (option->name)
        text_printf(line, "--%s", option->name);
    const char *value = option->argument ? option->argument : option->choices;
    if (option->kind != OPTION_FLAG && value)
        text_printf(line, " %s", value);
}

static void add_option(struct text *out, const struct option_spec *option)
{
    struct text line = {0}, phrase = {0};
    add_option_name(&line, option);
    text_add(&phrase, option->help ? option->help : "");
    /* Choices too many for the name are given a word there and listed here. */
    if (option->kind == OPTION_CHOICE && option->argument) {
        text_add(&phrase, "; one of ");
        add_choices(&phrase, option->choices);
    }
    int width = columns(line.data, line.length);
    text_add(out, line.data);
    if (width > HELP_COLUMN - 2)
        text_printf(out, "\n%*s", HELP_COLUMN, "");
    else
        text_printf(out, "%*s", HELP_COLUMN - width, "");
    add_wrapped(out, phrase.data, HELP_COLUMN, HELP_COLUMN, "");
    text_free(&phrase);
    text_free(&line);
}

void options_help(const struct command_spec *command, struct text *out)
{
    static const struct option_spec help = {
        .name = "help", .letter = 'h', .kind = OPTION_FLAG, .help = "show this page"};
    struct text usage = {0};
    text_printf(&usage, "usage: memplan %s", command->usage);
    add_wrapped(out, usage.data, 0, 7, "");
    text_free(&usage);
    text_add(out, "\n");
    add_wrapped(out, command->about, 0, 0, "");
    text_add(out, "\noptions\n");
    add_option(out, &help);
    for (const struct option_spec *option = command->options; !options_is_end(option); option++)
        if (option->kind == OPTION_HEADING)
            text_printf(out, "\n%s\n", option->help);
        else
            add_option(out, option);
    text_add(out, "\nexamples\n");
    for (int i = 0; i < 2; i++)
        if (command->examples[i]) {
            text_add(out, "  ");
            add_wrapped(out, command->examples[i], 2, 6, " \\");
        }
}

/* Nearest names. */

/* Optimal string alignment: insertions, deletions, replacements and swaps of neighbours, one each. Rows of
 * the usual table: two back, one back, this one. */
static int distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int rows[3][LONGEST_WORD + 1];
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int *now = rows[i % 3];
        const int *one = rows[(i + 2) % 3], *two = rows[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            int best = one[j - 1] + (a[i - 1] != b[j - 1]);
            best = one[j] + 1 < best ? one[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two[j - 2] + 1 < best)
                best = two[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[a_length % 3][b_length];
}

/* Near: at most one slip, and one more for every four letters; and something must be left of the word. */
const char *options_nearest(const char *word, const char *const *names)
{
    const char *nearest = NULL;
    int least = 0;
    size_t length = strlen(word);
    if (length > LONGEST_WORD)
        return NULL;
    for (; *names; names++) {
        size_t name_length = strlen(*names);
        if (name_length > LONGEST_WORD)
            continue;
        size_t longer = length > name_length ? length : name_length;
        int slips = distance(word, length, *names, name_length);
        if (slips <= 1 + (int)longer / 4 && slips < (int)longer && (!nearest || slips < least)) {
            nearest = *names;
            least = slips;
        }
    }
    return nearest;
}
