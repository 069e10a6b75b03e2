/* Notices of ranks to each other: that they have stopped and why, and that they have closed a group. They pass beside all data,
 * so that news of a failure is heard whatever else is under way. */
#include "comm/mpi_family.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Seconds that the others have to close the world, after a failure; and how long nobody listens meanwhile. */
enum { NOTICE_TAG = 1, LEAVE_S = 5, PAUSE_NS = 1000 * 1000 };

static void tell(struct mpi_family *mpi, int rank, const struct notice *notice)
{
    if (rank == mpi->rank)
        return;
    MPI_Request request = MPI_REQUEST_NULL;
    int64_t start_ns = clock_ns();
    int done = 0;
    /* One that cannot be told is dead, or will find out by itself. */
    if (MPI_Isend(notice, sizeof *notice, MPI_BYTE, rank, NOTICE_TAG, mpi->notices, &request) != MPI_SUCCESS)
        return;
    while (!done && clock_ns() - start_ns < second_ns)
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
    if (!done)
        MPI_Request_free(&request);
}

void mpi_tell_stop(struct mpi_family *mpi)
{
    struct notice notice = {.kind = NOTICE_STOP, .rank = mpi->rank, .stopper = mpi->family.stopper};
    memcpy(notice.text, mpi->family.why.text, sizeof notice.text);
    for (int rank = 0; rank < mpi->size; rank++)
        tell(mpi, rank, &notice);
}

void mpi_tell_closed(struct mpi_family *mpi, const struct comm *comm)
{
    struct notice notice = {.kind = NOTICE_CLOSED, .rank = mpi->rank, .context = comm->context};
    for (int rank = 0; rank < comm->size; rank++)
        tell(mpi, comm->world_ranks[rank], &notice);
}

void mpi_listen(struct mpi_family *mpi)
{
    mpi->hearing = MPI_REQUEST_NULL;
    int code = MPI_Irecv(&mpi->heard, sizeof mpi->heard, MPI_BYTE, MPI_ANY_SOURCE, NOTICE_TAG, mpi->notices,
                         &mpi->hearing);
    if (code != MPI_SUCCESS)
        mpi_stop_by_code(mpi, code, "listen to other ranks");
}

/* Who stopped because another did has nothing to say. */
void mpi_note_stopper(struct mpi_family *mpi, int rank, int stopper)
{
    if (rank == stopper && (mpi->first < 0 || rank < mpi->first))
        mpi->first = rank;
}

static void hear_stop(struct mpi_family *mpi)
{
    struct error why;
    error_set(&why, "%s", mpi->heard.text);
    mpi->stops_heard++;
    mpi_note_stopper(mpi, mpi->heard.rank, mpi->heard.stopper);
    mpi_stop_with(mpi, mpi->heard.stopper, &why);
}

static void hear_closed(struct mpi_family *mpi)
{
    struct departure *departure = host_alloc(sizeof *departure);
    *departure = (struct departure){mpi->departures, mpi->heard.rank, mpi->heard.context, clock_ns()};
    mpi->departures = departure;
}

bool mpi_hear(struct mpi_family *mpi)
{
    bool is_deaf = mpi->hearing == MPI_REQUEST_NULL;
    if (is_deaf || !mpi_are_done(mpi, &mpi->hearing, 1, NULL, "listen to other ranks"))
        return false;
    if (mpi->heard.kind == NOTICE_STOP)
        hear_stop(mpi);
    else
        hear_closed(mpi);
    mpi_listen(mpi);
    return true;
}

static bool has_left(const struct mpi_family *mpi, const struct comm *comm, int world_rank)
{
    const struct departure *left = mpi->departures;
    while (left && (left->context != comm->context || left->rank != world_rank))
        left = left->next;
    return left != NULL;
}

int mpi_choose_stopper(const struct mpi_family *mpi, const struct comm *comm)
{
    int rank = 0;
    while (has_left(mpi, comm, comm->world_ranks[rank]))
        rank++;
    return comm->world_ranks[rank];
}

/* A second after it left, all that it sent must have arrived. */
void mpi_check_departures(struct mpi_family *mpi, const struct comm *comm, const struct job *job)
{
    for (const struct departure *left = mpi->departures; left; left = left->next) {
        if (left->context != comm->context || clock_ns() - left->heard_ns < second_ns)
            continue;
        if (job_is_message(job) && comm->world_ranks[job->peer] != left->rank)
            continue;
        struct error why;
        error_set(&why, "rank %d stopped: closed while other ranks went on; call the same on every rank",
                  left->rank);
        mpi_stop_with(mpi, mpi_choose_stopper(mpi, comm), &why);
        return;
    }
}

bool mpi_have_all_left(struct mpi_family *mpi)
{
    int64_t start_ns = clock_ns();
    while (clock_ns() - start_ns < LEAVE_S * second_ns) {
        int left = 0;
        for (const struct departure *departure = mpi->departures; departure; departure = departure->next)
            left += departure->context == 0;
        if (left == mpi->size - 1)
            return true;
        if (!mpi_hear(mpi))
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    return false;
}

void mpi_forget_departures(struct mpi_family *mpi)
{
    for (struct departure *departure = mpi->departures, *next; departure; departure = next) {
        next = departure->next;
        free(departure);
    }
    mpi->departures = NULL;
}
