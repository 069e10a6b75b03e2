/* What follows backward on this rank, with what the rank updates of every parameter: the gradient norm, and AdamW. */
#include "trainer/call.h"

#include <math.h>

/* Of the ranks that hold the same gradient one counts it: of tensor-parallel ranks the first, of pipeline stages with a tied
 * embedding the first too. Between replicas either all have the same sum, or each that of its shards. */
static bool counts(const struct executor *e, int64_t instance, int index)
{
    const struct program *p = e->parts.program;
    bool everywhere = program_block(p, instance)->parameters[index].sharing == SHARED_NOT;
    return !program_parameter(p, instance, index).copy && !(everywhere && e->place.part > 0);
}

int run_square_sum(const struct call *c, struct error *err)
{
    const struct executor *e = c->e;
    const struct program *p = e->parts.program;
    struct placed total = program_scalar(p, SCALAR_SQUARE_SUM);
    for (int k = 0; k < program_block(p, c->s->instance)->parameter_count; k++) {
        struct comm_span g = executor_own(e, c->s->instance, k, STATE_GRADIENT);
        struct square_sum_args args = {g.count, total.dtype, g.data, call_address(e, &total)};
        if (counts(e, c->s->instance, k) && e->parts.kernels->square_sum(&e->context, &args, err))
            return -1;
    }
    if (!call_may_read(c))
        return 0;
    double sum = executor_read_scalar(e, SCALAR_SQUARE_SUM);
    return isfinite(sum) ? 0
                         : error_set(err, "the gradient norm is %g; lower --lr, or look at the data",
                                     call_shown(sqrt(sum)));
}

int run_adamw(const struct call *c, struct error *err)
{
    const struct executor *e = c->e;
    const struct program *p = e->parts.program;
    const struct update *u = e->update;
    int64_t instance = c->s->instance;
    const struct block *block = program_block(p, instance);
    struct placed square_sum = program_scalar(p, SCALAR_SQUARE_SUM);
    for (int k = 0; k < block->parameter_count; k++) {
        struct comm_span w = executor_own(e, instance, k, STATE_WEIGHT);
        struct adamw_args args = {
            .count = w.count,
            .dtype = precision_dtype(p->layout.precision),
            .w = w.data,
            .g = executor_own(e, instance, k, STATE_GRADIENT).data,
            .m = executor_own(e, instance, k, STATE_MOMENT1).data,
            .v = executor_own(e, instance, k, STATE_MOMENT2).data,
            .master =
                program_has_state(p, STATE_MASTER) ? executor_own(e, instance, k, STATE_MASTER).data : NULL,
            .lr = u->lr,
            .beta1 = u->beta1,
            .beta2 = u->beta2,
            .eps = u->eps,
            .decay = block->parameters[k].decay ? u->decay : 0,
            .t = e->step + 1,
            .square_sum = call_address(e, &square_sum),
            .max_norm = u->max_norm,
        };
        if (e->parts.kernels->adamw(&e->context, &args, err))
            return -1;
    }
    return 0;
}
