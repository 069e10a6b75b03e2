/* Names for what a rank is about: the step, the phase and micro-batch in it, the operation in that. For tools that watch the
 * process from outside; where there is none this is one comparison an operation. */
#ifndef MEMPLAN_TRAINER_LABELS_H
#define MEMPLAN_TRAINER_LABELS_H

#include "device/device.h"
#include "model/program.h"

struct labels {
    struct device *device; /* NULL: nobody listens */
    const struct program *program;
    bool in_phase;
    enum phase phase;
    int64_t micro_batch;
};

struct labels labels_for(struct device *device, const struct program *program);

/* `what`: "step", "validation after step"; the number is shown from 1 on. */
void labels_begin_step(struct labels *labels, const char *what, int64_t step);
void labels_end_step(struct labels *labels);
/* Of a step. Begins the phase that it belongs to. */
void labels_begin_operation(struct labels *labels, const struct step_op *operation);
void labels_end_operation(struct labels *labels);

#endif
