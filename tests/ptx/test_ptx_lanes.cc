/* Lanes, warps and blocks: who runs, who waits for whom, and what must end the program. */
#include "tests/cuda/last_words.h"
#include "tests/ptx/ptx_snippet.h"

/* Stores %r20 of every thread of every block. */
static const char store[] =
    "mov.u32 %r70, %ntid.x; mad.lo.s32 %r71, %r2, %r70, %r1; mul.wide.u32 %rd30, %r71, 4;\n"
    "add.s64 %rd31, %rd1, %rd30; st.global.u32 [%rd31], %r20;";

static std::vector<uint32_t> run(const std::string &body, unsigned threads = 32, unsigned blocks = 1,
                                 const std::string &variables = "")
{
    ptx::snippet it(body + store, variables);
    it.block.x = threads;
    it.grid.x = blocks;
    auto *to = ptx::buffer<uint32_t>(threads * blocks);
    it.run(to);
    std::vector<uint32_t> values(to, to + threads * blocks);
    machine_free(to);
    return values;
}

static void expect(const char *words, const std::string &body, unsigned threads = 32,
                   const std::string &variables = "")
{
    const std::string got = last_words([&] { run(body, threads, 1, variables); });
    ASSERT_HAS(got.c_str(), words);
}

TEST(ptx_lanes_places, "threads of blocks of 40 in a grid of 3 know their places, in every order")
{
    for (int order = 0; order < CUHOST_ORDERS; order++) {
        cuhost_set_order(static_cast<enum cuhost_order>(order));
        const auto got = run("mad.lo.s32 %r20, %r2, 1000, %r1;", 40, 3);
        for (unsigned i = 0; i < 120; i++)
            ASSERT_INT(got[i], i / 40 * 1000 + i % 40);
    }
}

/* Collatz's steps down to 1: 0 for 1, 1 for 2, 7 for 3, 106 for 31. */
TEST(ptx_lanes_loops, "lanes whose loops turn differently often each end with their own, and meet behind")
{
    const auto got =
        run("add.s32 %r10, %r1, 1; mov.u32 %r20, 0;\n"
            "$again: setp.eq.s32 %p1, %r10, 1; @%p1 bra $done;\n"
            "add.s32 %r20, %r20, 1; and.b32 %r11, %r10, 1; setp.eq.s32 %p2, %r11, 0; @%p2 bra $even;\n"
            "mad.lo.s32 %r10, %r10, 3, 1; bra.uni $again;\n"
            "$even: shr.u32 %r10, %r10, 1; bra.uni $again;\n"
            "$done: shfl.sync.bfly.b32 %r21|%p3, %r20, 31, 31, -1; shl.b32 %r21, %r21, 16;\n"
            "or.b32 %r20, %r20, %r21;");
    ASSERT_INT(got[0] & 0xffff, 0);
    ASSERT_INT(got[1] & 0xffff, 1);
    ASSERT_INT(got[2] & 0xffff, 7);
    ASSERT_INT(got[30] & 0xffff, 106);
    ASSERT_INT(got[1] >> 16, 106); /* of lane 30 */
}

TEST(ptx_lanes_far_code,
     "lanes meet when what they branch to stands behind what comes next, as rare code does")
{
    const auto got =
        run("mov.u32 %r20, 5; setp.eq.s32 %p1, %r1, 3; @%p1 bra $rare;\n"
            "$back: shfl.sync.idx.b32 %r21, %r20, 3, 31, -1; add.s32 %r20, %r20, %r21; bra.uni $end;\n"
            "$rare: mov.u32 %r20, 100; bra.uni $back;\n$end:");
    ASSERT_INT(got[0], 105);
    ASSERT_INT(got[3], 200);
}

/* Of lane 5: 4 down in parts of 8 would be 1 - no: 9, beyond lane 7, so its own; up by 2 it is 3's; across 3, 6's. */
TEST(ptx_lanes_shuffles,
     "shuffles up, down, across and by name stay in their part, and say whether they left it")
{
    const std::string more = "selp.b32 %r22, 1000, 0, %p1; add.s32 %r20, %r21, %r22;";
    const auto down = run("shfl.sync.down.b32 %r21|%p1, %r1, 4, 0x1807, -1;" + more);
    ASSERT_INT(down[5], 5);
    ASSERT_INT(down[3], 1007);
    ASSERT_INT(down[11], 1015);
    const auto up = run("shfl.sync.up.b32 %r21|%p1, %r1, 2, 0x1800, -1;" + more);
    ASSERT_INT(up[5], 1003);
    ASSERT_INT(up[9], 9);
    const auto across = run("shfl.sync.bfly.b32 %r21|%p1, %r1, 3, 0x1f, -1;" + more);
    ASSERT_INT(across[5], 1006);
    const auto named = run("shfl.sync.idx.b32 %r21|%p1, %r1, 10, 0x181f, -1;" + more);
    ASSERT_INT(named[5], 1002); /* 10 % 8 of lanes 0 .. 7 */
    ASSERT_INT(named[13], 1010);
}

TEST(ptx_lanes_votes, "votes count the lanes of their mask")
{
    const auto got =
        run("and.b32 %r10, %r1, 3; setp.eq.s32 %p1, %r10, 1; vote.sync.ballot.b32 %r20, %p1, -1;\n"
            "vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1;\n"
            "@!%p2 mov.u32 %r20, 0; @%p3 mov.u32 %r20, 1;");
    ASSERT_INT(got[17], 0x22222222);
    const auto half = run("mov.u32 %r20, 9; setp.lt.u32 %p1, %r1, 16; @!%p1 bra $end;\n"
                          "setp.ge.u32 %p2, %r1, 14; vote.sync.ballot.b32 %r20, %p2, 0xffff;\n$end:");
    ASSERT_INT(half[2], 0xc000);
    ASSERT_INT(half[20], 9);
}

TEST(ptx_lanes_barrier, "what a warp writes before a barrier the others read behind it")
{
    const auto got =
        run("shl.b32 %r10, %r1, 2; mov.u32 %r11, box; add.s32 %r12, %r11, %r10; st.shared.u32 [%r12], %r1;\n"
            "bar.sync 0; sub.s32 %r13, 95, %r1; shl.b32 %r13, %r13, 2; add.s32 %r13, %r13, %r11;\n"
            "ld.shared.u32 %r20, [%r13];",
            96, 1, ".shared .align 4 .b8 box[384];");
    for (unsigned i = 0; i < 96; i++)
        ASSERT_INT(got[i], 95 - i);
}

TEST(ptx_lanes_local, "local memory is each lane's own")
{
    const auto got =
        run(".local .align 4 .b8 depot[16]; mov.u64 %rd10, depot; and.b32 %r10, %r1, 3; mul.wide.u32 %rd11, "
            "%r10, 4;\n"
            "add.s64 %rd12, %rd10, %rd11; st.local.u32 [%rd12], %r1; ld.local.u32 %r20, [%rd12];");
    for (unsigned i = 0; i < 32; i++)
        ASSERT_INT(got[i], i);
}

TEST(ptx_lanes_stuck,
     "a meeting or a barrier to which not all come ends the program, with the place and who is missing")
{
    expect(
        "waits for lanes 0xffffffff, of which only 0xffff came",
        "setp.ge.u32 %p1, %r1, 16; @%p1 bra $other; shfl.sync.idx.b32 %r20, %r1, 0, 31, -1; bra.uni $end;\n"
        "$other: shfl.sync.idx.b32 %r20, %r1, 0, 31, -1;\n$end:");
    expect("waits for all threads of the block; of warp 1 lanes 0 came",
           "setp.ge.u32 %p1, %r1, 32; @%p1 bra $end; bar.sync 0;\n$end:", 64);
    expect("waits for all threads of the block; of warp 0 lanes 0xfffffffe came, and 0x1 have left",
           "setp.eq.s32 %p1, %r1, 0; @%p1 ret; bar.sync 0;");
    expect("is at another barrier than lane 0",
           "setp.eq.s32 %p1, %r1, 9; @%p1 bra $other; bar.sync 0; bra.uni $end;\n$other: bar.sync 0;\n$end:");
    expect("the whole warp must come, and of its lanes 0xfffffff0 are left",
           "setp.lt.u32 %p1, %r1, 4; @%p1 ret; mov.u32 %r10, 0;\n"
           "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r10, %r10, %r10, "
           "%r10}, {%r10, %r10}, "
           "{%f1, %f2, %f3, %f4};");
    expect("the whole warp must come",
           "mov.u32 %r10, 0;\n"
           "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r10, %r10, "
           "%r10, %r10}, {%r10, %r10}, {%f1, %f2, %f3, %f4};",
           20);
}

TEST(ptx_lanes_masks,
     "a mask without the lane itself, with another's mask, or a shuffle from outside ends the program")
{
    expect("the mask 0xfffffffe is without the lane itself", "vote.sync.any.pred %p2, %p1, 0xfffffffe;");
    expect("its mask differs from that of lane 0", "mov.u32 %r10, -1; setp.eq.s32 %p1, %r1, 7; @%p1 mov.u32 "
                                                   "%r10, 0xff; vote.sync.ballot.b32 %r20, %p2, %r10;");
    expect("shuffles from lane 20, which takes no part",
           "setp.ge.u32 %p1, %r1, 16; @%p1 bra $end; shfl.sync.idx.b32 %r20, %r1, 20, 31, 0xffff;\n$end:");
}

TEST(ptx_lanes_launches, "what a GPU refuses to launch ends the program")
{
    const auto refused = [](const char *words, unsigned threads, size_t dynamic_bytes, const char *variables,
                            const char *head) {
        const std::string got = last_words([&] {
            ptx::snippet it("mov.u32 %r10, box;",
                            std::string(".extern .shared .align 16 .b8 box[];") + variables, head);
            it.block.x = threads;
            it.dynamic_bytes = dynamic_bytes;
            it.run(nullptr);
        });
        ASSERT_HAS(got.c_str(), words);
    };
    refused("blocks of 1025 x 1 x 1 threads; use 1 to 1024", 1025, 16, "", "");
    refused("blocks of 160 x 1 x 1 threads; use 1 to 128", 160, 16, "", ".maxntid 128, 1, 1\n");
    refused("49153 bytes of shared memory beside its own 0 and may use 49152", 32, 49153, "", "");
    refused("no dynamic shared memory, which it uses", 32, 0, "", "");
}

/* What is not known must never be passed over. */
TEST(ptx_lanes_unknown,
     "an instruction, a form or a directive that is not known ends the program with its text")
{
    expect("an instruction that is not known: \"prefetch.global.L1 [%rd1];\"", "prefetch.global.L1 [%rd1];");
    expect("no known form of the instruction: a register of another width: \"add.s32 %r20, %rd1, %r1;\"",
           "add.s32 %r20, %rd1, %r1;");
    expect("no known form of the instruction: too few operands", "add.s32 %r20, %r1;");
    expect("no known form of the instruction: a name that is not known", "mov.u32 %r20, %clock;");
    expect("no known form of the instruction: a result that is no register", "add.s32 7, %r1, %r1;");
    expect("expected a directive of a body that is known", ".branchtargets $a;");
    expect("no such label before an instruction", "bra $nowhere;");
    expect("only barrier 0 is known", "bar.sync 1;");
}
