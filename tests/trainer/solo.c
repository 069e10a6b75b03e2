#include "tests/trainer/solo.h"

#include "base/arena.h"
#include "tests/test.h"
#include "trainer/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void solo_open(struct solo *solo, struct program *program, const struct kernel_table *kernels,
               const char *data_path)
{
    struct error err = {0};
    *solo = (struct solo){.program = program};
    struct data_spec spec = {
        .path = data_path,
        .vocab = program->model.vocab,
        .seq_len = program->layout.seq_len,
        .feature_dim = program->model.family == MODEL_ENCODER ? program->model.hidden : 0,
        .seed = 1,
        .threads = 1,
    };
    ASSERT_OK(data_open(&spec, &solo->data, &err));
    ASSERT_OK(device_open_cpu(0, true, &solo->device, &err));
    ASSERT_OK(step_memory_open(program, solo->device, MEMORY_ARENA, &solo->memory, &err));
    struct executor_parts parts = {
        .program = program,
        .device = solo->device,
        .kernels = kernels,
        .memory = solo->memory,
        .data = solo->data,
        .threads = 1,
    };
    solo->executor = executor_create(&parts);
    solo->access = (struct state_access){.program = program, .device = solo->device, .memory = solo->memory};
    weights_initialize(&solo->access, 1, 1);
}

void solo_close(struct solo *solo)
{
    executor_free(solo->executor);
    step_memory_close(solo->memory);
    device_close(solo->device);
    data_close(solo->data);
    program_free(solo->program);
}

/* Rounded to float, so that every precision starts from the same values. */
void solo_stir(struct solo *solo, double deviation)
{
    for (int64_t i = 0; i < solo->program->instances; i++)
        for (int k = 0; k < program_block(solo->program, i)->parameter_count; k++) {
            int64_t count = solo_count(solo, i, k);
            double *values = solo_read(solo, i, k, STATE_WEIGHT);
            struct random_stream stream = random_stream(2, (uint64_t)(i * PART_PARAMETERS_MAX + k));
            for (int64_t n = 0; n < count; n++) {
                float step;
                random_fill_normal(stream, (uint64_t)n, deviation, &step, 1);
                values[n] = (float)(values[n] + step);
            }
            solo_write(solo, i, k, STATE_WEIGHT, values);
            free(values);
        }
}

double solo_loss(struct solo *solo)
{
    struct error err = {0};
    struct step_result result;
    struct update still = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    ASSERT_OK(executor_step(solo->executor, 0, &still, &result, &err));
    return result.loss;
}

double *solo_read(const struct solo *solo, int64_t instance, int index, enum state state)
{
    struct placed t = program_state(solo->program, instance, index, state);
    int64_t count = solo_count(solo, instance, index);
    double *values = host_alloc((size_t)count * sizeof *values);
    device_read(solo->device, values, step_memory_at(solo->memory, t.id), t.bytes);
    if (t.dtype == DTYPE_F32)
        for (int64_t i = count - 1; i >= 0; i--) {
            float narrow;
            memcpy(&narrow, (const char *)values + i * (int64_t)sizeof narrow, sizeof narrow);
            values[i] = (double)narrow;
        }
    return values;
}

void solo_write(const struct solo *solo, int64_t instance, int index, enum state state, const double *values)
{
    struct placed t = program_state(solo->program, instance, index, state);
    void *address = step_memory_at(solo->memory, t.id);
    if (t.dtype == DTYPE_F64) {
        device_write(solo->device, address, values, t.bytes);
        return;
    }
    int64_t count = solo_count(solo, instance, index);
    float *narrow = host_alloc((size_t)count * sizeof *narrow);
    for (int64_t i = 0; i < count; i++)
        narrow[i] = (float)values[i];
    device_write(solo->device, address, narrow, t.bytes);
    free(narrow);
}

int64_t solo_count(const struct solo *solo, int64_t instance, int index)
{
    return program_block(solo->program, instance)->parameters[index].count;
}

int solo_find(const struct solo *solo, int64_t instance, enum parameter_id id)
{
    const struct block *block = program_block(solo->program, instance);
    int index = 0;
    while (index < block->parameter_count && block->parameters[index].id != id)
        index++;
    ASSERT(index < block->parameter_count);
    return index;
}

const char *solo_name(const struct solo *solo, int64_t instance, int index)
{
    static char name[PROGRAM_NAME + 32];
    char part[PROGRAM_NAME];
    snprintf(name, sizeof name, "%s %s", program_instance_name(solo->program, instance, part),
             program_block(solo->program, instance)->parameters[index].name);
    return name;
}

double solo_distance(const double *a, const double *b, int64_t count)
{
    double apart = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        apart += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return norm > 0 ? sqrt(apart / norm) : sqrt(apart);
}

void solo_assert_gradients(const struct solo *got, const struct solo *expected, double tolerance)
{
    ASSERT_INT(got->program->parameter_tensors, expected->program->parameter_tensors);
    for (int64_t i = 0; i < got->program->instances; i++)
        for (int k = 0; k < program_block(got->program, i)->parameter_count; k++) {
            double *a = solo_read(got, i, k, STATE_GRADIENT), *b = solo_read(expected, i, k, STATE_GRADIENT);
            double distance = solo_distance(a, b, solo_count(got, i, k));
            ASSERT_MSG(distance <= tolerance, "gradient of %s: %g of its norm apart", solo_name(got, i, k),
                       distance);
            free(a);
            free(b);
        }
}
