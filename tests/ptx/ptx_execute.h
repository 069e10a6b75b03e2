/* Runs kernels. Blocks run one after another, and in a block its warps, each until it ends or all of its lanes wait at a barrier.
 *
 * In a warp each lane has its own place in the program. Those with the lowest place run next, all together, up to a branch that
 * parts them or to the place of others, which they join. Under independent thread scheduling a GPU may run the lanes of a warp
 * in any order that the instructions between them allow: this is one such order, so what a correct kernel computes in it is
 * what it computes. What it may not rely on is looked after: lanes meet only in instructions that say so, and wait in these for
 * every lane of the mask; between such meetings what two threads do to the same bytes is a race (ptx_shadow.h), whichever way it
 * went here. A mask with a lane that has left or waits elsewhere, a barrier that not all threads of the block reach, an `.aligned`
 * instruction without the whole warp: each ends the program.
 *
 * The lowest place first makes lanes join where a compiler puts what follows a branch behind it. Lanes that do not join run
 * apart, which is slower and as right. */
#ifndef MEMPLAN_TESTS_PTX_PTX_EXECUTE_H
#define MEMPLAN_TESTS_PTX_PTX_EXECUTE_H

#include "tests/cuda/cuhost_control.h"
#include "tests/ptx/ptx_kernel.h"
#include "tests/ptx/ptx_memory.h"
#include "tests/ptx/ptx_shadow.h"

#include <cstring>

namespace ptx
{

constexpr unsigned LANES = 32, MOST_THREADS = 1024;
constexpr uint32_t WHOLE_WARP = 0xffffffffu;

struct size3 {
    unsigned x, y, z;

    uint64_t product() const
    {
        return uint64_t{x} * y * z;
    }
};

struct launch {
    const ptx::kernel *kernel;
    size3 grid, block;
    size_t dynamic_bytes;
    std::vector<unsigned char> parameters;
};

/* In order, each as long as the kernel says. */
launch make_launch(const kernel *kernel, size3 grid, size3 block, size_t dynamic_bytes, void *const *arguments);

/* All of it, before this returns. Ends the program where a GPU would end the kernel, and where it leaves undefined what happens. */
void run_launch(const launch &launch);

/* Of all launches from now on; tests/cuda/cuhost_control.h. */
void set_order(enum cuhost_order order);

/* ---- for actions ---- */

/* A copy that was started (cp.async): its bytes arrive when the thread waits for them. */
struct pending_copy {
    uint32_t to;
    const unsigned char *from;
    uint32_t bytes, filled; /* from memory; zeros behind */
    uint32_t group;
};

struct block_run;

struct warp {
    block_run *block;
    unsigned number;
    std::vector<unsigned char> file; /* of registers */
    uint32_t exists, left, waiting, at_barrier;
    uint32_t place[LANES]; /* in the code */
    std::vector<unsigned char> local;
    std::vector<pending_copy> copies[LANES];
    uint32_t groups[LANES]; /* of copies, that were closed */
    /* By the shadow's clock: when all of its lanes last waited for each other's accesses, and when they last met at all. */
    uint32_t sync_time, meeting_time;
    const instruction *now;

    template <typename T> T *at(uint32_t where)
    {
        return reinterpret_cast<T *>(file.data() + where);
    }

    uint32_t &predicate(uint32_t where)
    {
        return *at<uint32_t>(where);
    }

    /* Who a lane is for the shadow: in global memory, and in shared memory, which is another one in each block. */
    actor actor_of(unsigned lane) const;
    actor shared_actor_of(unsigned lane) const;

    /* Ends the program with the kernel, the line, the thread, this sentence and the instruction. */
    [[noreturn]] void complain(unsigned lane, const char *format, ...) const __attribute__((format(printf, 3, 4)));
};

struct block_run {
    const ptx::launch *launch;
    size3 index;
    uint64_t number;
    uint32_t launch_time, start_time, barrier_time; /* of the shadow's clock */
    std::vector<unsigned char> shared; /* by address */
    ptx::shadow *shadow; /* of shared memory too, by generic addresses */
    std::vector<warp> warps;
    unsigned threads;
};

/* A lane's bytes in shared memory, at the address that lies at this place, after all checks. */
void read_shared(warp &w, const instruction &it, unsigned place, unsigned lane, void *to, unsigned bytes);

/* Puts results where the lanes of `active` have them. */
template <typename T> inline void put(T *to, const T *results, uint32_t active)
{
    if (active == WHOLE_WARP) {
        memcpy(to, results, LANES * sizeof(T));
        return;
    }
    for (unsigned lane = 0; lane < LANES; lane++)
        to[lane] = active >> lane & 1 ? results[lane] : to[lane];
}

/* Lanes of a mask, one after another. */
#define PTX_FOR_LANES(lane, mask)                                                                            \
    for (uint32_t lane##_rest = (mask), lane = 0;                                                            \
         lane##_rest && (lane = static_cast<uint32_t>(__builtin_ctz(lane##_rest)), true); lane##_rest &= lane##_rest - 1)

} // namespace ptx

#endif
