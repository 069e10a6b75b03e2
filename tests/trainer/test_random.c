#include "trainer/random.h"

#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first published vector of Philox4x32-10 (Random123, kat_vectors): key 0 and counter 0 give the words 6627e8d5
 * e169c58d bc57ac4c 9b00dbd8. A stream whose key is 0 therefore starts with these two, low word first. */
TEST(random_philox_vector_zero, "the generator is Philox4x32-10: the published vector for zeros")
{
    struct random_stream zero = {0};
    ASSERT(random_bits(zero, 0) == 0xe169c58d6627e8d5);
    ASSERT(random_bits(zero, 1) == 0x9b00dbd8bc57ac4c);
    /* Stream 0 of seed 0 has the first half of that same block as its key. */
    ASSERT(random_stream(0, 0).key == 0xe169c58d6627e8d5);
}

TEST(random_streams_differ, "seed, stream and index each change every value")
{
    uint64_t base = random_bits(random_stream(7, 3), 5);
    ASSERT(base == random_bits(random_stream(7, 3), 5));
    ASSERT(base != random_bits(random_stream(8, 3), 5));
    ASSERT(base != random_bits(random_stream(7, 4), 5));
    ASSERT(base != random_bits(random_stream(7, 3), 6));
    ASSERT(base != random_bits(random_stream(3, 7), 5));
}

static float normal_at(struct random_stream stream, uint64_t index)
{
    float value;
    random_fill_normal(stream, index, 1, &value, 1);
    return value;
}

/* For n uniform values the mean has standard error sqrt(1/12/n): 0.00091 for 100,000. Bounds are five of them. */
TEST(random_bits_moments, "bits as fractions lie in [0, 1) with mean 1/2 and variance 1/12")
{
    enum { COUNT = 100000 };
    struct random_stream stream = random_stream(1, 1);
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = (double)random_bits(stream, i) / 0x1p64;
        sum += u;
        squares += (u - 0.5) * (u - 0.5);
    }
    ASSERT_NEAR(sum / COUNT, 0.5, 0.0046);
    ASSERT_NEAR(squares / COUNT, 1.0 / 12, 0.0012);
}

/* Standard errors for n = 100,000: mean 1/sqrt(n) = 0.0032, variance sqrt(2/n) = 0.0045, fourth moment sqrt(96/n) =
 * 0.031, neighbours' product 0.0032. P(|z| > 1.96) = 0.05, standard error 0.0007. Bounds are five of each. */
TEST(random_normal_moments,
     "normal values have the moments and the tails of a Gaussian, and neighbours are independent")
{
    enum { COUNT = 100000 };
    struct random_stream stream = random_stream(2, 1);
    double sum = 0, squares = 0, fourths = 0, products = 0, before = 0;
    int tails = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        double z = normal_at(stream, i);
        sum += z;
        squares += z * z;
        fourths += z * z * z * z;
        products += z * before;
        tails += fabs(z) > 1.959964;
        before = z;
    }
    ASSERT_NEAR(sum / COUNT, 0, 0.016);
    ASSERT_NEAR(squares / COUNT, 1, 0.023);
    ASSERT_NEAR(fourths / COUNT, 3, 0.155);
    ASSERT_NEAR(products / COUNT, 0, 0.016);
    ASSERT_NEAR((double)tails / COUNT, 0.05, 0.0035);
}

/* Box and Muller by hand for the block above: u1 = 0xe169c58d6627e8d5 / 2^64 = 0.88052020..., u2 =
 * 0x9b00dbd8bc57ac4c / 2^64 = 0.60548185...; radius = sqrt(-2 ln(1 - u1)) and angle = 2 pi u2. */
TEST(random_normal_pair, "two neighbours are the cosine and the sine of one Box-Muller pair")
{
    struct random_stream zero = {0};
    double u1 = (double)0xe169c58d6627e8d5 / 0x1p64, u2 = (double)0x9b00dbd8bc57ac4c / 0x1p64;
    double radius = sqrt(-2 * log(1 - u1));
    ASSERT_NEAR(normal_at(zero, 0), (float)(radius * cos(2 * M_PI * u2)), 1e-12);
    ASSERT_NEAR(normal_at(zero, 1), (float)(radius * sin(2 * M_PI * u2)), 1e-12);
}

TEST(random_fill_split,
     "filling a tensor in parts, from odd or even places, gives the bits of filling it whole")
{
    struct random_stream stream = random_stream(5, 9);
    float whole[31], parts[31];
    random_fill_normal(stream, 100, 0.02, whole, 31);
    random_fill_normal(stream, 100, 0.02, parts, 7);
    random_fill_normal(stream, 107, 0.02, parts + 7, 1);
    random_fill_normal(stream, 108, 0.02, parts + 8, 23);
    ASSERT(!memcmp(whole, parts, sizeof whole));
    for (int i = 0; i < 31; i++) {
        random_fill_normal(stream, 100 + (uint64_t)i, 0.02, parts, 1);
        ASSERT(whole[i] == parts[0]);
    }
}

/* 60,000 throws of a die: each face 10,000 times, standard deviation sqrt(60000 * 1/6 * 5/6) = 91.3. */
TEST(random_below_die, "whole numbers below 6 are equally likely")
{
    int64_t faces[6] = {0};
    struct random_stream stream = random_stream(4, 0);
    for (uint64_t i = 0; i < 60000; i++)
        faces[random_below(stream, i, 6)]++;
    for (int face = 0; face < 6; face++)
        ASSERT_NEAR((double)faces[face], 10000, 457);
}

/* Scaling 64 bits to n = 3 * 2^61 maps every 8 neighbouring values of the bits to 3 numbers as 0 0 0 1 1 1 2 2:
 * without second tries, residues modulo 3 would come up 11,250, 11,250 and 7,500 times in 30,000. */
TEST(random_below_unbiased, "a limit near 2^63 shows no bias, thanks to second tries")
{
    int64_t limit = 3 * (1LL << 61), residues[3] = {0};
    struct random_stream stream = random_stream(4, 1);
    for (uint64_t i = 0; i < 30000; i++) {
        int64_t value = random_below(stream, i, limit);
        ASSERT(value >= 0 && value < limit);
        residues[value % 3]++;
    }
    for (int r = 0; r < 3; r++)
        ASSERT_NEAR((double)residues[r], 10000, 410); /* five times sqrt(30000 * 1/3 * 2/3) = 81.6 */
}

TEST(random_below_one, "below 1 there is only 0")
{
    for (uint64_t i = 0; i < 100; i++)
        ASSERT_INT(random_below(random_stream(0, i), i, 1), 0);
}

TEST(random_shuffle_permutes, "a shuffle of any count visits every index once")
{
    static const int64_t counts[] = {1, 2, 3, 7, 64, 1000, 4097};
    for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char *seen = calloc((size_t)counts[i], 1);
        for (int64_t index = 0; index < counts[i]; index++) {
            int64_t place = random_shuffle(random_stream(i, 1), counts[i], index);
            ASSERT(place >= 0 && place < counts[i]);
            ASSERT(!seen[place]);
            seen[place] = 1;
        }
        free(seen);
    }
}

/* 24,000 shuffles of 4: each of the 24 orders 1,000 times, standard deviation sqrt(24000 * 1/24 * 23/24) = 31. */
TEST(random_shuffle_fair, "all 24 orders of 4 things are equally likely")
{
    int64_t orders[256] = {0};
    int different = 0;
    for (uint64_t seed = 0; seed < 24000; seed++) {
        int order = 0;
        for (int64_t index = 0; index < 4; index++)
            order = order * 4 + (int)random_shuffle(random_stream(seed, 0), 4, index);
        orders[order]++;
    }
    for (int order = 0; order < 256; order++) {
        if (!orders[order])
            continue;
        different++;
        ASSERT_NEAR((double)orders[order], 1000, 155);
    }
    ASSERT_INT(different, 24);
}
