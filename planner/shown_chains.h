/* Chains of things that wait for each other, as replays of a layout's schedule have shown them: what each was so long for
 * (timeline.h) is as long or longer in all its compositions, and of what each stage puts into it only that stage's split tells. So
 *
 *     step >= messages + sum over stages of (times that each pass of each chunk is in the chain x its seconds)
 *             + what the stage where it ends waits for its gradients' sums + what a stage does when all have met
 *
 * for any of them. composition.h's own chains know one stage at a time; these know how stages wait for each other whose chunks differ. The
 * least that is still to come, for all numbers of layers left, tells early of a part of a composition that none of its ends is fast
 * enough. */
#ifndef MEMPLAN_PLANNER_SHOWN_CHAINS_H
#define MEMPLAN_PLANNER_SHOWN_CHAINS_H

#include "planner/cells.h"
#include "planner/schedule_memory.h"

#include <stdint.h>

struct shown_chains;

/* Borrowed. It begins with the chains that are known of the schedule, and adds to these. */
struct shown_chains *shown_chains_open(const struct cells *cells, struct known_schedule *known);
void shown_chains_close(struct shown_chains *shown); /* NULL is fine */

/* The cells that may be taken from now on, with what stages do behind their last backward or without: shown_chains_allow() for each, from the last stage's to the first stage's, those of a stage
 * one after another, and with how many layers left with the stage and those behind it; then shown_chains_begin(). */
void shown_chains_forget(struct shown_chains *shown, bool with_tails);
void shown_chains_allow(struct shown_chains *shown, struct cell *cell, int64_t left);
void shown_chains_begin(struct shown_chains *shown);

/* No composition of allowed cells has a shorter step; 0: nothing has been shown. */
double shown_chains_least(const struct shown_chains *shown);
/* Likewise of those that have the cells taken before `cell`'s stage, and this one with `left` layers left with it. */
double shown_chains_with(struct shown_chains *shown, const struct cell *cell, int64_t left);
/* Of cells of one stage after another, from the first on. */
void shown_chains_take(struct shown_chains *shown, const struct cell *cell);

/* All stages have been taken, and replayed: stage `end` was the last to have its sums, and stage `after` has most to do then. */
void shown_chains_add(struct shown_chains *shown, int64_t end, int64_t after);

/* How many have been shown. */
int shown_chains_count(const struct shown_chains *shown);
/* What it has cost since the last time it was asked, in comparisons and the like. */
int64_t shown_chains_effort(struct shown_chains *shown);

#endif
