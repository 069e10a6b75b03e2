#include "planner/frameworks/adapters.h"

#include <math.h>

/* A linear layer of one of the model's layers. */
struct linear {
    unsigned bit;
    enum layer_matrix matrix;
    enum adapter_part part;
    double inputs, outputs;
};

enum { LINEARS = 14 };

/* `experts`: of a layer that has them, whose dense feed-forward is the shared experts'. */
static int list_linears(const struct workload *w, bool experts, struct linear list[LINEARS])
{
    const struct workload_model *m = &w->model;
    double h = (double)m->hidden, heads = (double)m->heads, head = (double)m->head_size;
    double kv = (double)m->kv_heads * head, ffn = (double)(experts ? m->shared_ffn : m->ffn);
    double query = m->kv_rank ? heads * (double)(m->nope_size + m->rope_size) : heads * head;
    double mixed = m->kv_rank ? heads * (double)m->value_size : heads * head;
    double expert = experts ? (double)m->expert_ffn : 0, routes = experts ? (double)m->experts : 0;
    double latent = (double)m->kv_rank;
    const struct linear all[LINEARS] = {
        {LINEAR_Q, MATRIX_QKV, ADAPTERS_OF_ATTENTION, m->q_rank ? (double)m->q_rank : h, query},
        {LINEAR_Q_DOWN, MATRIX_QKV, ADAPTERS_OF_ATTENTION, h, (double)m->q_rank},
        {LINEAR_K, MATRIX_QKV, ADAPTERS_OF_ATTENTION, h, kv},
        {LINEAR_V, MATRIX_QKV, ADAPTERS_OF_ATTENTION, h, kv},
        {LINEAR_QKV, MATRIX_QKV, ADAPTERS_OF_ATTENTION, h, query + 2 * kv},
        {LINEAR_KV_DOWN, MATRIX_QKV, ADAPTERS_OF_ATTENTION, h, latent + (double)m->rope_size},
        {LINEAR_KV_UP, MATRIX_QKV, ADAPTERS_OF_ATTENTION, latent,
         heads * (double)(m->nope_size + m->value_size)},
        {LINEAR_O, MATRIX_PROJ, ADAPTERS_OF_ATTENTION, mixed, h},
        {LINEAR_GATE | LINEAR_UP, MATRIX_UP, ADAPTERS_OF_FFN, h, ffn},
        {LINEAR_GATE_UP, MATRIX_UP, ADAPTERS_OF_FFN, h, 2 * ffn},
        {LINEAR_DOWN, MATRIX_DOWN, ADAPTERS_OF_FFN, ffn, h},
        {LINEAR_ROUTER, MATRIX_NONE, ADAPTERS_OF_EXPERTS, h, routes},
        {LINEAR_EXPERT_GATE | LINEAR_EXPERT_UP, MATRIX_EXPERTS, ADAPTERS_OF_EXPERTS, h, expert},
        {LINEAR_EXPERT_DOWN, MATRIX_EXPERTS, ADAPTERS_OF_EXPERTS, expert, h},
    };
    int count = 0;
    for (int i = 0; i < LINEARS; i++)
        if (w->lora_rank && (w->lora_linears & all[i].bit) && all[i].inputs > 0 && all[i].outputs > 0)
            list[count++] = all[i];
    return count;
}

/* Gates and what they gate have one row. */
static int times(const struct workload *w, const struct linear *linear)
{
    return __builtin_popcount(w->lora_linears & linear->bit);
}

bool adapters_beside(const struct workload *w, unsigned linears)
{
    return w->lora_rank && (w->lora_linears & linears);
}

/* Two thin matrices beside each: inputs x rank and rank x outputs. */
double workload_adapter_parameters(const struct workload *w, enum layer_matrix matrix, bool experts)
{
    struct linear list[LINEARS];
    int count = list_linears(w, experts, list);
    double sum = 0;
    for (int i = 0; i < count; i++)
        if (list[i].matrix == matrix)
            sum += times(w, &list[i]) * (double)w->lora_rank * (list[i].inputs + list[i].outputs);
    return matrix == MATRIX_EXPERTS ? sum * (double)w->model.experts : sum;
}

/* ---- what they keep ---- */

/* PEFT has adapters in fp32 (autocast_adapter_dtype), which DeepSpeed and FSDP cast with the rest. */
static bool in_fp32(const struct workload *w)
{
    return w->library == WORKLOAD_TRANSFORMERS && w->sharding == WORKLOAD_REPLICATED;
}

/* PEFT's _cast_input_dtype(), then dropout, then autocast: each makes a tensor that nobody else has. */
static bool have_copies(const struct workload *w)
{
    bool cast = w->autocast || w->adapters_cast || (in_fp32(w) && w->compute_bytes == 2);
    return cast || w->lora_dropout;
}

bool adapters_share_input(const struct workload *w)
{
    return w->lora_rank && !have_copies(w);
}

int adapters_element_bytes(const struct workload *w)
{
    return in_fp32(w) && !w->autocast && !w->adapters_cast ? 4 : w->compute_bytes;
}

/* Tokens go to several experts; shared ones and the router see each once. */
static double of_part(const struct workload *w, enum adapter_part part, bool ranks)
{
    struct linear list[LINEARS];
    bool experts = part == ADAPTERS_OF_EXPERTS;
    int count = list_linears(w, experts, list);
    double sum = 0;
    for (int i = 0; i < count; i++) {
        double often = list[i].matrix == MATRIX_EXPERTS ? (double)w->model.active_experts : 1;
        bool here = list[i].part == part || (experts && list[i].part == ADAPTERS_OF_FFN);
        if (here)
            sum += times(w, &list[i]) * often * (ranks ? (double)w->lora_rank : list[i].inputs);
    }
    return sum;
}

double adapters_inputs(const struct workload *w, enum adapter_part part)
{
    return w->lora_rank && have_copies(w) ? of_part(w, part, false) : 0;
}

double adapters_widest_cast(const struct workload *w, enum adapter_part part)
{
    struct linear list[LINEARS];
    int count = list_linears(w, part == ADAPTERS_OF_EXPERTS, list);
    double widest = 0;
    for (int i = 0; i < count && in_fp32(w) && w->compute_bytes == 2; i++)
        if (list[i].part == part && list[i].matrix != MATRIX_EXPERTS)
            widest = fmax(widest, list[i].inputs);
    return widest;
}

double adapters_masks(const struct workload *w, enum adapter_part part)
{
    return w->lora_rank && w->lora_dropout ? of_part(w, part, false) : 0;
}

double adapters_products(const struct workload *w, enum adapter_part part)
{
    return of_part(w, part, true);
}
