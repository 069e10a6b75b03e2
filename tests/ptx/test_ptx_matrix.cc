/* Tensor cores: which lane holds which element, from examples of the manual's figures, and sums. */
#include "tests/ptx/ptx_snippet.h"

#include <cmath>

/* The fragments of a lane: 4 words of a, 2 of b, and 4 numbers of c, then of d. */
struct fragments {
    uint32_t a[32][4], b[32][2];
    float c[32][4], d[32][4];
};

static void multiply(fragments *all)
{
    auto *to = ptx::buffer<float>(32 * 4);
    auto *from = ptx::buffer<uint32_t>(32 * 12);
    for (int lane = 0; lane < 32; lane++) {
        memcpy(from + 12 * lane, all->a[lane], sizeof all->a[lane]);
        memcpy(from + 12 * lane + 4, all->c[lane], sizeof all->c[lane]);
        memcpy(from + 12 * lane + 8, all->b[lane], sizeof all->b[lane]);
    }
    ptx::snippet(
        "mul.wide.u32 %rd10, %r1, 48; add.s64 %rd11, %rd2, %rd10; mul.wide.u32 %rd12, %r1, 16;\n"
        "add.s64 %rd13, %rd1, %rd12; ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd11];\n"
        "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd11+16]; ld.global.v2.u32 {%r14, %r15}, [%rd11+32];\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r10, %r11, %r12, "
        "%r13},\n"
        "{%r14, %r15}, {%f1, %f2, %f3, %f4}; st.global.v4.f32 [%rd13], {%f1, %f2, %f3, %f4};")
        .run(to, from);
    memcpy(all->d, to, sizeof all->d);
    machine_free(to);
    machine_free(from);
}

enum { ONE = 0x3f80 };

/* Where an element of a is: the lane, the word, and which half. From the manual's figure of a 16 x 16 matrix. */
struct element {
    int row, column, lane, word, half;
};

/* Row r of d has 1 where element (r, k) of a and element (k, n) of b are 1. */
TEST(ptx_matrix_fragments, "elements of a and b are in the lanes and halves of the manual's figures")
{
    static const element of_a[] = {{0, 0, 0, 0, 0}, {0, 1, 0, 0, 1},    {0, 7, 3, 0, 1},   {1, 2, 5, 0, 0},
                                   {8, 0, 0, 1, 0}, {15, 6, 31, 1, 0},  {0, 8, 0, 2, 0},   {7, 15, 31, 2, 1},
                                   {8, 9, 0, 3, 1}, {15, 15, 31, 3, 1}, {12, 3, 17, 1, 1}, {4, 12, 18, 2, 0}};
    /* The same of b, of 16 rows and 8 columns. */
    static const element of_b[] = {{0, 0, 0, 0, 0},   {1, 0, 0, 0, 1},  {7, 0, 3, 0, 1},   {2, 1, 5, 0, 0},
                                   {8, 0, 0, 1, 0},   {0, 7, 28, 0, 0}, {15, 7, 31, 1, 1}, {6, 4, 19, 0, 0},
                                   {12, 3, 14, 1, 0}, {9, 2, 8, 1, 1}};
    for (const element &left : of_a)
        for (const element &right : of_b) {
            fragments all = {};
            all.a[left.lane][left.word] = static_cast<uint32_t>(ONE) << 16 * left.half;
            all.b[right.lane][right.word] = static_cast<uint32_t>(ONE) << 16 * right.half;
            multiply(&all);
            const bool meet = left.column == right.row;
            for (int lane = 0; lane < 32; lane++)
                for (int i = 0; i < 4; i++) {
                    /* Numbers 0 and 1 of a lane are in row lane / 4, 2 and 3 in that + 8; columns from 2 (lane % 4) on. */
                    const int row = lane / 4 + (i > 1 ? 8 : 0), column = 2 * (lane & 3) + (i & 1);
                    ASSERT_MSG(all.d[lane][i] == (meet && row == left.row && column == right.column),
                               "a (%d, %d), b (%d, %d): lane %d has %g at %d", left.row, left.column,
                               right.row, right.column, lane, static_cast<double>(all.d[lane][i]), i);
                }
        }
}

/* One element of c at a time stays where it is. */
TEST(ptx_matrix_sums, "sums go on from c; small terms beside a large one are cut off towards zero")
{
    fragments all = {};
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            all.c[lane][i] = static_cast<float>(lane * 4 + i) + 0.5f;
    multiply(&all);
    ASSERT(memcmp(all.c, all.d, sizeof all.c) == 0);
    /* a = b = 1 everywhere: 16 more. */
    for (int lane = 0; lane < 32; lane++) {
        for (uint32_t &word : all.a[lane])
            word = ONE << 16 | ONE;
        for (uint32_t &word : all.b[lane])
            word = ONE << 16 | ONE;
    }
    multiply(&all);
    ASSERT(all.d[7][2] == all.c[7][2] + 16);
    /* 2^24 and 16 times 1 with one negative c: 2^24 has units of 2, so each 1 is lost; -1.5 beside 2^23 becomes -1. */
    all.c[0][0] = 0x1p24f;
    all.c[0][1] = -1.5f;
    all.c[0][2] = -0x1p24f;
    multiply(&all);
    ASSERT(all.d[0][0] == 0x1p24f && all.d[0][1] == 14.5f && all.d[0][2] == -0x1p24f);
    all.a[0][0] = 0x7f80; /* infinity in (0, 0) */
    all.c[0][1] = NAN;
    multiply(&all);
    ASSERT(all.d[0][0] == INFINITY && std::isnan(all.d[0][1]) && all.d[0][2] == -0x1p24f);
    all.b[0][0] = 0; /* infinity times 0 in column 0 */
    multiply(&all);
    ASSERT(std::isnan(all.d[0][0]) && all.d[1][0] == INFINITY);
}

/* Element (row, column) of matrix i is 256 i + 16 row + column. */
static std::vector<uint32_t> load(const char *form)
{
    std::string body =
        "shl.b32 %r10, %r1, 4; mov.u32 %r11, tiles; add.s32 %r12, %r11, %r10; mul.wide.u32 %rd10, %r1, 16;\n"
        "add.s64 %rd11, %rd1, %rd10; add.s64 %rd12, %rd2, %rd10;\n"
        "cp.async.cg.shared.global [%r12], [%rd12], 16, 16; cp.async.wait_all; bar.sync 0;\n";
    body += std::string(form) +
            " {%r20, %r21, %r22, %r23}, [%r12];\nst.global.v4.u32 [%rd11], {%r20, %r21, %r22, %r23};";
    auto *to = ptx::buffer<uint32_t>(128);
    auto *from = ptx::buffer<uint16_t>(256);
    for (unsigned i = 0; i < 256; i++)
        from[i] = static_cast<uint16_t>(i / 64 * 256 + i / 8 % 8 * 16 + i % 8);
    ptx::snippet(body, ".shared .align 16 .b8 tiles[512];").run(to, from);
    return {to, to + 128};
}

TEST(ptx_matrix_loads,
     "ldmatrix gives each lane the pairs of the manual's figure, and transposed those of the columns")
{
    const auto plain = load("ldmatrix.sync.aligned.m8n8.x4.shared.b16");
    /* Lane 0 holds (0, 0) and (0, 1), lane 1 (0, 2) and (0, 3), lane 4 (1, 0) and (1, 1), lane 31 (7, 6) and (7, 7). */
    ASSERT_INT(plain[0 * 4 + 0], 0x0001 << 16 | 0x0000);
    ASSERT_INT(plain[1 * 4 + 0], 0x0003 << 16 | 0x0002);
    ASSERT_INT(plain[4 * 4 + 2], 0x0211 << 16 | 0x0210);
    ASSERT_INT(plain[31 * 4 + 3], 0x0377 << 16 | 0x0376);
    const auto turned = load("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16");
    ASSERT_INT(turned[0 * 4 + 0], 0x0010 << 16 | 0x0000);
    ASSERT_INT(turned[1 * 4 + 0], 0x0030 << 16 | 0x0020);
    ASSERT_INT(turned[4 * 4 + 1], 0x0111 << 16 | 0x0101);
    ASSERT_INT(turned[31 * 4 + 3], 0x0377 << 16 | 0x0367);
}
