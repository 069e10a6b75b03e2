/* Who touched which bytes last, and when: finds races. Time is a count that goes on at each launch and whenever threads wait for
 * each other. Two accesses of the same bytes by different threads, one of them a write, must have between them
 *
 *     a barrier of the block, if both are in one block;
 *     or a bar.warp.sync of the whole warp, if both are in one warp;
 *     or any other meeting of the whole warp, if both are in one warp and the first is a read;
 *     or the end of the launch.
 *
 * The manual says nothing of the third. But whoever writes behind an mma that the read has fed cannot do so before it was read,
 * and shared memory takes a warp's accesses in their order.
 *
 * Between blocks of a launch there is no order: that is how it is known that no kernel depends on blocks running one after the
 * other. Atomic accesses do not race with each other. Bytes are looked after in pairs. */
#ifndef MEMPLAN_TESTS_PTX_PTX_SHADOW_H
#define MEMPLAN_TESTS_PTX_PTX_SHADOW_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace ptx
{

enum { CELL_BYTES = 2 };

/* How far apart those are who read the same cell at one time, or were atomic there. */
enum class spread : uint32_t { one, warp, block, grid };

struct cell {
    uint32_t written, writer; /* when, and by which thread: block * 1024 + number */
    uint32_t read, reader;
    uint32_t readers : 2, writers : 2, atomic : 1, copying : 1; /* the first two are a spread */
};

/* A thread, and since when others before it are known to be done. */
struct actor {
    uint32_t thread;
    uint32_t launch_time, block_time, warp_time, meeting_time;
};

enum class trouble { none, races_with_write, races_with_read, not_written, copying };

/* What the last trouble was about. */
struct conflict {
    uint32_t thread;
};

class shadow
{
  public:
    /* Of the byte; of those behind it in the same 16 bytes the cells follow. */
    cell *find(uint64_t address)
    {
        const uint64_t page = address / PAGE_BYTES;
        if (page != last_page)
            last_cells = page_cells(page);
        last_page = page;
        return last_cells + address % PAGE_BYTES / CELL_BYTES;
    }

    uint32_t now() const
    {
        return clock;
    }

    /* What was before is before what comes. */
    uint32_t tick()
    {
        return ++clock;
    }

    /* An access of 2 to 16 bytes, aligned to as many. Nothing is known of what was written before `oldest`. */
    trouble read(uint64_t address, unsigned bytes, const actor &who, uint32_t oldest);
    trouble write(uint64_t address, unsigned bytes, const actor &who);
    trouble atomic(uint64_t address, unsigned bytes, const actor &who);

    /* Bytes that arrive later are nobody's until they are there. */
    trouble begin_copy(uint64_t address, unsigned bytes, const actor &who);
    void end_copy(uint64_t address, unsigned bytes, const actor &who);

    conflict last = {};

  private:
    enum { PAGE_BYTES = 1 << 14 };

    cell *page_cells(uint64_t page);
    trouble mark_write(uint64_t address, unsigned bytes, const actor &who, bool atomic);

    std::unordered_map<uint64_t, std::unique_ptr<cell[]>> pages;
    uint64_t last_page = ~uint64_t{0};
    cell *last_cells = nullptr;
    uint32_t clock = 1;
};

} // namespace ptx

#endif
