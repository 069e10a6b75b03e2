/* How recomputation is spread over the layers of a stack: the lower ones drop one set, the upper ones another. Two sets are
 * enough to use a capacity almost to the byte, since what layers keep adds up.
 *
 * Arrangements are weighed by the bytes alive at their peak, which is arithmetic over a few numbers (as in
 * program_find_peak()). The arena has a little more, which only placing tells: so programs are built, fastest first, until
 * one fits. */
#ifndef MEMPLAN_PLANNER_ARRANGEMENT_H
#define MEMPLAN_PLANNER_ARRANGEMENT_H

#include "base/error.h"
#include "planner/frontier.h"

#include <stdint.h>

struct arrangement_count {
    int64_t weighed;
    int64_t feasible; /* whose peak is within the room */
};

/* The program like `plain` with the fastest recomputation whose arena has at most `room` bytes; of equally fast ones the
 * one with the lowest peak. *out is the caller's, or NULL when nothing fits. Adds to *count unless it is NULL. */
int arrangement_fit(const struct program *plain, const struct layer_sets *sets,
                    const struct machine_speed *speed, int64_t room, struct program **out,
                    struct arrangement_count *count, struct error *err);

/* The program like `plain` with the lowest peak that recomputation reaches. */
int arrangement_least(const struct program *plain, const struct layer_sets *sets,
                      const struct machine_speed *speed, struct program **out, struct error *err);

#endif
