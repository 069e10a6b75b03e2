/* Proposals for Megatron-LM and its DeepSpeed fork: megatron/training/arguments.py says which options go together. */
#include "base/units.h"
#include "jobs/megatron.h"

#include "jobs/deepspeed_config.h"

#include <string.h>

/* Single layers that are proposed, besides quarters of them. */
enum { MOST_STEPS = 8 };

static bool is_fork(const struct proposals *p)
{
    return p->job->framework == &megatron_deepspeed_framework;
}

/* ---- the micro-batch ---- */

/* The global batch stays: where it is not given it follows from the micro-batch, so it has to be. */
static void propose_micro_batch(struct proposals *p, int64_t micro)
{
    const struct training_job *job = p->job;
    struct job_change *change = changes_propose(p, JOB_CHANGE_MICRO_BATCH, "micro-batch %lld instead of %lld",
                                                (long long)micro, (long long)job->batch.micro);
    const char *file = changes_file_of(job, "train_micro_batch_size_per_gpu");
    changes_count(p, change, "--micro-batch-size", micro);
    if (!changes_read(job, "--global-batch-size"))
        changes_count(p, change, "--global-batch-size", job->batch.global);
    if (file)
        changes_key(p, change, file, "train_micro_batch_size_per_gpu",
                    arena_printf(job->facts.arena, "%lld", (long long)micro));
}

static void smaller_micro_batches(struct proposals *p)
{
    int64_t micro = p->job->batch.micro;
    for (int64_t next = micro; (next = changes_smaller(micro, next));)
        propose_micro_batch(p, next);
}

/* Where no more micro-batches can be made one, twice as many sequences a step. */
static void propose_larger_batch(struct proposals *p)
{
    const struct job_batch *b = &p->job->batch;
    struct job_change *change =
        changes_propose(p, JOB_CHANGE_MICRO_BATCH, "micro-batch %lld, %lld sequences a step",
                        (long long)(2 * b->micro), (long long)(2 * b->global));
    change->alters = true;
    changes_count(p, change, "--micro-batch-size", 2 * b->micro);
    changes_count(p, change, "--global-batch-size", 2 * b->global);
}

/* No more than leaves every stage of the pipeline a micro-batch. */
static void larger_micro_batches(struct proposals *p)
{
    const struct job_layout *l = &p->job->layout;
    const struct job_batch *b = &p->job->batch;
    int64_t least = l->pp * (l->virtual_stages > 1 ? 2 : 1);
    bool any = false;
    for (int64_t next = 2 * b->micro; next * l->dp <= b->global; next *= 2)
        if (b->global % (next * l->dp) == 0 && b->global / (next * l->dp) >= least) {
            propose_micro_batch(p, next);
            any = true;
        }
    if (!any && !is_fork(p) && !changes_read(p->job, "--rampup-batch-size"))
        propose_larger_batch(p);
}

/* ---- recomputation ---- */

/* Options of recomputation as they are to be; NULL: not given. */
struct wanted {
    const char *granularity, *method, *layers, *modules;
};

static void set_recomputation(struct proposals *p, struct job_change *change, struct wanted wanted)
{
    const struct {
        const char *name, *value;
    } options[] = {{"--recompute-activations", NULL},
                   {"--recompute-granularity", wanted.granularity},
                   {"--recompute-method", wanted.method},
                   {"--recompute-num-layers", wanted.layers},
                   {"--recompute-modules", wanted.modules}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const struct fact *now = changes_read(p->job, options[i].name);
        if (!options[i].value)
            changes_drop(p, change, options[i].name);
        else if (options[i].value == wanted.modules)
            changes_words(p, change, options[i].name, options[i].value);
        else if (!now || strcmp(now->value, options[i].value))
            changes_option(p, change, options[i].name, options[i].value);
    }
}

static bool keeps_scores(const struct training_job *job)
{
    const struct job_kernels *k = &job->kernels;
    return k->attention == JOB_EAGER || (k->attention == JOB_ATTENTION_DEFAULT && !k->transformer_engine);
}

/* Modules by which layers of this job keep less: fused attention has nothing to make again, and norms are apart only where
 * Transformer Engine does not join them to products. */
static unsigned useful_modules(const struct training_job *job)
{
    const struct job_experts *e = &job->model.experts;
    bool dense = !e->count || e->dense_layers, latent = job->switches.latent;
    return (keeps_scores(job) ? WORKLOAD_CORE_ATTN : 0) | (dense ? WORKLOAD_MLP : 0) |
           (!job->kernels.transformer_engine || e->count || latent ? WORKLOAD_LAYERNORM : 0) |
           (e->count ? WORKLOAD_MOE : 0) | (e->count && job->kernels.grouped_gemm ? WORKLOAD_MOE_ACT : 0) |
           (latent ? WORKLOAD_MLA_UP_PROJ : 0);
}

/* With their names as they are spoken of, in the order in which they are tried. */
static const struct {
    unsigned modules;
    const char *name;
} choices[] = {
    {WORKLOAD_CORE_ATTN, "attention"},
    {WORKLOAD_LAYERNORM, "norms"},
    {WORKLOAD_MOE_ACT, "activations of experts"},
    {WORKLOAD_MLA_UP_PROJ, "queries, keys and values"},
    {WORKLOAD_MLP, "feed-forwards"},
    {WORKLOAD_CORE_ATTN | WORKLOAD_MLP, "attention and feed-forwards"},
    {WORKLOAD_MOE, "experts"},
    {WORKLOAD_MOE | WORKLOAD_LAYERNORM, "experts and norms"},
};

/* `with`: what is made again besides. */
static void propose_modules(struct proposals *p, unsigned with)
{
    unsigned useful = useful_modules(p->job);
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        unsigned all = with | choices[i].modules;
        if ((choices[i].modules & useful) == choices[i].modules && all != with)
            set_recomputation(p,
                              changes_propose(p, JOB_CHANGE_RECOMPUTE, "%s made again%s", choices[i].name,
                                              with ? " too" : ""),
                              (struct wanted){.granularity = "selective",
                                              .modules = megatron_modules_list(all, p->job->facts.arena)});
    }
}

/* Each module that is made again, kept instead. */
static void propose_fewer_modules(struct proposals *p)
{
    unsigned now = p->job->recompute.made_again;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        unsigned rest = now & ~choices[i].modules;
        if ((now & choices[i].modules) == choices[i].modules && rest)
            set_recomputation(p,
                              changes_propose(p, JOB_CHANGE_RECOMPUTE, "%s not made again", choices[i].name),
                              (struct wanted){.granularity = "selective",
                                              .modules = megatron_modules_list(rest, p->job->facts.arena)});
    }
}

static void propose_full(struct proposals *p)
{
    struct job_change *change = changes_propose(p, JOB_CHANGE_RECOMPUTE, "every layer made again");
    if (is_fork(p)) {
        changes_option(p, change, "--checkpoint-activations", "");
        changes_option(p, change, "--deepspeed-activation-checkpointing", "");
        return;
    }
    set_recomputation(p, change, (struct wanted){"full", "uniform", "1", NULL});
}

static void propose_none(struct proposals *p)
{
    struct job_change *change = changes_propose(p, JOB_CHANGE_RECOMPUTE, "nothing made again");
    set_recomputation(p, change, (struct wanted){NULL, NULL, NULL, NULL});
    changes_drop(p, change, "--checkpoint-activations");
    changes_drop(p, change, "--deepspeed-activation-checkpointing");
}

/* The first layers of each chunk, so many; the others keep all. */
static struct job_change *propose_block(struct proposals *p, int64_t layers, int64_t of)
{
    const char *count = arena_printf(p->job->facts.arena, "%lld", (long long)layers);
    struct job_change *change =
        changes_propose(p, JOB_CHANGE_RECOMPUTE, "%s of %lld layers%s made again", count, (long long)of,
                        of < p->job->model.layers ? " of a chunk" : "");
    set_recomputation(p, change, (struct wanted){"full", "block", count, NULL});
    return change;
}

/* In quarters of a chunk's layers, beyond what is made again now, or below it; and in single layers down to the next quarter. */
static void propose_blocks(struct proposals *p, bool fewer)
{
    const struct job_layout *l = &p->job->layout;
    const struct job_recompute_choice *r = &p->job->recompute;
    int64_t of = p->job->model.layers / (l->pp * l->virtual_stages);
    int64_t now = r->granularity != JOB_RECOMPUTE_FULL ? 0 : r->method == JOB_METHOD_BLOCK ? r->layers : of;
    if (is_fork(p) || of < 2)
        return;
    for (int quarter = 1; quarter < 4 && of >= 4; quarter++) {
        int64_t layers = of * (fewer ? 4 - quarter : quarter) / 4;
        if (fewer ? layers < now : layers > now)
            propose_block(p, layers, of);
    }
    for (int64_t layers = now - 1, steps = 0;
         fewer && layers > 0 && steps < (of + 3) / 4 && steps < MOST_STEPS; layers--, steps++)
        propose_block(p, layers, of)->small = true;
}

static void more_recomputation(struct proposals *p)
{
    const struct job_recompute_choice *r = &p->job->recompute;
    if (!is_fork(p) && r->granularity != JOB_RECOMPUTE_FULL)
        propose_modules(p, r->made_again);
    propose_blocks(p, false);
    if (r->granularity != JOB_RECOMPUTE_FULL || r->method == JOB_METHOD_BLOCK)
        propose_full(p);
}

static void less_recomputation(struct proposals *p)
{
    const struct job_recompute_choice *r = &p->job->recompute;
    if (!is_fork(p) && r->granularity == JOB_RECOMPUTE_FULL)
        propose_modules(p, 0);
    else if (!is_fork(p))
        propose_fewer_modules(p);
    propose_blocks(p, true);
    if (r->granularity != JOB_RECOMPUTE_NONE)
        propose_none(p);
}

/* ---- ranks ---- */

static bool ranks_divide(const struct training_job *job, int64_t tp, int64_t pp, int64_t cp)
{
    int64_t product = tp * pp * cp, ranks = job->launch.ranks;
    return ranks > 0 && ranks % product == 0 && job->batch.global % (ranks / product * job->batch.micro) == 0;
}

static void propose_tensor(struct proposals *p, int64_t tp)
{
    const struct training_job *job = p->job;
    const struct job_layout *l = &job->layout;
    int64_t per_node = job->launch.processes_per_node;
    if (!changes_splits_heads(job, tp) || (per_node && tp > per_node) ||
        !ranks_divide(job, tp, l->pp, l->cp) || (job->model.experts.count && tp > 1 && is_fork(p)))
        return;
    struct job_change *change = changes_propose_tensor(p, tp);
    changes_count(p, change, "--tensor-model-parallel-size", tp);
    if (tp == 1)
        changes_drop(p, change, "--sequence-parallel");
    else if (!l->sequence_parallel && !is_fork(p))
        changes_option(p, change, "--sequence-parallel", "");
}

/* Of chunks of another size as large a share is made again as now, in quarters. */
static void keep_share(struct proposals *p, struct job_change *change, int64_t chunks)
{
    const struct job_recompute_choice *r = &p->job->recompute;
    const struct job_layout *l = &p->job->layout;
    int64_t layers = p->job->model.layers, of = layers / (l->pp * l->virtual_stages), then = layers / chunks;
    if (is_fork(p) || r->granularity != JOB_RECOMPUTE_FULL || r->method != JOB_METHOD_BLOCK || of < 1)
        return;
    int64_t quarters = (4 * r->layers + of / 2) / of, count = then * (quarters > 4 ? 4 : quarters) / 4;
    if (count >= then)
        set_recomputation(p, change, (struct wanted){"full", "uniform", "1", NULL});
    else
        changes_count(p, change, "--recompute-num-layers", count > 0 ? count : 1);
}

static void propose_pipeline(struct proposals *p, int64_t pp)
{
    const struct training_job *job = p->job;
    const struct job_layout *l = &job->layout;
    if (pp < 1 || (pp > 1 && job->switches.no_pipeline) || l->virtual_stages > 1 || l->pipeline_layout ||
        job->model.layers % pp || !ranks_divide(job, l->tp, pp, l->cp) ||
        (job->model.experts.count && is_fork(p)) || (is_fork(p) && job->shards.sharding > JOB_ZERO1))
        return;
    struct job_change *change =
        changes_propose(p, JOB_CHANGE_PIPELINE, "a pipeline of %lld %s instead of %lld", (long long)pp,
                        units_plural(pp, "stage", "stages"), (long long)l->pp);
    changes_count(p, change, "--pipeline-model-parallel-size", pp);
    keep_share(p, change, pp);
}

/* Each stage has so many chunks of layers; more of them shorten the bubble, and keep more. */
static void propose_chunks(struct proposals *p, int64_t chunks)
{
    const struct training_job *job = p->job;
    const struct job_layout *l = &job->layout;
    const char *by_count = "--num-virtual-stages-per-pipeline-rank",
               *by_layers = "--num-layers-per-virtual-pipeline-stage";
    int64_t dp = l->dp > 0 ? l->dp : 1, micro_batches = job->batch.global / (dp * job->batch.micro);
    if (is_fork(p) || l->pp < 2 || chunks < 1 || l->pipeline_layout || l->first_stage_layers ||
        l->last_stage_layers || l->embedding_in_split || l->loss_in_split ||
        job->model.layers % (l->pp * chunks) || micro_batches % l->pp)
        return;
    struct job_change *change =
        changes_propose(p, JOB_CHANGE_CHUNKS, "%lld %s of layers a stage instead of %lld", (long long)chunks,
                        units_plural(chunks, "chunk", "chunks"), (long long)l->virtual_stages);
    if (chunks == 1) {
        changes_drop(p, change, by_count);
        changes_drop(p, change, by_layers);
    } else if (changes_read(job, by_count)) {
        changes_count(p, change, by_count, chunks);
    } else {
        changes_count(p, change, by_layers, job->model.layers / (l->pp * chunks));
    }
    keep_share(p, change, l->pp * chunks);
}

static void propose_context(struct proposals *p, int64_t cp)
{
    const struct training_job *job = p->job;
    const struct job_layout *l = &job->layout;
    if (is_fork(p) || !changes_splits_sequence(job, cp) || !ranks_divide(job, l->tp, l->pp, cp))
        return;
    changes_count(p, changes_propose_context(p, cp), "--context-parallel-size", cp);
}

/* ---- states and kernels ---- */

/* An option without a value that costs nothing. */
static void propose_free(struct proposals *p, enum job_change_kind kind, const char *name, const char *option)
{
    struct job_change *change = changes_propose(p, kind, "%s", name);
    change->free = true;
    changes_option(p, change, option, "");
}

static void shard_more(struct proposals *p)
{
    const struct training_job *job = p->job;
    if (is_fork(p)) {
        deepspeed_changes(p, false);
        return;
    }
    if (job->shards.sharding == JOB_REPLICATED && job->layout.dp > 1)
        changes_option(
            p, changes_propose(p, JOB_CHANGE_SHARDING, "optimizer states split over data-parallel ranks"),
            "--use-distributed-optimizer", "");
    if (job->shards.sharding == JOB_DISTRIBUTED_OPTIMIZER && job->precision == JOB_BF16 &&
        job->kernels.transformer_engine && !job->shards.precision_aware)
        propose_free(p, JOB_CHANGE_SHARDING,
                     "masters in the 16 bits that the weights lack (precision-aware optimizer)",
                     "--use-precision-aware-optimizer");
    if (job->layout.tp > 1 && !job->layout.sequence_parallel)
        propose_free(p, JOB_CHANGE_SHARDING, "norms and dropout sequence parallel", "--sequence-parallel");
}

static void offload(struct proposals *p)
{
    if (is_fork(p) || p->job->optimizer.offload)
        return;
    struct job_change *change = changes_propose(p, JOB_CHANGE_OFFLOAD, "optimizer on the host");
    changes_option(p, change, "--optimizer-cpu-offload", "");
    if (p->job->shards.sharding == JOB_REPLICATED)
        changes_option(p, change, "--use-distributed-optimizer", "");
    if (!p->job->shards.precision_aware)
        changes_option(p, change, "--use-precision-aware-optimizer", "");
}

static void offload_less(struct proposals *p)
{
    if (is_fork(p))
        deepspeed_changes(p, true);
    else if (p->job->optimizer.offload)
        changes_drop(p, changes_propose(p, JOB_CHANGE_OFFLOAD, "optimizer on the card"),
                     "--optimizer-cpu-offload");
}

static void fuse(struct proposals *p)
{
    if (!keeps_scores(p->job) || p->job->model.kind == JOB_ENCODER)
        return;
    struct job_change *change =
        changes_propose(p, JOB_CHANGE_KERNELS, "fused attention, which keeps no scores");
    change->free = true;
    if (p->job->kernels.transformer_engine)
        changes_option(p, change, "--attention-backend", "flash");
    else
        changes_option(p, change, "--use-flash-attn", "");
}

static void lower_precision(struct proposals *p)
{
    if (p->job->precision != JOB_FP32)
        return;
    struct job_change *change = changes_propose(p, JOB_CHANGE_PRECISION, "bf16 instead of fp32");
    change->alters = true;
    changes_option(p, change, "--bf16", "");
}

void megatron_changes(struct proposals *p, bool larger)
{
    const struct job_layout *l = &p->job->layout;
    if (larger) {
        larger_micro_batches(p);
        less_recomputation(p);
        offload_less(p);
        propose_tensor(p, l->tp / 2);
        propose_pipeline(p, l->pp / 2);
        propose_context(p, l->cp / 2);
        propose_chunks(p, 2 * l->virtual_stages);
        return;
    }
    fuse(p);
    smaller_micro_batches(p);
    more_recomputation(p);
    shard_more(p);
    propose_tensor(p, 2 * l->tp);
    propose_context(p, 2 * l->cp);
    propose_pipeline(p, 2 * l->pp);
    if (l->virtual_stages > 1)
        propose_chunks(p, l->virtual_stages / 2);
    offload(p);
    lower_precision(p);
}
