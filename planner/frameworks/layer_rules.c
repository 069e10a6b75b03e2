#include "planner/frameworks/layer_rules.h"

#include "base/checked.h"
#include "planner/frameworks/adapters.h"

#define PAPER    "Korthikanti et al. 2022, section 4.1"
#define HOOKS    "saved-tensor hooks (tests/torch/compare_saved.py)"
#define PEFT     "PEFT 0.21.2 tuners/lora/layer.py, LoraLayer.forward() (tests/torch/compare_adapters.py)"
#define ACT2FN   "transformers activations.py"
#define FAMILIES "saved-tensor hooks on transformers 4.57.6 (tests/torch/compare_families.py)"

/* name, element, width, split, conditions, life, parts, kept by, matrix, source. Columns read as in layer_rules.h. */
const struct layer_rule layer_rules[] = {
    /* Before attention. */
    {"layer input", ELEMENT_RESIDUAL, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_PRE_NORM | IF_NORM_FUSED, LIFE_KEPT, 0,
     KEEP_SECOND | KEEP_FULL, MATRIX_NONE, PAPER ": the norm's input"},
    {"layer input", ELEMENT_RESIDUAL, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_PRE_NORM | IF_INPUT_NOT_SAVED,
     LIFE_LAYER, 0, KEEP_SECOND | KEEP_FULL, MATRIX_NONE, HOOKS ": an addition keeps nothing"},
    {"layer input", ELEMENT_COMPUTE, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_ENCODER, LIFE_KEPT, 0,
     KEEP_SECOND | KEEP_FULL, MATRIX_QKV, HOOKS ": Linear's input"},
    {"norm 1, input in fp32", ELEMENT_FP32, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_PRE_NORM | IF_INPUT_NOT_SAVED,
     LIFE_KEPT, PART_NORM_1, 0, MATRIX_NONE, HOOKS ": pow(2) and the product"},
    {"norm 1, result in fp32", ELEMENT_FP32, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_PRE_NORM | IF_NORM_COMPOSED,
     LIFE_NORM_WEIGHT, PART_NORM_1, 0, MATRIX_NONE,
     "aten/src/ATen/native/layer_norm.cpp, rms_norm: product with the weight"},
    {"norm 1, squares in fp32", ELEMENT_FP32, WIDTH_HIDDEN, SPLIT_SEQUENCE,
     IF_PRE_NORM | IF_NORM_WRITTEN | IF_OLD_TORCH, LIFE_KEPT, PART_NORM_1, 0, MATRIX_NONE,
     HOOKS ": mean() before 2.0"},
    {"norm 1, product in fp32", ELEMENT_FP32, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_PRE_NORM | IF_NORM_WRITTEN,
     LIFE_NEXT, PART_NORM_1, 0, MATRIX_NONE, HOOKS},
    {"norm 1, before its weight", ELEMENT_RESIDUAL, WIDTH_HIDDEN, SPLIT_SEQUENCE,
     IF_PRE_NORM | IF_NORM_WRITTEN, LIFE_NORM_WEIGHT, PART_NORM_1, 0, MATRIX_NONE,
     HOOKS ": product with the weight"},
    {"statistics of norm 1", ELEMENT_FP32, WIDTH_STATISTICS, SPLIT_SEQUENCE, IF_PRE_NORM, LIFE_KEPT,
     PART_STATISTICS_1, 0, MATRIX_NONE, HOOKS ": native_layer_norm, rsqrt"},
    {"norm 1", ELEMENT_RESIDUAL, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_PRE_NORM | IF_CAST, LIFE_NEXT, PART_NORM_1,
     0, MATRIX_NONE, "autocast: layer_norm runs in fp32"},
    {"norm 1", ELEMENT_INPUT, WIDTH_HIDDEN, SPLIT_INPUT, IF_PRE_NORM, LIFE_KEPT, PART_NORM_1, 0, MATRIX_QKV,
     PAPER ": input of Q, K and V"},

    {"norm 1, cast again", ELEMENT_COMPUTE, WIDTH_QKV_CASTS, SPLIT_SEQUENCE, IF_PRE_NORM | IF_NOT_COMPILED,
     LIFE_KEPT, PART_NORM_1, 0, MATRIX_NONE,
     "aten/src/ATen/autocast_mode.cpp, cached_cast(): weights alone are cached, so each product casts its "
     "input"},

    /* Attention. */
    {"compressed queries", ELEMENT_COMPUTE, WIDTH_LATENT_Q, SPLIT_SEQUENCE, 0, LIFE_KEPT, 0, 0, MATRIX_NONE,
     "DeepSeek-V2, section 2.1: their norm's input"},
    {"compressed queries, normed", ELEMENT_COMPUTE, WIDTH_LATENT_Q_NORMED, SPLIT_SEQUENCE, 0, LIFE_KEPT,
     PART_LATENT_NORMS, 0, MATRIX_NONE, "DeepSeek-V2, section 2.1: the product's input"},
    {"compressed keys and values", ELEMENT_COMPUTE, WIDTH_LATENT_KV, SPLIT_SEQUENCE, 0, LIFE_KEPT, 0, 0,
     MATRIX_NONE, "DeepSeek-V2, section 2.1: their norm's input, and keys with positions"},
    {"compressed keys and values, normed", ELEMENT_COMPUTE, WIDTH_LATENT_KV_NORMED, SPLIT_SEQUENCE, 0,
     LIFE_KEPT, PART_LATENT_NORMS, 0, MATRIX_NONE, "DeepSeek-V2, section 2.1: the product's input"},
    {"projected queries", ELEMENT_COMPUTE, WIDTH_QUERIES, SPLIT_PARTS, IF_ROTARY, LIFE_THREE, 0, KEEP_SECOND,
     MATRIX_NONE, HOOKS ": rotation keeps sines alone"},
    {"rotated queries in fp32", ELEMENT_FP32, WIDTH_QUERIES, SPLIT_PARTS, IF_ROTARY | IF_HALF, LIFE_TWO, 0, 0,
     MATRIX_NONE, "apply_rotary_emb: computed in fp32"},
    {"queries and keys before their norm", ELEMENT_COMPUTE, WIDTH_QUERIES_KEYS, SPLIT_PARTS, IF_NORM_FUSED,
     LIFE_KEPT, 0, 0, MATRIX_NONE, "the norm's input"},
    {"queries and keys in fp32", ELEMENT_FP32, WIDTH_QUERIES_KEYS, SPLIT_PARTS, IF_INPUT_NOT_SAVED, LIFE_KEPT,
     0, 0, MATRIX_NONE, FAMILIES ": their norm's pow(2) and product"},
    {"queries and keys, normed, in fp32", ELEMENT_FP32, WIDTH_QUERIES_KEYS, SPLIT_PARTS, IF_NORM_COMPOSED,
     LIFE_NORM_WEIGHT, 0, 0, MATRIX_NONE, FAMILIES ": product with the weight"},
    {"queries and keys, normed", ELEMENT_COMPUTE, WIDTH_QUERIES_KEYS, SPLIT_PARTS, IF_NORM_WRITTEN,
     LIFE_NORM_WEIGHT, 0, 0, MATRIX_NONE, FAMILIES ": product with the weight"},
    {"statistics of queries and keys", ELEMENT_FP32, WIDTH_HEADS_STATISTICS, SPLIT_PARTS, 0, LIFE_KEPT, 0, 0,
     MATRIX_NONE, FAMILIES ": rsqrt"},
    {"queries", ELEMENT_COMPUTE, WIDTH_QUERIES, SPLIT_PARTS, IF_SEPARATE, LIFE_TWO, PART_LATENT_UP, 0,
     MATRIX_NONE, HOOKS ": matmul copies what is transposed"},
    {"queries", ELEMENT_SCORED, WIDTH_QUERIES, SPLIT_PARTS, 0, LIFE_KEPT, PART_LATENT_UP, 0, MATRIX_NONE,
     PAPER ": Q of QK'"},
    {"keys, before they are repeated", ELEMENT_COMPUTE, WIDTH_KEYS, SPLIT_PARTS, IF_EXPANDED, LIFE_TWO, 0, 0,
     MATRIX_NONE, "repeat_kv"},
    {"keys", ELEMENT_SCORED, WIDTH_KEYS_USED, SPLIT_PARTS, 0, LIFE_KEPT, PART_LATENT_UP, 0, MATRIX_NONE,
     PAPER ": K of QK'"},
    {"projected values", ELEMENT_COMPUTE, WIDTH_KEYS, SPLIT_PARTS, IF_EXPANDED, LIFE_TWO, 0, KEEP_SECOND,
     MATRIX_NONE, "repeat_kv"},
    {"values", ELEMENT_COMPUTE, WIDTH_KEYS_USED, SPLIT_PARTS, IF_EXPANDED, LIFE_KEPT, PART_LATENT_UP, 0,
     MATRIX_NONE, PAPER ": V"},
    {"values", ELEMENT_COMPUTE, WIDTH_KEYS_USED, SPLIT_PARTS, IF_NOT_EXPANDED, LIFE_KEPT, PART_LATENT_UP,
     KEEP_SECOND, MATRIX_NONE, PAPER ": V; the third product of a layer"},
    {"queries and keys beside values", ELEMENT_COMPUTE, WIDTH_VIEWED, SPLIT_PARTS, 0, LIFE_KEPT, 0, 0,
     MATRIX_NONE, FAMILIES ": values are a view, so all that the joint product made stays"},
    {"keys and values of all ranks", ELEMENT_COMPUTE, WIDTH_RING, SPLIT_PARTS, 0, LIFE_TWO, PART_CORE, 0,
     MATRIX_NONE, "Transformer Engine context_parallel.py: p2p_comm_buffers; PyTorch: an all-gather"},
    {"scores", ELEMENT_COMPUTE, WIDTH_SCORES, SPLIT_PARTS, IF_SCORES, LIFE_NEXT, PART_CORE, 0, MATRIX_NONE,
     "bmm's result"},
    {"scaled scores", ELEMENT_COMPUTE, WIDTH_SCORES, SPLIT_PARTS, IF_SCORES | IF_EAGER, LIFE_NEXT, PART_CORE,
     0, MATRIX_NONE, HOOKS ": division by a number keeps nothing"},
    {"tanh of scores", ELEMENT_COMPUTE, WIDTH_CAPPED_SCORES, SPLIT_PARTS, IF_SCORES | IF_EAGER, LIFE_KEPT,
     PART_CORE, 0, MATRIX_NONE, FAMILIES ": attn_logit_softcapping"},
    {"scores in fp32", ELEMENT_FP32, WIDTH_SCORES, SPLIT_PARTS, IF_SCORES | IF_FP32_SOFTMAX, LIFE_NEXT,
     PART_CORE, 0, MATRIX_NONE, "softmax in fp32: its cast"},
    {"masked scores", ELEMENT_COMPUTE, WIDTH_SCORES, SPLIT_PARTS, IF_SCORES | IF_EAGER, LIFE_NEXT, PART_CORE,
     0, MATRIX_NONE, HOOKS},
    {"softmax's input", ELEMENT_FP32, WIDTH_SCORES, SPLIT_PARTS, IF_SCORES | IF_SEPARATE | IF_SOFTMAX_INPUT,
     LIFE_KEPT, PART_CORE, 0, MATRIX_NONE,
     "derivatives.yaml before 1.11: _softmax_backward_data(grad, result, dim, self)"},
    {"softmax in fp32", ELEMENT_FP32, WIDTH_SCORES, SPLIT_PARTS, IF_SCORES | IF_FP32_SOFTMAX, LIFE_KEPT,
     PART_CORE, 0, MATRIX_NONE, HOOKS ": softmax keeps its result; autocast and dtype=float32"},
    {"softmax", ELEMENT_COMPUTE, WIDTH_SCORES, SPLIT_PARTS, IF_SCORES, LIFE_KEPT, PART_CORE, 0, MATRIX_NONE,
     PAPER ": softmax output"},
    {"softmax mask", ELEMENT_BYTE, WIDTH_SCORES, SPLIT_PARTS, IF_CORE_DROPOUT, LIFE_KEPT, PART_CORE, 0,
     MATRIX_NONE, PAPER ": softmax dropout mask"},
    {"dropped softmax", ELEMENT_COMPUTE, WIDTH_SCORES, SPLIT_PARTS, IF_CORE_DROPOUT, LIFE_KEPT, PART_CORE, 0,
     MATRIX_NONE, PAPER ": dropout output"},
    {"attention by heads", ELEMENT_COMPUTE, WIDTH_QUERIES, SPLIT_PARTS, IF_SEPARATE, LIFE_NEXT, PART_CORE, 0,
     MATRIX_NONE, "bmm's result, before it is laid out by tokens"},
    {"log-sum-exp", ELEMENT_FP32, WIDTH_HEADS, SPLIT_PARTS, IF_FLASH, LIFE_KEPT, PART_CORE, KEEP_SECOND,
     MATRIX_NONE, "Dao et al. 2022, algorithm 2"},
    {"padding of heads", ELEMENT_COMPUTE, WIDTH_PADDED, SPLIT_PARTS, IF_FLASH, LIFE_KEPT, PART_CORE, 0,
     MATRIX_NONE, "flash_attn_interface.py: q, k, v are padded, and the result is cut out of a padded one"},
    {"attention", ELEMENT_COMPUTE, WIDTH_QUERIES, SPLIT_PARTS, 0, LIFE_KEPT, 0, KEEP_SECOND, MATRIX_PROJ,
     PAPER ": input of the projection"},
    {"attention in fp8", ELEMENT_BYTE, WIDTH_FP8_COPY, SPLIT_PARTS, 0, LIFE_KEPT, 0, 0, MATRIX_NONE,
     "Transformer Engine 2.20 module/linear.py: the projection's input, which attention keeps in 16 bits"},
    {"attention, exchanged back", ELEMENT_COMPUTE, WIDTH_EXCHANGED, SPLIT_PARTS, 0, LIFE_KEPT, 0, 0,
     MATRIX_NONE, "DeepSpeed sequence/layer.py, DistributedAttention: the projection's input"},
    {"adapters' masks", ELEMENT_BYTE, WIDTH_ADAPTER_MASKS, SPLIT_NOT, 0, LIFE_KEPT, 0, 0, MATRIX_NONE,
     PEFT ": dropout before each"},
    {"an adapter's input in fp32", ELEMENT_FP32, WIDTH_ADAPTER_CAST, SPLIT_NOT, 0, LIFE_TWO, 0, 0,
     MATRIX_NONE, PEFT ": _cast_input_dtype()"},
    {"adapters' inputs", ELEMENT_ADAPTED, WIDTH_ADAPTER_INPUTS, SPLIT_NOT, 0, LIFE_KEPT, 0, 0, MATRIX_NONE,
     PEFT ": cast to their type or dropped out, and autocast caches weights alone"},
    {"adapters' products", ELEMENT_ADAPTED, WIDTH_ADAPTERS, SPLIT_NOT, 0, LIFE_KEPT, 0, 0, MATRIX_NONE,
     PEFT ": inputs of the second matrices"},
    {"projection", ELEMENT_COMPUTE, WIDTH_HIDDEN, SPLIT_NOT, 0, LIFE_TWO,
     RECALLS(PART_NORM_1 | PART_STATISTICS_1), 0, MATRIX_NONE, "Linear's result, a partial sum"},
    {"projection", ELEMENT_COMPUTE, WIDTH_HIDDEN, SPLIT_NOT, IF_LLMC, LIFE_KEPT, 0, 0, MATRIX_NONE,
     "llm.c, train_gpt2.cu before 2024-06-30 (ba4e2c0): attproj"},
    {"MLP's result", ELEMENT_COMPUTE, WIDTH_HIDDEN, SPLIT_NOT, IF_LLMC, LIFE_KEPT, 0, 0, MATRIX_NONE,
     "llm.c, train_gpt2.cu before 2024-06-30 (ba4e2c0): fcproj"},
    {"projection, scattered", ELEMENT_COMPUTE, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_SCATTERED, LIFE_TWO, 0,
     KEEP_SECOND, MATRIX_NONE, "torchtitan's policy keeps what reduce_scatter_tensor makes"},
    {"projection, in fp32 for its norm", ELEMENT_FP32, WIDTH_POST, SPLIT_SEQUENCE, IF_INPUT_NOT_SAVED,
     LIFE_KEPT, 0, 0, MATRIX_NONE, FAMILIES ": post_attention_layernorm"},
    {"projection, normed, in fp32", ELEMENT_FP32, WIDTH_POST, SPLIT_SEQUENCE, IF_NORM_COMPOSED,
     LIFE_NORM_WEIGHT, 0, 0, MATRIX_NONE, FAMILIES ": product with the weight"},
    {"projection, before its norm", ELEMENT_COMPUTE, WIDTH_POST, SPLIT_SEQUENCE, IF_NORM_FUSED, LIFE_KEPT, 0,
     0, MATRIX_NONE, "as norm 1"},
    {"statistics of its norm", ELEMENT_FP32, WIDTH_POST_STATISTICS, SPLIT_SEQUENCE, 0, LIFE_KEPT, 0, 0,
     MATRIX_NONE, "as norm 1"},
    {"projection, normed", ELEMENT_COMPUTE, WIDTH_POST, SPLIT_SEQUENCE, 0, LIFE_NEXT, 0, 0, MATRIX_NONE,
     FAMILIES ": an addition keeps nothing"},
    {"attention mask", ELEMENT_BYTE, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_DROPOUT, LIFE_KEPT, 0, 0, MATRIX_NONE,
     PAPER ": dropout mask"},

    /* Between. */
    {"residual", ELEMENT_RESIDUAL, WIDTH_BETWEEN, SPLIT_SEQUENCE, IF_PRE_NORM | IF_NORM_FUSED, LIFE_KEPT, 0,
     0, MATRIX_NONE, PAPER ": the norm's input"},
    {"residual", ELEMENT_RESIDUAL, WIDTH_BETWEEN, SPLIT_SEQUENCE, IF_PRE_NORM | IF_INPUT_NOT_SAVED,
     LIFE_LAYER, 0, 0, MATRIX_NONE, HOOKS ": an addition keeps nothing"},
    {"sum 1", ELEMENT_RESIDUAL, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_ENCODER, LIFE_KEPT, 0, 0, MATRIX_NONE,
     HOOKS ": LayerNorm's input"},
    {"statistics of norm 1", ELEMENT_FP32, WIDTH_STATISTICS, SPLIT_SEQUENCE, IF_ENCODER, LIFE_KEPT,
     PART_STATISTICS_1, 0, MATRIX_NONE, HOOKS},
    {"norm 1", ELEMENT_RESIDUAL, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_ENCODER | IF_CAST, LIFE_LAYER, PART_NORM_1,
     0, MATRIX_NONE, "autocast: layer_norm runs in fp32"},
    {"norm 1", ELEMENT_INPUT, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_ENCODER, LIFE_KEPT, PART_NORM_1, 0, MATRIX_UP,
     HOOKS ": Linear's input"},
    {"norm 2, input in fp32", ELEMENT_FP32, WIDTH_SECOND, SPLIT_SEQUENCE, IF_PRE_NORM | IF_INPUT_NOT_SAVED,
     LIFE_KEPT, PART_NORM_2, 0, MATRIX_NONE, "as norm 1"},
    {"norm 2, result in fp32", ELEMENT_FP32, WIDTH_SECOND, SPLIT_SEQUENCE, IF_PRE_NORM | IF_NORM_COMPOSED,
     LIFE_NORM_WEIGHT, PART_NORM_2, 0, MATRIX_NONE, "as norm 1"},
    {"norm 2, squares in fp32", ELEMENT_FP32, WIDTH_SECOND, SPLIT_SEQUENCE,
     IF_PRE_NORM | IF_NORM_WRITTEN | IF_OLD_TORCH, LIFE_KEPT, PART_NORM_2, 0, MATRIX_NONE, "as norm 1"},
    {"norm 2, product in fp32", ELEMENT_FP32, WIDTH_SECOND, SPLIT_SEQUENCE, IF_PRE_NORM | IF_NORM_WRITTEN,
     LIFE_NEXT, PART_NORM_2, 0, MATRIX_NONE, "as norm 1"},
    {"norm 2, before its weight", ELEMENT_RESIDUAL, WIDTH_SECOND, SPLIT_SEQUENCE,
     IF_PRE_NORM | IF_NORM_WRITTEN, LIFE_NORM_WEIGHT, PART_NORM_2, 0, MATRIX_NONE, "as norm 1"},
    {"statistics of norm 2", ELEMENT_FP32, WIDTH_SECOND_STATISTICS, SPLIT_SEQUENCE, 0, LIFE_KEPT,
     PART_STATISTICS_2, 0, MATRIX_NONE, "as norm 1"},
    {"norm 2", ELEMENT_RESIDUAL, WIDTH_SECOND, SPLIT_SEQUENCE, IF_PRE_NORM | IF_CAST, LIFE_NEXT, PART_NORM_2,
     0, MATRIX_NONE, "as norm 1"},
    {"norm 2", ELEMENT_INPUT, WIDTH_SECOND, SPLIT_INPUT, IF_PRE_NORM, LIFE_KEPT, PART_NORM_2, 0, MATRIX_UP,
     PAPER ": input of the first linear layer"},

    {"norm 2, cast again", ELEMENT_COMPUTE, WIDTH_UP_CASTS, SPLIT_SEQUENCE,
     IF_PRE_NORM | IF_DENSE | IF_NOT_COMPILED, LIFE_KEPT, PART_NORM_2, 0, MATRIX_NONE, "as norm 1"},

    /* The feed-forward, plain or gated. */
    {"up, before its bias", ELEMENT_COMPUTE, WIDTH_BIASED, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_NEXT,
     PART_MLP, 0, MATRIX_NONE,
     "Megatron-LM mlp.py without bias_activation_fusion: intermediate_parallel + bias_parallel"},
    {"GELU input", ELEMENT_COMPUTE, WIDTH_GELU_INPUT, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT, PART_MLP,
     KEEP_SECOND, MATRIX_NONE,
     PAPER "; with its bias apart (Megatron-LM fused_bias_gelu.py) or in it, one tensor"},
    {"activation's input", ELEMENT_COMPUTE, WIDTH_RESULT, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_NEXT,
     PART_MLP, KEEP_SECOND, MATRIX_NONE,
     HOOKS ": threshold keeps its result, which the second product keeps"},
    {"activation's input", ELEMENT_COMPUTE, WIDTH_ERF, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_WRITTEN,
     PART_MLP, KEEP_SECOND, MATRIX_NONE, HOOKS ": of gelu_python, products with numbers keep nothing"},
    {"activation's input", ELEMENT_COMPUTE, WIDTH_NEW, SPLIT_PARTS, IF_DENSE | IF_PLAIN | IF_CAST,
     LIFE_WRITTEN, PART_MLP, KEEP_SECOND, MATRIX_NONE, "autocast: pow runs in fp32, and keeps the cast"},
    {"half of the input", ELEMENT_COMPUTE, WIDTH_HALVED, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": the last product's; " ACT2FN},
    {"input of the cube", ELEMENT_RESIDUAL, WIDTH_NEW, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT, PART_MLP,
     KEEP_SECOND, MATRIX_NONE, HOOKS ": pow; " ACT2FN ", NewGELUActivation"},
    {"cube", ELEMENT_RESIDUAL, WIDTH_NEW, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_NEXT, PART_MLP | PART_GELU,
     0, MATRIX_NONE, HOOKS ": a product with a number keeps nothing"},
    {"scaled cube", ELEMENT_RESIDUAL, WIDTH_NEW, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_NEXT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": an addition keeps nothing"},
    {"input with its cube", ELEMENT_RESIDUAL, WIDTH_NEW, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_NEXT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, "as cube"},
    {"tanh's input", ELEMENT_RESIDUAL, WIDTH_NEW, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_NEXT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": tanh keeps its result"},
    {"tanh", ELEMENT_RESIDUAL, WIDTH_NEW, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT, PART_MLP | PART_GELU,
     0, MATRIX_NONE, HOOKS ": tanh keeps its result"},
    {"1 + tanh", ELEMENT_RESIDUAL, WIDTH_NEW, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": the last product's"},
    {"GELU in fp32", ELEMENT_RESIDUAL, WIDTH_NEW, SPLIT_PARTS, IF_DENSE | IF_PLAIN | IF_CAST, LIFE_NEXT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, "autocast: 16 bits times fp32"},
    {"input, scaled", ELEMENT_COMPUTE, WIDTH_FAST, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": a product's; " ACT2FN ", FastGELUActivation"},
    {"input, scaled for its square", ELEMENT_COMPUTE, WIDTH_FAST, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": a product's"},
    {"scaled square", ELEMENT_COMPUTE, WIDTH_FAST, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_NEXT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": an addition keeps nothing"},
    {"1 + scaled square", ELEMENT_COMPUTE, WIDTH_FAST, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": a product's"},
    {"tanh's input", ELEMENT_COMPUTE, WIDTH_FAST, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_NEXT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": tanh keeps its result"},
    {"tanh", ELEMENT_COMPUTE, WIDTH_FAST, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT, PART_MLP | PART_GELU,
     0, MATRIX_NONE, HOOKS ": tanh keeps its result"},
    {"1 + tanh", ELEMENT_COMPUTE, WIDTH_FAST, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": the last product's"},
    {"erf's input", ELEMENT_COMPUTE, WIDTH_ERF, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": erf; " ACT2FN ", _gelu_python()"},
    {"erf", ELEMENT_COMPUTE, WIDTH_ERF, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_NEXT, PART_MLP | PART_GELU, 0,
     MATRIX_NONE, HOOKS ": an addition keeps nothing"},
    {"1 + erf", ELEMENT_COMPUTE, WIDTH_ERF, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT, PART_MLP | PART_GELU,
     0, MATRIX_NONE, HOOKS ": the last product's"},
    {"sigmoid's input", ELEMENT_COMPUTE, WIDTH_QUICK, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_NEXT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE, HOOKS ": sigmoid keeps its result"},
    {"sigmoid", ELEMENT_COMPUTE, WIDTH_QUICK, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT,
     PART_MLP | PART_GELU, 0, MATRIX_NONE,
     HOOKS ": sigmoid's and the product's; " ACT2FN ", QuickGELUActivation"},
    {"GELU, before it is clipped", ELEMENT_COMPUTE, WIDTH_CLIPPED, SPLIT_PARTS, IF_DENSE | IF_PLAIN,
     LIFE_KEPT, PART_MLP | PART_GELU, 0, MATRIX_NONE,
     HOOKS ": clip keeps its input; " ACT2FN ", ClippedGELUActivation"},
    {"GELU", ELEMENT_INPUT, WIDTH_FFN, SPLIT_PARTS, IF_DENSE | IF_PLAIN, LIFE_KEPT, PART_MLP | PART_GELU, 0,
     MATRIX_DOWN, PAPER ": input of the second linear layer"},
    {"gate", ELEMENT_COMPUTE, WIDTH_FFN, SPLIT_PARTS, IF_DENSE | IF_GATED, LIFE_KEPT, PART_MLP, KEEP_SECOND,
     MATRIX_NONE, HOOKS ": SiLU's input"},
    {"SiLU", ELEMENT_COMPUTE, WIDTH_FFN, SPLIT_PARTS, IF_DENSE | IF_GATED | IF_GATE_WRITTEN, LIFE_KEPT,
     PART_MLP, 0, MATRIX_NONE, HOOKS ": input of the product"},
    {"up", ELEMENT_COMPUTE, WIDTH_FFN, SPLIT_PARTS, IF_DENSE | IF_GATED, LIFE_KEPT, PART_MLP, 0, MATRIX_NONE,
     HOOKS ": input of the product"},
    {"gated", ELEMENT_INPUT, WIDTH_FFN, SPLIT_PARTS, IF_DENSE | IF_GATED, LIFE_KEPT, PART_MLP, 0, MATRIX_DOWN,
     HOOKS ": Linear's input"},
    {"adapters' masks", ELEMENT_BYTE, WIDTH_FFN_ADAPTER_MASKS, SPLIT_NOT, IF_DENSE, LIFE_KEPT, PART_MLP, 0,
     MATRIX_NONE, PEFT ": dropout before each"},
    {"an adapter's input in fp32", ELEMENT_FP32, WIDTH_FFN_ADAPTER_CAST, SPLIT_NOT, IF_DENSE, LIFE_TWO,
     PART_MLP, 0, MATRIX_NONE, PEFT ": _cast_input_dtype()"},
    {"adapters' inputs", ELEMENT_ADAPTED, WIDTH_FFN_ADAPTER_INPUTS, SPLIT_NOT, IF_DENSE, LIFE_KEPT, PART_MLP,
     0, MATRIX_NONE, PEFT ": cast to their type or dropped out, and autocast caches weights alone"},
    {"adapters' products", ELEMENT_ADAPTED, WIDTH_FFN_ADAPTERS, SPLIT_NOT, IF_DENSE, LIFE_KEPT, PART_MLP, 0,
     MATRIX_NONE, PEFT ": inputs of the second matrices"},

    /* Experts. */
    {"routes", ELEMENT_FP32, WIDTH_ROUTES, SPLIT_SEQUENCE, IF_EXPERTS, LIFE_KEPT, PART_EXPERTS, 0,
     MATRIX_NONE, "Megatron-LM moe/router.py: probabilities in fp32"},
    {"sent tokens", ELEMENT_INPUT, WIDTH_SENT, SPLIT_PARTS, IF_EXPERTS, LIFE_KEPT, PART_EXPERTS, 0,
     MATRIX_NONE, "Megatron-LM moe/token_dispatcher.py: permuted, then exchanged"},
    {"experts' gate", ELEMENT_COMPUTE, WIDTH_EXPERT, SPLIT_PARTS, IF_EXPERTS, LIFE_KEPT, PART_EXPERTS, 0,
     MATRIX_NONE, "as gate"},
    {"experts' up", ELEMENT_COMPUTE, WIDTH_EXPERT, SPLIT_PARTS, IF_EXPERTS | IF_GATED, LIFE_KEPT,
     PART_EXPERTS, 0, MATRIX_NONE, "as up"},
    {"experts' SiLU", ELEMENT_COMPUTE, WIDTH_EXPERT, SPLIT_PARTS, IF_EXPERTS | IF_GATED | IF_GATE_WRITTEN,
     LIFE_KEPT, PART_EXPERTS | PART_EXPERT_GATE, 0, MATRIX_NONE, "as SiLU"},
    {"experts' gated", ELEMENT_INPUT, WIDTH_EXPERT, SPLIT_PARTS, IF_EXPERTS, LIFE_KEPT,
     PART_EXPERTS | PART_EXPERT_GATE, 0, MATRIX_DOWN, "as gated"},
    {"experts' results", ELEMENT_COMPUTE, WIDTH_SENT, SPLIT_PARTS, IF_EXPERTS, LIFE_TWO, PART_EXPERTS, 0,
     MATRIX_NONE,
     "Megatron-LM moe/token_dispatcher.py: probabilities are applied inside experts, so these are not kept; "
     "transformers applies them here, and keeps them for the router"},
    {"experts' results, scaled", ELEMENT_RESIDUAL, WIDTH_SCALED, SPLIT_PARTS, IF_EXPERTS, LIFE_KEPT,
     PART_EXPERTS, 0, MATRIX_NONE,
     "transformers modeling_mixtral.py, modeling_qwen3_moe.py: index_add_() keeps its source"},
    {"shared experts' gate and up", ELEMENT_COMPUTE, WIDTH_SHARED, SPLIT_PARTS, IF_EXPERTS, LIFE_KEPT,
     PART_EXPERTS | PART_SHARED, 0, MATRIX_NONE, "as gate and up"},
    {"shared experts' gated", ELEMENT_COMPUTE, WIDTH_SHARED, SPLIT_PARTS, IF_EXPERTS, LIFE_KEPT,
     PART_EXPERTS | PART_SHARED, 0, MATRIX_NONE, "as gated; counted with its SiLU"},
    {"adapters' masks", ELEMENT_BYTE, WIDTH_EXPERT_ADAPTER_MASKS, SPLIT_NOT, IF_EXPERTS, LIFE_KEPT,
     PART_EXPERTS, 0, MATRIX_NONE, PEFT ": dropout before each"},
    {"adapters' inputs", ELEMENT_ADAPTED, WIDTH_EXPERT_ADAPTER_INPUTS, SPLIT_NOT, IF_EXPERTS, LIFE_KEPT,
     PART_EXPERTS, 0, MATRIX_NONE,
     PEFT ": cast to their type or dropped out, and autocast caches weights alone"},
    {"adapters' products", ELEMENT_ADAPTED, WIDTH_EXPERT_ADAPTERS, SPLIT_NOT, IF_EXPERTS, LIFE_KEPT,
     PART_EXPERTS, 0, MATRIX_NONE, PEFT ": inputs of the second matrices"},

    /* After it. */
    {"MLP's result", ELEMENT_COMPUTE, WIDTH_HIDDEN, SPLIT_NOT, 0, LIFE_TWO,
     PART_MLP | PART_EXPERTS | RECALLS(PART_NORM_2 | PART_STATISTICS_2), KEEP_SECOND, MATRIX_NONE,
     "Linear's result, a partial sum; the seventh product of a layer"},
    {"MLP's result, scattered", ELEMENT_COMPUTE, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_SCATTERED, LIFE_TWO, 0,
     KEEP_SECOND, MATRIX_NONE, "torchtitan's policy keeps what reduce_scatter_tensor makes"},
    {"MLP's result, in fp32 for its norm", ELEMENT_FP32, WIDTH_POST, SPLIT_SEQUENCE, IF_INPUT_NOT_SAVED,
     LIFE_KEPT, 0, 0, MATRIX_NONE, FAMILIES ": post_feedforward_layernorm"},
    {"MLP's result, normed, in fp32", ELEMENT_FP32, WIDTH_POST, SPLIT_SEQUENCE, IF_NORM_COMPOSED,
     LIFE_NORM_WEIGHT, 0, 0, MATRIX_NONE, FAMILIES ": product with the weight"},
    {"MLP's result, before its norm", ELEMENT_COMPUTE, WIDTH_POST, SPLIT_SEQUENCE, IF_NORM_FUSED, LIFE_KEPT,
     0, 0, MATRIX_NONE, "as norm 1"},
    {"statistics of its norm", ELEMENT_FP32, WIDTH_POST_STATISTICS, SPLIT_SEQUENCE, 0, LIFE_KEPT, 0, 0,
     MATRIX_NONE, "as norm 1"},
    {"MLP's result, normed", ELEMENT_COMPUTE, WIDTH_POST, SPLIT_SEQUENCE, 0, LIFE_NEXT, 0, 0, MATRIX_NONE,
     FAMILIES ": an addition keeps nothing"},
    {"MLP mask", ELEMENT_BYTE, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_DROPOUT, LIFE_KEPT, 0, 0, MATRIX_NONE,
     PAPER ": dropout mask"},
    {"sum 2", ELEMENT_RESIDUAL, WIDTH_HIDDEN, SPLIT_SEQUENCE, IF_ENCODER, LIFE_KEPT, 0, 0, MATRIX_NONE,
     HOOKS ": LayerNorm's input"},
};
const int layer_rule_count = sizeof layer_rules / sizeof *layer_rules;
_Static_assert(sizeof layer_rules / sizeof *layer_rules <= LAYER_RULES_MOST,
               "more rules than there is room for");

unsigned layer_conditions(const struct workload *w, bool experts)
{
    const struct workload_model *m = &w->model;
    bool megatron = workload_is_megatron(w);
    bool fused = w->norm == WORKLOAD_NORM_FUSED || !m->rms_norm || w->compiled;
    bool scores = w->attention != WORKLOAD_FLASH;
    unsigned c = m->encoder ? IF_ENCODER : IF_PRE_NORM;
    c |= fused ? IF_NORM_FUSED : IF_INPUT_NOT_SAVED;
    if (!fused)
        c |= w->norm == WORKLOAD_NORM_WRITTEN && !m->traits.norms_fp32 ? IF_NORM_WRITTEN : IF_NORM_COMPOSED;
    c |= !m->positions && !m->traits.alibi && !m->encoder && !megatron && !w->compiled ? IF_ROTARY : 0;
    c |= w->keys_expanded && m->kv_heads != m->heads ? IF_EXPANDED : IF_NOT_EXPANDED;
    c |= scores ? IF_SCORES : IF_FLASH;
    c |= w->attention == WORKLOAD_EAGER ? IF_EAGER : 0;
    /* Megatron's attention_softmax_in_fp32 is off by default. */
    bool casts = w->autocast || m->traits.softmax != WORKLOAD_SOFTMAX_AS_IT_IS;
    c |= w->attention == WORKLOAD_EAGER && w->compute_bytes == 2 && !megatron && casts ? IF_FP32_SOFTMAX : 0;
    c |= w->attention == WORKLOAD_EAGER && !megatron ? IF_SEPARATE : 0;
    c |= scores && w->attention_dropout ? IF_CORE_DROPOUT : 0;
    c |= w->hidden_dropout ? IF_DROPOUT : 0;
    c |= experts ? IF_EXPERTS : IF_DENSE;
    c |= m->gated ? IF_GATED : IF_PLAIN;
    c |= w->gate == WORKLOAD_GATE_WRITTEN && !w->compiled ? IF_GATE_WRITTEN : 0;
    c |= w->library == WORKLOAD_TITAN && w->sequence_parallel && w->tp > 1 ? IF_SCATTERED : 0;
    c |= w->autocast ? IF_CAST : 0;
    c |= w->compiled ? IF_COMPILED : IF_NOT_COMPILED;
    c |= w->library == WORKLOAD_LLMC && w->projections_kept ? IF_LLMC : 0;
    c |= w->old_torch ? IF_OLD_TORCH : 0;
    c |= w->softmax_keeps_input ? IF_SOFTMAX_INPUT : 0;
    c |= w->logits_whole && w->tp > 1 ? IF_WHOLE : 0;
    c |= w->compute_bytes == 2 ? IF_HALF : 0;

    c |= w->library == WORKLOAD_MEGATRON_LEGACY ? IF_LEGACY : 0;
    return c;
}

static bool is_split(const struct workload *w, const struct layer_rule *rule)
{
    return rule->split == SPLIT_PARTS || (w->sequence_parallel && rule->split == SPLIT_SEQUENCE) ||
           (w->sequence_parallel && rule->split == SPLIT_INPUT && !w->inputs_whole);
}

/* What products read that norms give is in fp32 where these are, and so is what comes of it in the feed-forward: bitsandbytes'
 * products give what they were given. */
static int element_of(const struct workload *w, const struct layer_rule *rule)
{
    bool computed = rule->element == ELEMENT_COMPUTE || rule->element == ELEMENT_INPUT;
    bool inside = (rule->parts & (PART_MLP | PART_EXPERTS)) && rule->width != WIDTH_HIDDEN;
    bool norm = (rule->parts & (PART_NORM_1 | PART_NORM_2)) && rule->element == ELEMENT_INPUT;
    return w->wide_results && computed && (inside || norm) ? 4 : layer_element_bytes(w, rule->element);
}

double layer_rule_bytes(const struct workload *w, const struct layer_rule *rule)
{
    return element_of(w, rule) * layer_width_of(w, rule->width) * layer_tokens(w) /
           (double)(is_split(w, rule) ? w->tp : 1);
}

void layer_rule_formula(const struct workload *w, const struct layer_rule *rule, struct text *out)
{
    layer_width_formula(element_of(w, rule), rule->width, is_split(w, rule) && w->tp > 1, out);
}

bool layer_remade(const struct workload *w, int64_t layer)
{
    if (w->recompute == WORKLOAD_KEEPS_ALL || (w->recompute == WORKLOAD_ALTERNATE && layer % 2))
        return false;
    return !w->remade_layers || workload_layers_before(w, layer) < w->remade_layers;
}

/* Whether the input of some products is kept for their weights, or adapters beside them. bitsandbytes' 8-bit product keeps it for
 * nothing (autograd/_functions.py, MatMul8bitLt: ctx.tensors), its 4-bit one does not. */
static bool keeps_input(const struct workload *w, unsigned linears)
{
    return !w->lora_rank || w->frozen_bits == 8 || (adapters_share_input(w) && adapters_beside(w, linears));
}

/* Fused attention keeps its result for itself. Of what the router scales the gradient is the router's too. */
bool layer_rule_saved(const struct workload *w, const struct layer_rule *rule)
{
    static const unsigned readers[] = {
        [MATRIX_QKV] = LINEAR_Q | LINEAR_K | LINEAR_V | LINEAR_QKV | LINEAR_Q_DOWN | LINEAR_KV_DOWN,
        [MATRIX_PROJ] = LINEAR_O,
        [MATRIX_UP] = LINEAR_GATE | LINEAR_UP | LINEAR_GATE_UP | LINEAR_ROUTER,
        [MATRIX_DOWN] = LINEAR_DOWN,
    };
    if (rule->life == LIFE_NORM_WEIGHT)
        return !w->lora_rank;
    if (rule->width == WIDTH_SENT && rule->life != LIFE_KEPT)
        return w->library == WORKLOAD_TRANSFORMERS;
    if (rule->life != LIFE_KEPT)
        return false;
    if (rule->width == WIDTH_SENT)
        return keeps_input(w, LINEAR_EXPERT_GATE | LINEAR_EXPERT_UP);
    if (rule->width == WIDTH_EXPERT && rule->matrix == MATRIX_DOWN)
        return keeps_input(w, LINEAR_EXPERT_DOWN);
    return rule->matrix == MATRIX_NONE || keeps_input(w, readers[rule->matrix]) ||
           (rule->matrix == MATRIX_PROJ && w->attention == WORKLOAD_FLASH);
}

/* Transformer Engine has a norm and the product behind it in one module, which keeps what the norm gives whatever
 * --recompute-modules says (layernorm_linear.py, ln_out). It stands apart where several modules read it: before experts, and before
 * compressed queries, keys and values (Megatron-LM gpt_layer_specs.py). */
static unsigned norms_apart(const struct workload *w, bool experts)
{
    bool joined = w->library == WORKLOAD_MEGATRON;
    return (joined && !w->model.kv_rank ? 0 : PART_NORM_1 | PART_STATISTICS_1) |
           (joined && !experts ? 0 : PART_NORM_2 | PART_STATISTICS_2);
}

/* What a module makes again begins where its input is kept, and so includes a norm that is joined to its first product:
 * Megatron-LM transformer_layer.py, moe/moe_layer.py, moe/experts.py, multi_latent_attention.py; llm.c train_gpt2.cu. */
unsigned layer_module_parts(const struct workload *w, enum workload_module module, bool experts)
{
    unsigned apart = norms_apart(w, experts);
    switch (module) {
    case WORKLOAD_CORE_ATTN:
        return PART_CORE;
    case WORKLOAD_LAYERNORM:
        return apart;
    case WORKLOAD_MLP:
        return experts ? 0 : PART_MLP | ((PART_NORM_2 | PART_STATISTICS_2) & ~apart);
    case WORKLOAD_MOE:
        return experts ? PART_EXPERTS : 0;
    case WORKLOAD_MOE_ACT:
        return experts ? PART_EXPERT_GATE : 0;
    case WORKLOAD_SHARED_EXPERTS:
        return experts ? PART_SHARED : 0;
    case WORKLOAD_MLA_UP_PROJ:
        return w->library == WORKLOAD_MEGATRON ? PART_LATENT_UP | PART_LATENT_NORMS : PART_LATENT_UP;
    case WORKLOAD_GELU:
        return PART_GELU;
    default:
        return PART_NORM_1 | PART_NORM_2;
    }
}

static bool has_experts(const struct workload *w, int64_t layer)
{
    return w->model.experts && layer >= w->model.dense_layers;
}

unsigned layer_parts_again(const struct workload *w, int64_t layer)
{
    unsigned parts = 0;
    if (!layer_remade(w, layer))
        return 0;
    if (w->recompute != WORKLOAD_MODULES)
        return PART_ALL;
    for (unsigned module = 1; module <= WORKLOAD_NORM_RESULTS; module <<= 1)
        if (w->modules & module)
            parts |= layer_module_parts(w, (enum workload_module)module, has_experts(w, layer));
    return parts;
}

bool layer_rule_kept(const struct workload *w, const struct layer_rule *rule, unsigned again)
{
    if (again == PART_ALL)
        return (rule->kept_by & (w->recompute == WORKLOAD_EVERY_SECOND ? KEEP_SECOND : KEEP_FULL)) != 0;
    return layer_rule_saved(w, rule) && !(rule->parts & again);
}

double layer_kept_bytes(const struct workload *w, int64_t layer)
{
    unsigned holds = layer_conditions(w, has_experts(w, layer)), again = layer_parts_again(w, layer);
    double bytes = 0;
    for (int i = 0; i < layer_rule_count; i++)
        if ((layer_rules[i].conditions & holds) == layer_rules[i].conditions &&
            layer_rule_kept(w, &layer_rules[i], again))
            bytes += layer_rule_bytes(w, &layer_rules[i]);
    return bytes;
}
