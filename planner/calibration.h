/* What operations really cost on one machine, fitted from a recorded run: for each kind of operation its rate against its
 * shape, and how far repetitions spread. The time model asks here first.
 *
 * calibration.json:
 *
 *     { "memplan_calibration": 1, "memplan_version": "0.1.0", "device": "AMD EPYC, 2 cores", "threads": 2, "ranks": 1,
 *       "made_by": "memplan calibrate ...", "communication_bytes_per_s": 0, "step_ratio": 1.03,
 *       "operations": [ { "kind": "matmul", "spread": 0.04, "points": [
 *           { "m": 256, "n": 2304, "k": 768, "flops": 905969664, "bytes": 11010048, "seconds": 0.0041,
 *             "count": 480 } ] } ] }
 */
#ifndef MEMPLAN_PLANNER_CALIBRATION_H
#define MEMPLAN_PLANNER_CALIBRATION_H

#include "base/error.h"
#include "model/work.h"
#include "profiler/store.h"

#include <stdbool.h>
#include <stdint.h>

enum { CALIBRATION_VERSION = 1 };

/* Equal operations, measured `count` times. */
struct calibration_point {
    int64_t m, n, k; /* of a matrix product; 0 in operations that are none */
    double flops, bytes, seconds; /* of one operation; the median */
    int64_t count;
};

struct calibration_kind {
    struct calibration_point *points; /* owned */
    int64_t count;
    double spread; /* how much longer than its fastest repetition an operation takes, on average: 0.04 is 4% */
};

struct calibration {
    char device[96];          /* the machine */
    char memplan_version[32]; /* whose kernels were measured */
    char made_by[256];
    int threads, ranks;       /* of each rank; that ran at the same time */
    double comm_bytes_per_s;  /* sent by one rank; 0: the run had one rank */
    double step_ratio;        /* a step, without waiting for peers, over the sum of its operations' medians */
    struct calibration_kind kinds[OP_KINDS];
};

/* Fits the kernels recorded in one run. The caller has set device, memplan_version, made_by and threads of *out, and
 * owns its contents afterwards: calibration_clear(). A run without kernels is an error. */
int calibration_fit(struct store *store, int64_t run_id, struct calibration *out, struct error *err);
/* Releases what the calibration owns, not the struct. */
void calibration_clear(struct calibration *calibration);

/* Seconds of an operation within a step on the calibrated machine. A shape that was not measured gets the rate of its
 * neighbours, the nearer the weightier. False: nothing of this kind was measured. */
bool calibration_seconds(const struct calibration *calibration, enum op_kind kind, const struct work *work,
                         double *seconds);

/* How far the repetitions of all operations spread, each kind weighing as much as it took of the run: 0.04 is 4%. */
double calibration_spread(const struct calibration *calibration);

int calibration_write(const struct calibration *calibration, const char *path, struct error *err);
/* Refuses, by name, what was measured on another machine or with another memplan's kernels. On success the caller owns
 * out's contents: calibration_clear(). */
int calibration_read(const char *path, const char *device, const char *memplan_version,
                     struct calibration *out, struct error *err);

#endif
