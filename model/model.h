/* What is trained: the description of a transformer, from a preset, a Hugging Face config.json, or our own JSON. */
#ifndef MEMPLAN_MODEL_MODEL_H
#define MEMPLAN_MODEL_MODEL_H

#include "base/error.h"

#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

enum model_family {
    MODEL_GPT2,    /* learned positions, pre-norm LayerNorm, biases, GELU, tied head */
    MODEL_LLAMA,   /* RoPE, pre-norm RMSNorm, SwiGLU, grouped-query attention */
    MODEL_ENCODER, /* post-norm LayerNorm, biases, GELU, no mask; reads feature vectors, classifies each position */
};

/* Where the norms of a llama's layer stand. */
enum model_norms {
    NORMS_BEFORE, /* what attention and feed-forward read is normed */
    NORMS_BEHIND, /* what they give is, before it is added to the residual stream (OLMo 2) */
    NORMS_AROUND, /* both (Gemma 3) */
};

enum { MODEL_NAME = 64 };

struct model {
    char name[MODEL_NAME];
    enum model_family family;
    int64_t layers;    /* L */
    int64_t hidden;    /* C */
    int64_t heads;     /* H, query heads */
    int64_t kv_heads;  /* K, divides heads */
    int64_t head_size; /* D; H * D is C in most models */
    int64_t ffn;       /* F */
    int64_t vocab;     /* V: tokens, or classes of the encoder */
    int64_t max_seq_len;
    double norm_eps, rope_theta;
    int64_t unturned; /* llama: of a head's D elements, the last ones that RoPE leaves as they are; 0 in most models */
    bool tied;      /* the head uses the embedding's weights */
    bool qkv_bias;  /* always true for gpt2 and encoder */
    bool proj_bias; /* of attention's output; likewise */
    bool qk_norm;   /* llama: RMSNorm of each head's query and of its key before RoPE, with weights of D (Qwen3) */
    bool qk_norm_whole;      /* with qk_norm: of all queries of a position together, and of all its keys (OLMo 2) */
    enum model_norms norms;  /* llama */
    bool norm_add_one;       /* llama: what norms multiply by is 1 + their weights, which begin at 0 (Gemma) */
    bool gelu_gate;          /* llama: GELU, in its tanh form, in place of SiLU (Gemma) */
    bool scale_embedding;    /* llama: tokens' rows of the embedding are multiplied by sqrt(C), in the activations' type (Gemma) */
    int64_t window;     /* llama: keys that a position sees in local layers, its own and those before; 0: all layers see all */
    int64_t full_every; /* with a window: every so many-th layer sees all, the others are local (Gemma 3); 0: all are local (Mistral) */
    double local_theta; /* with a window: RoPE's base in local layers; 0: rope_theta */
    double query_scalar; /* llama: scores are divided by the root of this; 0: of D */
    int64_t usual_batch; /* micro-batch when none is asked for */
    char note[200]; /* what the source says and we do not model; empty when nothing */
};

/* Fields that replace those of the model; 0 keeps. What a family derives follows: head size = hidden / heads where it was
 * that and the model has no qk_norm, kv_heads = heads where they were equal, and ffn = 4 hidden in gpt2 and encoder. */
struct model_overrides {
    int64_t layers, hidden, heads, kv_heads, ffn, vocab;
};

/* `source`: a preset name, a JSON file (Hugging Face or ours), a folder with a config.json, or a model's name on the Hugging Face
 * hub: of what was downloaded, or of those that are known here. Nothing is downloaded. The result is valid. */
int model_read(const char *source, const struct model_overrides *overrides, struct model *out, struct error *err);
/* From an object: what model_to_json() made, or a config.json. `where` is for messages. */
int model_from_json(const json_t *object, const char *where, struct model *out, struct error *err);
/* New reference, our own format. */
json_t *model_to_json(const struct model *model);
/* Every field is positive and divides what it must; no product overflows. model_read() has called it. */
int model_check(const struct model *model, struct error *err);
/* Exact number of parameters of the whole model (a tied head counts once). */
int64_t model_parameters(const struct model *model);

/* Does this layer attend within the window only? */
bool model_layer_is_local(const struct model *model, int64_t layer);

const char *model_family_name(enum model_family family); /* "gpt2", "llama", "encoder" */
/* NULL-terminated, in the order of `memplan describe --list`. */
const char *const *model_preset_names(void);
/* The known name that is most like one that is not: of a preset, or of a model on the hub; NULL: none is. */
const char *model_nearest(const char *name);

#endif
