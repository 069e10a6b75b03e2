#include "profiler/gpu_recorder.h"

#include "base/arena.h"
#include "base/clock.h"
#include "profiler/cupti.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps of setting up; each has a row for the bytes that appeared in it. */
enum mark { MARK_CONTEXT, MARK_CUPTI, MARK_DEVICE, MARK_SETUP, MARK_FIRST_STEP, MARKS };

static const char *const mark_names[MARKS] = {
    [MARK_CONTEXT] = "CUDA context, and others before the run",
    [MARK_CUPTI] = "CUPTI",
    [MARK_DEVICE] = "streams, events and pool",
    [MARK_SETUP] = "libraries while setting up",
    [MARK_FIRST_STEP] = "code of kernels, in the first step",
};

struct gpu_rank {
    struct gpu_recorder *gpu;
    int rank, ordinal;
    struct device *device; /* NULL until it is opened */
    int64_t marks[MARKS];
    int64_t named_bytes; /* sum of the marks so far */
    int next;            /* mark */
    bool lost;           /* the driver does not answer */
};

struct gpu_recorder {
    struct gpu_recorder_spec spec;
    const struct cupti *cupti; /* NULL: not to be had */
    int64_t start_ns;          /* of the recording */
    struct gpu_rank *ranks;
    /* While the store is lent to us. */
    struct store *store;
    int64_t run_id, driver_count, span_count;
};

static struct gpu_rank *rank_of(struct gpu_recorder *gpu, int rank)
{
    return &gpu->ranks[rank - gpu->spec.first_rank];
}

/* -------------------------------------------------------------------------------------------- rows, while lent the store */

static int rank_of_device(const struct gpu_recorder *gpu, int device)
{
    int index = device - gpu->spec.first_device;
    return index >= 0 && index < gpu->spec.ranks ? gpu->spec.first_rank + index : -1;
}

static bool wanted(const struct gpu_recorder *gpu, int step)
{
    return gpu->store && (gpu->spec.event_steps == 0 || step < gpu->spec.event_steps);
}

static void on_memory(void *context, const struct cupti_memory *memory)
{
    struct gpu_recorder *gpu = context;
    int rank = rank_of_device(gpu, memory->device);
    if (rank < 0 || !wanted(gpu, memory->work.step))
        return;
    struct store_driver_event row = {
        .seq = gpu->driver_count++,
        .time_ns = memory->time_ns - gpu->start_ns,
        .step = memory->work.step,
        .operation_id = memory->work.operation,
        .bytes = memory->bytes,
        .live_bytes = memory->live_bytes,
        .address = memory->address,
        .call = memory->call,
        .owner = memory->owner,
    };
    store_driver_event_add(gpu->store, gpu->run_id, rank, &row, NULL);
}

/* Ranges are of the host, and of no GPU: they go to the first rank. */
static void on_span(void *context, const struct cupti_span *span)
{
    static const char *const kinds[] = {
        [CUPTI_SPAN_KERNEL] = "kernel",
        [CUPTI_SPAN_COPY] = "copy",
        [CUPTI_SPAN_FILL] = "fill",
        [CUPTI_SPAN_RANGE] = "range",
    };
    struct gpu_recorder *gpu = context;
    int rank = span->kind == CUPTI_SPAN_RANGE ? gpu->spec.first_rank : rank_of_device(gpu, span->device);
    bool timed = span->start_ns || span->end_ns;
    if (rank < 0 || !wanted(gpu, span->work.step))
        return;
    struct store_gpu_span row = {
        .seq = gpu->span_count++,
        .step = span->work.step,
        .operation_id = span->work.operation,
        .kind = kinds[span->kind],
        .name = span->name,
        .stream = span->stream,
        .start_ns = timed ? span->start_ns - gpu->start_ns : 0,
        .end_ns = timed ? span->end_ns - gpu->start_ns : 0,
        .bytes = span->bytes,
    };
    store_span_add(gpu->store, gpu->run_id, rank, &row, NULL);
}

/* Into the file; trouble also to who is there to read it. */
static void on_note(void *context, const char *text, bool trouble)
{
    struct gpu_recorder *gpu = context;
    if (gpu->store)
        store_note_add(gpu->store, gpu->run_id, gpu->spec.first_rank, text, NULL);
    if (trouble)
        gpu->spec.say(text);
}

static void borrow(struct gpu_recorder *gpu, struct store *store, int64_t run_id)
{
    gpu->store = store;
    gpu->run_id = run_id;
}

static void write_start(void *context, struct store *store, int64_t run_id)
{
    struct gpu_recorder *gpu = context;
    struct cupti_sink sink = {gpu, on_memory, on_span, on_note};
    struct error error;
    borrow(gpu, store, run_id);
    gpu->cupti = gpu->spec.library->profiler;
    if (gpu->cupti->start(gpu->spec.timeline, &sink, &error)) {
        gpu->cupti = NULL;
        error_prefix(&error, "who else takes memory of the GPU is not recorded");
        on_note(gpu, error.text, true);
    }
    borrow(gpu, NULL, 0);
}

static void write_drained(void *context, struct store *store, int64_t run_id)
{
    struct gpu_recorder *gpu = context;
    borrow(gpu, store, run_id);
    gpu->cupti->drain();
    borrow(gpu, NULL, 0);
}

static void write_stop(void *context, struct store *store, int64_t run_id)
{
    struct gpu_recorder *gpu = context;
    borrow(gpu, store, run_id);
    gpu->cupti->stop();
    if (store && gpu->spec.timeline)
        store_spans_as_kernels(store, run_id, NULL);
    borrow(gpu, NULL, 0);
}

/* ------------------------------------------------------------------------------------------------------- what is in use */

/* Bytes of the GPU that are in use and that neither the ledger nor the pool explains; -1 when the driver does not answer. */
static int64_t unexplained(struct gpu_rank *r)
{
    const struct gpu_recorder *gpu = r->gpu;
    struct cuda_memory memory;
    if (gpu->spec.library->memory(device_context(r->device), &memory, NULL))
        return -1;
    int64_t counted =
        gpu->cupti ? gpu->cupti->live_bytes(r->ordinal) : device_usage(r->device).reserved_bytes;
    return memory.total_bytes - memory.free_bytes - memory.slack_bytes - counted;
}

/* What has appeared since the mark before this belongs to `mark`. */
static void set_mark(struct gpu_rank *r, enum mark mark, int64_t bytes)
{
    if (bytes < 0)
        r->lost = true;
    if (r->lost)
        return;
    r->marks[mark] = bytes - r->named_bytes;
    r->named_bytes = bytes;
    r->next = mark + 1;
}

/* Before the device is there: no memory of ours is either. */
static int64_t in_use(const struct gpu_rank *r)
{
    struct cuda_description description;
    if (r->gpu->spec.library->describe(r->ordinal, &description, NULL))
        return -1;
    return description.total_bytes - description.free_bytes;
}

static void mark_all(struct gpu_recorder *gpu, enum mark mark)
{
    for (int i = 0; i < gpu->spec.ranks; i++)
        set_mark(&gpu->ranks[i], mark, in_use(&gpu->ranks[i]));
}

/* --------------------------------------------------------------------------------------------------------- open and close */

struct gpu_recorder *gpu_recorder_open(const struct gpu_recorder_spec *spec)
{
    struct gpu_recorder *gpu = host_alloc(sizeof *gpu);
    gpu->spec = *spec;
    gpu->start_ns = clock_ns() - recorder_age_ns(spec->recorder);
    gpu->ranks = host_alloc((size_t)spec->ranks * sizeof *gpu->ranks);
    for (int i = 0; i < spec->ranks; i++)
        gpu->ranks[i] =
            (struct gpu_rank){.gpu = gpu, .rank = spec->first_rank + i, .ordinal = spec->first_device + i};
    mark_all(gpu, MARK_CONTEXT);
    recorder_write(spec->recorder, write_start, gpu);
    if (gpu->cupti) {
        mark_all(gpu, MARK_CUPTI);
        recorder_set_source(spec->recorder, write_drained, gpu);
    }
    return gpu;
}

void gpu_recorder_close(struct gpu_recorder *gpu)
{
    if (!gpu)
        return;
    if (gpu->cupti) {
        recorder_set_source(gpu->spec.recorder, NULL, NULL);
        if (!recorder_write(gpu->spec.recorder, write_stop, gpu))
            write_stop(gpu, NULL, 0);
    }
    free(gpu->ranks);
    free(gpu);
}

/* -------------------------------------------------------------------------------------------------- on a rank's thread */

static void on_begin(void *context, int64_t operation, int step)
{
    const struct gpu_rank *r = context;
    r->gpu->cupti->work((struct cupti_work){operation, step});
}

static void on_range(void *context, const struct range_event *event)
{
    const struct gpu_rank *r = context;
    (void)event;
    r->gpu->cupti->work((struct cupti_work){-1, -1});
}

static void on_tensor(void *context, const struct memory_event *event)
{
    const struct gpu_rank *r = context;
    if (event->bytes > 0)
        r->gpu->cupti->claim(r->ordinal, event->address);
}

struct observer gpu_recorder_observer(struct gpu_recorder *gpu, int rank)
{
    if (!gpu->cupti)
        return (struct observer){0};
    return (struct observer){
        .context = rank_of(gpu, rank), .begin = on_begin, .memory = on_tensor, .range = on_range};
}

void gpu_recorder_start(struct gpu_recorder *gpu, int rank, struct device *device)
{
    struct gpu_rank *r = rank_of(gpu, rank);
    r->device = device;
    set_mark(r, MARK_DEVICE, unexplained(r));
}

void gpu_recorder_step_begin(struct gpu_recorder *gpu, int rank)
{
    struct gpu_rank *r = rank_of(gpu, rank);
    if (r->next <= MARK_SETUP)
        set_mark(r, MARK_SETUP, unexplained(r));
}

void gpu_recorder_step_end(struct gpu_recorder *gpu, int rank)
{
    struct gpu_rank *r = rank_of(gpu, rank);
    if (r->next <= MARK_FIRST_STEP)
        set_mark(r, MARK_FIRST_STEP, unexplained(r));
}

/* ------------------------------------------------------------------------------------------------------ a rank's rows */

struct rank_rows {
    const struct gpu_rank *rank;
    int64_t slack_bytes, residual_bytes;
    struct cupti_holding holdings[CUPTI_OWNERS];
    int holding_count;
};

static void write_runtime(void *context, struct store *store, int64_t run_id)
{
    const struct rank_rows *rows = context;
    const struct gpu_rank *r = rows->rank;
    struct store_runtime row;
    for (int i = 0; i < MARKS; i++) {
        row = (struct store_runtime){mark_names[i], "measured", r->marks[i]};
        if (row.bytes)
            store_runtime_add(store, run_id, r->rank, &row, NULL);
    }
    for (int i = 0; i < rows->holding_count; i++) {
        char name[300];
        snprintf(name, sizeof name, "allocated by %s", rows->holdings[i].owner);
        row = (struct store_runtime){name, "counted", rows->holdings[i].bytes};
        store_runtime_add(store, run_id, r->rank, &row, NULL);
    }
    row = (struct store_runtime){"rounding of the memory pool", "measured", rows->slack_bytes};
    if (row.bytes)
        store_runtime_add(store, run_id, r->rank, &row, NULL);
    row = (struct store_runtime){"unattributed", "residual", rows->residual_bytes};
    store_runtime_add(store, run_id, r->rank, &row, NULL);
}

struct note {
    const char *text;
    int rank;
};

static void write_note(void *context, struct store *store, int64_t run_id)
{
    const struct note *note = context;
    store_note_add(store, run_id, note->rank, note->text, NULL);
}

static void say(const struct gpu_rank *r, const char *text)
{
    struct note note = {text, r->rank};
    recorder_write(r->gpu->spec.recorder, write_note, &note);
    r->gpu->spec.say(text);
}

/* What the driver gave out and a tensor claims must be what the device counts. */
static void check_ledgers(const struct gpu_rank *r, const struct rank_rows *rows)
{
    int64_t driver_bytes = r->gpu->cupti->live_bytes(r->ordinal);
    int64_t device_bytes = device_usage(r->device).reserved_bytes;
    char text[200];
    for (int i = 0; i < rows->holding_count; i++)
        driver_bytes -= rows->holdings[i].bytes;
    snprintf(
        text, sizeof text,
        "the ledgers differ: the driver has given out %lld bytes for tensors, and the device counts %lld",
        (long long)driver_bytes, (long long)device_bytes);
    if (driver_bytes != device_bytes)
        say(r, text);
}

void gpu_recorder_finish(struct gpu_recorder *gpu, int rank)
{
    struct gpu_rank *r = rank_of(gpu, rank);
    struct rank_rows *rows = host_alloc(sizeof *rows);
    struct cuda_memory memory;
    int64_t bytes = unexplained(r);
    rows->rank = r;
    if (gpu->cupti) {
        rows->holding_count = gpu->cupti->unclaimed(r->ordinal, rows->holdings);
        check_ledgers(r, rows);
    }
    if (r->lost || bytes < 0 || gpu->spec.library->memory(device_context(r->device), &memory, NULL)) {
        say(r, "what the GPU holds besides tensors is not known: the driver did not say what is free");
    } else {
        rows->slack_bytes = memory.slack_bytes;
        rows->residual_bytes = bytes - r->named_bytes;
        recorder_write(gpu->spec.recorder, write_runtime, rows);
    }
    free(rows);
}
