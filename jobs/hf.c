/* Hugging Face's Trainer as an entry of the table: how its launches look, and what its modules do. */
#include "jobs/hf.h"

#include "base/text.h"
#include "jobs/hf_programs.h"

#include <string.h>

static bool has_option(const struct launch *launch, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < launch->arguments.count; i++) {
        const char *text = launch->arguments.list[i].text;
        if (!strncmp(text, name, length) && (!text[length] || text[length] == '='))
            return true;
    }
    return false;
}

bool hf_is_json(const char *file)
{
    return text_ends_with(file, ".json");
}

/* HfArgumentParser takes one as the first argument, TrlParser behind --config. */
int hf_options_file(const struct words *w)
{
    for (int i = 0; i < w->count; i++) {
        const char *text = w->list[i].text;
        bool named = i && !strcmp(w->list[i - 1].text, "--config");
        bool file = hf_is_json(text) || text_ends_with(text, ".yaml") || text_ends_with(text, ".yml");
        if (file && text[0] != '-' && (!i || named))
            return i;
    }
    return -1;
}

/* Those of TRL read files of options behind --config, whatever they train. */
static bool names_trl(const char *program)
{
    enum hf_program kind = hf_program_kind(program, NULL);
    return kind == HF_TRL || kind == HF_OTHER;
}

static bool is(const struct launch *launch)
{
    const struct words *w = &launch->arguments;
    int file = hf_options_file(w);
    return has_option(launch, "--model_name_or_path") ||
           has_option(launch, "--per_device_train_batch_size") || has_option(launch, "--config_name") ||
           has_option(launch, "--output_dir") || file == 0 || (file > 0 && names_trl(launch->program));
}

static enum workload_library library(const struct training_job *job)
{
    (void)job;
    return WORKLOAD_TRANSFORMERS;
}

static void set_workload(const struct training_job *job, struct workload *w)
{
    int attention = job->kernels.attention;
    if (job->model.classes) {
        w->loss = WORKLOAD_LOSS_CLASSES;
        w->logits_held = 0;
    }
    /* Those take fewer keys than queries as they are (transformers/integrations/flash_attention.py, flex_attention.py). */
    if (attention == JOB_FLASH || attention == JOB_FLEX || attention == JOB_FLASH3)
        w->keys_expanded = false;
}

static const char *foreign(const struct training_job *job, const struct workload *w)
{
    (void)w;
    return job->kernels.fp8 ? "fp8 through accelerate (mixed_precision)" : NULL;
}

/* transformers/training_args.py, OptimizerNames; bitsandbytes' kernels need no temporaries. */
static const struct optimizer_rule optimizers[] = {
    {"adamw_torch", WORKLOAD_ADAM, WORKLOAD_STEP_FOREACH, 0},
    {"adamw_torch_fused", WORKLOAD_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"adamw_apex_fused", WORKLOAD_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"adamw_anyprecision", WORKLOAD_ADAM, WORKLOAD_STEP_LOOP, 4},
    {"adamw_torch_8bit", WORKLOAD_ADAM8, WORKLOAD_STEP_LOOP, 0},
    {"adamw_bnb_8bit", WORKLOAD_ADAM8, WORKLOAD_STEP_FUSED, 0},
    {"adamw_8bit", WORKLOAD_ADAM8, WORKLOAD_STEP_FUSED, 0},
    {"paged_adamw", WORKLOAD_PAGED_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"paged_adamw_32bit", WORKLOAD_PAGED_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"paged_adamw_8bit", WORKLOAD_PAGED_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"adafactor", WORKLOAD_ADAFACTOR, WORKLOAD_STEP_LOOP, 0},
    {"rmsprop_bnb", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 4},
    {"rmsprop_bnb_32bit", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 4},
    {"rmsprop_bnb_8bit", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 1},
    {"lion_32bit", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 4},
    {"lion_8bit", WORKLOAD_SGD_MOMENTUM, WORKLOAD_STEP_FUSED, 1},
    {"paged_lion_32bit", WORKLOAD_PAGED_ADAM, WORKLOAD_STEP_FUSED, 0},
    {"paged_lion_8bit", WORKLOAD_PAGED_ADAM, WORKLOAD_STEP_FUSED, 0},
    {0},
};

const struct framework_modules hf_modules = {
    .library = library,
    .workload = set_workload,
    .foreign = foreign,
    .optimizers = optimizers,
    .optimizer = "adamw_torch",
};

/* trl, which calls accelerate. */
static const struct launcher trl = {
    .name = "trl",
    .words = "trl",
    .commands = "sft dpo kto reward",
    .trains = true,
    .is_program = true,
    .counts = true,
};

const struct framework hf_framework = {
    .name = "Hugging Face Trainer",
    .version = HF_VERSION,
    .programs = "run_clm* run_mlm* run_sft* sft* dpo* grpo* orpo* kto* ppo* rloo* gkd* reward* qlora*",
    .launcher = &trl,
    .vital = HF_VITAL,
    .is = is,
    .read = hf_read,
    .changes = hf_changes,
    .modules = &hf_modules,
};
