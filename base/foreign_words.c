/* Megatron-LM's words, torchrun's and FSDP's, DeepSpeed's and the Hugging Face trainer's: those that people have in their fingers. */
#include "base/foreign_words.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <strings.h>

#define JUDGED "; `memplan check` judges launches with "

static const char no_fsdp[] = "memplan shards optimizer states (--zero 1), and not gradients or weights as "
                              "ZeRO-2, ZeRO-3 and FSDP do" JUDGED "these";
static const char no_context[] = "memplan trains and plans without context parallelism" JUDGED "it";
static const char no_experts[] = "memplan has no mixtures of experts and no expert parallelism" JUDGED "them";
static const char no_halves[] = "memplan computes in fp32 or bf16 (--precision)" JUDGED "fp16 and fp8";
static const char no_offload[] = "memplan keeps all states on the device" JUDGED "offloading";
static const char no_adapters[] =
    "memplan trains all weights, without adapters or 4-bit weights" JUDGED "them";
static const char accumulates[] =
    "micro-batches add up until a step has --global-batch sequences over all ranks; give that";
static const char ranks_said[] =
    "--cluster of plan and --dp, --tp and --pp of the others say how many ranks there are";
static const char net_said[] = "the cluster says it, such as --cluster 2x8:h100-80g,net=3200Gb/s";

static const struct foreign_word words[] = {
    {"tensor-model-parallel-size", "tp", NULL},
    {"tensor-parallel-size", "tp", NULL},
    {"tensor-parallel", "tp", NULL},
    {"tensor-parallel-degree", "tp", NULL},
    {"tp-size", "tp", NULL},
    {"pipeline-model-parallel-size", "pp", NULL},
    {"pipeline-parallel-size", "pp", NULL},
    {"pipeline-parallel", "pp", NULL},
    {"pipeline-parallel-degree", "pp", NULL},
    {"pp-size", "pp", NULL},
    {"num-layers-per-virtual-pipeline-stage", "virtual-stages", NULL},
    {"num-virtual-stages-per-pipeline-rank", "virtual-stages", NULL},
    {"vpp", "virtual-stages", NULL},
    {"data-parallel-size", "dp", NULL},
    {"data-parallel", "dp", NULL},
    {"nproc-per-node", NULL, ranks_said},
    {"num-gpus", NULL, ranks_said},
    {"gpus", NULL, ranks_said},
    {"mbs", "micro-batch", NULL},
    {"micro-batch-size", "micro-batch", NULL},
    {"batch-size", "micro-batch", NULL},
    {"local-batch-size", "micro-batch", NULL},
    {"per-device-train-batch-size", "micro-batch", NULL},
    {"train-micro-batch-size-per-gpu", "micro-batch", NULL},
    {"gbs", "global-batch", NULL},
    {"global-batch-size", "global-batch", NULL},
    {"train-batch-size", "global-batch", NULL},
    {"gradient-accumulation-steps", NULL, accumulates},
    {"gas", NULL, accumulates},
    {"seq-length", "seq-len", NULL},
    {"sequence-length", "seq-len", NULL},
    {"max-seq-len", "seq-len", NULL},
    {"max-seq-length", "seq-len", NULL},
    {"block-size", "seq-len", NULL},
    {"context-length", "seq-len", NULL},
    {"num-layers", "layers", NULL},
    {"n-layer", "layers", NULL},
    {"hidden-size", "hidden", NULL},
    {"n-embd", "hidden", NULL},
    {"ffn-hidden-size", "ffn", NULL},
    {"intermediate-size", "ffn", NULL},
    {"num-attention-heads", "heads", NULL},
    {"n-head", "heads", NULL},
    {"num-query-groups", "kv-heads", NULL},
    {"num-key-value-heads", "kv-heads", NULL},
    {"vocab-size", "vocab", NULL},
    {"bf16", "precision bf16", NULL},
    {"bfloat16", "precision bf16", NULL},
    {"fp32", "precision fp32", NULL},
    {"dtype", "precision", NULL},
    {"mixed-precision", "precision", NULL},
    {"zero-stage", "zero", NULL},
    {"use-distributed-optimizer", "zero 1", NULL},
    {"distributed-optimizer", "zero 1", NULL},
    {"sp", "sequence-parallel", NULL},
    {"gradient-checkpointing", "recompute full", NULL},
    {"activation-checkpointing", "recompute full", NULL},
    {"recompute-granularity", "recompute", NULL},
    {"recompute-activations", "recompute selective", NULL},
    {"schedule", "pipeline-schedule", NULL},
    {"gpu", "device", NULL},
    {"card", "device", NULL},
    {"nnodes", NULL, ranks_said},
    {"nodes", NULL, ranks_said},
    {"net", NULL, net_said},
    {"network", NULL, net_said},
    {"device", "cluster", NULL},
    {"learning-rate", "lr", NULL},
    {"max-steps", "steps", NULL},
    {"train-iters", "steps", NULL},
    {"fsdp", NULL, no_fsdp},
    {"fsdp2", NULL, no_fsdp},
    {"use-megatron-fsdp", NULL, no_fsdp},
    {"use-torch-fsdp2", NULL, no_fsdp},
    {"data-parallel-shard-degree", NULL, no_fsdp},
    {"zero2", NULL, no_fsdp},
    {"zero3", NULL, no_fsdp},
    {"deepspeed", NULL, no_fsdp},
    {"cp", NULL, no_context},
    {"context-parallel", NULL, no_context},
    {"context-parallel-size", NULL, no_context},
    {"context-parallel-degree", NULL, no_context},
    {"ulysses", NULL, no_context},
    {"ep", NULL, no_experts},
    {"expert-parallel", NULL, no_experts},
    {"expert-model-parallel-size", NULL, no_experts},
    {"expert-parallel-degree", NULL, no_experts},
    {"num-experts", NULL, no_experts},
    {"moe", NULL, no_experts},
    {"fp16", NULL, no_halves},
    {"fp8", NULL, no_halves},
    {"fp8-format", NULL, no_halves},
    {"offload", NULL, no_offload},
    {"cpu-offload", NULL, no_offload},
    {"optimizer-cpu-offload", NULL, no_offload},
    {"enable-cpu-offload", NULL, no_offload},
    {"lora", NULL, no_adapters},
    {"qlora", NULL, no_adapters},
    {"peft", NULL, no_adapters},
    {"load-in-4bit", NULL, no_adapters},
};

/* Values of options that memplan has. */
static const struct {
    const char *option, *value, *said;
} values[] = {
    {"zero", "2", no_fsdp},          {"zero", "3", no_fsdp},           {"precision", "fp16", no_halves},
    {"precision", "fp8", no_halves}, {"precision", "half", no_halves},
};

/* As one name: "--Global_Batch_Size" is "global-batch-size". */
static bool is_same(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        int x = *a == '_' ? '-' : tolower((unsigned char)*a);
        if (x != *b)
            return false;
    }
    return *a == *b;
}

const struct foreign_word *foreign_words_find(const char *word)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_same(word, words[i].word))
            return &words[i];
    return NULL;
}

const char *foreign_words_value(const char *option, const char *value)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (is_same(option, values[i].option) && !strcasecmp(value, values[i].value))
            return values[i].said;
    return NULL;
}
