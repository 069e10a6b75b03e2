/* The truth of what stands in [[ ]], [ ] and `test`, where enough of its words are known: a descent over || (-o), && (-a), ! and
 * parentheses to comparisons of words. What is unknown makes undecided only what depends on it. Patterns that could take
 * long are not tried. Of files it is known only that they exist, where they lie beside the script: another machine may have more. */
#include "jobs/shell_parse.h"

#include <fnmatch.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEEPEST = 40, LONGEST_SUBJECT = 256, LONGEST_PATTERN = 64, MOST_STARS = 3 };

struct reader {
    const struct scope *scope;
    const struct shell_operand *list;
    int count, at, depth;
    bool doubled; /* [[ ]] */
    bool broken;
};

static enum shell_truth truth_of(bool value)
{
    return value ? SHELL_TRUE : SHELL_FALSE;
}

static enum shell_truth inverse(enum shell_truth truth)
{
    return truth == SHELL_TRUE ? SHELL_FALSE : truth == SHELL_FALSE ? SHELL_TRUE : SHELL_UNDECIDED;
}

static enum shell_truth both(enum shell_truth a, enum shell_truth b)
{
    return a == SHELL_FALSE || b == SHELL_FALSE ? SHELL_FALSE
           : a == SHELL_TRUE && b == SHELL_TRUE ? SHELL_TRUE
                                                : SHELL_UNDECIDED;
}

static bool is_at(const struct reader *r, int at, const char *text)
{
    return at < r->count && !r->list[at].quoted && !strcmp(r->list[at].text, text);
}

/* ---- comparisons ---- */

static bool is_number(const struct reader *r, const char *text, int64_t *out)
{
    char *end;
    *out = strtoll(text, &end, 10);
    if (*text && !*end)
        return true;
    return r->doubled && (!*text || shell_arithmetic(r->scope, text, text + strlen(text), out));
}

static const char *const number_operators[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge", NULL};

static enum shell_truth compare_numbers(const struct reader *r, const char *a, const char *operation,
                                        const char *b)
{
    int64_t x, y;
    if (!is_number(r, a, &x) || !is_number(r, b, &y))
        return r->doubled ? SHELL_UNDECIDED : SHELL_FALSE; /* `[` complains, and fails */
    const bool values[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
    for (int i = 0; number_operators[i]; i++)
        if (!strcmp(operation, number_operators[i]))
            return truth_of(values[i]);
    return SHELL_UNDECIDED;
}

enum shell_truth shell_matches(const char *subject, const char *pattern)
{
    int stars = 0;
    for (const char *c = pattern; *c; c++)
        stars += *c == '*' || *c == '(';
    if (!strpbrk(pattern, "*?[(\\"))
        return truth_of(!strcmp(subject, pattern));
    if (stars > MOST_STARS || strlen(subject) > LONGEST_SUBJECT || strlen(pattern) > LONGEST_PATTERN)
        return SHELL_UNDECIDED;
    return truth_of(!fnmatch(pattern, subject, FNM_EXTMATCH));
}

/* Counts can make an expression grow without end, and references back take long. */
static bool is_tame(const char *pattern)
{
    if (strlen(pattern) > LONGEST_PATTERN || strchr(pattern, '{'))
        return false;
    for (const char *c = strchr(pattern, '\\'); c; c = strchr(c + 2, '\\'))
        if (!c[1] || !strchr("*?[]().+^$|\\", c[1]))
            return false;
    return true;
}

static enum shell_truth matches_expression(const char *subject, const char *pattern)
{
    regex_t compiled;
    if (strlen(subject) > LONGEST_SUBJECT || !is_tame(pattern) ||
        regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB))
        return SHELL_UNDECIDED;
    enum shell_truth truth = truth_of(!regexec(&compiled, subject, 0, NULL, 0));
    regfree(&compiled);
    return truth;
}

static bool compares(const struct reader *r, const char *operation)
{
    static const char *const names[] = {"=", "==", "!=", "<", ">", "-nt", "-ot", "-ef", NULL};
    return shell_is_one_of(operation, names) || shell_is_one_of(operation, number_operators) ||
           (r->doubled && !strcmp(operation, "=~"));
}

static enum shell_truth compare(const struct reader *r, const struct shell_operand *a, const char *operation,
                                const struct shell_operand *b)
{
    if (a->unknown || b->unknown || operation[1] == 'o' || !strcmp(operation, "-nt") ||
        !strcmp(operation, "-ef"))
        return SHELL_UNDECIDED;
    if (*operation == '-')
        return compare_numbers(r, a->text, operation, b->text);
    if (*operation == '<' || *operation == '>')
        return truth_of((strcmp(a->text, b->text) < 0) == (*operation == '<') && strcmp(a->text, b->text));
    if (!strcmp(operation, "=~"))
        return matches_expression(a->text, b->pattern);
    enum shell_truth same =
        r->doubled ? shell_matches(a->text, b->pattern) : truth_of(!strcmp(a->text, b->text));
    return *operation == '!' ? inverse(same) : same;
}

/* ---- one word ---- */

static enum shell_truth is_there(const struct reader *r, char operation, const char *path)
{
    struct stat info;
    const char *found = shell_file_beside(r->scope, path);
    if (!found || stat(found, &info))
        return SHELL_UNDECIDED;
    return operation == 'e' || (operation == 'f' && S_ISREG(info.st_mode)) ||
                   (operation == 'd' && S_ISDIR(info.st_mode))
               ? SHELL_TRUE
           : operation == 's' ? truth_of(info.st_size > 0)
                              : SHELL_FALSE;
}

static enum shell_truth is_set(const struct reader *r, const char *name)
{
    const struct variable *v = shell_find(r->scope, name, strlen(name));
    return v && v->count && !(v->values[0].count && v->values[0].list[0].unknown) ? SHELL_TRUE
                                                                                  : SHELL_UNDECIDED;
}

static bool asks(const char *operation)
{
    return operation[0] == '-' && operation[1] && !operation[2] &&
           strchr("znfdesrwxhLvbcpSgukOGNtRo", operation[1]);
}

static enum shell_truth ask(const struct reader *r, char operation, const struct shell_operand *word)
{
    if (word->unknown)
        return SHELL_UNDECIDED;
    switch (operation) {
    case 'z':
        return truth_of(!*word->text);
    case 'n':
        return truth_of(*word->text);
    case 'f':
    case 'd':
    case 'e':
    case 's':
        return is_there(r, operation, word->text);
    case 'v':
        return is_set(r, word->text);
    default:
        return SHELL_UNDECIDED;
    }
}

/* ---- the whole ---- */

static enum shell_truth either_of(struct reader *r);

/* Where a comparison stands, its first word is no operator, whatever it looks like. */
static enum shell_truth primary(struct reader *r)
{
    const struct shell_operand *word = &r->list[r->at];
    if (r->at == r->count || ++r->depth > DEEPEST) {
        r->broken = true;
        return SHELL_UNDECIDED;
    }
    if (r->at + 2 < r->count && !r->list[r->at + 1].quoted && compares(r, r->list[r->at + 1].text)) {
        r->at += 3;
        return compare(r, word, word[1].text, word + 2);
    }
    if (is_at(r, r->at, "!") && r->at + 1 < r->count) {
        r->at++;
        return inverse(primary(r));
    }
    if (is_at(r, r->at, "(")) {
        r->at++;
        enum shell_truth inner = either_of(r);
        r->broken = r->broken || !is_at(r, r->at, ")");
        r->at++;
        return inner;
    }
    if (r->at + 1 < r->count && !word->quoted && asks(word->text)) {
        r->at += 2;
        return ask(r, word->text[1], word + 1);
    }
    r->at++;
    return word->unknown ? SHELL_UNDECIDED : truth_of(*word->text);
}

static enum shell_truth all_of(struct reader *r)
{
    enum shell_truth truth = primary(r);
    while (!r->broken && is_at(r, r->at, r->doubled ? "&&" : "-a")) {
        r->at++;
        truth = both(truth, primary(r));
    }
    return truth;
}

static enum shell_truth either_of(struct reader *r)
{
    enum shell_truth truth = all_of(r);
    while (!r->broken && is_at(r, r->at, r->doubled ? "||" : "-o")) {
        r->at++;
        truth = inverse(both(inverse(truth), inverse(all_of(r))));
    }
    return truth;
}

enum shell_truth shell_decide(const struct scope *scope, const struct shell_operand *list, int count,
                              bool doubled)
{
    struct reader r = {.scope = scope, .list = list, .count = count, .doubled = doubled};
    if (!count)
        return doubled ? SHELL_UNDECIDED : SHELL_FALSE;
    enum shell_truth truth = either_of(&r);
    return r.broken || r.at != count ? SHELL_UNDECIDED : truth;
}
