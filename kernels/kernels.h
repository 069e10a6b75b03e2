/* The operation table: what a device can compute. `reference/` implements it slowly and plainly (any dtype, double
 * arithmetic), `cpu/` fast.
 *
 * Letters, here and everywhere: B batch, T sequence, C hidden size, H query heads, K key/value heads, D head size,
 * F feed-forward size, V vocabulary (or classes), R = B*T rows. Matrices are row-major. `dtype` is that of parameters and
 * activations (F32, BF16; F64 only in reference); gradients of parameters, norm statistics, log-sum-exp, losses and
 * optimizer states have the "wide" type: F64 when dtype is F64, else F32. Pointers are device memory; optional ones may be
 * NULL. Outputs overlap inputs only where "in place" is said.
 *
 * `add` means: accumulate into the output instead of overwriting it. Results are the same bits for the same inputs, shapes
 * and thread count. Every function returns 0, or -1 with err when an argument is refused (dtype, shape, a token out of
 * range), with nothing written yet. Several threads may call at once. */
#ifndef MEMPLAN_KERNELS_KERNELS_H
#define MEMPLAN_KERNELS_KERNELS_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct kernel_context {
    int threads;  /* how many OS threads a kernel may use, at least 1 */
    void *device; /* the device's own context; NULL on the CPU */
};

/* x[r] = scale wte[tokens[r] - first_token] + wpe[r % T]. The table may be one rank's part of the model's: the rows of the tokens
 * [first_token, first_token + V). Another rank's token has a row of zeros here, so that the sum over ranks is the embedding
 * (one rank adds wpe, the others pass NULL). A token outside [0, vocabulary) is an error. */
struct embed_args {
    int64_t B, T, C, V;
    int64_t first_token, vocabulary; /* without other ranks 0 and V */
    enum dtype dtype;
    double scale;          /* of the tokens' rows, as Gemma has it; 0: they stay as they are */
    const int32_t *tokens; /* (B, T) */
    const void *wte, *wpe; /* (V, C); (>=T, C) or NULL */
    void *x;               /* (B, T, C) */
};

/* dwte[tokens[r] - first_token] += scale d[r], but nothing for another rank's token; dwpe[t] += d[b, t]. With add_* false the
 * whole gradient is cleared first. Fewer positions than T are an error. */
struct embed_grad_args {
    int64_t B, T, C, V, positions;   /* positions: rows of dwpe; rows >= T get zero */
    int64_t first_token, vocabulary; /* as in embed_args */
    enum dtype dtype;
    double scale;                    /* likewise */
    const int32_t *tokens;
    const void *d;     /* (B, T, C) */
    void *dwte, *dwpe; /* wide (V, C); wide (positions, C) or NULL */
    bool add_wte, add_wpe;
};

/* LayerNorm: y = (x - mean) * rstd * w + b. RMSNorm (rms): y = x * rstd * w, no mean, no b. rstd = 1/sqrt(var + eps). A residual
 * is added to y behind all that, as where norms follow attention (OLMo 2); it may not alias y. With add_one the weights are 1 + w (Gemma). */
struct norm_args {
    int64_t R, C;
    enum dtype dtype;
    bool rms, add_one;
    double eps;
    const void *x, *w, *b, *residual; /* (R, C), (C), (C) or NULL, (R, C) or NULL */
    void *y;                          /* (R, C) */
    void *mean, *rstd;     /* wide (R); mean NULL for rms */
};

/* Gradient through the norm. add_d: d += ..., else d = ... ; d may be dy (in place) when add_d is false. dw, db sum over
 * rows in a fixed order. */
struct norm_grad_args {
    int64_t R, C;
    enum dtype dtype;
    bool rms, add_one;
    const void *dy, *x, *w, *mean, *rstd;
    void *d;       /* (R, C) */
    void *dw, *db; /* wide (C); db NULL when there is no b */
    bool add_d, add_w;
};

/* y(M,N) = x(M,K) w(N,K)^T + bias(N) + residual(M,N); residual may not alias y. */
struct matmul_args {
    int64_t M, N, K;
    enum dtype dtype;
    const void *x, *w, *bias, *residual;
    void *y;
};

/* y(R,C) += residual(R,C) + bias(C): the end of a linear layer whose product was summed over ranks. `residual` may not
 * alias y; bias may be NULL. */
struct residual_args {
    int64_t R, C;
    enum dtype dtype;
    const void *residual, *bias;
    void *y;
};

/* dx(M,K) (+)= dy(M,N) w(N,K) */
struct matmul_dgrad_args {
    int64_t M, N, K;
    enum dtype dtype;
    const void *dy, *w;
    void *dx;
    bool add;
};

/* dw(N,K) (+)= dy(M,N)^T x(M,K); db(N) (+)= sum over rows of dy. dw, db wide; db may be NULL. */
struct matmul_wgrad_args {
    int64_t M, N, K;
    enum dtype dtype;
    const void *dy, *x;
    void *dw, *db;
    bool add;
};

/* Softmax attention over packed heads, scale 1/sqrt(D) unless another is given. qkv row layout: H*D queries, K*D keys, K*D values;
 * query head h uses key/value head h / (H/K). Causal or not; under a causal mask with a window a query sees no more than that many
 * keys, its own and those before it. The T x T scores are never stored. */
struct attention_args {
    int64_t B, T, H, K, D;
    enum dtype dtype;
    bool causal;
    int64_t window; /* 0: all keys */
    double scale;   /* 0: 1/sqrt(D) */
    const void *qkv; /* (B, T, (H + 2K) D) */
    void *out;       /* (B, T, H D) */
    void *lse;       /* wide (B, H, T): log-sum-exp of the scaled scores */
};

struct attention_grad_args {
    int64_t B, T, H, K, D;
    enum dtype dtype;
    bool causal;
    int64_t window; /* as in attention_args */
    double scale;
    const void *dout, *qkv, *out, *lse;
    void *delta; /* wide (B, H, T): scratch, rowsum(dout * out) */
    void *dqkv;  /* (B, T, (H + 2K) D), overwritten */
};

/* Rotary embedding of the H + K first heads of a qkv row, in place: of the first R = D - unturned elements of a head, which are
 * even, pair (i, i + R/2) turns by t * theta^(-2i/R) (the Hugging Face Llama convention). `inverse` turns back: that is its own
 * gradient. */
struct rope_args {
    int64_t B, T, H, K, D, unturned;
    enum dtype dtype;
    double theta;
    bool inverse;
    void *qkv; /* (B, T, (H + 2K) D) */
};

/* Where queries and keys are normed before they are turned: a row's H + K first heads, each by RMSNorm over its D elements with the
 * weights q_norm or k_norm (Qwen3), or `whole`, all queries of a row by one RMSNorm over H D elements and all its keys by another
 * over K D (OLMo 2). With add_one the weights are 1 + those (Gemma 3). */
struct qk_norm_heads {
    int64_t B, T, H, K, D;
    enum dtype dtype;
    bool whole, add_one;
    double eps, theta;
    const void *qkv;             /* (B, T, (H + 2K) D): neither normed nor turned */
    const void *q_norm, *k_norm; /* (D); whole: (H D), (K D) */
};

/* y = the heads normed and then turned as by rope_args; values are copied. */
struct qk_norm_args {
    struct qk_norm_heads heads;
    void *y; /* (B, T, (H + 2K) D) */
};

/* Gradient through both, in place: dqkv comes as that of y and leaves as that of qkv; that of values stays. The weights' sum over
 * sequences, positions and heads in a fixed order. Nothing is kept for it: 1 / rms is made again from the elements, which are read
 * anyway. */
struct qk_norm_grad_args {
    struct qk_norm_heads heads;
    void *dqkv;              /* (B, T, (H + 2K) D) */
    void *dq_norm, *dk_norm; /* wide, as large as the weights */
    bool add;                /* to dq_norm and dk_norm */
};

/* GELU, tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
struct gelu_args {
    int64_t count;
    enum dtype dtype;
    const void *x;
    void *y;
};

/* d *= gelu'(x), in place. */
struct gelu_grad_args {
    int64_t count;
    enum dtype dtype;
    const void *x;
    void *d;
};

/* y = silu(gate) * up, or with `gelu` the GELU above in place of silu (Gemma); a row of `gate_up` is F gates, then F ups. */
struct swiglu_args {
    int64_t R, F;
    enum dtype dtype;
    const void *gate_up; /* (R, 2F) */
    void *y;             /* (R, F) */
    bool gelu;
};

/* gate_up becomes its own gradient, in place. */
struct swiglu_grad_args {
    int64_t R, F;
    enum dtype dtype;
    const void *dy; /* (R, F) */
    void *gate_up;  /* (R, 2F) in: values, out: gradient */
    bool gelu;
};

/* *loss += scale * sum over rows of (log-sum-exp(logits) - logits[target]). With `gradient`, logits become
 * scale * (softmax - onehot), in place: no second copy. A row whose target is -1 adds nothing and has gradient zero,
 * whatever its logits; any other target outside [0, V) is an error. */
struct cross_entropy_args {
    int64_t R, V;
    enum dtype dtype;
    void *logits;           /* (R, V) */
    const int32_t *targets; /* (R) */
    double scale;           /* 1 / tokens of the global batch */
    void *loss;             /* wide (1), accumulated in row order */
    bool gradient;
};

/* Cross-entropy of logits whose columns are split over ranks: no rank sees another's. Between the three kernels the caller
 * combines what they wrote over the ranks:
 *     logit_max, all-reduce `max` by maximum, logit_sums, all-reduce `sums` by sum, cross_entropy_sharded
 * A rank holds the columns of tokens first_column .. first_column + valid - 1, which may be none; those from `valid` to V
 * pad the vocabulary. No logit of the padding is read, nor of a row whose target is -1: its max is -infinity, its sums 0.
 * All three refuse a target outside [0, vocabulary) that is not -1, and valid columns beyond V or the vocabulary. */
struct logit_shard {
    int64_t R, V; /* V: columns held, padding included */
    int64_t first_column, valid, vocabulary;
    enum dtype dtype;
    void *logits;           /* (R, V); written by cross_entropy_sharded only */
    const int32_t *targets; /* (R), tokens of the whole vocabulary: the same on all ranks */
};

/* max[r] = the largest valid logit of the row; -infinity when there is none. */
struct logit_max_args {
    struct logit_shard shard;
    void *max; /* wide (R) */
};

/* sums[0, r] = sum over valid columns of exp(logit - max[r]); sums[1, r] = logits[r, target] - max[r] on the rank that has
 * the target's column, else 0. */
struct logit_sums_args {
    struct logit_shard shard;
    const void *max; /* wide (R), of all ranks */
    void *sums;      /* wide (2, R) */
};

/* *loss += scale * sum over rows of (log(sums[0, r]) - sums[1, r]): the whole loss, the same bits on every rank. With
 * `gradient`, logits become scale * (softmax - onehot), in place; 0 in padding and in ignored rows. */
struct cross_entropy_sharded_args {
    struct logit_shard shard;
    const void *max, *sums; /* wide (R), (2, R), of all ranks */
    double scale;           /* as in cross_entropy_args */
    void *loss;             /* wide (1), accumulated in row order */
    bool gradient;
};

/* *total += sum of g^2, in a fixed order, in double inside. */
struct square_sum_args {
    int64_t count;
    enum dtype dtype; /* of g and total: F32 or F64 */
    const void *g;
    void *total; /* (1) */
};

/* AdamW, decoupled weight decay (Loshchilov & Hutter 2019): m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2;
 * p -= lr (m_hat / (sqrt(v_hat) + eps) + decay p), g' = g * clip. With master (BF16 weights) the update is made on the
 * fp32 master and w gets its rounding; without, on w. */
struct adamw_args {
    int64_t count;
    enum dtype dtype; /* of w */
    void *w;
    const void *g;       /* wide */
    void *m, *v;         /* wide */
    void *master;        /* F32, or NULL when w is wide already */
    double lr, beta1, beta2, eps, decay;
    int64_t t;           /* 1 at the first step: bias correction; less is an error */
    /* g' = g * min(1, max_norm / (sqrt(*square_sum) + 1e-6)); no clipping when square_sum is NULL or max_norm <= 0 */
    const void *square_sum; /* wide (1) */
    double max_norm;
};

/* What of AdamW's arguments is the same for all parameters and changes from step to step. */
struct step_args {
    double lr, beta1, beta2;
    int64_t t;
};

struct device;

struct kernel_table {
    const char *name; /* "reference", "cpu", "cuda" */
    /* The first four are NULL where kernels need nothing of their device and are done when they return. `open` gives what
     * kernel_context.device has to be, and takes runtime_bytes of the device for as long. `begin_step` comes before each
     * step's first kernel, and outside of a recording (device/device.h): a recorded adamw does what was begun last. `check`
     * waits for all kernels and tells what went wrong in them: what others refuse at once, a GPU sees when it gets there. */
    int (*open)(struct device *device, void **context, struct error *err);
    void (*close)(void *context);
    int (*begin_step)(const struct kernel_context *, const struct step_args *, struct error *);
    int (*check)(const struct kernel_context *, struct error *);
    int64_t runtime_bytes;
    int (*embed)(const struct kernel_context *, const struct embed_args *, struct error *);
    int (*embed_grad)(const struct kernel_context *, const struct embed_grad_args *, struct error *);
    int (*norm)(const struct kernel_context *, const struct norm_args *, struct error *);
    int (*norm_grad)(const struct kernel_context *, const struct norm_grad_args *, struct error *);
    int (*matmul)(const struct kernel_context *, const struct matmul_args *, struct error *);
    int (*residual)(const struct kernel_context *, const struct residual_args *, struct error *);
    int (*matmul_dgrad)(const struct kernel_context *, const struct matmul_dgrad_args *, struct error *);
    int (*matmul_wgrad)(const struct kernel_context *, const struct matmul_wgrad_args *, struct error *);
    int (*attention)(const struct kernel_context *, const struct attention_args *, struct error *);
    int (*attention_grad)(const struct kernel_context *, const struct attention_grad_args *, struct error *);
    int (*rope)(const struct kernel_context *, const struct rope_args *, struct error *);
    int (*qk_norm)(const struct kernel_context *, const struct qk_norm_args *, struct error *);
    int (*qk_norm_grad)(const struct kernel_context *, const struct qk_norm_grad_args *, struct error *);
    int (*gelu)(const struct kernel_context *, const struct gelu_args *, struct error *);
    int (*gelu_grad)(const struct kernel_context *, const struct gelu_grad_args *, struct error *);
    /* Two in one, or NULL. As matmul and gelu of its result: `act` is what gelu makes, y is there too. As matmul_dgrad, without
     * `add`, and gelu_grad in its result: `x` is gelu's input, as large as dx. Results may be rounded once where the two round
     * twice. */
    int (*matmul_gelu)(const struct kernel_context *, const struct matmul_args *, void *act, struct error *);
    int (*matmul_dgrad_gelu)(const struct kernel_context *, const struct matmul_dgrad_args *, const void *x, struct error *);
    int (*swiglu)(const struct kernel_context *, const struct swiglu_args *, struct error *);
    int (*swiglu_grad)(const struct kernel_context *, const struct swiglu_grad_args *, struct error *);
    int (*cross_entropy)(const struct kernel_context *, const struct cross_entropy_args *, struct error *);
    int (*logit_max)(const struct kernel_context *, const struct logit_max_args *, struct error *);
    int (*logit_sums)(const struct kernel_context *, const struct logit_sums_args *, struct error *);
    int (*cross_entropy_sharded)(const struct kernel_context *, const struct cross_entropy_sharded_args *, struct error *);
    int (*square_sum)(const struct kernel_context *, const struct square_sum_args *, struct error *);
    int (*adamw)(const struct kernel_context *, const struct adamw_args *, struct error *);
};

extern const struct kernel_table kernels_reference; /* kernels/reference/ */
extern const struct kernel_table kernels_cpu;       /* kernels/cpu/ */
extern const struct kernel_table kernels_cuda;      /* kernels/cuda/, in a library of its own: device/cuda_library.h */

#endif
