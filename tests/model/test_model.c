/* Descriptions: the exact size of every preset, Hugging Face files as they are published, and files that are wrong in every
 * way a file can be. */
#include "model/model.h"

#include "base/arena.h"
#include "model/hub_models.h"
#include "model/parameters.h"
#include "model/presets.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct error err;

/* gpt2: a layer has 12 C^2 + 13 C (qkv 3C^2 + 3C, proj C^2 + C, mlp 8C^2 + 5C, norms 4C); around them V C + T C + 2 C.
 * llama: a layer has C (H + 2K) D + H D C + 3 F C + 2 C; around them 2 V C + C.
 * encoder: the layer of gpt2, and a head of V C + V. */
static const struct {
    const char *name;
    int64_t parameters;
} sizes[] = {
    {"block-768", 7164772},        /* 7,087,872 + 76,800 + 100 */
    {"gpt2-124m", 124439808},      /* 12 x 7,087,872 + 38,597,376 + 786,432 + 1,536 */
    {"gpt2-355m", 354823168},      /* 24 x 12,596,224 + 51,463,168 + 1,048,576 + 2,048 */
    {"gpt2-774m", 774030080},      /* 36 x 19,677,440 + 64,328,960 + 1,310,720 + 2,560 */
    {"gpt2-1558m", 1557611200},    /* 48 x 30,740,800 + 80,411,200 + 1,638,400 + 3,200 */
    {"gpt3-175b", 174604259328},   /* 96 x 1,812,099,072 + 617,558,016 + 25,165,824 + 24,576 */
    {"llama2-7b", 6738415616},     /* 32 x 202,383,360 + 262,144,000 + 4,096 */
    {"llama2-13b", 13015864320},   /* 40 x 317,204,480 + 327,680,000 + 5,120 */
    {"llama2-70b", 68976648192},   /* 80 x 855,654,400 + 524,288,000 + 8,192 */
    {"llama3-8b", 8030261248},     /* 32 x 218,112,000 + 1,050,673,152 + 4,096 */
    {"llama3-70b", 70553706496},   /* 80 x 855,654,400 + 2,101,346,304 + 8,192 */
    {"llama3-405b", 405853388800}, /* 126 x 3,187,703,808 + 4,202,692,608 + 16,384 */
    {"qwen3-0.6b", 596049920},     /* 28 x 15,730,944 + 155,582,464 + 1,024 */
    {"qwen3-8b", 8190735360},      /* 36 x 192,946,432 + 1,244,659,712 + 4,096 */
    {"qwen3-32b", 32762123264},    /* 64 x 487,598,336 + 1,555,824,640 + 5,120 */
    {"olmo2-1b", 1484916736},      /* 16 x 67,117,056 + 411,041,792 + 2,048 */
    {"olmo2-7b", 7298617344},      /* 32 x 202,391,552 + 822,083,584 + 4,096 */
    {"olmo2-13b", 13716198400},    /* 40 x 317,214,720 + 1,027,604,480 + 5,120 */
    {"gemma-2b", 2506172416},      /* 18 x 110,104,576 + 524,288,000 + 2,048 */
    {"gemma-7b", 8537680896},      /* 28 x 276,830,208 + 786,432,000 + 3,072 */
    {"gemma3-270m", 268098176},    /* 18 x 5,573,632 + 167,772,160 + 640 */
    {"gemma3-1b", 999885952},      /* 26 x 26,842,112 + 301,989,888 + 1,152 */
    {"gpt2-tiny", 35712},          /* 2 x 12,704 + 8,192 + 2,048 + 64 */
    {"gpt2-small-bytes", 4870144}, /* 6 x 789,760 + 65,536 + 65,536 + 512 */
    {"llama-tiny", 39584},         /* 2 x 11,584 + 16,384 + 32 */
    {"qwen3-tiny", 37600},         /* 2 x 14,688 + 8,192 + 32 */
    {"olmo2-tiny", 39680},         /* 2 x 11,632 + 16,384 + 32 */
    {"gemma-tiny", 37536},         /* 2 x 14,656 + 8,192 + 32 */
    {"gemma3-tiny", 37728},        /* 2 x 14,752 + 8,192 + 32 */
    {"block-tiny", 25738},         /* 2 x 12,704 + 320 + 10 */
};

TEST(model_preset_parameters, "every preset has exactly its published number of parameters")
{
    int count = 0;
    for (const char *const *name = model_preset_names(); *name; name++, count++) {
        struct model m;
        ASSERT_OK(model_read(*name, NULL, &m, &err));
        ASSERT_STR(m.name, sizes[count].name);
        ASSERT_INT(model_parameters(&m), sizes[count].parameters);
    }
    ASSERT_INT(count, (int)(sizeof sizes / sizeof sizes[0]));
}

/* Of the 12 parameters of a gpt2 layer, qkv, proj, up and down are matrices. */
TEST(model_decay, "matrices decay, vectors do not, and residual matrices start smaller")
{
    struct model m;
    struct parameter list[PART_PARAMETERS_MAX];
    ASSERT_OK(model_read("gpt2-124m", NULL, &m, &err));
    int count = parameters_of(&m, PART_LAYER, 1, list), decaying = 0;
    ASSERT_INT(count, 12);
    for (int i = 0; i < count; i++)
        decaying += list[i].decay;
    ASSERT_INT(decaying, 4);
    /* 0.02 / sqrt(2 x 12) */
    ASSERT_STR(list[4].name, "proj");
    ASSERT_NEAR(list[4].init_std, 0.0040824829046386, 1e-15);
    ASSERT_NEAR(list[2].init_std, 0.02, 1e-15);
}

static struct model override(const char *name, struct model_overrides o)
{
    struct model m = {0};
    ASSERT_OK(model_read(name, &o, &m, &err));
    return m;
}

static struct model read_fixture(const char *folder)
{
    char path[200];
    struct model m = {0};
    snprintf(path, sizeof path, "tests/model/fixtures/%s", folder);
    ASSERT_OK(model_read(path, NULL, &m, &err));
    ASSERT_STR(m.name, folder);
    return m;
}

TEST(model_hf_gpt2, "GPT-2's config.json is the preset gpt2-124m")
{
    struct model m = read_fixture("gpt2");
    ASSERT_INT(m.family, MODEL_GPT2);
    ASSERT_INT(model_parameters(&m), 124439808);
    ASSERT_INT(m.max_seq_len, 1024);
    ASSERT(m.tied && m.qkv_bias && m.proj_bias && !m.note[0]);
}

TEST(model_hf_llama, "Llama 3.1's config.json has 8,030,261,248 parameters and a note about rope_scaling")
{
    struct model m = read_fixture("Llama-3.1-8B");
    ASSERT_INT(model_parameters(&m), 8030261248);
    ASSERT_INT(m.kv_heads, 8);
    ASSERT_INT(m.max_seq_len, 131072);
    ASSERT(m.rope_theta == 500000);
    ASSERT(!m.tied && !m.qkv_bias && !m.proj_bias);
    ASSERT_HAS(m.note, "rope_scaling");
}

/* 32 x 218,112,000 + 262,144,000 + 4,096 */
TEST(model_hf_mistral, "Mistral's sliding window of 4096 is all its layers'; 7,241,732,096 parameters")
{
    struct model m = read_fixture("Mistral-7B-v0.1");
    ASSERT_INT(model_parameters(&m), 7241732096);
    ASSERT(m.window == 4096 && !m.full_every && !m.note[0]);
}

/* head_dim 128 although 5120 / 32 = 160: 40 x (5120 x 6144 + 4096 x 5120 + 3 x 14336 x 5120 + 10240) + 1,342,177,280 +
 * 5,120 */
TEST(model_hf_head_dim, "head_dim overrules hidden / heads: Mistral Nemo has 12,247,782,400 parameters")
{
    struct model m = read_fixture("Mistral-Nemo-Base-2407");
    ASSERT_INT(m.head_size, 128);
    ASSERT_INT(model_parameters(&m), 12247782400);
    ASSERT(!m.note[0]);
}

/* 24 x 14,912,384 (with 1,152 biases of qkv) + 136,134,656 + 896 */
TEST(model_hf_qwen2, "Qwen2 0.5B ties its head and has biases on qkv only: 494,032,768 parameters")
{
    struct model m = read_fixture("Qwen2-0.5B");
    ASSERT(m.tied && m.qkv_bias && !m.proj_bias);
    ASSERT_INT(model_parameters(&m), 494032768);
    ASSERT(!m.note[0]);
}

/* 28 x (1024 x (16 + 2 x 8) x 128 + 16 x 128 x 1024 + 2 x 128 + 3 x 3072 x 1024 + 2 x 1024) + 151936 x 1024 + 1024 */
TEST(model_hf_qwen3,
     "Qwen3 0.6B has heads of 128 in 1024 and norms of queries and keys: 596,049,920 parameters")
{
    struct model m = read_fixture("Qwen3-0.6B");
    ASSERT(m.tied && m.qk_norm && !m.qkv_bias && !m.proj_bias);
    ASSERT_INT(m.head_size, 128);
    ASSERT_INT(m.kv_heads, 8);
    ASSERT_INT(model_parameters(&m), 596049920);
    ASSERT(!m.note[0]);
    struct model preset = override("qwen3-0.6b", (struct model_overrides){0});
    json_t *read = model_to_json(&m), *known = model_to_json(&preset);
    json_object_del(read, "name");
    json_object_del(known, "name");
    ASSERT(json_equal(read, known));
    json_decref(read);
    json_decref(known);
}

TEST(model_truncated, "a file that ends in the middle is named with its line")
{
    struct model m;
    ASSERT_INT(model_read("tests/model/fixtures/truncated.json", NULL, &m, &err), -1);
    ASSERT_HAS(err.text, "tests/model/fixtures/truncated.json:17");
}

TEST(model_unknown_name, "a name that is neither preset nor file brings the nearest preset")
{
    struct model m;
    ASSERT_INT(model_read("gpt2-124", NULL, &m, &err), -1);
    ASSERT_HAS(err.text, "gpt2-124m");
    ASSERT_INT(model_read("tests/model", NULL, &m, &err), -1);
    ASSERT_HAS(err.text, "config.json");
}

/* -1 with a message, or 0 and a model that model_check() accepts. */
static int read_text(const char *text, struct model *m)
{
    json_t *object = json_loads(text, 0, NULL);
    ASSERT_MSG(object != NULL, "the test's JSON is wrong: %s", text);
    err = (struct error){0};
    int status = model_from_json(object, "some/config.json", m, &err);
    ASSERT_MSG(status == 0 || err.text[0], "no message for %s", text);
    json_decref(object);
    return status;
}

static void refuse(const char *text, const char *piece)
{
    struct model m;
    ASSERT_MSG(read_text(text, &m) == -1, "accepted: %s", text);
    ASSERT_HAS(err.text, piece);
}

#define GPT2(fields)                                                                                         \
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 4, \"vocab_size\": 99" fields "}"
#define LLAMA(fields)                                                                                        \
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4," \
    "\"intermediate_size\": 96, \"vocab_size\": 99" fields "}"
#define OWN(family, fields)                                                                                  \
    "{\"family\": \"" family "\", \"layers\": 2, \"hidden\": 64, \"heads\": 4, \"vocab\": 9,"                \
    "\"max_seq_len\": 8" fields "}"

TEST(model_refusals, "each thing a description can have wrong is named, with what would be right")
{
    refuse("{\"model_type\": \"bert\"}",
           "gpt2, llama, mistral, qwen2, qwen3, phi3, olmo2, gemma and gemma3_text");
    refuse("{\"model_type\": 3}", "model_type");
    refuse("{\"model_type\": \"gpt2\"}", "n_layer");
    refuse("{}", "family");
    refuse("{\"family\": \"rnn\"}", "gpt2, llama or encoder");
    refuse(GPT2(", \"n_positions\": \"1024\""), "n_positions");
    refuse(GPT2(", \"n_inner\": [4]"), "n_inner");
    refuse(GPT2(", \"activation_function\": \"relu\""), "gelu_new");
    refuse(LLAMA(", \"hidden_act\": \"gelu\""), "silu");
    refuse(LLAMA(", \"mlp_bias\": true"), "mlp_bias");
    refuse(LLAMA(", \"attention_bias\": 1"), "attention_bias");
    refuse(LLAMA(", \"rope_theta\": \"big\""), "rope_theta");
    refuse(LLAMA(", \"num_key_value_heads\": 3"), "try 1, 2 or 4");
    refuse(LLAMA(", \"head_dim\": 7"), "RoPE turns pairs");
    refuse(OWN("llama", ", \"rope_theta\": 0"), "rope_theta");
    refuse(OWN("gpt2", ", \"norm_eps\": -1e-5"), "norm_eps");
    refuse(OWN("gpt2", ", \"kv_heads\": 2"), "family llama");
    refuse(OWN("encoder", ", \"qkv_bias\": false"), "family llama");
    refuse(OWN("encoder", ", \"tied\": true"), "no embedding");
    refuse(OWN("gpt2", ", \"qk_norm\": true"), "qk_norm is of llama models");
    refuse(OWN("llama", ", \"qk_norm_whole\": true"), "qk_norm is false; set both or none");
    refuse(OWN("llama", ", \"norms\": \"inside\""),
           "norms \"inside\" is unknown; use before, behind or around");
    refuse(OWN("encoder", ", \"norms\": \"behind\""), "norms \"behind\" are of llama models");
    refuse(OWN("llama", ", \"norms\": \"behind\", \"proj_bias\": true"), "and these stand behind it");
    refuse(OWN("gpt2", ", \"norm_add_one\": true"), "norm_add_one is of llama models");
    refuse(OWN("encoder", ", \"gelu_gate\": true"), "gelu_gate is of llama models");
    refuse(OWN("gpt2", ", \"scale_embedding\": true"), "scale_embedding is of llama models");
    refuse(OWN("llama", ", \"window\": -1"), "must not be negative");
    refuse(OWN("llama", ", \"window\": 9223372036854775807"),
           "window is 9223372036854775807; it must be between");
    refuse(OWN("llama", ", \"window\": 2, \"full_every\": 9000000"), "full_every is 9000000; it must be");
    refuse(OWN("llama", ", \"full_every\": 2"), "window is 0");
    refuse(OWN("llama", ", \"local_theta\": 10.0"), "window is 0");
    refuse(OWN("encoder", ", \"window\": 4"), "window and query_scalar are of llama models");
    refuse(OWN("gpt2", ", \"query_scalar\": 4.0"), "window and query_scalar are of llama models");
    refuse(OWN("gpt2", ", \"unturned\": 4"), "unturned is of llama models");
    refuse(OWN("llama", ", \"unturned\": 3"), "must be even, and leave a pair to turn");
    refuse(OWN("llama", ", \"unturned\": -2"), "must be even");
    refuse("{\"family\": \"gpt2\", \"layers\": 2, \"hidden\": 64, \"heads\": 5, \"vocab\": 9, "
           "\"max_seq_len\": 8}",
           "heads=5 does not divide hidden=64; try 1, 2, 4, 8, 16, 32 or 64");
}

/* Every field in turn takes every hostile value: a message or a valid model, and never a crash, a hang or an overflow. The
 * prime makes a search for divisors long, 2^62 makes four times the hidden size overflow. */
TEST(model_hostile, "no value of any field crashes, hangs or passes unchecked")
{
    static const char *const fields[] = {
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "head_size",
        "ffn",
        "vocab",
        "max_seq_len",
        "usual_batch",
        "norm_eps",
        "rope_theta",
        "unturned",
        "norms",
        "window",
        "full_every",
        "local_theta",
        "query_scalar",
        "layer_types",
        "query_pre_attn_scalar",
        "partial_rotary_factor",
        "tied",
        "n_layer",
        "n_embd",
        "n_head",
        "vocab_size",
        "n_positions",
        "n_inner",
        "hidden_size",
        "num_hidden_layers",
        "head_dim",
        "rope_scaling",
        "sliding_window",
        "name",
        "family",
        "model_type",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
    };
    static const char *const values[] = {
        "-1",
        "0",
        "9223372036854775783",
        "4611686018427387904",
        "-9223372036854775808",
        "1048573",
        "1e308",
        "0.5",
        "-0.0",
        "true",
        "null",
        "\"\"",
        "[]",
        "{}",
        "[[[[[[[[{}]]]]]]]]",
        "{\"a\": {\"a\": {\"a\": [1]}}}",
        "\"\\u00e9\"",
    };
    static const char *const bases[] = {GPT2(""), LLAMA(""), OWN("gpt2", ""), OWN("llama", ""),
                                        OWN("encoder", "")};
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++)
        for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++)
            for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
                json_t *object = json_loads(bases[b], 0, NULL);
                json_object_set_new(object, fields[f], json_loads(values[v], JSON_DECODE_ANY, NULL));
                struct model m;
                err = (struct error){0};
                int status = model_from_json(object, "hostile", &m, &err);
                if (status ? !err.text[0] : model_check(&m, &err) || model_parameters(&m) <= 0)
                    ck_abort_msg("base %zu with %s = %s", b, fields[f], values[v]);
                json_decref(object);
            }
}

/* 100,000 layers of 2^20 x 3 x 2^16 x 2^16 parameters do not fit in 63 bits. */
TEST(model_too_large, "sizes that are each in range but overflow together are refused")
{
    refuse("{\"family\": \"llama\", \"layers\": 100000, \"hidden\": 1048576, \"heads\": 65536, "
           "\"head_size\": 65536,"
           "\"vocab\": 9, \"max_seq_len\": 8, \"ffn\": 1}",
           "63 bits");
}

TEST(model_json_round_trip, "a model written and read again is the same, for every preset")
{
    for (const char *const *name = model_preset_names(); *name; name++) {
        struct model m, again;
        ASSERT_OK(model_read(*name, NULL, &m, &err));
        json_t *object = model_to_json(&m);
        ASSERT_OK(model_from_json(object, "memory", &again, &err));
        json_t *object_again = model_to_json(&again);
        ASSERT(json_equal(object, object_again));
        ASSERT_INT(model_parameters(&again), model_parameters(&m));
        json_decref(object);
        json_decref(object_again);
    }
}

/* A folder may be called anything; the name must still be writable as JSON. The cut after 63 bytes splits the last of 32
 * two-byte characters. */
TEST(model_name_utf8, "names from paths that are no UTF-8, or are cut inside a character, can be written")
{
    char long_name[200] = "/", kept[100] = "", latin1[] = "mod\xe8le/config.json";
    for (int i = 0; i < 40; i++)
        strcat(long_name, "\xc3\xa9");
    for (int i = 0; i < 31; i++)
        strcat(kept, "\xc3\xa9");
    strcat(kept, "?");
    const char *const paths[] = {latin1, long_name}, *const names[] = {"mod?le", kept};
    for (int i = 0; i < 2; i++) {
        struct model m;
        json_t *object = json_loads(GPT2(""), 0, NULL);
        ASSERT_OK(model_from_json(object, paths[i], &m, &err));
        json_decref(object);
        json_t *written = model_to_json(&m);
        ASSERT_STR(json_string_value(json_object_get(written, "name")), names[i]);
        json_decref(written);
    }
}

TEST(model_overrides, "an override brings what the family derives from it")
{
    struct model m = override("gpt2-124m", (struct model_overrides){.hidden = 1024, .heads = 16});
    ASSERT_INT(m.ffn, 4096);
    ASSERT_INT(m.head_size, 64);
    ASSERT_INT(m.kv_heads, 16);
    m = override("llama3-8b", (struct model_overrides){.layers = 2, .kv_heads = 4, .ffn = 100, .vocab = 50});
    ASSERT_INT(m.kv_heads, 4);
    ASSERT_INT(m.head_size, 128);
    /* 2 x (4096 x 40 x 128 + 4096^2 + 3 x 100 x 4096 + 8192) + 2 x 50 x 4096 + 4096 */
    ASSERT_INT(model_parameters(&m), 2 * (20971520 + 16777216 + 1228800 + 8192) + 409600 + 4096);
    m = override("qwen3-8b", (struct model_overrides){.hidden = 1024, .heads = 24});
    ASSERT_INT(m.head_size, 128);
    m = override("tests/model/fixtures/Mistral-Nemo-Base-2407", (struct model_overrides){.hidden = 1024});
    ASSERT_INT(m.head_size, 128);
}

TEST(model_overrides_refused, "an override that does not divide, or is out of range, is refused")
{
    struct model m;
    ASSERT_INT(model_read("gpt2-124m", &(struct model_overrides){.heads = 7}, &m, &err), -1);
    ASSERT_HAS(err.text, "heads=7 does not divide hidden=768");
    ASSERT_INT(model_read("gpt2-124m", &(struct model_overrides){.kv_heads = 4}, &m, &err), -1);
    ASSERT_HAS(err.text, "grouped-query");
    ASSERT_INT(model_read("llama3-8b", &(struct model_overrides){.layers = -1}, &m, &err), -1);
    ASSERT_HAS(err.text, "layers is -1");
    ASSERT_INT(model_read("gpt2-124m", &(struct model_overrides){.hidden = 1LL << 62}, &m, &err), -1);
    ASSERT_HAS(err.text, "hidden is 4611686018427387904");
}

/* Every element of a parameter is held by one rank when it is shared, by all when it is not; padding by nobody. */
static void check_stretches(const struct parameter *p, int64_t tp)
{
    int64_t *held = host_alloc((size_t)p->full_count * sizeof *held), padding = 0;
    for (int64_t rank = 0; rank < tp; rank++)
        for (int64_t first = 0, count, global; first < p->count; first += count) {
            count = parameters_stretch(p, tp, rank, first, &global);
            ASSERT_MSG(count > 0 && first + count <= p->count, "%s: %lld elements from %lld on", p->name,
                       (long long)count, (long long)first);
            padding += global < 0 ? count : 0;
            for (int64_t i = 0; global >= 0 && i < count; i++)
                held[global + i]++;
        }
    for (int64_t i = 0; i < p->full_count; i++)
        if (held[i] != (p->sharing == SHARED_NOT ? tp : 1))
            ck_abort_msg("%s: element %lld is held by %lld of %lld ranks", p->name, (long long)i,
                         (long long)held[i], (long long)tp);
    if (p->sharing != SHARED_NOT)
        ASSERT_INT(padding, tp * p->count - p->full_count);
    free(held);
}

TEST(parameters_shared,
     "tensor-parallel ranks hold every element of a shared parameter once, and pad the vocabulary")
{
    const char *const names[] = {"gpt2-tiny",  "llama-tiny",  "qwen3-tiny", "olmo2-tiny",
                                 "gemma-tiny", "gemma3-tiny", "block-tiny"};
    struct parameter list[PART_PARAMETERS_MAX];
    for (int i = 0; i < 7; i++) {
        struct model m;
        bool grouped = i >= 1 && i <= 5;
        ASSERT_OK(model_read(names[i],
                             &(struct model_overrides){.vocab = 11, .heads = 4, .kv_heads = grouped ? 4 : 0},
                             &m, &err));
        for (int part = PART_EMBED; part <= PART_HEAD; part++)
            for (int64_t tp = 1; tp <= 4; tp *= 2)
                for (int k = 0, n = parameters_of(&m, (enum part)part, tp, list); k < n; k++)
                    check_stretches(&list[k], tp);
    }
}

TEST(parameters_messages, "what passes messages between stages holds no parameters")
{
    const char *const names[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};
    struct parameter list[PART_PARAMETERS_MAX];
    for (int i = 0; i < 3; i++) {
        struct model m;
        ASSERT_OK(model_read(names[i], NULL, &m, &err));
        ASSERT_INT(parameters_of(&m, PART_RECEIVE, 1, list), 0);
        ASSERT_INT(parameters_of(&m, PART_SEND, 1, list), 0);
    }
}

/* Shapes come from papers, configurations from the hub: they are two witnesses of one model. */
TEST(presets_hub_names, "a preset has the shapes that the hub has under the name it is listed with")
{
    int listed = 0;
    for (const char *const *name = presets_names(); *name; name++) {
        const char *hub = presets_hub_name(*name);
        struct model model, own = *presets_find(*name);
        if (!hub)
            continue;
        json_t *config = hub_models_config(hub);
        ASSERT_MSG(config, "%s is not known", hub);
        ASSERT_OK(model_from_json(config, hub, &model, &err));
        json_decref(config);
        ASSERT_INT(model_parameters(&model), model_parameters(&own));
        ASSERT_INT(model.layers, own.layers);
        ASSERT_INT(model.heads, own.heads);
        ASSERT_INT(model.kv_heads, own.kv_heads);
        ASSERT_INT(model.ffn, own.ffn);
        listed++;
    }
    ASSERT_INT(listed, 19);
}

TEST(presets_other_names, "what people also call a preset or a model of the hub leads to it")
{
    ASSERT_STR(model_nearest("gpt2-1.5b"), "gpt2-1558m");
    ASSERT_STR(model_nearest("GPT2-XL"), "gpt2-1558m");
    ASSERT_STR(model_nearest("gpt2-small"), "gpt2-124m");
    ASSERT_STR(model_nearest("LLAMA3-8B"), "llama3-8b");
    ASSERT_STR(model_nearest("Llama-2-7B"), "llama2-7b");
    ASSERT_STR(model_nearest("mistral-7b"), "mistralai/Mistral-7B-v0.1");
    ASSERT_STR(model_nearest("gpt2-tny"), "gpt2-tiny");
    ASSERT(!model_nearest("gpt2-smallish-and-no-more"));
}
