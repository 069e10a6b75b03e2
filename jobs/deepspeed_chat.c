/* DeepSpeed-Chat's supervised step (DeepSpeedExamples of 2024, applications/DeepSpeed-Chat/training/step1_supervised_finetuning):
 * --deepspeed has no file, since main.py makes the configuration from options of its own. */
#include "jobs/deepspeed_chat.h"

#include "jobs/hf.h"

#include <string.h>

#define VERSION "DeepSpeed-Chat of 2024"

enum { TYPE };

/* main.py, and utils/ds_utils.py: get_train_ds_config() */
static const struct setting_rule rules[] = {
    ON("--deepspeed", switches.deepspeed),
    CHOICE("--zero_stage", switches.zero_stage, "0|1|2|3", "0"),
    TEXT("--dtype", own[TYPE], "fp16"),
    COUNT("--per_device_train_batch_size", batch.micro, "16"),
    COUNT("--max_seq_len", batch.sequence, "512"),
    ON("--offload", optimizer.offload),
    BOOL("--gradient_checkpointing", switches.gradient_checkpointing, NULL),
    BEYOND("--lora_dim", "DeepSpeed-Chat's own adapters", "0"),
    FLAG("--compute_fp32_loss", "a loss in fp32"),
    FLAG("--enable_mixed_precision_lora", "ZeRO++'s quantized weights"),
    {0},
};

static const char irrelevant[] =
    "--add_eot_token --data_output_path --data_split --dropout --enable_tensorboard "
    "--end_of_conversation_token "
    "--eval_* --lora_learning_rate --lora_module_name --num_warmup_steps --only_optimize_lora --print_loss "
    "--sft_only_data_path --tensorboard_path";

static int read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                struct error *err)
{
    struct job_switches *s = &job->switches;
    struct job_shards *shards = &job->shards;
    struct setting_table table =
        hf_options_with(&(struct setting_table){rules, irrelevant, VERSION, true}, job->facts.arena);
    if (hf_read_options(job, &table, &launch->arguments, files, err) || setting_defaults(&table, job, err))
        return -1;
    s->bf16 = !strcmp(job->own[TYPE], "bf16");
    s->fp16 = !s->bf16;
    if (job->optimizer.offload) /* one option for both */
        shards->offload_optimizer = shards->offload_parameters = JOB_OFFLOAD_CPU;
    shards->overlap = s->zero_stage == 3;
    shards->persistence_threshold = 10000;
    shards->prefetch_bucket = shards->live_parameters = 30000000;
    job->optimizer.name = "adamw"; /* FusedAdam, or DeepSpeedCPUAdam */
    return hf_complete(job, &table, files, err);
}

/* A switch, where the Trainer's has a file behind it; and a stage beside it. */
static bool is(const struct launch *launch)
{
    const struct words *w = &launch->arguments;
    bool alone = false, stage = false;
    for (int i = 0; i < w->count; i++) {
        bool last = i + 1 == w->count || word_is_option(w->list[i + 1].text);
        alone = alone || (!strcmp(w->list[i].text, "--deepspeed") && last);
        stage = stage || !strncmp(w->list[i].text, "--zero_stage", 12);
    }
    return alone && stage;
}

/* Of ZeRO and offloading it has options, and no file to propose keys of; so nothing is proposed but what hf_changes() says of the
 * Trainer's own options that it has too. */
static void changes(struct proposals *p, bool larger)
{
    int kept = p->out->count;
    hf_changes(p, larger);
    for (int i = kept; i < p->out->count; i++) {
        const struct job_change *c = &p->out->list[i];
        if (c->kind == JOB_CHANGE_MICRO_BATCH || (c->kind == JOB_CHANGE_RECOMPUTE && !larger))
            p->out->list[kept++] = *c;
    }
    p->out->count = kept;
}

const struct framework deepspeed_chat_framework = {
    .name = "DeepSpeed-Chat",
    .version = VERSION,
    .vital = "--per_device_train_batch_size",
    .is = is,
    .read = read,
    .changes = changes,
    .modules = &hf_modules,
};
