/* karpathy/llm.c: train_gpt2cu, a program that no Python runs. All that is known of it is in this file. */
#include "jobs/llmc.h"

#include "base/checked.h"
#include "jobs/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION "llm.c of 2025-05"

enum { MODEL, RECOMPUTE, MASTERS };

/* train_gpt2.cu at f1e2ace6: main() and error_usage(). */
static const struct setting_rule rules[] = {
    TEXT("-e", own[MODEL], "gpt2_124M_bf16.bin"),
    COUNT("-b", batch.micro, "4"),
    COUNT("-t", batch.sequence, "1024"),
    COUNT("-d", batch.global, NULL), /* in tokens */
    TEXT("-r", own[RECOMPUTE], "1"),
    TEXT("-w", own[MASTERS], "1"),
    CHOICE("-z", switches.zero_stage, "0|1|2|3", "0"),
    {0},
};

static const char irrelevant[] =
    "-i -j -o -lg -n -nk -nm -y -x -k -l -u -q -c -sl -sg -v -m -s -g -h -a -f -ge -pn "
    "-pr -pg -pm -pi -ps -pf -pp";

static const struct setting_table table = {rules, irrelevant, VERSION, false};

static bool is(const struct launch *launch)
{
    const char *name = text_base_name(launch->program);
    return !strncmp(name, "train_gpt2", 10) && !text_ends_with(name, ".py");
}

/* ---- the model ---- */

struct shape {
    const char *file; /* a part of the name of its file; NULL: none */
    int64_t layers, hidden, heads;
};

/* gpt2_set_hyperparameters(), by depth, and gpt3_set_hyperparameters(), by width. */
static const struct shape gpt2[] = {{NULL, 6, 384, 6},      {"124M", 12, 768, 12},   {"355M", 24, 1024, 16},
                                    {"774M", 36, 1280, 20}, {"1558M", 48, 1600, 25}, {NULL, 60, 1920, 30},
                                    {NULL, 72, 2880, 30},   {NULL, 84, 3456, 36},    {0}},
                          gpt3[] = {{NULL, 6, 384, 6},    {NULL, 12, 768, 12},   {NULL, 24, 1024, 16},
                                    {NULL, 24, 1536, 16}, {NULL, 24, 2048, 16},  {NULL, 32, 2560, 32},
                                    {NULL, 32, 4096, 32}, {NULL, 96, 12288, 96}, {0}};

static const struct shape *find_shape(const char *name, bool *third)
{
    const char *width = strstr(name, "gpt3:c");
    const char *depth = !strncmp(name, "gpt2:d", 6) ? name + 6 : *name == 'd' ? name + 1 : NULL;
    *third = width != NULL;
    for (const struct shape *s = width ? gpt3 : gpt2; s->layers; s++)
        if (width   ? s->hidden == strtoll(width + 6, NULL, 10)
            : depth ? s->layers == strtoll(depth, NULL, 10)
                    : s->file && strstr(name, s->file))
            return s;
    return NULL;
}

static int read_model(struct training_job *job, struct error *err)
{
    const char *name = job->own[MODEL];
    bool third;
    const struct shape *shape = find_shape(name, &third);
    if (!shape)
        return error_set(
            err,
            "-e %.60s: llm.c has no such model; give d12, d24, d36 or d48 for a GPT-2 of so many layers, "
            "or gpt3:c768 to gpt3:c12288 for a GPT-3 of that width",
            name);
    struct job_model *m = &job->model;
    *m = (struct job_model){.kind = JOB_DECODER,
                            .norm = JOB_LAYER_NORM,
                            .positions = JOB_LEARNED,
                            .layers = shape->layers,
                            .hidden = shape->hidden,
                            .heads = shape->heads,
                            .kv_heads = shape->heads,
                            .head_size = shape->hidden / shape->heads,
                            .ffn = 4 * shape->hidden,
                            .vocab = 50304, /* padded from 50,257 */
                            .max_seq_len = third ? 2048 : 1024,
                            .tied = true,
                            .qkv_bias = true,
                            .proj_bias = true,
                            .ffn_bias = true};
    snprintf(m->activation, sizeof m->activation, "gelu_pytorch_tanh");
    snprintf(m->name, sizeof m->name, "%s of %lld layers", third ? "GPT-3" : "GPT-2", (long long)m->layers);
    snprintf(m->type, sizeof m->type, "gpt2");
    job->model_known = true;
    return job_model_check(m, name, err);
}

/* ---- the rest ---- */

/* -d is in tokens of all ranks. */
static int read_batch(struct training_job *job, struct error *err)
{
    struct job_batch *b = &job->batch;
    int64_t once, tokens;
    if (b->sequence > job->model.max_seq_len)
        return error_set(err, "-t %lld: the model has %lld positions; give no more", (long long)b->sequence,
                         (long long)job->model.max_seq_len);
    if (!job->layout.dp)
        return 0;
    if (b->micro < 1 || b->sequence < 1 || !checked_mul(b->micro, job->layout.dp, &once) ||
        !checked_mul(once, b->sequence, &tokens))
        return error_set(err, "-b %lld of -t %lld is no real batch; correct it", (long long)b->micro,
                         (long long)b->sequence);
    if (b->global % tokens)
        return error_set(err, "-d %lld: no multiple of the %lld tokens of a pass of all ranks; correct it",
                         (long long)b->global, (long long)tokens);
    b->accumulation = b->global ? b->global / tokens : 1;
    b->global = b->accumulation * once;
    job_note_count(job, FACT_DERIVED, "sequences of a step", b->global, "-d in tokens, of -t each");
    return 0;
}

static int read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                struct error *err)
{
    (void)files;
    if (setting_read_words(&table, job, &launch->arguments, NULL, err) ||
        setting_defaults(&table, job, err) || read_model(job, err) || job_split_ranks(job, err))
        return -1;
    job->precision = strstr(launch->program, "fp32") ? JOB_FP32 : JOB_BF16;
    bool splits = job->switches.zero_stage == 1 && job->layout.dp > 1; /* of 2 and 3 it makes 0 */
    job->shards.sharding = splits ? JOB_DISTRIBUTED_OPTIMIZER : JOB_REPLICATED;
    job_note(job, FACT_DERIVED, "attention", "cuDNN's",
             "as built with USE_CUDNN=1; without it scores are kept");
    return read_batch(job, err);
}

/* ---- as a workload ---- */

static enum workload_library library(const struct training_job *job)
{
    (void)job;
    return WORKLOAD_LLMC;
}

static void set_workload(const struct training_job *job, struct workload *w)
{
    long recompute = strtol(job->own[RECOMPUTE], NULL, 10);
    w->recompute = recompute > 0 ? WORKLOAD_MODULES : WORKLOAD_KEEPS_ALL;
    w->modules = recompute > 1 ? WORKLOAD_GELU | WORKLOAD_NORM_RESULTS : WORKLOAD_GELU;
    if (!strtol(job->own[MASTERS], NULL, 10))
        w->master_bytes = 0;
    w->hidden_dropout = w->embedding_dropout = w->attention_dropout = false;
    w->context_bytes = 896LL << 20; /* its own log (pull request 309): context, cuBLAS, cuDNN and NCCL */
}

/* ---- what could be written otherwise ---- */

static void changes(struct proposals *p, bool larger)
{
    const struct training_job *job = p->job;
    int64_t now = strtoll(job->own[RECOMPUTE], NULL, 10), micro = job->batch.micro;
    int64_t other = larger ? now - 1 : now + 1;
    if (other >= 0 && other <= 2)
        changes_count(p,
                      changes_propose(p, JOB_CHANGE_RECOMPUTE, "%s made again",
                                      other == 0   ? "nothing"
                                      : other == 1 ? "GELUs"
                                                   : "GELUs and norms"),
                      "-r", other);
    if (!larger && job->shards.sharding == JOB_REPLICATED && job->layout.dp > 1)
        changes_count(
            p, changes_propose(p, JOB_CHANGE_SHARDING, "optimizer states split over data-parallel ranks"),
            "-z", 1);
    for (int64_t next = micro; !larger && (next = changes_smaller(micro, next));) {
        struct job_change *change = changes_propose(
            p, JOB_CHANGE_MICRO_BATCH, "micro-batch %lld instead of %lld", (long long)next, (long long)micro);
        changes_count(p, change, "-b", next);
        if (!changes_read(job, "-d"))
            changes_count(p, change, "-d", job->batch.global * job->batch.sequence);
    }
    if (larger && job->batch.accumulation % 2 == 0)
        changes_count(p,
                      changes_propose(p, JOB_CHANGE_MICRO_BATCH, "micro-batch %lld instead of %lld",
                                      (long long)(2 * micro), (long long)micro),
                      "-b", 2 * micro);
}

static const struct framework_modules modules = {
    .library = library,
    .workload = set_workload,
    .optimizer = "adamw",
};

const struct framework llmc_framework = {
    .name = "llm.c",
    .version = VERSION,
    .binaries = "train_gpt2cu train_gpt2fp32cu",
    .vital = "-e -b -t",
    .is = is,
    .read = read,
    .changes = changes,
    .modules = &modules,
};
