/* How many layers each stage of one layout gets, and what they recompute: the fastest of all ways whose peaks have room.
 *
 * What a stage takes depends only on its number of layers, since the least recomputation with which so many fit is known
 * (stages.h). So this is a choice of p numbers that add up to the layers. Only replaying the schedule tells the time of a step;
 * but no step is shorter than this: stage i cannot begin before the first micro-batch has passed the stages before it, then has
 * m micro-batches to do, and what it does last has to pass back:
 *
 *     step >= sum over j < i of (f_j + b_j + 2 messages) + m t_i + e_0 + the least tail,       for every i
 *
 * e_0 being what stage 0 must wait for the sums of its gradients, since it ends last, f_j and b_j being the passes of stage j's first chunk, t_i all work of stage i on a micro-batch. Where backward is in halves,
 * i + 1 weight halves may follow stage i's last input half (model/schedule.c puts off so many), so they count less, and one of
 * stage 0's follows its own. Costs before stage i add up from left to right, so the numbers for which this is below a limit are
 * found by dynamic programming, without dead ends; each of them is replayed, the likeliest first, and the best one so far is
 * the limit. */
#ifndef MEMPLAN_PLANNER_COMPOSITION_H
#define MEMPLAN_PLANNER_COMPOSITION_H

#include "planner/stages.h"
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
    double step_s;   /* infinite: none below the limit */
    int64_t *layers; /* of a chunk of each stage; owned */
    bool proved; /* none of this layout is faster: all was tried, rather than as much as `budget` allowed */
};

/* The fastest step below `limit_s`; composition_bound() has been called. *budget is how many items of schedules may still be replayed. */
int composition_search(struct composition *composition, double limit_s, int64_t *budget,
                       struct composition_best *out, struct error *err);
void composition_best_clear(struct composition_best *best);

/* What a stage with so many layers a chunk recomputes. */
const struct stage_choice *composition_choice(struct composition *composition, int64_t stage, int64_t layers);
/* What its step would take, and how it is made up: of the stage that waits least. */
struct step_time composition_time(struct composition *composition, const struct composition_best *best);

/* The arena of the stage as it was built, where the caller keeps it; 0: not built yet. */
int64_t *composition_arena(struct composition *composition, int64_t stage, int64_t layers);
/* From now on, a stage with so many layers must have its peak below `room`: as built it was too large. */
void composition_tighten(struct composition *composition, int64_t stage, int64_t layers, int64_t room);

#endif
