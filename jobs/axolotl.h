/* Axolotl: YAML around Hugging Face's Trainer, as an entry of the table, and what its two files share. */
#ifndef MEMPLAN_JOBS_AXOLOTL_H
#define MEMPLAN_JOBS_AXOLOTL_H

#include "jobs/frameworks.h"

#define AXOLOTL_VERSION "Axolotl 0.18"

extern const struct framework axolotl_framework;

/* Its texts among `own` of a training job. */
enum {
    AXOLOTL_ADAPTER,
    AXOLOTL_ATTENTION,
    AXOLOTL_BF16,
    AXOLOTL_CHECKPOINTING,
    AXOLOTL_COMPILE,
    AXOLOTL_OFFLOADING,
    AXOLOTL_PLUGINS,
    AXOLOTL_TEXTS,
};

/* Its switches among `own_switch`. */
enum {
    AXOLOTL_BFLOAT16,
    AXOLOTL_FLASH,
    AXOLOTL_FLEX,
    AXOLOTL_SDP,
    AXOLOTL_EAGER,
    AXOLOTL_ALL_LINEAR,
    AXOLOTL_MLP_KERNEL,
    AXOLOTL_QKV_KERNEL,
    AXOLOTL_O_KERNEL,
    AXOLOTL_REMOTE_CODE,
    AXOLOTL_SWITCHES,
};
_Static_assert((int)AXOLOTL_TEXTS <= (int)JOB_OWN && (int)AXOLOTL_SWITCHES <= (int)JOB_OWN, "more options than there is room for");

/* What stands behind `axolotl train`: its YAML, if one is named, before its other words; and what it hands on to the launcher
 * that it calls. From the arena. */
struct axolotl_line {
    struct words own, launcher;
    const char *called; /* "accelerate", "torchrun", "python" */
};
struct axolotl_line axolotl_split(const struct words *given, struct arena *arena);
/* Whether the word at that place is a YAML file, and no option's value. */
bool axolotl_is_file(const struct words *words, int at);

int axolotl_read(struct training_job *job, const struct launch *launch, const struct job_files *files, struct error *err);
bool axolotl_has_plugin(const struct training_job *job, const char *name);

#endif
