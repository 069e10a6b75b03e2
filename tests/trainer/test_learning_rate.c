#include "trainer/learning_rate.h"

#include "tests/test.h"

#include <string.h>

static double at(enum learning_rate_kind kind, int64_t warmup, double min_fraction, int64_t step,
                 int64_t total)
{
    struct learning_rate rate = {kind, 0.8, min_fraction, warmup};
    return learning_rate_at(&rate, step, total);
}

/* Peak 0.8 over 4 warm-up steps: 0.2, 0.4, 0.6, 0.8. */
TEST(learning_rate_warmup, "warm-up climbs in equal steps, and its last step has the peak")
{
    for (int kind = LEARNING_RATE_CONSTANT; kind <= LEARNING_RATE_WSD; kind++)
        for (int step = 0; step < 4; step++)
            ASSERT_NEAR(at((enum learning_rate_kind)kind, 4, 0, step, 100), 0.2 * (step + 1), 1e-15);
}

TEST(learning_rate_constant, "a constant rate is the peak, exactly, for ever")
{
    ASSERT(at(LEARNING_RATE_CONSTANT, 0, 0.3, 0, 10) == 0.8);
    ASSERT(at(LEARNING_RATE_CONSTANT, 0, 0.3, 9, 10) == 0.8);
    ASSERT(at(LEARNING_RATE_CONSTANT, 0, 0.3, 10, 10) == 0.8);
}

/* 4 warm-up steps of 16: the decay has 12, so steps 8, 10 and 12 are a third, a half and two thirds through.
 * (1 + cos(pi/3))/2 = 3/4, (1 + cos(pi/2))/2 = 1/2, (1 + cos(2pi/3))/2 = 1/4. From peak 0.8 to minimum 0.08:
 * 0.08 + 0.72 * 3/4 = 0.62, 0.44, 0.26. */
TEST(learning_rate_cosine, "cosine falls from peak to minimum: 0.62, 0.44, 0.26 at thirds and half")
{
    ASSERT_NEAR(at(LEARNING_RATE_COSINE, 4, 0.1, 4, 16), 0.8, 1e-15);
    ASSERT_NEAR(at(LEARNING_RATE_COSINE, 4, 0.1, 8, 16), 0.62, 1e-15);
    ASSERT_NEAR(at(LEARNING_RATE_COSINE, 4, 0.1, 10, 16), 0.44, 1e-15);
    ASSERT_NEAR(at(LEARNING_RATE_COSINE, 4, 0.1, 12, 16), 0.26, 1e-15);
    ASSERT_NEAR(at(LEARNING_RATE_COSINE, 4, 0.1, 16, 16), 0.08, 1e-15);
}

/* No warm-up, 8 steps, minimum a quarter (0.2): each step loses 0.6 / 8 = 0.075. */
TEST(learning_rate_linear, "linear loses the same at every step")
{
    for (int step = 0; step <= 8; step++)
        ASSERT_NEAR(at(LEARNING_RATE_LINEAR, 0, 0.25, step, 8), 0.8 - 0.075 * step, 1e-15);
}

/* 100 steps: stable until step 80, then 1 - sqrt(p). Step 85 has p = 1/4: half the peak; step 92.8 would have p =
 * 0.64; step 81 has p = 1/20: 0.8 * (1 - 0.22360680) = 0.62111456. */
TEST(learning_rate_wsd, "warm-up, stable, decay: the last fifth falls as 1 - sqrt")
{
    ASSERT(at(LEARNING_RATE_WSD, 10, 0, 10, 100) == 0.8);
    ASSERT(at(LEARNING_RATE_WSD, 10, 0, 79, 100) == 0.8);
    ASSERT(at(LEARNING_RATE_WSD, 10, 0, 80, 100) == 0.8);
    ASSERT_NEAR(at(LEARNING_RATE_WSD, 10, 0, 81, 100), 0.62111456, 1e-8);
    ASSERT_NEAR(at(LEARNING_RATE_WSD, 10, 0, 85, 100), 0.4, 1e-15);
    ASSERT_NEAR(at(LEARNING_RATE_WSD, 10, 0.5, 85, 100), 0.6, 1e-15); /* half way from 0.8 to 0.4 */
    ASSERT(at(LEARNING_RATE_WSD, 10, 0, 100, 100) == 0);
}

/* Warm-up of 90 of 100 steps leaves 10 for the decay, which then starts at 90: p = 1/4 would be step 92.5; step 99
 * has p = 9/10. */
TEST(learning_rate_wsd_late, "a warm-up that reaches into the last fifth postpones the decay")
{
    ASSERT_NEAR(at(LEARNING_RATE_WSD, 90, 0, 89, 100), 0.8, 1e-15);
    ASSERT(at(LEARNING_RATE_WSD, 90, 0, 90, 100) == 0.8);
    ASSERT_NEAR(at(LEARNING_RATE_WSD, 90, 0, 99, 100), 0.8 * (1 - 0.9486832980505138), 1e-15);
}

TEST(learning_rate_short_runs,
     "runs shorter than their warm-up, of one step, or resumed past their end stay finite")
{
    ASSERT_NEAR(at(LEARNING_RATE_COSINE, 8, 0.1, 3, 4), 0.4, 1e-15);
    ASSERT_NEAR(at(LEARNING_RATE_COSINE, 0, 0.1, 0, 1), 0.8, 1e-15);
    ASSERT_NEAR(at(LEARNING_RATE_WSD, 0, 0.1, 0, 1), 0.8, 1e-15);
    ASSERT_NEAR(at(LEARNING_RATE_LINEAR, 4, 0.1, 4, 4), 0.08, 1e-15);
    ASSERT_NEAR(at(LEARNING_RATE_COSINE, 0, 0.1, 1000, 16), 0.08, 1e-15);
}

TEST(learning_rate_names, "every name parses to its kind, and an unknown one lists the four")
{
    static const char *const names[] = {"constant", "cosine", "linear", "wsd"};
    static const enum learning_rate_kind kinds[] = {LEARNING_RATE_CONSTANT, LEARNING_RATE_COSINE,
                                                    LEARNING_RATE_LINEAR, LEARNING_RATE_WSD};
    for (int i = 0; i < 4; i++) {
        enum learning_rate_kind parsed;
        struct error err;
        ASSERT_OK(learning_rate_parse(names[i], &parsed, &err));
        ASSERT_INT((int)parsed, (int)kinds[i]);
    }
    enum learning_rate_kind untouched = LEARNING_RATE_LINEAR;
    struct error err;
    ASSERT_INT(learning_rate_parse("cosin", &untouched, &err), -1);
    ASSERT_HAS(err.text, "\"cosin\"");
    ASSERT_HAS(err.text, "constant, cosine, linear or wsd");
    ASSERT_INT((int)untouched, LEARNING_RATE_LINEAR);
}
