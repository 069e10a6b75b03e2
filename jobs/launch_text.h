/* A launch script with edits written into it: options where they stand, those that it did not have behind the program's name,
 * variables where they are set, settings of files where the script writes those. Everything else stays as it was, byte for
 * byte. Whether it does what it is to do is for its reader to say: whoever writes a script so reads it again. */
#ifndef MEMPLAN_JOBS_LAUNCH_TEXT_H
#define MEMPLAN_JOBS_LAUNCH_TEXT_H

#include "jobs/config_text.h"
#include "jobs/shell.h"
#include "jobs/training_job.h"

struct launch_text {
    const char *file, *text;         /* as it was read */
    const struct training_job *job;  /* from it */
    const struct shell_script *script; /* likewise */
    struct arena *arena;
    struct splices splices; /* so far */
    int lines_above;        /* that were put in before the launch */
};

/* Whether the script writes that file itself. */
bool launch_text_writes(const struct launch_text *launch, const char *file);
/* Any edit but of a file that it does not write. Fails on what has no place in the script, by name. */
int launch_text_edit(struct launch_text *launch, const struct job_edit *edit, struct error *err);
/* Names another file wherever the script names this one. */
int launch_text_rename(struct launch_text *launch, const char *file, const char *other, struct error *err);
/* All of it, from the arena. */
char *launch_text_written(const struct launch_text *launch);

/* A command as a script, each word so that a shell reads it as it is. */
char *launch_text_of_command(const char *const *words, int count, struct arena *arena);

#endif
