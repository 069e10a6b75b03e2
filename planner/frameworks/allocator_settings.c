/* The grammar of c10/core/AllocatorConfig.cpp (read at commit 065861fb, 2025): "key:value,key:value", blanks nowhere matter;
 * roundup_power2_divisions may be a list of sizes in MB: "[256:1,512:2,>:4]". */
#include "planner/frameworks/allocator_settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1LL << 20)

/* What is left to read. */
struct reader {
    const char *at;
    char token[64];
};

/* A word, or one of ":,[]"; an empty token is the end. What is longer than any word of the grammar is cut. */
static void next(struct reader *reader)
{
    size_t length = 0;
    while (*reader->at && strchr(" \t\n", *reader->at))
        reader->at++;
    if (*reader->at && strchr(":,[]", *reader->at)) {
        reader->token[length++] = *reader->at++;
    } else {
        for (; *reader->at && !strchr(":,[] \t\n", *reader->at); reader->at++)
            if (length + 1 < sizeof reader->token)
                reader->token[length++] = *reader->at;
    }
    reader->token[length] = 0;
}

static bool is(const struct reader *reader, const char *token)
{
    return !strcmp(reader->token, token);
}

static int expect(struct reader *reader, const char *token, const char *key, struct error *err)
{
    next(reader);
    if (is(reader, token))
        return 0;
    return error_set(err, "PYTORCH_CUDA_ALLOC_CONF: after %s comes \"%s\"; it must be \"%s\"", key,
                     reader->token, token);
}

static int wrong_value(const struct reader *reader, const char *key, const char *wanted, struct error *err)
{
    return error_set(err, "PYTORCH_CUDA_ALLOC_CONF: %s is \"%s\"; it must be %s", key, reader->token, wanted);
}

static int read_bool(struct reader *reader, const char *key, bool *value, struct error *err)
{
    if (expect(reader, ":", key, err))
        return -1;
    next(reader);
    if (!is(reader, "True") && !is(reader, "False"))
        return wrong_value(reader, key, "True or False", err);
    *value = is(reader, "True");
    return 0;
}

static bool to_whole(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    long long read = strtoll(text, &end, 10);
    *value = read;
    return *text && !*end && !errno && read >= 0;
}

/* Of MB, at least 20: kLargeBuffer. */
static int read_mb(struct reader *reader, const char *key, int64_t *bytes, struct error *err)
{
    int64_t value;
    if (expect(reader, ":", key, err))
        return -1;
    next(reader);
    if (!to_whole(reader->token, &value) || value < 20)
        return wrong_value(reader, key, "20 or more", err);
    *bytes = value < 1LL << 40 ? value * MIB : INT64_MAX;
    return 0;
}

static int read_share(struct reader *reader, const char *key, double *share, struct error *err)
{
    char *end;
    if (expect(reader, ":", key, err))
        return -1;
    next(reader);
    double value = strtod(reader->token, &end);
    if (!*reader->token || *end || !(value > 0 && value <= 1))
        return wrong_value(reader, key, "above 0 and at most 1", err);
    *share = value;
    return 0;
}

static bool is_power(int64_t value)
{
    return value > 0 && !(value & (value - 1));
}

static int read_divisions_of(struct reader *reader, const char *key, int64_t *divisions, struct error *err)
{
    if (!to_whole(reader->token, divisions) || (*divisions && !is_power(*divisions)))
        return wrong_value(reader, key, "0 or a power of 2", err);
    return 0;
}

static void fill(int64_t *list, int from, int to, int64_t value)
{
    for (int i = from; i < to; i++)
        list[i] = value;
}

/* parseRoundUpPower2Divisions(): the first size's divisions hold below it too, ">" from the last size on. */
static int read_list(struct reader *reader, const char *key, int64_t *list, struct error *err)
{
    int last = 0;
    bool first = true;
    for (next(reader); !is(reader, "]"); next(reader)) {
        int64_t size = 0, value;
        bool rest = is(reader, ">");
        if (!rest && (!to_whole(reader->token, &size) || !is_power(size)))
            return wrong_value(reader, key, "a list of powers of 2 in MB, and \">\"", err);
        if (expect(reader, ":", key, err))
            return -1;
        next(reader);
        if (read_divisions_of(reader, key, &value, err))
            return -1;
        if (rest) {
            fill(list, last, CACHING_ALLOCATOR_SIZES, value);
        } else {
            for (last = 0; last < CACHING_ALLOCATOR_SIZES - 1 && size > 1LL << last;)
                last++;
            fill(list, first ? 0 : last, last + 1, value);
            first = false;
        }
        next(reader);
        if (is(reader, "]"))
            return 0;
        if (!is(reader, ","))
            return wrong_value(reader, key, "a list that ends in \"]\"", err);
    }
    return 0;
}

static int read_divisions(struct reader *reader, const char *key, int64_t *list, struct error *err)
{
    int64_t value;
    if (expect(reader, ":", key, err))
        return -1;
    next(reader);
    if (is(reader, "["))
        return read_list(reader, key, list, err);
    if (read_divisions_of(reader, key, &value, err))
        return -1;
    fill(list, 0, CACHING_ALLOCATOR_SIZES, value);
    return 0;
}

static int read_backend(struct reader *reader, const char *key, struct error *err)
{
    if (expect(reader, ":", key, err))
        return -1;
    next(reader);
    if (is(reader, "native"))
        return 0;
    return error_set(
        err,
        "no rule is about PYTORCH_CUDA_ALLOC_CONF's backend:%s; try backend:native to see what that needs",
        reader->token);
}

/* Settings that change no figure: of pinned host memory, of locks, of graphs' streams. */
static bool is_irrelevant(const struct reader *reader)
{
    return !strncmp(reader->token, "pinned_", 7) || !strncmp(reader->token, "release_lock_on_", 16) ||
           is(reader, "graph_capture_record_stream_reuse");
}

static int read_setting(struct reader *reader, struct caching_allocator_options *o, struct error *err)
{
    if (is(reader, "expandable_segments"))
        return read_bool(reader, "expandable_segments", &o->expandable_segments, err);
    if (is(reader, "max_split_size_mb"))
        return read_mb(reader, "max_split_size_mb", &o->max_split_bytes, err);
    if (is(reader, "max_non_split_rounding_mb"))
        return read_mb(reader, "max_non_split_rounding_mb", &o->max_rounding_bytes, err);
    if (is(reader, "garbage_collection_threshold"))
        return read_share(reader, "garbage_collection_threshold", &o->gc_threshold, err);
    if (is(reader, "per_process_memory_fraction"))
        return read_share(reader, "per_process_memory_fraction", &o->memory_fraction, err);
    if (is(reader, "roundup_power2_divisions"))
        return read_divisions(reader, "roundup_power2_divisions", o->power2_divisions, err);
    if (is(reader, "backend"))
        return read_backend(reader, "backend", err);
    if (!is_irrelevant(reader))
        return error_set(
            err,
            "no rule is about PYTORCH_CUDA_ALLOC_CONF's %s; leave it out to see what the job needs without",
            reader->token);
    if (expect(reader, ":", "a setting", err))
        return -1;
    next(reader);
    return 0;
}

int allocator_settings_read(const char *text, struct caching_allocator_options *out, struct error *err)
{
    struct caching_allocator_options options = {.capacity_bytes = out->capacity_bytes};
    struct reader reader = {.at = text ? text : ""};
    for (next(&reader); *reader.token; next(&reader)) {
        if (read_setting(&reader, &options, err))
            return -1;
        next(&reader);
        if (*reader.token && !is(&reader, ","))
            return error_set(
                err, "PYTORCH_CUDA_ALLOC_CONF: \"%s\" follows a value; settings are separated by commas",
                reader.token);
        if (!*reader.token)
            break;
    }
    *out = options;
    return 0;
}
