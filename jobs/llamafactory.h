/* LLaMA-Factory: YAML around Hugging Face's Trainer. */
#ifndef MEMPLAN_JOBS_LLAMAFACTORY_H
#define MEMPLAN_JOBS_LLAMAFACTORY_H

#include "jobs/frameworks.h"

extern const struct framework llamafactory_framework;

/* How many processes its own command starts. */
int llamafactory_count(struct training_job *job, const struct launch *launch, const struct job_files *files,
                       struct error *err);

#endif
