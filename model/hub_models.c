/* The keys are those of each model's config.json on the hub, under the name that its row has. They were read in public copies of
 * these files (the presets of mlc-llm, the configurations of litgpt 0.5.13 and of torchtune 0.6.1, the defaults and examples of
 * transformers 4.57.6; those of Llama 1, Vicuna, Code Llama, Yi, Falcon 3, Mistral Nemo and Small, DeepSeek LLM and Coder from their repositories on the
 * hub), and each count of parameters that they lead to is the published one: tests/jobs/test_hub_models.c.
 * Epsilons of norms and longest texts, which decide no count, are in some rows from the models' pages alone. Models whose layers
 * neither the trainer nor a rule is about are left out. */
#include "model/hub_models.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { NAMES_OF_ONE = 8, ORIGINAL_NAME = 96 };

#define BF16         ",\"torch_dtype\":\"bfloat16\""
#define FP16         ",\"torch_dtype\":\"float16\""
#define FP32         ",\"torch_dtype\":\"float32\""
#define TIED         ",\"tie_word_embeddings\":true"
#define HEAD_SIZE(D) ",\"head_dim\":" #D

#define GPT2(L, C, H)                                                                                        \
    "{\"model_type\":\"gpt2\",\"activation_function\":\"gelu_new\",\"n_layer\":" #L ",\"n_embd\":" #C        \
    ",\"n_head\":" #H ",\"vocab_size\":50257,\"n_positions\":1024,\"layer_norm_epsilon\":1e-05,"             \
    "\"resid_pdrop\":0.1,\"attn_pdrop\":0.1}"

#define SIZES(TYPE, L, C, H, F, V, T)                                                                        \
    "{\"model_type\":\"" TYPE "\",\"num_hidden_layers\":" #L ",\"hidden_size\":" #C                          \
    ",\"num_attention_heads\":" #H ",\"intermediate_size\":" #F ",\"vocab_size\":" #V                        \
    ",\"max_position_embeddings\":" #T

/* run_mlm.py makes a model for masked words of each, whatever head the file's weights have. */
#define BERT(TYPE, HEAD, L, C, H, F, V, T, SEGMENTS, EPS)                                                    \
    SIZES(TYPE, L, C, H, F, V, T)                                                                            \
    ",\"architectures\":[\"" HEAD "\"],\"type_vocab_size\":" #SEGMENTS ",\"layer_norm_eps\":" #EPS           \
    ",\"hidden_dropout_prob\":0.1,\"attention_probs_dropout_prob\":0.1}"
#define BERT_BASE(V)        BERT("bert", "BertForMaskedLM", 12, 768, 12, 3072, V, 512, 2, 1e-12)
#define BERT_LARGE(V)       BERT("bert", "BertForMaskedLM", 24, 1024, 16, 4096, V, 512, 2, 1e-12)
#define ROBERTA(L, C, H, F) BERT("roberta", "RobertaForMaskedLM", L, C, H, F, 50265, 514, 1, 1e-05)
#define XLM_ROBERTA(L, C, H, F)                                                                              \
    BERT("xlm-roberta", "XLMRobertaForMaskedLM", L, C, H, F, 250002, 514, 1, 1e-05)

#define DECODER(TYPE, L, C, H, K, F, V, T, EPS, THETA, MORE)                                                 \
    SIZES(TYPE, L, C, H, F, V, T)                                                                            \
    ",\"num_key_value_heads\":" #K ",\"hidden_act\":\"silu\",\"rms_norm_eps\":" #EPS                         \
    ",\"rope_theta\":" #THETA MORE "}"

#define LLAMA2(L, C, H, K, F) DECODER("llama", L, C, H, K, F, 32000, 4096, 1e-05, 10000.0, FP16)
#define SCALED(FACTOR)                                                                                       \
    ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":" #FACTOR                                        \
    ",\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}"
#define LLAMA3(L, C, H, K, F, T, MORE) DECODER("llama", L, C, H, K, F, 128256, T, 1e-05, 500000.0, BF16 MORE)
#define LLAMA_SMALL(L, C, H, K, F, V, T, THETA, MORE)                                                        \
    DECODER("llama", L, C, H, K, F, V, T, 1e-05, THETA, MORE)

#define LLAMA1(L, C, H, F)           DECODER("llama", L, C, H, H, F, 32000, 2048, 1e-06, 10000.0, FP16)
#define CODE_LLAMA(L, C, H, K, F, V) LLAMA_SMALL(L, C, H, K, F, V, 16384, 1000000, BF16)
#define YI(L, C, H, F)               LLAMA_SMALL(L, C, H, 4, F, 64000, 4096, 5000000.0, BF16)
#define YI34                         LLAMA_SMALL(60, 7168, 56, 8, 20480, 64000, 4096, 5000000.0, BF16)
#define FALCON3(L, C, H, F, T)       LLAMA_SMALL(L, C, H, 4, F, 131072, T, 1000042, BF16 HEAD_SIZE(256))

#define MISTRAL(V, THETA, WINDOW)                                                                            \
    DECODER("mistral", 32, 4096, 32, 8, 14336, V, 32768, 1e-05, THETA, BF16 ",\"sliding_window\":" WINDOW)
#define MISTRAL_LARGER(F, V, T, THETA)                                                                       \
    DECODER("mistral", 40, 5120, 32, 8, F, V, T, 1e-05, THETA, BF16 HEAD_SIZE(128) ",\"sliding_window\":null")
#define MIXTRAL(L, C, H, F, V, T)                                                                            \
    DECODER("mixtral", L, C, H, 8, F, V, T, 1e-05, 1000000.0,                                                \
            BF16 ",\"num_local_experts\":8,\"num_experts_per_tok\":2")

#define QWEN2(L, C, H, K, F, V, T, EPS, MORE) DECODER("qwen2", L, C, H, K, F, V, T, EPS, 1000000.0, BF16 MORE)
#define QWEN3(L, C, H, F, T, THETA, MORE)                                                                    \
    DECODER("qwen3", L, C, H, 8, F, 151936, T, 1e-06, THETA, BF16 HEAD_SIZE(128) MORE)
#define QWEN3_EXPERTS(L, C, H, F, EACH, T, THETA)                                                            \
    DECODER("qwen3_moe", L, C, H, 4, F, 151936, T, 1e-06, THETA,                                             \
            BF16 HEAD_SIZE(128) ",\"num_experts\":128,\"num_experts_per_tok\":8,\"decoder_sparse_step\":1,"  \
                                "\"moe_intermediate_size\":" #EACH)

#define PHI3(L, C, H, K, F, V, T, THETA, MORE) DECODER("phi3", L, C, H, K, F, V, T, 1e-05, THETA, BF16 MORE)

#define OLMO2(L, C, H, K, F) DECODER("olmo2", L, C, H, K, F, 100352, 4096, 1e-06, 500000, "")

#define DEEPSEEK(TYPE, L, C, H, F, V, EXPERTS, ACTIVE, EACH, SHARED, DENSE, MORE)                            \
    DECODER(TYPE, L, C, H, H, F, V, 163840, 1e-06, 10000,                                                    \
            BF16 ",\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,"                   \
                 "\"v_head_dim\":128,\"moe_layer_freq\":1,\"n_routed_experts\":" #EXPERTS                    \
                 ",\"num_experts_per_tok\":" #ACTIVE ",\"moe_intermediate_size\":" #EACH                     \
                 ",\"n_shared_experts\":" #SHARED ",\"first_k_dense_replace\":" #DENSE MORE)
#define QUERY_RANK ",\"q_lora_rank\":1536"

#define NEOX(L, C, H, F, V, T)                                                                               \
    SIZES("gpt_neox", L, C, H, F, V, T)                                                                      \
    ",\"hidden_act\":\"gelu\",\"layer_norm_eps\":1e-05,\"rotary_pct\":0.25" FP16 "}"

#define GPTJ(L, C, H, V)                                                                                     \
    "{\"model_type\":\"gptj\",\"n_layer\":" #L ",\"n_embd\":" #C ",\"n_head\":" #H ",\"vocab_size\":" #V     \
    ",\"n_positions\":2048,\"rotary_dim\":64,\"activation_function\":\"gelu_new\","                          \
    "\"tie_word_embeddings\":false}"

#define PHI(L, C, F) SIZES("phi", L, C, 32, F, 51200, 2048) ",\"partial_rotary_factor\":0.5" FP16 "}"

#define GEMMA(TYPE, L, C, H, K, D, F, V, MORE)                                                               \
    SIZES(TYPE, L, C, H, F, V, 8192) ",\"num_key_value_heads\":" #K HEAD_SIZE(D) MORE "}"
/* Of text alone; local RoPE, and every sixth layer without the window. */
#define GEMMA3(L, C, F)                                                                                      \
    SIZES("gemma3_text", L, C, 4, F, 262144, 32768)                                                          \
    ",\"num_key_value_heads\":1,\"head_dim\":256,\"sliding_window\":512,\"rope_theta\":1000000,"             \
    "\"rope_local_base_freq\":10000,\"query_pre_attn_scalar\":256" BF16 "}"
#define CAPPED ",\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0"

#define FALCON(L, C, H, MORE)                                                                                \
    "{\"model_type\":\"falcon\",\"num_hidden_layers\":" #L ",\"hidden_size\":" #C                            \
    ",\"num_attention_heads\":" #H ",\"vocab_size\":65024,\"bias\":false,\"alibi\":false,"                   \
    "\"parallel_attn\":true" BF16 MORE "}"

#define OPT(L, C, H, F)                                                                                      \
    "{\"model_type\":\"opt\",\"num_hidden_layers\":" #L ",\"hidden_size\":" #C                               \
    ",\"num_attention_heads\":" #H ",\"ffn_dim\":" #F ",\"vocab_size\":50272" FP16 "}"

#define BLOOM(L, C, H)                                                                                       \
    "{\"model_type\":\"bloom\",\"n_layer\":" #L ",\"hidden_size\":" #C ",\"n_head\":" #H                     \
    ",\"vocab_size\":250880" FP16 "}"

static const struct {
    const char *names[NAMES_OF_ONE];
    const char *config;
} models[] = {
    {{"gpt2", "openai-community/gpt2"}, GPT2(12, 768, 12)},
    {{"gpt2-medium", "openai-community/gpt2-medium"}, GPT2(24, 1024, 16)},
    {{"gpt2-large", "openai-community/gpt2-large"}, GPT2(36, 1280, 20)},
    {{"gpt2-xl", "openai-community/gpt2-xl"}, GPT2(48, 1600, 25)},
    {{"distilgpt2", "distilbert/distilgpt2"}, GPT2(6, 768, 12)},

    {{"bert-base-uncased", "google-bert/bert-base-uncased"}, BERT_BASE(30522)},
    {{"bert-base-cased", "google-bert/bert-base-cased"}, BERT_BASE(28996)},
    {{"bert-base-multilingual-cased", "google-bert/bert-base-multilingual-cased"}, BERT_BASE(119547)},
    {{"bert-base-multilingual-uncased", "google-bert/bert-base-multilingual-uncased"}, BERT_BASE(105879)},
    {{"bert-base-chinese", "google-bert/bert-base-chinese"}, BERT_BASE(21128)},
    {{"bert-large-uncased", "google-bert/bert-large-uncased", "bert-large-uncased-whole-word-masking"},
     BERT_LARGE(30522)},
    {{"bert-large-cased", "google-bert/bert-large-cased"}, BERT_LARGE(28996)},
    {{"roberta-base", "FacebookAI/roberta-base"}, ROBERTA(12, 768, 12, 3072)},
    {{"roberta-large", "FacebookAI/roberta-large"}, ROBERTA(24, 1024, 16, 4096)},
    {{"distilroberta-base", "distilbert/distilroberta-base"}, ROBERTA(6, 768, 12, 3072)},
    {{"xlm-roberta-base", "FacebookAI/xlm-roberta-base"}, XLM_ROBERTA(12, 768, 12, 3072)},
    {{"xlm-roberta-large", "FacebookAI/xlm-roberta-large"}, XLM_ROBERTA(24, 1024, 16, 4096)},

    {{"meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b",
      "meta-llama/Llama-2-7b-chat"},
     LLAMA2(32, 4096, 32, 32, 11008)},
    {{"meta-llama/Llama-2-13b-hf", "meta-llama/Llama-2-13b-chat-hf", "meta-llama/Llama-2-13b",
      "meta-llama/Llama-2-13b-chat"},
     LLAMA2(40, 5120, 40, 40, 13824)},
    {{"meta-llama/Llama-2-70b-hf", "meta-llama/Llama-2-70b-chat-hf", "meta-llama/Llama-2-70b",
      "meta-llama/Llama-2-70b-chat"},
     LLAMA2(80, 8192, 64, 8, 28672)},
    {{"meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B-Instruct"},
     LLAMA3(32, 4096, 32, 8, 14336, 8192, "")},
    {{"meta-llama/Meta-Llama-3-70B", "meta-llama/Meta-Llama-3-70B-Instruct"},
     LLAMA3(80, 8192, 64, 8, 28672, 8192, "")},
    {{"meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B",
      "meta-llama/Meta-Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"},
     LLAMA3(32, 4096, 32, 8, 14336, 131072, SCALED(8.0))},
    {{"meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Meta-Llama-3.1-70B",
      "meta-llama/Meta-Llama-3.1-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct",
      "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"},
     LLAMA3(80, 8192, 64, 8, 28672, 131072, SCALED(8.0))},
    {{"meta-llama/Llama-3.1-405B", "meta-llama/Llama-3.1-405B-Instruct", "meta-llama/Meta-Llama-3.1-405B",
      "meta-llama/Meta-Llama-3.1-405B-Instruct"},
     LLAMA3(126, 16384, 128, 8, 53248, 131072, SCALED(8.0))},
    {{"meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B-Instruct"},
     LLAMA3(16, 2048, 32, 8, 8192, 131072, SCALED(32.0) HEAD_SIZE(64) TIED)},
    {{"meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.2-3B-Instruct"},
     LLAMA3(28, 3072, 24, 8, 8192, 131072, SCALED(32.0) HEAD_SIZE(128) TIED)},

    {{"huggyllama/llama-7b", "lmsys/vicuna-7b-v1.3"}, LLAMA1(32, 4096, 32, 11008)},
    {{"huggyllama/llama-13b", "lmsys/vicuna-13b-v1.3"}, LLAMA1(40, 5120, 40, 13824)},
    {{"huggyllama/llama-30b", "lmsys/vicuna-33b-v1.3"}, LLAMA1(60, 6656, 52, 17920)},
    {{"huggyllama/llama-65b"}, LLAMA1(80, 8192, 64, 22016)},
    {{"lmsys/vicuna-7b-v1.5"}, LLAMA2(32, 4096, 32, 32, 11008)},
    {{"lmsys/vicuna-13b-v1.5"}, LLAMA2(40, 5120, 40, 40, 13824)},
    {{"codellama/CodeLlama-7b-hf", "codellama/CodeLlama-7b-Instruct-hf"},
     CODE_LLAMA(32, 4096, 32, 32, 11008, 32016)},
    {{"codellama/CodeLlama-13b-hf", "codellama/CodeLlama-13b-Instruct-hf"},
     CODE_LLAMA(40, 5120, 40, 40, 13824, 32016)},
    {{"codellama/CodeLlama-34b-hf", "codellama/CodeLlama-34b-Instruct-hf",
      "codellama/CodeLlama-34b-Python-hf"},
     CODE_LLAMA(48, 8192, 64, 8, 22016, 32000)},
    {{"01-ai/Yi-6B", "01-ai/Yi-6B-Chat", "01-ai/Yi-1.5-6B", "01-ai/Yi-1.5-6B-Chat"}, YI(32, 4096, 32, 11008)},
    {{"01-ai/Yi-1.5-9B", "01-ai/Yi-1.5-9B-Chat"}, YI(48, 4096, 32, 11008)},
    {{"01-ai/Yi-34B", "01-ai/Yi-34B-Chat"}, YI34},
    {{"deepseek-ai/deepseek-llm-7b-base", "deepseek-ai/deepseek-llm-7b-chat"},
     LLAMA_SMALL(30, 4096, 32, 32, 11008, 102400, 4096, 10000.0, BF16)},
    {{"deepseek-ai/deepseek-coder-1.3b-base", "deepseek-ai/deepseek-coder-1.3b-instruct"},
     LLAMA_SMALL(24, 2048, 16, 16, 5504, 32256, 16384, 100000, BF16)},
    {{"deepseek-ai/deepseek-coder-6.7b-base", "deepseek-ai/deepseek-coder-6.7b-instruct"},
     LLAMA_SMALL(32, 4096, 32, 32, 11008, 32256, 16384, 100000, BF16)},
    {{"deepseek-ai/deepseek-coder-33b-base", "deepseek-ai/deepseek-coder-33b-instruct"},
     LLAMA_SMALL(62, 7168, 56, 8, 19200, 32256, 16384, 100000, BF16)},
    {{"tiiuae/Falcon3-1B-Base", "tiiuae/Falcon3-1B-Instruct"}, FALCON3(18, 2048, 8, 8192, 8192)},
    {{"tiiuae/Falcon3-3B-Base", "tiiuae/Falcon3-3B-Instruct"}, FALCON3(22, 3072, 12, 9216, 32768)},
    {{"tiiuae/Falcon3-7B-Base", "tiiuae/Falcon3-7B-Instruct"}, FALCON3(28, 3072, 12, 23040, 32768)},
    {{"tiiuae/Falcon3-10B-Base", "tiiuae/Falcon3-10B-Instruct"}, FALCON3(40, 3072, 12, 23040, 32768)},

    {{"mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-Instruct-v0.1"}, MISTRAL(32000, 10000.0, "4096")},
    {{"mistralai/Mistral-7B-Instruct-v0.2"}, MISTRAL(32000, 1000000.0, "null")},
    {{"mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-Instruct-v0.3"}, MISTRAL(32768, 1000000.0, "null")},
    {{"mistralai/Mistral-Nemo-Base-2407", "mistralai/Mistral-Nemo-Instruct-2407"},
     MISTRAL_LARGER(14336, 131072, 1024000, 1000000.0)},
    {{"mistralai/Mistral-Small-24B-Base-2501", "mistralai/Mistral-Small-24B-Instruct-2501"},
     MISTRAL_LARGER(32768, 131072, 32768, 100000000.0)},
    {{"mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x7B-Instruct-v0.1"},
     MIXTRAL(32, 4096, 32, 14336, 32000, 32768)},
    {{"mistralai/Mixtral-8x22B-v0.1", "mistralai/Mixtral-8x22B-Instruct-v0.1"},
     MIXTRAL(56, 6144, 48, 16384, 32768, 65536)},

    {{"Qwen/Qwen2-0.5B"}, QWEN2(24, 896, 14, 2, 4864, 151936, 131072, 1e-06, TIED)},
    {{"Qwen/Qwen2-0.5B-Instruct", "Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct"},
     QWEN2(24, 896, 14, 2, 4864, 151936, 32768, 1e-06, TIED)},
    {{"Qwen/Qwen2-1.5B", "Qwen/Qwen2.5-1.5B"}, QWEN2(28, 1536, 12, 2, 8960, 151936, 131072, 1e-06, TIED)},
    {{"Qwen/Qwen2-1.5B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"},
     QWEN2(28, 1536, 12, 2, 8960, 151936, 32768, 1e-06, TIED)},
    {{"Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-3B-Instruct"},
     QWEN2(36, 2048, 16, 2, 11008, 151936, 32768, 1e-06, TIED)},
    {{"Qwen/Qwen2-7B", "Qwen/Qwen2.5-7B"}, QWEN2(28, 3584, 28, 4, 18944, 152064, 131072, 1e-06, "")},
    {{"Qwen/Qwen2-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"},
     QWEN2(28, 3584, 28, 4, 18944, 152064, 32768, 1e-06, "")},
    {{"Qwen/Qwen2.5-14B"}, QWEN2(48, 5120, 40, 8, 13824, 152064, 131072, 1e-05, "")},
    {{"Qwen/Qwen2.5-14B-Instruct"}, QWEN2(48, 5120, 40, 8, 13824, 152064, 32768, 1e-06, "")},
    {{"Qwen/Qwen2.5-32B"}, QWEN2(64, 5120, 40, 8, 27648, 152064, 131072, 1e-05, "")},
    {{"Qwen/Qwen2.5-32B-Instruct"}, QWEN2(64, 5120, 40, 8, 27648, 152064, 32768, 1e-06, "")},
    {{"Qwen/Qwen2-72B", "Qwen/Qwen2.5-72B"}, QWEN2(80, 8192, 64, 8, 29568, 152064, 131072, 1e-05, "")},
    {{"Qwen/Qwen2-72B-Instruct", "Qwen/Qwen2.5-72B-Instruct"},
     QWEN2(80, 8192, 64, 8, 29568, 152064, 32768, 1e-06, "")},

    {{"Qwen/Qwen2.5-Coder-0.5B", "Qwen/Qwen2.5-Coder-0.5B-Instruct"},
     QWEN2(24, 896, 14, 2, 4864, 151936, 32768, 1e-06, TIED)},
    {{"Qwen/Qwen2.5-Coder-1.5B", "Qwen/Qwen2.5-Coder-1.5B-Instruct"},
     QWEN2(28, 1536, 12, 2, 8960, 151936, 32768, 1e-06, TIED)},
    {{"Qwen/Qwen2.5-Math-1.5B", "Qwen/Qwen2.5-Math-1.5B-Instruct"},
     QWEN2(28, 1536, 12, 2, 8960, 151936, 4096, 1e-06, TIED)},
    {{"Qwen/Qwen2.5-Coder-3B", "Qwen/Qwen2.5-Coder-3B-Instruct"},
     QWEN2(36, 2048, 16, 2, 11008, 151936, 32768, 1e-06, TIED)},
    {{"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"}, QWEN2(28, 1536, 12, 2, 8960, 151936, 131072, 1e-06, "")},
    {{"Qwen/Qwen2.5-Coder-7B", "Qwen/Qwen2.5-Coder-7B-Instruct"},
     QWEN2(28, 3584, 28, 4, 18944, 152064, 32768, 1e-06, "")},
    {{"Qwen/Qwen2.5-Math-7B", "Qwen/Qwen2.5-Math-7B-Instruct"},
     QWEN2(28, 3584, 28, 4, 18944, 152064, 4096, 1e-06, "")},
    {{"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"}, QWEN2(28, 3584, 28, 4, 18944, 152064, 131072, 1e-06, "")},
    {{"Qwen/Qwen2.5-Coder-14B", "Qwen/Qwen2.5-Coder-14B-Instruct"},
     QWEN2(48, 5120, 40, 8, 13824, 152064, 32768, 1e-06, "")},
    {{"deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"}, QWEN2(48, 5120, 40, 8, 13824, 152064, 131072, 1e-05, "")},
    {{"Qwen/Qwen2.5-Coder-32B", "Qwen/Qwen2.5-Coder-32B-Instruct", "Qwen/QwQ-32B-Preview"},
     QWEN2(64, 5120, 40, 8, 27648, 152064, 32768, 1e-06, "")},
    {{"Qwen/QwQ-32B"}, QWEN2(64, 5120, 40, 8, 27648, 152064, 40960, 1e-05, "")},
    {{"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"}, QWEN2(64, 5120, 40, 8, 27648, 152064, 131072, 1e-05, "")},
    {{"Qwen/Qwen2.5-Math-72B", "Qwen/Qwen2.5-Math-72B-Instruct"},
     QWEN2(80, 8192, 64, 8, 29568, 152064, 4096, 1e-06, "")},

    {{"Qwen/Qwen3-0.6B"}, QWEN3(28, 1024, 16, 3072, 40960, 1000000, TIED)},
    {{"Qwen/Qwen3-0.6B-Base"}, QWEN3(28, 1024, 16, 3072, 32768, 1000000, TIED)},
    {{"Qwen/Qwen3-1.7B"}, QWEN3(28, 2048, 16, 6144, 40960, 1000000, TIED)},
    {{"Qwen/Qwen3-1.7B-Base"}, QWEN3(28, 2048, 16, 6144, 32768, 1000000, TIED)},
    {{"Qwen/Qwen3-4B"}, QWEN3(36, 2560, 32, 9728, 40960, 1000000, TIED)},
    {{"Qwen/Qwen3-4B-Base"}, QWEN3(36, 2560, 32, 9728, 32768, 1000000, TIED)},
    {{"Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-4B-Thinking-2507"},
     QWEN3(36, 2560, 32, 9728, 262144, 5000000, TIED)},
    {{"Qwen/Qwen3-8B"}, QWEN3(36, 4096, 32, 12288, 40960, 1000000, "")},
    {{"Qwen/Qwen3-8B-Base"}, QWEN3(36, 4096, 32, 12288, 32768, 1000000, "")},
    {{"Qwen/Qwen3-14B"}, QWEN3(40, 5120, 40, 17408, 40960, 1000000, "")},
    {{"Qwen/Qwen3-14B-Base"}, QWEN3(40, 5120, 40, 17408, 32768, 1000000, "")},
    {{"Qwen/Qwen3-32B"}, QWEN3(64, 5120, 64, 25600, 40960, 1000000, "")},
    {{"Qwen/Qwen3-30B-A3B"}, QWEN3_EXPERTS(48, 2048, 32, 6144, 768, 40960, 1000000)},
    {{"Qwen/Qwen3-30B-A3B-Base"}, QWEN3_EXPERTS(48, 2048, 32, 6144, 768, 32768, 1000000)},
    {{"Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B-Thinking-2507"},
     QWEN3_EXPERTS(48, 2048, 32, 6144, 768, 262144, 10000000)},
    {{"Qwen/Qwen3-235B-A22B"}, QWEN3_EXPERTS(94, 4096, 64, 12288, 1536, 40960, 1000000)},
    {{"Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen/Qwen3-235B-A22B-Thinking-2507"},
     QWEN3_EXPERTS(94, 4096, 64, 12288, 1536, 262144, 5000000)},

    {{"deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V2-Lite-Chat"},
     DEEPSEEK("deepseek_v2", 27, 2048, 16, 10944, 102400, 64, 6, 1408, 2, 1, "")},
    {{"deepseek-ai/DeepSeek-V2", "deepseek-ai/DeepSeek-V2-Chat"},
     DEEPSEEK("deepseek_v2", 60, 5120, 128, 12288, 102400, 160, 6, 1536, 2, 1, QUERY_RANK)},
    {{"deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3-Base", "deepseek-ai/DeepSeek-R1",
      "deepseek-ai/DeepSeek-R1-Zero", "deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-V3-0324",
      "deepseek-ai/DeepSeek-V3.1", "deepseek-ai/DeepSeek-V3.1-Base"},
     DEEPSEEK("deepseek_v3", 61, 7168, 128, 18432, 129280, 256, 8, 2048, 1, 3,
              QUERY_RANK ",\"num_nextn_predict_layers\":1")},

    {{"microsoft/Phi-3-mini-4k-instruct"}, PHI3(32, 3072, 32, 32, 8192, 32064, 4096, 10000.0, "")},
    {{"microsoft/Phi-3-mini-128k-instruct", "microsoft/Phi-3.5-mini-instruct"},
     PHI3(32, 3072, 32, 32, 8192, 32064, 131072, 10000.0, "")},
    {{"microsoft/Phi-4-mini-instruct"},
     PHI3(32, 3072, 24, 8, 8192, 200064, 131072, 10000.0, TIED ",\"partial_rotary_factor\":0.75")},
    {{"microsoft/phi-4"}, PHI3(40, 5120, 40, 10, 17920, 100352, 16384, 250000, "")},

    {{"allenai/OLMo-2-0425-1B", "allenai/OLMo-2-0425-1B-SFT", "allenai/OLMo-2-0425-1B-DPO",
      "allenai/OLMo-2-0425-1B-Instruct"},
     OLMO2(16, 2048, 16, 16, 8192)},
    {{"allenai/OLMo-2-1124-7B", "allenai/OLMo-2-1124-7B-SFT", "allenai/OLMo-2-1124-7B-DPO",
      "allenai/OLMo-2-1124-7B-Instruct"},
     OLMO2(32, 4096, 32, 32, 11008)},
    {{"allenai/OLMo-2-1124-13B", "allenai/OLMo-2-1124-13B-SFT", "allenai/OLMo-2-1124-13B-DPO",
      "allenai/OLMo-2-1124-13B-Instruct"},
     OLMO2(40, 5120, 40, 40, 13824)},
    {{"allenai/OLMo-2-0325-32B", "allenai/OLMo-2-0325-32B-SFT", "allenai/OLMo-2-0325-32B-DPO",
      "allenai/OLMo-2-0325-32B-Instruct"},
     OLMO2(64, 5120, 40, 8, 27648)},

    {{"TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T"},
     LLAMA_SMALL(22, 2048, 32, 4, 5632, 32000, 2048, 10000.0, FP32)},
    {{"TinyLlama/TinyLlama-1.1B-Chat-v1.0"}, LLAMA_SMALL(22, 2048, 32, 4, 5632, 32000, 2048, 10000.0, BF16)},
    {{"HuggingFaceTB/SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M-Instruct"},
     LLAMA_SMALL(30, 576, 9, 3, 1536, 49152, 8192, 100000, BF16 TIED)},
    {{"HuggingFaceTB/SmolLM2-360M", "HuggingFaceTB/SmolLM2-360M-Instruct"},
     LLAMA_SMALL(32, 960, 15, 5, 2560, 49152, 8192, 100000, BF16 TIED)},
    {{"HuggingFaceTB/SmolLM2-1.7B", "HuggingFaceTB/SmolLM2-1.7B-Instruct"},
     LLAMA_SMALL(24, 2048, 32, 32, 8192, 49152, 8192, 130000, BF16 TIED)},

    {{"EleutherAI/pythia-14m"}, NEOX(6, 128, 4, 512, 50304, 512)},
    {{"EleutherAI/pythia-31m"}, NEOX(6, 256, 8, 1024, 50304, 1024)},
    {{"EleutherAI/pythia-70m", "EleutherAI/pythia-70m-deduped"}, NEOX(6, 512, 8, 2048, 50304, 2048)},
    {{"EleutherAI/pythia-160m", "EleutherAI/pythia-160m-deduped"}, NEOX(12, 768, 12, 3072, 50304, 2048)},
    {{"EleutherAI/pythia-410m", "EleutherAI/pythia-410m-deduped"}, NEOX(24, 1024, 16, 4096, 50304, 2048)},
    {{"EleutherAI/pythia-1b", "EleutherAI/pythia-1b-deduped"}, NEOX(16, 2048, 8, 8192, 50304, 2048)},
    {{"EleutherAI/pythia-1.4b", "EleutherAI/pythia-1.4b-deduped"}, NEOX(24, 2048, 16, 8192, 50304, 2048)},
    {{"EleutherAI/pythia-2.8b", "EleutherAI/pythia-2.8b-deduped"}, NEOX(32, 2560, 32, 10240, 50304, 2048)},
    {{"EleutherAI/pythia-6.9b", "EleutherAI/pythia-6.9b-deduped"}, NEOX(32, 4096, 32, 16384, 50432, 2048)},
    {{"EleutherAI/pythia-12b", "EleutherAI/pythia-12b-deduped"}, NEOX(36, 5120, 40, 20480, 50688, 2048)},
    {{"EleutherAI/gpt-neox-20b"}, NEOX(44, 6144, 64, 24576, 50432, 2048)},
    {{"EleutherAI/gpt-j-6b", "EleutherAI/gpt-j-6B"}, GPTJ(28, 4096, 16, 50400)},

    {{"microsoft/phi-1", "microsoft/phi-1_5"}, PHI(24, 2048, 8192)},
    {{"microsoft/phi-2"}, PHI(32, 2560, 10240)},

    {{"google/gemma-2b", "google/gemma-2b-it", "google/gemma-1.1-2b-it"},
     GEMMA("gemma", 18, 2048, 8, 1, 256, 16384, 256000, BF16)},
    {{"google/gemma-7b", "google/gemma-7b-it", "google/gemma-1.1-7b-it"},
     GEMMA("gemma", 28, 3072, 16, 16, 256, 24576, 256000, BF16)},
    {{"google/gemma-2-2b"}, GEMMA("gemma2", 26, 2304, 8, 4, 256, 9216, 256000, FP32 CAPPED)},
    {{"google/gemma-2-2b-it"}, GEMMA("gemma2", 26, 2304, 8, 4, 256, 9216, 256000, BF16 CAPPED)},
    {{"google/gemma-2-9b"}, GEMMA("gemma2", 42, 3584, 16, 8, 256, 14336, 256000, FP32 CAPPED)},
    {{"google/gemma-2-9b-it"}, GEMMA("gemma2", 42, 3584, 16, 8, 256, 14336, 256000, BF16 CAPPED)},
    {{"google/gemma-2-27b"}, GEMMA("gemma2", 46, 4608, 32, 16, 128, 36864, 256000, FP32 CAPPED)},
    {{"google/gemma-2-27b-it"}, GEMMA("gemma2", 46, 4608, 32, 16, 128, 36864, 256000, BF16 CAPPED)},
    {{"google/gemma-3-1b-pt", "google/gemma-3-1b-it"}, GEMMA3(26, 1152, 6912)},
    {{"google/gemma-3-270m", "google/gemma-3-270m-it"}, GEMMA3(18, 640, 2048)},

    {{"tiiuae/falcon-7b", "tiiuae/falcon-7b-instruct"}, FALCON(32, 4544, 71, "")},
    {{"tiiuae/falcon-40b", "tiiuae/falcon-40b-instruct"},
     FALCON(60, 8192, 128, ",\"new_decoder_architecture\":true,\"num_kv_heads\":8")},

    {{"facebook/opt-125m"}, OPT(12, 768, 12, 3072)},
    {{"facebook/opt-1.3b"}, OPT(24, 2048, 32, 8192)},
    {{"facebook/opt-2.7b"}, OPT(32, 2560, 32, 10240)},
    {{"facebook/opt-6.7b"}, OPT(32, 4096, 32, 16384)},
    {{"facebook/opt-13b"}, OPT(40, 5120, 40, 20480)},
    {{"facebook/opt-30b"}, OPT(48, 7168, 56, 28672)},

    {{"bigscience/bloom-560m", "bigscience/bloomz-560m"}, BLOOM(24, 1024, 16)},
    {{"bigscience/bloom-1b1", "bigscience/bloomz-1b1"}, BLOOM(24, 1536, 16)},
    {{"bigscience/bloom-1b7", "bigscience/bloomz-1b7"}, BLOOM(24, 2048, 16)},
    {{"bigscience/bloom-3b", "bigscience/bloomz-3b"}, BLOOM(30, 2560, 32)},
    {{"bigscience/bloom-7b1", "bigscience/bloomz-7b1"}, BLOOM(30, 4096, 32)},
    {{"bigscience/bloom", "bigscience/bloomz"}, BLOOM(70, 14336, 112)},
};

enum { MODELS = sizeof models / sizeof models[0] };

/* Who keeps copies of others' models, as they are, under their names: whose, and of whom. */
static const char *const mirrors[][2] = {
    {"NousResearch/", "meta-llama/"},
    {"unsloth/", "meta-llama/"},
    {"unsloth/", "Qwen/"},
};

/* The name that a copy has where it comes from; NULL: it is none. */
static const char *original(const char *name, int mirror, char room[ORIGINAL_NAME])
{
    const char *copy = mirrors[mirror][0], *of = mirrors[mirror][1];
    if (strncmp(name, copy, strlen(copy)))
        return NULL;
    return snprintf(room, ORIGINAL_NAME, "%s%s", of, name + strlen(copy)) < ORIGINAL_NAME ? room : NULL;
}

static json_t *config_of(const char *name)
{
    for (int i = 0; i < MODELS; i++)
        for (int k = 0; k < NAMES_OF_ONE && models[i].names[k]; k++)
            if (!strcmp(models[i].names[k], name))
                return json_loads(models[i].config, 0, NULL);
    return NULL;
}

json_t *hub_models_config(const char *name)
{
    char room[ORIGINAL_NAME];
    json_t *config = config_of(name);
    for (int i = 0; !config && i < (int)(sizeof mirrors / sizeof mirrors[0]); i++)
        if (original(name, i, room))
            config = config_of(room);
    return config;
}

const char *const *hub_models_names(void)
{
    static const char *names[MODELS * NAMES_OF_ONE + 1];
    int count = 0;
    for (int i = 0; i < MODELS; i++)
        for (int k = 0; k < NAMES_OF_ONE && models[i].names[k]; k++)
            names[count++] = models[i].names[k];
    return names;
}

const char *hub_models_short_name(const char *name)
{
    return text_base_name(name);
}
