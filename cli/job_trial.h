/* A launch of another framework as if something in it were written otherwise: read again with its edits, timed, judged. What
 * advice (job_advice.h) and the search (tune_search.h) make all their proposals of; the work it takes is counted, so that both
 * can stop at the same point on any machine. */
#ifndef MEMPLAN_CLI_JOB_TRIAL_H
#define MEMPLAN_CLI_JOB_TRIAL_H

#include "cli/job_verdict.h"
#include "jobs/jobs.h"
#include "planner/machine_speed.h"

/* From here on a fit is called sure, so that room may be spent; and a change must leave it so. */
extern const double job_trial_sure; /* 0.9 */
/* A launch that is faster by a smaller share is not worth a line. */
extern const double job_trial_gain; /* 0.01 */

struct job_trials {
    const struct jobs_request *launch;
    const struct rank_device *device;
    const struct machine_speed *speeds; /* [0] of fp32, [1] of 16 bits; NULL: not known of this device */
    int64_t work; /* of all judgements so far: layers that were replayed for a micro-batch, some 16 us each */
};

/* Fails where the launch can no longer be read, or lacks something. */
int job_trial_read(const struct job_trials *trials, struct job_edits edits, struct arena *arena,
                   struct training_job *out);
/* Seconds of one sequence; NAN, with the reason in *err. */
double job_trial_seconds(const struct job_trials *trials, const struct workload *workload, struct error *err);
/* Work of one judgement that looks at so many stages. */
int64_t job_trial_work(const struct workload *workload, int64_t stages);
/* Stage `first` alone, and all where that one fits with the probability `enough`; *partly: it was that one alone. A first of
 * -1: all at once. */
int job_trial_judge(struct job_trials *trials, const struct training_job *job, int64_t first, double enough,
                    struct job_verdict *out, bool *partly, struct error *err);

/* Whether one micro-batch of one sequence, of which everything is made again, needs more than is sure to fit already: then so does
 * whatever differs from the launch by its micro-batches and by what it makes again. *needed_bytes is that. */
bool job_trial_is_hopeless(struct job_trials *trials, const struct training_job *job, int64_t *needed_bytes);

#endif
