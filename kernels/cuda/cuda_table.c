/* The table of the CUDA kernels. */
#include "kernels/cuda/cuda_table.h"

#include "kernels/cuda/cuda_open.h"

const struct kernel_table kernels_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .begin_step = cuda_begin_step,
    .check = cuda_check,
    .runtime_bytes = CUDA_RUNTIME_BYTES,
    .embed = cuda_embed,
    .embed_grad = cuda_embed_grad,
    .norm = cuda_norm,
    .norm_grad = cuda_norm_grad,
    .matmul = cuda_matmul,
    .residual = cuda_residual,
    .matmul_dgrad = cuda_matmul_dgrad,
    .matmul_wgrad = cuda_matmul_wgrad,
    .attention = cuda_attention,
    .attention_grad = cuda_attention_grad,
    .rope = cuda_rope,
    .qk_norm = cuda_qk_norm,
    .qk_norm_grad = cuda_qk_norm_grad,
    .matmul_gelu = cuda_matmul_gelu,
    .matmul_dgrad_gelu = cuda_matmul_dgrad_gelu,
    .gelu = cuda_gelu,
    .gelu_grad = cuda_gelu_grad,
    .swiglu = cuda_swiglu,
    .swiglu_grad = cuda_swiglu_grad,
    .cross_entropy = cuda_cross_entropy,
    .logit_max = cuda_logit_max,
    .logit_sums = cuda_logit_sums,
    .cross_entropy_sharded = cuda_cross_entropy_sharded,
    .square_sum = cuda_square_sum,
    .adamw = cuda_adamw,
};
