/* One rank driven by hand: the gradients that a step leaves behind can be read, and its weights written, as doubles. */
#ifndef MEMPLAN_TESTS_TRAINER_SOLO_H
#define MEMPLAN_TESTS_TRAINER_SOLO_H

#include "trainer/execute.h"
#include "trainer/weights.h"

struct solo {
    struct program *program; /* owned */
    struct data *data;
    struct device *device;
    struct step_memory *memory;
    struct executor *executor;
    struct state_access access;
};

/* Opens a rank with initial weights of seed 1; it owns `program`, which has dp 1. Ended by solo_close(). */
void solo_open(struct solo *solo, struct program *program, const struct kernel_table *kernels,
               const char *data_path);
void solo_close(struct solo *solo);

/* Adds noise of this deviation to every weight, the same for every program of the model, so that no gradient is small
 * by symmetry. Call before anything else changes weights. */
void solo_stir(struct solo *solo, double deviation);

/* The loss of step 0. Its gradients then stand in STATE_GRADIENT; the weights stay. */
double solo_loss(struct solo *solo);

/* A whole state of a parameter; the caller frees it. F32 and F64 states only. */
double *solo_read(const struct solo *solo, int64_t instance, int index, enum state state);
void solo_write(const struct solo *solo, int64_t instance, int index, enum state state, const double *values);
int64_t solo_count(const struct solo *solo, int64_t instance, int index);
/* Index of the parameter in its instance; it must have one. */
int solo_find(const struct solo *solo, int64_t instance, enum parameter_id id);
/* "layer 0 qkv", for messages; valid until the next call. */
const char *solo_name(const struct solo *solo, int64_t instance, int index);

/* |a - b| / |b| over `count` elements. */
double solo_distance(const double *a, const double *b, int64_t count);
/* Every gradient of `got` within `tolerance` of that of `expected`, as a relative norm per tensor. */
void solo_assert_gradients(const struct solo *got, const struct solo *expected, double tolerance);

#endif
