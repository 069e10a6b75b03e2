/* CUPTI's activity records: buffers that it fills on its own threads, kept until the writer's thread reads them. */
#ifndef MEMPLAN_PROFILER_CUPTI_RECORDS_H
#define MEMPLAN_PROFILER_CUPTI_RECORDS_H

#include "profiler/cupti.h"
#include "profiler/cupti_calls.h"

#include <stdint.h>

/* What records say besides spans, since the start. */
struct cupti_counts {
    int64_t dropped;           /* records that found no room */
    int64_t given_bytes;       /* of allocations that have records; 0: those kinds are refused */
    int64_t pool_bytes;        /* what the largest memory pool held at most, at any such record */
    int64_t overhead_ns;       /* CUPTI's own time, of all threads */
    int64_t module_loading_ns; /* kernels loaded when they first ran */
    int64_t untimed;           /* spans without times */
};

/* Registers for buffers and enables the kinds of records; what is refused is a note. Fails when buffers are. */
int cupti_records_start(const struct cupti_calls *calls, bool timeline, const struct cupti_sink *sink,
                        struct error *err);
/* Hands over what full buffers say. */
void cupti_records_drain(const struct cupti_sink *sink);
/* Asks for the rest, hands it over, and frees the buffers. */
struct cupti_counts cupti_records_stop(const struct cupti_sink *sink);

/* What the calling thread asks of the GPU from here on belongs to this. */
void cupti_records_work(struct cupti_work before, struct cupti_work work);

#endif
