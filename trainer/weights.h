/* Parameter states between the host and the device: initial values, and reading and writing them as floats, whatever part
 * of each parameter a rank holds. */
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

/* Initial weights by (seed, parameter of the model): each element is the same under every layout, rank count and thread
 * count; moments are zero. So is all padding, and that of the gradients. */
void weights_initialize(const struct state_access *access, uint64_t seed, int threads);

/* Elements are counted in the rank's part of a parameter, the one that parameters_stretch() maps to the whole. Of weights
 * and gradients a rank holds all of these; of the optimizer's states, with ZeRO, those from `first` on. */
struct weights_range {
    int64_t first, count;
};
struct weights_range weights_held(const struct state_access *access, int64_t instance, int index, enum state state);

/* Elements first .. first + count - 1, as floats: those read must be held; of those written, what is not held is left out.
 * Writing STATE_MASTER also writes the weight that is its rounding, which is held whole when the master is not. */
void weights_read(const struct state_access *access, int64_t instance, int index, enum state state, int64_t first,
                  int64_t count, float *out);
void weights_write(const struct state_access *access, int64_t instance, int index, enum state state, int64_t first,
                   int64_t count, const float *values);

/* The state that holds a parameter at full precision: STATE_MASTER in bf16 training, else STATE_WEIGHT. */
enum state weights_exact_state(const struct program *program);

/* A rectangle of a whole parameter. A vector has one column. */
struct weights_window {
    struct parameter_name name;
    const struct parameter *parameter; /* the rank's part of it */
    int64_t row, rows, column, columns;
    int64_t row_length; /* columns of the whole */
};

/* Where values come from. `read` fills out (rows, columns); several threads call it at once. It cannot fail: check
 * first. */
struct weights_source {
    void (*read)(const void *context, const struct weights_window *window, float *out);
    const void *context;
};

/* Writes all that the rank holds of a state; padding, of the other states too, becomes zero. Filling STATE_MASTER reads the
 * whole of the rank's part, for the weights. */
void weights_fill(const struct state_access *access, enum state state, const struct weights_source *source, int threads);

#endif
