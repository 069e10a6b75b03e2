/* What the CUDA back end's library holds, found through one symbol. The program itself does not link with CUDA, so that it
 * runs where there is none. */
#ifndef MEMPLAN_DEVICE_CUDA_LIBRARY_H
#define MEMPLAN_DEVICE_CUDA_LIBRARY_H

#include "base/error.h"
#include "device/backend.h"

#include <stdint.h>

#define CUDA_LIBRARY_FILE   "libmemplan_cuda.so"
#define CUDA_LIBRARY_SYMBOL "memplan_cuda_library"

/* Raised whenever a struct that crosses the border changes. */
enum { CUDA_LIBRARY_VERSION = 5 };

struct comm;
struct cupti;
struct kernel_table;

struct cuda_description {
    char name[64];       /* "NVIDIA H100 80GB HBM3" */
    char place[16];      /* "0000:3b:00": of the machine's GPUs which, whatever number this process has for it */
    int capability;      /* 90: compute capability 9.0 */
    int driver, runtime; /* 13000: CUDA 13.0 */
    int64_t total_bytes;
    int64_t free_bytes; /* now, with this process's context there */
};

/* Of one GPU, now. */
struct cuda_memory {
    int64_t total_bytes, free_bytes; /* the driver's figures, for all processes */
    int64_t slack_bytes;             /* what the pool of an open device holds beyond what was asked of it */
};

struct cuda_library {
    int version;
    /* How many GPUs this process sees; fails where there is no driver, one too old, or no GPU. */
    int (*count)(int *devices, struct error *err);
    int (*describe)(int ordinal, struct cuda_description *out, struct error *err);
    /* For device_create(), on the calling thread, whose device it is from here on. `used`: the GPUs that this process trains
     * on are the first so many. */
    int (*open)(int ordinal, int used, const struct backend **backend, void **context, struct error *err);
    /* `context` as open() gave it, on its thread. */
    int (*memory)(void *context, struct cuda_memory *out, struct error *err);
    const struct cupti *profiler; /* profiler/cupti.h */
    const struct kernel_table *kernels;
    /* comm_nccl_open(); `context` is that of the rank's device. */
    int (*open_comm)(struct comm *host, const void *context, struct comm **out, struct error *err);
};

/* The library at $MEMPLAN_CUDA_LIBRARY, beside the program, in ../lib, or where the system looks; loaded once, never
 * unloaded. Fails where it is not, or is of another version of memplan. */
int cuda_library_open(const struct cuda_library **out, struct error *err);

/* The GPUs that ranks train on, one each. */
struct cuda_machine {
    struct cuda_description device; /* the one with the least memory free */
    int64_t capacity_bytes;         /* what each rank may take: the same on all */
    int64_t most_free_bytes;        /* of the one with the most; more than device.free_bytes: they differ */
};

/* Of this process: `used` GPUs from number `first` on, for as many of the `ranks` of the run. Each of them, and no other, has a
 * context of this process from here on. Fails like count() and where there are fewer GPUs. */
struct cuda_choice {
    int first, used, ranks;
};
int cuda_library_measure(const struct cuda_choice *choice, struct cuda_machine *out, struct error *err);
/* Adds what another process has measured. */
void cuda_library_join(struct cuda_machine *all, const struct cuda_machine *other);

#endif
