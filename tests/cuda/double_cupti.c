#include "tests/cuda/double_cupti.h"

#include "tests/cuda/double_hooks.h"
#include "tests/cuda/double_runtime.h"

#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 16, STACK = 16, MIB = 1 << 20, LEAST_BUFFER = 4096 };

/* Records of the host's calls and of the GPU's work travel in buffers of their own. */
enum lane { LANE_HOST, LANE_GPU, LANES };

struct lane_buffer {
    uint8_t *memory; /* NULL: none is being filled */
    size_t size, used;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_CallbackFunc subscriber;
static void *subscriber_data;
static bool driver_calls[CUPTI_DRIVER_TRACE_CBID_SIZE], runtime_calls[CUPTI_RUNTIME_TRACE_CBID_SIZE];
static bool driver_records[CUPTI_DRIVER_TRACE_CBID_SIZE];
static bool kinds[CUPTI_ACTIVITY_KIND_COUNT];
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static CUpti_TimestampCallbackFunc timestamp;
static struct lane_buffer lanes[LANES];
static size_t dropped;
static uint32_t last_correlation;
static int works[MAX_DEVICES];
static void *behind[MAX_DEVICES];
static size_t hidden[MAX_DEVICES];
static atomic_int pushed;

static _Thread_local uint64_t stack[STACK];
static _Thread_local int depth;
static _Thread_local bool inside; /* what the double does for itself is nobody's call */

/* ---------------------------------------------------------------------------------------------------------- injections */

static CUptiResult injected(const char *name)
{
    const char *text = getenv("DOUBLE_CUPTI_FAIL");
    size_t length = strlen(name);
    if (!text || strncmp(text, name, length) || text[length] != ':')
        return CUPTI_SUCCESS;
    return (CUptiResult)atoi(text + length + 1);
}

#define ENTER()                                                                                              \
    do {                                                                                                     \
        CUptiResult entered = injected(__func__);                                                            \
        if (entered != CUPTI_SUCCESS)                                                                        \
            return entered;                                                                                  \
    } while (0)

/* "MIB[:N]": how many bytes appear before the `work`-th work. */
static size_t appearing(const char *variable, int number)
{
    const char *text = getenv(variable);
    const char *colon = text ? strchr(text, ':') : NULL;
    return text && number == (colon ? atoi(colon + 1) : 1) ? (size_t)atoi(text) * MIB : 0;
}

size_t double_hook_device_bytes(int device)
{
    return hidden[device] + (kinds[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] ? DOUBLE_CUPTI_TIMELINE_BYTES : 0);
}

/* From inside of somebody's library, so that the stack has its name in it. */
static cudaError_t ask(void **memory, size_t bytes)
{
    const char *path = getenv("DOUBLE_CUPTI_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    cudaError_t (*somebody_asks)(cudaError_t(*)(void **, size_t), void **, size_t) = NULL;
    if (!path)
        return cudaMalloc(memory, bytes);
    if (library)
        *(void **)&somebody_asks = dlsym(library, "somebody_asks");
    if (!somebody_asks)
        double_complain("somebody's library: %s", dlerror());
    return somebody_asks(cudaMalloc, memory, bytes);
}

static void appear(int device)
{
    int number = ++works[device];
    size_t bytes = appearing("DOUBLE_CUPTI_BEHIND", number);
    hidden[device] += appearing("DOUBLE_CUPTI_HIDDEN", number);
    if (bytes && ask(&behind[device], bytes) != cudaSuccess)
        double_complain("no room for %zu bytes behind the program's back", bytes);
}

static void disappear(void)
{
    for (int device = 0; device < MAX_DEVICES; device++) {
        cudaFree(behind[device]);
        behind[device] = NULL;
    }
}

__attribute__((destructor)) static void check_ended(void)
{
    if (subscriber)
        double_complain("CUPTI still has a subscriber when the program ends");
    for (int kind = 0; kind < CUPTI_ACTIVITY_KIND_COUNT; kind++)
        if (kinds[kind])
            double_complain("CUPTI's records of kind %d are still enabled when the program ends", kind);
    if (pushed)
        double_complain("%d external ids of CUPTI were pushed and never popped", pushed);
}

/* -------------------------------------------------------------------------------------------------------------- buffers */

struct delivery {
    int lane;
    struct lane_buffer buffer;
};

static void *request_elsewhere(void *work)
{
    struct delivery *delivery = work;
    size_t most = 0;
    request(&delivery->buffer.memory, &delivery->buffer.size, &most);
    return NULL;
}

static void *complete_elsewhere(void *work)
{
    struct delivery *delivery = work;
    complete(NULL, 0, delivery->buffer.memory, delivery->buffer.size, delivery->buffer.used);
    return NULL;
}

static void elsewhere(void *(*run)(void *), struct delivery *delivery)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, delivery))
        double_complain("no thread for CUPTI's buffers");
    pthread_join(thread, NULL);
}

/* With the lock; without it while CUPTI's client is called. */
static void deliver(enum lane lane)
{
    struct delivery delivery = {lane, lanes[lane]};
    if (!delivery.buffer.memory)
        return;
    lanes[lane] = (struct lane_buffer){0};
    pthread_mutex_unlock(&lock);
    elsewhere(complete_elsewhere, &delivery);
    pthread_mutex_lock(&lock);
}

/* Several threads may want one at the same moment: what is one too many goes back as it is. */
static bool fetch_buffer(enum lane lane)
{
    struct delivery delivery = {lane, {0}};
    pthread_mutex_unlock(&lock);
    elsewhere(request_elsewhere, &delivery);
    pthread_mutex_lock(&lock);
    if (!delivery.buffer.memory)
        return false;
    if ((uintptr_t)delivery.buffer.memory % ACTIVITY_RECORD_ALIGNMENT || delivery.buffer.size < LEAST_BUFFER)
        double_complain("a buffer for CUPTI's records of %zu bytes at %p", delivery.buffer.size,
                        (void *)delivery.buffer.memory);
    if (!lanes[lane].memory) {
        lanes[lane] = delivery.buffer;
        return true;
    }
    pthread_mutex_unlock(&lock);
    elsewhere(complete_elsewhere, &delivery);
    pthread_mutex_lock(&lock);
    return true;
}

/* With the lock. False: dropped. */
static bool put(enum lane lane, const void *record, size_t bytes)
{
    while (!lanes[lane].memory || lanes[lane].used + bytes > lanes[lane].size) {
        if (lanes[lane].memory) {
            deliver(lane);
        } else if (!fetch_buffer(lane)) {
            dropped++;
            return false;
        }
    }
    memcpy(lanes[lane].memory + lanes[lane].used, record, bytes);
    lanes[lane].used += bytes;
    return true;
}

static size_t record_bytes(const CUpti_Activity *record)
{
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
        return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
        return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
        return sizeof(CUpti_ActivityMemory4);
    case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
        return sizeof(CUpti_ActivityMemoryPool3);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
        return sizeof(CUpti_ActivityOverhead3);
    case CUPTI_ACTIVITY_KIND_MARKER:
        return sizeof(CUpti_ActivityMarker2);
    default:
        double_complain("CUPTI was given a buffer that somebody has written to");
        return 0;
    }
}

static uint64_t now(void)
{
    return timestamp ? timestamp() : 1;
}

/* ---------------------------------------------------------------------------------------------------------- the ledger */

static void call_back(CUpti_CallbackId id, const char *name, const void *params, int device, bool failed)
{
    CUresult result = failed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    uint64_t kept = 0;
    CUpti_CallbackData data = {
        .functionName = name,
        .functionParams = params,
        .functionReturnValue = &result,
        .context = (CUcontext)(uintptr_t)(device + 1),
        .contextUid = (uint32_t)device + 1,
        .correlationData = &kept,
    };
    if (!subscriber || !driver_calls[id])
        return;
    data.callbackSite = CUPTI_API_ENTER;
    subscriber(subscriber_data, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
    data.callbackSite = CUPTI_API_EXIT;
    subscriber(subscriber_data, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
}

static void record_memory(const struct hook_memory *m, bool given)
{
    static atomic_int silent = -1;
    if (silent < 0)
        silent = getenv("DOUBLE_CUPTI_SILENT") ? atoi(getenv("DOUBLE_CUPTI_SILENT")) : 0;
    if (!kinds[CUPTI_ACTIVITY_KIND_MEMORY2] || (given && silent && silent--))
        return;
    CUpti_ActivityMemory4 record = {
        .kind = CUPTI_ACTIVITY_KIND_MEMORY2,
        .memoryOperationType = given ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION
                                     : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE,
        .memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
        .address = (uint64_t)(uintptr_t)m->address,
        .bytes = m->bytes,
        .timestamp = now(),
        .deviceId = (uint32_t)m->device,
        .contextId = (uint32_t)m->device + 1,
        .isAsync = m->pool != NULL,
    };
    if (m->pool) {
        record.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
        record.memoryPoolConfig.address = (uint64_t)(uintptr_t)m->pool;
        record.memoryPoolConfig.pool.size = m->pool_bytes;
        record.memoryPoolConfig.utilizedSize = m->pool_used_bytes;
    }
    pthread_mutex_lock(&lock);
    put(LANE_HOST, &record, sizeof record);
    pthread_mutex_unlock(&lock);
}

void double_hook_given(const struct hook_memory *m)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)m->address;
    if (m->pool) {
        cuMemAllocFromPoolAsync_params params = {&address, m->bytes, m->pool, m->stream};
        call_back(CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", &params,
                  m->device, !m->address);
    } else {
        cuMemAlloc_v2_params params = {&address, m->bytes};
        call_back(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, "cuMemAlloc_v2", &params, m->device, !m->address);
    }
    if (m->address)
        record_memory(m, true);
}

void double_hook_taken_back(const struct hook_memory *m)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)m->address;
    if (m->pool) {
        cuMemFreeAsync_params params = {address, m->stream};
        call_back(CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync, "cuMemFreeAsync", &params, m->device, false);
    } else {
        cuMemFree_v2_params params = {address};
        call_back(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, "cuMemFree_v2", &params, m->device, false);
    }
    record_memory(m, false);
}

unsigned long long double_cupti_create(int device, size_t bytes)
{
    static CUmemGenericAllocationHandle last = 0x1000;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle handle = ++last;
    cuMemCreate_params params = {&handle, bytes, &prop, 0};
    call_back(CUPTI_DRIVER_TRACE_CBID_cuMemCreate, "cuMemCreate", &params, device, false);
    return handle;
}

void double_cupti_map(unsigned long long handle, unsigned long long address, size_t bytes)
{
    cuMemMap_params params = {address, bytes, 0, handle, 0};
    call_back(CUPTI_DRIVER_TRACE_CBID_cuMemMap, "cuMemMap", &params, 0, false);
}

void double_cupti_unmap(unsigned long long address, size_t bytes)
{
    cuMemUnmap_params params = {address, bytes};
    call_back(CUPTI_DRIVER_TRACE_CBID_cuMemUnmap, "cuMemUnmap", &params, 0, false);
}

void double_cupti_release(unsigned long long handle)
{
    cuMemRelease_params params = {handle};
    call_back(CUPTI_DRIVER_TRACE_CBID_cuMemRelease, "cuMemRelease", &params, 0, false);
}

/* ----------------------------------------------------------------------------------------------------------------- work */

/* The record of the call, and before it that of the id which is on the thread's stack. The calls that the runtime passes on to
 * the driver have none here: nothing says that each of them has. */
static uint32_t record_call(CUpti_CallbackId id)
{
    uint32_t correlation = ++last_correlation;
    if (!runtime_calls[id])
        return correlation;
    if (depth && kinds[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION]) {
        CUpti_ActivityExternalCorrelation external = {
            .kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
            .externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
            .externalId = stack[depth - 1],
            .correlationId = correlation,
        };
        put(LANE_HOST, &external, sizeof external);
    }
    CUpti_ActivityAPI call = {.kind = CUPTI_ACTIVITY_KIND_RUNTIME, .cbid = id, .correlationId = correlation};
    call.start = now();
    call.end = now();
    put(LANE_HOST, &call, sizeof call);
    return correlation;
}

static void put_work(const void *record, size_t bytes)
{
    static int wanted = -1;
    if (wanted < 0)
        wanted = getenv("DOUBLE_CUPTI_DROP") ? atoi(getenv("DOUBLE_CUPTI_DROP")) : 0;
    if (wanted > 0) {
        wanted--;
        dropped++;
        return;
    }
    put(LANE_GPU, record, bytes);
}

static void record_kernel(int device, int stream, const char *name)
{
    CUpti_ActivityKernel10 record = {
        .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
        .deviceId = (uint32_t)device,
        .contextId = (uint32_t)device + 1,
        .streamId = (uint32_t)stream,
        .name = name,
    };
    record.correlationId = record_call(CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000);
    record.start = now();
    record.end = now();
    if (kinds[record.kind])
        put_work(&record, sizeof record);
}

static void record_copy(int device, int stream, size_t bytes)
{
    CUpti_ActivityMemcpy6 record = {
        .kind = CUPTI_ACTIVITY_KIND_MEMCPY,
        .bytes = bytes,
        .deviceId = (uint32_t)device,
        .contextId = (uint32_t)device + 1,
        .streamId = (uint32_t)stream,
    };
    record.correlationId = record_call(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020);
    record.start = now();
    record.end = now();
    if (kinds[record.kind])
        put_work(&record, sizeof record);
}

static void record_fill(int device, int stream, size_t bytes)
{
    CUpti_ActivityMemset4 record = {
        .kind = CUPTI_ACTIVITY_KIND_MEMSET,
        .bytes = bytes,
        .deviceId = (uint32_t)device,
        .contextId = (uint32_t)device + 1,
        .streamId = (uint32_t)stream,
    };
    record.correlationId = record_call(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020);
    record.start = now();
    record.end = now();
    if (kinds[record.kind])
        put_work(&record, sizeof record);
}

void double_hook_work(int device, int stream, const char *name, size_t bytes)
{
    if (inside)
        return;
    inside = true;
    appear(device);
    inside = false;
    pthread_mutex_lock(&lock);
    if (!strcmp(name, "cudaMemcpyAsync"))
        record_copy(device, stream, bytes);
    else if (!strcmp(name, "cudaMemsetAsync"))
        record_fill(device, stream, bytes);
    else
        record_kernel(device, stream, name);
    pthread_mutex_unlock(&lock);
}

static void record_marker(CUpti_ActivityFlag flag, const char *domain, unsigned number, const char *name)
{
    CUpti_ActivityMarker2 record = {
        .kind = CUPTI_ACTIVITY_KIND_MARKER,
        .flags = flag,
        .timestamp = now(),
        .id = number,
        .objectKind = CUPTI_ACTIVITY_OBJECT_THREAD,
        .name = name,
        .domain = domain,
    };
    if (!kinds[record.kind])
        return;
    pthread_mutex_lock(&lock);
    put(LANE_HOST, &record, sizeof record);
    pthread_mutex_unlock(&lock);
}

unsigned double_cupti_range_begin(const char *domain, const char *name)
{
    static unsigned last;
    unsigned number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    record_marker(CUPTI_ACTIVITY_FLAG_MARKER_START, domain, number, name);
    return number;
}

void double_cupti_range_end(const char *domain, unsigned number)
{
    record_marker(CUPTI_ACTIVITY_FLAG_MARKER_END, domain, number, NULL);
}

/* ---------------------------------------------------------------------------------------------------------- entry points */

CUptiResult cuptiGetVersion(uint32_t *version)
{
    ENTER();
    *version = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text)
{
    static char unknown[40];
    snprintf(unknown, sizeof unknown, "CUPTI_ERROR_%d", (int)result);
    *text = result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : unknown;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *out, CUpti_CallbackFunc callback, void *data,
                              CUpti_SubscriberParams *params)
{
    const char *holder = getenv("DOUBLE_CUPTI_HOLDER");
    ENTER();
    if (params->structSize != CUpti_SubscriberParams_STRUCT_SIZE)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (subscriber || holder) {
        snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s", holder ? holder : "memplan");
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    subscriber = callback;
    subscriber_data = data;
    *out = (CUpti_SubscriberHandle)&subscriber;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle)
{
    ENTER();
    if (handle != (CUpti_SubscriberHandle)&subscriber || !subscriber)
        double_complain("%s: no subscriber", __func__);
    subscriber = NULL;
    memset(driver_calls, 0, sizeof driver_calls);
    disappear();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id)
{
    ENTER();
    if (handle != (CUpti_SubscriberHandle)&subscriber || domain != CUPTI_CB_DOMAIN_DRIVER_API ||
        id >= CUPTI_DRIVER_TRACE_CBID_SIZE)
        return CUPTI_ERROR_INVALID_PARAMETER;
    driver_calls[id] = enable;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *device)
{
    ENTER();
    if (!context || (uintptr_t)context > MAX_DEVICES)
        return CUPTI_ERROR_INVALID_PARAMETER;
    *device = (uint32_t)(uintptr_t)context - 1;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function)
{
    ENTER();
    for (int kind = 0; kind < CUPTI_ACTIVITY_KIND_COUNT; kind++)
        if (kinds[kind])
            double_complain("%s after records were enabled", __func__);
    timestamp = function;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc on_request,
                                           CUpti_BuffersCallbackCompleteFunc on_complete)
{
    ENTER();
    request = on_request;
    complete = on_complete;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    ENTER();
    if (!request || kind >= CUPTI_ACTIVITY_KIND_COUNT)
        return CUPTI_ERROR_INVALID_PARAMETER;
    kinds[kind] = true;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    ENTER();
    kinds[kind] = false;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable)
{
    ENTER();
    driver_records[id] = enable;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable)
{
    ENTER();
    runtime_calls[id] = enable;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t used, CUpti_Activity **record)
{
    ENTER();
    uint8_t *next = *record ? (uint8_t *)*record + record_bytes(*record) : buffer;
    if (next >= buffer + used)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)next;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *out)
{
    (void)context;
    (void)stream;
    ENTER();
    pthread_mutex_lock(&lock);
    *out = dropped;
    dropped = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id)
{
    ENTER();
    if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 || depth == STACK)
        return CUPTI_ERROR_INVALID_PARAMETER;
    stack[depth++] = id;
    pushed++;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *id)
{
    ENTER();
    if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (!depth)
        return CUPTI_ERROR_QUEUE_EMPTY;
    *id = stack[--depth];
    pushed--;
    return CUPTI_SUCCESS;
}

/* The time that this took is a record itself, whose data the client must free. */
static void record_overhead(void)
{
    CUpti_ActivityOverhead3 record = {
        .kind = CUPTI_ACTIVITY_KIND_OVERHEAD,
        .overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH,
        .objectKind = CUPTI_ACTIVITY_OBJECT_PROCESS,
        .start = 1000000,
        .end = 3000000,
        .overheadData = malloc(16),
    };
    if (!put(LANE_HOST, &record, sizeof record))
        free(record.overheadData);
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    ENTER();
    if (!subscriber)
        double_complain("%s: the subscriber is gone already, and perhaps its records", __func__);
    pthread_mutex_lock(&lock);
    if (request)
        record_overhead();
    deliver(LANE_GPU);
    deliver(LANE_HOST);
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}
