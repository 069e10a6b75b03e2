#include "jobs/shell_expand.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { DEEPEST = 40, LONGEST_PATTERN = 64, LONGEST_TRIMMED = 512 };

/* ---- where constructs end ---- */

static const char *skip_to(const char *at, const char *end, char closer, int depth)
{
    while (at && at < end && *at != closer)
        at = shell_skip(at, end, depth + 1);
    return at && at < end ? at + 1 : NULL;
}

/* Past the ")" that closes what was opened before `at`. */
static const char *skip_parentheses(const char *at, const char *end, int depth)
{
    for (int open = 1; at && at < end;) {
        char c = *at;
        open += (c == '(') - (c == ')');
        if (!open)
            return at + 1;
        at = c == '(' || c == ')' ? at + 1 : shell_skip(at, end, depth + 1);
    }
    return NULL;
}

const char *shell_skip(const char *at, const char *end, int depth)
{
    if (depth > DEEPEST)
        return NULL;
    if (*at == '\\')
        return at + 1 < end ? at + 2 : end;
    if (*at == '\'') {
        const char *close = memchr(at + 1, '\'', (size_t)(end - at - 1));
        return close ? close + 1 : NULL;
    }
    if (*at == '"' || *at == '`') {
        const char *in = at + 1;
        /* Between double quotes a ' is a character like any other. */
        while (in && in < end && *in != *at)
            in = *in == '\'' ? in + 1 : shell_skip(in, end, depth + 1);
        return in && in < end ? in + 1 : NULL;
    }
    if (*at == '$' && at + 1 < end && at[1] == '(')
        return skip_parentheses(at + 2, end, depth);
    if (*at == '$' && at + 1 < end && at[1] == '{')
        return skip_to(at + 2, end, '}', depth);
    return at + 1;
}

size_t shell_name_length(const char *at, const char *end)
{
    const char *p = at;
    if (p < end && (isalpha((unsigned char)*p) || *p == '_'))
        while (p < end && (isalnum((unsigned char)*p) || *p == '_'))
            p++;
    return (size_t)(p - at);
}

/* ---- expansion ---- */

/* One expansion at work: the source and where what it gives goes. */
struct expansion {
    struct scope *scope;
    enum shell_mode mode;
    int depth;
    struct glyphs *out;
    struct error *err;
};

static bool quoted(const struct expansion *e)
{
    return e->mode != SHELL_WORD;
}

static int add_values(const struct expansion *e, const struct glyphs *values, int count, bool separate,
                      int line)
{
    for (int i = 0; i < count; i++) {
        int first = e->out->count;
        if (i && shell_add_character(e->scope, ' ',
                                     separate && quoted(e) ? GLYPH_BREAK
                                     : quoted(e)           ? GLYPH_QUOTED
                                                           : 0,
                                     line, e->out, e->err))
            return -1;
        first += i != 0;
        if (shell_glyphs_add(e->scope, e->out, values[i].list, values[i].count, e->err))
            return -1;
        for (int g = first; g < e->out->count; g++)
            e->out->list[g].flags = (unsigned char)(quoted(e) || e->out->list[g].unknown ? GLYPH_QUOTED : 0);
        if (quoted(e) && separate && !values[i].count &&
            shell_add_character(e->scope, 0, GLYPH_EMPTY, line, e->out, e->err))
            return -1;
    }
    return 0;
}

static int add_text(const struct expansion *e, const char *text, int line)
{
    for (; *text; text++)
        if (shell_add_character(e->scope, *text, quoted(e) ? GLYPH_QUOTED : 0, line, e->out, e->err))
            return -1;
    return 0;
}

/* $1, $2 ...; $@ and $* are all of them; $# how many. */
static int add_arguments(const struct expansion *e, const char *name, int line)
{
    struct scope *s = e->scope;
    if (*name == '0')
        return add_text(e, s->files[0], line);
    if (s->argument_count == SHELL_UNKNOWN_ARGUMENTS) {
        const char *text = arena_printf(s->arena, "$%c", *name);
        return shell_add_unknown(s, text, text + 2, line,
                                 "it is an argument of a function that nothing calls", NULL, e->out, e->err);
    }
    if (*name == '#')
        return add_text(e, arena_printf(s->arena, "%d", s->argument_count), line);
    if (*name == '@' || *name == '*')
        return add_values(e, s->arguments, s->argument_count, *name == '@', line);
    int number = *name - '1';
    return number >= 0 && number < s->argument_count ? add_values(e, s->arguments + number, 1, false, line)
                                                     : 0;
}

static int add_unset(const struct expansion *e, const char *name, size_t length, const char *from,
                     const char *end, int line)
{
    struct scope *s = e->scope;
    const char *kept = arena_printf(s->arena, "%.*s", (int)length, name);
    return shell_add_unknown(s, from, end, line,
                             arena_printf(s->arena, "$%s is set nowhere in the script", kept), kept, e->out,
                             e->err);
}

static int not_evaluated(const struct expansion *e, const char *from, const char *end, int line)
{
    int shown = end - from > 60 ? 60 : (int)(end - from);
    return shell_add_unknown(e->scope, from, end, line,
                             arena_printf(e->scope->arena, "%.*s is not executed", shown, from), NULL, e->out,
                             e->err);
}

/* Whether `text` (of known characters) matches; patterns that could take long are not tried. */
static bool plain_text(const struct glyphs *g, char *out, int room)
{
    if (g->count >= room)
        return false;
    for (int i = 0; i < g->count; i++) {
        if (g->list[i].unknown)
            return false;
        out[i] = (char)g->list[i].character;
    }
    out[g->count] = 0;
    return true;
}

/* How many of `length` characters ${NAME#pattern} and its kin take away: -1 when that is not to be known. */
static int trimmed(const char *text, int length, const char *pattern, bool front, bool longest)
{
    int stars = 0;
    for (const char *p = pattern; *p; p++)
        stars += *p == '*';
    if (stars > 2)
        return -1;
    char piece[LONGEST_TRIMMED];
    for (int i = 0; i <= length; i++) {
        int taken = longest ? length - i : i;
        snprintf(piece, sizeof piece, "%.*s", taken, front ? text : text + length - taken);
        if (!fnmatch(pattern, piece, 0))
            return taken;
    }
    return 0;
}

/* ${NAME#word}, ##, %, %%; *done says whether it could be. */
static int add_trimmed(const struct expansion *e, const struct glyphs *value, const char *op, const char *end,
                       int line, bool *done)
{
    char text[LONGEST_TRIMMED], pattern[LONGEST_PATTERN];
    bool front = *op == '#', longest = op + 1 < end && op[1] == *op;
    struct glyphs raw = {0};
    if (shell_expand(e->scope, op + 1 + longest, end, line, SHELL_WORD, e->depth + 1, &raw, e->err))
        return -1;
    e->scope->budget -= LONGEST_TRIMMED;
    if (!plain_text(value, text, sizeof text) || !plain_text(&raw, pattern, sizeof pattern))
        return 0;
    int taken = trimmed(text, value->count, pattern, front, longest);
    *done = taken >= 0;
    if (!*done)
        return 0;
    struct glyphs rest = {value->list + (front ? taken : 0), value->count - taken, 0};
    return add_values(e, &rest, 1, false, line);
}

/* :- - := = :+ + :? ?: whether the word behind them is used instead of the value, is in `op`. */
static int add_alternative(const struct expansion *e, const char *op, const char *end, int line)
{
    return shell_expand(e->scope, op, end, line, e->mode == SHELL_HERE ? SHELL_DOUBLE : e->mode, e->depth + 1,
                        e->out, e->err);
}

struct parameter {
    const char *name, *op, *from, *end; /* op: behind the name; end: the closing brace, or behind it all */
    size_t length;
    const struct glyphs *values; /* NULL: unset */
    int count, line;
    bool separate, special;
};

static int add_parameter(const struct expansion *e, const struct parameter *p)
{
    if (p->special)
        return add_arguments(e, p->name, p->line);
    if (!p->values)
        return add_unset(e, p->name, p->length, p->from, p->end + (p->from[1] == '{'), p->line);
    return add_values(e, p->values, p->count, p->separate, p->line);
}

static bool is_empty(const struct expansion *e, const struct parameter *p)
{
    if (p->special)
        return !(*p->name == '#' ||
                 (isdigit((unsigned char)*p->name) ? *p->name - '0' <= e->scope->argument_count
                                                   : e->scope->argument_count > 0) ||
                 e->scope->argument_count == SHELL_UNKNOWN_ARGUMENTS);
    return p->count == 0 || (p->count == 1 && p->values[0].count == 0);
}

/* ${NAME:=value} gives the variable that value, too. */
static int assign_default(const struct expansion *e, const struct parameter *p, const char *value)
{
    int first = e->out->count;
    struct glyphs text = {0};
    if (add_alternative(e, value, p->end, p->line))
        return -1;
    struct variable *v = p->special ? NULL : shell_declare(e->scope, p->name, p->length, e->err);
    if (!v)
        return p->special ? 0 : -1;
    int count = e->out->count - first;
    if (count && shell_glyphs_add(e->scope, &text, e->out->list + first, count, e->err))
        return -1;
    for (int i = 0; i < text.count; i++)
        text.list[i].flags = 0;
    *v = (struct variable){.name = v->name, .fixed = v->fixed};
    shell_append_value(e->scope, v, text);
    return 0;
}

static int add_operated(const struct expansion *e, const struct parameter *p)
{
    const char *op = p->op;
    bool colon = *op == ':' && op + 1 < p->end && strchr("-=+?", op[1]);
    op += colon;
    bool unset = p->special ? is_empty(e, p) : !p->values;
    bool absent = unset || (colon && is_empty(e, p));
    bool done = false;
    switch (*op) {
    case '-':
    case '=':
    case '?':
        if (!absent)
            return add_parameter(e, p);
        if (*op == '?')
            return add_unset(e, p->name, p->length, p->from, p->end + 1, p->line);
        return *op == '=' ? assign_default(e, p, op + 1) : add_alternative(e, op + 1, p->end, p->line);
    case '+':
        return absent ? 0 : add_alternative(e, op + 1, p->end, p->line);
    case '#':
    case '%':
        if (unset)
            return add_unset(e, p->name, p->length, p->from, p->end + 1, p->line);
        if (p->count == 1 && add_trimmed(e, &p->values[0], op, p->end, p->line, &done))
            return -1;
        return done ? 0 : not_evaluated(e, p->from, p->end + 1, p->line);
    default:
        return not_evaluated(e, p->from, p->end + 1, p->line);
    }
}

/* [@], [*] or [number] behind an array's name; p->op moves behind it. False: another subscript. */
static bool read_subscript(struct parameter *p)
{
    const char *close = memchr(p->op, ']', (size_t)(p->end - p->op));
    if (!close)
        return false;
    const char *in = p->op + 1;
    p->op = close + 1;
    if (close - in == 1 && (*in == '@' || *in == '*')) {
        p->separate = *in == '@';
        return true;
    }
    int index = 0;
    for (const char *d = in; d < close; d++) {
        if (!isdigit((unsigned char)*d) || index > 100000)
            return false;
        index = index * 10 + (*d - '0');
    }
    if (in == close)
        return false;
    if (p->values && index < p->count) {
        p->values += index;
        p->count = 1;
    } else {
        p->values = NULL;
    }
    return true;
}

static int count_of(const struct expansion *e, const struct parameter *p, bool subscripted)
{
    int count = subscripted ? p->count : p->values ? p->values[0].count : 0;
    if (!p->values)
        return add_unset(e, p->name, p->length, p->from, p->end + 1, p->line);
    return add_text(e, arena_printf(e->scope->arena, "%d", count), p->line);
}

/* ${...}: `from` is at the dollar, `end` behind the closing brace. */
static int add_braced(const struct expansion *e, const char *from, const char *end, int line)
{
    struct parameter p = {.from = from, .end = end - 1, .line = line, .name = from + 2};
    bool length = *p.name == '#' && p.name + 1 < p.end;
    p.name += length;
    p.length = shell_name_length(p.name, p.end);
    p.special = !p.length && p.name < p.end && strchr("@*#0123456789", *p.name);
    if (!p.length && !p.special)
        return not_evaluated(e, from, end, line);
    p.op = p.name + (p.special ? 1 : p.length);
    const struct variable *v = p.length ? shell_find(e->scope, p.name, p.length) : NULL;
    p.values = v && v->count ? v->values : NULL;
    p.count = v ? v->count : 0;
    bool subscripted = p.op < p.end && *p.op == '[';
    if (subscripted && !read_subscript(&p))
        return not_evaluated(e, from, end, line);
    if (v && v->array && !v->count && subscripted && p.op == p.end)
        return length ? add_text(e, "0", line) : 0;
    if (!subscripted && p.count > 1)
        p.count = 1;
    if (length)
        return p.op == p.end && !p.special ? count_of(e, &p, subscripted) : not_evaluated(e, from, end, line);
    return p.op == p.end ? add_parameter(e, &p) : add_operated(e, &p);
}

static int add_arithmetic(const struct expansion *e, const char *from, const char *end, int line)
{
    int64_t value;
    if (shell_arithmetic(e->scope, from + 3, end - 2, &value))
        return add_text(e, arena_printf(e->scope->arena, "%lld", (long long)value), line);
    /* Of an unknown part of it, the first that has a name is what to ask for. */
    for (const char *at = from + 3; at < end - 2; at++) {
        size_t length = shell_name_length(at, end - 2);
        const struct variable *v = length ? shell_find(e->scope, at, length) : NULL;
        if (length && !v)
            return add_unset(e, at, length, from, end, line);
        if (v && v->count && v->values[0].count && v->values[0].list[0].unknown) {
            const struct unknown *u = &e->scope->unknowns[v->values[0].list[0].unknown - 1];
            return shell_add_unknown(e->scope, from, end, line, u->why, u->name, e->out, e->err);
        }
        at += length ? length - 1 : 0;
    }
    return not_evaluated(e, from, end, line);
}

/* Takes `piece` out of a text wherever it stands. */
static void take_out(char *text, const char *piece)
{
    size_t length = strlen(piece);
    for (char *at = text; (at = strstr(at, piece));)
        memmove(at, at + length, strlen(at + length) + 1);
}

/* $(...) that only asks where the script is, as scripts do to find their files; NULL: it asks for more. */
static const char *place_asked_for(const struct expansion *e, const char *from, const char *end)
{
    static const char *const ways[] = {"dirname%s", "cd$(dirname%s)&&pwd", "dirname$(%s)",
                                       "cd$(dirname$(%s))&&pwd"};
    static const char *const selves[] = {"$0", "${0}", "${BASH_SOURCE[0]}", "${BASH_SOURCE}", "$BASH_SOURCE"};
    static const char *const noise[] = {"&>/dev/null", ">/dev/null2>&1", "2>/dev/null", ">/dev/null",
                                        "--",          "readlink-f",     "realpath",    "-P"};
    enum { LONGEST = 160 };
    char plain[LONGEST], self[LONGEST];
    size_t length = 0;
    for (const char *c = from + 2; c < end - 1; c++) {
        if (isspace((unsigned char)*c) || *c == '"')
            continue;
        if (length == sizeof plain - 1)
            return NULL;
        plain[length++] = *c;
    }
    plain[length] = 0;
    for (size_t i = 0; i < sizeof noise / sizeof noise[0]; i++)
        take_out(plain, noise[i]);
    if (!strcmp(plain, "pwd"))
        return ".";
    for (size_t i = 0; i < sizeof ways / sizeof ways[0] * (sizeof selves / sizeof selves[0]); i++) {
        const char *way = ways[i % (sizeof ways / sizeof ways[0])],
                   *own = selves[i / (sizeof ways / sizeof ways[0])];
        const char *file = strchr(own, 'B') ? e->scope->file : e->scope->files[0],
                   *slash = strrchr(file, '/');
        snprintf(self, sizeof self, "%.*s%s%s", (int)(strchr(way, '%') - way), way, own,
                 strchr(way, '%') + 2);
        if (!strcmp(plain, self))
            return slash ? arena_printf(e->scope->arena, "%.*s", (int)(slash - file), file) : ".";
    }
    return NULL;
}

/* At a dollar; *next is behind what it begins. */
static int add_dollar(const struct expansion *e, const char *at, const char *end, int line, const char **next)
{
    const char *close = shell_skip(at, end, 0);
    if (!close)
        return error_set(e->err, "%s:%d: %.20s is not closed; correct the script",
                         shell_file_of(e->scope, line), shell_line_in_file(line), at);
    *next = close;
    if (close - at >= 5 && !strncmp(at, "$((", 3) && close[-2] == ')')
        return add_arithmetic(e, at, close, line);
    const char *place = at + 1 < end && at[1] == '(' ? place_asked_for(e, at, close) : NULL;
    if (place)
        return add_text(e, place, line);
    if (at + 1 < end && at[1] == '(')
        return not_evaluated(e, at, close, line);
    if (at + 1 < end && at[1] == '{')
        return add_braced(e, at, close, line);
    struct parameter p = {.from = at, .name = at + 1, .line = line};
    p.length = shell_name_length(p.name, end);
    p.special = !p.length && at + 1 < end && strchr("@*#0123456789", at[1]);
    p.op = p.end = *next = p.name + (p.special ? 1 : p.length);
    const struct variable *v = p.length ? shell_find(e->scope, p.name, p.length) : NULL;
    p.values = v && v->count ? v->values : NULL;
    p.count = p.values ? 1 : 0;
    if (p.length || p.special)
        return add_parameter(e, &p);
    *next = at + 1;
    if (at + 1 < end && strchr("?$!-", at[1])) {
        *next = at + 2;
        return not_evaluated(e, at, at + 2, line);
    }
    return shell_add_character(e->scope, '$', quoted(e) ? GLYPH_QUOTED : 0, line, e->out, e->err);
}

static int add_escape(const struct expansion *e, const char *at, const char *end, int line, const char **next)
{
    if (at + 1 == end) {
        *next = end;
        return shell_add_character(e->scope, '\\', GLYPH_QUOTED, line, e->out, e->err);
    }
    *next = at + 2;
    if (at[1] == '\n')
        return 0;
    bool kept = quoted(e) && !strchr(e->mode == SHELL_HERE ? "$`\\" : "$`\\\"", at[1]);
    if (kept && shell_add_character(e->scope, '\\', GLYPH_QUOTED, line, e->out, e->err))
        return -1;
    return shell_add_character(e->scope, at[1], GLYPH_QUOTED, line, e->out, e->err);
}

static int add_quotes(const struct expansion *e, const char *at, const char *close, int line)
{
    int before = e->out->count;
    if (*at == '"') {
        if (shell_expand(e->scope, at + 1, close - 1, line, SHELL_DOUBLE, e->depth + 1, e->out, e->err))
            return -1;
    } else {
        for (const char *p = at + 1; p < close - 1; p++) {
            if (shell_add_character(e->scope, *p, GLYPH_QUOTED, line, e->out, e->err))
                return -1;
            line += *p == '\n';
        }
    }
    /* "$@" of nothing is nothing; "" is an empty word. */
    bool list = close - at >= 4 && at[1] == '$' && memchr(at, '@', (size_t)(close - at));
    if (e->out->count == before && !list)
        return shell_add_character(e->scope, 0, GLYPH_EMPTY, line, e->out, e->err);
    return 0;
}

/* One construct at `at`. */
static int add_piece(const struct expansion *e, const char *at, const char *end, int line, const char **next)
{
    if (*at == '\\')
        return add_escape(e, at, end, line, next);
    if (*at == '$')
        return add_dollar(e, at, end, line, next);
    bool opens = *at == '`' || (!quoted(e) && (*at == '\'' || *at == '"'));
    if (!opens) {
        *next = at + 1;
        return shell_add_character(e->scope, *at, quoted(e) ? GLYPH_QUOTED : 0, line, e->out, e->err);
    }
    *next = shell_skip(at, end, 0);
    if (!*next)
        return error_set(e->err, "%s:%d: a %c is not closed; correct the script",
                         shell_file_of(e->scope, line), shell_line_in_file(line), *at);
    return *at == '`' ? not_evaluated(e, at, *next, line) : add_quotes(e, at, *next, line);
}

int shell_expand(struct scope *scope, const char *from, const char *end, int line, enum shell_mode mode,
                 int depth, struct glyphs *out, struct error *err)
{
    struct expansion e = {scope, mode, depth, out, err};
    if (depth > DEEPEST)
        return error_set(err, "%s:%d: nested more than %d deep; correct the script",
                         shell_file_of(scope, line), shell_line_in_file(line), DEEPEST);
    for (const char *at = from, *next = end; at < end; at = next) {
        if (add_piece(&e, at, end, line, &next))
            return -1;
        for (const char *p = at; p < next; p++)
            line += *p == '\n';
    }
    return 0;
}
