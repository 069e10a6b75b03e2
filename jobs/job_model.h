/* What a job trains, when it is more than model/model.h describes: mixtures of experts, multi-head latent attention, BERT,
 * adapters. From a config.json, a framework's options, or counted in a safetensors file. */
#ifndef MEMPLAN_JOBS_JOB_MODEL_H
#define MEMPLAN_JOBS_JOB_MODEL_H

#include "base/error.h"
#include "base/json.h"
#include "model/model.h"
#include "planner/frameworks/workload.h"

#include <stdbool.h>
#include <stdint.h>

enum job_model_kind {
    JOB_DECODER, /* each position sees those before it */
    JOB_ENCODER, /* BERT: post-norm, no mask, token types */
};

enum job_norm { JOB_LAYER_NORM, JOB_RMS_NORM };
enum job_positions { JOB_LEARNED, JOB_ROPE, JOB_NO_POSITIONS };

struct job_experts {
    int64_t count;        /* routed experts of a layer; 0: none, every layer is dense */
    int64_t active;       /* that a token is sent to */
    int64_t ffn;          /* of a routed expert */
    int64_t shared_ffn;   /* of all shared experts of a layer together; 0: none */
    bool shared_gate;     /* the shared experts have a gate of their own */
    bool router_bias;     /* a correction for each expert, which is no parameter of the loss */
    int64_t dense_layers; /* the first so many have no experts */
    int64_t every;        /* of the others, every so many-th has; 1: each */
};

/* DeepSeek's attention; kv_rank 0: none. */
struct job_latent {
    int64_t q_rank;  /* 0: queries are not compressed */
    int64_t kv_rank;
    int64_t nope_size, rope_size, value_size; /* of a head */
};

struct job_model {
    char name[MODEL_NAME];
    char type[MODEL_NAME]; /* "llama", "mixtral", "gpt2", "bert" */
    enum job_model_kind kind;
    enum job_norm norm;
    enum job_positions positions;
    int64_t layers, hidden, heads, kv_heads, head_size, ffn, vocab, max_seq_len;
    int64_t unused_positions; /* of max_seq_len, which no text has (RoBERTa) */
    int64_t token_types;      /* BERT's segments */
    bool gated;          /* SwiGLU: three matrices instead of two */
    bool tied;
    bool qkv_bias, proj_bias, ffn_bias, head_bias;
    bool qk_norm;
    int64_t classes; /* of a classifier of sequences instead of the vocabulary's head */
    bool pooler, head_transform; /* BERT's: a dense layer for sentences, one before the vocabulary */
    double hidden_dropout, attention_dropout;
    double norm_eps, rope_theta;
    char activation[24];
    struct workload_traits traits; /* how transformers writes its layers */
    bool embedding_norm; /* BLOOM's */
    struct job_experts experts;
    struct job_latent latent;
    int64_t extra_layers; /* that predict further tokens (DeepSeek-V3); not counted as parameters */
    int64_t counted_parameters; /* in a weights file; 0: none was read */
    char counted_dtype[8];      /* of most of them: "BF16" */
    char dtype[16];             /* of the weights as config.json says: "bfloat16"; or "" */
};

/* An adapter on a frozen model. */
struct job_adapter {
    int64_t rank; /* 0: none, all weights are trained */
    int64_t alpha;
    double dropout;
    const char *targets; /* "q_proj,v_proj"; "all-linear" */
    int64_t weight_bits; /* of the frozen weights: 4 (QLoRA), 8; 0: as the model's */
    bool double_quantized;
    bool prepared; /* for quantized training: what is not quantized, and so norms, were cast to fp32 */
    bool cast;     /* autocast casts the adapters, beside weights that are not in fp32 */
};

/* From `config`, an object of a config.json, into *out, which stays as it is on failure: a model_type that is not known, or
 * sizes that no model has. `where` is the file, for messages and the model's name. */
int job_model_from_config(const json_t *config, const char *where, struct job_model *out, struct error *err);
/* Every size is in range and divides what it must. */
int job_model_check(const struct job_model *model, const char *where, struct error *err);
/* Parameters that the description has: a tied head counts once. */
int64_t job_model_parameters(const struct job_model *model);
/* Of them, those that a token meets: all but the experts that it is not sent to. */
int64_t job_model_active_parameters(const struct job_model *model);
/* How many layers have experts. */
int64_t job_model_expert_layers(const struct job_model *model);

#endif
