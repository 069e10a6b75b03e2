/* Softmax attention (Vaswani et al. 2017, arXiv:1706.03762) with grouped key/value heads (Ainslie et al. 2023,
 * arXiv:2305.13245), one query at a time. As in FlashAttention (Dao et al. 2022, arXiv:2205.14135) forward keeps only the
 * log-sum-exp of each query's scores, from which backward makes the probabilities again. */
#include "base/arena.h"
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

#include <math.h>
#include <stdlib.h>

/* Where things lie in one sequence of packed rows, and who sees whom: shared by forward and backward. */
struct heads {
    int64_t T, H, K, D;
    enum dtype dtype;
    bool causal;
    int64_t window; /* 0: none */
    double scale;
    const void *qkv; /* (B, T, (H + 2K) D) */
};

/* One query: row t of head h in sequence b. Keys first .. keys-1 are visible to it. */
struct query {
    int64_t b, h, t, first, keys;
};

static struct query query_of(const struct heads *heads, int64_t b, int64_t h, int64_t t)
{
    bool windowed = heads->causal && heads->window && t >= heads->window;
    return (struct query){b, h, t, windowed ? t + 1 - heads->window : 0, heads->causal ? t + 1 : heads->T};
}

/* Heads of a row are numbered 0 .. H-1 queries, then K keys, then K values; these are a query's key and value head. */
static int64_t key_head(const struct heads *heads, int64_t h)
{
    return heads->H + h / (heads->H / heads->K);
}

static int64_t value_head(const struct heads *heads, int64_t h)
{
    return key_head(heads, h) + heads->K;
}

/* Index of the first element of `head` in row t of one sequence, and of a query in (B, T, H D). */
static int64_t head_index(const struct heads *heads, int64_t t, int64_t head)
{
    return (t * (heads->H + 2 * heads->K) + head) * heads->D;
}

static int64_t out_index(const struct heads *heads, const struct query *query)
{
    return ((query->b * heads->T + query->t) * heads->H + query->h) * heads->D;
}

/* Index of a query in (B, H, T). */
static int64_t statistic_index(const struct heads *heads, const struct query *query)
{
    return (query->b * heads->H + query->h) * heads->T + query->t;
}

static double qkv_get(const struct heads *heads, int64_t b, int64_t t, int64_t head, int64_t i)
{
    int64_t sequence = b * head_index(heads, heads->T, 0);
    return element_get(heads->dtype, heads->qkv, sequence + head_index(heads, t, head) + i);
}

static double scale_of(double scale, int64_t D)
{
    return scale != 0 ? scale : 1 / sqrt((double)D);
}

/* q . k scale */
static double score(const struct heads *heads, const struct query *query, int64_t key)
{
    double dot = 0;
    for (int64_t i = 0; i < heads->D; i++)
        dot += qkv_get(heads, query->b, query->t, query->h, i) *
               qkv_get(heads, query->b, key, key_head(heads, query->h), i);
    return dot * heads->scale;
}

/* log(sum over visible keys of exp(score)), with the largest score taken out so that exp() cannot overflow. */
static double log_sum_exp(const double *scores, const struct query *query)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t u = query->first; u < query->keys; u++)
        largest = fmax(largest, scores[u]);
    for (int64_t u = query->first; u < query->keys; u++)
        sum += exp(scores[u] - largest);
    return largest + log(sum);
}

/* out = sum over keys of exp(score - lse) * v; `row` has room for T numbers. */
static void query_forward(const struct attention_args *args, const struct heads *heads, struct query query,
                          double *row)
{
    for (int64_t u = query.first; u < query.keys; u++)
        row[u] = score(heads, &query, u);
    double lse = log_sum_exp(row, &query);
    element_set(element_wide(args->dtype), args->lse, statistic_index(heads, &query), lse);
    for (int64_t i = 0; i < args->D; i++) {
        double sum = 0;
        for (int64_t u = query.first; u < query.keys; u++)
            sum += exp(row[u] - lse) * qkv_get(heads, query.b, u, value_head(heads, query.h), i);
        element_set(args->dtype, args->out, out_index(heads, &query) + i, sum);
    }
}

int reference_attention(const struct kernel_context *context, const struct attention_args *args,
                        struct error *err)
{
    (void)context;
    if (reference_check_dtype("attention", args->dtype, err) ||
        reference_check_heads("attention", args->H, args->K, err))
        return -1;
    const struct heads heads = {args->T,     args->H,      args->K,      args->D,
                                args->dtype, args->causal, args->window, scale_of(args->scale, args->D),
                                args->qkv};
    double *row = host_alloc((size_t)args->T * sizeof *row);
    for (int64_t b = 0; b < args->B; b++)
        for (int64_t h = 0; h < args->H; h++)
            for (int64_t t = 0; t < args->T; t++)
                query_forward(args, &heads, query_of(&heads, b, h, t), row);
    free(row);
    return 0;
}

/* delta = sum of dout * out, which equals the sum over keys of p * dp */
static double query_delta(const struct attention_grad_args *args, const struct heads *heads,
                          const struct query *query)
{
    double delta = 0;
    for (int64_t i = 0; i < args->D; i++)
        delta += element_get(args->dtype, args->dout, out_index(heads, query) + i) *
                 element_get(args->dtype, args->out, out_index(heads, query) + i);
    element_set(element_wide(args->dtype), args->delta, statistic_index(heads, query), delta);
    return delta;
}

/* What one query adds to the gradient `sum` (T, (H + 2K) D) of its sequence, for every key it sees:
 *     p  = exp(score - lse)          dv += p * dout
 *     dp = dout . v                  ds  = p * (dp - delta)
 *     dq += ds * k * scale           dk += ds * q * scale
 * (Dao et al. 2022, appendix B.2). */
static void query_backward(const struct attention_grad_args *args, const struct heads *heads,
                           struct query query, double *sum)
{
    const int64_t k = key_head(heads, query.h), v = value_head(heads, query.h);
    const int64_t dout = out_index(heads, &query);
    double lse = element_get(element_wide(args->dtype), args->lse, statistic_index(heads, &query));
    double delta = query_delta(args, heads, &query);
    for (int64_t u = query.first; u < query.keys; u++) {
        double p = exp(score(heads, &query, u) - lse), dp = 0;
        for (int64_t i = 0; i < args->D; i++)
            dp += element_get(args->dtype, args->dout, dout + i) * qkv_get(heads, query.b, u, v, i);
        double ds = p * (dp - delta) * heads->scale;
        for (int64_t i = 0; i < args->D; i++) {
            sum[head_index(heads, query.t, query.h) + i] += ds * qkv_get(heads, query.b, u, k, i);
            sum[head_index(heads, u, k) + i] += ds * qkv_get(heads, query.b, query.t, query.h, i);
            sum[head_index(heads, u, v) + i] += p * element_get(args->dtype, args->dout, dout + i);
        }
    }
}

/* Keys and values gather from many queries: the sums of a sequence are kept in double and rounded once. */
int reference_attention_grad(const struct kernel_context *context, const struct attention_grad_args *args,
                             struct error *err)
{
    (void)context;
    if (reference_check_dtype("attention_grad", args->dtype, err) ||
        reference_check_heads("attention_grad", args->H, args->K, err))
        return -1;
    const struct heads heads = {args->T,     args->H,      args->K,      args->D,
                                args->dtype, args->causal, args->window, scale_of(args->scale, args->D),
                                args->qkv};
    const int64_t count = head_index(&heads, args->T, 0);
    double *sum = host_alloc((size_t)count * sizeof *sum);
    for (int64_t b = 0; b < args->B; b++) {
        for (int64_t i = 0; i < count; i++)
            sum[i] = 0;
        for (int64_t h = 0; h < args->H; h++)
            for (int64_t t = 0; t < args->T; t++)
                query_backward(args, &heads, query_of(&heads, b, h, t), sum);
        for (int64_t i = 0; i < count; i++)
            element_set(args->dtype, args->dqkv, b * count + i, sum[i]);
    }
    free(sum);
    return 0;
}
