#include "planner/prediction.h"

#include <string.h>

/* NCCL keeps 10 MiB per connection (NCCL 2.30: buffers of 9,633,792 bytes, rounded up to pages of 2 MiB; seen in
 * NVIDIA/nccl#1685). A ring has one connection per channel to each neighbour; 8 channels is a guess, 2 to 16 are common. */
static const int64_t nccl_ring_bytes = 2 * 8 * (10LL << 20);

struct runtime_term prediction_runtime(const struct rank_device *device, int64_t ranks)
{
    if (device->kernel_bytes)
        return (struct runtime_term){.bytes = device->kernel_bytes, .workspace_bytes = device->kernel_bytes};
    if (!device->card)
        return (struct runtime_term){0};
    struct runtime_term term = {.context_bytes = CARD_CONTEXT_BYTES,
                                .workspace_bytes = device->card->cublas_workspace_bytes,
                                .nccl_bytes = ranks > 1 ? nccl_ring_bytes : 0};
    term.bytes = term.context_bytes + term.workspace_bytes + term.nccl_bytes;
    term.error_bytes = CARD_CONTEXT_ERROR_BYTES + term.nccl_bytes;
    return term;
}

void prediction_make(const struct program *program, const struct rank_device *device,
                     const struct machine_speed *speed, struct prediction *out)
{
    *out = (struct prediction){
        .stage = program->stage,
        .capacity_bytes = device->capacity_bytes,
        .peak_bytes = program->peak_bytes,
        .arena_bytes = program->arena_bytes,
        .runtime = prediction_runtime(device, layout_ranks(&program->layout)),
    };
    memcpy(out->by_role, program->at_peak, sizeof out->by_role);
    out->by_role[ROLE_RUNTIME] = out->runtime.bytes;
    out->needed_bytes = out->arena_bytes + out->runtime.bytes;
    out->fits = out->needed_bytes <= out->capacity_bytes;
    int64_t margin = out->capacity_bytes - out->needed_bytes;
    out->in_doubt = margin < out->runtime.error_bytes && margin >= -out->runtime.error_bytes;
    if (speed)
        out->time = time_model_step(program, speed);
}

int prediction_make_placed(const struct pipeline *pipeline, const struct rank_device *const *devices,
                           const struct machine_speed *speed, struct prediction *out, struct error *err)
{
    for (int i = 0; i < pipeline->count; i++) {
        struct prediction own;
        prediction_make(pipeline->stages[i], devices[i], NULL, &own);
        if (!i || own.capacity_bytes - own.needed_bytes < out->capacity_bytes - out->needed_bytes)
            *out = own;
    }
    return speed ? time_model_pipeline(pipeline, speed, NULL, &out->time, err) : 0;
}
