/* Tensor parallelism at the level of kernels: what ranks with parts of the vocabulary compute, once combined, is what one
 * rank with all of it computes, in both tables. Vocabularies do not divide by the ranks, so that the last ones hold
 * padding, and their padded logits are what would spoil a softmax most. */
#include "kernels/kernels.h"
#include "tests/kernels/fill.h"
#include "tests/kernels/shards.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* _i of a loop: ranks 1 to 4, with the reference in F64, then the fast kernels in F32 and in BF16. */
enum { CASES = 3 * SHARDS_MAX };

static const struct kernel_context two_threads = {.threads = 2};
static struct error err;

static int ranks_of(int loop)
{
    return 1 + loop % SHARDS_MAX;
}

static const struct kernel_table *table_of(int loop)
{
    return loop < SHARDS_MAX ? &kernels_reference : &kernels_cpu;
}

static enum dtype dtype_of(int loop)
{
    static const enum dtype dtypes[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16};
    return dtypes[loop / SHARDS_MAX];
}

/* A BF16 gradient is below 1 and rounded to 8 bits, which may fall either way. */
static double tolerance_of(int loop)
{
    static const double tolerances[] = {1e-13, 1e-6, 0x1p-8};
    return tolerances[loop / SHARDS_MAX];
}

/* Logits within [-10, 10), and targets of which some are ignored. */
struct sample {
    int64_t R, vocabulary;
    enum dtype dtype;
    void *logits;     /* (R, vocabulary) */
    int32_t *targets; /* (R) */
};

static struct sample sample_make(int64_t R, int64_t vocabulary, enum dtype dtype)
{
    struct sample sample = {R, vocabulary, dtype, random_buffer(1, dtype, R * vocabulary),
                            host_alloc((size_t)R * sizeof(int32_t))};
    for (int64_t i = 0; i < R * vocabulary; i++)
        element_set(dtype, sample.logits, i, 10 * element_get(dtype, sample.logits, i));
    random_tokens(2, sample.targets, R, vocabulary);
    sample.targets[R / 2] = -1;
    sample.targets[0] = (int32_t)vocabulary - 1; /* beside the padding */
    return sample;
}

static void sample_free(struct sample *sample)
{
    free(sample->logits);
    free(sample->targets);
}

/* Element (r, v) of the whole is element (r, v % V) of rank v / V. */
static struct shards shards_split(const struct sample *sample, int ranks, double padding)
{
    struct shards shards = {ranks,
                            sample->R,
                            (sample->vocabulary + ranks - 1) / ranks,
                            sample->vocabulary,
                            sample->dtype,
                            sample->targets,
                            {NULL}};
    for (int rank = 0; rank < ranks; rank++) {
        int64_t count = shards.R * shards.V;
        shards.logits[rank] = host_alloc((size_t)(count * dtype_bytes(sample->dtype)));
        for (int64_t i = 0; i < count; i++) {
            int64_t r = i / shards.V, v = rank * shards.V + i % shards.V;
            double logit = v < sample->vocabulary
                               ? element_get(sample->dtype, sample->logits, r * sample->vocabulary + v)
                               : padding;
            element_set(sample->dtype, shards.logits[rank], i, logit);
        }
    }
    return shards;
}

static void shards_free(struct shards *shards)
{
    for (int rank = 0; rank < shards->ranks; rank++)
        free(shards->logits[rank]);
}

static double loss_of_one(const struct kernel_table *table, const struct sample *sample, double scale,
                          bool gradient)
{
    double loss[1] = {0};
    struct cross_entropy_args args = {.R = sample->R, .V = sample->vocabulary, .dtype = sample->dtype};
    args.logits = sample->logits, args.targets = sample->targets;
    args.scale = scale, args.loss = loss, args.gradient = gradient;
    ASSERT_OK(table->cross_entropy(&two_threads, &args, &err));
    return element_get(element_wide(sample->dtype), loss, 0);
}

/* Of all columns: the padding's gradient is 0, and its bits are. */
static void check_gradient(const struct shards *shards, const struct sample *one, double tolerance)
{
    for (int rank = 0; rank < shards->ranks; rank++)
        for (int64_t i = 0; i < shards->R * shards->V; i++) {
            int64_t r = i / shards->V, v = rank * shards->V + i % shards->V;
            double got = element_get(shards->dtype, shards->logits[rank], i);
            bool zero = v >= one->vocabulary || one->targets[r] < 0;
            double expected = zero ? 0 : element_get(one->dtype, one->logits, r * one->vocabulary + v);
            ASSERT_MSG(zero ? got == 0 : fabs(got - expected) <= tolerance,
                       "%d ranks: the gradient of (%d, %d) is %g, not %g", shards->ranks, (int)r, (int)v, got,
                       expected);
        }
}

static void check_split(int loop, int64_t R, int64_t vocabulary, double padding)
{
    const struct kernel_table *table = table_of(loop);
    double scale = 1.0 / (double)R, tolerance = tolerance_of(loop);
    struct sample one = sample_make(R, vocabulary, dtype_of(loop));
    struct shards shards = shards_split(&one, ranks_of(loop), padding);
    double loss = shards_loss(table, &two_threads, &shards, scale, false);
    double expected = loss_of_one(table, &one, scale, false);
    ASSERT_MSG(fabs(loss - expected) <= 1e-6 * expected, "the loss is %.9g, not %.9g", loss, expected);
    ASSERT(shards_loss(table, &two_threads, &shards, scale, true) == loss);
    loss_of_one(table, &one, scale, true);
    check_gradient(&shards, &one, tolerance);
    shards_free(&shards);
    sample_free(&one);
}

TEST_LOOP(shards_cross_entropy,
          "1 to 4 ranks with a vocabulary between them find one rank's loss and gradient", CASES)
{
    check_split(_i, 7, 13, 0);
    check_split(_i, 33, 257, 0);
    check_split(_i, 3, 5003, 0);
    check_split(_i, 5, 12, 0);
}

/* 5 tokens on 4 ranks of 2 columns: the third has one token, the last has none. */
TEST_LOOP(
    shards_cross_entropy_padding,
    "padded logits enter neither loss nor gradient, not even infinite or NaN; a rank may hold nothing else",
    CASES)
{
    static const double paddings[] = {1e4, INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 4; i++) {
        check_split(_i, 7, 13, paddings[i]);
        check_split(_i, 6, 5, paddings[i]);
        check_split(_i, 3, 5003, paddings[i]);
    }
}

TEST_LOOP(shards_cross_entropy_ignored, "an ignored row sends nothing of its logits to the other ranks", 2)
{
    /* max = (-inf, 3); sums = (0, e^-2 + 1), target's (0, 1 - 3) */
    float logits[] = {NAN, INFINITY, 1, 3}, max[2] = {9, 9}, sums[4] = {9, 9, 9, 9};
    const struct kernel_table *table = _i ? &kernels_cpu : &kernels_reference;
    const int32_t targets[] = {-1, 0};
    struct logit_shard shard = {.R = 2, .V = 2, .valid = 2, .vocabulary = 4, .dtype = DTYPE_F32};
    shard.logits = logits, shard.targets = targets;
    struct logit_max_args max_args = {.shard = shard, .max = max};
    ASSERT_OK(table->logit_max(&two_threads, &max_args, &err));
    ASSERT(isinf(max[0]) && max[0] < 0 && max[1] == 3);
    struct logit_sums_args sums_args = {.shard = shard, .max = max, .sums = sums};
    ASSERT_OK(table->logit_sums(&two_threads, &sums_args, &err));
    ASSERT(sums[0] == 0 && sums[2] == 0 && sums[3] == -2);
    ASSERT_NEAR(sums[1], 1.1353353, 1e-6);
}

TEST_LOOP(shards_cross_entropy_nan, "NaN in a column that counts reaches the loss of every rank", 2)
{
    struct sample sample = sample_make(3, 7, DTYPE_F32);
    struct shards shards = shards_split(&sample, 2, 0);
    sample.targets[0] = 6;
    ((float *)shards.logits[0])[0] = NAN; /* row 0, and its target is the other rank's */
    ASSERT(isnan(shards_loss(_i ? &kernels_cpu : &kernels_reference, &two_threads, &shards, 1, false)));
    shards_free(&shards);
    sample_free(&sample);
}

/* A shard of 3 columns from 4 on in a vocabulary of 6: 2 of them are tokens. */
TEST_LOOP(shards_cross_entropy_refused,
          "a target outside the vocabulary and too many valid columns are refused, and nothing is written", 2)
{
    const struct kernel_table *table = _i ? &kernels_cpu : &kernels_reference;
    int32_t targets[] = {-1, 5};
    float logits[6] = {5, 5, 5, 5, 5, 5}, max[2] = {7, 7}, sums[4] = {7, 7, 7, 7}, loss = 7;
    struct logit_shard shard = {.R = 2, .V = 3, .first_column = 4, .valid = 2, .vocabulary = 6};
    shard.dtype = DTYPE_F32, shard.logits = logits, shard.targets = targets;
    struct logit_max_args max_args = {.shard = shard, .max = max};
    struct logit_sums_args sums_args = {.shard = shard, .max = max, .sums = sums};
    struct cross_entropy_sharded_args loss_args = {.shard = shard, .max = max, .sums = sums, .loss = &loss};
    targets[1] = 6;
    ASSERT_INT(table->logit_max(&two_threads, &max_args, &err), -1);
    ASSERT_HAS(err.text, "outside [0, 6)");
    ASSERT_INT(table->logit_sums(&two_threads, &sums_args, &err), -1);
    ASSERT_INT(table->cross_entropy_sharded(&two_threads, &loss_args, &err), -1);
    targets[1] = 5;
    max_args.shard.valid = sums_args.shard.valid = loss_args.shard.valid = 3;
    ASSERT_INT(table->logit_max(&two_threads, &max_args, &err), -1);
    ASSERT_HAS(err.text, "logit_max: 3 valid columns from 4 on exceed the 3 held or the vocabulary of 6");
    ASSERT_INT(table->logit_sums(&two_threads, &sums_args, &err), -1);
    loss_args.gradient = true;
    ASSERT_INT(table->cross_entropy_sharded(&two_threads, &loss_args, &err), -1);
    ASSERT(loss == 7 && max[0] == 7 && max[1] == 7 && sums[0] == 7 && sums[3] == 7 && logits[5] == 5);
}

/* ---- embedding ---- */

enum { B = 3, T = 5, C = 33, R = B * T };

/* The ranks' tables are one after another in a table of `ranks` V rows. */
static struct embed_args embed_of(int ranks, int rank, const struct embed_args *whole)
{
    struct embed_args args = *whole;
    args.V = (whole->vocabulary + ranks - 1) / ranks, args.first_token = rank * args.V;
    args.wte = (const char *)whole->wte + args.first_token * C * dtype_bytes(whole->dtype);
    args.wpe = rank == 0 ? whole->wpe : NULL;
    return args;
}

/* Every element is added to zeros, or a token's row to its position's when both are on the first rank: the same sums. */
static void check_embed(int loop, int64_t vocabulary, bool positions)
{
    const enum dtype dtype = dtype_of(loop);
    const int64_t rows = vocabulary + SHARDS_MAX; /* the last rank's table reaches beyond the vocabulary */
    int32_t tokens[R];
    random_tokens(3, tokens, R, vocabulary);
    tokens[R - 1] = (int32_t)vocabulary - 1;
    void *wte = random_buffer(4, dtype, rows * C), *wpe = random_buffer(5, dtype, T * C);
    void *x = host_alloc((size_t)(R * C * dtype_bytes(dtype)));
    void *expected = host_alloc((size_t)(R * C * dtype_bytes(dtype)));
    double sum[R * C] = {0};
    struct embed_args whole = {.B = B, .T = T, .C = C, .V = vocabulary, .vocabulary = vocabulary};
    whole.dtype = dtype, whole.tokens = tokens, whole.wte = wte, whole.wpe = positions ? wpe : NULL;
    whole.x = expected;
    ASSERT_OK(table_of(loop)->embed(&two_threads, &whole, &err));
    for (int rank = 0; rank < ranks_of(loop); rank++) {
        struct embed_args args = embed_of(ranks_of(loop), rank, &whole);
        args.x = x;
        random_fill(6, dtype, x, R * C); /* left from before: must be overwritten */
        ASSERT_OK(table_of(loop)->embed(&two_threads, &args, &err));
        for (int i = 0; i < R * C; i++)
            sum[i] += element_get(dtype, x, i);
    }
    for (int i = 0; i < R * C; i++) {
        element_set(dtype, x, i, sum[i]);
        ASSERT(element_get(dtype, x, i) == element_get(dtype, expected, i));
    }
    free(wte);
    free(wpe);
    free(x);
    free(expected);
}

TEST_LOOP(shards_embed, "the sum of the ranks' embeddings is the embedding, to the bit", CASES)
{
    check_embed(_i, 13, false);
    check_embed(_i, 13, true);
    check_embed(_i, 5, true);
    check_embed(_i, 101, true);
}

/* Each row of dwte has one owner, who adds in the same order as one rank would. */
static void check_embed_grad(int loop, int64_t vocabulary)
{
    const enum dtype dtype = dtype_of(loop), wide = element_wide(dtype);
    const int64_t V = (vocabulary + ranks_of(loop) - 1) / ranks_of(loop), row_bytes = C * dtype_bytes(wide);
    int32_t tokens[R];
    random_tokens(3, tokens, R, vocabulary);
    void *d = random_buffer(4, dtype, R * C);
    void *dwte = random_buffer(5, wide, V * C), *dwpe = random_buffer(5, wide, T * C);
    void *all_dwte = random_buffer(6, wide, vocabulary * C), *all_dwpe = random_buffer(6, wide, T * C);
    struct embed_grad_args args = {.B = B, .T = T, .C = C, .V = vocabulary, .vocabulary = vocabulary};
    args.positions = T, args.dtype = dtype, args.tokens = tokens, args.d = d;
    args.dwte = all_dwte, args.dwpe = all_dwpe;
    ASSERT_OK(table_of(loop)->embed_grad(&two_threads, &args, &err));
    args.V = V, args.dwte = dwte, args.dwpe = dwpe;
    for (int rank = 0; rank < ranks_of(loop); rank++) {
        args.first_token = rank * V;
        ASSERT_OK(table_of(loop)->embed_grad(&two_threads, &args, &err));
        int64_t held = max_i64(0, min_i64(V, vocabulary - args.first_token));
        ASSERT(!memcmp(dwte, (char *)all_dwte + args.first_token * row_bytes, (size_t)(held * row_bytes)));
        for (int64_t i = held * C; i < V * C; i++)
            ASSERT(element_get(wide, dwte, i) == 0);
        ASSERT(!memcmp(dwpe, all_dwpe, (size_t)(T * row_bytes)));
    }
    free(d);
    free(dwte);
    free(dwpe);
    free(all_dwte);
    free(all_dwpe);
}

TEST_LOOP(shards_embed_grad, "the ranks' table gradients are the rows of one rank's, the padding's are zero",
          CASES)
{
    check_embed_grad(_i, 13);
    check_embed_grad(_i, 5);
    check_embed_grad(_i, 101);
}

TEST_LOOP(shards_embed_refused,
          "another rank's token is no error, one outside the vocabulary is, even if the table is long enough",
          2)
{
    const struct kernel_table *table = _i ? &kernels_cpu : &kernels_reference;
    int32_t tokens[] = {0, 4};
    float wte[3] = {1, 2, 3}, x[2] = {7, 7};
    struct embed_args args = {.B = 1, .T = 2, .C = 1, .V = 3, .first_token = 3, .vocabulary = 5};
    args.dtype = DTYPE_F32, args.tokens = tokens, args.wte = wte, args.x = x;
    ASSERT_OK(table->embed(&two_threads, &args, &err));
    ASSERT(x[0] == 0 && x[1] == 2);
    tokens[1] = 5;
    ASSERT_INT(table->embed(&two_threads, &args, &err), -1);
    struct embed_grad_args grad = {.B = 1, .T = 2, .C = 1, .V = 3, .first_token = 3, .vocabulary = 5};
    grad.dtype = DTYPE_F32, grad.tokens = tokens, grad.d = x, grad.dwte = wte;
    ASSERT_INT(table->embed_grad(&two_threads, &grad, &err), -1);
    ASSERT(x[1] == 2 && wte[0] == 1);
}
