/* Ranks on GPUs, as a transport: calls become jobs as everywhere, and a job is finished when NCCL has it in a stream.
 *
 * A rank's collectives, and its messages of each kind to or from each peer with each tag, are a lane: a communicator, a
 * stream and a thread of its own. NCCL does what a communicator is asked in order, and a receive holds up all that comes
 * after it; so a group of pipeline stages with one communicator would stand still as soon as two of them receive before they
 * send, which comm.h allows. The thread is there because NCCL may wait for the other ranks while it connects, and comm.h
 * promises that starting does not. A lane connects when it has its first job: many groups carry only messages.
 *
 * What orders a lane's stream and the compute stream are events: one is recorded in the compute stream when a job is started,
 * which the lane's stream waits for; one in the lane's stream behind the job, for which the compute stream waits when the
 * caller does. The host never waits for either.
 *
 * Spans: each is a call, and all calls of a job are one group of NCCL's, which it makes one kernel of. Neighbours are not
 * merged: what lies between them is only padding, but where tensors lie may differ between ranks, and the calls must not.
 *
 * The unique id of a communicator goes from one host to the others through `host`, whose family this is too: so an abort is
 * heard here as soon as there. NCCL's communicators do not block, so that a lane can look while it waits, and then ends what
 * its GPU is doing: kernels of NCCL that wait for a dead rank leave, and whoever waits for the stream goes on. */
#include "comm/comm_nccl.h"

#include "base/arena.h"
#include "base/clock.h"
#include "comm/transport.h"
#include "device/device_cuda.h"

#include <nccl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* How often an idle lane asks NCCL for errors; how long a wait for NCCL is a busy one; how long closing may take. */
static const int64_t look_ns = 100000000, busy_ns = 200000, close_ns = 10000000000;

enum { LEAST_VERSION = NCCL_VERSION(2, 14, 0) }; /* the first with communicators that do not block */

/* A job that no stream has yet. Job and event are the lane's until it is done. */
struct task {
    struct task *next;
    struct job *job;
    cudaEvent_t ready; /* in the compute stream */
};

/* A job that a stream has, and for which the compute stream does not wait yet; or two, of a message to itself. */
struct mark {
    struct mark *next;
    int64_t ticket, other; /* 0: none */
    cudaEvent_t done;
};

enum { NO_PEER = -1 };

/* Tasks and marks are in the order of their tickets, under the family's lock; all else belongs to the thread. */
struct lane {
    struct lane *next;
    struct nccl_rank *owner;
    int peer, tag;      /* NO_PEER: collectives */
    enum job_kind kind; /* of its messages; those to the rank itself are all in one lane per tag */
    struct task *tasks;
    struct mark *marks;
    pthread_t thread;
    pthread_cond_t work;
    ncclComm_t nccl; /* NULL before the first job, and of messages to itself */
    cudaStream_t stream;
};

struct nccl_rank {
    struct comm comm;
    struct comm *host;
    const struct cuda_device *device;
    struct lane *lanes;
    bool closing;
};

/* ------------------------------------------------------------------------------------------------------------ errors */

static int check_cuda(const struct nccl_rank *self, cudaError_t status, const char *call, struct error *err)
{
    return status == cudaSuccess ? 0 : device_cuda_error(self->device->ordinal, call, (int)status, err);
}

#define CUDA(self, err, function, ...) check_cuda(self, function(__VA_ARGS__), #function, err)

/* NCCL's own sentence may be empty, and end in a full stop or a new line. */
static int nccl_error(const struct lane *lane, ncclResult_t result, const char *call, struct error *err)
{
    const char *last = ncclGetLastError(lane->nccl);
    int length = last ? (int)strcspn(last, "\n") : 0;
    return error_set(err, "GPU %d: %s failed: %s%s%.*s; run again with NCCL_DEBUG=WARN to see where",
                     lane->owner->device->ordinal, call, ncclGetErrorString(result), length ? ": " : "",
                     length, last ? last : "");
}

static bool has_stopped(const struct nccl_rank *self)
{
    pthread_mutex_lock(&self->comm.family->lock);
    bool stopped = self->comm.family->stopped;
    pthread_mutex_unlock(&self->comm.family->lock);
    return stopped;
}

/* This rank has failed, and so all do. Without the lock. */
static void fail(const struct nccl_rank *self, const struct error *err)
{
    pthread_mutex_lock(&self->comm.family->lock);
    family_stop_rank(self->comm.family, self->comm.world_ranks[self->comm.rank], err->text);
    pthread_mutex_unlock(&self->comm.family->lock);
}

static void pause_since(int64_t start_ns)
{
    if (clock_ns() - start_ns < busy_ns)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* Waits until NCCL, which answered `result` to `call`, has done it. -1 also when the family ends meanwhile. */
static int await(struct lane *lane, ncclResult_t result, const char *call, int64_t limit_ns,
                 struct error *err)
{
    int64_t start_ns = clock_ns();
    while (result == ncclInProgress) {
        if (has_stopped(lane->owner))
            return error_set(err, "stopped in %s", call);
        if (clock_ns() - start_ns > limit_ns)
            return error_set(err, "GPU %d: %s took longer than %lld s", lane->owner->device->ordinal, call,
                             (long long)(limit_ns / 1000000000));
        pause_since(start_ns);
        ncclResult_t asked = ncclCommGetAsyncError(lane->nccl, &result);
        if (asked != ncclSuccess)
            result = asked;
    }
    return result == ncclSuccess ? 0 : nccl_error(lane, result, call, err);
}

#define NCCL(lane, err, function, ...) await(lane, function(__VA_ARGS__), #function, INT64_MAX, err)

/* ------------------------------------------------------------------------------------------------------- communicators */

static bool to_itself(const struct lane *lane)
{
    return lane->peer == lane->owner->comm.rank;
}

/* Rank 0 of the communicator makes the id: of two ends of messages, the one that sends. */
static int lane_rank(const struct lane *lane)
{
    return lane->peer == NO_PEER ? lane->owner->comm.rank : lane->kind == JOB_RECEIVE;
}

static int hand_round(const struct lane *lane, ncclUniqueId *id, struct error *err)
{
    struct comm *host = lane->owner->host;
    struct comm_span span = {id, sizeof *id / (size_t)dtype_bytes(DTYPE_I32)};
    int64_t ticket;
    int status;
    if (lane->peer == NO_PEER)
        status = comm_start_broadcast(host, &span, 1, DTYPE_I32, 0, &ticket, err);
    else if (lane->kind == JOB_SEND)
        status = comm_start_send(host, &span, DTYPE_I32, lane->peer, lane->tag, &ticket, err);
    else
        status = comm_start_receive(host, &span, DTYPE_I32, lane->peer, lane->tag, &ticket, err);
    return status ? -1 : comm_wait_for(host, ticket, err);
}

static int connect_lane(struct lane *lane, struct error *err)
{
    ncclUniqueId id = {{0}};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    int rank = lane_rank(lane), size = lane->peer == NO_PEER ? lane->owner->comm.size : 2;
    if (rank == 0 && NCCL(lane, err, ncclGetUniqueId, &id))
        return -1;
    return hand_round(lane, &id, err) ||
                   NCCL(lane, err, ncclCommInitRankConfig, &lane->nccl, size, id, rank, &config)
               ? -1
               : 0;
}

/* All ranks close what they opened, so NCCL may wait for them; not for ever, and not after a failure. */
static void disconnect(struct lane *lane)
{
    struct error ignored;
    if (!lane->nccl)
        return;
    if (!has_stopped(lane->owner) &&
        !await(lane, ncclCommFinalize(lane->nccl), "ncclCommFinalize", close_ns, &ignored))
        ncclCommDestroy(lane->nccl);
    else
        ncclCommAbort(lane->nccl);
    lane->nccl = NULL;
}

/* ---------------------------------------------------------------------------------------------- jobs, without the lock */

static ncclDataType_t nccl_type(enum dtype dtype)
{
    static const ncclDataType_t types[] = {[DTYPE_F32] = ncclFloat32,
                                           [DTYPE_BF16] = ncclBfloat16,
                                           [DTYPE_F64] = ncclFloat64,
                                           [DTYPE_I32] = ncclInt32};
    return types[dtype];
}

static ncclResult_t call_span(const struct lane *lane, const struct job *job, int i)
{
    const struct comm_span *span = &job->spans[i], *part = &job->parts[i];
    ncclDataType_t type = nccl_type(job->dtype);
    size_t count = (size_t)span->count;
    switch (job->kind) {
    case JOB_ALL_REDUCE:
        return ncclAllReduce(span->data, span->data, count, type,
                             job->reduction == COMM_MAX ? ncclMax : ncclSum, lane->nccl, lane->stream);
    case JOB_REDUCE_SCATTER:
        return ncclReduceScatter(span->data, part->data, (size_t)part->count, type, ncclSum, lane->nccl,
                                 lane->stream);
    case JOB_ALL_GATHER:
        return ncclAllGather(part->data, span->data, (size_t)part->count, type, lane->nccl, lane->stream);
    case JOB_BROADCAST:
        return ncclBroadcast(span->data, span->data, count, type, job->peer, lane->nccl, lane->stream);
    case JOB_SEND:
        return ncclSend(span->data, count, type, 1, lane->nccl, lane->stream);
    case JOB_RECEIVE:
        return ncclRecv(span->data, count, type, 0, lane->nccl, lane->stream);
    default:
        return ncclSuccess;
    }
}

/* A group that was begun is ended, whatever happens in it. */
static int call_job(struct lane *lane, const struct job *job, struct error *err)
{
    if (NCCL(lane, err, ncclGroupStart))
        return -1;
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < job_span_count(job) && (result == ncclSuccess || result == ncclInProgress); i++)
        if (job->spans[i].count)
            result = call_span(lane, job, i);
    ncclResult_t ended = ncclGroupEnd();
    if (result != ncclSuccess && result != ncclInProgress)
        return nccl_error(lane, result, job_name(job->kind), err);
    return await(lane, ended, job_name(job->kind), INT64_MAX, err);
}

static int run_job(struct lane *lane, const struct task *task, cudaEvent_t done, struct error *err)
{
    const struct nccl_rank *self = lane->owner;
    if ((!lane->nccl && connect_lane(lane, err)) ||
        CUDA(self, err, cudaStreamWaitEvent, lane->stream, task->ready, 0) || call_job(lane, task->job, err))
        return -1;
    return CUDA(self, err, cudaEventRecord, done, lane->stream);
}

/* What the rank started before is done on its GPU; then the hosts meet. */
static int run_barrier(struct lane *lane, cudaEvent_t done, struct error *err)
{
    const struct nccl_rank *self = lane->owner;
    int64_t start_ns = clock_ns();
    cudaError_t status;
    if (CUDA(self, err, cudaEventRecord, done, lane->stream))
        return -1;
    while ((status = cudaEventQuery(done)) == cudaErrorNotReady && !has_stopped(self))
        pause_since(start_ns);
    if (status != cudaErrorNotReady && check_cuda(self, status, "cudaEventQuery", err))
        return -1;
    return comm_barrier(self->host, err);
}

/* From this rank to itself. */
static int run_copy(struct lane *lane, const struct task *send, const struct task *receive, cudaEvent_t done,
                    struct error *err)
{
    const struct nccl_rank *self = lane->owner;
    const struct comm_span *from = send->job->spans, *to = receive->job->spans;
    if (from->count != to->count || send->job->dtype != receive->job->dtype)
        return error_set(
            err, "rank %d receives %lld %s from itself and sends %lld %s with tag %d; make the two agree",
            self->comm.world_ranks[self->comm.rank], (long long)to->count, dtype_name(receive->job->dtype),
            (long long)from->count, dtype_name(send->job->dtype), lane->tag);
    size_t bytes = (size_t)(from->count * dtype_bytes(send->job->dtype));
    if (CUDA(self, err, cudaStreamWaitEvent, lane->stream, send->ready, 0) ||
        CUDA(self, err, cudaStreamWaitEvent, lane->stream, receive->ready, 0) ||
        CUDA(self, err, cudaMemcpyAsync, to->data, from->data, bytes, cudaMemcpyDeviceToDevice, lane->stream))
        return -1;
    return CUDA(self, err, cudaEventRecord, done, lane->stream);
}

/* --------------------------------------------------------------------------------------------------- lanes, with the lock */

static int new_event(const struct nccl_rank *self, cudaEvent_t *out, struct error *err)
{
    return CUDA(self, err, cudaEventCreateWithFlags, out, cudaEventDisableTiming);
}

static void add_mark(struct lane *lane, int64_t ticket, int64_t other, cudaEvent_t done)
{
    struct mark *mark = host_alloc(sizeof *mark), **end = &lane->marks;
    *mark = (struct mark){.ticket = ticket, .other = other, .done = done};
    while (*end)
        end = &(*end)->next;
    *end = mark;
}

static void drop_mark(struct lane *lane)
{
    struct mark *mark = lane->marks;
    lane->marks = mark->next;
    cudaEventDestroy(mark->done);
    free(mark);
}

static void drop_task(struct lane *lane, struct task *task)
{
    struct task **link = &lane->tasks;
    while (*link != task)
        link = &(*link)->next;
    *link = task->next;
    cudaEventDestroy(task->ready);
    job_finish(&lane->owner->comm, task->job);
    free(task);
}

/* `other`: NULL, or the second task that was done with the first. */
static void serve(struct lane *lane, struct task *task, struct task *other)
{
    struct nccl_rank *self = lane->owner;
    cudaEvent_t done = NULL;
    struct error err;
    pthread_mutex_unlock(&self->comm.family->lock);
    int status = new_event(self, &done, &err);
    if (!status && other)
        status = run_copy(lane, task, other, done, &err);
    else if (!status && task->job->kind == JOB_BARRIER)
        status = run_barrier(lane, done, &err);
    else if (!status)
        status = run_job(lane, task, done, &err);
    if (status)
        fail(self, &err);
    pthread_mutex_lock(&self->comm.family->lock);
    if (done)
        add_mark(lane, task->job->ticket, other ? other->job->ticket : 0, done);
    drop_task(lane, task);
    if (other)
        drop_task(lane, other);
}

static struct task *first_of(const struct lane *lane, enum job_kind kind)
{
    struct task *task = lane->tasks;
    while (task && task->job->kind != kind)
        task = task->next;
    return task;
}

/* The next that can be done: of messages to itself, both ends. */
static bool next_tasks(const struct lane *lane, struct task **task, struct task **other)
{
    *task = lane->tasks;
    *other = NULL;
    if (!to_itself(lane))
        return *task != NULL;
    *task = first_of(lane, JOB_SEND);
    *other = first_of(lane, JOB_RECEIVE);
    return *task && *other;
}

/* NCCL finds out about a lost connection by itself, and tells who asks. */
static void look(struct lane *lane)
{
    struct nccl_rank *self = lane->owner;
    int64_t until_ns = clock_ns() + look_ns;
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    if (pthread_cond_timedwait(&lane->work, &self->comm.family->lock, &until) == 0 || !lane->nccl)
        return;
    struct error err;
    ncclResult_t result;
    pthread_mutex_unlock(&self->comm.family->lock);
    ncclResult_t asked = ncclCommGetAsyncError(lane->nccl, &result);
    if (asked != ncclSuccess || (result != ncclSuccess && result != ncclInProgress)) {
        nccl_error(lane, asked != ncclSuccess ? asked : result, "a collective or message", &err);
        fail(self, &err);
    }
    pthread_mutex_lock(&self->comm.family->lock);
}

/* The family has ended. */
static void give_up(struct lane *lane)
{
    struct nccl_rank *self = lane->owner;
    pthread_mutex_unlock(&self->comm.family->lock);
    disconnect(lane);
    pthread_mutex_lock(&self->comm.family->lock);
    while (lane->tasks)
        drop_task(lane, lane->tasks);
    if (!self->closing)
        pthread_cond_wait(&lane->work, &self->comm.family->lock);
}

static void *work(void *context)
{
    struct lane *lane = context;
    struct nccl_rank *self = lane->owner;
    struct task *task, *other;
    cudaSetDevice(self->device->ordinal);
    pthread_mutex_lock(&self->comm.family->lock);
    while (!self->closing || lane->tasks) {
        if (self->comm.family->stopped)
            give_up(lane);
        else if (next_tasks(lane, &task, &other))
            serve(lane, task, other);
        else
            look(lane);
    }
    pthread_mutex_unlock(&self->comm.family->lock);
    disconnect(lane);
    return NULL;
}

static struct lane *find_lane(const struct nccl_rank *self, int peer, int tag, enum job_kind kind)
{
    struct lane *lane = self->lanes;
    while (lane && (lane->peer != peer || lane->tag != tag || lane->kind != kind))
        lane = lane->next;
    return lane;
}

static void free_lane(struct lane *lane)
{
    while (lane->marks)
        drop_mark(lane);
    pthread_cond_destroy(&lane->work);
    if (lane->stream)
        cudaStreamDestroy(lane->stream);
    free(lane);
}

static struct lane *open_lane(struct nccl_rank *self, int peer, int tag, enum job_kind kind,
                              struct error *err)
{
    struct lane *lane = host_alloc(sizeof *lane);
    *lane = (struct lane){.owner = self, .peer = peer, .tag = tag, .kind = kind};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&lane->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int status = CUDA(self, err, cudaStreamCreateWithFlags, &lane->stream, cudaStreamNonBlocking);
    int code = status ? 0 : pthread_create(&lane->thread, NULL, work, lane);
    if (code)
        status = error_set(err, "no thread for what rank %d of %d exchanges: %s; use fewer ranks",
                           self->comm.rank, self->comm.size, strerror(code));
    if (status) {
        free_lane(lane);
        return NULL;
    }
    lane->next = self->lanes;
    self->lanes = lane;
    return lane;
}

static struct lane *lane_of(struct nccl_rank *self, const struct job *job, struct error *err)
{
    bool message = job_is_message(job), own = job->peer == self->comm.rank;
    int peer = message ? job->peer : NO_PEER, tag = message ? job->tag : 0;
    enum job_kind kind = !message ? JOB_BARRIER : own ? JOB_SEND : job->kind;
    struct lane *lane = find_lane(self, peer, tag, kind);
    return lane ? lane : open_lane(self, peer, tag, kind, err);
}

/* ------------------------------------------------------------------------------------------------------- the transport */

/* A stream that is being captured would make the exchange part of a recording, and hand it over before all ranks are there. */
static int check_capture(const struct nccl_rank *self, struct error *err)
{
    enum cudaStreamCaptureStatus capture;
    if (CUDA(self, err, cudaStreamIsCapturing, self->device->compute, &capture))
        return -1;
    if (capture == cudaStreamCaptureStatusNone)
        return 0;
    return error_set(err, "GPU %d: exchanges between ranks cannot be recorded; use --no-graph",
                     self->device->ordinal);
}

static int nccl_start(struct comm *comm, struct job *job, struct error *err)
{
    struct nccl_rank *self = (struct nccl_rank *)comm;
    cudaEvent_t ready = NULL;
    struct lane *lane = check_capture(self, err) ? NULL : lane_of(self, job, err);
    if (!lane || new_event(self, &ready, err) ||
        CUDA(self, err, cudaEventRecord, ready, self->device->compute)) {
        if (ready)
            cudaEventDestroy(ready);
        job_finish(comm, job);
        return -1;
    }
    struct task *task = host_alloc(sizeof *task), **end = &lane->tasks;
    *task = (struct task){.job = job, .ready = ready};
    while (*end)
        end = &(*end)->next;
    *end = task;
    pthread_cond_signal(&lane->work);
    return 0;
}

static void wake_lanes(const struct nccl_rank *self)
{
    for (struct lane *lane = self->lanes; lane; lane = lane->next)
        pthread_cond_signal(&lane->work);
}

static void nccl_stop(struct comm *comm)
{
    wake_lanes((struct nccl_rank *)comm);
}

static void nccl_settle(struct comm *comm)
{
    struct comm *host = ((struct nccl_rank *)comm)->host;
    if (host->transport->settle)
        host->transport->settle(host);
}

static struct mark *find_mark(const struct lane *lane, int64_t ticket)
{
    struct mark *mark = lane->marks;
    while (mark && mark->ticket != ticket && mark->other != ticket)
        mark = mark->next;
    return mark;
}

/* What a lane was given before a mark, its stream has done before. */
static int release_up_to(struct lane *lane, const struct mark *last, struct error *err)
{
    const struct nccl_rank *self = lane->owner;
    for (bool more = true; more && lane->marks; drop_mark(lane)) {
        more = lane->marks != last;
        if (CUDA(self, err, cudaStreamWaitEvent, self->device->compute, lane->marks->done, 0))
            return -1;
    }
    return 0;
}

static int nccl_release(struct comm *comm, int64_t ticket, struct error *err)
{
    const struct nccl_rank *self = (struct nccl_rank *)comm;
    for (struct lane *lane = self->lanes; lane; lane = lane->next) {
        const struct mark *last = ticket ? find_mark(lane, ticket) : NULL;
        if ((last || !ticket) && release_up_to(lane, last, err))
            return -1;
    }
    return 0;
}

static bool has_collective(const struct comm *comm)
{
    const struct job *job = comm->jobs;
    while (job && job_is_message(job))
        job = job->next;
    return job != NULL;
}

/* The hosts may be about to hand an id round, which all must do before they divide. */
static int nccl_split(struct comm *comm, int color, int key, struct comm **out, struct error *err)
{
    struct nccl_rank *self = (struct nccl_rank *)comm;
    struct comm *host;
    *out = NULL;
    pthread_mutex_lock(&comm->family->lock);
    while (has_collective(comm))
        pthread_cond_wait(&comm->done, &comm->family->lock);
    pthread_mutex_unlock(&comm->family->lock);
    if (comm_split(self->host, color, key, &host, err))
        return -1;
    if (!host || !comm_nccl_open(host, self->device, out, err))
        return 0;
    comm_close(host);
    return -1;
}

static void nccl_close(struct comm *comm)
{
    struct nccl_rank *self = (struct nccl_rank *)comm;
    struct comm *host = self->host;
    pthread_mutex_lock(&comm->family->lock);
    while (comm->jobs)
        pthread_cond_wait(&comm->done, &comm->family->lock);
    self->closing = true;
    wake_lanes(self);
    pthread_mutex_unlock(&comm->family->lock);
    for (struct lane *lane = self->lanes, *next; lane; lane = next) {
        next = lane->next;
        pthread_join(lane->thread, NULL);
        free_lane(lane);
    }
    pthread_mutex_lock(&comm->family->lock);
    family_leave(comm);
    pthread_mutex_unlock(&comm->family->lock);
    free(self);
    comm_close(host);
}

int comm_nccl_open(struct comm *host, const struct cuda_device *device, struct comm **out, struct error *err)
{
    static const struct transport transport = {
        .start = nccl_start,
        .stop = nccl_stop,
        .settle = nccl_settle,
        .release = nccl_release,
        .split = nccl_split,
        .close = nccl_close,
    };
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess || version < LEAST_VERSION)
        return error_set(err, "this NCCL is of version %d; %d (2.14) or newer is needed", version,
                         LEAST_VERSION);
    struct nccl_rank *self = host_alloc(sizeof *self);
    struct membership membership = {host->rank, host->size, host->context, host->world_ranks};
    self->host = host;
    self->device = device;
    pthread_mutex_lock(&host->family->lock);
    family_join(host->family, &self->comm, &transport, &membership, host->next_context);
    pthread_mutex_unlock(&host->family->lock);
    *out = &self->comm;
    return 0;
}
