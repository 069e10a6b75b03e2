#include "cli/capacity.h"

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "device/cuda_library.h"
#include "kernels/kernels.h"
#include "model/recompute.h"
#include "planner/advice.h"
#include "planner/arrangement.h"
#include "planner/prediction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void nominal_speed(struct machine_speed *speed)
{
    machine_speed_nominal(machine_speed_cores(), speed);
}

/* What tensors may take on a rank. */
static int64_t room_of(const struct plan *plan, const struct rank_device *device)
{
    return plan->capacity_bytes - prediction_runtime(device, layout_ranks(&plan->layout)).bytes;
}

/* `stage` needs least of all recomputations. */
static int refuse(const struct program *stage, int64_t room, struct error *err)
{
    char need[UNITS_TEXT], have[UNITS_TEXT];
    const struct layout *layout = &stage->layout;
    error_set_kind(err, ERROR_MEMORY, "no recomputation fits: with the most that helps, a rank");
    if (layout->pp > 1)
        error_append(err, " of stage %lld", (long long)stage->stage);
    error_append(err, " needs %s of %s; %s", units_format_bytes(stage->arena_bytes, need),
                 units_format_bytes(room, have),
                 layout->micro_batch > 1 ? "try a smaller --micro-batch, or more pipeline stages (--pp) or "
                                           "tensor-parallel ranks (--tp)"
                                         : "try more pipeline stages (--pp) or tensor-parallel ranks (--tp), "
                                           "or a shorter --seq-len");
    return -1;
}

/* ---- one stage: layer by layer ---- */

static int choose_by_layer(struct plan *plan, int64_t room, const struct machine_speed *speed,
                           struct error *err)
{
    struct program *plain, *found = NULL, *least = NULL;
    struct layer_sets sets;
    memset(plan->recompute, 0, (size_t)plan->model.layers * sizeof *plan->recompute);
    if (plan_program(plan, &plain, err))
        return -1;
    layer_sets_create(plain, &sets);
    int status = arrangement_fit(plain, &sets, speed, room, &found, NULL, err);
    if (!status && !found)
        status = arrangement_least(plain, &sets, speed, &least, err) ? -1 : refuse(least, room, err);
    if (!status)
        memcpy(plan->recompute, found->recompute, (size_t)plan->model.layers * sizeof *plan->recompute);
    layer_sets_clear(&sets);
    program_free(plain);
    program_free(found);
    program_free(least);
    return status;
}

/* ---- several stages: one of three sets for each ---- */

/* The plan's pipeline when all layers drop the same; *plan keeps the masks. */
static int build_uniform(struct plan *plan, uint32_t mask, struct pipeline **out, struct error *err)
{
    for (int64_t layer = 0; layer < plan->model.layers; layer++)
        plan->recompute[layer] = mask;
    return plan_pipeline(plan, out, err);
}

static void adopt(const struct program *stage, uint32_t mask, uint32_t *masks)
{
    for (int i = 0; i < stage->chunk_count; i++)
        for (int64_t layer = 0; layer < stage->chunks[i].layers; layer++)
            masks[stage->chunks[i].first_layer + layer] = mask;
}

/* A stage's memory depends on its own layers only, so each takes the first set with which it fits. */
static int choose_by_stage(struct plan *plan, int64_t room, struct error *err)
{
    const uint32_t sets[] = {0, recompute_selective(&plan->model), recompute_full(&plan->model)};
    enum { SETS = sizeof sets / sizeof sets[0] };
    uint32_t *chosen = host_alloc((size_t)plan->model.layers * sizeof *chosen);
    bool *fits = host_alloc((size_t)plan->layout.pp * sizeof *fits);
    int status = 0;
    for (int set = 0; !status && set < SETS; set++) {
        struct pipeline *pipeline = NULL;
        status = build_uniform(plan, sets[set], &pipeline, err);
        for (int i = 0; !status && i < pipeline->count; i++) {
            const struct program *stage = pipeline->stages[i];
            if (fits[i])
                continue;
            fits[i] = stage->arena_bytes <= room;
            adopt(stage, sets[set], chosen);
            if (!fits[i] && set == SETS - 1)
                status = refuse(stage, room, err);
        }
        pipeline_free(pipeline);
    }
    memcpy(plan->recompute, chosen, (size_t)plan->model.layers * sizeof *chosen);
    free(chosen);
    free(fits);
    return status;
}

int capacity_choose_recompute(struct plan *plan, const struct rank_device *device,
                              const struct machine_speed *speed, struct error *err)
{
    int64_t room = room_of(plan, device);
    if (plan->layout.pp == 1 ? choose_by_layer(plan, room, speed, err) : choose_by_stage(plan, room, err))
        return -1;
    struct text text = {0};
    recompute_print(&plan->model, plan->recompute, &text);
    log_note("recompute auto: %s", text.data);
    text_free(&text);
    return 0;
}

static int read_gpus(int64_t ranks, struct rank_device *out, struct error *err)
{
    const struct cuda_library *library;
    struct cuda_machine machine;
    char least[UNITS_TEXT], most[UNITS_TEXT];
    if (cuda_library_open(&library, err) || cuda_library_measure((int)ranks, &machine, err))
        return error_prefix(err, "--device cuda");
    if (machine.most_free_bytes > machine.device.free_bytes)
        log_note("the GPUs differ: the one with the least memory free, %s, counts for all (the most: %s)",
                 units_format_bytes(machine.device.free_bytes, least),
                 units_format_bytes(machine.most_free_bytes, most));
    *out = (struct rank_device){
        .name = "cuda",
        .card = cards_match(machine.device.name, machine.device.total_bytes),
        .capacity_bytes = machine.capacity_bytes,
        .kernel_bytes = library->kernels->runtime_bytes,
    };
    return 0;
}

int capacity_read_device(const char *spec, int64_t ranks, struct rank_device *out, struct error *err)
{
    return strcmp(spec, "cuda") ? cluster_read_device(spec, ranks, out, err) : read_gpus(ranks, out, err);
}

struct cluster capacity_assume_cluster(const struct rank_device *device, int64_t ranks)
{
    enum { CARDS_PER_NODE = 8 };
    int64_t per_node = device->card ? CARDS_PER_NODE : ranks;
    return (struct cluster){
        .nodes = (ranks + per_node - 1) / per_node,
        .ranks_per_node = per_node,
        .device = *device,
        .net_bytes_per_s = CLUSTER_NET_BYTES_PER_S,
        .net_assumed = true,
    };
}

static int check_device(const char *device, struct error *err)
{
    if (!strcmp(device, "cpu") || !strcmp(device, "cuda"))
        return 0;
    return error_set(
        err,
        "--device %s: a run has cpu, or cuda for the GPUs of this machine; use one of these, or `memplan "
        "predict --device %s` to ask whether it would fit",
        device, device);
}

int capacity_decide(struct plan *plan, const char *device, int64_t ranks, int64_t memory, bool automatic,
                    struct error *err)
{
    struct rank_device found;
    struct machine_speed speed;
    const char *name = device ? device : "cpu";
    if (check_device(name, err) || capacity_read_device(name, ranks, &found, err))
        return -1;
    snprintf(plan->device, sizeof plan->device, "%s", found.name);
    if (memory > 0)
        plan->capacity_bytes = memory;
    else if (found.kernel_bytes || plan->capacity_bytes == INT64_MAX)
        plan->capacity_bytes = found.capacity_bytes;
    nominal_speed(&speed);
    return automatic ? capacity_choose_recompute(plan, &found, &speed, err) : 0;
}

void capacity_advise(const struct plan *plan, const struct pipeline *pipeline, int64_t kernel_bytes,
                     struct error *err)
{
    struct rank_device device = {.capacity_bytes = plan->capacity_bytes, .kernel_bytes = kernel_bytes};
    struct machine_speed speed;
    struct advice_list list;
    snprintf(device.name, sizeof device.name, "%.31s", plan->device);
    nominal_speed(&speed);
    if (advice_find(pipeline, &device, &speed, &list, NULL))
        return;
    struct text advice = {0};
    advice_print(&list, &advice);
    if (advice.data)
        error_append(err, "; %s", advice.data);
    text_free(&advice);
    advice_clear(&list);
}
