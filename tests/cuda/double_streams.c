/* Streams and events: what a stream is asked is done at once, by the thread that asks, or, where it waits for other ranks, begun
 * at once. Who waits for an event behind that has its end to wait for. */
#include "tests/cuda/double_hooks.h"
#include "tests/cuda/double_memory.h"
#include "tests/cuda/double_shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct CUstream_st *open_streams[ORDER_STREAMS];
static _Thread_local struct order_clock host_clock;

cudaStream_t double_streams_at(int number)
{
    return open_streams[number];
}

/* ----------------------------------------------------------------------------------------------- what is not done yet */

static void add_token(struct unfinished *to, const struct later_token *token)
{
    for (int i = 0; i < to->count; i++)
        if (to->tokens[i].token == token->token)
            return;
    if (to->count == to->room) {
        to->room = to->room ? 2 * to->room : 8;
        to->tokens = realloc(to->tokens, (size_t)to->room * sizeof *to->tokens);
    }
    to->tokens[to->count++] = *token;
}

static void add_tokens(struct unfinished *to, const struct unfinished *from)
{
    for (int i = 0; i < from->count; i++)
        add_token(to, &from->tokens[i]);
}

static void forget_tokens(struct unfinished *of)
{
    free(of->tokens);
    *of = (struct unfinished){0};
}

void double_streams_forget(cudaEvent_t event)
{
    forget_tokens(&event->unfinished);
}

static void drop_done(struct unfinished *of)
{
    int kept = 0;
    for (int i = 0; i < of->count; i++)
        if (!of->tokens[i].is_done(of->tokens[i].token))
            of->tokens[kept++] = of->tokens[i];
    of->count = kept;
}

static bool has_others(const struct unfinished *of, const void *queue)
{
    for (int i = 0; i < of->count; i++)
        if (!queue || of->tokens[i].queue != queue)
            return true;
    return false;
}

/* Without the lock: all but those of `queue` are done then; NULL: all. */
static void wait_until_done(struct unfinished *of, const void *queue)
{
    for (bool wait = true; wait;) {
        pthread_mutex_lock(&double_lock);
        drop_done(of);
        wait = has_others(of, queue);
        pthread_mutex_unlock(&double_lock);
        if (wait)
            usleep(20);
    }
}

/* ------------------------------------------------------------------------------------------- what the host knows of it */

static void host_sees(const struct order_clock *clock)
{
    order_see(&host_clock, clock);
    double_copies_finish(clock);
}

void double_streams_wait_all(int device)
{
    for (int i = 0; i < ORDER_STREAMS; i++) {
        pthread_mutex_lock(&double_lock);
        struct CUstream_st *stream = open_streams[i];
        pthread_mutex_unlock(&double_lock);
        if (stream && stream->device == device)
            wait_until_done(&stream->unfinished, NULL);
    }
    pthread_mutex_lock(&double_lock);
    for (int i = 0; i < ORDER_STREAMS; i++)
        if (open_streams[i] && open_streams[i]->device == device)
            host_sees(&open_streams[i]->order.clock);
    double_allocate_shrink(device);
    pthread_mutex_unlock(&double_lock);
}

struct order_clock double_streams_clock(cudaStream_t stream)
{
    struct order_clock clock = stream->order.clock;
    order_see(&clock, &host_clock);
    return clock;
}

void double_streams_wait(cudaStream_t stream)
{
    wait_until_done(&stream->unfinished, NULL);
}

/* --------------------------------------------------------------------------------------------------------------- work */

void double_streams_note(cudaStream_t stream, const struct order_access *accesses, int count)
{
    order_see(&stream->order.clock, &host_clock);
    const char *race = order_work(&stream->order, accesses, count);
    if (race)
        double_complain("a race: %s", race);
}

/* With the lock. What graphs do is not in the log. */
static void log_line(cudaStream_t stream, const char *what, cudaEvent_t event)
{
    static FILE *file;
    static bool looked;
    const char *path = getenv("DOUBLE_CUDA_LOG");
    if (!looked && path && *path)
        file = fopen(path, "w");
    looked = true;
    if (file && event)
        fprintf(file, "%d %d %s %p\n", stream->device, stream->order.number, what, (void *)event);
    else if (file)
        fprintf(file, "%d %d %s\n", stream->device, stream->order.number, what);
}

/* Accesses of device memory only; the host's is not shared between streams. Returns how many. */
static int keep_device_accesses(const struct order_access *accesses, int count, struct order_access *out)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        const struct memory_block *block = memory_find(accesses[i].start);
        if (block && block->device != MEMORY_PINNED)
            out[kept++] = accesses[i];
    }
    return kept;
}

/* Kernels must be launched, and copies asked for, by a thread that has the stream's device as its own. */
bool double_streams_of_thread(cudaStream_t stream, const char *what)
{
    if (stream->device == double_current_device)
        return true;
    double_complain("%s: a stream of GPU %d, asked by a thread whose device is GPU %d", what, stream->device,
                    double_current_device);
    return false;
}

void double_streams_run(cudaStream_t stream, const struct order_access *accesses, int count,
                        const struct double_work *work)
{
    wait_until_done(&stream->unfinished, work->run ? NULL : work->queue);
    if (count)
        double_hook_work(stream->device, stream->order.number, accesses[0].what, accesses[0].bytes);
    if (work->run) {
        work->run(work->work);
        return;
    }
    struct later_token token = {work->is_done, work->begin(work->work), work->queue};
    pthread_mutex_lock(&double_lock);
    add_token(&stream->unfinished, &token);
    pthread_mutex_unlock(&double_lock);
}

cudaError_t double_submit_later(cudaStream_t stream, const struct order_access *accesses, int count,
                                const struct double_work *work)
{
    ALIVE(stream, KIND_STREAM);
    if (!double_streams_of_thread(stream, count ? accesses[0].what : "work")) {
        work->discard(work->work);
        return double_failure(cudaErrorInvalidResourceHandle);
    }
    pthread_mutex_lock(&double_lock);
    struct order_access *kept = malloc(((size_t)count + 1) * sizeof *kept);
    int kept_count = keep_device_accesses(accesses, count, kept);
    double_streams_note(stream, kept, kept_count);
    log_line(stream, count ? accesses[0].what : "nothing", NULL);
    bool captured = stream->capture != NULL;
    if (captured)
        double_graphs_add_work(stream, kept, kept_count, work);
    pthread_mutex_unlock(&double_lock);
    if (captured)
        return cudaSuccess;
    double_streams_run(stream, kept, kept_count, work);
    work->discard(work->work);
    free(kept);
    return cudaSuccess;
}

cudaError_t double_submit(cudaStream_t stream, const struct order_access *accesses, int count,
                          void (*run)(void *work), void (*discard)(void *work), void *work)
{
    struct double_work all = {.run = run, .discard = discard, .work = work};
    return double_submit_later(stream, accesses, count, &all);
}

/* ------------------------------------------------------------------------------------------------- streams and events */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    ENTER();
    if (flags & ~(unsigned)cudaStreamNonBlocking)
        return double_failure(cudaErrorInvalidValue);
    double_take_launches();
    struct CUstream_st *stream = double_new_handle(KIND_STREAM, sizeof *stream);
    stream->device = double_current_device;
    pthread_mutex_lock(&double_lock);
    int number = order_open(&stream->order);
    if (number >= 0)
        open_streams[number] = stream;
    else
        double_complain("%s: more than %d streams", __func__, ORDER_STREAMS);
    pthread_mutex_unlock(&double_lock);
    *out = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ALIVE(stream, KIND_STREAM);
    pthread_mutex_lock(&double_lock);
    double_copies_finish(&stream->order.clock);
    forget_tokens(&stream->unfinished);
    open_streams[stream->order.number] = NULL;
    order_close(&stream->order);
    double_end_handle(stream);
    pthread_mutex_unlock(&double_lock);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    if (stream->capture || double_graphs_refuse()) {
        if (stream->capture)
            double_graphs_spoil(stream->capture, cudaErrorStreamCaptureUnsupported);
        return double_failure(cudaErrorStreamCaptureUnsupported);
    }
    wait_until_done(&stream->unfinished, NULL);
    pthread_mutex_lock(&double_lock);
    host_sees(&stream->order.clock);
    double_allocate_shrink(stream->device);
    pthread_mutex_unlock(&double_lock);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    ENTER();
    if (flags & ~(unsigned)(cudaEventDisableTiming | cudaEventBlockingSync))
        return double_failure(cudaErrorInvalidValue);
    *out = double_new_handle(KIND_EVENT, sizeof **out);
    (*out)->device = double_current_device;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ALIVE(event, KIND_EVENT);
    pthread_mutex_lock(&double_lock);
    double_streams_forget(event);
    double_end_handle(event);
    pthread_mutex_unlock(&double_lock);
    return cudaSuccess;
}

void double_streams_record(cudaEvent_t event, cudaStream_t stream)
{
    event->recorded = true;
    event->clock = stream->order.clock;
    event->capture = stream->capture;
    event->unfinished.count = 0;
    add_tokens(&event->unfinished, &stream->unfinished);
}

void double_streams_follow(cudaStream_t stream, cudaEvent_t event)
{
    order_see(&stream->order.clock, &event->clock);
    add_tokens(&stream->unfinished, &event->unfinished);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER();
    ALIVE(event, KIND_EVENT);
    ALIVE(stream, KIND_STREAM);
    if (event->device != stream->device) {
        double_complain("%s: an event of GPU %d in a stream of GPU %d", __func__, event->device,
                        stream->device);
        return double_failure(cudaErrorInvalidResourceHandle);
    }
    pthread_mutex_lock(&double_lock);
    order_see(&stream->order.clock, &host_clock);
    double_streams_record(event, stream);
    log_line(stream, "records", event);
    if (stream->capture)
        double_graphs_add_record(stream, event);
    pthread_mutex_unlock(&double_lock);
    return cudaSuccess;
}

/* A stream that waits for an event of a capture becomes part of it. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    ALIVE(event, KIND_EVENT);
    if (flags)
        return double_failure(cudaErrorInvalidValue);
    if (event->capture && double_graphs_ended(event->capture))
        return double_failure(cudaErrorCapturedEvent);
    pthread_mutex_lock(&double_lock);
    bool mixed = stream->capture && event->recorded && event->capture != stream->capture;
    if (mixed)
        double_graphs_spoil(stream->capture, cudaErrorStreamCaptureIsolation);
    if (event->capture)
        stream->capture = event->capture;
    if (stream->capture)
        double_graphs_add_wait(stream, event);
    log_line(stream, "waits", event);
    double_streams_follow(stream, event);
    pthread_mutex_unlock(&double_lock);
    return mixed ? double_failure(cudaErrorStreamCaptureIsolation) : cudaSuccess;
}

static cudaError_t look_at(cudaEvent_t event, bool wait)
{
    if (event->capture || double_graphs_refuse())
        return double_failure(cudaErrorStreamCaptureUnsupported);
    if (wait)
        wait_until_done(&event->unfinished, NULL);
    pthread_mutex_lock(&double_lock);
    drop_done(&event->unfinished);
    bool done = !event->unfinished.count;
    if (done)
        host_sees(&event->clock);
    pthread_mutex_unlock(&double_lock);
    return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER();
    ALIVE(event, KIND_EVENT);
    return look_at(event, true);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER();
    ALIVE(event, KIND_EVENT);
    return look_at(event, false);
}

/* Work is done when it is asked for, so no time passes between two events. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    ENTER();
    ALIVE(start, KIND_EVENT);
    ALIVE(end, KIND_EVENT);
    if (!start->recorded || !end->recorded)
        return double_failure(cudaErrorInvalidResourceHandle);
    *ms = 0;
    return cudaSuccess;
}
