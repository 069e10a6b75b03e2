/* Training steps of all ranks together, and as the lines of JSON that `train --json` writes while it runs. */
#ifndef MEMPLAN_REPORTS_STEPS_H
#define MEMPLAN_REPORTS_STEPS_H

#include "base/arena.h"
#include "base/json.h"
#include "profiler/store.h"

#include <stdint.h>

/* What people call a step that recordings number from 0, and all reports: counted from 1, as `train` prints them. 0: before the
 * first, which recordings have as -1. */
static inline int steps_number(int recorded)
{
    return recorded + 1;
}

static inline int steps_recorded(int number)
{
    return number - 1;
}

/* One row for each step from the rows of all ranks, in order of step: the loss and norm of a rank that knows them, the
 * seconds of the slowest. Returns how many; *steps belongs to the arena. */
int64_t steps_join(const struct store_step *rows, int64_t count, struct arena *arena, struct store_step **steps);

/* {step, loss, grad_norm, step_seconds, tokens_per_second, held_bytes, step_peak_bytes}; what is NAN is null. The bytes are what
 * the fullest rank holds after the step, and held at most in it. New reference. */
json_t *steps_line(const struct store_step *step, int64_t held_bytes, int64_t peak_bytes);
/* {done, steps, peak_bytes: [per rank], arena_bytes: [per rank]}; `done` is false where steps are left to do. New reference. */
json_t *steps_closing_line(bool done, int64_t steps, const int64_t *peak_bytes, const int64_t *arena_bytes,
                           int64_t ranks);

#endif
