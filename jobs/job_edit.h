/* A launch that is read as if something in it were written otherwise: an option of the program, a key of a file that it
 * names, a variable of its environment. So what a change does is what the readers make of it, and nothing else. */
#ifndef MEMPLAN_JOBS_JOB_EDIT_H
#define MEMPLAN_JOBS_JOB_EDIT_H

#include "base/arena.h"
#include "base/json.h"
#include "jobs/setting.h"
#include "jobs/word.h"

#include <stdbool.h>

enum job_edit_place { JOB_EDIT_OPTION, JOB_EDIT_FILE, JOB_EDIT_ENVIRONMENT };

struct job_edit {
    enum job_edit_place place;
    const char *file;  /* as the launch names it; of JOB_EDIT_FILE only */
    const char *name;  /* "--micro-batch-size"; "zero_optimization.stage" of a JSON file; of a YAML file its last part */
    const char *value; /* NULL: it is left out; "": the option is given without one */
    bool words;        /* an option's value is several words, with blanks between them, and not one */
    int kind;          /* of the change that it is part of (job_changes.h), and */
    bool free;         /* whether that costs nothing: for whoever puts changes together */
};

struct job_edits {
    const struct job_edit *list;
    int count;
};

/* Options of a program: those that an edit names go, and stand at the end as the edit says. */
void job_edit_words(const struct job_edits *edits, struct words *arguments, struct arena *arena);
/* Keys of the JSON file `file`, nested ones by dots: "true", "2" and the like are no strings. */
void job_edit_json(const struct job_edits *edits, const char *file, json_t *object);
/* Settings of the YAML file that they were read from, in whatever section each stands. */
void job_edit_pairs(const struct job_edits *edits, struct pairs *pairs, struct arena *arena);
/* What a variable is set to; NULL: no edit is about it. */
const char *job_edit_variable(const struct job_edits *edits, const char *name);

#endif
