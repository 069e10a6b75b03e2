/* A training job of any framework as predictions of memory need it: the model with what model/model.h lacks, the layout, and
 * what the framework and its options decide. Whoever reads launch lines fills it (jobs/), or a table of measured cases
 * (bench/score/): start from workload_default(), which knows each framework's own defaults, then set what is known. Counts
 * that do not apply are 0 or 1. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_H
#define MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_H

#include "base/error.h"
#include "model/schedule.h"
#include "planner/frameworks/caching_allocator.h"

#include <stdbool.h>
#include <stdint.h>

/* Whose modules compute. */
enum workload_library {
    WORKLOAD_MEGATRON,        /* Megatron-LM core with Transformer Engine */
    WORKLOAD_MEGATRON_LEGACY, /* before 2024, and its forks: Megatron-DeepSpeed, Colossal's and others */
    WORKLOAD_TRANSFORMERS,    /* Hugging Face modules, and code that looks like them */
    WORKLOAD_TITAN,           /* torchtitan, torchtune: plain PyTorch written for training */
    WORKLOAD_LLMC,            /* karpathy/llm.c: no PyTorch; everything is allocated at start */
};

/* Who has which states. */
enum workload_sharding {
    WORKLOAD_REPLICATED,            /* DDP, or one rank: gradients in tensors of their own and in buckets */
    WORKLOAD_DISTRIBUTED_OPTIMIZER, /* Megatron's: masters and moments over dp */
    WORKLOAD_ZERO1,                 /* DeepSpeed's */
    WORKLOAD_ZERO2,
    WORKLOAD_ZERO3,
    WORKLOAD_FSDP1,
    WORKLOAD_FSDP2,
    WORKLOAD_SHARDINGS,
};

enum workload_recompute {
    WORKLOAD_KEEPS_ALL,
    WORKLOAD_MODULES,      /* `modules` of every layer are made again */
    WORKLOAD_EVERY_SECOND, /* torchtitan's per-operation policy: attention and every second product are kept */
    WORKLOAD_ALTERNATE,    /* every second layer keeps only its input */
    WORKLOAD_FULL,         /* each layer keeps only its input */
};

/* Modules of a layer, by Megatron-LM's names (--recompute-modules), and what llm.c makes again (-r 1 and -r 2). */
enum workload_module {
    WORKLOAD_CORE_ATTN = 1 << 0,
    WORKLOAD_LAYERNORM = 1 << 1,
    WORKLOAD_MLP = 1 << 2,
    WORKLOAD_MOE = 1 << 3,
    WORKLOAD_MOE_ACT = 1 << 4,
    WORKLOAD_SHARED_EXPERTS = 1 << 5,
    WORKLOAD_MLA_UP_PROJ = 1 << 6,
    WORKLOAD_GELU = 1 << 7,
    WORKLOAD_NORM_RESULTS = 1 << 8, /* the last */
};

enum workload_attention { WORKLOAD_EAGER, WORKLOAD_FUSED_SOFTMAX, WORKLOAD_FLASH };
enum workload_norm {
    WORKLOAD_NORM_FUSED, /* keeps its input */
    WORKLOAD_NORM_WRITTEN, /* RMSNorm as modules write it: cast to fp32, square, mean, product, cast back, product */
    WORKLOAD_NORM_COMPOSED, /* torch.nn.RMSNorm before its kernel (PyTorch 2.8): all of it in fp32 */
};
enum workload_gate {
    WORKLOAD_GATE_FUSED,   /* SiLU and product in one kernel: their inputs are kept */
    WORKLOAD_GATE_WRITTEN, /* SiLU's output too */
};
/* Between the two products of a feed-forward without gates, by what autograd keeps of it. */
enum workload_activation {
    WORKLOAD_ACTIVATION_KERNEL,  /* one kernel that keeps its input: gelu with or without tanh, silu */
    WORKLOAD_ACTIVATION_RESULT,  /* one that keeps its result: relu, sigmoid, tanh */
    WORKLOAD_ACTIVATION_NEW,     /* written out, as transformers' gelu_new */
    WORKLOAD_ACTIVATION_FAST,    /* as its gelu_fast */
    WORKLOAD_ACTIVATION_ERF,     /* as its gelu_python */
    WORKLOAD_ACTIVATION_QUICK,   /* as its quick_gelu */
    WORKLOAD_ACTIVATION_CLIPPED, /* as its gelu_10: a kernel, then clip() */
};
enum workload_loss {
    WORKLOAD_LOSS_UPCAST,     /* logits.float(), then cross-entropy */
    WORKLOAD_LOSS_PLAIN,      /* cross-entropy in the logits' own type */
    WORKLOAD_LOSS_VOCABULARY, /* Megatron's vocabulary-parallel one */
    WORKLOAD_LOSS_CHUNKED,    /* `loss_chunks` pieces of the logits are cast one after the other */
    WORKLOAD_LOSS_FUSED,      /* no copy: the gradient replaces the logits */
    WORKLOAD_LOSS_LINEAR,     /* with the head, in `loss_chunks` pieces: the logits never exist as a whole */
    WORKLOAD_LOSS_KERNEL,     /* flash_attn's: no copy of the logits but their gradient */
    WORKLOAD_LOSS_PARALLEL,   /* PyTorch's loss_parallel(): what UPCAST is on torchtitan's tensor-parallel ranks */
    WORKLOAD_LOSS_CLASSES,    /* a classifier: no logits to speak of */
};
enum workload_optimizer {
    WORKLOAD_ADAM,
    WORKLOAD_SGD,
    WORKLOAD_SGD_MOMENTUM,
    WORKLOAD_ADAFACTOR,
    WORKLOAD_ADAM8,
    WORKLOAD_PAGED_ADAM, /* its states live in host memory that the card pages in */
    WORKLOAD_NO_OPTIMIZER,
};
enum workload_step { WORKLOAD_STEP_FUSED, WORKLOAD_STEP_FOREACH, WORKLOAD_STEP_LOOP };

/* What the feed-forward of a layer reads. */
enum workload_residual {
    WORKLOAD_IN_TURN,         /* the sum that attention has added to */
    WORKLOAD_BESIDE,          /* as attention does the layer's input, through a norm of its own */
    WORKLOAD_BESIDE_ONE_NORM, /* and through attention's norm */
};
/* Where scores are a tensor, of 16 bits. */
enum workload_softmax {
    WORKLOAD_SOFTMAX_CAST,     /* in fp32, and cast back */
    WORKLOAD_SOFTMAX_AS_IT_IS, /* in 16 bits, but under autocast (GPT-2, BERT, Falcon) */
    WORKLOAD_SOFTMAX_FP32,     /* queries and keys are cast too (GPT-J) */
};
/* How a family of models writes its layers, where that is not as LLaMA's are. */
struct workload_traits {
    enum workload_residual residual;
    enum workload_softmax softmax;
    bool norms_fp32; /* a norm written out multiplies by its weight in fp32 (Gemma) */
    bool post_norms; /* what attention and the feed-forward give has norms too, before it is added (Gemma 2 and 3) */
    bool joint_qkv;  /* one product makes queries, keys and values: what attention does not rotate stays a view of it */
    bool alibi;      /* no positions: a bias on scores (BLOOM) */
    bool scores_capped, logits_capped; /* by tanh, where scores are a tensor (Gemma 2) */
    bool flash_2_alone; /* is the one fused attention that there is; PyTorch's makes scores */
};

/* Linear layers of a layer, by what they make. */
enum workload_linear {
    LINEAR_Q = 1 << 0, /* from compressed queries where there are such */
    LINEAR_K = 1 << 1,
    LINEAR_V = 1 << 2,
    LINEAR_QKV = 1 << 3, /* one product makes all three */
    LINEAR_Q_DOWN = 1 << 4, /* compressed queries; keys and values; and what comes of these */
    LINEAR_KV_DOWN = 1 << 5,
    LINEAR_KV_UP = 1 << 6,
    LINEAR_O = 1 << 7,
    LINEAR_GATE = 1 << 8, /* of dense layers and shared experts */
    LINEAR_UP = 1 << 9,
    LINEAR_GATE_UP = 1 << 10, /* both by one product */
    LINEAR_DOWN = 1 << 11,
    LINEAR_ROUTER = 1 << 12,
    LINEAR_EXPERT_GATE = 1 << 13,
    LINEAR_EXPERT_UP = 1 << 14,
    LINEAR_EXPERT_DOWN = 1 << 15,
};

struct workload_model {
    int64_t layers, hidden, heads, kv_heads, head_size, ffn, vocab;
    int64_t positions;   /* learned ones; 0: none */
    int64_t token_types; /* BERT's segments */
    bool encoder;        /* post-norm, as BERT */
    bool gated, tied, rms_norm, bias, qkv_bias, qk_norm, pooler;
    enum workload_activation activation; /* where it is not gated */
    int64_t classes; /* of a classifier instead of the vocabulary */
    int64_t experts, active_experts, expert_ffn, shared_ffn, dense_layers;
    int64_t q_rank, kv_rank, rope_size, nope_size,
        value_size;    /* multi-head latent attention; kv_rank 0: none */
    struct workload_traits traits;
    double parameters; /* as stated elsewhere: scales what counting says; 0: counting is all there is */
};

struct workload {
    struct workload_model model;
    enum workload_library library;
    enum workload_sharding sharding;

    int64_t dp, tp, pp, cp, ep;
    int64_t shard_ranks; /* that share one set of states: dp, or fewer (hybrid sharding) */
    int64_t virtual_stages;
    bool sequence_parallel;
    bool v_shaped; /* two chunks a stage, back and forth */
    const int64_t *chunk_layers; /* of each of pp x virtual_stages chunks, in the model's order; its owner outlives this.
                                  * NULL: spread evenly, the first chunk without one of those that are left over */
    enum schedule_kind schedule;
    int64_t micro_batch, sequence, micro_batches;

    int weight_bytes, compute_bytes; /* of an element: 4 and 2 is mixed precision with fp32 weights */
    bool autocast;                   /* casts where weights are used, and norms run in fp32 */
    int gradient_bytes;              /* of the sums that the optimizer reads */
    int master_bytes;                /* 0: the weights are their own */
    int moment_bytes;                /* of each of Adam's two; 1: 8-bit states */
    int reduce_bytes;                /* of gradients on their way between ranks */
    enum workload_optimizer optimizer;
    enum workload_step step;
    bool step_in_backward; /* the optimizer takes each gradient as it comes */
    bool offload_optimizer, offload_weights;
    bool softmax_keeps_input; /* PyTorch before 1.11 */
    bool old_torch; /* before 2.0: zero_grad() fills with zeros, and mean() keeps its input for backward */
    bool projections_kept; /* llm.c before 2024-06-30: the results of two products of each layer */
    bool accumulates_without_sync; /* FSDP's no_sync: gradients stay whole */

    enum workload_recompute recompute;
    unsigned modules;      /* enum workload_module, with WORKLOAD_MODULES */
    int64_t remade_layers; /* of each chunk, the first so many; the others keep all; 0: all are remade */
    bool inputs_offloaded; /* what recomputation starts from waits in host memory */
    enum workload_attention attention;
    enum workload_norm norm;
    enum workload_gate gate;
    bool bias_apart; /* Megatron's: the bias of the first product is added before the activation, in a tensor of its own */
    enum workload_loss loss;
    int64_t loss_chunks;
    int logits_held; /* bytes of an element of those that the caller keeps through backward: 2 as they are computed, be it in
                      * fp32, 4 once they are cast */
    bool logits_whole; /* tensor-parallel ranks gather them before the loss */
    bool first_flash;  /* the fused attention is FlashAttention 1, which is slower */
    bool hidden_dropout, attention_dropout, embedding_dropout;
    bool keys_expanded;          /* K and V repeated for all query heads */
    bool inputs_whole;           /* with sequence parallelism, gathered inputs are kept */
    bool compiled;               /* torch.compile: elementwise chains are fused */
    int64_t pads_heads_to;       /* attention pads odd head sizes to a multiple; 0: not */
    bool reshards_after_forward; /* FSDP, ZeRO-3: layers are gathered again for backward */
    bool wraps_layers;           /* FSDP units are layers; or the model is one */
    bool wraps_ends;             /* and the embedding and the head are units, not parts of the root */
    bool in_buckets;             /* DDP copies gradients to buckets, which together are as large */
    int64_t bucket_elements;     /* of each of DeepSpeed's flat buckets */
    bool buckets_early;          /* DeepSpeed before 0.16.5: they are there before the loss's backward */
    int64_t reuse_elements;      /* ZeRO-3: weights stay that are used again before so many others are */
    bool overlaps_gradients;     /* they are reduced beside backward; or behind it */

    double expert_capacity; /* each expert's tokens are padded to so many times its fair share; 0: as many as are routed */
    bool fp8; /* Transformer Engine's products: inputs are kept, and weights cached, in 8 bits */
    bool fp8_weights; /* there are no 16-bit weights of layers besides (--fp8-param-gather) */

    int64_t lora_rank; /* 0: all weights are trained */
    unsigned lora_linears; /* enum workload_linear: those of a layer that have an adapter */
    bool lora_dropout;     /* before each */
    bool adapters_cast;    /* autocast casts adapters and what they read, beside frozen weights that are 16-bit or quantized */
    int frozen_bits; /* of frozen weights: 4, 8, 16, 32 */
    int frozen_end_bytes; /* of an element of the frozen embedding and head; 0: as other weights */
    bool wide_results; /* norms are in fp32, and quantized products give what they were given */

    int64_t capacity_bytes; /* that the program sees; 0: unknown */
    int64_t context_bytes;  /* of a CUDA context with the kernels that are loaded */
    int64_t cublas_bytes;
    struct caching_allocator_options allocator; /* its capacity is left 0 */
};

/* What the framework does where nothing else is said, for one rank and bf16. */
struct workload workload_default(enum workload_library library, enum workload_sharding sharding);
/* What PYTORCH_CUDA_ALLOC_CONF says, NULL: nothing. Fails as allocator_settings_read() does. */
int workload_set_allocator(struct workload *workload, const char *text, struct error *err);
/* Fails on sizes that make no job; the message names the field. */
int workload_check(const struct workload *workload, struct error *err);

bool workload_is_megatron(const struct workload *workload);  /* Megatron-LM, whichever kernels of it */
bool workload_is_deepspeed(const struct workload *workload); /* shared out by its ZeRO */
bool workload_is_fsdp(const struct workload *workload);      /* the first or the second */
bool workload_gathers(const struct workload *workload);      /* weights are in shards, gathered where used: FSDP, ZeRO-3 */

/* The matrices of a layer, as units of gradients have them; those of routed experts together, and the router among what is
 * small (MATRIX_NONE). */
enum layer_matrix { MATRIX_NONE, MATRIX_QKV, MATRIX_PROJ, MATRIX_UP, MATRIX_DOWN, MATRIX_EXPERTS };

/* The elements of the adapters beside one of them (adapters.c), in a layer that has experts or has none. */
double workload_adapter_parameters(const struct workload *workload, enum layer_matrix matrix, bool experts);

/* Parameters of one layer (with all experts or its share of them), of one vocabulary table, of the model. */
double workload_norm_parameters(const struct workload *workload); /* of one layer */
double workload_layer_parameters(const struct workload *workload, int64_t layer);
double workload_parameters(const struct workload *workload);
/* Layers of stage `stage`, chunk `chunk`; the total over all is model.layers. */
int64_t workload_chunk_layers(const struct workload *workload, int64_t stage, int64_t chunk);
/* The first of them, of the whole model's; and how many of the chunk that has layer `layer` are before it. */
int64_t workload_chunk_start(const struct workload *workload, int64_t stage, int64_t chunk);
int64_t workload_layers_before(const struct workload *workload, int64_t layer);

#endif
