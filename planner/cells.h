/* What each stage of one layout takes with each number of layers, however its chunks share them: found when somebody asks, since
 * most never are. */
#ifndef MEMPLAN_PLANNER_CELLS_H
#define MEMPLAN_PLANNER_CELLS_H

#include "planner/stage_choice.h"

#include <stdbool.h>
#include <stdint.h>

/* Things that wait for each other, from a stage's first forward to its last backward: own_s there, `rounds` times through the
 * last chunks of the stages behind and back, and where it `fills` a micro-batch once forward from the stage's first chunk to its last. */
struct chain {
    double own_s, rounds;
    bool fills;
};
enum { CELL_CHAINS = 4 };

/* A stage with a split. */
struct cell {
    int64_t stage;
    struct stage_form form;
    enum { CELL_UNKNOWN, CELL_HOPED, CELL_WEIGHED, CELL_KNOWN, CELL_IMPOSSIBLE } state; /* by which of the functions below */
    int64_t room, arena_bytes;
    int64_t lowest_peak; /* of the choice in both orders that were tried; 0: in its own */
    struct stage_choice choice;
    struct stage_sketch *sketch; /* NULL: not needed yet, or another's */
    double work_s; /* its longest chain without leaving it: all it does, but for what may come late */
    struct chain chains[CELL_CHAINS];
    int chain_count;
    double before_s; /* what it puts before stages behind it */
    double all_s;    /* all its work */
    double sum_s;    /* from its end until its gradients are summed */
    double after_s;  /* what it does when all have met */
    int number;      /* among the cells of shown_chains.h */
};

/* All splits of a stage with so many layers. */
struct cell_row {
    struct cell *list; /* NULL: nobody has asked */
    int count;
};

struct cells {
    const struct stages *stages;
    int64_t pp, layers;
    double message_s;      /* from a stage to the next */
    struct cell_row *rows; /* [stage * (layers + 1) + layers] */
    int64_t *likes;        /* of each stage: the first one whose sketches are its own */
    double *forward_s, *backward_s; /* of each chunk, while a cell is weighed */
};

/* `stages` is borrowed. */
void cells_open(const struct stages *stages, struct cells *out);
void cells_close(struct cells *cells);

/* The fewest layers that a stage can have. */
int64_t cells_fewest(const struct cells *cells, int64_t stage);
/* The splits, as far as they are known. */
const struct cell_row *cells_row(struct cells *cells, int64_t stage, int64_t layers);
/* Its times without recomputation and sums that show, which are no longer than they turn out to be: cheap. */
void cells_hope(struct cells *cells, struct cell *cell);
/* The same with what it must recompute at least, quickly and roughly. */
void cells_weigh(struct cells *cells, struct cell *cell);
/* Whether it fits is known then, and if it does all of it. */
struct cell *cells_find(struct cells *cells, struct cell *cell);
struct stage_sketch *cells_sketch(struct cells *cells, struct cell *cell);
/* work_s of a stage of so many layers without recomputation: no choice has less. */
double cells_least_work(struct cells *cells, int64_t stage, int64_t layers);

/* As built it was too large: the same sets the other way up, which take as long. False where that is the same, was tried, or has no
 * room at its peak. */
bool cells_turn_over(struct cells *cells, struct cell *cell);
/* From now on, the cell must have its peak `less` bytes below the lowest that its sets had. */
void cells_tighten(struct cell *cell, int64_t less);

#endif
