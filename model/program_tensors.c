/* The tensors of a program: states of parameters, scalars, message buffers, and what passes through with each micro-batch. */
#include "model/program_build.h"

#include "base/checked.h"

#include <string.h>

const char *state_name(enum state state)
{
    static const char *const names[] = {"weight", "gradient", "master", "moment1", "moment2"};
    return names[state];
}

bool program_reduces_norms(const struct program *p)
{
    return p->layout.sequence_parallel || (p->model.qk_norm && p->layout.tp > 1);
}

bool program_has_state(const struct program *p, enum state state)
{
    return state != STATE_MASTER || p->layout.precision == PRECISION_BF16;
}

static int state_kinds(const struct program *p)
{
    return program_has_state(p, STATE_MASTER) ? STATE_COUNT : STATE_COUNT - 1;
}

/* Ids: parameter states, then scalars, message buffers, then the tensors of each micro-batch. */
static int64_t first_scalar_id(const struct program *p)
{
    return p->parameter_tensors * state_kinds(p);
}

static int64_t first_buffer_id(const struct program *p)
{
    return first_scalar_id(p) + SCALAR_COUNT;
}

static int64_t first_passing_id(const struct program *p)
{
    return first_buffer_id(p) + (p->layout.pp > 1 ? 2 * BUFFER_KINDS : 0);
}

int64_t program_tensor_count(const struct program *p)
{
    return first_passing_id(p) + p->micro_batches * p->tensors_per_micro_batch;
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
    int64_t place = instance - run->first, size = dtype_bytes(program_state_dtype(p, state));
    int64_t offset = run->state_base[state] + place * program_group_bytes(p, block, state);
    for (int i = 0; i < index; i++)
        offset += round_up(program_state_elements(p, &block->parameters[i], state) * size, ARENA_ALIGN);
    int64_t elements = program_state_elements(p, parameter, state);
    int64_t parameter_number = run->parameter_base + place * block->parameter_count + index;
    bool shaped = elements == parameter->count; /* not padded, and no shard */
    return (struct placed){
        .id = parameter_number * state_kinds(p) + state_rank(p, state),
        .offset = offset,
        .bytes = elements * size,
        .dims = {shaped ? parameter->dims[0] : elements, shaped ? parameter->dims[1] : 0},
        .dtype = program_state_dtype(p, state),
        .role = state_role(state),
        .name = parameter->name,
        .instance = instance,
        .micro_batch = -1,
    };
}

struct state_shard program_shard(const struct program *p, int64_t instance, int index, int64_t replica)
{
    const struct parameter *parameter = &program_block(p, instance)->parameters[index];
    int64_t size = program_state_elements(p, parameter, STATE_MOMENT1);
    if (size == program_state_elements(p, parameter, STATE_WEIGHT))
        replica = 0;
    int64_t first = min_i64(replica * size, parameter->count);
    return (struct state_shard){first, min_i64(size, parameter->count - first), size};
}

struct parameter_name program_parameter(const struct program *p, int64_t instance, int index)
{
    const struct block *block = program_block(p, instance);
    struct parameter_name name = {block->part, program_layer(p, instance), block->parameters[index].id,
                                  false};
    if (p->tied_copy && name.id == PARAM_HEAD)
        name = (struct parameter_name){PART_EMBED, -1, PARAM_WTE, true};
    return name;
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

struct placed program_buffer(const struct program *p, enum buffer buffer, int turn)
{
    const struct block *end = &p->blocks[p->block_count - 1];
    const struct tensor *x = &end->tensors[end->input];
    static const char *const names[BUFFER_KINDS][2] = {{"receive buffer 0", "receive buffer 1"},
                                                       {"send buffer 0", "send buffer 1"}};
    struct placed placed = {
        .id = first_buffer_id(p) + 2 * buffer + turn,
        .offset = p->buffer_offset[buffer][turn],
        .bytes = x->bytes,
        .dtype = x->dtype,
        .role = ROLE_COMMUNICATION,
        .name = names[buffer][turn],
        .instance = -1,
        .micro_batch = -1,
    };
    memcpy(placed.dims, x->dims, sizeof placed.dims);
    return placed;
}

/* Where the instance's own tensors are among those of a micro-batch. */
static int64_t first_own(const struct program *p, int64_t instance)
{
    const struct run *run = program_run(p, instance);
    return run->tensor_base + (instance - run->first) * p->blocks[run->block].tensor_count;
}

/* Whose a passing tensor is: the block before made x, and the chunk's end made d. */
static int64_t find_owner(const struct program *p, int64_t instance, int *index)
{
    enum span span = program_block(p, instance)->tensors[*index].span;
    if (span == SPAN_INPUT) {
        *index = program_block(p, --instance)->output;
    } else if (span == SPAN_STREAM) {
        const struct chunk *chunk = &p->chunks[program_chunk(p, instance)];
        instance = chunk->first + chunk->count - 1;
        *index = program_block(p, instance)->stream;
    }
    return instance;
}

int64_t program_passing_number(const struct program *p, int64_t instance, int index)
{
    instance = find_owner(p, instance, &index);
    return first_own(p, instance) + index;
}

/* A tensor that its own instance owns. */
static struct placed own_tensor(const struct program *p, int64_t instance, int64_t micro_batch, int index)
{
    const struct tensor *t = &program_block(p, instance)->tensors[index];
    struct placed placed = {
        .id = first_passing_id(p) + micro_batch * p->tensors_per_micro_batch + first_own(p, instance) + index,
        .offset = program_offset(p, instance, micro_batch, index),
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
    default:
        instance = find_owner(p, instance, &index);
        return own_tensor(p, instance, micro_batch, index);
    }
}
