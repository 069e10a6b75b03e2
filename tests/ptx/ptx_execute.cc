/* Who runs next: blocks, warps, lanes. */
#include "tests/ptx/ptx_execute.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>

namespace ptx
{

/* ---- trouble ---- */

/* "attention_forward<...>" of a mangled name. */
static std::string plain_name(std::string_view mangled)
{
    int status;
    char *plain = abi::__cxa_demangle(std::string(mangled).c_str(), nullptr, nullptr, &status);
    std::string name = status == 0 ? plain : std::string(mangled);
    free(plain);
    return name.substr(0, name.find('('));
}

void warp::complain(unsigned lane, const char *format, ...) const
{
    char text[1000];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    const kernel &kernel = *block->launch->kernel;
    const statement &source = *now->source;
    const size3 &size = block->launch->block;
    const unsigned thread = number * LANES + lane;
    fprintf(stderr, "ptx: %s, %s, sm_%u line %u, block %u,%u,%u, thread %u,%u,%u: %s: \"%.*s\"\n",
            plain_name(kernel.entry->name).c_str(), place_of(kernel, source).c_str(),
            kernel.module->text.target, source.line, block->index.x, block->index.y, block->index.z,
            thread % size.x, thread / size.x % size.y, thread / size.x / size.y, text,
            static_cast<int>(source.text.size()), source.text.data());
    abort();
}

actor warp::actor_of(unsigned lane) const
{
    const uint32_t thread = static_cast<uint32_t>(block->number) * MOST_THREADS + number * LANES + lane;
    return {thread, block->launch_time, block->barrier_time, sync_time, meeting_time};
}

actor warp::shared_actor_of(unsigned lane) const
{
    actor who = actor_of(lane);
    who.launch_time = block->start_time;
    return who;
}

/* ---- a warp's lanes ---- */

namespace
{

/* What ends a warp's turn. */
enum class turn { parted, at_barrier, left };

uint32_t guarded(warp &w, const instruction &it, uint32_t lanes)
{
    if (it.guard < 0)
        return lanes;
    const uint32_t set = w.predicate(static_cast<uint32_t>(it.guard));
    return lanes & (it.unless ? ~set : set);
}

void move(warp &w, uint32_t lanes, uint32_t to)
{
    PTX_FOR_LANES(lane, lanes)
    w.place[lane] = to;
}

/* The lanes that a lane's meeting is of. Those that have left are not waited for, except by the whole warp. */
uint32_t members_of(warp &w, const instruction &it, uint32_t lane)
{
    if (it.mask == ALL_LANES) {
        if (w.left || w.exists != WHOLE_WARP)
            w.complain(lane, "the whole warp must come, and of its lanes %#x are left", w.exists & ~w.left);
        return WHOLE_WARP;
    }
    const uint32_t mask = w.at<uint32_t>(it.at[it.mask])[lane];
    if (!(mask >> lane & 1))
        w.complain(lane, "the mask %#x is without the lane itself", mask);
    return mask & w.exists & ~w.left;
}

/* Lanes that wait in the meeting at this place. */
uint32_t present_at(const warp &w, uint32_t here)
{
    uint32_t present = 0;
    PTX_FOR_LANES(lane, w.waiting)
    present |= static_cast<uint32_t>(w.place[lane] == here) << lane;
    return present;
}

/* Lanes that came to a meeting; if nobody is missing they do it together and go on. Tells which. */
uint32_t come_together(warp &w, const instruction &it, uint32_t came, uint32_t here)
{
    const uint32_t first = static_cast<uint32_t>(__builtin_ctz(came)), members = members_of(w, it, first);
    w.waiting |= came;
    move(w, came, here);
    if ((members & present_at(w, here)) != members)
        return 0;
    PTX_FOR_LANES(lane, members)
    if (members_of(w, it, lane) != members)
        w.complain(lane, "its mask differs from that of lane %u", first);
    it.run(w, it, members);
    if (members == (w.exists & ~w.left))
        w.meeting_time = w.block->shadow->tick();
    w.waiting &= ~members;
    move(w, members, here + 1);
    return members;
}

void leave(warp &w, uint32_t lanes)
{
    PTX_FOR_LANES(lane, lanes)
    if (!w.copies[lane].empty())
        w.complain(lane, "leaves with copies under way");
    w.left |= lanes;
}

/* Runs the lanes of `group`, which are at `here`, until they part, wait, or come to `limit`, where others are. */
void run_group(warp &w, uint32_t group, uint32_t here, uint32_t limit)
{
    const std::vector<instruction> &code = w.block->launch->kernel->code;
    while (here < limit) {
        const instruction &it = code[here];
        const uint32_t active = guarded(w, it, group);
        w.now = &it;
        switch (it.step) {
        case step::plain:
            if (active)
                it.run(w, it, active);
            here++;
            break;
        case step::branch:
            if (active == group) {
                here = it.number;
                break;
            }
            if (!active) {
                here++;
                break;
            }
            move(w, active, it.number);
            move(w, group & ~active, here + 1);
            return;
        case step::meet:
            move(w, group & ~active, here + 1);
            if (!active || come_together(w, it, active, here) != group)
                return;
            here++;
            break;
        case step::barrier:
            if (it.number != 0)
                w.complain(0, "only barrier 0 is known");
            move(w, group & ~active, here + 1);
            move(w, active, here);
            w.at_barrier |= active;
            return;
        case step::leave:
            leave(w, active);
            move(w, group & ~active, here + 1);
            return;
        }
    }
    move(w, group, here);
}

/* Runs until all lanes have left or are at a barrier. False: some wait in meetings that nobody else comes to. */
bool run_warp(warp &w)
{
    for (;;) {
        const uint32_t ready = w.exists & ~w.left & ~w.waiting & ~w.at_barrier;
        if (!ready)
            return w.waiting == 0;
        uint32_t here = UINT32_MAX, limit = UINT32_MAX, group = 0;
        PTX_FOR_LANES(lane, ready)
        {
            if (w.place[lane] < here) {
                limit = here;
                here = w.place[lane];
                group = 0;
            }
            if (w.place[lane] == here)
                group |= 1u << lane;
            else if (w.place[lane] < limit)
                limit = w.place[lane];
        }
        run_group(w, group, here, limit);
    }
}

/* ---- blocks ---- */

[[noreturn]] void fail_stuck(warp &w)
{
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(w.waiting));
    w.now = &w.block->launch->kernel->code[w.place[lane]];
    const uint32_t members = members_of(w, *w.now, lane);
    w.complain(lane, "waits for lanes %#x, of which only %#x came", members,
               members & present_at(w, w.place[lane]));
}

[[noreturn]] void fail_barrier(const block_run &block, const warp &missing)
{
    for (const warp &w : block.warps) {
        if (!w.at_barrier)
            continue;
        warp waits = w;
        const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(w.at_barrier));
        waits.now = &block.launch->kernel->code[w.place[lane]];
        waits.complain(lane,
                       "waits for all threads of the block; of warp %u lanes %#x came, and %#x have left",
                       missing.number, missing.at_barrier, missing.left);
    }
    abort();
}

/* All threads of the block must be there, those of a warp at the same instruction. */
void open_barrier(block_run *block)
{
    for (warp &w : block->warps) {
        const uint32_t first = static_cast<uint32_t>(__builtin_ctz(w.exists));
        if (w.at_barrier != w.exists)
            fail_barrier(*block, w);
        w.now = &block->launch->kernel->code[w.place[first]];
        PTX_FOR_LANES(lane, w.exists)
        if (w.place[lane] != w.place[first])
            w.complain(lane, "is at another barrier than lane %u of its warp", first);
    }
    for (warp &w : block->warps) {
        w.at_barrier = 0;
        move(w, w.exists, w.place[__builtin_ctz(w.exists)] + 1);
    }
    block->barrier_time = block->shadow->tick();
}

unsigned turn_of(enum cuhost_order order, unsigned i, unsigned count)
{
    if (order == CUHOST_DESCENDING)
        return count - 1 - i;
    return order == CUHOST_ROTATED ? (i + count / 3 + 1) % count : i;
}

void run_warps(block_run *block, enum cuhost_order order)
{
    const unsigned count = static_cast<unsigned>(block->warps.size());
    for (;;) {
        bool waits = false;
        for (unsigned i = 0; i < count; i++) {
            warp &w = block->warps[turn_of(order, i, count)];
            if (!run_warp(w))
                fail_stuck(w);
            waits |= w.at_barrier != 0;
        }
        if (!waits)
            return;
        open_barrier(block);
    }
}

/* ---- the register file ---- */

template <typename T> void fill(warp *w, uint32_t place, uint64_t bits)
{
    T *at = w->at<T>(place);
    std::fill(at, at + LANES, static_cast<T>(bits));
}

void fill_constant(warp *w, const constant &it)
{
    if (it.bytes == 0)
        w->predicate(it.place) = static_cast<uint32_t>(it.bits);
    else if (it.bytes == 2)
        fill<uint16_t>(w, it.place, it.bits);
    else if (it.bytes == 4)
        fill<uint32_t>(w, it.place, it.bits);
    else
        fill<uint64_t>(w, it.place, it.bits);
}

unsigned axis_of(const size3 &size, char axis)
{
    return axis == 'x' ? size.x : axis == 'y' ? size.y : size.z;
}

void fill_special(warp *w, const special &it)
{
    const launch &launch = *w->block->launch;
    const char axis = it.name.back();
    uint32_t *at = w->at<uint32_t>(it.place);
    for (unsigned lane = 0; lane < LANES; lane++) {
        const unsigned thread = w->number * LANES + lane;
        const size3 place = {thread % launch.block.x, thread / launch.block.x % launch.block.y,
                             thread / launch.block.x / launch.block.y};
        if (it.name == "%laneid")
            at[lane] = lane;
        else if (it.name.compare(0, 5, "%tid.") == 0)
            at[lane] = axis_of(place, axis);
        else if (it.name.compare(0, 6, "%ntid.") == 0)
            at[lane] = axis_of(launch.block, axis);
        else if (it.name.compare(0, 7, "%ctaid.") == 0)
            at[lane] = axis_of(w->block->index, axis);
        else
            at[lane] = axis_of(launch.grid, axis);
    }
}

enum { POISON = 0xff }; /* NaN in every format */

void make_warps(block_run *block)
{
    const kernel &kernel = *block->launch->kernel;
    block->warps.resize((block->threads + LANES - 1) / LANES);
    for (unsigned i = 0; i < block->warps.size(); i++) {
        warp &w = block->warps[i];
        const unsigned lanes = block->threads - i * LANES;
        w.block = block;
        w.number = i;
        w.exists = lanes >= LANES ? WHOLE_WARP : (1u << lanes) - 1;
        w.file.assign(kernel.file_bytes, POISON);
        w.now = &kernel.code[0];
        for (const constant &it : kernel.constants)
            fill_constant(&w, it);
    }
}

void begin_block(block_run *block, uint64_t number)
{
    const launch &launch = *block->launch;
    const uint64_t plane = uint64_t{launch.grid.x} * launch.grid.y;
    block->number = number;
    block->index = {static_cast<unsigned>(number % launch.grid.x),
                    static_cast<unsigned>(number % plane / launch.grid.x),
                    static_cast<unsigned>(number / plane)};
    block->start_time = block->barrier_time = block->shadow->tick();
    block->shared.assign(dynamic_base + launch.dynamic_bytes, POISON);
    for (warp &w : block->warps) {
        w.left = w.waiting = w.at_barrier = 0;
        w.sync_time = w.meeting_time = block->start_time;
        w.local.assign(size_t{launch.kernel->local_bytes} * LANES, POISON);
        std::fill(w.place, w.place + LANES, 0);
        std::fill(w.groups, w.groups + LANES, 0);
        for (const special &it : launch.kernel->specials)
            fill_special(&w, it);
    }
}

/* ---- launches ---- */

enum cuhost_order chosen_order = CUHOST_ORDERS; /* none yet */

enum cuhost_order order_now()
{
    if (chosen_order != CUHOST_ORDERS)
        return chosen_order;
    const char *name = getenv("CUHOST_ORDER");
    return name && !strcmp(name, "descending") ? CUHOST_DESCENDING
           : name && !strcmp(name, "rotated")  ? CUHOST_ROTATED
                                               : CUHOST_ASCENDING;
}

[[noreturn]] __attribute__((format(printf, 2, 3))) void refuse(const launch &launch, const char *format, ...)
{
    char text[300];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "ptx: %s was launched with %s\n", plain_name(launch.kernel->entry->name).c_str(), text);
    abort();
}

/* What cudaLaunchKernel() refuses. */
void check_launch(const launch &launch)
{
    const kernel &kernel = *launch.kernel;
    const size3 &grid = launch.grid, &block = launch.block;
    const unsigned most = kernel.entry->most_threads ? kernel.entry->most_threads : MOST_THREADS;
    if (block.product() == 0 || block.product() > most || block.z > 64)
        refuse(launch, "blocks of %u x %u x %u threads; use 1 to %u", block.x, block.y, block.z, most);
    if (grid.product() == 0 || grid.x > INT32_MAX || grid.y > UINT16_MAX || grid.z > UINT16_MAX)
        refuse(launch, "%u x %u x %u blocks; use 1 to 2^31 - 1 x 65535 x 65535", grid.x, grid.y, grid.z);
    if (grid.product() > UINT32_MAX / MOST_THREADS)
        refuse(launch, "%llu blocks, more than are told apart here",
               static_cast<unsigned long long>(grid.product()));
    if (kernel.shared_bytes > shared_usual || launch.dynamic_bytes > kernel.dynamic_limit)
        refuse(launch, "%zu bytes of shared memory beside its own %u and may use %zu", launch.dynamic_bytes,
               kernel.shared_bytes, kernel.dynamic_limit);
    if (kernel.has_dynamic && launch.dynamic_bytes == 0)
        refuse(launch, "no dynamic shared memory, which it uses");
}

} // namespace

void set_order(enum cuhost_order order)
{
    chosen_order = order;
}

launch make_launch(const kernel *kernel, size3 grid, size3 block, size_t dynamic_bytes,
                   void *const *arguments)
{
    launch made = {kernel, grid, block, dynamic_bytes, {}};
    made.parameters.assign(kernel->parameter_bytes, 0);
    for (size_t i = 0; i < kernel->parameter_offsets.size(); i++)
        memcpy(made.parameters.data() + kernel->parameter_offsets[i], arguments[i],
               kernel->entry->parameters[i].bytes);
    check_launch(made);
    return made;
}

void run_launch(const launch &launch)
{
    static thread_local shadow shadow_here; /* launches of an operating-system thread follow each other */
    block_run block = {};
    block.launch = &launch;
    block.shadow = &shadow_here;
    block.threads = static_cast<unsigned>(launch.block.product());
    make_warps(&block);
    const enum cuhost_order order = order_now();
    const unsigned blocks = static_cast<unsigned>(launch.grid.product());
    block.launch_time = block.shadow->tick();
    for (unsigned i = 0; i < blocks; i++) {
        begin_block(&block, turn_of(order, i, blocks));
        run_warps(&block, order);
    }
}

} // namespace ptx
