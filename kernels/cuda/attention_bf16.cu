/* Attention in BF16: the tiles for each head size. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_bf16.cuh"
#include "kernels/cuda/attention_launch.cuh"

int attention_bf16_forward(const cuda_context *context, const attention_shape &shape,
                           const attention_args *args, struct error *err)
{
    if (shape.D <= 32)
        return attention_launch_forward<attention_bf16<32, 2, 64>>(context, shape, args, err);
    if (shape.D <= 64)
        return attention_launch_forward<attention_bf16<64, 2, 64>>(context, shape, args, err);
    if (shape.D <= 80)
        return attention_launch_forward<attention_bf16<80, 2, 64>>(context, shape, args, err);
    if (shape.D <= 96)
        return attention_launch_forward<attention_bf16<96, 2, 64>>(context, shape, args, err);
    if (shape.D <= 128)
        return attention_launch_forward<attention_bf16<128, 2, 64>>(context, shape, args, err);
    return attention_launch_forward<attention_bf16<256, 1, 32>>(context, shape, args, err);
}

/* The sums of dK and dV take SIZE * MT registers of a thread, those of dQ half as many. */
template <int SIZE, int MT, int COLUMNS> struct attention_bf16_grad {
    using tiles = attention_bf16<SIZE, MT, COLUMNS>;
    static int launch(const cuda_context *context, const attention_shape &shape,
                      const attention_grad_args *args, struct error *err)
    {
        return attention_launch_grad < tiles, tiles, SIZE <= 128 ? 2 : 1,
               (SIZE > 128) > (context, shape, args, err);
    }
};

int attention_bf16_backward(const cuda_context *context, const attention_shape &shape,
                            const attention_grad_args *args, struct error *err)
{
    if (shape.D <= 32)
        return attention_bf16_grad<32, 2, 32>::launch(context, shape, args, err);
    if (shape.D <= 64)
        return attention_bf16_grad<64, 2, 32>::launch(context, shape, args, err);
    if (shape.D <= 80)
        return attention_bf16_grad<80, 1, 32>::launch(context, shape, args, err);
    if (shape.D <= 96)
        return attention_bf16_grad<96, 1, 32>::launch(context, shape, args, err);
    if (shape.D <= 128)
        return attention_bf16_grad<128, 1, 32>::launch(context, shape, args, err);
    return attention_bf16_grad<256, 1, 32>::launch(context, shape, args, err);
}
