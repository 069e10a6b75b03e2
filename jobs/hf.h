/* Hugging Face's Trainer: what its files share. */
#ifndef MEMPLAN_JOBS_HF_H
#define MEMPLAN_JOBS_HF_H

#include "jobs/frameworks.h"

#define HF_VERSION "transformers 4.57 and TRL 0.23"

extern const struct framework hf_framework;

int hf_read(struct training_job *job, const struct launch *launch, const struct job_files *files, struct error *err);
void hf_changes(struct proposals *p, bool larger);

#endif
