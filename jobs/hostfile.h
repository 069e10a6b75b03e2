/* The file of hosts that DeepSpeed's launcher is given. */
#ifndef MEMPLAN_JOBS_HOSTFILE_H
#define MEMPLAN_JOBS_HOSTFILE_H

#include "jobs/job_files.h"
#include "jobs/launcher.h"

/* How many nodes and ranks it says, where the launch names one. */
int hostfile_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                  struct error *err);

#endif
