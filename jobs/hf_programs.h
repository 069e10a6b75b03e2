/* What a program that takes the Trainer's options trains, as far as its name and those of its options tell. */
#ifndef MEMPLAN_JOBS_HF_PROGRAMS_H
#define MEMPLAN_JOBS_HF_PROGRAMS_H

#include "jobs/training_job.h"

enum hf_program {
    HF_UNKNOWN,    /* someone's own; taken for a language model's training */
    HF_LANGUAGE,   /* run_clm.py and its like */
    HF_TRL,        /* TRL's SFTTrainer */
    HF_CLASSIFIES, /* sequences: run_glue.py and its like */
    HF_OTHER,      /* something that no rule is about */
};

/* *what (NULL: not wanted): of HF_OTHER, its kind in words. */
enum hf_program hf_program_kind(const char *program, const char **what);
/* Whether adapters are in its name: qlora.py, train_lora.py. */
bool hf_program_adapts(const char *program);

#endif
