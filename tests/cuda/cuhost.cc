/* The emulation of CUDA kernels: who runs next. A block's warps take turns in the chosen order, and the lanes of each; a
 * lane's turn ends at a barrier, in a warp function or at the end of the kernel, a warp's when no lane can run. When a whole
 * round passes in which nobody could, those that wait do so for ever, and the program ends with who waits where. */
#include "tests/cuda/cuhost.h"

#include "tests/cuda/cuhost_fiber.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace cuhost
{

__thread const thread_place *here;

enum {
    WARP = 32,
    BLOCK_MAX = 1024,
    SHARED_USUAL = 48 << 10, /* without asking */
    SHARED_MOST = 163 << 10, /* of sm_80, the least of the two architectures that the kernels are built for */
#ifdef __SANITIZE_ADDRESS__
    STACK_BYTES = 256 << 10,
#else
    STACK_BYTES = 64 << 10,
#endif
};

enum class state { unborn, ready, at_barrier, in_warp, done };

struct thread {
    thread_place place;
    struct fiber fiber;
    int stack;
    enum state state;
    source_line where; /* it waits, in one of two ways: */
    unsigned mask;
    void *mine;
    combine how;
};

struct shared_array {
    const void *place;
    void *memory;
};

/* One operating-system thread's block. */
struct machine {
    block_place block;
    unsigned count, done, at_barrier;
    struct thread threads[BLOCK_MAX];
    unsigned waiting[BLOCK_MAX / WARP]; /* lanes that are in a warp function */
    struct thread *current;
    struct fiber scheduler;
    char *stacks;
    std::vector<int> free_stacks; /* the last to be given back is the next: it is in the cache */
    std::vector<shared_array> shared;
    size_t static_bytes; /* of those */
    void *dynamic;
    const launch_shape *shape;
    const std::function<void()> *work;
};

static __thread machine *machine_here;

/* ---- trouble ---- */

void fail(const char *format, ...)
{
    char text[1000];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    const machine *m = machine_here;
    if (m && m->shape && here)
        fprintf(stderr, "cuhost: %s, block %u,%u,%u, thread %u: %s\n", m->shape->name, m->block.index.x,
                m->block.index.y, m->block.index.z, here->number, text);
    else
        fprintf(stderr, "cuhost: %s\n", text);
    abort();
}

void check_aligned(const void *pointer, size_t bytes)
{
    if (reinterpret_cast<uintptr_t>(pointer) % bytes != 0)
        fail("an access of %zu bytes at %p, which is not aligned to as many", bytes, pointer);
}

/* Names the first thread that waits, and the first that it waits for. */
[[noreturn]] static void fail_stuck(machine *m)
{
    for (unsigned i = 0; i < m->count; i++) {
        const thread *waits = &m->threads[i];
        here = &waits->place;
        if (waits->state == state::in_warp) {
            unsigned lanes = m->waiting[i / WARP];
            fail("waits in a warp function at %s:%d for lanes %#x, of which only %#x came", waits->where.file,
                 waits->where.line, waits->mask, waits->mask & lanes);
        }
    }
    for (unsigned i = 0; i < m->count; i++)
        if (m->threads[i].state == state::at_barrier) {
            here = &m->threads[i].place;
            fail("waits at __syncthreads() at %s:%d, which %u of %u threads reached; %u have left the kernel",
                 m->threads[i].where.file, m->threads[i].where.line, m->at_barrier, m->count, m->done);
        }
    abort();
}

/* ---- waiting ---- */

static void wait(machine *m, enum state why)
{
    thread *me = m->current;
    me->state = why;
    fiber_switch(&me->fiber, &m->scheduler);
}

/* All are there: they must be at the same line, because a GPU does not tell barriers apart either. */
static void open_barrier(machine *m)
{
    source_line where = m->current->where;
    for (unsigned i = 0; i < m->count; i++) {
        if (m->threads[i].where.line != where.line)
            fail("is at __syncthreads() of line %d, and thread %u at that of line %d", where.line, i,
                 m->threads[i].where.line);
        m->threads[i].state = state::ready;
    }
    m->at_barrier = 0;
}

void block_barrier(source_line where)
{
    machine *m = machine_here;
    m->current->where = where;
    if (++m->at_barrier == m->count)
        open_barrier(m);
    else
        wait(m, state::at_barrier);
}

/* Lanes of the warp that the block has. */
static unsigned existing_lanes(const machine *m, unsigned warp)
{
    unsigned lanes = m->count - warp * WARP;
    return lanes >= WARP ? ~0u : (1u << lanes) - 1;
}

static void combine_warp(machine *m, unsigned warp, unsigned lanes)
{
    const thread *me = m->current;
    void *brought[WARP] = {};
    for (unsigned i = 0; i < WARP; i++) {
        if (!(lanes >> i & 1))
            continue;
        thread *other = &m->threads[warp * WARP + i];
        if (other->mask != me->mask || other->how != me->how || other->where.line != me->where.line)
            fail("is in the warp function of line %d with mask %#x, and lane %u in that of line %d with mask "
                 "%#x",
                 me->where.line, me->mask, i, other->where.line, other->mask);
        brought[i] = other->mine;
        other->state = state::ready;
    }
    me->how(brought, lanes);
    m->waiting[warp] &= ~lanes;
}

void warp_meet(unsigned mask, void *mine, combine how, source_line where)
{
    machine *m = machine_here;
    thread *me = m->current;
    unsigned warp = me->place.number / WARP, lane = me->place.number % WARP;
    unsigned lanes = mask & existing_lanes(m, warp);
    if (!(mask >> lane & 1))
        fail("calls a warp function at %s:%d with mask %#x, which leaves out its own lane %u", where.file,
             where.line, mask, lane);
    me->mask = mask;
    me->mine = mine;
    me->how = how;
    me->where = where;
    m->waiting[warp] |= 1u << lane;
    if ((m->waiting[warp] & lanes) == lanes)
        combine_warp(m, warp, lanes);
    else
        wait(m, state::in_warp);
}

/* ---- shared memory ---- */

/* Every byte 0xff: NaN in all float types. */
static void *poisoned(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory)
        fail("%zu bytes of host memory for a shared array were refused", bytes);
    return memset(memory, 0xff, bytes);
}

static bool has_asked(const void *kernel);

/* A kernel that did not ask for more has 48 KiB for its arrays and the launch's together. */
static void check_shared(const machine *m)
{
    const size_t all = m->static_bytes + m->shape->shared_bytes,
                 limit = has_asked(m->shape->kernel) ? SHARED_MOST : SHARED_USUAL;
    if (all > limit)
        fail("arrays of %zu bytes and %zu of the launch are more than the %zu that it may use; see "
             "CUDA_ALLOW_SHARED()",
             m->static_bytes, m->shape->shared_bytes, limit);
}

void *static_shared(const void *place, size_t bytes)
{
    machine *m = machine_here;
    for (const shared_array &array : m->shared)
        if (array.place == place)
            return array.memory;
    m->static_bytes += bytes;
    check_shared(m);
    m->shared.push_back({place, poisoned(bytes)});
    return m->shared.back().memory;
}

void *dynamic_shared()
{
    if (!machine_here->dynamic)
        fail("uses dynamic shared memory, and was launched with none");
    return machine_here->dynamic;
}

static void free_shared(machine *m)
{
    for (const shared_array &array : m->shared)
        free(array.memory);
    m->shared.clear();
    m->static_bytes = 0;
    free(m->dynamic);
    m->dynamic = nullptr;
}

static std::mutex allowed_lock;
static std::map<const void *, size_t> allowed_bytes;

cudaError_t allow_shared(const void *kernel, size_t bytes)
{
    if (bytes > SHARED_MOST)
        return cudaErrorInvalidValue;
    std::lock_guard<std::mutex> guard(allowed_lock);
    allowed_bytes[kernel] = bytes;
    return cudaSuccess;
}

static bool has_asked(const void *kernel)
{
    std::lock_guard<std::mutex> guard(allowed_lock);
    return allowed_bytes.count(kernel) > 0;
}

static size_t shared_limit(const void *kernel)
{
    std::lock_guard<std::mutex> guard(allowed_lock);
    auto found = allowed_bytes.find(kernel);
    return found == allowed_bytes.end() ? size_t{SHARED_USUAL} : found->second;
}

/* ---- turns ---- */

static std::atomic<int> chosen_order{-1};

static enum cuhost_order order_of_environment()
{
    const char *text = getenv("CUHOST_ORDER");
    if (!text || strcmp(text, "ascending") == 0)
        return CUHOST_ASCENDING;
    if (strcmp(text, "descending") == 0)
        return CUHOST_DESCENDING;
    if (strcmp(text, "rotated") == 0)
        return CUHOST_ROTATED;
    fail("CUHOST_ORDER=%s is unknown; use ascending, descending or rotated", text);
}

/* The i-th of `count` to have its turn. */
static unsigned turn(enum cuhost_order order, unsigned i, unsigned count)
{
    if (order == CUHOST_DESCENDING)
        return count - 1 - i;
    return order == CUHOST_ROTATED ? (i + count / 3 + 1) % count : i;
}

/* A fiber's whole life. It ends without returning, so nothing of it may be left in the sanitizer's books. */
__attribute__((no_sanitize("address"))) static void thread_main()
{
    machine *m = machine_here;
    fiber_enter(&m->scheduler);
    (*m->work)();
    m->current->state = state::done;
    m->done++;
    fiber_leave(&m->current->fiber, &m->scheduler);
}

static void run_thread(machine *m, thread *next)
{
    if (next->state == state::unborn) {
        next->stack = m->free_stacks.back();
        m->free_stacks.pop_back();
        fiber_prepare(&next->fiber, m->stacks + static_cast<size_t>(next->stack) * STACK_BYTES, STACK_BYTES,
                      thread_main);
        next->state = state::ready;
    }
    m->current = next;
    here = &next->place;
    fiber_switch(&m->scheduler, &next->fiber);
    if (next->state == state::done)
        m->free_stacks.push_back(next->stack);
}

static bool can_run(const thread *thread)
{
    return thread->state == state::unborn || thread->state == state::ready;
}

/* Until each of its lanes is at a barrier or done: a warp that runs ahead of the others writes what they have not read yet,
 * if a barrier is missing. Says whether anyone could run. */
static bool run_warp(machine *m, unsigned first, enum cuhost_order order)
{
    unsigned lanes = m->count - first < WARP ? m->count - first : unsigned{WARP};
    bool ran = false;
    for (bool again = true; again; ran |= again) {
        again = false;
        for (unsigned i = 0; i < lanes; i++) {
            thread *next = &m->threads[first + turn(order, i, lanes)];
            if (!can_run(next))
                continue;
            run_thread(m, next);
            again = true;
        }
    }
    return ran;
}

static void run_threads(machine *m, enum cuhost_order order)
{
    unsigned warps = (m->count + WARP - 1) / WARP;
    while (m->done < m->count) {
        bool anyone = false;
        for (unsigned i = 0; i < warps; i++)
            anyone |= run_warp(m, turn(order, i, warps) * WARP, order);
        if (!anyone)
            fail_stuck(m);
    }
}

/* ---- blocks ---- */

static machine *machine_create()
{
    auto *m = new machine();
    size_t bytes = static_cast<size_t>(BLOCK_MAX) * STACK_BYTES;
    void *stacks =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        fail("%zu bytes of address space for stacks were refused", bytes);
    m->stacks = static_cast<char *>(stacks);
    /* A stack that overflows meets a page that nobody may touch. */
    for (int i = BLOCK_MAX - 1; i >= 0; i--) {
        mprotect(m->stacks + static_cast<size_t>(i) * STACK_BYTES, static_cast<size_t>(sysconf(_SC_PAGESIZE)),
                 PROT_NONE);
        m->free_stacks.push_back(i);
    }
    return m;
}

/* Kept until the operating-system thread ends. */
struct machine_holder {
    machine *held = nullptr;
    ~machine_holder()
    {
        if (!held)
            return;
        munmap(held->stacks, static_cast<size_t>(BLOCK_MAX) * STACK_BYTES);
        delete held;
        machine_here = nullptr;
    }
};

static machine *machine_of_thread()
{
    static thread_local machine_holder holder;
    if (!holder.held)
        holder.held = machine_here = machine_create();
    return holder.held;
}

static void place_threads(machine *m)
{
    uint3 at = {0, 0, 0};
    for (unsigned i = 0; i < m->count; i++) {
        m->threads[i].place = {at, i, &m->block};
        m->threads[i].state = state::unborn;
        if (++at.x < m->block.size.x)
            continue;
        at.x = 0;
        if (++at.y < m->block.size.y)
            continue;
        at.y = 0;
        at.z++;
    }
}

static void run_block(const launch_shape &shape, uint3 index, const std::function<void()> &work,
                      enum cuhost_order order)
{
    machine *m = machine_of_thread();
    m->shape = &shape;
    m->work = &work;
    m->block = {index, shape.block, shape.grid};
    m->count = shape.block.x * shape.block.y * shape.block.z;
    m->done = m->at_barrier = 0;
    place_threads(m);
    m->dynamic = shape.shared_bytes ? poisoned(shape.shared_bytes) : nullptr;
    run_threads(m, order);
    free_shared(m);
    here = nullptr;
    m->shape = nullptr;
}

static int host_threads()
{
    const char *text = getenv("CUHOST_THREADS");
    return text && atoi(text) > 1 ? atoi(text) : 1;
}

static void run_grid(const launch_shape &shape, const std::function<void()> &work)
{
    int chosen = chosen_order.load();
    enum cuhost_order order = chosen < 0 ? order_of_environment() : static_cast<enum cuhost_order>(chosen);
    unsigned blocks = shape.grid.x * shape.grid.y * shape.grid.z;
    const int threads = host_threads();
    /* Without the clause blocks stay on the caller's thread, whose machine is warm. */
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && blocks > 1)
    for (unsigned i = 0; i < blocks; i++) {
        unsigned block = turn(order, i, blocks), plane = shape.grid.x * shape.grid.y;
        run_block(shape, uint3{block % shape.grid.x, block % plane / shape.grid.x, block / plane}, work,
                  order);
    }
}

/* ---- launches ---- */

static std::atomic<submit_hook> hook{nullptr};

void set_submit_hook(submit_hook next)
{
    hook = next;
}

/* What cudaLaunchKernel() refuses, and what it would not see before it is too late. */
static void check_shape(const launch_shape &shape)
{
    uint64_t block = uint64_t{shape.block.x} * shape.block.y * shape.block.z;
    uint64_t grid = uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
    if (block == 0 || block > BLOCK_MAX || shape.block.z > 64)
        fail("%s was launched with blocks of %u x %u x %u threads; use 1 to %d", shape.name, shape.block.x,
             shape.block.y, shape.block.z, BLOCK_MAX);
    if (grid == 0 || shape.grid.x > INT32_MAX || shape.grid.y > UINT16_MAX || shape.grid.z > UINT16_MAX)
        fail("%s was launched with %u x %u x %u blocks; use 1 to 2^31 - 1 x 65535 x 65535", shape.name,
             shape.grid.x, shape.grid.y, shape.grid.z);
    if (grid > UINT32_MAX)
        fail("%s was launched with %llu blocks, more than the emulation counts", shape.name,
             (unsigned long long)grid);
    if (shape.shared_bytes > shared_limit(shape.kernel))
        fail("%s was launched with %zu bytes of shared memory and may use %zu; see CUDA_ALLOW_SHARED()",
             shape.name, shape.shared_bytes, shared_limit(shape.kernel));
}

static thread_local std::vector<memory_use> uses_now;

const std::vector<memory_use> &launch_uses()
{
    return uses_now;
}

void submit(const launch_shape &shape, std::function<void()> thread, std::vector<memory_use> uses)
{
    check_shape(shape);
    uses_now = std::move(uses);
    if (submit_hook submit_to = hook)
        submit_to(shape.stream, shape.name, [shape, thread] { run_grid(shape, thread); });
    else
        run_grid(shape, thread);
}

} // namespace cuhost

void cuhost_set_order(enum cuhost_order order)
{
    cuhost::chosen_order = order;
}

/* What a launcher asks after a launch, where no double of the CUDA runtime is linked that answers it: submit() ends the
 * program rather than fail. */
extern "C" __attribute__((weak)) cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

extern "C" __attribute__((weak)) const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "refused by the emulation";
}
