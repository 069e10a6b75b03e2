/* A checkpoint is a folder: step-000050.safetensors (every parameter of the model, whole, in fp32 with its two Adam
 * moments) and checkpoint.json, which says what it belongs to and names that file. The JSON is renamed into place last, so a
 * run that is killed at any moment leaves the checkpoint before it, whole. All ranks write to the one file, each what it
 * holds, so ranks on several machines need a file system that they share; and any layout of the same model can read it. */
#ifndef MEMPLAN_TRAINER_CHECKPOINT_H
#define MEMPLAN_TRAINER_CHECKPOINT_H

#include "comm/comm.h"
#include "trainer/weights.h"

#include <stdbool.h>
#include <stdint.h>

/* Where a run stands: what a checkpoint stores besides the states. */
struct checkpoint_info {
    int64_t step; /* steps done */
    uint64_t seed;
    int64_t global_batch, seq_len; /* the order of the data depends on them */
};

/* Does a checkpoint stand in `folder`? Then `shown` says which: "step 50 of gpt2-tiny"; or "a model" of one that cannot be read. */
enum { CHECKPOINT_SHOWN = 160 };
bool checkpoint_stands(const char *folder, char shown[CHECKPOINT_SHOWN]);

/* Makes the folder when it is missing; removes the tensors of the checkpoint before once the new one stands. All ranks of
 * the layout call it, with the same folder and info; `comm` is theirs, by rank of the layout (NULL: there is one rank). When
 * it returns 0, the checkpoint stands. When it fails on one rank, the checkpoint before stands; the other ranks wait until
 * that one's caller aborts the comm, and then fail too. */
int checkpoint_write(const char *folder, const struct state_access *access, const struct checkpoint_info *info,
                     struct comm *comm, struct error *err);
/* Fills the states that the rank holds, and *info; each rank for itself. Refuses another model, a missing or ill-shaped
 * tensor, a newer version. */
int checkpoint_read(const char *folder, const struct state_access *access, struct checkpoint_info *info,
                    struct error *err);

#endif
