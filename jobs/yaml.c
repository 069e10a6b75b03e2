#include "jobs/yaml.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum {
    DEEPEST = 16,
    MOST_PAIRS = 4000,
    LONGEST_KEY = 300,
    LONGEST_VALUE = 4000,
    LONGEST_NAME = 60,
    MOST_ANCHORS = 64
};

/* "key: &name value" */
struct anchor {
    const char *name, *key;
};

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
    struct anchor anchors[MOST_ANCHORS];
    int anchor_count;
    char open_quote; /* of a text that goes on; 0: none does */
    int last_indent; /* of the key before */
    int text_indent; /* of the key whose value is the text on the lines behind it; -1: none */
};

static int broken(const struct reader *r, const char *what)
{
    return error_set(r->err, "%s:%d: %s; write `key: value`, one a line", r->out->file, r->line, what);
}

/* The end of what begins with a quote, behind its other quote; NULL: it goes on in the next line. */
static const char *quote_end(const char *from, const char *end, char quote)
{
    for (const char *at = from; at < end; at++) {
        if (quote == '"' && *at == '\\')
            at++;
        else if (*at == quote && quote == '\'' && at + 1 < end && at[1] == quote)
            at++;
        else if (*at == quote)
            return at + 1;
    }
    return NULL;
}

/* A value without blanks around it, a comment behind it, and quotes. */
struct value {
    char text[LONGEST_VALUE];
    bool quoted;               /* it is a text, whatever it looks like */
    char anchor[LONGEST_NAME]; /* its own name for others to use; "": none */
    char alias[LONGEST_NAME];  /* of another that stands here; "": none */
};

/* "&name" and "*name": takes it off, up to the next blank. */
static const char *take_name(const char *from, const char *end, char *name)
{
    int length = 0;
    for (from++; from < end && !isspace((unsigned char)*from) && !strchr(",]}", *from); from++)
        if (length < LONGEST_NAME - 1)
            name[length++] = *from;
    name[length] = '\0';
    while (from < end && isspace((unsigned char)*from))
        from++;
    return from;
}

static const char *take_marks(const char *from, const char *end, struct value *out)
{
    char tag[LONGEST_NAME];
    while (from < end && strchr("&!", *from))
        from = take_name(from, end, *from == '&' ? out->anchor : tag);
    return from < end && *from == '*' ? take_name(from, end, out->alias) : from;
}

static int clean_value(struct reader *r, const char *from, const char *end, struct value *out)
{
    *out = (struct value){.text = ""};
    while (from < end && isspace((unsigned char)*from))
        from++;
    from = take_marks(from, end, out);
    char quote = from < end && (*from == '"' || *from == '\'') ? *from : 0;
    out->quoted = quote;
    from += out->quoted;
    const char *stop = from;
    if (quote) {
        const char *behind = quote_end(from, end, quote);
        r->open_quote = behind ? 0 : quote;
        stop = behind ? behind - 1 : end;
    }
    while (!quote && stop < end && !(*stop == '#' && (stop == from || isspace((unsigned char)stop[-1]))))
        stop++;
    while (!quote && stop > from && isspace((unsigned char)stop[-1]))
        stop--;
    if (!quote && stop - from >= LONGEST_VALUE)
        return broken(r, "a value is too long");
    /* A text that is longer than any setting, such as a template, is cut. */
    snprintf(out->text, LONGEST_VALUE, "%.*s", (int)(stop - from), from);
    if (!quote && out->text[0] && strchr("%@`", out->text[0]))
        return broken(r, "this part of YAML is not read");
    return 0;
}

/* [a, b] loses its brackets and blanks; {} is nothing. */
static int flatten(const struct reader *r, struct value *v)
{
    char *value = v->text;
    size_t length = strlen(value);
    if (v->quoted)
        return 0;
    if (!strcmp(value, "{}") || !strcmp(value, "~") || !strcmp(value, "null"))
        value[0] = 0;
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

static int add_pair(struct reader *r, const char *key, const char *value)
{
    if (r->out->count >= MOST_PAIRS)
        return broken(r, "there are too many keys");
    pairs_add(r->out, r->arena, key, value, r->line);
    return 0;
}

/* ---- tables in braces ---- */

/* Past a key or a value of one: up to a comma, a closing brace, or (of a key) a colon, that stands in no quotes or brackets. */
static const char *piece_end(const char *at, const char *end, bool key)
{
    for (int open = 0; at < end; at++) {
        if (*at == '"' || *at == '\'') {
            const char *behind = quote_end(at + 1, end, *at);
            at = behind ? behind - 1 : end - 1;
            continue;
        }
        if (!open && (strchr(",}", *at) || (key && *at == ':')))
            return at;
        open += (strchr("[{", *at) != NULL) - (strchr("]}", *at) != NULL);
    }
    return end;
}

static int read_table(struct reader *r, const char *prefix, const char *from, const char *end, int depth);

static int read_entry(struct reader *r, const char *prefix, const char *from, const char *colon,
                      const char *stop, int depth)
{
    struct value key, value;
    char whole[LONGEST_KEY];
    if (clean_value(r, from, colon, &key) || clean_value(r, colon + 1, stop, &value) || flatten(r, &value))
        return -1;
    if (snprintf(whole, sizeof whole, "%s.%s", prefix, key.text) >= LONGEST_KEY - 1)
        return broken(r, "a key is too long");
    if (value.text[0] != '{' || value.quoted)
        return add_pair(r, whole, value.text);
    return add_pair(r, whole, "") ||
                   read_table(r, whole, value.text, value.text + strlen(value.text), depth + 1)
               ? -1
               : 0;
}

/* "{a: 1, b: {c: d}}": its keys behind that of the whole. */
static int read_table(struct reader *r, const char *prefix, const char *from, const char *end, int depth)
{
    if (depth == DEEPEST)
        return broken(r, "keys are nested too deep");
    if (end - from < 2 || end[-1] != '}')
        return broken(r, "a table in braces is not closed on its line");
    end--;
    for (const char *at = from + 1; at < end;) {
        const char *colon = piece_end(at, end, true);
        const char *stop = colon < end && *colon == ':' ? piece_end(colon + 1, end, false) : colon;
        bool blank = true;
        for (const char *c = at; c < stop; c++)
            blank = blank && isspace((unsigned char)*c);
        if (!blank && colon == stop)
            return broken(r, "a key in braces has no value");
        if (!blank && read_entry(r, prefix, at, colon, stop, depth))
            return -1;
        at = stop + 1;
    }
    return 0;
}

/* ---- names for what stands elsewhere ---- */

static int add_anchor(struct reader *r, const char *name, const char *key)
{
    if (r->anchor_count == MOST_ANCHORS)
        return broken(r, "there are too many anchors");
    r->anchors[r->anchor_count++] =
        (struct anchor){arena_strdup(r->arena, name), arena_strdup(r->arena, key)};
    return 0;
}

/* What stands at an anchor, under another key; "": under those around it, where they have none of their own. */
static int copy_anchor(struct reader *r, const char *name, const char *key)
{
    const char *from = NULL;
    for (int i = 0; i < r->anchor_count; i++)
        from = strcmp(r->anchors[i].name, name) ? from : r->anchors[i].key;
    if (!from)
        return broken(r, "a * names what stands nowhere before it");
    size_t length = strlen(from);
    for (int i = 0, count = r->out->count; i < count; i++) {
        const struct pair p = r->out->list[i];
        bool itself = !p.key[length], below = p.key[length] == '.';
        if (strncmp(p.key, from, length) || !(below || (itself && *key)))
            continue;
        const char *rest = p.key + length + (below && !*key);
        const char *whole = arena_printf(r->arena, "%s%s", *key ? key : r->prefix, rest);
        if (strlen(whole) >= LONGEST_KEY - 1)
            return broken(r, "a key is too long");
        if ((*key || !pairs_find(r->out, whole)) && add_pair(r, whole, p.value))
            return -1;
    }
    return 0;
}

/* ---- lines ---- */

/* "- value" belongs to the key before it. */
static int add_item(struct reader *r, const char *from, const char *end)
{
    struct value v;
    const char *value = v.text;
    if (!r->out->count)
        return broken(r, "a list has no key");
    if (clean_value(r, from + 1, end, &v) || flatten(r, &v))
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
    char key[LONGEST_KEY];
    struct value value;
    const char *colon = from;
    while (colon < end && !(*colon == ':' && (colon + 1 == end || isspace((unsigned char)colon[1]))))
        colon++;
    bool goes_on = r->out->count && indent > r->last_indent && *r->out->list[r->out->count - 1].value;
    if (colon == end && goes_on)
        return 0; /* a text of several lines, without quotes */
    if (colon == end || colon == from)
        return broken(r, "no key with a colon");
    if (find_level(r, indent))
        return -1;
    bool quoted = (*from == '"' || *from == '\'') && colon - from > 2 && colon[-1] == *from;
    int length =
        snprintf(key, sizeof key, "%s%.*s", r->prefix, (int)(colon - from) - 2 * quoted, from + quoted);
    if (length >= LONGEST_KEY - 1)
        return broken(r, "a key is too long");
    if (clean_value(r, colon + 1, end, &value) || flatten(r, &value))
        return -1;
    r->last_indent = indent;
    r->text_indent = -1;
    if (!strncmp(from, "<<", 2) && colon - from == 2)
        return copy_anchor(r, value.alias, "");
    if (*value.alias)
        return copy_anchor(r, value.alias, key);
    bool table = !value.quoted && value.text[0] == '{';
    if ((*value.anchor && add_anchor(r, value.anchor, key)) || add_pair(r, key, table ? "" : value.text))
        return -1;
    if (table && read_table(r, key, value.text, value.text + strlen(value.text), 0))
        return -1;
    snprintf(r->prefix, sizeof r->prefix, "%s.", key);
    r->levels[r->depth++] = (struct level){indent, strlen(r->prefix)};
    r->text_indent = !value.quoted && strchr("|>", value.text[0]) && value.text[0] ? indent : -1;
    return 0;
}

static int read_line(struct reader *r, const char *from, const char *end)
{
    const char *at = from;
    if (r->open_quote) {
        r->open_quote = quote_end(from, end, r->open_quote) ? 0 : r->open_quote;
        return 0;
    }
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
    return r.open_quote ? broken(&r, "a quote is not closed") : 0;
}
