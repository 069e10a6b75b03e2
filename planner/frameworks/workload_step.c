/* A few steps of a rank as a sequence of takes and releases. The order is the order in which frameworks do things, since the
 * allocator's fragments depend on it. */
#include "planner/frameworks/workload_parts.h"

#include "base/arena.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };

static bool is_first(const struct rank *rank, int64_t chunk)
{
    return rank->stage == 0 && chunk == 0;
}

static bool is_last(const struct rank *rank, int64_t chunk)
{
    return chunk == rank->chunks - 1 && rank->stage == (rank->w->v_shaped ? 0 : rank->w->pp - 1);
}

/* The unit that has the head's table. */
static int64_t table_of(const struct rank *rank)
{
    return rank->w->model.tied && rank->stage == 0 ? rank->layers : rank->layers + 1;
}

static void forward(struct rank *rank, int64_t chunk, struct pass *pass)
{
    const struct workload *w = rank->w;
    int64_t from = rank->first[chunk], to = rank->first[chunk + 1], head = rank->layers + 1;
    bool last = is_last(rank, chunk), recomputes = w->recompute != WORKLOAD_KEEPS_ALL;
    bool resharded = w->reshards_after_forward;
    /* torchtitan's parallelize_llama.py: the last layer, until the head became a unit, and that since. */
    bool keeps_last = w->library == WORKLOAD_TITAN && !w->wraps_ends;
    if (is_first(rank, chunk)) {
        workload_gather(rank, rank->layers, from);
        workload_embed_forward(rank, pass);
        if (resharded)
            workload_scatter(rank, rank->layers);
    }
    for (int64_t u = from; u < to; u++) {
        workload_gather(rank, u, u + 1 < to ? u + 1 : last ? head : -1);
        workload_cast_weights(rank, u, layer_remade(w, workload_global_layer(rank, u)));
        workload_layer_forward(rank, u, pass->kept + (u - from) * LAYER_ROWS, 0);
        if (resharded && (u + 1 < to || !keeps_last) && !workload_reused_soon(rank, u))
            workload_scatter(rank, u);
    }
    if (last) {
        workload_gather(rank, head, -1);
        workload_cast_weights(rank, table_of(rank), false);
        workload_head_forward(rank, pass);
    }
    for (int64_t u = from; recomputes && u < to; u++)
        workload_drop_casts(rank, u);
}

/* The first of two halves. Inputs of products stay for the second, and their outputs' gradients come to stay in the place of what
 * else dies: of a GPT layer 18 bytes a hidden element for 20. What only goes are scores and their like, and the loss: the head is
 * not split (model/schedule.h). */
static void backward_input(struct rank *rank, int64_t chunk, struct pass *pass)
{
    int64_t layers = rank->first[chunk + 1] - rank->first[chunk];
    if (is_last(rank, chunk))
        workload_head_backward(rank, pass);
    for (int64_t i = 0; i < layers * LAYER_ROWS; i++) {
        int64_t row = i % LAYER_ROWS;
        if (row < layer_rule_count && layer_rules[row].parts & PART_CORE)
            replay_drop(rank->r, &pass->kept[i]);
    }
}

static void backward(struct rank *rank, int64_t chunk, struct pass *pass, bool halved)
{
    int64_t from = rank->first[chunk], to = rank->first[chunk + 1], head = rank->layers + 1;
    if (rank->w->buckets_early && workload_is_deepspeed(rank->w))
        workload_buckets_open(rank);
    if (is_last(rank, chunk)) {
        workload_gather(rank, head, to > from ? to - 1 : -1);
        if (!halved)
            workload_head_backward(rank, pass);
        workload_drop_casts(rank, table_of(rank));
        workload_unit_done(rank, head);
    }
    for (int64_t u = to - 1; u >= from; u--) {
        workload_gather(rank, u, u > from ? u - 1 : -1);
        workload_layer_backward(rank, u, pass->kept + (u - from) * LAYER_ROWS);
        workload_unit_done(rank, u);
    }
    if (is_first(rank, chunk)) {
        workload_gather(rank, rank->layers, -1);
        workload_embed_backward(rank, pass);
        workload_unit_done(rank, rank->layers);
    }
    workload_ends_drop(rank, pass);
    workload_pass_done(rank);
}

/* --- The whole --- */

static void rank_open(struct rank *rank)
{
    const struct workload *w = rank->w;
    rank->chunks = w->virtual_stages;
    rank->first = host_alloc((size_t)(rank->chunks + 1) * sizeof *rank->first);
    rank->starts = host_alloc((size_t)rank->chunks * sizeof *rank->starts);
    for (int64_t chunk = 0; chunk < rank->chunks; chunk++) {
        rank->first[chunk + 1] = rank->first[chunk] + workload_chunk_layers(w, rank->stage, chunk);
        rank->starts[chunk] = workload_chunk_start(w, rank->stage, chunk);
    }
    rank->layers = rank->first[rank->chunks];
    workload_units_open(rank);
    rank->passes = host_alloc((size_t)(rank->micro_batches * rank->chunks) * sizeof *rank->passes);
    for (int64_t i = 0; i < rank->micro_batches * rank->chunks; i++) {
        int64_t chunk = i % rank->chunks, rows = (rank->first[chunk + 1] - rank->first[chunk]) * LAYER_ROWS;
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
    free(rank->starts);
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

/* Gradients of micro-batches are summed before they are reduced. */
static bool delays_sync(const struct workload *w)
{
    return w->accumulates_without_sync || (w->pp > 1 && w->sharding == WORKLOAD_FSDP2);
}

static void run_step(struct rank *rank, int step, const struct schedule *schedule,
                     struct workload_memory *out)
{
    bool first = step == 0, forwards_done = false;
    workload_zero_gradients(rank);
    for (int i = 0; i < schedule->count; i++) {
        const struct schedule_item *item = &schedule->items[i];
        struct pass *pass = &rank->passes[item->micro_batch * rank->chunks + item->chunk];
        if (item->work == SCHEDULE_FORWARD) {
            replay_enter(rank->r, first ? REPLAY_FIRST_FORWARD : REPLAY_FORWARD);
            forward(rank, item->chunk, pass);
        } else if (item->work == SCHEDULE_BACKWARD_INPUT) {
            replay_enter(rank->r, first ? REPLAY_FIRST_BACKWARD : REPLAY_BACKWARD);
            backward_input(rank, item->chunk, pass);
        } else {
            if (step == 1 && !forwards_done) {
                out->forward_allocated_bytes = replay_figures(rank->r).allocated_bytes;
                out->forward_reserved_bytes = replay_figures(rank->r).reserved_bytes;
                forwards_done = true;
            }
            replay_enter(rank->r, first ? REPLAY_FIRST_BACKWARD : REPLAY_BACKWARD);
            rank->syncs = !delays_sync(rank->w) || item->micro_batch == rank->micro_batches - 1;
            rank->last = i == schedule->count - 1;
            backward(rank, item->chunk, pass, item->work == SCHEDULE_BACKWARD_WEIGHT);
        }
    }
    replay_enter(rank->r, first ? REPLAY_FIRST_UPDATE : REPLAY_UPDATE);
    workload_update(rank);
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

int workload_stage_replay(const struct workload *w, const struct stage_replay *ask,
                          struct workload_memory *out, struct error *err)
{
    struct schedule_shape shape = shape_of(w);
    struct schedule *schedule;
    struct caching_allocator_options options = w->allocator;
    options.capacity_bytes = ask->capacity_bytes;
    if (w->v_shaped)
        schedule = v_half(w->pp, shape.micro_batches);
    else if (schedule_shape_check(&shape, err) || schedule_create(&shape, ask->stage, &schedule, err))
        return -1;
    struct rank rank = {.w = w,
                        .stage = ask->stage,
                        .micro_batches = shape.micro_batches,
                        .buckets = {-1, -1},
                        .partition = -1,
                        .partition_of_pass = -1};
    rank.r = replay_create(&options);
    if (ask->census)
        replay_count_at(rank.r, ask->census_take, ask->census);
    rank_open(&rank);
    workload_start(&rank);
    for (int step = 0; step < STEPS; step++) {
        run_step(&rank, step, schedule, out);
        if (!step) {
            out->first_allocated_bytes = replay_figures(rank.r).max_allocated_bytes;
            out->first_reserved_bytes = replay_figures(rank.r).max_reserved_bytes;
        }
    }
    struct caching_allocator_figures figures = replay_figures(rank.r);
    out->stage = ask->stage;
    out->states_bytes = figures.allocated_bytes;
    out->peak = replay_peak(rank.r);
    out->reserved_bytes = figures.max_reserved_bytes;
    out->out_of_memory = figures.out_of_memory;
    out->retries = figures.retries;
    bool too_large = replay_is_too_large(rank.r);
    rank_close(&rank);
    schedule_free(schedule);
    return too_large
               ? error_set(err,
                           "micro-batches of %lld sequences of %lld make tensors of more than 1e15 bytes, "
                           "which no card has; try smaller ones",
                           (long long)w->micro_batch, (long long)w->sequence)
               : 0;
}
