/* The rules of ptx_shadow.h for one cell after another. */
#include "tests/ptx/ptx_shadow.h"

#include <algorithm>

namespace ptx
{

namespace
{

enum { BLOCK_SHIFT = 10, WARP_SHIFT = 5 };

bool same_block(uint32_t a, uint32_t b)
{
    return a >> BLOCK_SHIFT == b >> BLOCK_SHIFT;
}

bool same_warp(uint32_t a, uint32_t b)
{
    return a >> WARP_SHIFT == b >> WARP_SHIFT;
}

/* Is what `other`, or those around it, did at that time known to be done, if what the warp did is by `warp_time`? */
bool is_before(uint32_t time, uint32_t other, spread spread, const actor &who, uint32_t warp_time)
{
    if (time < who.launch_time || (other == who.thread && spread == spread::one))
        return true;
    if (spread == spread::grid || !same_block(other, who.thread))
        return false;
    if (time < who.block_time)
        return true;
    return spread <= spread::warp && same_warp(other, who.thread) && time < warp_time;
}

spread spread_of(uint32_t a, uint32_t b)
{
    return a == b             ? spread::one
           : same_warp(a, b)  ? spread::warp
           : same_block(a, b) ? spread::block
                              : spread::grid;
}

/* Is the last write known to be done? */
bool is_written(const cell &it, const actor &who)
{
    return is_before(it.written, it.writer, static_cast<spread>(it.writers), who, who.warp_time);
}

void note_reader(cell *it, const actor &who, uint32_t now)
{
    const spread before = static_cast<spread>(it->readers);
    if (is_before(it->read, it->reader, before, who, who.warp_time)) {
        it->reader = who.thread;
        it->readers = static_cast<uint32_t>(spread::one);
    } else {
        const spread apart = spread_of(it->reader, who.thread);
        it->readers = static_cast<uint32_t>(apart > before ? apart : before);
    }
    it->read = now;
}

} // namespace

cell *shadow::page_cells(uint64_t page)
{
    std::unique_ptr<cell[]> &cells = pages[page];
    if (!cells)
        cells = std::make_unique<cell[]>(PAGE_BYTES / CELL_BYTES);
    return cells.get();
}

trouble shadow::read(uint64_t address, unsigned bytes, const actor &who, uint32_t oldest)
{
    cell *it = find(address);
    for (unsigned i = 0; i < bytes; i += CELL_BYTES, it++) {
        if (it->written < oldest)
            return trouble::not_written;
        last.thread = it->writer;
        if (it->copying)
            return trouble::copying;
        if (!is_written(*it, who))
            return trouble::races_with_write;
        if (it->reader != who.thread || it->read != clock || it->readers)
            note_reader(it, who, clock);
    }
    return trouble::none;
}

trouble shadow::mark_write(uint64_t address, unsigned bytes, const actor &who, bool atomic)
{
    cell *it = find(address);
    for (unsigned i = 0; i < bytes; i += CELL_BYTES, it++) {
        last.thread = it->writer;
        if (it->copying)
            return trouble::copying;
        spread writers = spread::one;
        if (!is_written(*it, who)) {
            if (!atomic || !it->atomic)
                return trouble::races_with_write;
            writers = std::max(static_cast<spread>(it->writers), spread_of(it->writer, who.thread));
        }
        last.thread = it->reader;
        if (!is_before(it->read, it->reader, static_cast<spread>(it->readers), who, who.meeting_time))
            return trouble::races_with_read;
        *it = {clock, who.thread, 0, 0, 0, static_cast<uint32_t>(writers), atomic, false};
    }
    return trouble::none;
}

trouble shadow::write(uint64_t address, unsigned bytes, const actor &who)
{
    return mark_write(address, bytes, who, false);
}

trouble shadow::atomic(uint64_t address, unsigned bytes, const actor &who)
{
    return mark_write(address, bytes, who, true);
}

trouble shadow::begin_copy(uint64_t address, unsigned bytes, const actor &who)
{
    const trouble met = mark_write(address, bytes, who, false);
    cell *it = find(address);
    for (unsigned i = 0; i < bytes; i += CELL_BYTES)
        it++->copying = true;
    return met;
}

void shadow::end_copy(uint64_t address, unsigned bytes, const actor &who)
{
    cell *it = find(address);
    for (unsigned i = 0; i < bytes; i += CELL_BYTES)
        *it++ = {clock, who.thread, 0, 0, 0, 0, false, false};
}

} // namespace ptx
