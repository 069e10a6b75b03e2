/* $((...)): whole numbers, names, the operators that launch scripts use. Precedence climbing over one table. */
#include "jobs/shell_expand.h"

#include "base/checked.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 60, NUMBER_ROOM = 32 };

struct reader {
    const struct scope *scope;
    const char *at, *end;
    bool failed;
};

static const struct {
    const char *text;
    int rank;
    char code;
} operators[] = {
    {"||", 1, '|'}, {"&&", 2, '&'}, {"==", 3, '='}, {"!=", 3, '!'}, {"<=", 4, 'l'}, {">=", 4, 'g'},
    {"<<", 5, 'L'}, {">>", 5, 'R'}, {"<", 4, '<'},  {">", 4, '>'},  {"+", 6, '+'},  {"-", 6, '-'},
    {"**", 8, '^'}, {"*", 7, '*'},  {"/", 7, '/'},  {"%", 7, '%'},
};

static int64_t fail(struct reader *r)
{
    r->failed = true;
    return 0;
}

static void skip_blanks(struct reader *r)
{
    while (r->at < r->end && isspace((unsigned char)*r->at))
        r->at++;
}

static int64_t power(struct reader *r, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (exponent < 0 || exponent > 62)
        return fail(r);
    for (; exponent; exponent--)
        if (!checked_mul(result, base, &result))
            return fail(r);
    return result;
}

static int64_t apply(struct reader *r, char code, int64_t a, int64_t b)
{
    int64_t result = 0;
    switch (code) {
    case '+':
        return checked_add(a, b, &result) ? result : fail(r);
    case '-':
        return __builtin_sub_overflow(a, b, &result) ? fail(r) : result;
    case '*':
        return checked_mul(a, b, &result) ? result : fail(r);
    case '/':
        return b == 0 || (a == INT64_MIN && b == -1) ? fail(r) : a / b;
    case '%':
        return b == 0 || (a == INT64_MIN && b == -1) ? fail(r) : a % b;
    case '^':
        return power(r, a, b);
    case 'L':
        return a < 0 || b < 0 || b > 62 ? fail(r) : apply(r, '*', a, (int64_t)1 << b);
    case 'R':
        return a < 0 || b < 0 || b > 62 ? fail(r) : a >> b;
    case '<':
        return a < b;
    case '>':
        return a > b;
    case 'l':
        return a <= b;
    case 'g':
        return a >= b;
    case '=':
        return a == b;
    case '!':
        return a != b;
    case '&':
        return a && b;
    default:
        return a || b;
    }
}

static int64_t number_of(struct reader *r, const char *text)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    bool octal = text[0] == '0' && text[1];
    return *text && !*end && !octal && strlen(text) < 19 ? value : fail(r);
}

/* A name's value, when it is a plain number. */
static int64_t variable(struct reader *r, const char *name, size_t length)
{
    char digits[NUMBER_ROOM];
    const struct variable *v = shell_find(r->scope, name, length);
    if (!v || !v->count || v->values[0].count >= NUMBER_ROOM)
        return fail(r);
    for (int i = 0; i < v->values[0].count; i++) {
        if (v->values[0].list[i].unknown)
            return fail(r);
        digits[i] = (char)v->values[0].list[i].character;
    }
    digits[v->values[0].count] = 0;
    return number_of(r, digits);
}

static int64_t named(struct reader *r)
{
    bool dollar = *r->at == '$', brace = false;
    r->at += dollar;
    if (dollar && r->at < r->end && *r->at == '{') {
        brace = true;
        r->at++;
    }
    const char *name = r->at;
    size_t length = shell_name_length(name, r->end);
    r->at += length;
    if (!length || (brace && (r->at == r->end || *r->at++ != '}')))
        return fail(r);
    return variable(r, name, length);
}

static int64_t digits(struct reader *r)
{
    char text[NUMBER_ROOM] = "";
    size_t length = 0;
    while (r->at < r->end && isdigit((unsigned char)*r->at) && length < sizeof text - 1)
        text[length++] = *r->at++;
    return number_of(r, text);
}

static int64_t expression(struct reader *r, int least, int depth);

static int64_t operand(struct reader *r, int depth)
{
    skip_blanks(r);
    if (r->at == r->end || depth > DEEPEST)
        return fail(r);
    if (*r->at == '-' || *r->at == '+' || *r->at == '!') {
        char sign = *r->at++;
        int64_t value = operand(r, depth + 1);
        return sign == '-' ? apply(r, '-', 0, value) : sign == '!' ? !value : value;
    }
    if (*r->at == '(') {
        r->at++;
        int64_t value = expression(r, 1, depth + 1);
        skip_blanks(r);
        return r->at < r->end && *r->at++ == ')' ? value : fail(r);
    }
    return isdigit((unsigned char)*r->at) ? digits(r) : named(r);
}

/* The place in the table of the longest operator here, or -1. */
static int operator_at(const struct reader *r)
{
    int best = -1;
    for (int i = 0; i < (int)(sizeof operators / sizeof operators[0]); i++) {
        size_t length = strlen(operators[i].text);
        if ((size_t)(r->end - r->at) >= length && !strncmp(r->at, operators[i].text, length) &&
            (best < 0 || length > strlen(operators[best].text)))
            best = i;
    }
    return best;
}

static int64_t expression(struct reader *r, int least, int depth)
{
    int64_t value = operand(r, depth);
    while (!r->failed) {
        skip_blanks(r);
        int found = operator_at(r);
        if (found < 0 || operators[found].rank < least)
            return value;
        r->at += strlen(operators[found].text);
        /* ** binds to the right, everything else to the left. */
        int next = operators[found].rank + (operators[found].code != '^');
        value = apply(r, operators[found].code, value, expression(r, next, depth + 1));
    }
    return 0;
}

bool shell_arithmetic(const struct scope *scope, const char *from, const char *end, int64_t *out)
{
    struct reader r = {scope, from, end, false};
    *out = expression(&r, 1, 0);
    skip_blanks(&r);
    return !r.failed && r.at == r.end;
}
