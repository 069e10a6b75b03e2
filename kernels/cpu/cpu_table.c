/* The table of the fast CPU kernels. */
#include "kernels/cpu/cpu_table.h"

const struct kernel_table kernels_cpu = {
    .name = "cpu",
    .embed = cpu_embed,
    .embed_grad = cpu_embed_grad,
    .norm = cpu_norm,
    .norm_grad = cpu_norm_grad,
    .matmul = cpu_matmul,
    .residual = cpu_residual,
    .matmul_dgrad = cpu_matmul_dgrad,
    .matmul_wgrad = cpu_matmul_wgrad,
    .attention = cpu_attention,
    .attention_grad = cpu_attention_grad,
    .rope = cpu_rope,
    .qk_norm = cpu_qk_norm,
    .qk_norm_grad = cpu_qk_norm_grad,
    .gelu = cpu_gelu,
    .gelu_grad = cpu_gelu_grad,
    .swiglu = cpu_swiglu,
    .swiglu_grad = cpu_swiglu_grad,
    .cross_entropy = cpu_cross_entropy,
    .logit_max = cpu_logit_max,
    .logit_sums = cpu_logit_sums,
    .cross_entropy_sharded = cpu_cross_entropy_sharded,
    .square_sum = cpu_square_sum,
    .adamw = cpu_adamw,
};
