/* A few steps of a rank as a sequence of takes and releases. The order is the order in which frameworks do things, since the
 * allocator's fragments depend on it. */
#include "planner/frameworks/workload_memory.h"

#include "base/arena.h"
#include "base/checked.h"
#include "planner/frameworks/layer_rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS = 3,
    MATRICES = 5, /* enum layer_matrix; in the place of MATRIX_NONE: norms and what else is small */
    UNIT_TENSORS = MATRICES + 1,
    ROWS = LAYER_RULES_MOST,
    ENDS = 16,
};

/* Parameters that are gathered and reduced together: a layer, or an end of the model. Elements on this rank before any
 * sharding over dp. */
struct unit {
    double tensors[UNIT_TENSORS]; /* the last: experts */
    int weights[UNIT_TENSORS], gradients[UNIT_TENSORS], whole[UNIT_TENSORS], casts[UNIT_TENSORS];
    int gathered, reduced, shard; /* flat buffers of collectives; the gradient's shard */
};

/* One micro-batch in one chunk: what is kept of it. */
struct pass {
    int *kept; /* [layers of the chunk][ROWS] */
    int ends[ENDS];
};

struct rank {
    const struct workload *w;
    struct replay *r;
    int64_t stage, layers, chunks;
    int64_t *first;     /* of the stage's layers, by chunk; one more: all */
    struct unit *units; /* layers, then the embedding, then the head */
    struct pass *passes;
    int64_t micro_batches;
    int *states; /* optimizer states and temporaries: whatever is released together */
    int state_count, state_room;

    bool has_states;
};

/* Gradients are in one buffer from the start (Megatron's param_and_grad_buffer.py, llm.c). */
static bool has_buffer(const struct workload *w)
{
    return w->library != WORKLOAD_TITAN && w->library != WORKLOAD_TRANSFORMERS &&
           (w->sharding == WORKLOAD_REPLICATED || w->sharding == WORKLOAD_DISTRIBUTED_OPTIMIZER);
}

static bool gathers(const struct workload *w)
{
    return w->sharding == WORKLOAD_FSDP1 || w->sharding == WORKLOAD_FSDP2 || w->sharding == WORKLOAD_ZERO3;
}

/* Over how many ranks parameters, gradients and optimizer states are split. */
static double shards_of(const struct workload *w, bool experts)
{
    double ranks = (double)(w->shard_ranks ? w->shard_ranks : w->dp * w->cp);
    return experts && ranks > (double)w->ep ? ranks / (double)w->ep : experts ? 1 : ranks;
}

static double shard_of(const struct rank *rank, int tensor)
{
    return rank->w->sharding == WORKLOAD_REPLICATED ? 1 : shards_of(rank->w, tensor == MATRICES);
}

static bool trains(const struct workload *w)
{
    return !w->lora_rank;
}

/* --- Units --- */

static void unit_clear(struct unit *unit)
{
    memset(unit, 0, sizeof *unit);
    for (int i = 0; i < UNIT_TENSORS; i++)
        unit->weights[i] = unit->gradients[i] = unit->whole[i] = unit->casts[i] = -1;
    unit->gathered = unit->reduced = unit->shard = -1;
}

static void layer_unit(const struct workload *w, int64_t layer, struct unit *unit)
{
    const struct workload_model *m = &w->model;
    double h = (double)m->hidden, tp = (double)w->tp;
    double proj = (double)m->heads * (double)(m->kv_rank ? m->value_size : m->head_size) * h;
    bool experts = m->experts && layer >= m->dense_layers;
    double ffn = experts ? (double)m->shared_ffn : (double)m->ffn;
    double mlp = (m->gated ? 3 : 2) * h * ffn, norms = (m->rms_norm ? 2 : 4) * h;
    double routed = experts ? (double)m->experts * (m->gated ? 3 : 2) * h * (double)m->expert_ffn : 0;
    unit_clear(unit);
    unit->tensors[MATRIX_NONE] = norms + (experts ? (double)m->experts * h : 0);
    unit->tensors[MATRIX_PROJ] = proj / tp;
    unit->tensors[MATRIX_UP] = mlp * (m->gated ? 2.0 / 3 : 0.5) / tp;
    unit->tensors[MATRIX_DOWN] = mlp / tp - unit->tensors[MATRIX_UP];
    unit->tensors[MATRICES] = routed / (double)w->ep / tp;
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
    unit_clear(embed);
    unit_clear(head);
    embed->tensors[MATRIX_UP] = first ? table : 0;
    embed->tensors[MATRIX_NONE] = first ? (double)(m->positions + m->token_types) * h : 0;
    head->tensors[MATRIX_UP] = !last              ? 0
                               : m->classes       ? (double)m->classes * h + (m->pooler ? h * h : 0)
                               : m->tied && first ? 0
                                                  : table;
    head->tensors[MATRIX_NONE] = last ? h : 0;
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

static double unit_elements(const struct unit *unit)
{
    double sum = 0;
    for (int t = 0; t < UNIT_TENSORS; t++)
        sum += unit->tensors[t];
    return sum;
}

static int64_t unit_count(const struct rank *rank)
{
    return rank->layers + 2;
}

/* --- States --- */

static void keep(struct rank *rank, double bytes, enum role role)
{
    if (rank->state_count == rank->state_room) {
        rank->state_room = rank->state_room ? 2 * rank->state_room : 256;
        rank->states = host_resize(rank->states, (size_t)rank->state_room * sizeof *rank->states);
    }
    rank->states[rank->state_count++] = replay_take(rank->r, bytes, role, REPLAY_COMPUTE);
}

static double frozen_bytes(const struct workload *w)
{
    /* NF4 with its blocks' scales, themselves quantized: 0.127 bits a parameter more (Dettmers et al. 2023, section 3). */
    return (double)w->frozen_bits / 8 + (w->frozen_bits == 4 ? 0.127 / 8 : 0);
}

static void take_weights(struct rank *rank)
{
    const struct workload *w = rank->w;
    bool sharded = gathers(w);
    if (w->offload_weights)
        return;
    for (int64_t u = 0; u < unit_count(rank); u++)
        for (int t = 0; t < UNIT_TENSORS; t++) {
            struct unit *unit = &rank->units[u];
            double bytes = trains(w) || u >= rank->layers ? w->weight_bytes : frozen_bytes(w);
            unit->weights[t] =
                replay_take(rank->r, bytes * unit->tensors[t] / (sharded ? shard_of(rank, t) : 1),
                            ROLE_PARAMETER, REPLAY_COMPUTE);
        }
}

static double trained_elements(const struct rank *rank, const struct unit *unit, int t)
{
    const struct workload *w = rank->w;
    if (trains(w))
        return unit->tensors[t];
    /* Two thin matrices beside each that has an adapter; all of about hidden's size. */
    double h = (double)w->model.hidden;
    bool layer = unit < &rank->units[rank->layers];
    return layer && t == MATRIX_QKV ? 2.0 * h * (double)w->lora_rank * w->lora_matrices / (double)w->tp : 0;
}

/* For each element that is trained. */
static void take_states(struct rank *rank, double bytes)
{
    if (bytes <= 0 || rank->w->offload_optimizer)
        return;
    for (int64_t u = 0; u < unit_count(rank); u++)
        for (int t = 0; t < UNIT_TENSORS; t++)
            keep(rank, bytes * trained_elements(rank, &rank->units[u], t) / shard_of(rank, t),
                 ROLE_OPTIMIZER);
}

static void take_moments(struct rank *rank)
{
    const struct workload *w = rank->w;
    if (rank->has_states)
        return;
    rank->has_states = true;
    switch (w->optimizer) {
    case WORKLOAD_ADAM:
        take_states(rank, w->moment_bytes);
        take_states(rank, w->moment_bytes);
        return;
    case WORKLOAD_ADAM8: {
        /* Transformers' Trainer asks bitsandbytes to keep those of embeddings in fp32 (GlobalOptimManager). */
        struct unit *embed = &rank->units[rank->layers];
        for (int moment = 0; moment < 2; moment++) {
            take_states(rank, 1 + 4.0 / 2048);
            keep(rank, w->library == WORKLOAD_TRANSFORMERS ? 3 * unit_elements(embed) : 0, ROLE_OPTIMIZER);
        }
        return;
    }
    case WORKLOAD_SGD_MOMENTUM:
        take_states(rank, w->moment_bytes);
        return;
    default: /* Adafactor's rows and columns are a thousandth */
        return;
    }
}

static double all_elements(const struct rank *rank)
{
    double sum = 0;
    for (int64_t u = 0; u < unit_count(rank); u++)
        for (int t = 0; t < UNIT_TENSORS; t++)
            sum += trained_elements(rank, &rank->units[u], t);
    return sum;
}

static double all_sharded(const struct rank *rank)
{
    double sum = 0;
    for (int64_t u = 0; u < unit_count(rank); u++)
        for (int t = 0; t < UNIT_TENSORS; t++)
            sum += trained_elements(rank, &rank->units[u], t) / shard_of(rank, t);
    return sum;
}

/* What is there before the first batch. */
static void take_start(struct rank *rank)
{
    const struct workload *w = rank->w;
    take_weights(rank);
    keep(rank, (double)w->cublas_bytes, ROLE_WORKSPACE);
    if (has_buffer(w))
        keep(rank, w->gradient_bytes * all_elements(rank), ROLE_GRADIENT);
    /* Seen in Megatron's golden logs of pipelines, and not where there is one stage: a 16-bit gradient of the head stays. */
    if (w->library == WORKLOAD_MEGATRON && w->pp > 1 && rank->stage == w->pp - 1)
        keep(rank, w->compute_bytes * (double)(w->model.vocab * w->model.hidden) / (double)w->tp,
             ROLE_GRADIENT);
    take_states(rank, w->master_bytes);
    switch (w->sharding) {
    case WORKLOAD_REPLICATED:
        /* DDP's reducer. */
        if (w->in_buckets && w->dp > 1)
            keep(rank, w->weight_bytes * all_elements(rank), ROLE_COMMUNICATION);
        break;
    case WORKLOAD_ZERO2: /* stage_1_and_2.py: averaged gradients of the partition */
        if (!w->offload_optimizer)
            keep(rank, w->gradient_bytes * all_sharded(rank), ROLE_GRADIENT);
        /* fallthrough */
    case WORKLOAD_ZERO1: /* two flat buckets, filled in turn, where communication overlaps */
        keep(rank, (double)w->bucket_elements * w->gradient_bytes, ROLE_COMMUNICATION);
        keep(rank, (double)w->bucket_elements * w->gradient_bytes, ROLE_COMMUNICATION);
        take_moments(rank); /* initialize_optimizer_states() */
        break;
    case WORKLOAD_ZERO3: /* stage3.py: the partition's gradients, one flat bucket */
        if (!w->offload_optimizer)
            keep(rank, w->compute_bytes * all_sharded(rank), ROLE_GRADIENT);
        keep(rank, (double)w->bucket_elements * w->compute_bytes, ROLE_COMMUNICATION);
        take_moments(rank);
        break;
    default:
        break;
    }
}

/* --- Parameters that are gathered where they are used --- */

static void gather_start(struct rank *rank, int64_t u)
{
    struct unit *unit = &rank->units[u];
    if (unit->gathered < 0)
        unit->gathered = replay_take(rank->r, rank->w->compute_bytes * unit_elements(unit),
                                     ROLE_COMMUNICATION, REPLAY_GATHER);
}

static bool is_whole(const struct unit *unit)
{
    for (int t = 0; t < UNIT_TENSORS; t++)
        if (unit->whole[t] >= 0)
            return true;
    return false;
}

/* FSDP2: a flat buffer on the gathering stream, copied out to tensors (fsdp_param_group.py, unshard(), wait_for_unshard()).
 * FSDP1: the flat buffer is what views look into (_flat_param.py). `next` is gathered meanwhile, -1: nothing is. */
static void gather(struct rank *rank, int64_t u, int64_t next)
{
    const struct workload *w = rank->w;
    if (!gathers(w))
        return;
    struct unit *unit = &rank->units[u];
    bool copies = w->sharding == WORKLOAD_FSDP2;
    if (!is_whole(unit) && (copies || unit->gathered < 0)) {
        gather_start(rank, u);
        for (int t = 0; copies && t < UNIT_TENSORS; t++)
            unit->whole[t] =
                replay_take(rank->r, w->compute_bytes * unit->tensors[t], ROLE_PARAMETER, REPLAY_COMPUTE);
    }
    if (next >= 0 && !is_whole(&rank->units[next]))
        gather_start(rank, next);
    if (copies)
        replay_drop(rank->r, &unit->gathered);
}

static void scatter(struct rank *rank, int64_t u)
{
    struct unit *unit = &rank->units[u];
    replay_drop(rank->r, &unit->gathered);
    for (int t = 0; t < UNIT_TENSORS; t++)
        replay_drop(rank->r, &unit->whole[t]);
}

/* Autocast: weights are cast where they are used, and what backward reads stays (autocast_mode.cpp, cached_cast()). */
static void cast_weights(struct rank *rank, int64_t u)
{
    const struct workload *w = rank->w;
    struct unit *unit = &rank->units[u];
    if (!w->autocast || gathers(w))
        return;
    for (int t = 1; t < UNIT_TENSORS; t++)
        if (unit->casts[t] < 0)
            unit->casts[t] =
                replay_take(rank->r, w->compute_bytes * unit->tensors[t], ROLE_WORKSPACE, REPLAY_COMPUTE);
}

static void drop_casts(struct rank *rank, int64_t u)
{
    for (int t = 0; t < UNIT_TENSORS; t++)
        replay_drop(rank->r, &rank->units[u].casts[t]);
}

/* --- Gradients of weights --- */

static void weight_gradient(struct rank *rank, int64_t u, int t)
{
    const struct workload *w = rank->w;
    struct unit *unit = &rank->units[u];
    double elements = trained_elements(rank, unit, t);
    int made;
    if (has_buffer(w) && w->library != WORKLOAD_MEGATRON_LEGACY)
        return; /* gradient_accumulation_fusion: into the buffer */
    if (has_buffer(w) || w->sharding == WORKLOAD_ZERO2) {
        made = replay_take(rank->r, w->compute_bytes * elements, ROLE_GRADIENT, REPLAY_COMPUTE);
        replay_release(rank->r, made);
        return;
    }
    bool whole = gathers(w);
    double bytes = (whole || w->sharding == WORKLOAD_ZERO1 ? w->compute_bytes : w->weight_bytes) * elements;
    made = replay_take(rank->r, bytes, ROLE_GRADIENT, REPLAY_COMPUTE);
    if (unit->gradients[t] >= 0)
        replay_release(rank->r, made); /* added to the one that is there */
    else
        unit->gradients[t] = made;
}

/* The flat fp32 input of the reduction lives until the next unit's (fsdp_collectives.py, foreach_reduce()); its result, on
 * the reducing stream, is the gradient of the shard. */
static void reduce(struct rank *rank, int64_t u)
{
    const struct workload *w = rank->w;
    struct unit *unit = &rank->units[u];
    if (w->step_in_backward && !gathers(w))
        for (int t = 0; t < UNIT_TENSORS; t++)
            replay_drop(rank->r, &unit->gradients[t]);
    if (!gathers(w) || w->accumulates_without_sync)
        return;
    double elements = 0, sharded = 0;
    for (int t = 0; t < UNIT_TENSORS; t++) {
        elements += trained_elements(rank, unit, t);
        sharded += trained_elements(rank, unit, t) / shard_of(rank, t);
    }
    if (w->sharding != WORKLOAD_ZERO3)
        unit->reduced = replay_take(rank->r, w->reduce_bytes * elements, ROLE_COMMUNICATION, REPLAY_COMPUTE);
    for (int t = 0; t < UNIT_TENSORS; t++)
        replay_drop(rank->r, &unit->gradients[t]);
    if (w->sharding == WORKLOAD_ZERO3)
        return;
    if (u + 1 < unit_count(rank))
        replay_drop(rank->r, &rank->units[u + 1].reduced);
    int shard = replay_take(rank->r, w->weight_bytes * sharded, ROLE_GRADIENT, REPLAY_REDUCE);
    if (unit->shard >= 0 || w->step_in_backward)
        replay_release(rank->r, shard);
    else
        unit->shard = shard;
}

/* --- Layers --- */

struct temporaries {
    int tensors[ROWS], life[ROWS], count;
};

static void pass_time(struct rank *rank, struct temporaries *temporaries)
{
    for (int i = 0; i < temporaries->count; i++)
        if (temporaries->tensors[i] >= 0 && --temporaries->life[i] <= 0)
            replay_drop(rank->r, &temporaries->tensors[i]);
}

static void drop_all(struct rank *rank, struct temporaries *temporaries)
{
    for (int i = 0; i < temporaries->count; i++)
        replay_drop(rank->r, &temporaries->tensors[i]);
    temporaries->count = 0;
}

static unsigned layer_holds(const struct rank *rank, int64_t layer)
{
    const struct workload_model *m = &rank->w->model;
    return layer_conditions(rank->w, m->experts && layer >= m->dense_layers);
}

/* Global number of a layer of the stage: whether it is dense, or one of two, depends on it. Stages are spread in order. */
static int64_t global_layer(const struct rank *rank, int64_t local)
{
    return min_i64(rank->stage * rank->layers + local, rank->w->model.layers - 1);
}

/* `again`: the forward pass that recomputation runs in backward. */
static void layer_forward(struct rank *rank, int64_t local, int *kept, bool again)
{
    const struct workload *w = rank->w;
    int64_t layer = global_layer(rank, local);
    unsigned holds = layer_holds(rank, layer);
    struct temporaries temporaries = {.count = 0};
    for (int i = 0; i < layer_rule_count; i++) {
        const struct layer_rule *rule = &layer_rules[i];
        if ((rule->conditions & holds) != rule->conditions || kept[i] >= 0)
            continue;
        int tensor = replay_take(rank->r, layer_rule_bytes(w, rule), ROLE_ACTIVATION, REPLAY_COMPUTE);
        bool stays =
            again ? rule->life == LIFE_KEPT : layer_rule_kept(w, rule, layer) && !w->inputs_offloaded;
        pass_time(rank, &temporaries);
        if (stays) {
            kept[i] = tensor;
        } else if (tensor >= 0) {
            temporaries.tensors[temporaries.count] = tensor;
            temporaries.life[temporaries.count++] = rule->life == LIFE_KEPT ? LIFE_TWO : rule->life;
        }
    }
    drop_all(rank, &temporaries);
}

static bool has_gradient(const struct layer_rule *rule)
{
    return rule->element != ELEMENT_BYTE && rule->width != WIDTH_HEADS && rule->width != WIDTH_ROUTES &&
           rule->width != WIDTH_STATISTICS;
}

/* Backwards through what forward made: the gradient of each tensor is made from the one after it, which goes then, as what
 * was kept for it does (torch/csrc/autograd/engine.cpp releases a node's variables once it has run). */
static void layer_backward(struct rank *rank, int64_t local, int *kept)
{
    const struct workload *w = rank->w;
    unsigned holds = layer_holds(rank, global_layer(rank, local));
    int gradient =
        replay_take(rank->r, layer_rule_bytes(w, &layer_rules[0]), ROLE_ACTIVATION, REPLAY_COMPUTE);
    int stream = gradient, *used = NULL;
    if (w->recompute != WORKLOAD_KEEPS_ALL) {
        cast_weights(rank, local);
        layer_forward(rank, local, kept, true);
    }
    for (int i = layer_rule_count - 1; i >= 0; i--) {
        const struct layer_rule *rule = &layer_rules[i];
        if ((rule->conditions & holds) != rule->conditions)
            continue;
        if (!has_gradient(rule)) {
            replay_drop(rank->r, &kept[i]);
            continue;
        }
        int next = replay_take(rank->r, layer_rule_bytes(w, rule), ROLE_ACTIVATION, REPLAY_COMPUTE);
        if (rule->matrix != MATRIX_NONE)
            weight_gradient(rank, local, (int)rule->matrix);
        if (rule->matrix == MATRIX_DOWN)
            weight_gradient(rank, local, MATRICES);
        if (gradient != stream)
            replay_release(rank->r, gradient);
        if (used)
            replay_drop(rank->r, used);
        gradient = next;
        used = &kept[i];
    }
    weight_gradient(rank, local, MATRIX_NONE);
    replay_release(rank->r, gradient);
    replay_release(rank->r, stream);
    if (used)
        replay_drop(rank->r, used);
    drop_casts(rank, local);
}

/* --- Ends of the model --- */

enum { END_TOKENS, END_MASK, END_INPUT, END_NORM, END_LOGITS, END_LOSS /* and on */ };

static bool is_first(const struct rank *rank, int64_t chunk)
{
    return rank->stage == 0 && chunk == 0;
}

static bool is_last(const struct rank *rank, int64_t chunk)
{
    return chunk == rank->chunks - 1 && rank->stage == (rank->w->v_shaped ? 0 : rank->w->pp - 1);
}

static double hidden_bytes(const struct rank *rank)
{
    const struct workload *w = rank->w;
    return w->compute_bytes * (double)w->model.hidden * layer_tokens(w) /
           (double)(w->sequence_parallel ? w->tp : 1);
}

static void embed_forward(struct rank *rank, struct pass *pass)
{
    const struct workload *w = rank->w;
    pass->ends[END_TOKENS] = replay_take(rank->r, 8 * layer_tokens(w), ROLE_INPUT, REPLAY_COMPUTE);
    if (w->embedding_dropout)
        pass->ends[END_MASK] =
            replay_take(rank->r, hidden_bytes(rank) / w->compute_bytes, ROLE_ACTIVATION, REPLAY_COMPUTE);
}

static void embed_backward(struct rank *rank, struct pass *pass)
{
    weight_gradient(rank, rank->layers, MATRIX_UP);
    weight_gradient(rank, rank->layers, MATRIX_NONE);
    replay_drop(rank->r, &pass->ends[END_TOKENS]);
    replay_drop(rank->r, &pass->ends[END_MASK]);
}

static void head_forward(struct rank *rank, struct pass *pass)
{
    const struct workload *w = rank->w;
    unsigned holds = layer_conditions(w, false);
    struct temporaries temporaries = {.count = 0};
    int end = END_LOSS;
    pass->ends[END_INPUT] = replay_take(rank->r, hidden_bytes(rank), ROLE_ACTIVATION, REPLAY_COMPUTE);
    pass->ends[END_NORM] = replay_take(rank->r, hidden_bytes(rank), ROLE_ACTIVATION, REPLAY_COMPUTE);
    for (int i = 0; i < loss_forward_count; i++) {
        const struct loss_rule *rule = &loss_forward_rules[i];
        if (!(rule->losses >> w->loss & 1) || (rule->conditions & holds) != rule->conditions)
            continue;
        int tensor = replay_take(rank->r, loss_rule_bytes(w, rule), ROLE_ACTIVATION, REPLAY_COMPUTE);
        if (rule->life == LIFE_KEPT)
            pass->ends[end++] = tensor;
        else if (w->logits_held == loss_rule_element(w, rule) && pass->ends[END_LOGITS] < 0)
            pass->ends[END_LOGITS] = tensor;
        else
            temporaries.tensors[temporaries.count++] = tensor;
    }
    drop_all(rank, &temporaries);
}

static void head_backward(struct rank *rank, struct pass *pass)
{
    const struct workload *w = rank->w;
    unsigned holds = layer_conditions(w, false);
    struct temporaries temporaries = {.count = 0};
    int64_t table = w->model.tied && rank->stage == 0 ? rank->layers : rank->layers + 1;
    for (int i = 0; i < loss_backward_count; i++) {
        const struct loss_rule *rule = &loss_backward_rules[i];
        if (!(rule->losses >> w->loss & 1) || (rule->conditions & holds) != rule->conditions)
            continue;
        int tensor = replay_take(rank->r, loss_rule_bytes(w, rule), ROLE_ACTIVATION, REPLAY_COMPUTE);
        pass_time(rank, &temporaries);
        temporaries.tensors[temporaries.count] = tensor;
        temporaries.life[temporaries.count++] = rule->life;
        if (rule->life == LIFE_LAYER)
            for (int end = END_LOSS; end < ENDS; end++)
                replay_drop(rank->r, &pass->ends[end]);
    }
    int gradient = replay_take(rank->r, hidden_bytes(rank), ROLE_ACTIVATION, REPLAY_COMPUTE);
    weight_gradient(rank, table, MATRIX_UP);
    weight_gradient(rank, rank->layers + 1, MATRIX_NONE);
    for (int end = END_INPUT; end < ENDS; end++)
        if (end != END_LOGITS)
            replay_drop(rank->r, &pass->ends[end]);
    drop_all(rank, &temporaries);
    replay_release(rank->r, gradient);
}

/* --- Passes of the schedule --- */

static void forward(struct rank *rank, int64_t chunk, struct pass *pass)
{
    const struct workload *w = rank->w;
    int64_t from = rank->first[chunk], to = rank->first[chunk + 1], head = rank->layers + 1;
    bool last = is_last(rank, chunk), recomputes = w->recompute != WORKLOAD_KEEPS_ALL;
    bool resharded = w->reshards_after_forward && w->wraps_layers;
    if (is_first(rank, chunk)) {
        gather(rank, rank->layers, from);
        embed_forward(rank, pass);
        if (resharded)
            scatter(rank, rank->layers);
    }
    for (int64_t u = from; u < to; u++) {
        gather(rank, u, u + 1 < to ? u + 1 : last ? head : -1);
        cast_weights(rank, u);
        layer_forward(rank, u, pass->kept + (u - from) * ROWS, false);
        if (resharded && (u + 1 < to || w->sharding == WORKLOAD_FSDP1))
            scatter(rank, u);
    }
    if (last) {
        gather(rank, head, -1);
        head_forward(rank, pass);
    }
    for (int64_t u = from; recomputes && u < to; u++)
        drop_casts(rank, u);
}

/* A unit's gradients go to their ranks; where the whole model is one unit, at the end. */
static void unit_done(struct rank *rank, int64_t u)
{
    if (!rank->w->wraps_layers)
        return;
    reduce(rank, u);
    scatter(rank, u);
}

static void all_done(struct rank *rank)
{
    for (int64_t u = unit_count(rank) - 1; u >= 0 && !rank->w->wraps_layers; u--) {
        reduce(rank, u);
        scatter(rank, u);
    }
    for (int64_t u = 0; u < unit_count(rank); u++)
        replay_drop(rank->r, &rank->units[u].reduced);
}

static void backward(struct rank *rank, int64_t chunk, struct pass *pass)
{
    int64_t from = rank->first[chunk], to = rank->first[chunk + 1], head = rank->layers + 1;
    if (is_last(rank, chunk)) {
        gather(rank, head, to > from ? to - 1 : -1);
        head_backward(rank, pass);
        unit_done(rank, head);
    }
    for (int64_t u = to - 1; u >= from; u--) {
        gather(rank, u, u > from ? u - 1 : -1);
        layer_backward(rank, u, pass->kept + (u - from) * ROWS);
        unit_done(rank, u);
    }
    if (is_first(rank, chunk)) {
        gather(rank, rank->layers, -1);
        embed_backward(rank, pass);
        unit_done(rank, rank->layers);
    }
    replay_drop(rank->r, &pass->ends[END_LOGITS]);
    all_done(rank);
}

/* --- The optimizer --- */

/* Masters, or weights where there are none. */
static double update_bytes(const struct workload *w)
{
    return w->master_bytes ? w->master_bytes : w->weight_bytes;
}

static void update(struct rank *rank)
{
    const struct workload *w = rank->w;
    if (w->optimizer == WORKLOAD_NO_OPTIMIZER)
        return;
    take_moments(rank);
    int mark = rank->state_count;
    /* Float16OptimizerWithFloat16Params, stage_1_and_2.py, stage3.py (a sub-group of 1e9 elements at a time): masters need
     * gradients in their own type. */
    bool casts = w->master_bytes && w->master_bytes != w->gradient_bytes;
    if (w->sharding == WORKLOAD_ZERO3)
        keep(rank, w->offload_optimizer ? 0 : 4 * (all_sharded(rank) < 1e9 ? all_sharded(rank) : 1e9),
             ROLE_WORKSPACE);
    else if (casts && w->library != WORKLOAD_LLMC)
        take_states(rank, w->master_bytes);
    double largest = 0;
    for (int64_t u = 0; u < unit_count(rank); u++)
        for (int t = 0; t < UNIT_TENSORS; t++) {
            double elements = trained_elements(rank, &rank->units[u], t) / shard_of(rank, t);
            largest = elements > largest ? elements : largest;
        }
    if (w->step == WORKLOAD_STEP_FOREACH && !w->step_in_backward && w->optimizer == WORKLOAD_ADAM)
        take_states(rank,
                    update_bytes(w)); /* _multi_tensor_adamw: _foreach_sqrt of all second moments at once */
    else if (w->step == WORKLOAD_STEP_LOOP || w->optimizer == WORKLOAD_ADAFACTOR) {
        keep(rank, update_bytes(w) * largest, ROLE_WORKSPACE);
        keep(rank, update_bytes(w) * largest, ROLE_WORKSPACE);
    }
    while (rank->state_count > mark)
        replay_release(rank->r, rank->states[--rank->state_count]);
}

/* What backward made goes before the next forward, unless zero_grad() fills it with zeros instead. */
static void zero_gradients(struct rank *rank)
{
    bool torch_optimizer = rank->w->sharding == WORKLOAD_REPLICATED || gathers(rank->w);
    if (rank->w->old_torch && torch_optimizer && rank->w->sharding != WORKLOAD_ZERO3)
        return;
    for (int64_t u = 0; u < unit_count(rank); u++) {
        for (int t = 0; t < UNIT_TENSORS; t++)
            replay_drop(rank->r, &rank->units[u].gradients[t]);
        replay_drop(rank->r, &rank->units[u].shard);
    }
}

/* --- The whole --- */

static void rank_open(struct rank *rank)
{
    const struct workload *w = rank->w;
    rank->chunks = w->virtual_stages;
    rank->first = host_alloc((size_t)(rank->chunks + 1) * sizeof *rank->first);
    for (int64_t chunk = 0; chunk < rank->chunks; chunk++)
        rank->first[chunk + 1] = rank->first[chunk] + workload_chunk_layers(w, rank->stage, chunk);
    rank->layers = rank->first[rank->chunks];
    rank->units = host_alloc((size_t)unit_count(rank) * sizeof *rank->units);
    for (int64_t u = 0; u < rank->layers; u++)
        layer_unit(w, global_layer(rank, u), &rank->units[u]);
    end_units(rank);
    scale_units(rank);
    rank->passes = host_alloc((size_t)(rank->micro_batches * rank->chunks) * sizeof *rank->passes);
    for (int64_t i = 0; i < rank->micro_batches * rank->chunks; i++) {
        int64_t chunk = i % rank->chunks, rows = (rank->first[chunk + 1] - rank->first[chunk]) * ROWS;
        rank->passes[i].kept = host_alloc((size_t)(rows + 1) * sizeof(int));
        memset(rank->passes[i].kept, -1, (size_t)rows * sizeof(int));
        memset(rank->passes[i].ends, -1, sizeof rank->passes[i].ends);
    }
}

static void rank_close(struct rank *rank)
{
    for (int64_t i = 0; i < rank->micro_batches * rank->chunks; i++)
        free(rank->passes[i].kept);
    free(rank->passes);
    free(rank->units);
    free(rank->first);
    free(rank->states);
    replay_free(rank->r);
}

/* V-Half (Qi et al. 2024, "Pipeline parallelism with controllable memory"): two chunks a stage, of which the first stage has
 * both ends of the model. In all p + 2 passes of a chunk are kept, half of what 1F1B keeps. */
static struct schedule *v_half(int64_t pp, int64_t micro_batches)
{
    int64_t ahead = min_i64(pp + 1, micro_batches);
    struct schedule *s = host_alloc(sizeof *s + (size_t)(4 * micro_batches) * sizeof s->items[0]);
    for (int64_t m = 0; m < ahead; m++)
        s->items[s->count++] = (struct schedule_item){SCHEDULE_FORWARD, 0, (int)m};
    for (int64_t m = 0; m < micro_batches; m++) {
        s->items[s->count++] = (struct schedule_item){SCHEDULE_FORWARD, 1, (int)m};
        s->items[s->count++] = (struct schedule_item){SCHEDULE_BACKWARD, 1, (int)m};
        s->items[s->count++] = (struct schedule_item){SCHEDULE_BACKWARD, 0, (int)m};
        if (m + ahead < micro_batches)
            s->items[s->count++] = (struct schedule_item){SCHEDULE_FORWARD, 0, (int)(m + ahead)};
    }
    return s;
}

static void run_step(struct rank *rank, int step, const struct schedule *schedule,
                     struct workload_memory *out)
{
    bool first = step == 0, forwards_done = false;
    zero_gradients(rank);
    for (int i = 0; i < schedule->count; i++) {
        const struct schedule_item *item = &schedule->items[i];
        struct pass *pass = &rank->passes[item->micro_batch * rank->chunks + item->chunk];
        if (item->work == SCHEDULE_FORWARD) {
            replay_enter(rank->r, first ? REPLAY_FIRST_FORWARD : REPLAY_FORWARD);
            forward(rank, item->chunk, pass);
        } else if (item->work != SCHEDULE_BACKWARD_INPUT) {
            if (step == 1 && !forwards_done) {
                out->forward_allocated_bytes = replay_figures(rank->r).allocated_bytes;
                out->forward_reserved_bytes = replay_figures(rank->r).reserved_bytes;
                forwards_done = true;
            }
            replay_enter(rank->r, first ? REPLAY_FIRST_BACKWARD : REPLAY_BACKWARD);
            backward(rank, item->chunk, pass);
        }
    }
    replay_enter(rank->r, first ? REPLAY_FIRST_UPDATE : REPLAY_UPDATE);
    update(rank);
}

/* Enough micro-batches for every moment that a longer step has. */
static struct schedule_shape shape_of(const struct workload *w)
{
    int64_t m = w->micro_batches;
    if (w->virtual_stages > 1)
        m = min_i64(round_up(m, w->pp), 2 * w->pp);
    else
        m = w->schedule == SCHEDULE_GPIPE && w->pp > 1 ? m : min_i64(m, w->pp + 2);
    return (struct schedule_shape){w->pp == 1              ? SCHEDULE_1F1B
                                   : w->virtual_stages > 1 ? SCHEDULE_INTERLEAVED
                                                           : w->schedule,
                                   w->pp, w->virtual_stages, m};
}

static int replay_stage(const struct workload *w, int64_t stage, int64_t capacity,
                        struct workload_memory *out, struct error *err)
{
    struct schedule_shape shape = shape_of(w);
    struct schedule *schedule;
    struct caching_allocator_options options = {.capacity_bytes = capacity,
                                                .max_split_bytes = w->max_split_bytes,
                                                .expandable_segments = w->expandable_segments};
    if (w->v_shaped)
        schedule = v_half(w->pp, shape.micro_batches);
    else if (schedule_shape_check(&shape, err) || schedule_create(&shape, stage, &schedule, err))
        return -1;
    struct rank rank = {.w = w, .stage = stage, .micro_batches = shape.micro_batches};
    rank.r = replay_create(&options);
    rank_open(&rank);
    take_start(&rank);
    for (int step = 0; step < STEPS; step++) {
        run_step(&rank, step, schedule, out);
        if (!step) {
            out->first_allocated_bytes = replay_figures(rank.r).max_allocated_bytes;
            out->first_reserved_bytes = replay_figures(rank.r).max_reserved_bytes;
        }
    }
    struct caching_allocator_figures figures = replay_figures(rank.r);
    out->stage = stage;
    out->states_bytes = figures.allocated_bytes;
    out->peak = replay_peak(rank.r);
    out->reserved_bytes = figures.max_reserved_bytes;
    out->out_of_memory = figures.out_of_memory;
    out->retries = figures.retries;
    rank_close(&rank);
    schedule_free(schedule);
    return 0;
}

/* llm.c takes everything at start, in as many pieces as there are kinds, so its figure is a sum: gradients of activations are
 * two buffers for all layers (train_gpt2.cu, fill_in_grad_act_sizes()), 4 C and C wide. */
static void llmc_memory(const struct workload *w, struct workload_memory *out)
{
    struct rank rank = {.w = w};
    double hidden = hidden_bytes(&rank), kept = 2 * hidden;
    const struct loss_rule logits = {.element = ELEMENT_COMPUTE, .width = WIDTH_VOCAB};
    for (int64_t layer = 0; layer < w->model.layers; layer++)
        kept += layer_kept_bytes(w, layer);
    double states = (w->weight_bytes + w->gradient_bytes +
                     (w->master_bytes + 2 * w->moment_bytes) /
                         (w->sharding == WORKLOAD_REPLICATED ? 1.0 : (double)w->dp)) *
                    workload_parameters(w);
    out->states_bytes = (int64_t)states;
    out->peak.bytes = (int64_t)(states + kept + loss_rule_bytes(w, &logits) + 5 * hidden);
    out->first_allocated_bytes = out->first_reserved_bytes = out->reserved_bytes = out->peak.bytes;
}

/* Of each communicator: prediction.c has the readings. */
static int64_t nccl_bytes(const struct workload *w)
{
    int64_t groups = (w->dp > 1) + (w->tp > 1) + (w->pp > 1) + (w->cp > 1) + (w->ep > 1);
    return groups * (160LL << 20);
}

/* Fragments that the replay does not see, of activations: a log of Megatron-LM has 6% of the peak where the replay has none,
 * and runs at the edge agree (docs/memory-model.md). And a hundredth of the card, for handles and the driver: assumed. */
static const double unseen_share = 0.06;

int workload_stage_memory(const struct workload *w, int64_t stage, struct workload_memory *out,
                          struct error *err)
{
    *out = (struct workload_memory){0};
    if (workload_check(w, err))
        return -1;
    if (w->library == WORKLOAD_LLMC)
        llmc_memory(w, out);
    else if (replay_stage(w, stage, 0, out, err))
        return -1;
    out->context_bytes = w->context_bytes;
    out->nccl_bytes =
        w->library == WORKLOAD_LLMC ? 0 : nccl_bytes(w); /* it is in the reading of its context */
    out->device_bytes = out->reserved_bytes + out->context_bytes + out->nccl_bytes;
    out->doubt_bytes =
        (int64_t)(unseen_share * (double)out->peak.by_role[ROLE_ACTIVATION]) + w->capacity_bytes / 100;
    int64_t usable = w->capacity_bytes - out->doubt_bytes;
    if (!w->capacity_bytes || out->device_bytes <= usable)
        return 0;
    struct workload_memory within = {0};
    int64_t room = usable - out->context_bytes - out->nccl_bytes;
    if (replay_stage(w, stage, max_i64(room, 1), &within, err))
        return -1;
    out->out_of_memory = within.out_of_memory;
    out->retries = within.retries;
    return 0;
}

int workload_memory(const struct workload *w, struct workload_memory *out, struct error *err)
{
    const int64_t stages[] = {0, 1, w->pp - 1};
    *out = (struct workload_memory){0};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        struct workload_memory one;
        if (stages[i] < 0 || stages[i] >= w->pp || (i && stages[i] <= stages[i - 1]))
            continue;
        if (workload_stage_memory(w, stages[i], &one, err))
            return -1;
        one.out_of_memory |= out->out_of_memory;
        if (one.peak.bytes > out->peak.bytes)
            *out = one;
        else
            out->out_of_memory = one.out_of_memory;
    }
    return 0;
}
