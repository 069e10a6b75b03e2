/* Ranks as threads of one process. In a group, each rank has a worker that carries out its collectives in order, so the rank
 * can compute meanwhile; it starts when it is first needed, since many groups carry only messages, or only what is waited for
 * at once, which the rank's own thread carries out when its worker has nothing before it. The workers meet twice:
 * first to know that every rank's data is there, then, after each has done its share in the memory of all, to know that
 * every share is done.
 *
 * The first meeting is where an abort shows, and all ranks pass it or none does. The second always comes to pass, since
 * between the two nobody waits. So when a job is finished, whether it failed or not, no other rank touches its data.
 *
 * A message is copied by whichever of its two ranks starts later, at once. */
#include "comm/comm.h"

#include "base/arena.h"
#include "base/clock.h"
#include "comm/reduce.h"
#include "comm/transport.h"

#include <stdlib.h>
#include <string.h>

/* Where the workers of a group wait for each other, again and again. */
struct meeting {
    pthread_cond_t all_here;
    int arrived;
    int64_t turn; /* how many times all have met */
};

/* What its ranks share, under the family's lock; `jobs` does not change between two meetings and is read there without. */
struct group {
    struct group *next;
    int context, lead; /* together its name; lead: the first rank, by its number in the world */
    int size, closed_count;
    int first_closed;           /* the rank that closed first, or -1: no collective can complete after that */
    struct thread_rank **ranks; /* NULL before a rank has joined, and after it has closed */
    bool *closed;               /* by rank */
    const struct job **jobs;    /* by rank: what its worker brought to the meeting */
    struct meeting meeting;
};

struct thread_family {
    struct family family;
    struct group *groups; /* that some rank has joined and not all have closed */
    int open;             /* ranks of all groups */
    int next_contexts[];  /* by rank of the world */
};

struct thread_rank {
    struct comm comm;
    struct group *group;
    pthread_t worker;
    pthread_cond_t work;
    bool has_worker, closing;
};

static struct comm *join(struct thread_family *threads, const struct membership *membership);

/* Lock held, as in all that follows up to the transport's own functions. */

static void stop_for_closed(const struct comm *comm, int closed)
{
    family_stop_rank(comm->family, comm->world_ranks[closed],
                     "closed while other ranks went on; call the same on every rank");
}

static bool has_ended(const struct thread_rank *self)
{
    if (self->group->first_closed >= 0)
        stop_for_closed(&self->comm, self->group->first_closed);
    return self->comm.family->stopped;
}

/* Arrives; true when this was the last rank, and so the others are on their way. */
static bool arrive(struct group *group)
{
    struct meeting *meeting = &group->meeting;
    if (++meeting->arrived < group->size)
        return false;
    meeting->arrived = 0;
    meeting->turn++;
    pthread_cond_broadcast(&meeting->all_here);
    return true;
}

/* Returns when all ranks have come: 0, or -1 when the group ends before. */
static int meet(struct thread_rank *self)
{
    struct meeting *meeting = &self->group->meeting;
    if (has_ended(self))
        return -1;
    int64_t turn = meeting->turn;
    if (arrive(self->group))
        return 0;
    while (meeting->turn == turn && !has_ended(self))
        pthread_cond_wait(&meeting->all_here, &self->comm.family->lock);
    return meeting->turn == turn ? -1 : 0;
}

/* As meet(), where all ranks are known to come even if the group ends. */
static void meet_surely(struct thread_rank *self)
{
    struct meeting *meeting = &self->group->meeting;
    int64_t turn = meeting->turn;
    if (arrive(self->group))
        return;
    while (meeting->turn == turn)
        pthread_cond_wait(&meeting->all_here, &self->comm.family->lock);
}

/* All ranks look at the same jobs, so all see the same difference, or none. */
static int check_same(struct thread_rank *self)
{
    struct group *group = self->group;
    struct job_header first = job_header(group->jobs[0]);
    for (int rank = 1; rank < group->size; rank++) {
        struct job_header other = job_header(group->jobs[rank]);
        struct error why;
        if (job_header_check(&first, &other, rank, &why)) {
            family_stop(self->comm.family, &why, self->comm.world_ranks[0]);
            return -1;
        }
    }
    return 0;
}

/* This rank's piece is combined from all ranks; an all-reduce then writes it to all of them. No lock. */
static void reduce_piece(const struct job *const *jobs, int rank, int size)
{
    const struct job *job = jobs[rank];
    int64_t count = job_piece_count(job, rank, size);
    struct cursor *sources = host_alloc(2 * (size_t)size * sizeof *sources), *targets = sources + size;
    for (int other = 0; other < size; other++)
        targets[other] = sources[other] = job_piece(jobs[other], rank, size);
    if (job->kind == JOB_REDUCE_SCATTER)
        targets[0] = job_parts(job);
    reduce_vectors(sources, size, targets, job->kind == JOB_REDUCE_SCATTER ? 1 : size, count, job->dtype,
                   job->reduction);
    free(sources);
}

/* No lock. */
static void gather_pieces(const struct job *const *jobs, int rank, int size)
{
    for (int other = 0; other < size; other++) {
        struct cursor from = job_parts(jobs[other]), to = job_piece(jobs[rank], other, size);
        cursor_copy(&to, &from, jobs[rank]->count);
    }
}

/* No lock. */
static void copy_from_root(const struct job *const *jobs, int rank)
{
    const struct job *job = jobs[rank];
    struct cursor from = job_piece(jobs[job->peer], 0, 1), to = job_piece(job, 0, 1);
    cursor_copy(&to, &from, job->count);
}

static void move_data(const struct job *const *jobs, int rank, int size)
{
    switch (jobs[rank]->kind) {
    case JOB_ALL_REDUCE:
    case JOB_REDUCE_SCATTER:
        reduce_piece(jobs, rank, size);
        break;
    case JOB_ALL_GATHER:
        gather_pieces(jobs, rank, size);
        break;
    case JOB_BROADCAST:
        copy_from_root(jobs, rank);
        break;
    default:
        break;
    }
}

static void run_collective(struct thread_rank *self, struct job *job)
{
    struct group *group = self->group;
    int rank = self->comm.rank;
    job->begun = true;
    group->jobs[rank] = job;
    if (!meet(self)) {
        if (!check_same(self)) {
            pthread_mutex_unlock(&self->comm.family->lock);
            move_data(group->jobs, rank, group->size);
            pthread_mutex_lock(&self->comm.family->lock);
        }
        meet_surely(self);
    }
    job_finish(&self->comm, job);
}

/* NULL: there is none, or the one before it is under way. */
static struct job *next_collective(const struct comm *comm)
{
    struct job *job = comm->jobs;
    while (job && job_is_message(job))
        job = job->next;
    return job && !job->begun ? job : NULL;
}

static void *work(void *context)
{
    struct thread_rank *self = context;
    pthread_mutex_lock(&self->comm.family->lock);
    for (;;) {
        struct job *job;
        while (!(job = next_collective(&self->comm)) && !self->closing)
            pthread_cond_wait(&self->work, &self->comm.family->lock);
        if (!job)
            break;
        int64_t start_ns = clock_ns();
        run_collective(self, job);
        self->comm.busy_ns += clock_ns() - start_ns;
    }
    pthread_mutex_unlock(&self->comm.family->lock);
    return NULL;
}

/* On the caller's thread, which waits anyway, unless the worker has something to do before. Another of the caller's threads
 * may start more meanwhile. */
static bool run_here(struct thread_rank *self, struct job *job)
{
    if (!job->awaited || next_collective(&self->comm) != job)
        return false;
    int64_t start_ns = clock_ns();
    run_collective(self, job);
    int64_t spent_ns = clock_ns() - start_ns;
    self->comm.busy_ns += spent_ns;
    self->comm.waited_ns += spent_ns;
    if (next_collective(&self->comm))
        pthread_cond_signal(&self->work);
    return true;
}

/* Alone there is nobody to wait for, and so no worker. */
static int start_collective(struct thread_rank *self, struct job *job, struct error *err)
{
    if (self->comm.size == 1) {
        run_collective(self, job);
        return 0;
    }
    if (run_here(self, job))
        return 0;
    int code = self->has_worker ? 0 : pthread_create(&self->worker, NULL, work, self);
    if (code) {
        job_finish(&self->comm, job);
        return error_set(err, "no thread for the collectives of rank %d of %d: %s; use fewer ranks",
                         self->comm.rank, self->comm.size, strerror(code));
    }
    self->has_worker = true;
    pthread_cond_signal(&self->work);
    return 0;
}

/* The job of the peer that `job` has to meet, or NULL when it has not been started. */
static struct job *find_other_end(const struct thread_rank *self, const struct thread_rank *peer,
                                  const struct job *job)
{
    enum job_kind wanted = job->kind == JOB_SEND ? JOB_RECEIVE : JOB_SEND;
    for (struct job *other = peer ? peer->comm.jobs : NULL; other; other = other->next)
        if (other->kind == wanted && other->peer == self->comm.rank && other->tag == job->tag &&
            !other->begun)
            return other;
    return NULL;
}

static int check_message(const struct thread_rank *self, const struct job *send, const struct job *receive)
{
    if (send->count == receive->count && send->dtype == receive->dtype)
        return 0;
    struct error why;
    error_set(
        &why, "rank %d receives %lld %s from rank %d, which sends %lld %s with tag %d; make the two agree",
        self->comm.world_ranks[send->peer], (long long)receive->count, dtype_name(receive->dtype),
        self->comm.world_ranks[receive->peer], (long long)send->count, dtype_name(send->dtype), send->tag);
    family_stop(self->comm.family, &why, self->comm.world_ranks[self->comm.rank]);
    return -1;
}

static void start_message(struct thread_rank *self, struct job *job)
{
    struct thread_rank *peer = self->group->ranks[job->peer];
    struct job *other = find_other_end(self, peer, job);
    if (!other) {
        if (self->group->closed[job->peer])
            stop_for_closed(&self->comm, job->peer);
        return;
    }
    struct job *send = job->kind == JOB_SEND ? job : other, *receive = send == job ? other : job;
    if (check_message(self, send, receive))
        return;
    send->begun = receive->begun = true;
    pthread_mutex_unlock(&self->comm.family->lock);
    struct cursor from = job_piece(send, 0, 1), to = job_piece(receive, 0, 1);
    cursor_copy(&to, &from, send->count);
    pthread_mutex_lock(&self->comm.family->lock);
    job_finish(&self->comm, job);
    job_finish(&peer->comm, other);
}

static int threads_start(struct comm *comm, struct job *job, struct error *err)
{
    struct thread_rank *self = (struct thread_rank *)comm;
    if (!job_is_message(job))
        return start_collective(self, job, err);
    start_message(self, job);
    return 0;
}

/* Messages that have not met will not; workers see it for themselves. */
static void threads_stop(struct comm *comm)
{
    struct thread_rank *self = (struct thread_rank *)comm;
    for (struct job *job = comm->jobs, *next; job; job = next) {
        next = job->next;
        if (job_is_message(job) && !job->begun)
            job_finish(comm, job);
    }
    pthread_cond_broadcast(&self->group->meeting.all_here);
}

static void group_free(struct group *group)
{
    pthread_cond_destroy(&group->meeting.all_here);
    free(group->jobs);
    free(group->closed);
    free(group->ranks);
    free(group);
}

/* Does anybody wait for a message to or from a rank that has closed? */
static void tell_closed(struct group *group, int closed)
{
    for (int rank = 0; rank < group->size; rank++) {
        struct comm *comm = group->ranks[rank] ? &group->ranks[rank]->comm : NULL;
        for (struct job *job = comm ? comm->jobs : NULL; job; job = job->next)
            if (job_is_message(job) && job->peer == closed && !job->begun) {
                stop_for_closed(comm, closed);
                return;
            }
    }
    pthread_cond_broadcast(&group->meeting.all_here);
}

static struct group *find_group(struct thread_family *threads, const struct membership *membership)
{
    struct group *group = threads->groups;
    while (group && (group->context != membership->context || group->lead != membership->world_ranks[0]))
        group = group->next;
    return group;
}

static struct group *group_create(struct thread_family *threads, const struct membership *membership)
{
    struct group *group = host_alloc(sizeof *group);
    size_t size = (size_t)membership->size;
    group->context = membership->context;
    group->lead = membership->world_ranks[0];
    group->size = membership->size;
    group->first_closed = -1;
    group->ranks = host_alloc(size * sizeof *group->ranks);
    group->closed = host_alloc(size * sizeof *group->closed);
    group->jobs = host_alloc(size * sizeof *group->jobs);
    pthread_cond_init(&group->meeting.all_here, NULL);
    group->next = threads->groups;
    threads->groups = group;
    return group;
}

static void leave_group(struct thread_family *threads, struct group *group, int rank)
{
    group->ranks[rank] = NULL;
    group->closed[rank] = true;
    if (group->first_closed < 0)
        group->first_closed = rank;
    tell_closed(group, rank);
    if (++group->closed_count < group->size)
        return;
    struct group **link = &threads->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    group_free(group);
}

/* Groups that some rank never joined are still there. */
static void threads_free(struct thread_family *threads)
{
    for (struct group *group = threads->groups, *next; group; group = next) {
        next = group->next;
        group_free(group);
    }
    family_close(&threads->family);
    free(threads);
}

static void threads_close(struct comm *comm)
{
    struct thread_rank *self = (struct thread_rank *)comm;
    struct thread_family *threads = (struct thread_family *)comm->family;
    pthread_mutex_lock(&comm->family->lock);
    while (comm->jobs)
        pthread_cond_wait(&comm->done, &comm->family->lock);
    self->closing = true;
    pthread_cond_signal(&self->work);
    pthread_mutex_unlock(&comm->family->lock);
    if (self->has_worker)
        pthread_join(self->worker, NULL);

    pthread_mutex_lock(&threads->family.lock);
    family_leave(comm);
    leave_group(threads, self->group, comm->rank);
    bool last = --threads->open == 0;
    pthread_mutex_unlock(&threads->family.lock);
    pthread_cond_destroy(&self->work);
    free(self);
    if (last)
        threads_free(threads);
}

static struct comm *threads_join(struct comm *parent, const struct membership *membership, struct error *err)
{
    (void)err;
    return join((struct thread_family *)parent->family, membership);
}

static struct comm *join(struct thread_family *threads, const struct membership *membership)
{
    static const struct transport transport = {
        .start = threads_start,
        .stop = threads_stop,
        .join = threads_join,
        .close = threads_close,
    };
    struct thread_rank *self = host_alloc(sizeof *self);
    pthread_cond_init(&self->work, NULL);
    pthread_mutex_lock(&threads->family.lock);
    self->group = find_group(threads, membership);
    if (!self->group)
        self->group = group_create(threads, membership);
    int *next_context = &threads->next_contexts[membership->world_ranks[membership->rank]];
    family_join(&threads->family, &self->comm, &transport, membership, next_context);
    self->group->ranks[membership->rank] = self;
    threads->open++;
    pthread_mutex_unlock(&threads->family.lock);
    return &self->comm;
}

int comm_open_threads(int size, struct comm **out, struct error *err)
{
    if (size < 1)
        return error_set(err, "a group of %d ranks; at least 1 is needed", size);
    struct thread_family *threads =
        host_alloc(sizeof *threads + (size_t)size * sizeof *threads->next_contexts);
    family_open(&threads->family);
    int *ranks = host_alloc((size_t)size * sizeof *ranks);
    for (int rank = 0; rank < size; rank++) {
        ranks[rank] = rank;
        threads->next_contexts[rank] = 1;
    }
    for (int rank = 0; rank < size; rank++)
        out[rank] = join(threads, &(struct membership){.rank = rank, .size = size, .world_ranks = ranks});
    free(ranks);
    return 0;
}

int comm_open_self(struct comm **out, struct error *err)
{
    return comm_open_threads(1, out, err);
}
