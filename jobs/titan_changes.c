/* Proposals for torchtitan: keys of its TOML file, given as options, which come before the file. */
#include "jobs/titan.h"

#include "base/units.h"

#include <stdlib.h>
#include <string.h>

/* With a pipeline the local batch stays, and is cut into other pieces. */
static void propose_micro_batch(struct proposals *p, int64_t micro)
{
    const struct training_job *job = p->job;
    const struct job_batch *b = &job->batch;
    bool old = changes_read(job, "training.batch_size") != NULL;
    bool pipeline = job->layout.pp > 1;
    struct job_change *change = changes_propose(p, JOB_CHANGE_MICRO_BATCH, "micro-batch %lld instead of %lld",
                                                (long long)micro, (long long)b->micro);
    changes_count(p, change,
                  pipeline ? "--parallelism.pipeline_parallel_microbatch_size"
                  : old    ? "--training.batch_size"
                           : "--training.local_batch_size",
                  micro);
    if (pipeline)
        return;
    if (!old && b->global % (micro * job->layout.dp) == 0) {
        changes_count(p, change, "--training.global_batch_size", b->global);
        return;
    }
    change->alters = true;
    change->name = arena_printf(job->facts.arena, "micro-batch %lld, %lld %s a step", (long long)micro,
                                (long long)(micro * job->layout.dp),
                                units_plural(micro * job->layout.dp, "sequence", "sequences"));
    if (!old)
        changes_count(p, change, "--training.global_batch_size", micro * job->layout.dp);
}

static void micro_batches(struct proposals *p, bool larger)
{
    const struct job_batch *b = &p->job->batch;
    int64_t next = b->micro, dp = p->job->layout.dp;
    if (dp < 1 || (larger && p->job->layout.pp > 1))
        return;
    if (!larger) {
        while ((next = changes_smaller(b->micro, next)))
            propose_micro_batch(p, next);
        return;
    }
    for (next = 2 * b->micro; b->global % (next * dp) == 0; next *= 2)
        propose_micro_batch(p, next);
    propose_micro_batch(p, next);
}

/* How much is made again, from least to most. */
static const struct {
    const char *name, *mode, *option;
} levels[] = {
    {"nothing made again", "none", NULL},
    {"every second matrix product made again", "selective", "op"},
    {"every second layer made again", "selective", "2"},
    {"every layer made again", "full", NULL},
};
enum { LEVELS = sizeof levels / sizeof levels[0], EVERY_SECOND_LAYER = 2 };

/* Another number than 2 of layers is taken as that. */
static int level_of(const struct training_job *job)
{
    const struct job_recompute_choice *r = &job->recompute;
    if (r->granularity == JOB_RECOMPUTE_SELECTIVE)
        return r->modules && !strcmp(r->modules, "op") ? 1 : EVERY_SECOND_LAYER;
    return r->granularity == JOB_RECOMPUTE_NONE ? 0 : LEVELS - 1;
}

static void propose_recomputation(struct proposals *p, int level)
{
    struct job_change *change = changes_propose(p, JOB_CHANGE_RECOMPUTE, "%s", levels[level].name);
    changes_option(p, change, "--activation_checkpoint.mode", levels[level].mode);
    if (levels[level].option && strcmp(p->job->recompute.modules, levels[level].option))
        changes_option(p, change, "--activation_checkpoint.selective_ac_option", levels[level].option);
}

/* Ranks that leave data parallelism take their share of the global batch with them, which the local batch then makes up. */
static bool ranks_divide(const struct training_job *job, int64_t tp, int64_t cp)
{
    const struct job_layout *l = &job->layout;
    int64_t product = tp * cp * l->pp, ranks = job->launch.ranks;
    bool chosen = strtoll(job->switches.shard_degree, NULL, 10) > 0;
    return l->pp == 1 && l->dp_replicate <= 1 && !chosen && ranks > 0 && ranks % product == 0 &&
           job->batch.global % (ranks / product * job->batch.micro) == 0;
}

static void propose_tensor(struct proposals *p, int64_t tp)
{
    const struct training_job *job = p->job;
    if (!changes_splits_heads(job, tp) || !ranks_divide(job, tp, job->layout.cp))
        return;
    struct job_change *change = changes_propose_tensor(p, tp);
    changes_count(p, change, "--parallelism.tensor_parallel_degree", tp);
    changes_count(p, change, "--training.global_batch_size", job->batch.global);
}

static void propose_context(struct proposals *p, int64_t cp)
{
    const struct training_job *job = p->job;
    if (!changes_splits_sequence(job, cp) || !ranks_divide(job, job->layout.tp, cp))
        return;
    struct job_change *change = changes_propose_context(p, cp);
    changes_count(p, change, "--parallelism.context_parallel_degree", cp);
    changes_count(p, change, "--training.global_batch_size", job->batch.global);
}

/* Shards within each machine, and copies of them over machines: nothing is gathered over the network. */
static void shard_in_machines(struct proposals *p)
{
    const struct training_job *job = p->job;
    const struct job_layout *l = &job->layout;
    int64_t others = l->tp * l->cp * l->pp, each = job->launch.processes_per_node;
    if (each <= 0 || others <= 0 || each % others || each / others < 2 || l->dp_replicate > 1 ||
        l->dp <= each / others || l->dp % (each / others))
        return;
    struct job_change *change =
        changes_propose(p, JOB_CHANGE_SHARDING, "split over the ranks of a machine, with copies on each");
    changes_count(p, change, "--parallelism.data_parallel_replicate_degree", l->dp / (each / others));
    changes_count(p, change, "--parallelism.data_parallel_shard_degree", each / others);
}

static void shard(struct proposals *p, bool larger)
{
    const struct training_job *job = p->job;
    bool sharded = job->shards.sharding == JOB_FSDP2;
    if (larger && sharded)
        shard_in_machines(p);
    if (!larger && job->layout.dp > 1 && job->layout.dp_shard < job->layout.dp) {
        struct job_change *change =
            changes_propose(p, JOB_CHANGE_SHARDING, "all split over all data-parallel ranks");
        changes_option(p, change, "--parallelism.data_parallel_replicate_degree", "1");
        changes_option(p, change, "--parallelism.data_parallel_shard_degree", "-1");
    }
    if (sharded && job->shards.reshard_after_forward == larger)
        changes_option(p,
                       changes_propose(p, JOB_CHANGE_SHARDING,
                                       larger ? "weights kept from forward to backward"
                                              : "weights gathered again for backward"),
                       "--parallelism.fsdp_reshard_after_forward", larger ? "never" : "always");
    if (sharded && !larger && !job->shards.offload_parameters)
        changes_option(p, changes_propose(p, JOB_CHANGE_OFFLOAD, "weights and optimizer on the host"),
                       "--training.enable_cpu_offload", "true");
    if (larger && job->shards.offload_parameters)
        changes_option(p, changes_propose(p, JOB_CHANGE_OFFLOAD, "weights and optimizer on the card"),
                       "--training.enable_cpu_offload", "false");
}

void titan_changes(struct proposals *p, bool larger)
{
    const struct job_layout *l = &p->job->layout;
    int level = level_of(p->job);
    micro_batches(p, larger);
    if (larger) {
        for (int weaker = level - 1; weaker >= 0; weaker--)
            propose_recomputation(p, weaker);
        shard(p, true);
        propose_tensor(p, l->tp / 2);
        propose_context(p, l->cp / 2);
        return;
    }
    for (int stronger = level + 1; stronger < LEVELS; stronger++)
        propose_recomputation(p, stronger);
    shard(p, false);
    propose_tensor(p, 2 * l->tp);
    propose_context(p, 2 * l->cp);
    if (p->job->precision == JOB_FP32) {
        struct job_change *change =
            changes_propose(p, JOB_CHANGE_PRECISION, "bf16 instead of fp32 in what is computed");
        change->alters = true;
        changes_option(p, change, "--training.mixed_precision_param", "bfloat16");
    }
}
