#include "cli/capacity.h"

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "device/cuda_library.h"
#include "kernels/kernels.h"
#include "model/recompute.h"
#include "planner/advice.h"
#include "planner/prediction.h"
#include "planner/refit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void nominal_speed(struct machine_speed *speed)
{
    machine_speed_nominal(machine_speed_cores(), speed);
}

/* Nothing makes the stage fit; `least_bytes` is the least it needs. */
static int refuse(const struct layout *layout, int64_t stage, int64_t least_bytes, int64_t room,
                  struct error *err)
{
    char need[UNITS_TEXT], have[UNITS_TEXT];
    error_set_kind(err, ERROR_MEMORY, "no recomputation fits: with the most that helps, a rank");
    if (layout->pp > 1)
        error_append(err, " of stage %lld", (long long)stage);
    error_append(err, " needs %s of %s; %s", units_format_bytes(least_bytes, need),
                 units_format_bytes(room, have),
                 layout->micro_batch > 1 ? "try a smaller --micro-batch, or more pipeline stages (--pp) or "
                                           "tensor-parallel ranks (--tp)"
                                         : "try more pipeline stages (--pp) or tensor-parallel ranks (--tp), "
                                           "or a shorter --seq-len");
    return -1;
}

static void say_recompute(const struct plan *plan)
{
    struct text text = {0};
    recompute_print(&plan->model, plan->recompute, &text);
    log_note("recompute auto: %s", text.data);
    text_free(&text);
}

/* What is not known of contexts and libraries stays free, as in plans; or where that cannot be, all is used. */
int capacity_choose_recompute(struct plan *plan, const struct rank_device *const *devices,
                              const struct machine_speed *speed, struct error *err)
{
    int64_t *rooms = host_alloc((size_t)plan->layout.pp * sizeof *rooms), ranks = layout_ranks(&plan->layout);
    struct refit_question question = {&plan->model, &plan->layout, plan->chunk_layers, speed, rooms};
    int64_t short_stage = 0, least_bytes;
    int status = 0;
    bool unsure = false;
    for (int roomy = 1; roomy >= 0 && !status && short_stage >= 0; roomy--) {
        for (int64_t i = 0; i < plan->layout.pp; i++) {
            struct runtime_term runtime = prediction_runtime(devices[i], ranks);
            rooms[i] = devices[i]->capacity_bytes - runtime.bytes - (roomy ? runtime.error_bytes : 0);
            unsure |= runtime.error_bytes > 0;
        }
        if (roomy || unsure)
            status = refit_masks(&question, plan->recompute, &short_stage, &least_bytes, err);
    }
    if (!status && short_stage >= 0)
        status = refuse(&plan->layout, short_stage, least_bytes, rooms[short_stage], err);
    else if (!status)
        say_recompute(plan);
    free(rooms);
    return status;
}

/* On devices that are all alike. */
static int choose_alike(struct plan *plan, const struct rank_device *device, struct error *err)
{
    const struct rank_device **devices = host_alloc((size_t)plan->layout.pp * sizeof *devices);
    struct machine_speed speed;
    nominal_speed(&speed);
    for (int64_t i = 0; i < plan->layout.pp; i++)
        devices[i] = device;
    int status = capacity_choose_recompute(plan, devices, &speed, err);
    free(devices);
    return status;
}

/* Of several GPUs all have some memory in use, and hardly ever the same. */
static bool differ(const struct cuda_machine *machine)
{
    return machine->most_free_bytes > machine->device.free_bytes + machine->device.total_bytes / 100;
}

static int describe_gpus(const struct cuda_machine *machine, struct rank_device *out, struct error *err)
{
    const struct cuda_library *library;
    char least[UNITS_TEXT], most[UNITS_TEXT];
    if (cuda_library_open(&library, err))
        return error_prefix(err, "--device cuda");
    if (differ(machine))
        log_note("the GPUs differ: the one with the least memory free, %s, counts for all (the most: %s)",
                 units_format_bytes(machine->device.free_bytes, least),
                 units_format_bytes(machine->most_free_bytes, most));
    *out = (struct rank_device){
        .name = "cuda",
        .card = cards_match(machine->device.name, machine->device.total_bytes),
        .capacity_bytes = machine->capacity_bytes,
        .kernel_bytes = library->kernels->runtime_bytes,
    };
    return 0;
}

static int read_gpus(int64_t ranks, struct rank_device *out, struct error *err)
{
    struct cuda_choice choice = {.used = (int)ranks, .ranks = (int)ranks};
    struct cuda_machine machine;
    if (cuda_library_measure(&choice, &machine, err))
        return error_prefix(err, "--device cuda");
    return describe_gpus(&machine, out, err);
}

int capacity_read_device(const char *spec, int64_t ranks, struct rank_device *out, struct error *err)
{
    return strcmp(spec, "cuda") ? cluster_read_device(spec, ranks, out, err) : read_gpus(ranks, out, err);
}

struct node_group capacity_assume_nodes(const struct rank_device *device, int64_t ranks, int64_t per_node)
{
    enum { CARDS_PER_NODE = 8 };
    int64_t usual = device->card ? CARDS_PER_NODE : ranks, each = per_node ? per_node : usual;
    return (struct node_group){
        .nodes = (ranks + each - 1) / each,
        .ranks_per_node = each,
        .device = *device,
        .net_bytes_per_s = cluster_usual_net(device, each),
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

/* A plan for a card says which; what the CPU does with it is another thing. */
static int check_planned(const struct plan *plan, const char *device, struct error *err)
{
    if (device || !strcmp(plan->device, "cpu"))
        return 0;
    return error_set(
        err,
        "the plan is for %s, and a run without --device is on the CPU; give --device cuda for the "
        "GPUs of this machine, or --device cpu for its cores and memory",
        plan->device);
}

static int read_world(const struct plan *plan, const char *device, const struct world *world,
                      struct rank_device *out, struct error *err)
{
    if (world->comm && !strcmp(device, "cuda"))
        return describe_gpus(&world->gpus, out, err);
    int64_t ranks = world->comm ? world->ranks_here : layout_ranks(&plan->layout);
    return capacity_read_device(device, ranks, out, err);
}

int capacity_decide(struct plan *plan, const char *device, const struct world *world, int64_t memory,
                    bool automatic, struct error *err)
{
    struct rank_device found;
    const char *name = device ? device : "cpu";
    bool planned = !strcmp(plan->device, name);
    if (check_planned(plan, device, err) || check_device(name, err) ||
        read_world(plan, name, world, &found, err))
        return -1;
    snprintf(plan->device, sizeof plan->device, "%s", found.name);
    if (memory > 0)
        plan->capacity_bytes = memory;
    else if (found.kernel_bytes || !planned || plan->capacity_bytes == INT64_MAX)
        plan->capacity_bytes = found.capacity_bytes;
    found.capacity_bytes = plan->capacity_bytes;
    return automatic ? choose_alike(plan, &found, err) : 0;
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
