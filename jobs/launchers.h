/* What starts processes, one entry each: all that launcher.c knows of a launcher. The commands of frameworks are theirs
 * (frameworks.h). */
#ifndef MEMPLAN_JOBS_LAUNCHERS_H
#define MEMPLAN_JOBS_LAUNCHERS_H

#include "jobs/job_files.h"

struct launch;

/* What an option says. */
enum launcher_meaning {
    LAUNCHER_VALUE, /* something that counts no processes */
    LAUNCHER_SWITCH, /* the same, without a value */
    LAUNCHER_PAIR,  /* two values */
    LAUNCHER_NODES,
    LAUNCHER_PER_NODE,
    LAUNCHER_RANKS,
    LAUNCHER_PLACES, /* "ppr:4:node": so many per node */
    LAUNCHER_HOSTS,
};

struct launcher_option {
    const char *name;
    enum launcher_meaning meaning;
};

struct launcher {
    const char *name;  /* NULL: it is not shown, and counts nothing */
    const char *words; /* that it is called by, blanks between */
    const char *commands; /* one of which stands behind it where it trains; NULL: none has to */
    bool trains;     /* what it starts is taken for training, whatever its name */
    bool is_program; /* that word behind it is the program */
    bool keeps;      /* its options that count no processes are kept in struct launch, for `read` */
    bool takes_batch; /* it inherits the options of #SBATCH lines */
    bool counts; /* processes itself: one of it is started per node by what stands around it, whose numbers it replaces */
    bool sees;   /* it starts a process on each GPU that CUDA_VISIBLE_DEVICES lists, where its options say nothing, or "gpu" */
    int64_t nodes, per_node; /* where its options say nothing; 0: that is not known */
    const struct launcher_option *options; /* ends with one without a name */
    /* Its files and what it kept, before the framework's options; NULL: nothing to read. */
    int (*read)(struct training_job *job, const struct launch *launch, const struct job_files *files, struct error *err);
};

/* The one that a word calls, a framework's own command too; NULL: none. */
const struct launcher *launchers_find(const char *word);
/* Whether that is one of its commands. */
bool launchers_has_command(const struct launcher *launcher, const char *word);
/* Their names, commas between; returns `out`. */
enum { LAUNCHERS_TEXT = 200 };
const char *launchers_list(char out[LAUNCHERS_TEXT]);

#endif
