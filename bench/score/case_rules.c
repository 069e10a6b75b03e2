#include "bench/score/case_rules.h"

#include "base/checked.h"

#include <stddef.h>
#include <string.h>

/* What a piece of text decides. */
enum decision {
    NOTHING, /* it is read, and decides nothing of memory here */
    LIBRARY,
    SHARDING,
    WEIGHT_BYTES,
    COMPUTE_BYTES,
    GRADIENT_BYTES,
    MASTER_BYTES,
    MOMENT_BYTES,
    REDUCE_BYTES,
    AUTOCAST,
    OPTIMIZER,
    STEP,
    STEP_IN_BACKWARD,
    RECOMPUTE,
    MODULES,
    INPUTS_OFFLOADED,
    ATTENTION,
    NORM,
    LOSS,
    COMPILED,
    RESHARDS,
    WRAPS,
    SHARD_RANKS,
    NO_SYNC,
    OFFLOADS,
    DROPOUT,
    V_SHAPED,
    VIRTUAL,
    LORA,
    PARALLEL,
    CONTEXT_MIB,
    CUBLAS_MIB,
    RMS,
    GATED,
    ACTIVATION,
    POSITIONS,
    QK_NORM,
    ENCODER,
    LOGITS_HELD,
    FROZEN_BITS,
    LOSS_HELD, /* and the caller keeps the logits, and what else the sweep of 492 layouts tells */
    OLD_TORCH,
    PROJECTIONS_KEPT,
    BUCKETS_EARLY,
    SOFTMAX_INPUT,
    ENDS,
    EXPANDABLE,
    STAGE_LAST,
};

/* A field whose text has this piece decides that. All rules of a field that match apply, in order; a text that none matches
 * is listed. "" matches any text that is there. "^" in front: the field is exactly this. */
struct rule {
    const char *field, *piece;
    enum decision decision;
    int value;
};

static const struct rule rules[] = {
    {"framework", "torchtitan", LIBRARY, WORKLOAD_TITAN},
    {"framework", "torchtune", LIBRARY, WORKLOAD_TITAN},
    {"framework", "megatron", LIBRARY, WORKLOAD_MEGATRON},
    {"framework", "in-house fork", LIBRARY, WORKLOAD_MEGATRON_LEGACY},
    {"framework", "galvatron", LIBRARY, WORKLOAD_MEGATRON_LEGACY},
    {"framework", "llm.c", LIBRARY, WORKLOAD_LLMC},
    {"framework", "pytorch", LIBRARY, WORKLOAD_TRANSFORMERS},
    {"framework", "hf-trainer", LIBRARY, WORKLOAD_TRANSFORMERS},
    {"framework", "fsdp", LIBRARY, WORKLOAD_TRANSFORMERS},
    {"framework", "deepspeed", LIBRARY, WORKLOAD_TRANSFORMERS},
    {"framework", "deepspeed", BUCKETS_EARLY, 1}, /* before 0.16.5, of 2025-03 */
    {"framework", "composer", LOSS,
     WORKLOAD_LOSS_KERNEL},               /* llm-foundry modeling_mpt.py: loss_fn='fused_crossentropy' */
    {"framework", "Ulysses", NOTHING, 0}, /* cp by exchanging heads: as many tokens and heads a rank */
    {"source", "Megatron-DeepSpeed", LIBRARY, WORKLOAD_MEGATRON_LEGACY},
    {"source", "Vocabulary Parallelism", LIBRARY, WORKLOAD_MEGATRON_LEGACY},
    {"source", "SC'21", LIBRARY, WORKLOAD_MEGATRON_LEGACY},
    {"source", "Activation recomputation paper", LIBRARY, WORKLOAD_MEGATRON_LEGACY},
    {"source", "(2023 text)", OLD_TORCH, 1},
    {"source", "(2023 text)", SOFTMAX_INPUT, 1},          /* measured in 2022-01, with PyTorch 1.10 */
    {"source", "(2023 text)", STEP, WORKLOAD_STEP_LOOP},  /* adamw_hf */
    {"source", "pull request #309", PROJECTIONS_KEPT, 1}, /* llm.c of 2024-05 */
    {"source", "golden values", STAGE_LAST, 1},
    /* torchtitan's own history, by the date of the case. */
    {"source", "torchtitan commit", NORM, WORKLOAD_NORM_COMPOSED}, /* nn.RMSNorm, since 2025-02-25 */
    {"source", "(2024-", NORM, WORKLOAD_NORM_WRITTEN},
    {"source", "(2025-02-0", NORM, WORKLOAD_NORM_WRITTEN},
    {"source", "(2024-", ENDS, 0}, /* units of their own since 2025-07-28 */
    {"source", "(2024)", ENDS, 0},
    {"source", "(2025-02", ENDS, 0},
    {"source", "(2025-03", ENDS, 0},
    {"source", "(2025-", EXPANDABLE, 1}, /* its launch script sets PYTORCH_CUDA_ALLOC_CONF since 2024-10-22 */
    {"source", "(2026-", EXPANDABLE, 1},
    {"source", "(2024-03", STEP, WORKLOAD_STEP_FOREACH},
    {"source", "(2025-1", NORM, WORKLOAD_NORM_FUSED}, /* which has a kernel since PyTorch 2.8, of 2025-08 */
    {"source", "(2025-09", NORM, WORKLOAD_NORM_FUSED},
    {"source", "(2026-", NORM, WORKLOAD_NORM_FUSED},
    {"source", "(2026-", LOSS, WORKLOAD_LOSS_CHUNKED}, /* torchtitan's default since 2026-04-27 */
    {"source", "(2026-01", LOSS, WORKLOAD_LOSS_UPCAST},
    {"source", "(2026-02", LOSS, WORKLOAD_LOSS_UPCAST},
    {"source", "(2026-03", LOSS, WORKLOAD_LOSS_UPCAST},
    {"source", "(2024-03", LOGITS_HELD, 4}, /* torchtitan's train.py had no `del pred` yet */
    {"source", "", NOTHING, 0},

    {"sharding", "none", SHARDING, WORKLOAD_REPLICATED},
    {"sharding", "DDP", SHARDING, WORKLOAD_REPLICATED},
    {"sharding", "single", SHARDING, WORKLOAD_REPLICATED},
    {"sharding", "optimizer states", SHARDING, WORKLOAD_DISTRIBUTED_OPTIMIZER},
    {"sharding", "distributed optimizer", SHARDING, WORKLOAD_DISTRIBUTED_OPTIMIZER},
    {"sharding", "ZeRO-1", SHARDING, WORKLOAD_ZERO1},
    {"sharding", "FSDP", SHARDING, WORKLOAD_FSDP1},
    {"sharding", "FULL_SHARD", SHARDING, WORKLOAD_FSDP1},
    {"sharding", "SHARD_GRAD_OP", SHARDING, WORKLOAD_FSDP1},
    {"sharding", "SHARD_GRAD_OP", RESHARDS, 0},
    {"sharding", "FSDP2", SHARDING, WORKLOAD_FSDP2},
    {"sharding", "HSDP (shard 8)", SHARDING, WORKLOAD_FSDP1},
    {"sharding", "HSDP (shard 8)", SHARD_RANKS, 8},
    {"sharding", "ZeRO-2", SHARDING, WORKLOAD_ZERO2},
    {"sharding", "ZeRO-3", SHARDING, WORKLOAD_ZERO3},
    {"sharding", "(ZeRO-", SHARDING, WORKLOAD_FSDP1},
    {"sharding", "FSDP shards nothing", SHARDING, WORKLOAD_FSDP1},
    /* As bench/score/rows.c has the sweep of 492 layouts that these runs are from (docs/time-model.md, section 10). */
    {"framework", "in-house fork", SHARDING, WORKLOAD_ZERO1},
    {"framework", "in-house fork", LOSS_HELD, WORKLOAD_LOSS_UPCAST},
    {"sharding", "offload", OFFLOADS, 1},
    {"sharding", "without wrap", WRAPS, 0},
    {"sharding", "no_sync", NO_SYNC, 1},
    {"zero_stage", "params kept after forward", RESHARDS, 0},
    {"zero_stage", "2-like (PP)", RESHARDS, 0},

    /* Precision: bytes of weights, of computing, of gradients, of masters. */
    {"precision", "^fp32", WEIGHT_BYTES, 4},
    {"precision", "^fp32", COMPUTE_BYTES, 4},
    {"precision", "^fp32", MASTER_BYTES, 0},
    {"precision", "fp32/amp", WEIGHT_BYTES, 4},
    {"precision", "fp32/amp", COMPUTE_BYTES, 4},
    {"precision", "fp32/amp", MASTER_BYTES, 0},
    {"precision", "bf16/fp16 mixed", GRADIENT_BYTES, 2},
    {"precision", "fp16 mixed", GRADIENT_BYTES, 2},
    {"precision", "bf16 mixed", NOTHING, 0},
    {"precision", "^bf16", NOTHING, 0},
    {"precision", "^fp16", NOTHING, 0},
    {"precision", "main grads", GRADIENT_BYTES, 4},
    {"precision", "fp32 grads", GRADIENT_BYTES, 4},
    {"precision", "fp32 grad accumulation", GRADIENT_BYTES, 4},
    {"precision", "18 B/param", GRADIENT_BYTES, 4},
    {"precision", "16 B per param (2+2+12)", GRADIENT_BYTES, 2},
    {"precision", "bf16 params and grads, fp32 master", GRADIENT_BYTES, 2},
    {"precision", "bf16 grads", GRADIENT_BYTES, 2},
    {"precision", "fp32 sharded params", WEIGHT_BYTES, 4},
    {"precision", "fp32 sharded params", MASTER_BYTES, 0},
    {"precision", "fp32 params", WEIGHT_BYTES, 4},
    {"precision", "fp32 params", MASTER_BYTES, 0},
    {"precision", "pure bf16", WEIGHT_BYTES, 2},
    {"precision", "pure bf16", GRADIENT_BYTES, 2},
    {"precision", "pure bf16", MASTER_BYTES, 0},
    {"precision", "pure bf16", MOMENT_BYTES, 2},
    {"precision", "pure bf16", REDUCE_BYTES, 2},
    {"precision", "autocast-free", GRADIENT_BYTES, 2},
    {"precision", "fp16 autocast", AUTOCAST, 1},
    {"precision", "^amp", AUTOCAST, 1},
    {"precision", "amp bf16", AUTOCAST, 1},
    {"precision", "fp16 amp", AUTOCAST, 1},
    {"precision", "(FSDP mixed)", AUTOCAST, 0},
    {"precision", "(PURE)", MOMENT_BYTES, 4},
    {"precision", "bf16 logits, fp32 softmax", NOTHING, 0},

    {"optimizer", "Adam", OPTIMIZER, WORKLOAD_ADAM},
    {"optimizer", "fused", STEP, WORKLOAD_STEP_FUSED},
    {"optimizer", "foreach", STEP, WORKLOAD_STEP_FOREACH},
    {"optimizer", "foreach=False", STEP, WORKLOAD_STEP_LOOP},
    {"optimizer", "Adafactor", OPTIMIZER, WORKLOAD_ADAFACTOR},
    {"optimizer", "8-bit", OPTIMIZER, WORKLOAD_ADAM8},
    {"optimizer", "PagedAdamW", OPTIMIZER, WORKLOAD_PAGED_ADAM},
    {"optimizer", "in backward", STEP_IN_BACKWARD, 1},
    {"optimizer", "LoRA", LORA, 8},
    {"optimizer", "Adam CPU", OFFLOADS, 1},
    {"optimizer", "n/a", OPTIMIZER, WORKLOAD_NO_OPTIMIZER},
    {"optimizer", "^none", OPTIMIZER, WORKLOAD_NO_OPTIMIZER},

    {"recompute", "none", RECOMPUTE, WORKLOAD_KEEPS_ALL},
    {"recompute", "full", RECOMPUTE, WORKLOAD_FULL},
    {"recompute", "per-op SAC", RECOMPUTE, WORKLOAD_EVERY_SECOND},
    {"recompute", "selective op", RECOMPUTE, WORKLOAD_EVERY_SECOND},
    {"recompute", "SAC of 2024-03", RECOMPUTE, WORKLOAD_EVERY_SECOND},
    {"recompute", "attention core", MODULES, WORKLOAD_CORE_ATTN},
    {"recompute", "moe_act", MODULES, WORKLOAD_MOE_ACT},
    {"recompute", "moe + layernorm", MODULES, WORKLOAD_MOE | WORKLOAD_LAYERNORM},
    {"recompute", "offload", INPUTS_OFFLOADED, 1},
    {"recompute", "GELU recompute", MODULES, WORKLOAD_GELU},
    /* llm.c: what it compares with is -r 2, by the list of tensors. */
    {"source", "pull request #676", MODULES, WORKLOAD_GELU | WORKLOAD_NORM_RESULTS},

    {"flash_attention", "yes", ATTENTION, WORKLOAD_FLASH},
    {"flash_attention", "^no", ATTENTION, WORKLOAD_EAGER},
    {"flash_attention", "no (", ATTENTION, WORKLOAD_EAGER},
    {"flash_attention", "unknown", NOTHING, 0},
    {"flash_attention", "dropout on", DROPOUT, 1},
    {"notes", "Attention kernel: torch", ATTENTION, WORKLOAD_EAGER},
    {"notes", "Attention kernel:", NORM, WORKLOAD_NORM_WRITTEN},
    {"notes", "Attention kernel:", OLD_TORCH, 1},
    {"notes", "fused RMSNorm", NORM, WORKLOAD_NORM_FUSED},
    {"notes", "Last stage logged", STAGE_LAST, 1},
    {"notes", "", NOTHING, 0},
    {"compile", "no", COMPILED, 0},
    {"compile", "yes", COMPILED, 1},
    {"compile", "graph capture", COMPILED, 1},
    {"compile", "C/CUDA", NOTHING, 0},
    {"fused_ce", "^no", NOTHING, 0},
    {"fused_ce", "chunked", LOSS, WORKLOAD_LOSS_CHUNKED},
    {"fused_ce", "yes", LOSS, WORKLOAD_LOSS_FUSED},
    {"fused_ce", "fused", LOSS, WORKLOAD_LOSS_FUSED},
    {"fused_ce", "compiled", COMPILED, 1},
    {"fused_ce", "2 classes", LOSS, WORKLOAD_LOSS_CLASSES},
    {"fused_ce", "unknown", NOTHING, 0},

    {"sequence_parallel", "yes", PARALLEL, 1},
    {"sequence_parallel", "no", PARALLEL, 0},
    {"sequence_parallel", "unknown", NOTHING, 0},
    {"vpp", "V shape", V_SHAPED, 1},
    {"vpp", "V shape", VIRTUAL, 2},
    {"vpp", "1 layer per chunk", VIRTUAL, 0},
    {"vpp", "interleaved", VIRTUAL, 2},

    {"gpu_type", "V100", CONTEXT_MIB,
     1343}, /* HF's model_memory_anatomy.md: kernels loaded at once, before CUDA 11.7 */
    {"framework", "llm.c", CONTEXT_MIB,
     896}, /* its own log (pull request 309): context, cuBLAS, cuDNN and NCCL */
    {"gpu_type", "H100", CUBLAS_MIB, 32},
    {"gpu_type", "H200", CUBLAS_MIB, 32},
    {"gpu_type", "GH200", CUBLAS_MIB, 32},
    {"gpu_type", "", NOTHING, 0},

    {"model.norm", "RMSNorm", RMS, 1},
    {"model.norm", "LayerNorm", RMS, 0},
    {"model.activation", "SwiGLU", GATED, 1},
    {"model.activation", "GELU", GATED, 0},
    {"model.activation", "ReLU", GATED, 0},
    {"model.activation", "^ReLU", ACTIVATION, WORKLOAD_ACTIVATION_RESULT},
    {"model.pos", "learned", POSITIONS, 1},
    {"model.pos", "rope", POSITIONS, 0},
    {"model.pos", "alibi", POSITIONS, 0},
    {"model.bias", "true", NOTHING, 0}, /* read with the sizes */
    {"model.bias", "qkv", NOTHING, 0},
    {"model.mla", "", NOTHING, 0},
    {"model.qk_norm", "", QK_NORM, 1},
    {"model.name", "BERT", ENCODER, 1},
    {"model.name", "QLoRA", FROZEN_BITS, 4},
    {"model.name", "", NOTHING, 0},
    {"model.moe", "", NOTHING, 0}, /* its numbers are read apart */
};

/* Decisions that are the value of a field, by where that is. */
#define FIELD(name)                                                                                          \
    {                                                                                                        \
        offsetof(struct workload, name), sizeof((struct workload *)0)->name                                  \
    }
static const struct place {
    size_t offset, bytes;
} places[] = {
    [WEIGHT_BYTES] = FIELD(weight_bytes),
    [COMPUTE_BYTES] = FIELD(compute_bytes),
    [GRADIENT_BYTES] = FIELD(gradient_bytes),
    [MASTER_BYTES] = FIELD(master_bytes),
    [MOMENT_BYTES] = FIELD(moment_bytes),
    [REDUCE_BYTES] = FIELD(reduce_bytes),
    [OPTIMIZER] = FIELD(optimizer),
    [STEP] = FIELD(step),
    [RECOMPUTE] = FIELD(recompute),
    [NORM] = FIELD(norm),
    [LOGITS_HELD] = FIELD(logits_held),
    [FROZEN_BITS] = FIELD(frozen_bits),
    [COMPILED] = FIELD(compiled),
    [RESHARDS] = FIELD(reshards_after_forward),
    [WRAPS] = FIELD(wraps_layers),
    [SHARD_RANKS] = FIELD(shard_ranks),
    [PARALLEL] = FIELD(sequence_parallel),
    [RMS] = FIELD(model.rms_norm),
    [GATED] = FIELD(model.gated),
    [ACTIVATION] = FIELD(model.activation),
    [BUCKETS_EARLY] = FIELD(buckets_early),
    [ENDS] = FIELD(wraps_ends),
    [EXPANDABLE] = FIELD(allocator.expandable_segments),
    [STEP_IN_BACKWARD] = FIELD(step_in_backward),
    [INPUTS_OFFLOADED] = FIELD(inputs_offloaded),
    [NO_SYNC] = FIELD(accumulates_without_sync),
    [V_SHAPED] = FIELD(v_shaped),
    [QK_NORM] = FIELD(model.qk_norm),
    [OLD_TORCH] = FIELD(old_torch),
    [PROJECTIONS_KEPT] = FIELD(projections_kept),
    [SOFTMAX_INPUT] = FIELD(softmax_keeps_input),
};

/* A bool, an enum or a whole number. */
static void set_field(struct workload *w, struct place place, int value)
{
    void *field = (char *)w + place.offset;
    if (place.bytes == sizeof(bool))
        *(bool *)field = value;
    else if (place.bytes == sizeof(int))
        memcpy(field, &value, sizeof value);
    else
        *(int64_t *)field = value;
}

static void decide(struct measured_case *c, const struct rule *rule)
{
    struct workload *w = &c->workload;
    int value = rule->value;
    if ((size_t)rule->decision < sizeof places / sizeof *places && places[rule->decision].bytes) {
        set_field(w, places[rule->decision], value);
        return;
    }
    switch (rule->decision) {
    case AUTOCAST:
        w->autocast = value;
        w->weight_bytes = 4;
        w->compute_bytes = 2;
        w->master_bytes = 0;
        break;
    case MODULES:
        w->recompute = WORKLOAD_MODULES;
        w->modules = (unsigned)value;
        break;
    case ATTENTION:
        /* Megatron's masked_softmax_fusion is on by default. */
        w->attention = value == WORKLOAD_EAGER && workload_is_megatron(w) && rule->field[0] == 'f'
                           ? WORKLOAD_FUSED_SOFTMAX
                           : (enum workload_attention)value;
        break;
    case LOSS:
        w->loss = value == WORKLOAD_LOSS_FUSED && w->library != WORKLOAD_LLMC ? WORKLOAD_LOSS_LINEAR
                                                                              : (enum workload_loss)value;
        w->logits_held = 0;
        break;
    case LOSS_HELD:
        w->loss = (enum workload_loss)value;
        w->logits_held = 4;
        w->logits_whole = w->inputs_whole = w->hidden_dropout = w->attention_dropout = true;
        break;
    case OFFLOADS:
        w->offload_optimizer = w->offload_weights = true;
        break;
    case DROPOUT:
        w->hidden_dropout = w->attention_dropout = w->embedding_dropout = true;
        break;
    case VIRTUAL:
        w->virtual_stages = value ? value : max_i64(w->model.layers / max_i64(w->pp, 1), 1);
        break;
    case LORA:
        w->lora_rank = value;
        w->lora_linears = LINEAR_Q | LINEAR_V;
        break;
    case CONTEXT_MIB:
        w->context_bytes = (int64_t)value << 20;
        break;
    case CUBLAS_MIB:
        w->cublas_bytes = (int64_t)value << 20;
        break;
    case POSITIONS:
        w->model.positions = value ? max_i64(w->sequence, 1) : 0;
        break;
    case STAGE_LAST:
        c->last_stage = true;
        break;
    case ENCODER:
        w->model.encoder = w->model.pooler = true;
        w->model.token_types = 2;
        break;
    default:
        break;
    }
}

const char *case_rules_text(const json_t *record, const char *field)
{
    const json_t *value = json_object_get(record, field);
    if (!strncmp(field, "model.", 6))
        value = json_object_get(json_object_get(record, "model"), field + 6);
    return json_is_true(value) ? "true" : json_string_value(value);
}

static bool matches(const char *text, const char *piece)
{
    if (*piece == '^')
        return !strcmp(text, piece + 1);
    return strstr(text, piece) != NULL;
}

enum { RULES = sizeof rules / sizeof *rules };

static bool chooses(enum decision decision)
{
    return decision == LIBRARY || decision == SHARDING;
}

/* The last rule that matches wins. */
static int choice(const struct measured_case *c, enum decision decision, int otherwise)
{
    for (int i = 0; i < RULES; i++) {
        const char *text = case_rules_text(c->record, rules[i].field);
        if (rules[i].decision == decision && text && matches(text, rules[i].piece))
            otherwise = rules[i].value;
    }
    return otherwise;
}

static bool is_last_of_field(int i)
{
    for (int j = i + 1; j < RULES; j++)
        if (!strcmp(rules[i].field, rules[j].field))
            return false;
    return true;
}

void case_rules_apply(struct measured_case *c)
{
    for (int i = 0; i < RULES; i++) {
        const char *text = case_rules_text(c->record, rules[i].field);
        bool seen = false, last = is_last_of_field(i);
        if (text && matches(text, rules[i].piece) && !chooses(rules[i].decision))
            decide(c, &rules[i]);
        for (int j = 0; last && text && j < RULES; j++)
            seen |= !strcmp(rules[j].field, rules[i].field) && matches(text, rules[j].piece);
        if (last && text && !seen)
            text_printf(&c->unread, "%s \"%s\"; ", rules[i].field, text);
    }
}

enum workload_library case_rules_library(const struct measured_case *c)
{
    return (enum workload_library)choice(c, LIBRARY, WORKLOAD_TRANSFORMERS);
}

enum workload_sharding case_rules_sharding(const struct measured_case *c, enum workload_library library)
{
    int sharding = choice(c, SHARDING, WORKLOAD_REPLICATED);
    bool second = library == WORKLOAD_TITAN && sharding == WORKLOAD_FSDP1;
    return second ? WORKLOAD_FSDP2 : (enum workload_sharding)sharding;
}
