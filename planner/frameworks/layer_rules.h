/* What a layer makes in forward, in order: each tensor with its element, width, how it is split over ranks, what
 * must hold for it to exist, how long it lives, and which recomputation keeps it. One rule a line, with its source. The
 * annotations that turn "a layer runs" into a sequence of tensors with lives (workload_memory.h). */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_LAYER_RULES_H
#define MEMPLAN_PLANNER_FRAMEWORKS_LAYER_RULES_H

#include "base/text.h"
#include "planner/frameworks/layer_width.h"
#include "planner/frameworks/workload.h"

enum layer_split {
    SPLIT_PARTS,    /* over tensor-parallel ranks */
    SPLIT_SEQUENCE, /* with sequence parallelism only */
    SPLIT_NOT,
    SPLIT_INPUT, /* likewise, unless gathered inputs are kept */
};

/* What must hold: all bits of a rule. (A tensor that a model lacks, as shared experts', is one of no width.) */
enum {
    IF_PRE_NORM = 1 << 0,
    IF_ENCODER = 1 << 1,
    IF_NORM_FUSED = 1 << 2,
    IF_NORM_WRITTEN = 1 << 3,
    IF_NORM_COMPOSED = 1 << 4,
    IF_ROTARY = 1 << 5,
    IF_EXPANDED = 1 << 6,
    IF_FLASH = 1 << 7,
    IF_SCORES = 1 << 8, /* not flash */
    IF_EAGER = 1 << 9,
    IF_CORE_DROPOUT = 1 << 10, /* in scores that are a tensor */
    IF_DROPOUT = 1 << 11,
    IF_DENSE = 1 << 12,
    IF_EXPERTS = 1 << 13,
    IF_PLAIN = 1 << 14,
    IF_GATED = 1 << 15,
    IF_GATE_WRITTEN = 1 << 16,
    IF_CAST = 1 << 17,         /* autocast */
    IF_FP32_SOFTMAX = 1 << 18, /* of 16-bit scores */
    IF_HALF = 1 << 19,         /* compute in 16 bits */
    IF_SEPARATE = 1 << 20,     /* queries, keys and values are copied to be laid out by heads */
    IF_LEGACY = 1 << 21,
    IF_NOT_EXPANDED = 1 << 22,
    IF_COMPILED = 1 << 23,
    IF_NOT_COMPILED = 1 << 24,
    IF_LLMC = 1 << 25, /* whose projections are kept */
    IF_OLD_TORCH = 1 << 26,
    IF_WHOLE = 1 << 27,
    IF_SCATTERED = 1 << 28,       /* partial sums of tensor-parallel ranks are scattered over the sequence */
    IF_INPUT_NOT_SAVED = 1 << 29, /* no norm keeps the layer's input */
    IF_SOFTMAX_INPUT = 1 << 30,   /* softmax keeps its input: PyTorch before 1.11 */
};

/* How long it lives. */
enum {
    LIFE_NORM_WEIGHT = -1, /* kept for the gradient of a norm's weight, if that is trained */
    LIFE_KEPT = 0,
    LIFE_NEXT = 1,
    LIFE_TWO = 2,
    LIFE_THREE = 3,
    LIFE_WRITTEN = 8, /* while an activation that is written out is computed: its caller has it until then */
    LIFE_LAYER = 99
};

/* Parts of a layer that some recomputation makes again by themselves; a tensor may be of several. */
enum {
    PART_CORE = 1 << 0, /* of attention */
    PART_NORM_1 = 1 << 1,
    PART_STATISTICS_1 = 1 << 2,
    PART_NORM_2 = 1 << 3,
    PART_STATISTICS_2 = 1 << 4,
    PART_MLP = 1 << 5, /* a dense feed-forward */
    PART_GELU = 1 << 6,
    PART_EXPERTS = 1 << 7, /* all of a layer of experts: routes, what is sent, shared experts */
    PART_EXPERT_GATE = 1 << 8, /* of their activation, the result */
    PART_SHARED = 1 << 9,
    PART_LATENT_UP = 1 << 10, /* queries, keys and values out of compressed ones */
    PART_LATENT_NORMS = 1 << 11,
    PART_ALL = 0xffff /* and whatever else there is */
};
/* Of a tensor that is not of these parts: when backward comes to it they are made again, for Megatron-LM's
 * CheckpointWithoutOutput hangs them on its gradient (transformer_layer.py). */
#define RECALLS(parts) ((unsigned)(parts) << 16)

/* Of what makes all again, which policies keep it. */
enum {
    KEEP_SECOND = 1, /* torchtitan's per-operation policy */
    KEEP_FULL = 2,   /* full recomputation: the input alone */
};

struct layer_rule {
    const char *name;
    enum layer_element element;
    enum layer_width width;
    enum layer_split split;
    unsigned conditions;
    int life;
    unsigned parts;   /* PART_... that it is of, and RECALLS() */
    unsigned kept_by; /* KEEP_... */
    enum layer_matrix matrix; /* whose input it is: that matrix's gradient is made when backward comes to this tensor */
    const char *source;
};

extern const struct layer_rule layer_rules[];
extern const int layer_rule_count;
enum { LAYER_RULES_MOST = 144 };

/* A tensor's bytes in plain symbols: "2 x kv_heads x head_size x tokens / tp". */
void layer_rule_formula(const struct workload *workload, const struct layer_rule *rule, struct text *out);

unsigned layer_conditions(const struct workload *workload, bool experts);
double layer_rule_bytes(const struct workload *workload, const struct layer_rule *rule);
/* Whether recomputation is about that layer: about all, every second, or the first of each chunk. */
bool layer_remade(const struct workload *workload, int64_t layer);
/* Which parts of a layer one module is; and which of that layer are made again: PART_ALL of a layer that is as a whole. */
unsigned layer_module_parts(const struct workload *workload, enum workload_module module, bool experts);
unsigned layer_parts_again(const struct workload *workload, int64_t layer);
/* Does autograd keep it where nothing is made again? And is it kept in a layer of which those parts are? */
bool layer_rule_saved(const struct workload *workload, const struct layer_rule *rule);
bool layer_rule_kept(const struct workload *workload, const struct layer_rule *rule, unsigned again);
/* Bytes that a layer keeps of one micro-batch. */
double layer_kept_bytes(const struct workload *workload, int64_t layer);

#endif
