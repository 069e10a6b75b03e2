/* The reference as a table, and what its operations refuse alike. Start with reference_norm.c to see what an operation
 * looks like. */
#include "kernels/reference/reference.h"

#include <inttypes.h>

const struct kernel_table kernels_reference = {
    .name = "reference",
    .embed = reference_embed,
    .embed_grad = reference_embed_grad,
    .norm = reference_norm,
    .norm_grad = reference_norm_grad,
    .matmul = reference_matmul,
    .residual = reference_residual,
    .matmul_dgrad = reference_matmul_dgrad,
    .matmul_wgrad = reference_matmul_wgrad,
    .attention = reference_attention,
    .attention_grad = reference_attention_grad,
    .rope = reference_rope,
    .qk_norm = reference_qk_norm,
    .qk_norm_grad = reference_qk_norm_grad,
    .gelu = reference_gelu,
    .gelu_grad = reference_gelu_grad,
    .swiglu = reference_swiglu,
    .swiglu_grad = reference_swiglu_grad,
    .cross_entropy = reference_cross_entropy,
    .logit_max = reference_logit_max,
    .logit_sums = reference_logit_sums,
    .cross_entropy_sharded = reference_cross_entropy_sharded,
    .square_sum = reference_square_sum,
    .adamw = reference_adamw,
};

int reference_check_dtype(const char *operation, enum dtype dtype, struct error *err)
{
    if (dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F64)
        return 0;
    return error_set(err, "%s: the reference kernels have no dtype %s; use F32, BF16 or F64", operation,
                     dtype_name(dtype));
}

int reference_check_heads(const char *operation, int64_t H, int64_t K, struct error *err)
{
    if (K > 0 && H % K == 0)
        return 0;
    return error_set(err,
                     "%s: %" PRId64 " query heads cannot share %" PRId64
                     " key/value heads evenly; use a divisor of the query heads",
                     operation, H, K);
}
