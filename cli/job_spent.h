/* Where the seconds of a job's step go. The parts are differences of prices: the step as it is, against one that makes nothing
 * again, against that with links that take no time, against that with nothing on the host. */
#ifndef MEMPLAN_CLI_JOB_SPENT_H
#define MEMPLAN_CLI_JOB_SPENT_H

#include "planner/frameworks/workload.h"
#include "planner/machine_speed.h"

enum job_spent_part {
    JOB_SPENT_COMPUTATION,   /* forward and backward */
    JOB_SPENT_RECOMPUTATION, /* what backward makes again */
    JOB_SPENT_COMMUNICATION, /* between ranks, where nothing hides it */
    JOB_SPENT_TRANSFERS,     /* to and from the host, likewise, of what is kept there */
    JOB_SPENT_BUBBLE,        /* a stage waits for others */
    JOB_SPENT_OPTIMIZER,
    JOB_SPENT_PARTS,
};

struct job_spent {
    double seconds[JOB_SPENT_PARTS]; /* of a step; they add up to it */
};

extern const char *const job_spent_names[JOB_SPENT_PARTS];

/* Fails as workload_time() does. `speed` is that of the precision in which the job computes. */
int job_spent_of(const struct workload *workload, const struct machine_speed *speed, struct job_spent *out,
                 struct error *err);

#endif
