/* A pipeline's schedule made ready to be timed again and again: which item waits for which does not depend on seconds, so that
 * is worked out once, and to time a step is one pass over the items. A step takes what a plain replay of
 * all items takes (tests/model/schedule_replay.h), to the last bit. */
#ifndef MEMPLAN_PLANNER_TIMELINE_H
#define MEMPLAN_PLANNER_TIMELINE_H

#include "base/error.h"
#include "model/schedule.h"

#include <stdint.h>

struct timeline;

/* On success *out is the caller's: timeline_free(). Fails where stages would wait for each other for ever. */
int timeline_create(const struct schedule_shape *shape, struct timeline **out, struct error *err);
void timeline_free(struct timeline *timeline); /* NULL is fine */

/* Of each kind of work one of each chunk. */
int64_t timeline_passes(const struct schedule_shape *shape);
/* How many items all stages have together. */
int64_t timeline_items(const struct timeline *timeline);

/* When each stage is done: ends_s[pp]. Returns the latest. */
double timeline_run(struct timeline *timeline, const struct schedule_times *times, double *ends_s);

/* What the last run's stage `stage` was done so late for: how often each pass of each chunk lies on the way from the begin to there, in
 * counts[enum schedule_work * chunks + chunk], timeline_passes() in all, chunks by their global numbers. Returns how many messages do. All these wait for each
 * other whatever they take, so that the stage is done no sooner with other times. */
int64_t timeline_way(const struct timeline *timeline, int64_t stage, int *counts);

/* When an item of a stage began, the last time that it was run; `position` counts them in the stage's order. */
double timeline_start(const struct timeline *timeline, int64_t stage, int64_t position);

#endif
