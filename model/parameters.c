#include "model/parameters.h"

#include <math.h>

struct list {
    struct parameter *items;
    int count;
};

static void add(struct list *list, enum parameter_id id, const char *name, int64_t rows, int64_t columns,
                double std, double value)
{
    list->items[list->count++] = (struct parameter){
        .id = id,
        .name = name,
        .dims = {rows, columns},
        .count = columns ? rows * columns : rows,
        .decay = columns != 0,
        .init_std = std,
        .init_value = value,
    };
}

static void add_matrix(struct list *list, enum parameter_id id, const char *name, int64_t rows,
                       int64_t columns, double std)
{
    add(list, id, name, rows, columns, std, 0);
}

static void add_vector(struct list *list, enum parameter_id id, const char *name, int64_t rows, double value)
{
    add(list, id, name, rows, 0, 0, value);
}

static const double init_std = 0.02;

static void embed_parameters(const struct model *m, struct list *list)
{
    if (m->family == MODEL_ENCODER)
        return;
    add_matrix(list, PARAM_WTE, "wte", m->vocab, m->hidden, init_std);
    if (m->family == MODEL_GPT2)
        add_matrix(list, PARAM_WPE, "wpe", m->max_seq_len, m->hidden, init_std);
}

static void layer_parameters(const struct model *m, struct list *list)
{
    bool llama = m->family == MODEL_LLAMA;
    double residual_std = init_std / sqrt(2.0 * (double)m->layers);
    int64_t qkv = (m->heads + 2 * m->kv_heads) * m->head_size;
    add_vector(list, PARAM_NORM1, "norm1", m->hidden, 1);
    if (!llama)
        add_vector(list, PARAM_NORM1_BIAS, "norm1_bias", m->hidden, 0);
    add_matrix(list, PARAM_QKV, "qkv", qkv, m->hidden, init_std);
    if (m->qkv_bias)
        add_vector(list, PARAM_QKV_BIAS, "qkv_bias", qkv, 0);
    add_matrix(list, PARAM_PROJ, "proj", m->hidden, m->heads * m->head_size, residual_std);
    if (m->proj_bias)
        add_vector(list, PARAM_PROJ_BIAS, "proj_bias", m->hidden, 0);
    add_vector(list, PARAM_NORM2, "norm2", m->hidden, 1);
    if (!llama)
        add_vector(list, PARAM_NORM2_BIAS, "norm2_bias", m->hidden, 0);
    add_matrix(list, PARAM_UP, llama ? "gate_up" : "up", llama ? 2 * m->ffn : m->ffn, m->hidden, init_std);
    if (!llama)
        add_vector(list, PARAM_UP_BIAS, "up_bias", m->ffn, 0);
    add_matrix(list, PARAM_DOWN, "down", m->hidden, m->ffn, residual_std);
    if (!llama)
        add_vector(list, PARAM_DOWN_BIAS, "down_bias", m->hidden, 0);
}

static void head_parameters(const struct model *m, struct list *list)
{
    if (m->family != MODEL_ENCODER)
        add_vector(list, PARAM_FINAL_NORM, "final_norm", m->hidden, 1);
    if (m->family == MODEL_GPT2)
        add_vector(list, PARAM_FINAL_NORM_BIAS, "final_norm_bias", m->hidden, 0);
    if (!m->tied)
        add_matrix(list, PARAM_HEAD, "head", m->vocab, m->hidden, init_std);
    if (m->family == MODEL_ENCODER)
        add_vector(list, PARAM_HEAD_BIAS, "head_bias", m->vocab, 0);
}

int parameters_of(const struct model *model, enum part part, struct parameter out[PART_PARAMETERS_MAX])
{
    struct list list = {.items = out};
    if (part == PART_EMBED)
        embed_parameters(model, &list);
    else if (part == PART_LAYER)
        layer_parameters(model, &list);
    else
        head_parameters(model, &list);
    return list.count;
}

static int64_t part_count(const struct model *model, enum part part)
{
    struct parameter list[PART_PARAMETERS_MAX];
    int64_t count = 0;
    for (int i = 0, n = parameters_of(model, part, list); i < n; i++)
        count += list[i].count;
    return count;
}

int64_t model_parameters(const struct model *model)
{
    return part_count(model, PART_EMBED) + model->layers * part_count(model, PART_LAYER) +
           part_count(model, PART_HEAD);
}
