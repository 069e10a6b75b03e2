/* Ranks that exchange what lies in the memory of their devices. */
#ifndef MEMPLAN_COMM_COMM_DEVICE_H
#define MEMPLAN_COMM_COMM_DEVICE_H

#include "comm/comm.h"
#include "device/device.h"

/* The same ranks as `host`, for data in the memory of `device`, this rank's own, whose thread calls it: `host` itself where
 * the device's memory is the host's, NCCL over it on GPUs (comm_nccl.h says what differs there). Owns `host` from here on,
 * also when it fails. Every rank calls it. */
int comm_open_device(struct comm *host, struct device *device, struct comm **out, struct error *err);

#endif
