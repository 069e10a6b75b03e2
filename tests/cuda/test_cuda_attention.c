/* Attention on CUDA against kernels/reference, in the emulation or on a GPU (machine.h): odd lengths and head sizes, grouped
 * heads, causal or not, both dtypes. Every run repeats in three orders of threads and blocks and must give the same bits; in the
 * emulation tensors are malloc'ed to the byte, so that the address sanitizer sees an access beyond them. */
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/cuda_table.h"
#include "tests/cuda/cuhost_control.h"
#include "tests/cuda/machine.h"
#include "tests/kernels/fill.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))

struct shape {
    int64_t B, T, H, K, D;
};

static int64_t window; /* of the attention at hand; 0: none, and no scale of its own */

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
    void *memory = machine_alloc((size_t)(count * dtype_bytes(dtype)));
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
    run.qkv = machine_random(1, dtype, run.rows);
    run.dout = machine_random(2, dtype, run.heads);
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
    machine_free(run->qkv);
    machine_free(run->dout);
    machine_free(run->out);
    machine_free(run->dqkv);
    machine_free(run->lse);
    machine_free(run->delta);
}

static struct attention_args forward_args(const struct shape *shape, const struct run *run, bool causal)
{
    struct attention_args args = {.B = shape->B, .T = shape->T, .H = shape->H, .K = shape->K, .D = shape->D};
    args.window = window, args.scale = window ? 0.1 : 0;
    args.dtype = run->dtype, args.causal = causal;
    args.qkv = run->qkv, args.out = run->out, args.lse = run->lse;
    return args;
}

static struct attention_grad_args backward_args(const struct shape *shape, const struct run *run, bool causal)
{
    struct attention_grad_args args = {
        .B = shape->B, .T = shape->T, .H = shape->H, .K = shape->K, .D = shape->D};
    args.window = window, args.scale = window ? 0.1 : 0;
    args.dtype = run->dtype, args.causal = causal;
    args.dout = run->dout, args.qkv = run->qkv, args.out = run->out, args.lse = run->lse;
    args.delta = run->delta, args.dqkv = run->dqkv;
    return args;
}

/* The largest difference from `expected`, beside the largest element of it, or `least`. */
static void check_beside(const char *what, const struct shape *shape, enum dtype dtype, const void *got,
                         const void *expected, int64_t count, double tolerance, double least)
{
    double error = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        double difference = fabs(element_get(dtype, got, i) - element_get(dtype, expected, i));
        error = isnan(difference) ? INFINITY : fmax(error, difference);
        largest = fmax(largest, fabs(element_get(dtype, expected, i)));
    }
    ASSERT_MSG(error <= tolerance * fmax(largest, least),
               "%s, %s: B=%ld T=%ld H=%ld K=%ld D=%ld: error %g beside a largest element of %g", what,
               dtype_name(dtype), (long)shape->B, (long)shape->T, (long)shape->H, (long)shape->K,
               (long)shape->D, error, largest);
}

static void check_near(const char *what, const struct shape *shape, enum dtype dtype, const void *got,
                       const void *expected, int64_t count, double tolerance)
{
    check_beside(what, shape, dtype, got, expected, count, tolerance, 1e-6);
}

/* The logarithm of a sum near 1 is as far off as the sum, however small it is: a GPU's exponential of almost 0 may be 1 + 2^-22. */
static void check_lse(const struct shape *shape, const struct run *run, const struct run *expected)
{
    check_beside("lse", shape, DTYPE_F32, run->lse, expected->lse, run->statistics, 2e-6, 1);
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
        MACHINE_RUN(cuda_attention(&context, &forward, &err));
        backward = backward_args(shape, &run, causal);
        backward.out = expected.out, backward.lse = expected.lse;
        MACHINE_RUN(cuda_attention_grad(&context, &backward, &err));
        if (order > 0) {
            check_same("out", shape, run.out, first.out, dtype, run.heads);
            check_same("lse", shape, run.lse, first.lse, DTYPE_F32, run.statistics);
            check_same("dqkv", shape, run.dqkv, first.dqkv, dtype, run.rows);
            run_free(&run);
            continue;
        }
        first = run;
        check_near("out", shape, dtype, run.out, expected.out, run.heads, tolerance_of(dtype));
        check_lse(shape, &run, &expected);
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

/* Every length with every head size, and groups of 1, 2 and 4 heads with every length and size. */
TEST_LOOP(cuda_attention_shapes, "attention and its gradient over one to several tiles of queries and keys",
          4)
{
    static const int64_t lengths[] = {1, 7, 64, 65, 129}, sizes[] = {8, 24, 64, 80, 128},
                         groups[] = {1, 2, 4};
    for (int64_t i = 0; i < COUNT(lengths); i++)
        for (int64_t k = 0; k < COUNT(sizes); k++) {
            const int64_t group = groups[(i + k) % COUNT(groups)], K = group == 1 ? 2 : 1;
            check_orders(&(struct shape){1, lengths[i], K * group, K, sizes[k]}, dtype_of(_i), _i & 2, 4, 1);
        }
}

/* Windows of one key, part of a tile, a tile, one more, and several; each tile of queries begins with another tile of keys; each
 * size of tile, half of them with each window. */
TEST_LOOP(cuda_attention_windows, "causal attention and its gradient in windows, and a scale of its own", 2)
{
    static const int64_t windows[] = {1, 5, 33, 64, 65, 100, 300}, sizes[] = {24, 64, 80, 96, 128, 256};
    for (int64_t i = 0; i < COUNT(windows); i++)
        for (int64_t k = i % 2; k < COUNT(sizes); k += 2) {
            window = windows[i];
            check_orders(&(struct shape){1, sizes[k] == 256 ? 70 : 193, 2, 1, sizes[k]}, dtype_of(_i), true,
                         4, 1);
        }
    window = 40;
    check_orders(&(struct shape){1, 129, 2, 1, 33}, dtype_of(_i), true, 1, CUHOST_ORDERS);
    window = 0;
}

TEST_LOOP(cuda_attention_orders, "over several tiles too the bits do not depend on the order of threads", 2)
{
    const struct shape shape = {1, 129, 2, 1, 64};
    check_orders(&shape, dtype_of(_i), true, 1, CUHOST_ORDERS);
}

/* Scores of tens to hundreds: rows with one weight near 1, exponentials that would overflow were the largest score not taken
 * out, and larger and larger ones while a block goes on. F32 scores of 300 are good to 300 * 2^-24, and so are weights. */
TEST_LOOP(cuda_attention_sharp, "scores of hundreds neither overflow nor lose their row's largest", 4)
{
    const struct shape shape = {1, 100, 2, 1, 64};
    struct run expected = run_create(&shape, dtype_of(_i), 100), run = run_create(&shape, dtype_of(_i), 100);
    struct attention_args args = forward_args(&shape, &expected, _i & 2);
    ASSERT_OK(kernels_reference.attention(&context, &args, &err));
    args = forward_args(&shape, &run, _i & 2);
    MACHINE_RUN(cuda_attention(&context, &args, &err));
    check_near("out", &shape, run.dtype, run.out, expected.out, run.heads,
               run.dtype == DTYPE_BF16 ? tolerance_of(DTYPE_BF16) : 1e-4);
    check_lse(&shape, &run, &expected);
    run_free(&expected);
    run_free(&run);
}

/* The same numbers two bytes (BF16) or four (F32) further on: no access of 16 bytes is aligned any more. */
TEST_LOOP(cuda_attention_unaligned, "tensors that are not aligned to 16 bytes give the same", 2)
{
    const struct shape shape = {1, 70, 2, 1, 64};
    const enum dtype dtype = dtype_of(_i);
    struct run run = run_create(&shape, dtype, 1), other = run_create(&shape, dtype, 1);
    const size_t shift = (size_t)dtype_bytes(dtype), bytes = (size_t)run.rows * shift;
    char *qkv = machine_alloc(bytes + shift), *dqkv = machine_alloc(bytes + shift);
    memcpy(qkv + shift, run.qkv, bytes);
    struct attention_args forward = forward_args(&shape, &run, true);
    struct attention_grad_args backward = backward_args(&shape, &run, true);
    MACHINE_RUN(cuda_attention(&context, &forward, &err));
    MACHINE_RUN(cuda_attention_grad(&context, &backward, &err));
    forward = forward_args(&shape, &other, true);
    forward.qkv = qkv + shift;
    MACHINE_RUN(cuda_attention(&context, &forward, &err));
    backward = backward_args(&shape, &other, true);
    backward.qkv = qkv + shift, backward.dqkv = dqkv + shift;
    MACHINE_RUN(cuda_attention_grad(&context, &backward, &err));
    ASSERT(memcmp(run.out, other.out, (size_t)run.heads * shift) == 0);
    ASSERT(memcmp(run.lse, other.lse, (size_t)run.statistics * sizeof(float)) == 0);
    /* delta is summed in another order. */
    check_near("dqkv", &shape, dtype, dqkv + shift, run.dqkv, run.rows, tolerance_of(dtype) / 2);
    machine_free(qkv);
    machine_free(dqkv);
    run_free(&run);
    run_free(&other);
}

TEST_LOOP(cuda_attention_causal, "a causal query takes exactly nothing from later keys and values", 2)
{
    /* Queries are 0, so softmax is even; values are 0 but the last token's: 2^99. All outputs are 0 but the last: 2^99/128. */
    enum { LENGTH = 128, SIZE = 16, ROW = 3 * SIZE };
    const struct shape shape = {1, LENGTH, 1, 1, SIZE};
    struct run run = run_create(&shape, dtype_of(_i), 0);
    for (int64_t i = 0; i < run.rows; i++)
        if (i % ROW >= SIZE)
            element_set(run.dtype, run.qkv, i, i / ROW == LENGTH - 1 ? 0x1p99 : 0);
    struct attention_args args = forward_args(&shape, &run, true);
    MACHINE_RUN(cuda_attention(&context, &args, &err));
    for (int64_t i = 0; i < run.heads - SIZE; i++)
        ASSERT(element_get(run.dtype, run.out, i) == 0);
    for (int64_t i = run.heads - SIZE; i < run.heads; i++)
        ASSERT(element_get(run.dtype, run.out, i) == 0x1p99 / LENGTH);
    run_free(&run);
}

/* The loss out . dout, by the reference in F64, where one element of qkv moves by `step`. */
static double moved_loss(const struct attention_args *args, const double *dout, double *qkv, int64_t i,
                         double step)
{
    const double kept = qkv[i];
    double loss = 0;
    qkv[i] += step;
    ASSERT_OK(kernels_reference.attention(&context, args, &err));
    qkv[i] = kept;
    for (int64_t k = 0; k < args->B * args->T * args->H * args->D; k++)
        loss += ((double *)args->out)[k] * dout[k];
    return loss;
}

/* Independent of the reference's backward: slopes of its forward in F64. They are good to about 1e-9; F32 to 1e-6. */
TEST_LOOP(cuda_attention_slopes, "the gradient is the slope of the loss, by finite differences", 2)
{
    const struct shape shape = {1, 13, 4, 2, 6};
    const double step = 1e-5;
    struct run run = run_create(&shape, DTYPE_F32, 2), wide = run_create(&shape, DTYPE_F64, 1);
    double *statistics = host_alloc((size_t)run.statistics * sizeof *statistics);
    for (int64_t i = 0; i < run.rows; i++)
        element_set(DTYPE_F64, wide.qkv, i, element_get(DTYPE_F32, run.qkv, i));
    for (int64_t i = 0; i < run.heads; i++)
        element_set(DTYPE_F64, wide.dout, i, element_get(DTYPE_F32, run.dout, i));
    struct attention_args forward = forward_args(&shape, &run, _i);
    struct attention_grad_args backward = backward_args(&shape, &run, _i);
    MACHINE_RUN(cuda_attention(&context, &forward, &err));
    MACHINE_RUN(cuda_attention_grad(&context, &backward, &err));
    forward = forward_args(&shape, &wide, _i);
    forward.lse = statistics;
    for (int64_t i = 0; i < run.rows; i++) {
        double slope = (moved_loss(&forward, wide.dout, wide.qkv, i, step) -
                        moved_loss(&forward, wide.dout, wide.qkv, i, -step)) /
                       (2 * step);
        ASSERT_NEAR(element_get(DTYPE_F32, run.dqkv, i), slope, 3e-6);
    }
    free(statistics);
    run_free(&run);
    run_free(&wide);
}

TEST(cuda_attention_refusals,
     "heads too large, shared unevenly or of another dtype are refused with a sentence")
{
    struct attention_args args = {.B = 1, .T = 1, .H = 3, .K = 2, .D = 8, .dtype = DTYPE_F32};
    ASSERT(cuda_attention(&context, &args, &err) == -1);
    ASSERT_HAS(err.text, "3 query heads");
    args.K = 3, args.D = 257;
    ASSERT(cuda_attention(&context, &args, &err) == -1);
    ASSERT_HAS(err.text, "heads of 257 elements");
    struct attention_grad_args grad = {.B = 1, .T = 1, .H = 1, .K = 1, .D = 0, .dtype = DTYPE_BF16};
    ASSERT(cuda_attention_grad(&context, &grad, &err) == -1);
    ASSERT_HAS(err.text, "heads of 0 elements");
    grad.D = 8, grad.dtype = DTYPE_F64;
    ASSERT(cuda_attention_grad(&context, &grad, &err) == -1);
    ASSERT_HAS(err.text, "F64");
}
