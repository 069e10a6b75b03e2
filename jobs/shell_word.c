/* Where raw words of a script begin and end, before anything in them is replaced; and moving on behind them. */
#include "jobs/shell_parse.h"

#include <stdio.h>
#include <string.h>

int shell_broken(const struct parser *p, const char *what)
{
    return error_set(p->err, "%s:%d: %s; correct the script", shell_file_of(p->scope, p->line),
                     shell_line_in_file(p->line), what);
}

void shell_advance(struct parser *p, const char *to)
{
    for (; p->at < to; p->at++)
        p->line += *p->at == '\n';
}

void shell_skip_blanks(struct parser *p)
{
    for (;;) {
        if (p->at + 1 < p->end && p->at[0] == '\\' && p->at[1] == '\n')
            shell_advance(p, p->at + 2);
        else if (p->at + 2 < p->end && !strncmp(p->at, "\\\r\n", 3))
            shell_advance(p, p->at + 3);
        else if (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\r'))
            p->at++;
        else
            return;
    }
}

bool shell_starts(const struct parser *p, const char *text)
{
    size_t length = strlen(text);
    return (size_t)(p->end - p->at) >= length && !strncmp(p->at, text, length);
}

bool shell_is_one_of(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(word, *list))
            return true;
    return false;
}

/* Past a raw word, NULL with err: it does not end. */
const char *shell_word_end(struct parser *p)
{
    const char *at = p->at;
    while (at < p->end && !strchr(" \t\r\n;&|()<>", *at)) {
        if (at + 1 < p->end && at[0] == '\\' && at[1] == '\n')
            return at;
        const char *next = shell_skip(at, p->end, 0);
        if (!next) {
            char what[80];
            snprintf(what, sizeof what, "%c is not closed", *at);
            shell_broken(p, what);
            return NULL;
        }
        at = next;
    }
    return at;
}

/* The length of NAME, NAME[..] before = or +=; 0: no assignment. */
size_t shell_assigned_name(const char *from, const char *end, const char **value, bool *append)
{
    size_t length = shell_name_length(from, end);
    const char *at = from + length;
    if (!length || at == end)
        return 0;
    *append = *at == '+';
    at += *append;
    if (at == end || *at != '=')
        return 0;
    *value = at + 1;
    return length;
}

/* Past the ) of an array's values, which begin behind p->at. */
const char *shell_array_end(struct parser *p, const char *at)
{
    while (at && at < p->end && *at != ')') {
        if (*at == '#' && strchr(" \t\n(", at[-1])) {
            const char *newline = memchr(at, '\n', (size_t)(p->end - at));
            at = newline ? newline : p->end;
        } else {
            at = shell_skip(at, p->end, 0);
        }
    }
    if (at && at < p->end)
        return at + 1;
    shell_broken(p, "an array's ( is not closed");
    return NULL;
}
