/* What the files of the MPI transport share: its state, which all but a few fields of belong to the worker, and the ways to end
 * it. The only file that includes MPI. */
#ifndef MEMPLAN_COMM_MPI_FAMILY_H
#define MEMPLAN_COMM_MPI_FAMILY_H

#include "comm/exchange.h"
#include "comm/transport.h"

#include <mpi.h>

enum {
    TAG_ROOM = COMM_TAG_MAX + 1, /* messages of group g have the tags from g * TAG_ROOM on */
    MOST_BYTES = 1 << 30,        /* in one call, which counts in int */
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

/* Ends the family with a reason that rank `stopper` of the world has to tell. */
void mpi_stop_with(struct mpi_family *mpi, int stopper, struct error *why);
/* Likewise, after a call of MPI failed. */
void mpi_stop_by_code(struct mpi_family *mpi, int code, const char *doing);

/* Are all done? Null requests are. A failure ends the family, and counts as not done. With `arrived`, adds to it the bytes
 * of the receives that ended now. */
bool mpi_are_done(struct mpi_family *mpi, MPI_Request *requests, int count, int64_t *arrived, const char *doing);

/* Ends requests that nobody needs any more. After a second without an answer they are left to MPI, and false says that it
 * may still use their memory: this happens only to a program that is about to end. */
bool mpi_drop(MPI_Request *requests, int count);

/* mpi_notices.c: what ranks tell each other besides their data. */

void mpi_listen(struct mpi_family *mpi);
/* True when there was something to hear. */
bool mpi_hear(struct mpi_family *mpi);
void mpi_tell_stop(struct mpi_family *mpi);
void mpi_tell_closed(struct mpi_family *mpi, const struct comm *comm);
/* `rank` stopped, and says that it was for the error of `stopper`. */
void mpi_note_stopper(struct mpi_family *mpi, int rank, int stopper);
/* The rank of the world that reports what the whole group found out. */
int mpi_choose_stopper(const struct mpi_family *mpi, const struct comm *comm);
/* Ends the family when this call waits for a rank that left. */
void mpi_check_departures(struct mpi_family *mpi, const struct comm *comm, const struct job *job);
/* After a failure: has everybody closed the world, within some seconds? */
bool mpi_have_all_left(struct mpi_family *mpi);
void mpi_forget_departures(struct mpi_family *mpi);

/* mpi_carry.c: collectives and messages on their way. Both are asked what has arrived, and say whether something happened. */

bool mpi_advance_collectives(struct mpi_family *mpi);
bool mpi_advance_transfers(struct mpi_family *mpi);

#endif
