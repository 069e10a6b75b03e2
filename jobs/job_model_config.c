/* Models from config.json: which keys a model_type has, and what they mean. */
#include "jobs/job_model.h"

#include "base/checked.h"

#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

enum value_kind { INTEGER, REAL, TRUTH, NAME };

struct key {
    const char *name;
    enum value_kind kind;
    size_t offset;
    bool required;
};

#define KEY(name, kind, field, required)                                                                     \
    {                                                                                                        \
        name, kind, offsetof(struct job_model, field), required                                              \
    }

static const struct key llama_keys[] = {
    KEY("num_hidden_layers", INTEGER, layers, true),
    KEY("hidden_size", INTEGER, hidden, true),
    KEY("num_attention_heads", INTEGER, heads, true),
    KEY("num_key_value_heads", INTEGER, kv_heads, false),
    KEY("head_dim", INTEGER, head_size, false),
    KEY("intermediate_size", INTEGER, ffn, true),
    KEY("vocab_size", INTEGER, vocab, true),
    KEY("max_position_embeddings", INTEGER, max_seq_len, false),
    KEY("tie_word_embeddings", TRUTH, tied, false),
    KEY("rms_norm_eps", REAL, norm_eps, false),
    KEY("rope_theta", REAL, rope_theta, false),
    KEY("attention_dropout", REAL, attention_dropout, false),
    KEY("mlp_bias", TRUTH, ffn_bias, false),
    KEY("hidden_act", NAME, activation, false),
    {0},
};

static const struct key mixtral_keys[] = {
    KEY("num_local_experts", INTEGER, experts.count, true),
    KEY("num_experts_per_tok", INTEGER, experts.active, true),
    {0},
};

static const struct key qwen_moe_keys[] = {
    KEY("num_experts", INTEGER, experts.count, true),
    KEY("num_experts_per_tok", INTEGER, experts.active, true),
    KEY("moe_intermediate_size", INTEGER, experts.ffn, true),
    KEY("shared_expert_intermediate_size", INTEGER, experts.shared_ffn, false),
    KEY("decoder_sparse_step", INTEGER, experts.every, false),
    {0},
};

static const struct key deepseek_keys[] = {
    KEY("n_routed_experts", INTEGER, experts.count, true),
    KEY("num_experts_per_tok", INTEGER, experts.active, true),
    KEY("moe_intermediate_size", INTEGER, experts.ffn, true),
    KEY("n_shared_experts", INTEGER, experts.shared_ffn, false), /* times experts.ffn, below */
    KEY("first_k_dense_replace", INTEGER, experts.dense_layers, false),
    KEY("moe_layer_freq", INTEGER, experts.every, false),
    KEY("q_lora_rank", INTEGER, latent.q_rank, false),
    KEY("kv_lora_rank", INTEGER, latent.kv_rank, true),
    KEY("qk_nope_head_dim", INTEGER, latent.nope_size, true),
    KEY("qk_rope_head_dim", INTEGER, latent.rope_size, true),
    KEY("v_head_dim", INTEGER, latent.value_size, true),
    KEY("num_nextn_predict_layers", INTEGER, extra_layers, false),
    {0},
};

static const struct key gpt2_keys[] = {
    KEY("n_layer", INTEGER, layers, true),
    KEY("n_embd", INTEGER, hidden, true),
    KEY("n_head", INTEGER, heads, true),
    KEY("n_inner", INTEGER, ffn, false),
    KEY("vocab_size", INTEGER, vocab, true),
    KEY("n_positions", INTEGER, max_seq_len, false),
    KEY("tie_word_embeddings", TRUTH, tied, false),
    KEY("layer_norm_epsilon", REAL, norm_eps, false),
    KEY("resid_pdrop", REAL, hidden_dropout, false),
    KEY("attn_pdrop", REAL, attention_dropout, false),
    KEY("activation_function", NAME, activation, false),
    {0},
};

/* Gemma's name of it, since Transformers 4.39. */
static const struct key gemma_keys[] = {
    KEY("hidden_activation", NAME, activation, false),
    {0},
};

static const struct key phi_keys[] = {
    KEY("layer_norm_eps", REAL, norm_eps, false),
    KEY("resid_pdrop", REAL, hidden_dropout, false),
    {0},
};

static const struct key neox_keys[] = {
    KEY("layer_norm_eps", REAL, norm_eps, false),
    KEY("rotary_emb_base", REAL, rope_theta, false),
    KEY("hidden_dropout", REAL, hidden_dropout, false),
    KEY("attention_bias", TRUTH, qkv_bias, false),
    {0},
};

static const struct key falcon_keys[] = {
    KEY("num_hidden_layers", INTEGER, layers, true),
    KEY("hidden_size", INTEGER, hidden, true),
    KEY("num_attention_heads", INTEGER, heads, true),
    KEY("num_kv_heads", INTEGER, kv_heads, false),
    KEY("ffn_hidden_size", INTEGER, ffn, false),
    KEY("vocab_size", INTEGER, vocab, true),
    KEY("max_position_embeddings", INTEGER, max_seq_len, false),
    KEY("tie_word_embeddings", TRUTH, tied, false),
    KEY("layer_norm_epsilon", REAL, norm_eps, false),
    KEY("rope_theta", REAL, rope_theta, false),
    KEY("hidden_dropout", REAL, hidden_dropout, false),
    KEY("attention_dropout", REAL, attention_dropout, false),
    KEY("bias", TRUTH, ffn_bias, false),
    KEY("alibi", TRUTH, traits.alibi, false),
    KEY("activation", NAME, activation, false),
    {0},
};

static const struct key opt_keys[] = {
    KEY("num_hidden_layers", INTEGER, layers, true),
    KEY("hidden_size", INTEGER, hidden, true),
    KEY("num_attention_heads", INTEGER, heads, true),
    KEY("ffn_dim", INTEGER, ffn, true),
    KEY("vocab_size", INTEGER, vocab, true),
    KEY("max_position_embeddings", INTEGER, max_seq_len, false),
    KEY("tie_word_embeddings", TRUTH, tied, false),
    KEY("dropout", REAL, hidden_dropout, false),
    KEY("attention_dropout", REAL, attention_dropout, false),
    KEY("enable_bias", TRUTH, ffn_bias, false),
    KEY("activation_function", NAME, activation, false),
    {0},
};

static const struct key bloom_keys[] = {
    KEY("n_layer", INTEGER, layers, true),
    KEY("hidden_size", INTEGER, hidden, true),
    KEY("n_head", INTEGER, heads, true),
    KEY("vocab_size", INTEGER, vocab, true),
    KEY("seq_length", INTEGER, max_seq_len, false),
    KEY("tie_word_embeddings", TRUTH, tied, false),
    KEY("layer_norm_epsilon", REAL, norm_eps, false),
    KEY("hidden_dropout", REAL, hidden_dropout, false),
    KEY("attention_dropout", REAL, attention_dropout, false),
    {0},
};

static const struct key bert_keys[] = {
    KEY("num_hidden_layers", INTEGER, layers, true),
    KEY("hidden_size", INTEGER, hidden, true),
    KEY("num_attention_heads", INTEGER, heads, true),
    KEY("intermediate_size", INTEGER, ffn, true),
    KEY("vocab_size", INTEGER, vocab, true),
    KEY("max_position_embeddings", INTEGER, max_seq_len, false),
    KEY("type_vocab_size", INTEGER, token_types, false),
    KEY("tie_word_embeddings", TRUTH, tied, false),
    KEY("layer_norm_eps", REAL, norm_eps, false),
    KEY("hidden_dropout_prob", REAL, hidden_dropout, false),
    KEY("attention_probs_dropout_prob", REAL, attention_dropout, false),
    KEY("hidden_act", NAME, activation, false),
    {0},
};

/* The activation's name: a longer one than there is room for is none that is known. */
static int read_name(const json_t *config, const char *key, const char *where, char *to, struct error *err)
{
    const char *name = NULL;
    if (jsonfile_text_optional(config, key, where, &name, err))
        return -1;
    if (name)
        snprintf(to, sizeof((struct job_model *)0)->activation, "%s", name);
    return 0;
}

static int read_keys(const struct key *keys, const json_t *config, const char *where, struct job_model *m,
                     struct error *err)
{
    for (; keys->name; keys++) {
        void *to = (char *)m + keys->offset;
        if (keys->required && json_is_null(json_object_get(config, keys->name)))
            return error_set(err, "%s: %s is null; give it a number", where, keys->name);
        int status = keys->kind == REAL    ? jsonfile_real_optional(config, keys->name, where, to, err)
                     : keys->kind == NAME  ? read_name(config, keys->name, where, to, err)
                     : keys->kind == TRUTH ? jsonfile_bool_optional(config, keys->name, where, to, err)
                     : keys->required      ? jsonfile_int(config, keys->name, where, to, err)
                                           : jsonfile_int_optional(config, keys->name, where, to, err);
        if (status)
            return -1;
    }
    return 0;
}

/* ---- types ---- */

static bool has_architecture(const json_t *config, const char *word)
{
    const json_t *list = json_object_get(config, "architectures");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strstr(name, word))
            return true;
    }
    return false;
}

/* Four times as wide as the model, where nothing is said. */
static int set_ffn(struct job_model *m, const char *where, struct error *err)
{
    if (!m->ffn && !checked_mul(4, m->hidden, &m->ffn))
        return error_set(err, "%s: its hidden size is %lld; correct it", where, (long long)m->hidden);
    return 0;
}

static int read_gpt2(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    m->positions = JOB_LEARNED;
    m->tied = m->qkv_bias = m->proj_bias = m->ffn_bias = true;
    m->norm_eps = 1e-5;
    m->max_seq_len = 1024;
    m->hidden_dropout = m->attention_dropout = 0.1;
    m->traits.softmax = WORKLOAD_SOFTMAX_AS_IT_IS;
    m->traits.joint_qkv = true;
    snprintf(m->activation, sizeof m->activation, "gelu_new");
    return read_keys(gpt2_keys, config, where, m, err) || set_ffn(m, where, err) ? -1 : 0;
}

/* A rotary GPT-2 whose feed-forward runs beside attention (modeling_gptj.py). */
static int read_gptj(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    m->positions = JOB_ROPE;
    m->ffn_bias = m->head_bias = true;
    m->norm_eps = 1e-5;
    m->max_seq_len = 2048;
    m->rope_theta = 10000;
    m->traits = (struct workload_traits){
        .residual = WORKLOAD_BESIDE_ONE_NORM, .softmax = WORKLOAD_SOFTMAX_FP32, .flash_2_alone = true};
    snprintf(m->activation, sizeof m->activation, "gelu_new");
    return read_keys(gpt2_keys, config, where, m, err) || set_ffn(m, where, err) ? -1 : 0;
}

static int read_bert(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    m->kind = JOB_ENCODER;
    m->positions = JOB_LEARNED;
    m->tied = m->qkv_bias = m->proj_bias = m->ffn_bias = true;
    m->norm_eps = 1e-12;
    m->traits.softmax = WORKLOAD_SOFTMAX_AS_IT_IS;
    m->max_seq_len = 512;
    m->token_types = 2;
    m->hidden_dropout = m->attention_dropout = 0.1;
    m->head_transform = m->head_bias = !has_architecture(config, "Model");
    m->pooler = !has_architecture(config, "MaskedLM");
    snprintf(m->activation, sizeof m->activation, "gelu");
    return read_keys(bert_keys, config, where, m, err);
}

/* BERT whose positions count from behind the padding token's, which is 1 (create_position_ids_from_input_ids()). */
static int read_roberta(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    m->unused_positions = 2;
    return read_bert(config, where, m, err);
}

static int read_neox(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    bool beside = true;
    m->positions = JOB_ROPE;
    m->qkv_bias = m->proj_bias = m->ffn_bias = true;
    m->norm_eps = 1e-5;
    m->rope_theta = 10000;
    m->max_seq_len = 2048;
    m->traits.joint_qkv = true;
    snprintf(m->activation, sizeof m->activation, "gelu");
    if (read_keys(llama_keys, config, where, m, err) || read_keys(neox_keys, config, where, m, err) ||
        jsonfile_bool_optional(config, "use_parallel_residual", where, &beside, err))
        return -1;
    m->proj_bias = m->qkv_bias;
    m->traits.residual = beside ? WORKLOAD_BESIDE : WORKLOAD_IN_TURN;
    return 0;
}

static int read_phi(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    m->positions = JOB_ROPE;
    m->qkv_bias = m->proj_bias = m->ffn_bias = m->head_bias = true;
    m->norm_eps = 1e-5;
    m->rope_theta = 10000;
    m->max_seq_len = 2048;
    m->traits.residual = WORKLOAD_BESIDE_ONE_NORM;
    snprintf(m->activation, sizeof m->activation, "gelu_new");
    if (read_keys(llama_keys, config, where, m, err) || read_keys(phi_keys, config, where, m, err) ||
        jsonfile_bool_optional(config, "qk_layernorm", where, &m->qk_norm, err))
        return -1;
    return 0;
}

/* modeling_falcon.py: of the new architecture keys and values are shared by groups of heads and each half has a norm, of the
 * old one (7B) all heads share them. What is taken out of the joint product by a list of indices is a copy. */
static int read_falcon(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    bool grouped = false, shared = true, beside = true;
    int64_t norms = 0;
    m->positions = JOB_ROPE;
    m->tied = true;
    m->norm_eps = 1e-5;
    m->rope_theta = 10000;
    m->max_seq_len = 2048;
    m->traits.softmax = WORKLOAD_SOFTMAX_AS_IT_IS;
    snprintf(m->activation, sizeof m->activation, "gelu");
    if (read_keys(falcon_keys, config, where, m, err) || set_ffn(m, where, err) ||
        jsonfile_bool_optional(config, "new_decoder_architecture", where, &grouped, err) ||
        jsonfile_bool_optional(config, "multi_query", where, &shared, err) ||
        jsonfile_bool_optional(config, "parallel_attn", where, &beside, err) ||
        jsonfile_int_optional(config, "num_ln_in_parallel_attn", where, &norms, err))
        return -1;
    m->qkv_bias = m->proj_bias = m->ffn_bias;
    m->kv_heads = grouped ? m->kv_heads : shared ? 1 : m->heads;
    m->positions = m->traits.alibi ? JOB_NO_POSITIONS : JOB_ROPE;
    m->traits.joint_qkv = !grouped && !shared;
    m->traits.flash_2_alone = m->kv_heads == 1 || m->traits.alibi;
    m->traits.residual = grouped && norms != 1 ? WORKLOAD_BESIDE
                         : grouped || beside   ? WORKLOAD_BESIDE_ONE_NORM
                                               : WORKLOAD_IN_TURN;
    return 0;
}

/* modeling_opt.py: its table of positions has two rows more than a text has. */
static int read_opt(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    bool norm_first = true;
    int64_t width = 0;
    m->positions = JOB_LEARNED;
    m->tied = m->ffn_bias = true;
    m->norm_eps = 1e-5;
    m->max_seq_len = 2048;
    m->unused_positions = 2;
    m->hidden_dropout = 0.1;
    snprintf(m->activation, sizeof m->activation, "relu");
    if (read_keys(opt_keys, config, where, m, err) ||
        jsonfile_bool_optional(config, "do_layer_norm_before", where, &norm_first, err) ||
        jsonfile_int_optional(config, "word_embed_proj_dim", where, &width, err))
        return -1;
    if (!norm_first || (width && width != m->hidden))
        return error_set(err,
                         "%s: an OPT of the kind of OPT-350m, with norms behind its halves and a narrower "
                         "table, is not known; another OPT is",
                         where);
    m->qkv_bias = m->proj_bias = m->ffn_bias;
    if (!checked_add(m->max_seq_len, m->unused_positions, &m->max_seq_len))
        return error_set(err, "%s: max_position_embeddings is too large; correct it", where);
    return 0;
}

static int read_bloom(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    m->positions = JOB_NO_POSITIONS;
    m->tied = m->qkv_bias = m->proj_bias = m->ffn_bias = m->embedding_norm = true;
    m->norm_eps = 1e-5;
    m->max_seq_len = 2048;
    m->traits = (struct workload_traits){.joint_qkv = true, .alibi = true, .flash_2_alone = true};
    snprintf(m->activation, sizeof m->activation, "gelu");
    return read_keys(bloom_keys, config, where, m, err) || set_ffn(m, where, err) ? -1 : 0;
}

static int read_llama(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    const char *type = m->type;
    bool bias = false;
    m->norm = JOB_RMS_NORM;
    m->positions = JOB_ROPE;
    m->gated = true;
    m->norm_eps = 1e-6;
    m->rope_theta = 10000;
    m->max_seq_len = 2048;
    snprintf(m->activation, sizeof m->activation, "silu");
    if (read_keys(llama_keys, config, where, m, err) ||
        jsonfile_bool_optional(config, "attention_bias", where, &bias, err))
        return -1;
    m->proj_bias = bias;
    m->qkv_bias = bias || !strcmp(type, "qwen2") || !strcmp(type, "qwen2_moe");
    m->qk_norm = !strncmp(type, "qwen3", 5);
    m->traits.joint_qkv = !strcmp(type, "phi3");
    return 0;
}

/* Whether a cap is there: null takes it away. */
static bool is_capped(const json_t *config, const char *key)
{
    const json_t *cap = json_object_get(config, key);
    return !cap || !json_is_null(cap);
}

/* Gemma, its second and its third. */
static int read_gemma(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    bool first = !strcmp(m->type, "gemma"), second = !strcmp(m->type, "gemma2");
    m->tied = true;
    m->head_size = 256;
    m->kv_heads = first ? 16 : 4;
    if (read_llama(config, where, m, err) || read_keys(gemma_keys, config, where, m, err))
        return -1;
    m->qk_norm = !first && !second;
    m->traits = (struct workload_traits){
        .norms_fp32 = true,
        .post_norms = !first,
        .scores_capped = second && is_capped(config, "attn_logit_softcapping"),
        .logits_capped = second && is_capped(config, "final_logit_softcapping"),
    };
    return 0;
}

static int read_mixtral(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    m->experts.every = 1;
    if (read_llama(config, where, m, err) || read_keys(mixtral_keys, config, where, m, err))
        return -1;
    m->experts.ffn = m->ffn;
    return 0;
}

static int read_qwen_moe(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    m->experts.every = 1;
    if (read_llama(config, where, m, err) || read_keys(qwen_moe_keys, config, where, m, err))
        return -1;
    m->experts.shared_gate = m->experts.shared_ffn > 0;
    return 0;
}

static int read_deepseek(const json_t *config, const char *where, struct job_model *m, struct error *err)
{
    m->experts.every = 1;
    if (read_llama(config, where, m, err) || read_keys(deepseek_keys, config, where, m, err))
        return -1;
    m->experts.router_bias = !strcmp(m->type, "deepseek_v3");
    if (!checked_mul(m->experts.shared_ffn, m->experts.ffn, &m->experts.shared_ffn) ||
        !checked_add(m->latent.nope_size, m->latent.rope_size, &m->head_size))
        return error_set(err, "%s: its sizes are more than 63 bits count; correct them", where);
    return 0;
}

static const struct {
    const char *type;
    int (*read)(const json_t *, const char *, struct job_model *, struct error *);
} types[] = {
    {"gpt2", read_gpt2},
    {"llama", read_llama},
    {"mistral", read_llama},
    {"qwen2", read_llama},
    {"qwen3", read_llama},
    {"phi3", read_llama},
    {"mixtral", read_mixtral},
    {"qwen2_moe", read_qwen_moe},
    {"qwen3_moe", read_qwen_moe},
    {"deepseek_v2", read_deepseek},
    {"deepseek_v3", read_deepseek},
    {"gpt_neox", read_neox},
    {"gptj", read_gptj},
    {"phi", read_phi},
    {"gemma", read_gemma},
    {"gemma2", read_gemma},
    {"gemma3_text", read_gemma},
    {"falcon", read_falcon},
    {"opt", read_opt},
    {"bloom", read_bloom},
    {"bert", read_bert},
    {"roberta", read_roberta},
    {"xlm-roberta", read_roberta},
};

/* The folder of config.json names the model best. */
static void name_from_path(struct job_model *m, const char *path)
{
    const char *slash = strrchr(path, '/'), *from = path, *end = path + strlen(path);
    if (slash && !strcmp(slash, "/config.json"))
        end = slash;
    for (const char *c = path; c < end; c++)
        if (*c == '/')
            from = c + 1;
    int length = (int)(end - from) < MODEL_NAME - 1 ? (int)(end - from) : MODEL_NAME - 1;
    snprintf(m->name, sizeof m->name, "%.*s", length, from);
}

/* "dtype" since transformers 4.56. */
static void read_dtype(const json_t *config, struct job_model *m)
{
    const char *dtype = json_string_value(json_object_get(config, "dtype"));
    if (!dtype)
        dtype = json_string_value(json_object_get(config, "torch_dtype"));
    snprintf(m->dtype, sizeof m->dtype, "%.15s", dtype ? dtype : "");
}

static int refuse_typeless(const json_t *config, const char *where, struct error *err)
{
    if (json_object_get(config, "memplan_plan"))
        return error_set(
            err, "%s: this is a plan of memplan's, and no model; name the model that it is about", where);
    if (json_object_get(config, "family"))
        return error_set(err,
                         "%s: this is a model of memplan's own, which other frameworks do not train; name a "
                         "preset, or the folder of a Hugging Face model",
                         where);
    return error_set(err,
                     "%s: it has no model_type, so whose layers these are is not known; add \"model_type\": "
                     "\"llama\", or what they are",
                     where);
}

static int refuse_type(const char *type, const char *where, struct error *err)
{
    size_t count = sizeof types / sizeof types[0];
    error_set(err, "%s: model_type \"%.40s\" is not known; ", where, type);
    for (size_t i = 0; i < count; i++)
        error_append(err, "%s%s", i == 0 ? "" : i == count - 1 ? " and " : ", ", types[i].type);
    error_append(err, " are");
    return -1;
}

int job_model_from_config(const json_t *config, const char *where, struct job_model *out, struct error *err)
{
    struct job_model m = {0};
    const char *type = NULL;
    name_from_path(&m, where);
    if (jsonfile_text_optional(config, "model_type", where, &type, err))
        return -1;
    if (!type)
        return refuse_typeless(config, where, err);
    snprintf(m.type, sizeof m.type, "%.*s", MODEL_NAME - 1, type);
    size_t i = 0, count = sizeof types / sizeof types[0];
    while (i < count && strcmp(types[i].type, type))
        i++;
    if (i == count)
        return refuse_type(type, where, err);
    if (types[i].read(config, where, &m, err))
        return -1;
    read_dtype(config, &m);
    if (!m.kv_heads)
        m.kv_heads = m.heads;
    if (!m.head_size && m.heads > 0)
        m.head_size = m.hidden / m.heads;
    if (job_model_check(&m, where, err))
        return -1;
    *out = m;
    return 0;
}
