/* A collective between ranks that share no memory, as rounds in which every rank sends every other one message. Knows how
 * the messages are made and what is done with them, not how they travel.
 *
 * Pieces are taken in windows of a bounded size. For each window there are up to two rounds: SCATTER brings pieces to their
 * owners (who combine them in rank order: this is why results are the same bits as between threads), GATHER brings an
 * owner's piece to all. Every message begins with the header of the call, so that ranks which call differently find out. */
#ifndef MEMPLAN_COMM_EXCHANGE_H
#define MEMPLAN_COMM_EXCHANGE_H

#include "comm/transport.h"

/* One per group, used for one job after the other. */
struct exchange {
    int rank, size;
    int64_t slot_bytes;           /* of a message at most, header included */
    unsigned char *outgoing, *incoming; /* a slot per rank; NULL before the first job */
    struct cursor *pieces;        /* by rank: where its piece goes on in the vector */
    int64_t *left;                /* by rank: elements of the piece not done yet */
    struct cursor *scratch;       /* room for the sources of a reduction */
    struct cursor parts;
    const struct job *job;
    bool gathering; /* this round is a GATHER */
};

/* `slot_bytes` 0: as large as suits the size of the group. */
void exchange_open(struct exchange *exchange, int rank, int size, int64_t slot_bytes);
void exchange_close(struct exchange *exchange);

/* Makes the messages of the job's first round. */
void exchange_begin(struct exchange *exchange, const struct job *job);
/* What to send to `rank` in this round, and its length. */
const void *exchange_outgoing(const struct exchange *exchange, int rank, int64_t *bytes);
/* Where a message of up to slot_bytes from `rank` must arrive. */
void *exchange_incoming(const struct exchange *exchange, int rank);
/* All messages of the round have been sent and have arrived: uses them and makes those of the next round. Returns 1 when
 * there is one, 0 when the job is done, -1 with err when ranks do not make the same call. */
int exchange_advance(struct exchange *exchange, struct error *err);

#endif
