/* Attention in F32: the tiles for each head size. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_f32.cuh"
#include "kernels/cuda/attention_launch.cuh"

int attention_f32_forward(const cuda_context *context, const attention_shape &shape,
                          const attention_args *args, struct error *err)
{
    if (shape.D <= 32)
        return attention_launch_forward<attention_f32<32, 8, 32>>(context, shape, args, err);
    if (shape.D <= 64)
        return attention_launch_forward<attention_f32<64, 8, 32>>(context, shape, args, err);
    if (shape.D <= 96)
        return attention_launch_forward<attention_f32<96, 8, 32>>(context, shape, args, err);
    if (shape.D <= 128)
        return attention_launch_forward<attention_f32<128, 8, 32>>(context, shape, args, err);
    return attention_launch_forward<attention_f32<256, 4, 32>>(context, shape, args, err);
}

template <int SIZE, int THREAD_ROWS, int STAGES> struct attention_f32_grad {
    using tiles = attention_f32<SIZE, THREAD_ROWS, 32>;
    static int launch(const cuda_context *context, const attention_shape &shape,
                      const attention_grad_args *args, struct error *err)
    {
        return attention_launch_grad<tiles, tiles, STAGES, (SIZE > 128)>(context, shape, args, err);
    }
};

int attention_f32_backward(const cuda_context *context, const attention_shape &shape,
                           const attention_grad_args *args, struct error *err)
{
    if (shape.D <= 32)
        return attention_f32_grad<32, 8, 2>::launch(context, shape, args, err);
    if (shape.D <= 64)
        return attention_f32_grad<64, 8, 2>::launch(context, shape, args, err);
    if (shape.D <= 96)
        return attention_f32_grad<96, 4, 1>::launch(context, shape, args, err);
    if (shape.D <= 128)
        return attention_f32_grad<128, 4, 1>::launch(context, shape, args, err);
    return attention_f32_grad<256, 4, 1>::launch(context, shape, args, err);
}
