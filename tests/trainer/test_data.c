#include "trainer/data.h"

#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file that lasts as long as the test; `path` ends with `suffix`. */
struct temporary {
    char path[64];
};

static struct temporary temporary_write(const char *suffix, const void *bytes, size_t count)
{
    struct temporary file;
    snprintf(file.path, sizeof file.path, "/tmp/memplan-data-XXXXXX%s", suffix);
    int handle = mkstemps(file.path, (int)strlen(suffix));
    ASSERT(handle >= 0);
    ASSERT(write(handle, bytes, count) == (ssize_t)count);
    close(handle);
    return file;
}

/* A token file of llm.c: 256 ints of header, then tokens of `width` bytes. */
static struct temporary token_file(int32_t magic, int32_t version, int32_t says, const uint32_t *tokens,
                                   int count, int width)
{
    char bytes[4096] = {0};
    int32_t header[3] = {magic, version, says};
    memcpy(bytes, header, sizeof header);
    for (int i = 0; i < count; i++)
        memcpy(bytes + 1024 + i * width, &tokens[i], (size_t)width);
    return temporary_write(".bin", bytes, 1024 + (size_t)(count * width));
}

static struct data_spec spec_of(const char *path, int64_t vocab, int64_t seq_len)
{
    return (struct data_spec){.path = path, .vocab = vocab, .seq_len = seq_len, .seed = 42, .threads = 1};
}

static struct data *must_open(struct data_spec spec)
{
    struct data *data;
    struct error err;
    ASSERT_OK(data_open(&spec, &data, &err));
    return data;
}

/* The message of a data_open() that must fail. */
static const char *must_fail(struct data_spec spec)
{
    static struct error err;
    struct data *untouched = NULL;
    ASSERT_INT(data_open(&spec, &untouched, &err), -1);
    ASSERT(!untouched);
    return err.text;
}

/* 43 letters in windows of 3 + 1: 10 windows at 0, 4, ..., 36; the last 3 letters are in none. */
TEST(data_text_epoch, "an epoch visits every window of a text once, and targets are the next bytes")
{
    const char *text = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";
    struct temporary file = temporary_write(".txt", text, 43);
    struct data *data = must_open(spec_of(file.path, 256, 3));
    ASSERT_INT(data_samples(data, DATA_TRAINING), 10);
    ASSERT_INT(data_samples(data, DATA_VALIDATION), 0);
    for (int epoch = 0; epoch < 3; epoch++) {
        int32_t tokens[10][3], targets[10][3], seen = 0;
        data_fill(data, DATA_TRAINING, epoch * 10, 10, tokens[0], targets[0]);
        for (int i = 0; i < 10; i++) {
            long start = strchr(text, tokens[i][0]) - text;
            ASSERT_INT(start % 4, 0);
            for (int t = 0; t < 3; t++) {
                ASSERT_INT(tokens[i][t], text[start + t]);
                ASSERT_INT(targets[i][t], text[start + t + 1]);
            }
            seen |= 1 << start / 4;
        }
        ASSERT_INT(seen, 0x3ff);
    }
    data_close(data);
    unlink(file.path);
}

TEST(data_layout, "a sample's number gives its window, whatever the ranks and micro-batches that ask")
{
    struct data *data = must_open(spec_of("random", 1000, 8));
    int32_t whole[12][8], whole_targets[12][8], part[8], part_targets[8];
    data_fill(data, DATA_TRAINING, 995, 12, whole[0], whole_targets[0]); /* across the end of an epoch */
    for (int i = 11; i >= 0; i--) {
        data_fill(data, DATA_TRAINING, 995 + i, 1, part, part_targets);
        ASSERT(!memcmp(part, whole[i], sizeof part));
        ASSERT(!memcmp(part_targets, whole_targets[i], sizeof part_targets));
    }
    data_close(data);
}

/* How many of the first 100 samples begin with the same token as those of `other`. */
static int same_starts(struct data_spec spec, int64_t sample, struct data_spec other_spec,
                       int64_t other_sample)
{
    struct data *data = must_open(spec), *other = must_open(other_spec);
    int same = 0;
    for (int i = 0; i < 100; i++) {
        int32_t token, other_token, target;
        data_fill(data, DATA_TRAINING, sample + i, 1, &token, &target);
        data_fill(other, DATA_TRAINING, other_sample + i, 1, &other_token, &target);
        same += token == other_token;
    }
    data_close(data);
    data_close(other);
    return same;
}

/* 200 bytes, all different, in 100 windows of 1 + 1. Two independent orders agree in one place of 100 on average;
 * more than ten would have a probability below 1e-7. */
TEST(data_order, "each epoch and each seed has an order of its own, and the same ones give it again")
{
    unsigned char bytes[200];
    for (int i = 0; i < 200; i++)
        bytes[i] = (unsigned char)i;
    struct temporary file = temporary_write("", bytes, sizeof bytes);
    struct data_spec spec = spec_of(file.path, 256, 1), reseeded = spec;
    reseeded.seed = 43;
    ASSERT_INT(same_starts(spec, 0, spec, 0), 100);
    ASSERT(same_starts(spec, 0, spec, 100) <= 10);
    ASSERT(same_starts(spec, 0, reseeded, 0) <= 10);
    unlink(file.path);
}

/* 80 tokens: the last 8 are validation, two windows of 4, and the first 72 hold 18 training windows. */
TEST(data_validation, "validation reads the last tenth from first to last and starts over")
{
    char text[80];
    for (int i = 0; i < 80; i++)
        text[i] = (char)(' ' + i);
    struct temporary file = temporary_write("", text, sizeof text);
    struct data_spec spec = spec_of(file.path, 256, 3);
    spec.validation_fraction = 0.1;
    struct data *data = must_open(spec);
    ASSERT_INT(data_samples(data, DATA_TRAINING), 18);
    ASSERT_INT(data_samples(data, DATA_VALIDATION), 2);
    int32_t tokens[3][3], targets[3][3];
    data_fill(data, DATA_VALIDATION, 0, 3, tokens[0], targets[0]);
    ASSERT_INT(tokens[0][0], ' ' + 72);
    ASSERT_INT(targets[0][2], ' ' + 75);
    ASSERT_INT(tokens[1][0], ' ' + 76);
    ASSERT_INT(targets[1][2], ' ' + 79);
    ASSERT(!memcmp(tokens[2], tokens[0], sizeof tokens[0]));
    for (int sample = 0; sample < 18; sample++) {
        data_fill(data, DATA_TRAINING, sample, 1, tokens[0], targets[0]);
        ASSERT(targets[0][2] < ' ' + 72);
    }
    data_close(data);
    unlink(file.path);
}

/* With windows of 4: a tenth of 8 tokens is none, so one window is kept and one left. 7 tokens cannot be split. */
TEST(data_validation_small, "validation gets at least one window, or none when training would have none")
{
    struct temporary file = temporary_write("", "abcdefgh", 8);
    struct data_spec spec = spec_of(file.path, 256, 3);
    spec.validation_fraction = 0.1;
    struct data *data = must_open(spec);
    ASSERT_INT(data_samples(data, DATA_TRAINING), 1);
    ASSERT_INT(data_samples(data, DATA_VALIDATION), 1);
    data_close(data);
    ASSERT_INT(truncate(file.path, 7), 0);
    data = must_open(spec);
    ASSERT_INT(data_samples(data, DATA_TRAINING), 1);
    ASSERT_INT(data_samples(data, DATA_VALIDATION), 0);
    data_close(data);
    unlink(file.path);
}

/* 300,000,000 bytes: a tenth would be 30 MB; 10 MB are 10,000 windows of 1,000 and leave 290,000. */
TEST(data_validation_large, "validation takes at most 10 MB of a large file")
{
    struct temporary file = temporary_write("", "", 0);
    ASSERT_INT(truncate(file.path, 300000000), 0);
    struct data_spec spec = spec_of(file.path, 256, 999);
    spec.validation_fraction = 0.1;
    struct data *data = must_open(spec);
    ASSERT_INT(data_samples(data, DATA_TRAINING), 290000);
    ASSERT_INT(data_samples(data, DATA_VALIDATION), 10000);
    data_close(data);
    unlink(file.path);
}

TEST(data_token_files, "token files of GPT-2 (16 bits) and Llama 3 (32 bits) give their tokens")
{
    const uint32_t small[3] = {50256, 7, 65535}, large[3] = {128000, 7, 70000};
    struct temporary gpt2 = token_file(20240520, 1, 3, small, 3, 2);
    struct temporary llama = token_file(20240801, 7, 3, large, 3, 4);
    int32_t tokens[2], targets[2];
    struct data *data = must_open(spec_of(gpt2.path, 65536, 2));
    data_fill(data, DATA_TRAINING, 0, 1, tokens, targets);
    ASSERT_INT(tokens[0], 50256);
    ASSERT_INT(tokens[1], 7);
    ASSERT_INT(targets[1], 65535);
    data_close(data);
    data = must_open(spec_of(llama.path, 128001, 2));
    data_fill(data, DATA_TRAINING, 0, 1, tokens, targets);
    ASSERT_INT(tokens[0], 128000);
    ASSERT_INT(tokens[1], 7);
    ASSERT_INT(targets[1], 70000);
    data_close(data);
    unlink(gpt2.path);
    unlink(llama.path);
}

/* In "Hi~z", '~' is 126 and 'z' 122; the largest token needs a vocabulary of 127. */
TEST(data_vocab, "the vocabulary must hold the largest token, and no more is asked for")
{
    struct temporary text = temporary_write(".txt", "Hi~z", 4);
    const char *message = must_fail(spec_of(text.path, 122, 3));
    ASSERT_HAS(message, text.path);
    ASSERT_HAS(message, "token 126 at position 2 is outside a vocabulary of 122; use --vocab 127 or more");
    data_close(must_open(spec_of(text.path, 127, 3)));
    data_close(must_open(spec_of(text.path, 50257, 3)));
    const uint32_t tokens[3] = {1, 50257, 4000000000u};
    struct temporary large = token_file(20240801, 7, 3, tokens, 3, 4);
    message = must_fail(spec_of(large.path, 50257, 2));
    ASSERT_HAS(message, "token 50257 at position 1 is outside a vocabulary of 50257; use --vocab 4000000001");
    unlink(text.path);
    unlink(large.path);
}

TEST(data_short,
     "data shorter than one sequence names what is held, what is needed and the longest that works")
{
    struct temporary file = temporary_write(".txt", "0123456789", 10);
    ASSERT_HAS(must_fail(spec_of(file.path, 256, 10)),
               "holds 10 tokens, but one sequence of 10 needs 11; use --seq-len 9 or less");
    struct data *data = must_open(spec_of(file.path, 256, 9));
    ASSERT_INT(data_samples(data, DATA_TRAINING), 1);
    data_close(data);
    ASSERT_INT(truncate(file.path, 1), 0);
    ASSERT_HAS(must_fail(spec_of(file.path, 256, 1)), "holds 1 token, but the shortest sequence needs 2");
    unlink(file.path);
}

TEST(data_bad_files, "what is no data is refused with the reason")
{
    ASSERT_HAS(must_fail(spec_of("/tmp/no-such-folder/x.txt", 256, 1)), "No such file");
    ASSERT_HAS(must_fail(spec_of("/tmp", 256, 1)),
               "/tmp is not a regular file; give a text file, a token file (.bin) or the word random");
    struct temporary file = temporary_write(".txt", "", 0);
    ASSERT_HAS(must_fail(spec_of(file.path, 256, 4)), "holds 0 tokens, but the shortest sequence needs 2");
    unlink(file.path);

    const uint32_t tokens[3] = {1, 2, 3};
    file = token_file(20240520, 2, 3, tokens, 3, 2);
    ASSERT_HAS(must_fail(spec_of(file.path, 256, 1)), "version 2; only version 1");
    unlink(file.path);
    file = token_file(20240520, 1, 4, tokens, 3, 2);
    ASSERT_HAS(must_fail(spec_of(file.path, 256, 1)), "holds 4 tokens of 2 bytes, but 6 bytes follow");
    unlink(file.path);
    file = token_file(20240520, 1, -3, tokens, 3, 2);
    ASSERT_HAS(must_fail(spec_of(file.path, 256, 1)), "holds -3 tokens");
    unlink(file.path);
    file = token_file(20240521, 1, 3, tokens, 3, 2);
    ASSERT_HAS(must_fail(spec_of(file.path, 256, 1)), "magic number of a token file");
    unlink(file.path);
}

TEST(data_bad_spec, "a vocabulary, length or share that makes no sense is refused")
{
    ASSERT_HAS(must_fail(spec_of("random", 0, 8)), "--vocab 0");
    ASSERT_HAS(must_fail(spec_of("random", 1LL << 31, 8)), "--vocab 2147483648");
    ASSERT_HAS(must_fail(spec_of("random", 8, 0)), "--seq-len 0");
    ASSERT_HAS(must_fail(spec_of("random", 8, INT64_MAX)), "--seq-len 9223372036854775807");
    struct data_spec spec = spec_of("random", 8, 8);
    spec.validation_fraction = 1;
    ASSERT_HAS(must_fail(spec), "validation share of 1");
    spec.validation_fraction = NAN;
    ASSERT_HAS(must_fail(spec), "validation share of nan");
}

/* 1,000 samples of 8 + 1 tokens below 10: 8,000 inputs, each value 800 times, standard deviation sqrt(8000 * 0.09) =
 * 26.8. */
TEST(data_random_tokens, "random data are 1,000 samples of uniform tokens that the seed decides")
{
    enum { SAMPLES = 1000, T = 8 };
    static int32_t tokens[SAMPLES * T], targets[SAMPLES * T], again[SAMPLES * T];
    struct data_spec spec = spec_of("random", 10, T);
    spec.validation_fraction = 0.1;
    struct data *data = must_open(spec);
    ASSERT_INT(data_samples(data, DATA_TRAINING), SAMPLES);
    ASSERT_INT(data_samples(data, DATA_VALIDATION), 0);
    data_fill(data, DATA_TRAINING, 0, SAMPLES, tokens, targets);
    data_close(data);
    int counts[10] = {0};
    for (int i = 0; i < SAMPLES * T; i++) {
        ASSERT(tokens[i] >= 0 && tokens[i] < 10);
        counts[tokens[i]]++;
        if (i % T)
            ASSERT_INT(tokens[i], targets[i - 1]);
    }
    for (int value = 0; value < 10; value++)
        ASSERT_NEAR(counts[value], 800, 134);
    data = must_open(spec);
    data_fill(data, DATA_TRAINING, 0, SAMPLES, again, targets);
    ASSERT(!memcmp(again, tokens, sizeof tokens));
    data_close(data);
    spec.seed = 43;
    data = must_open(spec);
    data_fill(data, DATA_TRAINING, 0, SAMPLES, again, targets);
    ASSERT(memcmp(again, tokens, sizeof tokens));
    data_close(data);
}

/* 64 samples of 4 positions and 16 features: 4,096 numbers; standard errors 1/64 and sqrt(2/4096) = 0.022, bounds
 * five. */
TEST(data_random_features,
     "random features are Gaussian, labels are classes, and a second epoch brings the same samples")
{
    enum { SAMPLES = 64, T = 4, C = 16, COUNT = SAMPLES * T * C };
    static float features[COUNT], sample[T * C];
    static int32_t labels[SAMPLES * T], sample_labels[T];
    struct data_spec spec = spec_of("random", 5, T);
    spec.feature_dim = C;
    struct data *data = must_open(spec);
    data_fill_features(data, DATA_TRAINING, 0, SAMPLES, features, labels);
    double sum = 0, squares = 0;
    int classes = 0;
    for (int i = 0; i < COUNT; i++) {
        sum += features[i];
        squares += features[i] * features[i];
    }
    for (int i = 0; i < SAMPLES * T; i++) {
        ASSERT(labels[i] >= 0 && labels[i] < 5);
        classes |= 1 << labels[i];
    }
    ASSERT_NEAR(sum / COUNT, 0, 0.08);
    ASSERT_NEAR(squares / COUNT, 1, 0.11);
    ASSERT_INT(classes, 31);
    int found = 0;
    for (int64_t i = 1000; i < 2000; i++) {
        data_fill_features(data, DATA_TRAINING, i, 1, sample, sample_labels);
        found +=
            !memcmp(sample, features, sizeof sample) && !memcmp(sample_labels, labels, sizeof sample_labels);
    }
    ASSERT_INT(found, 1);
    data_close(data);
}

/* "abcabc" holds two windows of "abc": 'a' = 97, 'b' = 98, 'c' = 99; labels modulo 10 are 8 ("b") and 9 ("c"). The
 * classes are fewer than the tokens, which is no error here. */
TEST(data_text_features,
     "a token's features are its row of one table, its label the next token modulo the classes")
{
    enum { C = 6 };
    const uint32_t tokens[6] = {'a', 'b', 'c', 'a', 'b', 'c'};
    struct temporary text = temporary_write("", "abcabc", 6), wide = token_file(20240520, 1, 6, tokens, 6, 2);
    float features[2][2][C], wide_features[2][2][C];
    int32_t labels[2][2];
    struct data_spec spec = spec_of(text.path, 10, 2);
    spec.feature_dim = C;
    struct data *data = must_open(spec);
    data_fill_features(data, DATA_TRAINING, 0, 2, features[0][0], labels[0]);
    data_close(data);
    ASSERT_INT(labels[0][0], 8);
    ASSERT_INT(labels[0][1], 9);
    ASSERT(!memcmp(features[0], features[1], sizeof features[0]));
    ASSERT(memcmp(features[0][0], features[0][1], sizeof features[0][0]));

    spec.path = wide.path;
    spec.threads = 2;
    data = must_open(spec);
    data_fill_features(data, DATA_TRAINING, 0, 2, wide_features[0][0], labels[0]);
    data_close(data);
    ASSERT(!memcmp(features, wide_features, sizeof features));
    unlink(text.path);
    unlink(wide.path);
}
