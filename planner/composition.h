/* How many layers each stage of one layout gets, how its chunks share them, and what they recompute: the fastest of all ways whose peaks
 * have room.
 *
 * What a stage takes depends only on its split (stages.h), since the least recomputation with which that fits is known
 * (stage_choice.h). So this is a choice of p splits whose layers add up. Only replaying the schedule tells the time of a step;
 * but no step is shorter than any chain of things that wait for each other. Chains of stage i begin when the first micro-batch
 * has passed the stages before it, and end when the last one has passed back through them:
 *
 *     step >= sum over j < i of (f_j + b_j + 2 messages) + the longest chain of stage i + e_0 + the least tail
 *
 * f_j and b_j being the passes of stage j's first chunk, e_0 what stage 0 must wait for the sums of its gradients, since it ends
 * last. One chain of stage i is all its own work, m t_i. Others leave the stage and come back: from a micro-batch's forward to its
 * backward it must pass the last chunks of the stages behind, which takes at least P_i = sum over j > i of (f_j + b_j + 2 messages),
 * for any number of layers that these have in all. With w_i micro-batches in flight,
 *
 *     gpipe           m t_i + P_i                           all forward, the last one through and back, all backward
 *     1f1b            m t_i - (w_i - 1) b_i + P_i           in at the end, the last one through and back
 *                     m t_i - (w_i - 1) f_i + P_i           the first one through and back, then all
 *                     r (t_i + P_i) + (m - 1 - (r - 1) w_i) t_i     r times, the first and the last one among them
 *     interleaved     the like, in passes of chunks, each with its own seconds (n = v m - w_i or 0, F from a stage's
 *                     first chunk to its last: all layers but those in first chunks before it and last ones behind):
 *                     v m f_i + (n + 1 + (v - 1) p) b_i + P_i,    F + (n + 1) f_i + v m b_i + P_i,
 *                     F + (n + 1) t_i + (v - 1) p b_i + 2 P_i where n > 0
 *
 * In r = 2 the stage's own warm-up and end are left out for twice the way through; in the most that m allows, micro-batches in
 * flight are too few to hide messages. Under zb-h1 backward is the input half; of the weight halves, i + 1 may follow stage i's last
 * input half (model/schedule.c puts off so many) and count in no chain, and one of stage 0's follows its own.
 *
 * And a stage is not done before its own gradients are summed, e_i, whatever the stages before it still do: a chain of a stage k >= i
 * that passes back to stage i only, and so leaves out the backward passes before i, or all work of stage i itself:
 *
 *     step >= sum over j < i of (f_j + message) + sum over i <= j < k of (f_j + b_j + 2 messages) + the chain + e_i + the least tail
 *
 * And what a replay was so long for is a chain of all stages' passes, which bounds all other ways (shown_chains.h).
 *
 * Costs before stage i add up from left to right, and P_i and the forward passes before depend on the layers that are left, so the numbers for which this is
 * below a limit are found by dynamic programming, without dead ends; each of them is replayed, the likeliest first, and the best one
 * so far is the limit. */
#ifndef MEMPLAN_PLANNER_COMPOSITION_H
#define MEMPLAN_PLANNER_COMPOSITION_H

#include "planner/cells.h"
#include "planner/timeline.h"

#include <stdbool.h>
#include <stdint.h>

struct composition;

/* `stages` is borrowed. */
struct composition *composition_open(const struct stages *stages);
void composition_close(struct composition *composition); /* NULL is fine */

/* No step of this layout is shorter; infinite when that is `limit_s` or more, or nothing fits. `from_s`: known to be none. */
double composition_bound(struct composition *composition, double from_s, double limit_s);

struct composition_best {
    double step_s;              /* infinite: none below the limit */
    struct stage_split *splits; /* of each stage; owned */
    double bound_s; /* no step of this layout below the limit is shorter: step_s or the limit itself, where all was tried rather than as
                     * much as `budget` and the stages' effort allowed */
};

/* The fastest step below `limit_s`; composition_bound() has been called. *budget is how many items of schedules may still be replayed. */
int composition_search(struct composition *composition, double limit_s, int64_t *budget,
                       struct composition_best *out, struct error *err);
void composition_best_clear(struct composition_best *best);

/* What a stage with this split recomputes. */
const struct stage_choice *composition_choice(struct composition *composition, int64_t stage, const struct stage_split *split);
/* What its step would take, and how it is made up: of the stage that waits least. */
struct step_time composition_time(struct composition *composition, const struct composition_best *best);

/* The arena of the stage as it was built, where the caller keeps it; 0: not built yet. */
int64_t *composition_arena(struct composition *composition, int64_t stage, const struct stage_split *split);
/* As built it was too large: the same sets the other way up, which take as long. False where that is the same, was tried, or has no
 * room at its peak. */
bool composition_turn_over(struct composition *composition, int64_t stage, const struct stage_split *split);
/* From now on, a stage with this split must have its peak `less` bytes below the lowest that its sets had. */
void composition_tighten(struct composition *composition, int64_t stage, const struct stage_split *split, int64_t less);

#endif
