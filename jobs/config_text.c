#include "jobs/config_text.h"

#include "base/json.h"
#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- splices ---- */

int splices_add(struct splices *splices, size_t from, size_t to, const char *with, struct error *err)
{
    if (splices->count == SPLICES_MOST)
        return error_set(err, "more than %d places would change; make some of the changes by hand",
                         SPLICES_MOST);
    splices->list[splices->count++] = (struct splice){from, to, with};
    return 0;
}

/* The first of those that are not applied: the place nearest to the front, and the earliest at it. */
static int next_splice(const struct splices *splices, const bool *applied)
{
    int next = -1;
    for (int i = 0; i < splices->count; i++)
        if (!applied[i] && (next < 0 || splices->list[i].from < splices->list[next].from))
            next = i;
    return next;
}

char *splices_apply(const struct splices *splices, const char *text, struct arena *arena)
{
    struct text out = {0};
    bool applied[SPLICES_MOST] = {false};
    size_t at = 0;
    for (int i; (i = next_splice(splices, applied)) >= 0; applied[i] = true) {
        const struct splice *s = &splices->list[i];
        if (s->from > at)
            text_printf(&out, "%.*s", (int)(s->from - at), text + at);
        text_add(&out, s->with);
        at = s->to > at ? s->to : at;
    }
    text_add(&out, text + at);
    char *kept = arena_strdup(arena, out.data);
    text_free(&out);
    return kept;
}

/* ---- JSON ---- */

struct span {
    size_t from, to;
};

static size_t skip_blanks(const char *text, size_t at, size_t to)
{
    while (at < to && isspace((unsigned char)text[at]))
        at++;
    return at;
}

/* Behind a string that begins at `at`. */
static size_t string_end(const char *text, size_t at, size_t to)
{
    for (at++; at < to && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < to ? at + 1 : to;
}

/* Behind a value of any kind. What is neither a string nor nested ends where a blank or a comma does, whatever it is. */
static size_t value_end(const char *text, size_t at, size_t to)
{
    int depth = 0;
    if (at < to && text[at] == '"')
        return string_end(text, at, to);
    for (; at < to; at++) {
        if (text[at] == '"') {
            at = string_end(text, at, to) - 1;
        } else if (text[at] == '{' || text[at] == '[') {
            depth++;
        } else if (text[at] == '}' || text[at] == ']') {
            if (!depth)
                return at;
            if (!--depth)
                return at + 1;
        } else if (!depth && (text[at] == ',' || isspace((unsigned char)text[at]))) {
            return at;
        }
    }
    return to;
}

/* The value of a member of the object that begins at `at`. */
static bool find_member(const char *text, size_t at, size_t to, const char *key, size_t length,
                        struct span *out)
{
    for (at = skip_blanks(text, at + 1, to); at < to && text[at] == '"';) {
        size_t end = string_end(text, at, to);
        bool same = end - at == length + 2 && !strncmp(text + at + 1, key, length);
        at = skip_blanks(text, end, to);
        if (at == to || text[at] != ':')
            return false;
        at = skip_blanks(text, at + 1, to);
        *out = (struct span){at, value_end(text, at, to)};
        if (same)
            return true;
        at = skip_blanks(text, out->to, to);
        at = at < to && text[at] == ',' ? skip_blanks(text, at + 1, to) : to;
    }
    return false;
}

/* As JSON has it: 2, true; or else a string. */
static const char *json_value(const char *value, struct arena *arena)
{
    json_t *parsed = json_loads(value, JSON_DECODE_ANY, NULL);
    json_decref(parsed);
    return parsed ? value : arena_printf(arena, "\"%s\"", value);
}

int config_text_json(const char *text, size_t from, size_t to, const struct job_edit *edit,
                     struct arena *arena, struct splices *out, struct error *err)
{
    const char *key = edit->name;
    size_t object = skip_blanks(text, from, to);
    struct span found;
    if (!edit->value)
        return error_set(err, "%s: %s is to be left out; do that by hand", edit->file, edit->name);
    if (object == to || text[object] != '{')
        return error_set(err, "%s: no object begins it; make the changes by hand", edit->file);
    const char *value = json_value(edit->value, arena);
    for (;;) {
        size_t length = strcspn(key, ".");
        bool last = !key[length];
        bool there = find_member(text, object, to, key, length, &found);
        if (there && last)
            return splices_add(out, found.from, found.to, value, err);
        if (!there || text[found.from] != '{')
            break;
        object = found.from;
        key += length + 1;
    }
    /* Nested objects that are not there, from the innermost on. */
    for (const char *end = key + strlen(key); end > key;) {
        const char *part = end;
        while (part > key && part[-1] != '.')
            part--;
        value = arena_printf(arena, part > key ? "{\"%.*s\": %s}" : "\"%.*s\": %s", (int)(end - part), part,
                             value);
        end = part > key ? part - 1 : key;
    }
    bool empty = text[skip_blanks(text, object + 1, to)] == '}';
    return splices_add(out, object + 1, object + 1, arena_printf(arena, empty ? "%s" : " %s,", value), err);
}

/* ---- YAML ---- */

static size_t line_end(const char *text, size_t at, size_t to)
{
    while (at < to && text[at] != '\n')
        at++;
    return at;
}

/* Where "name:" ends on the line at `at`; 0: the line is another's. */
static size_t key_end(const char *text, size_t at, size_t to, const char *name, size_t length)
{
    while (at < to && text[at] == ' ')
        at++;
    return to - at > length && !strncmp(text + at, name, length) && text[at + length] == ':' ? at + length + 1
                                                                                             : 0;
}

/* The value ends before a comment, and before the blanks at its end. */
static struct span yaml_value(const char *text, size_t at, size_t end)
{
    size_t from = at, to;
    while (from < end && text[from] == ' ')
        from++;
    for (to = from; to < end && !(text[to] == '#' && to > at && text[to - 1] == ' '); to++)
        ;
    while (to > from && isspace((unsigned char)text[to - 1]))
        to--;
    return (struct span){from, to};
}

/* Behind the lines of the key at `at`: its own, and those of its value, which are further in or begin items. */
static size_t entry_end(const char *text, size_t at, size_t to)
{
    size_t own = strspn(text + at, " "), next = line_end(text, at, to);
    for (; next + 1 < to; next = line_end(text, next + 1, to)) {
        const char *line = text + next + 1;
        size_t in = strspn(line, " ");
        if (in < own || (in == own && strncmp(line + in, "- ", 2) != 0))
            break;
    }
    return next < to ? next + 1 : to;
}

/* accelerate's sections of the file have the settings of their own names. */
static const char *section_of(const char *name)
{
    return !strncmp(name, "fsdp_", 5)                                    ? "fsdp_config"
           : !strncmp(name, "zero_", 5) || !strncmp(name, "offload_", 8) ? "deepspeed_config"
                                                                         : NULL;
}

int config_text_yaml(const char *text, size_t from, size_t to, const struct job_edit *edit,
                     struct arena *arena, struct splices *out, struct error *err)
{
    const char *section = section_of(edit->name);
    size_t opening = 0;
    for (size_t at = from; at < to;) {
        size_t end = line_end(text, at, to);
        size_t behind = key_end(text, at, end, edit->name, strlen(edit->name));
        if (behind && !edit->value)
            return splices_add(out, at, entry_end(text, at, to), "", err);
        if (behind) {
            struct span value = yaml_value(text, behind, end);
            const char *with = value.from > behind ? edit->value : arena_printf(arena, " %s", edit->value);
            return splices_add(out, value.from, value.to, with, err);
        }
        if (section && !opening && key_end(text, at, end, section, strlen(section)))
            opening = end + 1 < to ? end + 1 : to;
        at = end + 1;
    }
    if (!edit->value)
        return error_set(err,
                         "%s: %s, which is to be left out, stands on no line of its own; do that by hand",
                         edit->file, edit->name);
    if (opening)
        return splices_add(out, opening, opening, arena_printf(arena, "  %s: %s\n", edit->name, edit->value),
                           err);
    const char *before = to > from && text[to - 1] != '\n' ? "\n" : "";
    return splices_add(out, to, to, arena_printf(arena, "%s%s: %s\n", before, edit->name, edit->value), err);
}
