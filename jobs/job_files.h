/* Files that a launch names, and variables that it runs with. */
#ifndef MEMPLAN_JOBS_JOB_FILES_H
#define MEMPLAN_JOBS_JOB_FILES_H

#include "jobs/job_edit.h"
#include "jobs/setting.h"
#include "jobs/shell.h"
#include "jobs/training_job.h"

/* Where files are looked for: what the script wrote, then beside the script, then here. */
struct job_files {
    const struct shell_script *script; /* NULL: none */
    const char *folder;                /* of the script; NULL: none */
    const char *model;                 /* what the user says the model is; NULL: what the options name */
    const struct words *command;       /* the launch with what stands before it on its line */
    struct job_edits edits;
};

/* The text of a file, from the arena; *length may be NULL. Looks where job_files says. 1: there is no such file. */
int job_file_text(struct training_job *job, const struct job_files *files, const char *path, const char **text,
                  size_t *length, struct error *err);
int job_file_json(struct training_job *job, const struct job_files *files, const char *path, json_t **out,
                  struct error *err);
/* YAML as dotted keys, with those that edits are about behind them. */
int job_file_yaml(struct training_job *job, const struct job_files *files, struct pairs *pairs, struct error *err);
/* The path with which it can be opened; NULL: there is none. */
const char *job_file_find(struct training_job *job, const struct job_files *files, const char *path);
/* A variable of the job's environment, as an edit, the launch's line or the script sets it. False: none of them does. */
bool job_environment_find(struct training_job *job, const struct job_files *files, const char *name, struct word *out);
/* How many GPUs CUDA_VISIBLE_DEVICES lets its processes see; 0: nothing says it. */
int64_t job_environment_devices(struct training_job *job, const struct job_files *files);
/* config.json, weights and adapter of a model folder, of a preset, or of a model of the hub: what its cache has, or the sizes
 * that are known. Fills job->model. 1: there is no such model, and *why, from the arena, is a sentence that says where it
 * was looked for, what is near and the ways out. */
int job_read_model(struct training_job *job, const struct job_files *files, const char *source, const char *option,
                   const char **why, struct error *err);

#endif
