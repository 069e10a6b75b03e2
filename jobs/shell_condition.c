/* Which commands of a script run: lists joined by && and ||, conditions of `if` and `while`, and subjects of `case`. Where enough of
 * one is known it is decided, so that what does not run is passed over, and what does is read as if it stood alone. In
 * loops, and in functions before they are called, nothing is decided: what is known there may be otherwise the next time. */
#include "jobs/shell_parse.h"

#include <ctype.h>
#include <string.h>

/* ---- lists ---- */

bool shell_may_be_otherwise(const struct parser *p)
{
    for (int i = 0; i < p->open_count; i++)
        if (p->open[i] == 'f' || (p->open[i] == 'l' && p->choices[i].asks == SHELL_ASKS_NOTHING))
            return true;
    return false;
}

void shell_fresh_list(struct parser *p)
{
    p->list = (struct shell_list){.branch = SHELL_RUNS, .truth = p->list.truth};
}

void shell_join(struct parser *p, const char *operator)
{
    struct shell_list *l = &p->list;
    bool and = !strcmp(operator, "&&");
    l->waits = true;
    if (!strcmp(operator, "|")) {
        l->piped = true;
        return;
    }
    l->piped = false;
    l->or = !and;
    if (l->truth == SHELL_LIKELY)
        l->branch = and? SHELL_RUNS : SHELL_MAY_RUN;
    else
        l->branch = l->truth == SHELL_UNDECIDED      ? SHELL_MAY_RUN
                    : (l->truth == SHELL_TRUE) == and? SHELL_RUNS
                                                     : SHELL_PASSED;
}

void shell_settle(struct parser *p, enum shell_truth truth)
{
    struct shell_list *l = &p->list;
    bool known = truth == SHELL_TRUE || truth == SHELL_FALSE;
    if ((l->negated && !known) || (known && shell_may_be_otherwise(p)))
        truth = SHELL_UNDECIDED;
    else if (l->negated)
        truth = truth == SHELL_TRUE ? SHELL_FALSE : SHELL_TRUE;
    if (l->piped && truth != SHELL_LIKELY)
        truth = SHELL_UNDECIDED;
    if (l->branch == SHELL_RUNS)
        l->truth = truth;
    else if (l->branch == SHELL_MAY_RUN)
        l->truth = truth == (l->or ? SHELL_TRUE : SHELL_FALSE) ? truth : SHELL_UNDECIDED;
    l->negated = l->waits = false;
}

/* ---- conditions ---- */

/* For fnmatch() and regcomp(): what is quoted stands for itself. */
static const char *pattern_of(struct arena *arena, const struct glyphs *text)
{
    char *out = arena_alloc(arena, 2 * (size_t)text->count + 1), *to = out;
    for (int i = 0; i < text->count; i++) {
        const struct glyph *g = &text->list[i];
        if ((g->flags & GLYPH_EMPTY) || ((g->flags & GLYPH_BREAK) && !g->character))
            continue;
        if ((g->flags & GLYPH_QUOTED) && strchr("*?[]\\().+^$|{}", g->character))
            *to++ = '\\';
        *to++ = (char)g->character;
    }
    return out;
}

/* Of `[` and `test`: the words between. */
enum shell_truth shell_test(struct parser *p, const struct words *words, int brackets)
{
    int count = words->count - 1 - brackets;
    struct shell_operand *list = arena_array(p->scope->arena, (size_t)words->count, sizeof *list);
    if (count < 0 || (brackets && strcmp(words->list[words->count - 1].text, "]")))
        return SHELL_UNDECIDED;
    for (int i = 0; i < count; i++)
        list[i] =
            (struct shell_operand){.text = words->list[i + 1].text, .unknown = words->list[i + 1].unknown};
    return shell_decide(p->scope, list, count, false);
}

/* Behind == and =~ parentheses and bars belong to the pattern. */
static const char *pattern_end(struct parser *p)
{
    const char *at = p->at;
    for (int open = 0; at && at < p->end && (open || !isspace((unsigned char)*at));) {
        open += (*at == '(') - (*at == ')');
        if (open < 0 || (!open && (*at == '&' || (*at == '|' && at + 1 < p->end && at[1] == '|'))))
            break;
        at = shell_skip(at, p->end, 0);
    }
    if (!at)
        shell_broken(p, "a condition is not closed");
    return at;
}

/* One word or operator of [[ ]]. */
static int read_operand(struct parser *p, struct shell_operand *out, bool pattern)
{
    struct glyphs text = {0};
    struct words words = {0};
    int room = 0;
    bool odd = !pattern && strchr("\n;&|()<>", *p->at);
    const char *stop = odd ? p->at + 1 + (strchr("&|", *p->at) && p->at + 1 < p->end && p->at[1] == *p->at)
                       : pattern ? pattern_end(p)
                                 : shell_word_end(p);
    if (!stop)
        return -1;
    if (odd) {
        *out =
            (struct shell_operand){.text = arena_printf(p->scope->arena, "%.*s", (int)(stop - p->at), p->at)};
        shell_advance(p, stop);
        return 0;
    }
    if (shell_expand(p->scope, p->at, stop, p->line, SHELL_WORD, 0, &text, p->err))
        return -1;
    shell_split(p->scope, &text, true, &words, &room);
    *out = (struct shell_operand){.text = "", .quoted = stop > p->at && strchr("\"'$", *p->at)};
    if (words.count) {
        out->text = words.list[0].text;
        out->unknown = words.list[0].unknown;
    }
    out->pattern = pattern_of(p->scope->arena, &text);
    shell_advance(p, stop == p->at ? stop + 1 : stop);
    return 0;
}

int shell_read_condition(struct parser *p)
{
    enum { MOST_OPERANDS = 200 };
    struct shell_operand *list = arena_array(p->scope->arena, MOST_OPERANDS, sizeof *list);
    int count = 0;
    for (shell_skip_blanks(p); p->at < p->end && !shell_starts(p, "]]"); shell_skip_blanks(p)) {
        static const char *const patterns[] = {"=", "==", "!=", "=~", NULL};
        bool line = *p->at == '\n';
        if (count == MOST_OPERANDS)
            return shell_broken(p, "a condition is too long");
        if (read_operand(p, &list[count],
                         count && !list[count - 1].quoted && shell_is_one_of(list[count - 1].text, patterns)))
            return -1;
        count += !line;
    }
    if (p->at == p->end)
        return shell_broken(p, "a condition is not closed");
    p->at += 2;
    shell_settle(p, shell_decide(p->scope, list, count, true));
    return 0;
}

/* ---- branches ---- */

static struct shell_choice *innermost(struct parser *p)
{
    return p->open_count > p->open_base ? &p->choices[p->open_count - 1] : NULL;
}

void shell_begin_condition(struct parser *p)
{
    struct shell_choice *c = innermost(p);
    p->list = (struct shell_list){.branch = SHELL_RUNS};
    if (c)
        c->branch = c->taken ? SHELL_PASSED : SHELL_MAY_RUN;
}

void shell_begin_branch(struct parser *p)
{
    struct shell_choice *c = innermost(p);
    enum shell_truth truth = p->list.truth == SHELL_LIKELY ? SHELL_UNDECIDED : p->list.truth;
    p->list = (struct shell_list){.branch = SHELL_RUNS};
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
    p->list.truth = SHELL_TRUE;
    shell_begin_branch(p);
}

void shell_begin_body(struct parser *p)
{
    struct shell_choice *c = innermost(p);
    enum shell_truth never = c && c->asks == SHELL_ASKS_UNTIL ? SHELL_TRUE : SHELL_FALSE;
    if (c && c->asks != SHELL_ASKS_NOTHING && p->list.truth == never)
        c->branch = SHELL_PASSED;
    if (c)
        c->asks = SHELL_ASKS_NOTHING;
    p->list = (struct shell_list){.branch = SHELL_RUNS};
}

bool shell_is_passed(const struct parser *p)
{
    for (int i = 0; i < p->open_count; i++)
        if (p->choices[i].around.branch == SHELL_PASSED || p->choices[i].branch == SHELL_PASSED)
            return true;
    return p->list.branch == SHELL_PASSED;
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

/* One of the patterns between bars. */
static int match_one(struct parser *p, const char *from, const char *end, enum shell_truth *out)
{
    struct glyphs text = {0};
    while (from < end && strchr(" \t(", *from))
        from++;
    while (end > from && strchr(" \t", end[-1]))
        end--;
    if (shell_expand(p->scope, from, end, p->line, SHELL_WORD, 0, &text, p->err))
        return -1;
    *out = SHELL_UNDECIDED;
    for (int i = 0; i < text.count; i++)
        if (text.list[i].unknown)
            return 0;
    *out = shell_matches(innermost(p)->subject, pattern_of(p->scope->arena, &text));
    return 0;
}

int shell_match(struct parser *p, const char *from, const char *end)
{
    struct shell_choice *c = innermost(p);
    enum shell_truth truth = c && c->subject && !shell_may_be_otherwise(p) ? SHELL_FALSE : SHELL_UNDECIDED;
    for (const char *at = from; truth == SHELL_FALSE && at <= end;) {
        const char *bar = memchr(at, '|', (size_t)(end - at)), *stop = bar ? bar : end;
        if (match_one(p, at, stop, &truth))
            return -1;
        at = stop + 1;
    }
    p->list.truth = truth;
    shell_begin_branch(p);
    return 0;
}
