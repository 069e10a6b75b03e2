/* Two operations that stand next to each other and that some kernels do in one: a product and the GELU of its result, and
 * backward the product whose result is multiplied by GELU's slope. Neither costs memory: what the second reads is kept for
 * backward anyway, so the first writes it too; and tensors live as long as they would. */
#ifndef MEMPLAN_TRAINER_PAIRS_H
#define MEMPLAN_TRAINER_PAIRS_H

#include "model/program.h"

/* What becomes of an operation. */
enum pair {
    PAIR_NONE,        /* it is done by itself */
    PAIR_WITH_OTHER,  /* the other one does it */
    PAIR_MATMUL_GELU, /* it does both; the other one is the operation before */
    PAIR_DGRAD_GELU,  /* it does both; the other one is the operation behind */
};

enum pair pair_of(const struct step_op *operation);
/* The operation before (-1) or behind (1), of the same instance and micro-batch. */
struct step_op pair_neighbour(const struct step_op *operation, int distance);

#endif
