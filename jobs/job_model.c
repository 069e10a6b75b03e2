/* Sizes that are no model's, and how many parameters a model has. */
#include "jobs/job_model.h"

/* ---- check ---- */

/* At least as many as there are, in numbers that do not overflow. */
static double most_parameters(const struct job_model *m)
{
    const struct job_experts *e = &m->experts;
    const struct job_latent *l = &m->latent;
    double hidden = (double)m->hidden, heads = (double)m->heads;
    double attention = 4 * hidden * heads * (double)m->head_size +
                       2 * hidden * (double)(l->q_rank + l->kv_rank + l->rope_size) +
                       heads * (double)(l->nope_size + l->rope_size + l->value_size) *
                           (hidden + (double)(l->q_rank + l->kv_rank));
    double ffn =
        4 * hidden * ((double)m->ffn + (double)e->shared_ffn + (double)e->count * ((double)e->ffn + 1));
    double ends =
        hidden * (2 * (double)m->vocab + (double)m->max_seq_len + (double)m->token_types + 4 * hidden);
    return 2 * ((double)m->layers * (attention + ffn + 16 * hidden) + ends);
}

int job_model_check(const struct job_model *m, const char *where, struct error *err)
{
    const struct {
        const char *name;
        int64_t value, least, most;
    } fields[] = {
        {"layers", m->layers, 1, 100000},
        {"hidden size", m->hidden, 1, 1 << 20},
        {"heads", m->heads, 1, 1 << 16},
        {"key/value heads", m->kv_heads, 1, 1 << 16},
        {"head size", m->head_size, 1, 1 << 16},
        {"ffn size", m->ffn, 1, 1 << 24},
        {"vocabulary", m->vocab, 1, 1 << 26},
        {"positions", m->max_seq_len, 1, 1LL << 31},
        {"token types", m->token_types, 0, 1 << 16},
        {"experts", m->experts.count, 0, 1 << 16},
        {"active experts", m->experts.active, m->experts.count ? 1 : 0, m->experts.count},
        {"ffn size of experts", m->experts.ffn, m->experts.count ? 1 : 0, 1 << 24},
        {"ffn size of shared experts", m->experts.shared_ffn, 0, 1 << 26},
        {"dense layers", m->experts.dense_layers, 0, 100000},
        {"layers per layer of experts", m->experts.every, m->experts.count ? 1 : 0, 100000},
        {"rank of queries", m->latent.q_rank, 0, 1 << 20},
        {"rank of keys and values", m->latent.kv_rank, 0, 1 << 20},
        {"size of heads without positions", m->latent.nope_size, 0, 1 << 16},
        {"size of heads with positions", m->latent.rope_size, 0, 1 << 16},
        {"size of values", m->latent.value_size, 0, 1 << 16},
        {"further layers", m->extra_layers, 0, 100000},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].value < fields[i].least || fields[i].value > fields[i].most)
            return error_set(err, "%s: %s is %lld; it must be between %lld and %lld", where, fields[i].name,
                             (long long)fields[i].value, (long long)fields[i].least,
                             (long long)fields[i].most);
    if (m->heads % m->kv_heads)
        return error_set(err, "%s: %lld key/value heads do not divide %lld heads; correct one of them", where,
                         (long long)m->kv_heads, (long long)m->heads);
    if (most_parameters(m) > 4e18)
        return error_set(err, "%s: its parameters are more than 63 bits count; use smaller sizes", where);
    return 0;
}

/* ---- parameters ---- */

static int64_t norm_parameters(const struct job_model *m, int64_t width)
{
    return m->norm == JOB_RMS_NORM ? width : 2 * width;
}

static int64_t latent_parameters(const struct job_model *m)
{
    const struct job_latent *l = &m->latent;
    int64_t queries = m->heads * (l->nope_size + l->rope_size);
    int64_t q = l->q_rank ? m->hidden * l->q_rank + l->q_rank + l->q_rank * queries : m->hidden * queries;
    int64_t kv = m->hidden * (l->kv_rank + l->rope_size) + l->kv_rank +
                 l->kv_rank * m->heads * (l->nope_size + l->value_size);
    return q + kv + m->heads * l->value_size * m->hidden;
}

static int64_t attention_parameters(const struct job_model *m)
{
    if (m->latent.kv_rank)
        return latent_parameters(m);
    int64_t queries = m->heads * m->head_size, pairs = 2 * m->kv_heads * m->head_size;
    return m->hidden * (queries + pairs) + (m->qkv_bias ? queries + pairs : 0) + queries * m->hidden +
           (m->proj_bias ? m->hidden : 0) + (m->qk_norm ? 2 * norm_parameters(m, m->head_size) : 0);
}

static int64_t ffn_parameters(const struct job_model *m, int64_t ffn)
{
    int64_t in = m->gated ? 2 : 1;
    return (in + 1) * m->hidden * ffn + (m->ffn_bias ? in * ffn + m->hidden : 0);
}

static int64_t expert_layer_parameters(const struct job_model *m, int64_t experts)
{
    const struct job_experts *e = &m->experts;
    return experts * ffn_parameters(m, e->ffn) + m->hidden * e->count + (e->router_bias ? e->count : 0) +
           (e->shared_ffn ? ffn_parameters(m, e->shared_ffn) : 0) + (e->shared_gate ? m->hidden : 0);
}

int64_t job_model_expert_layers(const struct job_model *m)
{
    const struct job_experts *e = &m->experts;
    if (!e->count || m->layers <= e->dense_layers)
        return 0;
    /* Layer i, counted from 0, has experts when every-th of all: Qwen (i + 1) % every == 0, DeepSeek i % every == 0. */
    if (e->dense_layers)
        return (m->layers - 1) / e->every - (e->dense_layers - 1) / e->every;
    return m->layers / e->every;
}

static int64_t end_parameters(const struct job_model *m)
{
    int64_t table = m->vocab * m->hidden;
    int64_t head = m->classes ? m->classes * m->hidden : m->tied ? 0 : table;
    int64_t count = table + head + (m->head_bias ? m->vocab : 0) + norm_parameters(m, m->hidden);
    if (m->embedding_norm)
        count += norm_parameters(m, m->hidden);
    if (m->positions == JOB_LEARNED)
        count += m->max_seq_len * m->hidden;
    count += m->token_types * m->hidden;
    if (m->pooler)
        count += m->hidden * m->hidden + m->hidden;
    if (m->head_transform)
        count += m->hidden * m->hidden + m->hidden + norm_parameters(m, m->hidden);
    return count;
}

static int64_t count_parameters(const struct job_model *m, int64_t experts)
{
    int64_t with = job_model_expert_layers(m);
    int64_t norms = m->traits.residual == WORKLOAD_BESIDE_ONE_NORM ? 1 : m->traits.post_norms ? 4 : 2;
    return m->layers * (attention_parameters(m) + norms * norm_parameters(m, m->hidden)) +
           (m->layers - with) * ffn_parameters(m, m->ffn) + with * expert_layer_parameters(m, experts) +
           end_parameters(m);
}

int64_t job_model_parameters(const struct job_model *m)
{
    return count_parameters(m, m->experts.count);
}

int64_t job_model_active_parameters(const struct job_model *m)
{
    return count_parameters(m, m->experts.active);
}
