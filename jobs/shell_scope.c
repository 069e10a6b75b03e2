#include "jobs/shell_scope.h"

#include <ctype.h>
#include <string.h>

enum { MOST_VARIABLES = 2000, MOST_UNKNOWNS = 60000 };

/* ---- variables ---- */

struct variable *shell_find(const struct scope *scope, const char *name, size_t length)
{
    for (int i = 0; i < scope->variable_count; i++)
        if (!strncmp(scope->variables[i].name, name, length) && !scope->variables[i].name[length])
            return &scope->variables[i];
    return NULL;
}

void *shell_grown(struct arena *arena, void *list, int count, int *room, size_t size)
{
    if (count < *room)
        return list;
    *room = *room ? *room * 2 : 8;
    void *longer = arena_array(arena, (size_t)*room, size);
    if (count)
        memcpy(longer, list, (size_t)count * size);
    return longer;
}

struct variable *shell_declare(struct scope *scope, const char *name, size_t length, struct error *err)
{
    struct variable *found = shell_find(scope, name, length);
    if (found)
        return found;
    if (scope->variable_count == MOST_VARIABLES) {
        error_set(err, "%s: more than %d variables; is it a launch script?", scope->file, MOST_VARIABLES);
        return NULL;
    }
    scope->variables = shell_grown(scope->arena, scope->variables, scope->variable_count,
                                   &scope->variable_room, sizeof *scope->variables);
    found = &scope->variables[scope->variable_count++];
    *found = (struct variable){.name = arena_printf(scope->arena, "%.*s", (int)length, name)};
    return found;
}

void shell_append_value(struct scope *scope, struct variable *variable, struct glyphs value)
{
    variable->values = shell_grown(scope->arena, variable->values, variable->count, &variable->room,
                                   sizeof *variable->values);
    variable->values[variable->count++] = value;
}

int shell_forget(struct scope *scope, const char *name, size_t length, const char *why, int line,
                 struct error *err)
{
    struct variable *variable = shell_declare(scope, name, length, err);
    struct glyphs value = {0};
    if (!variable)
        return -1;
    if (variable->fixed)
        return 0;
    const char *text = arena_printf(scope->arena, "$%s", variable->name);
    if (shell_add_unknown(scope, text, text + length + 1, line, why, variable->name, &value, err))
        return -1;
    *variable = (struct variable){.name = variable->name}; /* others may hold the old values */
    shell_append_value(scope, variable, value);
    return 0;
}

/* ---- glyphs ---- */

int shell_glyphs_add(struct scope *scope, struct glyphs *out, const struct glyph *list, int count,
                     struct error *err)
{
    if (count > scope->budget)
        return error_set(err, "%s: its variables grow without end; is it a launch script?", scope->file);
    scope->budget -= count;
    if (out->count + count > out->room) {
        out->room = (out->count + count) * 2 + 16;
        struct glyph *longer = arena_array(scope->arena, (size_t)out->room, sizeof *longer);
        if (out->count)
            memcpy(longer, out->list, (size_t)out->count * sizeof *longer);
        out->list = longer;
    }
    if (count)
        memcpy(out->list + out->count, list, (size_t)count * sizeof *list);
    out->count += count;
    return 0;
}

int shell_add_character(struct scope *scope, char c, int flags, int line, struct glyphs *out,
                        struct error *err)
{
    struct glyph one = {.character = (unsigned char)c, .flags = (unsigned char)flags, .line = line};
    return shell_glyphs_add(scope, out, &one, 1, err);
}

static unsigned short unknown_number(struct scope *scope, const char *why, const char *name)
{
    int last = scope->unknown_count - 1;
    if (last >= 0 && (last + 1 == MOST_UNKNOWNS ||
                      (!strcmp(scope->unknowns[last].why, why) && scope->unknowns[last].name == name)))
        return (unsigned short)(last + 1);
    scope->unknowns = shell_grown(scope->arena, scope->unknowns, scope->unknown_count, &scope->unknown_room,
                                  sizeof *scope->unknowns);
    scope->unknowns[scope->unknown_count++] = (struct unknown){.why = why, .name = name};
    return (unsigned short)scope->unknown_count;
}

int shell_add_unknown(struct scope *scope, const char *from, const char *end, int line, const char *why,
                      const char *name, struct glyphs *out, struct error *err)
{
    unsigned short number = unknown_number(scope, why, name);
    for (const char *at = from; at < end; at++) {
        struct glyph one = {(unsigned char)*at, GLYPH_QUOTED, number, line};
        if (shell_glyphs_add(scope, out, &one, 1, err))
            return -1;
    }
    return 0;
}

int shell_add_addition(struct scope *scope, const char *name, int line, const char *why, const char *more,
                       struct glyphs *out, struct error *err)
{
    const char *text = arena_printf(scope->arena, "$%s", name);
    int number = unknown_number(scope, why, name); /* may move them */
    scope->unknowns[number - 1].added = true;
    scope->unknowns[number - 1].more = more;
    return shell_add_unknown(scope, text, text + strlen(text), line, why, name, out, err);
}

int shell_glyphs_from_word(struct scope *scope, const struct word *word, struct glyphs *out,
                           struct error *err)
{
    const char *text = word->text, *end = text + strlen(text);
    int line = shell_line_of_word(scope, word);
    if (word->unknown)
        return shell_add_unknown(scope, text, end, line, word->unknown, word->name, out, err);
    for (; text < end; text++)
        if (shell_add_character(scope, *text, 0, line, out, err))
            return -1;
    return 0;
}

/* ---- fields ---- */

static void add_word(struct scope *scope, const struct glyph *list, int count, struct words *out, int *room)
{
    char *text = arena_alloc(scope->arena, (size_t)count + 1);
    struct word word = {.text = text};
    for (int i = 0; i < count; i++) {
        if (!word.line)
            word.line = list[i].line;
        if (list[i].unknown && !word.unknown) {
            word.unknown = scope->unknowns[list[i].unknown - 1].why;
            word.name = scope->unknowns[list[i].unknown - 1].name;
            word.added = scope->unknowns[list[i].unknown - 1].added;
            word.more = scope->unknowns[list[i].unknown - 1].more;
        }
        if (!(list[i].flags & GLYPH_EMPTY))
            *text++ = (char)list[i].character;
    }
    word.file = word.line ? shell_file_of(scope, word.line) : scope->files[0];
    word.line = shell_line_in_file(word.line);
    out->list = shell_grown(scope->arena, out->list, out->count, room, sizeof *out->list);
    out->list[out->count++] = word;
}

void shell_split(struct scope *scope, const struct glyphs *text, bool whole, struct words *out, int *room)
{
    int first = 0;
    for (int i = 0; i <= text->count; i++) {
        const struct glyph *g = i < text->count ? &text->list[i] : NULL;
        bool blank = g && !whole && !g->flags && isspace(g->character);
        if (g && !blank && !(g->flags & GLYPH_BREAK))
            continue;
        if (i > first || (whole && !text->count))
            add_word(scope, text->list ? text->list + first : NULL, i - first, out, room);
        first = i + 1;
    }
}

/* ---- files ---- */

const char *shell_file_of(const struct scope *scope, int line)
{
    return scope->files[line >> SHELL_LINE_BITS];
}

int shell_line_in_file(int line)
{
    return line & ((1 << SHELL_LINE_BITS) - 1);
}

int shell_line_of_word(const struct scope *scope, const struct word *word)
{
    for (int i = 1; i < scope->file_count && word->file; i++)
        if (scope->files[i] == word->file)
            return word->line + (i << SHELL_LINE_BITS);
    return word->line;
}

const char *shell_line_text(struct scope *scope, int line)
{
    const char *file = shell_file_of(scope, line);
    return arena_printf(scope->arena, file == scope->files[0] ? "%d" : "%d of %s", shell_line_in_file(line),
                        file);
}

const char *shell_file_beside(const struct scope *scope, const char *path)
{
    const char *slash = strrchr(scope->file, '/');
    int length = slash ? (int)(slash - scope->file) : 1;
    const char *folder = slash ? scope->file : ".";
    if (!*path || strstr(path, ".."))
        return NULL;
    if (!strncmp(path, folder, (size_t)length) && path[length] == '/')
        return path;
    return *path == '/' ? NULL : arena_printf(scope->arena, "%.*s/%s", length, folder, path);
}
