/* See hub_config.h. Defaults of absent keys are those of each type's configuration class in transformers 4.57. */
#include "model/hub_config.h"

#include "base/units.h"

#include <string.h>

#define SUPPORTED "gpt2, llama, mistral, qwen2, qwen3, phi3, olmo2, gemma and gemma3_text are"

static int read_gpt2(const json_t *config, const char *where, struct model *m, struct error *err)
{
    m->family = MODEL_GPT2;
    m->norm_eps = 1e-5;
    m->tied = m->qkv_bias = m->proj_bias = true;
    m->max_seq_len = 1024;
    const char *activation = "gelu_new";
    if (jsonfile_int(config, "n_layer", where, &m->layers, err) ||
        jsonfile_int(config, "n_embd", where, &m->hidden, err) ||
        jsonfile_int(config, "n_head", where, &m->heads, err) ||
        jsonfile_int(config, "vocab_size", where, &m->vocab, err) ||
        jsonfile_int_optional(config, "n_positions", where, &m->max_seq_len, err) ||
        jsonfile_real_optional(config, "layer_norm_epsilon", where, &m->norm_eps, err) ||
        jsonfile_bool_optional(config, "tie_word_embeddings", where, &m->tied, err) ||
        jsonfile_text_optional(config, "activation_function", where, &activation, err))
        return -1;
    if (strcmp(activation, "gelu_new") && strcmp(activation, "gelu_pytorch_tanh"))
        return error_set(err, "%s: activation_function \"%s\" is not supported; gelu_new is", where,
                         activation);
    m->kv_heads = m->heads;
    if (m->hidden > 0 && m->hidden <= INT64_MAX / 4)
        m->ffn = 4 * m->hidden;
    return jsonfile_int_optional(config, "n_inner", where, &m->ffn, err);
}

/* Where the keys of RoPE stand: since transformers 5 in an object of their own. */
static const json_t *rope_of(const json_t *config)
{
    const json_t *own = json_object_get(config, "rope_parameters");
    return json_is_object(own) ? own : config;
}

static bool scales_rope(const json_t *config)
{
    const json_t *scaling = json_object_get(config, "rope_scaling");
    const char *type = json_string_value(json_object_get(rope_of(config), "rope_type"));
    return (scaling && !json_is_null(scaling)) || (type && strcmp(type, "default"));
}

/* RoPE's frequencies, which decide no byte and no second, are not changed by scaling: a note. */
static void note_scaling(const json_t *config, struct model *m)
{
    if (scales_rope(config))
        snprintf(m->note, sizeof m->note, "rope_scaling is not applied (it changes values, not memory)");
}

/* In which layers the window is, by a list of them: every so many-th has none, or all have it. */
static int read_layer_types(const json_t *types, const char *where, struct model *m, struct error *err)
{
    int64_t count = (int64_t)json_array_size(types), first = -1;
    if (count != m->layers)
        return error_set(err, "%s: layer_types has %lld %s for %lld layers; give one for each", where,
                         (long long)count, units_plural(count, "entry", "entries"), (long long)m->layers);
    for (int64_t i = 0; i < count; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        bool full = type && !strcmp(type, "full_attention");
        if (full && first < 0)
            first = i;
        if (!type || (!full && strcmp(type, "sliding_attention")) ||
            full != (first >= 0 && (i + 1) % (first + 1) == 0))
            return error_set(
                err,
                "%s: layer_types[%lld] is %s%s%s; sliding_attention in all layers, or but for every so "
                "many-th with full_attention, is supported",
                where, (long long)i, type ? "\"" : "", type ? type : "no text", type ? "\"" : "");
    }
    m->full_every = first + 1;
    return 0;
}

/* Layers that attend within a window: all of Mistral's and Phi-3's, and most of Gemma 3's. null is none, and not the default. Where
 * use_sliding_window has them begin at some layer, a note. */
static int read_windows(const json_t *config, const char *where, const char *type, struct model *m,
                        struct error *err)
{
    bool gemma3 = !strcmp(type, "gemma3_text"), mistral = !strcmp(type, "mistral"), elsewhere = false;
    bool none = json_is_null(json_object_get(config, "sliding_window"));
    int64_t window = (gemma3 || mistral) && !none ? 4096 : 0;
    if (jsonfile_int_optional(config, "sliding_window", where, &window, err) ||
        jsonfile_bool_optional(config, "use_sliding_window", where, &elsewhere, err))
        return -1;
    if (gemma3 || mistral || !strcmp(type, "phi3"))
        m->window = window;
    else if (elsewhere && window && window < m->max_seq_len)
        snprintf(m->note, sizeof m->note, "sliding_window %lld is not applied: attention is full",
                 (long long)window);
    if (!gemma3)
        return 0;
    const json_t *types = json_object_get(config, "layer_types");
    m->full_every = 6;
    if (json_is_array(types))
        return read_layer_types(types, where, m, err);
    return jsonfile_int_optional(config, "sliding_window_pattern", where, &m->full_every, err);
}

/* What Gemma 3 has besides. Its RoPE stands in two objects of rope_parameters since transformers 5. */
static int read_gemma3(const json_t *config, const char *where, struct model *m, struct error *err)
{
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    for (int i = 0; i < 2; i++)
        if (json_is_number(json_object_get(config, caps[i])))
            return error_set(err, "%s: %s is not supported; set it to null", where, caps[i]);
    const json_t *rope = rope_of(config), *local = json_object_get(rope, "sliding_attention"),
                 *full = json_object_get(rope, "full_attention");
    m->qk_norm = true;
    m->norms = NORMS_AROUND;
    m->rope_theta = 1e6;
    m->local_theta = 10000;
    m->query_scalar = 256;
    note_scaling(json_is_object(full) ? full : config, m);
    return jsonfile_real_optional(config, "rope_theta", where, &m->rope_theta, err) ||
                   jsonfile_real_optional(config, "rope_local_base_freq", where, &m->local_theta, err) ||
                   jsonfile_real_optional(config, "query_pre_attn_scalar", where, &m->query_scalar, err) ||
                   (json_is_object(full) &&
                    jsonfile_real_optional(full, "rope_theta", where, &m->rope_theta, err)) ||
                   (json_is_object(local) &&
                    jsonfile_real_optional(local, "rope_theta", where, &m->local_theta, err))
               ? -1
               : 0;
}

/* GELU in its tanh form, in whichever words: a file that says "gelu" is of the time when transformers made it this one too, and
 * hidden_activation came to say so. */
static int read_gelu(const json_t *config, const char *where, struct error *err)
{
    const char *activation = "gelu_pytorch_tanh", *newer = NULL;
    if (jsonfile_text_optional(config, "hidden_act", where, &activation, err) ||
        jsonfile_text_optional(config, "hidden_activation", where, &newer, err))
        return -1;
    if (newer)
        activation = newer;
    if (strcmp(activation, "gelu_pytorch_tanh") && (newer || strcmp(activation, "gelu")))
        return error_set(err, "%s: %s \"%s\" is not supported; gelu_pytorch_tanh is", where,
                         newer ? "hidden_activation" : "hidden_act", activation);
    return 0;
}

/* Keys by which files of a type that is ours describe a layer that is not. */
static int refuse_variants(const json_t *config, const char *where, struct error *err)
{
    const char *activation = "silu";
    bool mlp_bias = false;
    if (jsonfile_text_optional(config, "hidden_act", where, &activation, err) ||
        jsonfile_bool_optional(config, "mlp_bias", where, &mlp_bias, err))
        return -1;
    if (strcmp(activation, "silu"))
        return error_set(err, "%s: hidden_act \"%s\" is not supported; silu is", where, activation);
    if (mlp_bias)
        return error_set(err, "%s: mlp_bias true is not supported; set it to false", where);
    return 0;
}

/* RoPE turns the first elements of a head, this share of them. */
static int read_turned(const json_t *config, const char *where, struct model *m, struct error *err)
{
    double part = 1;
    if (jsonfile_real_optional(rope_of(config), "partial_rotary_factor", where, &part, err))
        return -1;
    if (!(part > 0 && part <= 1))
        return error_set(err, "%s: partial_rotary_factor is %g; it must be above 0 and at most 1", where,
                         part);
    int64_t size = m->head_size ? m->head_size : m->heads > 0 ? m->hidden / m->heads : 0;
    m->unturned =
        part < 1 ? size - (int64_t)((double)size * part) : 0; /* as a double, INT64_MAX is one more */
    return 0;
}

static int read_llama(const json_t *config, const char *where, const char *type, struct model *m,
                      struct error *err)
{
    bool attention_bias = false, qwen3 = !strcmp(type, "qwen3"), olmo2 = !strcmp(type, "olmo2"),
         gemma3 = !strcmp(type, "gemma3_text"), gemma = gemma3 || !strcmp(type, "gemma");
    m->family = MODEL_LLAMA;
    m->norm_eps = olmo2 || !strcmp(type, "phi3") ? 1e-5 : 1e-6;
    m->rope_theta = 10000;
    m->max_seq_len = qwen3 ? 32768 : gemma3 ? 131072 : gemma ? 8192 : !strcmp(type, "phi3") ? 4096 : 2048;
    m->head_size = qwen3 ? 128 : gemma ? 256 : 0;
    m->tied = m->norm_add_one = m->gelu_gate = m->scale_embedding = gemma;
    m->qk_norm = qwen3 || olmo2;
    m->qk_norm_whole = olmo2;
    m->norms = olmo2 ? NORMS_BEHIND : NORMS_BEFORE;
    if (jsonfile_int(config, "num_hidden_layers", where, &m->layers, err) ||
        jsonfile_int(config, "hidden_size", where, &m->hidden, err) ||
        jsonfile_int(config, "num_attention_heads", where, &m->heads, err) ||
        jsonfile_int(config, "intermediate_size", where, &m->ffn, err) ||
        jsonfile_int(config, "vocab_size", where, &m->vocab, err) ||
        jsonfile_int_optional(config, "max_position_embeddings", where, &m->max_seq_len, err) ||
        jsonfile_int_optional(config, "head_dim", where, &m->head_size, err) ||
        jsonfile_real_optional(config, "rms_norm_eps", where, &m->norm_eps, err) ||
        jsonfile_real_optional(rope_of(config), "rope_theta", where, &m->rope_theta, err) ||
        jsonfile_bool_optional(config, "tie_word_embeddings", where, &m->tied, err) ||
        jsonfile_bool_optional(config, "attention_bias", where, &attention_bias, err) ||
        (gemma ? read_gelu(config, where, err) : refuse_variants(config, where, err)) ||
        read_turned(config, where, m, err) || read_windows(config, where, type, m, err) ||
        (gemma3 && read_gemma3(config, where, m, err)))
        return -1;
    if (!gemma3)
        note_scaling(config, m);
    m->qkv_bias = attention_bias || !strcmp(type, "qwen2");
    m->proj_bias = attention_bias;
    m->kv_heads = gemma3 ? 4 : gemma ? 16 : m->heads;
    return jsonfile_int_optional(config, "num_key_value_heads", where, &m->kv_heads, err);
}

/* ---- what is refused ---- */

#define EXPERTS      "mixtures of experts"
#define PARALLEL     "attention and feed-forward side by side"
#define TWO_SIDES    "an encoder and a decoder"
#define NO_ATTENTION "layers without attention"
#define IMAGES       "images or sounds beside text"
#define OUTER_NORMS  "norms behind attention and feed-forward"

static const struct {
    const char *type, *has;
    bool checked; /* `memplan check` has rules for it */
} refused[] = {
    {"mixtral", EXPERTS, true},
    {"qwen2_moe", EXPERTS, true},
    {"qwen3_moe", EXPERTS, true},
    {"deepseek_v2", EXPERTS " and latent attention", true},
    {"deepseek_v3", EXPERTS " and latent attention", true},
    {"gpt_neox", PARALLEL ", and RoPE of a part of each head", true},
    {"bert", "segments, a pooler and a head for masked words", true},
    {"roberta", "a head for masked words", true},
    {"xlm-roberta", "a head for masked words", true},
    {"phimoe", EXPERTS, false},
    {"olmoe", EXPERTS " and norms of whole queries and keys", false},
    {"dbrx", EXPERTS, false},
    {"gpt_oss", EXPERTS ", attention sinks and sliding windows", false},
    {"granitemoe", EXPERTS " and scaled residuals", false},
    {"glm4_moe", EXPERTS, false},
    {"minimax", EXPERTS " and linear attention", false},
    {"llama4", EXPERTS " and attention in chunks", false},
    {"llama4_text", EXPERTS " and attention in chunks", false},
    {"qwen3_next", EXPERTS " and linear attention", false},
    {"gemma2", OUTER_NORMS ", soft caps, and sliding windows in every other layer", true},
    {"gemma3", IMAGES, false},
    {"gemma3n", "per-layer embeddings, and images or sounds beside text", false},
    {"olmo", "LayerNorm without weights", false},
    {"olmo3", "sliding windows in most layers", false},
    {"phi", PARALLEL ", and RoPE of a part of each head", true},
    {"gptj", PARALLEL ", and RoPE of a part of each head", true},
    {"gpt_neo", "sliding windows in every other layer", false},
    {"gpt_bigcode", "one key/value head beside learned positions", false},
    {"starcoder2", "LayerNorm and GELU beside RoPE", false},
    {"opt", "ReLU, and positions that count from 2", true},
    {"bloom", "ALiBi in place of positions", true},
    {"mpt", "ALiBi in place of positions", false},
    {"falcon", PARALLEL, true},
    {"stablelm", "LayerNorm, and RoPE of a part of each head", false},
    {"cohere", PARALLEL ", and scaled logits", false},
    {"cohere2", PARALLEL ", scaled logits and sliding windows", false},
    {"glm", "RoPE of a part of each head", false},
    {"glm4", OUTER_NORMS ", and RoPE of a part of each head", false},
    {"smollm3", "layers without RoPE", false},
    {"internlm2", "queries, keys and values interleaved in one matrix", false},
    {"baichuan", "queries, keys and values in one matrix of its own", false},
    {"granite", "scaled embeddings, residuals and logits", false},
    {"minicpm", "scaled embeddings, residuals and logits", false},
    {"nemotron", "squared ReLU, and RoPE of a part of each head", false},
    {"exaone4", OUTER_NORMS " in place of those before, and sliding windows", false},
    {"hunyuan_v1_dense", "norms of queries and keys behind RoPE", false},
    {"mamba", NO_ATTENTION, false},
    {"mamba2", NO_ATTENTION, false},
    {"rwkv", NO_ATTENTION, false},
    {"jamba", NO_ATTENTION " and " EXPERTS, false},
    {"falcon_mamba", NO_ATTENTION, false},
    {"t5", TWO_SIDES, false},
    {"mt5", TWO_SIDES, false},
    {"bart", TWO_SIDES, false},
    {"whisper", TWO_SIDES, false},
    {"distilbert", "a head for masked words", false},
    {"deberta-v2", "attention over relative positions", false},
    {"modernbert", "a head for masked words, and sliding windows in most layers", false},
    {"llava", IMAGES, false},
    {"mllama", IMAGES, false},
    {"mistral3", IMAGES, false},
    {"qwen2_vl", IMAGES, false},
    {"qwen2_5_vl", IMAGES, false},
    {"qwen3_vl", IMAGES, false},
};

enum { REFUSED = sizeof refused / sizeof refused[0] };

/* How the names of such models begin; the first that fits. NULL: a name that begins as theirs, of a model that is not. */
static const struct {
    const char *begin, *type;
} families[] = {
    {"google/gemma-2-", "gemma2"},
    {"google/gemma-3n-", "gemma3n"},
    {"google/gemma-3-270m", NULL},
    {"google/gemma-3-1b", NULL},
    {"google/gemma-3-", "gemma3"},
    {"google/gemma-", NULL},
    {"google-t5/t5-", "t5"},
    {"google/flan-t5-", "t5"},
    {"google/t5-", "t5"},
    {"google/mt5-", "mt5"},
    {"facebook/opt-", "opt"},
    {"facebook/bart-", "bart"},
    {"openai/gpt-oss-", "gpt_oss"},
    {"openai/whisper-", "whisper"},
    {"microsoft/phi-1", "phi"},
    {"microsoft/phi-2", "phi"},
    {"microsoft/Phi-3.5-MoE", "phimoe"},
    {"microsoft/deberta-v", "deberta-v2"},
    {"meta-llama/Llama-4-", "llama4"},
    {"meta-llama/Llama-3.2-11B-Vision", "mllama"},
    {"meta-llama/Llama-3.2-90B-Vision", "mllama"},
    {"mistralai/Mixtral-", "mixtral"},
    {"mistralai/Mistral-Small-3.", "mistral3"},
    {"Qwen/Qwen1.5-MoE-", "qwen2_moe"},
    {"Qwen/Qwen3-Next-", "qwen3_next"},
    {"Qwen/Qwen3-Coder-", "qwen3_moe"},
    {"Qwen/Qwen2-VL-", "qwen2_vl"},
    {"Qwen/Qwen2.5-VL-", "qwen2_5_vl"},
    {"Qwen/Qwen3-VL-", "qwen3_vl"},
    {"deepseek-ai/DeepSeek-V2", "deepseek_v2"},
    {"deepseek-ai/DeepSeek-Coder-V2", "deepseek_v2"},
    {"deepseek-ai/DeepSeek-V3", "deepseek_v3"},
    {"deepseek-ai/DeepSeek-R1-0528-Qwen3", NULL},
    {"deepseek-ai/DeepSeek-R1-Distill", NULL},
    {"deepseek-ai/DeepSeek-R1", "deepseek_v3"},
    {"databricks/dbrx-", "dbrx"},
    {"tiiuae/falcon-mamba", "falcon_mamba"},
    {"tiiuae/falcon-", "falcon"},
    {"bigscience/bloom", "bloom"},
    {"mosaicml/mpt-", "mpt"},
    {"bigcode/starcoder2-", "starcoder2"},
    {"bigcode/starcoder", "gpt_bigcode"},
    {"allenai/OLMo-2-", NULL},
    {"allenai/Olmo-3-", "olmo3"},
    {"allenai/OLMoE-", "olmoe"},
    {"allenai/OLMo-", "olmo"},
    {"HuggingFaceTB/SmolLM3-", "smollm3"},
    {"internlm/internlm2", "internlm2"},
    {"baichuan-inc/Baichuan", "baichuan"},
    {"stabilityai/stablelm-", "stablelm"},
    {"CohereForAI/c4ai-command-r7b", "cohere2"},
    {"CohereForAI/c4ai-command-", "cohere"},
    {"EleutherAI/gpt-j-", "gptj"},
    {"EleutherAI/gpt-neo-", "gpt_neo"},
    {"EleutherAI/pythia-", "gpt_neox"},
    {"ibm-granite/granite-3", "granite"},
    {"openbmb/MiniCPM-", "minicpm"},
    {"nvidia/Nemotron-4", "nemotron"},
    {"nvidia/Minitron-", "nemotron"},
    {"ai21labs/Jamba-", "jamba"},
    {"ai21labs/AI21-Jamba-", "jamba"},
    {"state-spaces/mamba-", "mamba"},
    {"state-spaces/mamba2-", "mamba2"},
    {"RWKV/", "rwkv"},
    {"llava-hf/llava-1.5-", "llava"},
    {"distilbert", "distilbert"},
    {"answerdotai/ModernBERT-", "modernbert"},
};

enum { FAMILIES = sizeof families / sizeof families[0] };

const char *hub_config_refused(const char *name)
{
    for (int i = 0; i < FAMILIES; i++)
        if (!strncmp(name, families[i].begin, strlen(families[i].begin)))
            return families[i].type;
    return NULL;
}

int hub_config_refuse(const char *where, const char *type, struct error *err)
{
    int i = 0;
    while (i < REFUSED && strcmp(refused[i].type, type))
        i++;
    if (i == REFUSED)
        return error_set(err, "%s: model_type \"%.60s\" is not supported; " SUPPORTED, where, type);
    error_set(err, "%s: model_type \"%s\" is not supported, since it has %s; " SUPPORTED, where, type,
              refused[i].has);
    if (refused[i].checked)
        error_append(err, "; `memplan check` judges launches that train it with other frameworks");
    return -1;
}

const char *const *hub_config_checked_types(void)
{
    static const char *types[REFUSED + 1];
    int count = 0;
    for (int i = 0; i < REFUSED; i++)
        if (refused[i].checked)
            types[count++] = refused[i].type;
    return types;
}

/* ---- what is read ---- */

int hub_config_read(const json_t *config, const char *where, const char *type, struct model *out,
                    struct error *err)
{
    static const char *const llamas[] = {"llama", "mistral", "qwen2", "qwen3",
                                         "phi3",  "olmo2",   "gemma", "gemma3_text"};
    if (!strcmp(type, "gpt2"))
        return read_gpt2(config, where, out, err);
    for (size_t i = 0; i < sizeof llamas / sizeof llamas[0]; i++)
        if (!strcmp(type, llamas[i]))
            return read_llama(config, where, type, out, err);
    return hub_config_refuse(where, type, err);
}
