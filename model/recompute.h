/* Recomputation as a transformation of a layer's block: any set of the tensors that forward keeps may be dropped and made
 * again during backward, each just before its first use there. What one operation makes is dropped together (a norm with its
 * statistics, attention with its log-sum-exp) and named after the first of it. Sets are bit masks over tensor.drop_bit. */
#ifndef MEMPLAN_MODEL_RECOMPUTE_H
#define MEMPLAN_MODEL_RECOMPUTE_H

#include "base/error.h"
#include "base/text.h"
#include "model/block.h"

#include <stdint.h>

/* Drops the tensors in `mask`, and whatever the mask what was exchanged with other ranks; so every block needs this once, if
 * only with 0. Backward gets the forward operations that make them again, each once, with OP_RECOMPUTE set, and only those.
 * An operation that also writes a kept tensor writes the same bits into it again. */
void recompute_apply(struct block *block, uint32_t mask);

/* Every droppable tensor that backward really uses: "full". */
uint32_t recompute_full(const struct model *model);
/* The attention core, its output and log-sum-exp: Megatron-LM's "selective" (Korthikanti et al. 2022). */
uint32_t recompute_selective(const struct model *model);

/* "none", "selective", "full", or tensor names joined by "+": "norm1+norm2+gelu". */
int recompute_parse_set(const char *text, const struct model *model, uint32_t *mask, struct error *err);
/* One set for all layers, or ranges: "0-3=full,4-11=selective" (layers not named keep everything). Fills
 * masks[0..layers). */
int recompute_parse(const char *text, const struct model *model, uint32_t *masks, struct error *err);

/* Inverse of recompute_parse_set(): the shortest spelling. */
void recompute_print_set(const struct model *model, uint32_t mask, struct text *out);
/* Inverse of recompute_parse(). */
void recompute_print(const struct model *model, const uint32_t *masks, struct text *out);

#endif
