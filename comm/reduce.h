/* The arithmetic of an all-reduce between ranks that share memory; knows nothing of threads. */
#ifndef MEMPLAN_COMM_REDUCE_H
#define MEMPLAN_COMM_REDUCE_H

#include "comm/comm.h"

/* Elements [begin, end) of the long vectors become their sum, in the memory of every rank: vectors[r] are rank r's spans,
 * which may be cut differently from rank to rank. Adds in rank order, so the result depends on nothing else. */
void reduce_range(const struct comm_span *const *vectors, int ranks, int64_t begin, int64_t end, enum dtype dtype);

/* Where rank `rank`'s share of `total` elements begins; the share ends where that of rank + 1 begins. */
int64_t reduce_share(int64_t total, int rank, int ranks);

#endif
