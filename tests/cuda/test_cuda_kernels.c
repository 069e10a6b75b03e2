/* Every CUDA kernel but products and attention, on the host (cuhost.h) or on a GPU (machine.h), against the reference: in F32
 * and BF16, on shapes that fill packs, warps and blocks and shapes that do not, and at addresses that are multiples of 16 bytes
 * or not. Each runs in three orders of threads and blocks, which must give the same bits: a difference is a race. */
#include "base/checked.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/cuda_table.h"
#include "tests/cuda/cuhost_control.h"
#include "tests/cuda/machine.h"
#include "tests/kernels/fill.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* _i of a loop: F32 and BF16. The first run is the reference's. */
enum { DTYPES = 2, RUNS = 1 + CUHOST_ORDERS, MAX_TWINS = 16 };
#define COUNT(list) (int64_t)(sizeof(list) / sizeof *(list))

static struct error err;

static const struct kernel_table tested = {
    .name = "cuda",
    .embed = cuda_embed,
    .embed_grad = cuda_embed_grad,
    .norm = cuda_norm,
    .norm_grad = cuda_norm_grad,
    .residual = cuda_residual,
    .rope = cuda_rope,
    .qk_norm = cuda_qk_norm,
    .qk_norm_grad = cuda_qk_norm_grad,
    .gelu = cuda_gelu,
    .gelu_grad = cuda_gelu_grad,
    .swiglu = cuda_swiglu,
    .swiglu_grad = cuda_swiglu_grad,
    .cross_entropy = cuda_cross_entropy,
    .logit_max = cuda_logit_max,
    .logit_sums = cuda_logit_sums,
    .cross_entropy_sharded = cuda_cross_entropy_sharded,
    .square_sum = cuda_square_sum,
    .adamw = cuda_adamw,
};

/* ---- the device ---- */

enum { SCRATCH = 64 << 10 }; /* little, so that norm_grad makes parts of several rows */

static struct cuda_context device = {.scratch_bytes = SCRATCH};

static const struct kernel_context *context(void)
{
    static struct kernel_context context = {.threads = 1, .device = &device};
    if (device.scratch)
        return &context;
    device.scratch = machine_alloc(SCRATCH);
    device.step = machine_alloc(sizeof *device.step);
    device.fault = machine_copy(&(uint64_t){CUDA_NO_FAULT}, sizeof *device.fault);
    return &context;
}

/* The table of a run; the emulation takes the run's order. */
static const struct kernel_table *table_of(int run)
{
    if (run == 0)
        return &kernels_reference;
    cuhost_set_order((enum cuhost_order)(run - 1));
    context();
    memset(device.scratch, 0xff, SCRATCH);
    return &tested;
}

static enum dtype dtype_of(int setting)
{
    return setting ? DTYPE_BF16 : DTYPE_F32;
}

/* ---- what is compared ---- */

/* As many copies of a buffer that starts out random as there are runs. */
struct twin {
    void *copy[RUNS], *memory[RUNS];
    enum dtype dtype;
    int64_t count;
};

static struct twin twins[MAX_TWINS];
static int twin_count;
static uint64_t seed;
static int64_t shift; /* elements by which every buffer is off a multiple of 16 bytes */

static struct twin twin_make(enum dtype dtype, int64_t count)
{
    ASSERT(twin_count < MAX_TWINS);
    struct twin twin = {.dtype = dtype, .count = count};
    seed++;
    for (int run = 0; run < RUNS; run++) {
        twin.memory[run] = machine_random(seed, dtype, shift + count);
        twin.copy[run] = (char *)twin.memory[run] + shift * dtype_bytes(dtype);
    }
    return twins[twin_count++] = twin;
}

/* |got - expected| / |expected| of the first order's. */
static double relative_error(const struct twin *twin)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < twin->count; i++) {
        double expected = element_get(twin->dtype, twin->copy[0], i);
        double error = element_get(twin->dtype, twin->copy[1], i) - expected;
        difference += error * error;
        size += expected * expected;
    }
    return sqrt(difference) / (sqrt(size) + 1e-30);
}

/* Compares every buffer, written or not, and releases them. The F32 bound is that of the CPU's kernels; BF16 is rounded
 * once, of sums made in F32: few elements go to the other neighbour, which is 2^-8 away. */
static void check(const char *what, enum dtype dtype)
{
    const double tolerance = dtype == DTYPE_F32 ? 1e-5 : 1e-3;
    for (int i = 0; i < twin_count; i++) {
        const struct twin *twin = &twins[i];
        double error = relative_error(twin);
        ASSERT_MSG(error <= tolerance, "%s: buffer %d of %d elements is off by %g", what, i, (int)twin->count,
                   error);
        size_t bytes = (size_t)(twin->count * dtype_bytes(twin->dtype));
        for (int run = 2; run < RUNS; run++)
            ASSERT_MSG(memcmp(twin->copy[1], twin->copy[run], bytes) == 0,
                       "%s: buffer %d depends on the order of threads", what, i);
        for (int run = 0; run < RUNS; run++)
            machine_free(twin->memory[run]);
    }
    twin_count = 0;
    ASSERT_MSG(*device.fault == CUDA_NO_FAULT, "%s: found fault %lx", what, (unsigned long)*device.fault);
}

/* Random values lie in [-1, 1); these reach the tails. */
static void stretch(struct twin *twin, double factor)
{
    for (int run = 0; run < RUNS; run++)
        for (int64_t i = 0; i < twin->count; i++)
            element_set(twin->dtype, twin->copy[run], i,
                        factor * element_get(twin->dtype, twin->copy[run], i));
}

static int32_t *make_tokens(int64_t count, int64_t limit)
{
    int32_t *tokens = machine_alloc((size_t)count * sizeof *tokens);
    random_tokens(++seed, tokens, count, limit);
    return tokens;
}

/* Rows and columns: one, few, packs that fit and do not, a warp's row and a block's. */
static const int64_t row_shapes[][2] = {{1, 1}, {3, 3}, {7, 24}, {5, 768}, {9, 1000}, {3, 1001}, {2, 4104}};

/* ---- the kernels ---- */

static void check_residual(enum dtype dtype, int64_t R, int64_t C, bool bias)
{
    struct twin y = twin_make(dtype, R * C), residual = twin_make(dtype, R * C), b = twin_make(dtype, C);
    for (int run = 0; run < RUNS; run++) {
        struct residual_args args = {.R = R, .C = C, .dtype = dtype, .y = y.copy[run]};
        args.residual = residual.copy[run], args.bias = bias ? b.copy[run] : NULL;
        MACHINE_RUN(table_of(run)->residual(context(), &args, &err));
    }
    check("residual", dtype);
}

TEST_LOOP(cuda_kernels_residual, "residual added to a sum over ranks, with and without bias", DTYPES)
{
    for (int64_t i = 0; i < COUNT(row_shapes); i++)
        for (int bias = 0; bias < 2; bias++)
            check_residual(dtype_of(_i), row_shapes[i][0], row_shapes[i][1], bias);
    shift = 1;
    check_residual(dtype_of(_i), 5, 24, true);
}

static void check_norm(enum dtype dtype, const int64_t rc[2], bool rms, bool bias, bool add)
{
    int64_t R = rc[0], C = rc[1];
    struct twin x = twin_make(dtype, R * C), w = twin_make(dtype, C), b = twin_make(dtype, C);
    struct twin y = twin_make(dtype, R * C), mean = twin_make(DTYPE_F32, R), rstd = twin_make(DTYPE_F32, R);
    struct twin dy = twin_make(dtype, R * C), d = twin_make(dtype, R * C);
    struct twin dw = twin_make(DTYPE_F32, C), db = twin_make(DTYPE_F32, C), extra = twin_make(dtype, R * C);
    for (int run = 0; run < RUNS; run++) {
        struct norm_args args = {.R = R, .C = C, .dtype = dtype, .rms = rms, .add_one = add, .eps = 1e-2};
        args.x = x.copy[run], args.w = w.copy[run], args.b = bias ? b.copy[run] : NULL;
        args.residual = add ? extra.copy[run] : NULL;
        args.y = y.copy[run], args.mean = rms ? NULL : mean.copy[run], args.rstd = rstd.copy[run];
        MACHINE_RUN(table_of(run)->norm(context(), &args, &err));
    }
    for (int run = 0; run < RUNS; run++) {
        struct norm_grad_args args = {.R = R, .C = C, .dtype = dtype, .rms = rms, .add_d = add, .add_w = add};
        args.add_one = add;
        args.dy = dy.copy[run], args.x = x.copy[run], args.w = w.copy[run];
        args.mean = rms ? NULL : mean.copy[0], args.rstd = rstd.copy[0];
        args.d = add ? d.copy[run] : dy.copy[run];
        args.dw = dw.copy[run], args.db = bias ? db.copy[run] : NULL;
        MACHINE_RUN(table_of(run)->norm_grad(context(), &args, &err));
    }
    check("norm", dtype);
}

TEST_LOOP(cuda_kernels_norm, "LayerNorm and RMSNorm and their gradients, in place and added", DTYPES)
{
    for (int add = 0; add < 2; add++) {
        for (int64_t i = 1; i < COUNT(row_shapes); i++) {
            check_norm(dtype_of(_i), row_shapes[i], false, true, add);
            check_norm(dtype_of(_i), row_shapes[i], false, false, add);
            check_norm(dtype_of(_i), row_shapes[i], true, false, add);
        }
        check_norm(dtype_of(_i), row_shapes[0], true, false, add);
        check_norm(dtype_of(_i), (const int64_t[]){301, 24}, false, true, add); /* more rows than parts */
        check_norm(dtype_of(_i), (const int64_t[]){2, 6144}, false, true, add); /* 48 KiB of sums in F32 */
        check_norm(dtype_of(_i), (const int64_t[]){2, 6200}, false, true, add); /* more */
    }
    shift = 1;
    check_norm(dtype_of(_i), (const int64_t[]){3, 24}, false, true, true);
}

static void check_embed(enum dtype dtype, int64_t B, int64_t T, int64_t C, int64_t V, bool positions,
                        bool add)
{
    int64_t rows = T + 2;
    int32_t *tokens = make_tokens(B * T, V);
    struct twin wte = twin_make(dtype, V * C), wpe = twin_make(dtype, rows * C);
    struct twin x = twin_make(dtype, B * T * C), d = twin_make(dtype, B * T * C);
    struct twin dwte = twin_make(DTYPE_F32, V * C), dwpe = twin_make(DTYPE_F32, rows * C);
    for (int run = 0; run < RUNS; run++) {
        struct embed_args args = {.B = B, .T = T, .C = C, .V = V, .vocabulary = V, .dtype = dtype};
        args.tokens = tokens, args.wte = wte.copy[run], args.x = x.copy[run];
        args.wpe = positions ? wpe.copy[run] : NULL;
        args.scale = add ? 7.5 : 0;
        MACHINE_RUN(table_of(run)->embed(context(), &args, &err));
        struct embed_grad_args grad = {.B = B, .T = T, .C = C, .V = V, .vocabulary = V, .dtype = dtype};
        grad.scale = args.scale, grad.tokens = tokens, grad.positions = rows, grad.d = d.copy[run],
        grad.dwte = dwte.copy[run];
        grad.dwpe = positions ? dwpe.copy[run] : NULL, grad.add_wte = add, grad.add_wpe = add;
        MACHINE_RUN(table_of(run)->embed_grad(context(), &grad, &err));
    }
    check("embed", dtype);
    machine_free(tokens);
}

TEST_LOOP(cuda_kernels_embed, "embedding and its gradient, with repeated tokens", DTYPES)
{
    for (int add = 0; add < 2; add++) {
        check_embed(dtype_of(_i), 1, 1, 1, 1, true, add);
        check_embed(dtype_of(_i), 2, 5, 33, 7, true, add);
        check_embed(dtype_of(_i), 3, 41, 24, 2, true, add);
        check_embed(dtype_of(_i), 3, 67, 40, 997, true, add);
        check_embed(dtype_of(_i), 3, 17, 1100, 257, false, add);
        check_embed(dtype_of(_i), 1, 9, 2056, 5, false, add);
    }
    shift = 1;
    check_embed(dtype_of(_i), 3, 7, 24, 5, true, true);
}

TEST_LOOP(cuda_kernels_embed_part, "a rank with the tokens 5 to 9 of 16 knows no other", DTYPES)
{
    enum { B = 2, T = 19, C = 16, FIRST = 5, HELD = 5, VOCABULARY = 16 };
    enum dtype dtype = dtype_of(_i);
    int32_t *tokens = make_tokens(B * T, VOCABULARY);
    struct twin wte = twin_make(dtype, HELD * C), x = twin_make(dtype, B * T * C);
    struct twin d = twin_make(dtype, B * T * C), dwte = twin_make(DTYPE_F32, HELD * C);
    for (int run = 0; run < RUNS; run++) {
        struct embed_args args = {.B = B, .T = T, .C = C, .V = HELD, .dtype = dtype};
        args.first_token = FIRST, args.vocabulary = VOCABULARY;
        args.tokens = tokens, args.wte = wte.copy[run], args.x = x.copy[run];
        MACHINE_RUN(table_of(run)->embed(context(), &args, &err));
        struct embed_grad_args grad = {.B = B, .T = T, .C = C, .V = HELD, .dtype = dtype};
        grad.first_token = FIRST, grad.vocabulary = VOCABULARY;
        grad.tokens = tokens, grad.d = d.copy[run], grad.dwte = dwte.copy[run];
        MACHINE_RUN(table_of(run)->embed_grad(context(), &grad, &err));
    }
    check("embed_part", dtype);
    machine_free(tokens);
}

static void check_rope(enum dtype dtype, struct rope_args args)
{
    struct twin qkv = twin_make(dtype, args.B * args.T * (args.H + 2 * args.K) * args.D);
    args.dtype = dtype, args.theta = 10000;
    for (int run = 0; run < RUNS; run++) {
        args.qkv = qkv.copy[run];
        MACHINE_RUN(table_of(run)->rope(context(), &args, &err));
    }
    check("rope", dtype);
}

TEST_LOOP(cuda_kernels_rope, "rotary embedding, forward and back", DTYPES)
{
    for (int inverse = 0; inverse < 2; inverse++) {
        check_rope(dtype_of(_i),
                   (struct rope_args){.B = 1, .T = 1, .H = 1, .K = 1, .D = 2, .inverse = inverse});
        check_rope(dtype_of(_i),
                   (struct rope_args){.B = 2, .T = 33, .H = 4, .K = 2, .D = 6, .inverse = inverse});
        check_rope(dtype_of(_i),
                   (struct rope_args){.B = 3, .T = 7, .H = 3, .K = 1, .D = 64, .inverse = inverse});
    }
    check_rope(dtype_of(_i), (struct rope_args){.B = 2, .T = 9, .H = 2, .K = 1, .D = 128, .unturned = 32});
    check_rope(dtype_of(_i), (struct rope_args){.B = 1, .T = 5, .H = 2, .K = 2, .D = 18, .unturned = 2});
    check_rope(dtype_of(_i), (struct rope_args){.B = 1, .T = 5, .H = 2, .K = 2, .D = 64, .unturned = 6});
    shift = 1;
    check_rope(dtype_of(_i), (struct rope_args){.B = 1, .T = 5, .H = 2, .K = 2, .D = 16});
}

static void check_qk_norm(enum dtype dtype, struct qk_norm_heads heads, bool add)
{
    const int64_t count = heads.B * heads.T * (heads.H + 2 * heads.K) * heads.D;
    struct twin qkv = twin_make(dtype, count), y = twin_make(dtype, count), d = twin_make(dtype, count);
    const int64_t queries = heads.whole ? heads.H * heads.D : heads.D,
                  keys = heads.whole ? heads.K * heads.D : heads.D;
    struct twin q_norm = twin_make(dtype, queries), k_norm = twin_make(dtype, keys);
    struct twin dq = twin_make(DTYPE_F32, queries), dk = twin_make(DTYPE_F32, keys);
    heads.dtype = dtype, heads.add_one = add, heads.eps = 1e-6, heads.theta = 10000;
    for (int run = 0; run < RUNS; run++) {
        heads.qkv = qkv.copy[run], heads.q_norm = q_norm.copy[run], heads.k_norm = k_norm.copy[run];
        struct qk_norm_args args = {heads, y.copy[run]};
        MACHINE_RUN(table_of(run)->qk_norm(context(), &args, &err));
        struct qk_norm_grad_args grad = {.heads = heads, .dqkv = d.copy[run], .add = add};
        grad.dq_norm = dq.copy[run], grad.dk_norm = dk.copy[run];
        MACHINE_RUN(table_of(run)->qk_norm_grad(context(), &grad, &err));
    }
    check("qk_norm", dtype);
}

/* Heads that lanes do not share evenly, more heads than a block takes at a time, and rows of one part and of several. */
TEST_LOOP(cuda_kernels_qk_norm, "queries and keys normed and turned, forward and back", DTYPES)
{
    for (int add = 0; add < 2; add++) {
        check_qk_norm(dtype_of(_i), (struct qk_norm_heads){.B = 1, .T = 1, .H = 1, .K = 1, .D = 2}, add);
        check_qk_norm(dtype_of(_i), (struct qk_norm_heads){.B = 2, .T = 33, .H = 4, .K = 2, .D = 6}, add);
        check_qk_norm(dtype_of(_i), (struct qk_norm_heads){.B = 3, .T = 7, .H = 30, .K = 10, .D = 64}, add);
        check_qk_norm(dtype_of(_i), (struct qk_norm_heads){.B = 1, .T = 70, .H = 2, .K = 1, .D = 128}, add);
        check_qk_norm(dtype_of(_i), (struct qk_norm_heads){.B = 1, .T = 2, .H = 2, .K = 2, .D = 256}, add);
    }
    shift = 1;
    check_qk_norm(dtype_of(_i), (struct qk_norm_heads){.B = 1, .T = 5, .H = 2, .K = 2, .D = 16}, false);
}

/* Rows that take a thread one turn and several, fewer keys than queries, and more shared memory than needs no asking. */
TEST_LOOP(cuda_kernels_qk_norm_whole, "all queries normed together, and all keys", DTYPES)
{
    const enum dtype dtype = dtype_of(_i);
    for (int add = 0; add < 2; add++) {
        check_qk_norm(dtype, (struct qk_norm_heads){1, 1, 1, 1, 2, .whole = true}, add);
        check_qk_norm(dtype, (struct qk_norm_heads){2, 33, 4, 2, 6, .whole = true}, add);
        check_qk_norm(dtype, (struct qk_norm_heads){3, 7, 30, 10, 64, .whole = true}, add);
        check_qk_norm(dtype, (struct qk_norm_heads){1, 2, 40, 40, 128, .whole = true}, add);
        check_qk_norm(dtype, (struct qk_norm_heads){1, 2, 2, 2, 256, .whole = true}, add);
    }
    shift = 1;
    check_qk_norm(dtype, (struct qk_norm_heads){1, 5, 4, 2, 16, .whole = true}, false);
}

TEST(cuda_kernels_qk_norm_nothing, "sums over no positions are zero, or what was there")
{
    float *sums = machine_copy((float[]){3, 4, 5, 6}, 4 * sizeof *sums);
    struct qk_norm_grad_args args = {.heads = {.B = 0, .T = 4, .H = 2, .K = 1, .D = 2, .dtype = DTYPE_F32}};
    args.dq_norm = sums, args.dk_norm = sums + 2, args.add = true;
    MACHINE_RUN(cuda_qk_norm_grad(context(), &args, &err));
    ASSERT(sums[0] == 3 && sums[3] == 6);
    args.add = false;
    MACHINE_RUN(cuda_qk_norm_grad(context(), &args, &err));
    ASSERT(sums[0] == 0 && sums[3] == 0);
    machine_free(sums);
}

static void check_gelu(enum dtype dtype, int64_t count, double reach)
{
    struct twin x = twin_make(dtype, count), y = twin_make(dtype, count), d = twin_make(dtype, count);
    stretch(&x, reach);
    for (int run = 0; run < RUNS; run++) {
        struct gelu_args args = {.count = count, .dtype = dtype, .x = x.copy[run], .y = y.copy[run]};
        MACHINE_RUN(table_of(run)->gelu(context(), &args, &err));
        struct gelu_grad_args grad = {.count = count, .dtype = dtype, .x = x.copy[run], .d = d.copy[run]};
        MACHINE_RUN(table_of(run)->gelu_grad(context(), &grad, &err));
    }
    check("gelu", dtype);
}

static void check_swiglu(enum dtype dtype, int64_t R, int64_t F, bool gelu, double reach)
{
    struct twin gate_up = twin_make(dtype, 2 * R * F), y = twin_make(dtype, R * F);
    struct twin dy = twin_make(dtype, R * F);
    stretch(&gate_up, reach);
    for (int run = 0; run < RUNS; run++) {
        struct swiglu_args args = {.R = R, .F = F, .dtype = dtype, .gelu = gelu};
        args.gate_up = gate_up.copy[run], args.y = y.copy[run];
        MACHINE_RUN(table_of(run)->swiglu(context(), &args, &err));
        struct swiglu_grad_args grad = {.R = R, .F = F, .dtype = dtype, .gelu = gelu};
        grad.dy = dy.copy[run], grad.gate_up = gate_up.copy[run];
        MACHINE_RUN(table_of(run)->swiglu_grad(context(), &grad, &err));
    }
    check("swiglu", dtype);
}

TEST_LOOP(cuda_kernels_activation, "GELU, SwiGLU and GEGLU and their gradients, out to the tails", DTYPES)
{
    static const double reaches[] = {0.01, 1, 6, 200};
    for (int64_t i = 0; i < COUNT(reaches); i++) {
        shift = i % 2;
        check_gelu(dtype_of(_i), 1, reaches[i]);
        check_gelu(dtype_of(_i), 5003, reaches[i]);
        for (int gelu = 0; gelu < 2; gelu++)
            check_swiglu(dtype_of(_i), 1, 1, gelu, reaches[i]);
        for (int gelu = 0; gelu < 2; gelu++)
            check_swiglu(dtype_of(_i), 5, 1101, gelu, reaches[i]);
        for (int gelu = 0; gelu < 2; gelu++)
            check_swiglu(dtype_of(_i), 3, 2072, gelu, reaches[i]);
    }
}

TEST(cuda_kernels_gelu_far, "far from zero the slope of GELU is 0 or 1, however far, and NaN stays NaN")
{
    enum { POINTS = 8 };
    static const float points[POINTS] = {-INFINITY, -1e30f, -1e10f, -20, 20, 1e10f, 1e30f, INFINITY};
    float *x = machine_copy(points, sizeof points), *d = machine_alloc(sizeof points);
    for (int i = 0; i < POINTS; i++)
        d[i] = 3;
    struct gelu_grad_args args = {.count = POINTS, .dtype = DTYPE_F32, .x = x, .d = d};
    MACHINE_RUN(cuda_gelu_grad(context(), &args, &err));
    for (int i = 0; i < POINTS; i++)
        ASSERT_NEAR(d[i], x[i] < 0 ? 0 : 3, 1e-20);
    args.count = 1, x[0] = NAN;
    MACHINE_RUN(cuda_gelu_grad(context(), &args, &err));
    ASSERT(isnan(d[0]));
    machine_free(x);
    machine_free(d);
}

static void check_cross_entropy(enum dtype dtype, int64_t R, int64_t V, bool gradient)
{
    int32_t *targets = make_tokens(R, V);
    targets[R / 2] = R > 1 ? -1 : 0;
    struct twin logits = twin_make(dtype, R * V), loss = twin_make(DTYPE_F32, 1);
    stretch(&logits, 10);
    for (int run = 0; run < RUNS; run++) {
        struct cross_entropy_args args = {.R = R, .V = V, .dtype = dtype, .targets = targets};
        args.logits = logits.copy[run], args.loss = loss.copy[run];
        args.scale = 1.0 / (double)(R + 3), args.gradient = gradient;
        MACHINE_RUN(table_of(run)->cross_entropy(context(), &args, &err));
    }
    check("cross_entropy", dtype);
    machine_free(targets);
}

TEST_LOOP(cuda_kernels_cross_entropy, "cross-entropy and its gradient in place, with ignored targets", DTYPES)
{
    for (int gradient = 0; gradient < 2; gradient++) {
        check_cross_entropy(dtype_of(_i), 1, 1, gradient);
        check_cross_entropy(dtype_of(_i), 1, 5, gradient);
        check_cross_entropy(dtype_of(_i), 33, 257, gradient);
        check_cross_entropy(dtype_of(_i), 300, 24, gradient);
        check_cross_entropy(dtype_of(_i), 5, 5003, gradient);
        shift = 3;
        check_cross_entropy(dtype_of(_i), 3, 1000, gradient);
        shift = 0;
    }
}

TEST(cuda_kernels_cross_entropy_ignored,
     "an ignored row leaves nothing of itself, even of NaN; in a row that counts NaN reaches the loss")
{
    /* The other row is even: its loss is ln 2, its gradient 1/2 - 1 and 1/2. */
    int32_t *targets = machine_copy((int32_t[]){-1, 0}, 2 * sizeof *targets);
    float *logits = machine_copy((float[]){NAN, INFINITY, 0, 0}, 4 * sizeof *logits);
    float *loss = machine_copy(&(float){0}, sizeof *loss);
    struct cross_entropy_args args = {.R = 2, .V = 2, .dtype = DTYPE_F32, .logits = logits};
    args.targets = targets, args.scale = 1, args.loss = loss, args.gradient = true;
    MACHINE_RUN(cuda_cross_entropy(context(), &args, &err));
    ASSERT_NEAR(*loss, 0.6931472, 1e-6);
    ASSERT(logits[0] == 0 && logits[1] == 0);
    ASSERT_NEAR(logits[2], -0.5, 1e-6);
    logits[2] = NAN;
    MACHINE_RUN(cuda_cross_entropy(context(), &args, &err));
    ASSERT(isnan(*loss));
    machine_free(targets);
    machine_free(logits);
    machine_free(loss);
}

/* Each kernel for itself: max and sums are the reference's, and what a rank with `valid` of V columns adds to others'. */
static void check_cross_entropy_sharded(enum dtype dtype, int64_t R, int64_t V, int64_t valid, bool gradient)
{
    int64_t before = 3, vocabulary = before + valid + 2;
    int32_t *targets = make_tokens(R, vocabulary);
    targets[R / 2] = R > 1 ? -1 : 0;
    struct twin logits = twin_make(dtype, R * V), loss = twin_make(DTYPE_F32, 1);
    struct twin max = twin_make(DTYPE_F32, R), sums = twin_make(DTYPE_F32, 2 * R);
    float *all_max = machine_alloc((size_t)R * sizeof *all_max);
    float *all_sums = machine_alloc((size_t)(2 * R) * sizeof *all_sums);
    stretch(&logits, 10);
    for (int run = 0; run < RUNS; run++) {
        const struct kernel_table *table = table_of(run);
        struct logit_shard shard = {.R = R, .V = V, .first_column = before, .valid = valid};
        shard.vocabulary = vocabulary, shard.dtype = dtype;
        shard.logits = logits.copy[run], shard.targets = targets;
        struct logit_max_args max_args = {.shard = shard, .max = max.copy[run]};
        MACHINE_RUN(table->logit_max(context(), &max_args, &err));
        float *own = max.copy[run];
        for (int64_t r = 0; r < R; r++) { /* the others have a logit of 10 and one of 9 */
            all_max[r] = fmaxf(own[r], 10);
            own[r] = isinf(own[r]) ? 0 : own[r]; /* an error beside infinity has no size */
        }
        struct logit_sums_args sums_args = {.shard = shard, .max = all_max, .sums = sums.copy[run]};
        MACHINE_RUN(table->logit_sums(context(), &sums_args, &err));
        const float *expected = sums.copy[0];
        for (int64_t r = 0; r < R; r++) {
            all_sums[r] = expected[r] + 1 + expf(-1);
            all_sums[R + r] = expected[R + r] - 0.5f;
        }
        struct cross_entropy_sharded_args args = {.shard = shard, .max = all_max, .sums = all_sums};
        args.scale = 1.0 / (double)(R + 3), args.loss = loss.copy[run], args.gradient = gradient;
        MACHINE_RUN(table->cross_entropy_sharded(context(), &args, &err));
    }
    check("cross_entropy_sharded", dtype);
    machine_free(targets);
    machine_free(all_max);
    machine_free(all_sums);
}

TEST_LOOP(cuda_kernels_cross_entropy_sharded,
          "the three kernels of a cross-entropy over ranks, with padding, and with nothing but padding",
          DTYPES)
{
    for (int gradient = 0; gradient < 2; gradient++) {
        check_cross_entropy_sharded(dtype_of(_i), 1, 5, 5, gradient);
        check_cross_entropy_sharded(dtype_of(_i), 33, 257, 251, gradient);
        check_cross_entropy_sharded(dtype_of(_i), 5, 5003, 4098, gradient);
        check_cross_entropy_sharded(dtype_of(_i), 7, 9, 0, gradient);
    }
}

static void check_adamw(enum dtype dtype, int64_t count, bool master, double max_norm)
{
    struct twin w = twin_make(dtype, count), g = twin_make(DTYPE_F32, count), m = twin_make(DTYPE_F32, count);
    struct twin v = twin_make(DTYPE_F32, count), exact = twin_make(DTYPE_F32, count);
    struct twin total = twin_make(DTYPE_F32, 1);
    for (int run = 0; run < RUNS; run++) {
        for (int64_t i = 0; i < count; i++)
            ((float *)v.copy[run])[i] = fabsf(((float *)v.copy[run])[i]);
        ((float *)total.copy[run])[0] = 1;
        struct square_sum_args sum = {.count = count, .dtype = DTYPE_F32, .g = g.copy[run]};
        sum.total = total.copy[run];
        MACHINE_RUN(table_of(run)->square_sum(context(), &sum, &err));
        struct adamw_args args = {.count = count, .dtype = dtype, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95};
        args.eps = 1e-8, args.decay = 0.1, args.t = 3, args.max_norm = max_norm;
        args.w = w.copy[run], args.g = g.copy[run], args.m = m.copy[run], args.v = v.copy[run];
        args.master = master ? exact.copy[run] : NULL, args.square_sum = total.copy[run];
        MACHINE_RUN(table_of(run)->adamw(context(), &args, &err));
    }
    check("adamw", dtype);
}

TEST_LOOP(cuda_kernels_adamw, "the clipped AdamW step, with and without a master copy", DTYPES)
{
    static const int64_t counts[] = {1, 33, 1025, 40003};
    for (int64_t i = 0; i < COUNT(counts); i++) {
        shift = i % 2;
        check_adamw(dtype_of(_i), counts[i], false, 0);
        check_adamw(dtype_of(_i), counts[i], false, 0.5);
        check_adamw(dtype_of(_i), counts[i], _i == 1, 1e9);
    }
}

TEST(cuda_kernels_square_sum_runs, "a square sum of more than 1,024 runs of 8,192 is right to the last digit")
{
    /* Whole numbers whose squares a double adds exactly; the sum of 8,400,001 fours is 33,600,004, which is a float too. */
    enum { ELEMENTS = 8400001 };
    float *g = machine_alloc(ELEMENTS * sizeof *g), *total = machine_copy(&(float){0}, sizeof *total);
    for (int64_t i = 0; i < ELEMENTS; i++)
        g[i] = i % 2 ? 2 : -2;
    struct square_sum_args args = {.count = ELEMENTS, .dtype = DTYPE_F32, .g = g, .total = total};
    MACHINE_RUN(cuda_square_sum(context(), &args, &err));
    ASSERT(*total == 33600004.0f);
    machine_free(total);
    machine_free(g);
}

TEST(cuda_kernels_nan_norm, "a gradient norm of NaN shows in the weights")
{
    enum { W, G, M, V, TOTAL, VALUES };
    float *values = machine_copy((float[VALUES]){1, 1, 0, 0, NAN}, VALUES * sizeof *values);
    struct adamw_args args = {.count = 1, .dtype = DTYPE_F32, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95};
    args.eps = 1e-8, args.t = 1, args.w = values + W, args.g = values + G, args.m = values + M;
    args.v = values + V, args.square_sum = values + TOTAL, args.max_norm = 1;
    MACHINE_RUN(cuda_adamw(context(), &args, &err));
    ASSERT(isnan(values[W]));
    machine_free(values);
}

/* Whole numbers in [least, most]. */
static int64_t any(int64_t least, int64_t most)
{
    uint64_t state = ++seed;
    return least + (int64_t)(random_next(&state) % (uint64_t)(most - least + 1));
}

TEST_LOOP(cuda_kernels_random_shapes, "every kernel on ten random shapes, at random addresses", DTYPES)
{
    enum dtype dtype = dtype_of(_i);
    seed = 7;
    for (int i = 0; i < 10; i++) {
        int64_t B = any(1, 4), T = any(1, 30), R = any(1, 60), C = any(5, 400), V = any(2, 2000);
        bool either = any(0, 1), other = any(0, 1);
        shift = any(0, 1) * any(0, 7);
        check_residual(dtype, R, C, either);
        check_norm(dtype, (const int64_t[]){R, C}, either, !either && other, other);
        check_embed(dtype, B, T, C, V, either, other);
        check_rope(dtype,
                   (struct rope_args){.B = B, .T = T, .H = any(1, 4), .K = any(1, 2), .D = 2 * any(1, 40)});
        check_qk_norm(
            dtype,
            (struct qk_norm_heads){
                .B = B, .T = T, .H = any(2, 4), .K = any(1, 2), .D = 2 * any(1, 40), .whole = other},
            either);
        check_gelu(dtype, any(1, 5000), 3);
        check_swiglu(dtype, R, C, either, 3);
        check_cross_entropy(dtype, R, V, either);
        check_cross_entropy_sharded(dtype, R, V, any(0, V), other);
        check_adamw(dtype, any(1, 20000), dtype == DTYPE_BF16 && either, 0.5);
    }
}

/* ---- what the device finds ---- */

TEST(cuda_kernels_fault_token,
     "a token outside the vocabulary is a row of zeros, no gradient, and a sentence afterwards")
{
    int32_t *tokens = machine_copy((int32_t[]){2, 9, -4}, 3 * sizeof *tokens);
    float *wte = machine_random(1, DTYPE_F32, 12), *x = machine_random(2, DTYPE_F32, 12);
    float *d = machine_random(3, DTYPE_F32, 12), *dwte = machine_copy((float[12]){0}, 12 * sizeof *dwte);
    struct embed_args args = {.B = 1, .T = 3, .C = 4, .V = 3, .vocabulary = 3, .dtype = DTYPE_F32};
    args.tokens = tokens, args.wte = wte, args.x = x;
    MACHINE_RUN(cuda_embed(context(), &args, &err));
    ASSERT(memcmp(x, wte + 8, 4 * sizeof *x) == 0);
    for (int i = 4; i < 12; i++)
        ASSERT(x[i] == 0);
    ASSERT_INT(cuda_fault_check(*device.fault, &err), -1);
    ASSERT_HAS(err.text, "token 1 is 9, outside the vocabulary");
    *device.fault = CUDA_NO_FAULT;
    struct embed_grad_args grad = {.B = 1, .T = 3, .C = 4, .V = 3, .vocabulary = 3, .dtype = DTYPE_F32};
    grad.tokens = tokens, grad.d = d, grad.dwte = dwte;
    MACHINE_RUN(cuda_embed_grad(context(), &grad, &err));
    ASSERT(memcmp(dwte + 8, d, 4 * sizeof *d) == 0);
    for (int i = 0; i < 8; i++)
        ASSERT(dwte[i] == 0);
    ASSERT_INT(cuda_fault_check(*device.fault, &err), -1);
    *device.fault = CUDA_NO_FAULT;
    ASSERT_OK(cuda_fault_check(*device.fault, &err));
    machine_free(tokens);
    machine_free(wte);
    machine_free(x);
    machine_free(d);
    machine_free(dwte);
}

TEST(cuda_kernels_fault_target,
     "a target outside the vocabulary is ignored, and a sentence afterwards; -1 is not one")
{
    int32_t *targets = machine_copy((int32_t[]){-1, 0, -7}, 3 * sizeof *targets);
    float *logits = machine_copy((float[6]){0, 0, 0, 0, 5, 6}, 6 * sizeof *logits);
    float *loss = machine_copy(&(float){0}, sizeof *loss);
    struct cross_entropy_args args = {.R = 3, .V = 2, .dtype = DTYPE_F32, .logits = logits};
    args.targets = targets, args.scale = 1, args.loss = loss, args.gradient = true;
    MACHINE_RUN(cuda_cross_entropy(context(), &args, &err));
    ASSERT_NEAR(*loss, 0.6931472, 1e-6);
    ASSERT(logits[4] == 0 && logits[5] == 0);
    ASSERT_INT(cuda_fault_check(*device.fault, &err), -1);
    ASSERT_HAS(err.text, "target 2 is -7, outside the vocabulary and not -1");
    machine_free(targets);
    machine_free(logits);
    machine_free(loss);
}

/* ---- what is refused ---- */

TEST(cuda_kernels_refuse_f64, "F64 is refused with a way out")
{
    double x = 1, y = 0;
    struct gelu_args args = {.count = 1, .dtype = DTYPE_F64, .x = &x, .y = &y};
    ASSERT_INT(cuda_gelu(context(), &args, &err), -1);
    ASSERT_HAS(err.text, "gelu has no F64 form; use F32 or BF16");
}

TEST(cuda_kernels_refuse_positions,
     "fewer position embeddings than tokens of a sequence are refused, and none is touched")
{
    const int32_t tokens[] = {0, 0, 0};
    float d[3] = {1, 1, 1}, dwte[1] = {7}, dwpe[2] = {7, 7};
    struct embed_grad_args args = {.B = 1, .T = 3, .C = 1, .V = 1, .positions = 2, .dtype = DTYPE_F32};
    args.vocabulary = 1, args.tokens = tokens, args.d = d, args.dwte = dwte, args.dwpe = dwpe;
    ASSERT_INT(cuda_embed_grad(context(), &args, &err), -1);
    ASSERT_HAS(err.text, "2 position embeddings are too few for sequences of 3 tokens");
    ASSERT(dwte[0] == 7 && dwpe[0] == 7 && dwpe[1] == 7);
}

TEST(cuda_kernels_refuse_shard, "more valid columns than a rank holds are refused")
{
    struct logit_max_args args = {.shard = {.R = 1, .V = 4, .valid = 5, .vocabulary = 9, .dtype = DTYPE_F32}};
    ASSERT_INT(cuda_logit_max(context(), &args, &err), -1);
    ASSERT_HAS(err.text, "5 valid columns from 0 on exceed the 4 held");
}

TEST(cuda_kernels_refuse_odd_head, "a head of odd size has no pairs to turn")
{
    struct rope_args args = {.B = 1, .T = 1, .H = 1, .K = 1, .D = 3, .dtype = DTYPE_F32};
    ASSERT_INT(cuda_rope(context(), &args, &err), -1);
    ASSERT_HAS(err.text, "a head of size 3 is odd");
}

TEST(cuda_kernels_refuse_large_head,
     "heads that attention on CUDA has no tiles for are refused before they are normed")
{
    struct qk_norm_args args = {.heads = {.B = 1, .T = 1, .H = 1, .K = 1, .D = 258, .dtype = DTYPE_F32}};
    ASSERT_INT(cuda_qk_norm(context(), &args, &err), -1);
    ASSERT_HAS(err.text, "qk_norm: heads of 258 elements");
    args.heads.D = 3;
    ASSERT_INT(cuda_qk_norm(context(), &args, &err), -1);
    ASSERT_HAS(err.text, "a head of size 3 is odd");
}

TEST(cuda_kernels_refuse_step, "steps of the optimizer count from 1")
{
    struct adamw_args args = {.dtype = DTYPE_F32, .t = 0};
    ASSERT_INT(cuda_adamw(context(), &args, &err), -1);
    ASSERT_HAS(err.text, "given step 0");
}

TEST(cuda_kernels_refuse_scratch, "more rows than the scratch memory has room for are refused")
{
    /* 64 KiB are 16,384 floats: one for each row's loss. */
    struct cross_entropy_args args = {.R = 16385, .V = 4, .dtype = DTYPE_F32};
    ASSERT_INT(cuda_cross_entropy(context(), &args, &err), -1);
    ASSERT_HAS(err.text, "cross_entropy needs 65540 bytes of scratch memory and has 65536");
}
