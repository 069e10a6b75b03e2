/* A GPU as a device, through the CUDA runtime. All that is asked goes into one stream, in order, and the host runs ahead; a
 * call that fails is remembered and told by the next finish(). Arenas are allocations of their own; separate tensors come
 * from a memory pool of ours, which keeps what is freed for the next step and gives it back when somebody asks what is in use. */
#include "device/device_cuda.h"

#include "base/arena.h"
#include "base/checked.h"
#include "device/device.h"
#include "device/device_cuda_labels.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the host writes passes through a ring of pinned slots, so that it may change its own copy at once; a slot is used
 * again when the GPU is done with it. */
enum { SLOTS = 4, SLOT_BYTES = 4 << 20 };

enum { LEAST_CAPABILITY = 80 };

struct slot {
    unsigned char *memory;
    int64_t used;
    cudaEvent_t done;
};

/* A write of the recording: the GPU reads `from` each time that it does the recording again. */
struct recorded_write {
    void *to;
    unsigned char *from;
    int64_t bytes;
};

enum mode { MODE_AT_ONCE, MODE_RECORD, MODE_REWRITE };

struct cuda {
    struct cuda_device shown; /* first: it is what device_context() points to */
    cudaMemPool_t pool;
    int64_t arena_bytes, arena_peak_bytes;
    struct slot slots[SLOTS];
    int slot;               /* the one being filled */
    unsigned char *landing; /* pinned; what is read passes through it */
    enum mode mode;
    cudaGraphExec_t graph;
    struct recorded_write *writes;
    int write_count, write_room, next_write;
    bool failed;
    struct error error; /* the first one */
};

/* ------------------------------------------------------------------------------------------------------------ errors */

const char *device_cuda_way_out(int status)
{
    switch ((cudaError_t)status) {
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
        return "install an NVIDIA driver for CUDA 13.0 or newer (580 or later), or use --device cpu";
    case cudaErrorNoDevice:
        return "look at nvidia-smi and at CUDA_VISIBLE_DEVICES, or use --device cpu";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorUnsupportedPtxVersion:
        return "this build has no kernels for this GPU and driver: build for the GPU with `make cuda "
               "CUDA_CODE=-arch=native`, or install a driver as new as the toolkit";
    case cudaErrorMemoryAllocation:
        return "end what else runs on the GPU, or run a smaller step";
    case cudaErrorDevicesUnavailable:
        return "another process has the GPU for itself; end that, or choose another with "
               "CUDA_VISIBLE_DEVICES";
    default:
        return "run again with CUDA_LAUNCH_BLOCKING=1 to see which operation it was, or use --device cpu";
    }
}

int device_cuda_error(int ordinal, const char *call, int status, struct error *err)
{
    cudaError_t code = (cudaError_t)status;
    return error_set(err, "GPU %d: %s failed: %s (%s); %s", ordinal, call, cudaGetErrorString(code),
                     cudaGetErrorName(code), device_cuda_way_out(status));
}

/* Remembers the first failure. */
static bool ok(struct cuda *c, cudaError_t status, const char *call)
{
    if (status == cudaSuccess)
        return true;
    if (!c->failed)
        device_cuda_error(c->shown.ordinal, call, (int)status, &c->error);
    c->failed = true;
    /* Or the next kernel would take the failure for its own. */
    cudaGetLastError();
    return false;
}

#define OK(c, function, ...) ok(c, function(__VA_ARGS__), #function)

static int tell(const struct cuda *c, struct error *err)
{
    if (err)
        *err = c->error;
    return -1;
}

/* --------------------------------------------------------------------------------------------------------------- GPUs */

void device_cuda_ask_for_queues(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

/* No driver at all looks to the runtime like one that is too old. */
static int check_driver(struct error *err)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (!driver)
        return error_set(err,
                         "no NVIDIA driver is loaded on this machine; install one (580 or later), or use "
                         "--device cpu");
    if (driver / 1000 < runtime / 1000)
        return error_set(
            err,
            "the NVIDIA driver is for CUDA %d.%d and this build needs CUDA %d.%d; install a newer "
            "driver (580 or later), or use --device cpu",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return 0;
}

int device_cuda_count(int *devices, struct error *err)
{
    if (check_driver(err))
        return -1;
    cudaError_t status = cudaGetDeviceCount(devices);
    if (status != cudaSuccess)
        return error_set(err, "cudaGetDeviceCount failed: %s (%s); %s", cudaGetErrorString(status),
                         cudaGetErrorName(status), device_cuda_way_out((int)status));
    return 0;
}

static int check_ordinal(int ordinal, struct error *err)
{
    int devices;
    if (device_cuda_count(&devices, err))
        return -1;
    if (ordinal < 0 || ordinal >= devices)
        return error_set(err,
                         "GPU %d is not there: this process sees %d; use fewer ranks, or look at "
                         "CUDA_VISIBLE_DEVICES",
                         ordinal, devices);
    return 0;
}

static int read_properties(int ordinal, struct cudaDeviceProp *out, struct error *err)
{
    cudaError_t status = cudaGetDeviceProperties(out, ordinal);
    if (status != cudaSuccess)
        return device_cuda_error(ordinal, "cudaGetDeviceProperties", (int)status, err);
    if (out->major * 10 + out->minor < LEAST_CAPABILITY)
        return error_set(
            err,
            "GPU %d, %s, has compute capability %d.%d and the kernels need %d.%d; use a newer GPU, "
            "or --device cpu",
            ordinal, out->name, out->major, out->minor, LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
    return 0;
}

int device_cuda_describe(int ordinal, struct cuda_description *out, struct error *err)
{
    struct cudaDeviceProp properties;
    size_t free_bytes, total_bytes;
    if (check_ordinal(ordinal, err) || read_properties(ordinal, &properties, err))
        return -1;
    *out = (struct cuda_description){.capability = properties.major * 10 + properties.minor};
    snprintf(out->name, sizeof out->name, "%.63s", properties.name);
    snprintf(out->place, sizeof out->place, "%04x:%02x:%02x", (unsigned)properties.pciDomainID & 0xffff,
             (unsigned)properties.pciBusID & 0xff, (unsigned)properties.pciDeviceID & 0xff);
    cudaDriverGetVersion(&out->driver);
    cudaRuntimeGetVersion(&out->runtime);
    cudaError_t status = cudaSetDevice(ordinal);
    if (status != cudaSuccess)
        return device_cuda_error(ordinal, "cudaSetDevice", (int)status, err);
    status = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (status != cudaSuccess)
        return device_cuda_error(ordinal, "cudaMemGetInfo", (int)status, err);
    out->free_bytes = (int64_t)free_bytes;
    out->total_bytes = (int64_t)total_bytes;
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------- memory */

/* Too little memory is an answer and no failure. */
static void *taken(struct cuda *c, cudaError_t status, const char *call, void **memory)
{
    if (status == cudaSuccess)
        return *memory;
    if (status != cudaErrorMemoryAllocation)
        ok(c, status, call);
    cudaGetLastError();
    return NULL;
}

static void *cuda_take(void *context, int64_t bytes, bool arena)
{
    struct cuda *c = context;
    void *memory = NULL;
    if (c->failed)
        return NULL;
    if (!arena)
        return taken(c, cudaMallocFromPoolAsync(&memory, (size_t)bytes, c->pool, c->shown.compute),
                     "cudaMallocFromPoolAsync", &memory);
    if (!taken(c, cudaMalloc(&memory, (size_t)bytes), "cudaMalloc", &memory))
        return NULL;
    c->arena_bytes += bytes;
    c->arena_peak_bytes = max_i64(c->arena_peak_bytes, c->arena_bytes);
    return memory;
}

static void cuda_give_back(void *context, void *memory, int64_t bytes, bool arena)
{
    struct cuda *c = context;
    if (!arena) {
        OK(c, cudaFreeAsync, memory, c->shown.compute);
        return;
    }
    OK(c, cudaFree, memory);
    c->arena_bytes -= bytes;
}

static int64_t cuda_held_peak(void *context)
{
    struct cuda *c = context;
    uint64_t pool_bytes = 0;
    OK(c, cudaMemPoolGetAttribute, c->pool, cudaMemPoolAttrReservedMemHigh, &pool_bytes);
    return (int64_t)pool_bytes + c->arena_peak_bytes;
}

/* Asked by those who watch: a failure is theirs, and not the device's. What the pool keeps for later is nobody's. */
int device_cuda_memory(void *context, struct cuda_memory *out, struct error *err)
{
    const struct cuda *c = context;
    size_t free_bytes, total_bytes;
    uint64_t reserved_bytes, used_bytes;
    cudaError_t status = cudaMemPoolTrimTo(c->pool, 0);
    if (status == cudaSuccess)
        status = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (status == cudaSuccess)
        status = cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrReservedMemCurrent, &reserved_bytes);
    if (status == cudaSuccess)
        status = cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrUsedMemCurrent, &used_bytes);
    if (status != cudaSuccess) {
        cudaGetLastError();
        return device_cuda_error(c->shown.ordinal,
                                 "cudaMemPoolTrimTo, cudaMemGetInfo or cudaMemPoolGetAttribute", (int)status,
                                 err);
    }
    *out = (struct cuda_memory){
        .total_bytes = (int64_t)total_bytes,
        .free_bytes = (int64_t)free_bytes,
        .slack_bytes = (int64_t)(reserved_bytes - used_bytes),
    };
    return 0;
}

static void cuda_fill(void *context, void *memory, int byte, int64_t bytes)
{
    struct cuda *c = context;
    if (!c->failed)
        OK(c, cudaMemsetAsync, memory, byte, (size_t)bytes, c->shown.compute);
}

/* ------------------------------------------------------------------------------------------------------------- copies */

/* The next slot, once the GPU has read what it held. */
static bool next_slot(struct cuda *c)
{
    if (!OK(c, cudaEventRecord, c->slots[c->slot].done, c->shown.compute))
        return false;
    c->slot = (c->slot + 1) % SLOTS;
    c->slots[c->slot].used = 0;
    return OK(c, cudaEventSynchronize, c->slots[c->slot].done);
}

static void write_at_once(struct cuda *c, unsigned char *to, const unsigned char *from, int64_t bytes)
{
    while (bytes > 0 && !c->failed) {
        if (c->slots[c->slot].used == SLOT_BYTES && !next_slot(c))
            return;
        struct slot *slot = &c->slots[c->slot];
        int64_t part = min_i64(bytes, SLOT_BYTES - slot->used);
        memcpy(slot->memory + slot->used, from, (size_t)part);
        OK(c, cudaMemcpyAsync, to, slot->memory + slot->used, (size_t)part, cudaMemcpyHostToDevice,
           c->shown.compute);
        slot->used = min_i64(SLOT_BYTES, round_up(slot->used + part, DEVICE_ALIGN));
        to += part;
        from += part;
        bytes -= part;
    }
}

/* While something is being recorded this is allowed only to those who say that they know what they do. */
static void *take_pinned(struct cuda *c, int64_t bytes)
{
    enum cudaStreamCaptureMode capture = cudaStreamCaptureModeRelaxed;
    void *memory = NULL;
    OK(c, cudaThreadExchangeStreamCaptureMode, &capture);
    OK(c, cudaMallocHost, &memory, (size_t)bytes);
    OK(c, cudaThreadExchangeStreamCaptureMode, &capture);
    return memory;
}

static void record_write(struct cuda *c, void *to, const void *from, int64_t bytes)
{
    void *memory = take_pinned(c, bytes);
    if (!memory)
        return;
    if (c->write_count == c->write_room) {
        c->write_room = c->write_room ? 2 * c->write_room : 64;
        c->writes = host_resize(c->writes, (size_t)c->write_room * sizeof *c->writes);
    }
    c->writes[c->write_count++] = (struct recorded_write){to, memory, bytes};
    memcpy(memory, from, (size_t)bytes);
    OK(c, cudaMemcpyAsync, to, memory, (size_t)bytes, cudaMemcpyHostToDevice, c->shown.compute);
}

static void rewrite(struct cuda *c, const void *to, const void *from, int64_t bytes)
{
    const struct recorded_write *write = &c->writes[c->next_write];
    if (c->next_write == c->write_count || write->to != to || write->bytes != bytes) {
        if (!c->failed)
            error_set(
                &c->error,
                "GPU %d: write %d of a recorded step is another than when it was recorded; use --no-graph",
                c->shown.ordinal, c->next_write);
        c->failed = true;
        return;
    }
    memcpy(write->from, from, (size_t)bytes);
    c->next_write++;
}

static void cuda_write(void *context, void *to, const void *from, int64_t bytes)
{
    struct cuda *c = context;
    if (c->failed)
        return;
    if (c->mode == MODE_RECORD)
        record_write(c, to, from, bytes);
    else if (c->mode == MODE_REWRITE)
        rewrite(c, to, from, bytes);
    else
        write_at_once(c, to, from, bytes);
}

static void cuda_read(void *context, void *to_host, const void *from, int64_t bytes)
{
    struct cuda *c = context;
    unsigned char *to = to_host;
    const unsigned char *at = from;
    while (bytes > 0 && !c->failed) {
        int64_t part = min_i64(bytes, SLOT_BYTES);
        if (!OK(c, cudaMemcpyAsync, c->landing, at, (size_t)part, cudaMemcpyDeviceToHost, c->shown.compute) ||
            !OK(c, cudaStreamSynchronize, c->shown.compute))
            return;
        memcpy(to, c->landing, (size_t)part);
        to += part;
        at += part;
        bytes -= part;
    }
}

static void cuda_copy(void *context, void *to, const void *from, int64_t bytes)
{
    struct cuda *c = context;
    if (!c->failed)
        OK(c, cudaMemcpyAsync, to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, c->shown.compute);
}

static int cuda_finish(void *context, struct error *err)
{
    struct cuda *c = context;
    if (!c->failed && OK(c, cudaStreamSynchronize, c->shown.compute))
        ok(c, cudaGetLastError(), "a kernel");
    return c->failed ? tell(c, err) : 0;
}

/* --------------------------------------------------------------------------------------------------------- recordings */

static void forget_recording(struct cuda *c)
{
    for (int i = 0; i < c->write_count; i++)
        cudaFreeHost(c->writes[i].from);
    c->write_count = 0;
    if (c->graph)
        cudaGraphExecDestroy(c->graph);
    c->graph = NULL;
}

static int cuda_record(void *context, struct error *err)
{
    struct cuda *c = context;
    if (cuda_finish(c, err))
        return -1;
    forget_recording(c);
    /* Of this thread only: other ranks of the process may take memory meanwhile. */
    cudaError_t status = cudaStreamBeginCapture(c->shown.compute, cudaStreamCaptureModeThreadLocal);
    if (status != cudaSuccess) {
        cudaGetLastError();
        return device_cuda_error(c->shown.ordinal, "cudaStreamBeginCapture", (int)status, err);
    }
    c->mode = MODE_RECORD;
    return 0;
}

/* What fails while recording spoils the recording and nothing else. */
static int give_up_recording(struct cuda *c, struct error *err)
{
    tell(c, err);
    c->failed = false;
    forget_recording(c);
    return -1;
}

static int cuda_recorded(void *context, struct error *err)
{
    struct cuda *c = context;
    cudaGraph_t graph = NULL;
    c->mode = MODE_AT_ONCE;
    cudaError_t status = cudaStreamEndCapture(c->shown.compute, &graph);
    if (ok(c, status, "cudaStreamEndCapture") && !c->failed)
        OK(c, cudaGraphInstantiate, &c->graph, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    if (c->failed)
        return give_up_recording(c, err);
    return OK(c, cudaGraphLaunch, c->graph, c->shown.compute) ? 0 : tell(c, err);
}

static void cuda_rewrite(void *context)
{
    struct cuda *c = context;
    c->mode = MODE_REWRITE;
    c->next_write = 0;
    /* The GPU may still be reading what will be written over. */
    if (!c->failed)
        OK(c, cudaStreamSynchronize, c->shown.compute);
}

static int cuda_replay(void *context, struct error *err)
{
    struct cuda *c = context;
    c->mode = MODE_AT_ONCE;
    if (!c->failed && c->next_write < c->write_count) {
        error_set(&c->error, "GPU %d: %d of %d writes of a recorded step were made; use --no-graph",
                  c->shown.ordinal, c->next_write, c->write_count);
        c->failed = true;
    }
    if (!c->failed)
        OK(c, cudaGraphLaunch, c->graph, c->shown.compute);
    return c->failed ? tell(c, err) : 0;
}

static void cuda_forget(void *context)
{
    struct cuda *c = context;
    cudaGraph_t graph = NULL;
    if (c->mode == MODE_RECORD && cudaStreamEndCapture(c->shown.compute, &graph) == cudaSuccess)
        cudaGraphDestroy(graph);
    cudaGetLastError();
    c->mode = MODE_AT_ONCE;
    /* The GPU may still be at it. */
    if (c->write_count && !c->failed)
        OK(c, cudaStreamSynchronize, c->shown.compute);
    forget_recording(c);
}

/* ------------------------------------------------------------------------------------------------------ open and close */

static bool open_pool(struct cuda *c)
{
    struct cudaMemPoolProps properties = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = c->shown.ordinal},
    };
    /* By itself it gives all back whenever the host waits, which is once a step, and takes it again. */
    uint64_t keep_bytes = UINT64_MAX;
    return OK(c, cudaMemPoolCreate, &c->pool, &properties) &&
           OK(c, cudaMemPoolSetAttribute, c->pool, cudaMemPoolAttrReleaseThreshold, &keep_bytes);
}

static bool open_staging(struct cuda *c)
{
    for (int i = 0; i < SLOTS; i++) {
        c->slots[i].memory = take_pinned(c, SLOT_BYTES);
        if (c->failed || !OK(c, cudaEventCreateWithFlags, &c->slots[i].done, cudaEventDisableTiming))
            return false;
    }
    c->landing = take_pinned(c, SLOT_BYTES);
    return !c->failed;
}

/* Lets this GPU and one other reach each other's memory without passing through the host, where the machine can. */
static bool open_peer(struct cuda *c, int other)
{
    int can = 0;
    if (!OK(c, cudaDeviceCanAccessPeer, &can, c->shown.ordinal, other) || !can)
        return !c->failed;
    cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError(); /* no failure */
    else if (!ok(c, status, "cudaDeviceEnablePeerAccess"))
        return false;
    struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = other},
                                       .flags = cudaMemAccessFlagsProtReadWrite};
    return OK(c, cudaMemPoolSetAccess, c->pool, &access, 1);
}

static bool open_parts(struct cuda *c, int used)
{
    if (!OK(c, cudaSetDevice, c->shown.ordinal) ||
        !OK(c, cudaStreamCreateWithFlags, &c->shown.compute, cudaStreamNonBlocking) || !open_pool(c) ||
        !open_staging(c))
        return false;
    /* One alone has no neighbours, whatever its number: to look at another GPU would put a context there. */
    for (int other = 0; used > 1 && other < used; other++)
        if (other != c->shown.ordinal && !open_peer(c, other))
            return false;
    return true;
}

/* What is not there yet, or was never, is NULL. */
static void cuda_close(void *context)
{
    struct cuda *c = context;
    if (c->shown.compute)
        cudaStreamSynchronize(c->shown.compute);
    forget_recording(c);
    free(c->writes);
    for (int i = 0; i < SLOTS; i++) {
        if (c->slots[i].done)
            cudaEventDestroy(c->slots[i].done);
        cudaFreeHost(c->slots[i].memory);
    }
    cudaFreeHost(c->landing);
    if (c->shown.compute)
        cudaStreamDestroy(c->shown.compute);
    if (c->pool)
        cudaMemPoolDestroy(c->pool);
    free(c);
}

static const struct backend cuda = {
    .name = "cuda",
    .take = cuda_take,
    .give_back = cuda_give_back,
    .fill = cuda_fill,
    .write = cuda_write,
    .read = cuda_read,
    .copy = cuda_copy,
    .close = cuda_close,
    .finish = cuda_finish,
    .held_peak = cuda_held_peak,
    .record = cuda_record,
    .recorded = cuda_recorded,
    .rewrite = cuda_rewrite,
    .replay = cuda_replay,
    .forget = cuda_forget,
    .is_watched = device_cuda_is_watched,
    .label = device_cuda_label,
};

int device_cuda_open(int ordinal, int used, const struct backend **backend, void **context, struct error *err)
{
    struct cudaDeviceProp properties;
    if (check_ordinal(ordinal, err) || read_properties(ordinal, &properties, err))
        return -1;
    struct cuda *c = host_alloc(sizeof *c);
    c->shown = (struct cuda_device){.ordinal = ordinal,
                                    .capability = properties.major * 10 + properties.minor,
                                    .multiprocessors = properties.multiProcessorCount};
    if (!open_parts(c, used)) {
        tell(c, err);
        cuda_close(c);
        return -1;
    }
    *backend = &cuda;
    *context = c;
    return 0;
}
