#include "model/parameters.h"

#include <math.h>

struct list {
    struct parameter *items;
    int count;
    int64_t tp;
};

/* `groups` is what stands stacked in the rows; unused ones are 0. */
static void add(struct list *list, enum parameter_id id, const char *name,
                const int64_t groups[PARAMETER_GROUPS], int64_t columns, enum sharing sharing, double std,
                double value)
{
    struct parameter *p = &list->items[list->count++];
    *p = (struct parameter){
        .id = id,
        .name = name,
        .dims = {0, sharing == SHARED_COLUMNS ? columns / list->tp : columns},
        .full_dims = {0, columns},
        .sharing = sharing,
        .decay = columns != 0,
        .init_std = std,
        .init_value = value,
    };
    for (int i = 0; i < PARAMETER_GROUPS; i++) {
        p->groups[i] = groups[i];
        p->full_dims[0] += groups[i];
        p->dims[0] += sharing == SHARED_ROWS ? (groups[i] + list->tp - 1) / list->tp : groups[i];
    }
    p->count = p->dims[0] * (columns ? p->dims[1] : 1);
    p->full_count = p->full_dims[0] * (columns ? columns : 1);
}

static void add_matrix(struct list *list, enum parameter_id id, const char *name, int64_t rows,
                       int64_t columns, enum sharing sharing, double std)
{
    add(list, id, name, (const int64_t[PARAMETER_GROUPS]){rows}, columns, sharing, std, 0);
}

static void add_vector(struct list *list, enum parameter_id id, const char *name, int64_t rows,
                       enum sharing sharing, double value)
{
    add(list, id, name, (const int64_t[PARAMETER_GROUPS]){rows}, 0, sharing, 0, value);
}

static const double init_std = 0.02;

static void embed_parameters(const struct model *m, struct list *list)
{
    if (m->family == MODEL_ENCODER)
        return;
    add_matrix(list, PARAM_WTE, "wte", m->vocab, m->hidden, SHARED_ROWS, init_std);
    if (m->family == MODEL_GPT2)
        add_matrix(list, PARAM_WPE, "wpe", m->max_seq_len, m->hidden, SHARED_NOT, init_std);
}

/* Norms begin as multiplication by 1. */
static double norm_start(const struct model *m)
{
    return m->norm_add_one ? 0 : 1;
}

static void attention_parameters(const struct model *m, struct list *list, double residual_std)
{
    int64_t queries = m->heads * m->head_size, keys = m->kv_heads * m->head_size;
    const int64_t qkv[PARAMETER_GROUPS] = {queries, keys, keys};
    add(list, PARAM_QKV, "qkv", qkv, m->hidden, SHARED_ROWS, init_std, 0);
    if (m->qkv_bias)
        add(list, PARAM_QKV_BIAS, "qkv_bias", qkv, 0, SHARED_ROWS, 0, 0);
    if (m->qk_norm) {
        enum sharing sharing = m->qk_norm_whole ? SHARED_ROWS : SHARED_NOT;
        add_vector(list, PARAM_Q_NORM, "q_norm", m->qk_norm_whole ? queries : m->head_size, sharing,
                   norm_start(m));
        add_vector(list, PARAM_K_NORM, "k_norm", m->qk_norm_whole ? keys : m->head_size, sharing,
                   norm_start(m));
    }
    add_matrix(list, PARAM_PROJ, "proj", m->hidden, queries, SHARED_COLUMNS, residual_std);
    if (m->proj_bias)
        add_vector(list, PARAM_PROJ_BIAS, "proj_bias", m->hidden, SHARED_NOT, 0);
}

static void mlp_parameters(const struct model *m, struct list *list, double residual_std)
{
    bool gated = m->family == MODEL_LLAMA;
    const int64_t up[PARAMETER_GROUPS] = {m->ffn, gated ? m->ffn : 0};
    add(list, PARAM_UP, gated ? "gate_up" : "up", up, m->hidden, SHARED_ROWS, init_std, 0);
    if (!gated)
        add_vector(list, PARAM_UP_BIAS, "up_bias", m->ffn, SHARED_ROWS, 0);
    add_matrix(list, PARAM_DOWN, "down", m->hidden, m->ffn, SHARED_COLUMNS, residual_std);
    if (!gated)
        add_vector(list, PARAM_DOWN_BIAS, "down_bias", m->hidden, SHARED_NOT, 0);
}

static void layer_parameters(const struct model *m, struct list *list)
{
    bool layer_norm = m->family != MODEL_LLAMA;
    bool before = m->norms != NORMS_BEHIND, behind = m->norms != NORMS_BEFORE;
    double residual_std = behind ? init_std : init_std / sqrt(2.0 * (double)m->layers);
    if (before)
        add_vector(list, PARAM_NORM1, "norm1", m->hidden, SHARED_NOT, norm_start(m));
    if (layer_norm)
        add_vector(list, PARAM_NORM1_BIAS, "norm1_bias", m->hidden, SHARED_NOT, 0);
    attention_parameters(m, list, residual_std);
    if (behind)
        add_vector(list, PARAM_POST_NORM1, "post_norm1", m->hidden, SHARED_NOT, norm_start(m));
    if (before)
        add_vector(list, PARAM_NORM2, "norm2", m->hidden, SHARED_NOT, norm_start(m));
    if (layer_norm)
        add_vector(list, PARAM_NORM2_BIAS, "norm2_bias", m->hidden, SHARED_NOT, 0);
    mlp_parameters(m, list, residual_std);
    if (behind)
        add_vector(list, PARAM_POST_NORM2, "post_norm2", m->hidden, SHARED_NOT, norm_start(m));
}

static void head_parameters(const struct model *m, struct list *list)
{
    if (m->family != MODEL_ENCODER)
        add_vector(list, PARAM_FINAL_NORM, "final_norm", m->hidden, SHARED_NOT, norm_start(m));
    if (m->family == MODEL_GPT2)
        add_vector(list, PARAM_FINAL_NORM_BIAS, "final_norm_bias", m->hidden, SHARED_NOT, 0);
    if (!m->tied)
        add_matrix(list, PARAM_HEAD, "head", m->vocab, m->hidden, SHARED_ROWS, init_std);
    if (m->family == MODEL_ENCODER)
        add_vector(list, PARAM_HEAD_BIAS, "head_bias", m->vocab, SHARED_ROWS, 0);
}

int parameters_of(const struct model *model, enum part part, int64_t tp,
                  struct parameter out[PART_PARAMETERS_MAX])
{
    struct list list = {.items = out, .tp = tp};
    if (part == PART_EMBED)
        embed_parameters(model, &list);
    else if (part == PART_LAYER)
        layer_parameters(model, &list);
    else if (part == PART_HEAD)
        head_parameters(model, &list);
    return list.count;
}

static int64_t part_count(const struct model *model, enum part part)
{
    struct parameter list[PART_PARAMETERS_MAX];
    int64_t count = 0;
    for (int i = 0, n = parameters_of(model, part, 1, list); i < n; i++)
        count += list[i].count;
    return count;
}

int64_t model_parameters(const struct model *model)
{
    return part_count(model, PART_EMBED) + model->layers * part_count(model, PART_LAYER) +
           part_count(model, PART_HEAD);
}

int64_t parameters_vocabulary_part(const struct model *model, int64_t tp)
{
    return (model->vocab + tp - 1) / tp;
}

/* Row `row` of the rank's part: its row in the whole, and how many rows follow it there. */
static int64_t global_row(const struct parameter *p, int64_t tp, int64_t rank, int64_t row, int64_t *rows)
{
    int64_t local_base = 0, global_base = 0;
    for (int i = 0; i < PARAMETER_GROUPS; i++) {
        int64_t part = (p->groups[i] + tp - 1) / tp;
        if (row < local_base + part) {
            int64_t within = rank * part + row - local_base;
            int64_t real = p->groups[i] - within;
            *rows = real > 0 && real < local_base + part - row ? real : local_base + part - row;
            return real > 0 ? global_base + within : -1;
        }
        local_base += part;
        global_base += p->groups[i];
    }
    *rows = 0;
    return -1;
}

int64_t parameters_stretch(const struct parameter *p, int64_t tp, int64_t rank, int64_t first,
                           int64_t *global_first)
{
    int64_t columns = p->dims[1] ? p->dims[1] : 1, row = first / columns, column = first % columns, rows;
    if (p->sharing == SHARED_NOT) {
        *global_first = first;
        return p->count - first;
    }
    if (p->sharing == SHARED_COLUMNS) {
        *global_first = row * p->full_dims[1] + rank * columns + column;
        return columns - column;
    }
    int64_t global = global_row(p, tp, rank, row, &rows);
    *global_first = global < 0 ? -1 : global * columns + column;
    return rows * columns - column;
}
