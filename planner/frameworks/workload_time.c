#include "planner/frameworks/workload_time.h"

#include "base/arena.h"
#include "base/checked.h"
#include "planner/frameworks/layer_time.h"
#include "planner/timeline.h"

#include <math.h>
#include <stdlib.h>

/* Fitted, in round numbers, and how independently of what they are scored on: docs/time-model.md, section 10. */
const struct workload_habits workload_habits = {
    .host_s = 48e-6,
    .unhidden = 0.2,
    .message_wait_s = 1e-3,
    .straggle_s = 30e-6,
    .flash1_share = 0.6,
};

/* Schedules longer than this are not replayed. */
enum { MOST_ITEMS = 1 << 26 };

/* Of DDP's and Megatron-LM's buckets of gradients: about 25 MiB of fp32, 40 million elements; the last is never hidden. */
static const double bucket_elements = 10e6;

enum workload_attention workload_attention_run(const struct workload *w)
{
    /* Megatron-LM fused_softmax.py, is_kernel_available(). */
    bool megatron = w->library == WORKLOAD_MEGATRON || w->library == WORKLOAD_MEGATRON_LEGACY;
    bool takes = w->micro_batch * (w->model.heads / w->tp) % 4 == 0 && w->sequence % 4 == 0 &&
                 w->sequence > 16 && w->sequence <= 4096;
    return megatron && w->attention == WORKLOAD_FUSED_SOFTMAX && !takes ? WORKLOAD_EAGER : w->attention;
}

/* ------------------------------------------------------------------------------------------------------------ chunks */

static bool is_pytorch(const struct workload *w)
{
    return w->library != WORKLOAD_LLMC;
}

static bool gathers(const struct workload *w)
{
    return w->sharding == WORKLOAD_FSDP1 || w->sharding == WORKLOAD_FSDP2 || w->sharding == WORKLOAD_ZERO3;
}

static double pass_seconds(const struct pricing *p, struct clocks clocks)
{
    double host_s = is_pytorch(p->w) ? clocks.operations * p->habits->host_s : 0;
    return fmax(clocks.card_s, host_s) + p->habits->unhidden * fmin(clocks.card_s, host_s);
}

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

/* What a layer costs ranks that share it out: to gather it, and to reduce its gradients. */
struct transfers {
    double gather_s, reduce_s;
};

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
    if (!w->lora_rank)
        return 1;
    return 2.0 * (double)(w->lora_rank * w->lora_matrices * w->model.hidden) /
           workload_layer_parameters(w, 0);
}

/* Of `elements` that a rank would have whole. */
static struct transfers transfers_of(const struct pricing *p, double elements)
{
    const struct workload *w = p->w;
    double gradients = gradient_sent_bytes(w) * elements * trained_share(w);
    struct work_group group = shards(w);
    if (!gathers(w) && w->sharding != WORKLOAD_ZERO2)
        return (struct transfers){0};
    return (struct transfers){
        .gather_s = gathers(w) ? layer_time_collective(p, group, w->compute_bytes * elements, true) : 0,
        .reduce_s = (w->accumulates_without_sync ? 0 : layer_time_collective(p, group, gradients, true)) +
                    layer_time_collective(p, copies(w), gradients / (double)group.ranks, false),
    };
}

/* A chunk of layers, with the ends of the model that it has. */
struct chunk_time {
    double forward_s, backward_s, weight_s;
};

/* Passes over layers one by one, where each is gathered while the one before runs, and reduced while the next one does. The
 * first gather and the last reduction are not hidden. Where the model is one unit nothing is. */
struct train {
    bool overlaps;
    double end_s, waiting_s; /* so far; of what runs beside the next layer */
};

static void train_pass(struct train *train, double pass_s, double before_s, double after_s)
{
    if (!train->overlaps) {
        train->end_s += before_s + pass_s + after_s;
        return;
    }
    /* links carry one after the other: what the last layer left, and what the next one needs */
    double beside_s = train->waiting_s + before_s;
    train->end_s += fmax(pass_s, beside_s);
    train->waiting_s = after_s;
}

static double train_end(const struct train *train)
{
    return train->end_s + train->waiting_s;
}

static int64_t first_layer(const struct workload *w, int64_t chunk)
{
    int64_t first = 0;
    for (int64_t g = 0; g < chunk; g++)
        first += workload_chunk_layers(w, g % w->pp, g / w->pp);
    return first;
}

/* Layers are of four kinds at most: with experts or not, recomputed or not. */
struct layer_kinds {
    struct passes passes[4];
    struct transfers transfers[4];
    bool known[4];
};

static int kind_of(const struct workload *w, int64_t layer)
{
    return 2 * (w->model.experts && layer >= w->model.dense_layers) + (int)(layer % 2);
}

static int layer_kind(const struct pricing *p, struct layer_kinds *kinds, int64_t layer)
{
    const struct workload *w = p->w;
    int kind = kind_of(w, layer);
    if (!kinds->known[kind]) {
        double split = (double)w->tp * (kind > 1 ? (double)w->ep : 1);
        kinds->passes[kind] = layer_time(p, layer);
        kinds->transfers[kind] = transfers_of(p, workload_layer_parameters(w, layer) / split);
        kinds->known[kind] = true;
    }
    return kind;
}

static struct clocks backward_clocks(const struct passes *passes, bool apart)
{
    struct clocks sum = passes->backward;
    clocks_add(&sum, passes->again);
    if (!apart)
        clocks_add(&sum, passes->weight);
    return sum;
}

/* Layers that gather are walked one by one. */
static struct chunk_time walk_chunk(const struct pricing *p, struct layer_kinds *kinds, int64_t g, bool apart)
{
    const struct workload *w = p->w;
    int64_t chunks = w->pp * w->virtual_stages, from = first_layer(w, g);
    int64_t to = from + workload_chunk_layers(w, g % w->pp, g / w->pp);
    struct train ahead = {.overlaps = w->wraps_layers},
                 back = {.overlaps = w->wraps_layers && w->overlaps_gradients};
    struct passes ends = {0}, weights = {0};
    if (g == 0)
        ends = layer_time_embedding(p);
    if (g == chunks - 1) {
        struct passes head = layer_time_head(p);
        passes_add(&ends, &head);
    }
    double table = (double)(w->model.vocab * w->model.hidden) / (double)w->tp;
    struct transfers table_s = transfers_of(p, g == 0 || g == chunks - 1 ? table : 0);
    for (int64_t layer = from; layer < to; layer++) {
        int kind = layer_kind(p, kinds, layer);
        const struct transfers *t = &kinds->transfers[kind];
        struct clocks backward = backward_clocks(&kinds->passes[kind], apart);
        bool again = gathers(w) && w->reshards_after_forward;
        train_pass(&ahead, pass_seconds(p, kinds->passes[kind].forward), t->gather_s, 0);
        train_pass(&back, pass_seconds(p, backward), again ? t->gather_s : 0, t->reduce_s);
        clocks_add(&weights.weight, kinds->passes[kind].weight);
    }
    train_pass(&ahead, pass_seconds(p, ends.forward), table_s.gather_s, 0);
    train_pass(&back, pass_seconds(p, backward_clocks(&ends, false)), 0, table_s.reduce_s);
    return (struct chunk_time){train_end(&ahead), train_end(&back),
                               apart ? pass_seconds(p, weights.weight) : 0};
}

/* Others launch a chunk's operations in one stream: its clocks are added up first. */
static struct chunk_time add_chunk(const struct pricing *p, struct layer_kinds *kinds, int64_t g, bool apart)
{
    const struct workload *w = p->w;
    int64_t chunks = w->pp * w->virtual_stages, from = first_layer(w, g);
    int64_t to = from + workload_chunk_layers(w, g % w->pp, g / w->pp);
    struct passes sum = {0}, end;
    for (int64_t layer = from; layer < to; layer++)
        passes_add(&sum, &kinds->passes[layer_kind(p, kinds, layer)]);
    if (g == 0) {
        end = layer_time_embedding(p);
        passes_add(&sum, &end);
    }
    if (g == chunks - 1) {
        end = layer_time_head(p);
        passes_add(&sum, &end);
    }
    return (struct chunk_time){pass_seconds(p, sum.forward), pass_seconds(p, backward_clocks(&sum, apart)),
                               apart ? pass_seconds(p, sum.weight) : 0};
}

static struct chunk_time price_chunk(const struct pricing *p, struct layer_kinds *kinds, int64_t g)
{
    const struct workload *w = p->w;
    bool apart = w->pp > 1 && w->schedule == SCHEDULE_ZB_H1;
    bool moves = gathers(w) || w->sharding == WORKLOAD_ZERO2;
    struct chunk_time chunk = moves ? walk_chunk(p, kinds, g, apart) : add_chunk(p, kinds, g, apart);
    double wait_s = w->pp > 1 ? p->habits->message_wait_s : 0;
    chunk.forward_s += wait_s;
    chunk.backward_s += wait_s;
    chunk.weight_s += apart ? wait_s : 0;
    return chunk;
}

/* --------------------------------------------------------------------------------------------------- behind backward */

/* Elements of a stage that a rank has where nothing is shared out over dp, and those it updates. */
static double stage_elements(const struct workload *w, int64_t stage, double *own)
{
    double dense = 0, routed = 0, table = (double)(w->model.vocab * w->model.hidden);
    double sharing = w->sharding == WORKLOAD_REPLICATED ? 1 : (double)shards(w).ranks;
    for (int64_t v = 0; v < w->virtual_stages; v++) {
        int64_t from = first_layer(w, v * w->pp + stage);
        for (int64_t i = 0; i < workload_chunk_layers(w, stage, v); i++)
            *(kind_of(w, from + i) > 1 ? &routed : &dense) += workload_layer_parameters(w, from + i);
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

static double optimizer_seconds(const struct pricing *p, int64_t stage)
{
    const struct workload *w = p->w;
    double own, here = stage_elements(w, stage, &own);
    bool whole = w->sharding == WORKLOAD_REPLICATED || w->sharding == WORKLOAD_DISTRIBUTED_OPTIMIZER ||
                 w->sharding == WORKLOAD_ZERO1;
    /* the norm and its scale read gradients, and write them once */
    double gradients = 3.0 * w->gradient_bytes * (whole ? here * trained_share(w) : own);
    double tensors = 9 * (double)w->model.layers / (double)w->pp;
    double launches = w->step == WORKLOAD_STEP_LOOP      ? 14 * tensors
                      : w->step == WORKLOAD_STEP_FOREACH ? 14
                                                         : 8;
    return layer_time_moved(p, launches, own * update_bytes(w) + gradients).card_s +
           (w->step == WORKLOAD_STEP_LOOP && is_pytorch(w) ? launches * p->habits->host_s : 0);
}

/* Gradients that are reduced once a step, and weights gathered behind the update. `hiding_s`: the last backward pass, beside
 * which they may be. */
static double reduced_seconds(const struct pricing *p, int64_t stage, double hiding_s)
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

/* ------------------------------------------------------------------------------------------------------------- step */

static double message_seconds(const struct pricing *p)
{
    const struct workload *w = p->w;
    int64_t stage = w->tp * w->cp * w->dp;
    /* Megatron-LM's scatter-gather, or a sequence that is split anyway. */
    struct work work = {.bytes_sent = w->compute_bytes * p->tokens * (double)w->model.hidden / (double)w->tp,
                        .group = {2, stage, p->ranks}};
    return w->pp > 1 ? machine_speed_message_seconds(p->speed, &work, p->ranks) : 0;
}

static struct schedule_shape shape_of(const struct workload *w)
{
    enum schedule_kind kind = w->pp == 1              ? SCHEDULE_1F1B
                              : w->virtual_stages > 1 ? SCHEDULE_INTERLEAVED
                                                      : w->schedule;
    return (struct schedule_shape){kind, w->pp, w->virtual_stages, w->micro_batches};
}

/* Refuses what no rule prices. */
static int check(const struct workload *w, struct error *err)
{
    struct schedule_shape shape = shape_of(w);
    if (workload_check(w, err))
        return -1;
    if (w->offload_optimizer || w->offload_weights || w->inputs_offloaded)
        return error_set(err,
                         "no rule prices what waits in host memory; leave offloading out to see the rest");
    if (w->v_shaped)
        return error_set(err, "no rule prices V-shaped schedules; try 1f1b or zb-h1");
    if (w->tp > w->model.heads)
        return error_set(err, "tp %lld is more than %lld heads; try fewer ranks", (long long)w->tp,
                         (long long)w->model.heads);
    if (w->pp > 1 && (double)w->pp * (double)w->virtual_stages * (double)w->micro_batches > MOST_ITEMS)
        return error_set(err,
                         "%lld micro-batches on %lld stages are too many to replay; try fewer micro-batches",
                         (long long)w->micro_batches, (long long)w->pp);
    return w->pp > 1 ? schedule_shape_check(&shape, err) : 0;
}

/* When each stage is done with its passes: ends_s[pp]. */
static int replay(const struct pricing *p, const struct chunk_time *chunks, double *ends_s, struct error *err)
{
    const struct workload *w = p->w;
    struct schedule_shape shape = shape_of(w);
    size_t count = (size_t)(w->pp * w->virtual_stages);
    struct timeline *timeline;
    if (w->pp == 1) {
        ends_s[0] = (double)w->micro_batches * (chunks[0].forward_s + chunks[0].backward_s);
        return 0;
    }
    if (timeline_create(&shape, &timeline, err))
        return -1;
    double *passes = host_alloc(3 * count * sizeof *passes);
    for (size_t g = 0; g < count; g++) {
        passes[g] = chunks[g].forward_s;
        passes[count + g] = chunks[g].backward_s;
        passes[2 * count + g] = chunks[g].weight_s;
    }
    struct schedule_times times = {passes, passes + count, passes + 2 * count, message_seconds(p)};
    timeline_run(timeline, &times, ends_s);
    free(passes);
    timeline_free(timeline);
    return 0;
}

/* The stage whose passes, reduction and update end last. */
static void add_up(const struct pricing *p, const struct chunk_time *chunks, const double *ends_s,
                   struct workload_time *out)
{
    const struct workload *w = p->w;
    *out = (struct workload_time){0};
    for (int64_t stage = 0; stage < w->pp; stage++) {
        struct workload_time one = {0};
        for (int64_t v = 0; v < w->virtual_stages; v++) {
            const struct chunk_time *chunk = &chunks[v * w->pp + stage];
            one.passes_s +=
                (double)w->micro_batches * (chunk->forward_s + chunk->backward_s + chunk->weight_s);
            one.reduced_s += chunk->backward_s;
        }
        one.reduced_s = reduced_seconds(p, stage, one.reduced_s);
        one.optimizer_s = optimizer_seconds(p, stage);
        one.bubble_s = ends_s[stage] - one.passes_s;
        one.seconds = ends_s[stage] + one.reduced_s + one.optimizer_s;
        if (one.seconds > out->seconds)
            *out = one;
    }
}

int workload_time(const struct workload *workload, const struct workload_habits *habits,
                  const struct machine_speed *speed, struct workload_time *out, struct error *err)
{
    struct workload w = *workload;
    if (check(&w, err))
        return -1;
    w.attention = workload_attention_run(&w);
    struct pricing p = {
        .w = &w,
        .habits = habits ? habits : &workload_habits,
        .speed = speed,
        .ranks = w.dp * w.tp * w.pp * w.cp,
        .tokens = (double)w.micro_batch * (double)w.sequence / (double)w.cp,
    };
    int64_t count = w.pp * w.virtual_stages;
    struct layer_kinds kinds = {0};
    struct chunk_time *chunks = host_alloc((size_t)count * sizeof *chunks);
    double *ends_s = host_alloc((size_t)w.pp * sizeof *ends_s);
    for (int64_t g = 0; g < count; g++)
        chunks[g] = price_chunk(&p, &kinds, g);
    int failed = replay(&p, chunks, ends_s, err);
    if (!failed)
        add_up(&p, chunks, ends_s, out);
    free(ends_s);
    free(chunks);
    return failed;
}
