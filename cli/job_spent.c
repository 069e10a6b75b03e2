#include "cli/job_spent.h"

#include "planner/frameworks/workload_time.h"

#include <math.h>

const char *const job_spent_names[JOB_SPENT_PARTS] = {
    [JOB_SPENT_COMPUTATION] = "computation",
    [JOB_SPENT_RECOMPUTATION] = "recomputation",
    [JOB_SPENT_COMMUNICATION] = "communication",
    [JOB_SPENT_TRANSFERS] = "host transfers",
    [JOB_SPENT_BUBBLE] = "bubble",
    [JOB_SPENT_OPTIMIZER] = "optimizer",
};

/* Links that take no time, and ranks that do not wait for each other at them. */
static const double at_once = 1e30;

int job_spent_of(const struct workload *workload, const struct machine_speed *speed, struct job_spent *out,
                 struct error *err)
{
    struct workload kept = *workload, here;
    struct machine_speed near = *speed;
    struct workload_habits prompt = workload_habits;
    struct workload_time now, without, alone, unmoved;
    kept.recompute = WORKLOAD_KEEPS_ALL;
    kept.modules = 0;
    kept.remade_layers = 0;
    here = kept;
    here.offload_weights = here.offload_optimizer = here.inputs_offloaded = false;
    near.comm_bytes_per_s.value = near.net_bytes_per_s.value = at_once;
    prompt.straggle_s = prompt.message_wait_s = 0;
    if (workload_time(workload, NULL, speed, &now, err) || workload_time(&kept, NULL, speed, &without, err) ||
        workload_time(&kept, &prompt, &near, &alone, err) ||
        workload_time(&here, &prompt, &near, &unmoved, err))
        return -1;
    /* The stage that is done last may be another without them. */
    double again_s = fmax(now.passes_s - without.passes_s, 0);
    double sent_s = fmax(without.passes_s - alone.passes_s, 0);
    double moved_s = fmax(alone.passes_s - unmoved.passes_s, 0);
    out->seconds[JOB_SPENT_RECOMPUTATION] = again_s;
    out->seconds[JOB_SPENT_TRANSFERS] = moved_s;
    out->seconds[JOB_SPENT_COMMUNICATION] = sent_s + now.reduced_s;
    out->seconds[JOB_SPENT_BUBBLE] = now.bubble_s;
    out->seconds[JOB_SPENT_OPTIMIZER] = now.optimizer_s;
    out->seconds[JOB_SPENT_COMPUTATION] = now.passes_s - again_s - sent_s - moved_s;
    return 0;
}
