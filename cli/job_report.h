/* What is said about a launch of another framework: one page for all formats, and the same as JSON. */
#ifndef MEMPLAN_CLI_JOB_REPORT_H
#define MEMPLAN_CLI_JOB_REPORT_H

#include "base/json.h"
#include "cli/job_advice.h"
#include "cli/job_pace.h"
#include "planner/frameworks/workload_terms.h"
#include "reports/report.h"

struct job_answer {
    const struct training_job *job;
    const struct rank_device *device;   /* NULL: no card was named */
    const struct node_group *nodes;     /* how they are taken to be placed, for times; NULL with the device */
    const struct job_verdict *verdict;  /* NULL: none, because something is missing or no rule is about it */
    const struct job_advice *advice;    /* NULL with the verdict */
    const struct job_pace *pace;        /* likewise */
    const struct workload_terms *terms; /* NULL: not asked for */
    bool explain;                       /* every setting with its source, too */
};

/* "fits: 56.0 of 79.1 GiB on h100-80g, 99% sure" */
const char *job_report_sentence(const struct job_answer *answer, struct arena *arena);
struct report *job_report_page(const struct job_answer *answer, struct arena *arena);
/* A new reference. */
json_t *job_report_json(const struct job_answer *answer);

/* In a line, what the advice comes to; without any, what was launched. */
const char *job_report_advice(const struct job_answer *answer, struct arena *arena);

#endif
