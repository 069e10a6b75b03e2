/* Integers: arithmetic, and bits. What PTX leaves undefined, a division by zero, gives all ones. */
#include "tests/ptx/ptx_lanes.h"
#include "tests/ptx/ptx_table.h"

namespace ptx
{

namespace
{

template <typename T> struct wide_of;
template <> struct wide_of<uint16_t> {
    using type = uint32_t;
};
template <> struct wide_of<int16_t> {
    using type = int32_t;
};
template <> struct wide_of<uint32_t> {
    using type = uint64_t;
};
template <> struct wide_of<int32_t> {
    using type = int64_t;
};
template <> struct wide_of<uint64_t> {
    using type = unsigned __int128;
};
template <> struct wide_of<int64_t> {
    using type = __int128;
};
template <typename T> using wide = typename wide_of<T>::type;

/* Sums that run over wrap, which only unsigned ones may in C++. */
template <typename T> T add(T a, T b)
{
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
}

template <typename T> T subtract(T a, T b)
{
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) - static_cast<std::make_unsigned_t<T>>(b));
}

template <typename T> T negate(T a)
{
    return subtract<T>(0, a);
}

template <typename T> T multiply_low(T a, T b)
{
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<uint64_t>(static_cast<U>(a)) *
                          static_cast<uint64_t>(static_cast<U>(b)));
}

template <typename T> wide<T> multiply_wide(T a, T b)
{
    return static_cast<wide<T>>(static_cast<wide<T>>(a) * static_cast<wide<T>>(b));
}

template <typename T> T multiply_high(T a, T b)
{
    return static_cast<T>(multiply_wide(a, b) >> 8 * sizeof(T));
}

template <typename T> T add_product(T a, T b, T c)
{
    return add(multiply_low(a, b), c);
}

template <typename T> wide<T> add_wide_product(T a, T b, wide<T> c)
{
    return add(multiply_wide(a, b), c);
}

template <typename T> T divide(T a, T b)
{
    if (b == 0)
        return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1))
        return negate(a);
    return static_cast<T>(a / b);
}

template <typename T> T remainder(T a, T b)
{
    if (b == 0)
        return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1))
        return 0;
    return static_cast<T>(a % b);
}

template <typename T> T least(T a, T b)
{
    return a < b ? a : b;
}

template <typename T> T most(T a, T b)
{
    return a > b ? a : b;
}

template <typename T> T absolute(T a)
{
    return a < 0 ? negate(a) : a;
}

template <typename T> T both(T a, T b)
{
    return static_cast<T>(a & b);
}

template <typename T> T either(T a, T b)
{
    return static_cast<T>(a | b);
}

template <typename T> T differ(T a, T b)
{
    return static_cast<T>(a ^ b);
}

template <typename T> T invert(T a)
{
    return static_cast<T>(~a);
}

/* Shifts by the width or more give what is left when all bits are gone. */
template <typename T> T shift_left(T a, uint32_t by)
{
    return by < 8 * sizeof(T) ? static_cast<T>(a << by) : T{0};
}

template <typename T> T shift_right(T a, uint32_t by)
{
    const uint32_t last = 8 * sizeof(T) - 1;
    if (by > last)
        return static_cast<T>(std::is_signed_v<T> && a < 0 ? -1 : 0);
    return static_cast<T>(a >> by);
}

/* `count` low bits of a go into b from bit `at` on. */
template <typename T> T insert_bits(T a, T b, uint32_t at, uint32_t count)
{
    at &= 0xff;
    count &= 0xff;
    const uint32_t bits = 8 * sizeof(T);
    if (at >= bits || count == 0)
        return b;
    const T ones = count >= bits ? static_cast<T>(-1) : static_cast<T>((T{1} << count) - 1);
    return static_cast<T>((b & ~(ones << at)) | ((a & ones) << at));
}

template <typename T> T reverse_bits(T a)
{
    T reversed = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); i++)
        reversed = static_cast<T>(reversed << 1 | (a >> i & 1));
    return reversed;
}

/* How far left the highest 1 can be shifted; all ones when there is none. */
uint32_t highest_shift(uint32_t a)
{
    return a ? static_cast<uint32_t>(__builtin_clz(a)) : ~0u;
}

uint32_t leading_zeros(uint32_t a)
{
    return a ? static_cast<uint32_t>(__builtin_clz(a)) : 32;
}

uint32_t count_ones(uint32_t a)
{
    return static_cast<uint32_t>(__builtin_popcount(a));
}

#define OF_TYPE(letter, suffix, T)                                                                           \
    {"add." suffix, letter "=" letter letter, lanes<add<T>>},                                                \
        {"sub." suffix, letter "=" letter letter, lanes<subtract<T>>},                                       \
        {"mul.lo." suffix, letter "=" letter letter, lanes<multiply_low<T>>},                                \
        {"mul.hi." suffix, letter "=" letter letter, lanes<multiply_high<T>>},                               \
        {"mad.lo." suffix, letter "=" letter letter letter, lanes<add_product<T>>},                          \
        {"div." suffix, letter "=" letter letter, lanes<divide<T>>},                                         \
        {"rem." suffix, letter "=" letter letter, lanes<remainder<T>>},                                      \
        {"min." suffix, letter "=" letter letter, lanes<least<T>>},                                          \
        {"max." suffix, letter "=" letter letter, lanes<most<T>>},                                           \
    {                                                                                                        \
        "shr." suffix, letter "=" letter "w", lanes<shift_right<T>>                                          \
    }

#define OF_SIGNED(letter, suffix, T)                                                                         \
    OF_TYPE(letter, suffix, T), {"neg." suffix, letter "=" letter, lanes<negate<T>>},                        \
    {                                                                                                        \
        "abs." suffix, letter "=" letter, lanes<absolute<T>>                                                 \
    }

#define OF_WIDE(wide_letter, letter, suffix, T)                                                              \
    {"mul.wide." suffix, wide_letter "=" letter letter, lanes<multiply_wide<T>>},                            \
    {                                                                                                        \
        "mad.wide." suffix, wide_letter "=" letter letter wide_letter, lanes<add_wide_product<T>>            \
    }

#define OF_BITS(letter, suffix, T)                                                                           \
    {"and." suffix, letter "=" letter letter, lanes<both<T>>},                                               \
        {"or." suffix, letter "=" letter letter, lanes<either<T>>},                                          \
        {"xor." suffix, letter "=" letter letter, lanes<differ<T>>},                                         \
        {"not." suffix, letter "=" letter, lanes<invert<T>>},                                                \
    {                                                                                                        \
        "shl." suffix, letter "=" letter "w", lanes<shift_left<T>>                                           \
    }

const form list[] = {
    OF_TYPE("h", "u16", uint16_t),
    OF_SIGNED("h", "s16", int16_t),
    OF_TYPE("w", "u32", uint32_t),
    OF_SIGNED("w", "s32", int32_t),
    OF_TYPE("x", "u64", uint64_t),
    OF_SIGNED("x", "s64", int64_t),
    OF_WIDE("w", "h", "u16", uint16_t),
    OF_WIDE("w", "h", "s16", int16_t),
    OF_WIDE("x", "w", "u32", uint32_t),
    OF_WIDE("x", "w", "s32", int32_t),
    OF_BITS("h", "b16", uint16_t),
    OF_BITS("w", "b32", uint32_t),
    OF_BITS("x", "b64", uint64_t),
    {"bfi.b32", "w=wwww", lanes<insert_bits<uint32_t>>},
    {"bfi.b64", "x=xxww", lanes<insert_bits<uint64_t>>},
    {"brev.b32", "w=w", lanes<reverse_bits<uint32_t>>},
    {"bfind.shiftamt.u32", "w=w", lanes<highest_shift>},
    {"clz.b32", "w=w", lanes<leading_zeros>},
    {"popc.b32", "w=w", lanes<count_ones>},
};

} // namespace

forms integer_forms()
{
    return {list, sizeof list / sizeof *list};
}

} // namespace ptx
