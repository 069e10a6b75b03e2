/* The peak of a step without walking its operations. Within a run of equal layers what is kept grows by the same amount per
 * layer; so a chunk's forward is highest at the last layer of a run, its backward at the layer of a run that it reaches
 * first, and a handful of sums decides. What other micro-batches keep meanwhile, the schedule tells, item by item. */
#include "model/program.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* The highest moment of one pass over a chunk, with what the pass's own micro-batch keeps. */
struct pass_peak {
    int64_t bytes, instance;
    int op; /* -1: nothing lives */
};

struct chunk_peaks {
    struct pass_peak forward, backward, weight;
    int64_t saved_bytes, later_bytes; /* kept after forward, and between the halves of backward */
};

static void consider(struct pass_peak *highest, int64_t others, int64_t instance, struct block_peak peak)
{
    if (peak.op >= 0 && (highest->op < 0 || others + peak.bytes > highest->bytes))
        *highest = (struct pass_peak){others + peak.bytes, instance, peak.op};
}

/* The runs of a chunk are runs[*first .. *end). */
static void find_runs(const struct program *p, const struct chunk *chunk, int *first, int *end)
{
    *first = (int)(program_run(p, chunk->first) - p->runs);
    *end = (int)(program_run(p, chunk->first + chunk->count - 1) - p->runs) + 1;
}

static struct chunk_peaks find_chunk_peaks(const struct program *p, const struct chunk *chunk)
{
    struct chunk_peaks peaks = {.forward = {.op = -1}, .backward = {.op = -1}, .weight = {.op = -1}};
    int first, end;
    find_runs(p, chunk, &first, &end);
    for (int i = first; i < end; i++) {
        const struct run *run = &p->runs[i];
        const struct block *block = &p->blocks[run->block];
        peaks.saved_bytes += run->count * block->saved_bytes;
        peaks.later_bytes += run->count * block->later_bytes;
        consider(&peaks.forward, peaks.saved_bytes - block->saved_bytes, run->first + run->count - 1,
                 block->forward);
    }
    int64_t below = peaks.saved_bytes, above = 0, later = peaks.later_bytes;
    for (int i = end - 1; i >= first; i--) {
        const struct run *run = &p->runs[i];
        const struct block *block = &p->blocks[run->block];
        /* Of a run's instances the first to go has most below it, the last most behind it. */
        int64_t rest = run->count - 1, last = run->first + rest;
        consider(&peaks.backward, below - block->saved_bytes + above, last, block->backward);
        below -= run->count * block->saved_bytes;
        above += run->count * block->later_bytes;
        consider(&peaks.backward, below + above - block->later_bytes, run->first, block->backward);
        consider(&peaks.weight, later - block->later_bytes, last, block->weight);
        later -= run->count * block->later_bytes;
    }
    return peaks;
}

static void add_states(const struct program *p, int64_t by_role[ROLE_COUNT])
{
    for (int i = 0; i < p->run_count; i++) {
        const struct run *run = &p->runs[i];
        const struct block *block = &p->blocks[run->block];
        for (int k = 0; k < block->parameter_count; k++)
            for (int state = 0; state < STATE_COUNT; state++)
                if (program_has_state(p, (enum state)state)) {
                    struct placed s = program_state(p, run->first, k, (enum state)state);
                    by_role[s.role] += run->count * s.bytes;
                }
    }
    for (int i = 0; i < SCALAR_COUNT; i++) {
        struct placed s = program_scalar(p, (enum scalar)i);
        by_role[s.role] += s.bytes;
    }
    for (int i = 0; p->layout.pp > 1 && i < 2 * BUFFER_KINDS; i++)
        by_role[ROLE_COMMUNICATION] += program_buffer(p, (enum buffer)(i / 2), i % 2).bytes;
}

static void add_kept(const struct block *block, int64_t times, bool later, int64_t by_role[ROLE_COUNT])
{
    for (int t = 0; t < block->tensor_count; t++) {
        enum frame frame = block->tensors[t].frame;
        bool kept = later ? frame == FRAME_WEIGHT || frame == FRAME_DELAYED : block->tensors[t].saved;
        if (kept)
            by_role[block->tensors[t].role] += times * block->tensors[t].bytes;
    }
}

/* Of a chunk's instances [from, to), `times` times. */
static void add_kept_of(const struct program *p, const struct chunk *chunk, int64_t from, int64_t to,
                        int64_t times, bool later, int64_t by_role[ROLE_COUNT])
{
    int first, end;
    find_runs(p, chunk, &first, &end);
    for (int i = first; i < end; i++) {
        const struct run *run = &p->runs[i];
        int64_t low = run->first > from ? run->first : from,
                high = run->first + run->count < to ? run->first + run->count : to;
        if (low < high)
            add_kept(&p->blocks[run->block], times * (high - low), later, by_role);
    }
}

/* How many micro-batches of each chunk are kept for backward, and for its weight half, and their bytes. */
struct kept {
    int64_t *saved, *later, bytes;
};

static void begin_item(struct kept *kept, const struct chunk_peaks *peaks, const struct schedule_item *item)
{
    if (item->work == SCHEDULE_BACKWARD_WEIGHT) {
        kept->later[item->chunk]--;
        kept->bytes -= peaks[item->chunk].later_bytes;
    } else if (item->work != SCHEDULE_FORWARD) {
        kept->saved[item->chunk]--;
        kept->bytes -= peaks[item->chunk].saved_bytes;
    }
}

static void end_item(struct kept *kept, const struct chunk_peaks *peaks, const struct schedule_item *item)
{
    if (item->work == SCHEDULE_FORWARD) {
        kept->saved[item->chunk]++;
        kept->bytes += peaks[item->chunk].saved_bytes;
    } else if (item->work == SCHEDULE_BACKWARD_INPUT) {
        kept->later[item->chunk]++;
        kept->bytes += peaks[item->chunk].later_bytes;
    }
}

static const struct pass_peak *pass_of(const struct chunk_peaks *peaks, enum schedule_work work)
{
    return work == SCHEDULE_FORWARD           ? &peaks->forward
           : work == SCHEDULE_BACKWARD_WEIGHT ? &peaks->weight
                                              : &peaks->backward;
}

/* What is alive at p->peak: states, what other micro-batches keep, what the instances on both sides keep, and the block
 * itself. */
static void fill_at_peak(struct program *p, const struct kept *kept, int chunk_number,
                         enum schedule_work work)
{
    const struct chunk *chunk = &p->chunks[chunk_number];
    int64_t first = chunk->first, end = first + chunk->count, at = p->peak.instance;
    for (int i = 0; i < p->chunk_count; i++) {
        const struct chunk *c = &p->chunks[i];
        add_kept_of(p, c, c->first, c->first + c->count, kept->saved[i], false, p->at_peak);
        add_kept_of(p, c, c->first, c->first + c->count, kept->later[i], true, p->at_peak);
    }
    if (work == SCHEDULE_BACKWARD_WEIGHT) {
        add_kept_of(p, chunk, first, at, 1, true, p->at_peak);
    } else {
        add_kept_of(p, chunk, first, at, 1, false, p->at_peak);
        if (work != SCHEDULE_FORWARD)
            add_kept_of(p, chunk, at + 1, end, 1, true, p->at_peak);
    }
    block_live_at(program_block(p, at), p->peak.op, p->at_peak);
}

/* Goes through the schedule; keeps the first of the highest moments. With `until` >= 0 it stops before that item ends. */
static int64_t replay(struct program *p, const struct chunk_peaks *peaks, struct kept *kept, int64_t until,
                      struct schedule_item *last)
{
    struct schedule_shape shape = layout_schedule(&p->layout);
    if (p->layout.pp == 1)
        shape.micro_batches = 1; /* the others repeat it */
    struct schedule_cursor cursor = schedule_walk(&shape, p->stage);
    int64_t highest_item = -1, number = 0;
    for (struct schedule_item item; schedule_next(&cursor, &item); number++) {
        begin_item(kept, peaks, &item);
        if (number == until) {
            *last = item;
            return number;
        }
        const struct pass_peak *pass = pass_of(&peaks[item.chunk], item.work);
        if (pass->op >= 0 && p->persistent_bytes + kept->bytes + pass->bytes > p->peak_bytes) {
            enum phase phase = item.work == SCHEDULE_FORWARD ? PHASE_FORWARD : PHASE_BACKWARD;
            p->peak_bytes = p->persistent_bytes + kept->bytes + pass->bytes;
            p->peak = (struct program_peak){phase, pass->instance, item.micro_batch, pass->op};
            highest_item = number;
        }
        end_item(kept, peaks, &item);
    }
    return highest_item;
}

void program_find_peak(struct program *p)
{
    size_t chunks = (size_t)p->chunk_count;
    struct chunk_peaks *peaks = host_alloc(chunks * sizeof *peaks);
    struct kept kept = {host_alloc(chunks * sizeof(int64_t)), host_alloc(chunks * sizeof(int64_t)), 0};
    struct schedule_item item;
    memset(p->at_peak, 0, sizeof p->at_peak);
    add_states(p, p->at_peak);
    p->persistent_bytes = 0;
    for (int role = 0; role < ROLE_COUNT; role++)
        p->persistent_bytes += p->at_peak[role];
    p->peak_bytes = p->persistent_bytes;
    p->peak = (struct program_peak){PHASE_OPTIMIZER, -1, -1, -1};
    for (int i = 0; i < p->chunk_count; i++)
        peaks[i] = find_chunk_peaks(p, &p->chunks[i]);
    int64_t highest = replay(p, peaks, &kept, -1, NULL);
    if (highest >= 0) {
        memset(kept.saved, 0, chunks * sizeof *kept.saved);
        memset(kept.later, 0, chunks * sizeof *kept.later);
        replay(p, peaks, &kept, highest, &item);
        fill_at_peak(p, &kept, item.chunk, item.work);
    }
    free(kept.saved);
    free(kept.later);
    free(peaks);
}
