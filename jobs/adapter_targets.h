/* Names of the modules that adapters stand beside, as linear layers of a workload. */
#ifndef MEMPLAN_JOBS_ADAPTER_TARGETS_H
#define MEMPLAN_JOBS_ADAPTER_TARGETS_H

#include "jobs/training_job.h"
#include "planner/frameworks/workload.h"

/* What `targets` ("q_proj,v_proj", "all-linear") are of the model: bits of enum workload_linear that it has. Fails on a name that
 * is none of its linear layers, and on one that no rule is about. */
int adapter_targets(const struct training_job *job, const struct workload *workload, unsigned *out, struct error *err);

#endif
