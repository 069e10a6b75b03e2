/* Ranks as processes, over MPI; built into a library of its own (comm_mpi.h). Here is the worker, and the transport that it is to
 * the rest; beside it mpi_carry.c and mpi_notices.c, and what all three share in mpi_family.h.
 *
 * One worker per process makes all calls of MPI, from start to end: for every group it carries one collective at a time
 * through its rounds (exchange.h), and beside them all messages, by asking what has arrived and never by waiting inside MPI.
 * So groups cannot block each other, MPI need not be safe for several threads (MPI_THREAD_SERIALIZED, where many
 * installations are weak in MPI_THREAD_MULTIPLE), and news of a failure is always heard. When nothing arrives the worker
 * sleeps a little longer each time, since ranks often outnumber cores and MPI itself would spin.
 *
 * Collectives are made of sends and receives, because MPI_Allreduce promises no order of addition: ranks' values are
 * added in rank order by exchange.c, as between threads. Groups are numbered (membership.context) and not communicators of
 * MPI, whose creation would block the worker.
 *
 * A killed process is noticed by its launcher, which ends the others. A rank that fails tells all others why; whoever then
 * finds that not everybody leaves ends the whole run with MPI_Abort(), when its program exits. */
#include "comm/comm_mpi.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/clock.h"
#include "comm/mpi_family.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    IDLE_NS = 20 * 1000 * 1000,
    MOST_PAUSE_NS = 1000 * 1000,
    YIELD_NS = 200 * 1000, /* since the last progress, before the first pause */
    SETTLE_S = 2,
};

void mpi_stop_with(struct mpi_family *mpi, int stopper, struct error *why)
{
    pthread_mutex_lock(&mpi->family.lock);
    if (stopper != mpi->rank)
        why->kind = ERROR_STOPPED;
    family_stop(&mpi->family, why, stopper);
    pthread_mutex_unlock(&mpi->family.lock);
}

void mpi_stop_by_code(struct mpi_family *mpi, int code, const char *doing)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    struct error why;
    error_set(&why, "rank %d: MPI failed to %s: %.200s; see what the launcher printed", mpi->rank, doing,
              text);
    mpi_stop_with(mpi, mpi->rank, &why);
}

bool mpi_are_done(struct mpi_family *mpi, MPI_Request *requests, int count, int64_t *arrived,
                  const char *doing)
{
    for (int i = 0; i < count; i++) {
        int done = 0, bytes = 0;
        MPI_Status status;
        int code = MPI_Test(&requests[i], &done, &status);
        if (code != MPI_SUCCESS)
            mpi_stop_by_code(mpi, code, doing);
        if (code != MPI_SUCCESS || !done)
            return false;
        if (arrived && MPI_Get_count(&status, MPI_BYTE, &bytes) == MPI_SUCCESS)
            *arrived += bytes;
    }
    return true;
}

bool mpi_drop(MPI_Request *requests, int count)
{
    int64_t start_ns = clock_ns();
    int done = 0;
    for (int i = 0; i < count; i++)
        if (requests[i] != MPI_REQUEST_NULL)
            MPI_Cancel(&requests[i]);
    while (!done && clock_ns() - start_ns < second_ns)
        MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
    for (int i = 0; i < count && !done; i++)
        if (requests[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&requests[i]);
    return done;
}

/* Those that have begun are finished by what carries them. All with the lock held, up to handle_stop(). */
static struct job *take_job(struct mpi_rank *self)
{
    struct job *job = self->comm.jobs;
    while (job && (job->begun || (self->job && !job_is_message(job))))
        job = job->next;
    if (job)
        job->begun = true;
    return job;
}

static void begin_collective(struct mpi_family *mpi, struct mpi_rank *self, struct job *job)
{
    self->job = job;
    self->has_begun = false;
    self->start_ns = clock_ns();
    self->next_active = mpi->active;
    mpi->active = self;
}

/* At the end of the list: MPI matches messages in the order in which they are posted. */
static void begin_message(struct mpi_family *mpi, struct mpi_rank *self, struct job *job)
{
    int64_t bytes = job->count * dtype_bytes(job->dtype);
    int pieces = (int)max_i64(1, (bytes + MOST_BYTES - 1) / MOST_BYTES);
    struct transfer *transfer = host_alloc(sizeof *transfer + (size_t)pieces * sizeof *transfer->requests);
    *transfer = (struct transfer){.owner = self, .job = job, .request_count = pieces};
    for (int i = 0; i < pieces; i++)
        transfer->requests[i] = MPI_REQUEST_NULL;
    struct transfer **end = &mpi->transfers;
    while (*end)
        end = &(*end)->next;
    *end = transfer;
}

static int mpi_start(struct comm *comm, struct job *job, struct error *err);

/* The first from here on that is ours: a family may have members of a transport over this one. */
static struct comm *skip_others(struct comm *comm)
{
    while (comm && comm->transport->start != mpi_start)
        comm = comm->next_member;
    return comm;
}

static void take_jobs(struct mpi_family *mpi)
{
    mpi->news = false;
    struct comm *comm = skip_others(mpi->family.members);
    for (; comm; comm = skip_others(comm->next_member)) {
        struct mpi_rank *self = (struct mpi_rank *)comm;
        for (struct job *job; (job = take_job(self));) {
            if (job_is_message(job))
                begin_message(mpi, self, job);
            else
                begin_collective(mpi, self, job);
        }
    }
}

static struct mpi_rank *find_closing(const struct mpi_family *mpi)
{
    struct comm *comm = skip_others(mpi->family.members);
    for (; comm; comm = skip_others(comm->next_member)) {
        struct mpi_rank *self = (struct mpi_rank *)comm;
        if (self->closing && !self->closed && !comm->jobs)
            return self;
    }
    return NULL;
}

/* Sleeps until there is news from this process, or it is time to look at MPI again. */
static void pause_worker(struct mpi_family *mpi)
{
    int64_t pause_ns = IDLE_NS;
    if (mpi->news)
        return;
    if (mpi->active || mpi->transfers) {
        int64_t quiet_ns = clock_ns() - mpi->moved_ns;
        if (quiet_ns < YIELD_NS) {
            pthread_mutex_unlock(&mpi->family.lock);
            sched_yield();
            pthread_mutex_lock(&mpi->family.lock);
            return;
        }
        pause_ns = min_i64(quiet_ns / 8, MOST_PAUSE_NS);
    }
    int64_t until_ns = clock_ns() + pause_ns;
    struct timespec until = {until_ns / second_ns, until_ns % second_ns};
    pthread_cond_timedwait(&mpi->work, &mpi->family.lock, &until);
}

/* Nothing of this process is under way when this returns, and all jobs are finished. No lock. */
static void handle_stop(struct mpi_family *mpi)
{
    if (mpi->stop_handled)
        return;
    mpi->stop_handled = true;
    mpi->stop_ns = clock_ns();
    mpi_note_stopper(mpi, mpi->rank, mpi->family.stopper);
    mpi_tell_stop(mpi);
    for (struct mpi_rank *self = mpi->active; self; self = self->next_active)
        if (!mpi_drop(self->requests, self->request_count))
            exchange_open(&self->exchange, self->comm.rank, self->comm.size, 0); /* MPI keeps its memory */
    mpi->active = NULL;
    for (struct transfer *transfer = mpi->transfers, *next; transfer; transfer = next) {
        next = transfer->next;
        mpi_drop(transfer->requests, transfer->request_count);
        free(transfer);
    }
    mpi->transfers = NULL;
    pthread_mutex_lock(&mpi->family.lock);
    struct comm *comm = skip_others(mpi->family.members);
    for (; comm; comm = skip_others(comm->next_member))
        while (comm->jobs)
            job_finish(comm, comm->jobs);
    pthread_mutex_unlock(&mpi->family.lock);
}

/* Every process tells every other once that it has stopped, so all come to know the same. With the lock held. */
static void check_settled(struct mpi_family *mpi)
{
    if (mpi->settled || !mpi->stop_handled)
        return;
    if (mpi->stops_heard < mpi->size - 1 && clock_ns() - mpi->stop_ns < SETTLE_S * second_ns)
        return;
    mpi->settled = true;
    mpi->family.stopper = mpi->first;
    pthread_cond_broadcast(&mpi->changed);
}

static void let_go(struct mpi_family *mpi, struct mpi_rank *self)
{
    mpi_tell_closed(mpi, &self->comm);
    pthread_mutex_lock(&mpi->family.lock);
    self->closed = true;
    mpi->open--;
    pthread_cond_broadcast(&self->comm.done);
    pthread_mutex_unlock(&mpi->family.lock);
}

/* Starts MPI. Errors from then on come back to us. */
static int open_mpi(struct mpi_family *mpi, struct error *err)
{
    int is_open = 0, level = 0, has_limit = 0, *largest_tag = NULL;
    MPI_Initialized(&is_open);
    if (is_open)
        return error_set(err, "MPI was started before in this process; open the launched ranks once");
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
        return error_set(err, "MPI could not be started; see what the launcher printed");
    if (level < MPI_THREAD_SERIALIZED)
        return error_set(err, "this MPI knows no threads (level %d); use one built with thread support",
                         level);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi->size);
    mpi->first = -1;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &mpi->collectives) != MPI_SUCCESS ||
        MPI_Comm_dup(MPI_COMM_WORLD, &mpi->messages) != MPI_SUCCESS ||
        MPI_Comm_dup(MPI_COMM_WORLD, &mpi->notices) != MPI_SUCCESS)
        return error_set(err, "rank %d cannot reach the others over MPI; see what the launcher printed",
                         mpi->rank);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest_tag, &has_limit);
    mpi->most_contexts = has_limit ? (int)(((int64_t)*largest_tag + 1) / TAG_ROOM) : 0;
    if (mpi->most_contexts < 1)
        return error_set(err, "this MPI has tags up to %d; at least %d are needed",
                         has_limit ? *largest_tag : 0, COMM_TAG_MAX);
    mpi_listen(mpi);
    return 0;
}

static void abort_all(void)
{
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* MPI_Finalize() waits for all ranks. Where some may never come, the end of this program ends theirs. After a failure the
 * launcher kills the others as soon as one has ended, so the rank that has something to say is given the time. */
static void close_mpi(struct mpi_family *mpi)
{
    if (mpi->family.stopped && !mpi_have_all_left(mpi)) {
        atexit(abort_all);
    } else {
        mpi_drop(&mpi->hearing, 1);
        MPI_Finalize();
    }
    if (mpi->family.stopped && mpi->first != mpi->rank)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    mpi_forget_departures(mpi);
}

static void run(struct mpi_family *mpi)
{
    pthread_mutex_lock(&mpi->family.lock);
    while (mpi->open > 0) {
        take_jobs(mpi);
        bool stopped = mpi->family.stopped;
        struct mpi_rank *closing = find_closing(mpi);
        pthread_mutex_unlock(&mpi->family.lock);
        bool moved = mpi_hear(mpi);
        if (stopped)
            handle_stop(mpi);
        moved |= mpi_advance_collectives(mpi);
        moved |= mpi_advance_transfers(mpi);
        if (closing)
            let_go(mpi, closing);
        pthread_mutex_lock(&mpi->family.lock);
        check_settled(mpi);
        if (moved)
            mpi->moved_ns = clock_ns();
        else
            pause_worker(mpi);
    }
    pthread_mutex_unlock(&mpi->family.lock);
}

/* The transport. */

static void wake_worker(struct mpi_family *mpi)
{
    mpi->news = true;
    pthread_cond_signal(&mpi->work);
}

static int mpi_start(struct comm *comm, struct job *job, struct error *err)
{
    (void)job;
    (void)err;
    wake_worker((struct mpi_family *)comm->family);
    return 0;
}

static void mpi_stop(struct comm *comm)
{
    wake_worker((struct mpi_family *)comm->family);
}

static void mpi_settle(struct comm *comm)
{
    struct mpi_family *mpi = (struct mpi_family *)comm->family;
    wake_worker(mpi);
    while (!mpi->settled)
        pthread_cond_wait(&mpi->changed, &mpi->family.lock);
}

static void mpi_free(struct mpi_family *mpi)
{
    pthread_cond_destroy(&mpi->changed);
    pthread_cond_destroy(&mpi->work);
    family_close(&mpi->family);
    free(mpi);
}

static void mpi_close(struct comm *comm)
{
    struct mpi_rank *self = (struct mpi_rank *)comm;
    struct mpi_family *mpi = (struct mpi_family *)comm->family;
    pthread_mutex_lock(&mpi->family.lock);
    self->closing = true;
    wake_worker(mpi);
    while (!self->closed)
        pthread_cond_wait(&comm->done, &mpi->family.lock);
    family_leave(comm);
    bool last = mpi->open == 0;
    pthread_mutex_unlock(&mpi->family.lock);
    exchange_close(&self->exchange);
    free(self->requests);
    free(self);
    if (!last)
        return;
    pthread_join(mpi->worker, NULL);
    mpi_free(mpi);
}

static struct comm *mpi_join(struct comm *parent, const struct membership *membership, struct error *err);

static struct comm *join(struct mpi_family *mpi, const struct membership *membership, struct error *err)
{
    static const struct transport transport = {
        .start = mpi_start,
        .stop = mpi_stop,
        .settle = mpi_settle,
        .join = mpi_join,
        .close = mpi_close,
    };
    if (membership->context >= mpi->most_contexts) {
        error_set(err, "the ranks were divided %d times; this MPI has tags for no more",
                  mpi->most_contexts - 1);
        return NULL;
    }
    struct mpi_rank *self = host_alloc(sizeof *self);
    self->requests = host_alloc(2 * (size_t)membership->size * sizeof *self->requests);
    exchange_open(&self->exchange, membership->rank, membership->size, 0);
    pthread_mutex_lock(&mpi->family.lock);
    family_join(&mpi->family, &self->comm, &transport, membership, &mpi->next_context);
    mpi->open++;
    pthread_mutex_unlock(&mpi->family.lock);
    return &self->comm;
}

static struct comm *mpi_join(struct comm *parent, const struct membership *membership, struct error *err)
{
    return join((struct mpi_family *)parent->family, membership, err);
}

static int join_world(struct mpi_family *mpi, struct error *err)
{
    int *ranks = host_alloc((size_t)mpi->size * sizeof *ranks);
    for (int rank = 0; rank < mpi->size; rank++)
        ranks[rank] = rank;
    mpi->next_context = 1;
    mpi->world =
        join(mpi, &(struct membership){.rank = mpi->rank, .size = mpi->size, .world_ranks = ranks}, err);
    free(ranks);
    return mpi->world ? 0 : -1;
}

static void *work(void *context)
{
    struct mpi_family *mpi = context;
    int status = open_mpi(mpi, &mpi->why_failed);
    if (!status)
        status = join_world(mpi, &mpi->why_failed);
    pthread_mutex_lock(&mpi->family.lock);
    mpi->state = status ? FAILED : OPENED;
    pthread_cond_signal(&mpi->changed);
    pthread_mutex_unlock(&mpi->family.lock);
    if (status)
        return NULL;
    run(mpi);
    close_mpi(mpi);
    return NULL;
}

/* Signals are for the program's own threads. */
static int start_worker(struct mpi_family *mpi)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&mpi->worker, NULL, work, mpi);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static struct mpi_family *mpi_create(void)
{
    struct mpi_family *mpi = host_alloc(sizeof *mpi);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&mpi->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&mpi->changed, NULL);
    family_open(&mpi->family);
    return mpi;
}

int comm_mpi_open(struct comm **out, struct error *err)
{
    struct mpi_family *mpi = mpi_create();
    int code = start_worker(mpi);
    if (code) {
        mpi_free(mpi);
        return error_set(err, "no thread for MPI: %s; close other programs", strerror(code));
    }
    pthread_mutex_lock(&mpi->family.lock);
    while (mpi->state == OPENING)
        pthread_cond_wait(&mpi->changed, &mpi->family.lock);
    pthread_mutex_unlock(&mpi->family.lock);
    if (mpi->state == OPENED) {
        *out = mpi->world;
        return 0;
    }
    error_set_kind(err, mpi->why_failed.kind, "%s", mpi->why_failed.text);
    pthread_join(mpi->worker, NULL);
    mpi_free(mpi);
    return -1;
}
