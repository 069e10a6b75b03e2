/* The calls of comm.h: each is checked here, once for all transports, written down as a job and passed on. Waiting and the
 * division of groups are the same for all transports too. */
#include "comm/comm.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/clock.h"
#include "comm/transport.h"

#include <stdlib.h>
#include <string.h>

int comm_rank(const struct comm *comm)
{
    return comm->rank;
}

int comm_size(const struct comm *comm)
{
    return comm->size;
}

/* A job for `count` spans; `parts` may be NULL. */
static struct job *job_create(enum job_kind kind, const struct comm_span *spans,
                              const struct comm_span *parts, int count, enum dtype dtype)
{
    size_t bytes = (size_t)count * sizeof *spans;
    struct job *job = host_alloc(sizeof *job + 2 * bytes);
    job->kind = kind;
    job->dtype = dtype;
    job->spans = job->copies;
    job->parts = job->copies + count;
    if (count && spans)
        memcpy(job->copies, spans, bytes);
    if (count && parts)
        memcpy(job->copies + count, parts, bytes);
    return job;
}

/* Owns `job` from here on; NULL: it was refused, with a message. */
static int start(struct comm *comm, struct job *job, int64_t *ticket, struct error *err)
{
    if (!job)
        return -1;
    pthread_mutex_lock(&comm->family->lock);
    int status = family_check(comm->family, err);
    if (status) {
        free(job);
    } else {
        job->ticket = ++comm->last_ticket;
        if (ticket)
            *ticket = job->ticket;
        struct job **end = &comm->jobs;
        while (*end)
            end = &(*end)->next;
        *end = job;
        status = comm->transport->start(comm, job, err);
    }
    pthread_mutex_unlock(&comm->family->lock);
    return status;
}

static int check_reducible(enum job_kind kind, enum dtype dtype, struct error *err)
{
    if (dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_BF16)
        return 0;
    return error_set(err, "%s of %s: only F32, F64 and BF16 can be reduced; convert first", job_name(kind),
                     dtype_name(dtype));
}

static int count_elements(enum job_kind kind, const struct comm_span *spans, int count, int64_t *total,
                          struct error *err)
{
    *total = 0;
    for (int i = 0; i < count; i++)
        if (spans[i].count < 0 || !checked_add(*total, spans[i].count, total))
            return error_set(err, "%s: span %d has %lld elements; give 0 or more, and less than 2^63 in all",
                             job_name(kind), i, (long long)spans[i].count);
    return 0;
}

static int check_parts(const struct comm *comm, enum job_kind kind, const struct comm_span *full,
                       const struct comm_span *parts, int count, struct error *err)
{
    for (int i = 0; i < count; i++) {
        int64_t whole;
        if (!checked_mul(parts[i].count, comm->size, &whole) || whole != full[i].count)
            return error_set(err,
                             "%s: span %d has %lld elements and its part %lld; with %d ranks a span must be "
                             "%d parts long",
                             job_name(kind), i, (long long)full[i].count, (long long)parts[i].count,
                             comm->size, comm->size);
    }
    return 0;
}

static int check_peer(const struct comm *comm, enum job_kind kind, int peer, struct error *err)
{
    if (peer >= 0 && peer < comm->size)
        return 0;
    return error_set(err, "%s: there is no rank %d in a group of %d; give 0 to %d", job_name(kind), peer,
                     comm->size, comm->size - 1);
}

/* What makes jobs of calls; NULL and a message where the call is wrong. */

static struct job *all_reduce_job(const struct comm_span *spans, int count, enum dtype dtype,
                                  enum comm_reduction reduction, struct error *err)
{
    int64_t total;
    if (check_reducible(JOB_ALL_REDUCE, dtype, err) ||
        count_elements(JOB_ALL_REDUCE, spans, count, &total, err))
        return NULL;
    struct job *job = job_create(JOB_ALL_REDUCE, spans, NULL, count, dtype);
    job->reduction = reduction;
    job->count = total;
    return job;
}

static struct job *parts_job(const struct comm *comm, enum job_kind kind, const struct comm_span *full,
                             const struct comm_span *parts, int count, enum dtype dtype, struct error *err)
{
    int64_t total;
    if ((kind == JOB_REDUCE_SCATTER && check_reducible(kind, dtype, err)) ||
        count_elements(kind, full, count, &total, err) || check_parts(comm, kind, full, parts, count, err))
        return NULL;
    struct job *job = job_create(kind, full, parts, count, dtype);
    job->count = total / comm->size;
    return job;
}

static struct job *broadcast_job(const struct comm *comm, const struct comm_span *spans, int count,
                                 enum dtype dtype, int root, struct error *err)
{
    int64_t total;
    if (check_peer(comm, JOB_BROADCAST, root, err) ||
        count_elements(JOB_BROADCAST, spans, count, &total, err))
        return NULL;
    struct job *job = job_create(JOB_BROADCAST, spans, NULL, count, dtype);
    job->peer = root;
    job->count = total;
    return job;
}

int comm_start_all_reduce(struct comm *comm, const struct comm_span *spans, int count, enum dtype dtype,
                          enum comm_reduction reduction, int64_t *ticket, struct error *err)
{
    return start(comm, all_reduce_job(spans, count, dtype, reduction, err), ticket, err);
}

int comm_start_reduce_scatter(struct comm *comm, const struct comm_span *full, const struct comm_span *parts,
                              int count, enum dtype dtype, int64_t *ticket, struct error *err)
{
    return start(comm, parts_job(comm, JOB_REDUCE_SCATTER, full, parts, count, dtype, err), ticket, err);
}

int comm_start_all_gather(struct comm *comm, const struct comm_span *parts, const struct comm_span *full,
                          int count, enum dtype dtype, int64_t *ticket, struct error *err)
{
    return start(comm, parts_job(comm, JOB_ALL_GATHER, full, parts, count, dtype, err), ticket, err);
}

int comm_start_broadcast(struct comm *comm, const struct comm_span *spans, int count, enum dtype dtype,
                         int root, int64_t *ticket, struct error *err)
{
    return start(comm, broadcast_job(comm, spans, count, dtype, root, err), ticket, err);
}

static int start_message(struct comm *comm, enum job_kind kind, const struct comm_span *span,
                         enum dtype dtype, int peer, int tag, int64_t *ticket, struct error *err)
{
    int64_t total;
    if (check_peer(comm, kind, peer, err) || count_elements(kind, span, 1, &total, err))
        return -1;
    if (tag < 0 || tag > COMM_TAG_MAX)
        return error_set(err, "%s: tag %d; give 0 to %d", job_name(kind), tag, COMM_TAG_MAX);
    struct job *job = job_create(kind, span, NULL, 1, dtype);
    job->peer = peer;
    job->tag = tag;
    job->count = total;
    return start(comm, job, ticket, err);
}

int comm_start_send(struct comm *comm, const struct comm_span *span, enum dtype dtype, int peer, int tag,
                    int64_t *ticket, struct error *err)
{
    return start_message(comm, JOB_SEND, span, dtype, peer, tag, ticket, err);
}

int comm_start_receive(struct comm *comm, const struct comm_span *span, enum dtype dtype, int peer, int tag,
                       int64_t *ticket, struct error *err)
{
    return start_message(comm, JOB_RECEIVE, span, dtype, peer, tag, ticket, err);
}

/* Is the job of this ticket, or with `ticket` 0 any, not done yet? */
static bool is_pending(const struct comm *comm, int64_t ticket)
{
    const struct job *job = comm->jobs;
    while (job && ticket && job->ticket != ticket)
        job = job->next;
    return job != NULL;
}

static int wait_until_done(struct comm *comm, int64_t ticket, struct error *err)
{
    pthread_mutex_lock(&comm->family->lock);
    if (is_pending(comm, ticket)) {
        int64_t start_ns = clock_ns();
        while (is_pending(comm, ticket))
            pthread_cond_wait(&comm->done, &comm->family->lock);
        comm->waited_ns += clock_ns() - start_ns;
    }
    int status = family_check(comm->family, err);
    if (!status && comm->transport->release)
        status = comm->transport->release(comm, ticket, err);
    pthread_mutex_unlock(&comm->family->lock);
    return status;
}

int comm_check(struct comm *comm, struct error *err)
{
    pthread_mutex_lock(&comm->family->lock);
    int status = family_check(comm->family, err);
    pthread_mutex_unlock(&comm->family->lock);
    return status;
}

int comm_wait_for(struct comm *comm, int64_t ticket, struct error *err)
{
    pthread_mutex_lock(&comm->family->lock);
    int64_t last = comm->last_ticket;
    pthread_mutex_unlock(&comm->family->lock);
    if (ticket < 1 || ticket > last)
        return error_set(err, "there is no ticket %lld to wait for; the last one given was %lld",
                         (long long)ticket, (long long)last);
    return wait_until_done(comm, ticket, err);
}

int comm_wait(struct comm *comm, struct error *err)
{
    return wait_until_done(comm, 0, err);
}

/* As start(), until it is done. */
static int finish(struct comm *comm, struct job *job, struct error *err)
{
    int64_t ticket;
    if (job)
        job->awaited = true;
    return start(comm, job, &ticket, err) || wait_until_done(comm, ticket, err) ? -1 : 0;
}

int comm_all_reduce(struct comm *comm, const struct comm_span *spans, int count, enum dtype dtype,
                    enum comm_reduction reduction, struct error *err)
{
    return finish(comm, all_reduce_job(spans, count, dtype, reduction, err), err);
}

int comm_reduce_scatter(struct comm *comm, const struct comm_span *full, const struct comm_span *parts,
                        int count, enum dtype dtype, struct error *err)
{
    return finish(comm, parts_job(comm, JOB_REDUCE_SCATTER, full, parts, count, dtype, err), err);
}

int comm_all_gather(struct comm *comm, const struct comm_span *parts, const struct comm_span *full, int count,
                    enum dtype dtype, struct error *err)
{
    return finish(comm, parts_job(comm, JOB_ALL_GATHER, full, parts, count, dtype, err), err);
}

int comm_broadcast(struct comm *comm, const struct comm_span *spans, int count, enum dtype dtype, int root,
                   struct error *err)
{
    return finish(comm, broadcast_job(comm, spans, count, dtype, root, err), err);
}

int comm_barrier(struct comm *comm, struct error *err)
{
    return finish(comm, job_create(JOB_BARRIER, NULL, NULL, 0, DTYPE_F32), err);
}

void comm_abort(struct comm *comm, const char *reason)
{
    pthread_mutex_lock(&comm->family->lock);
    family_stop_rank(comm->family, comm->world_ranks[comm->rank], reason);
    pthread_mutex_unlock(&comm->family->lock);
}

bool comm_failed_first(struct comm *comm)
{
    struct family *family = comm->family;
    pthread_mutex_lock(&family->lock);
    if (family->stopped && comm->transport->settle)
        comm->transport->settle(comm);
    bool first = family->stopped && family->stopper == comm->world_ranks[comm->rank];
    pthread_mutex_unlock(&family->lock);
    return first;
}

void comm_times(struct comm *comm, double *busy_s, double *waited_s)
{
    pthread_mutex_lock(&comm->family->lock);
    *busy_s = (double)comm->busy_ns * 1e-9;
    *waited_s = (double)comm->waited_ns * 1e-9;
    comm->busy_ns = comm->waited_ns = 0;
    pthread_mutex_unlock(&comm->family->lock);
}

/* What each rank says in a division, and what it then knows of all. */
struct choice {
    int32_t color, key;
    int32_t context; /* the lowest number that this rank could give to a new group */
    int32_t rank;
};

enum { CHOICE_WORDS = sizeof(struct choice) / sizeof(int32_t) };

static int exchange_choices(struct comm *comm, struct choice mine, struct choice *all, struct error *err)
{
    struct comm_span part = {&mine, CHOICE_WORDS}, full = {all, (int64_t)CHOICE_WORDS * comm->size};
    return comm_all_gather(comm, &part, &full, 1, DTYPE_I32, err);
}

static int by_key(const void *left, const void *right)
{
    const struct choice *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

/* The members of the group of `color`, moved to the front in their order; returns how many. */
static int select_members(struct choice *all, int count, int color)
{
    int members = 0;
    for (int i = 0; i < count; i++)
        if (all[i].color == color)
            all[members++] = all[i];
    qsort(all, (size_t)members, sizeof *all, by_key);
    return members;
}

static int join(struct comm *parent, const struct choice *members, int size, int context, struct comm **out,
                struct error *err)
{
    int *world_ranks = host_alloc((size_t)size * sizeof *world_ranks);
    struct membership membership = {.size = size, .context = context, .world_ranks = world_ranks};
    for (int i = 0; i < size; i++) {
        world_ranks[i] = parent->world_ranks[members[i].rank];
        if (members[i].rank == parent->rank)
            membership.rank = i;
    }
    *out = parent->transport->join(parent, &membership, err);
    free(world_ranks);
    return *out ? 0 : -1;
}

/* The groups of one division have no rank in common and so share a number; it is new to all ranks of the parent. */
int comm_split(struct comm *comm, int color, int key, struct comm **out, struct error *err)
{
    if (comm->transport->split)
        return comm->transport->split(comm, color, key, out, err);
    struct choice *all = host_alloc((size_t)comm->size * sizeof *all);
    struct choice mine = {color, key, *comm->next_context, comm->rank};
    int status = exchange_choices(comm, mine, all, err);
    if (!status) {
        int context = 0;
        for (int i = 0; i < comm->size; i++)
            context = all[i].context > context ? all[i].context : context;
        *comm->next_context = context + 1;
        *out = NULL;
        if (color >= 0)
            status = join(comm, all, select_members(all, comm->size, color), context, out, err);
    }
    free(all);
    return status;
}

void comm_close(struct comm *comm)
{
    if (!comm)
        return;
    pthread_mutex_lock(&comm->family->lock);
    if (comm->jobs)
        family_stop_rank(comm->family, comm->world_ranks[comm->rank],
                         "closed with work pending; call comm_wait() first");
    pthread_mutex_unlock(&comm->family->lock);
    comm->transport->close(comm);
}
