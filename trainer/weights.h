/* Parameter states between the host and the device: initial values, and reading and writing them as floats. */
#ifndef MEMPLAN_TRAINER_WEIGHTS_H
#define MEMPLAN_TRAINER_WEIGHTS_H

#include "device/device.h"
#include "model/layout.h"
#include "model/program.h"
#include "trainer/step_memory.h"

#include <stdint.h>

/* One rank's memory, to be read and written from the host. */
struct state_access {
    const struct program *program;
    struct device *device;
    const struct step_memory *memory;
    struct layout_place place; /* of the rank: which part of each parameter it holds */
};

/* Initial weights by (seed, parameter): the same for every layout, rank count and thread count; moments are zero. */
void weights_initialize(const struct state_access *access, uint64_t seed, int threads);

/* Elements first .. first + count - 1 of a parameter's state, as floats. Writing STATE_MASTER also writes
 * the weight that is its rounding. */
void weights_read(const struct state_access *access, int64_t instance, int index, enum state state, int64_t first,
                  int64_t count, float *out);
void weights_write(const struct state_access *access, int64_t instance, int index, enum state state, int64_t first,
                   int64_t count, const float *values);

/* The state that holds a parameter at full precision: STATE_MASTER in bf16 training, else STATE_WEIGHT. */
enum state weights_exact_state(const struct program *program);

#endif
