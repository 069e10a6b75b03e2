/* What the doubles of CUDA's libraries must notice: each of these programs does one thing that a GPU would let pass, or would
 * answer with nonsense. */
#include "tests/cuda/double_runtime.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static cudaStream_t stream, other;
static unsigned char *memory; /* of the device, BYTES */

enum { BYTES = 1024 };

#define MUST(call) ck_assert_int_eq(call, cudaSuccess)

static void begin(void)
{
    void *taken;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    MUST(cudaMalloc(&taken, BYTES));
    memory = taken;
    double_listen();
}

static void end(void)
{
    MUST(cudaFree(memory));
    MUST(cudaStreamDestroy(stream));
    MUST(cudaStreamDestroy(other));
    ASSERT_STR(double_listen(), "");
    ASSERT_STR(double_left(), "");
}

TEST(double_orders_streams,
     "a stream that reads what another wrote must wait for its event; so must one that writes")
{
    cudaEvent_t event;
    begin();
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MUST(cudaMemsetAsync(memory, 1, 64, stream));
    MUST(cudaMemcpyAsync(memory + 512, memory + 32, 64, cudaMemcpyDeviceToDevice, other));
    ASSERT_HAS(double_listen(), "cudaMemcpyAsync reads");
    /* An event that was recorded too early does not help. */
    MUST(cudaEventRecord(event, stream));
    MUST(cudaMemsetAsync(memory, 2, 64, stream));
    MUST(cudaStreamWaitEvent(other, event, 0));
    MUST(cudaMemsetAsync(memory, 3, 64, other));
    ASSERT_HAS(double_listen(), "cudaMemsetAsync writes");
    /* Elsewhere there is nothing to wait for. */
    MUST(cudaMemsetAsync(memory + 256, 4, 64, other));
    ASSERT_STR(double_listen(), "");
    MUST(cudaMemsetAsync(memory + 192, 5, 64, stream));
    MUST(cudaEventRecord(event, stream));
    MUST(cudaStreamWaitEvent(other, event, 0));
    MUST(cudaMemcpyAsync(memory + 384, memory + 192, 64, cudaMemcpyDeviceToDevice, other));
    ASSERT_STR(double_listen(), "");
    /* The host may order them too. */
    MUST(cudaStreamSynchronize(other));
    MUST(cudaMemsetAsync(memory + 384, 6, 64, stream));
    ASSERT_STR(double_listen(), "");
    MUST(cudaEventDestroy(event));
    end();
}

TEST(double_arrivals, "what a copy brings is not there before the host has waited for it")
{
    void *pinned;
    begin();
    MUST(cudaMallocHost(&pinned, 64));
    MUST(cudaMemsetAsync(memory, 7, 64, stream));
    MUST(cudaMemcpyAsync(pinned, memory, 64, cudaMemcpyDeviceToHost, stream));
    ASSERT_INT(*(unsigned char *)pinned, 0xff);
    MUST(cudaStreamSynchronize(stream));
    ASSERT_INT(*(unsigned char *)pinned, 7);
    MUST(cudaFreeHost(pinned));
    end();
}

TEST(double_departures, "pinned memory that is changed, or freed, before the copy from it is done")
{
    void *pinned;
    begin();
    MUST(cudaMallocHost(&pinned, 64));
    memset(pinned, 1, 64);
    MUST(cudaMemcpyAsync(memory, pinned, 64, cudaMemcpyHostToDevice, stream));
    memset(pinned, 2, 64);
    MUST(cudaStreamSynchronize(stream));
    ASSERT_HAS(double_listen(), "was changed before the copy from it was done");
    MUST(cudaMemcpyAsync(memory, pinned, 64, cudaMemcpyHostToDevice, stream));
    MUST(cudaFreeHost(pinned));
    ASSERT_HAS(double_listen(), "may not be done yet");
    MUST(cudaStreamDestroy(stream));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    double_listen();
    end();
}

TEST(double_pointers, "pointers that were never allocated, are freed, of the wrong kind, or reach too far")
{
    static unsigned char host[64];
    void *pinned;
    begin();
    MUST(cudaMallocHost(&pinned, 64));
    ASSERT_INT(cudaFree(host), cudaErrorInvalidValue);
    ASSERT_HAS(double_listen(), "was not allocated");
    ASSERT_INT(cudaFree(memory + 1), cudaErrorInvalidValue);
    ASSERT_HAS(double_listen(), "was not allocated");
    ASSERT_INT(cudaFree(pinned), cudaErrorInvalidValue);
    ASSERT_HAS(double_listen(), "another kind of memory");
    cudaMemsetAsync(host, 0, 64, stream);
    ASSERT_HAS(double_listen(), "no living device memory");
    cudaMemsetAsync(memory + BYTES - 63, 0, 64, stream);
    ASSERT_HAS(double_listen(), "reach beyond their allocation");
    cudaMemcpyAsync(host, memory, 64, cudaMemcpyHostToDevice, stream);
    ASSERT_HAS(double_listen(), "no living device memory");
    MUST(cudaFreeHost(pinned));
    void *second;
    MUST(cudaMalloc(&second, 64));
    MUST(cudaFree(second));
    cudaMemsetAsync(second, 0, 64, stream);
    ASSERT_HAS(double_listen(), "no living device memory");
    end();
}

TEST(double_guards, "a write behind an allocation shows when it is freed")
{
    void *second;
    begin();
    MUST(cudaMalloc(&second, 64));
    ((unsigned char *)second)[64] = 1;
    MUST(cudaFree(second));
    ASSERT_HAS(double_listen(), "before or behind");
    end();
}

TEST(double_handles, "streams and events are no use after their end; the default stream is none of ours")
{
    cudaEvent_t event;
    begin();
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MUST(cudaEventDestroy(event));
    ASSERT_INT(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
    ASSERT_HAS(double_listen(), "a event that was destroyed");
    cudaMemsetAsync(memory, 0, 64, NULL);
    ASSERT_HAS(double_listen(), "default stream");
    MUST(cudaStreamDestroy(other));
    cudaMemsetAsync(memory, 0, 64, other);
    ASSERT_HAS(double_listen(), "a stream that was destroyed");
    MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    end();
}

TEST(double_leaks, "what is left at the end is counted by kind")
{
    void *pinned;
    begin();
    MUST(cudaMallocHost(&pinned, 100));
    ASSERT_STR(double_left(), "2 streams, 1 device allocation (1024 bytes), 1 pinned allocation (100 bytes)");
    MUST(cudaFreeHost(pinned));
    end();
}

TEST(double_pool,
     "a pool takes memory in steps, and keeps none over its threshold once the stream was waited for")
{
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                          .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    cudaMemPool_t pool;
    uint64_t reserved, used;
    size_t free_before, free_after, total;
    void *taken;
    begin();
    MUST(cudaMemGetInfo(&free_before, &total));
    MUST(cudaMemPoolCreate(&pool, &properties));
    MUST(cudaMallocFromPoolAsync(&taken, 40 << 20, pool, stream));
    MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    ASSERT_INT(reserved, 64 << 20);
    ASSERT_INT(used, 40 << 20);
    MUST(cudaMemGetInfo(&free_after, &total));
    ASSERT_INT(free_before - free_after, 64 << 20);
    MUST(cudaFreeAsync(taken, stream));
    MUST(cudaMemGetInfo(&free_after, &total));
    ASSERT_INT(free_before - free_after, 64 << 20);
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaMemGetInfo(&free_after, &total));
    ASSERT_INT(free_before - free_after, 0);
    MUST(cudaMemPoolDestroy(pool));
    end();
}

TEST(double_graphs, "a captured graph is done when it is launched, each time anew, and not before")
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    begin();
    MUST(cudaMemsetAsync(memory, 1, 64, stream));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(cudaMemcpyAsync(memory + 64, memory, 64, cudaMemcpyDeviceToDevice, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    ASSERT_INT(memory[64], 0xff);
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaGraphLaunch(exec, stream));
    ASSERT_INT(memory[64], 1);
    MUST(cudaMemsetAsync(memory, 2, 64, stream));
    MUST(cudaGraphLaunch(exec, stream));
    ASSERT_INT(memory[64], 2);
    MUST(cudaGraphExecDestroy(exec));
    ASSERT_STR(double_listen(), "");
    end();
}

TEST(double_capture_rules,
     "a capture ends in failure after what waits for the GPU, and when a stream did not come back")
{
    cudaGraph_t graph;
    cudaEvent_t event;
    void *taken;
    begin();
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ASSERT_INT(cudaMalloc(&taken, 64), cudaErrorStreamCaptureUnsupported);
    ASSERT_INT(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    MUST(cudaMallocHost(&taken, 64));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ASSERT_INT(cudaFreeHost(taken), cudaErrorStreamCaptureUnsupported);
    ASSERT_INT(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    MUST(cudaFreeHost(taken));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ASSERT_INT(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    ASSERT_INT(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    /* The other stream joins, and is not waited for. */
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(cudaEventRecord(event, stream));
    MUST(cudaStreamWaitEvent(other, event, 0));
    MUST(cudaMemsetAsync(memory, 1, 64, other));
    ASSERT_INT(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(cudaEventRecord(event, stream));
    MUST(cudaStreamWaitEvent(other, event, 0));
    MUST(cudaMemsetAsync(memory, 1, 64, other));
    MUST(cudaEventRecord(event, other));
    MUST(cudaStreamWaitEvent(stream, event, 0));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaEventDestroy(event));
    ASSERT_STR(double_listen(), "");
    end();
}

TEST(double_devices, "a thread asks streams of its own device only, which record events of that device only")
{
    cudaEvent_t event;
    setenv("DOUBLE_CUDA_DEVICES", "2", 1);
    begin();
    MUST(cudaSetDevice(1));
    ASSERT_INT(cudaMemsetAsync(memory, 1, 64, stream), cudaErrorInvalidResourceHandle);
    ASSERT_HAS(double_listen(),
               "cudaMemsetAsync: a stream of GPU 0, asked by a thread whose device is GPU 1");
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ASSERT_INT(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
    ASSERT_HAS(double_listen(), "an event of GPU 1 in a stream of GPU 0");
    MUST(cudaEventDestroy(event));
    MUST(cudaSetDevice(0));
    MUST(cudaMemsetAsync(memory, 1, 64, stream));
    end();
}

TEST(double_machine, "the machine is what the environment says")
{
    struct cudaDeviceProp properties;
    int count;
    size_t free_bytes, total_bytes;
    setenv("DOUBLE_CUDA_DEVICES", "2", 1);
    setenv("DOUBLE_CUDA_MEMORY", "3GiB,2048MiB", 1);
    setenv("DOUBLE_CUDA_CAPABILITY", "80", 1);
    MUST(cudaGetDeviceCount(&count));
    ASSERT_INT(count, 2);
    MUST(cudaGetDeviceProperties(&properties, 1));
    ASSERT_INT(properties.major, 8);
    ASSERT_INT(properties.totalGlobalMem, 2LL << 30);
    MUST(cudaSetDevice(1));
    MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
    ASSERT_INT(total_bytes, 2LL << 30);
    ASSERT(free_bytes < total_bytes);
    ASSERT_INT(cudaSetDevice(2), cudaErrorInvalidDevice);
    setenv("DOUBLE_CUDA_DRIVER", "12040", 1);
    ASSERT_INT(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
}
