/* Collectives and messages between ranks. One `struct comm` per rank and group; all ranks of a group start the same
 * collectives in the same order.
 *
 * What is started runs beside the caller's computation (a worker thread here; a stream on a GPU): the collectives of a
 * group in the order in which they were started, messages as soon as both ends are there. Sums add ranks in rank order, so
 * results are the same bits on every rank, in every run and over every transport of the host's memory; on GPUs comm_nccl.h
 * says what holds instead. When a rank fails, it calls comm_abort(): every other rank's pending and later calls then return
 * -1 with ERROR_STOPPED, so nobody waits for the dead. */
#ifndef MEMPLAN_COMM_COMM_H
#define MEMPLAN_COMM_COMM_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct comm;

/* One piece of a collective's buffer. The pieces of a call are treated as one long vector. */
struct comm_span {
    void *data;
    int64_t count; /* elements */
};

/* COMM_MAX keeps a NaN. BF16 is combined in float and rounded once, at the end. */
enum comm_reduction { COMM_SUM, COMM_MAX };

enum { COMM_TAG_MAX = 65535 };

/* One rank, alone: every collective is the identity, or a copy. */
int comm_open_self(struct comm **out, struct error *err);
/* `size` ranks of one process; fills out[0..size). Each is then used by its own thread. */
int comm_open_threads(int size, struct comm **out, struct error *err);

/* Was this process started as one of several ranks, by mpirun or srun? */
enum comm_launch {
    COMM_LAUNCH_FAILED = -1, /* yes, but they cannot be connected; err says why */
    COMM_LAUNCH_NONE,        /* no: ranks are up to the caller; *out is NULL */
    COMM_LAUNCH_OPENED, /* yes: *out is this process's rank among all, over MPI. At most once in a process. */
};
enum comm_launch comm_open_launched(struct comm **out, struct error *err);

/* Divides a group; every rank of it calls this. Ranks that give the same color >= 0 become a group of their own, ordered by
 * (key, rank); with color < 0 a rank joins none and *out is NULL. The groups of a rank work side by side, and each is closed
 * for itself, in any order. What ends one group ends all that were split from the same ranks. */
int comm_split(struct comm *comm, int color, int key, struct comm **out, struct error *err);
/* Closes one rank's end; the last one closed frees what is shared. NULL is fine. Pending work is aborted first; whatever
 * other ranks start after it ends in ERROR_STOPPED, not in waiting for a rank that is gone. */
void comm_close(struct comm *comm);

int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);

/* Starting.
 *
 * The spans array is copied; the data must stay untouched until the wait, and after it, whether it succeeds or not, no other
 * rank touches them. *ticket (NULL is fine) is what comm_wait_for() takes. Ranks may cut a vector into spans differently;
 * when its length, type or purpose differs, every rank's wait fails and names both calls. */

/* In place; F32, F64 or BF16. */
int comm_start_all_reduce(struct comm *comm, const struct comm_span *spans, int count, enum dtype dtype,
                          enum comm_reduction reduction, int64_t *ticket, struct error *err);
/* Each span of `full`, a multiple of comm_size() long, is divided into equal consecutive parts, and part r of it is rank r's:
 * parts[i] receives the sum of part comm_rank() of every rank's full[i]. It may be that very place or one apart. What else
 * is in `full` stays. F32, F64 or BF16; all ranks cut alike. */
int comm_start_reduce_scatter(struct comm *comm, const struct comm_span *full, const struct comm_span *parts,
                              int count, enum dtype dtype, int64_t *ticket, struct error *err);
/* The way back: part r of full[i] receives parts[i] of rank r, of any type. */
int comm_start_all_gather(struct comm *comm, const struct comm_span *parts, const struct comm_span *full,
                          int count, enum dtype dtype, int64_t *ticket, struct error *err);
/* The spans of rank `root` are copied to all, of any type. */
int comm_start_broadcast(struct comm *comm, const struct comm_span *spans, int count, enum dtype dtype,
                         int root, int64_t *ticket, struct error *err);

/* The same, started and waited for in one: for what is needed at once. Ranks that are threads save the way over their
 * workers. */
int comm_all_reduce(struct comm *comm, const struct comm_span *spans, int count, enum dtype dtype,
                    enum comm_reduction reduction, struct error *err);
int comm_reduce_scatter(struct comm *comm, const struct comm_span *full, const struct comm_span *parts,
                        int count, enum dtype dtype, struct error *err);
int comm_all_gather(struct comm *comm, const struct comm_span *parts, const struct comm_span *full, int count,
                    enum dtype dtype, struct error *err);
int comm_broadcast(struct comm *comm, const struct comm_span *spans, int count, enum dtype dtype, int root,
                   struct error *err);

/* A message from one rank to another, or to itself. The first send to a peer with a tag in [0, COMM_TAG_MAX] meets the
 * peer's first receive with that tag, and so on; messages wait for each other and for nothing else. A send may stay
 * pending until its receive is started. */
int comm_start_send(struct comm *comm, const struct comm_span *span, enum dtype dtype, int peer, int tag,
                    int64_t *ticket, struct error *err);
int comm_start_receive(struct comm *comm, const struct comm_span *span, enum dtype dtype, int peer, int tag,
                       int64_t *ticket, struct error *err);

/* Waiting. */

/* Waits until what returned this ticket, on this comm, is done. */
int comm_wait_for(struct comm *comm, int64_t ticket, struct error *err);
/* Waits until everything started on this comm is done. */
int comm_wait(struct comm *comm, struct error *err);
/* Returns when all ranks have called it and the collectives that they started before are done. */
int comm_barrier(struct comm *comm, struct error *err);

/* 0 while the group lives, else -1 and the reason. Never waits. */
int comm_check(struct comm *comm, struct error *err);

/* Ends the group and all that belong to the same ranks: `reason` (the first one given wins) is what other ranks report.
 * Safe from any thread, any time. */
void comm_abort(struct comm *comm, const char *reason);
/* Once the group has ended: is it this rank's failure that counts, and its message that the user should see? Processes may
 * fail at the same moment, before one hears of another; then the lowest rank of these is chosen, by all. Waits until every
 * process knows, two seconds at most. False while the group lives. */
bool comm_failed_first(struct comm *comm);

/* Seconds that this rank or its worker spent inside collectives, and that its caller spent waiting, for messages too: with
 * collectives alone, the share of communication hidden behind computation is 1 - waited / busy. Reset to zero by the call. */
void comm_times(struct comm *comm, double *busy_s, double *waited_s);

#endif
