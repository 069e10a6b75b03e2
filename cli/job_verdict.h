/* Whether a job of another framework fits, from what memplan's own step program can describe: dense GPT and Llama models with
 * Megatron-LM's data, tensor and pipeline parallelism. Everything else is refused by the name of what is in the way. */
#ifndef MEMPLAN_CLI_JOB_VERDICT_H
#define MEMPLAN_CLI_JOB_VERDICT_H

#include "jobs/training_job.h"
#include "model/plan.h"
#include "planner/prediction.h"

struct job_verdict {
    struct plan plan;
    struct pipeline *pipeline;
    struct rank_device device;
    struct prediction answer;
};

/* The one call that judges a job. `memory`: bytes instead of the device's own; 0: none. The caller owns *out:
 * job_verdict_clear(). */
int job_verdict_make(const struct training_job *job, const char *device, int64_t memory, struct job_verdict *out,
                     struct error *err);
void job_verdict_clear(struct job_verdict *verdict);

#endif
