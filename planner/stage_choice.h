/* The bytes that a stage needs with so many layers, and the sets of tensors they should drop so that it just fits with the least
 * recomputation.
 *
 * Chunks drop the same sets by height. Where some have a layer more than others, it is the lowest of theirs and has a set of its own;
 * a chunk with the embedding or the head that is like neither has that one set in all its layers. Of all such choices that fit, a stage
 * takes the one that recomputes least in all its chunks together; of equals, the one with the faster odd set. Layers may drop different sets, any
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

/* How the layers of a stage are recomputed. */
struct stage_choice {
    struct stage_form form;
    double recompute_s[CHUNK_KINDS]; /* of one micro-batch through a chunk of each kind */
    double least_s[CHUNK_KINDS]; /* no choice needs less: the same, but where trying all would have taken too long */
    double total_s;              /* of one micro-batch through all chunks */
    double least_total_s;        /* no choice needs less: as least_s, but what is little in one kind may be much in another */
    int64_t peak_bytes;
    int *options; /* of each layer of an even chunk, from the bottom up; owned */
    int odd;      /* of the lowest layer of larger ones, and of what is like no other */
};
void stage_choice_clear(struct stage_choice *choice);

/* The option of layer `layer`, from the bottom up, of a chunk of this kind. */
int stage_choice_option(const struct stage_choice *choice, enum chunk_kind kind, int64_t layer);

/* The choice for a stage of this form with the least recomputation whose peak is at most `room`; of equally fast ones one
 * with a low peak. False: none is. */
bool stage_choice_find(const struct stages *stages, int64_t stage, const struct stage_form *form, int64_t room,
                   struct stage_choice *out);

/* Of an interleaved stage, what no choice recomputes less than, of a chunk of each kind: quickly, and roughly. False: there is none. An
 * encoder's first stage must not be asked for. */
bool stage_choice_least(const struct stages *stages, int64_t stage, const struct stage_form *form, int64_t room,
                        double least_s[CHUNK_KINDS]);

/* Peak of a stage with this form, options and odd option. *moment (NULL: not wanted): when it is reached. */
int64_t stage_choice_peak(const struct stages *stages, int64_t stage, const struct stage_choice *choice,
                    struct stage_moment *moment);

#endif
