/* Conditions of `if`, and subjects of `case`: where all of one is known it is decided, so that the branches that do not run are
 * passed over, and the one that does is read as if it stood alone. In loops, and in functions before they are called, nothing
 * is decided: what is known there may be otherwise the next time. */
#include "jobs/shell_parse.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

static enum shell_truth truth_of(bool value)
{
    return value ? SHELL_TRUE : SHELL_FALSE;
}

static bool is_number(const char *text, long long *out)
{
    char *end;
    *out = strtoll(text, &end, 10);
    return *text && !*end;
}

static enum shell_truth compare_numbers(const char *a, const char *operation, const char *b)
{
    static const char *const names[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
    long long x, y;
    if (!is_number(a, &x) || !is_number(b, &y))
        return SHELL_UNDECIDED;
    const bool values[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(operation, names[i]))
            return truth_of(values[i]);
    return SHELL_UNDECIDED;
}

/* On the right of == in [[ ]] stands a pattern. */
static enum shell_truth compare(const char *a, const char *operation, const char *b)
{
    bool equal = !strcmp(operation, "=") || !strcmp(operation, "==");
    if (!equal && strcmp(operation, "!="))
        return compare_numbers(a, operation, b);
    return strpbrk(b, "*?[") ? SHELL_UNDECIDED : truth_of(!strcmp(a, b) == equal);
}

/* The words between the brackets. Whatever asks for files is not decided. */
static enum shell_truth decide(const struct word *list, int count)
{
    for (int i = 0; i < count; i++)
        if (list[i].unknown)
            return SHELL_UNDECIDED;
    if (count > 1 && !strcmp(list[0].text, "!")) {
        enum shell_truth inner = decide(list + 1, count - 1);
        return inner == SHELL_UNDECIDED ? inner : truth_of(inner == SHELL_FALSE);
    }
    if (count == 3)
        return compare(list[0].text, list[1].text, list[2].text);
    if (count == 2 && !strcmp(list[0].text, "-z"))
        return truth_of(!*list[1].text);
    if (count == 2 && !strcmp(list[0].text, "-n"))
        return truth_of(*list[1].text);
    return SHELL_UNDECIDED;
}

void shell_test(struct parser *p, const struct words *words, int brackets)
{
    p->tests++;
    bool whole = words && words->count > 2 * brackets;
    p->truth = whole ? decide(words->list + brackets, words->count - 2 * brackets) : SHELL_UNDECIDED;
}

int shell_read_condition(struct parser *p)
{
    struct words words = {0};
    int room = 0;
    bool plain = true;
    for (shell_skip_blanks(p); p->at < p->end && !shell_starts(p, "]]"); shell_skip_blanks(p)) {
        struct glyphs text = {0};
        bool odd = strchr("\n;&|()<>", *p->at) != NULL;
        const char *stop = odd ? p->at + 1 : shell_word_end(p);
        if (!stop || (!odd && shell_expand(p->scope, p->at, stop, p->line, SHELL_WORD, 0, &text, p->err)))
            return -1;
        plain = plain && !odd;
        if (!odd)
            shell_split(p->scope, &text, true, &words, &room);
        shell_advance(p, stop == p->at ? stop + 1 : stop);
    }
    if (p->at == p->end)
        return shell_broken(p, "a condition is not closed");
    p->at += 2;
    shell_test(p, plain ? &words : NULL, 0);
    shell_skip_blanks(p);
    p->tested = shell_starts(p, "&&") || shell_starts(p, "||");
    return 0;
}

/* ---- branches ---- */

static bool may_be_otherwise(const struct parser *p)
{
    for (int i = 0; i < p->open_count; i++)
        if (p->open[i] == 'l' || p->open[i] == 'f')
            return true;
    return false;
}

static struct shell_choice *innermost(struct parser *p)
{
    return p->open_count > p->open_base ? &p->choices[p->open_count - 1] : NULL;
}

void shell_begin_condition(struct parser *p)
{
    struct shell_choice *c = innermost(p);
    p->tests = 0;
    p->truth = SHELL_UNDECIDED;
    if (c)
        c->branch = c->taken ? SHELL_PASSED : SHELL_MAY_RUN;
}

void shell_begin_branch(struct parser *p)
{
    struct shell_choice *c = innermost(p);
    enum shell_truth truth = p->tests == 1 && !may_be_otherwise(p) ? p->truth : SHELL_UNDECIDED;
    if (!c)
        return;
    c->branch = c->taken || truth == SHELL_FALSE      ? SHELL_PASSED
                : c->open || truth == SHELL_UNDECIDED ? SHELL_MAY_RUN
                                                      : SHELL_RUNS;
    c->taken = c->taken || truth == SHELL_TRUE;
    c->open = c->open || truth == SHELL_UNDECIDED;
}

void shell_begin_else(struct parser *p)
{
    p->tests = 1;
    p->truth = SHELL_TRUE;
    shell_begin_branch(p);
}

bool shell_is_passed(const struct parser *p)
{
    for (int i = 0; i < p->open_count; i++)
        if (strchr("ic", p->open[i]) && p->choices[i].branch == SHELL_PASSED)
            return true;
    return false;
}

/* ---- cases ---- */

int shell_read_subject(struct parser *p, const char *end)
{
    struct glyphs text = {0};
    struct words words = {0};
    int room = 0;
    struct shell_choice *c = innermost(p);
    while (end > p->at && strchr(" \t", end[-1]))
        end--;
    if (!c || shell_expand(p->scope, p->at, end, p->line, SHELL_WORD, 0, &text, p->err))
        return -1;
    shell_split(p->scope, &text, true, &words, &room);
    c->subject = words.count == 1 && !words.list[0].unknown ? words.list[0].text : NULL;
    return 0;
}

/* One of the patterns between bars; of quotes only those around all of it are read. */
static enum shell_truth matches(const char *subject, const char *from, const char *end, struct arena *arena)
{
    while (from < end && strchr(" \t(", *from))
        from++;
    while (end > from && strchr(" \t", end[-1]))
        end--;
    bool quoted = end - from > 1 && strchr("'\"", *from) && end[-1] == *from;
    const char *pattern = arena_printf(arena, "%.*s", (int)(end - from) - 2 * quoted, from + quoted);
    if (strpbrk(pattern, "$`'\"\\"))
        return SHELL_UNDECIDED;
    return truth_of(quoted ? !strcmp(pattern, subject) : !fnmatch(pattern, subject, 0));
}

void shell_match(struct parser *p, const char *from, const char *end)
{
    struct shell_choice *c = innermost(p);
    enum shell_truth truth = c && c->subject ? SHELL_FALSE : SHELL_UNDECIDED;
    for (const char *at = from; truth == SHELL_FALSE && at <= end;) {
        const char *bar = memchr(at, '|', (size_t)(end - at)), *stop = bar ? bar : end;
        truth = matches(c->subject, at, stop, p->scope->arena);
        at = stop + 1;
    }
    p->tests = 1;
    p->truth = truth;
    shell_begin_branch(p);
}
