/* Collectives between ranks. One `struct comm` per rank; all ranks of a group make the same calls in the same order.
 *
 * Started collectives run beside the caller's computation (a worker thread per rank here; a stream on a GPU) in the order
 * in which they were started. Sums add ranks in rank order, so results are the same bits on every rank and in every run.
 * When a rank fails, it calls comm_abort(): every other rank's pending and later calls then return -1 with ERROR_STOPPED,
 * so nobody waits for the dead. */
#ifndef MEMPLAN_COMM_COMM_H
#define MEMPLAN_COMM_COMM_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdint.h>

struct comm;

/* One piece of a collective's buffer. The pieces of a call are treated as one long vector. */
struct comm_span {
    void *data;
    int64_t count; /* elements */
};

/* One rank, alone: every collective is the identity. */
int comm_open_self(struct comm **out, struct error *err);
/* `size` ranks of one process; fills out[0..size), or opens none and returns -1. Each is then used by its own thread. */
int comm_open_threads(int size, struct comm **out, struct error *err);
/* Closes one rank's end; the last one closed frees what is shared. NULL is fine. Pending collectives are finished or
 * aborted first; whatever other ranks start after it ends in ERROR_STOPPED, not in waiting for a rank that is gone. */
void comm_close(struct comm *comm);

int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);

/* Starts an all-reduce (sum) of the spans, in place; F32 or F64. The spans array is copied; the data must stay untouched
 * until comm_wait(), and after it, whether it succeeds or not, no other rank touches them. Ranks may cut the vector into
 * spans differently; when its length or type differs, every rank's comm_wait() fails and names both. */
int comm_start_all_reduce(struct comm *comm, const struct comm_span *spans, int count, enum dtype dtype,
                          struct error *err);
/* Waits until everything started on this rank is done. */
int comm_wait(struct comm *comm, struct error *err);
int comm_barrier(struct comm *comm, struct error *err);
/* Ends the group: `reason` (the first one given wins) is what other ranks report. Safe from any thread, any time. */
void comm_abort(struct comm *comm, const char *reason);

/* Seconds that this rank's worker spent inside collectives, and that its caller spent inside comm_wait(): the share of
 * communication hidden behind computation is 1 - waited / busy. Reset to zero by the call. */
void comm_times(struct comm *comm, double *busy_s, double *waited_s);

#endif
