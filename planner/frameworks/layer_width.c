#include "planner/frameworks/layer_width.h"

#include "base/checked.h"
#include "planner/frameworks/adapters.h"

/* Of so many products of one input, those beyond the first that need it for a gradient of their own. Adapters have copies of their
 * own (adapters.c). */
static double casts_again(const struct workload *w, int products)
{
    bool apart = w->library == WORKLOAD_TRANSFORMERS || w->library == WORKLOAD_TITAN;
    return w->autocast && apart && !w->lora_rank ? products - 1 : 0;
}

static double qkv_casts(const struct workload *w)
{
    return casts_again(w, w->model.traits.joint_qkv ? 1 : 3);
}

static double up_casts(const struct workload *w)
{
    return casts_again(w, w->model.gated ? 2 : 1);
}

#define MAKES(activation) (1u << WORKLOAD_ACTIVATION_##activation)

/* Tensors of the activation; torch.compile makes one kernel of any that is written out. */
static double activation_width(const struct workload *w, enum layer_width width)
{
    static const unsigned makers[] = {
        [WIDTH_GELU_INPUT] = MAKES(KERNEL) | MAKES(FAST) | MAKES(QUICK) | MAKES(CLIPPED),
        [WIDTH_RESULT] = MAKES(RESULT),
        [WIDTH_HALVED] = MAKES(NEW) | MAKES(FAST) | MAKES(ERF),
        [WIDTH_NEW] = MAKES(NEW),
        [WIDTH_FAST] = MAKES(FAST),
        [WIDTH_ERF] = MAKES(ERF),
        [WIDTH_QUICK] = MAKES(QUICK),
        [WIDTH_CLIPPED] = MAKES(CLIPPED),
    };
    enum workload_activation activation = w->model.activation;
    if (w->compiled && activation != WORKLOAD_ACTIVATION_RESULT)
        activation = WORKLOAD_ACTIVATION_KERNEL;
    return makers[width] >> activation & 1 ? (double)w->model.ffn : 0;
}

/* What is not rotated: fused attention keeps values as the view that they are. Others copy them. */
static bool keeps_view(const struct workload *w)
{
    const struct workload_model *m = &w->model;
    return m->traits.joint_qkv && !m->positions && !m->traits.alibi && w->attention == WORKLOAD_FLASH &&
           (m->kv_heads == m->heads || !w->keys_expanded) && !w->compiled;
}

/* Megatron-LM's where --qk-layernorm asks for it, others' always. */
static bool norms_latent(const struct workload *w)
{
    return w->model.qk_norm || !workload_is_megatron(w);
}

/* Queries, keys, values and what becomes of them; any other width is the hidden size. */
static double attention_width(const struct workload *w, enum layer_width width)
{
    const struct workload_model *m = &w->model;
    double heads = (double)m->heads, head = (double)m->head_size, kv = (double)(m->kv_heads * m->head_size);
    int64_t padded = w->pads_heads_to ? round_up(m->head_size, w->pads_heads_to) : m->head_size;
    switch (width) {
    case WIDTH_QUERIES:
        return heads * (m->kv_rank ? (double)(m->nope_size + m->rope_size) : head);
    case WIDTH_KEYS:
        return m->kv_rank ? heads * (double)(m->nope_size + m->rope_size) : kv;
    case WIDTH_QUERIES_KEYS:
        return m->qk_norm && !m->kv_rank ? attention_width(w, WIDTH_QUERIES) + attention_width(w, WIDTH_KEYS)
                                         : 0;
    case WIDTH_KEYS_USED:
        return m->kv_rank         ? heads * (double)(m->nope_size + m->rope_size)
               : w->keys_expanded ? heads * head
                                  : kv;
    case WIDTH_VIEWED:
        return keeps_view(w) ? attention_width(w, WIDTH_QUERIES) + attention_width(w, WIDTH_KEYS) : 0;
    case WIDTH_PADDED:
        return m->kv_rank ? 0
               : padded == m->head_size
                   ? 0
                   : (double)(padded - m->head_size) * (heads + 2 * (double)m->kv_heads) +
                         (double)padded * heads;
    case WIDTH_SCORES:
        return heads * (double)w->sequence;
    case WIDTH_CAPPED_SCORES:
        return m->traits.scores_capped ? heads * (double)w->sequence : 0;
    case WIDTH_HEADS:
        return heads;
    case WIDTH_HEADS_STATISTICS:
        return m->qk_norm && !m->kv_rank ? heads + (double)m->kv_heads : 0;
    case WIDTH_FP8_COPY:
        return w->fp8 ? attention_width(w, WIDTH_QUERIES) : 0;
    /* Context parallelism of DeepSpeed and Megatron-DeepSpeed exchanges heads for tokens (Ulysses); that of others sends keys
     * and values round. */
    case WIDTH_RING:
        return w->cp > 1 && !workload_is_deepspeed(w) ? 2 * (double)w->cp * attention_width(w, WIDTH_KEYS)
                                                      : 0;
    case WIDTH_EXCHANGED:
        return w->cp > 1 && workload_is_deepspeed(w) ? attention_width(w, WIDTH_QUERIES) : 0;
    case WIDTH_LATENT_Q:
        return (double)m->q_rank;
    case WIDTH_LATENT_KV:
        return (double)(m->kv_rank + m->rope_size);
    case WIDTH_LATENT_Q_NORMED:
        return norms_latent(w) ? (double)m->q_rank : 0;
    case WIDTH_LATENT_KV_NORMED:
        return norms_latent(w) ? (double)m->kv_rank : 0;
    default:
        return (double)m->hidden;
    }
}

double layer_width_of(const struct workload *w, enum layer_width width)
{
    const struct workload_model *m = &w->model;
    const struct workload_traits *traits = &m->traits;
    double active = (double)m->active_experts * (w->expert_capacity > 0 ? w->expert_capacity : 1);
    switch (width) {
    case WIDTH_FFN:
        return (double)m->ffn;
    case WIDTH_BIASED:
        return m->bias && w->bias_apart ? (double)m->ffn : 0;
    case WIDTH_GELU_INPUT:
    case WIDTH_RESULT:
    case WIDTH_HALVED:
    case WIDTH_NEW:
    case WIDTH_FAST:
    case WIDTH_ERF:
    case WIDTH_QUICK:
    case WIDTH_CLIPPED:
        return activation_width(w, width);
    case WIDTH_BETWEEN:
        return traits->residual == WORKLOAD_IN_TURN ? (double)m->hidden : 0;
    case WIDTH_SECOND:
        return traits->residual == WORKLOAD_BESIDE_ONE_NORM ? 0 : (double)m->hidden;
    case WIDTH_POST:
        return traits->post_norms ? (double)m->hidden : 0;
    case WIDTH_STATISTICS:
        return m->rms_norm ? 1 : 2;
    case WIDTH_SECOND_STATISTICS:
        return traits->residual == WORKLOAD_BESIDE_ONE_NORM ? 0 : layer_width_of(w, WIDTH_STATISTICS);
    case WIDTH_POST_STATISTICS:
        return traits->post_norms ? layer_width_of(w, WIDTH_STATISTICS) : 0;
    case WIDTH_SENT:
        return active * (double)m->hidden;
    case WIDTH_SCALED:
        return w->library == WORKLOAD_TRANSFORMERS ? active * (double)m->hidden : 0;
    case WIDTH_EXPERT:
        return active * (double)m->expert_ffn;
    case WIDTH_SHARED:
        return 2 * (double)m->shared_ffn;
    case WIDTH_ROUTES:
        return 2 * (double)m->experts;
    case WIDTH_ADAPTERS:
    case WIDTH_FFN_ADAPTERS:
    case WIDTH_EXPERT_ADAPTERS:
        return adapters_products(w, (enum adapter_part)(width - WIDTH_ADAPTERS));
    case WIDTH_ADAPTER_INPUTS:
    case WIDTH_FFN_ADAPTER_INPUTS:
    case WIDTH_EXPERT_ADAPTER_INPUTS:
        return adapters_inputs(w, (enum adapter_part)(width - WIDTH_ADAPTER_INPUTS));
    case WIDTH_ADAPTER_CAST:
    case WIDTH_FFN_ADAPTER_CAST:
        return adapters_widest_cast(w, (enum adapter_part)(width - WIDTH_ADAPTER_CAST));
    case WIDTH_ADAPTER_MASKS:
    case WIDTH_FFN_ADAPTER_MASKS:
    case WIDTH_EXPERT_ADAPTER_MASKS:
        return adapters_masks(w, (enum adapter_part)(width - WIDTH_ADAPTER_MASKS));
    case WIDTH_QKV_CASTS:
        return qkv_casts(w) * (double)m->hidden;
    case WIDTH_UP_CASTS:
        return up_casts(w) * (double)m->hidden;
    case WIDTH_CAPPED_VOCAB:
        return traits->logits_capped ? (double)m->vocab : 0;
    case WIDTH_VOCAB_PART:
    case WIDTH_VOCAB:
        return (double)m->vocab;
    case WIDTH_CHUNK:
        return (double)m->vocab / (double)w->loss_chunks;
    default:
        return attention_width(w, width);
    }
}

int layer_element_bytes(const struct workload *w, enum layer_element element)
{
    switch (element) {
    case ELEMENT_FP32:
        return 4;
    case ELEMENT_BYTE:
        return 1;
    case ELEMENT_INPUT:
        return w->fp8 ? 1 : w->compute_bytes;
    case ELEMENT_RESIDUAL:
        return w->autocast ? 4 : w->compute_bytes;
    case ELEMENT_ADAPTED:
        return adapters_element_bytes(w);
    case ELEMENT_SCORED:
        return w->model.traits.softmax == WORKLOAD_SOFTMAX_FP32 && w->attention == WORKLOAD_EAGER &&
                       !w->autocast
                   ? 4
                   : w->compute_bytes;
    default:
        return w->compute_bytes;
    }
}

/* The widths in plain symbols; those that layer_width_of() makes of several are named as a whole. */
static const char *const width_symbols[] = {
    [WIDTH_HIDDEN] = "hidden",
    [WIDTH_BETWEEN] = "hidden",
    [WIDTH_SECOND] = "hidden",
    [WIDTH_POST] = "hidden",
    [WIDTH_QUERIES] = "heads x head_size",
    [WIDTH_KEYS] = "kv_heads x head_size",
    [WIDTH_QUERIES_KEYS] = "(heads + kv_heads) x head_size",
    [WIDTH_KEYS_USED] = "kv_heads, or heads if repeated, x head_size",
    [WIDTH_VIEWED] = "(heads + kv_heads) x head_size",
    [WIDTH_PADDED] = "padding of queries, keys, values and the padded result",
    [WIDTH_FFN] = "ffn",
    [WIDTH_BIASED] = "ffn",
    [WIDTH_GELU_INPUT] = "ffn",
    [WIDTH_RESULT] = "ffn",
    [WIDTH_HALVED] = "ffn",
    [WIDTH_NEW] = "ffn",
    [WIDTH_FAST] = "ffn",
    [WIDTH_ERF] = "ffn",
    [WIDTH_QUICK] = "ffn",
    [WIDTH_CLIPPED] = "ffn",
    [WIDTH_SCORES] = "heads x sequence",
    [WIDTH_CAPPED_SCORES] = "heads x sequence",
    [WIDTH_HEADS] = "heads",
    [WIDTH_STATISTICS] = "statistics of a norm, 1 or 2,",
    [WIDTH_SECOND_STATISTICS] = "statistics of a norm, 1 or 2,",
    [WIDTH_POST_STATISTICS] = "statistics of a norm, 1 or 2,",
    [WIDTH_HEADS_STATISTICS] = "(heads + kv_heads)",
    [WIDTH_SENT] = "active_experts x hidden",
    [WIDTH_SCALED] = "active_experts x hidden",
    [WIDTH_EXPERT] = "active_experts x expert_ffn",
    [WIDTH_SHARED] = "2 x shared_ffn",
    [WIDTH_ROUTES] = "2 x experts",
    [WIDTH_ADAPTERS] = "adapters x lora_rank",
    [WIDTH_FFN_ADAPTERS] = "adapters x lora_rank",
    [WIDTH_EXPERT_ADAPTERS] = "active_experts x adapters x lora_rank",
    [WIDTH_ADAPTER_INPUTS] = "inputs of adapted matrices",
    [WIDTH_FFN_ADAPTER_INPUTS] = "inputs of adapted matrices",
    [WIDTH_EXPERT_ADAPTER_INPUTS] = "active_experts x inputs of adapted matrices",
    [WIDTH_ADAPTER_CAST] = "the widest input of adapted matrices",
    [WIDTH_FFN_ADAPTER_CAST] = "the widest input of adapted matrices",
    [WIDTH_ADAPTER_MASKS] = "inputs of adapted matrices",
    [WIDTH_FFN_ADAPTER_MASKS] = "inputs of adapted matrices",
    [WIDTH_EXPERT_ADAPTER_MASKS] = "active_experts x inputs of adapted matrices",
    [WIDTH_QKV_CASTS] = "(products that need it - 1) x hidden",
    [WIDTH_UP_CASTS] = "(products that need it - 1) x hidden",
    [WIDTH_FP8_COPY] = "heads x head_size",
    [WIDTH_RING] = "2 x cp x kv_heads x head_size",
    [WIDTH_EXCHANGED] = "heads x head_size",
    [WIDTH_LATENT_Q] = "q_rank",
    [WIDTH_LATENT_KV] = "(kv_rank + rope_size)",
    [WIDTH_LATENT_Q_NORMED] = "q_rank",
    [WIDTH_LATENT_KV_NORMED] = "kv_rank",
    [WIDTH_VOCAB] = "vocab",
    [WIDTH_CAPPED_VOCAB] = "vocab",
    [WIDTH_VOCAB_PART] = "vocab",
    [WIDTH_CHUNK] = "vocab / loss_chunks",
};

void layer_width_formula(int element_bytes, enum layer_width width, bool split, struct text *out)
{
    text_printf(out, "%d x %s x tokens%s", element_bytes, width_symbols[width], split ? " / tp" : "");
}

double layer_tokens(const struct workload *w)
{
    return (double)w->micro_batch * (double)w->sequence / (double)w->cp;
}
