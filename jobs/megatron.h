/* Megatron-LM, and its DeepSpeed fork: what the files of these two frameworks share. */
#ifndef MEMPLAN_JOBS_MEGATRON_H
#define MEMPLAN_JOBS_MEGATRON_H

#include "jobs/frameworks.h"

#define MEGATRON_VERSION           "Megatron-LM core 0.12"
#define MEGATRON_DEEPSPEED_VERSION "Megatron-DeepSpeed"

extern const struct framework megatron_framework, megatron_deepspeed_framework;

int megatron_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                  struct error *err);
void megatron_changes(struct proposals *p, bool larger);

/* Which layers each chunk of a pipeline has: fills layout.virtual_stages and layout.chunk_layers, once ranks and model are read.
 * What the framework itself refuses is an error that names the option with its value. */
int megatron_stages(struct training_job *job, struct error *err);

/* What --recompute-granularity selective makes again: fills recompute.made_again, and recompute.unruled with the name of a module
 * that no rule is about. What the framework itself refuses is an error. */
int megatron_modules(struct training_job *job, struct error *err);
/* Their names, blanks between. */
const char *megatron_modules_list(unsigned modules, struct arena *arena);

#endif
