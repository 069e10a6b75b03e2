#include "jobs/launch_text.h"

#include "base/text.h"
#include "jobs/job_changes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- places in a script ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool ends_word(char c)
{
    return !c || isspace((unsigned char)c) || strchr(";)|&`<>", c);
}

/* Behind the lines of a here-document whose "<<" is at `at`. */
static size_t here_end(const char *text, size_t at)
{
    bool tabs = text[at + 2] == '-';
    size_t word = at + 2 + (size_t)tabs;
    while (is_blank(text[word]))
        word++;
    char quote = text[word] == '"' || text[word] == '\'' ? text[word++] : 0;
    size_t length = 0;
    while (quote ? text[word + length] && text[word + length] != quote : !ends_word(text[word + length]))
        length++;
    const char *line = strchr(text + word, '\n');
    for (; line && *line; line = strchr(line, '\n')) {
        const char *start = ++line;
        while (tabs && *start == '\t')
            start++;
        if (!strncmp(start, text + word, length) && (start[length] == '\n' || !start[length]))
            return (size_t)(start - text) + length;
    }
    return strlen(text);
}

/* The quote that a place stands within: '"', '\'', '#' for a comment, 'h' for a here-document; 0: none. *opened is where. */
static char quote_at(const char *text, size_t place, size_t *opened)
{
    char quote = 0;
    size_t here = 0;
    for (size_t at = 0; at < place; at++) {
        char c = text[at];
        bool first = !at || isspace((unsigned char)text[at - 1]) || text[at - 1] == ';';
        if (quote == '#' && c == '\n')
            quote = 0;
        if (here && c == '\n' && !quote) {
            if (place < here)
                return 'h';
            at = here - 1;
            here = 0;
        } else if (quote == '#') {
            continue;
        } else if (c == '\\' && quote != '\'') {
            at++;
        } else if (quote) {
            quote = c == quote ? 0 : quote;
        } else if (c == '"' || c == '\'' || (c == '#' && first)) {
            quote = c;
            *opened = at;
        } else if (c == '<' && text[at + 1] == '<' && text[at + 2] != '<' && !here) {
            here = here_end(text, at);
        }
    }
    return quote;
}

/* Behind "${...}" or "$(...)" that begins at `at`. */
static size_t expansion_end(const char *text, size_t at)
{
    char opens = text[at + 1], closes = opens == '{' ? '}' : ')';
    int depth = 0;
    for (at++; text[at]; at++) {
        depth += text[at] == opens;
        if (text[at] == closes && !--depth)
            return at + 1;
    }
    return at;
}

/* Behind the word at `at`, which stands within `quote`. */
static size_t word_end(const char *text, size_t at, char quote)
{
    while (!ends_word(text[at])) {
        char c = text[at];
        if (c == '\\' && text[at + 1] == '\n')
            return at;
        if (quote && c == quote)
            return at;
        if (c == '$' && (text[at + 1] == '{' || text[at + 1] == '(')) {
            at = expansion_end(text, at);
        } else if (c == '"' || c == '\'') {
            const char *end = strchr(text + at + 1, c);
            at = end ? (size_t)(end - text) + 1 : strlen(text);
        } else {
            at += c == '\\' && text[at + 1] ? 2 : 1;
        }
    }
    return at;
}

/* The next word of the same command, on this line or one that continues it. */
static size_t next_word(const char *text, size_t at, char quote)
{
    for (;; at++) {
        if (text[at] == '\\' && text[at + 1] == '\n')
            at++;
        else if (!is_blank(text[at]) && !(quote && text[at] == '\n'))
            return at;
    }
}

static size_t line_start(const char *text, int line)
{
    const char *at = text;
    for (int i = 1; i < line && (at = strchr(at, '\n')); i++)
        at++;
    return at ? (size_t)(at - text) : strlen(text);
}

/* The length of the option at `at`, "--a-b" being "--a_b" too; 0: another stands there. */
static size_t option_length(const char *at, const char *name)
{
    size_t i = 0;
    for (; name[i]; i++)
        if (at[i] != name[i] && !(strchr("-_", at[i] ? at[i] : ' ') && strchr("-_", name[i])))
            return 0;
    return ends_word(at[i]) || strchr("=\"'\\", at[i]) ? i : 0;
}

/* The line of the script that a fact stands on; 0: it stands elsewhere. */
static int line_of(const struct launch_text *l, const struct fact *fact)
{
    size_t length = strlen(l->file);
    if (!fact || strncmp(fact->origin, l->file, length) || fact->origin[length] != ':')
        return 0;
    return atoi(fact->origin + length + 1);
}

static bool is_option_at(const char *text, size_t at, const char *name)
{
    char before = at ? text[at - 1] : ' ';
    return !isalnum((unsigned char)before) && !strchr("-_.", before) && option_length(text + at, name);
}

/* Where an option stands on that line, the last time; else where it stands in the whole script, if once: what a script has put
 * together from pieces is all of one line. False: it does not, by its name. */
static bool find_option(const struct launch_text *l, int line, const char *name, size_t *out)
{
    size_t opened;
    int found = 0;
    if (!line)
        return false;
    for (size_t at = line_start(l->text, line); l->text[at] && l->text[at] != '\n'; at++)
        if (is_option_at(l->text, at, name)) {
            *out = at;
            found = 1;
        }
    if (found)
        return true;
    for (size_t at = 0; l->text[at]; at++)
        if (is_option_at(l->text, at, name) && quote_at(l->text, at, &opened) != '#') {
            *out = at;
            if (++found > 1)
                return false;
        }
    return found;
}

/* ---- options ---- */

static const char *quoted(const char *value, struct arena *arena)
{
    return *value && !value[strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                          "_-+=:,./@%^{}[]")]
               ? value
               : arena_printf(arena, strchr(value, '\'') ? "\"%s\"" : "'%s'", value);
}

static const char *spelled(const struct job_edit *edit, struct arena *arena)
{
    if (!*edit->value)
        return edit->name;
    return arena_printf(arena, "%s %s", edit->name, edit->words ? edit->value : quoted(edit->value, arena));
}

/* Behind the values of the option whose name ends at `at`. */
static size_t values_end(const struct launch_text *l, size_t at, const struct fact *fact, char quote)
{
    const char *text = l->text;
    bool several = strchr(fact->value, ',') != NULL;
    if (!strcmp(fact->value, "given"))
        return at;
    if (text[at] == '=')
        return word_end(text, at + 1, quote);
    for (bool first = true; first || several; first = false) {
        size_t word = next_word(text, at, quote);
        if (ends_word(text[word]) || (quote && text[word] == quote) || word_is_option(text + word) ||
            (!first && !isalnum((unsigned char)text[word])))
            return at;
        at = word_end(text, word, quote);
    }
    return at;
}

/* An option that goes takes the blanks before it along; where a line has nothing else, the line. */
static int drop(struct launch_text *l, size_t from, size_t to, struct error *err)
{
    size_t start = from, end = to;
    while (start && is_blank(l->text[start - 1]))
        start--;
    while (is_blank(l->text[end]))
        end++;
    bool begins = !start || l->text[start - 1] == '\n';
    if (begins && l->text[end] == '\\' && l->text[end + 1] == '\n')
        return splices_add(&l->splices, start, end + 2, "", err);
    if (begins)
        return splices_add(&l->splices, from, end, "", err);
    return splices_add(&l->splices, start, to, "", err);
}

static int edit_there(struct launch_text *l, size_t at, const struct fact *fact, const struct job_edit *edit,
                      struct error *err)
{
    size_t opened, name_end = at + option_length(l->text + at, edit->name);
    size_t end = values_end(l, name_end, fact, quote_at(l->text, at, &opened));
    if (!edit->value)
        return drop(l, at, end, err);
    if (!*edit->value || end == name_end)
        return splices_add(&l->splices, at, end, spelled(edit, l->arena), err);
    size_t value = l->text[name_end] == '=' ? name_end + 1 : next_word(l->text, name_end, 0);
    return splices_add(&l->splices, value, end, edit->words ? edit->value : quoted(edit->value, l->arena),
                       err);
}

/* Whether the word at `place`, or its last part behind a folder, is `name` and no more. */
static bool is_name_at(const char *text, size_t place, const char *name)
{
    char before = place ? text[place - 1] : ' ', after = text[place + strlen(name)];
    return !isalnum((unsigned char)before) && !strchr("_-.", before) &&
           (ends_word(after) || strchr("\"'\\}", after));
}

/* Behind the word in which `name` stands at `place`; 0: it is a comment's, a here-document's or a variable's value. */
static size_t behind_word(const char *text, size_t place, const char *name)
{
    size_t opened = 0, start = place;
    char quote = quote_at(text, place, &opened), after = text[place + strlen(name)];
    if (quote == '#' || quote == 'h')
        return 0;
    while (start && !isspace((unsigned char)text[start - 1]) && !strchr("\"'=", text[start - 1]))
        start--;
    bool whole = quote && start && start - 1 == opened; /* the quotes are the word's own */
    size_t before = whole ? opened : start;
    if (before && text[before - 1] == '=')
        return 0;
    return word_end(text, place, quote) + (whole && (after == quote || after == '}'));
}

/* Behind the first word from `from` to `to` that is `name`; 0: there is none. */
static size_t find_word(const char *text, size_t from, size_t to, const char *name)
{
    size_t found = 0;
    for (const char *at = text + from; !found && (at = strstr(at, name)) && (size_t)(at - text) < to; at++)
        if (is_name_at(text, (size_t)(at - text), name))
            found = behind_word(text, (size_t)(at - text), name);
    return found;
}

/* The same of a word that is a variable with the program's name in it: "$SCRIPT". */
static size_t find_variable(const struct launch_text *l, size_t from, const char *name)
{
    const char *text = l->text;
    size_t found = 0;
    for (size_t at = from; text[at] && !found; at++) {
        size_t start = at + 1 + (text[at + 1] == '{'), length = 0;
        while (isalnum((unsigned char)text[start + length]) || text[start + length] == '_')
            length++;
        if (text[at] != '$' || !length)
            continue;
        const char *variable = arena_printf(l->arena, "%.*s=", (int)length, text + start);
        const char *set = strstr(text, variable);
        const char *end = set ? strchr(set, '\n') : NULL, *value = set ? strstr(set, name) : NULL;
        bool names = value && (!end || value < end) && is_name_at(text, (size_t)(value - text), name) &&
                     (set == text || isspace((unsigned char)set[-1]));
        if (names)
            found = behind_word(text, start, arena_printf(l->arena, "%.*s", (int)length, text + start));
    }
    return found;
}

/* Past the words that the program is given before its options. */
static size_t behind_leading(const struct launch_text *l, size_t at)
{
    size_t opened;
    char quote = quote_at(l->text, at, &opened);
    for (int i = 0; i < l->job->launch.leading; i++) {
        size_t word = next_word(l->text, at, quote);
        if (ends_word(l->text[word]) || l->text[word] == quote || word_is_option(l->text + word))
            return at;
        at = word_end(l->text, word, quote);
    }
    return at;
}

static bool is_said(const char *text, size_t line)
{
    const char *at = text + line + strspn(text + line, " \t");
    return !strncmp(at, "echo ", 5) || !strncmp(at, "printf ", 7);
}

/* The last word that is `name` on any line that does more than say so; 0: there is none. */
static size_t last_word(const char *text, const char *name)
{
    size_t found = 0;
    for (size_t line = 0, next; text[line]; line = next) {
        const char *end = strchr(text + line, '\n');
        next = end ? (size_t)(end - text) + 1 : line + strlen(text + line);
        size_t here = is_said(text, line) ? 0 : find_word(text, line, next, name);
        found = here ? here : found;
    }
    return found;
}

/* Behind the program and what it is given before its options: on the line where the launch has it, else in a variable that has
 * the launch, the last. False: it stands nowhere. */
static bool behind_program(const struct launch_text *l, size_t *out)
{
    const struct word *where = &l->job->launch.where;
    const char *name = text_base_name(l->job->launch.program), *text = l->text;
    size_t found = 0;
    if (where->file && !strcmp(where->file, l->file)) {
        found = find_word(text, line_start(text, where->line), line_start(text, where->line + 1), name);
        found = found ? found : find_variable(l, line_start(text, l->job->launch.line), name);
    }
    found = found ? found : last_word(text, name);
    *out = behind_leading(l, found);
    return found > 0;
}

/* Before the option of the launch that was read last. */
static bool before_option(const struct launch_text *l, size_t *out)
{
    for (int i = l->job->facts.count - 1; i >= 0; i--) {
        const struct fact *f = &l->job->facts.list[i];
        if (f->kind == FACT_READ && f->name[0] == '-' && find_option(l, line_of(l, f), f->name, out))
            return true;
    }
    return false;
}

/* A file of settings: what the launch's line says comes before it. */
static bool is_of_file(const struct fact *fact)
{
    return fact->name[0] != '-' && strncmp(fact->origin, "--", 2) &&
           strcmp(fact->origin, "command line") != 0;
}

static int edit_option(struct launch_text *l, const struct job_edit *edit, struct error *err)
{
    const struct fact *fact = job_changes_given(l->job, edit);
    size_t at;
    if (fact && find_option(l, line_of(l, fact), edit->name, &at))
        return edit_there(l, at, fact, edit, err);
    if (fact && (!edit->value || line_of(l, fact) || !is_of_file(fact)))
        return error_set(
            err,
            "%s stands in %s, and not by that name in %s, where it would have to change; change it "
            "there",
            edit->name, fact->origin, l->file);
    if (behind_program(l, &at))
        return splices_add(&l->splices, at, at, arena_printf(l->arena, " %s", spelled(edit, l->arena)), err);
    if (before_option(l, &at))
        return splices_add(&l->splices, at, at, arena_printf(l->arena, "%s ", spelled(edit, l->arena)), err);
    return error_set(err, "%s: there is no place in it to write %s; add it by hand", l->file, edit->name);
}

/* ---- variables ---- */

/* Above the first command: #SBATCH lines count up to there. */
static size_t first_command(const char *text)
{
    size_t at = 0;
    while (text[at] == '#' || text[at] == '\n') {
        const char *end = strchr(text + at, '\n');
        at = end ? (size_t)(end - text) + 1 : strlen(text);
    }
    return at;
}

static int edit_variable(struct launch_text *l, const struct job_edit *edit, struct error *err)
{
    const struct fact *fact = job_changes_given(l->job, edit);
    size_t at = line_start(l->text, line_of(l, fact)), opened, length = strlen(edit->name);
    const char *found = fact && line_of(l, fact) ? strstr(l->text + at, edit->name) : NULL;
    if (found && found[length] == '=') {
        size_t value = (size_t)(found - l->text) + length + 1;
        size_t end = word_end(l->text, value, quote_at(l->text, value, &opened));
        return splices_add(&l->splices, value, end, quoted(edit->value, l->arena), err);
    }
    at = first_command(l->text);
    l->lines_above++;
    return splices_add(&l->splices, at, at,
                       arena_printf(l->arena, "export %s=%s\n", edit->name, quoted(edit->value, l->arena)),
                       err);
}

/* ---- files ---- */

static const struct shell_file *written_file(const struct launch_text *l, const char *file)
{
    for (int i = l->script->file_count - 1; i >= 0; i--)
        if (!strcmp(l->script->files[i].name, file))
            return &l->script->files[i];
    return NULL;
}

bool launch_text_writes(const struct launch_text *l, const char *file)
{
    return written_file(l, file) != NULL;
}

/* Its lines in the script are as many as it has when it is written. */
static int edit_written(struct launch_text *l, const struct shell_file *file, const struct job_edit *edit,
                        struct error *err)
{
    int lines = 0;
    for (const char *c = file->text; *c; c++)
        lines += *c == '\n';
    size_t from = line_start(l->text, file->line), to = line_start(l->text, file->line + lines);
    return text_ends_with(edit->file, ".json")
               ? config_text_json(l->text, from, to, edit, l->arena, &l->splices, err)
               : config_text_yaml(l->text, from, to, edit, l->arena, &l->splices, err);
}

int launch_text_edit(struct launch_text *l, const struct job_edit *edit, struct error *err)
{
    if (edit->place == JOB_EDIT_OPTION)
        return edit_option(l, edit, err);
    if (edit->place == JOB_EDIT_ENVIRONMENT)
        return edit_variable(l, edit, err);
    return edit_written(l, written_file(l, edit->file), edit, err);
}

int launch_text_rename(struct launch_text *l, const char *file, const char *other, struct error *err)
{
    size_t length = strlen(file), opened;
    bool found = false;
    for (const char *at = l->text; (at = strstr(at, file)); at += length) {
        size_t place = (size_t)(at - l->text);
        char before = place ? at[-1] : ' ', after = at[length];
        if (isalnum((unsigned char)before) || strchr("_-./$}", before) || isalnum((unsigned char)after) ||
            (after && strchr("_-./", after)) || quote_at(l->text, place, &opened) == '#')
            continue;
        if (splices_add(&l->splices, place, place + length, other, err))
            return -1;
        found = true;
    }
    return found ? 0
                 : error_set(err,
                             "%s: %s does not stand in it as such, so that another file cannot be named; "
                             "change that file by hand, as the answer without -o says",
                             l->file, file);
}

char *launch_text_written(const struct launch_text *l)
{
    return splices_apply(&l->splices, l->text, l->arena);
}

char *launch_text_of_command(const char *const *words, int count, struct arena *arena)
{
    char *text = arena_strdup(arena, "#!/bin/bash\n");
    for (int i = 0; i < count; i++)
        text = arena_printf(arena, "%s%s%s", text, i ? " " : "", quoted(words[i], arena));
    return arena_printf(arena, "%s\n", text);
}
