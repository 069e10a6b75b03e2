/* Proposals for Hugging Face's Trainer: TrainingArguments, and what accelerate's YAML or an FSDP file say beside them. */
#include "jobs/hf.h"

#include "base/units.h"
#include "jobs/deepspeed_config.h"

#include <string.h>

/* ---- the micro-batch ---- */

static bool has_file(const struct training_job *job, const char *name)
{
    return changes_file_of(job, name) != NULL;
}

/* An option, and the same in DeepSpeed's or accelerate's file where that says a number too. */
static void set_both(struct proposals *p, struct job_change *change, const char *option, const char *key,
                     int64_t value)
{
    const char *text = arena_printf(p->job->facts.arena, "%lld", (long long)value);
    bool in_file = has_file(p->job, key);
    if (!in_file || changes_read(p->job, option))
        changes_option(p, change, option, text);
    if (in_file)
        changes_key(p, change, changes_file_of(p->job, key), key, text);
}

/* Sequences of a step stay as many, summed over more or fewer micro-batches; with only one they become more. */
static void propose_micro_batch(struct proposals *p, int64_t micro)
{
    const struct job_batch *b = &p->job->batch;
    int64_t accumulation = b->accumulation > 0 ? b->accumulation : 1;
    struct job_change *change = changes_propose(p, JOB_CHANGE_MICRO_BATCH, "micro-batch %lld instead of %lld",
                                                (long long)micro, (long long)b->micro);
    int64_t summed = micro < b->micro ? accumulation * (b->micro / micro) : accumulation / (micro / b->micro);
    summed = summed > 0 ? summed : 1;
    set_both(p, change, "--per_device_train_batch_size", "train_micro_batch_size_per_gpu", micro);
    if (summed != accumulation)
        set_both(p, change, "--gradient_accumulation_steps", "gradient_accumulation_steps", summed);
    if (summed * micro == accumulation * b->micro)
        return;
    change->alters = true;
    change->name = arena_printf(p->job->facts.arena, "micro-batch %lld, %lld %s a step", (long long)micro,
                                (long long)(summed * micro * p->job->layout.dp),
                                units_plural(summed * micro * p->job->layout.dp, "sequence", "sequences"));
}

/* Beyond what is accumulated the global batch grows: that is said once, for twice as many. */
static void micro_batches(struct proposals *p, bool larger)
{
    const struct job_batch *b = &p->job->batch;
    int64_t accumulation = b->accumulation > 0 ? b->accumulation : 1, next = b->micro;
    if (!larger) {
        while ((next = changes_smaller(b->micro, next)))
            propose_micro_batch(p, next);
        return;
    }
    for (next = 2 * b->micro; next <= b->micro * accumulation && accumulation % (next / b->micro) == 0;
         next *= 2)
        propose_micro_batch(p, next);
    if (!b->global || !has_file(p->job, "train_batch_size"))
        propose_micro_batch(p, next);
}

/* ---- recomputation ---- */

static void propose_checkpointing(struct proposals *p, const char *value)
{
    static const struct {
        const char *fact, *key;
    } files[] = {{"fsdp_activation_checkpointing", "fsdp_activation_checkpointing"},
                 {"fsdp_config.activation_checkpointing", "activation_checkpointing"}};
    bool on = !strcmp(value, "True");
    struct job_change *change =
        changes_propose(p, JOB_CHANGE_RECOMPUTE, on ? "every layer made again" : "nothing made again");
    bool in_file = false;
    for (int i = 0; i < 2; i++) {
        const char *file = changes_file_of(p->job, files[i].fact);
        if (file)
            changes_key(p, change, file, files[i].key, on ? "true" : "false");
        in_file = in_file || file;
    }
    if (!in_file || changes_read(p->job, "--gradient_checkpointing"))
        changes_option(p, change, "--gradient_checkpointing", value);
}

/* ---- kernels ---- */

/* liger_kernel/transformers/monkey_patch.py */
static bool has_liger(const struct training_job *job)
{
    static const char *const types[] = {"llama", "mistral", "mixtral", "qwen2",
                                        "qwen3", "gemma",   "gemma2",  "phi3"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(job->model.type, types[i]))
            return true;
    return false;
}

static void propose_kernels(struct proposals *p, const char *name, const char *option, const char *value)
{
    struct job_change *change = changes_propose(p, JOB_CHANGE_KERNELS, "%s", name);
    change->free = true;
    changes_option(p, change, option, value);
}

static void fuse(struct proposals *p)
{
    const struct training_job *job = p->job;
    if (job->kernels.attention == JOB_EAGER)
        propose_kernels(p, "fused attention, which keeps no scores", "--attn_implementation", "sdpa");
    if (!job->kernels.liger && has_liger(job))
        propose_kernels(p, "Liger kernels: no copies of the logits", "--use_liger_kernel", "True");
}

/* ---- sharding ---- */

static bool shards(const struct training_job *job)
{
    return job->shards.sharding == JOB_FSDP1 || job->shards.sharding == JOB_FSDP2;
}

/* Split within each machine, with copies on the others. */
static bool is_hybrid(const struct training_job *job)
{
    return job->shards.fsdp_strategy == JOB_HYBRID_SHARD ||
           job->shards.fsdp_strategy == JOB_HYBRID_SHARD_ZERO2;
}

/* The value of --fsdp: as it is but for what is to be changed. */
static const char *fsdp_words(const struct training_job *job, bool hybrid, bool gathers_again, bool away)
{
    static const char *const strategies[2][2] = {{"shard_grad_op", "full_shard"},
                                                 {"hybrid_shard_zero2", "hybrid_shard"}};
    const char *now = job->switches.fsdp;
    bool wraps = !now || strcasestr(now, "auto_wrap");
    return arena_printf(job->facts.arena, "%s%s%s", strategies[hybrid][gathers_again],
                        wraps ? " auto_wrap" : "", away ? " offload" : "");
}

static void propose_fsdp(struct proposals *p, bool gathers_again)
{
    const struct training_job *job = p->job;
    struct job_change *change = changes_propose(p, JOB_CHANGE_SHARDING,
                                                !shards(job)    ? "FSDP: weights and states split over ranks"
                                                : gathers_again ? "weights gathered again for backward"
                                                                : "weights kept from forward to backward");
    const char *yaml = changes_file_of(job, "fsdp_reshard_after_forward");
    const char *strategy = changes_file_of(job, "fsdp_sharding_strategy");
    if (yaml)
        changes_key(p, change, yaml, "fsdp_reshard_after_forward", gathers_again ? "true" : "false");
    else if (strategy)
        changes_key(p, change, strategy, "fsdp_sharding_strategy",
                    gathers_again ? "FULL_SHARD" : "SHARD_GRAD_OP");
    else
        changes_option(
            p, change, "--fsdp",
            fsdp_words(job, shards(job) && is_hybrid(job), gathers_again, job->shards.offload_parameters));
}

/* What the command line chose; accelerate's file says it in other words. */
static void propose_hybrid(struct proposals *p, bool hybrid)
{
    const struct training_job *job = p->job;
    const struct job_shards *s = &job->shards;
    if (!changes_read(job, "--fsdp") || job->launch.nodes < 2 || job->layout.dp % job->launch.nodes ||
        is_hybrid(job) == hybrid)
        return;
    changes_option(p,
                   changes_propose(p, JOB_CHANGE_SHARDING,
                                   hybrid ? "split over the ranks of a machine, with copies on each"
                                          : "split over all ranks"),
                   "--fsdp", fsdp_words(job, hybrid, s->reshard_after_forward, s->offload_parameters));
}

static void propose_fsdp_offload(struct proposals *p, bool away)
{
    const struct training_job *job = p->job;
    const char *yaml = changes_file_of(job, "fsdp_offload_params");
    if (!yaml && !changes_read(job, "--fsdp"))
        return;
    struct job_change *change =
        changes_propose(p, JOB_CHANGE_OFFLOAD, "weights and optimizer on the %s", away ? "host" : "card");
    if (yaml)
        changes_key(p, change, yaml, "fsdp_offload_params", away ? "true" : "false");
    else
        changes_option(p, change, "--fsdp",
                       fsdp_words(job, is_hybrid(job), job->shards.reshard_after_forward, away));
}

static void shard_more(struct proposals *p)
{
    const struct training_job *job = p->job;
    bool quantized = job->adapter.weight_bits > 0;
    if (job->switches.deepspeed || job->switches.deepspeed_config) {
        deepspeed_changes(p, false);
    } else if (!shards(job) && job->layout.dp > 1 && !quantized) {
        propose_fsdp(p, true);
    } else if (shards(job)) {
        if (!job->shards.reshard_after_forward)
            propose_fsdp(p, true);
        propose_hybrid(p, false);
        if (!job->shards.offload_parameters && !quantized)
            propose_fsdp_offload(p, true);
    }
}

static void shard_less(struct proposals *p)
{
    const struct training_job *job = p->job;
    deepspeed_changes(p, true);
    if (shards(job) && job->shards.offload_parameters)
        propose_fsdp_offload(p, false);
    else if (shards(job) && job->shards.reshard_after_forward)
        propose_fsdp(p, false);
    if (shards(job))
        propose_hybrid(p, true);
    if (shards(job) && changes_read(job, "--fsdp"))
        changes_drop(p,
                     changes_propose(p, JOB_CHANGE_SHARDING, "weights and states whole on each rank (DDP)"),
                     "--fsdp");
}

/* ---- precision ---- */

static void lower_precision(struct proposals *p)
{
    const struct training_job *job = p->job;
    bool alone = job->shards.sharding == JOB_REPLICATED && !job->switches.deepspeed;
    struct job_change *change;
    if (job->precision == JOB_FP32 && !job->switches.deepspeed) {
        change = changes_propose(p, JOB_CHANGE_PRECISION, "bf16 autocast instead of fp32");
        change->alters = true;
        changes_option(p, change, "--bf16", "True");
    }
    if (alone && job->optimizer.name && !strncmp(job->optimizer.name, "adamw_torch", 11) &&
        !job->adapter.rank) {
        change = changes_propose(p, JOB_CHANGE_PRECISION, "Adam with 8-bit states");
        change->alters = true;
        changes_option(p, change, "--optim", "adamw_bnb_8bit");
    }
    if (job->adapter.rank && !job->adapter.weight_bits && alone) {
        change = changes_propose(p, JOB_CHANGE_PRECISION, "frozen weights in 4 bits");
        change->alters = true;
        changes_option(p, change, "--load_in_4bit", "True");
    }
}

void hf_changes(struct proposals *p, bool larger)
{
    bool again = p->job->recompute.granularity == JOB_RECOMPUTE_FULL;
    micro_batches(p, larger);
    if (again == larger)
        propose_checkpointing(p, larger ? "False" : "True");
    if (larger) {
        shard_less(p);
        return;
    }
    fuse(p);
    shard_more(p);
    lower_precision(p);
}
