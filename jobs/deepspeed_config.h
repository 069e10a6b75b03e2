/* DeepSpeed's JSON, which several frameworks take. */
#ifndef MEMPLAN_JOBS_DEEPSPEED_CONFIG_H
#define MEMPLAN_JOBS_DEEPSPEED_CONFIG_H

#include "jobs/job_changes_parts.h"
#include "jobs/job_files.h"

/* The file at `path`, with DeepSpeed's defaults for what it leaves out; values "auto" are left to the caller's options. That there is
 * no such file is noted as missing, and no failure. */
int deepspeed_read(struct training_job *job, const char *path, const struct job_files *files, struct error *err);
/* The type of gradients, and who has which states, from switches. */
void deepspeed_gradients(struct training_job *job);
/* Batch sizes that follow from each other: train_batch_size = micro x accumulation x dp. Fails on more than can be counted. */
int deepspeed_complete(struct training_job *job, struct error *err);
/* Proposals: stages of ZeRO, and offloading. */
void deepspeed_changes(struct proposals *p, bool larger);

#endif
