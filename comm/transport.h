/* What all ways of connecting ranks have in common, and what each must be able to do. Threads of one process are one
 * transport, MPI is another, NCCL over either of them a third. comm.c checks calls, writes them down as jobs and waits for
 * them; a transport carries jobs out and finishes them. */
#ifndef MEMPLAN_COMM_TRANSPORT_H
#define MEMPLAN_COMM_TRANSPORT_H

#include "comm/comm.h"
#include "comm/cursor.h"

#include <pthread.h>
#include <stdbool.h>

enum job_kind {
    JOB_ALL_REDUCE,
    JOB_REDUCE_SCATTER,
    JOB_ALL_GATHER,
    JOB_BROADCAST,
    JOB_BARRIER,
    JOB_SEND, /* from here on messages, before it collectives */
    JOB_RECEIVE,
};

/* A call that was checked, and is not done yet. */
struct job {
    struct job *next;
    int64_t ticket;
    bool begun; /* the transport's mark */
    bool awaited; /* the caller does nothing else until it is done: it may be done on the caller's thread */
    enum job_kind kind;
    enum dtype dtype;
    enum comm_reduction reduction;
    int peer; /* of a message; root of a broadcast */
    int tag;
    int64_t count;                         /* elements of the whole vector, or of one rank's parts */
    const struct comm_span *spans, *parts; /* copies; `parts` only where there are some */
    struct comm_span copies[];
};

/* Everything that ends together: the ranks opened at once and the groups split from them, as far as they live in this
 * process. `lock` guards it, the lists of jobs, and what a transport says. */
struct family {
    pthread_mutex_t lock;
    bool stopped;
    struct error why;     /* the first reason given */
    int stopper;          /* the rank of the world that gave it; -1: none in this process or known to it */
    struct comm *members; /* open, in this process */
};

/* A group to be opened: the same on all of its ranks, but for `rank`. */
struct membership {
    int rank, size;
    int context;            /* a number that no other group has of which any of these ranks is a member */
    const int *world_ranks; /* by rank: the name in messages, and to the transport */
};

/* `start`, `stop` and `settle` are called with the family locked. */
struct transport {
    /* `job` has just been added to the list of `comm`. May unlock for a while. On failure nothing was begun. */
    int (*start)(struct comm *comm, struct job *job, struct error *err);
    /* The family has ended: finish what was not begun, and soon also what was. */
    void (*stop)(struct comm *comm);
    /* NULL, or: the family has ended; returns when all its processes agree on the stopper. Unlocks for a while. */
    void (*settle)(struct comm *comm);
    /* NULL where a finished job leaves its data ready for the host. Else: what computes beside the host may go on with the
     * data of this ticket (0: of all so far), whose job is finished, when it is there. */
    int (*release)(struct comm *comm, int64_t ticket, struct error *err);
    /* This rank's end of a new group, or NULL: then on all its ranks. */
    struct comm *(*join)(struct comm *parent, const struct membership *membership, struct error *err);
    /* Instead of `join`, where there is one: as comm_split(), without the lock. */
    int (*split)(struct comm *comm, int color, int key, struct comm **out, struct error *err);
    /* When something is pending, the family has ended. Frees `comm`. */
    void (*close)(struct comm *comm);
};

/* A transport's own struct begins with this one. */
struct comm {
    const struct transport *transport;
    struct family *family;
    struct comm *next_member;
    int rank, size, context;
    int *world_ranks;
    int *next_context; /* shared by the groups of this rank: the lowest number not in use by any of them */
    struct job *jobs;  /* in the order of their start */
    int64_t last_ticket;
    pthread_cond_t done; /* some job was */
    int64_t busy_ns, waited_ns;
};

void family_open(struct family *family);
void family_close(struct family *family);

/* With the family locked, as all that follows: */

/* Fills the struct and adds it to the family. */
void family_join(struct family *family, struct comm *comm, const struct transport *transport,
                 const struct membership *membership, int *next_context);
/* Takes it out again and frees what family_join() took. */
void family_leave(struct comm *comm);

/* 0 while the family lives, else -1 with the reason in err. */
int family_check(const struct family *family, struct error *err);
/* Ends the family, unless it has ended. `why` is copied; `stopper` is the rank of the world to report it. */
void family_stop(struct family *family, const struct error *why, int stopper);
/* The same, with "rank R stopped: REASON". */
void family_stop_rank(struct family *family, int world_rank, const char *reason);
/* Takes the job from its comm's list, frees it and wakes who waits for it. */
void job_finish(struct comm *comm, struct job *job);

/* About one job, no lock: */

bool job_is_message(const struct job *job);
const char *job_name(enum job_kind kind);

/* A collective's vector is divided among the ranks: where the piece of `rank` begins, and its elements. The pieces of an
 * all-reduce or broadcast are consecutive; those of the others are the parts of every span. */
struct cursor job_piece(const struct job *job, int rank, int size);
int64_t job_piece_count(const struct job *job, int rank, int size);
int job_span_count(const struct job *job);
/* This rank's own parts, in the calls that have them. */
struct cursor job_parts(const struct job *job);

/* What must be the same on all ranks of a collective. */
struct job_header {
    int32_t kind, dtype, reduction, root;
    int64_t count;
};
struct job_header job_header(const struct job *job);
/* 0 when rank 0's `first` and `other` agree, else -1 with a message that names both. */
int job_header_check(const struct job_header *first, const struct job_header *other, int rank,
                     struct error *err);

#endif
