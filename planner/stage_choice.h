/* The bytes that a stage needs with so many layers, and the sets of tensors they should drop so that it just fits with the least
 * recomputation.
 *
 * All chunks of a stage are alike here: as many layers each, and the same sets by height. Layers may drop different sets, any
 * at all; the order in which they lie does not change the time (time_model.c), so they lie as the peak likes it best: the more
 * a layer needs while it runs, beyond what it keeps, the lower.
 *
 * Proof: with d_l the most that layer l needs beyond what it keeps, a pass peaks at the largest of (kept by layers up to l) +
 * d_l. Of two neighbours, the one with the larger d below gives max(K + a + d_a, K + a + b + d_b), which is at most K + a + b +
 * d_a and so no more than the other order's. With backward in two halves there are three such peaks, and all orders are tried. */
#ifndef MEMPLAN_PLANNER_STAGE_CHOICE_H
#define MEMPLAN_PLANNER_STAGE_CHOICE_H

#include "planner/stages.h"

#include <stdbool.h>
#include <stdint.h>

/* How the layers of a chunk are recomputed: options by layer, from the bottom up. */
struct stage_choice {
    int64_t layers;        /* of each chunk */
    double recompute_s[2]; /* of one micro-batch through a chunk of each kind */
    double least_s[2]; /* no choice needs less: the same, but where trying all would have taken too long */
    int64_t peak_bytes;
    int *options; /* of each layer; owned */
};
void stage_choice_clear(struct stage_choice *choice);

/* The choice for `layers` layers a chunk with the least recomputation whose peak is at most `room`; of equally fast ones one
 * with a low peak. False: none is. */
bool stage_choice_find(const struct stages *stages, int64_t stage, int64_t layers, int64_t room,
                   struct stage_choice *out);

/* Peak of a stage whose layers drop these, from the bottom up. *moment (NULL: not wanted): when it is reached. */
int64_t stage_choice_peak(const struct stages *stages, int64_t stage, int64_t layers, const int *options,
                    struct stage_moment *moment);

#endif
