/* Several ways to give places, the cheap ones first, until one is close to what must be; the lowest counts.
 *
 * In the order of time each takes the tightest gap among those that live then, which is best where all are equally large. Kind
 * by kind, each kind above the one before, suits long schedules, in which as many of each live at once most of the time. The largest first, each as low as it can, is the best by far where sizes are mixed, and takes the square of
 * their number. Where that is not good enough either, the same again in other orders: what reached too high comes earlier
 * the next time (Joslin & Clements 1999, "Squeaky wheel" optimization). */
#include "model/packing.h"

#include "base/arena.h"
#include "base/checked.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A way that comes within 1/CLOSE of what must be ends the search; other orders of size are tried only above
 * 1/FAIR, while they take fewer comparisons than MOST_WORK together. */
enum { CLOSE = 128, FAIR = 50, MOST_BY_SIZE = 8192, MOST_WORK = 1 << 22 };

int64_t packing_bound(const struct packing *packing)
{
    int64_t *change = host_alloc((size_t)(packing->moments + 1) * sizeof *change), alive = 0, most = 0;
    for (int64_t i = 0; i < packing->count; i++) {
        change[packing->list[i].from] += packing->list[i].size;
        change[packing->list[i].until + 1] -= packing->list[i].size;
    }
    for (int64_t moment = 0; moment < packing->moments; moment++)
        most = max_i64(most, alive += change[moment]);
    free(change);
    return most;
}

/* The lowest packing so far. */
struct best {
    const struct packing *packing;
    int64_t bound, top;
};

static void consider(struct best *best, int64_t top)
{
    if (top >= best->top)
        return;
    best->top = top;
    for (int64_t i = 0; i < best->packing->count; i++)
        *best->packing->list[i].place = best->packing->list[i].offset;
}

static bool is_within(const struct best *best, int64_t fraction)
{
    return best->top <= best->bound + (best->packing->below + best->bound) / fraction;
}

/* ---------------------------------------------------------------------------------------------- in the order of time */

/* Room that nobody has, by offset; the last gap has no end. None touches the next. */
struct gaps {
    struct gap {
        int64_t from, until;
    } * list;
    int64_t count;
};

/* The tightest gap, and of equal ones the lowest. */
static int64_t take_gap(struct gaps *gaps, int64_t size)
{
    struct gap *found = NULL;
    for (struct gap *gap = gaps->list; gap < gaps->list + gaps->count; gap++) {
        int64_t room = gap->until - gap->from;
        if (room < size || (found && room >= found->until - found->from))
            continue;
        found = gap;
        if (room == size)
            break;
    }
    int64_t offset = found->from;
    found->from += size;
    if (found->from == found->until) {
        memmove(found, found + 1, (size_t)(gaps->list + gaps->count - found - 1) * sizeof *found);
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

/* Gives each stay of this kind its place as it begins; returns how high they reach. */
static int64_t pack_in_time(const struct packing *packing, int kind)
{
    struct stay **ending = host_alloc((size_t)packing->moments * sizeof *ending);
    struct gaps gaps = {.list = host_alloc((size_t)(packing->count + 2) * sizeof *gaps.list), .count = 1};
    int64_t top = 0, moment = 0;
    gaps.list[0].until = INT64_MAX;
    for (struct stay *stay = packing->list; stay < packing->list + packing->count; stay++) {
        if (kind != EVERY_KIND && kind != stay->kind)
            continue;
        for (; moment < stay->from; moment++)
            for (const struct stay *ended = ending[moment]; ended; ended = ended->also_ends)
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

static int64_t pack_by_kind(const struct packing *packing)
{
    int64_t *base = host_alloc((size_t)(packing->kinds + 1) * sizeof *base);
    for (int kind = 0; kind < packing->kinds; kind++)
        base[kind + 1] = base[kind] + pack_in_time(packing, kind);
    int64_t top = base[packing->kinds];
    for (int64_t i = 0; i < packing->count; i++)
        packing->list[i].offset += base[packing->list[i].kind];
    free(base);
    return top;
}

/* ------------------------------------------------------------------------------------------- in the order of sizes */

/* A stay that has its place. */
struct seat {
    int64_t offset, end, from, until;
};

struct turn {
    struct stay *stay;
    int64_t rank; /* the highest has the first turn */
};

struct orders {
    const struct packing *packing;
    struct turn *turns; /* in the order of the last attempt */
    struct seat *seats; /* by offset */
    int *bumps;         /* of stay i: how often it was too high */
    int64_t work;
    uint32_t random;
};

/* The lowest offset where the stay meets nobody. */
static int64_t find_offset(struct orders *orders, const struct stay *stay, int64_t seats)
{
    int64_t offset = 0, k = 0, from = stay->from, until = stay->until;
    for (; k < seats; k++) {
        const struct seat *seat = &orders->seats[k];
        if (seat->from > until || seat->until < from)
            continue;
        if (seat->offset >= offset + stay->size)
            break;
        offset = max_i64(offset, seat->end);
    }
    orders->work += k;
    return offset;
}

static void take_seat(struct orders *orders, const struct stay *stay, int64_t seats)
{
    int64_t low = 0, high = seats;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (orders->seats[middle].offset <= stay->offset)
            low = middle + 1;
        else
            high = middle;
    }
    struct seat *seat = &orders->seats[low];
    memmove(seat + 1, seat, (size_t)(seats - low) * sizeof *seat);
    *seat = (struct seat){stay->offset, stay->offset + stay->size, stay->from, stay->until};
}

static int64_t pack_in_order(struct orders *orders)
{
    int64_t top = 0;
    for (int64_t i = 0; i < orders->packing->count; i++) {
        struct stay *stay = orders->turns[i].stay;
        stay->offset = find_offset(orders, stay, i);
        take_seat(orders, stay, i);
        top = max_i64(top, stay->offset + stay->size);
    }
    return top;
}

enum { DOUBLED = 64 };

/* DOUBLED times the binary logarithm, straight between powers of two. Whole numbers, since all machines agree on them. */
static int64_t logarithm(int64_t value)
{
    int power = 63 - __builtin_clzll((unsigned long long)value);
    int64_t above = value - (1LL << power);
    return DOUBLED * power + (power > 6 ? above >> (power - 6) : above << (6 - power));
}

static int compare_turns(const void *a, const void *b)
{
    const struct turn *p = a, *q = b;
    const struct stay *x = p->stay, *y = q->stay;
    if (p->rank != q->rank)
        return p->rank < q->rank ? 1 : -1;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return x->from != y->from ? (x->from > y->from ? 1 : -1) : (x > y) - (x < y);
}

/* Attempt 0 is by size alone. Later ones by size, by size and length of the stay, or by length, with some chance; each time
 * that a stay reached too high counts twice. */
static void take_turns(struct orders *orders, int attempt)
{
    const struct packing *packing = orders->packing;
    for (int64_t i = 0; i < packing->count; i++) {
        struct stay *stay = &packing->list[i];
        int64_t rank = attempt % 3 < 2 ? logarithm(stay->size) : 0;
        if (attempt % 3 > 0)
            rank += logarithm(stay->until - stay->from + 1);
        orders->random = orders->random * 1664525u + 1013904223u;
        if (attempt > 0)
            rank += DOUBLED * orders->bumps[i] + (orders->random >> 8) % (DOUBLED / 2);
        orders->turns[i] = (struct turn){stay, rank};
    }
    qsort(orders->turns, (size_t)packing->count, sizeof *orders->turns, compare_turns);
}

static void count_bumps(struct orders *orders, int64_t enough)
{
    for (int64_t i = 0; i < orders->packing->count; i++) {
        const struct stay *stay = &orders->packing->list[i];
        orders->bumps[i] += stay->offset + stay->size > enough;
    }
}

static void try_orders(struct best *best)
{
    const struct packing *packing = best->packing;
    size_t count = (size_t)packing->count;
    if (packing->count > MOST_BY_SIZE)
        return;
    struct orders orders = {.packing = packing, .random = 1};
    orders.turns = host_alloc(count * sizeof *orders.turns);
    orders.seats = host_alloc(count * sizeof *orders.seats);
    orders.bumps = host_alloc(count * sizeof *orders.bumps);
    for (int attempt = 0; attempt < packing->orders && orders.work < MOST_WORK; attempt++) {
        take_turns(&orders, attempt);
        consider(best, pack_in_order(&orders));
        if (is_within(best, FAIR))
            break;
        count_bumps(&orders, best->bound + (packing->below + best->bound) / FAIR);
    }
    free(orders.turns);
    free(orders.seats);
    free(orders.bumps);
}

int64_t packing_pack(const struct packing *packing)
{
    struct best best = {packing, packing_bound(packing), INT64_MAX};
    consider(&best, pack_in_time(packing, EVERY_KIND));
    if (!is_within(&best, CLOSE) && packing->kinds > 1)
        consider(&best, pack_by_kind(packing));
    if (!is_within(&best, CLOSE))
        try_orders(&best);
    return best.top;
}
