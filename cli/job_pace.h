/* How fast a job of another framework trains: seconds of a step, between which they lie, and what that comes to. */
#ifndef MEMPLAN_CLI_JOB_PACE_H
#define MEMPLAN_CLI_JOB_PACE_H

#include "cli/job_verdict.h"
#include "planner/machine_speed.h"

struct job_pace {
    double seconds; /* of a step; NAN: not known, and all below is not either */
    struct workload_pace range;
    double tokens_per_second; /* of all ranks */
    enum card_evidence evidence; /* what the rates rest on */
    double utilization; /* model-flops utilization, as `memplan plan` counts it; NAN: the card has no data sheet */
};

/* `speeds` as in job_advice.h. */
struct job_pace job_pace_of(const struct training_job *job, const struct job_verdict *verdict,
                            const struct rank_device *device, const struct machine_speed *speeds, double seconds);

#endif
