/* cvt: from one type to another, with its rounding. Integers that are too large for real ones' types cannot be; real numbers
 * that are too large for an integer become the nearest there is, NaN becomes 0. */
#include "tests/ptx/ptx_lanes.h"
#include "tests/ptx/ptx_table.h"

#include <cmath>
#include <limits>

namespace ptx
{

namespace
{

/* Between integers, and to a real number by rounding to nearest. */
template <typename To, typename From> To convert(From a)
{
    return static_cast<To>(a);
}

/* Of a register that is wider than the type the lower bits count. */
int16_t extend_low_byte(uint16_t a)
{
    return static_cast<int8_t>(a);
}

int64_t extend_low_word(uint64_t a)
{
    return static_cast<int32_t>(a);
}

template <typename To, typename From> To to_integer(From a)
{
    if (a != a)
        return 0;
    const double limit = -static_cast<double>(std::numeric_limits<To>::min());
    if (static_cast<double>(a) >= limit)
        return std::numeric_limits<To>::max();
    if (static_cast<double>(a) < -limit)
        return std::numeric_limits<To>::min();
    return static_cast<To>(a);
}

int32_t nearest_integer(float a)
{
    return to_integer<int32_t>(std::nearbyint(a));
}

int32_t integer_towards_zero(float a)
{
    return to_integer<int32_t>(std::trunc(a));
}

double to_whole(double a)
{
    return std::nearbyint(a);
}

/* Into [0, 1]; NaN becomes 0. */
float saturate(float a)
{
    return a > 0 ? a < 1 ? a : 1.0f : 0.0f;
}

/* To nearest even, by the bits that go; NaN stays one. */
uint16_t to_bf16(float a)
{
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    if (a != a)
        return 0x7fff;
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_bf16(uint16_t a)
{
    const uint32_t bits = static_cast<uint32_t>(a) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The first operand goes into the upper half. */
uint32_t to_bf16_pair(float high, float low)
{
    return static_cast<uint32_t>(to_bf16(high)) << 16 | to_bf16(low);
}

#define BETWEEN(to_letter, to, To, from_letter, from, From)                                                  \
    {                                                                                                        \
        "cvt." to "." from, to_letter "=" from_letter, lanes<convert<To, From>>                              \
    }
#define ROUNDED(to_letter, to, To, from_letter, from, From)                                                  \
    {                                                                                                        \
        "cvt.rn." to "." from, to_letter "=" from_letter, lanes<convert<To, From>>                           \
    }

const form list[] = {
    BETWEEN("h", "u16", uint16_t, "w", "u32", uint32_t),
    BETWEEN("h", "u16", uint16_t, "x", "u64", uint64_t),
    BETWEEN("w", "u32", uint32_t, "h", "u16", uint16_t),
    BETWEEN("w", "s32", int32_t, "h", "s16", int16_t),
    BETWEEN("w", "u32", uint32_t, "x", "u64", uint64_t),
    BETWEEN("x", "u64", uint64_t, "h", "u16", uint16_t),
    BETWEEN("x", "u64", uint64_t, "w", "u32", uint32_t),
    BETWEEN("x", "s64", int64_t, "w", "s32", int32_t),
    {"cvt.s64.s32", "x=x", lanes<extend_low_word>},
    {"cvt.s16.s8", "h=h", lanes<extend_low_byte>},
    BETWEEN("x", "s64", int64_t, "h", "s16", int16_t),
    BETWEEN("x", "f64", double, "w", "f32", float),
    ROUNDED("w", "f32", float, "w", "s32", int32_t),
    ROUNDED("w", "f32", float, "h", "s16", int16_t),
    ROUNDED("w", "f32", float, "w", "u32", uint32_t),
    ROUNDED("w", "f32", float, "x", "s64", int64_t),
    ROUNDED("w", "f32", float, "x", "u64", uint64_t),
    ROUNDED("w", "f32", float, "x", "f64", double),
    ROUNDED("x", "f64", double, "w", "s32", int32_t),
    ROUNDED("x", "f64", double, "w", "u32", uint32_t),
    ROUNDED("x", "f64", double, "x", "s64", int64_t),
    ROUNDED("x", "f64", double, "x", "u64", uint64_t),
    {"cvt.rni.s32.f32", "w=w", lanes<nearest_integer>},
    {"cvt.rzi.s32.f32", "w=w", lanes<integer_towards_zero>},
    {"cvt.rni.f64.f64", "x=x", lanes<to_whole>},
    {"cvt.sat.f32.f32", "w=w", lanes<saturate>},
    {"cvt.rn.bf16.f32", "h=w", lanes<to_bf16>},
    {"cvt.f32.bf16", "w=h", lanes<from_bf16>},
    {"cvt.rn.bf16x2.f32", "w=ww", lanes<to_bf16_pair>},
};

} // namespace

forms convert_forms()
{
    return {list, sizeof list / sizeof *list};
}

} // namespace ptx
