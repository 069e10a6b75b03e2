/* The micro-batch at hand, on the host: what the loading operations copy to the device. */
#ifndef MEMPLAN_TRAINER_BATCH_H
#define MEMPLAN_TRAINER_BATCH_H

#include "model/program.h"
#include "trainer/data.h"

#include <stdint.h>

struct batch;

/* Both are borrowed. */
struct batch *batch_create(const struct program *program, const struct data *data);
void batch_free(struct batch *batch); /* NULL is fine */

/* Reads the micro_batch samples that start at `sample`. */
void batch_load(struct batch *batch, enum data_part part, int64_t sample);

const int32_t *batch_tokens(const struct batch *batch);  /* (B, T) */
const int32_t *batch_targets(const struct batch *batch); /* (B, T) */
const void *batch_features(const struct batch *batch);   /* (B, T, C) in the activations' type; encoder models only */

#endif
