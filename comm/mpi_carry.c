/* Collectives and messages under way over MPI. A collective is rounds of sends and receives between all of its group (exchange.h),
 * one at a time in each group; a message is one of each, in pieces that MPI can count. */
#include "comm/mpi_family.h"

#include "base/checked.h"
#include "base/clock.h"

#include <stdlib.h>

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
        mpi_stop_by_code(mpi, code, "start a collective");
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
    if (!mpi_are_done(mpi, self->requests, self->request_count, NULL, "carry out a collective")) {
        mpi_check_departures(mpi, &self->comm, self->job);
        return false;
    }
    struct error why;
    int more = exchange_advance(&self->exchange, &why);
    if (more > 0)
        post_round(mpi, self);
    else if (more < 0)
        mpi_stop_with(mpi, mpi_choose_stopper(mpi, &self->comm), &why);
    else
        finish_collective(self);
    return true;
}

bool mpi_advance_collectives(struct mpi_family *mpi)
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
        mpi_stop_by_code(mpi, code, "start a message");
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
    mpi_stop_with(mpi, mpi->rank, &why);
}

static bool advance_transfer(struct mpi_family *mpi, struct transfer *transfer)
{
    if (!transfer->has_begun) {
        transfer->has_begun = true;
        post_transfer(mpi, transfer);
        return false;
    }
    int64_t *arrived = transfer->job->kind == JOB_RECEIVE ? &transfer->arrived : NULL;
    if (!mpi_are_done(mpi, transfer->requests, transfer->request_count, arrived, "carry a message")) {
        mpi_check_departures(mpi, &transfer->owner->comm, transfer->job);
        return false;
    }
    check_length(mpi, transfer);
    pthread_mutex_lock(&mpi->family.lock);
    job_finish(&transfer->owner->comm, transfer->job);
    pthread_mutex_unlock(&mpi->family.lock);
    return true;
}

bool mpi_advance_transfers(struct mpi_family *mpi)
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
