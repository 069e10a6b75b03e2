/* Building a program: distinct blocks, runs of equal layers, ids and places. */
#include "model/program.h"

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

const char *state_name(enum state state)
{
    static const char *const names[] = {"weight", "gradient", "master", "moment1", "moment2"};
    return names[state];
}

static enum dtype state_dtype(const struct program *p, enum state state)
{
    enum dtype dtype = precision_dtype(p->layout.precision);
    return state == STATE_WEIGHT ? dtype : wide_dtype(dtype);
}

bool program_has_state(const struct program *p, enum state state)
{
    return state != STATE_MASTER || p->layout.precision == PRECISION_BF16;
}

static int state_kinds(const struct program *p)
{
    return program_has_state(p, STATE_MASTER) ? STATE_COUNT : STATE_COUNT - 1;
}

/* Arena bytes of one instance's parameters in one state. */
static int64_t group_bytes(const struct program *p, const struct block *block, enum state state)
{
    int64_t bytes = 0, size = dtype_bytes(state_dtype(p, state));
    for (int i = 0; i < block->parameter_count; i++)
        bytes += round_up(block->parameters[i].count * size, ARENA_ALIGN);
    return bytes;
}

static struct block *add_run(struct program *p, int64_t first, int64_t count)
{
    struct block *block = &p->blocks[p->block_count];
    p->runs[p->run_count++] = (struct run){.block = p->block_count++, .first = first, .count = count};
    return block;
}

/* Do layer `layer` and the next one share a block? Not when their masks differ; and the ends of an encoder are special: its
 * first layer computes no gradient of its input, its last may make its output in the place of d. */
static bool same_block(const struct program *p, int64_t layer)
{
    bool encoder_end = p->model.family == MODEL_ENCODER && (layer == 0 || layer + 2 == p->model.layers);
    return !encoder_end && p->recompute[layer] == p->recompute[layer + 1];
}

/* A run per stretch of layers that share a block, and one each for embedding and head. */
static void allocate_runs(struct program *p)
{
    int64_t count = 3;
    for (int64_t layer = 0; layer + 1 < p->model.layers; layer++)
        count += !same_block(p, layer);
    p->runs = host_alloc((size_t)count * sizeof *p->runs);
    p->blocks = host_alloc((size_t)count * sizeof *p->blocks);
}

static void build_runs(struct program *p)
{
    struct block_shape shape = block_shape_of(&p->layout);
    const struct model *model = &p->model;
    struct block *embed = add_run(p, 0, 1);
    block_build_embed(embed, model, shape);
    recompute_apply(embed, 0);
    for (int64_t layer = 0, next; layer < model->layers; layer = next) {
        for (next = layer + 1; next < model->layers && same_block(p, next - 1);)
            next++;
        struct block *block = add_run(p, layer + 1, next - layer);
        block_build_layer(block, model, shape, layer == 0 && model->family == MODEL_ENCODER);
        recompute_apply(block, p->recompute[layer]);
    }
    struct block *head = add_run(p, model->layers + 1, 1);
    block_build_head(head, model, shape);
    recompute_apply(head, 0);
}

/* From the head down, since what the head lends decides where the last layer's output lies. */
static void measure_blocks(struct program *p)
{
    struct block *head = &p->blocks[p->block_count - 1], *last = head - 1;
    block_measure(head);
    last->tensors[last->output].in_stream = head->tensors[head->input].in_stream;
    for (int i = 0; i < p->block_count - 1; i++)
        block_measure(&p->blocks[i]);
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
                   checked_mul(bytes, STATE_COUNT * 2, &bytes) && checked_add(total, bytes, &total) &&
                   total < INT64_MAX / 4;
        }
        if (!fine)
            return error_set(
                err,
                "model %s with micro-batch %lld and sequence %lld needs more bytes than 63 bits count; "
                "use smaller ones",
                p->model.name, (long long)p->layout.micro_batch, (long long)p->layout.seq_len);
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

/* States kind by kind, so that gradients lie in one stretch; then scalars. Returns where frames begin. */
static int64_t place_states(struct program *p)
{
    int64_t offset = 0;
    for (int state = 0; state < STATE_COUNT; state++)
        for (int i = 0; program_has_state(p, (enum state)state) && i < p->run_count; i++) {
            struct run *run = &p->runs[i];
            run->state_base[state] = offset;
            offset += run->count * group_bytes(p, &p->blocks[run->block], (enum state)state);
        }
    for (int i = 0; i < SCALAR_COUNT; i++) {
        p->scalar_offset[i] = offset;
        offset += ARENA_ALIGN;
    }
    return offset;
}

/* The frames, each run's above the one before, and d above everything that lives with it. What d does not meet, most of
 * forward, may reach higher. */
static void place_runs(struct program *p)
{
    int64_t offset = place_states(p), end = 0, stream = offset;
    for (int i = 0; i < p->run_count; i++) {
        struct run *run = &p->runs[i];
        const struct block *block = &p->blocks[run->block];
        run->frame_base = offset;
        offset += run->count * block->frame_bytes;
        int64_t top = offset - block->frame_bytes;
        end = max_i64(end, top + block->extent);
        stream = max_i64(stream, top + block->stream_floor);
    }
    const struct block *head = program_block(p, p->instances - 1);
    p->stream_offset = stream;
    p->arena_bytes = max_i64(end, stream + round_up(head->tensors[head->stream].bytes, ARENA_ALIGN));
}

/* Buckets fill from the head down, as backward finishes gradients, and close when they reach bucket_bytes. */
static void build_buckets(struct program *p)
{
    if (p->layout.dp == 1)
        return;
    p->buckets = host_alloc((size_t)p->instances * sizeof *p->buckets);
    struct bucket open = {0, p->instances - 1, 0};
    for (int64_t instance = p->instances - 1; instance >= 0; instance--) {
        open.bytes += group_bytes(p, program_block(p, instance), STATE_GRADIENT);
        open.first = instance;
        if (open.bytes >= p->layout.bucket_bytes || (instance == 0 && open.bytes > 0)) {
            p->buckets[p->bucket_count++] = open;
            open = (struct bucket){0, instance - 1, 0};
        }
    }
}

static int create_whole(const struct model *model, const struct layout *layout, const uint32_t *recompute,
                        struct program **out, struct error *err)
{
    struct program *p = host_alloc(sizeof *p);
    p->model = *model;
    p->layout = *layout;
    p->instances = model->layers + 2;
    p->micro_batches = layout_micro_batches(layout);
    p->recompute = host_alloc((size_t)model->layers * sizeof *p->recompute);
    if (recompute)
        memcpy(p->recompute, recompute, (size_t)model->layers * sizeof *p->recompute);
    allocate_runs(p);
    build_runs(p);
    if (check_sizes(p, err)) {
        program_free(p);
        return -1;
    }
    measure_blocks(p);
    number_runs(p);
    place_runs(p);
    build_buckets(p);
    program_find_peak(p);
    *out = p;
    return 0;
}

int program_create_stage(const struct program_spec *spec, struct program **out, struct error *err)
{
    if (spec->layout->pp > 1)
        return error_set(err, "pp=%lld: pipelines are not built yet", (long long)spec->layout->pp);
    return create_whole(spec->model, spec->layout, spec->recompute, out, err);
}

int program_create(const struct model *model, const struct layout *layout, const uint32_t *recompute,
                   struct program **out, struct error *err)
{
    struct program_spec spec = {.model = model, .layout = layout, .recompute = recompute};
    return program_create_stage(&spec, out, err);
}

void program_free(struct program *p)
{
    if (!p)
        return;
    free(p->recompute);
    free(p->blocks);
    free(p->runs);
    free(p->buckets);
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

int64_t program_layer(const struct program *p, int64_t instance)
{
    return instance > 0 && instance < p->instances - 1 ? instance - 1 : -1;
}

enum part program_part(const struct program *p, int64_t instance)
{
    return program_block(p, instance)->part;
}

int64_t program_find_layer(const struct program *p, int64_t layer)
{
    (void)p;
    return layer + 1;
}

int64_t program_find_part(const struct program *p, enum part part)
{
    return part == PART_EMBED ? 0 : part == PART_HEAD ? p->instances - 1 : -1;
}

struct parameter_name program_parameter(const struct program *p, int64_t instance, int index)
{
    const struct block *block = program_block(p, instance);
    return (struct parameter_name){block->part, program_layer(p, instance), block->parameters[index].id,
                                   false};
}

struct state_shard program_shard(const struct program *p, int64_t instance, int index, int64_t replica)
{
    (void)replica;
    int64_t count = program_block(p, instance)->parameters[index].count;
    return (struct state_shard){0, count, count};
}

struct placed program_buffer(const struct program *p, enum buffer buffer, int turn)
{
    (void)p;
    (void)buffer;
    (void)turn;
    return (struct placed){.id = -1};
}

const char *program_instance_name(const struct program *p, int64_t instance, char *out)
{
    if (instance == 0)
        snprintf(out, PROGRAM_NAME, "embed");
    else if (instance == p->instances - 1)
        snprintf(out, PROGRAM_NAME, "head");
    else
        snprintf(out, PROGRAM_NAME, "layer %lld", (long long)instance - 1);
    return out;
}

/* Ids: parameter states, then scalars, then the tensors of each micro-batch. */
static int64_t first_scalar_id(const struct program *p)
{
    return p->parameter_tensors * state_kinds(p);
}

int64_t program_tensor_count(const struct program *p)
{
    return first_scalar_id(p) + SCALAR_COUNT + p->micro_batches * p->tensors_per_micro_batch;
}

/* Position of `state` among the states this program has. */
static int state_rank(const struct program *p, enum state state)
{
    return (int)state - (state > STATE_MASTER && !program_has_state(p, STATE_MASTER));
}

static enum role state_role(enum state state)
{
    return state == STATE_WEIGHT ? ROLE_PARAMETER : state == STATE_GRADIENT ? ROLE_GRADIENT : ROLE_OPTIMIZER;
}

struct placed program_state(const struct program *p, int64_t instance, int index, enum state state)
{
    const struct run *run = program_run(p, instance);
    const struct block *block = &p->blocks[run->block];
    const struct parameter *parameter = &block->parameters[index];
    int64_t place = instance - run->first, size = dtype_bytes(state_dtype(p, state));
    int64_t offset = run->state_base[state] + place * group_bytes(p, block, state);
    for (int i = 0; i < index; i++)
        offset += round_up(block->parameters[i].count * size, ARENA_ALIGN);
    int64_t parameter_number = run->parameter_base + place * block->parameter_count + index;
    return (struct placed){
        .id = parameter_number * state_kinds(p) + state_rank(p, state),
        .offset = offset,
        .bytes = parameter->count * size,
        .dims = {parameter->dims[0], parameter->dims[1]},
        .dtype = state_dtype(p, state),
        .role = state_role(state),
        .name = parameter->name,
        .instance = instance,
        .micro_batch = -1,
    };
}

struct placed program_scalar(const struct program *p, enum scalar scalar)
{
    enum dtype wide = wide_dtype(precision_dtype(p->layout.precision));
    return (struct placed){
        .id = first_scalar_id(p) + scalar,
        .offset = p->scalar_offset[scalar],
        .bytes = dtype_bytes(wide),
        .dims = {1},
        .dtype = wide,
        .role = scalar == SCALAR_LOSS ? ROLE_ACTIVATION : ROLE_OPTIMIZER,
        .name = scalar == SCALAR_LOSS ? "loss" : "square_sum",
        .instance = -1,
        .micro_batch = -1,
    };
}

/* A tensor that its own instance owns. */
static struct placed own_tensor(const struct program *p, int64_t instance, int64_t micro_batch, int index)
{
    const struct run *run = program_run(p, instance);
    const struct block *block = &p->blocks[run->block];
    const struct tensor *t = &block->tensors[index];
    int64_t place = instance - run->first;
    struct placed placed = {
        .id = first_scalar_id(p) + SCALAR_COUNT + micro_batch * p->tensors_per_micro_batch +
              run->tensor_base + place * block->tensor_count + index,
        .offset = t->span == SPAN_STREAM || t->in_stream
                      ? p->stream_offset
                      : run->frame_base + place * block->frame_bytes + t->offset,
        .bytes = t->bytes,
        .dtype = t->dtype,
        .role = t->role,
        .name = t->name,
        .instance = instance,
        .micro_batch = micro_batch,
        .recomputed = t->recomputed,
    };
    memcpy(placed.dims, t->dims, sizeof placed.dims);
    return placed;
}

struct placed program_tensor(const struct program *p, int64_t instance, int64_t micro_batch, int index)
{
    const struct tensor *t = &program_block(p, instance)->tensors[index];
    switch (t->span) {
    case SPAN_WEIGHT:
    case SPAN_GRADIENT:
        return program_state(p, t->owner == PART_EMBED ? 0 : instance, t->parameter,
                             t->span == SPAN_WEIGHT ? STATE_WEIGHT : STATE_GRADIENT);
    case SPAN_LOSS:
        return program_scalar(p, SCALAR_LOSS);
    case SPAN_INPUT:
        return own_tensor(p, instance - 1, micro_batch, program_block(p, instance - 1)->output);
    case SPAN_STREAM:
        return own_tensor(p, p->instances - 1, micro_batch, program_block(p, p->instances - 1)->stream);
    default:
        return own_tensor(p, instance, micro_batch, index);
    }
}
