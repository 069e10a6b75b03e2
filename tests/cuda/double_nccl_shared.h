/* What the files of NCCL's double share among themselves. Tests see double_nccl.h.
 *
 *     double_nccl       communicators and calls, and what must hold for them
 *     double_meetings   where the calls of all ranks meet, and data move */
#ifndef MEMPLAN_TESTS_CUDA_DOUBLE_NCCL_SHARED_H
#define MEMPLAN_TESTS_CUDA_DOUBLE_NCCL_SHARED_H

#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_RANKS = 16 };

enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECEIVE };

struct operation {
    enum kind kind;
    const unsigned char *from;
    unsigned char *to;
    size_t count; /* as it was given: of one rank's part where there are parts */
    ncclDataType_t type;
    ncclRedOp_t reduction;
    int peer; /* of a message; root of a broadcast */
    cudaStream_t stream;
    bool done;
};

/* A group of calls that a stream has come to. Never freed: streams ask about them late. */
struct posting {
    struct posting *next, *older; /* of its communicator: not done yet; all of all */
    struct ncclComm *comm;
    int64_t since_ns;
    bool done;
    int count;
    struct operation operations[];
};

/* Never freed, so that use after its end can be told. */
struct ncclComm {
    struct ncclComm *next;
    struct clique *clique;
    int rank, device;
    bool alive, ending;
    ncclResult_t state;
    int64_t since_ns;         /* when what is in progress began */
    struct posting *postings; /* in the order of the stream */
    struct posting *awaited;  /* that must be done before NCCL has connected for it; NULL: none */
    int recorded;             /* groups that graphs hold */
    uint64_t *known;          /* what has been done once */
    int known_count;
    struct operation *operations; /* of the group that is being made */
    int count, room;
};

struct clique {
    struct clique *next;
    ncclUniqueId id;
    int number, size;
    struct ncclComm *ranks[MAX_RANKS];
};

/* Guards all of it. */
extern pthread_mutex_t nccl_lock;
extern struct ncclComm *nccl_comms;

/* ---- double_meetings.c, with the lock but for the last ---- */

const char *meeting_name(enum kind kind); /* "ncclAllReduce" */
size_t meeting_type_bytes(ncclDataType_t type); /* 0: unknown */
const char *meeting_type_name(ncclDataType_t type);

struct posting *meeting_post(struct ncclComm *comm, const struct operation *operations, int count);
/* Moves the data of all for whom the others have come. */
void meeting_progress(struct clique *clique);
/* Complains when it has been waited for too long. */
void meeting_check_time(int64_t since_ns);
/* For streams: is the posting done, or its communicator gone? */
bool meeting_is_done(void *posting);

#endif
