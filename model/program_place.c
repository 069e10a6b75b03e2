/* Where everything lies in the arena:
 *
 *     states, kind by kind | scalars | message buffers | what passes with micro-batches
 *
 * Without a pipeline one micro-batch follows the other, and all use the same place: the frames of all instances, each above
 * the one before; what is not kept above the frames of its own instance; and d above all that lives with it. In a pipeline
 * several are under way at once: pipeline_place.c. */
#include "model/program_build.h"

#include "base/arena.h"
#include "base/checked.h"

#include <stdlib.h>

static int64_t padded(int64_t bytes)
{
    return round_up(bytes, ARENA_ALIGN);
}

static bool shards_states(const struct program *p)
{
    return p->layout.zero && p->layout.dp > 1;
}

int64_t program_state_elements(const struct program *p, const struct parameter *parameter, enum state state)
{
    if (!shards_states(p))
        return parameter->count;
    int64_t whole = round_up(parameter->count, p->layout.dp);
    return state == STATE_WEIGHT || state == STATE_GRADIENT ? whole : whole / p->layout.dp;
}

enum dtype program_state_dtype(const struct program *p, enum state state)
{
    enum dtype dtype = precision_dtype(p->layout.precision);
    return state == STATE_WEIGHT ? dtype : wide_dtype(dtype);
}

int64_t program_group_bytes(const struct program *p, const struct block *block, enum state state)
{
    int64_t bytes = 0, size = dtype_bytes(program_state_dtype(p, state));
    for (int i = 0; i < block->parameter_count; i++)
        bytes += padded(program_state_elements(p, &block->parameters[i], state) * size);
    return bytes;
}

/* States kind by kind, so that gradients lie in one stretch; then scalars and buffers. Returns where frames begin. */
static int64_t place_states(struct program *p)
{
    int64_t offset = 0;
    for (int state = 0; state < STATE_COUNT; state++)
        for (int i = 0; program_has_state(p, (enum state)state) && i < p->run_count; i++) {
            struct run *run = &p->runs[i];
            run->state_base[state] = offset;
            offset += run->count * program_group_bytes(p, &p->blocks[run->block], (enum state)state);
        }
    for (int i = 0; i < SCALAR_COUNT; i++) {
        p->scalar_offset[i] = offset;
        offset += ARENA_ALIGN;
    }
    for (int i = 0; p->layout.pp > 1 && i < BUFFER_KINDS * 2; i++) {
        p->buffer_offset[i / 2][i % 2] = offset;
        offset += padded(program_buffer(p, (enum buffer)(i / 2), i % 2).bytes);
    }
    return offset;
}

int program_chunk(const struct program *p, int64_t instance)
{
    int chunk = p->chunk_count - 1;
    while (p->chunks[chunk].first > instance)
        chunk--;
    return chunk;
}

void program_stack_frames(struct program *p, const struct chunk *chunk, int64_t slot_bytes[FRAMES])
{
    for (int frame = 0; frame < FRAMES; frame++) {
        slot_bytes[frame] = 0;
        for (int i = 0; i < p->run_count; i++) {
            struct run *run = &p->runs[i];
            if (run->first < chunk->first || run->first >= chunk->first + chunk->count)
                continue;
            run->frame_base[frame] = slot_bytes[frame];
            slot_bytes[frame] += run->count * p->blocks[run->block].frame_bytes[frame];
        }
    }
}

/* Without a pipeline: the frames, and d above everything that lives with it. What d does not meet, most of forward, may
 * reach higher. */
static void place_alone(struct program *p, int64_t base)
{
    int64_t slot_bytes[FRAMES], end = 0, stream = base;
    program_stack_frames(p, &p->chunks[0], slot_bytes);
    p->slots[FRAME_INPUT][0] = base;
    for (int i = 0; i < p->run_count; i++) {
        struct run *run = &p->runs[i];
        const struct block *block = &p->blocks[run->block];
        int64_t top =
            base + run->frame_base[FRAME_INPUT] + (run->count - 1) * block->frame_bytes[FRAME_INPUT];
        run->moved_from = INT64_MAX;
        end = max_i64(end, top + block->extent);
        stream = max_i64(stream, top + block->stream_floor);
    }
    const struct block *head = program_block(p, p->instances - 1);
    p->stream_offset = stream;
    p->arena_bytes = max_i64(end, stream + padded(head->tensors[head->stream].bytes));
}

void program_place(struct program *p)
{
    p->slot_micro_batches = p->layout.pp > 1 ? p->micro_batches : 1;
    for (int frame = 0; frame < FRAMES; frame++)
        p->slots[frame] =
            host_alloc((size_t)(p->chunk_count * p->slot_micro_batches) * sizeof *p->slots[frame]);
    int64_t base = place_states(p);
    if (p->layout.pp > 1)
        pipeline_place(p, base);
    else
        place_alone(p, base);
}

/* A block's output lies where the next one keeps its x, if it does. */
static bool is_next_input(const struct program *p, int64_t instance, const struct tensor *t)
{
    if (t->span != SPAN_OUTPUT)
        return false;
    const struct block *next = program_block(p, instance + 1);
    return next->tensors[next->input].frame != FRAME_NONE;
}

/* The row of a micro-batch's places. */
static int64_t place_row(const struct program *p, int64_t micro_batch)
{
    int64_t skipped = p->micro_batches - p->place_rows;
    if (skipped == 0 || micro_batch < p->repeated + p->period)
        return micro_batch;
    if (micro_batch - skipped >= p->repeated)
        return micro_batch - skipped;
    return p->repeated + (micro_batch - p->repeated) % p->period;
}

void program_free_lanes(struct program *p)
{
    for (int i = 0; i < p->lane_count; i++)
        free(p->lanes[i].slots);
    free(p->lanes);
    free(p->lane_places);
    p->lanes = NULL;
    p->lane_places = NULL;
    p->lane_count = 0;
}

static int64_t offset_in_lane(const struct program *p, int64_t instance, int64_t micro_batch, int index)
{
    int64_t row = micro_batch % p->lane_period * p->tensors_per_micro_batch;
    const struct lane_place *place = &p->lane_places[row + program_passing_number(p, instance, index)];
    const struct program_lane *lane = &p->lanes[place->lane];
    int64_t pair = program_chunk(p, instance) * p->micro_batches + micro_batch;
    return lane->base + (lane->slots ? lane->slots[pair] * lane->height : 0) + place->offset;
}

int64_t program_offset(const struct program *p, int64_t instance, int64_t micro_batch, int index)
{
    const struct run *run = program_run(p, instance);
    const struct block *block = &p->blocks[run->block];
    const struct tensor *t = &block->tensors[index];
    if (p->lanes)
        return offset_in_lane(p, instance, micro_batch, index);
    if (p->places)
        return p->places[place_row(p, micro_batch) * p->tensors_per_micro_batch +
                         program_passing_number(p, instance, index)];
    if (t->span == SPAN_STREAM || t->in_stream)
        return p->stream_offset;
    if (is_next_input(p, instance, t))
        return program_offset(p, instance + 1, micro_batch, program_block(p, instance + 1)->input);
    enum frame frame = t->frame == FRAME_NONE ? FRAME_INPUT : t->frame;
    int64_t above = t->offset - block->frame_bytes[FRAME_INPUT];
    if (t->frame == FRAME_NONE && above >= 0 && instance >= run->moved_from)
        return p->moved_offset + above;
    int64_t slot = program_chunk(p, instance) * p->slot_micro_batches + micro_batch % p->slot_micro_batches;
    return p->slots[frame][slot] + run->frame_base[frame] +
           (instance - run->first) * block->frame_bytes[frame] + t->offset;
}
