/* The frameworks whose launches are read, one entry each. An entry is all that the shared code of this folder knows of a
 * framework: another one is a file with such an entry, and two lines in frameworks.c. */
#ifndef MEMPLAN_JOBS_FRAMEWORKS_H
#define MEMPLAN_JOBS_FRAMEWORKS_H

#include "jobs/job_changes_parts.h"
#include "jobs/job_files.h"
#include "jobs/launcher.h"
#include "planner/frameworks/workload.h"

/* An optimizer by the framework's name for it. */
struct optimizer_rule {
    const char *name;
    enum workload_optimizer optimizer; /* those with one state count as SGD with momentum */
    enum workload_step step;
    int state_bytes; /* of each state; 0: as the weights */
};

/* What a framework's modules do, as a workload: of frameworks that are written around another's modules the same. */
struct framework_modules {
    enum workload_library (*library)(const struct training_job *job);
    /* What they do otherwise than job_workload.c has it for all; NULL: nothing. */
    void (*workload)(const struct training_job *job, struct workload *w);
    /* A feature of the job that no rule of memory is about, by name; NULL: there is none, or no function. */
    const char *(*foreign)(const struct training_job *job, const struct workload *w);
    const struct optimizer_rule *optimizers; /* beside those of all frameworks; ends with one without a name. NULL: none */
    const char *optimizer;                   /* the usual one */
};

struct framework {
    const char *name;    /* "Megatron-LM" */
    const char *version; /* whose defaults are taken: "Megatron-LM core 0.12"; README.md says which files have them */
    const char *programs; /* names of programs that train with it, blanks between; "run_*" is a beginning. They tell a launch
                           * from what a script starts besides. NULL: none of its own */
    const char *binaries; /* programs of its own that no Python runs, blanks between; NULL: none */
    const struct launcher *launcher; /* its own command, which starts its processes; NULL: it has none */
    const char *keys;   /* of its YAML, blanks between: one at the outermost level tells such a file; NULL: it reads none */
    const char *launch; /* of such a FILE: "llamafactory-cli train FILE" */
    const char *vital; /* options of which no default is taken while a word that is not known may hold them, blanks between; "a|b":
                        * one of them is enough. NULL: none */
    bool (*is)(const struct launch *launch);
    /* Fills a job whose launch is known: what its options and files say, what the framework takes by default, what is missing. */
    int (*read)(struct training_job *job, const struct launch *launch, const struct job_files *files, struct error *err);
    /* What could be written otherwise in it (job_changes.h). */
    void (*changes)(struct proposals *p, bool larger);
    const struct framework_modules *modules;
};

/* Ends with NULL; the first that says it is takes a launch. */
extern const struct framework *const frameworks[];

/* NULL: it looks like none of them. */
const struct framework *frameworks_find(const struct launch *launch);
/* Whether a program goes by a name that trains. */
bool frameworks_have_program(const char *name);
/* Whether it is one of a framework's own that no Python runs. */
bool frameworks_have_binary(const char *name);
/* Their versions, commas between. */
const char *frameworks_list(struct arena *arena);

#endif
