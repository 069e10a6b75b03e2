/* What of the Hugging Face hub is read as a model of ours, and in which words the rest is refused. */
#include "jobs/job_model.h"
#include "model/hub_config.h"
#include "model/layout.h"
#include "model/model.h"
#include "tests/test.h"

#include <string.h>

static struct error err;

static int read_text(const char *text, struct model *m)
{
    json_t *config = json_loads(text, 0, NULL);
    ASSERT_MSG(config, "no JSON: %s", text);
    err = (struct error){0};
    int status = model_from_json(config, "some/config.json", m, &err);
    json_decref(config);
    return status;
}

#define CONFIG(TYPE, MORE)                                                                                   \
    "{\"model_type\": \"" TYPE "\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "                         \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 96, \"vocab_size\": "    \
    "300" MORE "}"

static struct model read_config(const char *text)
{
    struct model m = {0};
    ASSERT_OK(read_text(text, &m));
    return m;
}

/* 2 x (64 x 128 + 64 x 64 + 3 x 96 x 64 + 128) + 2 x 300 x 64 + 64 */
TEST(hub_config_phi3, "Phi-3 is a llama with a window: its longer RoPE is a note, as for the others")
{
    struct model m = read_config(CONFIG("phi3", ""));
    ASSERT_INT(m.family, MODEL_LLAMA);
    ASSERT_INT(model_parameters(&m), 2 * (64 * 128 + 64 * 64 + 3 * 96 * 64 + 128) + 2 * 300 * 64 + 64);
    ASSERT(!m.qk_norm && !m.qkv_bias && !m.tied && !m.note[0]);
    ASSERT_INT(m.max_seq_len, 4096);
    ASSERT(m.norm_eps == 1e-5);
    m = read_config(CONFIG("phi3", ", \"sliding_window\": 2047"));
    ASSERT_INT(m.window, 2047);
    ASSERT(!m.note[0] && !m.full_every);
    m = read_config(CONFIG("phi3", ", \"rope_scaling\": {\"type\": \"longrope\"}"));
    ASSERT_HAS(m.note, "rope_scaling is not applied");
}

TEST(hub_config_qwen3,
     "Qwen3's heads are of 128 where nothing is said; biases are of all four products or none")
{
    struct model m = read_config(CONFIG("qwen3", ""));
    ASSERT(m.qk_norm && !m.qkv_bias && !m.proj_bias);
    ASSERT_INT(m.head_size, 128);
    m = read_config(CONFIG("qwen3", ", \"head_dim\": 32, \"attention_bias\": true"));
    ASSERT(m.qk_norm && m.qkv_bias && m.proj_bias);
    ASSERT_INT(m.head_size, 32);
}

/* 2 x (64 x 128 + 64 x 64 + 3 x 96 x 64 + 64 + 32 + 2 x 64) + 2 x 300 x 64 + 64 */
TEST(hub_config_olmo2,
     "OLMo 2 norms behind attention and feed-forward, and all queries together; its heads stay whole")
{
    struct model m = read_config(CONFIG("olmo2", ""));
    ASSERT(m.qk_norm && m.qk_norm_whole && m.norms == NORMS_BEHIND && !m.tied);
    ASSERT(m.norm_eps == 1e-5 && m.rope_theta == 10000);
    ASSERT_INT(model_parameters(&m),
               2 * (64 * 128 + 64 * 64 + 3 * 96 * 64 + 64 + 32 + 2 * 64) + 2 * 300 * 64 + 64);
    ASSERT_OK(model_read("allenai/OLMo-2-0325-32B", NULL, &m, &err));
    ASSERT_INT(model_parameters(&m), 32234279936);
    ASSERT_INT(layout_complete(&(struct layout){.tp = 2}, &m, &err), -1);
    ASSERT_HAS(err.text, "--tp 2 shares heads among ranks, and OLMo-2-0325-32B norms all queries");
    ASSERT_INT(read_text(CONFIG("olmo2", ", \"attention_bias\": true"), &m), -1);
    ASSERT_HAS(err.text, "proj_bias is of models whose norms stand before");
}

/* 2 x (64 x (4 + 2 x 2) x 256 + 4 x 256 x 64 + 3 x 96 x 64 + 2 x 64) + 300 x 64 + 64 */
TEST(hub_config_gemma,
     "Gemma is a llama with heads of 256, GELU's gates, norms' weights less one and a scaled embedding")
{
    struct model m = read_config(CONFIG("gemma", ", \"hidden_act\": \"gelu\", \"hidden_activation\": null"));
    ASSERT(m.tied && m.norm_add_one && m.gelu_gate && m.scale_embedding && !m.qk_norm);
    ASSERT(m.norm_eps == 1e-6 && m.rope_theta == 10000);
    ASSERT_INT(m.max_seq_len, 8192);
    ASSERT_INT(model_parameters(&m), 2 * (64 * 8 * 256 + 1024 * 64 + 3 * 96 * 64 + 2 * 64) + 300 * 64 + 64);
    ASSERT_OK(read_text(CONFIG("gemma", ", \"hidden_activation\": \"gelu_pytorch_tanh\""), &m));
    ASSERT_INT(read_text(CONFIG("gemma", ", \"hidden_activation\": \"gelu\""), &m), -1);
    ASSERT_HAS(err.text, "hidden_activation \"gelu\" is not supported; gelu_pytorch_tanh is");
    ASSERT_INT(read_text(CONFIG("gemma", ", \"hidden_act\": \"silu\""), &m), -1);
    ASSERT_HAS(err.text, "hidden_act \"silu\" is not supported");
}

/* 2 x (64 x (4 + 2 x 2) x 256 + 4 x 256 x 64 + 3 x 96 x 64 + 4 x 64 + 2 x 256) + 300 x 64 + 64 */
TEST(hub_config_gemma3,
     "Gemma 3 norms around, and has a window and a base of RoPE of its own in five layers of six")
{
    struct model m = read_config(CONFIG("gemma3_text", ", \"sliding_window\": 512"));
    ASSERT(m.tied && m.norm_add_one && m.gelu_gate && m.scale_embedding && m.qk_norm && !m.qk_norm_whole);
    ASSERT(m.norms == NORMS_AROUND && m.rope_theta == 1e6 && m.local_theta == 10000 && m.query_scalar == 256);
    ASSERT(m.window == 512 && m.full_every == 6 && !m.note[0]);
    ASSERT(model_layer_is_local(&m, 4) && !model_layer_is_local(&m, 5) && model_layer_is_local(&m, 6));
    ASSERT_INT(model_parameters(&m),
               2 * (64 * 8 * 256 + 1024 * 64 + 3 * 96 * 64 + 4 * 64 + 2 * 256) + 300 * 64 + 64);
    m = read_config(CONFIG("gemma3_text", ", \"sliding_window_pattern\": 3, \"query_pre_attn_scalar\": 168, "
                                          "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}"));
    ASSERT(m.full_every == 3 && m.query_scalar == 168 && m.window == 4096);
    ASSERT_HAS(m.note, "rope_scaling is not applied");
}

TEST(hub_config_gemma3_newer,
     "Gemma 3's layers may be listed, and its RoPE stand in two objects, as transformers 5 writes both")
{
    struct model m = read_config(CONFIG(
        "gemma3_text", ", \"layer_types\": [\"sliding_attention\", \"full_attention\"], \"rope_parameters\": "
                       "{\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 5e5}, "
                       "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 7.0}}"));
    ASSERT(m.full_every == 2 && m.rope_theta == 5e5 && m.local_theta == 7 && !m.note[0]);
    m = read_config(
        CONFIG("gemma3_text", ", \"layer_types\": [\"sliding_attention\", \"sliding_attention\"]"));
    ASSERT_INT(m.full_every, 0);
    ASSERT_INT(
        read_text(CONFIG("gemma3_text", ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]"),
                  &m),
        -1);
    ASSERT_HAS(err.text, "layer_types[1] is \"sliding_attention\"");
    ASSERT_INT(read_text(CONFIG("gemma3_text", ", \"layer_types\": [\"full_attention\"]"), &m), -1);
    ASSERT_HAS(err.text, "layer_types has 1 entry for 2 layers");
    ASSERT_INT(read_text(CONFIG("gemma3_text", ", \"layer_types\": [7, 7]"), &m), -1);
    ASSERT_HAS(err.text, "layer_types[0] is no text");
    ASSERT_INT(read_text(CONFIG("gemma3_text", ", \"final_logit_softcapping\": 30.0"), &m), -1);
    ASSERT_HAS(err.text, "final_logit_softcapping is not supported; set it to null");
}

TEST(hub_config_windows, "a sliding window counts where it is in use: by type, or by what the file says")
{
    struct model m = read_config(CONFIG("qwen2", ", \"sliding_window\": 128"));
    ASSERT(!m.note[0]);
    m = read_config(CONFIG("qwen3", ", \"sliding_window\": 128, \"use_sliding_window\": true"));
    ASSERT_HAS(m.note, "sliding_window 128");
    m = read_config(CONFIG("mistral", ", \"sliding_window\": null"));
    ASSERT(!m.note[0] && !m.window);
    m = read_config(CONFIG("mistral", ""));
    ASSERT_INT(m.window, 4096);
    m = read_config(CONFIG("mistral", ", \"sliding_window\": 512"));
    ASSERT_INT(m.window, 512);
    ASSERT(model_layer_is_local(&m, 0) && model_layer_is_local(&m, 1));
}

TEST(hub_config_variants, "a file of a type of ours that describes another layer is refused by its key")
{
    struct model m;
    ASSERT_INT(read_text(CONFIG("phi3", ", \"partial_rotary_factor\": 1.5"), &m), -1);
    ASSERT_HAS(err.text, "some/config.json: partial_rotary_factor is 1.5; it must be above 0");
    ASSERT_INT(read_text(CONFIG("qwen3", ", \"hidden_act\": \"gelu\""), &m), -1);
    ASSERT_HAS(err.text, "silu is");
}

/* 32 x (3072 x (24 + 2 x 8) x 128 + 3072 x 3072 + 3 x 8192 x 3072 + 2 x 3072) + 200064 x 3072 + 3072 */
TEST(hub_config_part, "RoPE of three quarters of each head is Phi-4-mini's")
{
    struct model m = read_config(CONFIG("phi3", ", \"partial_rotary_factor\": 0.75"));
    ASSERT_INT(m.unturned, 4);
    ASSERT_OK(model_read("microsoft/Phi-4-mini-instruct", NULL, &m, &err));
    ASSERT_INT(m.unturned, 32);
    ASSERT_INT(model_parameters(&m), 3836021760);
    ASSERT_INT(read_text(CONFIG("phi3", ", \"partial_rotary_factor\": 0.05"), &m), -1);
    ASSERT_HAS(err.text, "unturned is 16; of heads of 16 elements");
    ASSERT_INT(read_text(CONFIG("qwen3", ", \"partial_rotary_factor\": 0.5"), &m), -1);
    ASSERT_HAS(err.text, "unturned is of llama models without qk_norm");
    /* Checked by `make ubsan`: what turns of it is no 64-bit number. */
    ASSERT_INT(read_text(CONFIG("phi3", ", \"head_dim\": 9223372036854775807"), &m), -1);
    ASSERT_HAS(err.text, "head_size is 9223372036854775807; it must be between 1 and 65536");
}

TEST(hub_config_rope, "what says how RoPE turns may stand in rope_parameters, as transformers 5 writes it")
{
    struct model m = read_config(CONFIG("qwen3", ", \"rope_parameters\": {\"rope_type\": \"default\", "
                                                 "\"rope_theta\": 5e6}"));
    ASSERT(m.rope_theta == 5e6 && !m.note[0]);
    m = read_config(CONFIG("phi3",
                           ", \"rope_parameters\": {\"rope_type\": \"longrope\", \"rope_theta\": 7.0, "
                           "\"partial_rotary_factor\": 0.75}"));
    ASSERT(m.rope_theta == 7);
    ASSERT_INT(m.unturned, 4);
    ASSERT_HAS(m.note, "rope_scaling is not applied");
}

TEST(hub_config_unknown, "a type that nobody knows is refused with those that are supported")
{
    struct model m;
    ASSERT_INT(read_text("{\"model_type\": \"novel\"}", &m), -1);
    ASSERT_STR(err.text,
               "some/config.json: model_type \"novel\" is not supported; gpt2, llama, mistral, qwen2, "
               "qwen3, phi3, olmo2, gemma and gemma3_text are");
}

TEST(hub_config_reasons, "a known type is refused with what it has, and with the command that does judge it")
{
    struct model m;
    ASSERT_INT(read_text("{\"model_type\": \"exaone4\"}", &m), -1);
    ASSERT_HAS(err.text, "norms behind attention and feed-forward in place of those before");
    ASSERT(!strstr(err.text, "memplan check"));
    ASSERT_INT(read_text("{\"model_type\": \"mixtral\"}", &m), -1);
    ASSERT_HAS(err.text, "mixtures of experts");
    ASSERT_HAS(err.text, "`memplan check` judges launches that train it");
}

/* Of a config.json with nothing but its type, `check` misses sizes, or a key; of a type that it does not know it says that. */
TEST(hub_config_checked, "`memplan check` knows each type for which it is named")
{
    const char *const *type = hub_config_checked_types();
    int count = 0;
    for (; *type; type++, count++) {
        struct job_model m;
        json_t *config = json_pack("{s:s}", "model_type", *type);
        err = (struct error){0};
        ASSERT_INT(job_model_from_config(config, "config.json", &m, &err), -1);
        ASSERT_MSG(!strstr(err.text, "is not known"), "%s", err.text);
        json_decref(config);
    }
    ASSERT(count >= 9);
}

static void refuse_name(const char *name, const char *type, const char *reason)
{
    struct model m;
    err = (struct error){0};
    ASSERT_MSG(model_read(name, NULL, &m, &err) == -1, "%s is read", name);
    ASSERT_MSG(!strncmp(err.text, name, strlen(name)) && strstr(err.text, type) && strstr(err.text, reason),
               "%s", err.text);
    ASSERT(!strstr(err.text, "did you mean"));
}

TEST(hub_config_names, "a name of the hub is refused by its family, whether its sizes are known or not")
{
    refuse_name("google/gemma-2-9b", "\"gemma2\"", "soft caps");
    refuse_name("google/gemma-3-4b-it", "\"gemma3\"", "images or sounds");
    refuse_name("facebook/opt-1.3b", "\"opt\"", "ReLU");
    refuse_name("microsoft/phi-2", "\"phi\"", "side by side");
    refuse_name("mistralai/Mixtral-8x7B-v0.1", "\"mixtral\"", "experts");
    refuse_name("mistralai/Mixtral-8x22B-v0.3", "\"mixtral\"", "experts");
    refuse_name("deepseek-ai/DeepSeek-V3.1", "\"deepseek_v3\"", "experts");
    refuse_name("EleutherAI/pythia-160m-v0", "\"gpt_neox\"", "side by side");
}

/* What begins like a refused family and is none: distilled into a llama. */
TEST(hub_config_distilled, "a model that was distilled into one of ours is not refused for its teacher")
{
    struct model m;
    ASSERT_OK(model_read("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", NULL, &m, &err));
    ASSERT_OK(model_read("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", NULL, &m, &err));
    err = (struct error){0};
    ASSERT_INT(model_read("deepseek-ai/DeepSeek-R1-Distill-Qwen-9B", NULL, &m, &err), -1);
    ASSERT_HAS(err.text, "did you mean");
}
