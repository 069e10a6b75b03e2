/* Ranks whose data lies on GPUs, over NCCL. In the CUDA back end's library. */
#ifndef MEMPLAN_COMM_COMM_NCCL_H
#define MEMPLAN_COMM_COMM_NCCL_H

#include "comm/comm.h"

struct cuda_device;

/* The same ranks as `host`, for data in the memory of `device`, the rank's own; device_cuda.h. Owns `host` from here on, and
 * uses it for what passes between hosts. `device` must outlive it. To be called on the device's thread, by all ranks.
 *
 * What differs from comm.h, since the GPU runs it later than the host asks for it:
 *
 *     - A wait returns when what was started is under way, and the device's compute stream goes on when it is done. The host
 *       has the data when it has read them from the device, and learns of a failure then: comm_check().
 *     - What was done once may be done again while the device records (device_record()), and is part of the recording; all
 *       ranks record it, and forget the recording before they close. Barriers, and what is done for the first time, are refused.
 *     - NCCL adds in an order of its own, the same in every run on the same machine and on every rank; bf16 may be rounded
 *       after each addition; a maximum may lose a NaN.
 *     - Ranks must cut into spans alike: each span is a call of NCCL's. That ranks ask for different things is not noticed
 *       here: they wait for each other, or take the wrong data. (NCCL's own checks: NCCL_DEBUG=WARN.)
 *     - That a rank has closed is not noticed by those that go on. comm_abort() is.
 *     - comm_times() knows only how long the host waited. */
int comm_nccl_open(struct comm *host, const struct cuda_device *device, struct comm **out, struct error *err);

#endif
