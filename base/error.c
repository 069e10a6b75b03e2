/* Messages are built in the caller's own memory. What is longer loses its middle, where the value is that makes it long: the
 * thing before it and the way out behind it stay. Reporting trouble never fails. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies a text of `length` characters into the room for a message. */
static void fit(char out[ERROR_ROOM], const char *whole, size_t length)
{
    static const char gap[] = " ... ";
    enum { GAP = sizeof gap - 1, HEAD = ERROR_ROOM / 2, TAIL = ERROR_ROOM - 1 - HEAD - GAP };
    if (length < ERROR_ROOM) {
        memcpy(out, whole, length + 1);
        return;
    }
    memcpy(out, whole, HEAD);
    memcpy(out + HEAD, gap, GAP);
    memcpy(out + HEAD + GAP, whole + length - TAIL, TAIL + 1);
}

/* Sets the text to `before`, the formatted, and `behind`. */
static void compose(struct error *err, const char *before, const char *behind, const char *format,
                    va_list args)
{
    va_list again;
    va_copy(again, args);
    int count = vsnprintf(NULL, 0, format, again);
    va_end(again);
    size_t length = count < 0 ? 0 : (size_t)count, front = strlen(before), back = strlen(behind);
    char *whole = malloc(front + length + back + 1);
    if (!whole) {
        vsnprintf(err->text, sizeof err->text, format, args);
        return;
    }
    memcpy(whole, before, front);
    whole[front] = '\0';
    vsnprintf(whole + front, length + 1, format, args);
    memcpy(whole + front + length, behind, back + 1);
    fit(err->text, whole, front + length + back);
    free(whole);
}

int error_set(struct error *err, const char *format, ...)
{
    if (!err)
        return -1;
    va_list args;
    va_start(args, format);
    compose(err, "", "", format, args);
    va_end(args);
    err->kind = ERROR_INPUT;
    return -1;
}

int error_set_kind(struct error *err, enum error_kind kind, const char *format, ...)
{
    if (!err)
        return -1;
    va_list args;
    va_start(args, format);
    compose(err, "", "", format, args);
    va_end(args);
    err->kind = kind;
    return -1;
}

void error_append(struct error *err, const char *format, ...)
{
    if (!err)
        return;
    char said[ERROR_ROOM];
    memcpy(said, err->text, sizeof said);
    va_list args;
    va_start(args, format);
    compose(err, said, "", format, args);
    va_end(args);
}

int error_prefix(struct error *err, const char *format, ...)
{
    if (!err)
        return -1;
    char behind[sizeof ": " + ERROR_ROOM];
    snprintf(behind, sizeof behind, ": %s", err->text);
    va_list args;
    va_start(args, format);
    compose(err, "", behind, format, args);
    va_end(args);
    return -1;
}
