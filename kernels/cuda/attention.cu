/* Attention on CUDA: what is refused, and the shape that the kernels work with. Read attention_kernels.cuh for how it is
 * done, attention_bf16.cuh and attention_f32.cuh for the products in it. */
#include "kernels/cuda/attention.cuh"

#include <cmath>

/* What attention_args and attention_grad_args have in common. */
template <typename Args> static int check(const char *kernel, const Args *args, struct error *err)
{
    if (cuda_check_dtype(args->dtype, kernel, err))
        return -1;
    if (args->K <= 0 || args->H % args->K != 0)
        return error_set(
            err,
            "%s: %ld query heads cannot share %ld key/value heads evenly; use a divisor of the query heads",
            kernel, static_cast<long>(args->H), static_cast<long>(args->K));
    if (args->D < 1 || args->D > ATTENTION_LARGEST_HEAD)
        return error_set(err,
                         "%s: heads of %ld elements do not fit the tiles of the CUDA kernels; use 1 to %d, "
                         "by more or fewer "
                         "heads",
                         kernel, static_cast<long>(args->D), ATTENTION_LARGEST_HEAD);
    return 0;
}

template <typename Args> static attention_shape shape_of(const Args *args, bool aligned)
{
    const double scale = args->scale != 0 ? args->scale : 1 / sqrt(static_cast<double>(args->D));
    const bool windowed = args->causal && args->window > 0 && args->window < args->T;
    attention_shape shape = {};
    shape.T = static_cast<int>(args->T);
    shape.H = static_cast<int>(args->H);
    shape.K = static_cast<int>(args->K);
    shape.D = static_cast<int>(args->D);
    shape.row = static_cast<int>((args->H + 2 * args->K) * args->D);
    shape.causal = args->causal;
    shape.window = static_cast<int>(windowed ? args->window : args->T);
    shape.wide = aligned && args->D * dtype_bytes(args->dtype) % 16 == 0;
    shape.scale = static_cast<float>(scale);
    shape.scale2 = static_cast<float>(scale * 1.4426950408889634);
    return shape;
}

int cuda_attention(const struct kernel_context *ctx, const struct attention_args *args, struct error *err)
{
    if (check("attention", args, err))
        return -1;
    if (args->B == 0 || args->T == 0 || args->H == 0)
        return 0;
    const attention_shape shape = shape_of(args, cuda_are_aligned(args->qkv, args->out));
    return args->dtype == DTYPE_BF16 ? attention_bf16_forward(cuda_of(ctx), shape, args, err)
                                     : attention_f32_forward(cuda_of(ctx), shape, args, err);
}

int cuda_attention_grad(const struct kernel_context *ctx, const struct attention_grad_args *args,
                        struct error *err)
{
    if (check("attention_grad", args, err))
        return -1;
    if (args->B == 0 || args->T == 0 || args->H == 0)
        return 0;
    const attention_shape shape =
        shape_of(args, cuda_are_aligned(args->dout, args->qkv, args->out, args->dqkv));
    return args->dtype == DTYPE_BF16 ? attention_bf16_backward(cuda_of(ctx), shape, args, err)
                                     : attention_f32_backward(cuda_of(ctx), shape, args, err);
}
