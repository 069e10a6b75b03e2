/* Every backward of the reference against central finite differences of its forward, in F64. The loss is the dot product
 * of the forward's output with a fixed random `dy`, so that the exact gradient of an output is `dy`. Shapes are small and
 * odd; a slope (f(x + h) - f(x - h)) / 2h with h = 1e-5 is good to about 1e-10. */
#include "kernels/kernels.h"
#include "tests/kernels/fill.h"
#include "tests/kernels/shards.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>

static const struct kernel_context one_thread = {.threads = 1};
static const struct kernel_table *const ops = &kernels_reference;
static struct error err;

static const double STEP = 1e-5, TOLERANCE = 1e-7;

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void fill(uint64_t seed, double *values, int64_t count)
{
    random_fill(seed, DTYPE_F64, values, count);
}

/* `gradient` is d loss(context) / d variable, where `context` reads `variable`. The error is relative to the largest
 * element, since some may be near zero by chance. */
static void check_gradient(const char *name, double (*loss)(const void *), const void *context,
                           double *variable, const double *gradient, int64_t count)
{
    double error = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        double kept = variable[i];
        variable[i] = kept + STEP;
        double above = loss(context);
        variable[i] = kept - STEP;
        double below = loss(context);
        variable[i] = kept;
        error = fmax(error, fabs((above - below) / (2 * STEP) - gradient[i]));
        largest = fmax(largest, fabs(gradient[i]));
    }
    ASSERT_MSG(largest > 0, "%s: the gradient is all zero", name);
    ASSERT_MSG(error < TOLERANCE * largest, "%s: error %g beside a largest element of %g", name, error,
               largest);
}

struct norm_probe {
    struct norm_args forward;
    const double *dy;
};

static double norm_loss(const void *context)
{
    const struct norm_probe *probe = context;
    ASSERT_OK(ops->norm(&one_thread, &probe->forward, &err));
    return dot(probe->forward.y, probe->dy, probe->forward.R * probe->forward.C);
}

static void check_norm(bool rms, bool shifted, bool add_one)
{
    enum { R = 3, C = 7 };
    double x[R * C], w[C], b[C], y[R * C], dy[R * C], mean[R], rstd[R], d[R * C], dw[C], db[C];
    fill(1, x, R * C);
    fill(2, w, C);
    fill(3, b, C);
    fill(4, dy, R * C);
    struct norm_probe probe = {{.R = R, .C = C, .dtype = DTYPE_F64, .rms = rms, .eps = 1e-5}, dy};
    probe.forward.add_one = add_one;
    probe.forward.x = x, probe.forward.w = w, probe.forward.b = shifted ? b : NULL;
    probe.forward.y = y, probe.forward.mean = rms ? NULL : mean, probe.forward.rstd = rstd;
    norm_loss(&probe);

    struct norm_grad_args backward = {
        .R = R, .C = C, .dtype = DTYPE_F64, .rms = rms, .dy = dy, .x = x, .w = w};
    backward.add_one = add_one, backward.mean = probe.forward.mean, backward.rstd = rstd;
    backward.d = d, backward.dw = dw, backward.db = shifted ? db : NULL;
    ASSERT_OK(ops->norm_grad(&one_thread, &backward, &err));
    check_gradient("d", norm_loss, &probe, x, d, R * C);
    check_gradient("dw", norm_loss, &probe, w, dw, C);
    if (shifted)
        check_gradient("db", norm_loss, &probe, b, db, C);
}

TEST(reference_gradient_layer_norm, "LayerNorm with a shift: d, dw and db are the slopes")
{
    check_norm(false, true, false);
}

TEST(reference_gradient_layer_norm_plain, "LayerNorm without a shift: d and dw are the slopes")
{
    check_norm(false, false, false);
}

TEST(reference_gradient_rms_norm, "RMSNorm: d and dw are the slopes")
{
    check_norm(true, false, false);
    check_norm(true, false, true);
}

struct matmul_probe {
    struct matmul_args forward;
    const double *dy;
};

static double matmul_loss(const void *context)
{
    const struct matmul_probe *probe = context;
    ASSERT_OK(ops->matmul(&one_thread, &probe->forward, &err));
    return dot(probe->forward.y, probe->dy, probe->forward.M * probe->forward.N);
}

TEST_LOOP(reference_gradient_matmul, "matmul with and without bias and residual: every input's gradient", 4)
{
    enum { M = 3, N = 5, K = 7 };
    const bool biased = _i & 1, residual = _i & 2;
    double x[M * K], w[N * K], bias[N], rest[M * N], y[M * N], dy[M * N], dx[M * K], dw[N * K], db[N];
    fill(1, x, M * K);
    fill(2, w, N * K);
    fill(3, bias, N);
    fill(4, rest, M * N);
    fill(5, dy, M * N);
    struct matmul_probe probe = {{.M = M, .N = N, .K = K, .dtype = DTYPE_F64, .x = x, .w = w, .y = y}, dy};
    probe.forward.bias = biased ? bias : NULL, probe.forward.residual = residual ? rest : NULL;

    struct matmul_dgrad_args inputs = {
        .M = M, .N = N, .K = K, .dtype = DTYPE_F64, .dy = dy, .w = w, .dx = dx};
    ASSERT_OK(ops->matmul_dgrad(&one_thread, &inputs, &err));
    struct matmul_wgrad_args weights = {
        .M = M, .N = N, .K = K, .dtype = DTYPE_F64, .dy = dy, .x = x, .dw = dw};
    weights.db = biased ? db : NULL;
    ASSERT_OK(ops->matmul_wgrad(&one_thread, &weights, &err));
    check_gradient("dx", matmul_loss, &probe, x, dx, M * K);
    check_gradient("dw", matmul_loss, &probe, w, dw, N * K);
    if (biased)
        check_gradient("db", matmul_loss, &probe, bias, db, N);
    if (residual)
        check_gradient("residual", matmul_loss, &probe, rest, dy, M * N);
}

struct attention_probe {
    struct attention_args forward;
    const double *dout;
};

static double attention_loss(const void *context)
{
    const struct attention_probe *probe = context;
    const struct attention_args *forward = &probe->forward;
    ASSERT_OK(ops->attention(&one_thread, forward, &err));
    return dot(forward->out, probe->dout, forward->B * forward->T * forward->H * forward->D);
}

static void check_attention(bool causal, int64_t K, int64_t window, double scale)
{
    enum { B = 2, T = 5, H = 4, D = 3, ROW = 3 * H * D }; /* room for K = H */
    double qkv[B * T * ROW], out[B * T * H * D], dout[B * T * H * D], lse[B * H * T], delta[B * H * T];
    double dqkv[B * T * ROW];
    fill(1, qkv, B * T * ROW);
    fill(2, dout, B * T * H * D);
    struct attention_probe probe = {{.B = B, .T = T, .H = H, .K = K, .D = D, .dtype = DTYPE_F64}, dout};
    probe.forward.window = window, probe.forward.scale = scale;
    probe.forward.causal = causal, probe.forward.qkv = qkv, probe.forward.out = out, probe.forward.lse = lse;
    attention_loss(&probe);

    struct attention_grad_args backward = {.B = B, .T = T, .H = H, .K = K, .D = D, .dtype = DTYPE_F64};
    backward.window = window, backward.scale = scale;
    backward.causal = causal, backward.qkv = qkv, backward.out = out, backward.lse = lse;
    backward.dout = dout, backward.delta = delta, backward.dqkv = dqkv;
    ASSERT_OK(ops->attention_grad(&one_thread, &backward, &err));
    check_gradient("dqkv", attention_loss, &probe, qkv, dqkv, B * T * (H + 2 * K) * D);
}

TEST_LOOP(reference_gradient_attention_causal,
          "causal attention with 4 heads sharing 1, 2 or 4 key/value heads", 3)
{
    check_attention(true, 1 << _i, 0, 0);
}

TEST_LOOP(reference_gradient_attention_full, "full attention with 4 heads sharing 1, 2 or 4 key/value heads",
          3)
{
    check_attention(false, 1 << _i, 0, 0);
}

TEST_LOOP(reference_gradient_attention_window,
          "causal attention in windows of 1 to 5 of 5 positions, with a scale of its own", 5)
{
    check_attention(true, 2, 1 + _i, 0.3);
}

enum { ROPE_B = 2, ROPE_T = 3, ROPE_H = 2, ROPE_K = 1, ROPE_D = 6 };
enum { ROPE_COUNT = ROPE_B * ROPE_T * (ROPE_H + 2 * ROPE_K) * ROPE_D };

static void turn(double *qkv, int64_t unturned, bool inverse)
{
    struct rope_args args = {.B = ROPE_B, .T = ROPE_T, .H = ROPE_H, .K = ROPE_K, .D = ROPE_D};
    args.dtype = DTYPE_F64, args.theta = 100, args.inverse = inverse, args.qkv = qkv;
    args.unturned = unturned;
    ASSERT_OK(ops->rope(&one_thread, &args, &err));
}

struct rope_probe {
    const double *qkv, *dy;
    int64_t unturned;
};

static double rope_loss(const void *context)
{
    const struct rope_probe *probe = context;
    double turned[ROPE_COUNT];
    memcpy(turned, probe->qkv, sizeof turned);
    turn(turned, probe->unturned, false);
    return dot(turned, probe->dy, ROPE_COUNT);
}

TEST_LOOP(reference_gradient_rope,
          "the gradient of a rotary embedding, of whole heads or a part, is dy turned back", 2)
{
    double qkv[ROPE_COUNT], dy[ROPE_COUNT], d[ROPE_COUNT];
    fill(1, qkv, ROPE_COUNT);
    fill(2, dy, ROPE_COUNT);
    memcpy(d, dy, sizeof d);
    turn(d, 2 * _i, true);
    check_gradient("d", rope_loss, &(struct rope_probe){qkv, dy, 2 * _i}, qkv, d, ROPE_COUNT);
}

struct qk_norm_probe {
    struct qk_norm_args forward;
    const double *dy;
};

static double qk_norm_loss(const void *context)
{
    const struct qk_norm_probe *probe = context;
    ASSERT_OK(ops->qk_norm(&one_thread, &probe->forward, &err));
    return dot(probe->forward.y, probe->dy, ROPE_COUNT);
}

TEST_LOOP(
    reference_gradient_qk_norm,
    "normed and turned queries and keys, each or all together: dqkv and both weights' gradients are the "
    "slopes",
    2)
{
    enum { QUERIES = ROPE_H * ROPE_D, KEYS = ROPE_K * ROPE_D };
    double qkv[ROPE_COUNT], y[ROPE_COUNT], dy[ROPE_COUNT], d[ROPE_COUNT];
    double q_norm[QUERIES], k_norm[KEYS], dq[QUERIES], dk[KEYS];
    const int queries = _i ? QUERIES : ROPE_D, keys = _i ? KEYS : ROPE_D;
    fill(1, qkv, ROPE_COUNT);
    fill(2, dy, ROPE_COUNT);
    fill(3, q_norm, QUERIES);
    fill(4, k_norm, KEYS);
    struct qk_norm_heads heads = {.B = ROPE_B, .T = ROPE_T, .H = ROPE_H, .K = ROPE_K, .D = ROPE_D};
    heads.dtype = DTYPE_F64, heads.whole = _i, heads.add_one = _i, heads.eps = 1e-2, heads.theta = 100;
    heads.qkv = qkv, heads.q_norm = q_norm, heads.k_norm = k_norm;
    memcpy(d, dy, sizeof d);
    struct qk_norm_grad_args backward = {.heads = heads, .dqkv = d, .dq_norm = dq, .dk_norm = dk};
    ASSERT_OK(ops->qk_norm_grad(&one_thread, &backward, &err));
    struct qk_norm_probe probe = {{heads, y}, dy};
    check_gradient("dqkv", qk_norm_loss, &probe, qkv, d, ROPE_COUNT);
    check_gradient("dq_norm", qk_norm_loss, &probe, q_norm, dq, queries);
    check_gradient("dk_norm", qk_norm_loss, &probe, k_norm, dk, keys);
}

struct gelu_probe {
    struct gelu_args forward;
    const double *dy;
};

static double gelu_loss(const void *context)
{
    const struct gelu_probe *probe = context;
    ASSERT_OK(ops->gelu(&one_thread, &probe->forward, &err));
    return dot(probe->forward.y, probe->dy, probe->forward.count);
}

TEST(reference_gradient_gelu, "GELU between -4 and 4")
{
    enum { COUNT = 33 };
    double x[COUNT], y[COUNT], dy[COUNT], d[COUNT];
    fill(1, dy, COUNT);
    for (int i = 0; i < COUNT; i++)
        x[i] = (i - COUNT / 2) / 4.0;
    memcpy(d, dy, sizeof d);
    struct gelu_grad_args backward = {.count = COUNT, .dtype = DTYPE_F64, .x = x, .d = d};
    ASSERT_OK(ops->gelu_grad(&one_thread, &backward, &err));
    struct gelu_probe probe = {{.count = COUNT, .dtype = DTYPE_F64, .x = x, .y = y}, dy};
    check_gradient("d", gelu_loss, &probe, x, d, COUNT);
}

struct swiglu_probe {
    struct swiglu_args forward;
    const double *dy;
};

static double swiglu_loss(const void *context)
{
    const struct swiglu_probe *probe = context;
    ASSERT_OK(ops->swiglu(&one_thread, &probe->forward, &err));
    return dot(probe->forward.y, probe->dy, probe->forward.R * probe->forward.F);
}

TEST_LOOP(reference_gradient_swiglu, "SwiGLU and GEGLU: gates and ups become their own gradient in place", 2)
{
    enum { R = 3, F = 5 };
    double gate_up[R * 2 * F], gradient[R * 2 * F], y[R * F], dy[R * F];
    fill(1, gate_up, R * 2 * F);
    fill(2, dy, R * F);
    memcpy(gradient, gate_up, sizeof gradient);
    struct swiglu_grad_args backward = {.R = R, .F = F, .dtype = DTYPE_F64, .dy = dy, .gate_up = gradient};
    backward.gelu = _i;
    ASSERT_OK(ops->swiglu_grad(&one_thread, &backward, &err));
    struct swiglu_probe probe = {{.R = R, .F = F, .dtype = DTYPE_F64, .gate_up = gate_up, .y = y}, dy};
    probe.forward.gelu = _i;
    check_gradient("gate_up", swiglu_loss, &probe, gate_up, gradient, R * 2 * F);
}

struct embed_probe {
    struct embed_args forward;
    const double *dy;
};

static double embed_loss(const void *context)
{
    const struct embed_probe *probe = context;
    ASSERT_OK(ops->embed(&one_thread, &probe->forward, &err));
    return dot(probe->forward.x, probe->dy, probe->forward.B * probe->forward.T * probe->forward.C);
}

TEST(reference_gradient_embed, "embeddings of tokens that repeat, with positions to spare")
{
    enum { B = 2, T = 3, C = 5, V = 4, POSITIONS = 5 };
    const int32_t tokens[B * T] = {2, 0, 2, 3, 2, 0}; /* 2 thrice, 1 never */
    double wte[V * C], wpe[POSITIONS * C], x[B * T * C], d[B * T * C], dwte[V * C], dwpe[POSITIONS * C];
    fill(1, wte, V * C);
    fill(2, wpe, POSITIONS * C);
    fill(3, d, B * T * C);
    fill(4, dwte, V * C); /* left from before: must be cleared */
    fill(5, dwpe, POSITIONS * C);
    struct embed_grad_args backward = {
        .B = B, .T = T, .C = C, .V = V, .positions = POSITIONS, .tokens = tokens};
    backward.vocabulary = V, backward.dtype = DTYPE_F64, backward.d = d, backward.dwte = dwte,
    backward.dwpe = dwpe;
    ASSERT_OK(ops->embed_grad(&one_thread, &backward, &err));
    struct embed_probe probe = {{.B = B, .T = T, .C = C, .V = V, .dtype = DTYPE_F64, .tokens = tokens}, d};
    probe.forward.vocabulary = V, probe.forward.wte = wte, probe.forward.wpe = wpe, probe.forward.x = x;
    check_gradient("dwte", embed_loss, &probe, wte, dwte, V * C);
    check_gradient("dwpe", embed_loss, &probe, wpe, dwpe, POSITIONS * C);
}

TEST(reference_gradient_embed_shard,
     "a rank's part of the table: tokens 2 to 4 of 6, of which others come too")
{
    enum { B = 2, T = 3, C = 5, V = 3 };
    const int32_t tokens[B * T] = {2, 0, 2, 5, 4, 1}; /* 2 twice, 3 never; 0, 1 and 5 are other ranks' */
    double wte[V * C], wpe[T * C], x[B * T * C], d[B * T * C], dwte[V * C], dwpe[T * C];
    fill(1, wte, V * C);
    fill(2, wpe, T * C);
    fill(3, d, B * T * C);
    struct embed_grad_args backward = {.B = B, .T = T, .C = C, .V = V, .first_token = 2, .vocabulary = 6};
    backward.positions = T, backward.tokens = tokens, backward.dtype = DTYPE_F64;
    backward.d = d, backward.dwte = dwte, backward.dwpe = dwpe;
    ASSERT_OK(ops->embed_grad(&one_thread, &backward, &err));
    struct embed_probe probe = {{.B = B, .T = T, .C = C, .V = V, .first_token = 2, .vocabulary = 6}, d};
    probe.forward.dtype = DTYPE_F64, probe.forward.tokens = tokens;
    probe.forward.wte = wte, probe.forward.wpe = wpe, probe.forward.x = x;
    check_gradient("dwte", embed_loss, &probe, wte, dwte, V * C);
    check_gradient("dwpe", embed_loss, &probe, wpe, dwpe, T * C);
}

static double cross_entropy_loss(const void *context)
{
    struct cross_entropy_args args = *(const struct cross_entropy_args *)context;
    double loss = 0;
    args.loss = &loss;
    ASSERT_OK(ops->cross_entropy(&one_thread, &args, &err));
    return loss;
}

TEST(reference_gradient_cross_entropy, "cross-entropy with a scale and an ignored row")
{
    enum { R = 4, V = 7 };
    const int32_t targets[R] = {6, -1, 0, 3};
    double logits[R * V], gradient[R * V], loss = 0;
    fill(1, logits, R * V);
    memcpy(gradient, logits, sizeof gradient);
    struct cross_entropy_args args = {.R = R, .V = V, .dtype = DTYPE_F64, .targets = targets, .scale = 0.25};
    args.logits = gradient, args.loss = &loss, args.gradient = true;
    ASSERT_OK(ops->cross_entropy(&one_thread, &args, &err));
    args.logits = logits, args.gradient = false;
    check_gradient("logits", cross_entropy_loss, &args, logits, gradient, R * V);
}

static double shards_probe_loss(const void *context)
{
    return shards_loss(ops, &one_thread, context, 0.25, false);
}

TEST(reference_gradient_cross_entropy_shards,
     "cross-entropy of 7 tokens on 3 ranks, the last with 2 of padding")
{
    enum { R = 4, V = 3, RANKS = 3, COUNT = R * V };
    const int32_t targets[R] = {6, -1, 0, 3};
    double logits[RANKS * COUNT], gradient[RANKS * COUNT];
    struct shards shards = {.ranks = RANKS, .R = R, .V = V, .vocabulary = 7, .dtype = DTYPE_F64};
    shards.targets = targets;
    fill(1, logits, RANKS * COUNT);
    memcpy(gradient, logits, sizeof gradient);
    for (int rank = 0; rank < RANKS; rank++)
        shards.logits[rank] = gradient + rank * COUNT;
    shards_loss(ops, &one_thread, &shards, 0.25, true);
    for (int rank = 0; rank < RANKS; rank++)
        shards.logits[rank] = logits + rank * COUNT;
    check_gradient("logits", shards_probe_loss, &shards, logits, gradient, RANKS * COUNT);
}
