/* Blocks of a script: conditions, loops, cases and functions, by the words that open and close them. All are walked over once;
 * shell_inside() says of what stands in one that it may run, or not, or often. */
#include "jobs/shell_parse.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *shell_inside(const struct parser *p)
{
    if (p->list.branch == SHELL_MAY_RUN)
        return "a condition";
    for (int i = p->open_count - 1; i >= 0; i--) {
        bool may = p->choices[i].branch == SHELL_MAY_RUN;
        if (may && strchr("ic", p->open[i]))
            return p->open[i] == 'i' ? "an if" : "a case";
        if (strchr("lf", p->open[i]))
            return p->open[i] == 'l' ? "a loop" : "a function";
        if (p->choices[i].around.branch == SHELL_MAY_RUN)
            return "a condition";
    }
    return p->outer_branch == SHELL_MAY_RUN ? "a condition" : NULL;
}

int shell_open_block(struct parser *p, char kind)
{
    if (p->open_count == SHELL_MOST_OPEN)
        return shell_broken(p, "blocks are nested too deep");
    p->choices[p->open_count] = (struct shell_choice){.around = p->list};
    p->open[p->open_count++] = kind;
    p->list = (struct shell_list){.branch = SHELL_RUNS};
    return 0;
}

int shell_close_block(struct parser *p, const char *kinds, const char *word)
{
    if (p->open_count == p->open_base || !strchr(kinds, p->open[p->open_count - 1])) {
        char what[80];
        snprintf(what, sizeof what, "\"%s\" closes nothing", word);
        return shell_broken(p, what);
    }
    char kind = p->open[--p->open_count];
    enum shell_truth truth = strchr("{(", kind) ? p->list.truth : SHELL_LIKELY;
    p->list = p->choices[p->open_count].around;
    shell_settle(p, truth);
    return 0;
}

/* Whether the words behind `for NAME in` are sure to be none. */
static int is_over_nothing(struct parser *p, const char *from, const char *end, int line, bool *out)
{
    struct glyphs text = {0};
    while (from < end && isspace((unsigned char)*from))
        from++;
    bool listed =
        end - from >= 2 && !strncmp(from, "in", 2) && (end - from == 2 || isspace((unsigned char)from[2]));
    if (listed && shell_expand(p->scope, from + 2, end, line, SHELL_WORD, 0, &text, p->err))
        return -1;
    for (int i = 0; listed && i < text.count; i++)
        listed = !text.list[i].flags && isspace(text.list[i].character);
    *out = from == end ? p->scope->argument_count == 0 : listed;
    return 0;
}

/* `for NAME in ...` up to its end. */
static int read_for(struct parser *p)
{
    shell_skip_blanks(p);
    size_t length = shell_name_length(p->at, p->end);
    const char *words = p->at + length;
    int line = p->line;
    bool never = false;
    while (p->at < p->end && *p->at != '\n' && *p->at != ';') {
        const char *next = shell_skip(p->at, p->end, 0);
        if (!next)
            return shell_broken(p, "a for is not closed");
        shell_advance(p, next);
    }
    if (length && is_over_nothing(p, words, p->at, line, &never))
        return -1;
    never = never && !shell_may_be_otherwise(p);
    if (length && !never && !shell_is_passed(p) &&
        shell_forget(p->scope, words - length, length,
                     arena_printf(p->scope->arena, "$%.*s is that of a loop on line %s", (int)length,
                                  words - length, shell_line_text(p->scope, line)),
                     line, p->err))
        return -1;
    if (shell_open_block(p, 'l'))
        return -1;
    p->choices[p->open_count - 1].branch = never ? SHELL_PASSED : SHELL_MAY_RUN;
    return 0;
}

static int read_case(struct parser *p)
{
    shell_skip_blanks(p);
    const char *start = p->at;
    int line = p->line;
    while (p->at < p->end && !(shell_starts(p, "in") && p->at + 2 < p->end &&
                               isspace((unsigned char)p->at[2]) && isspace((unsigned char)p->at[-1]))) {
        const char *next = shell_skip(p->at, p->end, 0);
        if (!next)
            return shell_broken(p, "a case is not closed");
        shell_advance(p, next);
    }
    const char *subject = p->at;
    if (p->at < p->end)
        p->at += 2;
    p->pattern = true;
    if (shell_open_block(p, 'c'))
        return -1;
    struct parser in = *p;
    in.at = start;
    in.line = line;
    if (shell_read_subject(&in, subject))
        return -1;
    p->choices[p->open_count - 1] = in.choices[p->open_count - 1];
    return 0;
}

int shell_read_pattern(struct parser *p)
{
    p->pattern = false;
    const char *from = p->at;
    if (shell_starts(p, "esac"))
        return 0;
    while (p->at < p->end && *p->at != ')') {
        const char *next = shell_skip(p->at, p->end, 0);
        if (!next)
            return shell_broken(p, "a case is not closed");
        shell_advance(p, next);
    }
    if (shell_match(p, from, p->at))
        return -1;
    p->at += p->at < p->end;
    return 0;
}

/* NAME ( ) */
bool shell_skip_function_name(struct parser *p, const char *stop)
{
    const char *at = stop;
    while (at < p->end && (*at == ' ' || *at == '\t'))
        at++;
    if (at == p->at || at[-1] == '=' || at == p->end || *at != '(')
        return false;
    for (at++; at < p->end && (*at == ' ' || *at == '\t');)
        at++;
    if (at == p->end || *at != ')')
        return false;
    p->function_name = (struct span){p->at, stop, p->line};
    p->at = at + 1;
    p->function_next = true;
    return true;
}

enum reserved {
    NOT_RESERVED,
    PASSED,
    NEGATES,
    OPENS_IF,
    ELIF,
    THEN,
    ELSE,
    OPENS_WHILE,
    OPENS_UNTIL,
    DO,
    OPENS_FOR,
    OPENS_CASE,
    CLOSES_IF,
    CLOSES_LOOP,
    CLOSES_CASE,
    OPENS_BRACE,
    CLOSES_BRACE,
    FUNCTION,
    CONDITION
};

static const struct {
    const char *word;
    enum reserved what;
} reserved_words[] = {
    {"if", OPENS_IF},       {"then", THEN},
    {"elif", ELIF},         {"else", ELSE},
    {"fi", CLOSES_IF},      {"for", OPENS_FOR},
    {"select", OPENS_FOR},  {"while", OPENS_WHILE},
    {"until", OPENS_UNTIL}, {"do", DO},
    {"done", CLOSES_LOOP},  {"case", OPENS_CASE},
    {"esac", CLOSES_CASE},  {"{", OPENS_BRACE},
    {"}", CLOSES_BRACE},    {"!", NEGATES},
    {"time", PASSED},       {"function", FUNCTION},
    {"[[", CONDITION},
};

static enum reserved reserved_at(const struct parser *p, const char *stop)
{
    for (size_t i = 0; i < sizeof reserved_words / sizeof reserved_words[0]; i++)
        if (strlen(reserved_words[i].word) == (size_t)(stop - p->at) &&
            !strncmp(p->at, reserved_words[i].word, (size_t)(stop - p->at)))
            return reserved_words[i].what;
    return NOT_RESERVED;
}

static int read_function(struct parser *p)
{
    shell_skip_blanks(p);
    const char *stop = shell_word_end(p);
    if (!stop)
        return -1;
    p->function_name = (struct span){p->at, stop, p->line};
    if (!shell_skip_function_name(p, stop))
        shell_advance(p, stop);
    p->function_next = true;
    return 0;
}

int shell_read_reserved(struct parser *p, const char *stop)
{
    enum reserved what = reserved_at(p, stop);
    if (what == NOT_RESERVED)
        return 1;
    shell_advance(p, stop);
    switch (what) {
    case OPENS_IF:
        if (shell_open_block(p, 'i'))
            return -1;
        shell_begin_condition(p);
        return 0;
    case ELIF:
        shell_begin_condition(p);
        return 0;
    case THEN:
        shell_begin_branch(p);
        return 0;
    case ELSE:
        shell_begin_else(p);
        return 0;
    case NEGATES:
        p->list.negated = !p->list.negated;
        return 0;
    case OPENS_WHILE:
    case OPENS_UNTIL:
        if (shell_open_block(p, 'l'))
            return -1;
        p->choices[p->open_count - 1].asks = what == OPENS_WHILE ? SHELL_ASKS_WHILE : SHELL_ASKS_UNTIL;
        return 0;
    case DO:
        shell_begin_body(p);
        return 0;
    case OPENS_FOR:
        return read_for(p);
    case OPENS_CASE:
        return read_case(p);
    case CLOSES_IF:
        return shell_close_block(p, "i", "fi");
    case CLOSES_LOOP:
        return shell_close_block(p, "l", "done");
    case CLOSES_CASE:
        p->pattern = false;
        return shell_close_block(p, "c", "esac");
    case OPENS_BRACE:
        return p->function_next ? shell_open_function(p) : shell_open_block(p, '{');
    case CLOSES_BRACE:
        shell_close_function(p, stop - 1);
        return shell_close_block(p, "{f", "}");
    case FUNCTION:
        return read_function(p);
    case CONDITION:
        return shell_read_condition(p);
    default:
        return 0;
    }
}
