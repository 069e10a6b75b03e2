/* Attempts, of which the lowest counts. In an attempt the items take turns, and each takes the place that makes the lanes
 * grow least: the lowest one in a lane where it meets nobody. What differs is the order of the turns.
 *
 * Where there are several lanes, how tall the first may grow at no cost decides most, since it has most slots: that is
 * searched first, and then orders near the best. Where there is one lane, what reached too high has an earlier turn the next
 * time (Joslin & Clements 1999, "Squeaky wheel" optimization), and of what hangs each is laid as high as there is room: what
 * grows from below and what hangs from above share the middle. */
#include "model/lanes.h"

#include "base/arena.h"
#include "base/checked.h"

#include <stdlib.h>

/* An item that has its place. */
struct seat {
    int64_t offset, end, from, until;
    int kind;
};

struct turn {
    struct lane_item *item;
    int64_t rank, second; /* the highest has the first turn */
    int bumps;            /* how often it was too high */
};

struct search {
    struct lane_packing *packing;
    struct seat **seats; /* of each lane, by offset */
    int64_t *seat_counts;
    int64_t *needs; /* of each kind: the fewest slots of a lane where it meets itself not */
    struct turn *turns;
    int64_t searched; /* turns[0 .. searched) change places; the small ones behind them fit in anywhere */
    struct lane_item *best_items;
    int64_t best, work;
    int64_t free_height; /* of the first lane */
    bool hang;
    uint32_t random;
};

/* -------------------------------------------------------------------------------------------------------- one attempt */

static bool meets_itself(const struct lane_packing *p, int lane, int kind)
{
    return p->lanes[lane].meets[kind * (p->kinds + 1)];
}

static bool is_met(const struct seat *seat, const struct lane_item *item, const bool *meets)
{
    return (seat->from <= item->until && seat->until >= item->from) || meets[seat->kind];
}

/* The lowest offset in the lane where the item meets nobody; INT64_MAX when it is above `most`. */
static int64_t find_lowest(struct search *s, int lane, const struct lane_item *item, int64_t most)
{
    const struct seat *first = s->seats[lane], *seat = first, *end = first + s->seat_counts[lane];
    const bool *meets = s->packing->lanes[lane].meets + item->kind * s->packing->kinds;
    int64_t offset = 0;
    for (; seat < end && offset <= most; seat++) {
        if (seat->end <= offset || !is_met(seat, item, meets))
            continue;
        if (seat->offset >= offset + item->size)
            break;
        offset = seat->end;
    }
    s->work += seat - first;
    return offset <= most ? offset : INT64_MAX;
}

/* The highest offset in the first lane, below what is enough, where the item meets nobody; -1: there is none. */
static int64_t find_highest(struct search *s, const struct lane_item *item)
{
    const struct seat *first = s->seats[0], *seat = first + s->seat_counts[0];
    const bool *meets = s->packing->lanes[0].meets + item->kind * s->packing->kinds;
    int64_t offset = s->packing->enough - item->size;
    while (seat-- > first && offset >= 0)
        if (seat->offset < offset + item->size && seat->end > offset && is_met(seat, item, meets))
            offset = seat->offset - item->size;
    s->work += s->seat_counts[0];
    return offset;
}

/* Decides item->lane and item->offset. */
static void find_place(struct search *s, struct lane_item *item)
{
    struct lane_packing *p = s->packing;
    int64_t least = INT64_MAX;
    item->lane = 0;
    if (s->hang && item->hangs && (item->offset = find_highest(s, item)) >= 0)
        return;
    for (int i = 0; i < p->lane_count && least > 0; i++) {
        const struct lane *lane = &p->lanes[i];
        if (meets_itself(p, i, item->kind))
            continue;
        int64_t free_height = i == 0 ? max_i64(lane->height, s->free_height) : lane->height;
        int64_t most = least == INT64_MAX ? INT64_MAX - item->size
                                          : free_height + (least - 1) / lane->slots - item->size;
        int64_t offset = find_lowest(s, i, item, most);
        if (offset == INT64_MAX)
            continue;
        least = max_i64(0, offset + item->size - free_height) * lane->slots;
        item->lane = i;
        item->offset = offset;
    }
}

static void take_seat(struct search *s, const struct lane_item *item)
{
    struct seat *seats = s->seats[item->lane];
    int64_t at = s->seat_counts[item->lane]++;
    for (; at > 0 && seats[at - 1].offset > item->offset; at--)
        seats[at] = seats[at - 1];
    seats[at] = (struct seat){item->offset, item->offset + item->size, item->from, item->until, item->kind};
}

static int64_t height_of(const struct lane_packing *p)
{
    int64_t height = 0;
    for (int i = 0; i < p->lane_count; i++)
        height += p->lanes[i].height * p->lanes[i].slots;
    return height;
}

/* Gives turns [0, count) their places, until the best is out of reach. */
static void attempt(struct search *s)
{
    struct lane_packing *p = s->packing;
    for (int i = 0; i < p->lane_count; i++)
        p->lanes[i].height = s->seat_counts[i] = 0;
    s->work += p->count; /* even where nothing has to be compared, attempts come to an end */
    for (int64_t i = 0; i < p->count; i++) {
        struct lane_item *item = s->turns[i].item;
        find_place(s, item);
        take_seat(s, item);
        struct lane *lane = &p->lanes[item->lane];
        if (item->offset + item->size <= lane->height)
            continue;
        lane->height = item->offset + item->size;
        if (height_of(p) >= s->best)
            return;
    }
    s->best = height_of(p);
    for (int64_t i = 0; i < p->count; i++)
        s->best_items[i] = p->items[i];
}

static bool is_over(const struct search *s)
{
    return s->best <= s->packing->enough || (s->work >= s->packing->work && s->best < INT64_MAX);
}

/* -------------------------------------------------------------------------------------------------------------- orders */

enum order { FIRST_BORN, LAST_BORN, LARGE_FIRST_BORN, LARGE_LAST_BORN, LARGE, LARGE_LONG, LONG, ORDERS };
enum { UNIT = 64 };

/* UNIT times the binary logarithm, straight between powers of two. Whole numbers, since all machines agree on them. */
static int64_t logarithm(int64_t value)
{
    int power = 63 - __builtin_clzll((unsigned long long)value);
    int64_t above = value - (1LL << power);
    return UNIT * power + (power > 6 ? above >> (power - 6) : above << (6 - power));
}

static uint32_t draw(struct search *s, uint32_t below)
{
    s->random = s->random * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(s->random >> 4) * below >> 28);
}

static int compare_turns(const void *a, const void *b)
{
    const struct turn *p = a, *q = b;
    if (p->rank != q->rank)
        return p->rank < q->rank ? 1 : -1;
    if (p->second != q->second)
        return p->second < q->second ? 1 : -1;
    return (p->item > q->item) - (p->item < q->item);
}

/* By birth, what needs many slots comes first: the stacks that grow forward and shrink backward. `noise`: up to how much
 * ranks are shifted by chance. */
static void take_turns(struct search *s, enum order order, uint32_t noise)
{
    enum { MORE_SLOTS = 1 << 16 }; /* more than all else can add */
    for (int64_t i = 0; i < s->searched; i++) {
        struct turn *turn = &s->turns[i];
        const struct lane_item *item = turn->item;
        int64_t size = logarithm(item->size), length = logarithm(item->length);
        bool by_birth = order == FIRST_BORN || order == LAST_BORN;
        turn->rank = (order < LARGE ? s->needs[item->kind] * MORE_SLOTS : 0) +
                     (by_birth || order == LONG ? 0 : size) + (order >= LARGE_LONG ? length : 0) +
                     turn->bumps * UNIT;
        if (noise)
            turn->rank += draw(s, noise);
        turn->second = order >= LARGE                                     ? length
                       : order == FIRST_BORN || order == LARGE_FIRST_BORN ? -item->from
                                                                          : item->from;
    }
    qsort(s->turns, (size_t)s->searched, sizeof *s->turns, compare_turns);
}

static void count_bumps(struct search *s)
{
    for (int64_t i = 0; i < s->searched; i++) {
        const struct lane_item *item = s->turns[i].item;
        s->turns[i].bumps += item->offset + item->size > s->packing->enough;
    }
}

static void search_one_lane(struct search *s)
{
    for (enum order order = 0; order < ORDERS && !is_over(s); order++) {
        take_turns(s, order, 0);
        attempt(s);
    }
    s->hang = true;
    for (int i = 0; !is_over(s); i++) {
        take_turns(s, (enum order)(LARGE + i % 3), i > 0 ? UNIT : 0);
        attempt(s);
        count_bumps(s);
    }
}

/* The most that one round has alive at once. */
static int64_t most_alive(const struct lane_packing *p)
{
    int64_t moments = 0, alive = 0, most = 0;
    for (int64_t i = 0; i < p->count; i++)
        moments = max_i64(moments, p->items[i].until + 1);
    int64_t *change = host_alloc((size_t)(moments + 1) * sizeof *change);
    for (int64_t i = 0; i < p->count; i++) {
        change[p->items[i].from] += p->items[i].size;
        change[p->items[i].until + 1] -= p->items[i].size;
    }
    for (int64_t moment = 0; moment < moments; moment++)
        most = max_i64(most, alive += change[moment]);
    free(change);
    return most;
}

/* Free heights of the first lane in even steps; then by chance around the best, ever nearer to it. */
static void search_lanes(struct search *s, int64_t alive)
{
    enum { STEPS = 16, PARTS = 1024 };
    int64_t best_height = 0, best = INT64_MAX, reach = alive / STEPS;
    enum order best_order = 0;
    for (int i = 0; !is_over(s); i++) {
        bool even = i < ORDERS * (STEPS + 1);
        enum order order = even         ? (enum order)(i / (STEPS + 1))
                           : draw(s, 3) ? best_order
                                        : (enum order)draw(s, ORDERS);
        int64_t shift = reach / PARTS * ((int64_t)draw(s, 2 * PARTS) - PARTS);
        s->free_height =
            even ? alive / STEPS * (i % (STEPS + 1)) : max_i64(0, best_height + (draw(s, 2) ? shift : 0));
        if (!even || i % (STEPS + 1) == 0)
            take_turns(s, order, even ? 0 : draw(s, 3) * (UNIT / 2));
        attempt(s);
        if (s->best < best) {
            best = s->best;
            best_height = s->free_height;
            best_order = order;
        }
        if (!even)
            reach = max_i64(reach - reach / STEPS, alive / (STEPS * STEPS));
    }
}

/* --------------------------------------------------------------------------------------------------------------- whole */

static void list_turns(struct search *s, int64_t alive)
{
    enum { SMALL = 1000 }; /* of what lives at once */
    const struct lane_packing *p = s->packing;
    int64_t turns = 0;
    for (int small = 0; small < 2; small++) {
        for (int64_t i = 0; i < p->count; i++)
            if ((p->items[i].size < alive / SMALL) == small)
                s->turns[turns++].item = &p->items[i];
        if (!small)
            s->searched = turns;
    }
}

static void list_needs(struct search *s)
{
    const struct lane_packing *p = s->packing;
    for (int kind = 0; kind < p->kinds; kind++) {
        s->needs[kind] = INT64_MAX;
        for (int i = 0; i < p->lane_count; i++)
            if (!meets_itself(p, i, kind))
                s->needs[kind] = min_i64(s->needs[kind], p->lanes[i].slots);
    }
}

int64_t lanes_pack(struct lane_packing *p)
{
    size_t count = (size_t)p->count;
    int64_t alive = most_alive(p);
    struct search s = {.packing = p, .best = INT64_MAX, .random = 1};
    s.seats = host_alloc((size_t)p->lane_count * sizeof *s.seats);
    s.seat_counts = host_alloc((size_t)p->lane_count * sizeof *s.seat_counts);
    s.needs = host_alloc((size_t)p->kinds * sizeof *s.needs);
    s.turns = host_alloc(count * sizeof *s.turns);
    s.best_items = host_alloc(count * sizeof *s.best_items);
    for (int i = 0; i < p->lane_count; i++)
        s.seats[i] = host_alloc(count * sizeof **s.seats);
    list_turns(&s, alive);
    list_needs(&s);
    if (p->lane_count == 1)
        search_one_lane(&s);
    else
        search_lanes(&s, alive);
    for (int i = 0; i < p->lane_count; i++) {
        p->lanes[i].height = 0;
        free(s.seats[i]);
    }
    for (int64_t i = 0; i < p->count; i++) {
        struct lane_item *item = &p->items[i];
        *item = s.best_items[i];
        p->lanes[item->lane].height = max_i64(p->lanes[item->lane].height, item->offset + item->size);
    }
    free(s.seats);
    free(s.seat_counts);
    free(s.needs);
    free(s.turns);
    free(s.best_items);
    return s.best;
}
