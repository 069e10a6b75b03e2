/* The profiler under CUPTI, over doubles of CUDA and CUPTI: the driver's ledger, records and their operations, and what
 * happens when there is more than it has room for. tests/cuda/check_cuda_profile.sh has whole runs. */
#include "base/arena.h"
#include "device/backend.h"
#include "device/device.h"
#include "device/device_cuda.h"
#include "profiler/cupti.h"
#include "profiler/gpu_recorder.h"
#include "tests/cuda/double_cupti.h"
#include "tests/cuda/double_hooks.h"
#include "tests/cuda/double_runtime.h"
#include "tests/profiler/sample.h"
#include "tests/profiler/views.h"
#include "tests/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static struct error err;

enum { MIB = 1 << 20, MOST = 1 << 17 };

static struct heard {
    struct cupti_memory *memory;
    struct cupti_span *spans; /* their names are copies */
    int memory_count, span_count;
    char notes[4000];
} heard;

static void hear_memory(void *context, const struct cupti_memory *memory)
{
    (void)context;
    ASSERT(heard.memory_count < MOST);
    heard.memory[heard.memory_count++] = *memory;
}

static void hear_span(void *context, const struct cupti_span *span)
{
    (void)context;
    if (heard.span_count < MOST) {
        heard.spans[heard.span_count] = *span;
        heard.spans[heard.span_count].name = span->name ? strdup(span->name) : NULL;
    }
    heard.span_count++;
}

static void hear_note(void *context, const char *text, bool trouble)
{
    (void)context;
    size_t used = strlen(heard.notes);
    snprintf(heard.notes + used, sizeof heard.notes - used, "%s%s\n", trouble ? "trouble: " : "", text);
}

static void begin(bool timeline)
{
    struct cupti_sink sink = {NULL, hear_memory, hear_span, hear_note};
    heard.memory = host_alloc(MOST * sizeof *heard.memory);
    heard.spans = host_alloc(MOST * sizeof *heard.spans);
    ASSERT_OK(cupti_profiler.start(timeline, &sink, &err));
}

static void end(void)
{
    free(heard.memory);
    for (int i = 0; i < heard.span_count && i < MOST; i++)
        free((char *)heard.spans[i].name);
    free(heard.spans);
}

static struct device *open_device(int ordinal, int used)
{
    const struct backend *backend;
    void *context;
    ASSERT_OK(device_cuda_open(ordinal, used, &backend, &context, &err));
    return device_create(backend, context, 0, false);
}

static void *must_alloc(struct device *device, int64_t bytes)
{
    struct memory_tag tag = {-1, ROLE_ACTIVATION, "a tensor"};
    void *memory = device_alloc(device, bytes, tag, &err);
    ASSERT_MSG(memory != NULL, "%s", err.text);
    return memory;
}

static void work_on(int64_t operation, int step)
{
    cupti_profiler.work((struct cupti_work){operation, step});
}

static int64_t unclaimed_bytes(int device)
{
    struct cupti_holding holdings[CUPTI_OWNERS];
    int64_t bytes = 0;
    int count = cupti_profiler.unclaimed(device, holdings);
    for (int i = 0; i < count; i++)
        bytes += holdings[i].bytes;
    return bytes;
}

TEST(cupti_ledger, "each allocation of the driver has its bytes, call, operation and device, and who asked")
{
    struct device *device = open_device(0, 1);
    void *early = must_alloc(device, 512);
    begin(false);
    work_on(41, 3);
    void *tensor = must_alloc(device, 1000);
    work_on(-1, -1);
    device_free(device, tensor);
    device_free(device, early); /* not known: given out before the start */
    cupti_profiler.drain();
    ASSERT_INT(heard.memory_count, 2);
    const struct cupti_memory *given = &heard.memory[0], *back = &heard.memory[1];
    ASSERT_INT(given->bytes, 1000);
    ASSERT_INT(given->live_bytes, 1000);
    ASSERT_INT(given->address, (int64_t)(intptr_t)tensor);
    ASSERT_INT(given->work.operation, 41);
    ASSERT_INT(given->work.step, 3);
    ASSERT_STR(given->call, "cuMemAllocFromPoolAsync");
    ASSERT(strlen(given->owner) > 0);
    ASSERT_INT(back->bytes, -1000);
    ASSERT_INT(back->live_bytes, 0);
    ASSERT_INT(back->work.operation, -1);
    ASSERT_STR(back->owner, given->owner);
    ASSERT(back->time_ns >= given->time_ns);
    cupti_profiler.stop();
    device_close(device);
    end();
}

TEST(cupti_refused_memory, "what the driver refuses is in no ledger")
{
    setenv("DOUBLE_CUDA_MEMORY", "1GiB", 1);
    struct device *device = open_device(0, 1);
    begin(false);
    struct memory_tag tag = {-1, ROLE_ACTIVATION, "too much"};
    ASSERT(device_alloc(device, 2LL << 30, tag, &err) == NULL);
    struct device_arena *arena;
    ASSERT_INT(device_arena_open(device, 2LL << 30, &arena, &err), -1);
    cupti_profiler.stop();
    ASSERT_INT(heard.memory_count, 0);
    device_close(device);
    end();
}

TEST(cupti_mapped_memory, "memory behind a handle is there until the handle is released and nothing maps it")
{
    begin(false);
    unsigned long long handle = double_cupti_create(0, 10 * MIB), other = double_cupti_create(1, MIB);
    double_cupti_map(handle, 0x10000000, 10 * MIB);
    double_cupti_map(handle, 0x20000000, 10 * MIB);
    ASSERT_INT(cupti_profiler.live_bytes(0), 10 * MIB);
    ASSERT_INT(cupti_profiler.live_bytes(1), MIB);
    ASSERT_INT(unclaimed_bytes(0), 10 * MIB);
    double_cupti_release(handle);
    double_cupti_unmap(0x10000000, 10 * MIB);
    ASSERT_INT(cupti_profiler.live_bytes(0), 10 * MIB);
    double_cupti_unmap(0x20000000, 10 * MIB);
    ASSERT_INT(cupti_profiler.live_bytes(0), 0);
    double_cupti_release(other);
    double_cupti_release(other); /* no more than once */
    ASSERT_INT(cupti_profiler.live_bytes(1), 0);
    cupti_profiler.stop();
    ASSERT_INT(heard.memory_count, 4);
    ASSERT_STR(heard.memory[0].call, "cuMemCreate");
    ASSERT_STR(heard.memory[2].call, "cuMemUnmap");
    end();
}

TEST(cupti_claims, "an allocation that a tensor lies in is claimed, an arena by any tensor in it")
{
    struct device *device = open_device(0, 1);
    struct device_arena *arena;
    begin(false);
    char *tensor = must_alloc(device, 1000);
    ASSERT_OK(device_arena_open(device, 4 * MIB, &arena, &err));
    struct memory_tag tag = {-1, ROLE_ACTIVATION, "placed"};
    char *placed = device_arena_place(device, arena, 1024, 100, tag, &err);
    ASSERT_INT(unclaimed_bytes(0), 4 * MIB + 1000);
    cupti_profiler.claim(0, (int64_t)(intptr_t)(tensor + 1000)); /* behind it */
    cupti_profiler.claim(1, (int64_t)(intptr_t)tensor);          /* of another device */
    ASSERT_INT(unclaimed_bytes(0), 4 * MIB + 1000);
    cupti_profiler.claim(0, (int64_t)(intptr_t)tensor);
    ASSERT_INT(unclaimed_bytes(0), 4 * MIB);
    cupti_profiler.claim(0, (int64_t)(intptr_t)placed);
    ASSERT_INT(unclaimed_bytes(0), 0);
    device_arena_close(device, arena);
    ASSERT_OK(device_arena_open(device, 2 * MIB, &arena, &err)); /* perhaps at the same address */
    ASSERT_INT(unclaimed_bytes(0), 2 * MIB);
    device_close(device);
    ASSERT_INT(cupti_profiler.live_bytes(0), 0);
    cupti_profiler.stop();
    end();
}

TEST(cupti_full_ledger, "changes that find no room are counted, and the sums stay right")
{
    enum { TIMES = 40000 };
    struct device *device = open_device(0, 1);
    begin(false);
    void *kept = must_alloc(device, 64);
    for (int i = 0; i < TIMES; i++)
        device_free(device, must_alloc(device, 4096));
    ASSERT_INT(cupti_profiler.live_bytes(0), 64);
    device_free(device, kept);
    cupti_profiler.stop();
    ASSERT_INT(heard.memory_count, 1 << 15);
    ASSERT_HAS(heard.notes, "trouble: 47234 allocations or releases found no room"); /* 2 x 40001 - 2^15 */
    device_close(device);
    end();
}

TEST(
    cupti_spans,
    "kernels, copies and fills have the operation that asked for them, and times; ranges of others are there")
{
    begin(true);
    double_hook_work(0, 5, "before", 0);
    work_on(7, 0);
    double_hook_work(0, 5, "_Z11norm_kernelI13__nv_bfloat16Li8ELb1EEv9norm_args", 0);
    double_hook_work(0, 5, "cudaMemcpyAsync", 300);
    work_on(8, 0);
    double_hook_work(1, 6, "cudaMemsetAsync", 40);
    work_on(-1, -1);
    unsigned outer = double_cupti_range_begin(NULL, "a range"),
             own = double_cupti_range_begin("memplan", "step 1");
    double_cupti_range_end("memplan", own);
    double_cupti_range_end(NULL, outer);
    cupti_profiler.drain();
    ASSERT_INT(heard.span_count, 0); /* no buffer is full */
    cupti_profiler.stop();
    static const struct {
        enum cupti_span_kind kind;
        int device, step;
        int64_t operation, bytes;
        const char *name;
    } expected[] = {{CUPTI_SPAN_RANGE, -1, -1, -1, 0, "a range"},
                    {CUPTI_SPAN_KERNEL, 0, 0, 7, 0, "norm_kernel<__nv_bfloat16, 8, true>"},
                    {CUPTI_SPAN_COPY, 0, 0, 7, 300, NULL},
                    {CUPTI_SPAN_FILL, 1, 0, 8, 40, NULL},
                    {CUPTI_SPAN_KERNEL, 0, -1, -1, 0, "before"}};
    ASSERT_INT(heard.span_count, 5);
    for (int i = 0; i < 5; i++) {
        const struct cupti_span *span = &heard.spans[i];
        ASSERT_INT(span->kind, expected[i].kind);
        ASSERT_INT(span->device, expected[i].device);
        ASSERT_INT(span->work.operation, expected[i].operation);
        ASSERT_INT(span->work.step, expected[i].step);
        ASSERT_INT(span->bytes, expected[i].bytes);
        ASSERT(!span->name == !expected[i].name && (!span->name || !strcmp(span->name, expected[i].name)));
        ASSERT(span->start_ns > 0 && span->end_ns >= span->start_ns);
    }
    ASSERT_HAS(heard.notes, "0.002 s of the run were CUPTI's own");
    ASSERT_MSG(!strstr(heard.notes, "trouble"), "%s", heard.notes);
    end();
}

enum { RANKS = 4, WORKS = 20000 };

static void *run_rank(void *argument)
{
    int rank = *(int *)argument;
    for (int i = 0; i < WORKS; i++) {
        work_on(1000 * (rank + 1) + i % 100, i / 100);
        double_hook_work(rank, rank, "kernel", 0);
    }
    work_on(-1, -1);
    return NULL;
}

TEST(cupti_threads, "operations of several threads keep apart, in more records than a buffer holds")
{
    pthread_t threads[RANKS];
    int numbers[RANKS];
    static int seen[RANKS][WORKS];
    begin(true);
    for (int i = 0; i < RANKS; i++) {
        numbers[i] = i;
        ASSERT_INT(pthread_create(&threads[i], NULL, run_rank, &numbers[i]), 0);
    }
    for (int i = 0; i < 100; i++)
        cupti_profiler.drain();
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    cupti_profiler.stop();
    ASSERT_INT(heard.span_count, RANKS * WORKS);
    for (int i = 0; i < heard.span_count; i++) {
        const struct cupti_span *span = &heard.spans[i];
        ASSERT_INT(span->work.operation / 1000, span->device + 1);
        seen[span->device][span->work.step * 100 + (int)(span->work.operation % 1000)]++;
    }
    for (int i = 0; i < RANKS * WORKS; i++)
        ASSERT_INT(seen[i / WORKS][i % WORKS], 1);
    end();
}

TEST(cupti_full_buffers, "when nobody reads, memory stays bounded and what is dropped is counted")
{
    enum { TIMES = 250000 }; /* of 280 bytes; 64 MiB hold 239,674 */
    int dropped = -1;
    begin(true);
    work_on(1, 0);
    for (int i = 0; i < TIMES; i++)
        double_hook_work(0, 0, "kernel", 0);
    work_on(-1, -1);
    cupti_profiler.stop();
    const char *note = strstr(heard.notes, "records were dropped");
    ASSERT_MSG(note != NULL, "%s", heard.notes);
    sscanf(strstr(heard.notes, "trouble: "), "trouble: %d records", &dropped);
    ASSERT(dropped > 0 && heard.span_count < TIMES && heard.span_count > 0);
    end();
}

TEST(cupti_twice, "what was stopped can be started again, from nothing")
{
    struct device *device = open_device(0, 1);
    for (int i = 0; i < 3; i++) {
        begin(i % 2);
        must_alloc(device, 4096);
        double_hook_work(0, 0, "kernel", 0);
        ASSERT_INT(cupti_profiler.live_bytes(0), 4096);
        cupti_profiler.stop();
        ASSERT_INT(heard.memory_count, 1);
        ASSERT_INT(heard.span_count, i % 2);
        end();
        heard = (struct heard){0};
    }
    device_close(device);
}

/* ------------------------------------------------------------------------------------------------------ the recorder's */

static char said[4000];

static void say(const char *sentence)
{
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", sentence);
}

static struct cuda_library library = {
    .describe = device_cuda_describe, .memory = device_cuda_memory, .profiler = &cupti_profiler};

static struct gpu_recorder *open_gpu(struct recorder *recorder, int ranks)
{
    struct gpu_recorder_spec spec = {
        .library = &library, .recorder = recorder, .ranks = ranks, .timeline = true, .say = say};
    return gpu_recorder_open(&spec);
}

static struct recorder *open_recorder(const char *path, int ranks)
{
    struct store_run run = {.command = "test", .ranks = ranks};
    struct recorder *recorder;
    ASSERT_OK(recorder_open(path, &run, &recorder, &err));
    return recorder;
}

/* One operation of one step with a tensor and a kernel, by a rank on its GPU; 5 MiB are allocated by nobody known. */
static void run_gpu_rank(struct gpu_recorder *gpu, int rank, int ranks, void **unknown)
{
    struct device *device = open_device(rank, ranks);
    gpu_recorder_start(gpu, rank, device);
    struct observer observer = gpu_recorder_observer(gpu, rank);
    ASSERT_OK(device_observe(device, &observer, &err));
    gpu_recorder_step_begin(gpu, rank);
    device_range_begin(device, 70 + rank, 0);
    must_alloc(device, (rank + 1) * MIB);
    double_hook_work(rank, 0, "kernel", 0);
    device_range_end(device);
    ASSERT_INT(cudaMalloc(unknown, 5 * MIB), cudaSuccess);
    gpu_recorder_step_end(gpu, rank);
    gpu_recorder_finish(gpu, rank);
    cudaFree(*unknown);
    device_close(device);
}

static int64_t named_bytes(struct store *store, int rank, const char *part)
{
    struct arena *arena = arena_create();
    struct store_runtime *rows;
    int64_t count, bytes = -1;
    ASSERT_OK(store_read_runtime(store, 1, rank, arena, &rows, &count, &err));
    for (int64_t i = 0; i < count; i++)
        if (strstr(rows[i].name, part))
            bytes = rows[i].bytes;
    arena_free(arena);
    return bytes;
}

TEST(cupti_two_gpus, "the rows of two GPUs are those of their ranks")
{
    char folder[64], path[128];
    struct store *store;
    void *unknown;
    setenv("DOUBLE_CUDA_DEVICES", "2", 1);
    scratch_open(folder);
    struct recorder *recorder = open_recorder(scratch_path(folder, "run.db", path), 2);
    struct gpu_recorder *gpu = open_gpu(recorder, 2);
    for (int rank = 0; rank < 2; rank++)
        run_gpu_rank(gpu, rank, 2, &unknown);
    gpu_recorder_close(gpu);
    ASSERT_OK(recorder_close(recorder, &err));
    ASSERT_STR(said, "");
    ASSERT_OK(store_open_read(path, &store, &err));
    for (int rank = 0; rank < 2; rank++) {
        ASSERT_INT(named_bytes(store, rank, "CUDA context"), 440 * MIB);
        ASSERT_INT(named_bytes(store, rank, "CUPTI"), DOUBLE_CUPTI_TIMELINE_BYTES);
        ASSERT_INT(named_bytes(store, rank, "allocated by"), 5 * MIB);
        ASSERT_INT(named_bytes(store, rank, "rounding"), (32 - (rank + 1)) * MIB);
        ASSERT_INT(named_bytes(store, rank, "unattributed"), 0);
        struct arena *arena = arena_create();
        struct views_span *spans;
        int64_t count;
        ASSERT_OK(views_kernels(store, 1, rank, 0, arena, &spans, &count, &err));
        ASSERT_INT(count, 1);
        ASSERT_INT(spans[0].kernel.operation_id, 70 + rank);
        arena_free(arena);
    }
    store_close(store);
    scratch_close(folder);
}

TEST(cupti_failed_file, "when the file cannot be written, CUPTI is let go nevertheless")
{
    char folder[64], path[128];
    struct rlimit before, limit;
    void *unknown;
    scratch_open(folder);
    signal(SIGXFSZ, SIG_IGN);
    struct recorder *recorder = open_recorder(scratch_path(folder, "run.db", path), 1);
    struct gpu_recorder *gpu = open_gpu(recorder, 1);
    ASSERT_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 4096;
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    run_gpu_rank(gpu, 0, 1, &unknown);
    gpu_recorder_close(gpu);
    ASSERT_INT(recorder_close(recorder, &err), -1);
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_HAS(err.text, "cannot be written");
    scratch_close(folder);
}

static int unanswered(void *context, struct cuda_memory *out, struct error *e)
{
    (void)context, (void)out;
    return error_set(e, "no answer");
}

TEST(cupti_no_answer, "a driver that does not say what is free costs the figures and nothing else")
{
    char folder[64], path[128];
    struct store *store;
    void *unknown;
    library.memory = unanswered;
    scratch_open(folder);
    struct recorder *recorder = open_recorder(scratch_path(folder, "run.db", path), 1);
    struct gpu_recorder *gpu = open_gpu(recorder, 1);
    run_gpu_rank(gpu, 0, 1, &unknown);
    gpu_recorder_close(gpu);
    ASSERT_OK(recorder_close(recorder, &err));
    ASSERT_HAS(said, "the driver did not say what is free");
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_INT(named_bytes(store, 0, ""), -1);
    store_close(store);
    scratch_close(folder);
}
