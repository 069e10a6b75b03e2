#include "profiler/cupti_records.h"

#include "base/arena.h"
#include "base/clock.h"
#include "device/device_cuda_labels.h"
#include "profiler/cupti_names.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A buffer of 1 MiB holds 8,192 memory records or 4,854 kernels. CUPTI asks for one per thread and stream; when this many
 * are filled or being filled it gets none, and drops records until the writer has caught up. */
enum { BUFFER_BYTES = 1 << 20, BUFFER_ALIGN = 8, MAX_BUFFERS = 64 };
/* Spans that wait for their operation, and operations that wait for their span. */
enum { MAX_WAITING = 1 << 18 };
enum { OPERATION_BITS = 40 };

struct buffer {
    struct buffer *next;
    size_t used;
    uint8_t *memory;
};

struct join {
    uint32_t correlation; /* 0: free */
    uint64_t external;
};

struct waiting {
    struct cupti_span span;
    uint32_t correlation;
    char *name; /* a copy; NULL: none */
};

static struct {
    const struct cupti_calls *calls;
    bool timeline;
    pthread_mutex_t lock; /* guards the buffers; held by nobody who calls CUPTI */
    struct buffer *full, **last_full, *empty;
    int buffers;
    atomic_llong dropped;
    /* The writer's thread alone. */
    struct join *joins; /* a hash table */
    size_t join_count, join_room;
    struct waiting *waiting;
    size_t waiting_count, waiting_room;
    struct waiting *open_ranges;
    size_t range_count, range_room;
    struct cupti_counts counts;
} records = {.lock = PTHREAD_MUTEX_INITIALIZER, .last_full = &records.full};

/* -------------------------------------------------------------------------------------------------- on CUPTI's threads */

static struct buffer *take_empty(void)
{
    pthread_mutex_lock(&records.lock);
    struct buffer *buffer = records.empty;
    if (buffer)
        records.empty = buffer->next;
    bool make = !buffer && records.buffers < MAX_BUFFERS;
    records.buffers += make;
    pthread_mutex_unlock(&records.lock);
    if (!make)
        return buffer;
    buffer = host_alloc(sizeof *buffer);
    buffer->memory = aligned_alloc(BUFFER_ALIGN, BUFFER_BYTES);
    return buffer;
}

/* CUPTI gives back only the address of the memory, so the buffer's own is kept in front of it, in the first record's room. */
static void CUPTIAPI on_request(uint8_t **memory, size_t *size, size_t *max_records)
{
    struct buffer *buffer = take_empty();
    *max_records = 0;
    *memory = NULL;
    *size = 0;
    if (!buffer)
        return;
    if (!buffer->memory) {
        free(buffer);
        return;
    }
    memcpy(buffer->memory, &buffer, sizeof buffer);
    *memory = buffer->memory + sizeof buffer;
    *size = BUFFER_BYTES - sizeof buffer;
}

static void CUPTIAPI on_complete(CUcontext context, uint32_t stream, uint8_t *memory, size_t size,
                                 size_t used)
{
    struct buffer *buffer;
    size_t dropped = 0;
    (void)size;
    if (records.calls->cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
        atomic_fetch_add(&records.dropped, (long long)dropped);
    if (!memory)
        return;
    memcpy(&buffer, memory - sizeof buffer, sizeof buffer);
    buffer->used = used;
    buffer->next = NULL;
    pthread_mutex_lock(&records.lock);
    *records.last_full = buffer;
    records.last_full = &buffer->next;
    pthread_mutex_unlock(&records.lock);
}

static uint64_t CUPTIAPI now(void)
{
    return (uint64_t)clock_ns();
}

/* -------------------------------------------------------------------------------------------- operations and their ids */

void cupti_records_work(struct cupti_work before, struct cupti_work work)
{
    uint64_t ended;
    if (!records.timeline)
        return;
    if (before.operation >= 0)
        records.calls->cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &ended);
    if (work.operation >= 0)
        records.calls->cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                                                              (uint64_t)(work.step + 1) << OPERATION_BITS |
                                                                  (uint64_t)work.operation);
}

static struct cupti_work work_of(uint64_t external)
{
    return (struct cupti_work){(int64_t)(external & ((UINT64_C(1) << OPERATION_BITS) - 1)),
                               (int)(external >> OPERATION_BITS) - 1};
}

static size_t join_home(uint32_t correlation)
{
    return (size_t)(correlation * UINT32_C(0x9e3779b1)) & (records.join_room - 1);
}

static size_t join_find(uint32_t correlation)
{
    size_t slot = join_home(correlation);
    while (records.joins[slot].correlation && records.joins[slot].correlation != correlation)
        slot = (slot + 1) & (records.join_room - 1);
    return slot;
}

static void joins_grow(void)
{
    struct join *old = records.joins;
    size_t room = records.join_room;
    records.join_room = room ? 2 * room : 1024;
    records.joins = host_alloc(records.join_room * sizeof *records.joins);
    for (size_t i = 0; i < room; i++)
        if (old[i].correlation)
            records.joins[join_find(old[i].correlation)] = old[i];
    free(old);
}

static void join_add(uint32_t correlation, uint64_t external)
{
    if (records.join_count == MAX_WAITING || !correlation)
        return;
    if (2 * (records.join_count + 1) > records.join_room)
        joins_grow();
    size_t slot = join_find(correlation);
    records.join_count += !records.joins[slot].correlation;
    records.joins[slot] = (struct join){correlation, external};
}

/* Removes it; a removal moves later ones back. */
static bool join_take(uint32_t correlation, uint64_t *external)
{
    if (!records.join_count)
        return false;
    size_t mask = records.join_room - 1, hole = join_find(correlation);
    if (!records.joins[hole].correlation)
        return false;
    *external = records.joins[hole].external;
    for (size_t next = (hole + 1) & mask; records.joins[next].correlation; next = (next + 1) & mask) {
        if (((next - join_home(records.joins[next].correlation)) & mask) < ((next - hole) & mask))
            continue;
        records.joins[hole] = records.joins[next];
        hole = next;
    }
    records.joins[hole].correlation = 0;
    records.join_count--;
    return true;
}

/* --------------------------------------------------------------------------------------------- on the writer's thread */

static void emit(const struct cupti_sink *sink, const struct cupti_span *span)
{
    records.counts.untimed += !span->start_ns && !span->end_ns;
    sink->span(sink->context, span);
}

static void emit_joined(const struct cupti_sink *sink, struct cupti_span *span, uint32_t correlation)
{
    uint64_t external;
    span->work = (struct cupti_work){-1, -1};
    if (join_take(correlation, &external))
        span->work = work_of(external);
    emit(sink, span);
}

static struct waiting *append(struct waiting **list, size_t *count, size_t *room)
{
    if (*count == *room) {
        *room = *room ? 2 * *room : 256;
        *list = host_resize(*list, *room * sizeof **list);
    }
    return &(*list)[(*count)++];
}

static char *copy_of(const char *text)
{
    return text ? strcpy(host_alloc(strlen(text) + 1), text) : NULL;
}

/* Its operation is told by a record of another buffer, perhaps a later one. */
static void add_span(const struct cupti_sink *sink, struct cupti_span span, uint32_t correlation)
{
    if (records.join_count && records.joins[join_find(correlation)].correlation) {
        emit_joined(sink, &span, correlation);
        return;
    }
    if (records.waiting_count == MAX_WAITING) {
        emit_joined(sink, &span, correlation);
        return;
    }
    struct waiting *waiting = append(&records.waiting, &records.waiting_count, &records.waiting_room);
    *waiting = (struct waiting){span, correlation, copy_of(span.name)};
    waiting->span.name = waiting->name;
}

/* Those whose operation is known by now; with `all`, the rest too. */
static void emit_waiting(const struct cupti_sink *sink, bool all)
{
    size_t kept = 0;
    for (size_t i = 0; i < records.waiting_count; i++) {
        struct waiting *waiting = &records.waiting[i];
        bool known = records.join_count && records.joins[join_find(waiting->correlation)].correlation;
        if (!known && !all) {
            records.waiting[kept++] = *waiting;
            continue;
        }
        emit_joined(sink, &waiting->span, waiting->correlation);
        free(waiting->name);
    }
    records.waiting_count = kept;
}

static void read_kernel(const struct cupti_sink *sink, const CUpti_ActivityKernel10 *kernel)
{
    add_span(sink,
             (struct cupti_span){
                 .kind = CUPTI_SPAN_KERNEL,
                 .start_ns = (int64_t)kernel->start,
                 .end_ns = (int64_t)kernel->end,
                 .device = (int)kernel->deviceId,
                 .stream = kernel->streamId,
                 .name = cupti_names_readable(kernel->name),
             },
             kernel->correlationId);
}

static void read_copy(const struct cupti_sink *sink, const CUpti_ActivityMemcpy6 *copy)
{
    add_span(sink,
             (struct cupti_span){
                 .kind = CUPTI_SPAN_COPY,
                 .start_ns = (int64_t)copy->start,
                 .end_ns = (int64_t)copy->end,
                 .device = (int)copy->deviceId,
                 .stream = copy->streamId,
                 .bytes = (int64_t)copy->bytes,
             },
             copy->correlationId);
}

static void read_fill(const struct cupti_sink *sink, const CUpti_ActivityMemset4 *fill)
{
    add_span(sink,
             (struct cupti_span){
                 .kind = CUPTI_SPAN_FILL,
                 .start_ns = (int64_t)fill->start,
                 .end_ns = (int64_t)fill->end,
                 .device = (int)fill->deviceId,
                 .stream = fill->streamId,
                 .bytes = (int64_t)fill->bytes,
             },
             fill->correlationId);
}

static void read_memory(const CUpti_ActivityMemory4 *memory)
{
    if (memory->isAsync && memory->memoryPoolConfig.memoryPoolType == CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL &&
        (int64_t)memory->memoryPoolConfig.pool.size > records.counts.pool_bytes)
        records.counts.pool_bytes = (int64_t)memory->memoryPoolConfig.pool.size;
    if (memory->memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE &&
        memory->memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION)
        records.counts.given_bytes += (int64_t)memory->bytes;
}

static void read_overhead(const CUpti_ActivityOverhead3 *overhead)
{
    int64_t ns = (int64_t)(overhead->end - overhead->start);
    if (overhead->overheadKind == CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING ||
        overhead->overheadKind == CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING)
        records.counts.module_loading_ns += ns;
    else
        records.counts.overhead_ns += ns;
    free(overhead->overheadData); /* the client's, by the manual */
}

/* An NVTX range has a record for its begin, with the name, and one for its end. Our own ranges are operations, which a recording
 * has already. */
static void read_marker(const struct cupti_sink *sink, const CUpti_ActivityMarker2 *marker)
{
    if (marker->domain && !strcmp(marker->domain, DEVICE_CUDA_DOMAIN))
        return;
    if (marker->flags & CUPTI_ACTIVITY_FLAG_MARKER_START) {
        *append(&records.open_ranges, &records.range_count, &records.range_room) = (struct waiting){
            .span = {.kind = CUPTI_SPAN_RANGE,
                     .start_ns = (int64_t)marker->timestamp,
                     .device = -1,
                     .work = {-1, -1}},
            .correlation = marker->id,
            .name = copy_of(marker->name),
        };
        return;
    }
    for (size_t i = 0; marker->flags & CUPTI_ACTIVITY_FLAG_MARKER_END && i < records.range_count; i++) {
        struct waiting *range = &records.open_ranges[i];
        if (range->correlation != marker->id)
            continue;
        range->span.end_ns = (int64_t)marker->timestamp;
        range->span.name = range->name;
        emit(sink, &range->span);
        free(range->name);
        *range = records.open_ranges[--records.range_count];
        return;
    }
}

static void read_record(const struct cupti_sink *sink, const CUpti_Activity *record)
{
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const CUpti_ActivityExternalCorrelation *external = (const void *)record;
        if (external->externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
            join_add(external->correlationId, external->externalId);
        break;
    }
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        read_kernel(sink, (const void *)record);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        read_copy(sink, (const void *)record);
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        read_fill(sink, (const void *)record);
        break;
    case CUPTI_ACTIVITY_KIND_MEMORY2:
        read_memory((const void *)record);
        break;
    case CUPTI_ACTIVITY_KIND_MEMORY_POOL: {
        const CUpti_ActivityMemoryPool3 *pool = (const void *)record;
        if ((int64_t)pool->size > records.counts.pool_bytes)
            records.counts.pool_bytes = (int64_t)pool->size;
        break;
    }
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
        read_overhead((const void *)record);
        break;
    case CUPTI_ACTIVITY_KIND_MARKER:
        read_marker(sink, (const void *)record);
        break;
    default:
        break;
    }
}

static struct buffer *take_full(void)
{
    pthread_mutex_lock(&records.lock);
    struct buffer *buffer = records.full;
    if (buffer && !(records.full = buffer->next))
        records.last_full = &records.full;
    pthread_mutex_unlock(&records.lock);
    return buffer;
}

static void give_empty(struct buffer *buffer)
{
    pthread_mutex_lock(&records.lock);
    buffer->next = records.empty;
    records.empty = buffer;
    pthread_mutex_unlock(&records.lock);
}

void cupti_records_drain(const struct cupti_sink *sink)
{
    bool any = false;
    for (struct buffer *buffer; (buffer = take_full()); any = true) {
        CUpti_Activity *record = NULL;
        while (records.calls->cuptiActivityGetNextRecord(buffer->memory + sizeof buffer, buffer->used,
                                                         &record) == CUPTI_SUCCESS)
            read_record(sink, record);
        give_empty(buffer);
    }
    if (any)
        emit_waiting(sink, false);
}

/* ------------------------------------------------------------------------------------------------------ start and stop */

static const CUpti_ActivityKind memory_kinds[] = {
    CUPTI_ACTIVITY_KIND_MEMORY2,
    CUPTI_ACTIVITY_KIND_MEMORY_POOL,
    CUPTI_ACTIVITY_KIND_OVERHEAD,
};
static const CUpti_ActivityKind timeline_kinds[] = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_MARKER,
};

/* The calls that put work on a GPU: only calls that are recorded themselves get a record of their external id. */
static const CUpti_CallbackId runtime_launches[] = {
    CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000, /* what nvcc 13 makes of <<< >>> */
    CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_ptsz_v7000,
};
static const CUpti_CallbackId driver_launches[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* A kind that is refused leaves the others. */
static void enable(const CUpti_ActivityKind *kinds, size_t count, const char *what,
                   const struct cupti_sink *sink)
{
    struct error error;
    for (size_t i = 0; i < count; i++) {
        CUptiResult result = records.calls->cuptiActivityEnable(kinds[i]);
        if (result == CUPTI_SUCCESS)
            continue;
        cupti_calls_error(records.calls, "cuptiActivityEnable", result, &error);
        error_prefix(&error, "%s", what);
        sink->note(sink->context, error.text, true);
        return;
    }
}

static void record_launches(bool wanted)
{
    for (size_t i = 0; i < LENGTH(runtime_launches); i++)
        records.calls->cuptiActivityEnableRuntimeApi(runtime_launches[i], wanted);
    for (size_t i = 0; i < LENGTH(driver_launches); i++)
        records.calls->cuptiActivityEnableDriverApi(driver_launches[i], wanted);
}

int cupti_records_start(const struct cupti_calls *calls, bool timeline, const struct cupti_sink *sink,
                        struct error *err)
{
    records.calls = calls;
    records.timeline = false;
    records.counts = (struct cupti_counts){0};
    atomic_store(&records.dropped, 0);
    /* The clock of everything else in the recording; CUPTI's own, CLOCK_REALTIME, may be set while a run goes on. */
    CUptiResult result = calls->cuptiActivityRegisterTimestampCallback(now);
    if (result != CUPTI_SUCCESS)
        return cupti_calls_error(calls, "cuptiActivityRegisterTimestampCallback", result, err);
    result = calls->cuptiActivityRegisterCallbacks(on_request, on_complete);
    if (result != CUPTI_SUCCESS)
        return cupti_calls_error(calls, "cuptiActivityRegisterCallbacks", result, err);
    enable(memory_kinds, LENGTH(memory_kinds), "no memory records", sink);
    if (timeline) {
        records.timeline = true;
        record_launches(true);
        enable(timeline_kinds, LENGTH(timeline_kinds), "no complete timeline", sink);
    }
    return 0;
}

static void disable(const CUpti_ActivityKind *kinds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        records.calls->cuptiActivityDisable(kinds[i]);
}

static void free_all(void)
{
    for (struct buffer *buffer; (buffer = records.empty);) {
        records.empty = buffer->next;
        free(buffer->memory);
        free(buffer);
        records.buffers--;
    }
    for (size_t i = 0; i < records.range_count; i++)
        free(records.open_ranges[i].name);
    free(records.open_ranges);
    free(records.waiting);
    free(records.joins);
    records.open_ranges = records.waiting = NULL;
    records.joins = NULL;
    records.range_count = records.range_room = records.waiting_count = records.waiting_room = 0;
    records.join_count = records.join_room = 0;
}

struct cupti_counts cupti_records_stop(const struct cupti_sink *sink)
{
    if (records.timeline) {
        disable(timeline_kinds, LENGTH(timeline_kinds));
        record_launches(false);
    }
    disable(memory_kinds, LENGTH(memory_kinds));
    CUptiResult result = records.calls->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (result != CUPTI_SUCCESS) {
        struct error error;
        cupti_calls_error(records.calls, "cuptiActivityFlushAll", result, &error);
        error_prefix(&error, "the last records are missing");
        sink->note(sink->context, error.text, true);
    }
    cupti_records_drain(sink);
    emit_waiting(sink, true);
    records.timeline = false;
    free_all();
    cupti_names_free();
    records.counts.dropped = (int64_t)atomic_load(&records.dropped);
    return records.counts;
}
