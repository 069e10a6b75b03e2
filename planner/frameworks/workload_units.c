/* Units: parameters that are gathered and reduced together, and what comes and goes with them around a layer. */
#include "planner/frameworks/workload_parts.h"

#include "base/arena.h"

#include <math.h>
#include <string.h>

/* Gradients are in one buffer from the start (Megatron's param_and_grad_buffer.py, llm.c). */
bool workload_has_buffer(const struct workload *w)
{
    return w->library != WORKLOAD_TITAN && w->library != WORKLOAD_TRANSFORMERS &&
           (w->sharding == WORKLOAD_REPLICATED || w->sharding == WORKLOAD_DISTRIBUTED_OPTIMIZER);
}

/* Over how many ranks parameters, gradients and optimizer states are split. */
static double shards_of(const struct workload *w, bool experts)
{
    double ranks = (double)(w->shard_ranks ? w->shard_ranks : w->dp * w->cp);
    return experts && ranks > (double)w->ep ? ranks / (double)w->ep : experts ? 1 : ranks;
}

double workload_shard_of(const struct rank *rank, int tensor)
{
    return rank->w->sharding == WORKLOAD_REPLICATED ? 1 : shards_of(rank->w, tensor == MATRIX_EXPERTS);
}

bool workload_trains(const struct workload *w)
{
    return !w->lora_rank;
}

/* Of an element that is trained. PEFT has adapters in fp32 (autocast_adapter_dtype), which DeepSpeed and FSDP cast with the rest. */
int workload_trained_bytes(const struct workload *w)
{
    bool peft = w->lora_rank && w->library == WORKLOAD_TRANSFORMERS && w->sharding == WORKLOAD_REPLICATED;
    return peft ? 4 : w->weight_bytes;
}

double workload_frozen_bytes(const struct workload *w)
{
    /* NF4 with its blocks' scales, themselves quantized: 0.127 bits a parameter more (Dettmers et al. 2023, section 3). */
    return (double)w->frozen_bits / 8 + (w->frozen_bits == 4 ? 0.127 / 8 : 0);
}

double workload_trained(const struct rank *rank, const struct unit *unit, int t)
{
    const struct workload *w = rank->w;
    if (workload_trains(w))
        return unit->tensors[t];
    const struct unit *ends = &rank->units[rank->layers];
    bool experts = unit->tensors[MATRIX_EXPERTS] > 0;
    double ranks = (double)w->tp * (t == MATRIX_EXPERTS ? (double)w->ep : 1);
    return unit < ends ? workload_adapter_parameters(w, (enum layer_matrix)t, experts) / ranks : 0;
}

static void unit_clear(struct unit *unit, enum model_part part)
{
    memset(unit, 0, sizeof *unit);
    for (int i = 0; i < UNIT_TENSORS; i++)
        unit->weights[i] = unit->gradients[i] = unit->whole[i] = unit->casts[i] = -1;
    unit->gathered = unit->reduced = unit->shard = -1;
    unit->part = part;
}

static void layer_unit(const struct workload *w, int64_t layer, struct unit *unit)
{
    const struct workload_model *m = &w->model;
    double h = (double)m->hidden, tp = (double)w->tp;
    double proj = (double)m->heads * (double)(m->kv_rank ? m->value_size : m->head_size) * h;
    bool experts = m->experts && layer >= m->dense_layers;
    double ffn = experts ? (double)m->shared_ffn : (double)m->ffn;
    double mlp = (m->gated ? 3 : 2) * h * ffn, norms = workload_norm_parameters(w);
    double routed = experts ? (double)m->experts * (m->gated ? 3 : 2) * h * (double)m->expert_ffn : 0;
    unit_clear(unit, OF_LAYERS);
    unit->tensors[MATRIX_NONE] = norms + (experts ? (double)m->experts * h : 0);
    unit->tensors[MATRIX_PROJ] = proj / tp;
    unit->tensors[MATRIX_UP] = mlp * (m->gated ? 2.0 / 3 : 0.5) / tp;
    unit->tensors[MATRIX_DOWN] = mlp / tp - unit->tensors[MATRIX_UP];
    unit->tensors[MATRIX_EXPERTS] = routed / (double)w->ep / tp;
    unit->tensors[MATRIX_QKV] = (workload_layer_parameters(w, layer) - norms - mlp - routed - proj -
                                 (experts ? (double)m->experts * h : 0)) /
                                tp;
}

static void end_units(struct rank *rank)
{
    const struct workload *w = rank->w;
    const struct workload_model *m = &w->model;
    struct unit *embed = &rank->units[rank->layers], *head = embed + 1;
    double h = (double)m->hidden, table = (double)m->vocab * h / (double)w->tp;
    bool first = rank->stage == 0, last = rank->stage == w->pp - 1;
    if (w->v_shaped)
        last = first;
    unit_clear(embed, OF_EMBEDDING);
    unit_clear(head, OF_HEAD);
    embed->tensors[MATRIX_UP] = first ? table : 0;
    embed->tensors[MATRIX_NONE] = first ? (double)(m->positions + m->token_types) * h : 0;
    double outputs = m->classes ? (double)m->classes * h : m->tied && first ? 0 : table;
    head->tensors[MATRIX_UP] = last ? outputs + (m->pooler ? h * h : 0) : 0;
    head->tensors[MATRIX_NONE] =
        last ? h * (m->pooler ? 2 : 1) : 0; /* the last norm, and the pooler's bias */
}

/* Where the count is not what the model has, all matrices are scaled to what is stated. */
static void scale_units(struct rank *rank)
{
    double counted = workload_parameters(rank->w), stated = rank->w->model.parameters;
    /* Counts that are published leave out a table of the vocabulary, or have it twice. */
    double table = (double)(rank->w->model.vocab * rank->w->model.hidden);
    double scale = stated > 0 ? stated / counted : 1;
    if (fabs(stated - counted) < 1.1 * table + 0.02 * counted)
        return;
    for (int64_t u = 0; u < rank->layers; u++)
        for (int t = 0; t < UNIT_TENSORS; t++)
            rank->units[u].tensors[t] *= scale;
}

/* stage3_max_reuse_distance, in elements that are used until then: the layers behind it, forward and backward. */
bool workload_reused_soon(const struct rank *rank, int64_t u)
{
    const struct workload *w = rank->w;
    double between = 0;
    if (w->sharding != WORKLOAD_ZERO3)
        return false;
    for (int64_t next = u + 1; next < workload_unit_count(rank); next++)
        between += next == rank->layers ? 0 : 2 * workload_unit_elements(&rank->units[next]);
    return between + workload_unit_elements(&rank->units[u]) <= (double)w->reuse_elements;
}

double workload_all_trained(const struct rank *rank)
{
    double sum = 0;
    for (int64_t u = 0; u < workload_unit_count(rank); u++)
        for (int t = 0; t < UNIT_TENSORS; t++)
            sum += workload_trained(rank, &rank->units[u], t);
    return sum;
}

double workload_all_sharded(const struct rank *rank)
{
    double sum = 0;
    for (int64_t u = 0; u < workload_unit_count(rank); u++)
        for (int t = 0; t < UNIT_TENSORS; t++)
            sum += workload_trained(rank, &rank->units[u], t) / workload_shard_of(rank, t);
    return sum;
}

int workload_take(struct rank *rank, enum rank_rule rule, double bytes, int stream)
{
    return replay_take(rank->r, bytes, rank_rules[rule].role, LABEL_RANK + (int)rule * MODEL_PARTS, stream);
}

int workload_unit_take(struct rank *rank, const struct unit *unit, int t, enum rank_rule rule, double bytes,
                       int stream)
{
    enum model_part part = t == MATRIX_EXPERTS ? OF_EXPERTS : unit->part;
    return replay_take(rank->r, bytes, rank_rules[rule].role,
                       LABEL_RANK + (int)rule * MODEL_PARTS + (int)part, stream);
}

double workload_unit_elements(const struct unit *unit)
{
    double sum = 0;
    for (int t = 0; t < UNIT_TENSORS; t++)
        sum += unit->tensors[t];
    return sum;
}

int64_t workload_unit_count(const struct rank *rank)
{
    return rank->layers + 2;
}

/* Without layers that are wrapped the model is one unit. Else what is in no layer is one: FSDP's root, which is gathered from
 * forward to the end of backward, unless the ends are wrapped too; ZeRO-3 gathers each by itself. */
static void group_units(struct rank *rank)
{
    const struct workload *w = rank->w;
    int64_t count = workload_unit_count(rank);
    for (int64_t u = 0; u < count; u++) {
        rank->units[u].first = u;
        rank->units[u].count = 1;
    }
    int64_t first = !w->wraps_layers ? 0 : workload_is_fsdp(w) && !w->wraps_ends ? rank->layers : count;
    for (int64_t u = first; u < count; u++) {
        rank->units[u].first = first;
        rank->units[u].count = count - first;
    }
}

void workload_units_open(struct rank *rank)
{
    rank->units = host_alloc((size_t)workload_unit_count(rank) * sizeof *rank->units);
    for (int64_t u = 0; u < rank->layers; u++)
        layer_unit(rank->w, workload_global_layer(rank, u), &rank->units[u]);
    end_units(rank);
    scale_units(rank);
    group_units(rank);
}

/* --- Parameters that are gathered where they are used --- */

static bool is_group(const struct unit *unit)
{
    return unit->count > 1;
}

/* Quantized weights are gathered as they are packed: FSDP sees their storage (bnb_4bit_quant_storage), ZeRO-3 their bytes. */
static double gathered_bytes(const struct rank *rank, const struct unit *unit, int t)
{
    const struct workload *w = rank->w;
    bool packed = !workload_trains(w) && w->frozen_bits < 16 && unit < &rank->units[rank->layers];
    double adapters = workload_trains(w) ? 0 : workload_trained(rank, unit, t);
    return (packed ? workload_frozen_bytes(w) : w->compute_bytes) * unit->tensors[t] +
           w->compute_bytes * adapters;
}

static void gather_start(struct rank *rank, int64_t u)
{
    struct unit *unit = &rank->units[rank->units[u].first];
    double bytes = 0;
    if (unit->gathered >= 0)
        return;
    for (int64_t i = 0; i < unit->count; i++)
        for (int t = 0; t < UNIT_TENSORS; t++)
            bytes += gathered_bytes(rank, unit + i, t);
    unit->gathered = workload_unit_take(rank, unit, MATRIX_NONE, RANK_GATHERED, bytes, REPLAY_GATHER);
}

static bool is_whole(const struct rank *rank, int64_t u)
{
    for (int t = 0; t < UNIT_TENSORS; t++)
        if (rank->units[u].whole[t] >= 0)
            return true;
    return false;
}

static void copy_out(struct rank *rank, struct unit *unit)
{
    for (int t = 0; t < UNIT_TENSORS; t++)
        if (unit->whole[t] < 0)
            unit->whole[t] =
                workload_unit_take(rank, unit, t, RANK_WHOLE, gathered_bytes(rank, unit, t), REPLAY_COMPUTE);
}

/* FSDP2: a flat buffer on the gathering stream, copied out to tensors (fsdp_param_group.py, unshard(), wait_for_unshard()).
 * FSDP1: the flat buffer is what views look into (_flat_param.py). `next` is gathered meanwhile, -1: nothing is. */
void workload_gather(struct rank *rank, int64_t u, int64_t next)
{
    const struct workload *w = rank->w;
    if (!workload_gathers(w))
        return;
    struct unit *unit = &rank->units[rank->units[u].first];
    bool copies = w->sharding == WORKLOAD_FSDP2;
    if (!is_whole(rank, u) && (copies || unit->gathered < 0)) {
        gather_start(rank, u);
        for (int64_t i = 0; copies && i < unit->count; i++)
            copy_out(rank, unit + i);
    }
    if (next >= 0 && !is_whole(rank, next))
        gather_start(rank, next);
    if (copies)
        replay_drop(rank->r, &unit->gathered);
}

static void scatter_group(struct rank *rank, int64_t first)
{
    struct unit *unit = &rank->units[first];
    replay_drop(rank->r, &unit->gathered);
    for (int64_t i = 0; i < unit->count; i++)
        for (int t = 0; t < UNIT_TENSORS; t++)
            replay_drop(rank->r, &unit[i].whole[t]);
}

void workload_scatter(struct rank *rank, int64_t u)
{
    if (!is_group(&rank->units[u]))
        scatter_group(rank, u);
}

/* ---- weights in another type where they are used ---- */

/* Frozen weights in 32 bits, of layers or of an end of the model. */
static bool casts_frozen(const struct workload *w, bool end)
{
    int bits = !end ? w->frozen_bits : 8 * (w->frozen_end_bytes ? w->frozen_end_bytes : w->weight_bytes);
    return w->autocast && !workload_gathers(w) && !workload_trains(w) && bits == 32;
}

/* Autocast keeps what it casts of weights that are trained until it ends, and backward what it reads until then
 * (autocast_mode.cpp, cached_cast(): requires_grad()). Of frozen ones backward's is all that stays, so that where `u` is
 * made again there is none from forward. */
void workload_cast_weights(struct rank *rank, int64_t u, bool made_again)
{
    const struct workload *w = rank->w;
    struct unit *unit = &rank->units[u];
    bool whole = workload_trains(w) || (casts_frozen(w, u >= rank->layers) && !made_again);
    if ((!w->autocast && !w->adapters_cast) || workload_gathers(w))
        return;
    for (int t = u < rank->layers ? MATRIX_NONE : MATRIX_UP; t < UNIT_TENSORS; t++) {
        double elements = (whole && t != MATRIX_NONE ? unit->tensors[t] : 0) +
                          (workload_trains(w) ? 0 : workload_trained(rank, unit, t));
        if (unit->casts[t] < 0)
            unit->casts[t] =
                workload_unit_take(rank, unit, t, RANK_CAST, w->compute_bytes * elements, REPLAY_COMPUTE);
    }
}

void workload_drop_casts(struct rank *rank, int64_t u)
{
    for (int t = 0; t < UNIT_TENSORS; t++)
        replay_drop(rank->r, &rank->units[u].casts[t]);
}

/* Frozen weights are made 16-bit for one product at a time, the largest of a kind counts: of queries, keys and values the first,
 * of a gated layer one of two. 8-bit ones are multiplied as they are, but in backward; and those that autocast casts stay where
 * nothing is made again. */
int workload_widen(struct rank *rank, int64_t u, enum layer_matrix matrix, bool backward)
{
    const struct workload *w = rank->w;
    const struct workload_model *m = &w->model;
    struct unit *unit = &rank->units[u];
    double q = (double)(m->heads * m->head_size), kv = (double)(m->kv_heads * m->head_size);
    double share = matrix == MATRIX_QKV ? q / (q + 2 * kv) : matrix == MATRIX_UP && m->gated ? 0.5 : 1;
    bool quantized = w->frozen_bits == 4 || (w->frozen_bits == 8 && backward);
    bool cast = casts_frozen(w, false) && !backward && layer_remade(w, workload_global_layer(rank, u));
    if (workload_trains(w) || matrix == MATRIX_NONE || !(quantized || cast))
        return -1;
    return workload_unit_take(rank, unit, (int)matrix, cast ? RANK_CAST : RANK_WIDENED,
                              share * w->compute_bytes * unit->tensors[matrix], REPLAY_COMPUTE);
}

/* --- Gradients of weights --- */

/* fully_shard() keeps gradients that are not reduced yet in the reduction's type (_fsdp_param.py,
 * to_accumulated_grad_if_needed()). */
static bool is_widened(const struct rank *rank)
{
    const struct workload *w = rank->w;
    return w->sharding == WORKLOAD_FSDP2 && !rank->syncs && w->reduce_bytes != w->compute_bytes;
}

static void add_gradient(struct rank *rank, struct unit *unit, int t, double bytes)
{
    int made = workload_unit_take(rank, unit, t, RANK_WEIGHT_GRADIENT, bytes, REPLAY_COMPUTE);
    if (unit->gradients[t] < 0 && !is_widened(rank)) {
        unit->gradients[t] = made;
        return;
    }
    if (unit->gradients[t] < 0)
        unit->gradients[t] =
            workload_unit_take(rank, unit, t, RANK_WEIGHT_GRADIENT,
                               bytes * rank->w->reduce_bytes / rank->w->compute_bytes, REPLAY_COMPUTE);
    replay_release(rank->r, made); /* added to the one that is there */
}

void workload_weight_gradient(struct rank *rank, int64_t u, int t)
{
    const struct workload *w = rank->w;
    struct unit *unit = &rank->units[u];
    double elements = workload_trained(rank, unit, t);
    if (workload_has_buffer(w) && w->library != WORKLOAD_MEGATRON_LEGACY)
        return; /* gradient_accumulation_fusion: into the buffer */
    if (workload_has_buffer(w) || w->sharding == WORKLOAD_ZERO2) {
        int made = workload_unit_take(rank, unit, t, RANK_WEIGHT_GRADIENT, w->compute_bytes * elements,
                                      REPLAY_COMPUTE);
        if (w->sharding == WORKLOAD_ZERO2 && made >= 0)
            workload_buckets_add(rank, elements);
        replay_release(rank->r, made);
        return;
    }
    int bytes = workload_gathers(w)             ? w->compute_bytes
                : w->sharding == WORKLOAD_ZERO1 ? w->gradient_bytes /* grad_accum */
                                                : workload_trained_bytes(w);
    add_gradient(rank, unit, t, bytes * elements);
    if (w->sharding == WORKLOAD_ZERO1)
        workload_buckets_add(rank, elements);
}

static void drop_gradients(struct rank *rank, struct unit *unit)
{
    for (int64_t i = 0; i < unit->count; i++)
        for (int t = 0; t < UNIT_TENSORS; t++)
            replay_drop(rank->r, &unit[i].gradients[t]);
}

/* FSDP1: autograd concatenates the gradients of the views, then casts them; FSDP2 copies them into the input. */
static int reduce_input(struct rank *rank, struct unit *unit, double elements)
{
    const struct workload *w = rank->w;
    double bytes = w->reduce_bytes * elements;
    int flat = -1, input;
    if (w->sharding == WORKLOAD_FSDP1) {
        flat = workload_unit_take(rank, unit, MATRIX_NONE, RANK_FLAT_GRADIENT, w->compute_bytes * elements,
                                  REPLAY_COMPUTE);
        drop_gradients(rank, unit);
        if (w->reduce_bytes == w->compute_bytes)
            return flat;
    }
    input = workload_unit_take(rank, unit, MATRIX_NONE, RANK_REDUCE_INPUT, bytes, REPLAY_COMPUTE);
    replay_release(rank->r, flat);
    return input;
}

/* The flat input of the reduction lives until the next unit's (fsdp_collectives.py, foreach_reduce()); its result, on the
 * reducing stream, is the gradient of the shard. ZeRO-3 has a buffer for both. */
static void reduce_group(struct rank *rank, int64_t u)
{
    const struct workload *w = rank->w;
    struct unit *unit = &rank->units[u];
    double elements = 0, sharded = 0;
    int64_t after = u + unit->count;
    for (int64_t i = 0; i < unit->count; i++)
        for (int t = 0; t < UNIT_TENSORS; t++) {
            elements += workload_trained(rank, unit + i, t);
            sharded += workload_trained(rank, unit + i, t) / workload_shard_of(rank, t);
        }
    if (w->sharding == WORKLOAD_ZERO3)
        workload_buckets_add(rank, elements);
    else
        unit->reduced = reduce_input(rank, unit, elements);
    drop_gradients(rank, unit);
    if (w->sharding == WORKLOAD_ZERO3)
        return;
    if (after < workload_unit_count(rank))
        replay_drop(rank->r, &rank->units[after].reduced);
    int shard = workload_unit_take(rank, unit, MATRIX_NONE, RANK_SHARD_GRADIENT, w->weight_bytes * sharded,
                                   REPLAY_REDUCE);
    if (unit->shard >= 0 || w->step_in_backward ||
        w->offload_weights) /* there or on its way to host memory */
        replay_release(rank->r, shard);
    else
        unit->shard = shard;
}

/* torch.distributed.pipelining keeps weights whole, and gradients, until the last micro-batch (stage.py,
 * backward_maybe_with_nosync()); no_sync() keeps gradients alone. */
static void group_done(struct rank *rank, int64_t u)
{
    if (rank->syncs)
        reduce_group(rank, u);
    if (rank->syncs || rank->w->pp == 1)
        scatter_group(rank, u);
}

void workload_unit_done(struct rank *rank, int64_t u)
{
    struct unit *unit = &rank->units[u];
    if (rank->w->step_in_backward && !workload_gathers(rank->w))
        for (int t = 0; t < UNIT_TENSORS; t++)
            replay_drop(rank->r, &unit->gradients[t]);
    if (workload_gathers(rank->w) && !is_group(unit))
        group_done(rank, u);
}

void workload_pass_done(struct rank *rank)
{
    for (int64_t u = 0; u < workload_unit_count(rank); u++)
        if (workload_gathers(rank->w) && is_group(&rank->units[u]) && rank->units[u].first == u)
            group_done(rank, u);
    for (int64_t u = 0; u < workload_unit_count(rank); u++)
        replay_drop(rank->r, &rank->units[u].reduced);
    if (workload_is_deepspeed(rank->w))
        workload_buckets_close(rank);
}
