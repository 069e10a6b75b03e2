/* Messages are built in the caller's own memory and cut off where it ends: reporting trouble never fails. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set(struct error *err, enum error_kind kind, const char *format, va_list args)
{
    if (err) {
        vsnprintf(err->text, sizeof err->text, format, args);
        err->kind = kind;
    }
}

int error_set(struct error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set(err, ERROR_INPUT, format, args);
    va_end(args);
    return -1;
}

int error_set_kind(struct error *err, enum error_kind kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set(err, kind, format, args);
    va_end(args);
    return -1;
}

void error_append(struct error *err, const char *format, ...)
{
    if (!err)
        return;
    size_t used = strlen(err->text);
    va_list args;
    va_start(args, format);
    vsnprintf(err->text + used, sizeof err->text - used, format, args);
    va_end(args);
}

int error_prefix(struct error *err, const char *format, ...)
{
    if (!err)
        return -1;
    char tail[sizeof err->text];
    memcpy(tail, err->text, sizeof tail);
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    error_append(err, ": %s", tail);
    return -1;
}
