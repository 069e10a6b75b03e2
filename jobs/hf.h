/* Hugging Face's Trainer: what its files share. */
#ifndef MEMPLAN_JOBS_HF_H
#define MEMPLAN_JOBS_HF_H

#include "jobs/frameworks.h"
#include "jobs/setting.h"

#define HF_VERSION "transformers 4.57 and TRL 0.23"

extern const struct framework hf_framework;

/* For frameworks that are written around its Trainer: what its modules do, its options, and what follows once they and the
 * defaults are read. */
extern const struct framework_modules hf_modules;
/* Another table's options first, then the Trainer's, without the defaults that those replace. */
struct setting_table hf_options_with(const struct setting_table *own, struct arena *arena);
int hf_read_options(struct training_job *job, const struct setting_table *table, const struct words *arguments,
                    const struct job_files *files, struct error *err);
int hf_complete(struct training_job *job, const struct setting_table *table, const struct job_files *files,
                struct error *err);

int hf_read(struct training_job *job, const struct launch *launch, const struct job_files *files, struct error *err);
/* Programs of TRL go by its trainers' names. */
bool hf_is_trl(const char *program);
/* Those that compare or reward answers, with another model beside the one that is trained. */
bool hf_compares(const char *program);
/* The place of a file of options among a program's arguments; -1: none is there. */
int hf_options_file(const struct words *arguments);
bool hf_is_json(const char *file);
void hf_changes(struct proposals *p, bool larger);

#endif
