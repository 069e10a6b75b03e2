#include "cli/capacity.h"

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "model/recompute.h"
#include "planner/advice.h"
#include "planner/prediction.h"
#include "planner/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void nominal_speed(struct machine_speed *speed)
{
    machine_speed_nominal(machine_speed_cores(), speed);
}

/* What the search knows: ranks that share out the batch and nothing else. */
static bool only_shares_batch(const struct layout *layout)
{
    return layout->tp == 1 && layout->pp == 1 && !layout->zero;
}

/* The plan's own layout, with everything but recomputation decided. */
static int choose_by_search(struct plan *plan, const struct rank_device *device,
                            const struct machine_speed *speed, struct error *err)
{
    struct cluster cluster = {.nodes = 1, .ranks_per_node = plan->layout.dp, .device = *device};
    cluster.device.capacity_bytes = plan->capacity_bytes;
    struct search_request request = {
        .model = &plan->model,
        .cluster = &cluster,
        .speed = speed,
        .global_batch = plan->layout.global_batch,
        .seq_len = plan->layout.seq_len,
        .dp = plan->layout.dp,
        .micro_batch = plan->layout.micro_batch,
        .precision = plan->layout.precision,
    };
    struct search_result result;
    if (search_run(&request, &result, err))
        return -1;
    int status = 0;
    if (result.alternative_count) {
        memcpy(plan->recompute, result.alternatives[0].masks,
               (size_t)plan->model.layers * sizeof *plan->recompute);
    } else {
        struct text why = {0};
        search_explain(&request, &result, &why);
        status = error_set_kind(err, ERROR_MEMORY, "%s", why.data);
        text_free(&why);
    }
    search_clear(&result);
    return status;
}

static int64_t room_for_tensors(const struct plan *plan, const struct rank_device *device)
{
    return plan->capacity_bytes - prediction_runtime(device, layout_ranks(&plan->layout)).bytes;
}

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

/* What helps when no recomputation does. */
static const char *ways_out(const struct layout *layout)
{
    return layout->micro_batch > 1
               ? "try a smaller --micro-batch, or more pipeline stages (--pp) or tensor-parallel ranks (--tp)"
               : "try more pipeline stages (--pp) or tensor-parallel ranks (--tp), or a shorter --seq-len";
}

static int refuse_stage(const struct program *stage, int64_t room, struct error *err)
{
    char need[UNITS_TEXT], have[UNITS_TEXT];
    return error_set_kind(
        err, ERROR_MEMORY,
        "no recomputation fits: a rank of stage %lld needs %s of %s even with --recompute full; %s",
        (long long)stage->stage, units_format_bytes(stage->arena_bytes, need), units_format_bytes(room, have),
        ways_out(&stage->layout));
}

/* A stage's memory depends on its own layers only, so each takes the first set with which it fits. */
static int choose_by_stage(struct plan *plan, const struct rank_device *device, struct error *err)
{
    const uint32_t sets[] = {0, recompute_selective(&plan->model), recompute_full(&plan->model)};
    enum { SETS = sizeof sets / sizeof sets[0] };
    int64_t room = room_for_tensors(plan, device);
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
                status = refuse_stage(stage, room, err);
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
    if (only_shares_batch(&plan->layout) ? choose_by_search(plan, device, speed, err)
                                         : choose_by_stage(plan, device, err))
        return -1;
    struct text text = {0};
    recompute_print(&plan->model, plan->recompute, &text);
    log_note("recompute auto: %s", text.data);
    text_free(&text);
    return 0;
}

static int check_device(const char *device, struct error *err)
{
    if (!device || !strcmp(device, "cpu"))
        return 0;
    return error_set(err,
                     "--device %s: this build trains on the CPU only; use --device cpu, or `memplan predict "
                     "--device %s` to "
                     "ask whether it would fit",
                     device, device);
}

int capacity_decide(struct plan *plan, const char *device, int64_t memory, bool automatic, struct error *err)
{
    struct rank_device cpu;
    struct machine_speed speed;
    if (check_device(device, err) || cluster_read_device("cpu", layout_ranks(&plan->layout), &cpu, err))
        return -1;
    snprintf(plan->device, sizeof plan->device, "%s", cpu.name);
    if (memory > 0)
        plan->capacity_bytes = memory;
    else if (plan->capacity_bytes == INT64_MAX)
        plan->capacity_bytes = cpu.capacity_bytes;
    nominal_speed(&speed);
    return automatic ? capacity_choose_recompute(plan, &cpu, &speed, err) : 0;
}

/* Where the advice of the planner does not reach, the one change that leaves the training as it was. */
static void advise_recompute(const struct plan *plan, const struct rank_device *device, struct text *out)
{
    struct plan copy = *plan;
    struct error refusal = {0};
    copy.recompute = host_alloc((size_t)plan->model.layers * sizeof *copy.recompute);
    text_add(out,
             choose_by_stage(&copy, device, &refusal) ? ways_out(&plan->layout) : "try --recompute auto");
    free(copy.recompute);
}

void capacity_print_advice(const struct plan *plan, const struct pipeline *pipeline,
                           const struct rank_device *device, const struct machine_speed *speed,
                           struct text *out)
{
    struct advice_list list;
    if (!only_shares_batch(&plan->layout)) {
        advise_recompute(plan, device, out);
    } else if (!advice_find(pipeline, device, speed, &list, NULL)) {
        advice_print(&list, out);
        advice_clear(&list);
    }
}

void capacity_advise(const struct plan *plan, const struct pipeline *pipeline, struct error *err)
{
    struct rank_device cpu = {.name = "cpu", .capacity_bytes = plan->capacity_bytes};
    struct machine_speed speed;
    struct text advice = {0};
    nominal_speed(&speed);
    capacity_print_advice(plan, pipeline, &cpu, &speed, &advice);
    if (advice.data)
        error_append(err, "; %s", advice.data);
    text_free(&advice);
}
