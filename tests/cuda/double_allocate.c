/* Memory of devices, pinned memory of the host, and pools of the former. */
#include "tests/cuda/double_hooks.h"
#include "tests/cuda/double_memory.h"
#include "tests/cuda/double_shared.h"

#include <string.h>

enum { POOL_STEP = 32 << 20 };

struct CUmemPoolHandle_st {
    struct handle handle;
    int device;
    uint64_t threshold_bytes, used_bytes, used_peak_bytes, reserved_bytes, reserved_peak_bytes;
};

static struct CUmemPoolHandle_st *pools[64];

static uint64_t round_to(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

/* ------------------------------------------------------------------------------------------------------------- memory */

bool double_holds(const void *memory, size_t bytes)
{
    pthread_mutex_lock(&double_lock);
    const struct memory_block *block = memory_find(memory);
    bool holds = block && block->device != MEMORY_PINNED &&
                 (size_t)((const unsigned char *)memory - block->start) + bytes <= block->bytes;
    pthread_mutex_unlock(&double_lock);
    return holds;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    ENTER();
    if (double_graphs_refuse())
        return double_failure(cudaErrorStreamCaptureUnsupported);
    if (!bytes)
        return double_failure(cudaErrorInvalidValue);
    pthread_mutex_lock(&double_lock);
    bool fits =
        double_used_bytes(double_current_device) + bytes <= double_device_memory(double_current_device);
    *out = fits ? memory_take(bytes, double_current_device, NULL) : NULL;
    pthread_mutex_unlock(&double_lock);
    double_hook_given(
        &(struct hook_memory){.device = double_current_device, .address = *out, .bytes = bytes});
    return *out ? cudaSuccess : double_failure(cudaErrorMemoryAllocation);
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

cudaError_t cudaFree(void *memory)
{
    if (!memory)
        return cudaSuccess;
    ENTER();
    if (double_graphs_refuse())
        return double_failure(cudaErrorStreamCaptureUnsupported);
    double_streams_wait_all(double_current_device);
    pthread_mutex_lock(&double_lock);
    const struct memory_block *block = own_block(memory, false, false, __func__);
    struct hook_memory taken_back = {.address = memory};
    if (block) {
        taken_back.device = block->device;
        taken_back.bytes = block->bytes;
        give_back(block, __func__);
    }
    pthread_mutex_unlock(&double_lock);
    if (block)
        double_hook_taken_back(&taken_back);
    return block ? cudaSuccess : double_failure(cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    ENTER();
    if (double_graphs_refuse())
        return double_failure(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&double_lock);
    *out = memory_take(bytes, MEMORY_PINNED, NULL);
    pthread_mutex_unlock(&double_lock);
    return *out ? cudaSuccess : double_failure(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *memory)
{
    if (!memory)
        return cudaSuccess;
    ENTER();
    if (double_graphs_refuse())
        return double_failure(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&double_lock);
    double_copies_drop(memory, __func__);
    const struct memory_block *block = own_block(memory, true, false, __func__);
    if (block)
        give_back(block, __func__);
    pthread_mutex_unlock(&double_lock);
    return block ? cudaSuccess : double_failure(cudaErrorInvalidValue);
}

/* -------------------------------------------------------------------------------------------------------------- pools */

cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const struct cudaMemPoolProps *properties)
{
    ENTER();
    if (properties->location.type != cudaMemLocationTypeDevice ||
        properties->allocType != cudaMemAllocationTypePinned ||
        double_check_device(properties->location.id) != cudaSuccess)
        return double_failure(cudaErrorInvalidValue);
    struct CUmemPoolHandle_st *pool = double_new_handle(KIND_POOL, sizeof *pool);
    pool->device = properties->location.id;
    pthread_mutex_lock(&double_lock);
    size_t place = 0;
    while (pools[place])
        place++;
    pools[place] = pool;
    pthread_mutex_unlock(&double_lock);
    *out = pool;
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    ALIVE(pool, KIND_POOL);
    pthread_mutex_lock(&double_lock);
    if (memory_count_pool(pool))
        double_complain("%s: %zu allocations of the pool are still alive", __func__, memory_count_pool(pool));
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        if (pools[i] == pool)
            pools[i] = NULL;
    double_end_handle(pool);
    pthread_mutex_unlock(&double_lock);
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
        return double_failure(cudaErrorInvalidValue);
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
        return double_failure(cudaErrorInvalidValue);
    }
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access, size_t count)
{
    ENTER();
    ALIVE(pool, KIND_POOL);
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type != cudaMemLocationTypeDevice ||
            double_check_device(access[i].location.id) != cudaSuccess)
            return double_failure(cudaErrorInvalidDevice);
    return cudaSuccess;
}

/* Takes what it lacks from the device in steps, and gives back at a synchronisation what is over the threshold. */
static bool pool_grow(struct CUmemPoolHandle_st *pool, size_t bytes)
{
    uint64_t wanted = round_to(pool->used_bytes + bytes, POOL_STEP);
    if (wanted > pool->reserved_bytes) {
        if (double_used_bytes(pool->device) + (wanted - pool->reserved_bytes) >
            double_device_memory(pool->device))
            wanted = pool->used_bytes + bytes;
        if (wanted > pool->reserved_bytes &&
            double_used_bytes(pool->device) + (wanted - pool->reserved_bytes) >
                double_device_memory(pool->device))
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

void double_allocate_shrink(int device)
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

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes)
{
    ENTER();
    ALIVE(pool, KIND_POOL);
    pthread_mutex_lock(&double_lock);
    uint64_t kept = round_to(pool->used_bytes > keep_bytes ? pool->used_bytes : keep_bytes, POOL_STEP);
    if (kept < pool->reserved_bytes)
        pool->reserved_bytes = kept;
    pthread_mutex_unlock(&double_lock);
    return cudaSuccess;
}

size_t double_allocate_slack(int device)
{
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        if (pools[i] && pools[i]->device == device)
            bytes += pools[i]->reserved_bytes - pools[i]->used_bytes;
    return bytes;
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
        double_graphs_spoil(stream->capture,
                            cudaErrorStreamCaptureUnsupported); /* the double's graphs own no memory */
        return double_failure(cudaErrorStreamCaptureUnsupported);
    }
    if (!bytes)
        return double_failure(cudaErrorInvalidValue);
    pthread_mutex_lock(&double_lock);
    *out = pool_grow(pool, bytes) ? memory_take(bytes, pool->device, pool) : NULL;
    struct hook_memory given = hook_of_pool(pool, *out, bytes, stream);
    pthread_mutex_unlock(&double_lock);
    double_hook_given(&given);
    return *out ? cudaSuccess : double_failure(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    pthread_mutex_lock(&double_lock);
    const struct memory_block *block = own_block(memory, false, true, __func__);
    struct hook_memory taken_back = {0};
    if (block) {
        struct CUmemPoolHandle_st *pool = block->pool;
        struct order_access access = {memory, block->bytes, true, __func__};
        double_streams_note(stream, &access, 1);
        pool->used_bytes -= block->bytes;
        taken_back = hook_of_pool(pool, memory, block->bytes, stream);
        give_back(block, __func__);
    }
    pthread_mutex_unlock(&double_lock);
    if (block)
        double_hook_taken_back(&taken_back);
    return block ? cudaSuccess : double_failure(cudaErrorInvalidValue);
}
