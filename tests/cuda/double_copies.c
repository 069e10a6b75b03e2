/* Fills and copies. What a copy brings to the host is there when the host knows that the copy is done, and what it takes from the
 * host must not change until then. */
#include "tests/cuda/double_memory.h"
#include "tests/cuda/double_shared.h"

#include <stdlib.h>
#include <string.h>

/* A copy from or to pinned memory whose stream nobody has waited for yet. */
struct pending {
    int stream;
    int64_t work;
    unsigned char *pinned;
    size_t bytes;
    uint64_t sum;            /* of what the device reads */
    unsigned char *arriving; /* what it writes; NULL: it reads */
};

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

static struct pending *pendings;
static int pending_count, pending_room;

static void add_pending(struct pending pending)
{
    if (pending_count == pending_room) {
        pending_room = pending_room ? 2 * pending_room : 64;
        pendings = realloc(pendings, (size_t)pending_room * sizeof *pendings);
    }
    pendings[pending_count++] = pending;
}

void double_copies_finish(const struct order_clock *clock)
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

void double_copies_drop(const void *memory, const char *call)
{
    int kept = 0;
    for (int i = 0; i < pending_count; i++) {
        struct pending *pending = &pendings[i];
        if (pending->pinned >= (const unsigned char *)memory &&
            memory_find(pending->pinned) == memory_find(memory)) {
            double_complain("%s: a copy from or to %p may not be done yet", call, memory);
            free(pending->arriving);
        } else {
            pendings[kept++] = *pending;
        }
    }
    pending_count = kept;
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
    pthread_mutex_lock(&double_lock);
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
    pthread_mutex_unlock(&double_lock);
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
        return double_failure(cudaErrorInvalidValue);
    pthread_mutex_lock(&double_lock);
    bool sound = check_side(to, bytes, to_device, __func__, &transfer.to_pinned) &&
                 check_side(from, bytes, from_device, __func__, &transfer.from_pinned);
    pthread_mutex_unlock(&double_lock);
    if (!sound)
        return double_failure(cudaErrorInvalidValue);
    if (stream->capture && !(to_device && from_device) && !transfer.to_pinned && !transfer.from_pinned)
        double_complain("%s: a captured copy of memory that is not pinned", __func__);
    return submit_transfer(transfer, __func__);
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    struct transfer transfer = {.stream = stream, .to = memory, .bytes = bytes, .byte = byte};
    pthread_mutex_lock(&double_lock);
    bool sound = check_side(memory, bytes, true, __func__, &transfer.to_pinned);
    pthread_mutex_unlock(&double_lock);
    return sound ? submit_transfer(transfer, __func__) : double_failure(cudaErrorInvalidValue);
}
