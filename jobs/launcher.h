/* What starts the processes of a job (launchers.h), one inside the other: takes them off a command, counts ranks, and leaves the
 * program with its own options. */
#ifndef MEMPLAN_JOBS_LAUNCHER_H
#define MEMPLAN_JOBS_LAUNCHER_H

#include "jobs/launchers.h"
#include "jobs/training_job.h"

enum { LAUNCHER_MOST_MET = 8 };

struct launch {
    const char *program;    /* "pretrain_gpt.py", or the module of -m */
    struct words arguments; /* the program's */
    const struct launcher *met[LAUNCHER_MOST_MET]; /* from the outermost on */
    int met_count;
    bool model_said; /* by the user, besides what the launch says */
    struct word hosts; /* the file of them that a launcher is given; no text: none */
    struct words kept; /* options of launchers that keep those that count no processes */
};

/* Whether a command looks like one that starts training, by its launcher or by the name of its program. */
bool launcher_is_launch(const struct words *command);
/* Whether the name of a program that trains is in it, whatever starts it. */
bool launcher_has_program(const struct words *command);
/* The plan that a command has memplan itself train, if by srun or mpirun; NULL: it does not. */
const struct word *launcher_own_plan(const struct words *command);
/* Fills job->launch as far as the command says; what is needed and unknown is noted as missing. `batch`: the options of
 * #SBATCH lines, which srun inherits. Fails when there is no program in it. */
int launcher_read(struct training_job *job, const struct words *command, const struct words *batch, struct launch *out,
                  struct error *err);
/* Whether it is among those that started the program. */
bool launcher_was_met(const struct launch *launch, const struct launcher *launcher);
/* A launcher's options that stand elsewhere than behind its name; words that are none are passed over. */
void launcher_read_options(struct training_job *job, const struct launcher *launcher, const struct words *options);
/* As many processes as there are visible GPUs, where a launcher counts them and nothing says how many. */
void launcher_count_devices(struct training_job *job, const struct launch *launch, const struct job_files *files);
/* Completes job->launch from what is known; notes the number of ranks as missing when it is not. */
void launcher_count(struct training_job *job);

#endif
