/* RMSNorm of each head's query and key (Qwen3 technical report 2025, arXiv:2505.09388), or of all queries and of all keys of a
 * position (OLMo 2, arXiv:2501.00656), and then the rotary embedding. What RMSNorm and RoPE are stands in reference_norm.c and
 * reference_rope.c. */
#include "base/arena.h"
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

#include <math.h>
#include <stdlib.h>

/* What is normed together, one head of a row or several side by side: `at` is the index of the first of `size` elements, t
 * their position, `weights` as many. */
struct group {
    int64_t at, size, t;
    bool keys;
    const void *weights;
};

static int64_t groups_in_row(const struct qk_norm_heads *q)
{
    return q->whole ? 2 : q->H + q->K;
}

static int64_t group_count(const struct qk_norm_heads *q)
{
    return q->B * q->T * groups_in_row(q);
}

static struct group group_of(const struct qk_norm_heads *q, int64_t number)
{
    int64_t row = number / groups_in_row(q), within = number % groups_in_row(q);
    int64_t head = q->whole ? within * q->H : within;
    bool keys = head >= q->H;
    return (struct group){
        .at = (row * (q->H + 2 * q->K) + head) * q->D,
        .size = !q->whole ? q->D
                : keys    ? q->K * q->D
                          : q->H * q->D,
        .t = row % q->T,
        .keys = keys,
        .weights = keys ? q->k_norm : q->q_norm,
    };
}

/* 1 / rms */
static double rstd_of(const struct qk_norm_heads *q, struct group group)
{
    double sum = 0;
    for (int64_t i = group.at; i < group.at + group.size; i++)
        sum += element_get(q->dtype, q->qkv, i) * element_get(q->dtype, q->qkv, i);
    return 1 / sqrt(sum / (double)group.size + q->eps);
}

static double normal_at(const struct qk_norm_heads *q, int64_t at, double rstd, int64_t i)
{
    return element_get(q->dtype, q->qkv, at + i) * rstd;
}

static double weight_at(const struct qk_norm_heads *q, struct group group, int64_t i)
{
    return element_get(q->dtype, group.weights, i) + q->add_one;
}

static void group_forward(const struct qk_norm_args *args, struct group group)
{
    const struct qk_norm_heads *q = &args->heads;
    const int64_t half = q->D / 2;
    double rstd = rstd_of(q, group);
    for (int64_t pair = 0; pair < group.size / 2; pair++) {
        int64_t low = pair / half * q->D + pair % half, high = low + half;
        double x = normal_at(q, group.at, rstd, low) * weight_at(q, group, low);
        double y = normal_at(q, group.at, rstd, high) * weight_at(q, group, high);
        reference_turn(q->theta, q->D, pair % half, group.t, false, &x, &y);
        element_set(q->dtype, args->y, group.at + low, x);
        element_set(q->dtype, args->y, group.at + high, y);
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
    for (int64_t i = 0; i < group_count(&args->heads); i++)
        group_forward(args, group_of(&args->heads, i));
    copy_values(args);
    return 0;
}

/* dy, turned back, of one group; adds dy * n to the weights' sums, and puts the gradient in dqkv:
 *     with g = dy * w and n = x * rstd:  d = rstd * (g - n * avg(g * n)) */
static void group_backward(const struct qk_norm_grad_args *args, struct group group, double *dy, double *sums)
{
    const struct qk_norm_heads *q = &args->heads;
    const int64_t half = q->D / 2;
    double rstd = rstd_of(q, group), projection = 0;
    for (int64_t i = 0; i < group.size; i++)
        dy[i] = element_get(q->dtype, args->dqkv, group.at + i);
    for (int64_t pair = 0; pair < group.size / 2; pair++) {
        double *low = dy + pair / half * q->D + pair % half;
        reference_turn(q->theta, q->D, pair % half, group.t, true, low, low + half);
    }
    for (int64_t i = 0; i < group.size; i++) {
        double n = normal_at(q, group.at, rstd, i);
        sums[i] += dy[i] * n;
        projection += dy[i] * weight_at(q, group, i) * n / (double)group.size;
    }
    for (int64_t i = 0; i < group.size; i++)
        element_set(q->dtype, args->dqkv, group.at + i,
                    rstd * (dy[i] * weight_at(q, group, i) - normal_at(q, group.at, rstd, i) * projection));
}

int reference_qk_norm_grad(const struct kernel_context *context, const struct qk_norm_grad_args *args,
                           struct error *err)
{
    (void)context;
    const struct qk_norm_heads *q = &args->heads;
    if (check("qk_norm_grad", q, err))
        return -1;
    const int64_t q_size = q->whole ? q->H * q->D : q->D, k_size = q->whole ? q->K * q->D : q->D;
    double *dy = host_alloc((size_t)(2 * q_size + k_size) * sizeof *dy), *q_sums = dy + q_size,
           *k_sums = q_sums + q_size;
    for (int64_t i = 0; i < group_count(q); i++) {
        struct group group = group_of(q, i);
        group_backward(args, group, dy, group.keys ? k_sums : q_sums);
    }
    for (int64_t i = 0; i < q_size; i++)
        element_put(element_wide(q->dtype), args->dq_norm, i, q_sums[i], args->add);
    for (int64_t i = 0; i < k_size; i++)
        element_put(element_wide(q->dtype), args->dk_norm, i, k_sums[i], args->add);
    free(dy);
    return 0;
}
