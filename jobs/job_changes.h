/* What could be written otherwise in a launch so that a rank needs less memory, or uses more of it to be faster: the options
 * of the job's own framework, spelled so that they can be pasted. Only proposals: what one does is found by reading the launch
 * with its edits (jobs_request.edits) and predicting again. */
#ifndef MEMPLAN_JOBS_JOB_CHANGES_H
#define MEMPLAN_JOBS_JOB_CHANGES_H

#include "jobs/job_edit.h"
#include "jobs/training_job.h"

enum job_change_kind {
    JOB_CHANGE_ALLOCATOR,
    JOB_CHANGE_KERNELS, /* fused ones that keep less */
    JOB_CHANGE_MICRO_BATCH,
    JOB_CHANGE_RECOMPUTE,
    JOB_CHANGE_SHARDING,
    JOB_CHANGE_TENSOR,
    JOB_CHANGE_CONTEXT,
    JOB_CHANGE_PIPELINE,
    JOB_CHANGE_CHUNKS, /* of a pipeline's stage */
    JOB_CHANGE_OFFLOAD,
    JOB_CHANGE_PRECISION, /* of what is computed or kept */
};

enum { JOB_CHANGE_EDITS = 8, JOB_CHANGES_MOST = 48 };

struct job_change {
    enum job_change_kind kind;
    const char *name; /* "micro-batch 2 instead of 4" */
    bool alters;      /* what is learned may differ: precision, size of the batch */
    bool free;        /* needs less, and takes no longer, whatever else is changed: kernels that keep less */
    bool small;       /* a step between larger ones that are proposed too, of use once one of those is known to fit */
    struct job_edit edits[JOB_CHANGE_EDITS];
    int count;
};

struct job_changes {
    struct job_change list[JOB_CHANGES_MOST];
    int count;
};

/* Proposals that need less, or with `larger` more memory; of one kind the smallest change first. Texts live as long as the
 * job's arena. Proposals that the framework would refuse are left out as far as the launch says. */
void job_changes_find(const struct training_job *job, bool larger, struct job_changes *out);

/* Where an option stands now, "run.sh:12", and what it is; NULL: it is not given. */
const struct fact *job_changes_given(const struct training_job *job, const struct job_edit *edit);

#endif
