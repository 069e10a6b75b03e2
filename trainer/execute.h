/* Runs a step program, operation by operation, through a device's kernels: takes each tensor when its life begins, calls
 * the kernel, gives back what is dead. One executor per rank. */
#ifndef MEMPLAN_TRAINER_EXECUTE_H
#define MEMPLAN_TRAINER_EXECUTE_H

#include "device/device.h"
#include "kernels/kernels.h"
#include "model/program.h"
#include "trainer/data.h"
#include "trainer/groups.h"
#include "trainer/step_memory.h"

#include <stdint.h>

struct executor;

/* Everything an executor works with; all borrowed, all must outlive it. */
struct executor_parts {
    const struct program *program; /* of the rank's stage */
    int64_t rank;                  /* of the layout's */
    struct device *device;
    const struct kernel_table *kernels;
    void *kernel_device;  /* what kernels->open() gave; NULL where there is none */
    bool record_steps;    /* where the device can: do steps from the third on from a recording of the second */
    bool pair_operations; /* where the kernels can: do two neighbours in one (pairs.h) */
    struct groups groups; /* {0} for a rank alone */
    struct step_memory *memory;
    const struct data *data;
    int threads; /* OS threads that a kernel may use */
};

/* What AdamW is told at one step. */
struct update {
    double lr, beta1, beta2, eps, decay;
    double max_norm; /* clip the global gradient norm to this; <= 0: no clipping */
};

struct step_result {
    double loss;      /* mean over the global batch */
    double grad_norm; /* before clipping */
    const char *note; /* why steps are not recorded, once; else NULL. Lives as long as the executor. */
};

struct executor *executor_create(const struct executor_parts *parts);
void executor_free(struct executor *executor); /* NULL is fine */

/* One training step. `step` counts from 0 and decides which samples are read: those from step * global_batch on.
 * On failure, and when the loss or the gradient norm is no finite number, err names the step and the operation. */
int executor_step(struct executor *executor, int64_t step, const struct update *update, struct step_result *out,
                  struct error *err);

/* Mean loss over `batches` micro-batches of validation data, forward only, with the same memory. All ranks of a replica call
 * it together. */
int executor_validate(struct executor *executor, int64_t batches, double *loss, struct error *err);

#endif
