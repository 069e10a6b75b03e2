/* Ranks on GPUs, as a transport: calls become jobs as everywhere, and a job is finished when NCCL has it in a stream.
 *
 * A rank's collectives, and its messages of each kind to or from each peer with each tag, are a lane: a communicator, a
 * stream and a thread of its own. NCCL does what a communicator is asked in order, and a receive holds up all that comes
 * after it; so a group of pipeline stages with one communicator would stand still as soon as two of them receive before they
 * send, which comm.h allows.
 *
 * Jobs are put into the stream by the rank's own thread, so that a step with all its exchanges can be recorded. Only what is
 * done for the first time is left to the lane's thread: NCCL connects then, and may wait for the other ranks, and comm.h
 * promises that starting does not. Else the thread is the one that watches: it asks NCCL for errors, and when the family of
 * ranks has ended it ends what its GPU is doing: kernels of NCCL that wait for a dead rank leave, those of recordings too, and
 * whoever waits for the stream goes on.
 *
 * What orders a lane's stream and the compute stream are events: one is recorded in the compute stream when a job is started,
 * which the lane's stream waits for; one in the lane's stream behind the job, for which the compute stream waits when the
 * caller does. The host never waits for either. To a capture of the compute stream this is a branch that leaves it and comes
 * back.
 *
 * Spans: each is a call, and all calls of a job are one group of NCCL's, which it makes one kernel of. Neighbours are not
 * merged: what lies between them is only padding, but where tensors lie may differ between ranks, and the calls must not.
 *
 * The unique id of a communicator goes from one host to the others through `host`, whose family this is too: so an abort is
 * heard here as soon as there. */
#include "comm/comm_nccl.h"

#include "base/arena.h"
#include "base/clock.h"
#include "comm/comm_nccl_calls.h"
#include "comm/transport.h"
#include "device/device_cuda.h"

#include <stdlib.h>
#include <string.h>

/* How often an idle lane asks NCCL for errors. */
static const int64_t look_ns = 100000000;

/* A job that no stream has yet. Job and event are the lane's until it is done. */
struct task {
    struct task *next;
    struct job *job;
    cudaEvent_t ready; /* in the compute stream */
    bool here;         /* the rank's thread is about to do it */
};

/* A job that a stream has, and for which the compute stream does not wait yet; or two, of a message to itself. */
struct mark {
    struct mark *next;
    int64_t ticket, other; /* 0: none */
    cudaEvent_t done;
};

enum { NO_PEER = -1 };

/* All but `end` is under the family's lock. Tasks and marks are in the order of their tickets. */
struct lane {
    struct lane *next;
    struct nccl_rank *owner;
    int peer, tag; /* NO_PEER: collectives */
    enum job_kind
        kind; /* of its messages; those to the rank itself are all in one lane per tag, without a thread */
    struct task *tasks;
    struct mark *marks;
    struct nccl_end end;
    bool busy;       /* somebody is at `end`, without the lock */
    uint64_t *known; /* shapes of jobs that were done once */
    int known_count;
    pthread_t thread;
    pthread_cond_t changed; /* tasks, busy, or the family's state */
};

struct nccl_rank {
    struct comm comm;
    struct comm *host;
    const struct cuda_device *device;
    struct lane *lanes;
    bool closing;
};

static int check_cuda(const struct nccl_rank *self, cudaError_t status, const char *call, struct error *err)
{
    return status == cudaSuccess ? 0 : device_cuda_error(self->device->ordinal, call, (int)status, err);
}

#define CUDA(self, err, function, ...) check_cuda(self, function(__VA_ARGS__), #function, err)

static bool to_itself(const struct lane *lane)
{
    return lane->peer == lane->owner->comm.rank;
}

/* ---------------------------------------------------------------------------------------------- jobs, without the lock */

/* This rank has failed, and so all do. */
static void fail(const struct nccl_rank *self, const struct error *err)
{
    pthread_mutex_lock(&self->comm.family->lock);
    family_stop_rank(self->comm.family, self->comm.world_ranks[self->comm.rank], err->text);
    pthread_mutex_unlock(&self->comm.family->lock);
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
    int rank = lane_rank(lane), size = lane->peer == NO_PEER ? lane->owner->comm.size : 2;
    if (rank == 0 && nccl_make_id(&lane->end, &id, err))
        return -1;
    return hand_round(lane, &id, err) || nccl_connect(&lane->end, &id, rank, size, err) ? -1 : 0;
}

static int run_job(struct lane *lane, const struct task *task, cudaEvent_t done, struct error *err)
{
    const struct nccl_rank *self = lane->owner;
    if ((!lane->end.nccl && connect_lane(lane, err)) ||
        CUDA(self, err, cudaStreamWaitEvent, lane->end.stream, task->ready, 0) ||
        nccl_call_job(&lane->end, task->job, err))
        return -1;
    return CUDA(self, err, cudaEventRecord, done, lane->end.stream);
}

/* What the rank started before is done on its GPU; then the hosts meet. */
static int run_barrier(struct lane *lane, cudaEvent_t done, struct error *err)
{
    const struct nccl_rank *self = lane->owner;
    int64_t start_ns = clock_ns();
    cudaError_t status;
    if (CUDA(self, err, cudaEventRecord, done, lane->end.stream))
        return -1;
    while ((status = cudaEventQuery(done)) == cudaErrorNotReady && !nccl_has_stopped(&self->comm))
        nccl_pause(start_ns);
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
    if (CUDA(self, err, cudaStreamWaitEvent, lane->end.stream, send->ready, 0) ||
        CUDA(self, err, cudaStreamWaitEvent, lane->end.stream, receive->ready, 0) ||
        CUDA(self, err, cudaMemcpyAsync, to->data, from->data, bytes, cudaMemcpyDeviceToDevice,
             lane->end.stream))
        return -1;
    return CUDA(self, err, cudaEventRecord, done, lane->end.stream);
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

static void drop_tasks(struct lane *lane)
{
    while (lane->tasks)
        drop_task(lane, lane->tasks);
}

static void begin_busy(struct lane *lane)
{
    while (lane->busy)
        pthread_cond_wait(&lane->changed, &lane->owner->comm.family->lock);
    lane->busy = true;
    pthread_mutex_unlock(&lane->owner->comm.family->lock);
}

static void end_busy(struct lane *lane)
{
    pthread_mutex_lock(&lane->owner->comm.family->lock);
    lane->busy = false;
    pthread_cond_broadcast(&lane->changed);
}

/* All that NCCL might connect for: kind, type and lengths. Two jobs of which one is taken for the other only wait too long. */
static uint64_t shape_of(const struct job *job)
{
    uint64_t shape = 0xcbf29ce484222325u;
    uint64_t head[] = {(uint64_t)job->kind, (uint64_t)job->dtype, (uint64_t)job->reduction,
                       (uint64_t)job->peer};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        shape = (shape ^ head[i]) * 0x100000001b3u;
    for (int i = 0; i < job_span_count(job); i++)
        shape = (shape ^ (uint64_t)job->spans[i].count) * 0x100000001b3u;
    return shape;
}

static bool is_known(const struct lane *lane, uint64_t shape)
{
    for (int i = 0; i < lane->known_count; i++)
        if (lane->known[i] == shape)
            return true;
    return false;
}

static void remember(struct lane *lane, const struct job *job)
{
    uint64_t shape = shape_of(job);
    if (is_known(lane, shape))
        return;
    lane->known = host_resize(lane->known, ((size_t)lane->known_count + 1) * sizeof *lane->known);
    lane->known[lane->known_count++] = shape;
}

/* Ends the family when it fails. `other`: NULL, or the second task that is done with the first. */
static void serve(struct lane *lane, struct task *task, struct task *other)
{
    struct nccl_rank *self = lane->owner;
    cudaEvent_t done = NULL;
    struct error err;
    begin_busy(lane);
    int status = new_event(self, &done, &err);
    if (!status && other)
        status = run_copy(lane, task, other, done, &err);
    else if (!status && task->job->kind == JOB_BARRIER)
        status = run_barrier(lane, done, &err);
    else if (!status)
        status = run_job(lane, task, done, &err);
    if (status)
        fail(self, &err);
    end_busy(lane);
    if (!status)
        remember(lane, task->job);
    if (done)
        add_mark(lane, task->job->ticket, other ? other->job->ticket : 0, done);
    drop_task(lane, task);
    if (other)
        drop_task(lane, other);
}

/* ------------------------------------------------------------------------------------------------- the lane's own thread */

static void look(struct lane *lane)
{
    struct nccl_rank *self = lane->owner;
    int64_t until_ns = clock_ns() + look_ns;
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    if (pthread_cond_timedwait(&lane->changed, &self->comm.family->lock, &until) == 0 || lane->busy ||
        !lane->end.nccl)
        return;
    struct error err;
    begin_busy(lane);
    if (nccl_look(&lane->end, &err))
        fail(self, &err);
    end_busy(lane);
}

/* The family has ended. Whoever is at the lane's end notices by himself. */
static void give_up(struct lane *lane)
{
    struct nccl_rank *self = lane->owner;
    begin_busy(lane);
    nccl_disconnect(&lane->end);
    end_busy(lane);
    if (lane->tasks && !lane->tasks->here)
        drop_tasks(lane);
    if (!self->closing)
        pthread_cond_wait(&lane->changed, &self->comm.family->lock);
}

static void *work(void *context)
{
    struct lane *lane = context;
    struct nccl_rank *self = lane->owner;
    cudaSetDevice(self->device->ordinal);
    pthread_mutex_lock(&self->comm.family->lock);
    while (!self->closing || lane->tasks) {
        if (self->comm.family->stopped)
            give_up(lane);
        else if (lane->tasks && !lane->tasks->here && !lane->busy)
            serve(lane, lane->tasks, NULL);
        else
            look(lane);
    }
    pthread_mutex_unlock(&self->comm.family->lock);
    nccl_disconnect(&lane->end);
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
    pthread_cond_destroy(&lane->changed);
    if (lane->end.stream)
        cudaStreamDestroy(lane->end.stream);
    free(lane->known);
    free(lane);
}

static int start_thread(struct lane *lane, struct error *err)
{
    const struct comm *comm = &lane->owner->comm;
    int code = to_itself(lane) ? 0 : pthread_create(&lane->thread, NULL, work, lane);
    return code ? error_set(err, "no thread for what rank %d of %d exchanges: %s; use fewer ranks",
                            comm->rank, comm->size, strerror(code))
                : 0;
}

static struct lane *open_lane(struct nccl_rank *self, int peer, int tag, enum job_kind kind,
                              struct error *err)
{
    struct lane *lane = host_alloc(sizeof *lane);
    *lane = (struct lane){.owner = self, .peer = peer, .tag = tag, .kind = kind};
    lane->end = (struct nccl_end){.comm = &self->comm, .ordinal = self->device->ordinal};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&lane->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (CUDA(self, err, cudaStreamCreateWithFlags, &lane->end.stream, cudaStreamNonBlocking) ||
        start_thread(lane, err)) {
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

static struct task *add_task(struct lane *lane, struct job *job, cudaEvent_t ready)
{
    struct task *task = host_alloc(sizeof *task), **end = &lane->tasks;
    *task = (struct task){.job = job, .ready = ready};
    while (*end)
        end = &(*end)->next;
    *end = task;
    return task;
}

static struct task *first_of(const struct lane *lane, enum job_kind kind)
{
    struct task *task = lane->tasks;
    while (task && task->job->kind != kind)
        task = task->next;
    return task;
}

/* When both ends of a message to itself are there. */
static void serve_itself(struct lane *lane)
{
    struct task *send = first_of(lane, JOB_SEND), *receive = first_of(lane, JOB_RECEIVE);
    if (send && receive)
        serve(lane, send, receive);
    if (lane->owner->comm.family->stopped)
        drop_tasks(lane);
}

/* In what was done before, NCCL waits for nobody. */
static bool may_serve_here(const struct lane *lane, const struct task *task)
{
    return lane->tasks == task && task->job->kind != JOB_BARRIER && is_known(lane, shape_of(task->job));
}

static int serve_here(struct lane *lane, struct task *task, struct error *err)
{
    struct family *family = lane->owner->comm.family;
    task->here = true;
    while (lane->busy)
        pthread_cond_wait(&lane->changed, &family->lock);
    if (family->stopped)
        drop_task(lane, task);
    else
        serve(lane, task, NULL);
    return family_check(family, err);
}

static int refuse_in_recording(struct lane *lane, struct task *task, struct error *err)
{
    bool barrier = task->job->kind == JOB_BARRIER;
    error_set(err, "GPU %d: a %s%s cannot be recorded; use --no-graph", lane->owner->device->ordinal,
              job_name(task->job->kind), barrier ? "" : " that was never done before");
    drop_task(lane, task);
    return -1;
}

static int begin_task(struct lane *lane, struct task *task, bool recording, struct error *err)
{
    if (to_itself(lane)) {
        serve_itself(lane);
        return family_check(lane->owner->comm.family, err);
    }
    if (may_serve_here(lane, task))
        return serve_here(lane, task, err);
    if (recording)
        return refuse_in_recording(lane, task, err);
    pthread_cond_broadcast(&lane->changed);
    return 0;
}

static int is_recording(const struct nccl_rank *self, bool *out, struct error *err)
{
    enum cudaStreamCaptureStatus capture;
    if (CUDA(self, err, cudaStreamIsCapturing, self->device->compute, &capture))
        return -1;
    *out = capture != cudaStreamCaptureStatusNone;
    return 0;
}

static int nccl_start(struct comm *comm, struct job *job, struct error *err)
{
    struct nccl_rank *self = (struct nccl_rank *)comm;
    cudaEvent_t ready = NULL;
    bool recording;
    struct lane *lane = is_recording(self, &recording, err) ? NULL : lane_of(self, job, err);
    if (!lane || new_event(self, &ready, err) ||
        CUDA(self, err, cudaEventRecord, ready, self->device->compute)) {
        if (ready)
            cudaEventDestroy(ready);
        job_finish(comm, job);
        return -1;
    }
    return begin_task(lane, add_task(lane, job, ready), recording, err);
}

static void wake_lanes(const struct nccl_rank *self)
{
    for (struct lane *lane = self->lanes; lane; lane = lane->next)
        pthread_cond_broadcast(&lane->changed);
}

static void nccl_stop(struct comm *comm)
{
    struct nccl_rank *self = (struct nccl_rank *)comm;
    for (struct lane *lane = self->lanes; lane; lane = lane->next)
        if (to_itself(lane) && !lane->busy)
            drop_tasks(lane);
    wake_lanes(self);
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
        if (!to_itself(lane))
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
    if (nccl_check_version(err))
        return -1;
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
