/* What one instruction makes of numbers: worked out by hand, at the edges. Operands are in %r10 .. or %rd10 .., the result in %r20 or
 * %rd20, as bits. */
#include "tests/ptx/ptx_snippet.h"

#include <cmath>

struct case_of {
    const char *text;
    uint64_t a, b, c, expected;
};

/* All lanes compute the same; the last lane's answer must be as good as the first's. */
static void check_words(const case_of &it, bool wide)
{
    std::string body;
    const char *load[] = {"ld.global.u64 %rd10, [%rd2];", "ld.global.u64 %rd11, [%rd2+8];",
                          "ld.global.u64 %rd12, [%rd2+16];"};
    for (const char *line : load)
        body += line;
    body += "cvt.u32.u64 %r10, %rd10;\ncvt.u32.u64 %r11, %rd11;\ncvt.u32.u64 %r12, %rd12;\n";
    body += "cvt.u16.u32 %rs10, %r10;\ncvt.u16.u32 %rs11, %r11;\n";
    body += it.text;
    if (!wide)
        body += "\ncvt.u64.u32 %rd20, %r20;";
    body += "\nmul.wide.u32 %rd30, %r1, 8;\nadd.s64 %rd31, %rd1, %rd30;\nst.global.u64 [%rd31], %rd20;";
    auto *to = ptx::buffer<uint64_t>(32), *from = ptx::buffer<uint64_t>(3);
    from[0] = it.a, from[1] = it.b, from[2] = it.c;
    ptx::snippet(body).run(to, from);
    for (int lane = 0; lane < 32; lane += 31)
        ASSERT_MSG(to[lane] == it.expected, "%s of %llx, %llx, %llx is %llx, not %llx", it.text,
                   (unsigned long long)it.a, (unsigned long long)it.b, (unsigned long long)it.c,
                   (unsigned long long)to[lane], (unsigned long long)it.expected);
    machine_free(to);
    machine_free(from);
}

static const case_of words[] = {
    {"add.s32 %r20, %r10, %r11;", 0x7fffffff, 1, 0, 0x80000000},
    {"sub.s32 %r20, %r10, %r11;", 0, 1, 0, 0xffffffff},
    {"mul.lo.s32 %r20, %r10, %r11;", 0xfffffffd, 5, 0, 0xfffffff1},
    {"mul.lo.s32 %r20, %r10, %r11;", 0x10000, 0x10000, 0, 0},
    {"mul.hi.s32 %r20, %r10, %r11;", 0xfffffffe, 3, 0, 0xffffffff},
    {"mul.hi.u32 %r20, %r10, %r11;", 0xfffffffe, 3, 0, 2},
    {"mad.lo.s32 %r20, %r10, %r11, %r12;", 3, 0xfffffffc, 5, 0xfffffff9},
    {"mul.wide.u16 %r20, %rs10, %rs11;", 0xffff, 0xffff, 0, 0xfffe0001},
    {"div.s32 %r20, %r10, %r11;", 0xfffffff9, 2, 0, 0xfffffffd},
    {"rem.s32 %r20, %r10, %r11;", 0xfffffff9, 2, 0, 0xffffffff},
    {"div.u32 %r20, %r10, %r11;", 0xfffffff9, 2, 0, 0x7ffffffc},
    {"div.s32 %r20, %r10, %r11;", 0x80000000, 0xffffffff, 0, 0x80000000},
    {"shl.b32 %r20, %r10, %r11;", 3, 31, 0, 0x80000000},
    {"shl.b32 %r20, %r10, %r11;", 3, 32, 0, 0},
    {"shr.u32 %r20, %r10, %r11;", 0x80000000, 31, 0, 1},
    {"shr.u32 %r20, %r10, %r11;", 0x80000000, 64, 0, 0},
    {"shr.s32 %r20, %r10, %r11;", 0x80000000, 31, 0, 0xffffffff},
    {"shr.s32 %r20, %r10, %r11;", 0x80000000, 99, 0, 0xffffffff},
    {"bfi.b32 %r20, %r10, %r11, 4, 8;", 0xabc, 0xffffffff, 0, 0xfffffbcf},
    {"bfi.b32 %r20, %r10, %r11, 28, 8;", 0x5, 0xffffffff, 0, 0x5fffffff},
    {"bfi.b32 %r20, %r10, %r11, 32, 8;", 0x5, 7, 0, 7},
    {"brev.b32 %r20, %r10;", 6, 0, 0, 0x60000000},
    {"bfind.shiftamt.u32 %r20, %r10;", 1, 0, 0, 31},
    {"bfind.shiftamt.u32 %r20, %r10;", 0, 0, 0, 0xffffffff},
    {"min.s32 %r20, %r10, %r11;", 0xffffffff, 1, 0, 0xffffffff},
    {"max.u32 %r20, %r10, %r11;", 0xffffffff, 1, 0, 0xffffffff},
    {"not.b32 %r20, %r10;", 0xf0, 0, 0, 0xffffff0f},
    {"xor.b32 %r20, %r10, %r11;", 0xf0, 0xff, 0, 0x0f},
    {"mov.b32 %r20, {%rs10, %rs11};", 0x1111, 0x2222, 0, 0x22221111},
    {"cvt.s16.s8 %rs20, %rs10; cvt.u32.u16 %r20, %rs20;", 0x7780, 0, 0, 0xff80},
    {"cvt.s16.s8 %rs20, %rs10; cvt.u32.u16 %r20, %rs20;", 0x807f, 0, 0, 0x7f},
    {"mov.b32 {%rs20, %rs21}, %r10; cvt.u32.u16 %r20, %rs21;", 0x22221111, 0, 0, 0x2222},
    {"setp.lt.s32 %p1, %r10, %r11; selp.b32 %r20, %r11, %r12, %p1;", 0xffffffff, 1, 2, 1},
    {"setp.lt.u32 %p1, %r10, %r11; selp.b32 %r20, %r11, %r12, %p1;", 0xffffffff, 1, 2, 2},
    {"mov.u32 %r20, 7; setp.eq.s32 %p1, %r10, 1; @%p1 mov.u32 %r20, 8;", 1, 0, 0, 8},
    {"mov.u32 %r20, 7; setp.eq.s32 %p1, %r10, 1; @!%p1 mov.u32 %r20, 8;", 1, 0, 0, 7},
};

TEST(ptx_numbers_words,
     "32-bit integers: wrapping, shifts beyond the width, signs, bit fields, halves, guards")
{
    for (const case_of &it : words)
        check_words(it, false);
}

static const case_of doubles[] = {
    {"mul.wide.s32 %rd20, %r10, %r11;", 0xfffffffe, 3, 0, 0xfffffffffffffffa},
    {"mul.wide.u32 %rd20, %r10, %r11;", 0xfffffffe, 3, 0, 0x2fffffffa},
    {"mad.wide.u32 %rd20, %r10, %r11, %rd12;", 0xffffffff, 2, 5, 0x200000003},
    {"add.s64 %rd20, %rd10, %rd11;", 0xffffffff, 1, 0, 0x100000000},
    {"mul.lo.s64 %rd20, %rd10, %rd11;", 0x100000001, 0x100000001, 0, 0x200000001},
    {"div.s64 %rd20, %rd10, %rd11;", 0xfffffffffffffff9, 2, 0, 0xfffffffffffffffd},
    {"rem.s64 %rd20, %rd10, %rd11;", 0xfffffffffffffff9, 2, 0, 0xffffffffffffffff},
    {"shl.b64 %rd20, %rd10, 33;", 3, 0, 0, 0x600000000},
    {"shr.s64 %rd20, %rd10, 60;", 0x8000000000000000, 0, 0, 0xfffffffffffffff8},
    {"shr.u64 %rd20, %rd10, 64;", 0x8000000000000000, 0, 0, 0},
    {"bfi.b64 %rd20, %rd10, %rd11, 60, 3;", 0xf, 0, 0, 0x7000000000000000},
    {"neg.s64 %rd20, %rd10;", 5, 0, 0, 0xfffffffffffffffb},
    {"cvt.s64.s32 %rd20, %r10;", 0x80000000, 0, 0, 0xffffffff80000000},
    {"cvt.s64.s32 %rd20, %rd10;", 0x7780000000, 0, 0, 0xffffffff80000000},
    {"cvt.u64.u32 %rd20, %r10;", 0x80000000, 0, 0, 0x80000000},
    {"mov.b64 %rd20, {%r10, %r11};", 1, 2, 0, 0x200000001},
    {"mov.b64 {%r20, %r21}, %rd10; cvt.u64.u32 %rd20, %r21;", 0x200000001, 0, 0, 2},
    {"min.s64 %rd20, %rd10, %rd11;", 0xffffffffffffffff, 1, 0, 0xffffffffffffffff},
    {"setp.gt.s64 %p1, %rd10, -1; selp.b64 %rd20, 1, 2, %p1;", 0, 0, 0, 1},
    /* F64: 1 + 2^-53 is a tie; 1/3; fused; 2.5 and 3.5 to whole numbers; the 20 bits of an approximation. */
    {"add.f64 %rd20, %rd10, %rd11;", 0x3ff0000000000000, 0x3ca0000000000000, 0, 0x3ff0000000000000},
    {"div.rn.f64 %rd20, %rd10, %rd11;", 0x3ff0000000000000, 0x4008000000000000, 0, 0x3fd5555555555555},
    {"fma.rn.f64 %rd20, %rd10, %rd10, %rd11;", 0x3ff0000040000000, 0xbff0000080000000, 0, 0x3d30000000000000},
    {"cvt.rni.f64.f64 %rd20, %rd10;", 0x4004000000000000, 0, 0, 0x4000000000000000},
    {"cvt.rni.f64.f64 %rd20, %rd10;", 0x400c000000000000, 0, 0, 0x4010000000000000},
    {"cvt.f64.f32 %rd20, %r10;", 0x3fc00000, 0, 0, 0x3ff8000000000000},
    {"cvt.rn.f64.s64 %rd20, %rd10;", 0xffffffffffffffff, 0, 0, 0xbff0000000000000},
    {"rcp.approx.ftz.f64 %rd20, %rd10;", 0x4008000000000000, 0, 0, 0x3fd5555500000000},
    {"rcp.approx.ftz.f64 %rd20, %rd10;", 0x8000000000000001, 0, 0, 0xfff0000000000000},
    {"abs.f64 %rd20, %rd10;", 0x8000000000000000, 0, 0, 0},
};

TEST(ptx_numbers_doubles, "64-bit integers and F64: products of halves, extension, fused sums, whole numbers")
{
    for (const case_of &it : doubles)
        check_words(it, true);
}

static const case_of reals[] = {
    {"add.f32 %r20, %r10, %r11;", 0x3f800000, 0x33800000, 0, 0x3f800000}, /* 1 + 2^-24: a tie, to even */
    {"add.f32 %r20, %r10, %r11;", 1, 1, 0, 2},                            /* subnormals are kept */
    {"sub.f32 %r20, %r10, %r11;", 0x3f800000, 0x3f800000, 0, 0},
    {"mul.f32 %r20, %r10, %r11;", 0x7f000000, 0x40000000, 0, 0x7f800000}, /* 2^127 * 2 */
    /* (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24, which two roundings lose */
    {"fma.rn.f32 %r20, %r10, %r10, %r11;", 0x3f800800, 0xbf801000, 0, 0x33800000},
    /* 1 - 2^-30 down is 1 - 2^-24, 1 + 2^-30 is 1, and -1 - 2^-30 is -1 - 2^-23 */
    {"fma.rm.f32 %r20, %r10, %r11, %r12;", 0x3f800000, 0x3f800000, 0xb0800000, 0x3f7fffff},
    {"fma.rm.f32 %r20, %r10, %r11, %r12;", 0x3f800000, 0x3f800000, 0x30800000, 0x3f800000},
    {"fma.rm.f32 %r20, %r10, %r11, %r12;", 0xbf800000, 0x3f800000, 0xb0800000, 0xbf800001},
    {"fma.rm.f32 %r20, %r10, %r11, %r12;", 0x40000000, 0x40400000, 0xc0a00000, 0x3f800000},
    {"div.rn.f32 %r20, %r10, %r11;", 0x3f800000, 0x40400000, 0, 0x3eaaaaab},
    {"rcp.rn.f32 %r20, %r10;", 0x40400000, 0, 0, 0x3eaaaaab},
    {"sqrt.rn.f32 %r20, %r10;", 0x40000000, 0, 0, 0x3fb504f3},
    {"max.f32 %r20, %r10, %r11;", 0x7fc00000, 0x3f800000, 0, 0x3f800000},
    {"max.f32 %r20, %r10, %r11;", 0x80000000, 0, 0, 0},
    {"min.f32 %r20, %r10, %r11;", 0, 0x80000000, 0, 0x80000000},
    {"neg.f32 %r20, %r10;", 0, 0, 0, 0x80000000},
    {"abs.f32 %r20, %r10;", 0xff800000, 0, 0, 0x7f800000},
    {"setp.lt.f32 %p1, %r10, %r11; selp.b32 %r20, 1, 2, %p1;", 0x7fc00000, 0, 0, 2},
    {"setp.ltu.f32 %p1, %r10, %r11; selp.b32 %r20, 1, 2, %p1;", 0x7fc00000, 0, 0, 1},
    {"setp.leu.f32 %p1, %r10, %r11; selp.b32 %r20, 1, 2, %p1;", 0x40000000, 0x3f800000, 0, 2},
    {"setp.geu.f32 %p1, %r10, %r11; selp.b32 %r20, 1, 2, %p1;", 0x40000000, 0x3f800000, 0, 1},
    {"setp.gtu.f32 %p1, %r10, %r11; selp.b32 %r20, 1, 2, %p1;", 0x3f800000, 0x3f800000, 0, 2},
    {"setp.ne.f32 %p1, %r10, %r11; selp.b32 %r20, 1, 2, %p1;", 0x7fc00000, 0, 0, 2},
    {"setp.neu.f32 %p1, %r10, %r11; selp.b32 %r20, 1, 2, %p1;", 0x7fc00000, 0, 0, 1},
    {"setp.eq.f32 %p1, %r10, 0f80000000; selp.b32 %r20, 1, 2, %p1;", 0, 0, 0, 1},
    {"cvt.rn.f32.s32 %r20, %r10;", 16777217, 0, 0, 0x4b800000},
    {"cvt.rn.f32.s16 %r20, %rs10;", 0xffff, 0, 0, 0xbf800000},
    {"cvt.rn.f32.s64 %r20, %rd10;", 0xffffffffffffffff, 0, 0, 0xbf800000},
    {"cvt.rn.f32.f64 %r20, %rd10;", 0x3ff0000030000000, 0, 0, 0x3f800002}, /* 1.5 units: to even */
    {"cvt.rni.s32.f32 %r20, %r10;", 0x40200000, 0, 0, 2},
    {"cvt.rni.s32.f32 %r20, %r10;", 0x40600000, 0, 0, 4},
    {"cvt.rni.s32.f32 %r20, %r10;", 0x60ad78ec, 0, 0, 0x7fffffff},
    {"cvt.rni.s32.f32 %r20, %r10;", 0x7fc00000, 0, 0, 0},
    {"cvt.sat.f32.f32 %r20, %r10;", 0xbf800000, 0, 0, 0},
    {"cvt.sat.f32.f32 %r20, %r10;", 0x40000000, 0, 0, 0x3f800000},
    {"cvt.sat.f32.f32 %r20, %r10;", 0x7fc00000, 0, 0, 0},
    /* 1 + 2^-8 and 1 + 3 2^-8 lie between two; the largest F32 becomes infinity */
    {"cvt.rn.bf16.f32 %rs20, %r10; cvt.u32.u16 %r20, %rs20;", 0x3f808000, 0, 0, 0x3f80},
    {"cvt.rn.bf16.f32 %rs20, %r10; cvt.u32.u16 %r20, %rs20;", 0x3f818000, 0, 0, 0x3f82},
    {"cvt.rn.bf16.f32 %rs20, %r10; cvt.u32.u16 %r20, %rs20;", 0x7f7fffff, 0, 0, 0x7f80},
    {"cvt.rn.bf16.f32 %rs20, %r10; cvt.u32.u16 %r20, %rs20;", 0xff800001, 0, 0, 0x7fff},
    {"cvt.rn.bf16x2.f32 %r20, %r10, %r11;", 0x3f800000, 0x40000000, 0, 0x3f804000},
    {"cvt.f32.bf16 %r20, %rs10;", 0xbf81, 0, 0, 0xbf810000},
};

TEST(ptx_numbers_reals, "F32 and BF16: roundings, NaN in comparisons, signs of zero, saturation")
{
    for (const case_of &it : reals)
        check_words(it, false);
}

/* 32 results at once. */
static void exponentials(const float *x, float *y)
{
    auto *to = ptx::buffer<float>(32), *from = ptx::buffer<float>(32);
    memcpy(from, x, 32 * sizeof *x);
    ptx::snippet("mul.wide.u32 %rd10, %r1, 4; add.s64 %rd11, %rd1, %rd10; add.s64 %rd12, %rd2, %rd10;\n"
                 "ld.global.f32 %f1, [%rd12]; ex2.approx.ftz.f32 %f2, %f1; st.global.f32 [%rd11], %f2;")
        .run(to, from);
    memcpy(y, to, 32 * sizeof *y);
    machine_free(to);
    machine_free(from);
}

TEST(ptx_numbers_exponential, "2^x is wrong, by at most 2 units, and exact where the manual says so")
{
    float x[32], y[32];
    int exact = 0;
    double worst = 0;
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < 32; i++)
            x[i] = -125.0f + 0.2603f * static_cast<float>(round * 32 + i);
        exponentials(x, y);
        for (int i = 0; i < 32; i++) {
            const double right = std::exp2(static_cast<double>(x[i]));
            worst = std::fmax(worst, std::fabs(static_cast<double>(y[i]) / right - 1));
            exact += y[i] == static_cast<float>(right);
        }
    }
    ASSERT_MSG(worst <= 0x1p-22 && worst > 0.9 * 0x1p-22, "the worst is %g", worst);
    ASSERT_MSG(exact < 480, "%d of 960 are rounded right", exact);
    const float special[32] = {0.0f, -0.0f, -INFINITY, INFINITY, NAN, -126.5f, 0x1p-130f, 130};
    exponentials(special, y);
    ASSERT(y[0] == 1 && y[1] == 1 && y[2] == 0 && y[3] == INFINITY && std::isnan(y[4]));
    ASSERT(y[5] == 0 && y[6] == 1 && y[7] == INFINITY);
}
