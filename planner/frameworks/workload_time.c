#include "planner/frameworks/workload_time.h"

#include "base/arena.h"
#include "base/checked.h"
#include "planner/frameworks/host_time.h"
#include "planner/frameworks/layer_rules.h"
#include "planner/frameworks/states_time.h"
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

enum workload_attention workload_attention_run(const struct workload *w)
{
    /* Megatron-LM fused_softmax.py, is_kernel_available(). */
    bool megatron = workload_is_megatron(w);
    bool takes = w->micro_batch * (w->model.heads / w->tp) % 4 == 0 && w->sequence % 4 == 0 &&
                 w->sequence > 16 && w->sequence <= 4096;
    return megatron && w->attention == WORKLOAD_FUSED_SOFTMAX && !takes ? WORKLOAD_EAGER : w->attention;
}

/* ------------------------------------------------------------------------------------------------------------ chunks */

static double pass_seconds(const struct pricing *p, struct clocks clocks)
{
    double host_s = layer_time_is_pytorch(p->w) ? clocks.operations * p->habits->host_s : 0;
    return fmax(clocks.card_s, host_s) + p->habits->unhidden * fmin(clocks.card_s, host_s);
}

/* A chunk of layers, with the ends of the model that it has. */
struct chunk_time {
    double forward_s, backward_s, weight_s;
};

/* Passes over units one by one. While one runs, the next is gathered, and gradients of the one before are reduced: links carry one
 * after the other. The first gather and the last reduction are not hidden, and where nothing overlaps nothing is. */
struct train {
    bool overlaps;
    double end_s;                             /* of all units but the last one that was added */
    double pass_s, reduce_before_s, reduce_s; /* of that one, and of the one before it */
};

static void train_add(struct train *train, double gather_s, double pass_s, double reduce_s)
{
    double beside_s = train->reduce_before_s + gather_s;
    train->end_s += train->overlaps ? fmax(train->pass_s, beside_s) : train->pass_s + beside_s;
    train->reduce_before_s = train->reduce_s;
    train->pass_s = pass_s;
    train->reduce_s = reduce_s;
}

static double train_end(struct train *train)
{
    train_add(train, 0, 0, 0);
    return train->end_s + train->reduce_before_s;
}

/* Layers are of four kinds at most: with experts or not, made again for backward or not. */
struct layer_kinds {
    struct passes passes[4];
    struct transfers transfers[4];
    bool known[4];
};

static int layer_kind(const struct pricing *p, struct layer_kinds *kinds, int64_t layer)
{
    const struct workload *w = p->w;
    int kind = 2 * states_time_routes(w, layer) + layer_remade(w, layer);
    if (!kinds->known[kind]) {
        double split = (double)w->tp * (states_time_routes(w, layer) ? (double)w->ep : 1);
        kinds->passes[kind] = layer_time(p, layer);
        kinds->transfers[kind] = states_time_transfers(p, workload_layer_parameters(w, layer) / split);
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

static void add_forward(const struct pricing *p, const struct passes *passes, const struct transfers *t,
                        struct train *train)
{
    train_add(train, t->gather_s, pass_seconds(p, passes->forward), 0);
}

static void add_backward(const struct pricing *p, const struct passes *passes, const struct transfers *t,
                         bool gathered_again, bool apart, struct train *train)
{
    double pass_s = pass_seconds(p, backward_clocks(passes, apart));
    train_add(train, gathered_again ? t->gather_s : 0, pass_s, t->reduce_s);
}

/* The head's own matrix on this rank: none where it is the embedding's. */
static double head_elements(const struct workload *w, bool with_embedding)
{
    const struct workload_model *m = &w->model;
    int64_t outputs = m->classes ? m->classes : m->tied && with_embedding ? 0 : m->vocab;
    return (double)(outputs * m->hidden) / (double)w->tp;
}

/* Layers that are gathered or reduced in each pass are walked one by one, and so are the ends of the model. */
static struct chunk_time walk_chunk(const struct pricing *p, struct layer_kinds *kinds, int64_t g, bool apart)
{
    const struct workload *w = p->w;
    int64_t stage = g % w->pp, chunk = g / w->pp, from = workload_chunk_start(w, stage, chunk);
    int64_t to = from + workload_chunk_layers(w, stage, chunk);
    bool first = g == 0, last = g == w->pp * w->virtual_stages - 1;
    struct passes embedding = layer_time_embedding(p), head = layer_time_head(p);
    double table = (double)(w->model.vocab * w->model.hidden) / (double)w->tp;
    struct transfers rows = states_time_transfers(p, table);
    struct transfers columns = states_time_transfers(p, head_elements(w, first));
    struct train ahead = {.overlaps = w->wraps_layers};
    struct train back = {.overlaps = w->wraps_layers && w->overlaps_gradients};
    struct clocks weight = {0};
    if (first)
        add_forward(p, &embedding, &rows, &ahead);
    for (int64_t layer = from; layer < to; layer++) {
        int kind = layer_kind(p, kinds, layer);
        add_forward(p, &kinds->passes[kind], &kinds->transfers[kind], &ahead);
        clocks_add(&weight, kinds->passes[kind].weight);
    }
    if (last) {
        add_forward(p, &head, &columns, &ahead);
        add_backward(p, &head, &columns, false, false, &back);
    }
    for (int64_t layer = to - 1; layer >= from; layer--) {
        int kind = layer_kind(p, kinds, layer);
        add_backward(p, &kinds->passes[kind], &kinds->transfers[kind], w->reshards_after_forward, apart,
                     &back);
    }
    if (first)
        add_backward(p, &embedding, &rows, false, false, &back);
    return (struct chunk_time){train_end(&ahead), train_end(&back), apart ? pass_seconds(p, weight) : 0};
}

/* Others launch a chunk's operations in one stream: its clocks are added up first. */
static struct chunk_time add_chunk(const struct pricing *p, struct layer_kinds *kinds, int64_t g, bool apart)
{
    const struct workload *w = p->w;
    int64_t stage = g % w->pp, chunk = g / w->pp, from = workload_chunk_start(w, stage, chunk);
    int64_t to = from + workload_chunk_layers(w, stage, chunk), chunks = w->pp * w->virtual_stages;
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

/* Inputs of layers go to the host and come back on streams of their own, beside what computes. */
static void hide_inputs(const struct pricing *p, int64_t layers, struct chunk_time *chunk)
{
    const struct workload *w = p->w;
    double bytes = w->compute_bytes * p->tokens * (double)w->model.hidden;
    double moved_s = w->inputs_offloaded ? (double)layers * host_time_moved(bytes) : 0;
    if (w->sequence_parallel)
        moved_s /= (double)w->tp;
    chunk->forward_s = fmax(chunk->forward_s, moved_s);
    chunk->backward_s = fmax(chunk->backward_s, moved_s);
}

static struct chunk_time price_chunk(const struct pricing *p, struct layer_kinds *kinds, int64_t g)
{
    const struct workload *w = p->w;
    bool apart = w->pp > 1 && w->schedule == SCHEDULE_ZB_H1;
    bool moves = workload_gathers(w) || w->sharding == WORKLOAD_ZERO2;
    struct chunk_time chunk = moves ? walk_chunk(p, kinds, g, apart) : add_chunk(p, kinds, g, apart);
    hide_inputs(p, workload_chunk_layers(w, g % w->pp, g / w->pp), &chunk);
    double wait_s = w->pp > 1 ? p->habits->message_wait_s : 0;
    chunk.forward_s += wait_s;
    chunk.backward_s += wait_s;
    chunk.weight_s += apart ? wait_s : 0;
    return chunk;
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
        one.reduced_s = states_time_reduced(p, stage, one.reduced_s);
        one.optimizer_s = states_time_optimizer(p, stage);
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
