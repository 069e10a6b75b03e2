/* torchtitan: what its files share. */
#ifndef MEMPLAN_JOBS_TITAN_H
#define MEMPLAN_JOBS_TITAN_H

#include "jobs/frameworks.h"

#define TITAN_VERSION "torchtitan 0.2"

extern const struct framework titan_framework;

int titan_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
               struct error *err);
void titan_changes(struct proposals *p, bool larger);

/* Which layers each chunk of a pipeline has: fills layout.virtual_stages and layout.chunk_layers, once ranks and model are read.
 * What torchtitan itself refuses is an error that names the key with its value. */
int titan_stages(struct training_job *job, struct error *err);

#endif
