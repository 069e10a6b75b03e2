/* Attention on CUDA against kernels/reference, in the emulation: odd lengths and head sizes, grouped heads, causal or not,
 * both dtypes. Every run repeats in three orders of threads and blocks and must give the same bits; tensors are malloc'ed to
 * the byte, so that the address sanitizer sees an access beyond them. */
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/cuda_table.h"
#include "tests/cuda/cuhost_control.h"
#include "tests/kernels/fill.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))

struct shape {
    int64_t B, T, H, K, D;
};

static struct error err;
static struct cuda_context device;
static const struct kernel_context context = {.threads = 1, .device = &device};

/* The tensors of one forward and backward. */
struct run {
    enum dtype dtype;
    int64_t rows, heads; /* elements of qkv, and of out */
    int64_t statistics;
    void *qkv, *dout, *out, *lse, *delta, *dqkv;
};

static void *allocate(enum dtype dtype, int64_t count)
{
    void *memory = host_alloc((size_t)(count * dtype_bytes(dtype)));
    return memset(memory, 0xff, (size_t)(count * dtype_bytes(dtype)));
}

/* Random inputs; whatever shall be computed is NaN. `sharpness` times a query: large ones pick few keys. */
static struct run run_create(const struct shape *shape, enum dtype dtype, double sharpness)
{
    struct run run = {.dtype = dtype,
                      .rows = shape->B * shape->T * (shape->H + 2 * shape->K) * shape->D,
                      .heads = shape->B * shape->T * shape->H * shape->D,
                      .statistics = shape->B * shape->H * shape->T};
    const int64_t row = (shape->H + 2 * shape->K) * shape->D;
    run.qkv = random_buffer(1, dtype, run.rows);
    run.dout = random_buffer(2, dtype, run.heads);
    run.out = allocate(dtype, run.heads);
    run.dqkv = allocate(dtype, run.rows);
    run.lse = allocate(DTYPE_F32, run.statistics);
    run.delta = allocate(DTYPE_F32, run.statistics);
    for (int64_t i = 0; i < run.rows; i++)
        if (i % row < shape->H * shape->D)
            element_set(dtype, run.qkv, i, sharpness * element_get(dtype, run.qkv, i));
    return run;
}

static void run_free(struct run *run)
{
    free(run->qkv);
    free(run->dout);
    free(run->out);
    free(run->dqkv);
    free(run->lse);
    free(run->delta);
}

static struct attention_args forward_args(const struct shape *shape, const struct run *run, bool causal)
{
    struct attention_args args = {.B = shape->B, .T = shape->T, .H = shape->H, .K = shape->K, .D = shape->D};
    args.dtype = run->dtype, args.causal = causal;
    args.qkv = run->qkv, args.out = run->out, args.lse = run->lse;
    return args;
}

static struct attention_grad_args backward_args(const struct shape *shape, const struct run *run, bool causal)
{
    struct attention_grad_args args = {
        .B = shape->B, .T = shape->T, .H = shape->H, .K = shape->K, .D = shape->D};
    args.dtype = run->dtype, args.causal = causal;
    args.dout = run->dout, args.qkv = run->qkv, args.out = run->out, args.lse = run->lse;
    args.delta = run->delta, args.dqkv = run->dqkv;
    return args;
}

/* The largest difference from `expected`, beside the largest element of it. */
static void check_near(const char *what, const struct shape *shape, enum dtype dtype, const void *got,
                       const void *expected, int64_t count, double tolerance)
{
    double error = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        double difference = fabs(element_get(dtype, got, i) - element_get(dtype, expected, i));
        error = isnan(difference) ? INFINITY : fmax(error, difference);
        largest = fmax(largest, fabs(element_get(dtype, expected, i)));
    }
    ASSERT_MSG(error <= tolerance * fmax(largest, 1e-6),
               "%s, %s: B=%ld T=%ld H=%ld K=%ld D=%ld: error %g beside a largest element of %g", what,
               dtype_name(dtype), (long)shape->B, (long)shape->T, (long)shape->H, (long)shape->K,
               (long)shape->D, error, largest);
}

static void check_same(const char *what, const struct shape *shape, const void *got, const void *expected,
                       enum dtype dtype, int64_t count)
{
    ASSERT_MSG(memcmp(got, expected, (size_t)(count * dtype_bytes(dtype))) == 0,
               "%s, %s: B=%ld T=%ld H=%ld K=%ld D=%ld: the bits depend on the order of threads", what,
               dtype_name(dtype), (long)shape->B, (long)shape->T, (long)shape->H, (long)shape->K,
               (long)shape->D);
}

/* BF16: results are rounded to 8 bits (2^-9 of themselves), weights before they multiply too, and those errors differ from
 * term to term. F32: sums of up to a few hundred terms in another order, and exponentials good to 2 bits. */
static double tolerance_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? 1.5e-2 : 5e-6;
}

/* Backward starts from the reference's output, so that it alone is compared. */
static void check_orders(const struct shape *shape, enum dtype dtype, bool causal, double sharpness,
                         int orders)
{
    struct run expected = run_create(shape, dtype, sharpness);
    struct attention_args forward = forward_args(shape, &expected, causal);
    struct attention_grad_args backward = backward_args(shape, &expected, causal);
    ASSERT_OK(kernels_reference.attention(&context, &forward, &err));
    ASSERT_OK(kernels_reference.attention_grad(&context, &backward, &err));
    struct run first = {0};
    for (int order = 0; order < orders; order++) {
        struct run run = run_create(shape, dtype, sharpness);
        cuhost_set_order((enum cuhost_order)order);
        forward = forward_args(shape, &run, causal);
        ASSERT_OK(cuda_attention(&context, &forward, &err));
        backward = backward_args(shape, &run, causal);
        backward.out = expected.out, backward.lse = expected.lse;
        ASSERT_OK(cuda_attention_grad(&context, &backward, &err));
        if (order > 0) {
            check_same("out", shape, run.out, first.out, dtype, run.heads);
            check_same("lse", shape, run.lse, first.lse, DTYPE_F32, run.statistics);
            check_same("dqkv", shape, run.dqkv, first.dqkv, dtype, run.rows);
            run_free(&run);
            continue;
        }
        first = run;
        check_near("out", shape, dtype, run.out, expected.out, run.heads, tolerance_of(dtype));
        check_near("lse", shape, DTYPE_F32, run.lse, expected.lse, run.statistics, 2e-6);
        check_near("delta", shape, DTYPE_F32, run.delta, expected.delta, run.statistics, 2e-6);
        check_near("dqkv", shape, dtype, run.dqkv, expected.dqkv, run.rows, tolerance_of(dtype));
    }
    run_free(&first);
    run_free(&expected);
}

static enum dtype dtype_of(int setting)
{
    return setting & 1 ? DTYPE_BF16 : DTYPE_F32;
}

/* One position; part of a tile; a tile; one more; several. Heads of 8 to 256, of which 5 and 33 are not multiples of 16
 * bytes; each size of tile once at least. */
static const struct shape small_shapes[] = {
    {1, 1, 1, 1, 8},   {2, 7, 4, 2, 24},  {1, 64, 2, 1, 8},   {1, 65, 4, 1, 24},
    {2, 1, 4, 4, 128}, {1, 7, 2, 1, 80},  {1, 65, 1, 1, 33},  {2, 33, 2, 2, 5},
    {1, 9, 2, 1, 256}, {1, 40, 1, 1, 96}, {1, 64, 1, 1, 136},
};

TEST_LOOP(cuda_attention_small,
          "attention and its gradient of up to 65 positions, in three orders, F32 and BF16", 4)
{
    for (int64_t i = 0; i < COUNT(small_shapes); i++)
        check_orders(&small_shapes[i], dtype_of(_i), _i & 2, 1, CUHOST_ORDERS);
}

static const struct shape long_shapes[] = {
    {1, 129, 4, 2, 64}, {1, 129, 2, 2, 80}, {1, 129, 4, 1, 128}, {1, 200, 2, 1, 24}};

TEST_LOOP(cuda_attention_long, "attention and its gradient over several tiles of queries and keys", 4)
{
    for (int64_t i = 0; i < COUNT(long_shapes); i++)
        check_orders(&long_shapes[i], dtype_of(_i), _i & 2, 4, 1);
}

TEST_LOOP(cuda_attention_orders, "over several tiles too the bits do not depend on the order of threads", 2)
{
    const struct shape shape = {1, 129, 2, 1, 64};
    check_orders(&shape, dtype_of(_i), true, 1, CUHOST_ORDERS);
}
