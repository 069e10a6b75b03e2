/* What is there from the first batch on, and what the optimizer makes. */
#include "planner/frameworks/workload_parts.h"

#include "base/arena.h"

#include <math.h>

/* Of what goes at the end, or when the optimizer is done. */
static void keep_tensor(struct rank *rank, int tensor)
{
    if (rank->state_count == rank->state_room) {
        rank->state_room = rank->state_room ? 2 * rank->state_room : 256;
        rank->states = host_resize(rank->states, (size_t)rank->state_room * sizeof *rank->states);
    }
    rank->states[rank->state_count++] = tensor;
}

static void keep(struct rank *rank, enum rank_rule rule, double bytes)
{
    keep_tensor(rank, workload_take(rank, rule, bytes, REPLAY_COMPUTE));
}

/* FSDP1 makes a flat parameter of each unit from its whole tensors, on the card, and then keeps a copy of its shard. */
static void flatten(struct rank *rank, int64_t from, int64_t to)
{
    const struct workload *w = rank->w;
    int mark = rank->state_count;
    double elements = 0;
    for (int64_t u = from; u < to; u++)
        for (int t = 0; t < UNIT_TENSORS; t++) {
            double whole = rank->units[u].tensors[t];
            elements += whole;
            keep_tensor(rank, workload_unit_take(rank, &rank->units[u], t, RANK_FLATTENED,
                                                 w->weight_bytes * whole, REPLAY_COMPUTE));
        }
    int flat = workload_unit_take(rank, &rank->units[from], MATRIX_NONE, RANK_FLATTENED,
                                  w->weight_bytes * elements, REPLAY_COMPUTE);
    while (rank->state_count > mark)
        replay_release(rank->r, rank->states[--rank->state_count]);
    replay_release(rank->r, flat);
}

static void flatten_units(struct rank *rank)
{
    int64_t count = workload_unit_count(rank);
    if (!rank->w->wraps_layers)
        flatten(rank, 0, count);
    for (int64_t u = 0; u < count && rank->w->wraps_layers; u++)
        flatten(rank, u, u + 1);
}

/* Transformer Engine keeps each matrix in fp8 and transposed from the first micro-batch on. */
static void take_fp8_weights(struct rank *rank)
{
    for (int64_t u = 0; u < rank->layers; u++)
        for (int t = MATRIX_QKV; t < UNIT_TENSORS; t++) {
            struct unit *unit = &rank->units[u];
            keep_tensor(rank, workload_unit_take(rank, unit, t, RANK_FP8_WEIGHT, 2 * unit->tensors[t],
                                                 REPLAY_COMPUTE));
        }
}

static void take_weights(struct rank *rank)
{
    const struct workload *w = rank->w;
    bool sharded = workload_gathers(w);
    if (w->offload_weights)
        return;
    if (w->sharding == WORKLOAD_FSDP1)
        flatten_units(rank);
    for (int64_t u = 0; u < workload_unit_count(rank); u++)
        for (int t = 0; t < UNIT_TENSORS; t++) {
            struct unit *unit = &rank->units[u];
            bool frozen = !workload_trains(w) && u < rank->layers;
            if (w->fp8_weights && u < rank->layers && t != MATRIX_NONE)
                continue; /* take_fp8_weights() has them */
            bool end = !workload_trains(w) && w->frozen_end_bytes && u >= rank->layers;
            double bytes = frozen ? workload_frozen_bytes(w) : end ? w->frozen_end_bytes : w->weight_bytes;
            unit->weights[t] = workload_unit_take(
                rank, unit, t, frozen ? RANK_FROZEN : RANK_WEIGHT,
                bytes * unit->tensors[t] / (sharded ? workload_shard_of(rank, t) : 1), REPLAY_COMPUTE);
        }
}

/* For each element that is trained. */
static void take_states(struct rank *rank, enum rank_rule rule, double bytes)
{
    if (bytes <= 0 || rank->w->offload_optimizer)
        return;
    for (int64_t u = 0; u < workload_unit_count(rank); u++)
        for (int t = 0; t < UNIT_TENSORS; t++)
            keep_tensor(rank, workload_unit_take(rank, &rank->units[u], t, rule,
                                                 bytes * workload_trained(rank, &rank->units[u], t) /
                                                     workload_shard_of(rank, t),
                                                 REPLAY_COMPUTE));
}

/* Beside the frozen weights. */
static void take_adapters(struct rank *rank)
{
    const struct workload *w = rank->w;
    for (int64_t u = 0; !workload_trains(w) && u < rank->layers; u++)
        for (int t = 0; t < UNIT_TENSORS; t++)
            keep_tensor(rank, workload_unit_take(rank, &rank->units[u], t, RANK_ADAPTER,
                                                 workload_trained_bytes(w) *
                                                     workload_trained(rank, &rank->units[u], t) /
                                                     (workload_gathers(w) ? workload_shard_of(rank, t) : 1),
                                                 REPLAY_COMPUTE));
}

static void take_moments(struct rank *rank)
{
    const struct workload *w = rank->w;
    if (rank->has_states)
        return;
    rank->has_states = true;
    switch (w->optimizer) {
    case WORKLOAD_ADAM:
        take_states(rank, RANK_MOMENT_1, w->moment_bytes);
        take_states(rank, RANK_MOMENT_2, w->moment_bytes);
        return;
    case WORKLOAD_ADAM8: {
        /* Transformers' Trainer asks bitsandbytes to keep those of embeddings in fp32 (GlobalOptimManager). */
        struct unit *embed = &rank->units[rank->layers];
        bool trained = w->library == WORKLOAD_TRANSFORMERS && workload_trains(w);
        for (int moment = 0; moment < 2; moment++) {
            take_states(rank, RANK_MOMENTS_8BIT, 1 + 4.0 / 2048);
            keep(rank, RANK_MOMENTS_EMBEDDING, trained ? 3 * workload_unit_elements(embed) : 0);
        }
        return;
    }
    case WORKLOAD_SGD_MOMENTUM:
        take_states(rank, RANK_MOMENT_1, w->moment_bytes);
        return;
    default: /* Adafactor's rows and columns are a thousandth */
        return;
    }
}

/* Of Megatron's own modules, not Transformer Engine's: what scores are added to, and the whole input of a linear layer with
 * sequence parallelism. */
static double memory_buffer_bytes(const struct workload *w)
{
    double tokens = layer_tokens(w) * w->compute_bytes;
    double scores = tokens * (double)w->model.heads * (double)w->sequence / (double)w->tp;
    double input = tokens * (double)w->model.hidden;
    bool gathers = w->sequence_parallel && w->tp > 1, adds = w->attention != WORKLOAD_FLASH;
    return w->library == WORKLOAD_MEGATRON_LEGACY ? fmax(adds ? scores : 0, gathers ? input : 0) : 0;
}

static double largest_trained(const struct rank *rank, bool sharded)
{
    double largest = 0;
    for (int64_t u = 0; u < workload_unit_count(rank); u++)
        for (int t = 0; t < UNIT_TENSORS; t++) {
            double elements = workload_trained(rank, &rank->units[u], t);
            largest = fmax(largest, sharded ? elements / workload_shard_of(rank, t) : elements);
        }
    return largest;
}

/* What is there before the first batch. */
void workload_start(struct rank *rank)
{
    const struct workload *w = rank->w;
    take_weights(rank);
    take_adapters(rank);
    keep(rank, RANK_CUBLAS, (double)w->cublas_bytes);
    keep(rank, RANK_MEMORY_BUFFER, memory_buffer_bytes(w));
    if (workload_has_buffer(w))
        keep(rank, RANK_GRADIENT_BUFFER, w->gradient_bytes * workload_all_trained(rank));
    /* Seen in Megatron's golden logs of pipelines, and not where there is one stage: a 16-bit gradient of the head stays. */
    if (w->library == WORKLOAD_MEGATRON && w->pp > 1 && rank->stage == w->pp - 1)
        keep(rank, RANK_HEAD_GRADIENT,
             w->compute_bytes * (double)(w->model.vocab * w->model.hidden) / (double)w->tp);
    if (w->fp8)
        take_fp8_weights(rank);
    take_states(rank, RANK_MASTER, w->master_bytes);
    switch (w->sharding) {
    case WORKLOAD_REPLICATED:
        /* DDP's reducer. */
        if (w->in_buckets && w->dp > 1)
            keep(rank, RANK_DDP_BUCKETS, workload_trained_bytes(w) * workload_all_trained(rank));
        break;
    case WORKLOAD_ZERO1:
    case WORKLOAD_ZERO2: /* stage_1_and_2.py: what a gradient goes through on its way to the host */
        if (w->offload_optimizer)
            keep(rank, RANK_OFFLOAD_BUFFER, w->compute_bytes * largest_trained(rank, false));
        break;
    case WORKLOAD_ZERO3: /* stage3.py: the partition's gradients, one flat bucket */
        if (!w->offload_optimizer)
            keep(rank, RANK_PARTITION_GRADIENT, w->gradient_bytes * workload_all_sharded(rank));
        workload_buckets_open(rank);
        break;
    default:
        break;
    }
}

/* --- The optimizer --- */

/* Masters, or weights where there are none. */
static double update_bytes(const struct workload *w)
{
    return w->master_bytes ? w->master_bytes : workload_trained_bytes(w);
}

/* DeepSpeed: gradients of the partition are put side by side, then cast; stage3.py does it for a sub-group of 1e9 elements at a
 * time. Those of ZeRO-1 and 2 go then. */
static void cast_partition(struct rank *rank)
{
    const struct workload *w = rank->w;
    double elements = workload_all_sharded(rank);
    if (w->offload_optimizer)
        return;
    if (w->sharding == WORKLOAD_ZERO3)
        elements = fmin(elements, 1e9);
    int flat = workload_take(rank, RANK_STEP_FLAT, w->gradient_bytes * elements, REPLAY_COMPUTE);
    if (w->master_bytes && w->master_bytes != w->gradient_bytes)
        keep(rank, RANK_STEP_CAST, w->master_bytes * elements);
    replay_drop(rank->r, &rank->partition);
    replay_release(rank->r, flat);
}

void workload_update(struct rank *rank)
{
    const struct workload *w = rank->w;
    if (w->optimizer == WORKLOAD_NO_OPTIMIZER)
        return;
    take_moments(rank);
    int mark = rank->state_count;
    /* Float16OptimizerWithFloat16Params: masters need gradients in their own type. */
    bool casts = w->master_bytes && w->master_bytes != w->gradient_bytes;
    if (workload_is_deepspeed(w))
        cast_partition(rank);
    else if (casts && w->library != WORKLOAD_LLMC)
        take_states(rank, RANK_STEP_CAST, w->master_bytes);
    double largest = largest_trained(rank, true);
    if (w->step == WORKLOAD_STEP_FOREACH && !w->step_in_backward && w->optimizer == WORKLOAD_ADAM)
        take_states(rank, RANK_STEP_FOREACH,
                    update_bytes(w)); /* _multi_tensor_adamw: _foreach_sqrt of all second moments at once */
    else if (w->step == WORKLOAD_STEP_LOOP || w->optimizer == WORKLOAD_ADAFACTOR) {
        keep(rank, RANK_STEP_LOOP, update_bytes(w) * largest);
        keep(rank, RANK_STEP_LOOP, update_bytes(w) * largest);
    }
    while (rank->state_count > mark)
        replay_release(rank->r, rank->states[--rank->state_count]);
}

/* What backward made goes before the next forward, unless zero_grad() fills it with zeros instead. */
void workload_zero_gradients(struct rank *rank)
{
    replay_drop(rank->r, &rank->partition); /* where no optimizer took it */
    bool torch_optimizer = rank->w->sharding == WORKLOAD_REPLICATED || workload_gathers(rank->w);
    if (rank->w->old_torch && torch_optimizer && rank->w->sharding != WORKLOAD_ZERO3)
        return;
    for (int64_t u = 0; u < workload_unit_count(rank); u++) {
        for (int t = 0; t < UNIT_TENSORS; t++)
            replay_drop(rank->r, &rank->units[u].gradients[t]);
        replay_drop(rank->r, &rank->units[u].shard);
    }
}
