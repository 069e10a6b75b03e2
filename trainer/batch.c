#include "trainer/batch.h"

#include "base/arena.h"

#include <stdlib.h>

struct batch {
    const struct data *data;
    int64_t B, T, C;
    enum dtype dtype;
    int32_t *tokens, *targets;
    float *features; /* NULL for models that read tokens */
    void *converted; /* features in the activations' type; NULL when that is F32 */
};

struct batch *batch_create(const struct program *program, const struct data *data)
{
    struct batch *batch = host_alloc(sizeof *batch);
    const struct layout *l = &program->layout;
    batch->data = data;
    batch->B = l->micro_batch;
    batch->T = l->seq_len;
    batch->C = program->model.hidden;
    batch->dtype = precision_dtype(l->precision);
    size_t rows = (size_t)(batch->B * batch->T);
    batch->targets = host_alloc(rows * sizeof(int32_t));
    if (program->model.family != MODEL_ENCODER) {
        batch->tokens = host_alloc(rows * sizeof(int32_t));
        return batch;
    }
    batch->features = host_alloc(rows * (size_t)batch->C * sizeof(float));
    if (batch->dtype != DTYPE_F32)
        batch->converted = host_alloc(rows * (size_t)batch->C * (size_t)dtype_bytes(batch->dtype));
    return batch;
}

void batch_free(struct batch *batch)
{
    if (!batch)
        return;
    free(batch->tokens);
    free(batch->targets);
    free(batch->features);
    free(batch->converted);
    free(batch);
}

static void convert_features(struct batch *batch)
{
    int64_t count = batch->B * batch->T * batch->C;
    for (int64_t i = 0; i < count; i++)
        if (batch->dtype == DTYPE_BF16)
            ((uint16_t *)batch->converted)[i] = f32_to_bf16(batch->features[i]);
        else
            ((double *)batch->converted)[i] = batch->features[i];
}

void batch_load(struct batch *batch, enum data_part part, int64_t sample)
{
    if (!batch->features) {
        data_fill(batch->data, part, sample, batch->B, batch->tokens, batch->targets);
        return;
    }
    data_fill_features(batch->data, part, sample, batch->B, batch->features, batch->targets);
    if (batch->converted)
        convert_features(batch);
}

const int32_t *batch_tokens(const struct batch *batch)
{
    return batch->tokens;
}

const int32_t *batch_targets(const struct batch *batch)
{
    return batch->targets;
}

const void *batch_features(const struct batch *batch)
{
    return batch->converted ? batch->converted : batch->features;
}
