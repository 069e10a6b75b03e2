/* A data set is a long row of tokens, mapped from a file or computed from the seed, and a rule that turns a sample's
 * number into a place in that row. */
#include "trainer/data.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "trainer/file_map.h"
#include "trainer/random.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { RANDOM_SAMPLES = 1000, VALIDATION_MAX_BYTES = 10 * 1000 * 1000, BYTE_VALUES = 256, PARTS = 2 };

/* The header of llm.c's token files (its llmc/dataloader.h, 2024): magic, version, tokens, and zeros. */
enum { HEADER_INTS = 256, HEADER_BYTES = HEADER_INTS * 4 };

/* GPT-2 and Llama 3; the last figure is the bytes of a token. */
static const struct token_format {
    int32_t magic, version;
    int width;
} token_formats[] = {{20240520, 1, 2}, {20240801, 7, 4}};

struct data {
    int64_t vocab, seq_len, feature_dim;
    uint64_t seed;
    int threads;
    struct file_map file;
    const void *tokens; /* in the file */
    int width;          /* bytes of a token there; 0: the data are random */
    int64_t token_count;
    int64_t first[PARTS], samples[PARTS]; /* the token where a part starts, and its windows */
    float *byte_features; /* (256, C) for text that feeds features; wider tokens compute theirs */
};

/* What the seed is used for here; apart from the streams that others take from the same seed. */
enum purpose { PURPOSE_ORDER, PURPOSE_TOKENS, PURPOSE_FEATURES };

static struct random_stream stream_for(const struct data *data, enum purpose purpose, int64_t index)
{
    const uint64_t data_streams = 0x64617461; /* "data" */
    uint64_t seed = random_bits(random_stream(data->seed, data_streams), purpose);
    return random_stream(seed, (uint64_t)index);
}

static int spec_check(const struct data_spec *spec, struct error *err);
static int file_find_tokens(struct data *data, const char *path, struct error *err);
static int tokens_check(const struct data *data, const char *path, struct error *err);
static int parts_split(struct data *data, const struct data_spec *spec, struct error *err);

int data_open(const struct data_spec *spec, struct data **out, struct error *err)
{
    if (spec_check(spec, err))
        return -1;
    struct data *data = host_alloc(sizeof *data);
    data->vocab = spec->vocab;
    data->seq_len = spec->seq_len;
    data->feature_dim = spec->feature_dim;
    data->seed = spec->seed;
    data->threads = spec->threads;
    if (!strcmp(spec->path, "random"))
        data->token_count = RANDOM_SAMPLES * (spec->seq_len + 1);
    else if (file_map_open(spec->path, "a text file, a token file (.bin) or the word random", &data->file,
                           err) ||
             file_find_tokens(data, spec->path, err) || tokens_check(data, spec->path, err))
        goto failed;
    if (parts_split(data, spec, err))
        goto failed;
    if (data->feature_dim && data->width == 1) {
        int64_t values = BYTE_VALUES * data->feature_dim;
        data->byte_features = host_alloc((size_t)values * sizeof(float));
        random_fill_normal(stream_for(data, PURPOSE_FEATURES, 0), 0, 1, data->byte_features, values);
    }
    *out = data;
    return 0;
failed:
    data_close(data);
    return -1;
}

void data_close(struct data *data)
{
    if (!data)
        return;
    file_map_close(&data->file);
    free(data->byte_features);
    free(data);
}

int64_t data_samples(const struct data *data, enum data_part part)
{
    return data->samples[part];
}

/* The place of a sample's first token. */
static int64_t window_start(const struct data *data, enum data_part part, int64_t sample)
{
    int64_t samples = data->samples[part];
    assert(sample >= 0 && samples > 0);
    int64_t window = sample % samples;
    if (part == DATA_TRAINING)
        window = random_shuffle(stream_for(data, PURPOSE_ORDER, sample / samples), samples, window);
    return data->first[part] + window * (data->seq_len + 1);
}

static int64_t token_at(const struct data *data, int64_t place)
{
    switch (data->width) {
    case 1:
        return ((const uint8_t *)data->tokens)[place];
    case 2:
        return ((const uint16_t *)data->tokens)[place];
    case 4:
        return ((const uint32_t *)data->tokens)[place];
    }
    return random_below(stream_for(data, PURPOSE_TOKENS, 0), (uint64_t)place, data->vocab);
}

void data_fill(const struct data *data, enum data_part part, int64_t sample, int64_t count, int32_t *tokens,
               int32_t *targets)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t start = window_start(data, part, sample + i);
        for (int64_t t = 0; t < data->seq_len; t++) {
            *tokens++ = (int32_t)token_at(data, start + t);
            *targets++ = (int32_t)token_at(data, start + t + 1);
        }
    }
}

/* The feature vector of the token at `place`: the row of that token in the table, or of that place when data are
 * random. */
static void feature_fill(const struct data *data, int64_t place, float *out)
{
    int64_t row = data->width ? token_at(data, place) : place;
    if (data->byte_features)
        memcpy(out, data->byte_features + row * data->feature_dim, (size_t)data->feature_dim * sizeof(float));
    else
        random_fill_normal(stream_for(data, PURPOSE_FEATURES, 0), (uint64_t)row * (uint64_t)data->feature_dim,
                           1, out, data->feature_dim);
}

void data_fill_features(const struct data *data, enum data_part part, int64_t sample, int64_t count,
                        float *features, int32_t *labels)
{
    int64_t T = data->seq_len, C = data->feature_dim;
    for (int64_t i = 0; i < count; i++) {
        int64_t start = window_start(data, part, sample + i);
#pragma omp parallel for num_threads(data->threads)
        for (int64_t t = 0; t < T; t++) {
            feature_fill(data, start + t, features + (i * T + t) * C);
            labels[i * T + t] = (int32_t)(token_at(data, start + t + 1) % data->vocab);
        }
    }
}

static int spec_check(const struct data_spec *spec, struct error *err)
{
    assert(spec->threads >= 1);
    int64_t ignored;
    if (spec->vocab < 1 || spec->vocab > INT32_MAX)
        return error_set(err, "--vocab %" PRId64 " cannot be trained; use 1 to %d", spec->vocab, INT32_MAX);
    if (spec->seq_len < 1 || !checked_mul(spec->seq_len, 2 * RANDOM_SAMPLES, &ignored))
        return error_set(err, "--seq-len %" PRId64 " cannot be trained; use 1 or more, such as 1024",
                         spec->seq_len);
    if (spec->feature_dim < 0 || !checked_mul(spec->feature_dim, BYTE_VALUES * sizeof(float), &ignored))
        return error_set(err, "feature vectors of %" PRId64 " numbers cannot be made; use 0 or more",
                         spec->feature_dim);
    if (!(spec->validation_fraction >= 0 && spec->validation_fraction < 1))
        return error_set(err, "a validation share of %g leaves nothing to train on; use 0 to 0.9",
                         spec->validation_fraction);
    return 0;
}

/* The magic number decides, not the name; but a .bin file without it is no text, whatever else it may be. */
static int file_find_tokens(struct data *data, const char *path, struct error *err)
{
    int32_t header[3] = {0}; /* magic, version, tokens */
    if (data->file.count >= HEADER_BYTES)
        memcpy(header, data->file.bytes, sizeof header);
    const struct token_format *format = NULL;
    for (size_t i = 0; i < sizeof token_formats / sizeof token_formats[0]; i++)
        if (header[0] == token_formats[i].magic)
            format = &token_formats[i];
    if (!format) {
        if (text_ends_with(path, ".bin"))
            return error_set(
                err,
                "%s does not start with the magic number of a token file (20240520 or 20240801); "
                "make one with llm.c's data scripts, or give text under another name",
                path);
        data->tokens = data->file.bytes;
        data->width = 1;
        data->token_count = data->file.count;
        return 0;
    }
    if (header[1] != format->version)
        return error_set(err, "%s is a token file of version %d; only version %d of this kind can be read",
                         path, header[1], format->version);
    int64_t token_bytes = data->file.count - HEADER_BYTES;
    if (token_bytes != (int64_t)header[2] * format->width)
        return error_set(err,
                         "%s says that it holds %d tokens of %d bytes, but %" PRId64
                         " bytes follow its header; "
                         "copy or make it again",
                         path, header[2], format->width, token_bytes);
    data->tokens = data->file.bytes + HEADER_BYTES;
    data->width = format->width;
    data->token_count = header[2];
    return 0;
}

static int64_t largest_token(const struct data *data)
{
    int64_t largest = 0;
    for (int64_t place = 0; place < data->token_count; place++)
        largest = max_i64(largest, token_at(data, place));
    return largest;
}

static int tokens_check(const struct data *data, const char *path, struct error *err)
{
    bool every_value_allowed = data->vocab >= (int64_t)1 << 8 * data->width;
    if (data->feature_dim || every_value_allowed)
        return 0;
    int64_t largest = largest_token(data);
    if (largest < data->vocab)
        return 0;
    int64_t place = 0;
    while (token_at(data, place) < data->vocab)
        place++;
    return error_set(err,
                     "%s: token %" PRId64 " at position %" PRId64 " is outside a vocabulary of %" PRId64
                     "; use --vocab %" PRId64 " or more",
                     path, token_at(data, place), place, data->vocab, largest + 1);
}

static int parts_split(struct data *data, const struct data_spec *spec, struct error *err)
{
    int64_t window = data->seq_len + 1, tokens = data->token_count, kept = 0;
    if (tokens < 2)
        return error_set(err,
                         "%s holds %" PRId64 " %s, but the shortest sequence needs 2; give a longer file",
                         spec->path, tokens, units_plural(tokens, "token", "tokens"));
    if (tokens < window)
        return error_set(err,
                         "%s holds %" PRId64 " tokens, but one sequence of %" PRId64 " needs %" PRId64
                         "; use --seq-len %" PRId64 " or less, or a longer file",
                         spec->path, tokens, data->seq_len, window, tokens - 1);
    if (spec->validation_fraction > 0 && data->width) {
        kept = (int64_t)(spec->validation_fraction * (double)tokens);
        kept = max_i64(min_i64(kept, VALIDATION_MAX_BYTES / data->width), window);
        if (tokens - kept < window)
            kept = 0;
    }
    data->first[DATA_VALIDATION] = tokens - kept;
    data->samples[DATA_TRAINING] = (tokens - kept) / window;
    data->samples[DATA_VALIDATION] = kept / window;
    return 0;
}
