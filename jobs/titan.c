/* torchtitan as an entry of the table: how its launches look, and what its modules do. */
#include "jobs/titan.h"

#include <string.h>

static bool is(const struct launch *launch)
{
    for (int i = 0; i < launch->arguments.count; i++)
        if (!strncmp(launch->arguments.list[i].text, "--job.config", 12))
            return true;
    return strstr(launch->program, "torchtitan") != NULL;
}

static enum workload_library library(const struct training_job *job)
{
    (void)job;
    return WORKLOAD_TITAN;
}

/* A number of layers of which one is made again; or the results of chosen operations are kept. */
static enum workload_recompute selective(int64_t every)
{
    return every == 0 ? WORKLOAD_EVERY_SECOND : every == 1 ? WORKLOAD_FULL : WORKLOAD_ALTERNATE;
}

static void set_workload(const struct training_job *job, struct workload *w)
{
    if (job->recompute.granularity == JOB_RECOMPUTE_SELECTIVE)
        w->recompute = selective(job->recompute.layers);
    if (job->kernels.attention == JOB_FLEX)
        w->keys_expanded = false;
    w->norm = WORKLOAD_NORM_FUSED; /* nn.RMSNorm, which has a kernel since PyTorch 2.8 */
    w->logits_whole = job->switches.whole_loss && w->tp > 1;
}

static const char *foreign(const struct training_job *job, const struct workload *w)
{
    const struct job_recompute_choice *r = &job->recompute;
    (void)w;
    /* torchao's Float8Linear keeps its input and weight as they were (torchao/float8/float8_linear.py). */
    if (job->kernels.fp8 && job->kernels.fp8_gather)
        return "weights gathered in fp8";
    if (r->granularity == JOB_RECOMPUTE_BUDGET)
        return "recomputation within a budget of memory";
    return r->granularity == JOB_RECOMPUTE_SELECTIVE && r->layers > 2
               ? "recomputation of every third layer, or fewer"
               : NULL;
}

static const struct framework_modules modules = {
    .library = library,
    .workload = set_workload,
    .foreign = foreign,
    .optimizer = "adam",
};

const struct framework titan_framework = {
    .name = "torchtitan",
    .version = TITAN_VERSION,
    .programs = "torchtitan.train run_train*",
    .is = is,
    .read = titan_read,
    .changes = titan_changes,
    .modules = &modules,
};
