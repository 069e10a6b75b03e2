/* What the reference kernels promise beyond the right slopes (test_reference_gradient.c): values worked out by hand,
 * exact identities, what may be written in place, what accumulates, and what is refused. */
#include "kernels/kernels.h"
#include "tests/kernels/fill.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>

static const struct kernel_context one_thread = {.threads = 1};
static const struct kernel_table *const ops = &kernels_reference;
static struct error err;

static void fill(uint64_t seed, double *values, int64_t count)
{
    random_fill(seed, DTYPE_F64, values, count);
}

static void assert_near(const double *got, const double *expected, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        ASSERT_MSG(fabs(got[i] - expected[i]) < 1e-13, "element %d is %.17g, not %.17g", (int)i, got[i],
                   expected[i]);
}

TEST(reference_layer_norm_by_hand, "LayerNorm of (1, 3) is (-1, 1) before scale and shift")
{
    /* mean 2, variance ((-1)^2 + 1^2) / 2 = 1, rstd 1; y = (-1 * 2 + 10, 1 * 3 + 20) */
    double x[] = {1, 3}, w[] = {2, 3}, b[] = {10, 20}, y[2], mean, rstd;
    struct norm_args args = {.R = 1, .C = 2, .dtype = DTYPE_F64, .x = x, .w = w, .b = b, .y = y};
    args.mean = &mean, args.rstd = &rstd;
    ASSERT_OK(ops->norm(&one_thread, &args, &err));
    assert_near(y, (double[]){8, 23}, 2);
    ASSERT_NEAR(mean, 2, 1e-15);
    ASSERT_NEAR(rstd, 1, 1e-15);
}

TEST(reference_norm_residual, "a residual is added behind weights and shift")
{
    double x[] = {1, 3}, w[] = {2, 3}, b[] = {10, 20}, residual[] = {100, 200}, y[2], mean, rstd;
    struct norm_args args = {.R = 1, .C = 2, .dtype = DTYPE_F64, .x = x, .w = w, .b = b, .y = y};
    args.mean = &mean, args.rstd = &rstd, args.residual = residual;
    ASSERT_OK(ops->norm(&one_thread, &args, &err));
    assert_near(y, (double[]){108, 223}, 2);
}

TEST(reference_rms_norm_by_hand, "RMSNorm of (1, 7) divides by 5, and eps is inside the root")
{
    /* mean square (1 + 49) / 2 = 25; with eps 11 the root is 6 */
    double x[] = {1, 7}, w[] = {1, 2}, y[2], rstd;
    struct norm_args args = {.R = 1, .C = 2, .dtype = DTYPE_F64, .rms = true, .x = x, .w = w, .y = y};
    args.rstd = &rstd;
    ASSERT_OK(ops->norm(&one_thread, &args, &err));
    assert_near(y, (double[]){1.0 / 5, 14.0 / 5}, 2);
    args.add_one = true;
    ASSERT_OK(ops->norm(&one_thread, &args, &err));
    assert_near(y, (double[]){2.0 / 5, 21.0 / 5}, 2);
    args.eps = 11;
    ASSERT_OK(ops->norm(&one_thread, &args, &err));
    ASSERT_NEAR(rstd, 1.0 / 6, 1e-15);
}

enum { NORM_R = 3, NORM_C = 7, NORM_COUNT = NORM_R * NORM_C };

/* A forward that has been run, and the arguments of its backward. */
struct norm_case {
    double x[NORM_COUNT], w[NORM_C], y[NORM_COUNT], mean[NORM_R], rstd[NORM_R];
    double dy[NORM_COUNT], d[NORM_COUNT], dw[NORM_C], db[NORM_C];
    struct norm_grad_args backward;
};

static void norm_case_fill(struct norm_case *norm)
{
    fill(1, norm->x, NORM_COUNT);
    fill(2, norm->w, NORM_C);
    fill(3, norm->dy, NORM_COUNT);
    struct norm_args args = {.R = NORM_R, .C = NORM_C, .dtype = DTYPE_F64, .x = norm->x, .w = norm->w};
    args.y = norm->y, args.mean = norm->mean, args.rstd = norm->rstd;
    ASSERT_OK(ops->norm(&one_thread, &args, &err));
    struct norm_grad_args *backward = &norm->backward;
    *backward =
        (struct norm_grad_args){.R = NORM_R, .C = NORM_C, .dtype = DTYPE_F64, .x = norm->x, .w = norm->w};
    backward->dy = norm->dy, backward->mean = norm->mean, backward->rstd = norm->rstd;
    backward->d = norm->d, backward->dw = norm->dw, backward->db = norm->db;
}

TEST(reference_layer_norm_orthogonal,
     "with w = 1, LayerNorm's d is orthogonal to 1 and to the normalized row")
{
    struct norm_case norm;
    norm_case_fill(&norm);
    for (int c = 0; c < NORM_C; c++)
        norm.w[c] = 1;
    ASSERT_OK(ops->norm_grad(&one_thread, &norm.backward, &err));
    for (int r = 0; r < NORM_R; r++) {
        double along_one = 0, along_normal = 0;
        for (int i = r * NORM_C; i < (r + 1) * NORM_C; i++) {
            along_one += norm.d[i];
            along_normal += norm.d[i] * (norm.x[i] - norm.mean[r]) * norm.rstd[r];
        }
        ASSERT_NEAR(along_one, 0, 1e-13);
        ASSERT_NEAR(along_normal, 0, 1e-13);
    }
}

TEST(reference_norm_grad_adds, "add_d and add_w add to what is there")
{
    struct norm_case norm;
    norm_case_fill(&norm);
    ASSERT_OK(ops->norm_grad(&one_thread, &norm.backward, &err));
    double d[NORM_COUNT], dw[NORM_C], db[NORM_C];
    for (int i = 0; i < NORM_COUNT; i++)
        d[i] = 2 * norm.d[i];
    for (int c = 0; c < NORM_C; c++)
        dw[c] = 2 * norm.dw[c], db[c] = 2 * norm.db[c];
    norm.backward.add_d = norm.backward.add_w = true;
    ASSERT_OK(ops->norm_grad(&one_thread, &norm.backward, &err));
    ASSERT(!memcmp(norm.d, d, sizeof d));
    ASSERT(!memcmp(norm.dw, dw, sizeof dw));
    ASSERT(!memcmp(norm.db, db, sizeof db));
}

TEST(reference_norm_grad_in_place, "d may be dy: all three gradients are the same bits")
{
    struct norm_case apart, inside;
    norm_case_fill(&apart);
    norm_case_fill(&inside);
    inside.backward.d = inside.dy;
    ASSERT_OK(ops->norm_grad(&one_thread, &apart.backward, &err));
    ASSERT_OK(ops->norm_grad(&one_thread, &inside.backward, &err));
    ASSERT(!memcmp(inside.dy, apart.d, sizeof apart.d));
    ASSERT(!memcmp(inside.dw, apart.dw, sizeof apart.dw));
    ASSERT(!memcmp(inside.db, apart.db, sizeof apart.db));
}

TEST(reference_matmul_by_hand, "x w^T + bias + residual, and each part alone")
{
    /* x = (1 2), w = ((3 4) (5 6)): x w^T = (1*3 + 2*4, 1*5 + 2*6) = (11, 17) */
    double x[] = {1, 2}, w[] = {3, 4, 5, 6}, bias[] = {100, 200}, residual[] = {1000, 2000}, y[2];
    struct matmul_args args = {.M = 1, .N = 2, .K = 2, .dtype = DTYPE_F64, .x = x, .w = w, .y = y};
    ASSERT_OK(ops->matmul(&one_thread, &args, &err));
    assert_near(y, (double[]){11, 17}, 2);
    args.bias = bias;
    ASSERT_OK(ops->matmul(&one_thread, &args, &err));
    assert_near(y, (double[]){111, 217}, 2);
    args.residual = residual;
    ASSERT_OK(ops->matmul(&one_thread, &args, &err));
    assert_near(y, (double[]){1111, 2217}, 2);
}

TEST(reference_residual_by_hand, "residual and bias are added to what is there, or the residual alone")
{
    /* (1 2 / 3 4) + (10 20 / 30 40) + (100 200) for each row */
    double y[] = {1, 2, 3, 4}, residual[] = {10, 20, 30, 40}, bias[] = {100, 200};
    struct residual_args args = {.R = 2, .C = 2, .dtype = DTYPE_F64, .residual = residual, .y = y};
    args.bias = bias;
    ASSERT_OK(ops->residual(&one_thread, &args, &err));
    assert_near(y, (double[]){111, 222, 133, 244}, 4);
    args.bias = NULL;
    ASSERT_OK(ops->residual(&one_thread, &args, &err));
    assert_near(y, (double[]){121, 242, 163, 284}, 4);
}

TEST(reference_matmul_grad_adds, "add adds to dx, dw and db; without it what was there is overwritten")
{
    /* dy = (1 2), w = ((3 4) (5 6)): dx = (3 + 10, 4 + 12); dw = dy^T x = ((7 8) (14 16)) for x = (7 8); db = dy */
    double dy[] = {1, 2}, w[] = {3, 4, 5, 6}, x[] = {7, 8}, dx[] = {99, 99}, dw[] = {99, 99, 99, 99},
           db[] = {99, 99};
    struct matmul_dgrad_args inputs = {
        .M = 1, .N = 2, .K = 2, .dtype = DTYPE_F64, .dy = dy, .w = w, .dx = dx};
    struct matmul_wgrad_args weights = {
        .M = 1, .N = 2, .K = 2, .dtype = DTYPE_F64, .dy = dy, .x = x, .dw = dw};
    weights.db = db;
    for (int time = 1; time <= 2; time++) {
        inputs.add = weights.add = time == 2;
        ASSERT_OK(ops->matmul_dgrad(&one_thread, &inputs, &err));
        ASSERT_OK(ops->matmul_wgrad(&one_thread, &weights, &err));
        assert_near(dx, (double[]){time * 13, time * 16}, 2);
        assert_near(dw, (double[]){time * 7, time * 8, time * 14, time * 16}, 4);
        assert_near(db, (double[]){time * 1, time * 2}, 2);
    }
}

TEST(reference_bf16_rounds_once, "a BF16 sum is rounded at the end, and its weight gradient not at all")
{
    /* BF16 keeps 8 bits, so 256 + 1 would round back to 256 at each step; 258 fits, 257 does not. */
    uint16_t x[3], ones[3], y, dy[2] = {f32_to_bf16(1), f32_to_bf16(1)},
                               rows[2] = {f32_to_bf16(256), f32_to_bf16(1)};
    for (int k = 0; k < 3; k++)
        x[k] = f32_to_bf16(k == 0 ? 256 : 1), ones[k] = f32_to_bf16(1);
    struct matmul_args args = {.M = 1, .N = 1, .K = 3, .dtype = DTYPE_BF16, .x = x, .w = ones, .y = &y};
    ASSERT_OK(ops->matmul(&one_thread, &args, &err));
    ASSERT(bf16_to_f32(y) == 258);
    float dw;
    struct matmul_wgrad_args weights = {
        .M = 2, .N = 1, .K = 1, .dtype = DTYPE_BF16, .dy = dy, .x = rows, .dw = &dw};
    ASSERT_OK(ops->matmul_wgrad(&one_thread, &weights, &err));
    ASSERT(dw == 257);
}

TEST(reference_attention_uniform, "queries of zero average the values they may see")
{
    /* All scores are 0: lse = log(visible keys). D = 1, values 1, 2, 6: causal averages 1, 3/2, 3; full 3, 3, 3. */
    double qkv[] = {0, 5, 1, 0, -5, 2, 0, 7, 6}, out[3], lse[3];
    struct attention_args args = {.B = 1, .T = 3, .H = 1, .K = 1, .D = 1, .dtype = DTYPE_F64, .causal = true};
    args.qkv = qkv, args.out = out, args.lse = lse;
    ASSERT_OK(ops->attention(&one_thread, &args, &err));
    assert_near(out, (double[]){1, 1.5, 3}, 3);
    assert_near(lse, (double[]){0, log(2), log(3)}, 3);
    args.causal = false;
    ASSERT_OK(ops->attention(&one_thread, &args, &err));
    assert_near(out, (double[]){3, 3, 3}, 3);
}

TEST(reference_attention_scale, "scores are scaled by 1/sqrt(D), and large ones do not overflow")
{
    /* T = 1, D = 4: q = k = (30 30 30 30), q.k = 3600, score 3600 / 2; the only value comes out whole. */
    double qkv[12] = {30, 30, 30, 30, 30, 30, 30, 30, 1, 2, 3, 4}, out[4], lse;
    struct attention_args args = {.B = 1, .T = 1, .H = 1, .K = 1, .D = 4, .dtype = DTYPE_F64, .causal = true};
    args.qkv = qkv, args.out = out, args.lse = &lse;
    ASSERT_OK(ops->attention(&one_thread, &args, &err));
    ASSERT_NEAR(lse, 1800, 1e-12);
    assert_near(out, qkv + 8, 4);
}

enum { ATT_T = 5, ATT_H = 4, ATT_K = 2, ATT_D = 3 };
enum { ATT_ROW = (ATT_H + 2 * ATT_K) * ATT_D, ATT_OUT = ATT_H * ATT_D, ATT_FULL_ROW = 3 * ATT_H * ATT_D };

static void attend(const double *qkv, int64_t K, bool causal, double *out)
{
    double lse[ATT_H * ATT_T];
    struct attention_args args = {.B = 1, .T = ATT_T, .H = ATT_H, .K = K, .D = ATT_D, .dtype = DTYPE_F64};
    args.causal = causal, args.qkv = qkv, args.out = out, args.lse = lse;
    ASSERT_OK(ops->attention(&one_thread, &args, &err));
}

TEST(reference_attention_causal, "changing later tokens does not change one bit of earlier outputs")
{
    enum { CHANGED = 3 }; /* rows from here on */
    double qkv[ATT_T * ATT_ROW], before[ATT_T * ATT_OUT], after[ATT_T * ATT_OUT];
    fill(1, qkv, ATT_T * ATT_ROW);
    attend(qkv, ATT_K, true, before);
    fill(2, qkv + CHANGED * ATT_ROW, (ATT_T - CHANGED) * ATT_ROW);
    attend(qkv, ATT_K, true, after);
    ASSERT(!memcmp(before, after, CHANGED * ATT_OUT * sizeof(double)));
    for (int i = CHANGED * ATT_OUT; i < ATT_T * ATT_OUT; i++)
        ASSERT(before[i] != after[i]);
}

TEST(reference_attention_window, "queries of zero in a window average the last values that it has")
{
    double qkv[] = {0, 1, 1, 0, 2, 2, 0, 3, 4, 0, 4, 8}, out[4], lse[4];
    struct attention_args args = {.B = 1, .T = 4, .H = 1, .K = 1, .D = 1, .dtype = DTYPE_F64, .causal = true};
    args.window = 2, args.qkv = qkv, args.out = out, args.lse = lse;
    ASSERT_OK(ops->attention(&one_thread, &args, &err));
    assert_near(out, (double[]){1, 1.5, 3, 6}, 4);
    assert_near(lse, (double[]){0, log(2), log(2), log(2)}, 4);
}

TEST(reference_attention_grouped, "grouped key/value heads equal full ones with every head written out")
{
    /* Heads of a row: q0 q1 q2 q3 k0 k1 v0 v1; written out: q0 q1 q2 q3 k0 k0 k1 k1 v0 v0 v1 v1. */
    static const int source[3 * ATT_H] = {0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7};
    double grouped[ATT_T * ATT_ROW], full[ATT_T * ATT_FULL_ROW], a[ATT_T * ATT_OUT], b[ATT_T * ATT_OUT];
    fill(1, grouped, ATT_T * ATT_ROW);
    for (int t = 0; t < ATT_T; t++)
        for (int head = 0; head < 3 * ATT_H; head++)
            memcpy(full + t * ATT_FULL_ROW + head * ATT_D, grouped + t * ATT_ROW + source[head] * ATT_D,
                   ATT_D * sizeof(double));
    attend(grouped, ATT_K, false, a);
    attend(full, ATT_H, false, b);
    ASSERT(!memcmp(a, b, sizeof a));
}

TEST(reference_attention_heads, "heads that do not divide are refused by number")
{
    struct attention_args args = {.B = 1, .T = 1, .H = 4, .K = 3, .D = 2, .dtype = DTYPE_F32};
    ASSERT_INT(ops->attention(&one_thread, &args, &err), -1);
    ASSERT_HAS(err.text, "4 query heads cannot share 3 key/value heads");
}

static void turn(double *qkv, int64_t T, int64_t D, bool inverse)
{
    struct rope_args args = {.B = 1, .T = T, .H = 2, .K = 1, .D = D, .dtype = DTYPE_F64, .theta = 100};
    args.inverse = inverse, args.qkv = qkv;
    ASSERT_OK(ops->rope(&one_thread, &args, &err));
}

TEST(reference_rope_by_hand, "element i turns with element i + D/2; position 0 and values stay")
{
    /* D = 4, theta = 100: pair (0, 2) turns by t, pair (1, 3) by t / 10. A row is 2 query, 1 key, 1 value heads. */
    enum { D = 4, ROW = 4 * D };
    double qkv[2 * ROW], turned[2 * ROW];
    for (int i = 0; i < 2 * ROW; i++)
        qkv[i] = i % D < D / 2; /* every head is (1 1 0 0) */
    memcpy(turned, qkv, sizeof turned);
    turn(turned, 2, D, false);
    ASSERT(!memcmp(turned, qkv, ROW * sizeof(double)));
    for (int head = 0; head < 3; head++)
        assert_near(turned + ROW + head * D, (double[]){cos(1), cos(0.1), sin(1), sin(0.1)}, D);
    ASSERT(!memcmp(turned + ROW + 3 * D, qkv + ROW + 3 * D, D * sizeof(double)));
}

TEST(reference_rope_part, "of the elements that turn, i turns with i + half of them; the others stay")
{
    /* D = 6, of which 4 turn by theta = 100: the pairs and angles are those of a head of 4. */
    enum { D = 6, ROW = 4 * D };
    double qkv[2 * ROW], turned[2 * ROW];
    for (int i = 0; i < 2 * ROW; i++)
        qkv[i] = i % D < 2 ? 1 : i % D < 4 ? 0 : 7; /* every head is (1 1 0 0 7 7) */
    memcpy(turned, qkv, sizeof turned);
    struct rope_args args = {.B = 1, .T = 2, .H = 2, .K = 1, .D = D, .unturned = 2, .dtype = DTYPE_F64};
    args.theta = 100, args.qkv = turned;
    ASSERT_OK(ops->rope(&one_thread, &args, &err));
    for (int head = 0; head < 3; head++)
        assert_near(turned + ROW + head * D, (double[]){cos(1), cos(0.1), sin(1), sin(0.1), 7, 7}, D);
    ASSERT(!memcmp(turned + ROW + 3 * D, qkv + ROW + 3 * D, D * sizeof(double)));
}

TEST(reference_rope_inverse, "turning back undoes turning")
{
    enum { T = 5, D = 6, COUNT = T * 4 * D };
    double qkv[COUNT], turned[COUNT];
    fill(1, qkv, COUNT);
    memcpy(turned, qkv, sizeof turned);
    turn(turned, T, D, false);
    ASSERT(fabs(turned[COUNT - 4 * D] - qkv[COUNT - 4 * D]) > 1e-3);
    turn(turned, T, D, true);
    assert_near(turned, qkv, COUNT);
}

TEST(reference_qk_norm_is_both,
     "queries and keys are those of RMSNorm on each head and then RoPE; values stay")
{
    enum { T = 3, H = 2, K = 1, D = 4, HEADS = H + 2 * K, COUNT = T * HEADS * D };
    double qkv[COUNT], expected[COUNT], y[COUNT], rstd[1];
    double weights[2][D] = {{1, 2, -1, 0.5}, {0.25, 3, 1, 0}};
    fill(1, qkv, COUNT);
    for (int head = 0; head < T * HEADS; head++) {
        struct norm_args norm = {.R = 1, .C = D, .dtype = DTYPE_F64, .rms = true, .eps = 1e-2, .rstd = rstd};
        norm.x = qkv + head * D, norm.w = weights[head % HEADS >= H], norm.y = expected + head * D;
        if (head % HEADS < H + K)
            ASSERT_OK(ops->norm(&one_thread, &norm, &err));
        else
            memcpy(norm.y, norm.x, D * sizeof(double));
    }
    turn(expected, T, D, false);
    struct qk_norm_heads heads = {.B = 1, .T = T, .H = H, .K = K, .D = D, .dtype = DTYPE_F64, .eps = 1e-2};
    heads.theta = 100, heads.qkv = qkv, heads.q_norm = weights[0], heads.k_norm = weights[1];
    ASSERT_OK(ops->qk_norm(&one_thread, &(struct qk_norm_args){heads, y}, &err));
    assert_near(y, expected, COUNT);
}

TEST(reference_qk_norm_whole, "or of RMSNorm on all queries, and on all keys of a position")
{
    enum { T = 3, H = 3, K = 2, D = 4, ROW = (H + 2 * K) * D, COUNT = T * ROW };
    double qkv[COUNT], expected[COUNT], y[COUNT], rstd[1], weights[(H + K) * D];
    fill(1, qkv, COUNT);
    fill(2, weights, (H + K) * D);
    memcpy(expected, qkv, sizeof qkv);
    for (int part = 0; part < 2 * T; part++) {
        int at = part / 2 * ROW + part % 2 * H * D;
        struct norm_args norm = {.R = 1, .C = (part % 2 ? K : H) * D, .dtype = DTYPE_F64, .rms = true};
        norm.eps = 1e-2, norm.rstd = rstd, norm.x = qkv + at, norm.y = expected + at;
        norm.w = weights + part % 2 * H * D;
        ASSERT_OK(ops->norm(&one_thread, &norm, &err));
    }
    struct rope_args rope = {.B = 1, .T = T, .H = H, .K = K, .D = D, .dtype = DTYPE_F64, .theta = 100};
    rope.qkv = expected;
    ASSERT_OK(ops->rope(&one_thread, &rope, &err));
    struct qk_norm_heads heads = {.B = 1, .T = T, .H = H, .K = K, .D = D, .dtype = DTYPE_F64, .eps = 1e-2};
    heads.whole = true, heads.theta = 100, heads.qkv = qkv;
    heads.q_norm = weights, heads.k_norm = weights + H * D;
    ASSERT_OK(ops->qk_norm(&one_thread, &(struct qk_norm_args){heads, y}, &err));
    assert_near(y, expected, COUNT);
}

TEST(reference_qk_norm_odd, "an odd head size is refused forward and back")
{
    struct qk_norm_heads heads = {.B = 1, .T = 1, .H = 1, .K = 1, .D = 5, .dtype = DTYPE_F64};
    ASSERT_INT(ops->qk_norm(&one_thread, &(struct qk_norm_args){.heads = heads}, &err), -1);
    ASSERT_HAS(err.text, "qk_norm: a head size of 5");
    ASSERT_INT(ops->qk_norm_grad(&one_thread, &(struct qk_norm_grad_args){.heads = heads}, &err), -1);
    ASSERT_HAS(err.text, "qk_norm_grad: a head size of 5");
}

TEST(reference_rope_odd, "an odd head size is refused")
{
    struct rope_args args = {.B = 1, .T = 1, .H = 1, .K = 1, .D = 5, .dtype = DTYPE_F64, .theta = 100};
    ASSERT_INT(ops->rope(&one_thread, &args, &err), -1);
    ASSERT_HAS(err.text, "head size of 5");
}

TEST(reference_gelu_values,
     "GELU: gelu(x) - gelu(-x) = x, its ends are straight, and in place gives the same bits")
{
    /* 0.5 x (1 + tanh u) - 0.5 (-x) (1 - tanh u) = x, as u is odd; u(1) = sqrt(2/pi) 1.044715 = 0.833560, tanh 0.682384,
     * so gelu(1) = 0.841192. */
    double x[] = {1, -1, 2.5, -2.5, 0, 40, -40}, y[7];
    struct gelu_args args = {.count = 7, .dtype = DTYPE_F64, .x = x, .y = y};
    ASSERT_OK(ops->gelu(&one_thread, &args, &err));
    ASSERT_NEAR(y[0], 0.841192, 1e-6);
    ASSERT_NEAR(y[0] - y[1], 1, 1e-15);
    ASSERT_NEAR(y[2] - y[3], 2.5, 1e-15);
    assert_near(y + 4, (double[]){0, 40, 0}, 3);
    args.y = x;
    ASSERT_OK(ops->gelu(&one_thread, &args, &err));
    ASSERT(!memcmp(x, y, sizeof y));
}

TEST(reference_swiglu_by_hand, "a row of SwiGLU is F gates, then F ups")
{
    /* sigmoid(log 3) = 3/4, sigmoid(0) = 1/2: y = (log 3 * 3/4 * 8, 0 * 1/2 * 5)
     * dgate = dy up s (1 + gate (1 - s)): 8 * 3/4 (1 + log 3 / 4) and 5 * 1/2; dup = dy gate s: 3/4 log 3 and 0 */
    double gate_up[] = {log(3), 0, 8, 5}, dy[] = {1, 1}, y[2];
    struct swiglu_args args = {.R = 1, .F = 2, .dtype = DTYPE_F64, .gate_up = gate_up, .y = y};
    ASSERT_OK(ops->swiglu(&one_thread, &args, &err));
    assert_near(y, (double[]){6 * log(3), 0}, 2);
    struct swiglu_grad_args backward = {.R = 1, .F = 2, .dtype = DTYPE_F64, .dy = dy, .gate_up = gate_up};
    ASSERT_OK(ops->swiglu_grad(&one_thread, &backward, &err));
    assert_near(gate_up, (double[]){6 + 1.5 * log(3), 2.5, 0.75 * log(3), 0}, 4);
}

TEST(reference_embed_by_hand, "a token's row plus its position's, or the token's alone")
{
    double wte[] = {1, 2, 3}, wpe[] = {10, 20}, x[4];
    const int32_t tokens[] = {2, 0, 1, 1};
    struct embed_args args = {
        .B = 2, .T = 2, .C = 1, .V = 3, .vocabulary = 3, .dtype = DTYPE_F64, .tokens = tokens, .wte = wte};
    args.wpe = wpe, args.x = x;
    ASSERT_OK(ops->embed(&one_thread, &args, &err));
    assert_near(x, (double[]){13, 21, 12, 22}, 4);
    args.wpe = NULL;
    ASSERT_OK(ops->embed(&one_thread, &args, &err));
    assert_near(x, (double[]){3, 1, 2, 2}, 4);
}

TEST(reference_embed_grad_by_hand,
     "repeated tokens add up, unused rows are cleared, add keeps what was there")
{
    /* tokens 2 0 / 1 1 with d = 1 2 / 3 4: dwte = (2, 3 + 4, 1); dwpe = (1 + 3, 2 + 4), and 0 at position 2. */
    double d[] = {1, 2, 3, 4}, dwte[] = {99, 99, 99, 99}, dwpe[] = {99, 99, 99};
    const int32_t tokens[] = {2, 0, 1, 1};
    struct embed_grad_args args = {.B = 2, .T = 2, .C = 1, .V = 4, .positions = 3, .dtype = DTYPE_F64};
    args.vocabulary = 4, args.tokens = tokens, args.d = d, args.dwte = dwte, args.dwpe = dwpe;
    ASSERT_OK(ops->embed_grad(&one_thread, &args, &err));
    assert_near(dwte, (double[]){2, 7, 1, 0}, 4);
    assert_near(dwpe, (double[]){4, 6, 0}, 3);
    args.add_wte = true;
    ASSERT_OK(ops->embed_grad(&one_thread, &args, &err));
    assert_near(dwte, (double[]){4, 14, 2, 0}, 4);
    assert_near(dwpe, (double[]){4, 6, 0}, 3);
    args.add_wpe = true, args.dwte = (double[4]){0};
    ASSERT_OK(ops->embed_grad(&one_thread, &args, &err));
    assert_near(dwpe, (double[]){8, 12, 0}, 3);
}

TEST_LOOP(reference_embed_bad_token,
          "a token outside the vocabulary is named with the range, and nothing is written", 2)
{
    const int32_t tokens[] = {0, _i ? -3 : 7};
    double table[7] = {0}, x[] = {5, 5}, grad[7] = {5};
    struct embed_args args = {
        .B = 1, .T = 2, .C = 1, .V = 7, .vocabulary = 7, .dtype = DTYPE_F64, .tokens = tokens, .wte = table};
    args.x = x;
    ASSERT_INT(ops->embed(&one_thread, &args, &err), -1);
    ASSERT_HAS(err.text, _i ? "token -3 at position 1" : "token 7 at position 1");
    ASSERT_HAS(err.text, "[0, 7)");
    ASSERT(x[0] == 5);
    struct embed_grad_args backward = {
        .B = 1, .T = 2, .C = 1, .V = 7, .vocabulary = 7, .dtype = DTYPE_F64, .tokens = tokens, .d = x};
    backward.dwte = grad;
    ASSERT_INT(ops->embed_grad(&one_thread, &backward, &err), -1);
    ASSERT(grad[0] == 5);
}

TEST(reference_embed_few_positions, "fewer positions than tokens are refused in the gradient")
{
    const int32_t tokens[] = {0, 0};
    double d[2] = {0}, grad[2];
    struct embed_grad_args args = {.B = 1, .T = 2, .C = 1, .V = 1, .positions = 1, .dtype = DTYPE_F64};
    args.vocabulary = 1, args.tokens = tokens, args.d = d, args.dwte = grad, args.dwpe = grad + 1;
    ASSERT_INT(ops->embed_grad(&one_thread, &args, &err), -1);
    ASSERT_HAS(err.text, "1 position embeddings are too few for sequences of 2 tokens");
}

TEST(reference_cross_entropy_uniform, "logits of zero lose log V per row, added to what the loss was")
{
    enum { R = 3, V = 7 };
    double logits[R * V] = {0}, loss = 100;
    struct cross_entropy_args args = {.R = R, .V = V, .dtype = DTYPE_F64, .logits = logits, .scale = 1.0 / R};
    args.targets = (const int32_t[]){0, 6, 3}, args.loss = &loss;
    ASSERT_OK(ops->cross_entropy(&one_thread, &args, &err));
    ASSERT_NEAR(loss, 100 + log(V), 1e-13);
    ASSERT(logits[0] == 0); /* without `gradient` they are only read */
}

TEST(reference_cross_entropy_rows, "a row's gradient sums to zero; an ignored row has none and loses nothing")
{
    enum { R = 3, V = 7 };
    double logits[R * V], alone[R * V], loss = 0, loss_alone = 0;
    fill(1, logits, R * V);
    memcpy(alone, logits, sizeof alone);
    struct cross_entropy_args args = {.R = R, .V = V, .dtype = DTYPE_F64, .logits = logits, .scale = 0.5};
    args.targets = (const int32_t[]){4, 2, -1}, args.loss = &loss, args.gradient = true;
    ASSERT_OK(ops->cross_entropy(&one_thread, &args, &err));
    for (int r = 0; r < R; r++) {
        double sum = 0;
        for (int v = 0; v < V; v++)
            sum += logits[r * V + v];
        ASSERT_NEAR(sum, 0, 1e-15);
    }
    for (int v = 0; v < V; v++)
        ASSERT(logits[2 * V + v] == 0);
    args.R = 2, args.logits = alone, args.loss = &loss_alone;
    ASSERT_OK(ops->cross_entropy(&one_thread, &args, &err));
    ASSERT(loss == loss_alone);
}

TEST(reference_cross_entropy_large, "logits of a thousand neither overflow nor lose the answer")
{
    /* The target leads by 2000: the loss of (1000, -1000) is log(1 + exp(-2000)) = 0, of the other target 2000. */
    double logits[] = {1000, -1000, 1000, -1000}, loss = 0;
    struct cross_entropy_args args = {.R = 2, .V = 2, .dtype = DTYPE_F64, .logits = logits, .scale = 1};
    args.targets = (const int32_t[]){0, 1}, args.loss = &loss, args.gradient = true;
    ASSERT_OK(ops->cross_entropy(&one_thread, &args, &err));
    ASSERT_NEAR(loss, 2000, 1e-12);
    assert_near(logits, (double[]){0, 0, 1, -1}, 4);
}

TEST_LOOP(reference_cross_entropy_bad_target, "a target outside the classes is named with the range", 2)
{
    const int32_t targets[] = {1, _i ? -2 : 3};
    double logits[6] = {5}, loss = 7;
    struct cross_entropy_args args = {
        .R = 2, .V = 3, .dtype = DTYPE_F64, .logits = logits, .targets = targets};
    args.loss = &loss, args.gradient = true;
    ASSERT_INT(ops->cross_entropy(&one_thread, &args, &err), -1);
    ASSERT_HAS(err.text, _i ? "target -2 in row 1" : "target 3 in row 1");
    ASSERT_HAS(err.text, "[0, 3)");
    ASSERT(loss == 7 && logits[0] == 5);
}

TEST(reference_square_sum_adds, "3^2 + 4^2 is added to the total; BF16 is refused")
{
    float g[] = {3, 4}, total = 100;
    struct square_sum_args args = {.count = 2, .dtype = DTYPE_F32, .g = g, .total = &total};
    ASSERT_OK(ops->square_sum(&one_thread, &args, &err));
    ASSERT(total == 125);
    args.dtype = DTYPE_BF16;
    ASSERT_INT(ops->square_sum(&one_thread, &args, &err), -1);
    ASSERT_HAS(err.text, "BF16");
}

static struct adamw_args adamw_of(enum dtype dtype, int64_t count, void *w, const void *g, void *m, void *v)
{
    return (struct adamw_args){.count = count,
                               .dtype = dtype,
                               .w = w,
                               .g = g,
                               .m = m,
                               .v = v,
                               .lr = 1e-3,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-2,
                               .t = 1};
}

TEST(reference_adamw_constant_gradient, "a constant gradient moves by lr / (1 + eps/|g|) a step, plus decay")
{
    /* m = (1 - beta1^t) g and v = (1 - beta2^t) g^2, so m_hat = g and v_hat = g^2 at every step:
     * p <- p - lr (sign(g) / (1 + eps/|g|) + decay p) */
    double w[] = {2, 2}, g[] = {0.5, -0.25}, m[2] = {0}, v[2] = {0}, expected[] = {2, 2};
    struct adamw_args args = adamw_of(DTYPE_F64, 2, w, g, m, v);
    args.decay = 0.1;
    for (args.t = 1; args.t <= 5; args.t++) {
        ASSERT_OK(ops->adamw(&one_thread, &args, &err));
        expected[0] -= 1e-3 * (+1 / (1 + 1e-2 / 0.5) + 0.1 * expected[0]);
        expected[1] -= 1e-3 * (-1 / (1 + 1e-2 / 0.25) + 0.1 * expected[1]);
        assert_near(w, expected, 2);
    }
}

TEST(reference_adamw_clips,
     "a gradient of norm 5 is scaled by 1 / (5 + 1e-6) when it may be 1, and left alone below")
{
    double w[2] = {0}, g[] = {3, 4}, m[2] = {0}, v[2] = {0}, total = 25;
    struct adamw_args args = adamw_of(DTYPE_F64, 2, w, g, m, v);
    args.square_sum = &total, args.max_norm = 1;
    ASSERT_OK(ops->adamw(&one_thread, &args, &err));
    const double clip = 1 / (5 + 1e-6);
    assert_near(m, (double[]){0.1 * 3 * clip, 0.1 * 4 * clip}, 2);
    assert_near(v, (double[]){0.05 * 9 * clip * clip, 0.05 * 16 * clip * clip}, 2);
    for (int unlimited = 0; unlimited <= 1; unlimited++) {
        args.max_norm = unlimited ? 0 : 10;
        m[0] = m[1] = v[0] = v[1] = 0;
        ASSERT_OK(ops->adamw(&one_thread, &args, &err));
        assert_near(m, (double[]){0.1 * 3, 0.1 * 4}, 2);
    }
}

TEST(reference_adamw_nan_norm, "a norm that is not a number reaches the weights instead of hiding")
{
    double w = 1, g = 1, m = 0, v = 0, total = NAN;
    struct adamw_args args = adamw_of(DTYPE_F64, 1, &w, &g, &m, &v);
    args.square_sum = &total, args.max_norm = 1;
    ASSERT_OK(ops->adamw(&one_thread, &args, &err));
    ASSERT(isnan(w));
}

TEST(reference_adamw_master, "BF16 weights follow their fp32 master, which keeps steps too small for them")
{
    /* Each step is lr / (1 + 1e-2) = 0.00099. BF16 below 1 has steps of 1/256 = 0.0039: a move of 0.00099 rounds back to 1,
     * while after four steps the master is at 0.99604, nearest to 255/256. */
    uint16_t w = f32_to_bf16(1), alone = f32_to_bf16(1);
    float master = 1, g = 1, m[2] = {0}, v[2] = {0};
    struct adamw_args kept = adamw_of(DTYPE_BF16, 1, &w, &g, &m[0], &v[0]);
    struct adamw_args bare = adamw_of(DTYPE_BF16, 1, &alone, &g, &m[1], &v[1]);
    kept.master = &master;
    for (int64_t t = 1; t <= 4; t++) {
        kept.t = bare.t = t;
        ASSERT_OK(ops->adamw(&one_thread, &kept, &err));
        ASSERT_OK(ops->adamw(&one_thread, &bare, &err));
        ASSERT_NEAR(master, 1 - (double)t * 1e-3 / 1.01, 1e-6);
        ASSERT(w == f32_to_bf16(master));
        if (t == 1)
            ASSERT(bf16_to_f32(w) == 1);
    }
    ASSERT(bf16_to_f32(w) == 255.0f / 256);
    ASSERT(bf16_to_f32(alone) == 1);
}

TEST(reference_adamw_first_step, "steps count from 1")
{
    struct adamw_args args = adamw_of(DTYPE_F32, 0, NULL, NULL, NULL, NULL);
    args.t = 0;
    ASSERT_INT(ops->adamw(&one_thread, &args, &err), -1);
    ASSERT_HAS(err.text, "step 0");
}

TEST(reference_table_full, "every operation is there, and integers are refused by name")
{
    ASSERT_STR(ops->name, "reference");
    ASSERT(ops->embed && ops->embed_grad && ops->norm && ops->norm_grad && ops->matmul && ops->matmul_dgrad);
    ASSERT(ops->matmul_wgrad && ops->attention && ops->attention_grad && ops->rope && ops->gelu &&
           ops->gelu_grad);
    ASSERT(ops->swiglu && ops->swiglu_grad && ops->cross_entropy && ops->square_sum && ops->adamw);
    ASSERT(ops->qk_norm && ops->qk_norm_grad);
    ASSERT(ops->residual && ops->logit_max && ops->logit_sums && ops->cross_entropy_sharded);
    ASSERT_INT(ops->norm(&one_thread, &(struct norm_args){.dtype = DTYPE_I32}, &err), -1);
    ASSERT_HAS(err.text, "no dtype I32; use F32, BF16 or F64");
}
