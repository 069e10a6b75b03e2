/* Shapes as published: GPT-2 (Radford et al. 2019, OpenAI's hparams), GPT-3 (Brown et al. 2020, table 2.1), Llama 2
 * (Touvron et al. 2023), Llama 3 (Grattafiori et al. 2024, table 3), Qwen3 (Yang et al. 2025, table 1), OLMo 2 (Walsh et al.
 * 2025, table 2) and Gemma (Gemma Team 2024, table 1; 2025) with the config.json of each. The tiny ones are for tests and demonstrations. */
#include "model/presets.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#define GPT2(NAME, L, C, H, V, T)                                                                            \
    {                                                                                                        \
        .name = NAME, .family = MODEL_GPT2, .layers = L, .hidden = C, .heads = H, .kv_heads = H,             \
        .head_size = (C) / (H), .ffn = 4 * (C), .vocab = V, .max_seq_len = T, .norm_eps = 1e-5,              \
        .tied = true, .qkv_bias = true, .proj_bias = true, .usual_batch = 1                                  \
    }

#define LLAMA(NAME, L, C, H, K, F, V, T, THETA)                                                              \
    {                                                                                                        \
        .name = NAME, .family = MODEL_LLAMA, .layers = L, .hidden = C, .heads = H, .kv_heads = K,            \
        .head_size = (C) / (H), .ffn = F, .vocab = V, .max_seq_len = T, .norm_eps = 1e-5,                    \
        .rope_theta = THETA, .usual_batch = 1                                                                \
    }

/* Heads of 128 whatever the hidden size. */
#define QWEN3(NAME, L, C, H, F, TIED)                                                                        \
    {                                                                                                        \
        .name = NAME, .family = MODEL_LLAMA, .layers = L, .hidden = C, .heads = H, .kv_heads = 8,            \
        .head_size = 128, .ffn = F, .vocab = 151936, .max_seq_len = 40960, .norm_eps = 1e-6,                 \
        .rope_theta = 1000000, .tied = TIED, .qk_norm = true, .usual_batch = 1                               \
    }

/* Norms behind attention and the feed-forward, and of whole queries and keys. */
#define OLMO2(NAME, L, C, H, K, F, V, T, THETA, EPS)                                                         \
    {                                                                                                        \
        .name = NAME, .family = MODEL_LLAMA, .layers = L, .hidden = C, .heads = H, .kv_heads = K,            \
        .head_size = (C) / (H), .ffn = F, .vocab = V, .max_seq_len = T, .norm_eps = EPS,                     \
        .rope_theta = THETA, .qk_norm = true, .qk_norm_whole = true, .norms = NORMS_BEHIND, .usual_batch = 1 \
    }

/* Heads of 256, weights of norms less one, GELU's gates, and an embedding that is the head too and scaled. */
#define GEMMA(NAME, L, C, H, K, D, F, V, T)                                                                  \
    {                                                                                                        \
        .name = NAME, .family = MODEL_LLAMA, .layers = L, .hidden = C, .heads = H, .kv_heads = K,            \
        .head_size = D, .ffn = F, .vocab = V, .max_seq_len = T, .norm_eps = 1e-6, .rope_theta = 10000,       \
        .tied = true, .norm_add_one = true, .gelu_gate = true, .scale_embedding = true, .usual_batch = 1     \
    }

/* Gemma's, with norms around attention and feed-forward and of queries and keys, and windows but in every so many-th layer. */
#define GEMMA3(NAME, L, C, D, F, V, T, WINDOW, EVERY)                                                        \
    {                                                                                                        \
        .name = NAME, .family = MODEL_LLAMA, .layers = L, .hidden = C, .heads = 4, .kv_heads = 1,            \
        .head_size = D, .ffn = F, .vocab = V, .max_seq_len = T, .norm_eps = 1e-6, .rope_theta = 1e6,         \
        .tied = true, .qk_norm = true, .norms = NORMS_AROUND, .norm_add_one = true, .gelu_gate = true,       \
        .scale_embedding = true, .window = WINDOW, .full_every = EVERY, .local_theta = 10000,                \
        .query_scalar = D, .usual_batch = 1                                                                  \
    }

#define ENCODER(NAME, L, C, H, CLASSES, T, BATCH)                                                            \
    {                                                                                                        \
        .name = NAME, .family = MODEL_ENCODER, .layers = L, .hidden = C, .heads = H, .kv_heads = H,          \
        .head_size = (C) / (H), .ffn = 4 * (C), .vocab = CLASSES, .max_seq_len = T, .norm_eps = 1e-5,        \
        .qkv_bias = true, .proj_bias = true, .usual_batch = BATCH                                            \
    }

static const struct model presets[] = {
    ENCODER("block-768", 1, 768, 12, 100, 512, 4),
    GPT2("gpt2-124m", 12, 768, 12, 50257, 1024),
    GPT2("gpt2-355m", 24, 1024, 16, 50257, 1024),
    GPT2("gpt2-774m", 36, 1280, 20, 50257, 1024),
    GPT2("gpt2-1558m", 48, 1600, 25, 50257, 1024),
    GPT2("gpt3-175b", 96, 12288, 96, 50257, 2048),
    LLAMA("llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4096, 10000),
    LLAMA("llama2-13b", 40, 5120, 40, 40, 13824, 32000, 4096, 10000),
    LLAMA("llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096, 10000),
    LLAMA("llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192, 500000),
    LLAMA("llama3-70b", 80, 8192, 64, 8, 28672, 128256, 8192, 500000),
    LLAMA("llama3-405b", 126, 16384, 128, 8, 53248, 128256, 8192, 500000),
    QWEN3("qwen3-0.6b", 28, 1024, 16, 3072, true),
    QWEN3("qwen3-8b", 36, 4096, 32, 12288, false),
    QWEN3("qwen3-32b", 64, 5120, 64, 25600, false),
    OLMO2("olmo2-1b", 16, 2048, 16, 16, 8192, 100352, 4096, 500000, 1e-6),
    OLMO2("olmo2-7b", 32, 4096, 32, 32, 11008, 100352, 4096, 500000, 1e-6),
    OLMO2("olmo2-13b", 40, 5120, 40, 40, 13824, 100352, 4096, 500000, 1e-6),
    GEMMA("gemma-2b", 18, 2048, 8, 1, 256, 16384, 256000, 8192),
    GEMMA("gemma-7b", 28, 3072, 16, 16, 256, 24576, 256000, 8192),
    GEMMA3("gemma3-270m", 18, 640, 256, 2048, 262144, 32768, 512, 6),
    GEMMA3("gemma3-1b", 26, 1152, 256, 6912, 262144, 32768, 512, 6),
    GPT2("gpt2-tiny", 2, 32, 4, 256, 64),
    GPT2("gpt2-small-bytes", 6, 256, 8, 256, 256),
    LLAMA("llama-tiny", 2, 32, 4, 2, 88, 256, 64, 10000),
    {.name = "qwen3-tiny",
     .family = MODEL_LLAMA,
     .layers = 2,
     .hidden = 32,
     .heads = 4,
     .kv_heads = 2,
     .head_size = 16,
     .ffn = 88,
     .vocab = 256,
     .max_seq_len = 64,
     .norm_eps = 1e-6,
     .rope_theta = 10000,
     .tied = true,
     .qk_norm = true,
     .usual_batch = 1},
    OLMO2("olmo2-tiny", 2, 32, 4, 2, 88, 256, 64, 10000, 1e-3),
    GEMMA("gemma-tiny", 2, 32, 4, 2, 16, 88, 256, 64),
    {.name = "gemma3-tiny",
     .family = MODEL_LLAMA,
     .layers = 2,
     .hidden = 32,
     .heads = 4,
     .kv_heads = 2,
     .head_size = 16,
     .ffn = 88,
     .vocab = 256,
     .max_seq_len = 64,
     .norm_eps = 1e-3,
     .rope_theta = 1e6,
     .tied = true,
     .qk_norm = true,
     .norms = NORMS_AROUND,
     .norm_add_one = true,
     .gelu_gate = true,
     .scale_embedding = true,
     .window = 5,
     .full_every = 2,
     .local_theta = 10000,
     .query_scalar = 12,
     .usual_batch = 1},
    ENCODER("block-tiny", 2, 32, 4, 10, 64, 2),
};

enum { PRESETS = sizeof presets / sizeof presets[0] };

const struct model *presets_find(const char *name)
{
    for (int i = 0; i < PRESETS; i++)
        if (!strcmp(presets[i].name, name))
            return &presets[i];
    return NULL;
}

const char *const *presets_names(void)
{
    static const char *names[PRESETS + 1];
    for (int i = 0; i < PRESETS; i++)
        names[i] = presets[i].name;
    return names;
}

/* The same shapes: the tests hold them to what the hub's own config.json says. */
static const struct {
    const char *preset, *hub, *others; /* others: joined by spaces */
} names[] = {
    {"gpt2-124m", "openai-community/gpt2", "gpt2 gpt2-small gpt-2 gpt2-117m gpt2-125m gpt2-0.1b"},
    {"gpt2-355m", "openai-community/gpt2-medium", "gpt2-medium gpt2-345m gpt2-350m"},
    {"gpt2-774m", "openai-community/gpt2-large", "gpt2-large gpt2-762m gpt2-0.8b"},
    {"gpt2-1558m", "openai-community/gpt2-xl", "gpt2-xl gpt2-1.5b gpt2-1542m gpt2-1.6b"},
    {"gpt3-175b", NULL, "gpt3 gpt-3 gpt-3-175b"},
    {"llama2-7b", "meta-llama/Llama-2-7b-hf", "llama-2-7b llama-7b llama2 llama-2"},
    {"llama2-13b", "meta-llama/Llama-2-13b-hf", "llama-2-13b llama-13b"},
    {"llama2-70b", "meta-llama/Llama-2-70b-hf", "llama-2-70b"},
    {"llama3-8b", "meta-llama/Meta-Llama-3-8B", "llama-3-8b llama3 llama-3 llama3.1-8b llama-3.1-8b"},
    {"llama3-70b", "meta-llama/Meta-Llama-3-70B", "llama-3-70b llama3.1-70b llama-3.1-70b llama3.3-70b"},
    {"llama3-405b", NULL, "llama-3-405b llama3.1-405b llama-3.1-405b"},
    {"qwen3-0.6b", "Qwen/Qwen3-0.6B", "qwen-3-0.6b"},
    {"qwen3-8b", "Qwen/Qwen3-8B", "qwen-3-8b qwen3"},
    {"qwen3-32b", "Qwen/Qwen3-32B", "qwen-3-32b"},
    {"olmo2-1b", "allenai/OLMo-2-0425-1B", "olmo-2-1b"},
    {"olmo2-7b", "allenai/OLMo-2-1124-7B", "olmo-2-7b olmo2 olmo-2"},
    {"olmo2-13b", "allenai/OLMo-2-1124-13B", "olmo-2-13b"},
    {"gemma-2b", "google/gemma-2b", ""},
    {"gemma-7b", "google/gemma-7b", "gemma"},
    {"gemma3-270m", "google/gemma-3-270m", "gemma-3-270m"},
    {"gemma3-1b", "google/gemma-3-1b-pt", "gemma-3-1b gemma3 gemma-3"},
};

enum { NAMES = sizeof names / sizeof names[0] };

const char *presets_hub_name(const char *name)
{
    for (int i = 0; i < NAMES; i++)
        if (!strcmp(names[i].preset, name))
            return names[i].hub;
    return NULL;
}

/* Is it one of the words? */
static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (size_t here; *words; words += here + (words[here] == ' ')) {
        here = strcspn(words, " ");
        if (here == length && !strncasecmp(words, word, length))
            return true;
    }
    return false;
}

const char *presets_known_as(const char *name)
{
    for (int i = 0; i < NAMES; i++)
        if (!strcasecmp(names[i].preset, name) || has_word(names[i].others, name))
            return names[i].preset;
    return NULL;
}
