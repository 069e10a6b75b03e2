/* RMSNorm of each head's query and key, and then the rotary embedding (Qwen3 technical report 2025, arXiv:2505.09388), one head
 * at a time. What RMSNorm and RoPE are stands in reference_norm.c and reference_rope.c. */
#include "base/arena.h"
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

#include <math.h>
#include <stdlib.h>

/* A head of a row that is normed: `at` is the index of its first element, t its position, `weights` its D weights. */
struct head {
    int64_t at, t;
    const void *weights;
};

static int64_t normed_heads(const struct qk_norm_heads *q)
{
    return q->B * q->T * (q->H + q->K);
}

/* Head `number` of all those that are normed. */
static struct head head_of(const struct qk_norm_heads *q, int64_t number)
{
    int64_t row = number / (q->H + q->K), head = number % (q->H + q->K);
    return (struct head){(row * (q->H + 2 * q->K) + head) * q->D, row % q->T,
                         head < q->H ? q->q_norm : q->k_norm};
}

/* 1 / rms */
static double rstd_of(const struct qk_norm_heads *q, int64_t at)
{
    double sum = 0;
    for (int64_t i = 0; i < q->D; i++)
        sum += element_get(q->dtype, q->qkv, at + i) * element_get(q->dtype, q->qkv, at + i);
    return 1 / sqrt(sum / (double)q->D + q->eps);
}

static double normal_at(const struct qk_norm_heads *q, int64_t at, double rstd, int64_t i)
{
    return element_get(q->dtype, q->qkv, at + i) * rstd;
}

static void head_forward(const struct qk_norm_args *args, struct head head)
{
    const struct qk_norm_heads *q = &args->heads;
    const int64_t half = q->D / 2;
    double rstd = rstd_of(q, head.at);
    for (int64_t i = 0; i < half; i++) {
        double x = normal_at(q, head.at, rstd, i) * element_get(q->dtype, head.weights, i);
        double y = normal_at(q, head.at, rstd, half + i) * element_get(q->dtype, head.weights, half + i);
        reference_turn(q->theta, q->D, i, head.t, false, &x, &y);
        element_set(q->dtype, args->y, head.at + i, x);
        element_set(q->dtype, args->y, head.at + half + i, y);
    }
}

static void copy_values(const struct qk_norm_args *args)
{
    const struct qk_norm_heads *q = &args->heads;
    const int64_t row = (q->H + 2 * q->K) * q->D, values = q->K * q->D;
    for (int64_t r = 1; r <= q->B * q->T; r++)
        for (int64_t at = r * row - values; at < r * row; at++)
            element_set(q->dtype, args->y, at, element_get(q->dtype, q->qkv, at));
}

static int check(const char *operation, const struct qk_norm_heads *heads, struct error *err)
{
    return reference_check_dtype(operation, heads->dtype, err) ||
                   reference_check_pairs(operation, heads->D, err)
               ? -1
               : 0;
}

int reference_qk_norm(const struct kernel_context *context, const struct qk_norm_args *args,
                      struct error *err)
{
    (void)context;
    if (check("qk_norm", &args->heads, err))
        return -1;
    for (int64_t i = 0; i < normed_heads(&args->heads); i++)
        head_forward(args, head_of(&args->heads, i));
    copy_values(args);
    return 0;
}

/* dy, turned back, of one head; adds dy * n to the weights' sums, and puts the gradient in dqkv:
 *     with g = dy * w and n = x * rstd:  d = rstd * (g - n * avg(g * n)) */
static void head_backward(const struct qk_norm_grad_args *args, struct head head, double *dy, double *sums)
{
    const struct qk_norm_heads *q = &args->heads;
    const int64_t half = q->D / 2;
    double rstd = rstd_of(q, head.at), projection = 0;
    for (int64_t i = 0; i < q->D; i++)
        dy[i] = element_get(q->dtype, args->dqkv, head.at + i);
    for (int64_t i = 0; i < half; i++)
        reference_turn(q->theta, q->D, i, head.t, true, &dy[i], &dy[half + i]);
    for (int64_t i = 0; i < q->D; i++) {
        double n = normal_at(q, head.at, rstd, i);
        sums[i] += dy[i] * n;
        projection += dy[i] * element_get(q->dtype, head.weights, i) * n / (double)q->D;
    }
    for (int64_t i = 0; i < q->D; i++)
        element_set(q->dtype, args->dqkv, head.at + i,
                    rstd * (dy[i] * element_get(q->dtype, head.weights, i) -
                            normal_at(q, head.at, rstd, i) * projection));
}

int reference_qk_norm_grad(const struct kernel_context *context, const struct qk_norm_grad_args *args,
                           struct error *err)
{
    (void)context;
    const struct qk_norm_heads *q = &args->heads;
    if (check("qk_norm_grad", q, err))
        return -1;
    double *dy = host_alloc((size_t)(3 * q->D) * sizeof *dy), *q_sums = dy + q->D, *k_sums = q_sums + q->D;
    for (int64_t i = 0; i < normed_heads(q); i++) {
        struct head head = head_of(q, i);
        head_backward(args, head, dy, i % (q->H + q->K) < q->H ? q_sums : k_sums);
    }
    for (int64_t i = 0; i < q->D; i++) {
        element_put(element_wide(q->dtype), args->dq_norm, i, q_sums[i], args->add);
        element_put(element_wide(q->dtype), args->dk_norm, i, k_sums[i], args->add);
    }
    free(dy);
    return 0;
}
