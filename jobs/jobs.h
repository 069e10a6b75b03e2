/* From a launch line or a script to a training job. The one call of this folder that others need. */
#ifndef MEMPLAN_JOBS_JOBS_H
#define MEMPLAN_JOBS_JOBS_H

#include "jobs/job_edit.h"
#include "jobs/shell.h"
#include "jobs/training_job.h"

struct jobs_request {
    const char *script;           /* a file; NULL: `command` is the launch */
    const char *const *command;   /* words; with a script, its arguments */
    int command_count;
    const struct shell_variable *set; /* variables that the user gives */
    int set_count;
    const char *with;  /* further options of the program, NULL: none */
    const char *model; /* a model folder, file or preset instead of what the launch names; NULL: none */
    int64_t ranks;     /* 0: what the launch says */
    int64_t line;      /* of the launch in the script, where there are several; 0: the only one */
    struct job_edits edits; /* it is read as if this were written in it */
};

/* Where a command starts a script ("A=1 bash run.sh ARGUMENTS"), the request as if that had been named; else as it is. What is
 * new in it is the arena's. */
struct jobs_request jobs_request_named(const struct jobs_request *request, struct arena *arena);

/* Fills *out, whose texts live as long as the arena. Fails on what cannot be read. What is missing is no failure: it is among
 * the facts. */
int jobs_read(const struct jobs_request *request, struct arena *arena, struct training_job *out, struct error *err);

/* The same from a script's text, as if it stood in `file`. */
int jobs_read_text(const struct jobs_request *request, const char *file, const char *text, size_t length,
                   struct arena *arena, struct training_job *out, struct error *err);

#endif
