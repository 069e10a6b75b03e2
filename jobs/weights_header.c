#include "jobs/weights_header.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LENGTH_BYTES = 8,
    HEADER_MOST = 16 << 20,
    INDEX_MOST = 32 << 20, /* the largest known, of a thousand billion parameters, has 16 */
    MOST_QUOTES = 2000000, /* JSON of so many names takes half a second */
    PATH_ROOM = 4096,
    DTYPES = 16,
    MOST_FILES = 1000
};

static const struct {
    const char *name;
    int bits;
} dtypes[DTYPES] = {{"F64", 64},    {"F32", 32},    {"F16", 16}, {"BF16", 16}, {"I64", 64}, {"I32", 32},
                    {"I16", 16},    {"I8", 8},      {"U8", 8},   {"BOOL", 8},  {"U16", 16}, {"U32", 32},
                    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"U64", 64}, {"F4", 4}};

static int find_dtype(const char *name)
{
    for (int i = 0; name && i < DTYPES; i++)
        if (!strcmp(dtypes[i].name, name))
            return i;
    return -1;
}

/* Of so many bits, be they nearly as many as can be counted. */
static int64_t bytes_of(int64_t bits)
{
    return bits / 8 + (bits % 8 > 0);
}

/* One tensor of the header: its type, and its elements. */
static int count_tensor(const json_t *tensor, const char *where, const char *name, int *dtype,
                        int64_t *elements, struct error *err)
{
    const json_t *shape = json_object_get(tensor, "shape"),
                 *offsets = json_object_get(tensor, "data_offsets");
    *dtype = find_dtype(json_string_value(json_object_get(tensor, "dtype")));
    if (*dtype < 0 || !json_is_array(shape) || json_array_size(offsets) != 2)
        return error_set(
            err, "%s: tensor %.80s has no known dtype, or no shape and data_offsets; download it again",
            where, name);
    *elements = 1;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0 ||
            !checked_mul(*elements, json_integer_value(size), elements))
            return error_set(err, "%s: tensor %.80s has an impossible shape; download it again", where, name);
    }
    int64_t first = json_integer_value(json_array_get(offsets, 0)),
            end = json_integer_value(json_array_get(offsets, 1));
    int64_t bits, taken;
    if (!checked_mul(*elements, dtypes[*dtype].bits, &bits) || first < 0 ||
        __builtin_sub_overflow(end, first, &taken) || taken != bytes_of(bits))
        return error_set(err, "%s: tensor %.80s does not have the bytes of its shape; download it again",
                         where, name);
    return 0;
}

static int count_header(const json_t *header, const char *where, int64_t file_bytes,
                        struct weights_count *out, struct error *err)
{
    int64_t by_dtype[DTYPES] = {0};
    const char *name;
    json_t *tensor;
    json_object_foreach((json_t *)header, name, tensor)
    {
        int dtype;
        int64_t elements = 0,
                end = json_integer_value(json_array_get(json_object_get(tensor, "data_offsets"), 1));
        if (!strcmp(name, "__metadata__"))
            continue;
        if (count_tensor(tensor, where, name, &dtype, &elements, err))
            return -1;
        if (file_bytes >= 0 && end > file_bytes)
            return error_set(err,
                             "%s: tensor %.80s ends behind the file; it was cut short, download it again",
                             where, name);
        if (!checked_add(by_dtype[dtype], elements, &by_dtype[dtype]) ||
            !checked_add(out->parameters, elements, &out->parameters) ||
            !checked_add(out->bytes, bytes_of(elements * dtypes[dtype].bits), &out->bytes))
            return error_set(err, "%s: more parameters than 63 bits count; download it again", where);
        out->tensors++;
    }
    int most = 0;
    for (int i = 1; i < DTYPES; i++)
        most = by_dtype[i] > by_dtype[most] ? i : most;
    snprintf(out->dtype, sizeof out->dtype, "%s", dtypes[most].name);
    return 0;
}

/* JSON whose names are few enough to be read at once; NULL: it is none. */
static json_t *parse(const char *text, size_t length)
{
    const char *at = text, *end = text + length;
    for (int quotes = 0; (at = memchr(at, '"', (size_t)(end - at))); at++)
        if (++quotes > MOST_QUOTES)
            return NULL;
    return json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
}

static int read_index(const char *path, json_t **out, struct error *err)
{
    char *text;
    size_t length;
    if (text_read_file(path, INDEX_MOST, &text, &length, err))
        return -1;
    *out = parse(text, length);
    free(text);
    if (json_is_object(*out))
        return 0;
    json_decref(*out);
    return error_set(err, "%s: no JSON that lists files of weights; is it the right file?", path);
}

int weights_header_parse(const char *text, int64_t length, const char *where, int64_t file_bytes,
                         struct weights_count *out, struct error *err)
{
    json_t *header = parse(text, (size_t)length);
    if (!json_is_object(header)) {
        json_decref(header);
        return error_set(err, "%s: its header is no JSON; is it a .safetensors file?", where);
    }
    int status = count_header(header, where, file_bytes, out, err);
    json_decref(header);
    return status;
}

static int read_header(FILE *file, const char *path, int64_t size, struct weights_count *out,
                       struct error *err)
{
    unsigned char bytes[LENGTH_BYTES];
    uint64_t length = 0;
    if (fread(bytes, 1, LENGTH_BYTES, file) != LENGTH_BYTES)
        return error_set(err, "%s: too short for a .safetensors file; download it again", path);
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | bytes[i];
    if (length > HEADER_MOST || (int64_t)length > size - LENGTH_BYTES)
        return error_set(err,
                         "%s: its first 8 bytes give a header of %llu bytes, which it cannot have; is it a "
                         ".safetensors file?",
                         path, (unsigned long long)length);
    char *text = host_alloc((size_t)length + 1);
    int status;
    if (fread(text, 1, (size_t)length, file) != length)
        status = error_set(err, "%s: cannot be read to the end of its header; download it again", path);
    else
        status = weights_header_parse(text, (int64_t)length, path, size - LENGTH_BYTES - (int64_t)length, out,
                                      err);
    free(text);
    return status;
}

static int count_file(const char *path, struct weights_count *out, struct error *err)
{
    struct stat info;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return error_set(err, "cannot read %s: %s; check the path", path, strerror(errno));
    int status = fstat(fileno(file), &info) || !S_ISREG(info.st_mode)
                     ? error_set(err, "%s: not a file; name a .safetensors file", path)
                     : read_header(file, path, info.st_size, out, err);
    fclose(file);
    return status;
}

/* {"weight_map": {"name": "model-00001-of-00002.safetensors"}}: each file once. */
static int count_index(const char *path, struct weights_count *out, struct error *err)
{
    json_t *index, *map, *value, *files = json_object();
    const char *name, *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0, status = -1;
    if (read_index(path, &index, err)) {
        json_decref(files);
        return -1;
    }
    if (jsonfile_object(index, "weight_map", path, &map, err))
        goto out;
    json_object_foreach(map, name, value)
    {
        if (json_is_string(value))
            json_object_set_new(files, json_string_value(value), json_true());
    }
    status =
        json_object_size(files) > MOST_FILES
            ? error_set(err, "%s: it names %zu files; is it the right file?", path, json_object_size(files))
            : 0;
    json_object_foreach(files, name, value)
    {
        char file[PATH_ROOM];
        snprintf(file, sizeof file, "%.*s%s", folder, path, name);
        if (status || strchr(name, '/') || (status = count_file(file, out, err)))
            break;
    }
out:
    json_decref(files);
    json_decref(index);
    return status;
}

int weights_header_count(const char *path, struct weights_count *out, struct error *err)
{
    struct stat info;
    char inside[PATH_ROOM];
    *out = (struct weights_count){0};
    if (stat(path, &info))
        return error_set(err, "cannot read %s: %s; check the path", path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return text_ends_with(path, ".json") ? count_index(path, out, err) : count_file(path, out, err);
    snprintf(inside, sizeof inside, "%s/model.safetensors.index.json", path);
    if (!stat(inside, &info))
        return count_index(inside, out, err);
    snprintf(inside, sizeof inside, "%s/model.safetensors", path);
    return count_file(inside, out, err);
}
