/* Where the micro-batches of a pipeline lie, of which several are under way at once. In lanes (pipeline_lanes.c), and where
 * those leave much or a stage is too deep for them, in what is lower of two older ways.
 *
 * In slots: a slot has the frames of all instances of one chunk for one micro-batch, each instance's above the one before.
 * What is not kept lies in its slot too where that is tall enough, below the frames that are not yet or no longer in use; of
 * the last instances of a chunk it is moved above d, which lies above all slots. That costs little while all slots are
 * equally tall, and three offsets a micro-batch say it all.
 *
 * Where slots of different sizes take turns, each leaves room that no other fills. Then every tensor of every micro-batch has
 * a place of its own, as long as those are not too many. */
#include "model/packing.h"
#include "model/program_build.h"

#include "base/arena.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

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
static int64_t place_slots(struct program *p, int64_t base, const struct schedule *schedule,
                           int64_t (*slot_bytes)[FRAMES])
{
    int64_t *until[FRAMES];
    for (int frame = 0; frame < FRAMES; frame++)
        until[frame] = find_ends(p, schedule, (enum frame)frame);
    struct packing packing = {
        .list = host_alloc((size_t)(FRAMES * p->chunk_count * p->micro_batches) * sizeof *packing.list),
        .moments = schedule->count,
        .kinds = FRAMES * p->chunk_count,
        .below = base,
        .orders = 1,
    };
    for (int k = 0; k < schedule->count; k++) {
        const struct schedule_item *item = &schedule->items[k];
        int64_t pair = pair_of(p, item);
        for (int frame = 0; frame < FRAMES; frame++) {
            int64_t size = slot_bytes[item->chunk][frame];
            if (begins((enum frame)frame, item->work) && size)
                packing.list[packing.count++] = (struct stay){.size = size,
                                                              .from = k,
                                                              .until = until[frame][pair],
                                                              .kind = item->chunk * FRAMES + frame,
                                                              .place = &p->slots[frame][pair]};
        }
    }
    for (int frame = 0; frame < FRAMES; frame++)
        free(until[frame]);
    int64_t top = packing_pack(&packing);
    free(packing.list);
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

static void place_in_slots(struct program *p, int64_t base)
{
    struct schedule_shape shape = layout_schedule(&p->layout);
    struct schedule *schedule;
    int64_t(*slot_bytes)[FRAMES] = host_alloc((size_t)p->chunk_count * sizeof *slot_bytes), room = 0;
    if (schedule_create(&shape, p->stage, &schedule, NULL))
        abort(); /* layout_complete() has checked the shape */
    for (int i = 0; i < p->chunk_count; i++) {
        program_stack_frames(p, &p->chunks[i], slot_bytes[i]);
        room = max_i64(room, move_overflow(p, &p->chunks[i], slot_bytes[i][FRAME_INPUT]));
    }
    p->stream_offset = base + place_slots(p, base, schedule, slot_bytes);
    for (int frame = 0; frame < FRAMES; frame++)
        for (int64_t pair = 0; pair < p->chunk_count * p->micro_batches; pair++)
            p->slots[frame][pair] += base;
    p->moved_offset = p->stream_offset + round_up(program_buffer(p, BUFFER_SEND, 0).bytes, ARENA_ALIGN);
    if (p->moved_offset + room < p->arena_bytes) {
        program_free_lanes(p);
        p->arena_bytes = p->moved_offset + room;
    }
    schedule_free(schedule);
    free(slot_bytes);
}

/* The same stage with fewer micro-batches; borrows everything. */
static struct program shorten(const struct program *p, int64_t micro_batches)
{
    struct program shorter = *p;
    shorter.micro_batches = micro_batches;
    shorter.layout.global_batch = micro_batches * p->layout.dp * p->layout.micro_batch;
    return shorter;
}

/* The lives of all tensors that pass, from the walk over the step. */
static struct packing list_lives(const struct program *p, int64_t *places)
{
    int64_t row = p->tensors_per_micro_batch, passing = p->micro_batches * row;
    struct packing lives = {.list = host_alloc((size_t)passing * sizeof *lives.list)};
    int64_t *stays = host_alloc((size_t)passing * sizeof *stays);
    struct program_cursor walk = program_walk(p);
    for (struct step_op op; program_next(&walk, &op); lives.moments++) {
        for (int i = 0; op.op && i < op.op->birth_count; i++) {
            int64_t born = op.micro_batch * row + program_passing_number(p, op.instance, op.op->births[i]);
            stays[born] = lives.count;
            lives.list[lives.count++] = (struct stay){
                .size = round_up(op.block->tensors[op.op->births[i]].bytes, ARENA_ALIGN),
                .from = lives.moments,
                .place = &places[born],
            };
        }
        for (int i = 0; op.op && i < op.op->death_count; i++) {
            int64_t dead = op.micro_batch * row + program_passing_number(p, op.instance, op.op->deaths[i]);
            lives.list[stays[dead]].until = lives.moments;
        }
    }
    free(stays);
    return lives;
}

/* Rows of places of every micro-batch of the program, to be freed; *top: how high they reach. */
static int64_t *pack_tensors(const struct program *p, int64_t base, int orders, int64_t *top)
{
    int64_t passing = p->micro_batches * p->tensors_per_micro_batch;
    int64_t *places = host_alloc((size_t)passing * sizeof *places);
    struct packing lives = list_lives(p, places);
    lives.below = base;
    lives.orders = orders;
    *top = base + packing_pack(&lives);
    free(lives.list);
    for (int64_t i = 0; i < passing; i++)
        places[i] += base;
    return places;
}

/* Leaves what there is where that is not lower. Takes the places. */
static void consider(struct program *p, int64_t *places, int64_t top, int64_t rows)
{
    if (top >= p->arena_bytes) {
        free(places);
        return;
    }
    program_free_lanes(p);
    free(p->places);
    p->places = places;
    p->place_rows = rows;
    p->arena_bytes = top;
}

/* How far apart micro-batches are at most that are under way at once, the newest counted. */
static int64_t find_spread(const struct program *p)
{
    struct schedule_shape shape = layout_schedule(&p->layout);
    struct schedule_cursor cursor = schedule_walk(&shape, p->stage);
    int *left = host_alloc((size_t)p->micro_batches * sizeof *left); /* items */
    int64_t newest = 0, oldest = 0, spread = 0;
    bool splits = p->layout.schedule == SCHEDULE_ZB_H1;
    for (struct schedule_item item; schedule_next(&cursor, &item);) {
        if (item.work == SCHEDULE_FORWARD) {
            left[item.micro_batch] += splits ? 3 : 2;
            newest = max_i64(newest, item.micro_batch);
        }
        spread = max_i64(spread, newest - oldest + 1);
        left[item.micro_batch]--;
        while (oldest < newest && left[oldest] == 0)
            oldest++;
    }
    free(left);
    return spread;
}

/* Do `spread` rows in a row, beginning with *from or later, equal those that are `period` further on? */
static bool repeats(const struct program *p, const int64_t *places, int64_t spread, int64_t period,
                    int64_t *from)
{
    size_t row = (size_t)p->tensors_per_micro_batch;
    int64_t equal = 0;
    for (int64_t m = 0; m + period < p->micro_batches && equal < spread; m++) {
        bool same =
            !memcmp(places + m * (int64_t)row, places + (m + period) * (int64_t)row, row * sizeof *places);
        equal = same ? equal + 1 : 0;
        *from = m - equal + 1;
    }
    return equal >= spread;
}

/* In the middle of a long schedule micro-batch follows micro-batch in the same way all the time. So a shorter one is packed,
 * and where its rows turn out to repeat, they go on to do so: who lives at once is at most `spread` micro-batches apart, and
 * lies as two of the shorter one do that are as far apart. */
static void place_repeating(struct program *p, int64_t base, int64_t rows)
{
    int64_t group = p->layout.schedule == SCHEDULE_INTERLEAVED ? p->layout.pp : 1, top;
    rows -= (rows - p->micro_batches) % group;
    struct program shorter = shorten(p, rows);
    int64_t spread = find_spread(&shorter), *places = pack_tensors(&shorter, base, 1, &top);
    int64_t period = group, from = 0;
    while (period < rows && !repeats(&shorter, places, spread, period, &from))
        period += group;
    int64_t odd = period < rows ? (p->micro_batches - rows) % period : 0;
    if (odd) {
        free(places);
        shorter = shorten(p, rows - (period - odd));
        places = pack_tensors(&shorter, base, 1, &top);
    }
    if (period >= rows || !repeats(&shorter, places, spread, period, &from)) {
        free(places);
        return;
    }
    consider(p, places, top, shorter.micro_batches);
    p->repeated = from;
    p->period = period;
}

/* What costs less than a fiftieth is left alone: what is found by tensor may be lower still, but is found slowly. */
static bool is_fair(const struct program *p)
{
    return p->arena_bytes <= p->peak_bytes + p->peak_bytes / 50;
}

/* Lanes compare the tensors of a micro-batch with each other, of which there may be LANED. Up to MANY tensors are packed one
 * by one in the order of time, up to FEW in many orders. */
void pipeline_place(struct program *p, int64_t base)
{
    enum { LANED = 4096, FEW = 12000, MANY = 1 << 16, ORDERS = 100, TURNS = 4 };
    int64_t few = FEW / p->tensors_per_micro_batch, many = MANY / p->tensors_per_micro_batch;
    p->arena_bytes = INT64_MAX;
    if (p->tensors_per_micro_batch <= LANED)
        pipeline_lanes_place(p, base);
    if (!is_fair(p))
        place_in_slots(p, base);
    if (!is_fair(p) && p->micro_batches <= many) {
        int64_t top, *places = pack_tensors(p, base, p->micro_batches <= few ? ORDERS : 0, &top);
        consider(p, places, top, p->micro_batches);
    }
    for (int64_t rows = max_i64(few / 2, 1); rows <= few && p->micro_batches > few; rows *= 2)
        if (!is_fair(p) && rows >= TURNS * p->layout.pp)
            place_repeating(p, base, rows);
}
