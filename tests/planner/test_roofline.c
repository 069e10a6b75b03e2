/* Cards: what shapes do to matrix products, and what few bytes do to collectives. */
#include "tests/test.h"

#include "planner/roofline.h"

#include <math.h>

/* 100 multiprocessors of 1 TFLOP/s together 100; nothing to fill or drain. */
static const struct product_curve plain = {100e12, 0, 100};

static double rate(const struct product_curve *curve, int64_t m, int64_t n, int64_t k)
{
    return 2.0 * (double)m * (double)n * (double)k / roofline_product_seconds(curve, m, n, k);
}

TEST(roofline_waves,
     "a product that fills its last wave has the whole rate; one tile more waits for a wave of its own")
{
    /* 10 x 10 tiles of 256 x 128 are one wave */
    ASSERT_NEAR(rate(&plain, 2560, 1280, 4096), 100e12, 1e6);
    double one = roofline_product_seconds(&plain, 2560, 1280, 4096);
    double more = roofline_product_seconds(&plain, 2560 + 256, 1280, 4096);
    /* 110 tiles: two waves would take twice as long. With k in 8 parts, 880 of them are 9 waves of an eighth. */
    ASSERT_NEAR(more, 9.0 / 8 * one, 1e-12);
    /* ten waves and one tile waste a tenth */
    ASSERT(rate(&plain, 25600, 1280 + 128, 4096) > 0.9e14);
}

TEST(roofline_small, "small products leave multiprocessors idle, and cutting k puts some of them to work")
{
    /* one tile of 64 x 64 on one multiprocessor: 0.6 of its rate */
    ASSERT_NEAR(rate(&plain, 64, 64, 128), 0.6e12, 1e6);
    /* the same with k in 8 parts: eight multiprocessors */
    ASSERT_NEAR(rate(&plain, 64, 64, 2048), 8 * 0.6e12, 1e7);
    double before = 0;
    for (int64_t side = 64; side <= 16384; side *= 2) {
        ASSERT(rate(&plain, side, side, side) >= before);
        before = rate(&plain, side, side, side);
    }
}

TEST(roofline_ramp, "a short sum spends its time filling and draining")
{
    struct product_curve curve = plain;
    curve.ramp_depth = 128;
    ASSERT_NEAR(rate(&curve, 2560, 1280, 128), 50e12, 1e6);
    ASSERT_NEAR(rate(&curve, 2560, 1280, 128 * 31), 100e12 * 31 / 32, 1e6);
}

TEST(roofline_bytes,
     "many bytes go at the pace of the link, few at that of the protocol with the least latency")
{
    struct collective c = {.ranks = 8, .nodes = 1, .all_reduce = true, .link_bytes_per_s = 200e9};
    c.bytes_sent = 200e9;
    ASSERT_NEAR(roofline_collective_seconds(&c), 1 + 56e-6, 1e-9);
    /* LL: a tree up and down 7 ranks takes 6.8 + 14 x 0.6 us; a ring 6.6 + 14 x 0.6 */
    c.bytes_sent = 0;
    ASSERT_NEAR(roofline_collective_seconds(&c), 15e-6, 1e-12);
    double before = 0;
    for (double bytes = 1; bytes < 1e11; bytes *= 1.5) {
        c.bytes_sent = bytes;
        double seconds = roofline_collective_seconds(&c);
        ASSERT(seconds > before);
        before = seconds;
    }
}

TEST(roofline_trees, "between many nodes a tree is quicker than a ring, until the link is what counts")
{
    struct collective c = {
        .ranks = 1024, .nodes = 128, .all_reduce = true, .link_bytes_per_s = 20e9, .bytes_sent = 1e4};
    /* LL: 6.8 us, 2 x 7 steps of 0.6 within, 2 x 7 of 5 between nodes; 1e4 bytes over half of the link are 1 us */
    ASSERT_NEAR(roofline_collective_seconds(&c), (6.8 + 8.4 + 70 + 1) * 1e-6, 1e-8);
    c.all_reduce = false;
    ASSERT(roofline_collective_seconds(&c) > 500e-6);
}
