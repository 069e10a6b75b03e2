#include "trainer/weights.h"

#include "base/arena.h"
#include "base/checked.h"
#include "trainer/random.h"

#include <stdlib.h>

/* Host buffers hold this many elements at a time. */
enum { PIECE = 1 << 16 };

enum state weights_exact_state(const struct program *program)
{
    return program_has_state(program, STATE_MASTER) ? STATE_MASTER : STATE_WEIGHT;
}

static char *element_address(const struct state_access *access, const struct placed *t, int64_t first)
{
    return (char *)step_memory_at(access->memory, t->id) + first * dtype_bytes(t->dtype);
}

void weights_read(const struct state_access *access, int64_t instance, int index, enum state state,
                  int64_t first, int64_t count, float *out)
{
    struct placed t = program_state(access->program, instance, index, state);
    int64_t bytes = count * dtype_bytes(t.dtype);
    if (t.dtype == DTYPE_F32) {
        device_read(access->device, out, element_address(access, &t, first), bytes);
        return;
    }
    void *raw = host_alloc((size_t)bytes);
    device_read(access->device, raw, element_address(access, &t, first), bytes);
    for (int64_t i = 0; i < count; i++)
        out[i] = t.dtype == DTYPE_BF16 ? bf16_to_f32(((uint16_t *)raw)[i]) : (float)((double *)raw)[i];
    free(raw);
}

static void write_converted(const struct state_access *access, const struct placed *t, int64_t first,
                            int64_t count, const float *values)
{
    int64_t bytes = count * dtype_bytes(t->dtype);
    if (t->dtype == DTYPE_F32) {
        device_write(access->device, element_address(access, t, first), values, bytes);
        return;
    }
    void *raw = host_alloc((size_t)bytes);
    for (int64_t i = 0; i < count; i++)
        if (t->dtype == DTYPE_BF16)
            ((uint16_t *)raw)[i] = f32_to_bf16(values[i]);
        else
            ((double *)raw)[i] = (double)values[i];
    device_write(access->device, element_address(access, t, first), raw, bytes);
    free(raw);
}

void weights_write(const struct state_access *access, int64_t instance, int index, enum state state,
                   int64_t first, int64_t count, const float *values)
{
    struct placed t = program_state(access->program, instance, index, state);
    write_converted(access, &t, first, count, values);
    if (state == STATE_MASTER) {
        t = program_state(access->program, instance, index, STATE_WEIGHT);
        write_converted(access, &t, first, count, values);
    }
}

static void initialize_piece(const struct state_access *access, uint64_t seed, int64_t instance, int index,
                             int64_t first, int64_t count, float *buffer)
{
    const struct parameter *p = &program_block(access->program, instance)->parameters[index];
    struct random_stream stream = random_stream(seed, (uint64_t)instance * PARAM_IDS + p->id);
    for (int64_t i = 0; i < count; i++)
        buffer[i] = 0;
    weights_write(access, instance, index, STATE_MOMENT1, first, count, buffer);
    weights_write(access, instance, index, STATE_MOMENT2, first, count, buffer);
    if (p->init_std > 0)
        random_fill_normal(stream, (uint64_t)first, p->init_std, buffer, count);
    else
        for (int64_t i = 0; i < count; i++)
            buffer[i] = (float)p->init_value;
    weights_write(access, instance, index, weights_exact_state(access->program), first, count, buffer);
}

void weights_initialize(const struct state_access *access, uint64_t seed, int threads)
{
    for (int64_t instance = 0; instance < access->program->instances; instance++) {
        const struct block *block = program_block(access->program, instance);
        for (int k = 0; k < block->parameter_count; k++) {
            int64_t total = block->parameters[k].count;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
            for (int64_t first = 0; first < total; first += PIECE) {
                float *buffer = host_alloc(PIECE * sizeof *buffer);
                initialize_piece(access, seed, instance, k, first, min_i64(PIECE, total - first), buffer);
                free(buffer);
            }
        }
    }
}
