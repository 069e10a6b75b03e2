/* Models known by their names on the hub against the numbers of parameters that were published of them. */
#include "model/hub_models.h"

#include "jobs/job_model.h"
#include "tests/test.h"

#include <string.h>

enum {
    /* Files of BERT's weights have a pooler (h x h + h) and a classifier of two sentences (2 h + 2) too; some have the first. */
    BASE_POOLER = 768 * 768 + 768,
    BASE_ENDS = BASE_POOLER + 2 * 768 + 2,
    LARGE_POOLER = 1024 * 1024 + 1024,
    LARGE_ENDS = LARGE_POOLER + 2 * 1024 + 2,
    /* Files of GPT-2's weights have the mask of each layer, T x T. */
    GPT2_MASK = 1024 * 1024,
};

/* The first name of each model. GPT-2 and the BERTs: a table of the hub's files of 2023, temp.md of huggingface/safetensors. Pythia
 * and GPT-NeoX: their README and model card. DeepSeek-V3: without the layer that predicts further tokens, as in its report. The
 * others: the elements that the hub counts in their safetensors files. */
static const struct {
    const char *name;
    int64_t parameters;
} published[] = {
    {"gpt2", 137022720 - 12LL * GPT2_MASK},
    {"gpt2-medium", 379988992 - 24LL * GPT2_MASK},
    {"gpt2-large", 811778816 - 36LL * GPT2_MASK},
    {"gpt2-xl", 1557611200},
    {"distilgpt2", 88204032 - 6LL * GPT2_MASK},
    {"bert-base-uncased", 110106428 - BASE_ENDS},
    {"bert-base-cased", 108932934 - BASE_ENDS},
    {"bert-base-multilingual-cased", 178566653 - BASE_ENDS},
    {"bert-base-multilingual-uncased", 168055961 - BASE_ENDS},
    {"bert-base-chinese", 102882442 - BASE_ENDS},
    {"bert-large-uncased", 336226108 - LARGE_ENDS},
    {"bert-large-cased", 334661958 - LARGE_ENDS},
    {"roberta-base", 124697433},
    {"roberta-large", 355412057},
    {"distilroberta-base", 82760793 - BASE_POOLER},
    {"xlm-roberta-base", 278885778 - BASE_POOLER},
    {"xlm-roberta-large", 561192082 - LARGE_POOLER},
    {"meta-llama/Llama-2-7b-hf", 6738415616},
    {"meta-llama/Llama-2-13b-hf", 13015864320},
    {"meta-llama/Llama-2-70b-hf", 68976648192},
    {"meta-llama/Meta-Llama-3-8B", 8030261248},
    {"meta-llama/Meta-Llama-3-70B", 70553706496},
    {"meta-llama/Llama-3.1-8B", 8030261248},
    {"meta-llama/Llama-3.1-70B", 70553706496},
    {"meta-llama/Llama-3.1-405B", 405853388800},
    {"meta-llama/Llama-3.2-1B", 1235814400},
    {"meta-llama/Llama-3.2-3B", 3212749824},
    {"huggyllama/llama-7b", 6738415616},
    {"huggyllama/llama-13b", 13015864320},
    {"huggyllama/llama-30b", 32528943616},
    {"huggyllama/llama-65b", 65285660672},
    {"lmsys/vicuna-7b-v1.5", 6738415616},
    {"lmsys/vicuna-13b-v1.5", 13015864320},
    {"codellama/CodeLlama-7b-hf", 6738546688},
    {"codellama/CodeLlama-13b-hf", 13016028160},
    {"codellama/CodeLlama-34b-hf", 33743970304},
    {"01-ai/Yi-6B", 6061035520},
    {"01-ai/Yi-1.5-9B", 8829407232},
    {"01-ai/Yi-34B", 34388917248},
    {"deepseek-ai/deepseek-llm-7b-base", 6910365696},
    {"deepseek-ai/deepseek-coder-1.3b-base", 1346471936},
    {"deepseek-ai/deepseek-coder-6.7b-base", 6740512768},
    {"deepseek-ai/deepseek-coder-33b-base", 33342991360},
    {"tiiuae/Falcon3-1B-Base", 1669408768},
    {"tiiuae/Falcon3-3B-Base", 3227655168},
    {"tiiuae/Falcon3-7B-Base", 7455550464},
    {"tiiuae/Falcon3-10B-Base", 10305653760},
    {"mistralai/Mistral-7B-v0.1", 7241732096},
    {"mistralai/Mistral-7B-v0.3", 7248023552},
    {"mistralai/Mistral-Nemo-Base-2407", 12247782400},
    {"mistralai/Mistral-Small-24B-Base-2501", 23572403200},
    {"mistralai/Mixtral-8x7B-v0.1", 46702792704},
    {"mistralai/Mixtral-8x22B-v0.1", 140630071296},
    {"Qwen/Qwen2-0.5B", 494032768},
    {"Qwen/Qwen2-1.5B", 1543714304},
    {"Qwen/Qwen2.5-3B", 3085938688},
    {"Qwen/Qwen2-7B", 7615616512},
    {"Qwen/Qwen2.5-14B", 14770033664},
    {"Qwen/Qwen2.5-32B", 32763876352},
    {"Qwen/Qwen2-72B", 72706203648},
    {"Qwen/Qwen2.5-Coder-0.5B", 494032768},
    {"Qwen/Qwen2.5-Coder-1.5B", 1543714304},
    {"Qwen/Qwen2.5-Coder-3B", 3085938688},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1777088000},
    {"Qwen/Qwen2.5-Coder-7B", 7615616512},
    {"Qwen/Qwen2.5-Coder-14B", 14770033664},
    {"Qwen/Qwen2.5-Coder-32B", 32763876352},
    {"Qwen/Qwen2.5-Math-72B", 72706203648},
    {"Qwen/Qwen3-0.6B", 596049920},
    {"Qwen/Qwen3-1.7B", 1720574976},
    {"Qwen/Qwen3-4B", 4022468096},
    {"Qwen/Qwen3-8B", 8190735360},
    {"Qwen/Qwen3-14B", 14768307200},
    {"Qwen/Qwen3-32B", 32762123264},
    {"Qwen/Qwen3-30B-A3B", 30532122624},
    {"Qwen/Qwen3-235B-A22B", 235093634560},
    {"deepseek-ai/DeepSeek-V2-Lite", 15706484224},
    {"deepseek-ai/DeepSeek-V2", 235741434880},
    {"deepseek-ai/DeepSeek-V3", 671026419200},
    {"microsoft/Phi-3-mini-4k-instruct", 3821079552},
    {"microsoft/Phi-4-mini-instruct", 3836021760},
    {"microsoft/phi-4", 14659507200},
    {"allenai/OLMo-2-0425-1B", 1484916736},
    {"allenai/OLMo-2-1124-7B", 7298617344},
    {"allenai/OLMo-2-1124-13B", 13716198400},
    {"allenai/OLMo-2-0325-32B", 32234279936},
    {"TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T", 1100048384},
    {"HuggingFaceTB/SmolLM2-135M", 134515008},
    {"HuggingFaceTB/SmolLM2-360M", 361821120},
    {"HuggingFaceTB/SmolLM2-1.7B", 1711376384},
    {"EleutherAI/pythia-14m", 14067712},
    {"EleutherAI/pythia-31m", 30494720},
    {"EleutherAI/pythia-70m", 70426624},
    {"EleutherAI/pythia-160m", 162322944},
    {"EleutherAI/pythia-410m", 405334016},
    {"EleutherAI/pythia-1b", 1011781632},
    {"EleutherAI/pythia-1.4b", 1414647808},
    {"EleutherAI/pythia-2.8b", 2775208960},
    {"EleutherAI/pythia-6.9b", 6857302016},
    {"EleutherAI/pythia-12b", 11846072320},
    {"EleutherAI/gpt-neox-20b", 20554567680},
    {"EleutherAI/gpt-j-6b", 6050882784},
    {"microsoft/phi-1", 1418270720},
    {"microsoft/phi-2", 2779683840},
    {"google/gemma-2b", 2506172416},
    {"google/gemma-7b", 8537680896},
    {"google/gemma-2-2b", 2614341888},
    {"google/gemma-2-9b", 9241705984},
    {"google/gemma-2-27b", 27227128320},
    {"google/gemma-3-1b-pt", 999885952},
    {"google/gemma-3-270m", 268098176},
    {"tiiuae/falcon-7b", 6921720704},
    {"tiiuae/falcon-40b", 41303293952},
    {"facebook/opt-125m", 125239296},
    {"facebook/opt-1.3b", 1315758080},
    {"facebook/opt-2.7b", 2651596800},
    {"facebook/opt-6.7b", 6658473984},
    {"facebook/opt-13b", 12853473280},
    {"facebook/opt-30b", 29974540288},
    {"bigscience/bloom-560m", 559214592},
    {"bigscience/bloom-1b1", 1065314304},
    {"bigscience/bloom-1b7", 1722408960},
    {"bigscience/bloom-3b", 3002557440},
    {"bigscience/bloom-7b1", 7069016064},
    {"bigscience/bloom", 176247271424},
};

enum { PUBLISHED = sizeof published / sizeof published[0] };

static void read_known(const char *name, struct job_model *out)
{
    struct error err = {0};
    json_t *config = hub_models_config(name);
    ASSERT_MSG(config, "%s: its row is no JSON", name);
    ASSERT_MSG(!job_model_from_config(config, name, out, &err), "%s: %s", name, err.text);
    json_decref(config);
}

/* Of those that no rule of `memplan check` is about the trainer's reader counts. */
static bool is_checked(const char *name)
{
    return strncmp(name, "allenai/OLMo-2-", 15) != 0;
}

static int64_t count_parameters(const char *name)
{
    struct error err = {0};
    struct job_model job;
    struct model model;
    if (is_checked(name)) {
        read_known(name, &job);
        ASSERT_STR(job.name, hub_models_short_name(name));
        return job_model_parameters(&job);
    }
    json_t *config = hub_models_config(name);
    ASSERT_MSG(!model_from_json(config, name, &model, &err), "%s: %s", name, err.text);
    ASSERT_MSG(job_model_from_config(config, name, &job, &err), "%s is read for `memplan check`", name);
    json_decref(config);
    return model_parameters(&model);
}

/* Rows that differ in positions alone follow the one that has the count. */
TEST(hub_models_parameters, "every model known by a name of the hub has its published number of parameters")
{
    int at = -1;
    for (const char *const *name = hub_models_names(); *name; name++) {
        if (at + 1 < PUBLISHED && !strcmp(published[at + 1].name, *name))
            at++;
        ASSERT(at >= 0);
        int64_t count = count_parameters(*name);
        ASSERT_MSG(count == published[at].parameters, "%s: %lld and not %lld", *name, (long long)count,
                   (long long)published[at].parameters);
    }
    ASSERT_INT(at, PUBLISHED - 1);
}

TEST(hub_models_trained, "those of a family that memplan trains have as many for its own commands")
{
    int trained = 0;
    for (const char *const *name = hub_models_names(); *name; name++) {
        struct job_model job;
        struct model model;
        json_t *config = hub_models_config(*name);
        const char *type = json_string_value(json_object_get(config, "model_type"));
        if (!strcmp(type, "gpt2") || !strcmp(type, "llama") || !strcmp(type, "mistral") ||
            !strcmp(type, "qwen2")) {
            struct error err = {0};
            ASSERT_MSG(!model_from_json(config, *name, &model, &err), "%s: %s", *name, err.text);
            read_known(*name, &job);
            ASSERT_INT(model_parameters(&model), job_model_parameters(&job));
            ASSERT_INT(model.max_seq_len, job.max_seq_len);
            trained++;
        }
        json_decref(config);
    }
    ASSERT(trained > 40);
}

TEST(hub_models_mirrors,
     "copies that others keep under a model's own name are that model, and their other models are not")
{
    static const char *const copies[][2] = {
        {"NousResearch/Llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"},
        {"NousResearch/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B"},
        {"unsloth/Llama-3.2-1B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"},
        {"unsloth/Qwen2.5-7B", "Qwen/Qwen2.5-7B"},
    };
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++) {
        json_t *copy = hub_models_config(copies[i][0]), *model = hub_models_config(copies[i][1]);
        ASSERT_MSG(copy && json_equal(copy, model), "%s", copies[i][0]);
        json_decref(copy);
        json_decref(model);
    }
    ASSERT(!hub_models_config("unsloth/phi-4")); /* as another type */
    ASSERT(!hub_models_config("unsloth/Meta-Llama-3.1-8B-bnb-4bit"));
    ASSERT(!hub_models_config("NousResearch/Hermes-3-Llama-3.1-8B"));
    ASSERT(!hub_models_config("unsloth/"));
}

TEST(hub_models_by_name, "a name is known as it is written, once, and no other name for being like it")
{
    const char *const *names = hub_models_names();
    ASSERT(!hub_models_config("meta-llama/Llama-3.1-8B-Chat"));
    ASSERT(!hub_models_config("llama-3.1-8b"));
    ASSERT(!hub_models_config(""));
    for (int i = 0; names[i]; i++)
        for (int k = i + 1; names[k]; k++)
            ASSERT_MSG(strcmp(names[i], names[k]), "%s is there twice", names[i]);
}
