/* Whether a job of another framework fits a card: its launch as a workload, the framework's rules replayed, and how sure that
 * is. The one way in which jobs are judged, with or without changes. */
#ifndef MEMPLAN_CLI_JOB_VERDICT_H
#define MEMPLAN_CLI_JOB_VERDICT_H

#include "jobs/training_job.h"
#include "planner/cluster.h"
#include "planner/frameworks/workload_odds.h"

struct job_verdict {
    struct workload workload;
    struct workload_memory memory; /* of the stage that needs most */
    bool fits;                     /* `probability` is a half or more */
    double probability;
    int jobs; /* measured ones, whose errors the probability is made from */
    int64_t needed_bytes, capacity_bytes;
    int64_t fragment_bytes; /* of needed_bytes, free pieces that the allocator cannot use */
    int64_t first_rank, ranks; /* those of memory.stage, which follow each other */
    struct workload_interval intervals[WORKLOAD_FIGURES];
};

/* `stage`: of the pipeline, the one that is looked at, or the last; -1: the one that needs most. Fails, by name, on what no
 * rule is about. */
int job_verdict_make(const struct training_job *job, const struct rank_device *device, int64_t stage,
                     struct job_verdict *out, struct error *err);
/* The same of a workload, as a job of so many ranks has it: its capacity is the device's already. */
int job_verdict_of(const struct workload *workload, int64_t ranks, int64_t stage, struct job_verdict *out,
                   struct error *err);

#endif
