/* What operations really cost on one machine, fitted from recorded runs: for each precision and kind of operation its rate against
 * its shape, for each kind of group what it takes to reach each other, and how far repetitions spread. The time model asks here
 * first.
 *
 * calibration.json:
 *
 *     { "memplan_calibration": 3, "memplan_version": "0.1.0", "device": "AMD EPYC, 2 cores",
 *       "made_by": "memplan calibrate ...",
 *       "runs": [ { "run": 1, "precision": "fp32", "ranks": 1, "threads": 2, "step_ratio": 1.03, "step_spread": 0.02 } ],
 *       "links": [ { "group": "parts", "latency_s": 8e-05, "bytes_per_s": 1.8e10, "spread": 0.1, "count": 480 } ],
 *       "operations": [ { "kind": "matmul", "precision": "fp32", "spread": 0.04, "points": [
 *           { "threads": 2, "m": 256, "n": 2304, "k": 768, "flops": 905969664, "bytes": 11010048, "seconds": 0.0041,
 *             "count": 480 } ] } ] }
 */
#ifndef MEMPLAN_PLANNER_CALIBRATION_H
#define MEMPLAN_PLANNER_CALIBRATION_H

#include "base/error.h"
#include "model/layout.h"
#include "model/work.h"
#include "profiler/store.h"

#include <stdbool.h>
#include <stdint.h>

/* Precisions are measured apart: other kernels run, and other bytes move. */
enum { CALIBRATION_VERSION = 3, CALIBRATION_PRECISIONS = PRECISION_FP64 + 1 };

/* Equal operations, measured `count` times by ranks of so many threads. */
struct calibration_point {
    int threads;
    int64_t m, n, k; /* of a matrix product; 0 in operations that are none */
    double flops, bytes,
        seconds; /* of one operation within a step: the median, stretched as its run's steps were */
    int64_t count;
};

struct calibration_kind {
    struct calibration_point *points; /* owned */
    int64_t count;
    double
        spread; /* how much longer than its fastest repetition an operation takes, on average: 0.04 is 4% */
};

/* The ranks that do something together. */
enum calibration_group {
    CALIBRATION_PARTS,    /* tensor-parallel ranks */
    CALIBRATION_REPLICAS, /* data-parallel ranks */
    CALIBRATION_STAGES,   /* of a pipeline, and all ranks of a run */
    CALIBRATION_GROUPS,
};

/* From the moment when the last of them is there, what they do together takes latency_s + bytes sent / bytes_per_s. */
struct calibration_link {
    double latency_s;
    double bytes_per_s; /* sent by one rank; 0: all that was measured was too small to tell */
    double spread;      /* how far single times are from the median, on average */
    int64_t count;      /* how many were measured; 0: none, and all else is 0 */
};

struct calibration_run {
    int64_t run_id;
    enum precision precision;
    int ranks, threads; /* that ran at the same time; of each of them */
    double step_ratio;  /* a step, without what ranks do together, over the sum of its operations' medians */
    double step_spread; /* of ten steps, eight are within so much of the median: 0.02 is 2% */
};

struct calibration {
    char device[96];          /* the machine */
    char memplan_version[32]; /* whose kernels were measured */
    char made_by[256];
    struct calibration_run *runs; /* owned */
    int64_t run_count;
    struct calibration_link links[CALIBRATION_GROUPS];
    struct calibration_kind kinds[CALIBRATION_PRECISIONS][OP_KINDS];
};

/* Adds what was recorded of one run on a machine of `cores` cores. The caller has set device, memplan_version and made_by of
 * *out and zeroed the rest before the first, and owns its contents afterwards: calibration_clear(). A run without timed
 * operations is an error. */
int calibration_fit(struct store *store, int64_t run_id, int cores, struct calibration *out,
                    struct error *err);
/* Releases what the calibration owns, not the struct. */
void calibration_clear(struct calibration *calibration);

/* Was anything measured in it? */
bool calibration_has(const struct calibration *calibration, enum precision precision);

/* Who computes: in what, and with how many threads' cores to itself. */
struct calibration_rank {
    enum precision precision;
    int threads;
};

/* Seconds of an operation within a step, on such a rank. A shape that was not measured gets the rate of its neighbours, the nearer
 * the weightier; a number of threads that was not measured a share of others'. False: nothing of this kind was measured in that
 * precision. */
bool calibration_seconds(const struct calibration *calibration, enum op_kind kind, const struct work *work,
                         const struct calibration_rank *rank, double *seconds);

/* What such ranks need to reach each other, or else what other groups do. NULL: no group was measured. */
const struct calibration_link *calibration_link(const struct calibration *calibration,
                                                enum calibration_group group);
enum calibration_group calibration_group_of(enum op_kind kind);

/* Give or take so much of a step that is predicted from it, in a precision that it has: as much as steps of such runs differ from
 * each other, and no less than what predictions of other layouts were within. */
double calibration_doubt(const struct calibration *calibration, enum precision precision);

int calibration_write(const struct calibration *calibration, const char *path, struct error *err);
/* Refuses, by name, what was measured on another machine or with another memplan's kernels. On success the caller owns
 * out's contents: calibration_clear(). */
int calibration_read(const char *path, const char *device, const char *memplan_version,
                     struct calibration *out, struct error *err);

#endif
