/* GELU, SwiGLU and GEGLU, and their gradients: elementwise, so each works on short runs that stay in the first-level cache.
 *
 * GELU's tanh form is x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3), because (1 + tanh u) / 2 = sigmoid(2u): one
 * exponential, and no cancellation where x is far below zero. */
#include "kernels/cpu/cpu_table.h"

#include "base/checked.h"
#include "kernels/cpu/cpu_math.h"

static const float two_root = 1.59576912f; /* 2 sqrt(2/pi) */
static const float cubic = 0.044715f;

struct sigmoid {
    float value, rest; /* they add to 1, and both have all their digits */
};

static inline struct sigmoid sigmoid(float x)
{
    float tail = cpu_exp(-__builtin_fabsf(x)), large = 1 / (1 + tail), small = tail * large;
    return x < 0 ? (struct sigmoid){small, large} : (struct sigmoid){large, small};
}

static inline float gelu(float x)
{
    return x * sigmoid(two_root * x * (1 + cubic * x * x)).value;
}

static void gelu_run(int64_t count, const float *x, float *y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = gelu(x[i]);
}

/* With s = sigmoid(2u): gelu' = s + x s (1 - s) 2u'. From 16 on it is 0 or 1 to all digits, and there x stops: its cube
 * would outgrow the smallest s. */
static inline float gelu_slope(float x)
{
    const float far = 16;
    float near = x < -far ? -far : x > far ? far : x, square = near * near;
    struct sigmoid s = sigmoid(two_root * near * (1 + cubic * square));
    return s.value + near * s.value * s.rest * (two_root * (1 + 3 * cubic * square));
}

static void gelu_grad_run(int64_t count, const float *x, float *d)
{
    for (int64_t i = 0; i < count; i++)
        d[i] *= gelu_slope(x[i]);
}

int cpu_gelu(const struct kernel_context *ctx, const struct gelu_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "gelu", err))
        return -1;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < args->count; at += CPU_RUN) {
        float x_run[CPU_RUN], y_run[CPU_RUN];
        int64_t count = min_i64(CPU_RUN, args->count - at);
        float *y = cpu_target(args->dtype, args->y, at, y_run);
        gelu_run(count, cpu_load(args->dtype, args->x, at, count, x_run), y);
        cpu_store(args->dtype, args->y, at, count, y);
    }
    return 0;
}

int cpu_gelu_grad(const struct kernel_context *ctx, const struct gelu_grad_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "gelu_grad", err))
        return -1;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < args->count; at += CPU_RUN) {
        float x_run[CPU_RUN], d_run[CPU_RUN];
        int64_t count = min_i64(CPU_RUN, args->count - at);
        const float *x = cpu_load(args->dtype, args->x, at, count, x_run);
        float *d = cpu_target(args->dtype, args->d, at, d_run);
        cpu_load(args->dtype, args->d, at, count, d);
        gelu_grad_run(count, x, d);
        cpu_store(args->dtype, args->d, at, count, d);
    }
    return 0;
}

static void swiglu_run(int64_t count, const float *gate, const float *up, float *y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = gate[i] * sigmoid(gate[i]).value * up[i];
}

/* silu'(g) = s (1 + g (1 - s)) */
static void swiglu_grad_run(int64_t count, const float *dy, float *gate, float *up)
{
    for (int64_t i = 0; i < count; i++) {
        struct sigmoid s = sigmoid(gate[i]);
        float d_up = dy[i] * gate[i] * s.value;
        gate[i] = dy[i] * up[i] * s.value * (1 + gate[i] * s.rest);
        up[i] = d_up;
    }
}

static void geglu_run(int64_t count, const float *gate, const float *up, float *y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = gelu(gate[i]) * up[i];
}

static void geglu_grad_run(int64_t count, const float *dy, float *gate, float *up)
{
    for (int64_t i = 0; i < count; i++) {
        float d_up = dy[i] * gelu(gate[i]);
        gate[i] = dy[i] * up[i] * gelu_slope(gate[i]);
        up[i] = d_up;
    }
}

int cpu_swiglu(const struct kernel_context *ctx, const struct swiglu_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "swiglu", err))
        return -1;
    int64_t F = args->F;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t r = 0; r < args->R; r++)
        for (int64_t at = 0; at < F; at += CPU_RUN) {
            float gate_run[CPU_RUN], up_run[CPU_RUN], y_run[CPU_RUN];
            int64_t count = min_i64(CPU_RUN, F - at);
            float *y = cpu_target(args->dtype, args->y, r * F + at, y_run);
            const float *gate = cpu_load(args->dtype, args->gate_up, 2 * r * F + at, count, gate_run);
            const float *up = cpu_load(args->dtype, args->gate_up, (2 * r + 1) * F + at, count, up_run);
            (args->gelu ? geglu_run : swiglu_run)(count, gate, up, y);
            cpu_store(args->dtype, args->y, r * F + at, count, y);
        }
    return 0;
}

int cpu_swiglu_grad(const struct kernel_context *ctx, const struct swiglu_grad_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "swiglu_grad", err))
        return -1;
    int64_t F = args->F;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t r = 0; r < args->R; r++)
        for (int64_t at = 0; at < F; at += CPU_RUN) {
            float dy_run[CPU_RUN], gate_run[CPU_RUN], up_run[CPU_RUN];
            int64_t count = min_i64(CPU_RUN, F - at), gate_at = 2 * r * F + at, up_at = gate_at + F;
            float *gate = cpu_target(args->dtype, args->gate_up, gate_at, gate_run);
            float *up = cpu_target(args->dtype, args->gate_up, up_at, up_run);
            cpu_load(args->dtype, args->gate_up, gate_at, count, gate);
            cpu_load(args->dtype, args->gate_up, up_at, count, up);
            const float *dy = cpu_load(args->dtype, args->dy, r * F + at, count, dy_run);
            (args->gelu ? geglu_grad_run : swiglu_grad_run)(count, dy, gate, up);
            cpu_store(args->dtype, args->gate_up, gate_at, count, gate);
            cpu_store(args->dtype, args->gate_up, up_at, count, up);
        }
    return 0;
}
