/* A checkpoint is a folder: step-000050.safetensors (every parameter in fp32 with its two Adam moments) and
 * checkpoint.json, which says what it belongs to and names that file. The JSON is renamed into place last, so a run that is
 * killed at any moment leaves the checkpoint before it, whole. It can be read under any layout of the same model. */
#ifndef MEMPLAN_TRAINER_CHECKPOINT_H
#define MEMPLAN_TRAINER_CHECKPOINT_H

#include "comm/comm.h"
#include "trainer/weights.h"

#include <stdint.h>

/* Where a run stands: what a checkpoint stores besides the states. */
struct checkpoint_info {
    int64_t step; /* steps done */
    uint64_t seed;
    int64_t global_batch, seq_len; /* the order of the data depends on them */
};

/* Makes the folder when it is missing; removes the tensors of the checkpoint before once the new one stands. Called by all
 * ranks of `comm`, which is all of the layout's (NULL: this one is alone). When one fails, the others wait until the caller
 * aborts the comm. */
int checkpoint_write(const char *folder, const struct state_access *access, const struct checkpoint_info *info,
                     struct comm *comm, struct error *err);
/* Fills the states and *info. Refuses another model, a missing or ill-shaped tensor, a newer version. */
int checkpoint_read(const char *folder, const struct state_access *access, struct checkpoint_info *info,
                    struct error *err);

#endif
