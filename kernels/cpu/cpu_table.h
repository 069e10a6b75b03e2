/* The fast kernels for x86, in F32 and BF16 (F64 is refused). Each does what kernels/kernels.h says of its entry. */
#ifndef MEMPLAN_KERNELS_CPU_TABLE_H
#define MEMPLAN_KERNELS_CPU_TABLE_H

#include "kernels/kernels.h"

int cpu_embed(const struct kernel_context *ctx, const struct embed_args *args, struct error *err);
int cpu_embed_grad(const struct kernel_context *ctx, const struct embed_grad_args *args, struct error *err);
int cpu_norm(const struct kernel_context *ctx, const struct norm_args *args, struct error *err);
int cpu_norm_grad(const struct kernel_context *ctx, const struct norm_grad_args *args, struct error *err);
int cpu_matmul(const struct kernel_context *ctx, const struct matmul_args *args, struct error *err);
int cpu_residual(const struct kernel_context *ctx, const struct residual_args *args, struct error *err);
int cpu_matmul_dgrad(const struct kernel_context *ctx, const struct matmul_dgrad_args *args, struct error *err);
int cpu_matmul_wgrad(const struct kernel_context *ctx, const struct matmul_wgrad_args *args, struct error *err);
int cpu_attention(const struct kernel_context *ctx, const struct attention_args *args, struct error *err);
int cpu_attention_grad(const struct kernel_context *ctx, const struct attention_grad_args *args, struct error *err);
int cpu_rope(const struct kernel_context *ctx, const struct rope_args *args, struct error *err);
int cpu_qk_norm(const struct kernel_context *ctx, const struct qk_norm_args *args, struct error *err);
int cpu_qk_norm_grad(const struct kernel_context *ctx, const struct qk_norm_grad_args *args, struct error *err);
int cpu_gelu(const struct kernel_context *ctx, const struct gelu_args *args, struct error *err);
int cpu_gelu_grad(const struct kernel_context *ctx, const struct gelu_grad_args *args, struct error *err);
int cpu_swiglu(const struct kernel_context *ctx, const struct swiglu_args *args, struct error *err);
int cpu_swiglu_grad(const struct kernel_context *ctx, const struct swiglu_grad_args *args, struct error *err);
int cpu_cross_entropy(const struct kernel_context *ctx, const struct cross_entropy_args *args, struct error *err);
int cpu_logit_max(const struct kernel_context *ctx, const struct logit_max_args *args, struct error *err);
int cpu_logit_sums(const struct kernel_context *ctx, const struct logit_sums_args *args, struct error *err);
int cpu_cross_entropy_sharded(const struct kernel_context *ctx, const struct cross_entropy_sharded_args *args, struct error *err);
int cpu_square_sum(const struct kernel_context *ctx, const struct square_sum_args *args, struct error *err);
int cpu_adamw(const struct kernel_context *ctx, const struct adamw_args *args, struct error *err);

#endif
