/* What each stage of one layout takes with each number of layers: found when somebody asks, since most never are. */
#ifndef MEMPLAN_PLANNER_CELLS_H
#define MEMPLAN_PLANNER_CELLS_H

#include "planner/stage_choice.h"

#include <stdbool.h>
#include <stdint.h>

/* Things that wait for each other, from a stage's first forward to its last backward: own_s there, and `rounds` times through the
 * stages behind and back. */
struct chain {
    double own_s, rounds;
};
enum { CELL_CHAINS = 4 };

/* A stage with so many layers. */
struct cell {
    enum { CELL_UNKNOWN, CELL_KNOWN, CELL_IMPOSSIBLE } state;
    int64_t room, arena_bytes;
    int64_t lowest_peak; /* of the choice in both orders that were tried; 0: in its own */
    struct stage_choice choice;
    double work_s; /* its longest chain without leaving it: all it does, but for what may come late */
    struct chain chains[CELL_CHAINS];
    int chain_count;
    double before_s; /* what it puts before stages behind it */
    double all_s;    /* all its work */
    double sum_s;    /* from its end until its gradients are summed */
};

struct cells {
    const struct stages *stages;
    int64_t pp, layers; /* of one chunk of each stage together */
    double message_s;   /* from a stage to the next */
    double row_s;       /* through one chunk of each stage, forward, at least; composition.c's to set */
    struct cell *list;  /* [stage * (layers + 1) + layers of a chunk] */
    int *likes;         /* of each stage: which sketches are its own */
    int like_count;
    struct stage_sketch **sketches; /* [like * (layers + 1) + layers of a chunk] */
    bool cut;                       /* of some stage, not all choices have been tried */
};

/* `stages` is borrowed. */
void cells_open(const struct stages *stages, struct cells *out);
void cells_close(struct cells *cells);

/* As far as it is known. */
struct cell *cells_at(struct cells *cells, int64_t stage, int64_t layers);
/* Whether so many fit is known then, and if they do all of it. */
struct cell *cells_find(struct cells *cells, int64_t stage, int64_t layers);
struct stage_sketch *cells_sketch(struct cells *cells, int64_t stage, int64_t layers);
/* work_s of the stage without recomputation: no choice has less. */
double cells_least_work(const struct cells *cells, int64_t stage, int64_t layers);

/* As built it was too large: the same sets the other way up, which take as long. False where that is the same, was tried, or has no
 * room at its peak. */
bool cells_turn_over(struct cells *cells, int64_t stage, int64_t layers);
/* From now on, a stage with so many layers must have its peak `less` bytes below the lowest that its sets had. */
void cells_tighten(struct cells *cells, int64_t stage, int64_t layers, int64_t less);

#endif
