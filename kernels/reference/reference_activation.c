/* The activations of the feed-forward layer: GELU in its tanh form (Hendrycks, Gimpel 2016, arXiv:1606.08415) and
 * SwiGLU, or GEGLU (Shazeer 2020, arXiv:2002.05202). An element is read before its place is written, so
 * gelu works in place too. */
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

#include <math.h>

static const double GELU_CUBE = 0.044715;

/* u(x) = sqrt(2/pi) (x + 0.044715 x^3) */
static double gelu_inner(double x)
{
    return sqrt(2 / M_PI) * (x + GELU_CUBE * x * x * x);
}

/* 0.5 x (1 + tanh(u)) */
static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(gelu_inner(x)));
}

/* 0.5 (1 + tanh(u)) + 0.5 x (1 - tanh(u)^2) u',  u' = sqrt(2/pi) (1 + 3 * 0.044715 x^2) */
static double gelu_slope(double x)
{
    double bend = tanh(gelu_inner(x)), inner_slope = sqrt(2 / M_PI) * (1 + 3 * GELU_CUBE * x * x);
    return 0.5 * (1 + bend) + 0.5 * x * (1 - bend * bend) * inner_slope;
}

int reference_gelu(const struct kernel_context *context, const struct gelu_args *args, struct error *err)
{
    (void)context;
    if (reference_check_dtype("gelu", args->dtype, err))
        return -1;
    for (int64_t i = 0; i < args->count; i++)
        element_set(args->dtype, args->y, i, gelu(element_get(args->dtype, args->x, i)));
    return 0;
}

int reference_gelu_grad(const struct kernel_context *context, const struct gelu_grad_args *args,
                        struct error *err)
{
    (void)context;
    if (reference_check_dtype("gelu_grad", args->dtype, err))
        return -1;
    for (int64_t i = 0; i < args->count; i++)
        element_set(args->dtype, args->d, i,
                    element_get(args->dtype, args->d, i) * gelu_slope(element_get(args->dtype, args->x, i)));
    return 0;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* silu(x) = x * sigmoid(x), or gelu(x) */
static double gate_of(bool is_gelu, double x)
{
    return is_gelu ? gelu(x) : x * sigmoid(x);
}

/* With s = sigmoid(x):  silu' = s (1 + x (1 - s)) */
static double gate_slope(bool is_gelu, double x)
{
    double s = sigmoid(x);
    return is_gelu ? gelu_slope(x) : s * (1 + x * (1 - s));
}

/* y = act(gate) * up */
int reference_swiglu(const struct kernel_context *context, const struct swiglu_args *args, struct error *err)
{
    (void)context;
    if (reference_check_dtype("swiglu", args->dtype, err))
        return -1;
    const int64_t F = args->F;
    for (int64_t r = 0; r < args->R; r++)
        for (int64_t f = 0; f < F; f++) {
            double gate = element_get(args->dtype, args->gate_up, r * 2 * F + f);
            double up = element_get(args->dtype, args->gate_up, r * 2 * F + F + f);
            element_set(args->dtype, args->y, r * F + f, gate_of(args->gelu, gate) * up);
        }
    return 0;
}

/* dgate = dy * up * act'(gate);  dup = dy * act(gate) */
int reference_swiglu_grad(const struct kernel_context *context, const struct swiglu_grad_args *args,
                          struct error *err)
{
    (void)context;
    if (reference_check_dtype("swiglu_grad", args->dtype, err))
        return -1;
    const int64_t F = args->F;
    for (int64_t r = 0; r < args->R; r++)
        for (int64_t f = 0; f < F; f++) {
            double gate = element_get(args->dtype, args->gate_up, r * 2 * F + f);
            double up = element_get(args->dtype, args->gate_up, r * 2 * F + F + f);
            double dy = element_get(args->dtype, args->dy, r * F + f);
            element_set(args->dtype, args->gate_up, r * 2 * F + f, dy * up * gate_slope(args->gelu, gate));
            element_set(args->dtype, args->gate_up, r * 2 * F + F + f, dy * gate_of(args->gelu, gate));
        }
    return 0;
}
