/* Lanes by themselves: whoever is alive together in one slot lies apart, whatever is packed; and each way of packing does what
 * it is for. */
#include "model/lanes.h"

#include "base/checked.h"
#include "tests/model/configurations.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ITEMS = 120, MOST_KINDS = 12, MOST_LANES = 4 };

struct drawn {
    struct lane_item items[MOST_ITEMS];
    bool meets[MOST_LANES][MOST_KINDS * MOST_KINDS];
    struct lane lanes[MOST_LANES];
    struct lane_packing packing;
};

static void begin(struct drawn *d, int lanes, int kinds)
{
    memset(d, 0, sizeof *d);
    for (int i = 0; i < lanes; i++)
        d->lanes[i] = (struct lane){.slots = lanes - i, .meets = d->meets[i]};
    d->packing = (struct lane_packing){
        .lanes = d->lanes, .lane_count = lanes, .kinds = kinds, .items = d->items, .work = 20000};
}

static void add_item(struct drawn *d, int64_t size, int64_t from, int64_t until, int kind)
{
    d->items[d->packing.count++] = (struct lane_item){
        .size = size, .from = from, .until = until, .length = until - from + 1, .kind = kind};
}

static void let_meet(struct drawn *d, int lane, int kind, int other)
{
    d->meets[lane][kind * d->packing.kinds + other] = d->meets[lane][other * d->packing.kinds + kind] = true;
}

/* In the first lane no kind meets itself, so that all have a place. */
static void draw(struct drawn *d, uint64_t seed)
{
    int lanes = (int)configuration_pick(&seed, 1, MOST_LANES),
        kinds = (int)configuration_pick(&seed, 1, MOST_KINDS);
    int64_t count = configuration_pick(&seed, 1, MOST_ITEMS);
    begin(d, lanes, kinds);
    for (int lane = 0; lane < lanes; lane++)
        for (int64_t i = configuration_pick(&seed, 0, 3 * kinds); i > 0; i--) {
            int kind = (int)configuration_pick(&seed, 0, kinds - 1),
                other = (int)configuration_pick(&seed, 0, kinds - 1);
            if (lane > 0 || kind != other)
                let_meet(d, lane, kind, other);
        }
    for (int64_t i = 0; i < count; i++) {
        int64_t from = configuration_pick(&seed, 0, 60);
        add_item(d, configuration_pick(&seed, 1, 9) * configuration_pick(&seed, 1, 9), from,
                 from + configuration_pick(&seed, 0, 30), (int)configuration_pick(&seed, 0, kinds - 1));
        d->items[i].hangs = configuration_pick(&seed, 0, 1);
    }
    d->packing.enough = configuration_pick(&seed, 0, 600);
}

/* Returns how high the lanes reach, from the items alone. */
static int64_t check_apart(const struct drawn *d)
{
    int64_t heights[MOST_LANES] = {0}, top = 0;
    for (int64_t i = 0; i < d->packing.count; i++) {
        const struct lane_item *a = &d->items[i];
        const bool *meets = d->meets[a->lane] + a->kind * d->packing.kinds;
        if (a->lane < 0 || a->lane >= d->packing.lane_count || a->offset < 0 || meets[a->kind])
            ck_abort_msg("item %lld may not lie in lane %d at %lld", (long long)i, a->lane,
                         (long long)a->offset);
        heights[a->lane] = max_i64(heights[a->lane], a->offset + a->size);
        for (int64_t k = 0; k < i; k++) {
            const struct lane_item *b = &d->items[k];
            bool together = (a->from <= b->until && b->from <= a->until) || meets[b->kind];
            if (a->lane == b->lane && together && a->offset < b->offset + b->size &&
                b->offset < a->offset + a->size)
                ck_abort_msg("items %lld and %lld overlap", (long long)i, (long long)k);
        }
    }
    for (int i = 0; i < d->packing.lane_count; i++) {
        ASSERT_INT(d->lanes[i].height, heights[i]);
        top += heights[i] * d->lanes[i].slots;
    }
    return top;
}

TEST(lanes_random,
     "of 400 random sets of items none overlaps in any lane, and each packing is repeated exactly")
{
    static struct drawn d, again;
    for (uint64_t seed = 0; seed < 400; seed++) {
        draw(&d, seed);
        draw(&again, seed);
        int64_t top = lanes_pack(&d.packing);
        ASSERT_INT(top, check_apart(&d));
        ASSERT_INT(lanes_pack(&again.packing), top);
        for (int64_t i = 0; i < d.packing.count; i++)
            ASSERT(d.items[i].lane == again.items[i].lane && d.items[i].offset == again.items[i].offset);
    }
}

/* Two slots of what is kept (10) cost 20. What passes (4) costs 4 in the lane of one slot and 8 in that of two, unless it
 * fits where something kept is not yet alive. */
TEST(lanes_cheapest,
     "what lives for a short time lies in the lane of fewest slots, or where it costs nothing")
{
    static struct drawn d;
    for (int free_place = 0; free_place < 2; free_place++) {
        begin(&d, 2, 2);
        let_meet(&d, 1, 0, 0);
        add_item(&d, 10, free_place, 9, 0);
        add_item(&d, 4, 0, 0, 1);
        ASSERT_INT(lanes_pack(&d.packing), free_place ? 20 : 24);
        ASSERT_INT(check_apart(&d), free_place ? 20 : 24);
        ASSERT_INT(d.items[1].lane, free_place ? 0 : 1);
    }
}

TEST(lanes_exact, "equally large items fill exactly what is alive at once")
{
    static struct drawn d;
    int64_t most = 0;
    begin(&d, 1, 1);
    for (int64_t i = 0; i < MOST_ITEMS; i++)
        add_item(&d, 64, i, i + i * 7 % 13, 0);
    for (int64_t moment = 0; moment < MOST_ITEMS; moment++) {
        int64_t alive = 0;
        for (int64_t i = 0; i <= moment; i++)
            alive += d.items[i].until >= moment;
        most = max_i64(most, alive);
    }
    d.packing.enough = most * 64;
    ASSERT_INT(lanes_pack(&d.packing), most * 64);
    check_apart(&d);
}
