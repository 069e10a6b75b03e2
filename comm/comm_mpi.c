/* Ranks as processes, over MPI. The only file that knows MPI; built into a library of its own (comm_mpi.h).
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
#include "comm/exchange.h"
#include "comm/transport.h"

#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    NOTICE_TAG = 1,
    TAG_ROOM = COMM_TAG_MAX + 1, /* messages of group g have the tags from g * TAG_ROOM on */
    MOST_BYTES = 1 << 30,        /* in one call, which counts in int */
    IDLE_NS = 20 * 1000 * 1000,
    MOST_PAUSE_NS = 1000 * 1000,
    YIELD_NS = 200 * 1000, /* since the last progress, before the first pause */
    LEAVE_S = 5,
    SETTLE_S = 2,
};

static const int64_t second_ns = 1000000000;

/* What ranks tell each other besides their data. */
struct notice {
    enum { NOTICE_STOP, NOTICE_CLOSED } kind;
    int rank; /* of the world: who stopped, or closed */
    int stopper; /* of a stop: the rank whose error it is in the view of `rank`; to all others it is ERROR_STOPPED */
    int context; /* of the group that was closed */
    char text[sizeof((struct error *)0)->text];
};

/* A rank that closed a group. What it sent before may still be on its way. */
struct departure {
    struct departure *next;
    int rank, context;
    int64_t heard_ns;
};

struct mpi_rank {
    struct comm comm;
    struct exchange exchange;
    struct mpi_rank *next_active;
    struct job *job; /* the collective under way */
    bool has_begun;
    int64_t start_ns;
    MPI_Request *requests; /* one in and one out for every other rank */
    int request_count;
    bool closing, closed; /* asked of the worker; done */
};

/* A message under way, in pieces that MPI can count. */
struct transfer {
    struct transfer *next;
    struct mpi_rank *owner;
    struct job *job;
    bool has_begun;
    int64_t arrived; /* bytes of a receive */
    int request_count;
    MPI_Request requests[];
};

struct mpi_family {
    struct family family;
    pthread_t worker;
    pthread_cond_t work, changed; /* for the worker; for who waits for `state` or `settled` */
    enum { OPENING, OPENED, FAILED } state;
    struct error why_failed;
    struct comm *world;
    int open;  /* groups that are not closed */
    bool news; /* the worker has not seen everything */
    int next_context, most_contexts;
    bool settled; /* all have said who stopped, or had the time to */

    /* The worker's own. */
    int rank, size;
    MPI_Comm collectives, messages, notices;
    struct mpi_rank *active;
    struct transfer *transfers;
    struct notice heard;
    MPI_Request hearing;
    struct departure *departures;
    int stops_heard;
    int first; /* the lowest rank known to have stopped by itself; -1: none */
    bool stop_handled;
    int64_t stop_ns;  /* when that was */
    int64_t moved_ns; /* when there was progress */
};

static void stop_with(struct mpi_family *mpi, int stopper, struct error *why)
{
    pthread_mutex_lock(&mpi->family.lock);
    if (stopper != mpi->rank)
        why->kind = ERROR_STOPPED;
    family_stop(&mpi->family, why, stopper);
    pthread_mutex_unlock(&mpi->family.lock);
}

static void stop_by_mpi(struct mpi_family *mpi, int code, const char *doing)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    struct error why;
    error_set(&why, "rank %d: MPI failed to %s: %.200s; see what the launcher printed", mpi->rank, doing,
              text);
    stop_with(mpi, mpi->rank, &why);
}

/* Are all done? Null requests are. A failure ends the family, and counts as not done. With `arrived`, adds to it the bytes
 * of the receives that ended now. */
static bool are_done(struct mpi_family *mpi, MPI_Request *requests, int count, int64_t *arrived,
                     const char *doing)
{
    for (int i = 0; i < count; i++) {
        int done = 0, bytes = 0;
        MPI_Status status;
        int code = MPI_Test(&requests[i], &done, &status);
        if (code != MPI_SUCCESS)
            stop_by_mpi(mpi, code, doing);
        if (code != MPI_SUCCESS || !done)
            return false;
        if (arrived && MPI_Get_count(&status, MPI_BYTE, &bytes) == MPI_SUCCESS)
            *arrived += bytes;
    }
    return true;
}

/* Ends requests that nobody needs any more. After a second without an answer they are left to MPI, and false says that it
 * may still use their memory: this happens only to a program that is about to end. */
static bool drop(MPI_Request *requests, int count)
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

/* Notices. */

static void tell(struct mpi_family *mpi, int rank, const struct notice *notice)
{
    if (rank == mpi->rank)
        return;
    MPI_Request request;
    int64_t start_ns = clock_ns();
    int done = 0;
    MPI_Isend(notice, sizeof *notice, MPI_BYTE, rank, NOTICE_TAG, mpi->notices, &request);
    while (!done && clock_ns() - start_ns < second_ns)
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (!done)
        MPI_Request_free(&request);
}

static void tell_stop(struct mpi_family *mpi)
{
    struct notice notice = {.kind = NOTICE_STOP, .rank = mpi->rank, .stopper = mpi->family.stopper};
    memcpy(notice.text, mpi->family.why.text, sizeof notice.text);
    for (int rank = 0; rank < mpi->size; rank++)
        tell(mpi, rank, &notice);
}

static void tell_closed(struct mpi_family *mpi, const struct comm *comm)
{
    struct notice notice = {.kind = NOTICE_CLOSED, .rank = mpi->rank, .context = comm->context};
    for (int rank = 0; rank < comm->size; rank++)
        tell(mpi, comm->world_ranks[rank], &notice);
}

static void listen(struct mpi_family *mpi)
{
    MPI_Irecv(&mpi->heard, sizeof mpi->heard, MPI_BYTE, MPI_ANY_SOURCE, NOTICE_TAG, mpi->notices,
              &mpi->hearing);
}

/* Who stopped because another did has nothing to say. */
static void note_stopper(struct mpi_family *mpi, int rank, int stopper)
{
    if (rank == stopper && (mpi->first < 0 || rank < mpi->first))
        mpi->first = rank;
}

static void hear_stop(struct mpi_family *mpi)
{
    struct error why;
    error_set(&why, "%s", mpi->heard.text);
    mpi->stops_heard++;
    note_stopper(mpi, mpi->heard.rank, mpi->heard.stopper);
    stop_with(mpi, mpi->heard.stopper, &why);
}

static void hear_closed(struct mpi_family *mpi)
{
    struct departure *departure = host_alloc(sizeof *departure);
    *departure = (struct departure){mpi->departures, mpi->heard.rank, mpi->heard.context, clock_ns()};
    mpi->departures = departure;
}

static bool hear(struct mpi_family *mpi)
{
    if (!are_done(mpi, &mpi->hearing, 1, NULL, "listen to other ranks"))
        return false;
    if (mpi->heard.kind == NOTICE_STOP)
        hear_stop(mpi);
    else
        hear_closed(mpi);
    listen(mpi);
    return true;
}

static bool has_left(const struct mpi_family *mpi, const struct comm *comm, int world_rank)
{
    const struct departure *left = mpi->departures;
    while (left && (left->context != comm->context || left->rank != world_rank))
        left = left->next;
    return left != NULL;
}

/* The rank of the world that reports what the whole group found out. */
static int choose_stopper(const struct mpi_family *mpi, const struct comm *comm)
{
    int rank = 0;
    while (has_left(mpi, comm, comm->world_ranks[rank]))
        rank++;
    return comm->world_ranks[rank];
}

/* Does this call wait for a rank that left? A second later all that it sent must have arrived. */
static void check_departures(struct mpi_family *mpi, const struct comm *comm, const struct job *job)
{
    for (const struct departure *left = mpi->departures; left; left = left->next) {
        if (left->context != comm->context || clock_ns() - left->heard_ns < second_ns)
            continue;
        if (job_is_message(job) && comm->world_ranks[job->peer] != left->rank)
            continue;
        struct error why;
        error_set(&why, "rank %d stopped: closed while other ranks went on; call the same on every rank",
                  left->rank);
        stop_with(mpi, choose_stopper(mpi, comm), &why);
        return;
    }
}

/* Collectives. */

static void post_round(struct mpi_family *mpi, struct mpi_rank *self)
{
    self->request_count = 0;
    int code = MPI_SUCCESS;
    for (int rank = 0; rank < self->comm.size && code == MPI_SUCCESS; rank++) {
        if (rank == self->comm.rank)
            continue;
        int peer = self->comm.world_ranks[rank], tag = self->comm.context;
        int64_t bytes;
        const void *outgoing = exchange_outgoing(&self->exchange, rank, &bytes);
        MPI_Request *requests = self->requests + self->request_count;
        requests[0] = requests[1] = MPI_REQUEST_NULL;
        code = MPI_Irecv(exchange_incoming(&self->exchange, rank), (int)self->exchange.slot_bytes, MPI_BYTE,
                         peer, tag, mpi->collectives, &requests[0]);
        if (code == MPI_SUCCESS)
            code = MPI_Isend(outgoing, (int)bytes, MPI_BYTE, peer, tag, mpi->collectives, &requests[1]);
        self->request_count += 2;
    }
    if (code != MPI_SUCCESS)
        stop_by_mpi(mpi, code, "start a collective");
}

static void finish_collective(struct mpi_rank *self)
{
    pthread_mutex_lock(&self->comm.family->lock);
    self->comm.busy_ns += clock_ns() - self->start_ns;
    job_finish(&self->comm, self->job);
    self->job = NULL;
    pthread_mutex_unlock(&self->comm.family->lock);
}

/* True when something happened. */
static bool advance_collective(struct mpi_family *mpi, struct mpi_rank *self)
{
    if (!self->has_begun) {
        self->has_begun = true;
        exchange_begin(&self->exchange, self->job);
        post_round(mpi, self);
        return true;
    }
    if (!are_done(mpi, self->requests, self->request_count, NULL, "carry out a collective")) {
        check_departures(mpi, &self->comm, self->job);
        return false;
    }
    struct error why;
    int more = exchange_advance(&self->exchange, &why);
    if (more > 0)
        post_round(mpi, self);
    else if (more < 0)
        stop_with(mpi, choose_stopper(mpi, &self->comm), &why);
    else
        finish_collective(self);
    return true;
}

static bool advance_collectives(struct mpi_family *mpi)
{
    bool moved = false;
    struct mpi_rank **link = &mpi->active;
    while (*link) {
        moved |= advance_collective(mpi, *link);
        if ((*link)->job)
            link = &(*link)->next_active;
        else
            *link = (*link)->next_active;
    }
    return moved;
}

/* Messages. */

static void post_transfer(struct mpi_family *mpi, struct transfer *transfer)
{
    const struct job *job = transfer->job;
    const struct comm *comm = &transfer->owner->comm;
    unsigned char *data = job->spans[0].data;
    int64_t bytes = job->count * dtype_bytes(job->dtype);
    int peer = comm->world_ranks[job->peer], tag = comm->context * TAG_ROOM + job->tag;
    int code = MPI_SUCCESS;
    for (int i = 0; i < transfer->request_count && code == MPI_SUCCESS; i++) {
        int64_t at = (int64_t)i * MOST_BYTES;
        int count = (int)min_i64(bytes - at, MOST_BYTES);
        MPI_Request *request = &transfer->requests[i];
        if (job->kind == JOB_SEND)
            code = MPI_Isend(data + at, count, MPI_BYTE, peer, tag, mpi->messages, request);
        else
            code = MPI_Irecv(data + at, count, MPI_BYTE, peer, tag, mpi->messages, request);
    }
    if (code != MPI_SUCCESS)
        stop_by_mpi(mpi, code, "start a message");
}

/* A message that is too long is an error of MPI's. */
static void check_length(struct mpi_family *mpi, const struct transfer *transfer)
{
    const struct job *job = transfer->job;
    const int *world_ranks = transfer->owner->comm.world_ranks;
    int64_t expected = job->count * dtype_bytes(job->dtype);
    if (job->kind == JOB_SEND || transfer->arrived == expected)
        return;
    struct error why;
    error_set(&why,
              "rank %d receives %lld bytes from rank %d, which sends %lld with tag %d; make the two agree",
              mpi->rank, (long long)expected, world_ranks[job->peer], (long long)transfer->arrived, job->tag);
    stop_with(mpi, mpi->rank, &why);
}

static bool advance_transfer(struct mpi_family *mpi, struct transfer *transfer)
{
    if (!transfer->has_begun) {
        transfer->has_begun = true;
        post_transfer(mpi, transfer);
        return false;
    }
    int64_t *arrived = transfer->job->kind == JOB_RECEIVE ? &transfer->arrived : NULL;
    if (!are_done(mpi, transfer->requests, transfer->request_count, arrived, "carry a message")) {
        check_departures(mpi, &transfer->owner->comm, transfer->job);
        return false;
    }
    check_length(mpi, transfer);
    pthread_mutex_lock(&mpi->family.lock);
    job_finish(&transfer->owner->comm, transfer->job);
    pthread_mutex_unlock(&mpi->family.lock);
    return true;
}

static bool advance_transfers(struct mpi_family *mpi)
{
    bool moved = false;
    struct transfer **link = &mpi->transfers;
    while (*link) {
        struct transfer *transfer = *link;
        if (!advance_transfer(mpi, transfer)) {
            link = &transfer->next;
            continue;
        }
        moved = true;
        *link = transfer->next;
        free(transfer);
    }
    return moved;
}

/* The worker. */

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
    note_stopper(mpi, mpi->rank, mpi->family.stopper);
    tell_stop(mpi);
    for (struct mpi_rank *self = mpi->active; self; self = self->next_active)
        if (!drop(self->requests, self->request_count))
            exchange_open(&self->exchange, self->comm.rank, self->comm.size, 0); /* MPI keeps its memory */
    mpi->active = NULL;
    for (struct transfer *transfer = mpi->transfers, *next; transfer; transfer = next) {
        next = transfer->next;
        drop(transfer->requests, transfer->request_count);
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
    tell_closed(mpi, &self->comm);
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
    listen(mpi);
    return 0;
}

static void abort_all(void)
{
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* After a failure: has everybody closed the world, within some seconds? */
static bool have_all_left(struct mpi_family *mpi)
{
    int64_t start_ns = clock_ns();
    while (clock_ns() - start_ns < LEAVE_S * second_ns) {
        int left = 0;
        for (const struct departure *departure = mpi->departures; departure; departure = departure->next)
            left += departure->context == 0;
        if (left == mpi->size - 1)
            return true;
        if (!hear(mpi))
            nanosleep(&(struct timespec){.tv_nsec = MOST_PAUSE_NS}, NULL);
    }
    return false;
}

/* MPI_Finalize() waits for all ranks. Where some may never come, the end of this program ends theirs. After a failure the
 * launcher kills the others as soon as one has ended, so the rank that has something to say is given the time. */
static void close_mpi(struct mpi_family *mpi)
{
    if (mpi->family.stopped && !have_all_left(mpi)) {
        atexit(abort_all);
    } else {
        drop(&mpi->hearing, 1);
        MPI_Finalize();
    }
    if (mpi->family.stopped && mpi->first != mpi->rank)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    for (struct departure *departure = mpi->departures, *next; departure; departure = next) {
        next = departure->next;
        free(departure);
    }
}

static void run(struct mpi_family *mpi)
{
    pthread_mutex_lock(&mpi->family.lock);
    while (mpi->open > 0) {
        take_jobs(mpi);
        bool stopped = mpi->family.stopped;
        struct mpi_rank *closing = find_closing(mpi);
        pthread_mutex_unlock(&mpi->family.lock);
        bool moved = hear(mpi);
        if (stopped)
            handle_stop(mpi);
        moved |= advance_collectives(mpi);
        moved |= advance_transfers(mpi);
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
