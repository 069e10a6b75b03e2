/* Predicates: comparisons, what is chosen by them, their logic; and moves. */
#include "tests/ptx/ptx_lanes.h"
#include "tests/ptx/ptx_table.h"

namespace ptx
{

namespace
{

/* ---- comparisons; those with a u also hold where a number is NaN ---- */

struct is_eq {
    template <typename T> static bool of(T a, T b)
    {
        return a == b;
    }
};

struct is_less {
    template <typename T> static bool of(T a, T b)
    {
        return a < b;
    }
};

struct is_at_most {
    template <typename T> static bool of(T a, T b)
    {
        return a <= b;
    }
};

/* Neither equal nor NaN. */
struct is_ne {
    template <typename T> static bool of(T a, T b)
    {
        return a < b || a > b;
    }
};

struct is_number {
    template <typename T> static bool of(T a, T b)
    {
        return a == a && b == b;
    }
};

template <typename C> struct turned {
    template <typename T> static bool of(T a, T b)
    {
        return C::of(b, a);
    }
};

template <typename C> struct negated {
    template <typename T> static bool of(T a, T b)
    {
        return !C::of(a, b);
    }
};

template <typename C, typename T> void compare(warp &w, const instruction &it, uint32_t active)
{
    const T *a = w.at<T>(it.at[1]), *b = w.at<T>(it.at[2]);
    uint32_t holds = 0;
    for (unsigned lane = 0; lane < LANES; lane++)
        holds |= static_cast<uint32_t>(C::of(a[lane], b[lane])) << lane;
    uint32_t &to = w.predicate(it.at[0]);
    to = (to & ~active) | (holds & active);
}

template <typename T> void choose(warp &w, const instruction &it, uint32_t active)
{
    const T *a = w.at<T>(it.at[1]), *b = w.at<T>(it.at[2]);
    const uint32_t first = w.predicate(it.at[3]);
    T results[LANES];
    for (unsigned lane = 0; lane < LANES; lane++)
        results[lane] = first >> lane & 1 ? a[lane] : b[lane];
    put(w.at<T>(it.at[0]), results, active);
}

/* ---- logic ---- */

template <typename F> void logic(warp &w, const instruction &it, uint32_t active, F function)
{
    uint32_t &to = w.predicate(it.at[0]);
    to = (to & ~active) | (function() & active);
}

void both(warp &w, const instruction &it, uint32_t active)
{
    logic(w, it, active, [&] { return w.predicate(it.at[1]) & w.predicate(it.at[2]); });
}

void either(warp &w, const instruction &it, uint32_t active)
{
    logic(w, it, active, [&] { return w.predicate(it.at[1]) | w.predicate(it.at[2]); });
}

void differ(warp &w, const instruction &it, uint32_t active)
{
    logic(w, it, active, [&] { return w.predicate(it.at[1]) ^ w.predicate(it.at[2]); });
}

void invert(warp &w, const instruction &it, uint32_t active)
{
    logic(w, it, active, [&] { return ~w.predicate(it.at[1]); });
}

void copy(warp &w, const instruction &it, uint32_t active)
{
    logic(w, it, active, [&] { return w.predicate(it.at[1]); });
}

/* ---- moves ---- */

template <typename T> T same(T a)
{
    return a;
}

uint32_t join(uint16_t low, uint16_t high)
{
    return static_cast<uint32_t>(low | static_cast<uint32_t>(high) << 16);
}

uint64_t join(uint32_t low, uint32_t high)
{
    return low | static_cast<uint64_t>(high) << 32;
}

template <typename Half, typename Whole> void part(warp &w, const instruction &it, uint32_t active)
{
    const Whole *whole = w.at<Whole>(it.at[2]);
    Half low[LANES], high[LANES];
    for (unsigned lane = 0; lane < LANES; lane++) {
        low[lane] = static_cast<Half>(whole[lane]);
        high[lane] = static_cast<Half>(whole[lane] >> 8 * sizeof(Half));
    }
    put(w.at<Half>(it.at[0]), low, active);
    put(w.at<Half>(it.at[1]), high, active);
}

constexpr action join_halves = lanes<static_cast<uint32_t (*)(uint16_t, uint16_t)>(join)>;
constexpr action join_words = lanes<static_cast<uint64_t (*)(uint32_t, uint32_t)>(join)>;

#define COMPARE(letter, suffix, T)                                                                           \
    {"setp.eq." suffix, "p=" letter letter, compare<is_eq, T>},                                              \
        {"setp.lt." suffix, "p=" letter letter, compare<is_less, T>},                                        \
        {"setp.le." suffix, "p=" letter letter, compare<is_at_most, T>},                                     \
        {"setp.gt." suffix, "p=" letter letter, compare<turned<is_less>, T>},                                \
        {"setp.ge." suffix, "p=" letter letter, compare<turned<is_at_most>, T>},                             \
    {                                                                                                        \
        "setp.ne." suffix, "p=" letter letter, compare<is_ne, T>                                             \
    }

#define COMPARE_REAL(letter, suffix, T)                                                                      \
    COMPARE(letter, suffix, T), {"setp.equ." suffix, "p=" letter letter, compare<negated<is_ne>, T>},        \
        {"setp.ltu." suffix, "p=" letter letter, compare<negated<turned<is_at_most>>, T>},                   \
        {"setp.leu." suffix, "p=" letter letter, compare<negated<turned<is_less>>, T>},                      \
        {"setp.gtu." suffix, "p=" letter letter, compare<negated<is_at_most>, T>},                           \
        {"setp.geu." suffix, "p=" letter letter, compare<negated<is_less>, T>},                              \
        {"setp.neu." suffix, "p=" letter letter, compare<negated<is_eq>, T>},                                \
        {"setp.num." suffix, "p=" letter letter, compare<is_number, T>},                                     \
    {                                                                                                        \
        "setp.nan." suffix, "p=" letter letter, compare<negated<is_number>, T>                               \
    }

#define CHOOSE(letter, suffix, T)                                                                            \
    {                                                                                                        \
        "selp." suffix, letter "=" letter letter "p", choose<T>                                              \
    }

#define MOVE(letter, suffix, T)                                                                              \
    {                                                                                                        \
        "mov." suffix, letter "=" letter, lanes<same<T>>                                                     \
    }

const form list[] = {
    COMPARE("h", "s16", int16_t),
    COMPARE("h", "u16", uint16_t),
    COMPARE("w", "s32", int32_t),
    COMPARE("w", "u32", uint32_t),
    COMPARE("x", "s64", int64_t),
    COMPARE("x", "u64", uint64_t),
    COMPARE_REAL("w", "f32", float),
    COMPARE_REAL("x", "f64", double),
    {"setp.eq.b32", "p=ww", compare<is_eq, uint32_t>},
    {"setp.ne.b32", "p=ww", compare<is_ne, uint32_t>},
    {"setp.eq.b64", "p=xx", compare<is_eq, uint64_t>},
    {"setp.ne.b64", "p=xx", compare<is_ne, uint64_t>},
    CHOOSE("h", "b16", uint16_t),
    CHOOSE("h", "u16", uint16_t),
    CHOOSE("h", "s16", uint16_t),
    CHOOSE("w", "b32", uint32_t),
    CHOOSE("w", "u32", uint32_t),
    CHOOSE("w", "s32", uint32_t),
    CHOOSE("w", "f32", uint32_t),
    CHOOSE("x", "b64", uint64_t),
    CHOOSE("x", "u64", uint64_t),
    CHOOSE("x", "s64", uint64_t),
    CHOOSE("x", "f64", uint64_t),
    {"and.pred", "p=pp", both},
    {"or.pred", "p=pp", either},
    {"xor.pred", "p=pp", differ},
    {"not.pred", "p=p", invert},
    {"mov.pred", "p=p", copy},
    MOVE("h", "b16", uint16_t),
    MOVE("h", "u16", uint16_t),
    MOVE("h", "s16", uint16_t),
    MOVE("w", "b32", uint32_t),
    MOVE("w", "u32", uint32_t),
    MOVE("w", "s32", uint32_t),
    MOVE("w", "f32", uint32_t),
    MOVE("x", "b64", uint64_t),
    MOVE("x", "u64", uint64_t),
    MOVE("x", "s64", uint64_t),
    MOVE("x", "f64", uint64_t),
    {"mov.b32", "w={hh}", join_halves},
    {"mov.b32", "{hh}=w", part<uint16_t, uint32_t>},
    {"mov.b64", "x={ww}", join_words},
    {"mov.b64", "{ww}=x", part<uint32_t, uint64_t>},
};

} // namespace

forms choice_forms()
{
    return {list, sizeof list / sizeof *list};
}

} // namespace ptx
