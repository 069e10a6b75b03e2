#include "tests/cuda/double_runtime.h"

#include "tests/cuda/double_hooks.h"
#include "tests/cuda/double_memory.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_DEVICES = 16, CONTEXT_BYTES = 440 << 20, POOL_STEP = 32 << 20, ALLOCATION_STEP = 2 << 20 };

enum { KIND_STREAM, KIND_EVENT, KIND_POOL, KIND_GRAPH, KIND_GRAPH_EXEC, KINDS };

static const char *const kind_names[KINDS] = {"stream", "event", "memory pool", "graph", "executable graph"};

/* Every handle begins with this. Handles are never freed, so that use after destruction can be told; they are in a list, so
 * that a sanitizer does not take them for forgotten. */
struct handle {
    int kind;
    bool alive;
    struct handle *previous;
};

struct CUstream_st {
    struct handle handle;
    int device;
    struct order_stream order;
    struct CUgraph_st *capture; /* NULL: not being captured */
};

struct CUevent_st {
    struct handle handle;
    int device;
    bool recorded;
    struct order_clock clock;
    struct CUgraph_st *capture; /* recorded while that was being captured */
};

struct CUmemPoolHandle_st {
    struct handle handle;
    int device;
    uint64_t threshold_bytes, used_bytes, used_peak_bytes, reserved_bytes, reserved_peak_bytes;
};

enum node_kind { NODE_WORK, NODE_RECORD, NODE_WAIT };

struct node {
    enum node_kind kind;
    cudaStream_t stream;
    cudaEvent_t event;
    struct order_access *accesses;
    int count;
    void (*run)(void *work);
    void (*discard)(void *work);
    void *work;
};

struct CUgraph_st {
    struct handle handle;
    cudaStream_t origin;
    cudaError_t spoilt; /* what could not be captured */
    struct node *nodes;
    int count, room;
    int users; /* the graph and what was made of it */
};

struct CUgraphExec_st {
    struct handle handle;
    struct CUgraph_st *graph;
};

/* A copy from or to pinned memory whose stream nobody has waited for yet. */
struct pending {
    int stream;
    int64_t work;
    unsigned char *pinned;
    size_t bytes;
    uint64_t sum;            /* of what the device reads */
    unsigned char *arriving; /* what it writes; NULL: it reads */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int living[KINDS];
static bool context_open[MAX_DEVICES];
static bool peers[MAX_DEVICES][MAX_DEVICES];
static struct pending *pendings;
static int pending_count, pending_room;

static _Thread_local int current_device;
static _Thread_local struct order_clock host_clock;
static _Thread_local struct CUgraph_st *thread_capture; /* forbids this thread what would stop a capture */
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
static _Thread_local cudaError_t last_error;

/* --------------------------------------------------------------------------------------------------------- complaints */

static bool listening;
static char complaint[600];

void double_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint, sizeof complaint, format, arguments);
    va_end(arguments);
    if (listening)
        return;
    fprintf(stderr, "double: %s\n", complaint);
    _exit(70);
}

const char *double_listen(void)
{
    static char last[sizeof complaint];
    memcpy(last, complaint, sizeof last);
    complaint[0] = '\0';
    listening = true;
    return last;
}

void double_unlisten(void)
{
    listening = false;
}

static void add_left(char *text, size_t size, size_t count, const char *what, size_t bytes)
{
    size_t used = strlen(text);
    if (count)
        used += (size_t)snprintf(text + used, size - used, "%s%zu %s%s", used ? ", " : "", count, what,
                                 count > 1 ? "s" : "");
    if (count && bytes)
        snprintf(text + used, size - used, " (%zu bytes)", bytes);
}

const char *double_left(void)
{
    static char text[400];
    size_t bytes, blocks;
    text[0] = '\0';
    for (int kind = 0; kind < KINDS; kind++)
        add_left(text, sizeof text, (size_t)living[kind], kind_names[kind], 0);
    for (int device = 0; device < MAX_DEVICES; device++) {
        blocks = memory_count(device, &bytes);
        add_left(text, sizeof text, blocks, "device allocation", bytes);
    }
    blocks = memory_count(MEMORY_PINNED, &bytes);
    add_left(text, sizeof text, blocks, "pinned allocation", bytes);
    return text;
}

__attribute__((destructor)) static void check_nothing_left(void)
{
    if (double_left()[0])
        double_complain("the program ends and leaves %s", double_left());
}

/* -------------------------------------------------------------------------------------------------------- environment */

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

/* The `device`-th of "4GiB,2048MiB", or its last. */
static size_t device_memory(int device)
{
    const char *text = getenv("DOUBLE_CUDA_MEMORY");
    if (!text || !*text)
        return (size_t)4 << 30;
    for (; device > 0 && strchr(text, ','); device--)
        text = strchr(text, ',') + 1;
    char *unit;
    size_t value = strtoull(text, &unit, 10);
    return value << (strncmp(unit, "GiB", 3) ? 20 : 30);
}

static cudaError_t failure(cudaError_t status)
{
    last_error = status;
    return status;
}

cudaError_t double_injected(const char *name)
{
    static int calls;
    const char *text = getenv("DOUBLE_CUDA_FAIL");
    size_t length = strlen(name);
    if (!text || strncmp(text, name, length) || text[length] != ':')
        return cudaSuccess;
    char *code;
    long wanted = strtol(text + length + 1, &code, 10);
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != wanted)
        return cudaSuccess;
    return failure(*code == ':' ? (cudaError_t)atoi(code + 1) : cudaErrorMemoryAllocation);
}

/* Before any device is touched. */
static cudaError_t check_driver(void)
{
    if (setting("DOUBLE_CUDA_DRIVER", CUDART_VERSION) < CUDART_VERSION)
        return cudaErrorInsufficientDriver;
    return setting("DOUBLE_CUDA_DEVICES", 1) < 1 ? cudaErrorNoDevice : cudaSuccess;
}

static cudaError_t check_device(int device)
{
    cudaError_t status = check_driver();
    if (status == cudaSuccess && (device < 0 || device >= setting("DOUBLE_CUDA_DEVICES", 1)))
        status = cudaErrorInvalidDevice;
    return status;
}

/* Injected failures, and those of a machine without a usable GPU. Opens the context, as the first real call does. */
static cudaError_t enter(const char *name)
{
    cudaError_t status = double_injected(name);
    if (status == cudaSuccess)
        status = check_device(current_device);
    if (status == cudaSuccess)
        __atomic_store_n(&context_open[current_device], true, __ATOMIC_RELAXED);
    return status == cudaSuccess ? status : failure(status);
}

#define ENTER()                                                                                              \
    do {                                                                                                     \
        cudaError_t entered = enter(__func__);                                                               \
        if (entered != cudaSuccess)                                                                          \
            return entered;                                                                                  \
    } while (0)

/* What the real one refuses to a thread that captures a stream: it may wait for the GPU. */
static bool refused_by_capture(void)
{
    if (!thread_capture || thread_mode == cudaStreamCaptureModeRelaxed)
        return false;
    thread_capture->spoilt = cudaErrorStreamCaptureUnsupported;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------- handles */

static void *new_handle(int kind, size_t size)
{
    struct handle *handle = calloc(1, size);
    static struct handle *last;
    *handle = (struct handle){kind, true, __atomic_load_n(&last, __ATOMIC_RELAXED)};
    while (!__atomic_compare_exchange_n(&last, &handle->previous, handle, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
        continue;
    __atomic_add_fetch(&living[kind], 1, __ATOMIC_RELAXED);
    return handle;
}

static bool is_alive(const void *memory, int kind, const char *call)
{
    const struct handle *handle = memory;
    if (!handle)
        double_complain("%s: %s", call,
                        kind == KIND_STREAM ? "work on the default stream, which waits for all others"
                                            : "a handle that is NULL");
    else if (handle->kind != kind)
        double_complain("%s: a handle that is no %s", call, kind_names[kind]);
    else if (!handle->alive)
        double_complain("%s: a %s that was destroyed", call, kind_names[kind]);
    else
        return true;
    return false;
}

static void end_handle(void *memory)
{
    struct handle *handle = memory;
    handle->alive = false;
    __atomic_sub_fetch(&living[handle->kind], 1, __ATOMIC_RELAXED);
}

#define ALIVE(memory, kind)                                                                                  \
    do {                                                                                                     \
        if (!is_alive(memory, kind, __func__))                                                               \
            return failure(cudaErrorInvalidResourceHandle);                                                  \
    } while (0)

/* ------------------------------------------------------------------------------------------------------------ devices */

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = setting("DOUBLE_CUDA_DRIVER", CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t status = check_driver();
    *count = status == cudaSuccess ? setting("DOUBLE_CUDA_DEVICES", 1) : 0;
    return status == cudaSuccess ? status : failure(status);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    cudaError_t status = check_device(device);
    if (status != cudaSuccess)
        return failure(status);
    int capability = setting("DOUBLE_CUDA_CAPABILITY", 90);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "emulated GPU %d", device);
    out->totalGlobalMem = device_memory(device);
    out->major = capability / 10;
    out->minor = capability % 10;
    out->multiProcessorCount = 4;
    out->warpSize = 32;
    out->maxThreadsPerBlock = 1024;
    out->sharedMemPerBlock = 48 << 10;
    out->sharedMemPerBlockOptin = 227 << 10;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t status = double_injected(__func__);
    if (status == cudaSuccess)
        status = check_device(device);
    if (status != cudaSuccess)
        return failure(status);
    current_device = device;
    __atomic_store_n(&context_open[device], true, __ATOMIC_RELAXED);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

static uint64_t round_to(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

static struct CUmemPoolHandle_st *pools[64];

/* What the driver would say is in use. */
static size_t used_bytes(int device)
{
    size_t bytes, used = __atomic_load_n(&context_open[device], __ATOMIC_RELAXED) ? CONTEXT_BYTES : 0;
    memory_count(device, &bytes);
    used += bytes + double_hook_device_bytes(device);
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        if (pools[i] && pools[i]->device == device)
            used += pools[i]->reserved_bytes - pools[i]->used_bytes;
    return used;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER();
    pthread_mutex_lock(&lock);
    *total_bytes = device_memory(current_device);
    size_t used = used_bytes(current_device);
    *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other)
{
    ENTER();
    if (check_device(device) != cudaSuccess || check_device(other) != cudaSuccess)
        return failure(cudaErrorInvalidDevice);
    *can = device != other;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned int flags)
{
    ENTER();
    if (flags || check_device(other) != cudaSuccess || other == current_device)
        return failure(cudaErrorInvalidDevice);
    if (__atomic_exchange_n(&peers[current_device][other], true, __ATOMIC_RELAXED))
        return failure(cudaErrorPeerAccessAlreadyEnabled);
    __atomic_store_n(&context_open[other], true, __ATOMIC_RELAXED);
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t status = last_error;
    last_error = cudaSuccess;
    return status;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

static const struct {
    cudaError_t status;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
};

const char *cudaGetErrorName(cudaError_t status)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].status == status)
            return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t status)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].status == status)
            return errors[i].text;
    return "unrecognized error code";
}

/* ------------------------------------------------------------------------------------------------------------- memory */

bool double_holds(const void *memory, size_t bytes)
{
    pthread_mutex_lock(&lock);
    const struct memory_block *block = memory_find(memory);
    bool holds = block && block->device != MEMORY_PINNED &&
                 (size_t)((const unsigned char *)memory - block->start) + bytes <= block->bytes;
    pthread_mutex_unlock(&lock);
    return holds;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    ENTER();
    if (refused_by_capture())
        return failure(cudaErrorStreamCaptureUnsupported);
    if (!bytes)
        return failure(cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    bool fits = used_bytes(current_device) + bytes <= device_memory(current_device);
    *out = fits ? memory_take(bytes, current_device, NULL) : NULL;
    pthread_mutex_unlock(&lock);
    double_hook_given(&(struct hook_memory){.device = current_device, .address = *out, .bytes = bytes});
    return *out ? cudaSuccess : failure(cudaErrorMemoryAllocation);
}

/* Of this kind, or a complaint. */
static const struct memory_block *own_block(const void *memory, bool pinned, bool pooled, const char *call)
{
    const struct memory_block *block = memory_find(memory);
    if (!block || block->start != memory)
        double_complain("%s: %p was not allocated, or is freed already", call, memory);
    else if ((block->device == MEMORY_PINNED) != pinned || (block->pool != NULL) != pooled)
        double_complain("%s: %p is of another kind of memory", call, memory);
    else
        return block;
    return NULL;
}

static void give_back(const struct memory_block *block, const char *call)
{
    const void *start = block->start;
    order_forget(start, block->bytes);
    if (!memory_give_back(block))
        double_complain("%s: something wrote before or behind the allocation at %p", call, start);
}

/* Everything that the device was asked is done after this. */
static void wait_for_all(int device);

cudaError_t cudaFree(void *memory)
{
    if (!memory)
        return cudaSuccess;
    ENTER();
    if (refused_by_capture())
        return failure(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&lock);
    wait_for_all(current_device);
    const struct memory_block *block = own_block(memory, false, false, __func__);
    struct hook_memory taken_back = {.address = memory};
    if (block) {
        taken_back.device = block->device;
        taken_back.bytes = block->bytes;
        give_back(block, __func__);
    }
    pthread_mutex_unlock(&lock);
    if (block)
        double_hook_taken_back(&taken_back);
    return block ? cudaSuccess : failure(cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    ENTER();
    if (refused_by_capture())
        return failure(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&lock);
    *out = memory_take(bytes, MEMORY_PINNED, NULL);
    pthread_mutex_unlock(&lock);
    return *out ? cudaSuccess : failure(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *memory)
{
    if (!memory)
        return cudaSuccess;
    ENTER();
    if (refused_by_capture())
        return failure(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&lock);
    int kept = 0;
    for (int i = 0; i < pending_count; i++) {
        struct pending *pending = &pendings[i];
        if (pending->pinned >= (unsigned char *)memory &&
            memory_find(pending->pinned) == memory_find(memory)) {
            double_complain("%s: a copy from or to %p may not be done yet", __func__, memory);
            free(pending->arriving);
        } else {
            pendings[kept++] = *pending;
        }
    }
    pending_count = kept;
    const struct memory_block *block = own_block(memory, true, false, __func__);
    if (block)
        give_back(block, __func__);
    pthread_mutex_unlock(&lock);
    return block ? cudaSuccess : failure(cudaErrorInvalidValue);
}

/* -------------------------------------------------------------------------------------------------------------- pools */

cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const struct cudaMemPoolProps *properties)
{
    ENTER();
    if (properties->location.type != cudaMemLocationTypeDevice ||
        properties->allocType != cudaMemAllocationTypePinned ||
        check_device(properties->location.id) != cudaSuccess)
        return failure(cudaErrorInvalidValue);
    struct CUmemPoolHandle_st *pool = new_handle(KIND_POOL, sizeof *pool);
    pool->device = properties->location.id;
    pthread_mutex_lock(&lock);
    size_t place = 0;
    while (pools[place])
        place++;
    pools[place] = pool;
    pthread_mutex_unlock(&lock);
    *out = pool;
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    ALIVE(pool, KIND_POOL);
    pthread_mutex_lock(&lock);
    if (memory_count_pool(pool))
        double_complain("%s: %zu allocations of the pool are still alive", __func__, memory_count_pool(pool));
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        if (pools[i] == pool)
            pools[i] = NULL;
    end_handle(pool);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    ENTER();
    ALIVE(pool, KIND_POOL);
    if (attribute == cudaMemPoolAttrReleaseThreshold)
        pool->threshold_bytes = *(uint64_t *)value;
    else if (attribute == cudaMemPoolAttrReservedMemHigh && !*(uint64_t *)value)
        pool->reserved_peak_bytes = pool->reserved_bytes;
    else if (attribute == cudaMemPoolAttrUsedMemHigh && !*(uint64_t *)value)
        pool->used_peak_bytes = pool->used_bytes;
    else
        return failure(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    ENTER();
    ALIVE(pool, KIND_POOL);
    uint64_t *out = value;
    switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
        *out = pool->threshold_bytes;
        return cudaSuccess;
    case cudaMemPoolAttrReservedMemCurrent:
        *out = pool->reserved_bytes;
        return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
        *out = pool->reserved_peak_bytes;
        return cudaSuccess;
    case cudaMemPoolAttrUsedMemCurrent:
        *out = pool->used_bytes;
        return cudaSuccess;
    case cudaMemPoolAttrUsedMemHigh:
        *out = pool->used_peak_bytes;
        return cudaSuccess;
    default:
        return failure(cudaErrorInvalidValue);
    }
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access, size_t count)
{
    ENTER();
    ALIVE(pool, KIND_POOL);
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type != cudaMemLocationTypeDevice ||
            check_device(access[i].location.id) != cudaSuccess)
            return failure(cudaErrorInvalidDevice);
    return cudaSuccess;
}

/* Takes what it lacks from the device in steps, and gives back at a synchronisation what is over the threshold. */
static bool pool_grow(struct CUmemPoolHandle_st *pool, size_t bytes)
{
    uint64_t wanted = round_to(pool->used_bytes + bytes, POOL_STEP);
    if (wanted > pool->reserved_bytes) {
        if (used_bytes(pool->device) + (wanted - pool->reserved_bytes) > device_memory(pool->device))
            wanted = pool->used_bytes + bytes;
        if (wanted > pool->reserved_bytes &&
            used_bytes(pool->device) + (wanted - pool->reserved_bytes) > device_memory(pool->device))
            return false;
    }
    if (wanted > pool->reserved_bytes)
        pool->reserved_bytes = wanted;
    if (pool->reserved_bytes > pool->reserved_peak_bytes)
        pool->reserved_peak_bytes = pool->reserved_bytes;
    pool->used_bytes += bytes;
    if (pool->used_bytes > pool->used_peak_bytes)
        pool->used_peak_bytes = pool->used_bytes;
    return true;
}

static void pools_shrink(int device)
{
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        struct CUmemPoolHandle_st *pool = pools[i];
        if (!pool || pool->device != device)
            continue;
        uint64_t kept = round_to(pool->used_bytes, POOL_STEP);
        if (kept < pool->threshold_bytes)
            kept = pool->threshold_bytes;
        if (kept < pool->reserved_bytes)
            pool->reserved_bytes = kept;
    }
}

static struct hook_memory hook_of_pool(const struct CUmemPoolHandle_st *pool, void *address, size_t bytes,
                                       cudaStream_t stream)
{
    return (struct hook_memory){.device = pool->device,
                                .address = address,
                                .bytes = bytes,
                                .pool = (void *)pool,
                                .stream = stream,
                                .pool_bytes = pool->reserved_bytes,
                                .pool_used_bytes = pool->used_bytes};
}

cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
{
    ENTER();
    ALIVE(pool, KIND_POOL);
    ALIVE(stream, KIND_STREAM);
    if (stream->capture) {
        stream->capture->spoilt = cudaErrorStreamCaptureUnsupported; /* the double's graphs own no memory */
        return failure(cudaErrorStreamCaptureUnsupported);
    }
    if (!bytes)
        return failure(cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    *out = pool_grow(pool, bytes) ? memory_take(bytes, pool->device, pool) : NULL;
    struct hook_memory given = hook_of_pool(pool, *out, bytes, stream);
    pthread_mutex_unlock(&lock);
    double_hook_given(&given);
    return *out ? cudaSuccess : failure(cudaErrorMemoryAllocation);
}

/* --------------------------------------------------------------------------------------- streams: what they are asked */

static uint64_t sum_of(const unsigned char *memory, size_t bytes)
{
    uint64_t sum = 0xcbf29ce484222325u;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, memory + i, 8);
        sum = (sum ^ word) * 0x100000001b3u;
    }
    for (; i < bytes; i++)
        sum = (sum ^ memory[i]) * 0x100000001b3u;
    return sum;
}

static void add_pending(struct pending pending)
{
    if (pending_count == pending_room) {
        pending_room = pending_room ? 2 * pending_room : 64;
        pendings = realloc(pendings, (size_t)pending_room * sizeof *pendings);
    }
    pendings[pending_count++] = pending;
}

/* The host knows that these are done. */
static void finish_pending(const struct order_clock *clock)
{
    int kept = 0;
    for (int i = 0; i < pending_count; i++) {
        struct pending *pending = &pendings[i];
        if (pending->work > clock->seen[pending->stream]) {
            pendings[kept++] = *pending;
        } else if (pending->arriving) {
            memcpy(pending->pinned, pending->arriving, pending->bytes);
            free(pending->arriving);
        } else if (sum_of(pending->pinned, pending->bytes) != pending->sum) {
            double_complain("pinned memory at %p was changed before the copy from it was done",
                            (void *)pending->pinned);
        }
    }
    pending_count = kept;
}

static void wait_for_clock(const struct order_clock *clock)
{
    order_see(&host_clock, clock);
    finish_pending(clock);
}

static struct CUstream_st *open_streams[ORDER_STREAMS];

static void wait_for_all(int device)
{
    for (int i = 0; i < ORDER_STREAMS; i++)
        if (open_streams[i] && open_streams[i]->device == device)
            wait_for_clock(&open_streams[i]->order.clock);
    pools_shrink(device);
}

/* What the stream does next, of which the order is checked now. */
static void note_work(cudaStream_t stream, const struct order_access *accesses, int count)
{
    order_see(&stream->order.clock, &host_clock);
    const char *race = order_work(&stream->order, accesses, count);
    if (race)
        double_complain("a race: %s", race);
}

/* With the lock. Recordings are not in the log. */
static void log_line(cudaStream_t stream, const char *what, cudaEvent_t event)
{
    static FILE *file;
    static bool looked;
    const char *path = getenv("DOUBLE_CUDA_LOG");
    if (!looked && path && *path)
        file = fopen(path, "w");
    looked = true;
    if (file && event)
        fprintf(file, "%d %d %s %p\n", stream->device, stream->order.number, what, (void *)event);
    else if (file)
        fprintf(file, "%d %d %s\n", stream->device, stream->order.number, what);
}

static struct node *add_node(struct CUgraph_st *graph, enum node_kind kind, cudaStream_t stream)
{
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 256;
        graph->nodes = realloc(graph->nodes, (size_t)graph->room * sizeof *graph->nodes);
    }
    struct node *node = &graph->nodes[graph->count++];
    *node = (struct node){.kind = kind, .stream = stream};
    return node;
}

/* Accesses of device memory only; the host's is not shared between streams. Returns how many. */
static int keep_device_accesses(const struct order_access *accesses, int count, struct order_access *out)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        const struct memory_block *block = memory_find(accesses[i].start);
        if (block && block->device != MEMORY_PINNED)
            out[kept++] = accesses[i];
    }
    return kept;
}

static void tell_work(cudaStream_t stream, const struct order_access *accesses, int count)
{
    if (count)
        double_hook_work(stream->device, stream->order.number, accesses[0].what, accesses[0].bytes);
}

/* Kernels must be launched, and copies asked for, by a thread that has the stream's device as its own. */
static bool is_of_thread(cudaStream_t stream, const char *what)
{
    if (stream->device == current_device)
        return true;
    double_complain("%s: a stream of GPU %d, asked by a thread whose device is GPU %d", what, stream->device,
                    current_device);
    return false;
}

cudaError_t double_submit(cudaStream_t stream, const struct order_access *accesses, int count,
                          void (*run)(void *work), void (*discard)(void *work), void *work)
{
    ALIVE(stream, KIND_STREAM);
    if (!is_of_thread(stream, count ? accesses[0].what : "work")) {
        discard(work);
        return failure(cudaErrorInvalidResourceHandle);
    }
    pthread_mutex_lock(&lock);
    struct order_access *kept = malloc(((size_t)count + 1) * sizeof *kept);
    int kept_count = keep_device_accesses(accesses, count, kept);
    note_work(stream, kept, kept_count);
    log_line(stream, count ? accesses[0].what : "nothing", NULL);
    struct CUgraph_st *graph = stream->capture;
    if (graph) {
        struct node *node = add_node(graph, NODE_WORK, stream);
        node->accesses = kept;
        node->count = kept_count;
        node->run = run;
        node->discard = discard;
        node->work = work;
    } else {
        free(kept);
    }
    pthread_mutex_unlock(&lock);
    if (!graph) {
        tell_work(stream, accesses, count);
        run(work);
        discard(work);
    }
    return cudaSuccess;
}

/* A fill or a copy. */
struct transfer {
    cudaStream_t stream;
    unsigned char *to;
    const unsigned char *from; /* NULL: a fill */
    size_t bytes;
    int byte;
    bool from_pinned, to_pinned;
};

static void run_transfer(void *work)
{
    const struct transfer *t = work;
    struct pending pending = {.bytes = t->bytes};
    if (!t->from)
        memset(t->to, t->byte, t->bytes);
    else if (!t->to_pinned)
        memmove(t->to, t->from, t->bytes);
    if (!t->from_pinned && !t->to_pinned)
        return;
    pthread_mutex_lock(&lock);
    pending.stream = t->stream->order.number;
    pending.work = t->stream->order.clock.seen[pending.stream];
    if (t->from_pinned) {
        pending.pinned = (unsigned char *)t->from;
        pending.sum = sum_of(t->from, t->bytes);
    } else {
        pending.pinned = t->to;
        pending.arriving = malloc(t->bytes);
        memcpy(pending.arriving, t->from, t->bytes);
        memset(t->to, 0xff, t->bytes);
    }
    add_pending(pending);
    pthread_mutex_unlock(&lock);
}

/* Device, pinned or other memory, and wholly inside it. */
static bool check_side(const void *memory, size_t bytes, bool must_be_device, const char *call, bool *pinned)
{
    const struct memory_block *block = memory_find(memory);
    bool inside = block && (size_t)((const unsigned char *)memory - block->start) + bytes <= block->bytes;
    bool device = block && block->device != MEMORY_PINNED;
    *pinned = block && !device;
    if (device != must_be_device)
        double_complain("%s: %p is %s", call, memory,
                        device ? "device memory where the host's was named" : "no living device memory");
    else if (block && !inside)
        double_complain("%s: %zu bytes at %p reach beyond their allocation", call, bytes, memory);
    else
        return true;
    return false;
}

static cudaError_t submit_transfer(struct transfer transfer, const char *call)
{
    struct transfer *copy = malloc(sizeof *copy);
    *copy = transfer;
    struct order_access accesses[] = {{transfer.to, transfer.bytes, true, call},
                                      {transfer.from, transfer.bytes, false, call}};
    return double_submit(transfer.stream, accesses, transfer.from ? 2 : 1, run_transfer, free, copy);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    struct transfer transfer = {.stream = stream, .to = to, .from = from, .bytes = bytes};
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyHostToDevice && !from_device)
        return failure(cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    bool sound = check_side(to, bytes, to_device, __func__, &transfer.to_pinned) &&
                 check_side(from, bytes, from_device, __func__, &transfer.from_pinned);
    pthread_mutex_unlock(&lock);
    if (!sound)
        return failure(cudaErrorInvalidValue);
    if (stream->capture && !(to_device && from_device) && !transfer.to_pinned && !transfer.from_pinned)
        double_complain("%s: a captured copy of memory that is not pinned", __func__);
    return submit_transfer(transfer, __func__);
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    struct transfer transfer = {.stream = stream, .to = memory, .bytes = bytes, .byte = byte};
    pthread_mutex_lock(&lock);
    bool sound = check_side(memory, bytes, true, __func__, &transfer.to_pinned);
    pthread_mutex_unlock(&lock);
    return sound ? submit_transfer(transfer, __func__) : failure(cudaErrorInvalidValue);
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    pthread_mutex_lock(&lock);
    const struct memory_block *block = own_block(memory, false, true, __func__);
    struct hook_memory taken_back = {0};
    if (block) {
        struct CUmemPoolHandle_st *pool = block->pool;
        struct order_access access = {memory, block->bytes, true, __func__};
        note_work(stream, &access, 1);
        pool->used_bytes -= block->bytes;
        taken_back = hook_of_pool(pool, memory, block->bytes, stream);
        give_back(block, __func__);
    }
    pthread_mutex_unlock(&lock);
    if (block)
        double_hook_taken_back(&taken_back);
    return block ? cudaSuccess : failure(cudaErrorInvalidValue);
}

/* ------------------------------------------------------------------------------------------------- streams and events */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    ENTER();
    if (flags & ~(unsigned)cudaStreamNonBlocking)
        return failure(cudaErrorInvalidValue);
    double_take_launches();
    struct CUstream_st *stream = new_handle(KIND_STREAM, sizeof *stream);
    stream->device = current_device;
    pthread_mutex_lock(&lock);
    int number = order_open(&stream->order);
    if (number >= 0)
        open_streams[number] = stream;
    else
        double_complain("%s: more than %d streams", __func__, ORDER_STREAMS);
    pthread_mutex_unlock(&lock);
    *out = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ALIVE(stream, KIND_STREAM);
    pthread_mutex_lock(&lock);
    finish_pending(&stream->order.clock);
    open_streams[stream->order.number] = NULL;
    order_close(&stream->order);
    end_handle(stream);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    if (stream->capture || refused_by_capture()) {
        if (stream->capture)
            stream->capture->spoilt = cudaErrorStreamCaptureUnsupported;
        return failure(cudaErrorStreamCaptureUnsupported);
    }
    pthread_mutex_lock(&lock);
    wait_for_clock(&stream->order.clock);
    pools_shrink(stream->device);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    ENTER();
    if (flags & ~(unsigned)(cudaEventDisableTiming | cudaEventBlockingSync))
        return failure(cudaErrorInvalidValue);
    *out = new_handle(KIND_EVENT, sizeof **out);
    (*out)->device = current_device;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ALIVE(event, KIND_EVENT);
    end_handle(event);
    return cudaSuccess;
}

static void record(cudaEvent_t event, cudaStream_t stream)
{
    event->recorded = true;
    event->clock = stream->order.clock;
    event->capture = stream->capture;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER();
    ALIVE(event, KIND_EVENT);
    ALIVE(stream, KIND_STREAM);
    if (event->device != stream->device) {
        double_complain("%s: an event of GPU %d in a stream of GPU %d", __func__, event->device,
                        stream->device);
        return failure(cudaErrorInvalidResourceHandle);
    }
    pthread_mutex_lock(&lock);
    order_see(&stream->order.clock, &host_clock);
    record(event, stream);
    log_line(stream, "records", event);
    if (stream->capture)
        add_node(stream->capture, NODE_RECORD, stream)->event = event;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

/* A stream that waits for an event of a capture becomes part of it. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    ALIVE(event, KIND_EVENT);
    if (flags)
        return failure(cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    bool mixed = stream->capture && event->recorded && event->capture != stream->capture;
    if (mixed)
        stream->capture->spoilt = cudaErrorStreamCaptureIsolation;
    if (event->capture)
        stream->capture = event->capture;
    if (stream->capture)
        add_node(stream->capture, NODE_WAIT, stream)->event = event;
    log_line(stream, "waits", event);
    order_see(&stream->order.clock, &event->clock);
    pthread_mutex_unlock(&lock);
    return mixed ? failure(cudaErrorStreamCaptureIsolation) : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER();
    ALIVE(event, KIND_EVENT);
    if (event->capture || refused_by_capture())
        return failure(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&lock);
    wait_for_clock(&event->clock);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return cudaEventSynchronize(event);
}

/* Work is done when it is asked for, so no time passes between two events. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    ENTER();
    ALIVE(start, KIND_EVENT);
    ALIVE(end, KIND_EVENT);
    if (!start->recorded || !end->recorded)
        return failure(cudaErrorInvalidResourceHandle);
    *ms = 0;
    return cudaSuccess;
}

/* ------------------------------------------------------------------------------------------------------------- graphs */

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    if (stream->capture || mode == cudaStreamCaptureModeGlobal)
        return failure(cudaErrorInvalidValue);
    struct CUgraph_st *graph = new_handle(KIND_GRAPH, sizeof *graph);
    graph->origin = stream;
    graph->users = 1;
    stream->capture = graph;
    if (mode == cudaStreamCaptureModeThreadLocal)
        thread_capture = graph;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    *status = !stream->capture          ? cudaStreamCaptureStatusNone
              : stream->capture->spoilt ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

static void forget_graph(struct CUgraph_st *graph)
{
    if (--graph->users)
        return;
    for (int i = 0; i < graph->count; i++) {
        free(graph->nodes[i].accesses);
        if (graph->nodes[i].kind == NODE_WORK)
            graph->nodes[i].discard(graph->nodes[i].work);
    }
    free(graph->nodes);
    graph->nodes = NULL;
    graph->count = 0;
}

/* Streams that joined must have been waited for at the end by the one where it began. */
static bool all_joined(const struct CUgraph_st *graph)
{
    bool joined = true;
    for (int i = 0; i < ORDER_STREAMS; i++) {
        struct CUstream_st *stream = open_streams[i];
        if (!stream || stream->capture != graph)
            continue;
        joined = joined && graph->origin->order.clock.seen[i] >= stream->order.clock.seen[i];
        stream->capture = NULL;
    }
    return joined;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    *out = NULL;
    struct CUgraph_st *graph = stream->capture;
    if (!graph || graph->origin != stream)
        return failure(cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    bool joined = all_joined(graph);
    pthread_mutex_unlock(&lock);
    if (thread_capture == graph)
        thread_capture = NULL;
    if (!graph->spoilt && joined) {
        *out = graph;
        return cudaSuccess;
    }
    end_handle(graph);
    forget_graph(graph);
    return failure(joined ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    ALIVE(graph, KIND_GRAPH);
    end_handle(graph);
    forget_graph(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    ENTER();
    ALIVE(graph, KIND_GRAPH);
    if (flags)
        return failure(cudaErrorInvalidValue);
    struct CUgraphExec_st *exec = new_handle(KIND_GRAPH_EXEC, sizeof *exec);
    exec->graph = graph;
    graph->users++;
    *out = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    ALIVE(exec, KIND_GRAPH_EXEC);
    end_handle(exec);
    forget_graph(exec->graph);
    return cudaSuccess;
}

/* All streams of the graph begin after the one in which it is launched, and that one goes on after all of them. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    ENTER();
    ALIVE(exec, KIND_GRAPH_EXEC);
    ALIVE(stream, KIND_STREAM);
    if (!is_of_thread(stream, __func__))
        return failure(cudaErrorInvalidResourceHandle);
    struct order_clock start = stream->order.clock;
    order_see(&start, &host_clock);
    for (int i = 0; i < exec->graph->count; i++) {
        const struct node *node = &exec->graph->nodes[i];
        ALIVE(node->stream, KIND_STREAM);
        pthread_mutex_lock(&lock);
        order_see(&node->stream->order.clock, &start);
        if (node->kind == NODE_WORK)
            note_work(node->stream, node->accesses, node->count);
        else if (node->kind == NODE_RECORD)
            record(node->event, node->stream);
        else
            order_see(&node->stream->order.clock, &node->event->clock);
        pthread_mutex_unlock(&lock);
        if (node->kind == NODE_WORK) {
            tell_work(node->stream, node->accesses, node->count);
            node->run(node->work);
        }
    }
    for (int i = 0; i < exec->graph->count; i++)
        order_see(&stream->order.clock, &exec->graph->nodes[i].stream->order.clock);
    return cudaSuccess;
}
