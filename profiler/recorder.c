/* Rings between the ranks' threads and the one thread that writes. Each ring has one producer and one consumer, so two
 * counters are all it needs: `head` is moved by the rank alone, `tail` by the writer alone. */
#include "profiler/recorder.h"

#include "base/clock.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RING_RECORDS = 16384,            /* 1.3 MB per rank that has events, and the largest batch of a rank */
    WAKE_RECORDS = RING_RECORDS / 4, /* the writer is woken each time that so many were added */
    WRITE_INTERVAL_MS = 50,          /* and at least so often, so that `memplan watch` sees a slow run move */
    FULL_WAIT_NS = 50000,
    CACHE_LINE = 64
};

struct record {
    enum { RECORD_MEMORY, RECORD_KERNEL, RECORD_STEP } kind;
    union {
        struct store_memory memory;
        struct store_kernel kernel;
        struct store_step step;
    };
};

struct channel {
    /* The rank's thread. */
    _Atomic uint64_t head; /* records added so far */
    uint64_t tail_seen;    /* where the writer was when last looked at */
    int64_t memory_count, kernel_count;
    int64_t taken_ns, given_ns; /* in the range at hand, the last allocation and the first release; 0: none */
    int step, rank;
    struct recorder *recorder;
    struct record *ring; /* NULL before the first record */
    /* The writer's thread; on cache lines of its own, or each of its moves would slow the rank down. */
    char apart_before[CACHE_LINE];
    _Atomic uint64_t tail; /* records taken so far */
    char apart_after[CACHE_LINE];
};

struct recorder {
    struct store *store;
    int64_t run_id, start_ns, event_steps;
    int ranks;
    struct channel *channels;
    pthread_t writer;
    sem_t wake;
    atomic_bool failed, closing;
    pthread_mutex_t store_lock; /* the store and `error`; ranks take it only outside steps */
    struct error error;         /* the first one */
    recorder_writes *source;    /* under the lock, as what follows; NULL: none */
    void *source_context;
};

static void recorder_fail(struct recorder *recorder, const struct error *error)
{
    if (!atomic_exchange(&recorder->failed, true))
        recorder->error = *error;
}

/* ------------------------------------------------------------------------------------------------- the ranks' threads */

static void wait_for_room(struct channel *channel, uint64_t head)
{
    struct recorder *recorder = channel->recorder;
    sem_post(&recorder->wake);
    for (;;) {
        channel->tail_seen = atomic_load_explicit(&channel->tail, memory_order_acquire);
        if (head - channel->tail_seen < RING_RECORDS || atomic_load(&recorder->failed))
            return;
        nanosleep(&(struct timespec){.tv_nsec = FULL_WAIT_NS}, NULL);
    }
}

/* The next free record, or NULL when recording has failed. channel_publish() hands it to the writer. */
static struct record *channel_next(struct channel *channel)
{
    uint64_t head = atomic_load_explicit(&channel->head, memory_order_relaxed);
    if (head - channel->tail_seen == RING_RECORDS)
        wait_for_room(channel, head);
    if (atomic_load_explicit(&channel->recorder->failed, memory_order_relaxed))
        return NULL;
    if (!channel->ring)
        channel->ring = host_alloc(RING_RECORDS * sizeof *channel->ring);
    return &channel->ring[head % RING_RECORDS];
}

static void channel_publish(struct channel *channel)
{
    uint64_t head = atomic_load_explicit(&channel->head, memory_order_relaxed) + 1;
    atomic_store_explicit(&channel->head, head, memory_order_release);
    if (head % WAKE_RECORDS == 0)
        sem_post(&channel->recorder->wake);
}

static bool step_wanted(const struct recorder *recorder, int step)
{
    return recorder->event_steps == 0 || step < recorder->event_steps;
}

/* Allocations outside ranges are forgotten when the next begins. */
static void observe_begin(void *context, int64_t operation, int step)
{
    struct channel *channel = context;
    (void)operation, (void)step;
    channel->taken_ns = channel->given_ns = 0;
}

static void observe_memory(void *context, const struct memory_event *event)
{
    struct channel *channel = context;
    struct record *record;
    if (!step_wanted(channel->recorder, channel->step) || !(record = channel_next(channel)))
        return;
    record->kind = RECORD_MEMORY;
    record->memory = (struct store_memory){
        .seq = channel->memory_count++,
        .time_ns = event->time_ns - channel->recorder->start_ns,
        .operation_id = event->operation,
        .tensor_id = event->tag.tensor,
        .bytes = event->bytes,
        .live_bytes = event->live_bytes,
        .address = event->address,
        .step = channel->step,
        .role = event->tag.role,
        .arena = event->arena,
    };
    if (event->bytes > 0)
        channel->taken_ns = event->time_ns;
    else if (!channel->given_ns)
        channel->given_ns = event->time_ns;
    channel_publish(channel);
}

static bool is_within(const struct range_event *range, int64_t time_ns)
{
    return range->start_ns <= time_ns && time_ns <= range->end_ns;
}

/* An operation takes what it makes, works, and gives back what nobody needs any more. It has run in between: fresh pages are
 * what the memory costs, and not the operation. */
static void observe_range(void *context, const struct range_event *event)
{
    struct channel *channel = context;
    struct record *record;
    int64_t start_ns = is_within(event, channel->taken_ns) ? channel->taken_ns : event->start_ns;
    int64_t end_ns = is_within(event, channel->given_ns) ? channel->given_ns : event->end_ns;
    channel->taken_ns = channel->given_ns = 0;
    if (!step_wanted(channel->recorder, event->step) || !(record = channel_next(channel)))
        return;
    record->kind = RECORD_KERNEL;
    record->kernel = (struct store_kernel){
        .seq = channel->kernel_count++,
        .operation_id = event->operation,
        .start_ns = start_ns - channel->recorder->start_ns,
        .end_ns = end_ns - channel->recorder->start_ns,
        .step = event->step,
    };
    channel_publish(channel);
}

struct observer recorder_rank_observer(struct recorder *recorder, int rank)
{
    /* Without an event to record, the device need not call at all. */
    if (recorder->event_steps < 0)
        return (struct observer){0};
    return (struct observer){.context = &recorder->channels[rank],
                             .begin = observe_begin,
                             .memory = observe_memory,
                             .range = observe_range};
}

void recorder_step_begin(struct recorder *recorder, int rank, int step)
{
    recorder->channels[rank].step = step;
}

void recorder_step(struct recorder *recorder, int rank, const struct store_step *row)
{
    struct channel *channel = &recorder->channels[rank];
    struct record *record = channel_next(channel);
    if (!record)
        return;
    record->kind = RECORD_STEP;
    record->step = *row;
    record->step.rank = rank;
    channel_publish(channel);
}

/* ------------------------------------------------------------------------------------------ rows outside of the steps */

/* A batch of one's own: takes the store until batch_end(). False when recording has failed. */
static bool batch_begin(struct recorder *recorder)
{
    struct error error;
    pthread_mutex_lock(&recorder->store_lock);
    if (!atomic_load(&recorder->failed) && store_begin(recorder->store, &error))
        recorder_fail(recorder, &error);
    if (!atomic_load(&recorder->failed))
        return true;
    pthread_mutex_unlock(&recorder->store_lock);
    return false;
}

static void batch_end(struct recorder *recorder)
{
    struct error error;
    if (store_commit(recorder->store, &error))
        recorder_fail(recorder, &error);
    pthread_mutex_unlock(&recorder->store_lock);
}

void recorder_tensors(struct recorder *recorder, int rank, const struct store_tensor *rows, int64_t count)
{
    if (!batch_begin(recorder))
        return;
    for (int64_t i = 0; i < count; i++)
        if (store_tensor_add(recorder->store, recorder->run_id, rank, &rows[i], NULL))
            break; /* the store keeps the reason for batch_end() */
    batch_end(recorder);
}

void recorder_operations(struct recorder *recorder, int rank, const struct store_operation *rows,
                         int64_t count)
{
    if (!batch_begin(recorder))
        return;
    for (int64_t i = 0; i < count; i++)
        if (store_operation_add(recorder->store, recorder->run_id, rank, &rows[i], NULL))
            break;
    batch_end(recorder);
}

void recorder_prediction(struct recorder *recorder, const struct store_prediction *row)
{
    if (!batch_begin(recorder))
        return;
    store_prediction_add(recorder->store, recorder->run_id, row, NULL);
    batch_end(recorder);
}

bool recorder_write(struct recorder *recorder, recorder_writes *write, void *context)
{
    if (!batch_begin(recorder))
        return false;
    write(context, recorder->store, recorder->run_id);
    batch_end(recorder);
    return true;
}

void recorder_set_source(struct recorder *recorder, recorder_writes *write, void *context)
{
    pthread_mutex_lock(&recorder->store_lock);
    recorder->source = write;
    recorder->source_context = context;
    pthread_mutex_unlock(&recorder->store_lock);
}

void recorder_usage(struct recorder *recorder, int rank, const struct device_usage *usage,
                    int64_t arena_bytes)
{
    char host[256] = "";
    struct store_rank row = {
        .rank = rank,
        .measured = true,
        .arena_bytes = arena_bytes,
        .peak_bytes = usage->peak_bytes,
        .reserved_peak_bytes = usage->reserved_peak_bytes,
        .host = host,
    };
    memcpy(row.at_peak, usage->at_peak, sizeof row.at_peak);
    gethostname(host, sizeof host - 1);
    if (!batch_begin(recorder))
        return;
    store_rank_add(recorder->store, recorder->run_id, &row, NULL);
    batch_end(recorder);
}

/* -------------------------------------------------------------------------------------------------- the writer's thread */

static int record_write(struct recorder *recorder, int rank, const struct record *record)
{
    switch (record->kind) {
    case RECORD_MEMORY:
        return store_memory_add(recorder->store, recorder->run_id, rank, &record->memory, NULL);
    case RECORD_KERNEL:
        return store_kernel_add(recorder->store, recorder->run_id, rank, &record->kernel, NULL);
    case RECORD_STEP:
        return store_step_add(recorder->store, recorder->run_id, &record->step, NULL);
    }
    return 0;
}

/* What the ring holds now; what comes meanwhile waits for the next batch, so that a batch ends. */
static int channel_write(struct channel *channel)
{
    uint64_t tail = atomic_load_explicit(&channel->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&channel->head, memory_order_acquire);
    for (; tail < head; tail++) {
        if (record_write(channel->recorder, channel->rank, &channel->ring[tail % RING_RECORDS]))
            return -1;
        atomic_store_explicit(&channel->tail, tail + 1, memory_order_release);
    }
    return 0;
}

static bool anything_to_write(struct recorder *recorder)
{
    pthread_mutex_lock(&recorder->store_lock);
    bool source = recorder->source;
    pthread_mutex_unlock(&recorder->store_lock);
    if (source)
        return true;
    for (int rank = 0; rank < recorder->ranks; rank++)
        if (atomic_load(&recorder->channels[rank].head) != atomic_load(&recorder->channels[rank].tail))
            return true;
    return false;
}

static void write_batch(struct recorder *recorder)
{
    if (!batch_begin(recorder))
        return;
    for (int rank = 0; rank < recorder->ranks; rank++)
        if (channel_write(&recorder->channels[rank]))
            break; /* the store keeps the reason for batch_end() */
    if (recorder->source)
        recorder->source(recorder->source_context, recorder->store, recorder->run_id);
    batch_end(recorder);
}

static void wait_for_work(struct recorder *recorder)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WRITE_INTERVAL_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    sem_clockwait(&recorder->wake, CLOCK_MONOTONIC, &until);
}

static void *writer_main(void *context)
{
    struct recorder *recorder = context;
    for (;;) {
        bool closing =
            atomic_load(&recorder->closing); /* before the look at the rings: then nothing can be missed */
        if (anything_to_write(recorder))
            write_batch(recorder);
        if (closing || atomic_load(&recorder->failed))
            return NULL;
        wait_for_work(recorder);
    }
}

/* ----------------------------------------------------------------------------------------------------- open and close */

static int run_add(struct recorder *recorder, struct store_run *run, struct error *err)
{
    if (store_begin(recorder->store, err))
        return -1;
    store_run_add(recorder->store, run, NULL);
    if (store_commit(recorder->store, err))
        return -1;
    recorder->run_id = run->run_id;
    return 0;
}

/* Signals are for the program's own threads. */
static int writer_start(struct recorder *recorder, const char *path, struct error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&recorder->writer, NULL, writer_main, recorder);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code)
        return error_set(err,
                         "%s: cannot start the thread that writes it: %s; allow more threads (ulimit -u)",
                         path, strerror(code));
    return 0;
}

/* All but the store. */
static void recorder_free(struct recorder *recorder)
{
    for (int rank = 0; rank < recorder->ranks; rank++)
        free(recorder->channels[rank].ring);
    free(recorder->channels);
    pthread_mutex_destroy(&recorder->store_lock);
    sem_destroy(&recorder->wake);
    free(recorder);
}

static struct recorder *recorder_new(const struct store_run *run)
{
    struct recorder *recorder = host_alloc(sizeof *recorder);
    recorder->start_ns = clock_ns();
    recorder->event_steps = run->event_steps;
    recorder->ranks = run->ranks;
    recorder->channels = host_alloc((size_t)run->ranks * sizeof *recorder->channels);
    pthread_mutex_init(&recorder->store_lock, NULL);
    sem_init(&recorder->wake, 0, 0);
    for (int rank = 0; rank < run->ranks; rank++)
        recorder->channels[rank] = (struct channel){
            .step = -1,
            .rank = rank,
            .recorder = recorder,
        };
    return recorder;
}

int recorder_open(const char *path, struct store_run *run, struct recorder **out, struct error *err)
{
    struct recorder *recorder = recorder_new(run);
    if (store_create(path, &recorder->store, err) || run_add(recorder, run, err) ||
        writer_start(recorder, path, err)) {
        store_discard(recorder->store);
        recorder_free(recorder);
        return -1;
    }
    *out = recorder;
    return 0;
}

int64_t recorder_age_ns(const struct recorder *recorder)
{
    return clock_ns() - recorder->start_ns;
}

void recorder_set_age(struct recorder *recorder, int64_t age_ns)
{
    recorder->start_ns = clock_ns() - age_ns;
}

void recorder_merge(struct recorder *recorder, int rank, const char *path)
{
    struct error error;
    pthread_mutex_lock(&recorder->store_lock);
    if (!atomic_load(&recorder->failed) && store_merge(recorder->store, recorder->run_id, rank, path, &error))
        recorder_fail(recorder, &error);
    pthread_mutex_unlock(&recorder->store_lock);
}

/* Writes out everything; the store stays open. */
static void recorder_stop(struct recorder *recorder)
{
    atomic_store(&recorder->closing, true);
    sem_post(&recorder->wake);
    pthread_join(recorder->writer, NULL);
    if (batch_begin(recorder)) {
        store_run_finish(recorder->store, recorder->run_id, NULL);
        batch_end(recorder);
    }
}

int recorder_close(struct recorder *recorder, struct error *err)
{
    if (!recorder)
        return 0;
    recorder_stop(recorder);
    bool failed = atomic_load(&recorder->failed);
    if (failed && err)
        *err = recorder->error;
    store_close(recorder->store);
    recorder_free(recorder);
    return failed ? -1 : 0;
}

void recorder_discard(struct recorder *recorder)
{
    if (!recorder)
        return;
    recorder_stop(recorder);
    store_discard(recorder->store);
    recorder_free(recorder);
}
