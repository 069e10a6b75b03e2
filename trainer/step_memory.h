/* Where the tensors of a step program are on a device, under one of two policies:
 *
 *   arena   one allocation at launch; every tensor lies at the offset that the program decided. Memory runs out at launch
 *           or never.
 *   tensor  every tensor is an allocation of its own, made when its life begins: what `profile` records.
 *
 * Parameters, gradients, optimizer states and scalars are taken when the memory is opened; the rest comes and goes. */
#ifndef MEMPLAN_TRAINER_STEP_MEMORY_H
#define MEMPLAN_TRAINER_STEP_MEMORY_H

#include "device/device.h"
#include "model/program.h"

enum memory_policy { MEMORY_ARENA, MEMORY_TENSOR };

struct step_memory;

/* Contents of what is taken are undefined. `program` and `device` must outlive it; *out: step_memory_close(). Fails with
 * ERROR_MEMORY when the device has not enough. */
int step_memory_open(const struct program *program, struct device *device, enum memory_policy policy,
                     struct step_memory **out, struct error *err);
void step_memory_close(struct step_memory *memory); /* NULL is fine */

/* Begins and ends a tensor's life. */
int step_memory_take(struct step_memory *memory, const struct placed *tensor, struct error *err);
void step_memory_give(struct step_memory *memory, const struct placed *tensor);
/* Address of a living tensor. */
void *step_memory_at(const struct step_memory *memory, int64_t id);

const char *memory_policy_name(enum memory_policy policy); /* "arena", "tensor" */

#endif
