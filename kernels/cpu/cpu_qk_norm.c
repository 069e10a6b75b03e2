/* RMSNorm of queries and keys with the rotary embedding behind it: what is normed together, a head or all of a row, is read once,
 * and normed and turned in the cache. A thread owns positions, as in cpu_rope.c. The gradients of the weights are summed per thread over its positions,
 * then over the threads in order. */
#include "kernels/cpu/cpu_table.h"

#include "base/arena.h"
#include "base/checked.h"
#include "kernels/cpu/cpu_math.h"
#include "kernels/cpu/cpu_rope.h"

#include <math.h>
#include <stdlib.h>

/* What is normed together, of queries or of keys: so many heads side by side, in so many groups of a row. */
struct group {
    int64_t first_head, heads, groups, size;
    float *weights; /* in F32 */
};

/* What all threads read. */
struct setting {
    const struct qk_norm_heads *heads;
    int64_t
        stride; /* floats from one buffer to the next: whole cache lines, so that threads do not share one */
    double *frequency;
    struct group kinds[2]; /* queries, keys */
};

/* A thread's: as many floats each as the larger group has. */
struct buffers {
    float *cosine, *sine, *x, *y, *sums[2];
};

enum { BUFFERS = 5 };

static struct group group_of(const struct qk_norm_heads *q, int64_t first_head, int64_t heads,
                             const void *weights)
{
    struct group group = {.first_head = first_head, .heads = q->whole ? heads : 1};
    group.groups = heads / group.heads;
    group.size = group.heads * q->D;
    group.weights = host_alloc((size_t)group.size * sizeof(float));
    const float *values = cpu_load_weights(q->dtype, weights, q->add_one, group.size, group.weights);
    if (values != group.weights)
        memcpy(group.weights, values, (size_t)group.size * sizeof *values);
    return group;
}

static int setting_open(struct setting *s, const struct qk_norm_heads *heads, const char *kernel,
                        struct error *err)
{
    if (cpu_check_dtype(heads->dtype, kernel, err))
        return -1;
    if (heads->D % 2)
        return error_set(err, "%s turns pairs, and a head of size %ld is odd; choose an even head size",
                         kernel, (long)heads->D);
    s->heads = heads;
    s->frequency = cpu_rope_frequencies(heads->D, heads->theta);
    s->kinds[0] = group_of(heads, 0, heads->H, heads->q_norm);
    s->kinds[1] = group_of(heads, heads->H, heads->K, heads->k_norm);
    s->stride = round_up(s->kinds[0].size, 16); /* keys are no more than queries */
    return 0;
}

static void setting_close(struct setting *s)
{
    free(s->frequency);
    free(s->kinds[0].weights);
    free(s->kinds[1].weights);
}

/* A thread's part of one block, which is zeros at first. */
static struct buffers buffers_at(const struct setting *s, float *block, int64_t part)
{
    float *at = block + part * BUFFERS * s->stride;
    return (struct buffers){
        at, at + s->stride / 2, at + s->stride, at + 2 * s->stride, {at + 3 * s->stride, at + 4 * s->stride}};
}

static float *allocate_buffers(const struct setting *s, int threads)
{
    return host_alloc((size_t)(BUFFERS * threads * s->stride) * sizeof(float));
}

/* The index of a head's first element. */
static int64_t head_at(const struct qk_norm_heads *q, int64_t b, int64_t t, int64_t head)
{
    return ((b * q->T + t) * (q->H + 2 * q->K) + head) * q->D;
}

static float rstd_of(const struct qk_norm_heads *q, const float *x, int64_t size)
{
    float sum = 0;
    for (int64_t i = 0; i < size; i++)
        sum += x[i] * x[i];
    return 1 / sqrtf(sum / (float)size + (float)q->eps);
}

static void turn_group(const struct setting *s, const struct buffers *own, const struct group *kind, float *y)
{
    const int64_t D = s->heads->D;
    for (int64_t head = 0; head < kind->heads; head++, y += D)
        cpu_rope_turn(D / 2, y, y + D / 2, own->cosine, own->sine);
}

static void forward_group(const struct setting *s, const struct buffers *own, const struct group *kind,
                          int64_t at, void *out)
{
    const struct qk_norm_heads *q = s->heads;
    const float *x = cpu_load(q->dtype, q->qkv, at, kind->size, own->x);
    float *y = cpu_target(q->dtype, out, at, own->y), rstd = rstd_of(q, x, kind->size);
    for (int64_t i = 0; i < kind->size; i++)
        y[i] = x[i] * rstd * kind->weights[i];
    turn_group(s, own, kind, y);
    cpu_store(q->dtype, out, at, kind->size, y);
}

static void forward_position(const struct setting *s, const struct buffers *own, int64_t t, void *out)
{
    const struct qk_norm_heads *q = s->heads;
    const int64_t element = dtype_bytes(q->dtype);
    cpu_rope_angles(s->frequency, q->D / 2, t, false, own->cosine, own->sine);
    for (int64_t b = 0; b < q->B; b++) {
        for (const struct group *kind = s->kinds; kind < s->kinds + 2; kind++)
            for (int64_t i = 0; i < kind->groups; i++)
                forward_group(s, own, kind, head_at(q, b, t, kind->first_head + i * kind->heads), out);
        int64_t values = head_at(q, b, t, q->H + q->K) * element;
        memcpy((char *)out + values, (const char *)q->qkv + values, (size_t)(q->K * q->D * element));
    }
}

int cpu_qk_norm(const struct kernel_context *ctx, const struct qk_norm_args *args, struct error *err)
{
    struct setting s;
    if (setting_open(&s, &args->heads, "qk_norm", err))
        return -1;
    float *block = allocate_buffers(&s, ctx->threads);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t part = 0; part < ctx->threads; part++) {
        struct cpu_range positions = cpu_part(args->heads.T, 1, part, ctx->threads);
        struct buffers own = buffers_at(&s, block, part);
        for (int64_t t = positions.begin; t < positions.end; t++)
            forward_position(&s, &own, t, args->y);
    }
    free(block);
    setting_close(&s);
    return 0;
}

/* With dy turned back, n = x rstd and g = dy w: d = rstd (g - n average(g n)), and the weights' gradient is the sum of dy n. */
static void backward_group(const struct setting *s, const struct buffers *own, const struct group *kind,
                           int64_t at, float *sums, void *dqkv)
{
    const struct qk_norm_heads *q = s->heads;
    const int64_t size = kind->size;
    const float *x = cpu_load(q->dtype, q->qkv, at, size, own->x), *w = kind->weights;
    float *d = cpu_target(q->dtype, dqkv, at, own->y), rstd = rstd_of(q, x, size), sum = 0;
    cpu_load(q->dtype, dqkv, at, size, d);
    turn_group(s, own, kind, d);
    for (int64_t i = 0; i < size; i++) {
        float n = x[i] * rstd;
        sum += d[i] * w[i] * n;
        sums[i] += d[i] * n;
    }
    float average = sum / (float)size;
    for (int64_t i = 0; i < size; i++)
        d[i] = rstd * (d[i] * w[i] - x[i] * rstd * average);
    cpu_store(q->dtype, dqkv, at, size, d);
}

static void backward_position(const struct setting *s, const struct buffers *own, int64_t t, void *dqkv)
{
    const struct qk_norm_heads *q = s->heads;
    cpu_rope_angles(s->frequency, q->D / 2, t, true, own->cosine, own->sine);
    for (int64_t b = 0; b < q->B; b++)
        for (int which = 0; which < 2; which++) {
            const struct group *kind = &s->kinds[which];
            for (int64_t i = 0; i < kind->groups; i++)
                backward_group(s, own, kind, head_at(q, b, t, kind->first_head + i * kind->heads),
                               own->sums[which], dqkv);
        }
}

/* total[i] (+)= the threads' sums, one after another. */
static void add_sums(const struct setting *s, float *block, int threads, int which, bool add, float *total)
{
    for (int64_t i = 0; i < s->kinds[which].size; i++) {
        float sum = add ? total[i] : 0;
        for (int64_t part = 0; part < threads; part++)
            sum += buffers_at(s, block, part).sums[which][i];
        total[i] = sum;
    }
}

int cpu_qk_norm_grad(const struct kernel_context *ctx, const struct qk_norm_grad_args *args,
                     struct error *err)
{
    struct setting s;
    if (setting_open(&s, &args->heads, "qk_norm_grad", err))
        return -1;
    float *block = allocate_buffers(&s, ctx->threads);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t part = 0; part < ctx->threads; part++) {
        struct cpu_range positions = cpu_part(args->heads.T, 1, part, ctx->threads);
        struct buffers own = buffers_at(&s, block, part);
        for (int64_t t = positions.begin; t < positions.end; t++)
            backward_position(&s, &own, t, args->dqkv);
    }
    add_sums(&s, block, ctx->threads, 0, args->add, args->dq_norm);
    add_sums(&s, block, ctx->threads, 1, args->add, args->dk_norm);
    free(block);
    setting_close(&s);
    return 0;
}
