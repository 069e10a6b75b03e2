/* A script of no framework, of which the user says what it trains: PyTorch's DDP, autocast and AdamW with a model whose modules look
 * like transformers'. The last entry of the table, taken where --model is given and no other takes the launch. */
#include "jobs/plain.h"

#include "jobs/setting.h"

#include <string.h>

#define VERSION "plain PyTorch where --model says what is trained"

enum { PRECISION };

/* What --with says of it. PyTorch trains in fp32 unless a script asks for autocast, which those for such cards do. */
static const struct setting_rule rules[] = {
    COUNT("--micro-batch", batch.micro, NULL),
    COUNT("--global-batch", batch.global, NULL),
    COUNT("--seq-len", batch.sequence, NULL),
    TEXT("--precision", own[PRECISION], "bf16"),
    TEXT("--optimizer", optimizer.name, "adamw"),
    ON("--recompute", switches.gradient_checkpointing),
    ON("--compile", kernels.compile),
    {0},
};

static const struct setting_table table = {rules, "", VERSION, true};

static bool is(const struct launch *launch)
{
    return launch->model_said;
}

static int read_precision(struct training_job *job, struct error *err)
{
    static const struct {
        const char *name;
        enum job_precision precision;
    } names[] = {{"bf16", JOB_AUTOCAST_BF16},
                 {"fp16", JOB_AUTOCAST_FP16},
                 {"fp32", JOB_FP32},
                 {"pure-bf16", JOB_PURE_BF16}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(job->own[PRECISION], names[i].name)) {
            job->precision = names[i].precision;
            job->gradients_fp32 = job->precision != JOB_PURE_BF16;
            return 0;
        }
    return error_set(
        err,
        "--precision %.40s: it must be bf16 or fp16 (autocast of fp32 weights), fp32, or pure-bf16 (all in "
        "16 bits)",
        job->own[PRECISION]);
}

static int read_batch(struct training_job *job, struct error *err)
{
    struct job_batch *b = &job->batch;
    job_require(job, b->micro, "--micro-batch", "4");
    if (!b->sequence && job->model_known) {
        b->sequence = job->model.max_seq_len;
        job_note_count(job, FACT_DEFAULT, "--seq-len", b->sequence, "as many as the model has positions");
    }
    if (b->micro < 1 || b->micro > 1 << 24 || !job->layout.dp)
        return 0;
    int64_t once = b->micro * job->layout.dp;
    if (b->global % once)
        return error_set(
            err, "--global-batch %lld is no multiple of %lld ranks with micro-batches of %lld; correct it",
            (long long)b->global, (long long)job->layout.dp, (long long)b->micro);
    b->accumulation = b->global ? b->global / once : 1;
    b->global = b->accumulation * once;
    return 0;
}

static int read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                struct error *err)
{
    const char *why = NULL;
    if (setting_read_words(&table, job, &launch->arguments, NULL, err) || setting_defaults(&table, job, err))
        return -1;
    int status = job_read_model(job, files, files->model, "--model", &why, err);
    if (status)
        return status < 0 ? -1 : error_set(err, "--model %s", why);
    if (read_precision(job, err) || job_split_ranks(job, err))
        return -1;
    job->kernels.attention = JOB_SDPA;
    if (job->switches.gradient_checkpointing)
        job->recompute = (struct job_recompute_choice){
            .granularity = JOB_RECOMPUTE_FULL, .method = JOB_METHOD_UNIFORM, .layers = 1};
    return read_batch(job, err);
}

static enum workload_library library(const struct training_job *job)
{
    (void)job;
    return WORKLOAD_TRANSFORMERS;
}

static const struct optimizer_rule optimizers[] = {
    {"adamw", WORKLOAD_ADAM, WORKLOAD_STEP_FOREACH, 0}, /* torch.optim's default */
    {"adam", WORKLOAD_ADAM, WORKLOAD_STEP_FOREACH, 0},
    {"adamw-fused", WORKLOAD_ADAM, WORKLOAD_STEP_FUSED, 0},
    {0},
};

static void changes(struct proposals *p, bool larger)
{
    const struct training_job *job = p->job;
    bool again = job->recompute.granularity == JOB_RECOMPUTE_FULL;
    for (int64_t next = job->batch.micro; !larger && (next = changes_smaller(job->batch.micro, next));) {
        struct job_change *change =
            changes_propose(p, JOB_CHANGE_MICRO_BATCH, "micro-batch %lld instead of %lld", (long long)next,
                            (long long)job->batch.micro);
        changes_count(p, change, "--micro-batch", next);
        changes_count(p, change, "--global-batch", job->batch.global);
    }
    if (!larger && !again)
        changes_option(p, changes_propose(p, JOB_CHANGE_RECOMPUTE, "every layer made again"), "--recompute",
                       "");
    if (larger && again)
        changes_drop(p, changes_propose(p, JOB_CHANGE_RECOMPUTE, "nothing made again"), "--recompute");
    if (!larger && job->precision == JOB_FP32) {
        struct job_change *change =
            changes_propose(p, JOB_CHANGE_PRECISION, "bf16 by autocast instead of fp32");
        change->alters = true;
        changes_option(p, change, "--precision", "bf16");
    }
}

static const struct framework_modules modules = {
    .library = library,
    .optimizers = optimizers,
    .optimizer = "adamw",
};

const struct framework plain_framework = {
    .name = "PyTorch DDP",
    .version = VERSION,
    .is = is,
    .read = read,
    .changes = changes,
    .modules = &modules,
};
