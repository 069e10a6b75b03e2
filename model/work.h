/* The work of one operation: what it computes, moves and sends. The planner's times and the reports' rates are built on
 * these. Formulas are derived in docs/time-model.md. */
#ifndef MEMPLAN_MODEL_WORK_H
#define MEMPLAN_MODEL_WORK_H

#include "model/program.h"

/* The ranks that an operation connects. Ranks are numbered as layout_place_of() does, so groups of the same kind lie side by
 * side: each within an aligned stretch of `extent` ranks, its members `stride` apart, `stride` groups in each other's gaps. */
struct work_group {
    int64_t ranks; /* 0 or 1: nobody else takes part */
    int64_t stride, extent;
};

struct work {
    double flops;       /* multiplications and additions, of matrix products (and attention's) only */
    double bytes_moved; /* reads and writes of device memory, each tensor once */
    double bytes_sent;  /* what a rank hands to its peers: 2 (n-1)/n of an all-reduced vector */
    int64_t m, n, k;    /* matrix products: the shape; else the rows in m and columns in n, or 0 */
    struct work_group group;
};

struct work work_of(const struct program *program, const struct step_op *op);

/* Who takes part in an operation of this kind where it occurs. Kinds that a layout does not need have a group of 0. */
struct work_group work_group_of(const struct layout *layout, enum op_kind kind);
/* Does it end only when other ranks have done their part? */
bool work_communicates(enum op_kind kind);
/* Does it go one way only, a sum that is scattered or parts that are gathered, and so do half of an all-reduce? */
bool work_is_half(enum op_kind kind);
/* What a collective over `ranks` ranks sends, from what it moves. */
double work_sent(enum op_kind kind, double bytes_moved, int64_t ranks);

/* Floating-point operations of one step of one rank, recomputation not counted: 6 N per token, and for attention 12 L C T
 * per token, half of it under a causal mask (as llm.c counts: 6 N + 6 L C T) and less in windows. N and L are those of the rank's stage, and
 * tensor-parallel ranks have equal shares: all ranks of a replica together have the model's. A tied embedding counts once,
 * where it is the matrix of the head. */
double work_model_flops(const struct program *program);

#endif
