/* Checked arithmetic, element types, roles, medians and the clock. */
#include "tests/test.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/role.h"
#include "base/sort.h"

#include <math.h>

TEST(checked_overflow, "products and sums that int64_t cannot hold are refused")
{
    int64_t out;
    ASSERT(checked_mul(1LL << 31, 1LL << 31, &out) && out == 1LL << 62);
    ASSERT(!checked_mul(1LL << 32, 1LL << 31, &out)); /* 2^63 */
    ASSERT(checked_add(INT64_MAX - 1, 1, &out) && out == INT64_MAX);
    ASSERT(!checked_add(INT64_MAX, 1, &out));
}

TEST(round_up_steps, "rounding up reaches the next multiple, and stays on one")
{
    ASSERT_INT(round_up(0, 64), 0);
    ASSERT_INT(round_up(1, 64), 64);
    ASSERT_INT(round_up(64, 64), 64);
    ASSERT_INT(round_up(65, 64), 128);
    ASSERT_INT(round_up(50257, 48), 50304); /* 1048 * 48; no power of two */
}

TEST(dtype_sizes, "element types have the sizes and names of safetensors")
{
    ASSERT_INT(dtype_bytes(DTYPE_F32), 4);
    ASSERT_INT(dtype_bytes(DTYPE_BF16), 2);
    ASSERT_INT(dtype_bytes(DTYPE_F64), 8);
    ASSERT_INT(dtype_bytes(DTYPE_I32), 4);
    ASSERT_STR(dtype_name(DTYPE_BF16), "BF16");
    ASSERT_STR(dtype_name(DTYPE_I32), "I32");
}

TEST(bf16_round_trip, "every bf16 survives the way to f32 and back; NaN stays NaN")
{
    for (uint32_t half = 0; half <= 0xffff; half++) {
        float value = bf16_to_f32((uint16_t)half);
        if (isnan(value))
            ASSERT(isnan(bf16_to_f32(f32_to_bf16(value))));
        else
            ASSERT_INT(f32_to_bf16(value), half);
    }
}

TEST(bf16_rounding, "f32 rounds to the nearest bf16, ties to even")
{
    /* bf16 has 7 bits behind the point: neighbours of 1 are 2^-7 apart, so 1 + 2^-8 is a tie. */
    ASSERT(bf16_to_f32(f32_to_bf16(1 + 0x1p-8f)) == 1);
    ASSERT(bf16_to_f32(f32_to_bf16(1 + 0x3p-8f)) == 1 + 0x1p-6f); /* between 1+2^-7 (odd) and 1+2^-6 (even) */
    ASSERT(bf16_to_f32(f32_to_bf16(1 + 0x1p-8f + 0x1p-20f)) == 1 + 0x1p-7f);
    ASSERT(
        isinf(bf16_to_f32(f32_to_bf16(3.4028235e38f)))); /* the largest float lies above the largest bf16 */
}

/* 5 bits of exponent with bias 15, 10 of fraction: 0x3c00 is 1, its neighbour 2^-10 more. The smallest normal number is
 * 2^-14, and below it steps are 2^-24. */
TEST(f16_values, "halves read as floats: normal, below normal, largest, infinite, not a number")
{
    ASSERT(f16_to_f32(0x3c00) == 1);
    ASSERT(f16_to_f32(0x3c01) == 1 + 0x1p-10f);
    ASSERT(f16_to_f32(0xc500) == -5);
    ASSERT(f16_to_f32(0x7bff) == 65504);
    ASSERT(f16_to_f32(0x0400) == 0x1p-14f);
    ASSERT(f16_to_f32(0x03ff) == 1023 * 0x1p-24f);
    ASSERT(f16_to_f32(0x8001) == -0x1p-24f);
    ASSERT(f16_to_f32(0x0000) == 0 && !signbit(f16_to_f32(0x0000)));
    ASSERT(f16_to_f32(0x8000) == 0 && signbit(f16_to_f32(0x8000)));
    ASSERT(f16_to_f32(0x7c00) == INFINITY && f16_to_f32(0xfc00) == -INFINITY);
    ASSERT(isnan(f16_to_f32(0x7e00)) && isnan(f16_to_f32(0xfc01)));
}

TEST(role_names, "every role is found by its name, and nothing else is")
{
    for (int role = 0; role < ROLE_COUNT; role++)
        ASSERT_INT(role_find(role_name(role)), role);
    ASSERT_STR(role_name(ROLE_OPTIMIZER), "optimizer");
    ASSERT_INT(role_find("optimiser"), -1);
    ASSERT_INT(role_find(""), -1);
}

TEST(clock_forward, "the clock never goes back")
{
    int64_t before = clock_ns();
    for (int i = 0; i < 1000; i++) {
        int64_t now = clock_ns();
        ASSERT(now >= before);
        before = now;
    }
}

TEST(sort_middle,
     "the median was measured: the middle one, of an even number the upper; what is no number stands last")
{
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2}, holes[] = {NAN, 2, NAN, 1, 3};
    ASSERT(sort_median(odd, 3) == 2);
    ASSERT(sort_median(even, 4) == 3);
    ASSERT(sort_median(holes, 5) == 3);
    ASSERT(holes[0] == 1 && holes[1] == 2 && isnan(holes[3]) && isnan(holes[4]));
    ASSERT(sort_median(odd, 0) == 0);
}
