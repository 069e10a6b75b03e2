/* Ranks as threads of one process. Each rank has a worker that takes its collectives from a queue, so the rank can compute
 * meanwhile. In a collective the workers meet twice: first to know that every rank's data is there, then, after each has
 * summed its share in the memory of all, to know that every share is done.
 *
 * The first meeting is where an abort shows, and all ranks pass it or none does. The second always comes to pass, since
 * between the two nobody waits. So when a rank's queue is empty, whether it failed or not, no other rank touches its data. */
#include "comm/comm.h"

#include "base/arena.h"
#include "base/clock.h"
#include "comm/reduce.h"
#include "comm/transport.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A collective that was started on one rank. */
struct job {
    struct job *next;
    struct reduction reduction; /* over the copy of the spans below */
    struct comm_span spans[];
};

/* Where all ranks wait for each other, again and again. */
struct meeting {
    pthread_cond_t all_here;
    int arrived;
    int64_t turn; /* how many times all have met */
};

/* What the ranks share, under `lock`; `vectors` does not change between two meetings and is read there without it. */
struct group {
    pthread_mutex_t lock;
    int size, open;   /* open: ranks that are not closed yet */
    int first_closed; /* the rank that closed first, or -1: nothing can complete after that */
    struct stop stop;
    struct meeting workers, callers;
    const struct job **jobs;          /* by rank: what its worker brought to the meeting */
    const struct comm_span **vectors; /* by rank: the spans of that job */
};

struct thread_rank {
    struct comm comm;
    struct group *group;
    pthread_t worker;
    pthread_cond_t work, done; /* for the worker; for the caller in wait */
    struct job *first, *last;  /* the queue; the first one may be in progress */
    bool closing;
    int64_t busy_ns, waited_ns;
};

/* Has the group ended? Lock held, as in all that follows up to the transport's own functions. */
static bool ended(struct group *group)
{
    if (group->first_closed >= 0)
        stop_by_abort(&group->stop, group->first_closed,
                      "closed while other ranks went on; call the same on every rank");
    return group->stop.set;
}

static void wake_all(struct group *group)
{
    pthread_cond_broadcast(&group->workers.all_here);
    pthread_cond_broadcast(&group->callers.all_here);
}

static void stop(struct group *group, int rank, const char *reason)
{
    stop_by_abort(&group->stop, rank, reason);
    wake_all(group);
}

/* Arrives; true when this was the last rank, and so the others are on their way. */
static bool arrive(struct group *group, struct meeting *meeting)
{
    if (++meeting->arrived < group->size)
        return false;
    meeting->arrived = 0;
    meeting->turn++;
    pthread_cond_broadcast(&meeting->all_here);
    return true;
}

/* Returns when all ranks have come: 0, or -1 when the group ends before. */
static int meet(struct group *group, struct meeting *meeting)
{
    if (ended(group))
        return -1;
    int64_t turn = meeting->turn;
    if (arrive(group, meeting))
        return 0;
    while (meeting->turn == turn && !ended(group))
        pthread_cond_wait(&meeting->all_here, &group->lock);
    return meeting->turn == turn ? -1 : 0;
}

/* As meet(), where all ranks are known to come even if the group ends. */
static void meet_surely(struct group *group, struct meeting *meeting)
{
    int64_t turn = meeting->turn;
    if (arrive(group, meeting))
        return;
    while (meeting->turn == turn)
        pthread_cond_wait(&meeting->all_here, &group->lock);
}

/* All ranks look at the same jobs, so all see the same difference, or none. */
static int check_same(struct group *group)
{
    const struct reduction *mine = &group->jobs[0]->reduction;
    for (int rank = 1; rank < group->size; rank++) {
        const struct reduction *other = &group->jobs[rank]->reduction;
        if (other->total == mine->total && other->dtype == mine->dtype)
            continue;
        if (!group->stop.set)
            error_set(&group->stop.why,
                      "all-reduce of %lld %s on rank 0 meets %lld %s on rank %d; make the same calls in the "
                      "same order on every rank",
                      (long long)mine->total, dtype_name(mine->dtype), (long long)other->total,
                      dtype_name(other->dtype), rank);
        group->stop.set = true;
        wake_all(group);
        return -1;
    }
    return 0;
}

static void all_reduce(struct thread_rank *self, const struct job *job)
{
    struct group *group = self->group;
    int rank = self->comm.rank, size = group->size;
    group->jobs[rank] = job;
    group->vectors[rank] = job->spans;
    if (meet(group, &group->workers))
        return;
    if (!check_same(group)) {
        int64_t total = job->reduction.total;
        pthread_mutex_unlock(&group->lock);
        reduce_range(group->vectors, size, reduce_share(total, rank, size),
                     reduce_share(total, rank + 1, size), job->reduction.dtype);
        pthread_mutex_lock(&group->lock);
    }
    meet_surely(group, &group->workers);
}

static void *work(void *context)
{
    struct thread_rank *self = context;
    struct group *group = self->group;
    pthread_mutex_lock(&group->lock);
    for (;;) {
        while (!self->first && !self->closing)
            pthread_cond_wait(&self->work, &group->lock);
        struct job *job = self->first;
        if (!job)
            break;
        int64_t start_ns = clock_ns();
        all_reduce(self, job);
        self->busy_ns += clock_ns() - start_ns;
        self->first = job->next;
        free(job);
        if (!self->first)
            pthread_cond_signal(&self->done);
    }
    pthread_mutex_unlock(&group->lock);
    return NULL;
}

static struct job *job_create(const struct reduction *reduction)
{
    size_t bytes = (size_t)reduction->span_count * sizeof *reduction->spans;
    struct job *job = host_alloc(sizeof *job + bytes);
    job->reduction = *reduction;
    job->reduction.spans = job->spans;
    if (bytes)
        memcpy(job->spans, reduction->spans, bytes);
    return job;
}

static int threads_start_all_reduce(struct comm *comm, const struct reduction *reduction, struct error *err)
{
    struct thread_rank *self = (struct thread_rank *)comm;
    struct job *job = job_create(reduction);
    pthread_mutex_lock(&self->group->lock);
    int status = stop_check(&self->group->stop, err);
    if (status) {
        free(job);
    } else {
        if (self->first)
            self->last->next = job;
        else
            self->first = job;
        self->last = job;
        pthread_cond_signal(&self->work);
    }
    pthread_mutex_unlock(&self->group->lock);
    return status;
}

static int threads_wait(struct comm *comm, struct error *err)
{
    struct thread_rank *self = (struct thread_rank *)comm;
    pthread_mutex_lock(&self->group->lock);
    if (self->first) {
        int64_t start_ns = clock_ns();
        while (self->first)
            pthread_cond_wait(&self->done, &self->group->lock);
        self->waited_ns += clock_ns() - start_ns;
    }
    int status = stop_check(&self->group->stop, err);
    pthread_mutex_unlock(&self->group->lock);
    return status;
}

static int threads_barrier(struct comm *comm, struct error *err)
{
    struct group *group = ((struct thread_rank *)comm)->group;
    pthread_mutex_lock(&group->lock);
    int status = meet(group, &group->callers);
    if (status)
        stop_check(&group->stop, err);
    pthread_mutex_unlock(&group->lock);
    return status;
}

static void threads_abort(struct comm *comm, const char *reason)
{
    struct group *group = ((struct thread_rank *)comm)->group;
    pthread_mutex_lock(&group->lock);
    stop(group, comm->rank, reason);
    pthread_mutex_unlock(&group->lock);
}

static void threads_times(struct comm *comm, double *busy_s, double *waited_s)
{
    struct thread_rank *self = (struct thread_rank *)comm;
    pthread_mutex_lock(&self->group->lock);
    *busy_s = (double)self->busy_ns * 1e-9;
    *waited_s = (double)self->waited_ns * 1e-9;
    self->busy_ns = self->waited_ns = 0;
    pthread_mutex_unlock(&self->group->lock);
}

static void group_free(struct group *group)
{
    pthread_cond_destroy(&group->callers.all_here);
    pthread_cond_destroy(&group->workers.all_here);
    pthread_mutex_destroy(&group->lock);
    free(group->vectors);
    free(group->jobs);
    free(group);
}

/* Collectives that nobody waited for are given up, since the other ranks may never start theirs. */
static void threads_close(struct comm *comm)
{
    struct thread_rank *self = (struct thread_rank *)comm;
    struct group *group = self->group;
    pthread_mutex_lock(&group->lock);
    if (self->first)
        stop(group, comm->rank, "closed with collectives pending; call comm_wait() first");
    self->closing = true;
    pthread_cond_signal(&self->work);
    pthread_mutex_unlock(&group->lock);
    pthread_join(self->worker, NULL);

    pthread_mutex_lock(&group->lock);
    if (group->first_closed < 0)
        group->first_closed = comm->rank;
    wake_all(group);
    bool last = --group->open == 0;
    pthread_mutex_unlock(&group->lock);
    pthread_cond_destroy(&self->done);
    pthread_cond_destroy(&self->work);
    free(self);
    if (last)
        group_free(group);
}

static const struct transport threads = {
    .start_all_reduce = threads_start_all_reduce,
    .wait = threads_wait,
    .barrier = threads_barrier,
    .abort = threads_abort,
    .times = threads_times,
    .close = threads_close,
};

static struct group *group_create(int size)
{
    struct group *group = host_alloc(sizeof *group);
    group->size = size;
    group->first_closed = -1;
    group->jobs = host_alloc((size_t)size * sizeof *group->jobs);
    group->vectors = host_alloc((size_t)size * sizeof *group->vectors);
    pthread_mutex_init(&group->lock, NULL);
    pthread_cond_init(&group->workers.all_here, NULL);
    pthread_cond_init(&group->callers.all_here, NULL);
    return group;
}

static struct comm *rank_open(struct group *group, int rank, struct error *err)
{
    struct thread_rank *self = host_alloc(sizeof *self);
    self->comm = (struct comm){&threads, rank, group->size};
    self->group = group;
    pthread_cond_init(&self->work, NULL);
    pthread_cond_init(&self->done, NULL);
    int code = pthread_create(&self->worker, NULL, work, self);
    if (!code) {
        group->open++;
        return &self->comm;
    }
    error_set(err, "no thread for rank %d of %d: %s; use fewer ranks", rank, group->size, strerror(code));
    pthread_cond_destroy(&self->done);
    pthread_cond_destroy(&self->work);
    free(self);
    return NULL;
}

int comm_open_threads(int size, struct comm **out, struct error *err)
{
    if (size < 1)
        return error_set(err, "a group of %d ranks; at least 1 is needed", size);
    struct group *group = group_create(size);
    for (int rank = 0; rank < size; rank++) {
        out[rank] = rank_open(group, rank, err);
        if (out[rank])
            continue;
        if (rank == 0)
            group_free(group);
        while (--rank >= 0)
            comm_close(out[rank]);
        return -1;
    }
    return 0;
}
