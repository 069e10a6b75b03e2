/* The least recomputation with which a layout fits whose stages already have their layers: any set for every layer of a stage
 * (stage_choice.h), each stage by itself, since its bytes are its own. Where the chunks of a stage share its layers in no way that the
 * planner would (stages.h), one set for all of them. Every stage was built, so what is said to fit does to the byte. */
#ifndef MEMPLAN_PLANNER_REFIT_H
#define MEMPLAN_PLANNER_REFIT_H

#include "model/pipeline.h"
#include "planner/machine_speed.h"

struct refit_question {
    const struct model *model;
    const struct layout *layout;          /* complete */
    const int64_t *chunk_layers;          /* NULL: layout_spread_layers() */
    const struct machine_speed *speed;    /* of the pipeline */
    const int64_t *rooms;                 /* of each stage: what its arena may take */
};

/* Fills masks[layers]. *short_stage: the first stage that nothing makes fit, whose masks then are those with which its arena takes
 * least, *least_bytes; -1: all fit. */
int refit_masks(const struct refit_question *question, uint32_t *masks, int64_t *short_stage, int64_t *least_bytes,
                struct error *err);

/* Of each stage the masks with which its arena takes least, as far as one set for all its layers goes; *least_bytes is that of the
 * stage that needs most. */
int refit_least(const struct refit_question *question, uint32_t *masks, int64_t *least_bytes, struct error *err);

#endif
