/* The readers of each framework's options. All fill a training job whose launch is known, note what they read, what they
 * take by default, and what is missing. */
#ifndef MEMPLAN_JOBS_FRAMEWORKS_H
#define MEMPLAN_JOBS_FRAMEWORKS_H

#include "jobs/job_edit.h"
#include "jobs/launcher.h"
#include "jobs/setting.h"
#include "jobs/shell.h"

/* Where configuration files are looked for: what the script wrote, then beside the script, then here. */
struct job_files {
    const struct shell_script *script; /* NULL: none */
    const char *folder;                /* of the script; NULL: none */
    const char *model;                 /* what the user says the model is; NULL: what the options name */
    const struct words *command;       /* the launch with what stands before it on its line */
    struct job_edits edits;
};

/* NULL when the words do not look like that framework's. */
bool megatron_is(const struct launch *launch);
bool hf_is(const struct launch *launch);
bool titan_is(const struct launch *launch);

int megatron_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                  struct error *err);
int hf_read(struct training_job *job, const struct launch *launch, const struct job_files *files, struct error *err);
int titan_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
               struct error *err);

/* The file of hosts that the launch names, if there is one: how many nodes and ranks. */
int hostfile_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                  struct error *err);
/* A DeepSpeed JSON file. Values "auto" are left to the caller's options. */
int deepspeed_read(struct training_job *job, const char *path, const struct job_files *files, struct error *err);
/* The type of gradients, and who has which states, from switches. */
void deepspeed_gradients(struct training_job *job);
/* Batch sizes that follow from each other: train_batch_size = micro x accumulation x dp. */
void deepspeed_complete(struct training_job *job);
/* `accelerate launch`: its options and its YAML. */
int accelerate_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                    struct error *err);

/* Keys of FSDP's configuration, as transformers and accelerate have them, with "fsdp_" in front or not. */
int accelerate_read_fsdp(struct training_job *job, struct pairs *pairs, struct error *err);

/* The text of a file, from the arena; *length may be NULL. Looks where job_files says. 1: there is no such file. */
int job_file_text(struct training_job *job, const struct job_files *files, const char *path, const char **text,
                  size_t *length, struct error *err);
int job_file_json(struct training_job *job, const struct job_files *files, const char *path, json_t **out,
                  struct error *err);
/* The path with which it can be opened; NULL: there is none. */
const char *job_file_find(struct training_job *job, const struct job_files *files, const char *path);
/* A variable of the job's environment, as an edit, the launch's line or the script sets it. False: none of them does. */
bool job_environment_find(struct training_job *job, const struct job_files *files, const char *name, struct word *out);
/* config.json, weights and adapter of a model folder, of a preset, or of a model of the hub: what its cache has, or the sizes
 * that are known. Fills job->model. 1: there is no such model, and *why, from the arena, is a sentence that says where it
 * was looked for, what is near and the ways out. */
int job_read_model(struct training_job *job, const struct job_files *files, const char *source, const char *option,
                   const char **why, struct error *err);

/* Notes that it is missing, and how to give it, when it is 0 and nothing was said. */
void job_require(struct training_job *job, int64_t value, const char *option, const char *example);
/* Far above any, so that products with a size of the model are numbers. */
enum { JOB_MOST_RANKS = 1 << 28 };
/* The ranks that are left for data parallelism; an error when they do not divide, or are too many. */
int job_split_ranks(struct training_job *job, struct error *err);

#endif
