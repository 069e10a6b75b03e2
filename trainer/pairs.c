#include "trainer/pairs.h"

#include <stddef.h>

/* NULL: there is none, or it is not done right before or behind. */
static const struct op *neighbour(const struct step_op *s, int distance)
{
    const struct block *block = s->block;
    int at = s->op ? (int)(s->op - block->ops) : -1, other = at + distance;
    if (at < 0 || other < 0 || other >= block->op_count)
        return NULL;
    bool forward = at < block->forward_count, input_half = at < block->input_count;
    return forward == (other < block->forward_count) && input_half == (other < block->input_count)
               ? &block->ops[other]
               : NULL;
}

/* The product waits for the GELU, whose result has no place before: so what it reads must still be there. */
static bool is_matmul_gelu(const struct op *first, const struct op *second)
{
    enum { RESIDUAL = 3 };
    return first && second && first->kind == OP_MATMUL && second->kind == OP_GELU &&
           second->inputs[0] == first->outputs[0] && first->inputs[RESIDUAL] < 0 && !first->death_count;
}

/* The slope is taken with the product, in whose result it would be taken in place: so it must need nothing new. */
static bool is_dgrad_gelu(const struct op *first, const struct op *second)
{
    return first && second && first->kind == OP_MATMUL_DGRAD && second->kind == OP_GELU_GRAD &&
           second->outputs[0] == first->outputs[0] && !(first->flags & OP_ADD) && !second->birth_count;
}

enum pair pair_of(const struct step_op *s)
{
    const struct op *before = neighbour(s, -1), *behind = neighbour(s, 1);
    if (is_matmul_gelu(before, s->op))
        return PAIR_MATMUL_GELU;
    if (is_dgrad_gelu(s->op, behind))
        return PAIR_DGRAD_GELU;
    return is_matmul_gelu(s->op, behind) || is_dgrad_gelu(before, s->op) ? PAIR_WITH_OTHER : PAIR_NONE;
}

struct step_op pair_neighbour(const struct step_op *s, int distance)
{
    struct step_op other = *s;
    other.op = s->op + distance;
    other.kind = other.op->kind;
    return other;
}
