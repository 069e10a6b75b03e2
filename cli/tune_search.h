/* The fastest launch near one's own that fits. Candidates are what the proposals of jobs/job_changes.h make of the launch, of
 * what they make of that, and so on: each set of edits once, read and priced by the one model of steps. Prices are cheap and
 * verdicts are not, so memory is judged in order of time, and only where no twin that needs less was already too large. */
#ifndef MEMPLAN_CLI_TUNE_SEARCH_H
#define MEMPLAN_CLI_TUNE_SEARCH_H

#include "cli/job_trial.h"
#include "jobs/job_changes.h"

enum { TUNE_FOUND_MOST = 5 };

struct tune_request {
    const struct jobs_request *launch;
    const struct training_job *job;     /* as it stands */
    const struct job_verdict *verdict;
    const struct rank_device *device;
    const struct machine_speed *speeds; /* [0] of fp32, [1] of 16 bits */
    bool allow_batch, allow_precision;  /* what is learned may differ by these */
    bool judge_all; /* every launch in its turn, whatever its twins came to and whatever work it takes */
};

/* A launch that was judged, with all its stages. */
struct tuned {
    struct job_edits edits; /* of the launch as it stands; each option once */
    struct training_job job;
    struct job_verdict verdict;
    double sequence_s; /* seconds of one sequence */
};

struct tuning {
    struct tuned list[TUNE_FOUND_MOST]; /* those that fit: the fastest, then the fastest of each other kind */
    int count;
    struct tuned nearest; /* to fitting, where the list is empty; no edits: the launch as it stands */
    double sequence_s;    /* as it stands */
    bool sure;            /* those of the list fit as surely as `memplan check` asks for */
    bool complete;        /* there was work enough for all launches */
    int launches;         /* that were read and priced, the one as it stands among them */
    int faster;           /* of those, than the first of the list (where it is empty, by more than a hair than it stands), and
                           * known not to fit as surely as a launch has to */
    int unjudged;         /* as fast, and there was no work for them */
    int judged;           /* verdicts on memory */
};

/* Everything lives as long as the arena. Fails where no time is predicted for the launch as it stands. */
int tune_search(const struct tune_request *request, struct arena *arena, struct tuning *out, struct error *err);

#endif
