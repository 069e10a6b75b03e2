#include "jobs/toml.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { DEEPEST = 32, MOST_PAIRS = 4000, LONGEST_KEY = 400 };

struct reader {
    const char *at, *end;
    int line;
    struct arena *arena;
    struct pairs *out;
    char table[LONGEST_KEY]; /* "a.b." of the [a.b] that we are in */
    struct error *err;
};

static int broken(struct reader *r, const char *what)
{
    return error_set(r->err, "%s:%d: %s; correct this line", r->out->file, r->line, what);
}

static bool more(const struct reader *r)
{
    return r->at < r->end;
}

static void skip_blanks(struct reader *r)
{
    while (more(r) && (*r->at == ' ' || *r->at == '\t'))
        r->at++;
}

/* Blanks, comments and line ends, which may stand between the values of a list. */
static void skip_lines(struct reader *r)
{
    for (;;) {
        skip_blanks(r);
        if (more(r) && *r->at == '#')
            while (more(r) && *r->at != '\n')
                r->at++;
        if (!more(r) || (*r->at != '\n' && *r->at != '\r'))
            return;
        r->line += *r->at++ == '\n';
    }
}

static int end_line(struct reader *r)
{
    skip_blanks(r);
    if (more(r) && *r->at != '\n' && *r->at != '\r' && *r->at != '#')
        return broken(r, "something follows the value");
    return 0;
}

/* ---- strings ---- */

static bool take(struct reader *r, const char *piece)
{
    size_t length = strlen(piece);
    if ((size_t)(r->end - r->at) < length || strncmp(r->at, piece, length))
        return false;
    r->at += length;
    return true;
}

static void add_character(struct text *out, unsigned code)
{
    char bytes[5] = "";
    if (code < 0x80)
        snprintf(bytes, sizeof bytes, "%c", (int)code);
    else if (code < 0x800)
        snprintf(bytes, sizeof bytes, "%c%c", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 63)));
    else if (code < 0x10000)
        snprintf(bytes, sizeof bytes, "%c%c%c", (int)(0xe0 | code >> 12), (int)(0x80 | (code >> 6 & 63)),
                 (int)(0x80 | (code & 63)));
    else
        snprintf(bytes, sizeof bytes, "%c%c%c%c", (int)(0xf0 | code >> 18), (int)(0x80 | (code >> 12 & 63)),
                 (int)(0x80 | (code >> 6 & 63)), (int)(0x80 | (code & 63)));
    text_add(out, bytes);
}

static int read_code(struct reader *r, int digits, struct text *out)
{
    unsigned code = 0;
    for (int i = 0; i < digits; i++) {
        if (!more(r) || !isxdigit((unsigned char)*r->at))
            return broken(r, "\\u wants four hexadecimal digits, \\U eight");
        int c = tolower((unsigned char)*r->at++);
        code = code * 16 + (unsigned)(isdigit(c) ? c - '0' : c - 'a' + 10);
    }
    if (!code || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return broken(r, "\\u names no character");
    add_character(out, code);
    return 0;
}

static int read_escape(struct reader *r, bool lines, struct text *out)
{
    static const char from[] = "btnfre\"\\", to[] = "\b\t\n\f\r\033\"\\";
    char c = more(r) ? *r->at++ : 0;
    const char *found = c ? strchr(from, c) : NULL;
    if (found) {
        text_printf(out, "%c", to[found - from]);
        return 0;
    }
    if (c == 'u' || c == 'U')
        return read_code(r, c == 'u' ? 4 : 8, out);
    if (lines && (c == '\n' || c == ' ' || c == '\r' || c == '\t')) {
        r->at--;
        while (more(r) && isspace((unsigned char)*r->at))
            r->line += *r->at++ == '\n';
        return 0;
    }
    return broken(r, "a \\ begins no known escape");
}

/* At a quote; appends what it holds. */
static int read_string(struct reader *r, struct text *out)
{
    char quote = *r->at, triple[4] = {quote, quote, quote, 0}, one[2] = {quote, 0};
    bool lines = take(r, triple);
    const char *closer = lines ? triple : one;
    if (!lines)
        r->at++;
    else if (more(r) && *r->at == '\n')
        r->line += *r->at++ == '\n';
    while (!take(r, closer)) {
        if (!more(r) || (*r->at == '\n' && !lines))
            return broken(r, "a string is not closed");
        char c = *r->at;
        if (!c)
            return broken(r, "a zero byte stands in a string");
        r->line += c == '\n';
        r->at++;
        if (c == '\\' && quote == '"') {
            if (read_escape(r, lines, out))
                return -1;
        } else {
            char piece[2] = {c, 0};
            text_add(out, piece);
        }
    }
    return 0;
}

/* ---- keys ---- */

static bool is_bare(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

static int read_key_part(struct reader *r, struct text *out)
{
    if (more(r) && (*r->at == '"' || *r->at == '\'')) {
        if (r->end - r->at >= 3 && r->at[1] == *r->at && r->at[2] == *r->at)
            return broken(r, "a key is no string of several lines");
        return read_string(r, out);
    }
    const char *from = r->at;
    while (more(r) && is_bare(*r->at))
        r->at++;
    if (r->at == from)
        return broken(r, "a key is missing");
    text_printf(out, "%.*s", (int)(r->at - from), from);
    return 0;
}

/* "a.b" joined by dots. */
static int read_key(struct reader *r, struct text *out)
{
    for (;;) {
        skip_blanks(r);
        if (read_key_part(r, out))
            return -1;
        skip_blanks(r);
        if (out->length >= LONGEST_KEY / 2)
            return broken(r, "a key is too long");
        if (!more(r) || *r->at != '.')
            return 0;
        r->at++;
        text_add(out, ".");
    }
}

/* ---- values ---- */

static int read_value(struct reader *r, const char *key, int depth, struct text *list);

static int add_pair(struct reader *r, const char *key, const char *value)
{
    if (r->out->count >= MOST_PAIRS)
        return broken(r, "there are too many keys");
    if (pairs_find(r->out, key)) {
        char what[120];
        snprintf(what, sizeof what, "the key %.60s is given twice", key);
        return broken(r, what);
    }
    pairs_add(r->out, r->arena, key, value, r->line);
    return 0;
}

/* A number, a boolean or a date: checked by whoever wants one of them. */
static int read_plain(struct reader *r, struct text *out)
{
    const char *from = r->at;
    while (more(r) && (is_bare(*r->at) || strchr("+.:", *r->at)) && *r->at)
        r->at++;
    bool known =
        r->at > from && (isdigit((unsigned char)*from) || strchr("+-", *from) ||
                         (r->at - from == 4 && !strncmp(from, "true", 4)) ||
                         (r->at - from == 5 && !strncmp(from, "false", 5)) ||
                         (r->at - from == 3 && (!strncmp(from, "inf", 3) || !strncmp(from, "nan", 3))));
    if (!known)
        return broken(r, "the value is no string, number, true, false, list or table");
    text_printf(out, "%.*s", (int)(r->at - from), from);
    return 0;
}

static int read_list(struct reader *r, int depth, struct text *out)
{
    r->at++;
    for (bool first = true;; first = false) {
        skip_lines(r);
        if (more(r) && *r->at == ']') {
            r->at++;
            return 0;
        }
        if (!first) {
            if (!more(r) || *r->at != ',')
                return broken(r, "a list wants , or ]");
            r->at++;
            skip_lines(r);
            if (more(r) && *r->at == ']') {
                r->at++;
                return 0;
            }
            text_add(out, more(r) && *r->at == '[' ? ";" : ",");
        }
        if (read_value(r, NULL, depth + 1, out))
            return -1;
    }
}

/* { a = 1, b = 2 }: its keys go below `key`; in a list they are passed over. */
static int read_inline_table(struct reader *r, const char *key, int depth)
{
    r->at++;
    for (bool first = true;; first = false) {
        struct text name = {0};
        skip_blanks(r);
        if (more(r) && *r->at == '}') {
            r->at++;
            return 0;
        }
        if (!first && !take(r, ","))
            return broken(r, "a table wants , or }");
        if (key)
            text_printf(&name, "%s.", key);
        int status = read_key(r, &name);
        if (!status && !take(r, "="))
            status = broken(r, "a key wants =");
        struct text passed = {0};
        if (!status)
            status = read_value(r, key ? name.data : NULL, depth + 1, &passed);
        text_free(&passed);
        text_free(&name);
        if (status)
            return -1;
    }
}

/* Of `key`; or, in a list (NULL), appended to `list`. */
static int read_value(struct reader *r, const char *key, int depth, struct text *list)
{
    struct text value = {0};
    int status;
    skip_blanks(r);
    if (depth > DEEPEST)
        return broken(r, "lists or tables are nested too deep");
    if (!more(r))
        return broken(r, "a value is missing");
    if (*r->at == '{')
        return read_inline_table(r, key, depth);
    if (*r->at == '"' || *r->at == '\'')
        status = read_string(r, &value);
    else if (*r->at == '[')
        status = read_list(r, depth, &value);
    else
        status = read_plain(r, &value);
    if (!status && key)
        status = add_pair(r, key, value.data ? value.data : "");
    else if (!status)
        text_add(list, value.data ? value.data : "");
    text_free(&value);
    return status;
}

/* ---- lines ---- */

/* How many tables of that list there were. */
static int count_tables(const struct reader *r, const char *name)
{
    int count = 0;
    char key[LONGEST_KEY];
    for (;; count++) {
        snprintf(key, sizeof key, "[[%.*s.%d]]", LONGEST_KEY / 2, name, count);
        if (!pairs_find(r->out, key))
            return count;
    }
}

/* [a.b] or [[a.b]] */
static int read_table(struct reader *r)
{
    bool list = take(r, "[[");
    struct text name = {0};
    if (!list)
        r->at++;
    int status = read_key(r, &name);
    if (!status && !take(r, list ? "]]" : "]"))
        status = broken(r, "the name of a table is not closed");
    if (!status && list) {
        int place = count_tables(r, name.data);
        char mark[LONGEST_KEY];
        snprintf(mark, sizeof mark, "[[%.*s.%d]]", LONGEST_KEY / 2, name.data, place);
        snprintf(r->table, sizeof r->table, "%.*s.%d.", LONGEST_KEY / 2, name.data, place);
        status = add_pair(r, mark, "");
    } else if (!status) {
        snprintf(r->table, sizeof r->table, "%.*s.", LONGEST_KEY / 2, name.data);
    }
    text_free(&name);
    return status;
}

static int read_pair(struct reader *r)
{
    struct text key = {0};
    text_add(&key, r->table);
    int status = read_key(r, &key);
    if (!status && !take(r, "="))
        status = broken(r, "a key wants = and a value");
    if (!status)
        status = read_value(r, key.data, 0, NULL);
    text_free(&key);
    return status;
}

int toml_read(const char *text, size_t length, struct arena *arena, struct pairs *out, struct error *err)
{
    struct reader r = {text, text + length, 1, arena, out, "", err};
    take(&r, "\xef\xbb\xbf");
    for (skip_lines(&r); more(&r); skip_lines(&r))
        if ((*r.at == '[' ? read_table(&r) : read_pair(&r)) || end_line(&r))
            return -1;
    /* The marks of [[lists]] are ours. */
    int kept = 0;
    for (int i = 0; i < out->count; i++)
        if (out->list[i].key[0] != '[')
            out->list[kept++] = out->list[i];
    out->count = kept;
    return 0;
}
