/* A launch line as a workload: what readers of options understood (jobs/), in the terms that predictions of memory need
 * (planner/frameworks/). */
#ifndef MEMPLAN_JOBS_JOB_WORKLOAD_H
#define MEMPLAN_JOBS_JOB_WORKLOAD_H

#include "jobs/training_job.h"
#include "planner/frameworks/workload.h"

/* Says that no rule is about a feature; returns -1. */
int job_workload_refuse(const char *feature, struct error *err);
/* All but the card: the caller sets capacity_bytes and cublas_bytes. Fails, by the name of the feature, on what no rule is
 * about. */
int job_workload(const struct training_job *job, struct workload *out, struct error *err);

#endif
