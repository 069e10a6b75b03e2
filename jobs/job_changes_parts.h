/* What the proposals of all frameworks share (job_changes.h). */
#ifndef MEMPLAN_JOBS_JOB_CHANGES_PARTS_H
#define MEMPLAN_JOBS_JOB_CHANGES_PARTS_H

#include "jobs/job_changes.h"

struct proposals {
    const struct training_job *job;
    struct job_changes *out;
    struct job_change beyond; /* for those that have no room */
};

/* A new proposal to add edits to. */
struct job_change *changes_propose(struct proposals *p, enum job_change_kind kind, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
/* What changes the degree of tensor or context parallelism, to which the framework adds its options. */
struct job_change *changes_propose_tensor(struct proposals *p, int64_t tp);
struct job_change *changes_propose_context(struct proposals *p, int64_t cp);
/* Whether so many ranks can share the heads, and are worth trying: no more than one machine usually has. */
bool changes_splits_heads(const struct training_job *job, int64_t tp);
/* Whether so many ranks can share a sequence, which is long enough for it. */
bool changes_splits_sequence(const struct training_job *job, int64_t cp);
/* An option of the program; of a launch whose options are a JSON file, that file's key. `value` as in struct job_edit. */
void changes_option(struct proposals *p, struct job_change *change, const char *name, const char *value);
/* One whose value is several words, with blanks between them. */
void changes_words(struct proposals *p, struct job_change *change, const char *name, const char *words);
void changes_count(struct proposals *p, struct job_change *change, const char *name, int64_t value);
/* Leaves it out where it was given. */
void changes_drop(struct proposals *p, struct job_change *change, const char *name);
/* A key of a configuration file. */
void changes_key(struct proposals *p, struct job_change *change, const char *file, const char *name, const char *value);
/* The file that says a setting, without the line; NULL: none does, or it is not JSON or YAML. */
const char *changes_file_of(const struct training_job *job, const char *name);
/* A setting as it was read; NULL: it was not. */
const struct fact *changes_read(const struct training_job *job, const char *name);

/* The next smaller micro-batch, by which the old one divides; 0: there is none. */
int64_t changes_smaller(int64_t micro_batch, int64_t than);

#endif
