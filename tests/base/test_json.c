/* JSON files: what is refused and on which line, the layout of what is written, and typed access to
 * fields. */
#include "tests/test.h"

#include "base/json.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

/* Puts `content` into a file of this process; the runner may run several tests in it. */
static const char *file_with(const char *content)
{
    struct error err = {0};
    struct text text = {0};
    snprintf(path, sizeof path, "/tmp/memplan-json-%ld.json", (long)getpid());
    text_add(&text, content);
    ASSERT_OK(text_write(&text, path, &err));
    text_free(&text);
    return path;
}

/* The content must be refused with "FILE:" + `expected`. */
static void assert_refused(const char *content, const char *expected)
{
    struct error err = {0};
    char message[200];
    json_t *value = NULL;
    ASSERT_MSG(jsonfile_read(file_with(content), &value, &err) == -1, "accepted: %s", content);
    ASSERT(value == NULL);
    snprintf(message, sizeof message, "%s:%s", path, expected);
    ASSERT_STR(err.text, message);
    unlink(path);
}

static json_t *parse(const char *content)
{
    json_t *value = json_loads(content, JSON_DECODE_ANY, NULL);
    ASSERT(value != NULL);
    return value;
}

TEST(json_read_object, "an object is read whole")
{
    struct error err = {0};
    json_t *value;
    int64_t layers = 0;
    ASSERT_OK(jsonfile_read(file_with("{\n  \"layers\": 12,\n  \"name\": \"gpt2\"\n}\n"), &value, &err));
    ASSERT_OK(jsonfile_int(value, "layers", path, &layers, &err));
    ASSERT_INT(layers, 12);
    json_decref(value);
    unlink(path);
}

TEST(json_read_truncated, "a file cut anywhere says that it ends in the middle, and on which line")
{
    static const char whole[] = "{\n\"layers\": [1, 25],\n\"ok\": true,\n\"name\": \"gpt2\"\n}";
    /* The last character closes the object: every shorter start that is not empty must be refused. */
    for (size_t length = 1; length < sizeof whole - 1; length++) {
        struct error err = {0};
        json_t *value;
        char part[sizeof whole] = "";
        memcpy(part, whole, length);
        ASSERT(jsonfile_read(file_with(part), &value, &err) == -1);
        int line = 1;
        for (size_t i = 0; i < length; i++)
            line += part[i] == '\n';
        char expected[200];
        snprintf(expected, sizeof expected, "%s:%d: the file ends in the middle; make it or copy it again",
                 path, line);
        ASSERT_STR(err.text, expected);
    }
    unlink(path);
}

TEST(json_read_empty, "an empty file says so")
{
    assert_refused("", "1: the file is empty; make it or copy it again");
}

TEST(json_read_syntax, "a syntax error names its line and what stands there")
{
    assert_refused("{\n\"a\": 1\n\"b\": 2\n}", "3: '}' expected near '\"b\"'; correct this line");
    assert_refused("{\"a\": 1,}", "1: string or '}' expected near '}'; correct this line");
    assert_refused("{\n\"a\": nul }", "2: invalid token near 'nul'; correct this line");
    assert_refused("{\"a\": 1}\nx", "2: end of file expected near 'x'; correct this line");
    assert_refused("{\"a\": [1, 2}", "1: ']' expected near '}'; correct this line");
    assert_refused("{\"a\": 1,\n\"a\": 2}", "2: duplicate object key near '\"a\"'; correct this line");
    assert_refused("{\"a\": \"\xff\"}", "1: unable to decode byte 0xff near '\"'; correct this line");
}

TEST(json_read_text, "a file that begins like no JSON is another kind of file, and no line of it is to blame")
{
    static const char *const others[] = {"# memplan\n{}", "\n  layers: 2", "<html>", "12", "\"text\""};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct error err = {0};
        json_t *value;
        ASSERT_INT(jsonfile_read(file_with(others[i]), &value, &err), -1);
        ASSERT_HAS(err.text, ": not JSON, which would begin with {; is it the right file?");
    }
    unlink(path);
}

TEST(json_read_numbers, "numbers that no variable can hold are refused")
{
    assert_refused("{\"a\": 9223372036854775808}",
                   "1: too big integer near '9223372036854775808'; correct this line");
    assert_refused("{\"a\": 1e999}", "1: real number overflow near '1e999'; correct this line");
}

TEST(json_read_other, "a file that holds something else than an object is refused")
{
    assert_refused("[1, 2]", "1: the file holds a list, expected an object; is it the right file?");
}

TEST(json_read_missing, "a missing file is named")
{
    struct error err = {0};
    json_t *value;
    ASSERT_INT(jsonfile_read("/no/such/plan.json", &value, &err), -1);
    ASSERT_STR(err.text, "cannot read /no/such/plan.json: No such file or directory; check the path");
}

TEST(json_write_layout, "one key a line, plain lists on one, numbers as short as exactness allows")
{
    struct error err = {0};
    json_t *value =
        parse("{\"name\": \"a \\\"b\\\"\\n\", \"third\": 0.1, \"lr\": 1e-4, \"two\": 2.0, \"big\": 1e300, "
              "\"layers\": [1,2,3], \"none\": [], \"empty\": {}, \"yes\": true, \"nothing\": null, "
              "\"stages\": [{\"dp\": 1}, [2, \"x\"]]}");
    ASSERT_OK(jsonfile_write(value, file_with(""), &err));
    char *data;
    size_t length;
    ASSERT_OK(text_read_file(path, 1000, &data, &length, &err));
    ASSERT_STR(data, "{\n"
                     "  \"name\": \"a \\\"b\\\"\\n\",\n"
                     "  \"third\": 0.1,\n"
                     "  \"lr\": 0.0001,\n"
                     "  \"two\": 2.0,\n"
                     "  \"big\": 1e+300,\n"
                     "  \"layers\": [1, 2, 3],\n"
                     "  \"none\": [],\n"
                     "  \"empty\": {},\n"
                     "  \"yes\": true,\n"
                     "  \"nothing\": null,\n"
                     "  \"stages\": [\n"
                     "    {\n"
                     "      \"dp\": 1\n"
                     "    },\n"
                     "    [2, \"x\"]\n"
                     "  ]\n"
                     "}\n");
    free(data);
    json_decref(value);
    unlink(path);
}

TEST(json_write_exact, "what is written reads back equal, to the last bit of a real")
{
    static const double reals[] = {0.1,  1.0 / 3, 3.141592653589793, 5e-324, 1.7976931348623157e308,
                                   -0.0, 1e22};
    struct error err = {0};
    json_t *value = json_object(), *list = json_array(), *again;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        json_array_append_new(list, json_real(reals[i]));
    json_object_set_new(value, "reals", list);
    json_object_set_new(value, "most", json_integer(INT64_MAX));
    json_object_set_new(value, "least", json_integer(INT64_MIN));
    json_object_set_new(value, "na\"me", json_string("tab\t \\ \xc3\xa9"));
    ASSERT_OK(jsonfile_write(value, file_with(""), &err));
    ASSERT_OK(jsonfile_read(path, &again, &err));
    ASSERT(json_equal(value, again));
    ASSERT(signbit(json_real_value(json_array_get(json_object_get(again, "reals"), 5))));
    json_decref(again);
    json_decref(value);
    unlink(path);
}

TEST(json_write_nowhere, "a place that cannot be written to is an error that names it")
{
    struct error err = {0};
    json_t *value = json_object();
    ASSERT_INT(jsonfile_write(value, "/no/such/folder/plan.json", &err), -1);
    ASSERT_HAS(err.text, "/no/such/folder/plan.json");
    ASSERT_INT(jsonfile_write(value, "/dev/full", &err), -1);
    ASSERT_HAS(err.text, "No space left");
    json_decref(value);
}

static void assert_string(const char *text, const char *expected)
{
    json_t *value = jsonfile_string(text);
    ASSERT_STR(json_string_value(value), expected);
    json_decref(value);
}

TEST(json_string_utf8, "UTF-8 is kept; each byte that is not part of a character becomes a question mark")
{
    assert_string("", "");
    assert_string("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
    assert_string("caf\xe9", "caf?");           /* Latin-1 */
    assert_string("\xc3\xa9\xc3", "\xc3\xa9?"); /* cut inside a character */
    assert_string("a\xff\xe2\x82z\xc3\xa9", "a???z\xc3\xa9");
    assert_string("\xed\xa0\x80", "???"); /* half of a surrogate pair */
    json_t *none = jsonfile_string(NULL);
    ASSERT(json_is_null(none));
    json_decref(none);
}

TEST(json_fields, "fields of the right type are read")
{
    struct error err = {0};
    json_t *value =
               parse("{\"i\": -3, \"w\": 1e9, \"r\": 0.5, \"b\": true, \"t\": \"x\", \"a\": [1], \"o\": {}}"),
           *part;
    int64_t whole;
    double real;
    bool truth = false;
    const char *text;
    ASSERT_OK(jsonfile_int(value, "i", "F", &whole, &err));
    ASSERT_INT(whole, -3);
    ASSERT_OK(jsonfile_int(value, "w", "F", &whole, &err));
    ASSERT_INT(whole, 1000000000);
    ASSERT_OK(jsonfile_real(value, "r", "F", &real, &err));
    ASSERT(real == 0.5);
    ASSERT_OK(jsonfile_real(value, "i", "F", &real, &err));
    ASSERT(real == -3);
    ASSERT_OK(jsonfile_bool_optional(value, "b", "F", &truth, &err));
    ASSERT(truth);
    ASSERT_OK(jsonfile_text(value, "t", "F", &text, &err));
    ASSERT_STR(text, "x");
    ASSERT_OK(jsonfile_array(value, "a", "F", &part, &err));
    ASSERT_INT(json_array_size(part), 1);
    ASSERT_OK(jsonfile_object(value, "o", "F", &part, &err));
    ASSERT(json_is_object(part));
    json_decref(value);
}

TEST(json_fields_absent, "optional fields that are absent or null leave the variable alone")
{
    struct error err = {0};
    json_t *value = parse("{\"n\": null}");
    static const char *const keys[] = {"n", "absent"};
    for (int i = 0; i < 2; i++) {
        int64_t whole = 7;
        double real = 7;
        bool truth = true;
        const char *text = "seven";
        ASSERT_OK(jsonfile_int_optional(value, keys[i], "F", &whole, &err));
        ASSERT_OK(jsonfile_real_optional(value, keys[i], "F", &real, &err));
        ASSERT_OK(jsonfile_bool_optional(value, keys[i], "F", &truth, &err));
        ASSERT_OK(jsonfile_text_optional(value, keys[i], "F", &text, &err));
        ASSERT(whole == 7 && real == 7 && truth);
        ASSERT_STR(text, "seven");
    }
    json_decref(value);
}

TEST(json_fields_required, "required fields that are absent or null are errors that name file and key")
{
    struct error err = {0};
    json_t *value = parse("{\"n\": null}"), *part;
    int64_t whole;
    double real;
    const char *text;
    ASSERT_INT(jsonfile_int(value, "layers", "plan.json", &whole, &err), -1);
    ASSERT_STR(err.text, "plan.json: key \"layers\" is missing, expected a whole number");
    ASSERT_INT(jsonfile_int(value, "n", "plan.json", &whole, &err), -1);
    ASSERT_STR(err.text, "plan.json: key \"n\" is null, expected a whole number");
    ASSERT_INT(jsonfile_real(value, "lr", "plan.json", &real, &err), -1);
    ASSERT_STR(err.text, "plan.json: key \"lr\" is missing, expected a number");
    ASSERT_INT(jsonfile_text(value, "name", "plan.json", &text, &err), -1);
    ASSERT_STR(err.text, "plan.json: key \"name\" is missing, expected a string");
    ASSERT_INT(jsonfile_array(value, "stages", "plan.json", &part, &err), -1);
    ASSERT_STR(err.text, "plan.json: key \"stages\" is missing, expected a list");
    ASSERT_INT(jsonfile_object(value, "layout", "plan.json", &part, &err), -1);
    ASSERT_STR(err.text, "plan.json: key \"layout\" is missing, expected an object");
    json_decref(value);
}

TEST(json_fields_wrong, "a field of the wrong type says what it is and what was expected")
{
    struct error err = {0};
    json_t *value = parse(
               "{\"s\": \"x\", \"r\": 2.5, \"i\": 3, \"a\": [], \"o\": {}, \"t\": true, \"big\": 1e19}"),
           *part;
    int64_t whole = 7;
    double real;
    bool truth;
    const char *text;
    ASSERT_INT(jsonfile_int(value, "s", "F", &whole, &err), -1);
    ASSERT_STR(err.text, "F: key \"s\" is a string, expected a whole number");
    ASSERT_INT(jsonfile_int_optional(value, "r", "F", &whole, &err), -1);
    ASSERT_STR(err.text, "F: key \"r\" is 2.5, expected a whole number");
    ASSERT_INT(jsonfile_int(value, "big", "F", &whole, &err), -1); /* 2^63 is 9.2e18 */
    ASSERT_STR(err.text, "F: key \"big\" is 1e+19, expected a whole number");
    ASSERT_INT(whole, 7);
    ASSERT_INT(jsonfile_real(value, "a", "F: stages[2]", &real, &err), -1);
    ASSERT_STR(err.text, "F: stages[2]: key \"a\" is a list, expected a number");
    ASSERT_INT(jsonfile_bool_optional(value, "i", "F", &truth, &err), -1);
    ASSERT_STR(err.text, "F: key \"i\" is a whole number, expected true or false");
    ASSERT_INT(jsonfile_text(value, "t", "F", &text, &err), -1);
    ASSERT_STR(err.text, "F: key \"t\" is true, expected a string");
    ASSERT_INT(jsonfile_array(value, "o", "F", &part, &err), -1);
    ASSERT_STR(err.text, "F: key \"o\" is an object, expected a list");
    ASSERT_INT(jsonfile_object(value, "a", "F", &part, &err), -1);
    ASSERT_STR(err.text, "F: key \"a\" is a list, expected an object");
    json_decref(value);
}
