/* Hugging Face's Trainer: what its files share. */
#ifndef MEMPLAN_JOBS_HF_H
#define MEMPLAN_JOBS_HF_H

#include "jobs/frameworks.h"

#define HF_VERSION "transformers 4.57 and TRL 0.23"

extern const struct framework hf_framework;

int hf_read(struct training_job *job, const struct launch *launch, const struct job_files *files, struct error *err);
/* Programs of TRL go by its trainers' names. */
bool hf_is_trl(const char *program);
/* The place of a file of options among a program's arguments; -1: none is there. */
int hf_options_file(const struct words *arguments);
bool hf_is_json(const char *file);
void hf_changes(struct proposals *p, bool larger);

#endif
