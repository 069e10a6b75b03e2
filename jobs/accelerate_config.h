/* accelerate: its options and its YAML. */
#ifndef MEMPLAN_JOBS_ACCELERATE_CONFIG_H
#define MEMPLAN_JOBS_ACCELERATE_CONFIG_H

#include "jobs/job_files.h"
#include "jobs/launcher.h"
#include "jobs/setting.h"

/* The options that `accelerate launch` has kept. */
int accelerate_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                    struct error *err);
/* Keys of FSDP's configuration, as transformers and accelerate have them, with "fsdp_" in front or not. */
int accelerate_read_fsdp(struct training_job *job, struct pairs *pairs, struct error *err);

#endif
