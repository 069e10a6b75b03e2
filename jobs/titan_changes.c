/* Proposals for torchtitan: keys of its TOML file, given as options, which come before the file. */
#include "jobs/job_changes_parts.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TENSOR = 8, LONG_SEQUENCE = 8192 };

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
    change->name = arena_printf(job->facts.arena, "micro-batch %lld, %lld sequences a step", (long long)micro,
                                (long long)(micro * job->layout.dp));
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

static void propose_recomputation(struct proposals *p, int granularity)
{
    static const char *const modes[] = {"none", "selective", "full"};
    static const char *const names[] = {"nothing made again", "every second matrix product made again",
                                        "every layer made again"};
    struct job_change *change = changes_propose(p, JOB_CHANGE_RECOMPUTE, "%s", names[granularity]);
    changes_option(p, change, "--activation_checkpoint.mode", modes[granularity]);
    if (granularity == JOB_RECOMPUTE_SELECTIVE)
        changes_option(p, change, "--activation_checkpoint.selective_ac_option", "op");
}

static bool divides(const struct training_job *job, int64_t tp, int64_t cp)
{
    int64_t product = tp * cp * job->layout.pp;
    return job->launch.ranks > 0 && job->launch.ranks % product == 0 && job->layout.dp_replicate <= 1;
}

/* Ranks that leave data parallelism take their share of the global batch with them, which the local batch then makes up. */
static void propose_ranks(struct proposals *p, bool tensor, int64_t degree)
{
    const struct training_job *job = p->job;
    const struct job_layout *l = &job->layout;
    const struct job_model *m = &job->model;
    int64_t now = tensor ? l->tp : l->cp;
    int64_t tp = tensor ? degree : l->tp, cp = tensor ? l->cp : degree;
    if (degree < 1 || !divides(job, tp, cp))
        return;
    if (tensor && (degree > MOST_TENSOR || m->heads % degree || m->kv_heads % degree))
        return;
    if (!tensor && (job->batch.sequence < LONG_SEQUENCE || job->batch.sequence % (2 * degree)))
        return;
    int64_t together = job->launch.ranks / (tp * cp * l->pp) * job->batch.micro;
    if (l->pp > 1 || job->batch.global % together || strtoll(job->switches.shard_degree, NULL, 10) > 0)
        return;
    struct job_change *change = changes_propose(p, tensor ? JOB_CHANGE_TENSOR : JOB_CHANGE_CONTEXT,
                                                tensor ? "tensor parallel over %lld ranks instead of %lld"
                                                       : "context parallel over %lld ranks instead of %lld",
                                                (long long)degree, (long long)now);
    changes_count(p, change,
                  tensor ? "--parallelism.tensor_parallel_degree" : "--parallelism.context_parallel_degree",
                  degree);
    changes_count(p, change, "--training.global_batch_size", job->batch.global);
}

static void shard(struct proposals *p, bool larger)
{
    const struct training_job *job = p->job;
    bool sharded = job->shards.sharding == JOB_FSDP2;
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

void changes_of_titan(struct proposals *p, bool larger)
{
    const struct job_layout *l = &p->job->layout;
    int mode = p->job->recompute.granularity;
    micro_batches(p, larger);
    if (larger) {
        for (int weaker = mode - 1; weaker >= JOB_RECOMPUTE_NONE; weaker--)
            propose_recomputation(p, weaker);
        shard(p, true);
        propose_ranks(p, true, l->tp / 2);
        propose_ranks(p, false, l->cp / 2);
        return;
    }
    for (int stronger = mode + 1; stronger <= JOB_RECOMPUTE_FULL; stronger++)
        propose_recomputation(p, stronger);
    shard(p, false);
    propose_ranks(p, true, 2 * l->tp);
    propose_ranks(p, false, 2 * l->cp);
    if (p->job->precision == JOB_FP32) {
        struct job_change *change =
            changes_propose(p, JOB_CHANGE_PRECISION, "bf16 instead of fp32 in what is computed");
        change->alters = true;
        changes_option(p, change, "--training.mixed_precision_param", "bfloat16");
    }
}
