/* What the lanes of a mask do together: shuffles, votes, waiting. They have met when an action here is called, once for all. */
#include "tests/ptx/ptx_execute.h"
#include "tests/ptx/ptx_table.h"

namespace ptx
{

namespace
{

/* Where a lane's value comes from, as the manual has it: the third operand holds the last lane of a part, and from bit 8 on
 * which bits of a lane's number say its part. */
struct source {
    int lane;
    bool inside;
};

source up(int lane, int by, int last, int)
{
    return {lane - by, lane - by >= last};
}

source down(int lane, int by, int last, int)
{
    return {lane + by, lane + by <= last};
}

source across(int lane, int bits, int last, int)
{
    return {lane ^ bits, (lane ^ bits) <= last};
}

source named(int, int within, int last, int first)
{
    return {first | within, (first | within) <= last};
}

template <source (*FROM)(int, int, int, int)> void shuffle(warp &w, const instruction &it, uint32_t active)
{
    const uint32_t *values = w.at<uint32_t>(it.at[2]), *b = w.at<uint32_t>(it.at[3]),
                   *c = w.at<uint32_t>(it.at[4]);
    uint32_t results[LANES] = {}, inside = 0;
    PTX_FOR_LANES(lane, active)
    {
        const int part = static_cast<int>(c[lane] >> 8 & 31), clamp = static_cast<int>(c[lane] & 31);
        const int first = static_cast<int>(lane) & part, last = first | (clamp & ~part);
        int by = static_cast<int>(b[lane] & 31);
        if (FROM == named)
            by &= ~part;
        source from = FROM(static_cast<int>(lane), by, last, first);
        if (!from.inside)
            from.lane = static_cast<int>(lane);
        if (!(active >> from.lane & 1))
            w.complain(lane, "shuffles from lane %d, which takes no part", from.lane);
        results[lane] = values[from.lane];
        inside |= static_cast<uint32_t>(from.inside) << lane;
    }
    put(w.at<uint32_t>(it.at[0]), results, active);
    uint32_t &to = w.predicate(it.at[1]);
    to = (to & ~active) | inside;
}

void vote_any(warp &w, const instruction &it, uint32_t active)
{
    const uint32_t any = w.predicate(it.at[1]) & active ? active : 0;
    uint32_t &to = w.predicate(it.at[0]);
    to = (to & ~active) | any;
}

void vote_all(warp &w, const instruction &it, uint32_t active)
{
    const uint32_t all = (w.predicate(it.at[1]) & active) == active ? active : 0;
    uint32_t &to = w.predicate(it.at[0]);
    to = (to & ~active) | all;
}

void ballot(warp &w, const instruction &it, uint32_t active)
{
    const uint32_t votes = w.predicate(it.at[1]) & active;
    uint32_t *to = w.at<uint32_t>(it.at[0]);
    PTX_FOR_LANES(lane, active)
    to[lane] = votes;
}

/* Orders what the lanes did in memory before with what they do behind. Of a part of the warp nothing is noted: accesses that rely
 * on that are told to be races. */
void wait_for_warp(warp &w, const instruction &, uint32_t active)
{
    if (active == (w.exists & ~w.left))
        w.sync_time = w.block->shadow->tick();
}

const form list[] = {
    {"shfl.sync.up.b32", "w|p=wwwm", shuffle<up>, step::meet},
    {"shfl.sync.down.b32", "w|p=wwwm", shuffle<down>, step::meet},
    {"shfl.sync.bfly.b32", "w|p=wwwm", shuffle<across>, step::meet},
    {"shfl.sync.idx.b32", "w|p=wwwm", shuffle<named>, step::meet},
    {"vote.sync.any.pred", "p=pm", vote_any, step::meet},
    {"vote.sync.all.pred", "p=pm", vote_all, step::meet},
    {"vote.sync.ballot.b32", "w=pm", ballot, step::meet},
    {"bar.warp.sync", "m", wait_for_warp, step::meet},
    {"bar.sync", "#", nullptr, step::barrier},
    {"ret", "", nullptr, step::leave},
    {"exit", "", nullptr, step::leave},
};

} // namespace

forms meeting_forms()
{
    return {list, sizeof list / sizeof *list};
}

} // namespace ptx
