/* The program of stage 0 of an even split: of every rank when there is one stage, as in most tests. */
#ifndef MEMPLAN_TESTS_FIRST_STAGE_H
#define MEMPLAN_TESTS_FIRST_STAGE_H

#include "model/program.h"

static inline int program_create(const struct model *model, const struct layout *layout, const uint32_t *recompute,
                                 struct program **out, struct error *err)
{
    struct program_spec spec = {.model = model, .layout = layout, .recompute = recompute};
    return program_create_stage(&spec, out, err);
}

#endif
