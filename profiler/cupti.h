/* CUPTI as the program sees it: what the CUDA back end's library (device/cuda_library.h) finds out about this process's
 * GPUs. One at a time in a process, because CUPTI has one subscriber.
 *
 * Two sources. Callbacks of the driver's API keep a ledger of every byte of device memory, whoever asks for it: the driver is
 * the one place that all of them pass. They come on the thread that asks, so what it is busy with is known without any
 * matching. Activity records are written by CUPTI and say when the GPU did what; they arrive late and in any order, and are
 * joined with operations by correlation ids.
 *
 * Nothing here stops or delays what is watched: what finds no room is dropped and counted, what fails becomes a note. */
#ifndef MEMPLAN_PROFILER_CUPTI_H
#define MEMPLAN_PROFILER_CUPTI_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* What a thread is busy with: an operation of the step program, in a step. */
struct cupti_work {
    int64_t operation; /* -1: none */
    int step;          /* -1: before the first */
};

/* A block of device memory that the driver gave out, or took back. Times are those of clock_ns(). */
struct cupti_memory {
    int64_t time_ns, address;
    int64_t bytes;      /* < 0: taken back */
    int64_t live_bytes; /* of the device, after this */
    int device;         /* ordinal */
    struct cupti_work work;
    const char *call;  /* "cuMemAlloc_v2" */
    const char *owner; /* who asked: the program or library that called, such as "libnccl.so.2" */
};

enum cupti_span_kind { CUPTI_SPAN_KERNEL, CUPTI_SPAN_COPY, CUPTI_SPAN_FILL, CUPTI_SPAN_RANGE };

/* Time of the GPU, or of the host for a range that somebody has named through NVTX. */
struct cupti_span {
    enum cupti_span_kind kind;
    int64_t start_ns, end_ns; /* both 0: CUPTI had no room to note them */
    int device;
    uint32_t stream;
    int64_t bytes; /* of copies and fills */
    struct cupti_work work;
    const char *name; /* of kernels and ranges; lives for the call */
};

/* Who takes what was found. Only called from within start(), drain() and stop(). */
struct cupti_sink {
    void *context;
    void (*memory)(void *context, const struct cupti_memory *memory);
    void (*span)(void *context, const struct cupti_span *span);
    /* A sentence: what could not be watched, and why; without `trouble`, what watching cost. */
    void (*note)(void *context, const char *text, bool trouble);
};

/* Bytes that an owner holds now and that are claimed by nobody. */
struct cupti_holding {
    const char *owner;
    int64_t bytes;
};

enum { CUPTI_OWNERS = 64 };

struct cupti {
    /* Begins to watch. `timeline`: when each kernel, copy and fill ran too, for which CUPTI takes device memory, and the ranges
     * that libraries name through NVTX from here on; changes the environment, so there should be no thread that reads it. Fails with
     * a sentence that says who or what keeps CUPTI from it; then there is nothing to stop. What fails in part is a note. */
    int (*start)(bool timeline, const struct cupti_sink *sink, struct error *err);
    /* Hands over what has come in since the last time. From one thread. */
    void (*drain)(void);
    /* Hands over the rest and watches no more. No thread may be in a call of CUDA. */
    void (*stop)(void);
    /* The calling thread is busy with this; with -1, with nothing. */
    void (*work)(struct cupti_work work);
    /* This address lies in a block that the device's own ledger knows. */
    void (*claim)(int device, int64_t address);
    /* All that the driver has given out on a device since start(), and the unclaimed part by owner; returns how many. */
    int64_t (*live_bytes)(int device);
    int (*unclaimed)(int device, struct cupti_holding out[CUPTI_OWNERS]);
};

/* In the library, and nowhere else. */
extern const struct cupti cupti_profiler;

#endif
