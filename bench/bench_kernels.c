/* How near do the CPU kernels come to what the machine can do? Runs each on GPT-2 124M's shapes (B=4, T=256) in F32 and
 * BF16, beside a large F32 matrix product and a STREAM triad (McCalpin 1995) measured in the same rounds. Rates are of
 * the best round, which a busy neighbour disturbs least. Work is counted as the formulas need it: causal attention half
 * the score matrix, memory traffic each tensor once (so kernels whose tensors stay in the last-level cache, or that
 * write in place, can pass 100% of the triad).
 *
 *     bench-kernels [THREADS [ROUNDS]] */
#include "base/arena.h"
#include "base/clock.h"
#include "kernels/kernels.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 4, T = 256, C = 768, H = 12, D = 64, F = 3072, V = 50257, R = B * T, PARAMETERS = V * C };
enum { TRIAD = 16 << 20, MAX_ROUNDS = 99 };

/* Buffers by the shape they have in the model; the fast ones of an entry are only as long as it needs. */
struct work {
    enum dtype dtype;
    void *hidden[3];                         /* (R, C) */
    void *feed[2];                           /* (R, F) */
    void *qkv, *dqkv;                        /* (R, 3C) */
    void *logits;                            /* (R, V) */
    void *table;                             /* (V, C): embeddings, and any weight */
    float *grad, *moment, *moment2, *master; /* (V, C) */
    float *statistics[2];                    /* (R, H) and longer than F */
    float *triad;                            /* (3, TRIAD) */
    int32_t *tokens;                         /* (R) */
};

static struct kernel_context context;
static struct error err;
static const struct kernel_table *const ops = &kernels_cpu;

static int run_triad(const struct work *w)
{
    float *a = w->triad, *b = a + TRIAD, *c = b + TRIAD;
#pragma omp parallel for simd num_threads(context.threads) schedule(static)
    for (int64_t i = 0; i < TRIAD; i++)
        a[i] = b[i] + 3 * c[i];
    return 0;
}

static int run_gemm(const struct work *w)
{
    struct matmul_args args = {.M = R,
                               .N = F,
                               .K = C,
                               .dtype = DTYPE_F32,
                               .y = w->triad,
                               .x = w->triad + TRIAD,
                               .w = w->triad + 2 * TRIAD};
    return ops->matmul(&context, &args, &err);
}

static int run_matmul(const struct work *w)
{
    struct matmul_args args = {.M = R, .N = F, .K = C, .dtype = w->dtype, .x = w->hidden[0], .w = w->table};
    args.bias = w->hidden[1], args.y = w->feed[1];
    return ops->matmul(&context, &args, &err);
}

static int run_matmul_residual(const struct work *w)
{
    struct matmul_args args = {.M = R, .N = C, .K = F, .dtype = w->dtype, .x = w->feed[0], .w = w->table};
    args.bias = w->hidden[1], args.residual = w->hidden[0], args.y = w->hidden[2];
    return ops->matmul(&context, &args, &err);
}

static int run_residual(const struct work *w)
{
    struct residual_args args = {.R = R, .C = C, .dtype = w->dtype, .residual = w->hidden[0]};
    args.bias = w->hidden[1], args.y = w->hidden[2];
    return ops->residual(&context, &args, &err);
}

static int run_matmul_dgrad(const struct work *w)
{
    struct matmul_dgrad_args args = {.M = R, .N = F, .K = C, .dtype = w->dtype, .dy = w->feed[0]};
    args.w = w->table, args.dx = w->hidden[2];
    return ops->matmul_dgrad(&context, &args, &err);
}

static int run_matmul_wgrad(const struct work *w)
{
    struct matmul_wgrad_args args = {
        .M = R, .N = F, .K = C, .dtype = w->dtype, .dy = w->feed[0], .x = w->hidden[0]};
    args.dw = w->grad, args.db = w->statistics[0], args.add = true;
    return ops->matmul_wgrad(&context, &args, &err);
}

static int run_attention(const struct work *w)
{
    struct attention_args args = {.B = B, .T = T, .H = H, .K = H, .D = D, .dtype = w->dtype, .causal = true};
    args.qkv = w->qkv, args.out = w->hidden[0], args.lse = w->statistics[0];
    return ops->attention(&context, &args, &err);
}

static int run_attention_grad(const struct work *w)
{
    struct attention_grad_args args = {
        .B = B, .T = T, .H = H, .K = H, .D = D, .dtype = w->dtype, .causal = true};
    args.qkv = w->qkv, args.out = w->hidden[0], args.lse = w->statistics[0], args.dout = w->hidden[1];
    args.delta = w->statistics[1], args.dqkv = w->dqkv;
    return ops->attention_grad(&context, &args, &err);
}

static int run_norm(const struct work *w)
{
    struct norm_args args = {
        .R = R, .C = C, .dtype = w->dtype, .eps = 1e-5, .x = w->hidden[0], .w = w->hidden[1]};
    args.b = w->hidden[1], args.y = w->hidden[2], args.mean = w->statistics[0], args.rstd = w->statistics[1];
    return ops->norm(&context, &args, &err);
}

static int run_norm_grad(const struct work *w)
{
    struct norm_grad_args args = {.R = R, .C = C, .dtype = w->dtype, .dy = w->hidden[0], .x = w->hidden[1]};
    args.w = w->hidden[1], args.mean = w->statistics[0], args.rstd = w->statistics[1], args.d = w->hidden[2];
    args.dw = w->grad, args.db = w->moment, args.add_w = true;
    return ops->norm_grad(&context, &args, &err);
}

static int run_gelu(const struct work *w)
{
    struct gelu_args args = {.count = R * F, .dtype = w->dtype, .x = w->feed[0], .y = w->feed[1]};
    return ops->gelu(&context, &args, &err);
}

static int run_gelu_grad(const struct work *w)
{
    struct gelu_grad_args args = {.count = R * F, .dtype = w->dtype, .x = w->feed[0], .d = w->feed[1]};
    return ops->gelu_grad(&context, &args, &err);
}

static int run_swiglu(const struct work *w)
{
    struct swiglu_args args = {.R = R / 2, .F = F, .dtype = w->dtype, .gate_up = w->feed[0], .y = w->feed[1]};
    return ops->swiglu(&context, &args, &err);
}

static int run_rope(const struct work *w)
{
    struct rope_args args = {.B = B, .T = T, .H = H, .K = H, .D = D, .dtype = w->dtype, .theta = 10000};
    args.qkv = w->dqkv;
    return ops->rope(&context, &args, &err);
}

static int run_qk_norm(const struct work *w)
{
    struct qk_norm_heads heads = {.B = B, .T = T, .H = H, .K = H, .D = D, .dtype = w->dtype, .eps = 1e-6};
    heads.theta = 10000, heads.qkv = w->qkv, heads.q_norm = heads.k_norm = w->hidden[0];
    return ops->qk_norm(&context, &(struct qk_norm_args){heads, w->dqkv}, &err);
}

static int run_qk_norm_grad(const struct work *w)
{
    struct qk_norm_heads heads = {.B = B, .T = T, .H = H, .K = H, .D = D, .dtype = w->dtype, .eps = 1e-6};
    heads.theta = 10000, heads.qkv = w->qkv, heads.q_norm = heads.k_norm = w->hidden[0];
    struct qk_norm_grad_args args = {.heads = heads, .dqkv = w->dqkv, .dq_norm = w->grad, .add = true};
    args.dk_norm = w->moment;
    return ops->qk_norm_grad(&context, &args, &err);
}

static int run_embed(const struct work *w)
{
    struct embed_args args = {
        .B = B, .T = T, .C = C, .V = V, .vocabulary = V, .dtype = w->dtype, .tokens = w->tokens};
    args.wte = w->table, args.wpe = w->hidden[0], args.x = w->hidden[2];
    return ops->embed(&context, &args, &err);
}

static int run_embed_grad(const struct work *w)
{
    struct embed_grad_args args = {
        .B = B, .T = T, .C = C, .V = V, .vocabulary = V, .dtype = w->dtype, .tokens = w->tokens};
    args.d = w->hidden[0], args.dwte = w->grad;
    return ops->embed_grad(&context, &args, &err);
}

static int run_cross_entropy(const struct work *w)
{
    struct cross_entropy_args args = {
        .R = R, .V = V, .dtype = w->dtype, .logits = w->logits, .targets = w->tokens};
    args.scale = 1.0 / R, args.loss = w->statistics[0], args.gradient = true;
    return ops->cross_entropy(&context, &args, &err);
}

/* All that one rank of several does between the reductions, on as many columns as above. */
static int run_cross_entropy_sharded(const struct work *w)
{
    float *max = w->statistics[0], *sums = max + R;
    const struct logit_shard shard = {.R = R,
                                      .V = V,
                                      .valid = V,
                                      .vocabulary = V,
                                      .dtype = w->dtype,
                                      .logits = w->logits,
                                      .targets = w->tokens};
    struct logit_max_args max_args = {.shard = shard, .max = max};
    struct logit_sums_args sums_args = {.shard = shard, .max = max, .sums = sums};
    struct cross_entropy_sharded_args args = {.shard = shard, .max = max, .sums = sums, .scale = 1.0 / R};
    args.loss = w->statistics[1], args.gradient = true;
    return ops->logit_max(&context, &max_args, &err) || ops->logit_sums(&context, &sums_args, &err) ||
           ops->cross_entropy_sharded(&context, &args, &err);
}

static int run_square_sum(const struct work *w)
{
    struct square_sum_args args = {
        .count = PARAMETERS, .dtype = DTYPE_F32, .g = w->grad, .total = w->statistics[0]};
    return ops->square_sum(&context, &args, &err);
}

static int run_adamw(const struct work *w)
{
    struct adamw_args args = {.count = PARAMETERS, .dtype = w->dtype, .w = w->table, .g = w->grad};
    args.m = w->moment, args.v = w->moment2, args.master = w->dtype == DTYPE_BF16 ? w->master : NULL;
    args.lr = 1e-4, args.beta1 = 0.9, args.beta2 = 0.95, args.eps = 1e-8, args.decay = 0.1, args.t = 1;
    return ops->adamw(&context, &args, &err);
}

/* Rated by `flops` where those are given, else by bytes: those of `elements` of the dtype, `wide_bytes` whatever the dtype,
 * and `master_bytes` only beside BF16 weights. */
struct entry {
    const char *name;
    int (*run)(const struct work *);
    double flops, elements, wide_bytes, master_bytes;
};

enum { TRIAD_ENTRY, GEMM_ENTRY, ENTRY_COUNT = 23 };
/* AdamW reads and writes a master copy, but then only writes w. */
static const struct entry entries[ENTRY_COUNT] = {
    {"machine: STREAM triad", run_triad, 0, 0, 12.0 * TRIAD, 0},
    {"machine: F32 product", run_gemm, 2.0 * R *F *C, 0, 0, 0},
    {"matmul + bias", run_matmul, 2.0 * R *F *C, 0, 0, 0},
    {"matmul + bias + residual", run_matmul_residual, 2.0 * R *F *C, 0, 0, 0},
    {"matmul_dgrad", run_matmul_dgrad, 2.0 * R *F *C, 0, 0, 0},
    {"matmul_wgrad + db, add", run_matmul_wgrad, 2.0 * R *F *C, 0, 0, 0},
    {"attention", run_attention, 2.0 * B *H *D *T *(T + 1), 0, 0, 0},
    {"attention_grad", run_attention_grad, 5.0 * B *H *D *T *(T + 1), 0, 0, 0},
    {"residual + bias", run_residual, 0, 3.0 * R *C, 0, 0},
    {"norm", run_norm, 0, 2.0 * R *C, 0, 0},
    {"norm_grad", run_norm_grad, 0, 3.0 * R *C, 0, 0},
    {"gelu", run_gelu, 0, 2.0 * R *F, 0, 0},
    {"gelu_grad", run_gelu_grad, 0, 3.0 * R *F, 0, 0},
    {"swiglu", run_swiglu, 0, 1.5 * R *F, 0, 0},
    {"rope", run_rope, 0, 4.0 * R *H *D, 0, 0},
    {"qk_norm", run_qk_norm, 0, 6.0 * R *H *D, 0, 0},
    {"qk_norm_grad", run_qk_norm_grad, 0, 6.0 * R *H *D, 0, 0},
    {"embed", run_embed, 0, 3.0 * R *C, 0, 0},
    {"embed_grad, cleared", run_embed_grad, 0, 1.0 * R *C, 4.0 * V *C + 8.0 * R *C, 0},
    {"cross_entropy + gradient", run_cross_entropy, 0, 2.0 * R *V, 0, 0},
    {"cross_entropy, sharded", run_cross_entropy_sharded, 0, 4.0 * R *V, 0, 0},
    {"square_sum", run_square_sum, 0, 0, 4.0 * PARAMETERS, 0},
    {"adamw", run_adamw, 0, 2.0 * PARAMETERS, 20.0 * PARAMETERS, 8.0 * PARAMETERS - 2.0 * PARAMETERS},
};

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

struct result {
    double best_ns, median_ns;
    double rate; /* GFLOP/s or GB/s, at the best time */
};

/* All entries run once per round; the first round is not timed. */
static void measure(const struct work *w, int rounds, struct result results[ENTRY_COUNT])
{
    static int64_t ns[ENTRY_COUNT][MAX_ROUNDS];
    for (int round = -1; round < rounds; round++)
        for (int i = 0; i < ENTRY_COUNT; i++) {
            int64_t start_ns = clock_ns();
            if (entries[i].run(w)) {
                fprintf(stderr, "bench-kernels: %s: %s\n", entries[i].name, err.text);
                exit(2);
            }
            if (round >= 0)
                ns[i][round] = clock_ns() - start_ns;
        }
    for (int i = 0; i < ENTRY_COUNT; i++) {
        const struct entry *entry = &entries[i];
        double bytes = entry->elements * (double)dtype_bytes(w->dtype) + entry->wide_bytes;
        bytes += w->dtype == DTYPE_BF16 ? entry->master_bytes : 0;
        qsort(ns[i], (size_t)rounds, sizeof ns[i][0], compare_times);
        results[i].best_ns = (double)ns[i][0];
        results[i].median_ns = (double)ns[i][rounds / 2];
        results[i].rate = (entry->flops > 0 ? entry->flops : bytes) / results[i].best_ns;
    }
}

static void print_table(const struct work *w, int rounds)
{
    struct result results[ENTRY_COUNT];
    measure(w, rounds, results);
    printf("\n%-26s %10s %10s %10s %19s\n", dtype_name(w->dtype), "median ms", "best ms", "rate",
           "of the machine's");
    for (int i = 0; i < ENTRY_COUNT; i++) {
        bool flops = entries[i].flops > 0;
        const struct result *machine = &results[flops ? GEMM_ENTRY : TRIAD_ENTRY];
        printf("%-26s %10.3f %10.3f %10.1f %-7s %10.0f%%\n", entries[i].name, results[i].median_ns / 1e6,
               results[i].best_ns / 1e6, results[i].rate, flops ? "GFLOP/s" : "GB/s",
               100 * results[i].rate / machine->rate);
    }
}

/* Values in [-0.5, 0.5) that repeat after a thousand. */
static void *filled(enum dtype dtype, int64_t count)
{
    void *values = host_alloc((size_t)(count * dtype_bytes(dtype)));
    for (int64_t i = 0; i < count; i++) {
        float value = (float)((i * 2654435761u >> 8) % 1000) / 1000 - 0.5f;
        if (dtype == DTYPE_F32)
            ((float *)values)[i] = value;
        else
            ((uint16_t *)values)[i] = f32_to_bf16(value);
    }
    return values;
}

static struct work work_make(enum dtype dtype)
{
    struct work w = {.dtype = dtype};
    for (int i = 0; i < 3; i++)
        w.hidden[i] = filled(dtype, R * C);
    for (int i = 0; i < 2; i++) {
        w.feed[i] = filled(dtype, R * F);
        w.statistics[i] = host_alloc(R * H * sizeof(float));
    }
    w.qkv = filled(dtype, 3 * R * C);
    w.dqkv = filled(dtype, 3 * R * C);
    w.logits = filled(dtype, (int64_t)R * V);
    w.table = filled(dtype, PARAMETERS);
    w.grad = filled(DTYPE_F32, PARAMETERS);
    w.moment = filled(DTYPE_F32, PARAMETERS);
    w.moment2 = host_alloc(PARAMETERS * sizeof(float)); /* never negative */
    w.master = filled(DTYPE_F32, PARAMETERS);
    w.triad = filled(DTYPE_F32, 3 * TRIAD);
    w.tokens = host_alloc(R * sizeof(int32_t));
    for (int i = 0; i < R; i++)
        w.tokens[i] = (int32_t)(i * 48271LL % V);
    return w;
}

static void work_free(struct work *w)
{
    void *const buffers[] = {w->hidden[0],     w->hidden[1],    w->hidden[2], w->feed[0], w->feed[1],
                             w->qkv,           w->dqkv,         w->logits,    w->table,   w->grad,
                             w->moment,        w->moment2,      w->master,    w->triad,   w->tokens,
                             w->statistics[0], w->statistics[1]};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
}

int main(int argc, char **argv)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    int rounds = argc > 2 ? atoi(argv[2]) : 7;
    context.threads = argc > 1 ? atoi(argv[1]) : omp_get_max_threads();
    if (context.threads < 1 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "bench-kernels: give THREADS of at least 1 and ROUNDS from 1 to %d\n", MAX_ROUNDS);
        return 2;
    }
    printf("GPT-2 124M, B=%d T=%d, %d threads, %d rounds\n", B, T, context.threads, rounds);
    for (int i = 0; i < 2; i++) {
        struct work work = work_make(dtypes[i]);
        print_table(&work, rounds);
        work_free(&work);
    }
    return 0;
}
