/* Attention in BF16: the tiles for each head size. A thread may have 255 registers, which two blocks per multiprocessor leave
 * it; sums and scores of a thread are to fit in there without spills (`make cuda` checks it). More rows a warp (MT) means fewer
 * reads of shared memory, wider tiles of the other side fewer barriers.
 *
 *     nvcc 13.0 for sm_80, sm_90   own x other rows   registers   shared memory
 *     forward                 32        128 x 64       150, 151      20 KiB
 *                             64        128 x 64       206, 210      36 KiB
 *                             80        128 x 64       224, 221      44 KiB
 *                             96        128 x 64       239, 241      52 KiB
 *                            128        128 x 64       254, 255      68 KiB
 *                            256         64 x 32       234, 238      66 KiB
 *           in a window      128         64 x 64       160, 168      51 KiB
 *     dK, dV                  32        128 x 32       188, 192      31 KiB
 *                             64        128 x 32       239, 242      55 KiB
 *                             80         64 x 32       180, 180      45 KiB
 *                             96         64 x 32       206, 214      53 KiB
 *                            128         64 x 32       238, 244      69 KiB
 *            two passes      256         64 x 32       236, 243     100 KiB
 *     dQ                      32        128 x 32       160, 160      31 KiB
 *                             64        128 x 32       200, 202      55 KiB
 *                             80        128 x 32       224, 230      67 KiB
 *                             96        128 x 32       240, 238      79 KiB
 *                            128         64 x 32       156, 166      69 KiB
 *                            256         64 x 32       235, 240     100 KiB
 */
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
        return attention_launch_forward<attention_bf16<128, 2, 64>, attention_bf16<128, 1, 64>>(context, shape, args, err);
    return attention_launch_forward<attention_bf16<256, 1, 32>>(context, shape, args, err);
}

/* The sums of dK and dV take SIZE * KEYS_MT registers of a thread, that of dQ half as many per QUERIES_MT: hence fewer keys
 * than queries at a time from 80 on, and dK and dV one after the other beyond 128. */
template <int SIZE, int KEYS_MT, int QUERIES_MT, int STAGES = 2> struct attention_bf16_grad {
    static int launch(const cuda_context *context, const attention_shape &shape,
                      const attention_grad_args *args, struct error *err)
    {
        return attention_launch_grad<attention_bf16<SIZE, KEYS_MT, 32>, attention_bf16<SIZE, QUERIES_MT, 32>,
                                     STAGES, (SIZE > 128)>(context, shape, args, err);
    }
};

int attention_bf16_backward(const cuda_context *context, const attention_shape &shape,
                            const attention_grad_args *args, struct error *err)
{
    if (shape.D <= 32)
        return attention_bf16_grad<32, 2, 2>::launch(context, shape, args, err);
    if (shape.D <= 64)
        return attention_bf16_grad<64, 2, 2>::launch(context, shape, args, err);
    if (shape.D <= 80)
        return attention_bf16_grad<80, 1, 2>::launch(context, shape, args, err);
    if (shape.D <= 96)
        return attention_bf16_grad<96, 1, 2>::launch(context, shape, args, err);
    if (shape.D <= 128)
        return attention_bf16_grad<128, 1, 1>::launch(context, shape, args, err);
    return attention_bf16_grad<256, 1, 1, 1>::launch(context, shape, args, err);
}
