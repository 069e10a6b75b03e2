#include "cli/capacity.h"

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/advice.h"
#include "planner/search.h"

#include <stdio.h>
#include <string.h>

static void nominal_speed(struct machine_speed *speed)
{
    machine_speed_nominal(machine_speed_cores(), speed);
}

/* The plan's own layout, with everything but recomputation decided. */
int capacity_choose_recompute(struct plan *plan, const struct rank_device *device,
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
        log_note("recompute auto: %s", result.alternatives[0].recompute);
    } else {
        struct text why = {0};
        search_explain(&request, &result, &why);
        status = error_set_kind(err, ERROR_MEMORY, "%s", why.data);
        text_free(&why);
    }
    search_clear(&result);
    return status;
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
    if (check_device(device, err) || cluster_read_device("cpu", plan->layout.dp, &cpu, err))
        return -1;
    snprintf(plan->device, sizeof plan->device, "%s", cpu.name);
    if (memory > 0)
        plan->capacity_bytes = memory;
    else if (plan->capacity_bytes == INT64_MAX)
        plan->capacity_bytes = cpu.capacity_bytes;
    nominal_speed(&speed);
    return automatic ? capacity_choose_recompute(plan, &cpu, &speed, err) : 0;
}

void capacity_advise(const struct program *program, int64_t capacity_bytes, struct error *err)
{
    struct rank_device cpu = {.name = "cpu", .capacity_bytes = capacity_bytes};
    struct machine_speed speed;
    struct advice_list list;
    nominal_speed(&speed);
    if (advice_find(program, &cpu, &speed, &list, NULL))
        return;
    struct text advice = {0};
    advice_print(&list, &advice);
    if (advice.data)
        error_append(err, "; %s", advice.data);
    text_free(&advice);
    advice_clear(&list);
}
