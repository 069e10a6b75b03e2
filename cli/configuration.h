/* What most commands start from: a model or a plan on the command line, with options that change it, as one valid plan. */
#ifndef MEMPLAN_CLI_CONFIGURATION_H
#define MEMPLAN_CLI_CONFIGURATION_H

#include "base/options.h"
#include "model/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct configuration_options {
    struct model_overrides model;
    int64_t seq_len, dp, tp, pp, virtual_stages, micro_batch, global_batch, bucket_bytes;
    bool sequence_parallel;
    const char *recompute, *precision, *pipeline_schedule, *stage_layers, *zero;
};

/* Entries for a command's option table; `field` is the struct configuration_options in `type`. */
#define CONFIGURATION_MODEL_OPTIONS(type, field)                                                               \
    {.kind = OPTION_HEADING, .help = "Model (a field given here replaces the model's own)"},                   \
    {"layers", 0, OPTION_POSITIVE, "N", NULL, "number of layers", offsetof(type, field.model.layers)},         \
    {"hidden", 0, OPTION_POSITIVE, "N", NULL, "hidden size", offsetof(type, field.model.hidden)},              \
    {"heads", 0, OPTION_POSITIVE, "N", NULL, "attention heads", offsetof(type, field.model.heads)},            \
    {"kv-heads", 0, OPTION_POSITIVE, "N", NULL, "key/value heads", offsetof(type, field.model.kv_heads)},      \
    {"ffn", 0, OPTION_POSITIVE, "N", NULL, "feed-forward size", offsetof(type, field.model.ffn)},              \
    {"vocab", 0, OPTION_POSITIVE, "N", NULL, "vocabulary, or classes", offsetof(type, field.model.vocab)},     \
    {"seq-len", 0, OPTION_POSITIVE, "N", NULL, "sequence length; default: the model's longest",                \
     offsetof(type, field.seq_len)},                                                                           \
    {"precision", 0, OPTION_CHOICE, NULL, "fp32|bf16", "default fp32", offsetof(type, field.precision)}

#define CONFIGURATION_LAYOUT_OPTIONS(type, field)                                                                \
    {.kind = OPTION_HEADING, .help = "Layout"},                                                                  \
    {"dp", 0, OPTION_POSITIVE, "N", NULL, "data-parallel ranks; default 1", offsetof(type, field.dp)},           \
    {"tp", 0, OPTION_POSITIVE, "N", NULL, "tensor-parallel ranks; default 1", offsetof(type, field.tp)},         \
    {"sequence-parallel", 0, OPTION_FLAG, NULL, NULL,                                                            \
     "split norms and residuals over the sequence; needs --tp above 1",                                          \
     offsetof(type, field.sequence_parallel)},                                                                   \
    {"pp", 0, OPTION_POSITIVE, "N", NULL, "pipeline stages; default 1", offsetof(type, field.pp)},               \
    {"virtual-stages", 0, OPTION_POSITIVE, "N", NULL, "chunks of layers per pipeline stage; default 1",          \
     offsetof(type, field.virtual_stages)},                                                                      \
    {"pipeline-schedule", 0, OPTION_CHOICE, NULL, "gpipe|1f1b|interleaved|zb-h1",                                \
     "default 1f1b, or interleaved with several virtual stages", offsetof(type, field.pipeline_schedule)},       \
    {"stage-layers", 0, OPTION_TEXT, "N,N,...", NULL,                                                            \
     "layers of each chunk in the pipeline's order (of each stage, then of each one's second chunk): 3,2*6,0",   \
     offsetof(type, field.stage_layers)},                                                                        \
    {"zero", 0, OPTION_CHOICE, NULL, "0|1",                                                                      \
     "1: each data-parallel rank keeps a share of the optimizer states; default 0", offsetof(type, field.zero)}, \
    {"micro-batch", 0, OPTION_POSITIVE, "N", NULL, "sequences per micro-batch and rank",                         \
     offsetof(type, field.micro_batch)},                                                                         \
    {"global-batch", 0, OPTION_POSITIVE, "N", NULL, "sequences per step; default dp x micro-batch x pp",         \
     offsetof(type, field.global_batch)},                                                                        \
    {"bucket-bytes", 0, OPTION_POSITIVE_BYTES, "BYTES", NULL, "gradients per all-reduce; default 25 MiB",        \
     offsetof(type, field.bucket_bytes)},                                                                        \
    {"recompute", 0, OPTION_TEXT, "SET", NULL,                                                                   \
     "none, selective, full, auto (the least that fits), tensors joined by +, or ranges of layers: 0-3=full",    \
     offsetof(type, field.recompute)}

/* `source` names a model or a plan file; the options change it. On success the caller owns *out: plan_clear().
 * --recompute auto is left to the caller, who knows the capacity: *automatic says that it was asked for. */
int configuration_resolve(const char *source, const struct configuration_options *options, struct plan *out,
                          bool *automatic, struct error *err);

/* Whether a file's name says that it is JSON: then it is read as a plan, else as a database. */
bool configuration_is_plan(const char *path);

/* The command line as one string, for files that say how they were made. */
void configuration_command_line(int argc, char **argv, char *out, size_t room);

#endif
