/* How DeepSpeed spreads layers over the stages of its pipeline. */
#ifndef MEMPLAN_JOBS_DEEPSPEED_STAGES_H
#define MEMPLAN_JOBS_DEEPSPEED_STAGES_H

#include "jobs/training_job.h"

/* Cuts a row of `count` weights into so many parts whose sums differ least: parts[p] is the first of part p, parts[stages] is
 * `count`. Fails where the search is too long. */
int deepspeed_stages_balance(const int64_t *weights, int64_t count, int64_t stages, int64_t *parts, struct error *err);
/* The layers of each stage of Megatron-DeepSpeed: fills layout.chunk_layers. */
int deepspeed_stages(struct training_job *job, struct error *err);

#endif
