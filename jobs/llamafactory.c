/* LLaMA-Factory 0.9: its own options stand beside those of Hugging Face's Trainer, mostly in YAML. All that is known of it is in
 * this file. */
#include "jobs/llamafactory.h"

#include "jobs/hf.h"
#include "jobs/hf_keys.h"

#include <stdlib.h>
#include <string.h>

#define VERSION "LLaMA-Factory 0.9"

/* ---- options ---- */

enum { TUNING, STAGE, ATTENTION, BITS }; /* texts */
enum { KEEPS_ALL, PURE };                /* switches */

/* src/llamafactory/hparams/model_args.py, data_args.py, finetuning_args.py */
static const struct setting_rule rules[] = {
    COUNT("--cutoff_len", batch.sequence, "2048"),
    TEXT("--stage", own[STAGE], "sft"),
    TEXT("--finetuning_type", own[TUNING], "lora"),
    TEXT("--flash_attn", own[ATTENTION], "auto"),
    BOOL("--disable_gradient_checkpointing", own_switch[KEEPS_ALL], "false"),
    BOOL("--pure_bf16", own_switch[PURE], "false"),
    TEXT("--quantization_bit", own[BITS], NULL),
    BOOL("--enable_liger_kernel", kernels.liger, "false"),
    COUNT("--lora_rank", switches.lora_rank, "8"),
    LIST("--lora_target", adapter.targets),
    BEYOND("--additional_target", "modules trained whole beside adapters", ""),
    BEYOND("--resize_vocab", "a vocabulary that grows", "false"),
    BEYOND("--mixture_of_depths", "mixtures of depths", ""),
    BEYOND("--shift_attn", "shifted attention", "false"),
    BEYOND("--upcast_layernorm", "norms in fp32", "false"),
    BEYOND("--upcast_lmhead_output", "logits in fp32", "false"),
    BEYOND("--use_unsloth", "Unsloth's kernels", "false"),
    BEYOND("--use_unsloth_gc", "Unsloth's recomputation", "false"),
    BEYOND("--use_llama_pro", "layers that are added", "false"),
    BEYOND("--use_galore", "GaLore", "false"),
    BEYOND("--use_apollo", "APOLLO", "false"),
    BEYOND("--use_badam", "BAdam", "false"),
    BEYOND("--use_muon", "Muon", "false"),
    BEYOND("--use_adam_mini", "Adam-mini", "false"),
    BEYOND("--fp8", "fp8 through accelerate", "false"),
    {0},
};

static const char irrelevant[] =
    "--adapter_* --add_* --buffer_size --compute_accuracy --create_new_adapter --dataset "
    "--double_quantization "
    "--eval_dataset --export_* --freeze_* --image_* --infer_* --interleave_probs --lora_dropout --loraplus_* "
    "--mask_history --max_samples --media_dir --mix_strategy --moe_aux_loss_coef --ms_hub_token "
    "--neat_packing "
    "--new_special_tokens_config --pissa_* --plot_loss --print_param_status --quantization_method "
    "--quantization_type --rope_scaling --split_special_tokens --swanlab_* --template --tokenized_path "
    "--tool_format --train_on_prompt --use_kv_cache --use_reentrant_gc --use_swanlab --val_size --video_*";

/* Behind a file stand "key=value" without dashes. */
static struct words with_dashes(const struct words *given, struct arena *arena)
{
    struct words out = {arena_array(arena, (size_t)given->count + 1, sizeof(struct word)), given->count};
    bool file = hf_options_file(given) == 0;
    for (int i = 0; i < given->count; i++) {
        out.list[i] = given->list[i];
        if (file && i && strchr(given->list[i].text, '=') && given->list[i].text[0] != '-')
            out.list[i].text = arena_printf(arena, "--%s", given->list[i].text);
    }
    return out;
}

/* ---- what they mean ---- */

/* hparams/parser.py and model/adapter.py: weights are loaded in the type that is computed in, and what is trained is raised to fp32
 * unless --pure_bf16 says otherwise. */
static void set_type(struct training_job *job)
{
    struct job_switches *s = &job->switches;
    bool pure = job->own_switch[PURE], frozen = s->peft;
    const char *computed = s->bf16 || pure ? "bfloat16" : s->fp16 ? "float16" : "float32";
    s->dtype = frozen || pure ? computed : "float32";
    job_note(job, FACT_DERIVED, "weights", s->dtype,
             frozen ? "frozen ones have the type that is computed in" : "what is trained is raised to fp32");
}

static void set_attention(struct training_job *job)
{
    static const struct {
        const char *name;
        enum job_kernel kernel;
    } names[] = {{"auto", JOB_SDPA},
                 {"sdpa", JOB_SDPA},
                 {"fa2", JOB_FLASH},
                 {"fa3", JOB_FLASH3},
                 {"disabled", JOB_EAGER}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(job->own[ATTENTION], names[i].name))
            job->kernels.attention = names[i].kernel;
}

static void set_switches(struct training_job *job)
{
    struct job_switches *s = &job->switches;
    const char *tuning = job->own[TUNING], *stage = job->own[STAGE], *bits = job->own[BITS];
    struct arena *arena = job->facts.arena;
    s->peft = !strcmp(tuning, "lora");
    if (!s->peft && strcmp(tuning, "full") && !job->beyond)
        job->beyond =
            arena_printf(arena, "tuning of other kinds than lora and full (finetuning_type: %.20s)", tuning);
    if (strcmp(stage, "sft") && strcmp(stage, "pt") && !job->beyond)
        job->beyond = arena_printf(arena, "training that compares or rewards answers (stage: %.20s)", stage);
    if (s->peft && (!job->adapter.targets || !strcmp(job->adapter.targets, "all")))
        job->adapter.targets = "all-linear";
    s->load_4bit = bits && !strcmp(bits, "4");
    s->load_8bit = bits && !strcmp(bits, "8");
    s->gradient_checkpointing = !job->own_switch[KEEPS_ALL];
    set_type(job);
    set_attention(job);
}

static int read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                struct error *err)
{
    struct setting_table table = hf_options_with(
        &(struct setting_table){rules, irrelevant, VERSION " on " HF_VERSION, true}, job->facts.arena);
    struct words arguments = with_dashes(&launch->arguments, job->facts.arena);
    if (hf_read_options(job, &table, &arguments, files, err) || setting_defaults(&table, job, err))
        return -1;
    set_switches(job);
    return hf_complete(job, &table, files, err);
}

/* ---- its launches ---- */

static int64_t number(struct training_job *job, const struct job_files *files, const char *name)
{
    struct word found;
    return job_environment_find(job, files, name, &found) && !found.unknown ? strtoll(found.text, NULL, 10)
                                                                            : 0;
}

/* cli.py: torchrun with as many processes as there are GPUs, unless these variables say otherwise. */
static int count_processes(struct training_job *job, const struct launch *launch,
                           const struct job_files *files, struct error *err)
{
    int64_t nodes = number(job, files, "NNODES"), each = number(job, files, "NPROC_PER_NODE");
    (void)launch;
    (void)err;
    each = each ? each : job_environment_devices(job, files);
    job->launch.nodes = nodes > 0 && nodes < JOB_MOST_RANKS ? nodes : 1;
    job->launch.processes_per_node = each > 0 && each < JOB_MOST_RANKS ? each : 0;
    return 0;
}

static const struct launcher command = {
    .name = "llamafactory-cli",
    .words = "llamafactory-cli lmf",
    .commands = "train",
    .trains = true,
    .is_program = true,
    .counts = true,
    .read = count_processes,
};

static bool is(const struct launch *launch)
{
    return launcher_was_met(launch, &command) || strstr(launch->program, "llamafactory");
}

/* ---- what could be written otherwise ---- */

static const struct hf_key keys[] = {
    {"--gradient_checkpointing", "True", "disable_gradient_checkpointing", "false"},
    {"--gradient_checkpointing", "False", "disable_gradient_checkpointing", "true"},
    {"--use_liger_kernel", NULL, "enable_liger_kernel", NULL},
    {"--attn_implementation", "sdpa", "flash_attn", "sdpa"},
    {"--load_in_4bit", NULL, "quantization_bit", "4"},
    {0},
};

static void changes(struct proposals *p, bool larger)
{
    int first = p->out->count;
    hf_changes(p, larger);
    hf_keys_rename(p, first, keys, changes_file_of(p->job, "--model_name_or_path"));
}

const struct framework llamafactory_framework = {
    .name = "LLaMA-Factory",
    .version = VERSION,
    .launcher = &command,
    .keys = "finetuning_type cutoff_len model_name_or_path",
    .launch = "llamafactory-cli train FILE",
    .vital = HF_VITAL,
    .is = is,
    .read = read,
    .changes = changes,
    .modules = &hf_modules,
};
