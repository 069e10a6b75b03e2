/* A job of another framework in words: how its ranks share it, what they keep, what its edits are. Phrases for pages; texts live
 * as long as the arena, or for ever. */
#ifndef MEMPLAN_CLI_JOB_WORDS_H
#define MEMPLAN_CLI_JOB_WORDS_H

#include "jobs/job_changes.h"
#include "planner/frameworks/workload.h"

/* A file without its folders; a phrase as it is. */
const char *job_words_origin(const char *origin);
/* "96%"; never certain. */
const char *job_words_percent(double share, struct arena *arena);
/* "8: data 4 x tensor 2". */
const char *job_words_ranks(const struct training_job *job, struct arena *arena);
const char *job_words_numbers(const struct workload *workload, struct arena *arena);
const char *job_words_sharding(const struct workload *workload, struct arena *arena);
const char *job_words_recomputation(const struct workload *workload, struct arena *arena);
const char *job_words_attention(const struct workload *workload);

/* What is to be written in the launch: "--micro-batch-size 2". */
const char *job_words_edit(const struct job_edit *edit, struct arena *arena);
/* The same, with what stands where in the launch now: "... (now 4, run.sh:12)". */
const char *job_words_change(const struct training_job *job, const struct job_edit *edit, struct arena *arena);
/* In what a launch differs from another by edits of it, each of which is named: "tensor parallel 4 instead of 8; nothing made
 * again". NULL: there are none. */
struct job_words_launch {
    const struct training_job *job;
    const struct workload *workload;
};
const char *job_words_differences(const struct job_words_launch *before, const struct job_words_launch *after,
                                  const struct job_edits *edits, struct arena *arena);

#endif
