/* Packing by itself: nothing that lives at once overlaps, whatever is packed, and the orders of size do what they are for. */
#include "model/packing.h"

#include "base/arena.h"
#include "base/checked.h"
#include "tests/model/configurations.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STAYS = 300 };

struct drawn {
    struct stay stays[MOST_STAYS];
    int64_t places[MOST_STAYS];
    struct packing packing;
};

static void add_stay(struct drawn *d, int64_t size, int64_t from, int64_t until)
{
    int64_t i = d->packing.count++;
    d->stays[i] = (struct stay){.size = size, .from = from, .until = until, .place = &d->places[i]};
    d->packing.moments = max_i64(d->packing.moments, until + 1);
}

static void begin(struct drawn *d, int orders)
{
    memset(d, 0, sizeof *d);
    d->packing = (struct packing){.list = d->stays, .kinds = 1, .orders = orders};
}

/* Returns the highest end. */
static int64_t check_apart(const struct drawn *d)
{
    int64_t top = 0;
    for (int64_t i = 0; i < d->packing.count; i++) {
        const struct stay *a = &d->stays[i];
        top = max_i64(top, d->places[i] + a->size);
        for (int64_t k = 0; k < i; k++) {
            const struct stay *b = &d->stays[k];
            bool together = a->from <= b->until && b->from <= a->until;
            if (together && d->places[i] < d->places[k] + b->size && d->places[k] < d->places[i] + a->size)
                ck_abort_msg("stays %lld and %lld overlap", (long long)i, (long long)k);
        }
    }
    return top;
}

static void draw(struct drawn *d, uint64_t seed)
{
    int64_t sizes = configuration_pick(&seed, 1, 5), from = 0;
    int64_t count = configuration_pick(&seed, 0, MOST_STAYS), longest = configuration_pick(&seed, 0, 60);
    begin(d, (int)configuration_pick(&seed, 0, 8));
    for (int64_t i = 0; i < count; i++) {
        from += configuration_pick(&seed, 0, 2);
        int64_t size = 1 + 7 * configuration_pick(&seed, 1, sizes) * configuration_pick(&seed, 1, sizes);
        add_stay(d, size, from, from + configuration_pick(&seed, 0, longest));
    }
}

TEST(packing_random,
     "of 400 random packings none overlaps, none is below the bound, and each is repeated exactly")
{
    static struct drawn d, again;
    for (uint64_t seed = 0; seed < 400; seed++) {
        draw(&d, seed);
        draw(&again, seed);
        int64_t top = packing_pack(&d.packing);
        ASSERT_INT(top, check_apart(&d));
        ASSERT(top >= packing_bound(&d.packing));
        ASSERT_INT(packing_pack(&again.packing), top);
        ASSERT(!memcmp(d.places, again.places, sizeof d.places));
    }
}

/* In the order of time 1 lies under 2; when it goes, 3 does not fit below 2 and lies above: 6. The other way round all fit
 * in 5, which is what lives at the worst moment: 2 and 3. */
TEST(packing_by_size, "the largest first fits where the order of time leaves a hole")
{
    static struct drawn d;
    for (int orders = 0; orders < 2; orders++) {
        begin(&d, orders);
        add_stay(&d, 1, 0, 0);
        add_stay(&d, 2, 0, 2);
        add_stay(&d, 3, 1, 2);
        ASSERT_INT(packing_bound(&d.packing), 5);
        ASSERT_INT(packing_pack(&d.packing), orders ? 5 : 6);
        ASSERT_INT(check_apart(&d), orders ? 5 : 6);
    }
}

TEST(packing_equal, "equally large stays fill exactly what lives at once")
{
    static struct drawn d;
    begin(&d, 0);
    for (int64_t i = 0; i < MOST_STAYS; i++)
        add_stay(&d, 64, i, i + i * 7 % 13);
    ASSERT_INT(packing_pack(&d.packing), packing_bound(&d.packing));
    check_apart(&d);
}

TEST(packing_none, "nothing to pack needs nothing")
{
    static struct drawn d;
    begin(&d, 1);
    ASSERT_INT(packing_pack(&d.packing), 0);
}
