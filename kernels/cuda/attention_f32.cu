/* Attention in F32: the tiles for each head size, as in attention_bf16.cu. Up to heads of 128 elements everything fits the 99
 * KiB that GPUs of sm_86 and sm_89 have for a block.
 *
 *     nvcc 13.0 for sm_80, sm_90   own x other rows   registers   shared memory
 *     forward                 32         64 x 32       126, 126      30 KiB
 *                             64         64 x 32       128, 128      46 KiB
 *                             96         64 x 32       168, 168      62 KiB
 *                            128         64 x 32       168, 168      78 KiB
 *                            256         32 x 32       160, 152     104 KiB
 *     dK, dV                  32         64 x 32       168, 168      49 KiB
 *                             64         64 x 32       194, 194      81 KiB
 *                             96         32 x 32       158, 158      57 KiB
 *                            128         32 x 32       172, 190      73 KiB
 *            two passes      256         32 x 32       167, 168     137 KiB
 *     dQ                      32         64 x 32       168, 168      49 KiB
 *                             64         64 x 32       168, 168      81 KiB
 *                             96         32 x 32       150, 150      57 KiB
 *                            128         32 x 32       148, 154      73 KiB
 *                            256         32 x 32       192, 254     137 KiB
 */
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
