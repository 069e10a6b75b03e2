/* The reference operations, one family per file; reference.c gathers them into `kernels_reference`. Arguments and results
 * are described in kernels/kernels.h. All ignore the context: they use one thread. */
#ifndef MEMPLAN_KERNELS_REFERENCE_REFERENCE_H
#define MEMPLAN_KERNELS_REFERENCE_REFERENCE_H

#include "kernels/kernels.h"

int reference_embed(const struct kernel_context *, const struct embed_args *, struct error *);
int reference_embed_grad(const struct kernel_context *, const struct embed_grad_args *, struct error *);
int reference_norm(const struct kernel_context *, const struct norm_args *, struct error *);
int reference_norm_grad(const struct kernel_context *, const struct norm_grad_args *, struct error *);
int reference_matmul(const struct kernel_context *, const struct matmul_args *, struct error *);
int reference_residual(const struct kernel_context *, const struct residual_args *, struct error *);
int reference_matmul_dgrad(const struct kernel_context *, const struct matmul_dgrad_args *, struct error *);
int reference_matmul_wgrad(const struct kernel_context *, const struct matmul_wgrad_args *, struct error *);
int reference_attention(const struct kernel_context *, const struct attention_args *, struct error *);
int reference_attention_grad(const struct kernel_context *, const struct attention_grad_args *, struct error *);
int reference_rope(const struct kernel_context *, const struct rope_args *, struct error *);
int reference_qk_norm(const struct kernel_context *, const struct qk_norm_args *, struct error *);
int reference_qk_norm_grad(const struct kernel_context *, const struct qk_norm_grad_args *, struct error *);
int reference_gelu(const struct kernel_context *, const struct gelu_args *, struct error *);
int reference_gelu_grad(const struct kernel_context *, const struct gelu_grad_args *, struct error *);
int reference_swiglu(const struct kernel_context *, const struct swiglu_args *, struct error *);
int reference_swiglu_grad(const struct kernel_context *, const struct swiglu_grad_args *, struct error *);
int reference_cross_entropy(const struct kernel_context *, const struct cross_entropy_args *, struct error *);
int reference_logit_max(const struct kernel_context *, const struct logit_max_args *, struct error *);
int reference_logit_sums(const struct kernel_context *, const struct logit_sums_args *, struct error *);
int reference_cross_entropy_sharded(const struct kernel_context *, const struct cross_entropy_sharded_args *, struct error *);
int reference_square_sum(const struct kernel_context *, const struct square_sum_args *, struct error *);
int reference_adamw(const struct kernel_context *, const struct adamw_args *, struct error *);

/* 0 when `dtype` is one of F32, BF16, F64. `operation` names the caller in the message. */
int reference_check_dtype(const char *operation, enum dtype dtype, struct error *err);
/* Turns the pair (*x, *y), elements `i` and i + D/2 of the D that turn of a head, at position t; `inverse` turns it back. */
void reference_turn(double theta, int64_t D, int64_t i, int64_t t, bool inverse, double *x, double *y);
/* 0 when the elements of a head make pairs. */
int reference_check_pairs(const char *operation, int64_t D, struct error *err);
/* 0 when H query heads share K key/value heads evenly. */
int reference_check_heads(const char *operation, int64_t H, int64_t K, struct error *err);

#endif
