/* Frameworks that are YAML around Hugging Face's Trainer: its options under other names, as keys of that file. */
#ifndef MEMPLAN_JOBS_HF_KEYS_H
#define MEMPLAN_JOBS_HF_KEYS_H

#include "jobs/job_changes_parts.h"

/* An option of the Trainer's, and the key that stands for it. */
struct hf_key {
    const char *name, *value; /* "--gradient_checkpointing", "True"; no value: whichever it is */
    const char *own_name, *own_value; /* no value: it stays */
};

/* Proposals from the `first` on speak of keys of `file`, a file of options of the program's own (NULL: of its options, on the
 * line); `keys` ends with one without a name, and a name that it has not is the same in both. */
void hf_keys_rename(struct proposals *p, int first, const struct hf_key *keys, const char *file);

#endif
