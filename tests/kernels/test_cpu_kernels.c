/* Every fast CPU kernel against the reference, in F32 and BF16, with one thread and two, on shapes that do not fit
 * vectors, tiles or threads evenly. Each is run twice on the same inputs: the second run must give the same bits. */
#include "base/checked.h"
#include "kernels/kernels.h"
#include "tests/kernels/fill.h"
#include "tests/test.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* _i of a loop: F32 with 1 and 2 threads, then BF16. */
enum { SETTINGS = 4, RUNS = 3, MAX_TWINS = 16 };
#define COUNT(list) (int64_t)(sizeof(list) / sizeof *(list))

static struct error err;

/* Three copies of a buffer that starts out random: for the reference, and for two runs of the fast kernel. */
struct twin {
    void *copy[RUNS];
    enum dtype dtype;
    int64_t count;
};

static struct twin twins[MAX_TWINS];
static int twin_count;
static uint64_t seed;

static const struct kernel_table *table_of(int run)
{
    return run ? &kernels_cpu : &kernels_reference;
}

static enum dtype dtype_of(int setting)
{
    return setting < 2 ? DTYPE_F32 : DTYPE_BF16;
}

static struct kernel_context context_of(int setting)
{
    return (struct kernel_context){.threads = 1 + setting % 2};
}

static struct twin twin_make(enum dtype dtype, int64_t count)
{
    ASSERT(twin_count < MAX_TWINS);
    struct twin twin = {.dtype = dtype, .count = count};
    seed++;
    for (int run = 0; run < RUNS; run++)
        twin.copy[run] = random_buffer(seed, dtype, count);
    return twins[twin_count++] = twin;
}

/* |got - expected| / |expected| of the first fast run. */
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

/* Compares every buffer, written or not, and releases them. */
static void check_twins(const char *what, double tolerance)
{
    for (int i = 0; i < twin_count; i++) {
        const struct twin *twin = &twins[i];
        double error = relative_error(twin);
        ASSERT_MSG(error <= tolerance, "%s: buffer %d of %d elements is off by %g", what, i, (int)twin->count,
                   error);
        size_t bytes = (size_t)(twin->count * dtype_bytes(twin->dtype));
        ASSERT_MSG(memcmp(twin->copy[1], twin->copy[2], bytes) == 0, "%s: buffer %d changed between runs",
                   what, i);
        for (int run = 0; run < RUNS; run++)
            free(twin->copy[run]);
    }
    twin_count = 0;
}

static void check(const char *what, int setting)
{
    check_twins(what, dtype_of(setting) == DTYPE_F32 ? 1e-5 : 1e-2);
}

static void make_tokens(int32_t *tokens, int64_t count, int64_t limit)
{
    random_tokens(++seed, tokens, count, limit);
}

static const int64_t matmul_shapes[][3] = {{1, 1, 1},      {1, 33, 5},      {7, 5, 257},
                                           {33, 48, 64},   {65, 257, 3},    {130, 96, 70},
                                           {514, 515, 20}, {33, 1030, 390}, {520, 34, 770}};

static void check_matmul(int setting, const int64_t mnk[3], bool bias, bool residual)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    int64_t M = mnk[0], N = mnk[1], K = mnk[2];
    struct twin x = twin_make(dtype, M * K), w = twin_make(dtype, N * K), y = twin_make(dtype, M * N);
    struct twin b = twin_make(dtype, N), extra = twin_make(dtype, M * N);
    for (int run = 0; run < RUNS; run++) {
        struct matmul_args args = {.M = M, .N = N, .K = K, .dtype = dtype};
        args.x = x.copy[run], args.w = w.copy[run], args.y = y.copy[run];
        args.bias = bias ? b.copy[run] : NULL;
        args.residual = residual ? extra.copy[run] : NULL;
        ASSERT_OK(table_of(run)->matmul(&context, &args, &err));
    }
    check("matmul", setting);
}

TEST_LOOP(cpu_kernels_matmul, "the linear layer, with and without bias and residual", SETTINGS)
{
    for (int64_t i = 0; i < COUNT(matmul_shapes); i++) {
        check_matmul(_i, matmul_shapes[i], false, false);
        check_matmul(_i, matmul_shapes[i], true, i % 2);
        check_matmul(_i, matmul_shapes[i], false, true);
    }
}

static void check_matmul_dgrad(int setting, const int64_t mnk[3], bool add)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    int64_t M = mnk[0], N = mnk[1], K = mnk[2];
    struct twin dy = twin_make(dtype, M * N), w = twin_make(dtype, N * K), dx = twin_make(dtype, M * K);
    for (int run = 0; run < RUNS; run++) {
        struct matmul_dgrad_args args = {.M = M, .N = N, .K = K, .dtype = dtype, .add = add};
        args.dy = dy.copy[run], args.w = w.copy[run], args.dx = dx.copy[run];
        ASSERT_OK(table_of(run)->matmul_dgrad(&context, &args, &err));
    }
    check("matmul_dgrad", setting);
}

static void check_matmul_wgrad(int setting, const int64_t mnk[3], bool add, bool bias)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    int64_t M = mnk[0], N = mnk[1], K = mnk[2];
    struct twin dy = twin_make(dtype, M * N), x = twin_make(dtype, M * K);
    struct twin dw = twin_make(DTYPE_F32, N * K), db = twin_make(DTYPE_F32, N);
    for (int run = 0; run < RUNS; run++) {
        struct matmul_wgrad_args args = {.M = M, .N = N, .K = K, .dtype = dtype, .add = add};
        args.dy = dy.copy[run], args.x = x.copy[run], args.dw = dw.copy[run];
        args.db = bias ? db.copy[run] : NULL;
        ASSERT_OK(table_of(run)->matmul_wgrad(&context, &args, &err));
    }
    check("matmul_wgrad", setting);
}

TEST_LOOP(cpu_kernels_matmul_gradients, "the linear layer's gradients, fresh and accumulated", SETTINGS)
{
    for (int64_t i = 0; i < COUNT(matmul_shapes); i++)
        for (int add = 0; add < 2; add++) {
            check_matmul_dgrad(_i, matmul_shapes[i], add);
            check_matmul_wgrad(_i, matmul_shapes[i], add, (i + add) % 2);
        }
}

static void check_residual(int setting, int64_t R, int64_t C, bool bias)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    struct twin y = twin_make(dtype, R * C), residual = twin_make(dtype, R * C), b = twin_make(dtype, C);
    for (int run = 0; run < RUNS; run++) {
        struct residual_args args = {.R = R, .C = C, .dtype = dtype, .y = y.copy[run]};
        args.residual = residual.copy[run], args.bias = bias ? b.copy[run] : NULL;
        ASSERT_OK(table_of(run)->residual(&context, &args, &err));
    }
    check("residual", setting);
}

TEST_LOOP(cpu_kernels_residual, "residual added to a sum over ranks, with and without bias", SETTINGS)
{
    for (int bias = 0; bias < 2; bias++) {
        check_residual(_i, 1, 1, bias);
        check_residual(_i, 7, 33, bias);
        check_residual(_i, 3, 2050, bias);
    }
}

struct attention_shape {
    int64_t B, T, H, K, D;
};

static const struct attention_shape attention_shapes[] = {
    {1, 1, 1, 1, 1},   {2, 1, 4, 2, 5},    {1, 7, 3, 3, 5},    {2, 64, 4, 2, 64},  {1, 65, 2, 1, 33},
    {1, 63, 6, 2, 16}, {2, 130, 4, 4, 24}, {1, 200, 2, 2, 80}, {1, 129, 3, 1, 128}};

/* lse comes from the reference's forward, so that backward alone is compared. */
static void check_attention(int setting, const struct attention_shape *shape, bool causal, int64_t window)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    int64_t B = shape->B, T = shape->T, H = shape->H, K = shape->K, D = shape->D, row = (H + 2 * K) * D;
    struct twin qkv = twin_make(dtype, B * T * row), out = twin_make(dtype, B * T * H * D);
    struct twin lse = twin_make(DTYPE_F32, B * H * T), delta = twin_make(DTYPE_F32, B * H * T);
    struct twin dout = twin_make(dtype, B * T * H * D), dqkv = twin_make(dtype, B * T * row);
    for (int run = 0; run < RUNS; run++) {
        struct attention_args args = {
            .B = B, .T = T, .H = H, .K = K, .D = D, .dtype = dtype, .causal = causal, .window = window};
        args.scale = window ? 0.2 : 0;
        args.qkv = qkv.copy[run], args.out = out.copy[run], args.lse = lse.copy[run];
        ASSERT_OK(table_of(run)->attention(&context, &args, &err));
    }
    for (int run = 0; run < RUNS; run++) {
        struct attention_grad_args args = {
            .B = B, .T = T, .H = H, .K = K, .D = D, .dtype = dtype, .causal = causal, .window = window};
        args.scale = window ? 0.2 : 0;
        args.qkv = qkv.copy[run], args.out = out.copy[0], args.lse = lse.copy[0];
        args.dout = dout.copy[run], args.delta = delta.copy[run], args.dqkv = dqkv.copy[run];
        ASSERT_OK(table_of(run)->attention_grad(&context, &args, &err));
    }
    check("attention", setting);
}

TEST_LOOP(cpu_kernels_attention, "attention and its gradient, causal or not, with heads grouped or not",
          SETTINGS)
{
    for (int64_t i = 0; i < COUNT(attention_shapes); i++)
        for (int causal = 0; causal < 2; causal++)
            check_attention(_i, &attention_shapes[i], causal, 0);
}

/* Windows of one key, of part of a tile, of a tile, one more, several, and of more than there are. */
TEST_LOOP(cpu_kernels_attention_window, "causal attention in windows, and a scale of its own", SETTINGS)
{
    static const int64_t windows[] = {1, 5, 33, 64, 65, 129, 1000};
    for (int64_t i = 0; i < COUNT(attention_shapes); i++)
        for (int64_t k = 0; k < COUNT(windows); k++)
            check_attention(_i, &attention_shapes[i], true, windows[k]);
}

TEST(cpu_kernels_attention_window_edge,
     "a key that is a window's length before its query leaves nothing in it")
{
    /* As below: even weights, and values of 0 but the first token's: 1e30. With a window of 66, queries 0 to 65 see it. */
    enum { LENGTH = 150, WINDOW = 66, SIZE = 4, ROW = 3 * SIZE };
    static float qkv[LENGTH * ROW], out[LENGTH * SIZE], lse[LENGTH];
    struct kernel_context context = {.threads = 1};
    for (int i = 2 * SIZE; i < ROW; i++)
        qkv[i] = 1e30f;
    struct attention_args args = {
        .B = 1, .T = LENGTH, .H = 1, .K = 1, .D = SIZE, .dtype = DTYPE_F32, .causal = true, .window = WINDOW};
    args.qkv = qkv, args.out = out, args.lse = lse;
    ASSERT_OK(kernels_cpu.attention(&context, &args, &err));
    for (int t = 0; t < LENGTH; t++) {
        ASSERT_NEAR(out[t * SIZE] / 1e30, t < WINDOW ? 1.0 / (t + 1) : 0, 1e-7);
        ASSERT_NEAR(lse[t], log(t < WINDOW ? t + 1 : WINDOW), 1e-5);
    }
}

TEST(cpu_kernels_attention_causal, "a causal query takes exactly nothing from later keys and values")
{
    /* Queries are 0, so softmax is even; values are 0 but the last token's: 1e30. All outputs are 0 but the last: 1e30/70. */
    enum { LENGTH = 70, SIZE = 4, ROW = 3 * SIZE };
    static float qkv[LENGTH * ROW], out[LENGTH * SIZE], lse[LENGTH];
    struct kernel_context context = {.threads = 1};
    for (int i = SIZE; i < ROW; i++)
        qkv[(LENGTH - 1) * ROW + i] = 1e30f;
    struct attention_args args = {
        .B = 1, .T = LENGTH, .H = 1, .K = 1, .D = SIZE, .dtype = DTYPE_F32, .causal = true};
    args.qkv = qkv, args.out = out, args.lse = lse;
    ASSERT_OK(kernels_cpu.attention(&context, &args, &err));
    for (int i = 0; i < (LENGTH - 1) * SIZE; i++)
        ASSERT(out[i] == 0);
    ASSERT_NEAR(out[(LENGTH - 1) * SIZE] / 1e30, 1.0 / LENGTH, 1e-7);
}

static const int64_t norm_shapes[][2] = {{1, 1}, {1, 33}, {5, 7}, {64, 768}, {37, 1030}};

static void check_norm(int setting, const int64_t rc[2], bool rms, bool bias, bool add)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
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
        ASSERT_OK(table_of(run)->norm(&context, &args, &err));
        struct norm_grad_args grad = {.R = R, .C = C, .dtype = dtype, .rms = rms, .add_d = add, .add_w = add};
        grad.add_one = add;
        grad.dy = dy.copy[run], grad.x = x.copy[run], grad.w = w.copy[run];
        grad.mean = args.mean, grad.rstd = rstd.copy[run], grad.d = add ? d.copy[run] : dy.copy[run];
        grad.dw = dw.copy[run], grad.db = bias ? db.copy[run] : NULL;
        ASSERT_OK(table_of(run)->norm_grad(&context, &grad, &err));
    }
    check("norm", setting);
}

TEST_LOOP(cpu_kernels_norm, "LayerNorm and RMSNorm and their gradients, in place and added", SETTINGS)
{
    for (int64_t i = 1; i < COUNT(norm_shapes); i++)
        for (int add = 0; add < 2; add++) {
            check_norm(_i, norm_shapes[i], false, true, add);
            check_norm(_i, norm_shapes[i], false, false, add);
            check_norm(_i, norm_shapes[i], true, false, add);
        }
    check_norm(_i, norm_shapes[0], true, false, false);
}

static void check_embed(int setting, int64_t B, int64_t T, int64_t C, int64_t V, bool positions, bool add)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    int64_t rows = T + 2;
    int32_t *tokens = host_alloc((size_t)(B * T) * sizeof *tokens);
    make_tokens(tokens, B * T, V);
    struct twin wte = twin_make(dtype, V * C), wpe = twin_make(dtype, rows * C),
                x = twin_make(dtype, B * T * C);
    struct twin d = twin_make(dtype, B * T * C), dwte = twin_make(DTYPE_F32, V * C);
    struct twin dwpe = twin_make(DTYPE_F32, rows * C);
    for (int run = 0; run < RUNS; run++) {
        struct embed_args args = {
            .B = B, .T = T, .C = C, .V = V, .vocabulary = V, .dtype = dtype, .tokens = tokens};
        args.wte = wte.copy[run], args.wpe = positions ? wpe.copy[run] : NULL, args.x = x.copy[run];
        args.scale = add ? 7.5 : 0;
        ASSERT_OK(table_of(run)->embed(&context, &args, &err));
        struct embed_grad_args grad = {
            .B = B, .T = T, .C = C, .V = V, .vocabulary = V, .dtype = dtype, .tokens = tokens};
        grad.scale = args.scale, grad.positions = rows, grad.d = d.copy[run], grad.dwte = dwte.copy[run];
        grad.dwpe = positions ? dwpe.copy[run] : NULL, grad.add_wte = add, grad.add_wpe = add;
        ASSERT_OK(table_of(run)->embed_grad(&context, &grad, &err));
    }
    check("embed", setting);
    free(tokens);
}

TEST_LOOP(cpu_kernels_embed, "embedding and its gradient, with repeated tokens", SETTINGS)
{
    for (int add = 0; add < 2; add++) {
        check_embed(_i, 1, 1, 1, 1, true, add);
        check_embed(_i, 2, 5, 33, 7, true, add);
        check_embed(_i, 3, 17, 1100, 257, false, add);
    }
}

static void check_rope(int setting, const struct attention_shape *shape, int64_t unturned, bool inverse)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    struct twin qkv = twin_make(dtype, shape->B * shape->T * (shape->H + 2 * shape->K) * shape->D);
    for (int run = 0; run < RUNS; run++) {
        struct rope_args args = {.B = shape->B, .T = shape->T, .H = shape->H, .K = shape->K, .D = shape->D};
        args.unturned = unturned, args.dtype = dtype, args.theta = 10000, args.inverse = inverse;
        args.qkv = qkv.copy[run];
        ASSERT_OK(table_of(run)->rope(&context, &args, &err));
    }
    check("rope", setting);
}

TEST_LOOP(cpu_kernels_rope, "rotary embedding, forward and back", SETTINGS)
{
    static const struct attention_shape shapes[] = {{1, 1, 1, 1, 2}, {2, 33, 4, 2, 6}, {1, 300, 3, 1, 64}};
    for (int64_t i = 0; i < COUNT(shapes); i++)
        for (int inverse = 0; inverse < 2; inverse++)
            for (int64_t unturned = 0; unturned < shapes[i].D; unturned += 2 * shapes[i].D / 8 + 2)
                check_rope(_i, &shapes[i], unturned / 2 * 2, inverse);
}

static void check_qk_norm(int setting, const struct attention_shape *shape, bool whole, bool add)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    const int64_t count = shape->B * shape->T * (shape->H + 2 * shape->K) * shape->D;
    struct twin qkv = twin_make(dtype, count), y = twin_make(dtype, count), d = twin_make(dtype, count);
    const int64_t queries = whole ? shape->H * shape->D : shape->D,
                  keys = whole ? shape->K * shape->D : shape->D;
    struct twin q_norm = twin_make(dtype, queries), k_norm = twin_make(dtype, keys);
    struct twin dq = twin_make(DTYPE_F32, queries), dk = twin_make(DTYPE_F32, keys);
    for (int run = 0; run < RUNS; run++) {
        struct qk_norm_heads heads = {.B = shape->B, .T = shape->T, .H = shape->H, .K = shape->K};
        heads.D = shape->D, heads.dtype = dtype, heads.whole = whole, heads.add_one = add, heads.eps = 1e-6,
        heads.theta = 10000;
        heads.qkv = qkv.copy[run], heads.q_norm = q_norm.copy[run], heads.k_norm = k_norm.copy[run];
        ASSERT_OK(table_of(run)->qk_norm(&context, &(struct qk_norm_args){heads, y.copy[run]}, &err));
        struct qk_norm_grad_args grad = {.heads = heads, .dqkv = d.copy[run], .add = add};
        grad.dq_norm = dq.copy[run], grad.dk_norm = dk.copy[run];
        ASSERT_OK(table_of(run)->qk_norm_grad(&context, &grad, &err));
    }
    check("qk_norm", setting);
}

TEST_LOOP(cpu_kernels_qk_norm, "queries and keys normed and turned, forward and back", SETTINGS)
{
    static const struct attention_shape shapes[] = {
        {1, 1, 1, 1, 2}, {2, 33, 4, 2, 6}, {1, 130, 3, 1, 64}, {3, 5, 2, 2, 128}};
    for (int64_t i = 0; i < COUNT(shapes); i++)
        for (int add = 0; add < 2; add++)
            for (int whole = 0; whole < 2; whole++)
                check_qk_norm(_i, &shapes[i], whole, add);
}

TEST(cpu_kernels_qk_norm_refusals, "F64 and a head of odd size are refused with a way out")
{
    const struct kernel_context context = {.threads = 1};
    struct qk_norm_args args = {.heads = {.B = 1, .T = 1, .H = 1, .K = 1, .D = 3, .dtype = DTYPE_F32}};
    ASSERT_INT(kernels_cpu.qk_norm(&context, &args, &err), -1);
    ASSERT_HAS(err.text, "a head of size 3 is odd");
    args.heads.dtype = DTYPE_F64;
    ASSERT_INT(kernels_cpu.qk_norm(&context, &args, &err), -1);
    ASSERT_HAS(err.text, "qk_norm has no F64 form");
}

/* Random values lie in [-1, 1); these reach the tails. */
static void stretch(struct twin *twin, double factor)
{
    for (int run = 0; run < RUNS; run++)
        for (int64_t i = 0; i < twin->count; i++)
            element_set(twin->dtype, twin->copy[run], i,
                        factor * element_get(twin->dtype, twin->copy[run], i));
}

static void check_gelu(int setting, int64_t count, double reach)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    struct twin x = twin_make(dtype, count), y = twin_make(dtype, count), d = twin_make(dtype, count);
    stretch(&x, reach);
    for (int run = 0; run < RUNS; run++) {
        struct gelu_args args = {.count = count, .dtype = dtype, .x = x.copy[run], .y = y.copy[run]};
        ASSERT_OK(table_of(run)->gelu(&context, &args, &err));
        struct gelu_grad_args grad = {.count = count, .dtype = dtype, .x = x.copy[run], .d = d.copy[run]};
        ASSERT_OK(table_of(run)->gelu_grad(&context, &grad, &err));
    }
    check("gelu", setting);
}

static void check_swiglu(int setting, int64_t R, int64_t F, bool gelu, double reach)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    struct twin gate_up = twin_make(dtype, 2 * R * F), y = twin_make(dtype, R * F),
                dy = twin_make(dtype, R * F);
    stretch(&gate_up, reach);
    for (int run = 0; run < RUNS; run++) {
        struct swiglu_args args = {.R = R, .F = F, .dtype = dtype, .gelu = gelu};
        args.gate_up = gate_up.copy[run], args.y = y.copy[run];
        ASSERT_OK(table_of(run)->swiglu(&context, &args, &err));
        struct swiglu_grad_args grad = {.R = R, .F = F, .dtype = dtype, .gelu = gelu};
        grad.dy = dy.copy[run], grad.gate_up = gate_up.copy[run];
        ASSERT_OK(table_of(run)->swiglu_grad(&context, &grad, &err));
    }
    check("swiglu", setting);
}

TEST_LOOP(cpu_kernels_activation, "GELU, SwiGLU and GEGLU and their gradients, out to the tails", SETTINGS)
{
    static const double reaches[] = {0.01, 1, 6, 200};
    for (int64_t i = 0; i < COUNT(reaches); i++) {
        check_gelu(_i, 1, reaches[i]);
        check_gelu(_i, 5003, reaches[i]);
        check_swiglu(_i, 1, 1, false, reaches[i]);
        check_swiglu(_i, 5, 1101, false, reaches[i]);
    }
    for (int64_t i = 0; i < COUNT(reaches); i++)
        check_swiglu(_i, 5, 1101, true, reaches[i]);
}

/* Element by element, where a norm would hide small values. The largest float error of the formula itself is about
 * 1e-6: the exponent reaches 10 and carries 1e-7 of itself. */
TEST(cpu_kernels_gelu_elements, "each GELU between -4 and 4 is within 3e-6 of the reference, relatively")
{
    enum { POINTS = 4001 };
    static float x[POINTS], expected[POINTS], got[POINTS];
    struct kernel_context context = {.threads = 1};
    for (int i = 0; i < POINTS; i++)
        x[i] = -4 + 8 * (float)i / POINTS;
    struct gelu_args args = {.count = POINTS, .dtype = DTYPE_F32, .x = x, .y = expected};
    ASSERT_OK(kernels_reference.gelu(&context, &args, &err));
    args.y = got;
    ASSERT_OK(kernels_cpu.gelu(&context, &args, &err));
    for (int i = 0; i < POINTS; i++)
        ASSERT_MSG(fabsf(got[i] - expected[i]) <= 3e-6f * fabsf(expected[i]), "gelu(%g) = %g, not %g",
                   (double)x[i], (double)got[i], (double)expected[i]);
}

TEST(cpu_kernels_gelu_far, "far from zero the slope of GELU is 0 or 1, however far, and NaN stays NaN")
{
    enum { POINTS = 8 };
    static const float x[POINTS] = {-INFINITY, -1e30f, -1e10f, -20, 20, 1e10f, 1e30f, INFINITY};
    float d[POINTS], lost = NAN;
    struct kernel_context context = {.threads = 1};
    for (int i = 0; i < POINTS; i++)
        d[i] = 3;
    struct gelu_grad_args args = {.count = POINTS, .dtype = DTYPE_F32, .x = x, .d = d};
    ASSERT_OK(kernels_cpu.gelu_grad(&context, &args, &err));
    for (int i = 0; i < POINTS; i++)
        ASSERT_NEAR(d[i], x[i] < 0 ? 0 : 3, 1e-20);
    args.count = 1, args.x = &lost;
    ASSERT_OK(kernels_cpu.gelu_grad(&context, &args, &err));
    ASSERT(isnan(d[0]));
}

static void check_cross_entropy(int setting, int64_t R, int64_t V, bool gradient)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    int32_t *targets = host_alloc((size_t)R * sizeof *targets);
    make_tokens(targets, R, V);
    targets[R / 2] = R > 1 ? -1 : 0;
    struct twin logits = twin_make(dtype, R * V), loss = twin_make(DTYPE_F32, 1);
    stretch(&logits, 10);
    for (int run = 0; run < RUNS; run++) {
        struct cross_entropy_args args = {.R = R, .V = V, .dtype = dtype, .targets = targets};
        args.logits = logits.copy[run], args.loss = loss.copy[run];
        args.scale = 1.0 / (double)(R + 3), args.gradient = gradient;
        ASSERT_OK(table_of(run)->cross_entropy(&context, &args, &err));
    }
    check("cross_entropy", setting);
    free(targets);
}

TEST_LOOP(cpu_kernels_cross_entropy, "cross-entropy and its gradient in place, with ignored targets",
          SETTINGS)
{
    for (int gradient = 0; gradient < 2; gradient++) {
        check_cross_entropy(_i, 1, 5, gradient);
        check_cross_entropy(_i, 33, 257, gradient);
        check_cross_entropy(_i, 5, 5003, gradient);
    }
}

TEST(cpu_kernels_cross_entropy_ignored,
     "an ignored row leaves nothing of itself, even of NaN; in a row that counts NaN reaches the loss")
{
    /* The other row is even: its loss is ln 2, its gradient 1/2 - 1 and 1/2. */
    struct kernel_context context = {.threads = 1};
    const int32_t targets[] = {-1, 0};
    for (int run = 0; run < RUNS; run++) {
        float logits[] = {NAN, INFINITY, 0, 0}, loss = 0;
        struct cross_entropy_args args = {.R = 2, .V = 2, .dtype = DTYPE_F32, .logits = logits};
        args.targets = targets, args.scale = 1, args.loss = &loss, args.gradient = true;
        ASSERT_OK(table_of(run)->cross_entropy(&context, &args, &err));
        ASSERT_NEAR(loss, 0.6931472, 1e-6);
        ASSERT(logits[0] == 0 && logits[1] == 0);
        ASSERT_NEAR(logits[2], -0.5, 1e-6);
        logits[2] = NAN;
        ASSERT_OK(table_of(run)->cross_entropy(&context, &args, &err));
        ASSERT(isnan(loss));
    }
}

/* Each kernel for itself: max and sums are the reference's, and what a rank with `valid` of V columns adds to others'. */
static void check_cross_entropy_sharded(int setting, int64_t R, int64_t V, int64_t valid, bool gradient)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    int64_t before = 3, vocabulary = before + valid + 2;
    int32_t *targets = host_alloc((size_t)R * sizeof *targets);
    make_tokens(targets, R, vocabulary);
    targets[R / 2] = R > 1 ? -1 : 0;
    struct twin logits = twin_make(dtype, R * V), loss = twin_make(DTYPE_F32, 1);
    struct twin own_max = twin_make(DTYPE_F32, R), max = twin_make(DTYPE_F32, R);
    struct twin own_sums = twin_make(DTYPE_F32, 2 * R), sums = twin_make(DTYPE_F32, 2 * R);
    stretch(&logits, 10);
    for (int run = 0; run < RUNS; run++) {
        struct logit_shard shard = {.R = R, .V = V, .first_column = before, .valid = valid};
        shard.vocabulary = vocabulary, shard.dtype = dtype;
        shard.logits = logits.copy[run], shard.targets = targets;
        struct logit_max_args max_args = {.shard = shard, .max = own_max.copy[run]};
        ASSERT_OK(table_of(run)->logit_max(&context, &max_args, &err));
        for (int64_t r = 0; r < R; r++) { /* the others have a logit of 10 and one of 9 */
            float own = ((float *)own_max.copy[run])[r], shared = fmaxf(own, 10);
            ((float *)max.copy[run])[r] = shared;
            ((float *)own_max.copy[run])[r] = isinf(own) ? 0 : own; /* an error beside infinity has no size */
        }
        struct logit_sums_args sums_args = {.shard = shard, .max = max.copy[0], .sums = own_sums.copy[run]};
        ASSERT_OK(table_of(run)->logit_sums(&context, &sums_args, &err));
        for (int64_t r = 0; r < R; r++) {
            ((float *)sums.copy[run])[r] = ((float *)own_sums.copy[0])[r] + 1 + expf(-1);
            ((float *)sums.copy[run])[R + r] = ((float *)own_sums.copy[0])[R + r] - 0.5f;
        }
        struct cross_entropy_sharded_args args = {.shard = shard, .max = max.copy[0], .sums = sums.copy[0]};
        args.scale = 1.0 / (double)(R + 3), args.loss = loss.copy[run], args.gradient = gradient;
        ASSERT_OK(table_of(run)->cross_entropy_sharded(&context, &args, &err));
    }
    check("cross_entropy_sharded", setting);
    free(targets);
}

TEST_LOOP(cpu_kernels_cross_entropy_sharded,
          "the three kernels of a cross-entropy over ranks, with padding, and with nothing but padding",
          SETTINGS)
{
    for (int gradient = 0; gradient < 2; gradient++) {
        check_cross_entropy_sharded(_i, 1, 5, 5, gradient);
        check_cross_entropy_sharded(_i, 33, 257, 251, gradient);
        check_cross_entropy_sharded(_i, 5, 5003, 4098, gradient);
        check_cross_entropy_sharded(_i, 7, 9, 0, gradient);
    }
}

static void check_adamw(int setting, int64_t count, bool master, double max_norm)
{
    struct kernel_context context = context_of(setting);
    enum dtype dtype = dtype_of(setting);
    struct twin w = twin_make(dtype, count), g = twin_make(DTYPE_F32, count), m = twin_make(DTYPE_F32, count);
    struct twin v = twin_make(DTYPE_F32, count), exact = twin_make(DTYPE_F32, count);
    struct twin total = twin_make(DTYPE_F32, 1);
    for (int run = 0; run < RUNS; run++) {
        for (int64_t i = 0; i < count; i++)
            ((float *)v.copy[run])[i] = fabsf(((float *)v.copy[run])[i]);
        ((float *)total.copy[run])[0] = 1;
        struct square_sum_args sum = {
            .count = count, .dtype = DTYPE_F32, .g = g.copy[run], .total = total.copy[run]};
        ASSERT_OK(table_of(run)->square_sum(&context, &sum, &err));
        struct adamw_args args = {.count = count, .dtype = dtype, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95};
        args.eps = 1e-8, args.decay = 0.1, args.t = 3, args.max_norm = max_norm;
        args.w = w.copy[run], args.g = g.copy[run], args.m = m.copy[run], args.v = v.copy[run];
        args.master = master ? exact.copy[run] : NULL, args.square_sum = total.copy[run];
        ASSERT_OK(table_of(run)->adamw(&context, &args, &err));
    }
    check("adamw", setting);
}

TEST_LOOP(cpu_kernels_adamw, "the clipped AdamW step, with and without a master copy", SETTINGS)
{
    static const int64_t counts[] = {1, 33, 1025, 200001};
    for (int64_t i = 0; i < COUNT(counts); i++) {
        check_adamw(_i, counts[i], false, 0);
        check_adamw(_i, counts[i], false, 0.5);
        check_adamw(_i, counts[i], _i >= 2, 1e9);
    }
}

TEST(cpu_kernels_denormal_moment, "a moment too small for a normal float moves its weight by nothing")
{
    /* g = 1e-20: v = 0.05 * 1e-40 = 5e-42; the step is lr * 1e-20 / (sqrt(1e-40) + 1e-8) = 1e-2 * 1e-12 */
    float w = 1, g = 1e-20f, m = 0, v = 0;
    struct kernel_context context = {.threads = 1};
    struct adamw_args args = {.count = 1, .dtype = DTYPE_F32, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95};
    args.eps = 1e-8, args.t = 1, args.w = &w, args.g = &g, args.m = &m, args.v = &v;
    ASSERT_OK(kernels_cpu.adamw(&context, &args, &err));
    ASSERT(w == 1);
}

/* ---- several ranks in one process ---- */

enum { RANKS = 2, RANK_ROWS = 96, RANK_WIDTH = 80, RANK_REPEATS = 20 };

struct rank {
    enum dtype dtype;
    const void *x, *w;
    void *y;
    int threads, failures;
};

static void *rank_main(void *context)
{
    struct rank *rank = context;
    struct kernel_context kernel = {.threads = rank->threads};
    struct matmul_args args = {.M = RANK_ROWS, .N = RANK_WIDTH, .K = RANK_WIDTH, .dtype = rank->dtype};
    args.x = rank->x, args.w = rank->w, args.y = rank->y;
    for (int i = 0; i < RANK_REPEATS; i++)
        rank->failures += kernels_cpu.matmul(&kernel, &args, NULL) != 0;
    return NULL;
}

TEST_LOOP(cpu_kernels_ranks, "ranks that multiply at once get what one alone gets", SETTINGS)
{
    enum dtype dtype = dtype_of(_i);
    int threads_each = context_of(_i).threads;
    int64_t count = RANK_ROWS * RANK_WIDTH;
    void *x = random_buffer(1, dtype, count), *w = random_buffer(2, dtype, RANK_WIDTH * RANK_WIDTH);
    struct rank ranks[RANKS], alone = {dtype, x, w, random_buffer(3, dtype, count), threads_each, 0};
    pthread_t threads[RANKS];
    rank_main(&alone);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = alone;
        ranks[i].y = random_buffer(3, dtype, count);
        ASSERT_INT(pthread_create(&threads[i], NULL, rank_main, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
        ASSERT_INT(ranks[i].failures, 0);
        ASSERT(memcmp(ranks[i].y, alone.y, (size_t)(count * dtype_bytes(dtype))) == 0);
        free(ranks[i].y);
    }
    free(x);
    free(w);
    free(alone.y);
}

/* ---- what is refused ---- */

TEST(cpu_kernels_refuse_f64, "F64 is refused with a way out")
{
    struct kernel_context context = {.threads = 1};
    double x = 1, y = 0;
    struct gelu_args args = {.count = 1, .dtype = DTYPE_F64, .x = &x, .y = &y};
    ASSERT_INT(kernels_cpu.gelu(&context, &args, &err), -1);
    ASSERT_HAS(err.text, "gelu");
    ASSERT_HAS(err.text, "F64");
    ASSERT_HAS(err.text, "reference");
}

TEST(cpu_kernels_refuse_token, "a token outside the vocabulary is refused by name")
{
    struct kernel_context context = {.threads = 1};
    int32_t tokens[] = {2, 9};
    float wte[12] = {0}, x[8];
    struct embed_args args = {.B = 1, .T = 2, .C = 4, .V = 3, .vocabulary = 3, .dtype = DTYPE_F32};
    args.tokens = tokens, args.wte = wte, args.x = x;
    ASSERT_INT(kernels_cpu.embed(&context, &args, &err), -1);
    ASSERT_HAS(err.text, "token 1 is 9");
}

TEST(cpu_kernels_refuse_target, "a target outside the vocabulary is refused, and -1 is not")
{
    struct kernel_context context = {.threads = 1};
    int32_t targets[] = {-1, 3};
    float logits[6] = {0}, loss = 0;
    struct cross_entropy_args args = {.R = 2, .V = 3, .dtype = DTYPE_F32, .logits = logits};
    args.targets = targets, args.scale = 1, args.loss = &loss;
    ASSERT_INT(kernels_cpu.cross_entropy(&context, &args, &err), -1);
    ASSERT_HAS(err.text, "target 1 is 3");
}

TEST(cpu_kernels_refuse_positions,
     "fewer position embeddings than tokens of a sequence are refused, and none is touched")
{
    struct kernel_context context = {.threads = 1};
    const int32_t tokens[] = {0, 0, 0};
    float d[3] = {1, 1, 1}, dwte[1] = {7}, dwpe[2] = {7, 7};
    struct embed_grad_args args = {.B = 1, .T = 3, .C = 1, .V = 1, .positions = 2, .dtype = DTYPE_F32};
    args.vocabulary = 1, args.tokens = tokens, args.d = d, args.dwte = dwte, args.dwpe = dwpe;
    for (int run = 0; run < RUNS; run++) {
        ASSERT_INT(table_of(run)->embed_grad(&context, &args, &err), -1);
        ASSERT_HAS(err.text, "2 position embeddings are too few for sequences of 3 tokens");
        ASSERT(dwte[0] == 7 && dwpe[0] == 7 && dwpe[1] == 7);
    }
}

TEST(cpu_kernels_refuse_step, "steps of the optimizer count from 1")
{
    struct kernel_context context = {.threads = 1};
    struct adamw_args args = {.dtype = DTYPE_F32, .t = 0};
    ASSERT_INT(kernels_cpu.adamw(&context, &args, &err), -1);
    ASSERT_HAS(err.text, "given step 0");
}
