/* What moves between registers and memory, with every check that there is: the bytes must be somebody's, the address a multiple
 * of the access's width, shared memory written before it is read, and nobody else at the same bytes without an order between.
 *
 * A copy that cp.async starts reads nothing and writes nothing until its thread waits for it: until then its bytes in shared memory
 * are NaN, and whoever touches them is told. */
#include "tests/ptx/ptx_lanes.h"
#include "tests/ptx/ptx_table.h"

#include <algorithm>

namespace ptx
{

namespace
{

/* ---- checks ---- */

unsigned long long number_of(uint64_t address)
{
    return address;
}

void check_aligned(const warp &w, unsigned lane, uint64_t address, unsigned bytes)
{
    if (address % bytes)
        w.complain(lane, "an access of %u bytes at %#llx, which is not aligned to as many", bytes,
                   number_of(address));
}

[[noreturn]] void fail_race(const warp &w, unsigned lane, uint64_t address, trouble met)
{
    const unsigned other = w.block->shadow->last.thread, block = other / MOST_THREADS;
    const unsigned long long at = number_of(address);
    const std::string whom = "thread " + std::to_string(other % MOST_THREADS) + " of " +
                             (block == w.block->number ? "this block" : "block " + std::to_string(block));
    if (met == trouble::not_written)
        w.complain(lane, "reads shared memory at %#llx, which nobody wrote in this block", at);
    if (met == trouble::copying)
        w.complain(lane, "touches %#llx while a copy of %s is on its way there", at, whom.c_str());
    w.complain(lane, "a race: nothing orders this access of %#llx with %s of %s", at,
               met == trouble::races_with_read ? "a read" : "a write", whom.c_str());
}

void check_shared(const warp &w, unsigned lane, uint64_t address, unsigned bytes)
{
    check_aligned(w, lane, address, bytes);
    if (address >= dynamic_base) {
        if (address + bytes <= w.block->shared.size())
            return;
        w.complain(lane, "%u bytes of shared memory at %lld of the launch's %zu", bytes,
                   static_cast<long long>(address - dynamic_base), w.block->launch->dynamic_bytes);
    }
    for (const placed &it : w.block->launch->kernel->shared)
        if (address >= it.address && address + bytes <= it.address + it.what->bytes)
            return;
    w.complain(lane, "%u bytes of shared memory at %#llx, which are in no variable", bytes,
               number_of(address));
}

/* The last span that was found, since lanes mostly touch the same one. */
struct finder {
    ptx_span span = {nullptr, 0, false};

    unsigned char *check(const warp &w, unsigned lane, uint64_t address, unsigned bytes, bool writes)
    {
        check_aligned(w, lane, address, bytes);
        auto *start = reinterpret_cast<unsigned char *>(address);
        if (!span.start || start < span.start || start >= span.start + span.bytes)
            span = ptx_memory_find(start);
        if (!span.start)
            w.complain(lane, "%u bytes at %#llx, which is nobody's memory", bytes, number_of(address));
        const size_t offset = static_cast<size_t>(start - span.start);
        if (offset + bytes > span.bytes)
            w.complain(lane, "%u bytes at %zu of a buffer of %zu", bytes, offset, span.bytes);
        if (writes && span.constant)
            w.complain(lane, "writes to memory that is constant, at %#llx", number_of(address));
        return start;
    }
};

/* ---- addresses ---- */

/* Of the which-th address, which lies at `place`; 4 bytes wide where the lowest bit is set. */
uint64_t address_of(warp &w, const instruction &it, unsigned place, unsigned which, unsigned lane)
{
    const uint32_t at = it.at[place];
    const uint64_t base = at & 1 ? w.at<uint32_t>(at & ~1u)[lane] : w.at<uint64_t>(at)[lane];
    return base + static_cast<uint64_t>(it.offsets[which]);
}

/* Each kind of memory: where the bytes of an access are, after its checks. */
struct in_global {
    finder found;

    unsigned char *read(warp &w, unsigned lane, uint64_t address, unsigned bytes)
    {
        unsigned char *memory = found.check(w, lane, address, bytes, false);
        if (found.span.constant)
            return memory;
        const trouble met = w.block->shadow->read(address, bytes, w.actor_of(lane), 0);
        if (met != trouble::none)
            fail_race(w, lane, address, met);
        return memory;
    }

    unsigned char *write(warp &w, unsigned lane, uint64_t address, unsigned bytes)
    {
        unsigned char *memory = found.check(w, lane, address, bytes, true);
        const trouble met = w.block->shadow->write(address, bytes, w.actor_of(lane));
        if (met != trouble::none)
            fail_race(w, lane, address, met);
        return memory;
    }
};

struct in_shared {
    unsigned char *read(warp &w, unsigned lane, uint64_t address, unsigned bytes)
    {
        check_shared(w, lane, address, bytes);
        const trouble met = w.block->shadow->read(shared_window + address, bytes, w.shared_actor_of(lane),
                                                  w.block->start_time);
        if (met != trouble::none)
            fail_race(w, lane, address, met);
        return w.block->shared.data() + address;
    }

    unsigned char *write(warp &w, unsigned lane, uint64_t address, unsigned bytes)
    {
        check_shared(w, lane, address, bytes);
        const trouble met = w.block->shadow->write(shared_window + address, bytes, w.shared_actor_of(lane));
        if (met != trouble::none)
            fail_race(w, lane, address, met);
        return w.block->shared.data() + address;
    }
};

/* A lane's own. */
struct in_local {
    unsigned char *read(warp &w, unsigned lane, uint64_t address, unsigned bytes)
    {
        const kernel &kernel = *w.block->launch->kernel;
        check_aligned(w, lane, address, bytes);
        for (const placed &it : kernel.local)
            if (address >= it.address && address + bytes <= it.address + it.what->bytes)
                return w.local.data() + size_t{lane} * kernel.local_bytes + (address - local_base);
        w.complain(lane, "%u bytes of local memory at %#llx, which are in no variable", bytes,
                   number_of(address));
    }

    unsigned char *write(warp &w, unsigned lane, uint64_t address, unsigned bytes)
    {
        return read(w, lane, address, bytes);
    }
};

struct in_parameters {
    const unsigned char *read(warp &w, unsigned lane, uint64_t address, unsigned bytes)
    {
        const std::vector<unsigned char> &all = w.block->launch->parameters;
        check_aligned(w, lane, address, bytes);
        if (address + bytes > all.size())
            w.complain(lane, "%u bytes at %llu of %zu bytes of parameters", bytes, number_of(address),
                       all.size());
        return all.data() + address;
    }
};

/* ---- loads and stores ---- */

/* A register may be wider than what is loaded into it: the sign is extended, or zeros. */
template <typename T, typename R>
void load_into(warp &w, const instruction &it, unsigned place, unsigned lane, T value)
{
    w.at<R>(it.at[place])[lane] = static_cast<R>(value);
}

template <typename T>
void set_register(warp &w, const instruction &it, unsigned place, unsigned lane, T value)
{
    if (it.width == 2)
        load_into<T, uint16_t>(w, it, place, lane, value);
    else if (it.width == 4)
        load_into<T, uint32_t>(w, it, place, lane, value);
    else
        load_into<T, uint64_t>(w, it, place, lane, value);
}

template <typename T> T get_register(warp &w, const instruction &it, unsigned place, unsigned lane)
{
    if (it.width == 2)
        return static_cast<T>(w.at<uint16_t>(it.at[place])[lane]);
    if (it.width == 4)
        return static_cast<T>(w.at<uint32_t>(it.at[place])[lane]);
    return static_cast<T>(w.at<uint64_t>(it.at[place])[lane]);
}

template <typename Memory, typename T, int COUNT> void load(warp &w, const instruction &it, uint32_t active)
{
    Memory memory;
    PTX_FOR_LANES(lane, active)
    {
        T values[COUNT];
        memcpy(values, memory.read(w, lane, address_of(w, it, COUNT, 0, lane), sizeof values), sizeof values);
        for (unsigned i = 0; i < COUNT; i++)
            set_register(w, it, i, lane, values[i]);
    }
}

template <typename Memory, typename T, int COUNT> void store(warp &w, const instruction &it, uint32_t active)
{
    Memory memory;
    PTX_FOR_LANES(lane, active)
    {
        T values[COUNT];
        for (unsigned i = 0; i < COUNT; i++)
            values[i] = get_register<T>(w, it, i + 1, lane);
        memcpy(memory.write(w, lane, address_of(w, it, 0, 0, lane), sizeof values), values, sizeof values);
    }
}

uint64_t keep(uint64_t address)
{
    return address;
}

template <uint64_t WINDOW> uint64_t to_generic(uint64_t address)
{
    return WINDOW + address;
}

template <uint64_t WINDOW> uint64_t from_generic(uint64_t address)
{
    return address - WINDOW;
}

/* ---- atomics ---- */

template <typename T> T least(T a, T b)
{
    return a < b ? a : b;
}

template <typename T, T (*F)(T, T)> void atomic(warp &w, const instruction &it, uint32_t active)
{
    finder found;
    PTX_FOR_LANES(lane, active)
    {
        const uint64_t address = address_of(w, it, 1, 0, lane);
        unsigned char *memory = found.check(w, lane, address, sizeof(T), true);
        const trouble met = w.block->shadow->atomic(address, sizeof(T), w.actor_of(lane));
        if (met != trouble::none)
            fail_race(w, lane, address, met);
        /* Ranks are threads of this process, and may be at the same place. */
        T before = __atomic_load_n(reinterpret_cast<T *>(memory), __ATOMIC_SEQ_CST), after;
        do
            after = F(before, w.at<T>(it.at[2])[lane]);
        while (!__atomic_compare_exchange_n(reinterpret_cast<T *>(memory), &before, after, false,
                                            __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
        w.at<T>(it.at[0])[lane] = before;
    }
}

/* ---- copies that are under way ---- */

template <unsigned BYTES> void start_copy(warp &w, const instruction &it, uint32_t active)
{
    in_global global;
    if (it.number != BYTES)
        w.complain(0, "copies %u bytes, which this form does not", it.number);
    PTX_FOR_LANES(lane, active)
    {
        const uint64_t to = address_of(w, it, 0, 0, lane), from = address_of(w, it, 1, 1, lane);
        const uint32_t bytes = w.at<uint32_t>(it.at[2])[lane];
        if (bytes > BYTES)
            w.complain(lane, "copies %u of %u bytes", bytes, BYTES);
        check_shared(w, lane, to, BYTES);
        check_aligned(w, lane, from, BYTES);
        if (bytes)
            global.read(w, lane, from, bytes);
        const trouble met = w.block->shadow->begin_copy(shared_window + to, BYTES, w.shared_actor_of(lane));
        if (met != trouble::none)
            fail_race(w, lane, to, met);
        memset(w.block->shared.data() + to, 0xff, BYTES);
        w.copies[lane].push_back({static_cast<uint32_t>(to), reinterpret_cast<const unsigned char *>(from),
                                  BYTES, bytes, w.groups[lane]});
    }
}

void finish_copy(warp &w, unsigned lane, const pending_copy &it)
{
    unsigned char *to = w.block->shared.data() + it.to;
    memset(to, 0, it.bytes);
    if (it.filled)
        memcpy(to, it.from, it.filled);
    w.block->shadow->end_copy(shared_window + it.to, it.bytes, w.shared_actor_of(lane));
}

/* Those of groups that were closed before the last `open` ones. */
void finish_copies(warp &w, unsigned lane, uint32_t before)
{
    std::vector<pending_copy> &all = w.copies[lane];
    size_t kept = 0;
    for (const pending_copy &it : all) {
        if (it.group < before)
            finish_copy(w, lane, it);
        else
            all[kept++] = it;
    }
    all.resize(kept);
}

void wait_for_all(warp &w, const instruction &, uint32_t active)
{
    PTX_FOR_LANES(lane, active)
    finish_copies(w, lane, UINT32_MAX);
}

void close_group(warp &w, const instruction &, uint32_t active)
{
    PTX_FOR_LANES(lane, active)
    w.groups[lane]++;
}

void wait_for_groups(warp &w, const instruction &it, uint32_t active)
{
    PTX_FOR_LANES(lane, active)
    finish_copies(w, lane, w.groups[lane] - std::min(w.groups[lane], it.number));
}

/* ---- the list ---- */

#define LOADS(name, Memory, letter, suffix, T)                                                               \
    {"ld." name "." suffix, letter "=@", load<Memory, T, 1>},                                                \
    {                                                                                                        \
        "ld." name ".v2." suffix, "{" letter letter "}=@", load<Memory, T, 2>                                \
    }
#define LOADS_4(name, Memory, letter, suffix, T)                                                             \
    LOADS(name, Memory, letter, suffix, T),                                                                  \
    {                                                                                                        \
        "ld." name ".v4." suffix, "{" letter letter letter letter "}=@", load<Memory, T, 4>                  \
    }
#define STORES(name, Memory, letter, suffix, T)                                                              \
    {"st." name "." suffix, "@" letter, store<Memory, T, 1>},                                                \
    {                                                                                                        \
        "st." name ".v2." suffix, "@{" letter letter "}", store<Memory, T, 2>                                \
    }
#define STORES_4(name, Memory, letter, suffix, T)                                                            \
    STORES(name, Memory, letter, suffix, T),                                                                 \
    {                                                                                                        \
        "st." name ".v4." suffix, "@{" letter letter letter letter "}", store<Memory, T, 4>                  \
    }

/* Types of 2 to 8 bytes; nvcc writes loads and stores with u, s and f. */
#define ALL_LOADS(name, Memory)                                                                              \
    LOADS_4(name, Memory, "H", "u16", uint16_t), LOADS_4(name, Memory, "H", "s16", int16_t),                 \
        LOADS_4(name, Memory, "W", "u32", uint32_t), LOADS_4(name, Memory, "W", "s32", int32_t),             \
        LOADS_4(name, Memory, "w", "f32", uint32_t), LOADS(name, Memory, "x", "u64", uint64_t),              \
        LOADS(name, Memory, "x", "s64", uint64_t), LOADS(name, Memory, "x", "f64", uint64_t)
#define ALL_STORES(name, Memory)                                                                             \
    STORES_4(name, Memory, "H", "u16", uint16_t), STORES_4(name, Memory, "W", "u32", uint32_t),              \
        STORES_4(name, Memory, "w", "f32", uint32_t), STORES(name, Memory, "x", "u64", uint64_t),            \
        STORES(name, Memory, "x", "f64", uint64_t)

const form list[] = {
    ALL_LOADS("global", in_global),
    ALL_LOADS("global.nc", in_global),
    ALL_LOADS("shared", in_shared),
    ALL_LOADS("local", in_local),
    ALL_LOADS("param", in_parameters),
    LOADS_4("param", in_parameters, "H", "u8", uint8_t),
    LOADS_4("param", in_parameters, "H", "s8", int8_t),
    ALL_STORES("global", in_global),
    ALL_STORES("shared", in_shared),
    ALL_STORES("local", in_local),
    {"cvta.to.global.u64", "x=x", lanes<keep>},
    {"cvta.shared.u64", "x=x", lanes<to_generic<shared_window>>},
    {"cvta.local.u64", "x=x", lanes<to_generic<local_window>>},
    {"cvta.to.local.u64", "x=x", lanes<from_generic<local_window>>},
    {"atom.global.min.u64", "x=@x", atomic<uint64_t, least<uint64_t>>},
    {"cp.async.cg.shared.global", "@@#w", start_copy<16>},
    {"cp.async.ca.shared.global", "@@#w", start_copy<4>},
    {"cp.async.wait_all", "", wait_for_all},
    {"cp.async.commit_group", "", close_group},
    {"cp.async.wait_group", "#", wait_for_groups},
};

} // namespace

void read_shared(warp &w, const instruction &it, unsigned place, unsigned lane, void *to, unsigned bytes)
{
    in_shared memory;
    memcpy(to, memory.read(w, lane, address_of(w, it, place, 0, lane), bytes), bytes);
}

forms transfer_forms()
{
    return {list, sizeof list / sizeof *list};
}

} // namespace ptx
