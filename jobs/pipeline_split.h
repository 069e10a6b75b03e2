/* The layers of each chunk of a pipeline, as a framework has spread them: listed in the model's order, so that chunk c of stage s
 * is number c x stages + s, but for V-shaped schedules, whose second chunks run backwards (planner/frameworks/workload.c). */
#ifndef MEMPLAN_JOBS_PIPELINE_SPLIT_H
#define MEMPLAN_JOBS_PIPELINE_SPLIT_H

#include "jobs/training_job.h"

enum { PIPELINE_SPLIT_MOST = 1 << 14 }; /* chunks */

/* So many chunks without a layer, which live as long as the job. */
int64_t *pipeline_split_new(struct training_job *job, int64_t count);
/* Notes chunks of different sizes, since no option may say them; `origin`: what made them so. */
void pipeline_split_note(struct training_job *job, int64_t count, const char *origin);

#endif
