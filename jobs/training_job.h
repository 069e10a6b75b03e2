/* A training job of any framework, as its launch line says it: the one struct that all readers of this folder fill and that
 * predictions are made from. Numbers that nothing said are 0; `facts` says of each where it came from. */
#ifndef MEMPLAN_JOBS_TRAINING_JOB_H
#define MEMPLAN_JOBS_TRAINING_JOB_H

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "jobs/job_model.h"
#include "jobs/word.h"

#include <stdbool.h>
#include <stdint.h>

struct framework; /* jobs/frameworks.h */

enum job_precision {
    JOB_FP32,
    JOB_BF16,     /* weights are bf16, with fp32 masters in the optimizer */
    JOB_FP16,     /* likewise */
    JOB_AUTOCAST_BF16, /* weights are fp32, and cast where they are used */
    JOB_AUTOCAST_FP16,
    JOB_PURE_BF16, /* bf16 throughout: the optimizer's states too, no masters */
};

enum job_granularity { JOB_RECOMPUTE_NONE, JOB_RECOMPUTE_SELECTIVE, JOB_RECOMPUTE_FULL, JOB_RECOMPUTE_BUDGET };
enum job_method { JOB_METHOD_NONE, JOB_METHOD_UNIFORM, JOB_METHOD_BLOCK };

enum job_sharding {
    JOB_REPLICATED,       /* DDP */
    JOB_DISTRIBUTED_OPTIMIZER, /* states and masters are split */
    JOB_ZERO1,
    JOB_ZERO2,
    JOB_ZERO3,
    JOB_FSDP1,
    JOB_FSDP2,
};

enum job_kernel { JOB_ATTENTION_DEFAULT, JOB_EAGER, JOB_SDPA, JOB_FLASH, JOB_FLEX, JOB_FLASH3 };
enum job_offload { JOB_OFFLOAD_NONE, JOB_OFFLOAD_CPU, JOB_OFFLOAD_NVME };
enum job_fsdp_strategy { JOB_FULL_SHARD, JOB_SHARD_GRAD_OP, JOB_NO_SHARD, JOB_HYBRID_SHARD, JOB_HYBRID_SHARD_ZERO2 };

enum fact_kind {
    FACT_READ,       /* given, and understood */
    FACT_DEFAULT,    /* the framework's own, since nothing was given */
    FACT_DERIVED,    /* follows from others */
    FACT_IRRELEVANT, /* given, known, and no business of memory */
    FACT_UNKNOWN,    /* given, and not understood */
    FACT_MISSING,    /* matters, and nothing says it */
};

struct fact {
    enum fact_kind kind;
    const char *name, *value;
    const char *origin; /* "run.sh:12", "ds.json"; of a default, the framework; FACT_MISSING: how to give it */
};

struct facts {
    struct arena *arena;
    struct fact *list;
    int count, room;
};

struct job_launch {
    const char *launchers; /* "srun, torchrun" */
    const char *program;   /* "pretrain_gpt.py" */
    int line;              /* of the script, on which the command begins; 0: it is no script's */
    struct word where;     /* of the program; where a variable has it, that is set there */
    int leading;           /* words behind it before its first option: a file of settings */
    const char *taken_for; /* the program that a script of someone's own is taken for; NULL: it is known */
    int64_t nodes, processes_per_node, ranks;
};

struct job_layout {
    int64_t dp;         /* what is left of the ranks: replicas of a tensor- and pipeline-parallel model */
    int64_t tp, pp, cp; /* tensor, pipeline, context parallel */
    int64_t ep, etp;    /* expert parallel; tensor parallel inside experts */
    int64_t dp_replicate, dp_shard; /* of dp: copies, and ranks that share one */
    int64_t layers_per_virtual_stage, virtual_stages;
    int64_t first_stage_layers, last_stage_layers;
    bool sequence_parallel;
    bool embedding_in_split, loss_in_split; /* count as layers where layers are spread over stages */
    const char *schedule;
    const char *pipeline_layout; /* chunks, in the framework's own words */
    const char *split_points; /* the first layer of each chunk but the first */
    int64_t first_less, last_less; /* as how many layers the ends of the model count */
    const int64_t *chunk_layers; /* of each chunk in the model's order, in facts.arena; NULL: no pipeline, or not known */
};

struct job_batch {
    int64_t micro, global, accumulation, sequence;
};

struct job_recompute_choice {
    int granularity; /* enum job_granularity */
    int method;      /* enum job_method */
    int64_t layers;  /* of a chunk (uniform, block), or every so many-th */
    const char *modules;
    unsigned made_again; /* enum workload_module: what those are */
    const char *unruled; /* the first of them that no rule is about; NULL: there is none */
    bool partitioned; /* kept inputs are split over tensor-parallel ranks */
    bool on_cpu;
    bool experts; /* the layer of experts is made again */
};

struct job_shards {
    int sharding; /* enum job_sharding */
    int fsdp_strategy;
    const char *wrap; /* the class of layers that is a unit */
    int64_t unit_parameters; /* or units have at least so many; 0: not said */
    bool whole_model; /* FSDP has one unit, the model */
    const char *key_prefix; /* of FSDP's keys below fsdp_config of the program's own file: "", "fsdp_"; NULL: none is there */
    bool syncs_late;  /* FSDP sums micro-batches in whole gradients, and reduces those of the last */
    bool reshard_after_forward;
    int offload_optimizer, offload_parameters; /* enum job_offload */
    bool contiguous_gradients, overlap, round_robin, prefetch_forward;
    int64_t reduce_bucket, gather_bucket, prefetch_bucket, persistence_threshold, live_parameters; /* elements */
    int64_t sub_group, reuse_distance;
    bool overlap_reduce, overlap_gather, precision_aware;
    bool masters_16bit, moments_16bit; /* beside 16-bit weights */
    const char *main_gradients, *main_parameters, *exp_avg, *exp_avg_sq;
    const char *reduce_precision, *parameter_precision;
};

struct job_optimizer {
    const char *name; /* "adamw_torch" */
    const char *implementation; /* "fused", "foreach", "for-loop" */
    bool offload;
    bool in_backward; /* each parameter is updated as its gradient comes, which then goes */
    double momentum;  /* of SGD */
};

struct job_kernels {
    int attention; /* enum job_kernel */
    bool transformer_engine;
    bool masked_softmax_fusion, bias_gelu_fusion, bias_swiglu_fusion, bias_dropout_fusion, rope_fusion;
    bool gradient_accumulation_fusion, cross_entropy_fusion, persist_layer_norm;
    bool compile;
    bool liger; /* all of Liger's that a model has; some of them: */
    bool fused_norm, fused_gate, fused_head; /* the head with its loss */
    bool cut_loss; /* Cut Cross-Entropy: of logits there are only blocks in a kernel */
    bool vocabulary_parallel_loss;
    const char *loss_implementation; /* of a fused cross-entropy: "native", "te" */
    const char *fp8, *compile_parts;
    bool fp8_gather; /* sharded weights are gathered in fp8 */
    const char *allocator; /* PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True" */
    bool grouped_gemm, permute_fusion, pads_experts;
    const char *dispatcher;   /* of tokens to experts: "allgather", "alltoall" */
    double expert_capacity;   /* a factor; 0: no token is dropped */
};

/* What options say that has no field of its own above: readers turn these into it. */
struct job_switches {
    bool bf16, fp16, fp16_autocast;
    bool group_query, rotary, latent, untied, disable_linear_bias;
    bool recompute_activations, checkpoint_activations, gradient_checkpointing;
    bool no_pipeline, distributed_optimizer, torch_fsdp2, custom_fsdp, use_fsdp, deepspeed, flash;
    bool peft, load_4bit, load_8bit, adafactor;
    bool no_binary_head, zero_bubble, reduces_16bit, keeps_gathered;
    bool whole_loss; /* it is not computed in parallel */
    bool fsdp2_raises_nothing; /* it splits 16-bit weights as they are */
    int zero_stage;  /* from 0 */
    const char *position_type, *normalization, *tokenizer, *layer_frequency, *attention_backend, *implementation;
    const char *model_path, *config_name, *config_overrides, *model_name, *flavor, *dtype, *gradient_dtype;
    const char *deepspeed_config, *fsdp, *fsdp_config, *fsdp_version, *wrap_policy, *reshard, *mixed_precision;
    const char *converters, *python_config;
    const char *packed_in; /* the type that holds quantized weights */
    const char *revision, *cache_folder; /* of the model on the hub, and where its files are kept */
    const char *compile_choice; /* a back end or mode of torch.compile, which asks for it */
    const char *distributed_type, *rampup, *shard_degree, *global_batch; /* the last two may be -1 */
    int64_t bits, source_length, target_length; /* of weights; of a text in two parts, tokens */
    int64_t lora_rank, lora_alpha, replicate_degree, pipeline_micro_batch;
};

enum { JOB_OWN = 16 };

struct training_job {
    const struct framework *framework;
    struct job_switches switches;
    const char *own[JOB_OWN]; /* options that one framework alone has, texts and switches: its own file says which */
    bool own_switch[JOB_OWN];
    struct facts facts;
    struct job_launch launch;
    struct job_model model;
    bool model_known; /* `model` is complete */
    bool tokenizer_known;    /* its configuration lies beside the model */
    int64_t tokenizer_limit; /* the longest text that the tokenizer beside the model allows; 0: not known, or none */
    struct job_adapter adapter;
    struct job_layout layout;
    struct job_batch batch;
    int precision; /* enum job_precision */
    bool gradients_fp32;
    struct job_recompute_choice recompute;
    struct job_shards shards;
    struct job_optimizer optimizer;
    struct job_kernels kernels;
    int64_t vocab_divisor, padded_vocab; /* the vocabulary is padded to a multiple of divisor x tp */
    const char *condition; /* on which the rest of it rests: "$ARGS (run.sh:12) holds no option that counts". NULL: on none */
    const char *beyond; /* the first feature that changes memory in a way that no rule is about; NULL: none */
};

const char *job_framework_name(const struct framework *framework);
const char *fact_kind_name(enum fact_kind kind);

/* A fact, or the newer one of that name instead of the older; but what was given and is unknown stays missing, whatever else
 * would be the default or follow. */
void job_note(struct training_job *job, enum fact_kind kind, const char *name, const char *value, const char *origin);
/* Of a whole number. */
void job_note_count(struct training_job *job, enum fact_kind kind, const char *name, int64_t value,
                    const char *origin);
/* How many of that kind. */
int job_count(const struct training_job *job, enum fact_kind kind);
/* Whether an option of that name was given, if with a value that is unknown. */
bool job_was_given(const struct training_job *job, const char *name);
/* Or has a value that was given, or follows from one that was. */
bool job_was_said(const struct training_job *job, const char *name);
/* Forgets defaults whose names begin so, since nothing depends on them. */
void job_drop_defaults(struct training_job *job, const char *prefix);
/* "run.sh:12", "command line". */
const char *job_origin(struct training_job *job, const struct word *word);
/* Whether `piece` is in a text, in capitals or not; NULL has none. */
bool job_says(const char *text, const char *piece);

/* Notes that it is missing, and how to give it, when it is 0 and nothing was said. */
void job_require(struct training_job *job, int64_t value, const char *option, const char *example);
/* Far above any, so that products with a size of the model are numbers. */
enum { JOB_MOST_RANKS = 1 << 28 };
/* The ranks that are left for data parallelism; an error when they do not divide, or are too many. */
int job_split_ranks(struct training_job *job, struct error *err);

#endif
