/* The rules of what layers keep, against bytes that PyTorch itself keeps (tests/torch/saved.csv, which check-torch holds
 * against autograd's saved-tensor hooks) and against bytes that others measured. */
#include "tests/planner/workload_sample.h"
#include "tests/test.h"

#include "base/text.h"
#include "planner/frameworks/layer_rules.h"
#include "planner/frameworks/loss_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum workload_activation activation_of(const char *flags)
{
    static const char *const names[] = {
        [WORKLOAD_ACTIVATION_RESULT] = "result", [WORKLOAD_ACTIVATION_NEW] = "new",
        [WORKLOAD_ACTIVATION_FAST] = "fast",     [WORKLOAD_ACTIVATION_ERF] = "erf",
        [WORKLOAD_ACTIVATION_QUICK] = "quick",   [WORKLOAD_ACTIVATION_CLIPPED] = "clipped",
    };
    for (int i = WORKLOAD_ACTIVATION_RESULT; i <= WORKLOAD_ACTIVATION_CLIPPED; i++)
        if (strstr(flags, names[i]))
            return (enum workload_activation)i;
    return WORKLOAD_ACTIVATION_KERNEL;
}

static struct workload_traits traits_of(const char *flags)
{
    return (struct workload_traits){
        .residual = strstr(flags, "one")      ? WORKLOAD_BESIDE_ONE_NORM
                    : strstr(flags, "beside") ? WORKLOAD_BESIDE
                                              : WORKLOAD_IN_TURN,
        .softmax = strstr(flags, "asis")       ? WORKLOAD_SOFTMAX_AS_IT_IS
                   : strstr(flags, "scores32") ? WORKLOAD_SOFTMAX_FP32
                                               : WORKLOAD_SOFTMAX_CAST,
        .norms_fp32 = strstr(flags, "gemma"),
        .post_norms = strstr(flags, "post"),
        .joint_qkv = strstr(flags, "joint"),
        .alibi = strstr(flags, "alibi"),
        .scores_capped = strstr(flags, "capped"),
    };
}

static struct workload toy(const char *flags)
{
    struct workload w = workload_default(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.model = (struct workload_model){.layers = 2,
                                      .hidden = 32,
                                      .heads = 4,
                                      .kv_heads = strstr(flags, "gqa")   ? 2
                                                  : strstr(flags, "mqa") ? 1
                                                                         : 4,
                                      .head_size = 8,
                                      .ffn = strstr(flags, "wide") ? 128 : 48,
                                      .vocab = 64,
                                      .rms_norm = strstr(flags, "rms"),
                                      .gated = strstr(flags, "gated"),
                                      .qk_norm = strstr(flags, "qknorm"),
                                      .encoder = strstr(flags, "encoder"),
                                      .traits = traits_of(flags)};
    w.micro_batch = 2;
    w.sequence = 20;
    w.compute_bytes = strstr(flags, "fp32") ? 4 : 2;
    w.weight_bytes = strstr(flags, "bf16") ? 2 : 4;
    w.autocast = strstr(flags, "autocast");
    w.attention = strstr(flags, "eager") ? WORKLOAD_EAGER : WORKLOAD_FLASH;
    w.hidden_dropout = w.attention_dropout = strstr(flags, "dropout");
    w.recompute = strstr(flags, "full") ? WORKLOAD_FULL : WORKLOAD_KEEPS_ALL;
    w.old_torch = strstr(flags, "old");
    w.model.bias = w.bias_apart = strstr(flags, "apart");
    w.model.activation = activation_of(flags);
    return w;
}

/* Of the rule of that name that applies and is kept; -1: there is none. */
static double kept_bytes(const struct workload *w, const char *name, size_t length)
{
    unsigned holds = layer_conditions(w, false);
    for (int i = 0; i < layer_rule_count; i++) {
        const struct layer_rule *rule = &layer_rules[i];
        if (strlen(rule->name) == length && !strncmp(rule->name, name, length) &&
            (rule->conditions & holds) == rule->conditions &&
            layer_rule_kept(w, rule, layer_parts_again(w, 0)) && layer_rule_bytes(w, rule) > 0)
            return layer_rule_bytes(w, rule);
    }
    for (int i = 0; i < loss_forward_count; i++) {
        const struct loss_rule *rule = &loss_forward_rules[i];
        if (strlen(rule->name) == length && !strncmp(rule->name, name, length) && rule->losses >> w->loss & 1)
            return loss_rule_bytes(w, rule);
    }
    return -1;
}

static void check_line(char *line)
{
    char *name = strtok(line, "|"), *flags = strtok(NULL, "|"), *rules = strtok(NULL, "|");
    double expected = atof(strtok(NULL, "|")), sum = 0;
    struct workload w = toy(flags);
    for (const char *at = rules; *at; at += strcspn(at, ";"), at += *at == ';') {
        double bytes = kept_bytes(&w, at, strcspn(at, ";"));
        ASSERT_MSG(bytes >= 0, "%s: no kept rule \"%.*s\"", name, (int)strcspn(at, ";"), at);
        sum += bytes;
    }
    ASSERT_MSG(sum == expected, "%s: the rules say %.0f, PyTorch %.0f", name, sum, expected);
}

/* Those of a table that are no comment; how many. */
static int for_each_line(const char *path, void (*check)(char *line))
{
    struct error err = {0};
    char *data, *line;
    size_t length;
    int lines = 0;
    ASSERT_OK(text_read_file(path, 1 << 16, &data, &length, &err));
    /* By hand: strtok() is busy inside. */
    for (line = data; line < data + length; line += strlen(line) + 1) {
        line[strcspn(line, "\n")] = 0;
        char *copy = strdup(line);
        if (*copy && *copy != '#') {
            check(copy);
            lines++;
        }
        free(copy);
    }
    free(data);
    return lines;
}

TEST(layer_rules_torch, "the rules keep what PyTorch keeps, to the byte")
{
    ASSERT_INT(for_each_line("tests/torch/saved.csv", check_line), 54);
}

/* "name|words|bytes" */
static void check_family(char *line)
{
    char *name = strtok(line, "|"), *words = strtok(NULL, "|");
    double expected = atof(strtok(NULL, "|"));
    struct workload w = toy(words);
    if (!strstr(words, "rotary"))
        w.model.positions = 20;
    if (strstr(words, "relu"))
        w.model.activation = WORKLOAD_ACTIVATION_RESULT;
    double bytes = layer_kept_bytes(&w, 0);
    ASSERT_MSG(bytes == expected, "%s: the rules say %.0f, PyTorch %.0f", name, bytes, expected);
}

TEST(layer_rules_families, "a whole layer of each family keeps what PyTorch keeps of it, to the byte")
{
    ASSERT_INT(for_each_line("tests/torch/families.csv", check_family), 26);
}

static struct workload megatron_gpt(int64_t hidden, int64_t heads, int64_t head_size, int64_t sequence)
{
    struct workload w = workload_default(WORKLOAD_MEGATRON_LEGACY, WORKLOAD_REPLICATED);
    w.model = (struct workload_model){.layers = 1,
                                      .hidden = hidden,
                                      .heads = heads,
                                      .kv_heads = heads,
                                      .head_size = head_size,
                                      .ffn = 4 * hidden,
                                      .positions = sequence,
                                      .bias = true};
    w.sequence = sequence;
    w.hidden_dropout = w.attention_dropout = true;
    return w;
}

/* Korthikanti et al. 2022, equations 1, 2 and 4, and table 2: sbh(34 + 5as/h), over t, with sequence parallelism; and
 * selective recomputation, which leaves 34 sbh. Statistics, which the paper leaves out, are 16 bytes a token. */
TEST(layer_rules_paper, "a GPT layer keeps what the paper on activation recomputation counts")
{
    struct workload w = megatron_gpt(6144, 64, 96, 2048);
    double sbh = 2048.0 * 6144, scores = 5.0 * 64 * 2048 / 6144, statistics = 16.0 * 2048;
    w.attention = WORKLOAD_FUSED_SOFTMAX;
    ASSERT_NEAR(layer_kept_bytes(&w, 0), sbh * (34 + scores) + statistics, 0.5);
    w.tp = 8;
    ASSERT_NEAR(layer_kept_bytes(&w, 0), sbh * (10 + (24 + scores) / 8) + statistics, 0.5);
    w.sequence_parallel = true;
    ASSERT_NEAR(layer_kept_bytes(&w, 0), (sbh * (34 + scores) + statistics) / 8, 0.5);
    w.recompute = WORKLOAD_MODULES;
    w.modules = WORKLOAD_CORE_ATTN;
    ASSERT_NEAR(layer_kept_bytes(&w, 0), (sbh * 34 + statistics) / 8, 0.5);
    w.recompute = WORKLOAD_FULL;
    ASSERT_NEAR(layer_kept_bytes(&w, 0), sbh * 2 / 8, 0.5);
}

/* Hetu-Galvatron's profile of one GPT layer: 272.28 MiB, of which 34 sbh are 272 and the log-sum-exp 0.25; of one with heads
 * of 50, which are padded to 56: 58.2. */
TEST(layer_rules_galvatron, "a measured layer keeps what the rules say")
{
    struct workload w = megatron_gpt(4096, 32, 128, 2048);
    ASSERT_NEAR(layer_kept_bytes(&w, 0) / (1 << 20), 272.28, 0.005);
    w = megatron_gpt(1600, 32, 50, 1024);
    ASSERT_NEAR(layer_kept_bytes(&w, 0) / (1 << 20), 58.2, 0.4);
}

/* torchtitan's policy keeps every second product and attention: of a LLaMA-8B layer the input, queries, values, attention, gate
 * and the last product: 4 x 4,096 + 1,024 + 14,336 elements, and a number for each of 32 heads. */
TEST(layer_rules_every_second, "torchtitan's per-operation policy keeps every second product")
{
    struct workload w = sample_titan();
    w.recompute = WORKLOAD_EVERY_SECOND;
    ASSERT_NEAR(layer_kept_bytes(&w, 0), 8192.0 * (2 * (4 * 4096 + 1024 + 14336) + 4 * 32), 0.5);
}

/* Counted parameters of published models. */
TEST(layer_rules_parameters, "parameters are what models have")
{
    struct workload w = sample_titan();
    ASSERT_NEAR(workload_parameters(&w), 8030261248.0, 0.5);
    w.model.vocab = 32000; /* Mixtral 8x7B */
    w.model.experts = 8;
    w.model.active_experts = 2;
    w.model.expert_ffn = 14336;
    ASSERT_NEAR(workload_parameters(&w), 46702792704.0, 0.5);
}
