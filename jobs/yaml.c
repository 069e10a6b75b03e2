#include "jobs/yaml.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { DEEPEST = 16, MOST_PAIRS = 4000, LONGEST_KEY = 300, LONGEST_VALUE = 4000 };

struct level {
    int indent;
    size_t length; /* of the prefix of its keys */
};

struct reader {
    struct arena *arena;
    struct pairs *out;
    struct error *err;
    struct level levels[DEEPEST];
    int depth;
    char prefix[LONGEST_KEY + 1];
    int line;
    int text_indent; /* of the key whose value is the text on the lines behind it; -1: none */
};

static int broken(const struct reader *r, const char *what)
{
    return error_set(r->err, "%s:%d: %s; write `key: value`, one a line", r->out->file, r->line, what);
}

/* Without blanks around it, a comment behind it, and quotes. */
static int clean_value(const struct reader *r, const char *from, const char *end, char *out)
{
    while (from < end && isspace((unsigned char)*from))
        from++;
    char quote = from < end && (*from == '"' || *from == '\'') ? *from : 0;
    const char *stop = from + (quote != 0);
    if (quote)
        while (stop < end && *stop != quote)
            stop++;
    else
        while (stop < end && !(*stop == '#' && (stop == from || isspace((unsigned char)stop[-1]))))
            stop++;
    if (quote && stop == end)
        return broken(r, "a quote is not closed");
    from += quote != 0;
    while (!quote && stop > from && isspace((unsigned char)stop[-1]))
        stop--;
    if (stop - from >= LONGEST_VALUE)
        return broken(r, "a value is too long");
    snprintf(out, LONGEST_VALUE, "%.*s", (int)(stop - from), from);
    if (!quote && strchr("&*!%@`", out[0]) && out[0])
        return broken(r, "this part of YAML is not read");
    return 0;
}

/* [a, b] loses its brackets and blanks; {} is nothing. */
static int flatten(const struct reader *r, char *value)
{
    size_t length = strlen(value);
    if (!strcmp(value, "{}") || !strcmp(value, "~") || !strcmp(value, "null"))
        value[0] = 0;
    if (value[0] == '{')
        return broken(r, "a table in braces is not read");
    if (value[0] != '[')
        return 0;
    if (value[length - 1] != ']')
        return broken(r, "a list is not closed on its line");
    char *to = value;
    for (char *c = value + 1; c < value + length - 1; c++)
        if (!strchr(" '\"", *c))
            *to++ = *c;
    *to = 0;
    return 0;
}

/* "- value" belongs to the key before it. */
static int add_item(struct reader *r, const char *from, const char *end)
{
    char value[LONGEST_VALUE];
    if (!r->out->count)
        return broken(r, "a list has no key");
    if (clean_value(r, from + 1, end, value) || flatten(r, value))
        return -1;
    struct pair *last = &r->out->list[r->out->count - 1];
    if (strlen(last->value) + strlen(value) > 16 * LONGEST_VALUE)
        return broken(r, "a list is too long");
    last->value =
        *last->value ? arena_printf(r->arena, "%s,%s", last->value, value) : arena_strdup(r->arena, value);
    return 0;
}

/* The prefix for keys at this indentation: that of the nearest key above that is less indented. */
static int find_level(struct reader *r, int indent)
{
    while (r->depth && r->levels[r->depth - 1].indent >= indent)
        r->depth--;
    r->prefix[r->depth ? r->levels[r->depth - 1].length : 0] = 0;
    return r->depth == DEEPEST ? broken(r, "keys are nested too deep") : 0;
}

static int read_key(struct reader *r, int indent, const char *from, const char *end)
{
    char key[LONGEST_KEY], value[LONGEST_VALUE];
    const char *colon = from;
    while (colon < end && !(*colon == ':' && (colon + 1 == end || isspace((unsigned char)colon[1]))))
        colon++;
    if (colon == end || colon == from)
        return broken(r, "no key with a colon");
    if (find_level(r, indent))
        return -1;
    bool quoted = (*from == '"' || *from == '\'') && colon - from > 2 && colon[-1] == *from;
    int length =
        snprintf(key, sizeof key, "%s%.*s", r->prefix, (int)(colon - from) - 2 * quoted, from + quoted);
    if (length >= LONGEST_KEY - 1)
        return broken(r, "a key is too long");
    if (clean_value(r, colon + 1, end, value) || flatten(r, value))
        return -1;
    if (r->out->count >= MOST_PAIRS)
        return broken(r, "there are too many keys");
    pairs_add(r->out, r->arena, key, value, r->line);
    snprintf(r->prefix, sizeof r->prefix, "%s.", key);
    r->levels[r->depth++] = (struct level){indent, strlen(r->prefix)};
    r->text_indent = value[0] == '|' || value[0] == '>' ? indent : -1;
    return 0;
}

static int read_line(struct reader *r, const char *from, const char *end)
{
    const char *at = from;
    while (at < end && *at == ' ')
        at++;
    while (end > at && isspace((unsigned char)end[-1]))
        end--;
    if (r->text_indent >= 0 && (at == end || at - from > r->text_indent))
        return 0; /* no setting that counts is a text of several lines: its value stays "|" */
    if (at == end || *at == '#' || (end - at == 3 && !strncmp(at, "---", 3)))
        return 0;
    if (*at == '\t')
        return broken(r, "YAML is not indented with tabs");
    if (memchr(at, 0, (size_t)(end - at)))
        return broken(r, "a zero byte");
    if (*at == '-' && at + 1 < end && at[1] == ' ')
        return add_item(r, at, end);
    return read_key(r, (int)(at - from), at, end);
}

int yaml_read(const char *text, size_t length, struct arena *arena, struct pairs *out, struct error *err)
{
    struct reader r = {.arena = arena, .out = out, .err = err, .text_indent = -1};
    const char *end = text + length;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        r.line++;
        if (read_line(&r, at, newline ? newline : end))
            return -1;
        at = newline ? newline + 1 : end;
    }
    return 0;
}
