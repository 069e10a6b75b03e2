#include "profiler/cupti_ledger.h"

#include "base/arena.h"
#include "base/clock.h"
#include "device/blocks.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 64, QUEUE = 1 << 15, MAX_POOLS = 64, MAX_CONTEXTS = 64, MAX_FRAMES = 40, CALLER = 128 };

/* Memory without an address, which is there as long as somebody has a handle or it is mapped somewhere. */
struct physical {
    CUmemGenericAllocationHandle handle;
    int64_t bytes;
    int device, references, mappings;
    const char *owner;
};

struct mapping {
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
};

static struct {
    pthread_mutex_t lock;
    const struct cupti_calls *calls;
    /* By address. A block's tag says: tensor, the device; name, the owner; role, ROLE_RUNTIME until it is claimed. */
    struct blocks blocks;
    struct physical *physicals;
    struct mapping *mappings;
    int physical_count, mapping_count;
    int64_t live_bytes[MAX_DEVICES];
    int64_t given_bytes, created_bytes; /* of all allocations: with an address, behind a handle */
    struct block last_claimed;          /* of an arena, which is claimed again and again */
    const char *owners[CUPTI_OWNERS];
    int owner_count;
    struct {
        CUmemoryPool pool;
        const char *owner;
    } pools[MAX_POOLS];
    int pool_count;
    struct {
        uint32_t uid;
        int device;
    } contexts[MAX_CONTEXTS];
    int context_count;
    struct cupti_memory *queue; /* QUEUE of them, from `tail` to `head` */
    uint64_t head, tail;
    int64_t dropped;
} ledger = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct cupti_work thread_work = {-1, -1};

const CUpti_CallbackId cupti_ledger_calls[] = {
    CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged,
    CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemCreate,
    CUPTI_DRIVER_TRACE_CBID_cuMemRelease,
    CUPTI_DRIVER_TRACE_CBID_cuMemMap,
    CUPTI_DRIVER_TRACE_CBID_cuMemUnmap,
    CUPTI_DRIVER_TRACE_CBID_cuMemRetainAllocationHandle,
    0,
};

void cupti_ledger_start(const struct cupti_calls *calls)
{
    void *frame[1];
    backtrace(frame, 1); /* the first call loads a library, which no callback should */
    pthread_mutex_lock(&ledger.lock);
    ledger.calls = calls;
    ledger.queue = host_alloc(QUEUE * sizeof *ledger.queue);
    pthread_mutex_unlock(&ledger.lock);
}

void cupti_ledger_stop(void)
{
    pthread_mutex_lock(&ledger.lock);
    blocks_free(&ledger.blocks);
    free(ledger.physicals);
    free(ledger.mappings);
    free(ledger.queue);
    ledger.physicals = NULL;
    ledger.mappings = NULL;
    ledger.queue = NULL;
    ledger.calls = NULL;
    ledger.physical_count = ledger.mapping_count = ledger.pool_count = ledger.context_count = 0;
    ledger.head = ledger.tail = 0;
    ledger.dropped = ledger.given_bytes = ledger.created_bytes = 0;
    ledger.last_claimed = (struct block){0};
    memset(ledger.live_bytes, 0, sizeof ledger.live_bytes);
    pthread_mutex_unlock(&ledger.lock);
}

void cupti_ledger_work(struct cupti_work work)
{
    thread_work = work;
}

/* ------------------------------------------------------------------------------------------------------------ who asks */

/* Names stay for good: rows that are on their way point to them. */
static const char *owner_named(const char *name)
{
    for (int i = 0; i < ledger.owner_count; i++)
        if (!strcmp(ledger.owners[i], name))
            return ledger.owners[i];
    if (ledger.owner_count == CUPTI_OWNERS - 1)
        name = "others";
    if (ledger.owner_count == CUPTI_OWNERS)
        return ledger.owners[CUPTI_OWNERS - 1];
    char *copy = strcpy(host_alloc(strlen(name) + 1), name);
    return ledger.owners[ledger.owner_count++] = copy;
}

static const char *file_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The layers that pass a request on and never ask for themselves. */
static bool passes_on(const char *file)
{
    return !strncmp(file, "libcuda.so", 10) || !strncmp(file, "libcudart.so", 12) ||
           !strncmp(file, "libcupti.so", 11) || !strncmp(file, "libc.so", 7);
}

/* The innermost caller that is neither one of those nor this library; this library where it has called by itself. Called
 * without the lock: looking at the stack waits for whoever is loading a library, and that one's first act may be to allocate. */
static void find_caller(char out[CALLER])
{
    void *frames[MAX_FRAMES];
    int count = backtrace(frames, MAX_FRAMES);
    Dl_info own = {0}, info;
    dladdr((void *)find_caller, &own);
    const char *found = own.dli_fname ? own.dli_fname : "unknown";
    for (int i = 0; i < count; i++)
        if (dladdr(frames[i], &info) && info.dli_fname && info.dli_fbase != own.dli_fbase &&
            !passes_on(file_part(info.dli_fname))) {
            found = info.dli_fname;
            break;
        }
    snprintf(out, CALLER, "%s", file_part(found));
}

static const char *find_pool_owner(CUmemoryPool pool)
{
    for (int i = 0; i < ledger.pool_count; i++)
        if (ledger.pools[i].pool == pool)
            return ledger.pools[i].owner;
    return NULL;
}

/* Looking at the stack takes microseconds, which is too long for every tensor: whoever made the first request of a pool makes
 * them all. */
static const char *owner_of_pool(CUmemoryPool pool, const char *caller)
{
    const char *owner = find_pool_owner(pool);
    if (owner)
        return owner;
    owner = owner_named(caller);
    if (ledger.pool_count < MAX_POOLS) {
        ledger.pools[ledger.pool_count].pool = pool;
        ledger.pools[ledger.pool_count++].owner = owner;
    }
    return owner;
}

static int device_of_context(const CUpti_CallbackData *data)
{
    uint32_t device = 0;
    for (int i = 0; i < ledger.context_count; i++)
        if (ledger.contexts[i].uid == data->contextUid)
            return ledger.contexts[i].device;
    if (ledger.calls->cuptiGetDeviceId(data->context, &device) != CUPTI_SUCCESS || device >= MAX_DEVICES)
        return 0;
    if (ledger.context_count < MAX_CONTEXTS) {
        ledger.contexts[ledger.context_count].uid = data->contextUid;
        ledger.contexts[ledger.context_count++].device = (int)device;
    }
    return (int)device;
}

/* ------------------------------------------------------------------------------------------------------------- changes */

static void change(int device, int64_t bytes, int64_t address, const char *call, const char *owner)
{
    ledger.live_bytes[device] += bytes;
    if (ledger.head - ledger.tail == QUEUE) {
        ledger.dropped++;
        return;
    }
    ledger.queue[ledger.head++ % QUEUE] = (struct cupti_memory){
        .time_ns = clock_ns(),
        .address = address,
        .bytes = bytes,
        .live_bytes = ledger.live_bytes[device],
        .device = device,
        .work = thread_work,
        .call = call,
        .owner = owner,
    };
}

static void given(const CUpti_CallbackData *data, CUdeviceptr address, size_t bytes, const char *owner)
{
    int device = device_of_context(data);
    struct block block = {(void *)address, (int64_t)bytes, {device, ROLE_RUNTIME, owner}};
    blocks_add(&ledger.blocks, block);
    ledger.given_bytes += (int64_t)bytes;
    change(device, (int64_t)bytes, (int64_t)address, data->functionName, owner);
}

/* What was given out before start() is not known. */
static void taken_back(const CUpti_CallbackData *data, CUdeviceptr address)
{
    struct block block;
    if (!blocks_remove(&ledger.blocks, (void *)address, &block))
        return;
    if (ledger.last_claimed.memory == block.memory)
        ledger.last_claimed = (struct block){0};
    change((int)block.tag.tensor, -block.bytes, (int64_t)address, data->functionName, block.tag.name);
}

static struct physical *find_physical(CUmemGenericAllocationHandle handle)
{
    for (int i = 0; i < ledger.physical_count; i++)
        if (ledger.physicals[i].handle == handle)
            return &ledger.physicals[i];
    return NULL;
}

static void created(const CUpti_CallbackData *data, const cuMemCreate_params *p, const char *caller)
{
    if (p->prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || p->prop->location.id >= MAX_DEVICES)
        return;
    struct physical physical = {*p->handle, (int64_t)p->size,   p->prop->location.id, 1,
                                0,          owner_named(caller)};
    ledger.physicals =
        host_resize(ledger.physicals, (size_t)(ledger.physical_count + 1) * sizeof *ledger.physicals);
    ledger.physicals[ledger.physical_count++] = physical;
    ledger.created_bytes += physical.bytes;
    change(physical.device, physical.bytes, 0, data->functionName, physical.owner);
}

static void end_if_unused(const CUpti_CallbackData *data, struct physical *physical)
{
    if (physical->references > 0 || physical->mappings > 0)
        return;
    change(physical->device, -physical->bytes, 0, data->functionName, physical->owner);
    *physical = ledger.physicals[--ledger.physical_count];
}

static void mapped(const cuMemMap_params *p)
{
    struct physical *physical = find_physical(p->handle);
    if (!physical)
        return;
    physical->mappings++;
    ledger.mappings =
        host_resize(ledger.mappings, (size_t)(ledger.mapping_count + 1) * sizeof *ledger.mappings);
    ledger.mappings[ledger.mapping_count++] = (struct mapping){p->ptr, p->handle};
}

/* One call may end several mappings. */
static void unmapped(const CUpti_CallbackData *data, const cuMemUnmap_params *p)
{
    for (int i = ledger.mapping_count - 1; i >= 0; i--) {
        struct mapping mapping = ledger.mappings[i];
        if (mapping.address < p->ptr || mapping.address >= p->ptr + p->size)
            continue;
        ledger.mappings[i] = ledger.mappings[--ledger.mapping_count];
        struct physical *physical = find_physical(mapping.handle);
        if (physical) {
            physical->mappings--;
            end_if_unused(data, physical);
        }
    }
}

static void referred(const CUpti_CallbackData *data, CUmemGenericAllocationHandle handle, int references)
{
    struct physical *physical = find_physical(handle);
    if (!physical)
        return;
    physical->references += references;
    end_if_unused(data, physical);
}

#define PARAMS(call) const call##_params *p = data->functionParams

/* Physical memory has a handle of its own, and addresses that it is mapped at. */
static void note_handle(CUpti_CallbackId id, const CUpti_CallbackData *data, const char *caller)
{
    switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuMemCreate:
        created(data, data->functionParams, caller);
        break;
    case CUPTI_DRIVER_TRACE_CBID_cuMemRelease: {
        PARAMS(cuMemRelease);
        referred(data, p->handle, -1);
        break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuMemRetainAllocationHandle: {
        PARAMS(cuMemRetainAllocationHandle);
        referred(data, *p->handle, 1);
        break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuMemMap:
        mapped(data->functionParams);
        break;
    case CUPTI_DRIVER_TRACE_CBID_cuMemUnmap:
        unmapped(data, data->functionParams);
        break;
    default:
        break;
    }
}

static void note_locked(CUpti_CallbackId id, const CUpti_CallbackData *data, const char *caller)
{
    switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2: {
        PARAMS(cuMemAlloc_v2);
        given(data, *p->dptr, p->bytesize, owner_named(caller));
        break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2: {
        PARAMS(cuMemAllocPitch_v2);
        given(data, *p->dptr, *p->pPitch * p->Height, owner_named(caller));
        break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged: {
        PARAMS(cuMemAllocManaged);
        given(data, *p->dptr, p->bytesize, owner_named(caller));
        break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync:
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz: {
        PARAMS(cuMemAllocAsync); /* the same in both */
        given(data, *p->dptr, p->bytesize, owner_named(caller));
        break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync:
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz: {
        PARAMS(cuMemAllocFromPoolAsync);
        given(data, *p->dptr, p->bytesize, owner_of_pool(p->pool, caller));
        break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2: {
        PARAMS(cuMemFree_v2);
        taken_back(data, p->dptr);
        break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync:
    case CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz: {
        PARAMS(cuMemFreeAsync);
        taken_back(data, p->dptr);
        break;
    }
    default:
        note_handle(id, data, caller);
        break;
    }
}

/* Must the stack be looked at to know whose this is? */
static bool needs_caller(CUpti_CallbackId id, const CUpti_CallbackData *data)
{
    switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync:
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz: {
        PARAMS(cuMemAllocFromPoolAsync);
        pthread_mutex_lock(&ledger.lock);
        bool known = find_pool_owner(p->pool);
        pthread_mutex_unlock(&ledger.lock);
        return !known;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2:
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2:
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged:
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync:
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz:
    case CUPTI_DRIVER_TRACE_CBID_cuMemCreate:
        return true;
    default:
        return false;
    }
}

/* Results, and what out-parameters point to, are there when the call has returned. */
void cupti_ledger_note(CUpti_CallbackId id, const CUpti_CallbackData *data)
{
    char caller[CALLER] = "unknown";
    if (data->callbackSite != CUPTI_API_EXIT || *(const CUresult *)data->functionReturnValue != CUDA_SUCCESS)
        return;
    if (needs_caller(id, data))
        find_caller(caller);
    pthread_mutex_lock(&ledger.lock);
    if (ledger.queue)
        note_locked(id, data, caller);
    pthread_mutex_unlock(&ledger.lock);
}

/* ----------------------------------------------------------------------------------------------------------- questions */

static bool holds(const struct block *block, int device, int64_t address)
{
    return block->memory && block->tag.tensor == device && address >= (int64_t)(intptr_t)block->memory &&
           address < (int64_t)(intptr_t)block->memory + block->bytes;
}

/* A tensor of its own begins a block; one in an arena lies inside. */
static void claim_locked(int device, int64_t address)
{
    struct block block;
    if (holds(&ledger.last_claimed, device, address))
        return;
    if (blocks_remove(&ledger.blocks, (void *)(intptr_t)address, &block)) {
        if (block.tag.tensor == device)
            block.tag.role = ROLE_PARAMETER; /* whatever but ROLE_RUNTIME */
        blocks_add(&ledger.blocks, block);
        return;
    }
    for (size_t i = 0; i < ledger.blocks.room; i++)
        if (holds(&ledger.blocks.slots[i], device, address)) {
            ledger.blocks.slots[i].tag.role = ROLE_PARAMETER;
            ledger.last_claimed = ledger.blocks.slots[i];
            return;
        }
}

void cupti_ledger_claim(int device, int64_t address)
{
    pthread_mutex_lock(&ledger.lock);
    claim_locked(device, address);
    pthread_mutex_unlock(&ledger.lock);
}

void cupti_ledger_given_bytes(int64_t *given_bytes, int64_t *created_bytes)
{
    pthread_mutex_lock(&ledger.lock);
    *given_bytes = ledger.given_bytes;
    *created_bytes = ledger.created_bytes;
    pthread_mutex_unlock(&ledger.lock);
}

int64_t cupti_ledger_live_bytes(int device)
{
    pthread_mutex_lock(&ledger.lock);
    int64_t bytes = device < MAX_DEVICES ? ledger.live_bytes[device] : 0;
    pthread_mutex_unlock(&ledger.lock);
    return bytes;
}

static void add_holding(struct cupti_holding *out, int *count, const char *owner, int64_t bytes)
{
    for (int i = 0; i < *count; i++)
        if (out[i].owner == owner) {
            out[i].bytes += bytes;
            return;
        }
    out[(*count)++] = (struct cupti_holding){owner, bytes};
}

int cupti_ledger_unclaimed(int device, struct cupti_holding out[CUPTI_OWNERS])
{
    int count = 0;
    pthread_mutex_lock(&ledger.lock);
    for (size_t i = 0; i < ledger.blocks.room; i++) {
        const struct block *block = &ledger.blocks.slots[i];
        if (block->memory && block->tag.tensor == device && block->tag.role == ROLE_RUNTIME)
            add_holding(out, &count, block->tag.name, block->bytes);
    }
    for (int i = 0; i < ledger.physical_count; i++)
        if (ledger.physicals[i].device == device)
            add_holding(out, &count, ledger.physicals[i].owner, ledger.physicals[i].bytes);
    pthread_mutex_unlock(&ledger.lock);
    return count;
}

/* The sink is called without the lock: it writes to a file. */
int64_t cupti_ledger_drain(const struct cupti_sink *sink)
{
    for (;;) {
        struct cupti_memory batch[256];
        size_t count = 0;
        pthread_mutex_lock(&ledger.lock);
        while (ledger.tail < ledger.head && count < sizeof batch / sizeof *batch)
            batch[count++] = ledger.queue[ledger.tail++ % QUEUE];
        int64_t dropped = ledger.dropped;
        ledger.dropped = count ? dropped : 0;
        pthread_mutex_unlock(&ledger.lock);
        if (!count)
            return dropped;
        for (size_t i = 0; i < count; i++)
            sink->memory(sink->context, &batch[i]);
    }
}
