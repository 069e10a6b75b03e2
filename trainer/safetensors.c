/* The reading half of safetensors.h. It trusts nothing: the header is checked against the size of the file before any
 * tensor can be reached. The writing half is safetensors_writer.c. */
#include "trainer/safetensors.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/json.h"
#include "trainer/file_map.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, HEADER_LIMIT = 100 * 1000 * 1000 /* of the format's reference reader */ };

static const char metadata_key[] = "__metadata__";

/* The types of the format; those we can also write are in base/dtype.h. */
static const struct {
    const char *name;
    int64_t bytes;
} known_dtypes[] = {
    {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"I32", 4},     {"I16", 2},     {"I8", 1},
    {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

struct safetensors {
    struct arena *arena;
    const char *path;
    struct file_map map;
    json_t *header; /* owns the names and the notes */
    const unsigned char *data;
    int64_t data_bytes, count;
    struct safetensors_tensor *tensors;        /* by place */
    const struct safetensors_tensor **by_name; /* the same, sorted by name */
};

static int header_parse(struct safetensors *file, struct error *err);
static int tensors_read(struct safetensors *file, struct error *err);
static int tensors_check_places(struct safetensors *file, struct error *err);
static void tensors_sort_names(struct safetensors *file);

int safetensors_open(const char *path, struct safetensors **out, struct error *err)
{
    struct arena *arena = arena_create();
    struct safetensors *file = arena_alloc(arena, sizeof *file);
    file->arena = arena;
    file->path = arena_strdup(arena, path);
    if (file_map_open(path, "a .safetensors file", &file->map, err) || header_parse(file, err) ||
        tensors_read(file, err) || tensors_check_places(file, err)) {
        safetensors_close(file);
        return -1;
    }
    tensors_sort_names(file);
    *out = file;
    return 0;
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    file_map_close(&file->map);
    json_decref(file->header);
    arena_free(file->arena);
}

int64_t safetensors_count(const struct safetensors *file)
{
    return file->count;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *file, int64_t index)
{
    assert(index >= 0 && index < file->count);
    return &file->tensors[index];
}

static int compare_with_name(const void *name, const void *tensor)
{
    return strcmp(name, (*(const struct safetensors_tensor *const *)tensor)->name);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
    const struct safetensors_tensor **found =
        bsearch(name, file->by_name, (size_t)file->count, sizeof *file->by_name, compare_with_name);
    return found ? *found : NULL;
}

static void read_halves(const unsigned char *from, int64_t count, float (*convert)(uint16_t), float *out)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + i * (int64_t)sizeof half, sizeof half);
        out[i] = convert(half);
    }
}

int safetensors_read_f32(const struct safetensors *file, const struct safetensors_tensor *tensor,
                         int64_t first, int64_t count, float *out, struct error *err)
{
    assert(first >= 0 && count >= 0 && first <= tensor->elements - count);
    const unsigned char *from = tensor->data + first * tensor->element_bytes;
    if (!strcmp(tensor->dtype, "F32")) {
        memcpy(out, from, (size_t)count * sizeof *out);
    } else if (!strcmp(tensor->dtype, "BF16")) {
        read_halves(from, count, bf16_to_f32, out);
    } else if (!strcmp(tensor->dtype, "F16")) {
        read_halves(from, count, f16_to_f32, out);
    } else if (!strcmp(tensor->dtype, "F64")) {
        for (int64_t i = 0; i < count; i++) {
            double wide;
            memcpy(&wide, from + i * (int64_t)sizeof wide, sizeof wide);
            out[i] = (float)wide;
        }
    } else {
        return error_set(
            err, "%s: tensor %s is %s; only F32, BF16, F16 and F64 can be read as weights, so convert it",
            file->path, tensor->name, tensor->dtype);
    }
    return 0;
}

static int header_parse(struct safetensors *file, struct error *err)
{
    uint64_t header_bytes;
    if (file->map.count < LENGTH_BYTES)
        return error_set(err, "%s has %" PRId64 " bytes, too few for a safetensors file; copy it again",
                         file->path, file->map.count);
    memcpy(&header_bytes, file->map.bytes, LENGTH_BYTES);
    int64_t most = min_i64(file->map.count - LENGTH_BYTES, HEADER_LIMIT);
    if (header_bytes > (uint64_t)most)
        return error_set(err,
                         "%s says that its header has %" PRIu64 " bytes, but at most %" PRId64
                         " are possible; it is cut short or no safetensors file",
                         file->path, header_bytes, most);
    const char *json = (const char *)file->map.bytes + LENGTH_BYTES;
    json_error_t problem;
    file->header = json_loadb(json, header_bytes, JSON_REJECT_DUPLICATES, &problem);
    if (!file->header)
        return error_set(err, "%s: the header is no JSON (%s, at byte %d); copy the file again", file->path,
                         problem.text, problem.position);
    if (!json_is_object(file->header))
        return error_set(err, "%s: the header is no JSON object; copy the file again", file->path);
    file->data = (const unsigned char *)json + header_bytes;
    file->data_bytes = file->map.count - LENGTH_BYTES - (int64_t)header_bytes;
    return 0;
}

static int notes_check(const struct safetensors *file, json_t *notes, struct error *err)
{
    const char *key;
    json_t *note;
    if (!json_is_object(notes))
        return error_set(err, "%s: __metadata__ is no JSON object; write the file again", file->path);
    json_object_foreach(notes, key, note)
    {
        if (!json_is_string(note))
            return error_set(err,
                             "%s: the value of \"%.100s\" in __metadata__ is no string; write the file again",
                             file->path, key);
    }
    return 0;
}

static int tensor_read(const struct safetensors *file, const char *name, const json_t *described,
                       struct safetensors_tensor *tensor, struct error *err);

static int tensors_read(struct safetensors *file, struct error *err)
{
    const char *name;
    json_t *value;
    file->tensors = arena_array(file->arena, json_object_size(file->header), sizeof *file->tensors);
    json_object_foreach(file->header, name, value)
    {
        if (!strcmp(name, metadata_key)) {
            if (notes_check(file, value, err))
                return -1;
        } else if (tensor_read(file, name, value, &file->tensors[file->count++], err)) {
            return -1;
        }
    }
    return 0;
}

static int shape_read(const char *where, const json_t *shape, struct safetensors_tensor *tensor,
                      struct error *err)
{
    if (json_array_size(shape) > SAFETENSORS_DIMS)
        return error_set(err, "%s has %zu dimensions; at most %d can be read", where, json_array_size(shape),
                         SAFETENSORS_DIMS);
    tensor->elements = 1;
    tensor->dim_count = (int)json_array_size(shape);
    for (int i = 0; i < tensor->dim_count; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        tensor->dims[i] = json_integer_value(dim);
        if (!json_is_integer(dim) || tensor->dims[i] < 0 ||
            !checked_mul(tensor->elements, tensor->dims[i], &tensor->elements))
            return error_set(err,
                             "%s: dimension %d of its shape cannot be that of a tensor; copy the file again",
                             where, i);
    }
    return 0;
}

static int place_read(const struct safetensors *file, const char *where, const json_t *offsets,
                      struct safetensors_tensor *tensor, struct error *err)
{
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last) || begin < 0 ||
        end < begin)
        return error_set(err, "%s: data_offsets are not [begin, end]; copy the file again", where);
    if (end > file->data_bytes)
        return error_set(err,
                         "%s ends at byte %" PRId64 " of the data, but the file holds only %" PRId64
                         "; it is cut short, so copy it again",
                         where, end, file->data_bytes);
    tensor->data = file->data + begin;
    tensor->bytes = end - begin;
    return 0;
}

static int64_t known_bytes(const char *dtype)
{
    for (size_t i = 0; i < sizeof known_dtypes / sizeof known_dtypes[0]; i++)
        if (!strcmp(known_dtypes[i].name, dtype))
            return known_dtypes[i].bytes;
    return 0;
}

static int tensor_read(const struct safetensors *file, const char *name, const json_t *described,
                       struct safetensors_tensor *tensor, struct error *err)
{
    char where[400];
    json_t *shape, *offsets;
    snprintf(where, sizeof where, "%.200s: tensor %.150s", file->path, name);
    if (!json_is_object(described))
        return error_set(err, "%s is not described by a JSON object; copy the file again", where);
    if (jsonfile_text(described, "dtype", where, &tensor->dtype, err) ||
        jsonfile_array(described, "shape", where, &shape, err) ||
        jsonfile_array(described, "data_offsets", where, &offsets, err) ||
        shape_read(where, shape, tensor, err) || place_read(file, where, offsets, tensor, err))
        return -1;
    tensor->name = name;
    tensor->element_bytes = known_bytes(tensor->dtype);
    int64_t needed;
    if (tensor->element_bytes &&
        (!checked_mul(tensor->elements, tensor->element_bytes, &needed) || needed != tensor->bytes))
        return error_set(err,
                         "%s has %" PRId64 " elements of %s, which do not take %" PRId64
                         " bytes; copy the file again",
                         where, tensor->elements, tensor->dtype, tensor->bytes);
    return 0;
}

static int compare_places(const void *left, const void *right)
{
    const struct safetensors_tensor *a = left, *b = right;
    if (a->data != b->data)
        return a->data < b->data ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* The format allows neither overlaps nor gaps. */
static int tensors_check_places(struct safetensors *file, struct error *err)
{
    int64_t end = 0;
    if (file->count)
        qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, compare_places);
    for (int64_t i = 0; i < file->count; i++) {
        const struct safetensors_tensor *tensor = &file->tensors[i];
        int64_t begin = tensor->data - file->data;
        if (begin != end)
            return error_set(err,
                             "%s: tensor %.150s begins at byte %" PRId64
                             " of the data, but the one before it ends at %" PRId64 "; copy the file again",
                             file->path, tensor->name, begin, end);
        end += tensor->bytes;
    }
    if (end != file->data_bytes)
        return error_set(err,
                         "%s: the tensors end at byte %" PRId64 " of the data, but the file holds %" PRId64
                         "; copy it again",
                         file->path, end, file->data_bytes);
    return 0;
}

static int compare_names(const void *left, const void *right)
{
    const struct safetensors_tensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static void tensors_sort_names(struct safetensors *file)
{
    file->by_name = arena_array(file->arena, (size_t)file->count, sizeof *file->by_name);
    for (int64_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
}
