#include "jobs/unread_frameworks.h"

#include "base/text.h"

#include <string.h>

static const struct {
    const char *program;
    const char *command; /* the word behind it; NULL: any */
    const char *framework;
} known[] = {
    {"tune", "run", "torchtune"},
    {"litgpt", "pretrain", "LitGPT"},
    {"litgpt", "finetune", "LitGPT"},
    {"litgpt", "finetune_full", "LitGPT"},
    {"litgpt", "finetune_lora", "LitGPT"},
    {"litgpt", "finetune_adapter", "LitGPT"},
    {"litgpt", "finetune_adapter_v2", "LitGPT"},
    {"swift", "sft", "ms-swift"},
    {"swift", "pt", "ms-swift"},
    {"swift", "rlhf", "ms-swift"},
    {"deepy.py", NULL, "GPT-NeoX"},
    {"composer", NULL, "Composer"},
    {"colossalai", "run", "Colossal-AI"},
    {"nemo", "llm", "NeMo"},
    {"unsloth-cli.py", NULL, "Unsloth"},
    {"torchx", "run", "TorchX"},
};

/* What a shell's words begin with before the program: "CUDA_VISIBLE_DEVICES=0", "python", "uv run". */
static bool stands_before(const char *word)
{
    static const char *const names[] = {"python", "python3", "uv",  "run",   "exec",
                                        "nohup",  "srun",    "env", "poetry"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(text_base_name(word), names[i]))
            return true;
    return word[0] == '-' || (strchr(word, '=') && word[0] != '/');
}

const char *unread_frameworks_find(const struct words *command)
{
    int at = 0;
    while (at < command->count && stands_before(command->list[at].text))
        at++;
    for (size_t i = 0; at < command->count && i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(text_base_name(command->list[at].text), known[i].program) &&
            (!known[i].command ||
             (at + 1 < command->count && !strcmp(command->list[at + 1].text, known[i].command))))
            return known[i].framework;
    return NULL;
}
