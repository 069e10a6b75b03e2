/* Hugging Face's Trainer: what its files share. */
#ifndef MEMPLAN_JOBS_HF_H
#define MEMPLAN_JOBS_HF_H

#include "jobs/frameworks.h"
#include "jobs/setting.h"

/* Of the Trainer, and of what is written around it (struct framework). */
#define HF_VITAL                                                                                                     \
    "--per_device_train_batch_size|--per_gpu_train_batch_size "                                                        \
    "--bf16|--fp16|mixed_precision|--mixed_precision|--mixed-precision|bf16.enabled|fp16.enabled|--pure_bf16"
#define HF_VERSION "transformers 4.57 and TRL 0.23"

extern const struct framework hf_framework;

/* For frameworks that are written around its Trainer: what its modules do, its options, and what follows once they and the
 * defaults are read. */
extern const struct framework_modules hf_modules;
/* Another table's options first, then the Trainer's, without the defaults that those replace; its rules are the arena's. */
struct setting_table hf_options_with(const struct setting_table *own, struct arena *arena);
/* The program's options: those of a JSON or YAML file first, where one is named, whose keys are names without dashes and of which
 * those below fsdp_config are FSDP's; then those on the line. Fills no defaults: that is setting_defaults(). */
int hf_read_options(struct training_job *job, const struct setting_table *table, const struct words *arguments,
                    const struct job_files *files, struct error *err);
/* All that follows from options and defaults: the model and its adapter, DeepSpeed or FSDP, precision, recomputation, batches. What
 * is missing is noted under the names that the table has for it. */
int hf_complete(struct training_job *job, const struct setting_table *table, const struct job_files *files,
                struct error *err);

/* As the entry has them (frameworks.h). */
int hf_read(struct training_job *job, const struct launch *launch, const struct job_files *files, struct error *err);
void hf_changes(struct proposals *p, bool larger);
/* The place of a file of options among a program's arguments; -1: none is there. */
int hf_options_file(const struct words *arguments);
bool hf_is_json(const char *file);

#endif
