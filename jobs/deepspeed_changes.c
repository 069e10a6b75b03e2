/* Proposals for DeepSpeed's JSON, or for accelerate's options that stand for it. */
#include "jobs/deepspeed_config.h"
#include "jobs/megatron.h"

#include <string.h>

#define STAGE "zero_optimization.stage"

static int stage_now(const struct training_job *job)
{
    return job->shards.sharding >= JOB_ZERO1 && job->shards.sharding <= JOB_ZERO3
               ? job->shards.sharding - JOB_ZERO1 + 1
               : 0;
}

/* accelerate names the settings in its own words; NULL: there is neither file. */
static const char *file_of(const struct training_job *job, bool *plugin)
{
    const char *yaml = changes_file_of(job, "zero_stage");
    *plugin = yaml && !job->switches.deepspeed_config;
    return *plugin ? yaml : job->switches.deepspeed_config;
}

/* With the options that Megatron-DeepSpeed wants beside the file: its pipeline, be it of one stage, goes with ZeRO 1 at most. */
static void propose_stage(struct proposals *p, int stage)
{
    bool plugin;
    const char *file = file_of(p->job, &plugin);
    char value[2] = {(char)('0' + stage), 0};
    static const char *const split[] = {"nothing", "optimizer states", "gradients and states",
                                        "weights, gradients and states"};
    struct job_change *change =
        changes_propose(p, JOB_CHANGE_SHARDING, "ZeRO %d: %s split", stage, split[stage]);
    changes_key(p, change, file, plugin ? "zero_stage" : STAGE, value);
    if (stage < 3 && p->job->shards.offload_parameters) /* which goes with stage 3 alone */
        changes_key(p, change, file,
                    plugin ? "offload_param_device" : "zero_optimization.offload_param.device", "none");
    if (changes_read(p->job, "--zero-stage"))
        changes_option(p, change, "--zero-stage", value);
    if (stage > 1 && p->job->framework == &megatron_deepspeed_framework && !p->job->switches.no_pipeline &&
        p->job->model.kind != JOB_ENCODER)
        changes_option(p, change, "--no-pipeline-parallel", "");
}

static void propose_offload(struct proposals *p, bool weights, const char *device)
{
    bool plugin, away = strcmp(device, "none") != 0;
    const char *file = file_of(p->job, &plugin);
    struct job_change *change =
        changes_propose(p, JOB_CHANGE_OFFLOAD, "%s on the %s",
                        weights ? "optimizer and weights" : "optimizer", away ? "host" : "card");
    changes_key(p, change, file,
                plugin ? "offload_optimizer_device" : "zero_optimization.offload_optimizer.device", device);
    if (weights)
        changes_key(p, change, file,
                    plugin ? "offload_param_device" : "zero_optimization.offload_param.device", device);
}

void deepspeed_changes(struct proposals *p, bool larger)
{
    const struct training_job *job = p->job;
    const struct job_shards *s = &job->shards;
    bool plugin, pipeline = job->layout.pp > 1; /* DeepSpeed's pipeline goes with stage 1 at most */
    int stage = stage_now(job);
    if (!file_of(job, &plugin) || job->layout.dp < 2)
        return;
    if (larger) {
        if (stage > 1)
            propose_stage(p, stage - 1);
        if (s->offload_optimizer || s->offload_parameters)
            propose_offload(p, s->offload_parameters, "none");
        return;
    }
    for (int next = stage + 1; next <= (pipeline ? 1 : 3); next++)
        propose_stage(p, next);
    if (stage && !s->offload_optimizer)
        propose_offload(p, false, "cpu");
    if (stage == 3 && !s->offload_parameters)
        propose_offload(p, true, "cpu");
}
