/* Parts of answers about launches as JSON that several commands give. New references. */
#ifndef MEMPLAN_CLI_JOB_JSON_H
#define MEMPLAN_CLI_JOB_JSON_H

#include "base/json.h"
#include "jobs/job_changes.h"

/* NAN, an unknown, is null. */
json_t *job_json_real(double value);
/* [{place, file, name, value, words, now, from}], of a launch as it stands. */
json_t *job_json_edits(const struct training_job *job, const struct job_edits *edits);

#endif
