/* What is known of operations and shapes without building any. */
#include "model/block.h"

enum dtype wide_dtype(enum dtype dtype)
{
    return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

struct block_shape block_shape_of(const struct layout *layout)
{
    return (struct block_shape){
        .B = layout->micro_batch,
        .T = layout->seq_len,
        .dtype = precision_dtype(layout->precision),
        .tp = layout->tp,
        .sequence_parallel = layout->sequence_parallel,
    };
}

bool block_op_writes(const struct op *op, int tensor)
{
    for (int i = 0; i < OP_OUTPUTS; i++)
        if (op->outputs[i] == tensor)
            return true;
    return false;
}

const char *op_kind_name(enum op_kind kind)
{
    static const char *const names[OP_KINDS] = {
        [OP_LOAD_TOKENS] = "load_tokens",
        [OP_LOAD_FEATURES] = "load_features",
        [OP_LOAD_TARGETS] = "load_targets",
        [OP_EMBED] = "embed",
        [OP_EMBED_GRAD] = "embed_grad",
        [OP_NORM] = "norm",
        [OP_NORM_GRAD] = "norm_grad",
        [OP_MATMUL] = "matmul",
        [OP_MATMUL_DGRAD] = "matmul_dgrad",
        [OP_MATMUL_WGRAD] = "matmul_wgrad",
        [OP_ROPE] = "rope",
        [OP_QK_NORM] = "qk_norm",
        [OP_QK_NORM_GRAD] = "qk_norm_grad",
        [OP_ATTENTION] = "attention",
        [OP_ATTENTION_GRAD] = "attention_grad",
        [OP_GELU] = "gelu",
        [OP_GELU_GRAD] = "gelu_grad",
        [OP_SWIGLU] = "swiglu",
        [OP_SWIGLU_GRAD] = "swiglu_grad",
        [OP_CROSS_ENTROPY] = "cross_entropy",
        [OP_ALL_GATHER] = "all_gather",
        [OP_REDUCE_SCATTER] = "reduce_scatter",
        [OP_SUM_PARTIAL] = "sum_partial",
        [OP_MAX_PARTIAL] = "max_partial",
        [OP_RESIDUAL] = "residual",
        [OP_LOGIT_MAX] = "logit_max",
        [OP_LOGIT_SUMS] = "logit_sums",
        [OP_CROSS_ENTROPY_SHARDED] = "cross_entropy_sharded",
        [OP_RECEIVE] = "receive",
        [OP_SEND] = "send",
        [OP_COPY] = "copy",
        [OP_ALL_REDUCE] = "all_reduce",
        [OP_SCATTER_GRADIENTS] = "scatter_gradients",
        [OP_REDUCE_LOSS] = "reduce_loss",
        [OP_WAIT] = "wait",
        [OP_REDUCE_NORMS] = "reduce_norms",
        [OP_REDUCE_TIED] = "reduce_tied",
        [OP_SQUARE_SUM] = "square_sum",
        [OP_REDUCE_SQUARES] = "reduce_squares",
        [OP_ADAMW] = "adamw",
        [OP_GATHER_WEIGHTS] = "gather_weights",
    };
    return names[kind];
}
