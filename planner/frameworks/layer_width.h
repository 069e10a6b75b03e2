/* How many elements of a tensor there are for each token, and of how many bytes: what a rule of layer_rules.h or loss_rules.h names, of
 * one job. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_LAYER_WIDTH_H
#define MEMPLAN_PLANNER_FRAMEWORKS_LAYER_WIDTH_H

#include "base/text.h"
#include "planner/frameworks/workload.h"

enum layer_element {
    ELEMENT_COMPUTE,
    ELEMENT_INPUT, /* of a product: as computed, or a byte in fp8 */
    ELEMENT_FP32,
    ELEMENT_BYTE,
    ELEMENT_RESIDUAL, /* fp32 under autocast */
    ELEMENT_SCORED,   /* of what scores are made from: fp32 where that is cast */
    ELEMENT_ADAPTED   /* of what adapters compute with */
};

/* Elements for each token. */
enum layer_width {
    WIDTH_HIDDEN,
    WIDTH_BETWEEN, /* hidden, where the feed-forward reads what attention has added to */
    WIDTH_SECOND,  /* hidden, where it has a norm of its own */
    WIDTH_POST,    /* hidden, where what attention or it gives has a norm */
    WIDTH_QUERIES,
    WIDTH_KEYS,         /* or values */
    WIDTH_QUERIES_KEYS, /* both */
    WIDTH_KEYS_USED,    /* after they are repeated for all heads, if they are */
    WIDTH_VIEWED,       /* queries and keys, where values are a view of what made all three */
    WIDTH_PADDED,       /* queries with heads padded for the kernel */
    WIDTH_FFN,
    WIDTH_BIASED,     /* ffn where Megatron adds the bias in a kernel of its own; so for those that follow: */
    WIDTH_GELU_INPUT, /* where the activation keeps its input as it is */
    WIDTH_RESULT,     /* where it keeps its result alone */
    WIDTH_HALVED,     /* where half of its input is a tensor */
    WIDTH_NEW,        /* in gelu_new and what is written as it is; so for others of transformers' names: */
    WIDTH_FAST,
    WIDTH_ERF,
    WIDTH_QUICK,
    WIDTH_CLIPPED,
    WIDTH_SCORES,
    WIDTH_CAPPED_SCORES,
    WIDTH_HEADS,
    WIDTH_STATISTICS, /* of a norm: mean and deviation, or the latter alone */
    WIDTH_SECOND_STATISTICS,
    WIDTH_POST_STATISTICS,
    WIDTH_HEADS_STATISTICS, /* of norms of queries and keys */
    WIDTH_SENT,       /* hidden, for each expert that a token is sent to */
    WIDTH_SCALED,     /* likewise, where what experts give is scaled outside of them */
    WIDTH_EXPERT,     /* the experts' ffn, likewise */
    WIDTH_SHARED,     /* the shared experts' */
    WIDTH_ROUTES,     /* a number for each expert */
    WIDTH_ADAPTERS,  /* ranks of attention's adapters; of the feed-forward's; of experts', for each that a token is sent to */
    WIDTH_FFN_ADAPTERS,
    WIDTH_EXPERT_ADAPTERS,
    WIDTH_ADAPTER_INPUTS, /* what these read, where each has a copy of it */
    WIDTH_FFN_ADAPTER_INPUTS,
    WIDTH_EXPERT_ADAPTER_INPUTS,
    WIDTH_ADAPTER_CAST, /* the widest of them */
    WIDTH_FFN_ADAPTER_CAST,
    WIDTH_ADAPTER_MASKS, /* and as many where inputs are dropped out */
    WIDTH_FFN_ADAPTER_MASKS,
    WIDTH_EXPERT_ADAPTER_MASKS,
    WIDTH_QKV_CASTS, /* hidden, for each of three products but the first that autocast casts their input for */
    WIDTH_UP_CASTS,
    WIDTH_FP8_COPY,  /* queries, where an input that is kept anyway is kept in fp8 too */
    WIDTH_RING,      /* keys and values of all context-parallel ranks, where they go round */
    WIDTH_EXCHANGED, /* queries, where context-parallel ranks exchange heads for tokens */
    WIDTH_LATENT_Q,
    WIDTH_LATENT_KV,
    WIDTH_LATENT_Q_NORMED,
    WIDTH_LATENT_KV_NORMED,
    WIDTH_VOCAB,
    WIDTH_CAPPED_VOCAB,
    WIDTH_VOCAB_PART, /* of it, this rank's, though logits are gathered */
    WIDTH_CHUNK,      /* of the vocabulary, for a chunk of the tokens */
};

int layer_element_bytes(const struct workload *workload, enum layer_element element);
/* Elements a token, before any split over tensor-parallel ranks; 0: the model has no such tensor. */
double layer_width_of(const struct workload *workload, enum layer_width width);
/* Tokens on one rank, before any split likewise. */
double layer_tokens(const struct workload *workload);
/* "2 x kv_heads x head_size x tokens / tp", of elements of so many bytes. */
void layer_width_formula(int element_bytes, enum layer_width width, bool split, struct text *out);

#endif
