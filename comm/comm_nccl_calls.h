/* NCCL's calls, with their errors and their waiting: communicators, and the groups of calls that jobs become. Private to
 * comm_nccl.c, which decides who calls when. */
#ifndef MEMPLAN_COMM_COMM_NCCL_CALLS_H
#define MEMPLAN_COMM_COMM_NCCL_CALLS_H

#include "comm/transport.h"
#include "device/device_cuda.h"

#include <nccl.h>

/* One rank's end of a communicator, which may not be there yet. Two threads must not call for it at the same time. */
struct nccl_end {
    ncclComm_t nccl; /* NULL: not connected */
    cudaStream_t stream;
    struct comm *comm; /* whose family ends all waiting */
    int ordinal;       /* of the GPU */
};

/* Connects `rank` of `size` with the id of rank 0. */
int nccl_make_id(struct nccl_end *end, ncclUniqueId *id, struct error *err);
int nccl_connect(struct nccl_end *end, const ncclUniqueId *id, int rank, int size, struct error *err);
/* All ranks close what they opened, so NCCL may wait for them; not for ever, and not after a failure. */
void nccl_disconnect(struct nccl_end *end);

/* Puts the job into the stream. NCCL may wait for the other ranks when it does this for the first time. */
int nccl_call_job(struct nccl_end *end, const struct job *job, struct error *err);
/* NCCL finds out about a lost connection by itself, and tells who asks: 0, or -1 and what it says. */
int nccl_look(struct nccl_end *end, struct error *err);

/* Fails where NCCL is too old. */
int nccl_check_version(struct error *err);

/* Between two looks of somebody who has waited since then. */
void nccl_pause(int64_t start_ns);
bool nccl_has_stopped(const struct comm *comm);

#endif
