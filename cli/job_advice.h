/* The cheapest changes with which a job fits, or what the room that it leaves would buy: every proposal of jobs/job_changes.h
 * is written into the launch, read and judged again, and priced by its seconds for each sequence. */
#ifndef MEMPLAN_CLI_JOB_ADVICE_H
#define MEMPLAN_CLI_JOB_ADVICE_H

#include "cli/job_verdict.h"
#include "jobs/job_changes.h"
#include "jobs/jobs.h"
#include "planner/machine_speed.h"

enum { JOB_ADVICE_MOST = 6, JOB_ADVICE_PARTS = 5 };

struct job_advised {
    const struct job_change *parts[JOB_ADVICE_PARTS]; /* made together */
    int part_count;
    struct job_edits edits; /* of all of them */
    struct job_verdict after;
    double time_ratio; /* seconds of a sequence, after / before; NAN: not known */
    const char *untimed; /* why not */
    bool alters;
    bool partly; /* `after` is of one stage alone, the one that needed most before; never in a list of advice */
};

enum job_advice_aim {
    JOB_ADVICE_TO_FIT,   /* it does not fit: cheapest first */
    JOB_ADVICE_TO_BE_SURE, /* it fits, and may not: likewise */
    JOB_ADVICE_TO_BUY,   /* it fits with room: what saves most time first */
};

struct job_advice {
    enum job_advice_aim aim;
    struct job_advised list[JOB_ADVICE_MOST];
    int count;
    bool falls_short; /* nothing that was tried fits: the list has what comes nearest */
    int tried;
    double seconds; /* of a step as it is; NAN: not known */
    const char *untimed;
};

struct job_advice_request {
    const struct jobs_request *launch;
    const struct training_job *job;
    const struct job_verdict *verdict;
    const struct rank_device *device;
    const struct machine_speed *speeds; /* [0] of fp32, [1] of 16 bits; NULL: not known of this device */
};

/* Everything lives as long as the arena. Always comes back at once: what is tried is limited by the work it takes. */
void job_advice_find(const struct job_advice_request *request, struct arena *arena, struct job_advice *out);

#endif
