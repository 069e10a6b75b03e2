/* What ranks that end together share, and the jobs of a rank: kept in the order of their start until they are done. Built
 * into the program and, once more, into the library of the MPI transport. */
#include "base/arena.h"
#include "base/checked.h"
#include "comm/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void family_open(struct family *family)
{
    pthread_mutex_init(&family->lock, NULL);
}

void family_close(struct family *family)
{
    pthread_mutex_destroy(&family->lock);
}

void family_join(struct family *family, struct comm *comm, const struct transport *transport,
                 const struct membership *membership, int *next_context)
{
    size_t bytes = (size_t)membership->size * sizeof *comm->world_ranks;
    *comm = (struct comm){
        .transport = transport,
        .family = family,
        .rank = membership->rank,
        .size = membership->size,
        .context = membership->context,
        .world_ranks = memcpy(host_alloc(bytes), membership->world_ranks, bytes),
        .next_context = next_context,
    };
    pthread_cond_init(&comm->done, NULL);
    comm->next_member = family->members;
    family->members = comm;
}

void family_leave(struct comm *comm)
{
    struct comm **link = &comm->family->members;
    while (*link != comm)
        link = &(*link)->next_member;
    *link = comm->next_member;
    pthread_cond_destroy(&comm->done);
    free(comm->world_ranks);
}

int family_check(const struct family *family, struct error *err)
{
    if (!family->stopped)
        return 0;
    return error_set_kind(err, family->why.kind, "%s", family->why.text);
}

void family_stop(struct family *family, const struct error *why, int stopper)
{
    if (family->stopped)
        return;
    family->stopped = true;
    family->why = *why;
    family->stopper = stopper;
    for (struct comm *comm = family->members; comm; comm = comm->next_member)
        comm->transport->stop(comm);
}

void family_stop_rank(struct family *family, int world_rank, const char *reason)
{
    struct error why;
    error_set_kind(&why, ERROR_STOPPED, "rank %d stopped: %s", world_rank, reason);
    family_stop(family, &why, world_rank);
}

void job_finish(struct comm *comm, struct job *job)
{
    struct job **link = &comm->jobs;
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    free(job);
    pthread_cond_broadcast(&comm->done);
}

bool job_is_message(const struct job *job)
{
    return job->kind >= JOB_SEND;
}

const char *job_name(enum job_kind kind)
{
    static const char *const names[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                        "barrier",    "send",           "receive"};
    return names[kind];
}

static bool has_parts(const struct job *job)
{
    return job->kind == JOB_REDUCE_SCATTER || job->kind == JOB_ALL_GATHER;
}

/* Pieces begin at multiples of some cache lines, so that two ranks rarely write to the same line. */
static int64_t piece_begin(int64_t total, int rank, int size)
{
    enum { STEP = 64 };
    int64_t piece = round_up((total + size - 1) / size, STEP);
    return min_i64(rank * piece, total);
}

struct cursor job_piece(const struct job *job, int rank, int size)
{
    if (has_parts(job))
        return cursor_open(job->spans, rank, size, job->dtype);
    struct cursor cursor = cursor_open(job->spans, 0, 1, job->dtype);
    cursor_skip(&cursor, piece_begin(job->count, rank, size));
    return cursor;
}

int64_t job_piece_count(const struct job *job, int rank, int size)
{
    if (has_parts(job))
        return job->count;
    return piece_begin(job->count, rank + 1, size) - piece_begin(job->count, rank, size);
}

int job_span_count(const struct job *job)
{
    return (int)(job->parts - job->spans);
}

struct cursor job_parts(const struct job *job)
{
    return cursor_open(job->parts, 0, 1, job->dtype);
}

struct job_header job_header(const struct job *job)
{
    return (struct job_header){(int32_t)job->kind, (int32_t)job->dtype, (int32_t)job->reduction, job->peer,
                               job->count};
}

/* "all-reduce of 12 F32", "all-reduce (maximum) of 12 F32", "broadcast from 3 of 12 F32". */
static void describe(const struct job_header *header, char *text, size_t bytes)
{
    char from[32] = "";
    if (header->kind == JOB_BROADCAST)
        snprintf(from, sizeof from, " from %d", header->root);
    snprintf(text, bytes, "%s%s%s of %lld %s", job_name((enum job_kind)header->kind),
             header->reduction == COMM_MAX ? " (maximum)" : "", from, (long long)header->count,
             dtype_name((enum dtype)header->dtype));
}

int job_header_check(const struct job_header *first, const struct job_header *other, int rank,
                     struct error *err)
{
    if (!memcmp(first, other, sizeof *first))
        return 0;
    char here[100], there[100];
    describe(first, here, sizeof here);
    describe(other, there, sizeof there);
    return error_set(err,
                     "%s on rank 0 meets %s on rank %d; make the same calls in the same order on every rank",
                     here, there, rank);
}
