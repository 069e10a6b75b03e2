/* The lanes of a pipeline's stage: the tensors of a micro-batch, the slots that micro-batches take turns in, and who meets
 * whom there.
 *
 * What is kept from forward to backward, and from either to the weight half, lives as long as the schedule says, and each of
 * these lives makes a lane with as many slots as micro-batches live at once. One lane has a single slot, for what lives only
 * during one item of the schedule. A tensor may lie in every lane where it does not meet itself, one micro-batch later: what
 * backward makes lies where it has freed something, or where nothing is in use at the time.
 *
 * Equal slots are not always the best: what one micro-batch leaves may be just what another needs. So where lanes leave too
 * much, a row of micro-batches gets places of their own, which the next ones repeat, in one lane of one slot. */
#include "model/lanes.h"
#include "model/program_build.h"

#include "base/arena.h"
#include "base/checked.h"

#include <stdlib.h>

/* How a micro-batch passes over a chunk. A backward that is not split is PASS_BACKWARD. */
enum pass { PASS_FORWARD, PASS_BACKWARD, PASS_WEIGHT, PASSES };

/* In which pass a tensor is born and in which it dies; the first WHOLE_LIVES are those of a whole backward. */
struct life {
    enum pass from, until;
};
static const struct life lives[] = {
    {PASS_FORWARD, PASS_FORWARD}, {PASS_FORWARD, PASS_BACKWARD}, {PASS_BACKWARD, PASS_BACKWARD},
    {PASS_FORWARD, PASS_WEIGHT},  {PASS_BACKWARD, PASS_WEIGHT},  {PASS_WEIGHT, PASS_WEIGHT},
};
enum { ALL_LIVES = sizeof lives / sizeof *lives, WHOLE_LIVES = 3 };

/* More chunks than this share the lane of all, and no chunk has one of its own. */
enum { MOST_CHUNKS = 8, MOST_LANES = MOST_CHUNKS + 2, EVERY_CHUNK = -1 };

/* A tensor of one micro-batch. */
struct passing {
    int64_t number, size, from, until; /* moments of the micro-batch */
    int chunk, life;
};

struct stage {
    struct program *p;
    int64_t base;
    struct schedule *schedule;
    int lives;
    struct passing *list;
    int64_t count, moments, *pass_ends; /* moments: [chunk * PASSES + pass] */
    int64_t (*shifts)[PASSES]; /* of each chunk and micro-batch: from its own moments to those of the step */
    int64_t load;              /* the most that lives at once, with what alignment adds */
};

static enum pass pass_of(enum schedule_work work)
{
    return work == SCHEDULE_FORWARD           ? PASS_FORWARD
           : work == SCHEDULE_BACKWARD_WEIGHT ? PASS_WEIGHT
                                              : PASS_BACKWARD;
}

static int64_t pair_of(const struct stage *s, const struct schedule_item *item)
{
    return item->chunk * s->p->micro_batches + item->micro_batch;
}

/* --------------------------------------------------------------------------------------------- what one micro-batch has */

static int find_life(enum pass from, enum pass until)
{
    int life = 0;
    while (lives[life].from != from || lives[life].until != until)
        life++;
    return life;
}

/* `living`: by number, which of the list a tensor is. */
static void list_pass(struct stage *s, int64_t *living, int chunk, int64_t instance, enum pass pass)
{
    const struct block *block = program_block(s->p, instance);
    int begins[PASSES + 1] = {0, block->forward_count, block->input_count, block->op_count};
    for (int k = begins[pass]; k < begins[pass + 1]; k++, s->moments++) {
        const struct op *op = &block->ops[k];
        for (int i = 0; i < op->birth_count; i++) {
            int64_t number = program_passing_number(s->p, instance, op->births[i]);
            living[number] = s->count;
            s->list[s->count++] =
                (struct passing){.number = number,
                                 .size = round_up(block->tensors[op->births[i]].bytes, ARENA_ALIGN),
                                 .from = s->moments,
                                 .chunk = chunk,
                                 .life = (int)pass};
        }
        for (int i = 0; i < op->death_count; i++) {
            struct passing *t = &s->list[living[program_passing_number(s->p, instance, op->deaths[i])]];
            t->until = s->moments;
            t->life = find_life((enum pass)t->life, pass);
        }
    }
}

static void list_tensors(struct stage *s)
{
    const struct program *p = s->p;
    int64_t *living = host_alloc((size_t)p->tensors_per_micro_batch * sizeof *living);
    s->list = host_alloc((size_t)p->tensors_per_micro_batch * sizeof *s->list);
    s->pass_ends = host_alloc((size_t)p->chunk_count * PASSES * sizeof *s->pass_ends);
    for (int c = 0; c < p->chunk_count; c++)
        for (enum pass pass = 0; pass < PASSES; pass++) {
            for (int64_t i = 0; i < p->chunks[c].count; i++) {
                int64_t place = pass == PASS_FORWARD ? i : p->chunks[c].count - 1 - i;
                list_pass(s, living, c, p->chunks[c].first + place, pass);
            }
            s->pass_ends[c * PASSES + pass] = s->moments;
        }
    free(living);
}

/* The most that one micro-batch has alive during each pass over each chunk. */
static int64_t *find_pass_peaks(const struct stage *s)
{
    int64_t *change = host_alloc((size_t)(s->moments + 1) * sizeof *change), alive = 0, moment = 0;
    int64_t *peaks = host_alloc((size_t)s->p->chunk_count * PASSES * sizeof *peaks);
    for (int64_t i = 0; i < s->count; i++) {
        change[s->list[i].from] += s->list[i].size;
        change[s->list[i].until + 1] -= s->list[i].size;
    }
    for (int64_t pass = 0; pass < s->p->chunk_count * PASSES; pass++)
        for (; moment < s->pass_ends[pass]; moment++)
            peaks[pass] = max_i64(peaks[pass], alive += change[moment]);
    free(change);
    return peaks;
}

/* Sets s->load: what other micro-batches keep, and the highest moment of the item's own pass. */
static void find_load(struct stage *s)
{
    int64_t *peaks = find_pass_peaks(s), kept = 0;
    int64_t(*bytes)[ALL_LIVES] = host_alloc((size_t)s->p->chunk_count * sizeof *bytes);
    for (int64_t i = 0; i < s->count; i++)
        bytes[s->list[i].chunk][s->list[i].life] += s->list[i].size;
    for (int k = 0; k < s->schedule->count; k++) {
        const struct schedule_item *item = &s->schedule->items[k];
        enum pass pass = pass_of(item->work);
        for (int i = 0; i < s->lives; i++)
            if (lives[i].from < pass && lives[i].until >= pass)
                kept -= bytes[item->chunk][i];
        s->load = max_i64(s->load, kept + peaks[item->chunk * PASSES + pass]);
        for (int i = 0; i < s->lives; i++)
            if (lives[i].from <= pass && lives[i].until > pass)
                kept += bytes[item->chunk][i];
    }
    free(peaks);
    free(bytes);
}

/* --------------------------------------------------------------------------------------------------------------- lanes */

struct lane_set {
    int64_t period; /* micro-batches in a round */
    int kinds, count;
    struct lane lanes[MOST_LANES];
    struct life lives[MOST_LANES]; /* of which each has the slots */
    int32_t *slots[MOST_LANES];    /* by chunk and micro-batch; NULL: there is one */
};

static int kind_of(const struct stage *s, const struct lane_set *set, int64_t micro_batch, int chunk,
                   int life)
{
    return (int)((micro_batch % set->period * s->p->chunk_count + chunk) * s->lives) + life;
}

/* Gives each that lives this long a slot that is free then, the one that has been free for longest; returns how many there
 * are. */
static int64_t share_slots(const struct stage *s, struct life life, int only_chunk, int32_t *slots)
{
    int64_t pairs = s->p->chunk_count * s->p->micro_batches, given = 0, gone = 0;
    int32_t *freed = host_alloc((size_t)pairs * sizeof *freed), count = 0;
    for (int k = 0; k < s->schedule->count; k++) {
        const struct schedule_item *item = &s->schedule->items[k];
        enum pass pass = pass_of(item->work);
        if (only_chunk != EVERY_CHUNK && item->chunk != only_chunk)
            continue;
        if (pass == life.from)
            slots[pair_of(s, item)] = given < gone ? freed[given++] : count++;
        if (pass == life.until)
            freed[gone++] = slots[pair_of(s, item)];
    }
    free(freed);
    return count;
}

/* Goes through the schedule with how many of each kind live in each slot. */
static void find_meetings(const struct stage *s, struct lane_set *set, int index)
{
    struct lane *lane = &set->lanes[index];
    int kinds = set->kinds;
    int32_t *living = host_alloc((size_t)(lane->slots * kinds) * sizeof *living);
    lane->meets = host_alloc((size_t)kinds * (size_t)kinds * sizeof *lane->meets);
    for (int k = 0; k < s->schedule->count; k++) {
        const struct schedule_item *item = &s->schedule->items[k];
        enum pass pass = pass_of(item->work);
        int32_t *here = living + (set->slots[index] ? set->slots[index][pair_of(s, item)] : 0) * kinds;
        int own = kind_of(s, set, item->micro_batch, item->chunk, 0);
        for (int i = 0; i < s->lives; i++)
            if (lives[i].from < pass && lives[i].until >= pass)
                here[own + i]--;
        for (int other = 0; other < kinds; other++)
            for (int i = 0; i < s->lives && here[other]; i++)
                if (lives[i].from == pass)
                    lane->meets[(own + i) * kinds + other] = lane->meets[other * kinds + own + i] = true;
        for (int i = 0; i < s->lives; i++)
            if (lives[i].from <= pass && lives[i].until > pass)
                here[own + i]++;
    }
    free(living);
}

/* A lane for what lives this long; none where one of as many slots serves as well. */
static void add_lane(const struct stage *s, struct lane_set *set, enum pass from, enum pass until,
                     int only_chunk)
{
    struct life life = {from, until};
    int32_t *slots = host_alloc((size_t)(s->p->chunk_count * s->p->micro_batches) * sizeof *slots);
    int64_t count = share_slots(s, life, only_chunk, slots);
    bool serves = count == 1;
    for (int i = 0; i < set->count && only_chunk == EVERY_CHUNK; i++)
        serves |= set->lanes[i].slots == count && set->lives[i].from <= from && set->lives[i].until >= until;
    if (serves) {
        free(slots);
        return;
    }
    set->lanes[set->count].slots = count;
    set->lives[set->count] = life;
    set->slots[set->count++] = slots;
}

static struct lane_set list_lanes(const struct stage *s, int64_t period)
{
    bool whole = period == s->p->micro_batches;
    struct lane_set set = {.period = period,
                           .kinds = whole ? 1 : (int)(period * s->p->chunk_count * s->lives)};
    int chunks = s->p->chunk_count;
    if (whole)
        ;
    else if (period == 1 && s->lives == ALL_LIVES) {
        add_lane(s, &set, PASS_FORWARD, PASS_WEIGHT, EVERY_CHUNK);
        add_lane(s, &set, PASS_FORWARD, PASS_BACKWARD, EVERY_CHUNK);
        add_lane(s, &set, PASS_BACKWARD, PASS_WEIGHT, EVERY_CHUNK);
    } else if (period == 1) {
        add_lane(s, &set, PASS_FORWARD, PASS_BACKWARD, EVERY_CHUNK);
        for (int i = 0; i < chunks && chunks > 1 && chunks <= MOST_CHUNKS; i++)
            add_lane(s, &set, PASS_FORWARD, PASS_BACKWARD, i);
    }
    set.lanes[set.count++].slots = 1;
    if (whole)
        set.lanes[0].meets = host_alloc(sizeof *set.lanes[0].meets);
    for (int i = 0; i < set.count && !whole; i++)
        find_meetings(s, &set, i);
    return set;
}

static void free_lanes(struct lane_set *set)
{
    for (int i = 0; i < set->count; i++) {
        free(set->lanes[i].meets);
        free(set->slots[i]);
    }
}

/* ------------------------------------------------------------------------------------------------------------- packing */

/* Where one item of the schedule follows the other. */
static void find_shifts(struct stage *s)
{
    int64_t now = 0;
    s->shifts = host_alloc((size_t)(s->p->chunk_count * s->p->micro_batches) * sizeof *s->shifts);
    for (int k = 0; k < s->schedule->count; k++) {
        const struct schedule_item *item = &s->schedule->items[k];
        int64_t pass = item->chunk * PASSES + pass_of(item->work),
                begin = pass > 0 ? s->pass_ends[pass - 1] : 0;
        s->shifts[pair_of(s, item)][pass % PASSES] = now - begin;
        now += s->pass_ends[pass] - begin;
    }
}

/* A tensor of micro-batch m, in moments of the step. */
static struct lane_item item_of(const struct stage *s, int64_t m, const struct passing *t)
{
    const int64_t *shifts = s->shifts[t->chunk * s->p->micro_batches + m];
    int64_t from = t->from + shifts[lives[t->life].from], until = t->until + shifts[lives[t->life].until];
    return (struct lane_item){.size = t->size, .from = from, .until = until, .length = until - from + 1};
}

/* Where a round is the whole step, moments say all. In shorter ones they are a micro-batch's own, and so that two never meet
 * in them: who is alive with whom, the kinds say. Every other micro-batch hangs. */
static struct lane_item *list_items(const struct stage *s, const struct lane_set *set)
{
    struct lane_item *items = host_alloc((size_t)(set->period * s->count) * sizeof *items), *item = items;
    for (int64_t m = 0; m < set->period; m++)
        for (int64_t i = 0; i < s->count; i++, item++) {
            const struct passing *t = &s->list[i];
            bool whole = set->period == s->p->micro_batches;
            *item = item_of(s, whole ? m : s->p->micro_batches / 2, t);
            item->hangs = m % 2 == 1;
            if (whole)
                continue;
            item->kind = kind_of(s, set, m, t->chunk, t->life);
            item->from = m * s->moments + t->from;
            item->until = m * s->moments + t->until;
        }
    return items;
}

/* Takes the slots. */
static void keep(struct stage *s, struct lane_set *set, const struct lane_item *items, int64_t top)
{
    struct program *p = s->p;
    int64_t base = s->base;
    program_free_lanes(p);
    p->arena_bytes = top;
    p->lanes = host_alloc((size_t)set->count * sizeof *p->lanes);
    p->lane_count = set->count;
    p->lane_period = set->period;
    p->lane_places = host_alloc((size_t)(set->period * p->tensors_per_micro_batch) * sizeof *p->lane_places);
    for (int i = 0; i < set->count; i++) {
        p->lanes[i] = (struct program_lane){base, set->lanes[i].height, set->slots[i]};
        set->slots[i] = NULL;
        base += set->lanes[i].height * set->lanes[i].slots;
    }
    for (int64_t i = 0; i < set->period * s->count; i++)
        p->lane_places[i / s->count * p->tensors_per_micro_batch + s->list[i % s->count].number] =
            (struct lane_place){items[i].lane, items[i].offset};
}

/* Leaves what there is where that is not lower. */
static void try_period(struct stage *s, int64_t period, int64_t spare, int64_t work)
{
    struct lane_set set = list_lanes(s, period);
    struct lane_packing packing = {
        .lanes = set.lanes,
        .lane_count = set.count,
        .kinds = set.kinds,
        .items = list_items(s, &set),
        .count = period * s->count,
        .enough = round_up(s->load + spare, ARENA_ALIGN),
        .work = work,
    };
    int64_t top = s->base + lanes_pack(&packing);
    if (top < s->p->arena_bytes)
        keep(s, &set, packing.items, top);
    free(packing.items);
    free_lanes(&set);
}

/* How far apart micro-batches are at most that are under way at once, the newest counted. */
static int64_t find_spread(const struct stage *s)
{
    const struct program *p = s->p;
    int *left = host_alloc((size_t)p->micro_batches * sizeof *left); /* items */
    int64_t newest = 0, oldest = 0, spread = 0;
    for (int k = 0; k < s->schedule->count; k++)
        left[s->schedule->items[k].micro_batch]++;
    for (int k = 0; k < s->schedule->count; k++) {
        newest = max_i64(newest, s->schedule->items[k].micro_batch);
        spread = max_i64(spread, newest - oldest + 1);
        left[s->schedule->items[k].micro_batch]--;
        while (oldest < newest && left[oldest] == 0)
            oldest++;
    }
    free(left);
    return spread;
}

/* Rows as long as micro-batches are under way at once, twice that, and all. */
static void try_rows(struct stage *s)
{
    enum { MOST_ITEMS = 2048, WORK = 400000 };
    const struct program *p = s->p;
    int64_t group = p->layout.schedule == SCHEDULE_INTERLEAVED ? p->layout.pp : 1;
    int64_t spread = round_up(find_spread(s), group), all = p->micro_batches;
    const int64_t periods[] = {min_i64(spread, all), min_i64(2 * spread, all), all};
    int64_t bound = s->base + s->load, tried = 1;
    for (int i = 0; i < 3; i++) {
        if (p->arena_bytes <= bound + bound / 100 || periods[i] <= tried ||
            periods[i] > MOST_ITEMS / s->count)
            continue;
        tried = periods[i];
        try_period(s, tried, bound / 256, WORK);
    }
}

void pipeline_lanes_place(struct program *p, int64_t base)
{
    enum { WORK = 100000 };
    struct schedule_shape shape = layout_schedule(&p->layout);
    struct stage s = {
        .p = p, .base = base, .lives = p->layout.schedule == SCHEDULE_ZB_H1 ? ALL_LIVES : WHOLE_LIVES};
    if (schedule_create(&shape, p->stage, &s.schedule, NULL))
        abort(); /* layout_complete() has checked the shape */
    list_tensors(&s);
    find_load(&s);
    find_shifts(&s);
    try_period(&s, 1, (base + s.load) / 256, WORK);
    try_rows(&s);
    schedule_free(s.schedule);
    free(s.list);
    free(s.pass_ends);
    free(s.shifts);
}
