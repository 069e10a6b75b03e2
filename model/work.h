/* The work of one operation: what it computes, moves and sends. The planner's times and the reports' rates are built on
 * these. Formulas are derived in docs/time-model.md. */
#ifndef MEMPLAN_MODEL_WORK_H
#define MEMPLAN_MODEL_WORK_H

#include "model/program.h"

struct work {
    double flops;       /* multiplications and additions, of matrix products (and attention's) only */
    double bytes_moved; /* reads and writes of device memory, each tensor once */
    double bytes_sent;  /* what a rank hands to its peers: 2 (n-1)/n of an all-reduced vector */
    int64_t m, n, k;    /* matrix products: the shape; else the rows in m and columns in n, or 0 */
};

struct work work_of(const struct program *program, const struct step_op *op);

/* Floating-point operations of one step of one rank, recomputation not counted: 6 N per token, and for attention 12 L C T
 * per token, half of it under a causal mask (as llm.c counts: 6 N + 6 L C T). */
double work_model_flops(const struct program *program);

#endif
