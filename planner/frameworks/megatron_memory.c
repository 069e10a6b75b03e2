/* What a rank of a Megatron-LM job holds. */
#include "planner/frameworks/megatron.h"

#include "planner/prediction.h"

#include <math.h>
#include <stddef.h>

/* Fitted, in round numbers, and how independently of what they are scored on: docs/time-model.md, section 10. buffer_bytes is
 * two of DeepSpeed's default buckets of 5e8 elements, one of several sizes that were tried. */
const struct megatron_habits megatron_habits = {
    .host_s = 48e-6,
    .unhidden = 0.2,
    .message_wait_s = 1e-3,
    .straggle_s = 30e-6,
    .flash1_share = 0.6,
    .logit_bytes = 16,
    .gather_bytes = 6,
    .doubt_share = 0.03,
    .allocator_share = 0.1,
    .buffer_bytes = 2e9,
};

/* How wide a tensor is, in elements for each token of a micro-batch. */
enum width { HIDDEN, QUERIES, KEYS_VALUES, FFN, SCORES, HEADS };

/* Over which ranks it is split. */
enum split {
    BY_PARTS,
    BY_INPUT /* as the job keeps inputs of matrices */,
    BY_SEQUENCE /* with sequence parallelism only; else all have it whole */
};

/* What must hold for it to be kept at all. */
enum condition {
    ALWAYS = 0,
    DROPOUT = 1,
    UNFUSED_NORM = 2,
    PLAIN = 4,   /* GELU between two matrices */
    GATED = 8,   /* SwiGLU: three */
    SCORED = 16, /* scores are a tensor */
    FLASH = 32,  /* they are not */
    EAGER = 64,  /* and each operation on them is one of its own */
};

/* Who gives it up. */
enum given_up { NOT_INPUT, CORE, LAYER_INPUT };

struct saved_rule {
    const char *name;
    double bytes; /* of an element */
    enum width width;
    enum split split;
    unsigned conditions;
    enum given_up kind;
    const char *source;
};

#define PAPER "Korthikanti et al. 2022, section 4.1"
static const struct saved_rule saved_rules[] = {
    {"layer input", 2, HIDDEN, BY_SEQUENCE, ALWAYS, LAYER_INPUT, PAPER ": LayerNorm's input"},
    {"norm 1", 2, HIDDEN, BY_INPUT, ALWAYS, NOT_INPUT, PAPER ": input of Q, K and V"},
    {"norm 1 in fp32", 8, HIDDEN, BY_SEQUENCE, UNFUSED_NORM, NOT_INPUT,
     "fitted: 6 by counting what an eager RMSNorm saves, 8 suits the sweep better"},
    {"queries", 2, QUERIES, BY_PARTS, ALWAYS, NOT_INPUT, PAPER ": Q of QKᵀ"},
    {"keys and values", 2, KEYS_VALUES, BY_PARTS, ALWAYS, NOT_INPUT, PAPER ": K of QKᵀ, V"},
    {"masked scores", 2, SCORES, BY_PARTS, EAGER, CORE, "eager softmax: its cast to fp32 and back"},
    {"softmax", 2, SCORES, BY_PARTS, SCORED, CORE, PAPER ": softmax output"},
    {"softmax mask", 1, SCORES, BY_PARTS, SCORED | DROPOUT, CORE, PAPER ": softmax dropout mask"},
    {"dropped softmax", 2, SCORES, BY_PARTS, SCORED | DROPOUT, CORE, PAPER ": dropout output"},
    {"log-sum-exp", 4, HEADS, BY_PARTS, FLASH, CORE, "Dao et al. 2022, algorithm 2"},
    {"attention", 2, QUERIES, BY_PARTS, ALWAYS, NOT_INPUT, PAPER ": input of the projection"},
    {"attention mask", 1, HIDDEN, BY_SEQUENCE, DROPOUT, NOT_INPUT, PAPER ": dropout mask"},
    {"residual", 2, HIDDEN, BY_SEQUENCE, ALWAYS, NOT_INPUT, PAPER ": LayerNorm's input"},
    {"norm 2", 2, HIDDEN, BY_INPUT, ALWAYS, NOT_INPUT, PAPER ": input of the first linear layer"},
    {"norm 2 in fp32", 8, HIDDEN, BY_SEQUENCE, UNFUSED_NORM, NOT_INPUT, "as norm 1"},
    {"GELU input", 2, FFN, BY_PARTS, PLAIN, NOT_INPUT, PAPER},
    {"GELU", 2, FFN, BY_PARTS, PLAIN, NOT_INPUT, PAPER ": input of the second linear layer"},
    {"gate and up", 4, FFN, BY_PARTS, GATED, NOT_INPUT, "inputs of SiLU and of the product"},
    {"SiLU", 2, FFN, BY_PARTS, GATED, NOT_INPUT, "input of the product, where it is not fused with SiLU"},
    {"gated", 2, FFN, BY_PARTS, GATED, NOT_INPUT, "input of the second linear layer"},
    {"MLP mask", 1, HIDDEN, BY_SEQUENCE, DROPOUT, NOT_INPUT, PAPER ": dropout mask"},
};
enum { SAVED_RULES = sizeof saved_rules / sizeof *saved_rules };

static unsigned conditions_of(const struct job *job)
{
    bool flash = job->attention == JOB_ATTENTION_FLASH1 || job->attention == JOB_ATTENTION_FLASH2;
    return (job->dropout ? DROPOUT : 0) | (job->norm_fused ? 0 : UNFUSED_NORM) |
           (job->model.family == MODEL_LLAMA ? GATED : PLAIN) | (flash ? FLASH : SCORED) |
           (job->attention == JOB_ATTENTION_EAGER ? EAGER : 0);
}

static double width_of(const struct job *job, enum width width)
{
    const struct model *m = &job->model;
    switch (width) {
    case QUERIES:
        return (double)(m->heads * m->head_size);
    case KEYS_VALUES:
        return 2.0 * (double)(m->kv_heads * m->head_size);
    case FFN:
        return (double)m->ffn;
    case SCORES:
        return (double)m->heads * (double)job->layout.seq_len;
    case HEADS:
        return (double)m->heads;
    default:
        return (double)m->hidden;
    }
}

static double tokens_of(const struct job *job)
{
    return (double)job->layout.micro_batch * (double)job->layout.seq_len;
}

/* What is split over the sequence, of each token. */
static double sequence_share(const struct job *job)
{
    return job->layout.sequence_parallel ? 1.0 / (double)job->layout.tp : 1;
}

static double split_share(const struct job *job, enum split split)
{
    if (split == BY_PARTS)
        return 1.0 / (double)job->layout.tp;
    return split == BY_INPUT && job->inputs_whole ? 1 : sequence_share(job);
}

static double kept_with(const struct job *job, enum job_recompute recompute)
{
    double bytes = 0;
    unsigned holds = conditions_of(job);
    for (int i = 0; i < SAVED_RULES; i++) {
        const struct saved_rule *rule = &saved_rules[i];
        if ((rule->conditions & holds) != rule->conditions ||
            (recompute == JOB_SELECTIVE && rule->kind == CORE) ||
            (recompute == JOB_FULL && rule->kind != LAYER_INPUT))
            continue;
        double share = split_share(job, rule->split);
        bytes += rule->bytes * width_of(job, rule->width) * share;
    }
    return bytes * tokens_of(job);
}

double megatron_layer_bytes(const struct job *job)
{
    return kept_with(job, job->recompute);
}

static double stage_parameters(const struct job *job, int64_t stage)
{
    const struct model *m = &job->model;
    bool gated = m->family == MODEL_LLAMA, first = stage == 0, last = stage == job->layout.pp - 1;
    double hidden = (double)m->hidden, tp = (double)job->layout.tp;
    double attention = hidden * (2 * width_of(job, QUERIES) + width_of(job, KEYS_VALUES));
    double mlp = (gated ? 3 : 2) * hidden * (double)m->ffn;
    double layer = (attention + mlp) / tp + (gated ? 2 : 13) * hidden;
    double table = (double)m->vocab * hidden / tp;
    double tables = (first ? 1 : 0) + (last && !(first && m->tied) ? 1 : 0);
    return layer * (double)job_stage_layers(job, stage) + table * tables;
}

/* Alive while the loss runs: the logits in their copies. Or while a layer runs backward: gradients of the widest tensors, and
 * what recomputation makes again. */
static double working_bytes(const struct job *job, const struct megatron_habits *habits, bool last)
{
    double tp = (double)job->layout.tp, gates = job->model.family == MODEL_LLAMA ? 2 : 1;
    double remade = kept_with(job, JOB_KEEPS_ALL) - kept_with(job, job->recompute);
    double gradients =
        tokens_of(job) * (2 * gates * (double)job->model.ffn / tp + 4 * (double)job->model.hidden);
    double logits = tokens_of(job) * (double)job->model.vocab / (job->logits_whole ? 1 : tp);
    double copies = habits->logit_bytes + (job->logits_whole && tp > 1 ? habits->gather_bytes : 0);
    return fmax(remade + gradients, last ? copies * logits : 0);
}

/* What the ends of the model keep of each micro-batch: the embedding's dropout mask; the final norm and the head's input. */
static double end_bytes(const struct job *job, int64_t stage)
{
    double hidden = tokens_of(job) * (double)job->model.hidden * sequence_share(job);
    double first = stage == 0 && job->dropout ? hidden : 0;
    double last = stage == job->layout.pp - 1 ? (job->norm_fused ? 4 : 12) * hidden : 0;
    return first + last;
}

struct megatron_memory megatron_stage_memory(const struct job *job, const struct megatron_habits *habits,
                                             const struct rank_device *device, int64_t stage)
{
    double parameters = stage_parameters(job, stage), dp = (double)job->layout.dp;
    double kept = job_kept_micro_batches(job, stage);
    struct megatron_memory memory = {
        .weights = 2 * parameters,
        .gradients = job->gradient_bytes * parameters,
        .optimizer = 12 * parameters / (job->layout.zero ? dp : 1),
        .activations =
            kept * (megatron_layer_bytes(job) * (double)job_stage_layers(job, stage) + end_bytes(job, stage)),
        .working = working_bytes(job, habits, stage == job->layout.pp - 1),
    };
    struct runtime_term runtime = prediction_runtime(device, layout_ranks(&job->layout));
    memory.runtime = (double)runtime.bytes + (job->layout.zero ? habits->buffer_bytes : 0) +
                     habits->allocator_share * (memory.activations + memory.working);
    memory.allocated =
        memory.weights + memory.gradients + memory.optimizer + memory.activations + memory.working;
    memory.total = memory.allocated + memory.runtime;
    memory.doubt = habits->doubt_share * (memory.activations + memory.working);
    return memory;
}

struct megatron_memory megatron_memory(const struct job *job, const struct megatron_habits *habits,
                                       const struct rank_device *device, int64_t *stage)
{
    struct megatron_memory most = {0};
    for (int64_t i = 0; i < job->layout.pp; i++) {
        struct megatron_memory memory = megatron_stage_memory(job, habits, device, i);
        if (memory.total <= most.total)
            continue;
        most = memory;
        if (stage)
            *stage = i;
    }
    return most;
}
