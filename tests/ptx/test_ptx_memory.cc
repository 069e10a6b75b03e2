/* What is checked of accesses: whose bytes they are, alignment, order, and when copies arrive. */
#include "tests/cuda/last_words.h"
#include "tests/ptx/ptx_snippet.h"

static const char box[] = ".shared .align 16 .b8 box[512];";

/* The thread's own word of the box is at %r11, the box at %r10. */
static const std::string places =
    "mov.u32 %r10, box; shl.b32 %r12, %r1, 2; add.s32 %r11, %r10, %r12;\n"
    "mul.wide.u32 %rd10, %r1, 4; add.s64 %rd11, %rd1, %rd10; add.s64 %rd12, %rd2, %rd10;\n";

struct setting {
    unsigned threads = 32, blocks = 1;
    size_t words = 32; /* of each buffer */
};

static uint32_t *run(const std::string &body, const setting &with = {})
{
    ptx::snippet it(places + body, box);
    it.block.x = with.threads;
    it.grid.x = with.blocks;
    auto *first = ptx::buffer<uint32_t>(with.words), *second = ptx::buffer<uint32_t>(with.words);
    for (size_t i = 0; i < with.words; i++)
        second[i] = static_cast<uint32_t>(i * i);
    it.run(first, second);
    return first;
}

static void expect(const char *words, const std::string &body, const setting &with = {})
{
    const std::string got = last_words([&] { run(body, with); });
    ASSERT_HAS(got.c_str(), words);
}

TEST(ptx_memory_ends, "a byte behind a buffer, a buffer that was freed and an odd address end the program")
{
    setting one = {1, 1, 31};
    expect("which is nobody's memory", "ld.global.u32 %r20, [%rd1+124];", one);
    expect("16 bytes at 112 of a buffer of 124", "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd1+112];",
           one);
    expect("which is nobody's memory", "mov.u64 %rd5, 4096; st.global.u32 [%rd5], %r1;", one);
    expect("an access of 16 bytes at", "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd1+8];", one);
    const std::string freed = last_words([] {
        auto *memory = ptx::buffer<uint32_t>(4);
        machine_free(memory);
        ptx::snippet("ld.global.u32 %r20, [%rd1];").run(memory);
    });
    ASSERT_HAS(freed.c_str(), "which is nobody's memory");
}

TEST(ptx_memory_shared, "shared memory: bounds, alignment, and bytes that nobody wrote")
{
    expect("4 bytes of shared memory at 0x600, which are in no variable", "st.shared.u32 [%r10+512], %r1;");
    expect("an access of 4 bytes at 0x402, which is not aligned", "st.shared.u32 [%r10+2], %r1;");
    expect("reads shared memory at 0x400, which nobody wrote in this block", "ld.shared.u32 %r20, [%r11];");
    /* Of two blocks only the first writes. */
    expect("block 1,0,0, thread 0,0,0: reads shared memory",
           "setp.eq.s32 %p1, %r2, 0; @%p1 st.shared.u32 [%r11], %r1; ld.shared.u32 %r20, [%r11];",
           {32, 2, 32});
    expect("4 bytes of local memory at 0x110",
           ".local .align 4 .b8 depot[16]; mov.u64 %rd20, depot; st.local.u32 [%rd20+16], %r1;");
}

TEST(ptx_memory_races, "threads of a block that touch the same bytes need a barrier between, or a warp's")
{
    const setting two = {64, 1, 64};
    /* The second warp's thread i goes to the word of thread 63 - i of the first. */
    const std::string second =
        "setp.lt.u32 %p1, %r1, 32; @%p1 bra $end; xor.b32 %r13, %r12, 252; add.s32 %r13, %r13, %r10;\n";
    expect("thread 32,0,0: a race: nothing orders this access of 0x47c with a write of thread 31",
           "st.shared.u32 [%r11], %r1;" + second + "ld.shared.u32 %r20, [%r13];\n$end:", two);
    expect("with a read of thread 31",
           "st.shared.u32 [%r11], %r1; bar.sync 0; ld.shared.u32 %r20, [%r11];" + second +
               "st.shared.u32 [%r13], %r1;\n$end:",
           two);
    expect("with a write of thread 1 of this block", "st.shared.u32 [%r11], %r1; xor.b32 %r13, %r12, 4;\n"
                                                     "add.s32 %r13, %r13, %r10; ld.shared.u32 %r20, [%r13];");
    expect("with a write of thread 0", "st.shared.u32 [%r10], %r1;");
    uint32_t *fine =
        run("st.shared.u32 [%r11], %r1; bar.warp.sync -1; xor.b32 %r13, %r12, 4;\n"
            "add.s32 %r13, %r13, %r10; ld.shared.u32 %r20, [%r13]; st.global.u32 [%rd11], %r20;");
    ASSERT_INT(fine[6], 7);
    /* A shuffle orders a write with reads before it, not with reads behind. */
    const std::string turn =
        "shfl.sync.idx.b32 %r40, %r1, 0, 31, -1; xor.b32 %r13, %r12, 4; add.s32 %r13, %r13, %r10;\n";
    fine = run("st.shared.u32 [%r11], %r1; ld.shared.u32 %r20, [%r11];" + turn +
               "bar.warp.sync -1; ld.shared.u32 %r21, [%r13];" + turn +
               "st.shared.u32 [%r11], %r21; st.global.u32 [%rd11], %r21;");
    ASSERT_INT(fine[9], 8);
    expect("with a write of thread 1", "st.shared.u32 [%r11], %r1;" + turn + "ld.shared.u32 %r20, [%r13];");
}

TEST(ptx_memory_blocks,
     "blocks of a launch have no order: what one writes another may not touch; the next launch may")
{
    const setting two = {32, 2, 32};
    expect("nothing orders this access of", "st.global.u32 [%rd11], %r2;", two);
    expect("with a write of thread 0 of block 0",
           "setp.eq.s32 %p1, %r2, 0; @%p1 st.global.u32 [%rd11], %r1; ld.global.u32 %r20, [%rd11];", two);
    expect("with a read of thread 0 of block 0",
           "ld.global.u32 %r20, [%rd1+12]; setp.eq.s32 %p1, %r2, 1;\n"
           "setp.eq.s32 %p2, %r1, 3; and.pred %p3, %p1, %p2;\n"
           "setp.lt.u32 %p4, %r1, 3; @%p4 bra $end; @%p3 st.global.u32 [%rd1+12], %r1;\n$end:",
           {4, 2, 32});
    auto *memory = ptx::buffer<uint32_t>(32);
    ptx::snippet it(places +
                        "ld.global.u32 %r20, [%rd11]; sub.s32 %r21, 31, %r1; mul.wide.u32 %rd20, %r21, 4;\n"
                        "add.s32 %r20, %r20, 1; st.global.u32 [%rd11], %r20;",
                    box);
    it.run(memory);
    it.run(memory);
    ASSERT_INT(memory[5], 2);
}

TEST(ptx_memory_atomics,
     "the least of all blocks' is left, and no race between atomics; one with a plain access is")
{
    auto *memory = ptx::buffer<uint64_t>(1);
    *memory = ~uint64_t{0};
    ptx::snippet it("mad.lo.s32 %r10, %r2, -32, 500; sub.s32 %r10, %r10, %r1; cvt.u64.u32 %rd10, %r10;\n"
                    "atom.global.min.u64 %rd11, [%rd1], %rd10;");
    it.grid.x = 3;
    it.run(memory);
    ASSERT_INT(*memory, 500 - 64 - 31);
    expect("nothing orders this access",
           "cvt.u64.u32 %rd20, %r1; atom.global.min.u64 %rd21, [%rd1], %rd20; st.global.u64 [%rd1], %rd20;");
    /* The last of them reads what the others were at, too. */
    expect("nothing orders this access", "cvt.u64.u32 %rd20, %r1; atom.global.min.u64 %rd21, [%rd1], %rd20;\n"
                                         "setp.eq.s32 %p1, %r1, 31; @%p1 ld.global.u64 %rd22, [%rd1];");
}

/* Thread i copies 4 bytes of the second buffer into its word of the box. */
static const std::string copy = "cp.async.ca.shared.global [%r11], [%rd12], 4, 4;";

TEST(ptx_memory_copies,
     "a copy is there when its thread has waited, for others behind a barrier, and not before")
{
    uint32_t *got =
        run(copy + "cp.async.wait_all; bar.sync 0; xor.b32 %r13, %r12, 124; add.s32 %r13, %r13, %r10;\n"
                   "ld.shared.u32 %r20, [%r13]; st.global.u32 [%rd11], %r20;");
    ASSERT_INT(got[0], 31 * 31);
    expect("while a copy of thread 0 of this block is on its way there",
           copy + "ld.shared.u32 %r20, [%r11]; cp.async.wait_all;");
    expect("while a copy of thread 0", copy + "bar.sync 0; ld.shared.u32 %r20, [%r11]; cp.async.wait_all;");
    expect("a race: nothing orders this access of 0x404 with a write of thread 1",
           copy + "cp.async.wait_all; xor.b32 %r13, %r12, 4; add.s32 %r13, %r13, %r10; ld.shared.u32 %r20, "
                  "[%r13];");
    expect("leaves with copies under way", copy);
    expect("is not aligned to as many",
           "cp.async.cg.shared.global [%r11], [%rd12], 16, 16; cp.async.wait_all;");
    expect("copies 8 bytes, which this form does not", "cp.async.ca.shared.global [%r11], [%rd12], 8, 8;");
}

TEST(ptx_memory_copies_zeros, "a copy of 0 bytes fills with zeros and reads nothing, wherever its source is")
{
    uint32_t *got = run(
        "mov.u64 %rd20, 64; mov.u32 %r30, 0; cp.async.ca.shared.global [%r11], [%rd20], 4, %r30;\n"
        "cp.async.wait_all; ld.shared.u32 %r20, [%r11]; add.s32 %r20, %r20, 3; st.global.u32 [%rd11], %r20;");
    ASSERT_INT(got[31], 3);
}

TEST(ptx_memory_groups, "waiting for all groups but one leaves the last under way")
{
    const std::string two =
        copy + "cp.async.commit_group; add.s32 %r14, %r11, 128;\n"
               "cp.async.ca.shared.global [%r14], [%rd12], 4, 4; cp.async.commit_group;\n"
               "cp.async.wait_group 1; ld.shared.u32 %r20, [%r11]; st.global.u32 [%rd11], %r20;\n";
    uint32_t *got = run(two + "cp.async.wait_group 0; ld.shared.u32 %r21, [%r14];");
    ASSERT_INT(got[5], 25);
    expect("while a copy of thread 0", two + "ld.shared.u32 %r21, [%r14];");
}

TEST(ptx_memory_widths, "loads extend signs and zeros into wider registers, stores take the low bytes")
{
    auto *to = ptx::buffer<uint64_t>(4);
    auto *from = ptx::buffer<uint32_t>(4);
    from[0] = 0x80018002;
    ptx::snippet it("ld.global.s32 %rd10, [%rd2]; st.global.u64 [%rd1], %rd10;\n"
                    "ld.global.s16 %r10, [%rd2+2]; cvt.u64.u32 %rd11, %r10; st.global.u64 [%rd1+8], %rd11;\n"
                    "ld.global.u16 %r11, [%rd2]; cvt.u64.u32 %rd12, %r11; st.global.u64 [%rd1+16], %rd12;\n"
                    "mov.u64 %rd13, 0x1122334455667788; st.global.u32 [%rd1+24], %rd13;");
    it.block.x = 1;
    it.run(to, from);
    ASSERT(to[0] == 0xffffffff80018002 && to[1] == 0xffff8001 && to[2] == 0x8002 && to[3] == 0x55667788);
}
