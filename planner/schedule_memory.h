/* What replays of pipelines have in common that have the same schedule, whatever their stages take: the clock that is ready to time them,
 * and what some of them were so long for (timeline_way()). All these wait for each other in every such pipeline. */
#ifndef MEMPLAN_PLANNER_SCHEDULE_MEMORY_H
#define MEMPLAN_PLANNER_SCHEDULE_MEMORY_H

#include "planner/timeline.h"

#include <stdint.h>

/* From the begin of the step to the end of a stage. */
struct schedule_chain {
    int *counts; /* of timeline_way(); owned */
    int64_t messages;
    int64_t end;
};
enum { SCHEDULE_CHAINS = 8 };

struct known_schedule {
    struct known_schedule *next;
    struct schedule_shape shape;
    struct timeline *timeline; /* NULL: not known */
    struct schedule_chain chains[SCHEDULE_CHAINS];
    int64_t chain_count; /* of all that came; the last ones are kept */
    int64_t asked;       /* when, the last time */
};

struct schedule_memory;

struct schedule_memory *schedule_memory_open(void);
void schedule_memory_close(struct schedule_memory *memory); /* NULL is fine */

/* The memory owns it; its clock may go when another one is asked for. */
struct known_schedule *schedule_memory_find(struct schedule_memory *memory, const struct schedule_shape *shape);
/* Its clock, made when it is not known. */
int known_schedule_clock(struct known_schedule *known, struct timeline **out, struct error *err);
/* A copy is kept. */
void known_schedule_add(struct known_schedule *known, const struct schedule_chain *chain);

#endif
