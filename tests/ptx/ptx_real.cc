/* Real numbers: IEEE's operations exactly as IEEE has them (this file must be compiled without -ffast-math and without
 * contractions), and approximations as wrong as the manual lets them be: the exact result is moved by a share of the bound that
 * depends on the operand's bits. So a kernel that needs a better one fails here, in the same way each time.
 *
 * An add or mul that names no rounding is rounded to nearest here. The assembler may fuse such a mul with an add behind it,
 * which rounds once less; nvcc has mostly done so by itself. */
#include "tests/ptx/ptx_lanes.h"
#include "tests/ptx/ptx_table.h"

#include <cmath>
#include <limits>

#ifdef __FAST_MATH__
#error "the rounding of every operation counts here"
#endif

namespace ptx
{

namespace
{

template <typename T> T add(T a, T b)
{
    return a + b;
}

template <typename T> T subtract(T a, T b)
{
    return a - b;
}

template <typename T> T multiply(T a, T b)
{
    return a * b;
}

template <typename T> T add_product(T a, T b, T c)
{
    return std::fma(a, b, c);
}

template <typename T> T divide(T a, T b)
{
    return a / b;
}

template <typename T> T invert(T a)
{
    return 1 / a;
}

template <typename T> T root(T a)
{
    return std::sqrt(a);
}

/* Signs of NaN change too. */
template <typename T> T negate(T a)
{
    return std::copysign(a, std::signbit(a) ? T{1} : T{-1});
}

template <typename T> T absolute(T a)
{
    return std::copysign(a, T{1});
}

/* NaN only if both are; -0 is less than 0. */
template <typename T> T least(T a, T b)
{
    if (a != a)
        return b;
    if (b != b)
        return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
}

template <typename T> T most(T a, T b)
{
    if (a != a)
        return b;
    if (b != b)
        return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
}

/* a b + c rounded towards minus infinity. The product is exact in F64; `rest` is what its sum with c lost. */
float add_product_down(float a, float b, float c)
{
    const double product = static_cast<double>(a) * b, sum = product + c;
    const double back = sum - product, rest = (product - (sum - back)) + (c - back);
    const float nearest = static_cast<float>(sum);
    const double above = nearest - sum;
    if (above > 0 || (above == 0 && rest < 0))
        return std::nextafterf(nearest, -std::numeric_limits<float>::infinity());
    return nearest;
}

/* ---- approximations ---- */

/* In [-1, 1), the same for the same bits. */
double share_of(uint32_t bits)
{
    bits = (bits ^ bits >> 15) * 0x2c1b3c6du;
    bits = (bits ^ bits >> 12) * 0x297a2d39u;
    return static_cast<double>(static_cast<int32_t>(bits ^ bits >> 15)) * 0x1p-31;
}

/* 2^a, subnormals being 0 as operand and result. The manual: 2 units in the last place, which are at most 2^-22 of the result;
 * of these rounding takes 2^-24. 0 gives exactly 1. */
float power_of_2(float a)
{
    const double bound = 0x1p-22 - 0x1p-24;
    if (std::fabs(a) < std::numeric_limits<float>::min())
        return 1;
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    const float result = static_cast<float>(std::exp2(static_cast<double>(a)) * (1 + bound * share_of(bits)));
    return result < std::numeric_limits<float>::min() ? 0 : result;
}

/* 1 / a from the upper half of a's bits, in the upper half of the result: its fraction has 20 bits, of which the manual leaves
 * the last in doubt. */
double rough_inverse(double a)
{
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    bits &= ~uint64_t{0xffffffff};
    memcpy(&a, &bits, sizeof a);
    if (std::fabs(a) < std::numeric_limits<double>::min())
        return std::copysign(std::numeric_limits<double>::infinity(), a);
    double result = 1 / a;
    if (std::fabs(result) < std::numeric_limits<double>::min())
        return std::copysign(0.0, a);
    memcpy(&bits, &result, sizeof bits);
    bits &= ~uint64_t{0xffffffff};
    memcpy(&result, &bits, sizeof result);
    return result;
}

#define OF_TYPE(letter, suffix, T)                                                                           \
    {"add." suffix, letter "=" letter letter, lanes<add<T>>},                                                \
        {"add.rn." suffix, letter "=" letter letter, lanes<add<T>>},                                         \
        {"sub." suffix, letter "=" letter letter, lanes<subtract<T>>},                                       \
        {"sub.rn." suffix, letter "=" letter letter, lanes<subtract<T>>},                                    \
        {"mul." suffix, letter "=" letter letter, lanes<multiply<T>>},                                       \
        {"mul.rn." suffix, letter "=" letter letter, lanes<multiply<T>>},                                    \
        {"fma.rn." suffix, letter "=" letter letter letter, lanes<add_product<T>>},                          \
        {"div.rn." suffix, letter "=" letter letter, lanes<divide<T>>},                                      \
        {"rcp.rn." suffix, letter "=" letter, lanes<invert<T>>},                                             \
        {"sqrt.rn." suffix, letter "=" letter, lanes<root<T>>},                                              \
        {"neg." suffix, letter "=" letter, lanes<negate<T>>},                                                \
        {"abs." suffix, letter "=" letter, lanes<absolute<T>>},                                              \
        {"min." suffix, letter "=" letter letter, lanes<least<T>>},                                          \
    {                                                                                                        \
        "max." suffix, letter "=" letter letter, lanes<most<T>>                                              \
    }

const form list[] = {
    OF_TYPE("w", "f32", float),
    OF_TYPE("x", "f64", double),
    {"fma.rm.f32", "w=www", lanes<add_product_down>},
    {"ex2.approx.ftz.f32", "w=w", lanes<power_of_2>},
    {"rcp.approx.ftz.f64", "x=x", lanes<rough_inverse>},
};

} // namespace

forms real_forms()
{
    return {list, sizeof list / sizeof *list};
}

} // namespace ptx
