/* JSON through jansson, with errors that name file, line, key, value and a way out. The only file that includes jansson;
 * everybody else uses json_t through here. */
#ifndef MEMPLAN_BASE_JSON_H
#define MEMPLAN_BASE_JSON_H

#include "base/error.h"
#include "base/text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Reads an object from a file (at most 64 MiB). The caller owns *out: json_decref(). "FILE:LINE: ..." on failure. */
int jsonfile_read(const char *path, json_t **out, struct error *err);

/* Writes with text_write()'s promise (never half a file); `value` stays the caller's. "-" is stdout. Reals are written
 * so that they read back as the same bits. */
int jsonfile_write(const json_t *value, const char *path, struct error *err);

/* Appends it as jsonfile_write() writes it, with a line's end behind it. */
void jsonfile_print(const json_t *value, struct text *out);

/* A string, or null for NULL; a new reference. JSON is UTF-8 and a path or a command line may be anything: each byte that
 * is not part of a character becomes '?'. For texts that are known to be UTF-8, json_string() does. */
json_t *jsonfile_string(const char *text);

/* Fields of an object. `where` is the file (or "FILE: stages[2]") for messages. The _optional forms leave *out alone and
 * return 0 when the key is absent or null; a wrong type is always an error. Integers must be whole and fit int64_t. */
int jsonfile_int(const json_t *object, const char *key, const char *where, int64_t *out, struct error *err);
int jsonfile_int_optional(const json_t *object, const char *key, const char *where, int64_t *out, struct error *err);
int jsonfile_real(const json_t *object, const char *key, const char *where, double *out, struct error *err);
int jsonfile_real_optional(const json_t *object, const char *key, const char *where, double *out, struct error *err);
int jsonfile_bool_optional(const json_t *object, const char *key, const char *where, bool *out, struct error *err);
/* *out points into the object. */
int jsonfile_text(const json_t *object, const char *key, const char *where, const char **out, struct error *err);
int jsonfile_text_optional(const json_t *object, const char *key, const char *where, const char **out,
                           struct error *err);
/* *out is borrowed; an absent key is an error. */
int jsonfile_array(const json_t *object, const char *key, const char *where, json_t **out, struct error *err);
int jsonfile_object(const json_t *object, const char *key, const char *where, json_t **out, struct error *err);

#endif
