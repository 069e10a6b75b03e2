#include "planner/frameworks/states_time.h"

#include "planner/frameworks/host_time.h"

#include <math.h>

/* Of a bucket of gradients, of which the last is never hidden: DDP's are of 25 MiB, 6.6 million fp32 elements (bucket_cap_mb), and
 * Megatron-LM's of 40 million (ddp_bucket_size); one size between them, assumed. */
static const double bucket_elements = 10e6;

/* Ranks that have equal parameters, and of these the ones that share out states. */
static struct work_group replicas(const struct workload *w)
{
    return (struct work_group){w->dp * w->cp, w->tp, w->tp * w->cp * w->dp};
}

static struct work_group shards(const struct workload *w)
{
    int64_t ranks = w->shard_ranks ? w->shard_ranks : w->dp * w->cp;
    return (struct work_group){ranks, w->tp, w->tp * ranks};
}

/* Copies of a shard, with hybrid sharding. */
static struct work_group copies(const struct workload *w)
{
    int64_t ranks = shards(w).ranks, all = w->dp * w->cp;
    return (struct work_group){all / ranks, w->tp * ranks, w->tp * all};
}

static int gradient_sent_bytes(const struct workload *w)
{
    switch (w->sharding) {
    case WORKLOAD_ZERO1:
    case WORKLOAD_ZERO2:
    case WORKLOAD_ZERO3: /* communication_data_type: that of the model */
        return w->compute_bytes;
    case WORKLOAD_FSDP1:
    case WORKLOAD_FSDP2:
        return w->reduce_bytes;
    default:
        return w->in_buckets ? w->weight_bytes : w->gradient_bytes;
    }
}

static double trained_share(const struct workload *w)
{
    double adapters = 0;
    if (!w->lora_rank)
        return 1;
    int64_t last = w->model.layers - 1;
    for (int matrix = MATRIX_NONE; matrix <= MATRIX_EXPERTS; matrix++)
        adapters += workload_adapter_parameters(w, (enum layer_matrix)matrix, w->model.experts > 0);
    return adapters / workload_layer_parameters(w, last);
}

/* Of a shard's element on its way from the host: FSDP casts it on the card. */
static int shard_bytes(const struct workload *w)
{
    return w->sharding == WORKLOAD_ZERO3 ? w->compute_bytes : w->weight_bytes;
}

/* Of `elements` that a rank would have whole. Shards that are on the host are fetched for each gather, and gradients that its
 * optimizer reads go there as they are reduced (stage_1_and_2.py, async_accumulate_grad_in_cpu_via_gpu(); FSDP's CPUOffloadPolicy). */
struct transfers states_time_transfers(const struct pricing *p, double elements)
{
    const struct workload *w = p->w;
    double gradients = gradient_sent_bytes(w) * elements * trained_share(w);
    struct work_group group = shards(w);
    double share = elements / (double)group.ranks;
    double from_host_s = w->offload_weights ? host_time_moved(shard_bytes(w) * share) : 0;
    double to_host_s = w->offload_optimizer ? host_time_moved(gradients / (double)group.ranks) : 0;
    if (!workload_gathers(w) && w->sharding != WORKLOAD_ZERO2)
        return (struct transfers){0};
    return (struct transfers){
        .gather_s =
            from_host_s +
            (workload_gathers(w) ? layer_time_collective(p, group, w->compute_bytes * elements, true) : 0),
        .reduce_s = to_host_s +
                    (w->accumulates_without_sync ? 0 : layer_time_collective(p, group, gradients, true)) +
                    layer_time_collective(p, copies(w), gradients / (double)group.ranks, false),
    };
}

bool states_time_routes(const struct workload *w, int64_t layer)
{
    return w->model.experts && layer >= w->model.dense_layers;
}

/* Elements of a stage that a rank has where nothing is shared out over dp, and those it updates. */
static double stage_elements(const struct workload *w, int64_t stage, double *own)
{
    double dense = 0, routed = 0, table = (double)(w->model.vocab * w->model.hidden);
    double sharing = w->sharding == WORKLOAD_REPLICATED ? 1 : (double)shards(w).ranks;
    for (int64_t v = 0; v < w->virtual_stages; v++) {
        int64_t from = workload_chunk_start(w, stage, v);
        for (int64_t i = 0; i < workload_chunk_layers(w, stage, v); i++)
            *(states_time_routes(w, from + i) ? &routed : &dense) += workload_layer_parameters(w, from + i);
    }
    bool first = stage == 0, last = stage == w->pp - 1;
    dense += first ? table + (double)(w->model.positions * w->model.hidden) : 0;
    dense += last && !w->model.classes && !(first && w->model.tied) ? table : 0;
    double here = (dense + routed / (double)w->ep) / (double)w->tp;
    *own = trained_share(w) * (dense / sharing + routed / fmax(sharing, (double)w->ep)) / (double)w->tp;
    return here;
}

/* Bytes read and written for each element by one update. */
static double update_bytes(const struct workload *w)
{
    double masters = w->master_bytes ? 2.0 * w->master_bytes + w->weight_bytes : 2.0 * w->weight_bytes;
    double gradient = fmax(w->gradient_bytes, w->master_bytes), moments = 4.0 * w->moment_bytes;
    switch (w->optimizer) {
    case WORKLOAD_NO_OPTIMIZER:
        return 0;
    case WORKLOAD_SGD:
        return gradient + masters;
    case WORKLOAD_SGD_MOMENTUM:
        return gradient + masters + 2.0 * w->moment_bytes;
    case WORKLOAD_ADAFACTOR: /* squares, their rows' and columns' means, the update, its own mean */
        return 4 * gradient + masters;
    case WORKLOAD_ADAM8:
    case WORKLOAD_PAGED_ADAM:
        return gradient + masters + 4;
    default:
        /* one operation after the other: decay, two averages, a root, a division, a sum, the step */
        return w->step == WORKLOAD_STEP_FUSED ? gradient + masters + moments
                                              : 3 * gradient + 2 * masters + 3 * moments;
    }
}

/* The update there, then weights on their way back, unless they are at home there. Where gradients are reduced once a step, they go
 * there just before it: with Megatron-LM's hybrid optimizer and with ZeRO-1. */
static double on_host(const struct pricing *p, double own)
{
    const struct workload *w = p->w;
    bool sent_before = workload_gathers(w) || w->sharding == WORKLOAD_ZERO2;
    double back = w->offload_weights ? 0 : w->weight_bytes * own;
    double there = sent_before ? 0 : w->gradient_bytes * own;
    return host_time_update(p, own) + host_time_moved(there) + host_time_moved(back);
}

double states_time_optimizer(const struct pricing *p, int64_t stage)
{
    const struct workload *w = p->w;
    double own, here = stage_elements(w, stage, &own);
    if (w->offload_optimizer)
        return on_host(p, own);
    bool whole = w->sharding == WORKLOAD_REPLICATED || w->sharding == WORKLOAD_DISTRIBUTED_OPTIMIZER ||
                 w->sharding == WORKLOAD_ZERO1;
    /* the norm and its scale read gradients, and write them once */
    double gradients = 3.0 * w->gradient_bytes * (whole ? here * trained_share(w) : own);
    double tensors = 9 * (double)w->model.layers / (double)w->pp;
    double launches = w->step == WORKLOAD_STEP_LOOP      ? 14 * tensors
                      : w->step == WORKLOAD_STEP_FOREACH ? 14
                                                         : 8;
    return layer_time_moved(p, launches, own * update_bytes(w) + gradients).card_s +
           (w->step == WORKLOAD_STEP_LOOP && layer_time_is_pytorch(w) ? launches * p->habits->host_s : 0);
}

/* Gradients that are reduced once a step, and weights gathered behind the update. `hiding_s`: the last backward pass, beside
 * which they may be. */
double states_time_reduced(const struct pricing *p, int64_t stage, double hiding_s)
{
    const struct workload *w = p->w;
    double own, here = stage_elements(w, stage, &own), trained = here * trained_share(w);
    double gradients = gradient_sent_bytes(w) * trained, reduce_s = 0, gather_s = 0;
    switch (w->sharding) {
    case WORKLOAD_REPLICATED:
        reduce_s = layer_time_collective(p, replicas(w), gradients, false);
        break;
    case WORKLOAD_DISTRIBUTED_OPTIMIZER:
    case WORKLOAD_ZERO1:
        reduce_s = layer_time_collective(p, shards(w), gradients, true);
        gather_s = layer_time_collective(p, shards(w), w->weight_bytes * trained, true);
        break;
    case WORKLOAD_ZERO2:
        gather_s = layer_time_collective(p, shards(w), w->weight_bytes * trained, true);
        break;
    default: /* FSDP, ZeRO-3: with each micro-batch, or held back until the last */
        reduce_s = w->accumulates_without_sync ? layer_time_collective(p, shards(w), gradients, true) : 0;
    }
    double last_s = reduce_s * fmin(bucket_elements / fmax(trained, 1), 1);
    return (w->overlaps_gradients ? fmax(reduce_s - hiding_s, last_s) : reduce_s) + gather_s;
}
