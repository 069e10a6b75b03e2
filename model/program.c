/* Building a program: chunks, distinct blocks, runs of equal layers, buckets; and its instances. */
#include "model/program_build.h"

#include "base/arena.h"
#include "base/checked.h"
#include "model/recompute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *phase_name(enum phase phase)
{
    static const char *const names[] = {"forward", "backward", "reduce", "optimizer"};
    return names[phase];
}

static struct block *add_run(struct program *p, int64_t count)
{
    struct block *block = &p->blocks[p->block_count];
    p->runs[p->run_count++] = (struct run){.block = p->block_count++, .first = p->instances, .count = count};
    p->instances += count;
    return block;
}

/* Do layer `layer` and the next one share a block? Not when their masks differ; and the ends of an encoder are special: its
 * first layer computes no gradient of its input, its last may make its output in the place of d. */
static bool same_block(const struct program *p, int64_t layer)
{
    bool encoder_end = p->model.family == MODEL_ENCODER && (layer == 0 || layer + 2 == p->model.layers);
    return !encoder_end && p->recompute[layer] == p->recompute[layer + 1];
}

/* A run per stretch of layers that share a block, and one each for the ends of a chunk. */
static void allocate_runs(struct program *p)
{
    int64_t count = 0;
    for (int i = 0; i < p->chunk_count; i++) {
        count += 3;
        for (int64_t k = 0; k + 1 < p->chunks[i].layers; k++)
            count += !same_block(p, p->chunks[i].first_layer + k);
    }
    p->runs = host_alloc((size_t)count * sizeof *p->runs);
    p->blocks = host_alloc((size_t)count * sizeof *p->blocks);
}

/* Layers [first, end), which share a block. */
static void add_layers(struct program *p, int64_t first, int64_t end)
{
    struct block *block = add_run(p, end - first);
    p->runs[p->run_count - 1].first_layer = first;
    block_build_layer(block, &p->block_model, block_shape_of(&p->layout),
                      first == 0 && p->model.family == MODEL_ENCODER);
    recompute_apply(block, p->recompute[first]);
    if (p->layout.schedule == SCHEDULE_ZB_H1)
        block_split_backward(block);
}

typedef void (*build_end)(struct block *, const struct model *, struct block_shape);

static void add_end(struct program *p, build_end build)
{
    struct block *block = add_run(p, 1);
    build(block, &p->block_model, block_shape_of(&p->layout));
    recompute_apply(block, 0);
}

static void build_chunk(struct program *p, struct chunk *chunk)
{
    bool last = chunk->global + 1 == layout_chunks(&p->layout);
    int64_t end = chunk->first_layer + chunk->layers;
    chunk->first = p->instances;
    add_end(p, chunk->global == 0 ? block_build_embed : block_build_receive);
    for (int64_t layer = chunk->first_layer, next; layer < end; layer = next) {
        for (next = layer + 1; next < end && same_block(p, next - 1);)
            next++;
        add_layers(p, layer, next);
    }
    add_end(p, last ? block_build_head : block_build_send);
    chunk->count = p->instances - chunk->first;
}

/* The stage's chunks of the pipeline's. */
static void list_chunks(struct program *p, const int64_t *chunk_layers)
{
    int64_t chunks = layout_chunks(&p->layout), first_layer = 0;
    int64_t *layers = host_alloc((size_t)chunks * sizeof *layers);
    if (chunk_layers)
        memcpy(layers, chunk_layers, (size_t)chunks * sizeof *layers);
    else
        layout_spread_layers(&p->layout, p->model.layers, layers);
    p->chunks = host_alloc((size_t)p->layout.virtual_stages * sizeof *p->chunks);
    for (int64_t i = 0; i < chunks; i++) {
        if (i % p->layout.pp == p->stage)
            p->chunks[p->chunk_count++] =
                (struct chunk){.global = i, .first_layer = first_layer, .layers = layers[i]};
        first_layer += layers[i];
    }
    free(layers);
}

/* From the head down, since what the head lends decides where the last layer's output lies. */
static void measure_blocks(struct program *p)
{
    bool apart = p->layout.pp > 1;
    struct block *end = &p->blocks[p->block_count - 1], *last = end - 1;
    block_measure(end, apart);
    last->tensors[last->output].in_stream = end->tensors[end->input].in_stream;
    for (int i = 0; i < p->block_count - 1; i++)
        block_measure(&p->blocks[i], apart);
}

/* How many of a tensor are in memory at once, or more: a parameter's states, or the micro-batches that a schedule keeps. */
static int64_t most_copies(const struct program *p, const struct tensor *t)
{
    int64_t kept = p->layout.schedule == SCHEDULE_GPIPE
                       ? p->micro_batches
                       : min_i64(p->micro_batches, 3 * layout_chunks(&p->layout));
    bool stays = t->span == SPAN_WEIGHT || t->span == SPAN_GRADIENT;
    return 2 * STATE_COUNT * (stays || p->layout.pp == 1 ? 1 : kept);
}

/* Everything that grows with the model goes through here once, with room to spare, so that later sums cannot overflow. */
static int check_sizes(const struct program *p, struct error *err)
{
    int64_t total = 0;
    for (int i = 0; i < p->run_count; i++) {
        const struct block *block = &p->blocks[p->runs[i].block];
        bool fine = !block->overflow;
        for (int t = 0; fine && t < block->tensor_count; t++) {
            int64_t bytes;
            fine = checked_mul(block->tensors[t].bytes, p->runs[i].count, &bytes) &&
                   checked_mul(bytes, most_copies(p, &block->tensors[t]), &bytes) &&
                   checked_add(total, bytes, &total) && total < INT64_MAX / 4;
        }
        if (!fine)
            return error_set(err,
                             "model %s with micro-batch %lld, of which a step has %lld, and sequence %lld "
                             "needs more bytes "
                             "than 63 bits count; use smaller ones",
                             p->model.name, (long long)p->layout.micro_batch, (long long)p->micro_batches,
                             (long long)p->layout.seq_len);
    }
    return 0;
}

static void number_runs(struct program *p)
{
    int64_t parameters = 0, tensors = 0, ops = 0;
    for (int i = 0; i < p->run_count; i++) {
        struct run *run = &p->runs[i];
        const struct block *block = &p->blocks[run->block];
        run->parameter_base = parameters;
        run->tensor_base = tensors;
        run->op_base = ops;
        parameters += run->count * block->parameter_count;
        tensors += run->count * block->tensor_count;
        ops += run->count * block->op_count;
    }
    p->parameter_tensors = parameters;
    p->tensors_per_micro_batch = tensors;
    p->ops_per_micro_batch = ops;
}

/* Buckets fill from the end of a chunk down, as backward finishes gradients, and close when they reach bucket_bytes; the last
 * chunk is finished first. */
void program_list_buckets(struct program *p)
{
    if (p->layout.dp == 1)
        return;
    p->buckets = host_alloc((size_t)p->instances * sizeof *p->buckets);
    for (int i = p->chunk_count - 1; i >= 0; i--) {
        const struct chunk *chunk = &p->chunks[i];
        struct bucket open = {0, chunk->first + chunk->count - 1, 0};
        for (int64_t instance = open.last; instance >= chunk->first; instance--) {
            open.bytes += program_group_bytes(p, program_block(p, instance), STATE_GRADIENT);
            open.first = instance;
            if (open.bytes >= p->layout.bucket_bytes || (instance == chunk->first && open.bytes > 0)) {
                p->buckets[p->bucket_count++] = open;
                open = (struct bucket){0, instance - 1, 0};
            }
        }
    }
}

static bool holds_part(const struct program *p, enum part part)
{
    return program_find_part(p, part) >= 0;
}

int program_create_stage(const struct program_spec *spec, struct program **out, struct error *err)
{
    struct program *p = host_alloc(sizeof *p);
    size_t layers = (size_t)spec->model->layers;
    p->model = p->block_model = *spec->model;
    p->layout = *spec->layout;
    p->stage = spec->stage;
    p->block_model.tied = p->model.tied && p->layout.pp == 1;
    p->micro_batches = layout_micro_batches(spec->layout);
    p->recompute = host_alloc(layers * sizeof *p->recompute);
    if (spec->recompute)
        memcpy(p->recompute, spec->recompute, layers * sizeof *p->recompute);
    list_chunks(p, spec->chunk_layers);
    allocate_runs(p);
    for (int i = 0; i < p->chunk_count; i++)
        build_chunk(p, &p->chunks[i]);
    p->tied_copy =
        p->model.tied && p->layout.pp > 1 && (holds_part(p, PART_EMBED) || holds_part(p, PART_HEAD));
    if (check_sizes(p, err)) {
        program_free(p);
        return -1;
    }
    measure_blocks(p);
    number_runs(p);
    program_find_peak(p);
    program_place(p);
    program_list_buckets(p);
    *out = p;
    return 0;
}

void program_free(struct program *p)
{
    if (!p)
        return;
    free(p->recompute);
    free(p->blocks);
    free(p->runs);
    free(p->buckets);
    free(p->chunks);
    for (int frame = 0; frame < FRAMES; frame++)
        free(p->slots[frame]);
    free(p->places);
    program_free_lanes(p);
    free(p);
}

const struct run *program_run(const struct program *p, int64_t instance)
{
    int low = 0, high = p->run_count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (p->runs[middle].first <= instance)
            low = middle;
        else
            high = middle - 1;
    }
    return &p->runs[low];
}

const struct block *program_block(const struct program *p, int64_t instance)
{
    return &p->blocks[program_run(p, instance)->block];
}

enum part program_part(const struct program *p, int64_t instance)
{
    return program_block(p, instance)->part;
}

int64_t program_layer(const struct program *p, int64_t instance)
{
    const struct run *run = program_run(p, instance);
    return p->blocks[run->block].part == PART_LAYER ? run->first_layer + instance - run->first : -1;
}

int64_t program_find_layer(const struct program *p, int64_t layer)
{
    for (int i = 0; i < p->chunk_count; i++) {
        const struct chunk *chunk = &p->chunks[i];
        if (layer >= chunk->first_layer && layer < chunk->first_layer + chunk->layers)
            return chunk->first + 1 + layer - chunk->first_layer;
    }
    return -1;
}

int64_t program_find_part(const struct program *p, enum part part)
{
    for (int i = 0; i < p->run_count; i++)
        if (p->blocks[p->runs[i].block].part == part)
            return p->runs[i].first;
    return -1;
}

const char *program_instance_name(const struct program *p, int64_t instance, char *out)
{
    enum part part = program_part(p, instance);
    int64_t pp = p->layout.pp;
    if (part == PART_EMBED)
        snprintf(out, PROGRAM_NAME, "embed");
    else if (part == PART_HEAD)
        snprintf(out, PROGRAM_NAME, "head");
    else if (part == PART_LAYER)
        snprintf(out, PROGRAM_NAME, "layer %lld", (long long)program_layer(p, instance));
    else if (part == PART_RECEIVE)
        snprintf(out, PROGRAM_NAME, "from stage %lld", (long long)((p->stage + pp - 1) % pp));
    else
        snprintf(out, PROGRAM_NAME, "to stage %lld", (long long)((p->stage + 1) % pp));
    bool end = part == PART_RECEIVE || part == PART_SEND;
    if (end && p->chunk_count > 1) {
        size_t length = strlen(out);
        snprintf(out + length, PROGRAM_NAME - length, ", chunk %d", program_chunk(p, instance));
    }
    return out;
}
