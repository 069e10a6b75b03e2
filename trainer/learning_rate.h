/* The learning rate of each step: a linear warm-up, then one of four shapes. */
#ifndef MEMPLAN_TRAINER_LEARNING_RATE_H
#define MEMPLAN_TRAINER_LEARNING_RATE_H

#include "base/error.h"

#include <stdint.h>

enum learning_rate_kind {
    LEARNING_RATE_CONSTANT,
    LEARNING_RATE_COSINE, /* half a cosine from peak to minimum */
    LEARNING_RATE_LINEAR, /* a straight line from peak to minimum */
    LEARNING_RATE_WSD,    /* warm-up, stable, decay: peak, then 1 - sqrt over the last fifth of the steps */
};

struct learning_rate {
    enum learning_rate_kind kind;
    double peak;
    double min_fraction;  /* the rate ends at peak * min_fraction; a constant rate has no use for it */
    int64_t warmup_steps; /* step 0 gets peak / warmup_steps, step warmup_steps - 1 the peak */
};

/* The rate of `step` (from 0) in a run of `total` steps. The minimum is reached at step == total, and kept after it:
 * the last step of a run still learns, even with a minimum of 0. */
double learning_rate_at(const struct learning_rate *rate, int64_t step, int64_t total);

/* "constant", "cosine", "linear", "wsd". */
int learning_rate_parse(const char *name, enum learning_rate_kind *out, struct error *err);

#endif
