#include "planner/frameworks/loss_rules.h"

#define HOOKS "saved-tensor hooks (tests/torch/compare_saved.py)"

#define UPCAST     (1u << WORKLOAD_LOSS_UPCAST)
#define PLAIN      (1u << WORKLOAD_LOSS_PLAIN)
#define VOCABULARY (1u << WORKLOAD_LOSS_VOCABULARY)
#define CHUNKED    (1u << WORKLOAD_LOSS_CHUNKED)
#define FUSED      (1u << WORKLOAD_LOSS_FUSED)
#define LINEAR     (1u << WORKLOAD_LOSS_LINEAR)
#define KERNEL     (1u << WORKLOAD_LOSS_KERNEL)
#define PARALLEL   (1u << WORKLOAD_LOSS_PARALLEL)

/* "logits" live until the end of forward, or are held through backward. */
const struct loss_rule loss_forward_rules[] = {
    {"logits of this rank", ELEMENT_COMPUTE, WIDTH_VOCAB_PART, UPCAST | PLAIN, IF_WHOLE, LIFE_THREE,
     "Linear's result"},
    {"logits of each rank", ELEMENT_COMPUTE, WIDTH_VOCAB, UPCAST | PLAIN, IF_WHOLE, LIFE_TWO,
     "Megatron-LM mappings.py, _gather_along_last_dim(): gathered, then put side by side"},
    {"logits", ELEMENT_COMPUTE, WIDTH_VOCAB, PLAIN | VOCABULARY, 0, LIFE_LAYER, "Linear's result"},
    {"logits", ELEMENT_COMPUTE, WIDTH_VOCAB, UPCAST | CHUNKED | PARALLEL, IF_NOT_COMPILED, LIFE_LAYER,
     "Linear's result"},
    {"logits", ELEMENT_COMPUTE, WIDTH_VOCAB, UPCAST | CHUNKED, IF_COMPILED, LIFE_KEPT,
     "Wijmans et al. 2024, table 1: compiled, the cast and log-softmax are made again"},
    {"logits", ELEMENT_COMPUTE, WIDTH_VOCAB, FUSED, 0, LIFE_KEPT, "llm.c: the gradient replaces them"},
    {"logits", ELEMENT_COMPUTE, WIDTH_VOCAB, KERNEL, 0, LIFE_KEPT,
     "flash_attn losses/cross_entropy.py: logits and log-sum-exp are saved"},
    {"tanh of logits", ELEMENT_COMPUTE, WIDTH_CAPPED_VOCAB, UPCAST | PLAIN | CHUNKED, 0, LIFE_KEPT,
     "transformers modeling_gemma2.py: final_logit_softcapping"},
    {"logits in fp32", ELEMENT_FP32, WIDTH_VOCAB, UPCAST | PARALLEL, IF_HALF | IF_NOT_COMPILED, LIFE_LAYER,
     "logits.float()"},
    {"shifted logits", ELEMENT_FP32, WIDTH_VOCAB, PARALLEL, 0, LIFE_LAYER,
     "torch/distributed/tensor/parallel/loss.py, _log_softmax(): the largest is subtracted, not in place"},
    {"log-softmax", ELEMENT_FP32, WIDTH_VOCAB, UPCAST | PARALLEL, IF_NOT_COMPILED, LIFE_KEPT,
     HOOKS ": log_softmax keeps its result"},
    {"log-softmax", ELEMENT_COMPUTE, WIDTH_VOCAB, PLAIN, 0, LIFE_KEPT, HOOKS},
    {"logits in fp32", ELEMENT_FP32, WIDTH_VOCAB, VOCABULARY, IF_LEGACY, LIFE_LAYER,
     "Megatron-LM cross_entropy.py before core 0.8: the largest is subtracted into a copy"},
    {"softmax", ELEMENT_FP32, WIDTH_VOCAB, VOCABULARY, 0, LIFE_KEPT,
     "Megatron-LM cross_entropy.py: exp and division in place"},
    {"a chunk in fp32", ELEMENT_FP32, WIDTH_CHUNK, CHUNKED, 0, LIFE_LAYER, "torchtune ChunkedCrossEntropy"},
    {"logits of a chunk", ELEMENT_COMPUTE, WIDTH_CHUNK, LINEAR, 0, LIFE_LAYER,
     "Liger-Kernel ops/fused_linear_cross_entropy.py; torchtitan loss.py, ChunkedCELoss"},
    {"logits of a chunk in fp32", ELEMENT_FP32, WIDTH_CHUNK, LINEAR, IF_HALF, LIFE_LAYER, "likewise"},
    {"log-softmax of a chunk", ELEMENT_FP32, WIDTH_CHUNK, LINEAR, 0, LIFE_LAYER, "likewise"},
    {"gradient of a chunk", ELEMENT_FP32, WIDTH_CHUNK, LINEAR, 0, LIFE_LAYER, "likewise"},
    {"gradient of the head's input", ELEMENT_FP32, WIDTH_HIDDEN, LINEAR, 0, LIFE_KEPT,
     "torchtitan loss.py, GradAccumulator; Liger keeps it in the input's type"},
    {"log-softmax of all chunks", ELEMENT_FP32, WIDTH_VOCAB, CHUNKED, IF_NOT_COMPILED, LIFE_KEPT,
     "as log-softmax"},
};
const int loss_forward_count = sizeof loss_forward_rules / sizeof *loss_forward_rules;

const struct loss_rule loss_backward_rules[] = {
    {"gradient of log-softmax", ELEMENT_FP32, WIDTH_VOCAB, PARALLEL, 0, LIFE_THREE,
     "torch/distributed/tensor/parallel/loss.py, _nll_loss_and_log_softmax_backward(): grad_input"},
    {"probabilities", ELEMENT_FP32, WIDTH_VOCAB, PARALLEL, 0, LIFE_NEXT, "likewise: exp(x)"},
    {"probabilities less one at targets", ELEMENT_FP32, WIDTH_VOCAB, PARALLEL, 0, LIFE_NEXT,
     "likewise: grad_input + exp(x)"},
    {"gradient of log-softmax", ELEMENT_FP32, WIDTH_VOCAB, UPCAST, IF_NOT_COMPILED, LIFE_NEXT,
     "nll_loss_backward"},
    {"gradient of fp32 logits", ELEMENT_FP32, WIDTH_VOCAB, UPCAST | PARALLEL, IF_HALF, LIFE_NEXT,
     "log_softmax_backward"},
    {"gradient of log-softmax", ELEMENT_COMPUTE, WIDTH_VOCAB, PLAIN, 0, LIFE_NEXT, "nll_loss_backward"},
    {"gradient of a chunk's log-softmax", ELEMENT_FP32, WIDTH_CHUNK, CHUNKED, 0, LIFE_NEXT,
     "nll_loss_backward"},
    {"gradient of a chunk", ELEMENT_FP32, WIDTH_CHUNK, CHUNKED, 0, LIFE_NEXT, "log_softmax_backward"},
    {"gradient of logits", ELEMENT_COMPUTE, WIDTH_VOCAB, KERNEL, 0, LIFE_LAYER,
     "flash_attn losses/cross_entropy.py: inplace_backward is off"},
    {"gradient of logits", ELEMENT_COMPUTE, WIDTH_VOCAB, UPCAST | PLAIN | CHUNKED | PARALLEL, 0, LIFE_LAYER,
     "the cast's gradient, which the head's products read"},
    {"gradient of logits", ELEMENT_COMPUTE, WIDTH_VOCAB, VOCABULARY, IF_HALF, LIFE_LAYER,
     "Megatron-LM cross_entropy.py: softmax becomes its gradient in place, then is cast"},
};
const int loss_backward_count = sizeof loss_backward_rules / sizeof *loss_backward_rules;
_Static_assert(sizeof loss_forward_rules / sizeof *loss_forward_rules <= LOSS_RULES_MOST &&
                   sizeof loss_backward_rules / sizeof *loss_backward_rules <= LOSS_RULES_MOST,
               "more rules than there is room for");

enum workload_loss loss_rule_kind(const struct workload *w)
{
    bool parallel = w->library == WORKLOAD_TITAN && w->tp > 1 && !w->logits_whole && !w->compiled;
    return parallel && w->loss == WORKLOAD_LOSS_UPCAST ? WORKLOAD_LOSS_PARALLEL : w->loss;
}

int loss_rule_element(const struct workload *w, const struct loss_rule *rule)
{
    return layer_element_bytes(w, rule->element);
}

static bool is_vocabulary_split(const struct workload *w, const struct loss_rule *rule)
{
    return (!w->logits_whole || rule->width == WIDTH_VOCAB_PART) && rule->width != WIDTH_HIDDEN;
}

double loss_rule_bytes(const struct workload *w, const struct loss_rule *rule)
{
    return layer_element_bytes(w, rule->element) * layer_width_of(w, rule->width) * layer_tokens(w) /
           (double)(is_vocabulary_split(w, rule) ? w->tp : 1);
}

void loss_rule_formula(const struct workload *w, const struct loss_rule *rule, struct text *out)
{
    layer_width_formula(layer_element_bytes(w, rule->element), rule->width,
                        is_vocabulary_split(w, rule) && w->tp > 1, out);
}
