/* Which layers each chunk of a pipeline has: options of Megatron-LM and torchtitan, as each of them spreads layers. */
#ifndef MEMPLAN_JOBS_PIPELINE_SPLIT_H
#define MEMPLAN_JOBS_PIPELINE_SPLIT_H

#include "jobs/training_job.h"

/* Fill layout.virtual_stages and layout.chunk_layers, once ranks and model are read. What the framework itself refuses is an
 * error that names the option with its value. */
int pipeline_split_megatron(struct training_job *job, struct error *err);
int pipeline_split_titan(struct training_job *job, struct error *err);

#endif
