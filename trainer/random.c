/* Philox4x32-10, and what is built on it. A block is 128 bits, found from a key and a 128-bit counter (the index,
 * and a lane that keeps second tries apart from first ones); indices 2i and 2i + 1 share block i. */
#include "trainer/random.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

struct block {
    uint64_t half[2];
};

static struct block block_at(uint64_t key, uint64_t counter, uint64_t lane)
{
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)lane, (uint32_t)(lane >> 32)};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t left = (uint64_t)0xd2511f53 * c[0], right = (uint64_t)0xcd9e8d57 * c[2];
        c[0] = (uint32_t)(right >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)right;
        c[2] = (uint32_t)(left >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)left;
        k0 += 0x9e3779b9; /* the golden ratio and sqrt(3) - 1: no two rounds use the same key */
        k1 += 0xbb67ae85;
    }
    return (struct block){{c[0] | (uint64_t)c[1] << 32, c[2] | (uint64_t)c[3] << 32}};
}

/* The upper 53 bits, which a double holds exactly. */
static double unit_of(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

/* Box and Muller 1958: two uniform numbers make two independent normal ones. */
static void normal_pair(struct random_stream stream, uint64_t pair, double normals[2])
{
    struct block block = block_at(stream.key, pair, 0);
    double radius = sqrt(-2 * log(1 - unit_of(block.half[0]))); /* 1 - u is never 0 */
    double angle = 2 * M_PI * unit_of(block.half[1]);
    normals[0] = radius * cos(angle);
    normals[1] = radius * sin(angle);
}

struct random_stream random_stream(uint64_t seed, uint64_t id)
{
    return (struct random_stream){block_at(seed, id, 0).half[0]};
}

uint64_t random_bits(struct random_stream stream, uint64_t index)
{
    return block_at(stream.key, index / 2, 0).half[index % 2];
}

/* Lemire 2019, Fast Random Integer Generation in an Interval: the upper half of bits * limit is the number; a few
 * values of the lower half belong to no full interval and are tried again. */
int64_t random_below(struct random_stream stream, uint64_t index, int64_t limit)
{
    assert(limit >= 1);
    uint64_t refused = -(uint64_t)limit % (uint64_t)limit; /* 2^64 mod limit */
    for (uint64_t lane = 0;; lane++) {
        uint64_t bits = block_at(stream.key, index / 2, lane).half[index % 2];
        unsigned __int128 product = (unsigned __int128)bits * (uint64_t)limit;
        if ((uint64_t)product >= refused)
            return (int64_t)(product >> 64);
    }
}

void random_fill_normal(struct random_stream stream, uint64_t first, double deviation, float *out,
                        int64_t count)
{
    for (int64_t i = 0; i < count;) {
        uint64_t index = first + (uint64_t)i;
        double normals[2];
        normal_pair(stream, index / 2, normals);
        for (uint64_t half = index % 2; half < 2 && i < count; half++)
            out[i++] = (float)(deviation * normals[half]);
    }
}

/* Swap-or-not (Hoang, Morris, Rogaway, CRYPTO 2012). Each round pairs x with (key - x) mod count and swaps a pair or
 * not by a bit that both members compute, so each round is its own inverse, for any count. About 6 log2(count)
 * rounds mix well. */
int64_t random_shuffle(struct random_stream stream, int64_t count, int64_t index)
{
    assert(index >= 0 && index < count);
    int rounds = 12;
    for (int64_t rest = count; rest > 1; rest /= 2)
        rounds += 6;
    int64_t x = index;
    for (int round = 0; round < rounds; round++) {
        int64_t key = random_below(stream, (uint64_t)round, count);
        int64_t partner = key >= x ? key - x : key - x + count;
        struct random_stream coins = random_stream(stream.key, (uint64_t)round);
        bool swap = random_bits(coins, (uint64_t)(x > partner ? x : partner)) & 1;
        x = swap ? partner : x;
    }
    return x;
}
