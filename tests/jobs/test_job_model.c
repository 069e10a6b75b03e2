/* Models from config.json against what their publishers count: the numbers of parameters of the Hugging Face model cards, which
 * are sums over the safetensors files. */
#include "jobs/job_model.h"

#include "tests/test.h"

#include <string.h>

static int read_model(const char *config, struct job_model *out, struct error *err)
{
    json_t *object = json_loads(config, 0, NULL);
    ASSERT(object);
    int status = job_model_from_config(object, "models/Some-1B/config.json", out, err);
    json_decref(object);
    return status;
}

static void assert_parameters(const char *config, int64_t expected)
{
    struct job_model model;
    struct error err = {0};
    ASSERT_OK(read_model(config, &model, &err));
    ASSERT_STR(model.name, "Some-1B");
    ASSERT_INT(job_model_parameters(&model), expected);
}

static void assert_refused(const char *config, const char *message)
{
    struct job_model model;
    struct error err = {0};
    ASSERT_INT(read_model(config, &model, &err), -1);
    ASSERT_HAS(err.text, message);
}

TEST(job_model_dense, "dense models have their published number of parameters")
{
    assert_parameters(
        "{\"model_type\":\"gpt2\",\"n_layer\":12,\"n_embd\":768,\"n_head\":12,\"vocab_size\":50257}",
        124439808);
    /* Llama-3.1-8B */
    assert_parameters(
        "{\"model_type\":\"llama\",\"num_hidden_layers\":32,\"hidden_size\":4096,\"num_attention_heads\":32,"
        "\"num_key_value_heads\":8,\"intermediate_size\":14336,\"vocab_size\":128256}",
        8030261248);
    /* Qwen2-0.5B: biases of q, k, v; tied */
    assert_parameters(
        "{\"model_type\":\"qwen2\",\"num_hidden_layers\":24,\"hidden_size\":896,\"num_attention_heads\":14,"
        "\"num_key_value_heads\":2,\"intermediate_size\":4864,\"vocab_size\":151936,\"tie_word_embeddings\":"
        "true}",
        494032768);
    /* Qwen3-0.6B: norms of q and k, heads wider than hidden / heads */
    assert_parameters(
        "{\"model_type\":\"qwen3\",\"num_hidden_layers\":28,\"hidden_size\":1024,\"num_attention_heads\":16,"
        "\"num_key_value_heads\":8,\"head_dim\":128,\"intermediate_size\":3072,\"vocab_size\":151936,"
        "\"tie_word_embeddings\":true}",
        596049920);
    /* pythia-160m */
    assert_parameters("{\"model_type\":\"gpt_neox\",\"num_hidden_layers\":12,\"hidden_size\":768,\"num_"
                      "attention_heads\":12,"
                      "\"intermediate_size\":3072,\"vocab_size\":50304}",
                      162322944);
}

TEST(job_model_bert, "BERT's parameters with the head that its architecture has")
{
#define BERT_BASE                                                                                            \
    "\"model_type\":\"bert\",\"num_hidden_layers\":12,\"hidden_size\":768,\"num_attention_heads\":12,"       \
    "\"intermediate_size\":3072,\"vocab_size\":30522"
    assert_parameters("{\"architectures\":[\"BertModel\"]," BERT_BASE "}", 109482240);
    assert_parameters("{\"architectures\":[\"BertForMaskedLM\"]," BERT_BASE "}", 109514298);
}

TEST(job_model_experts,
     "mixtures of experts have their published number of parameters, and fewer that a token meets")
{
    struct job_model model;
    struct error err = {0};
    /* Mixtral-8x7B: 46.7B, of which 12.9B */
    ASSERT_OK(read_model(
        "{\"model_type\":\"mixtral\",\"num_hidden_layers\":32,\"hidden_size\":4096,\"num_attention_heads\":"
        "32,"
        "\"num_key_value_heads\":8,\"intermediate_size\":14336,\"vocab_size\":32000,\"num_local_experts\":8,"
        "\"num_experts_per_tok\":2}",
        &model, &err));
    ASSERT_INT(job_model_parameters(&model), 46702792704);
    ASSERT_INT(job_model_active_parameters(&model), 12879925248);
    /* Qwen1.5-MoE-A2.7B: shared experts with a gate */
    assert_parameters(
        "{\"model_type\":\"qwen2_moe\",\"num_hidden_layers\":24,\"hidden_size\":2048,\"num_attention_heads\":"
        "16,"
        "\"num_key_value_heads\":16,\"intermediate_size\":5632,\"vocab_size\":151936,\"num_experts\":60,"
        "\"num_experts_per_tok\":4,\"moe_intermediate_size\":1408,\"shared_expert_intermediate_size\":5632}",
        14315784192);
    /* Qwen3-30B-A3B */
    assert_parameters(
        "{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":48,\"hidden_size\":2048,\"num_attention_heads\":"
        "32,"
        "\"num_key_value_heads\":4,\"head_dim\":128,\"intermediate_size\":6144,\"vocab_size\":151936,"
        "\"num_experts\":128,\"num_experts_per_tok\":8,\"moe_intermediate_size\":768}",
        30532122624);
    /* DeepSeek-V2-Lite: latent attention, a dense first layer, two shared experts */
    assert_parameters("{\"model_type\":\"deepseek_v2\",\"num_hidden_layers\":27,\"hidden_size\":2048,\"num_"
                      "attention_heads\":16,"
                      "\"num_key_value_heads\":16,\"intermediate_size\":10944,\"vocab_size\":102400,\"n_"
                      "routed_experts\":64,"
                      "\"num_experts_per_tok\":6,\"moe_intermediate_size\":1408,\"n_shared_experts\":2,"
                      "\"first_k_dense_replace\":1,"
                      "\"q_lora_rank\":null,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_"
                      "dim\":64,\"v_head_dim\":128}",
                      15706484224);
    /* DeepSeek-V3 without its layer for further tokens: 671B */
    assert_parameters("{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":61,\"hidden_size\":7168,\"num_"
                      "attention_heads\":128,"
                      "\"num_key_value_heads\":128,\"intermediate_size\":18432,\"vocab_size\":129280,\"n_"
                      "routed_experts\":256,"
                      "\"num_experts_per_tok\":8,\"moe_intermediate_size\":2048,\"n_shared_experts\":1,"
                      "\"first_k_dense_replace\":3,"
                      "\"q_lora_rank\":1536,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_"
                      "dim\":64,\"v_head_dim\":128}",
                      671026419200);
}

/* activation_function of GPT-2, hidden_act of others; a type's own where nothing is said. */
TEST(job_model_activation, "the activation is the one that config.json names, or the type's own")
{
    static const struct {
        const char *config, *activation;
    } cases[] = {
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"vocab_size\":100}", "gelu_new"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"vocab_size\":100,"
         "\"activation_function\":\"gelu_pytorch_tanh\"}",
         "gelu_pytorch_tanh"},
        {"{\"model_type\":\"gpt_neox\",\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":4,"
         "\"intermediate_size\":256,\"vocab_size\":100,\"hidden_act\":\"gelu_fast\"}",
         "gelu_fast"},
        {"{\"model_type\":\"bert\",\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":4,"
         "\"intermediate_size\":256,\"vocab_size\":100,\"hidden_act\":\"relu\"}",
         "relu"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job_model model;
        struct error err = {0};
        ASSERT_OK(read_model(cases[i].config, &model, &err));
        ASSERT_STR(model.activation, cases[i].activation);
    }
    assert_refused("{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"vocab_size\":100,"
                   "\"activation_function\":7}",
                   "activation_function");
}

/* Of a family: its parameters as published, and how it writes a layer. */
static void assert_family(const char *config, int64_t parameters, struct workload_traits traits)
{
    struct job_model model;
    struct error err = {0};
    assert_parameters(config, parameters);
    ASSERT_OK(read_model(config, &model, &err));
    ASSERT(model.traits.residual == traits.residual && model.traits.softmax == traits.softmax);
    ASSERT(model.traits.norms_fp32 == traits.norms_fp32 && model.traits.post_norms == traits.post_norms);
    ASSERT(model.traits.joint_qkv == traits.joint_qkv && model.traits.alibi == traits.alibi);
    ASSERT(model.traits.scores_capped == traits.scores_capped);
    ASSERT(model.traits.logits_capped == traits.logits_capped);
    ASSERT(model.traits.flash_2_alone == traits.flash_2_alone);
}

TEST(job_model_families,
     "families that write their layers in other ways have their published numbers of parameters")
{
    assert_family(
        "{\"model_type\":\"falcon\",\"num_hidden_layers\":32,\"hidden_size\":4544,\"num_attention_heads\":71,"
        "\"vocab_size\":65024}", /* 7B */
        6921720704,
        (struct workload_traits){.residual = WORKLOAD_BESIDE_ONE_NORM,
                                 .softmax = WORKLOAD_SOFTMAX_AS_IT_IS,
                                 .flash_2_alone = true});
    assert_family(
        "{\"model_type\":\"falcon\",\"num_hidden_layers\":60,\"hidden_size\":8192,\"num_attention_heads\":"
        "128,"
        "\"num_kv_heads\":8,\"new_decoder_architecture\":true,\"vocab_size\":65024}", /* 40B */
        41303293952,
        (struct workload_traits){.residual = WORKLOAD_BESIDE, .softmax = WORKLOAD_SOFTMAX_AS_IT_IS});
    assert_family(
        "{\"model_type\":\"opt\",\"num_hidden_layers\":12,\"hidden_size\":768,\"num_attention_heads\":12,"
        "\"ffn_dim\":3072,\"vocab_size\":50272,\"word_embed_proj_dim\":768}", /* OPT-125m */
        125239296, (struct workload_traits){.alibi = false});
    assert_family(
        "{\"model_type\":\"bloom\",\"n_layer\":24,\"hidden_size\":1024,\"n_head\":16,\"vocab_size\":250880}",
        559214592, /* bloom-560m */
        (struct workload_traits){.joint_qkv = true, .alibi = true, .flash_2_alone = true});
    assert_family("{\"model_type\":\"gptj\",\"n_layer\":28,\"n_embd\":4096,\"n_head\":16,\"n_inner\":null,"
                  "\"vocab_size\":50400,\"tie_word_embeddings\":false}", /* gpt-j-6b */
                  6050882784,
                  (struct workload_traits){.residual = WORKLOAD_BESIDE_ONE_NORM,
                                           .softmax = WORKLOAD_SOFTMAX_FP32,
                                           .flash_2_alone = true});
    assert_family(
        "{\"model_type\":\"phi\",\"num_hidden_layers\":32,\"hidden_size\":2560,\"num_attention_heads\":32,"
        "\"intermediate_size\":10240,\"vocab_size\":51200}", /* phi-2 */
        2779683840, (struct workload_traits){.residual = WORKLOAD_BESIDE_ONE_NORM});
    assert_family("{\"model_type\":\"gpt_neox\",\"num_hidden_layers\":12,\"hidden_size\":768,\"num_attention_"
                  "heads\":12,"
                  "\"intermediate_size\":3072,\"vocab_size\":50304,\"use_parallel_residual\":false}",
                  162322944, (struct workload_traits){.joint_qkv = true});
    assert_family(
        "{\"model_type\":\"gemma\",\"num_hidden_layers\":18,\"hidden_size\":2048,\"num_attention_heads\":8,"
        "\"num_key_value_heads\":1,\"head_dim\":256,\"intermediate_size\":16384,\"vocab_size\":256000}",
        2506172416, /* gemma-2b */
        (struct workload_traits){.norms_fp32 = true});
    assert_family(
        "{\"model_type\":\"gemma2\",\"num_hidden_layers\":26,\"hidden_size\":2304,\"num_attention_heads\":8,"
        "\"intermediate_size\":9216,\"vocab_size\":256000,\"attn_logit_softcapping\":null}", /* 2b */
        2614341888, (struct workload_traits){.norms_fp32 = true, .post_norms = true, .logits_capped = true});
    assert_family("{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":26,\"hidden_size\":1152,\"num_"
                  "attention_heads\":"
                  "4,\"num_key_value_heads\":1,\"intermediate_size\":6912,\"vocab_size\":262144}", /* 1b */
                  999885952, (struct workload_traits){.norms_fp32 = true, .post_norms = true});
    assert_refused(
        "{\"model_type\":\"opt\",\"num_hidden_layers\":24,\"hidden_size\":1024,\"num_attention_heads\":16,"
        "\"ffn_dim\":4096,\"vocab_size\":50272,\"word_embed_proj_dim\":512}",
        "OPT-350m");
}

TEST(job_model_refusals, "configurations that cannot be are refused by name")
{
    assert_refused("{\"model_type\":\"t5\"}", "model_type \"t5\" is not known; gpt2, llama, ");
    assert_refused("{\"hidden_size\":1}", "model_type");
    assert_refused("{\"model_type\":\"gpt2\",\"n_layer\":0,\"n_embd\":8,\"n_head\":2,\"vocab_size\":9}",
                   "layers is 0; it must be between 1 and 100000");
    assert_refused(
        "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":8,"
        "\"num_key_value_heads\":3,\"intermediate_size\":96,\"vocab_size\":100}",
        "3 key/value heads do not divide 8 heads");
    assert_refused("{\"model_type\":\"mixtral\",\"num_hidden_layers\":100000,\"hidden_size\":1048576,\"num_"
                   "attention_heads\":64,"
                   "\"intermediate_size\":16777216,\"vocab_size\":100,\"num_local_experts\":60000,\"num_"
                   "experts_per_tok\":2}",
                   "more than 63 bits count");
}
