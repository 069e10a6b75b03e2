/* Where everything lies in the arena:
 *
 *     states, kind by kind | scalars | message buffers | slots of frames | d | what was moved
 *
 * A slot has the frames of all instances of one chunk for one micro-batch, each instance's above the one before. Without a
 * pipeline there is one slot, what is not kept lies above the frames of its own instance, and d above all that lives with
 * it. In a pipeline other micro-batches' slots follow: what is not kept still lies in its slot where that is tall enough,
 * below the frames that are not yet or no longer in use; of the last instances of a chunk it is moved above d. */
#include "model/program_build.h"

#include "base/arena.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

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

/* Stacks the frames of a chunk's runs; slot_bytes: how tall they are. */
static void stack_frames(struct program *p, const struct chunk *chunk, int64_t slot_bytes[FRAMES])
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
    stack_frames(p, &p->chunks[0], slot_bytes);
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

/* The frames of one chunk and micro-batch while they are kept: from one item of the schedule to another. */
struct stay {
    int64_t size, from, until, offset;
    int kind;               /* of which chunk, and which of its frames: those of a kind have one size */
    struct stay *also_ends; /* with the same item */
    int64_t *slot;          /* where the offset goes */
};

struct stays {
    struct stay *list; /* in the order of the schedule */
    int64_t count, items;
    int kinds;
};

/* Room that nobody has, by offset; the last gap has no end. None touches the next. */
struct gaps {
    struct gap {
        int64_t from, until;
    } * list;
    int64_t count;
};

static int64_t take_gap(struct gaps *gaps, int64_t size)
{
    struct gap *gap = gaps->list;
    while (gap->until - gap->from < size)
        gap++;
    int64_t offset = gap->from;
    gap->from += size;
    if (gap->from == gap->until) {
        memmove(gap, gap + 1, (size_t)(gaps->list + gaps->count - gap - 1) * sizeof *gap);
        gaps->count--;
    }
    return offset;
}

static void give_gap(struct gaps *gaps, int64_t from, int64_t until)
{
    int64_t at = 0;
    while (gaps->list[at].until < from)
        at++;
    struct gap *gap = &gaps->list[at];
    if (gap->until == from) {
        gap->until = until;
        if (gap[1].from == until) {
            gap->until = gap[1].until;
            memmove(gap + 1, gap + 2, (size_t)(gaps->count - at - 2) * sizeof *gap);
            gaps->count--;
        }
    } else if (gap->from == until) {
        gap->from = from;
    } else {
        memmove(gap + 1, gap, (size_t)(gaps->count - at) * sizeof *gap);
        *gap = (struct gap){from, until};
        gaps->count++;
    }
}

enum { EVERY_KIND = -1 };

/* Gives each stay of this kind, as it begins, the lowest place that is free; returns how high they reach. */
static int64_t place_in_time(const struct stays *stays, int kind)
{
    struct stay **ending = host_alloc((size_t)stays->items * sizeof *ending);
    struct gaps gaps = {.list = host_alloc((size_t)(stays->count + 2) * sizeof *gaps.list), .count = 1};
    int64_t top = 0, item = 0;
    gaps.list[0].until = INT64_MAX;
    for (struct stay *stay = stays->list; stay < stays->list + stays->count; stay++) {
        if (kind != EVERY_KIND && kind != stay->kind)
            continue;
        for (; item < stay->from; item++)
            for (const struct stay *ended = ending[item]; ended; ended = ended->also_ends)
                give_gap(&gaps, ended->offset, ended->offset + ended->size);
        stay->offset = take_gap(&gaps, stay->size);
        top = max_i64(top, stay->offset + stay->size);
        stay->also_ends = ending[stay->until];
        ending[stay->until] = stay;
    }
    free(ending);
    free(gaps.list);
    return top;
}

/* Every kind above the one before. In a long schedule as many of each live at once most of the time, which fills all. */
static int64_t place_by_kind(const struct stays *stays)
{
    int64_t *base = host_alloc((size_t)(stays->kinds + 1) * sizeof *base);
    for (int kind = 0; kind < stays->kinds; kind++)
        base[kind + 1] = base[kind] + place_in_time(stays, kind);
    int64_t top = base[stays->kinds];
    for (int64_t i = 0; i < stays->count; i++)
        stays->list[i].offset += base[stays->list[i].kind];
    free(base);
    return top;
}

static int by_size(const void *a, const void *b)
{
    const struct stay *x = *(struct stay *const *)a, *y = *(struct stay *const *)b;
    return x->size != y->size ? (x->size < y->size ? 1 : -1) : (x->from > y->from) - (x->from < y->from);
}

/* The largest first, each in the lowest place where it meets no other. Takes the square of their count. */
static int64_t place_by_size(const struct stays *stays)
{
    struct stay **order = host_alloc((size_t)(stays->count + 1) * sizeof *order);
    struct stay **placed = host_alloc((size_t)(stays->count + 1) * sizeof *placed); /* by offset */
    int64_t top = 0;
    for (int64_t i = 0; i < stays->count; i++)
        order[i] = &stays->list[i];
    qsort(order, (size_t)stays->count, sizeof *order, by_size);
    for (int64_t i = 0, at; i < stays->count; i++) {
        struct stay *stay = order[i];
        stay->offset = 0;
        for (int64_t k = 0; k < i && placed[k]->offset < stay->offset + stay->size; k++)
            if (placed[k]->from <= stay->until && stay->from <= placed[k]->until)
                stay->offset = max_i64(stay->offset, placed[k]->offset + placed[k]->size);
        for (at = i; at > 0 && placed[at - 1]->offset > stay->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = stay;
        top = max_i64(top, stay->offset + stay->size);
    }
    free(order);
    free(placed);
    return top;
}

/* What lives at once at the worst moment: no placement is lower. */
static int64_t most_alive(const struct stays *stays)
{
    int64_t *change = host_alloc((size_t)(stays->items + 1) * sizeof *change), alive = 0, most = 0;
    for (int64_t i = 0; i < stays->count; i++) {
        change[stays->list[i].from] += stays->list[i].size;
        change[stays->list[i].until + 1] -= stays->list[i].size;
    }
    for (int64_t item = 0; item < stays->items; item++)
        most = max_i64(most, alive += change[item]);
    free(change);
    return most;
}

static void keep_offsets(const struct stays *stays)
{
    for (int64_t i = 0; i < stays->count; i++)
        *stays->list[i].slot = stays->list[i].offset;
}

static int64_t place_every_kind_in_time(const struct stays *stays)
{
    return place_in_time(stays, EVERY_KIND);
}

/* Of three ways the one that stays lowest, tried until one is within a two-hundredth of what must be: in the order of time,
 * best where all are equally large; kind by kind, best for long schedules; by size, best for short ones, but slow. */
static int64_t place_best(const struct stays *stays)
{
    enum { CLOSE = 200, MOST_BY_SIZE = 3000 };
    int64_t (*const ways[])(const struct stays *) = {place_every_kind_in_time, place_by_kind, place_by_size};
    int64_t enough = most_alive(stays), best = INT64_MAX;
    enough += enough / CLOSE;
    for (int way = 0; way < 3 && best > enough; way++) {
        if (ways[way] == place_by_size && stays->count > MOST_BY_SIZE)
            continue;
        int64_t top = ways[way](stays);
        if (top < best)
            keep_offsets(stays);
        best = min_i64(best, top);
    }
    return best;
}

static bool begins(enum frame frame, enum schedule_work work)
{
    return work == (frame == FRAME_DELAYED ? SCHEDULE_BACKWARD_INPUT : SCHEDULE_FORWARD);
}

static bool ends(enum frame frame, enum schedule_work work)
{
    return work == SCHEDULE_BACKWARD ||
           work == (frame == FRAME_INPUT ? SCHEDULE_BACKWARD_INPUT : SCHEDULE_BACKWARD_WEIGHT);
}

static int64_t pair_of(const struct program *p, const struct schedule_item *item)
{
    return item->chunk * p->micro_batches + item->micro_batch;
}

/* until[pair]: the item with which this frame of the pair ends. */
static int64_t *find_ends(const struct program *p, const struct schedule *schedule, enum frame frame)
{
    int64_t *until = host_alloc((size_t)(p->chunk_count * p->micro_batches) * sizeof *until);
    for (int k = 0; k < schedule->count; k++)
        if (ends(frame, schedule->items[k].work))
            until[pair_of(p, &schedule->items[k])] = k;
    return until;
}

/* Gives every chunk and micro-batch its slots; returns how high they reach. */
static int64_t place_slots(struct program *p, const struct schedule *schedule, int64_t (*slot_bytes)[FRAMES])
{
    int64_t *until[FRAMES];
    for (int frame = 0; frame < FRAMES; frame++)
        until[frame] = find_ends(p, schedule, (enum frame)frame);
    struct stays stays = {
        .list = host_alloc((size_t)(FRAMES * p->chunk_count * p->micro_batches) * sizeof *stays.list),
        .items = schedule->count,
        .kinds = FRAMES * p->chunk_count,
    };
    for (int k = 0; k < schedule->count; k++) {
        const struct schedule_item *item = &schedule->items[k];
        int64_t pair = pair_of(p, item);
        for (int frame = 0; frame < FRAMES; frame++) {
            int64_t size = slot_bytes[item->chunk][frame];
            if (begins((enum frame)frame, item->work) && size)
                stays.list[stays.count++] = (struct stay){.size = size,
                                                          .from = k,
                                                          .until = until[frame][pair],
                                                          .kind = item->chunk * FRAMES + frame,
                                                          .slot = &p->slots[frame][pair]};
        }
    }
    for (int frame = 0; frame < FRAMES; frame++)
        free(until[frame]);
    int64_t top = place_best(&stays);
    free(stays.list);
    return top;
}

/* What reaches over the slot's top is moved; returns how much room that needs. */
static int64_t move_overflow(struct program *p, const struct chunk *chunk, int64_t slot_bytes)
{
    int64_t room = 0;
    for (int i = 0; i < p->run_count; i++) {
        struct run *run = &p->runs[i];
        const struct block *block = &p->blocks[run->block];
        if (run->first < chunk->first || run->first >= chunk->first + chunk->count)
            continue;
        int64_t frame = block->frame_bytes[FRAME_INPUT], fit = run->count;
        while (fit > 0 && run->frame_base[FRAME_INPUT] + (fit - 1) * frame + block->extent > slot_bytes)
            fit--;
        run->moved_from = run->first + fit;
        if (fit < run->count)
            room = max_i64(room, block->extent - frame);
    }
    return room;
}

static void place_pipeline(struct program *p, int64_t base)
{
    struct schedule_shape shape = layout_schedule(&p->layout);
    struct schedule *schedule;
    int64_t(*slot_bytes)[FRAMES] = host_alloc((size_t)p->chunk_count * sizeof *slot_bytes), room = 0;
    if (schedule_create(&shape, p->stage, &schedule, NULL))
        abort(); /* layout_complete() has checked the shape */
    for (int i = 0; i < p->chunk_count; i++) {
        stack_frames(p, &p->chunks[i], slot_bytes[i]);
        room = max_i64(room, move_overflow(p, &p->chunks[i], slot_bytes[i][FRAME_INPUT]));
    }
    p->stream_offset = base + place_slots(p, schedule, slot_bytes);
    for (int frame = 0; frame < FRAMES; frame++)
        for (int64_t pair = 0; pair < p->chunk_count * p->micro_batches; pair++)
            p->slots[frame][pair] += base;
    p->moved_offset = p->stream_offset + padded(program_buffer(p, BUFFER_SEND, 0).bytes);
    p->arena_bytes = p->moved_offset + room;
    schedule_free(schedule);
    free(slot_bytes);
}

void program_place(struct program *p)
{
    p->slot_micro_batches = p->layout.pp > 1 ? p->micro_batches : 1;
    for (int frame = 0; frame < FRAMES; frame++)
        p->slots[frame] =
            host_alloc((size_t)(p->chunk_count * p->slot_micro_batches) * sizeof *p->slots[frame]);
    int64_t base = place_states(p);
    if (p->layout.pp > 1)
        place_pipeline(p, base);
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

int64_t program_offset(const struct program *p, int64_t instance, int64_t micro_batch, int index)
{
    const struct run *run = program_run(p, instance);
    const struct block *block = &p->blocks[run->block];
    const struct tensor *t = &block->tensors[index];
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
