/* The CUDA back end of the device, over the double of the CUDA runtime or on a GPU (machine.h): the same contract as the CPU's, and what only a GPU
 * has: staging, recordings, several GPUs, and a runtime in which every call can fail. */
#include "base/arena.h"
#include "device/backend.h"
#include "device/device.h"
#include "device/device_cuda.h"
#include "tests/cuda/machine.h"
#include "tests/test.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct error err;

static int try_open(int ordinal, int used, int64_t capacity, bool poison, struct device **out)
{
    const struct backend *backend;
    void *context;
    if (device_cuda_open(ordinal, used, &backend, &context, &err))
        return -1;
    *out = device_create(backend, context, capacity, poison);
    return 0;
}

static struct device *must_open(int64_t capacity)
{
    struct device *device = NULL;
    ASSERT_OK(try_open(0, 1, capacity, false, &device));
    return device;
}

static struct memory_tag tag_of(const char *name)
{
    return (struct memory_tag){.tensor = -1, .role = ROLE_ACTIVATION, .name = name};
}

static unsigned char *must_alloc(struct device *device, int64_t bytes)
{
    unsigned char *memory = device_alloc(device, bytes, tag_of("a tensor"), &err);
    ASSERT_MSG(memory != NULL, "%s", err.text);
    return memory;
}

static void close_all(struct device *device)
{
    device_close(device);
    ASSERT_STR(machine_left(), "");
}

TEST(cuda_device_copies,
     "what is written, copied and filled is read back, more than fits the staging ring too")
{
    enum { BYTES = 21 << 20 };
    struct device *device = must_open(0);
    unsigned char *first = must_alloc(device, BYTES), *second = must_alloc(device, BYTES);
    unsigned char *out = host_alloc(BYTES), *in = host_alloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        out[i] = (unsigned char)(i * 7 + i / 251);
    device_write(device, first, out, BYTES);
    device_copy(device, second, first, BYTES);
    device_read(device, in, second, BYTES);
    ASSERT_OK(device_finish(device, &err));
    ASSERT(!memcmp(in, out, BYTES));
    ASSERT(device_is_asynchronous(device));
    free(in);
    free(out);
    close_all(device);
}

TEST(cuda_device_small_writes,
     "many small writes, each of which the host changes at once, arrive as they were made")
{
    enum { COUNT = 100000 };
    struct device *device = must_open(0);
    int32_t *memory = (int32_t *)must_alloc(device, COUNT * 4), *in = host_alloc(COUNT * 4);
    for (int32_t i = 0; i < COUNT; i++) {
        int32_t value = 3 * i + 1;
        device_write(device, memory + i, &value, sizeof value);
        value = -1;
    }
    device_read(device, in, memory, COUNT * 4);
    ASSERT_OK(device_finish(device, &err));
    for (int32_t i = 0; i < COUNT; i++)
        ASSERT_INT(in[i], 3 * i + 1);
    free(in);
    close_all(device);
}

TEST(cuda_device_capacity,
     "capacity and ledger are exact; an arena of one byte more is refused as the CPU's is")
{
    struct device *device = must_open(1 << 20);
    struct device_arena *arena;
    must_alloc(device, 4096);
    ASSERT_INT(device_arena_open(device, (1 << 20) - 4095, &arena, &err), -1);
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT_HAS(err.text, "cuda: an arena needs");
    ASSERT_OK(device_arena_open(device, (1 << 20) - 4096, &arena, &err));
    struct device_usage usage = device_usage(device);
    ASSERT_INT(usage.live_bytes, 4096);
    ASSERT_INT(usage.reserved_bytes, 1 << 20);
    /* The arena as it is, and 32 MiB that the pool took for the tensor; a GPU's pool has steps of its own. */
    if (machine_is_emulated())
        ASSERT_INT(usage.machine_peak_bytes, (1 << 20) - 4096 + (32 << 20));
    ASSERT(usage.machine_peak_bytes >= 1 << 20);
    close_all(device);
}

TEST(cuda_device_machine_full, "when the GPU itself has no more, that is an answer, and the device works on")
{
    NEEDS_DOUBLES;
    setenv("DOUBLE_CUDA_MEMORY", "600MiB", 1);
    struct device *device = must_open(0);
    struct device_arena *arena;
    ASSERT(!device_alloc(device, 1 << 30, tag_of("too much"), &err));
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT_HAS(err.text, "too much needs 1.00 GiB but the machine has no more to give");
    ASSERT_INT(device_arena_open(device, 1 << 30, &arena, &err), -1);
    ASSERT_INT(err.kind, ERROR_MEMORY);
    must_alloc(device, 1 << 20);
    ASSERT_OK(device_finish(device, &err));
    close_all(device);
}

TEST(cuda_device_pool, "what tensors gave back is kept for the next step, and free for others where somebody "
                       "asks what is in use")
{
    struct cuda_memory before, full, after;
    size_t free_bytes, total_bytes;
    struct device *device = must_open(0);
    ASSERT_OK(device_cuda_memory(device_context(device), &before, &err));
    unsigned char *memory = must_alloc(device, 100 << 20);
    ASSERT_OK(device_cuda_memory(device_context(device), &full, &err));
    device_free(device, memory);
    ASSERT_OK(device_finish(device, &err));
    ASSERT_INT(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
    ASSERT_OK(device_cuda_memory(device_context(device), &after, &err));
    ASSERT(after.slack_bytes < 64 << 20);
    /* What a GPU has free the tests change that run beside this one. */
    if (machine_is_emulated()) {
        ASSERT_INT(after.slack_bytes, 0);
        ASSERT(full.free_bytes <= before.free_bytes - (100 << 20));
        ASSERT_INT((int64_t)free_bytes, full.free_bytes);
        ASSERT_INT(after.free_bytes, before.free_bytes);
    }
    close_all(device);
}

TEST(cuda_device_poison, "a poisoned GPU fills new and dead memory with NaNs, in the order of the other work")
{
    struct device *device = NULL;
    struct device_arena *arena;
    unsigned char byte = 5, in[64];
    ASSERT_OK(try_open(0, 1, 0, true, &device));
    ASSERT_OK(device_arena_open(device, 256, &arena, &err));
    unsigned char *memory = device_arena_place(device, arena, 64, 64, tag_of("placed"), &err);
    device_write(device, memory, &byte, 1);
    device_read(device, in, memory, 64);
    ASSERT_INT(in[0], 5);
    ASSERT_INT(in[1], 0xff);
    device_arena_remove(device, arena, memory, 64, tag_of("placed"));
    device_read(device, in, memory, 64);
    ASSERT_INT(in[0], 0xff);
    close_all(device);
}

/* Two writes and a copy. */
static void ask(struct device *device, unsigned char *memory, unsigned char a, unsigned char b)
{
    device_write(device, memory, &a, 1);
    device_write(device, memory + 64, &b, 1);
    device_copy(device, memory + 128, memory, 65);
}

TEST(cuda_device_recording,
     "a recording is done when it is recorded and when it is replayed, with new values")
{
    struct device *device = must_open(0);
    unsigned char *memory = must_alloc(device, 256), in[256];
    ASSERT(device_can_record(device));
    ASSERT_OK(device_record(device, &err));
    ask(device, memory, 1, 2);
    if (machine_is_emulated())
        ASSERT_INT(memory[0], 0xff);
    ASSERT_OK(device_recorded(device, &err));
    device_read(device, in, memory, 256);
    ASSERT(in[0] == 1 && in[64] == 2 && in[128] == 1 && in[192] == 2);
    for (unsigned char step = 3; step < 6; step++) {
        unsigned char next = step + 1;
        device_rewrite(device);
        device_write(device, memory, &step, 1);
        device_write(device, memory + 64, &next, 1);
        ASSERT_OK(device_replay(device, &err));
        device_read(device, in, memory, 256);
        ASSERT(in[128] == step && in[192] == next);
    }
    close_all(device);
}

TEST(cuda_device_recording_strays, "writes that are not those of the recording, or are missing, are refused")
{
    struct device *device = must_open(0);
    unsigned char *memory = must_alloc(device, 256), byte = 9;
    ASSERT_OK(device_record(device, &err));
    ask(device, memory, 1, 2);
    ASSERT_OK(device_recorded(device, &err));
    device_rewrite(device);
    device_write(device, memory, &byte, 1);
    ASSERT_INT(device_replay(device, &err), -1);
    ASSERT_HAS(err.text, "1 of 2 writes of a recorded step were made");
    close_all(device);
    device = must_open(0);
    memory = must_alloc(device, 256);
    ASSERT_OK(device_record(device, &err));
    ask(device, memory, 1, 2);
    ASSERT_OK(device_recorded(device, &err));
    device_rewrite(device);
    device_write(device, memory + 64, &byte, 1);
    ASSERT_INT(device_replay(device, &err), -1);
    ASSERT_HAS(err.text, "write 0 of a recorded step is another than when it was recorded");
    close_all(device);
}

TEST(cuda_device_recording_spoilt, "what cannot be recorded spoils the recording, and nothing else")
{
    struct device *device = must_open(0);
    unsigned char *memory = must_alloc(device, 256), in[1];
    ASSERT_OK(device_record(device, &err));
    ask(device, memory, 1, 2);
    device_read(device, in, memory, 1);
    ASSERT_INT(device_recorded(device, &err), -1);
    ASSERT_HAS(err.text, "cudaStreamSynchronize failed: operation not permitted when stream is capturing");
    ask(device, memory, 3, 4);
    device_read(device, in, memory + 128, 1);
    ASSERT_OK(device_finish(device, &err));
    ASSERT_INT(in[0], 3);
    close_all(device);
}

TEST_LOOP(cuda_device_queues,
          "CUDA is asked for all the queues that it can have, unless the user asks for others", 2)
{
    const char *const asked[] = {NULL, "4"}, *const expected[] = {"32", "4"};
    ASSERT_MSG(getenv("CUDA_DEVICE_MAX_CONNECTIONS") != NULL, "not asked when the library was loaded");
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (asked[_i])
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", asked[_i], 1);
    device_cuda_ask_for_queues();
    ASSERT_STR(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), expected[_i]);
}

/* All that a device does, once. 0, or -1 with err. */
static int use_everything(void)
{
    struct device *device = NULL;
    struct device_arena *arena;
    unsigned char byte = 1;
    if (try_open(0, 2, 0, false, &device))
        return -1;
    int status = device_arena_open(device, 4096, &arena, &err);
    void *memory = status ? NULL : device_alloc(device, 64, tag_of("a tensor"), &err);
    if (memory) {
        device_write(device, memory, &byte, 1);
        device_read(device, &byte, memory, 1);
        device_free(device, memory);
    }
    status = !memory || device_finish(device, &err) ? -1 : 0;
    device_close(device);
    return status;
}

static const char *const calls[] = {"cudaSetDevice",
                                    "cudaStreamCreateWithFlags",
                                    "cudaMemPoolCreate",
                                    "cudaMemPoolSetAttribute",
                                    "cudaMallocHost",
                                    "cudaEventCreateWithFlags",
                                    "cudaMemcpyAsync",
                                    "cudaStreamSynchronize",
                                    "cudaDeviceCanAccessPeer",
                                    "cudaMemPoolSetAccess",
                                    "cudaDeviceEnablePeerAccess"};

TEST_LOOP(cuda_device_failures,
          "whichever call of the runtime fails, one sentence says which, and nothing is left",
          (int)(sizeof calls / sizeof *calls))
{
    NEEDS_DOUBLES;
    char setting[64];
    snprintf(setting, sizeof setting, "%s:1:999", calls[_i]);
    setenv("DOUBLE_CUDA_DEVICES", "2", 1);
    setenv("DOUBLE_CUDA_FAIL", setting, 1);
    ASSERT_INT(use_everything(), -1);
    ASSERT_HAS(err.text, calls[_i]);
    ASSERT_HAS(err.text, "GPU 0: ");
    ASSERT_HAS(err.text, "or use --device cpu");
    ASSERT_STR(machine_left(), "");
}

TEST(cuda_device_machines, "no driver, an old one, no GPU, too old a GPU: each has its sentence")
{
    struct device *device;
    int count;
    NEEDS_DOUBLES;
    setenv("DOUBLE_CUDA_DRIVER", "0", 1);
    ASSERT_INT(device_cuda_count(&count, &err), -1);
    ASSERT_HAS(err.text, "no NVIDIA driver is loaded on this machine");
    setenv("DOUBLE_CUDA_DRIVER", "12040", 1);
    ASSERT_INT(device_cuda_count(&count, &err), -1);
    ASSERT_HAS(err.text, "the NVIDIA driver is for CUDA 12.4 and this build needs CUDA 13.0");
    unsetenv("DOUBLE_CUDA_DRIVER");
    setenv("DOUBLE_CUDA_DEVICES", "0", 1);
    ASSERT_INT(device_cuda_count(&count, &err), -1);
    ASSERT_HAS(err.text, "no CUDA-capable device is detected");
    unsetenv("DOUBLE_CUDA_DEVICES");
    setenv("DOUBLE_CUDA_CAPABILITY", "75", 1);
    ASSERT_INT(try_open(0, 1, 0, false, &device), -1);
    ASSERT_HAS(err.text, "has compute capability 7.5 and the kernels need 8.0");
    unsetenv("DOUBLE_CUDA_CAPABILITY");
    ASSERT_INT(try_open(1, 1, 0, false, &device), -1);
    ASSERT_HAS(err.text, "GPU 1 is not there: this process sees 1");
}
