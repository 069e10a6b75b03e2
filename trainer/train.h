/* Training runs: opens the data, starts the ranks, steps, validates, writes checkpoints, and ends every rank when one fails.
 * Ranks are threads of this process; or processes that a launcher has started, each of which calls train_run() and is one. */
#ifndef MEMPLAN_TRAINER_TRAIN_H
#define MEMPLAN_TRAINER_TRAIN_H

#include "comm/comm.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "model/pipeline.h"
#include "trainer/learning_rate.h"
#include "trainer/step_memory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct train_settings {
    const char *data_path; /* a file, or "random" */
    uint64_t seed;
    int64_t steps; /* of the whole run, those before a resume included */
    struct learning_rate rate;
    double beta1, beta2, eps, decay, max_norm;
    int64_t validate_every;     /* steps between validations; 0: none */
    int64_t validation_batches; /* micro-batches per validation */
    const char *checkpoint_folder; /* NULL: none are written */
    int64_t checkpoint_every;      /* 0: only after the last step */
    const char *resume_folder;     /* NULL: from step 0 */
    const char *weights_path;      /* what step 0 starts from, as in public_weights.h; NULL: initial weights */
    const char *device;                 /* kind of each rank's, as in device_open(); of several GPUs, one each */
    const struct kernel_table *kernels; /* of that kind */
    bool record_steps;                  /* once a step has run, do the later ones from a recording of it, where there can be one */
    bool pair_operations; /* where the kernels can: do two neighbours in one, which then has the time of both */
    enum memory_policy policy;
    int64_t capacity_bytes; /* of each rank's device; <= 0: no limit */
    int threads;            /* OS threads shared out among the ranks of this machine; 0: the cores that they may use */
    struct comm *world;     /* this process's rank among all, borrowed; NULL: ranks are threads */
    int ranks_here;         /* with `world`: processes of the run on this machine */
    int gpu;                /* with `world`: the number of this process's; ranks that are threads have those from 0 on */
    bool poison;            /* fill new and freed device memory with NaNs: for tests */
    /* Other than 0: all ranks end the run after the step at work, with a checkpoint where those are written. Processes may have
     * it set at different times: it is enough that one has. NULL: never. */
    const atomic_int *stop;
};

/* The defaults of the command line: AdamW 0.9, 0.95, 1e-8, decay 0.1, clipping at 1, cosine from 3e-4 to a tenth. */
struct train_settings train_defaults(void);

struct step_report {
    int rank;
    int64_t step; /* from 0 */
    double loss;  /* of the global batch */
    double grad_norm, lr, seconds;
    int64_t tokens; /* of the global batch */
    double communication_busy_s, communication_waited_s;
    /* By the device's ledger, the most of any rank: live when the step was done, and at most while it ran. */
    int64_t held_bytes, peak_bytes;
};

/* Calls from the threads of this process's ranks, one at a time; each may be NULL. A start that returns -1 ends the run.
 * Validations and checkpoints are told by rank 0. */
struct train_listener {
    void *context;
    int (*start)(void *context, int rank, struct device *device, const struct program *program, struct error *err);
    void (*step_begin)(void *context, int rank, int64_t step);
    void (*step)(void *context, const struct step_report *report);
    void (*validation)(void *context, int64_t step, double loss);
    void (*checkpoint)(void *context, int64_t step, const char *folder);
    /* What a user may want to know, and no failure: a sentence. */
    void (*note)(void *context, int rank, const char *text);
    /* The rank is done, or has failed; its memory is given back after this. Not called when start was not, or failed. */
    void (*finish)(void *context, int rank, struct device *device);
};

struct train_result {
    int64_t steps_done;         /* by this run, on the first rank of this process */
    int64_t reached;            /* likewise, those before a resume included */
    int stopped;                /* by which value of *settings->stop, on any rank, steps were left to do; 0: none were */
    double final_loss;          /* of the last step */
    struct device_usage *usage; /* per rank, when the run ended; owned: train_result_clear(). Of a run that failed,
                                   of this process's ranks only */
    int ranks;
};

/* Runs until settings->steps are done, or settings->stop ends it, which is no failure. Refused before anything is taken,
 * with ERROR_MEMORY, when an arena does not fit the capacity. On failure the message is that of the rank that failed first,
 * and result holds what was reached; clear it in any case. With settings->world, whose size must be that of the layout, a
 * rank that fails ends the world, and the failure is of the kind ERROR_STOPPED where another rank's came first. The
 * programs of `pipeline` are shared by the ranks of a stage. */
int train_run(const struct pipeline *pipeline, const struct train_settings *settings,
              const struct train_listener *listener, struct train_result *result, struct error *err);
void train_result_clear(struct train_result *result);

/* Opens the training data as train_run() does, to learn early whether it can. */
int train_check_data(const struct pipeline *pipeline, const struct train_settings *settings, struct error *err);

#endif
