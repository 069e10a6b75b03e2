/* Reading and writing of JSON files. jansson parses; the messages are ours, and so is the layout of what
 * we write, because people read these files: lists of plain values stay on one line, and numbers are as
 * short as exactness allows. */
#include "base/json.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 64 << 20, REAL_TEXT = 40 };

/* What jansson calls an invalid token is a word cut short ("tru") when the file ends with it. */
static bool ends_in_the_middle(const json_error_t *error, size_t length)
{
    return json_error_code(error) == json_error_premature_end_of_input ||
           (!strncmp(error->text, "invalid token", strlen("invalid token")) &&
            (size_t)error->position == length);
}

/* Some other kind of file, of which no line wants correcting. */
static bool begins_otherwise(const char *data, size_t length)
{
    size_t at = 0;
    while (at < length && strchr(" \t\r\n", data[at]))
        at++;
    return at < length && data[at] != '{' && data[at] != '[';
}

static int syntax_error(const char *path, const json_error_t *error, const char *data, size_t length,
                        struct error *err)
{
    if (begins_otherwise(data, length))
        return error_set(err, "%s: not JSON, which would begin with {; is it the right file?", path);
    if (ends_in_the_middle(error, length))
        return error_set(err, "%s:%d: the file ends in the middle; make it or copy it again", path,
                         error->line);
    return error_set(err, "%s:%d: %s; correct this line", path, error->line, error->text);
}

/* As it appears in "key "x" is a string". */
static const char *kind_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "a whole number";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        return "null";
    }
    return "unknown";
}

int jsonfile_read(const char *path, json_t **out, struct error *err)
{
    char *data;
    size_t length;
    if (text_read_file(path, FILE_LIMIT, &data, &length, err))
        return -1;
    json_error_t error;
    json_t *value = json_loadb(data, length, JSON_REJECT_DUPLICATES, &error);
    int failed = 0;
    if (!length)
        failed = error_set(err, "%s:1: the file is empty; make it or copy it again", path);
    else if (!value)
        failed = syntax_error(path, &error, data, length, err);
    else if (!json_is_object(value))
        failed = error_set(err, "%s:1: the file holds %s, expected an object; is it the right file?", path,
                           kind_name(value));
    free(data);
    if (failed)
        json_decref(value);
    else
        *out = value;
    return failed;
}

/* The fewest digits that read back as the same number, and a mark that it is no whole number. */
static void real_add(struct text *text, double value)
{
    char digits[REAL_TEXT];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    text_add(text, digits);
    if (!strpbrk(digits, ".e"))
        text_add(text, ".0");
}

static void value_add(struct text *text, const json_t *value, int depth);

static bool list_is_plain(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_is_object(json_array_get(list, i)) || json_is_array(json_array_get(list, i)))
            return false;
    return true;
}

static void line_add(struct text *text, int depth)
{
    text_printf(text, "\n%*s", 2 * depth, "");
}

static void list_add(struct text *text, const json_t *list, int depth)
{
    bool plain = list_is_plain(list);
    size_t count = json_array_size(list);
    text_add(text, "[");
    for (size_t i = 0; i < count; i++) {
        if (i)
            text_add(text, plain ? ", " : ",");
        if (!plain)
            line_add(text, depth + 1);
        value_add(text, json_array_get(list, i), depth + 1);
    }
    if (!plain)
        line_add(text, depth);
    text_add(text, "]");
}

static void scalar_add(struct text *text, const json_t *value)
{
    char *piece = json_dumps(value, JSON_ENCODE_ANY);
    text_add(text, piece ? piece : "null");
    free(piece);
}

static void key_add(struct text *text, const char *key)
{
    json_t *name = json_string(key);
    scalar_add(text, name);
    json_decref(name);
    text_add(text, ": ");
}

static void object_add(struct text *text, json_t *object, int depth)
{
    const char *key, *separator = "{";
    json_t *value;
    json_object_foreach(object, key, value)
    {
        text_add(text, separator);
        line_add(text, depth + 1);
        key_add(text, key);
        value_add(text, value, depth + 1);
        separator = ",";
    }
    if (!json_object_size(object)) {
        text_add(text, "{}");
        return;
    }
    line_add(text, depth);
    text_add(text, "}");
}

static void value_add(struct text *text, const json_t *value, int depth)
{
    if (json_is_object(value))
        object_add(text, (json_t *)value, depth);
    else if (json_is_array(value))
        list_add(text, value, depth);
    else if (json_is_real(value))
        real_add(text, json_real_value(value));
    else
        scalar_add(text, value);
}

void jsonfile_print(const json_t *value, struct text *out)
{
    value_add(out, value, 0);
    text_add(out, "\n");
}

int jsonfile_write(const json_t *value, const char *path, struct error *err)
{
    struct text text = {0};
    jsonfile_print(value, &text);
    int failed = text_write(&text, path, err);
    text_free(&text);
    return failed;
}

/* The length of the character at the start of `text`, 0 when there is none. */
static size_t character_bytes(const char *text)
{
    enum { LONGEST = 4 };
    size_t most = strnlen(text, LONGEST);
    for (size_t bytes = 1; bytes <= most; bytes++) {
        json_t *character = json_stringn(text, bytes);
        json_decref(character);
        if (character)
            return bytes;
    }
    return 0;
}

json_t *jsonfile_string(const char *text)
{
    json_t *value = text ? json_string(text) : json_null();
    if (value)
        return value;
    struct text valid = {0};
    text_add(&valid, text);
    for (char *at = valid.data; *at;) {
        size_t bytes = character_bytes(at);
        if (!bytes)
            *at = '?';
        at += bytes ? bytes : 1;
    }
    value = json_string(valid.data);
    text_free(&valid);
    return value;
}

/* NULL when the key is absent; null counts as absent, because that is how other tools write a field they
 * do not use. */
static json_t *field(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* -1 with a message when a required key is absent. */
static int require(const json_t *object, const char *key, const char *where, const char *expected,
                   struct error *err)
{
    if (field(object, key))
        return 0;
    return error_set(err, "%s: key \"%s\" is %s, expected %s", where, key,
                     json_object_get(object, key) ? "null" : "missing", expected);
}

static int wrong_kind(const json_t *value, const char *key, const char *where, const char *expected,
                      struct error *err)
{
    if (json_is_real(value))
        return error_set(err, "%s: key \"%s\" is %.15g, expected %s", where, key, json_real_value(value),
                         expected);
    return error_set(err, "%s: key \"%s\" is %s, expected %s", where, key, kind_name(value), expected);
}

static const char whole_number[] = "a whole number", number[] = "a number", string[] = "a string";

/* Other tools write 1e9 or 12.0 for whole numbers; they are taken when nothing is lost. */
int jsonfile_int_optional(const json_t *object, const char *key, const char *where, int64_t *out,
                          struct error *err)
{
    const json_t *value = field(object, key);
    if (!value)
        return 0;
    double real = json_real_value(value);
    if (json_is_integer(value))
        *out = json_integer_value(value);
    else if (json_is_real(value) && real == floor(real) && real >= -0x1p63 && real < 0x1p63)
        *out = (int64_t)real;
    else
        return wrong_kind(value, key, where, whole_number, err);
    return 0;
}

int jsonfile_int(const json_t *object, const char *key, const char *where, int64_t *out, struct error *err)
{
    if (require(object, key, where, whole_number, err))
        return -1;
    return jsonfile_int_optional(object, key, where, out, err);
}

int jsonfile_real_optional(const json_t *object, const char *key, const char *where, double *out,
                           struct error *err)
{
    const json_t *value = field(object, key);
    if (!value)
        return 0;
    if (!json_is_number(value))
        return wrong_kind(value, key, where, number, err);
    *out = json_number_value(value);
    return 0;
}

int jsonfile_real(const json_t *object, const char *key, const char *where, double *out, struct error *err)
{
    if (require(object, key, where, number, err))
        return -1;
    return jsonfile_real_optional(object, key, where, out, err);
}

int jsonfile_bool_optional(const json_t *object, const char *key, const char *where, bool *out,
                           struct error *err)
{
    const json_t *value = field(object, key);
    if (!value)
        return 0;
    if (!json_is_boolean(value))
        return wrong_kind(value, key, where, "true or false", err);
    *out = json_is_true(value);
    return 0;
}

int jsonfile_text_optional(const json_t *object, const char *key, const char *where, const char **out,
                           struct error *err)
{
    const json_t *value = field(object, key);
    if (!value)
        return 0;
    if (!json_is_string(value))
        return wrong_kind(value, key, where, string, err);
    *out = json_string_value(value);
    return 0;
}

int jsonfile_text(const json_t *object, const char *key, const char *where, const char **out,
                  struct error *err)
{
    if (require(object, key, where, string, err))
        return -1;
    return jsonfile_text_optional(object, key, where, out, err);
}

int jsonfile_array(const json_t *object, const char *key, const char *where, json_t **out, struct error *err)
{
    if (require(object, key, where, "a list", err))
        return -1;
    if (!json_is_array(field(object, key)))
        return wrong_kind(field(object, key), key, where, "a list", err);
    *out = field(object, key);
    return 0;
}

int jsonfile_object(const json_t *object, const char *key, const char *where, json_t **out, struct error *err)
{
    if (require(object, key, where, "an object", err))
        return -1;
    if (!json_is_object(field(object, key)))
        return wrong_kind(field(object, key), key, where, "an object", err);
    *out = field(object, key);
    return 0;
}
