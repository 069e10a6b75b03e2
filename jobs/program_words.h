/* Programs and options by the words of their names. */
#ifndef MEMPLAN_JOBS_PROGRAM_WORDS_H
#define MEMPLAN_JOBS_PROGRAM_WORDS_H

#include "jobs/training_job.h"

/* What programs train whose names have one of some words (blanks between). */
struct program_words {
    const char *words, *what;
};

/* Whether one of `words` is a word of a name: "dpo" of run_dpo.py and of DPO-train.py, in whichever folder. */
bool program_has_word(const char *program, const char *words);
/* The first entry, of a list that ends with one without words, that has one of the program's; NULL: none has. */
const char *program_words_find(const char *program, const struct program_words *list);
/* No rule is about a job of which an option was given that no table has, and whose name speaks of other models, of adapters or of
 * bits, unless its value says no. */
void program_refuse_unknown(struct training_job *job);

#endif
