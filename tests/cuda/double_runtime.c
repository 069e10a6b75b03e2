/* Complaints, injected failures, handles, and what a machine has. */
#include "tests/cuda/double_runtime.h"

#include "tests/cuda/double_hooks.h"
#include "tests/cuda/double_memory.h"
#include "tests/cuda/double_shared.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_DEVICES = 16, CONTEXT_BYTES = 440 << 20 };

static const char *const kind_names[KINDS] = {"stream", "event", "memory pool", "graph", "executable graph"};

pthread_mutex_t double_lock = PTHREAD_MUTEX_INITIALIZER;
_Thread_local int double_current_device;

static int living[KINDS];
static bool context_open[MAX_DEVICES];
static bool peers[MAX_DEVICES][MAX_DEVICES];
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
size_t double_device_memory(int device)
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

cudaError_t double_failure(cudaError_t status)
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
    return double_failure(*code == ':' ? (cudaError_t)atoi(code + 1) : cudaErrorMemoryAllocation);
}

/* Before any device is touched. */
static cudaError_t check_driver(void)
{
    if (setting("DOUBLE_CUDA_DRIVER", CUDART_VERSION) < CUDART_VERSION)
        return cudaErrorInsufficientDriver;
    return setting("DOUBLE_CUDA_DEVICES", 1) < 1 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t double_check_device(int device)
{
    cudaError_t status = check_driver();
    if (status == cudaSuccess && (device < 0 || device >= setting("DOUBLE_CUDA_DEVICES", 1)))
        status = cudaErrorInvalidDevice;
    return status;
}

/* Once for each device, and for good. */
static void open_context(int device)
{
    const char *file = getenv("DOUBLE_CUDA_CONTEXTS");
    if (__atomic_exchange_n(&context_open[device], true, __ATOMIC_RELAXED) || !file)
        return;
    FILE *out = fopen(file, "a");
    if (!out)
        return;
    fprintf(out, "%d %d\n", (int)getpid(), device);
    fclose(out);
}

cudaError_t double_enter(const char *name)
{
    cudaError_t status = double_injected(name);
    if (status == cudaSuccess)
        status = double_check_device(double_current_device);
    if (status == cudaSuccess)
        open_context(double_current_device);
    return status == cudaSuccess ? status : double_failure(status);
}

/* ------------------------------------------------------------------------------------------------------------- handles */

void *double_new_handle(enum handle_kind kind, size_t size)
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

bool double_is_alive(const void *memory, enum handle_kind kind, const char *call)
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

void double_end_handle(void *memory)
{
    struct handle *handle = memory;
    handle->alive = false;
    __atomic_sub_fetch(&living[handle->kind], 1, __ATOMIC_RELAXED);
}

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
    return status == cudaSuccess ? status : double_failure(status);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    cudaError_t status = double_check_device(device);
    if (status != cudaSuccess)
        return double_failure(status);
    int capability = setting("DOUBLE_CUDA_CAPABILITY", 90);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "emulated GPU %d", device);
    out->totalGlobalMem = double_device_memory(device);
    out->major = capability / 10;
    out->minor = capability % 10;
    out->pciBusID = setting("DOUBLE_CUDA_PLACE", 0) + device;
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
        status = double_check_device(device);
    if (status != cudaSuccess)
        return double_failure(status);
    double_current_device = device;
    open_context(device);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = double_current_device;
    return cudaSuccess;
}

size_t double_used_bytes(int device)
{
    size_t bytes, used = __atomic_load_n(&context_open[device], __ATOMIC_RELAXED) ? CONTEXT_BYTES : 0;
    memory_count(device, &bytes);
    return used + bytes + double_hook_device_bytes(device) + double_allocate_slack(device);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER();
    pthread_mutex_lock(&double_lock);
    *total_bytes = double_device_memory(double_current_device);
    size_t used = double_used_bytes(double_current_device);
    *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
    pthread_mutex_unlock(&double_lock);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other)
{
    ENTER();
    if (double_check_device(device) != cudaSuccess || double_check_device(other) != cudaSuccess)
        return double_failure(cudaErrorInvalidDevice);
    *can = device != other;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned int flags)
{
    ENTER();
    if (flags || double_check_device(other) != cudaSuccess || other == double_current_device)
        return double_failure(cudaErrorInvalidDevice);
    if (__atomic_exchange_n(&peers[double_current_device][other], true, __ATOMIC_RELAXED))
        return double_failure(cudaErrorPeerAccessAlreadyEnabled);
    open_context(other);
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
