/* Ranks of a test, each on a thread and an emulated GPU of its own, connected through NCCL over threads. */
#ifndef MEMPLAN_TESTS_CUDA_GPU_RANKS_H
#define MEMPLAN_TESTS_CUDA_GPU_RANKS_H

#include "base/dtype.h"
#include "comm/comm.h"
#include "device/device.h"

enum { MAX_GPU_RANKS = 8 };

struct gpu_rank {
    struct comm *comm;
    struct device *device;
    int rank, size, ordinal;
    int status; /* failures, counted by the body */
    struct error err;
    void *shared; /* the test's own */
};

/* Opens `size` ranks, runs `body` on each one's thread, and closes them. What they have left is in `ranks`. */
void gpu_ranks_run(int size, struct gpu_rank *ranks, void (*body)(struct gpu_rank *), void *shared);
/* The same, rank r on GPU ordinals[r]. */
void gpu_ranks_run_on(const int *ordinals, int size, struct gpu_rank *ranks, void (*body)(struct gpu_rank *),
                      void *shared);
/* No rank has a status, and nothing is left of streams, memory and communicators. */
void gpu_ranks_check(int size, const struct gpu_rank *ranks);

/* Device memory with these bytes in it; freed when the rank closes, at the latest. */
void *gpu_put(struct gpu_rank *self, const void *from, int64_t bytes);
void gpu_get(struct gpu_rank *self, void *to, const void *from, int64_t bytes);

/* Of elements on the device. A sum that is started and waited for, on the host's side; 0, or what comm.h says. */
int gpu_all_reduce(struct gpu_rank *self, void *data, int64_t count, enum dtype dtype);
/* Of F32, and until the GPU is done: a failure shows then. */
int gpu_all_reduce_to_its_end(struct gpu_rank *self, void *data, int64_t count);
/* Of F32; comm_wait() ends them. */
int gpu_start_send(struct comm *comm, float *data, int64_t count, int peer, int tag, struct error *err);
int gpu_start_receive(struct comm *comm, float *data, int64_t count, int peer, int tag, struct error *err);

#endif
