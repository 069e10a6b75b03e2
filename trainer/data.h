/* What is trained on: a text file (its bytes are the tokens), a token file of llm.c, or random samples. The tokens
 * are cut into windows of seq_len + 1 that do not overlap; a sample is one window, and a sample's number alone says
 * which. So every rank finds its share of a step by counting, and the number of the next sample is all that a run
 * needs to resume.
 *
 * Models that read feature vectors get one per token, from a Gaussian table that is never trained, and the next
 * token modulo the classes as the label. */
#ifndef MEMPLAN_TRAINER_DATA_H
#define MEMPLAN_TRAINER_DATA_H

#include "base/error.h"

#include <stdint.h>

struct data;

struct data_spec {
    const char *path;    /* a file, or "random": 1,000 samples made from the seed (a file of that name is "./random") */
    int64_t vocab;       /* every token must be below it; with features: the number of classes */
    int64_t seq_len;     /* T */
    int64_t feature_dim; /* C of the feature vectors, or 0: the model reads tokens */
    uint64_t seed;
    /* The last tokens are kept for validation: this share of them (0.1), at most 10 MB, at least one window; 0: none. */
    double validation_fraction;
    int threads; /* how many OS threads data_fill_features() may use, >= 1 */
};

enum data_part { DATA_TRAINING, DATA_VALIDATION };

/* Maps the file and checks its tokens. *out is owned by the caller: data_close(). It does not change any more: ranks
 * may share it. Errors name the file and, where one is to blame, the token and its position. */
int data_open(const struct data_spec *spec, struct data **out, struct error *err);
void data_close(struct data *data); /* NULL is fine */

/* Windows in a part: the samples of one epoch. Validation has 0 when none was asked for, when the data are random,
 * or when they are too few to be split; training always has some. */
int64_t data_samples(const struct data *data, enum data_part part);

/* Samples sample .. sample + count - 1, counted from the start of the run: rank r of a step takes those that start
 * at step * global_batch + its first position. Training visits every window once per epoch in an order of (seed,
 * epoch); validation goes through its windows from first to last, again and again. targets[t] is the token after
 * tokens[t]. */
void data_fill(const struct data *data, enum data_part part, int64_t sample, int64_t count,
               int32_t *tokens,   /* (count, T) */
               int32_t *targets); /* (count, T) */

/* The same samples for a model that reads features: feature_dim > 0. */
void data_fill_features(const struct data *data, enum data_part part, int64_t sample, int64_t count,
                        float *features,  /* (count, T, C) */
                        int32_t *labels); /* (count, T) */

#endif
