/* Axolotl's YAML and launches: what its keys mean, which it refuses, and what is proposed in its own words. */
#include "base/text.h"
#include "jobs/job_changes.h"
#include "jobs/job_workload.h"
#include "jobs/jobs.h"
#include "tests/test.h"

#include <string.h>

#define LLAMA  "base_model: models/Llama-3.1-8B\nsequence_len: 4096\nmicro_batch_size: 4\nwandb_name:\n"
#define FLASH  "attn_implementation: flash_attention_2\n"
#define LORA   LLAMA FLASH "adapter: lora\nlora_r: 16\nlora_target_linear: true\nlora_mlp_kernel: false\n"
#define TRAIN  "axolotl train c.yml"
#define PLUGIN "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"

static struct arena *arena;
static struct training_job job;
static struct error err;
static int64_t said_ranks; /* memplan check --ranks */

static int read_with(const char *yaml, const char *launch, const struct job_edits *edits)
{
    arena = arena_create();
    err = (struct error){0};
    struct jobs_request request = {.edits = edits ? *edits : (struct job_edits){0}, .ranks = said_ranks};
    const char *script =
        arena_printf(arena,
                     "export CUDA_VISIBLE_DEVICES=0,1\ncat > c.yml <<'E'\n%sE\ncat > ds.json <<'E'\n"
                     "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3}}\nE\n%s\n",
                     yaml, launch);
    return jobs_read_text(&request, "examples/launch/run.sh", script, strlen(script), arena, &job, &err);
}

/* All of which is understood. */
static struct workload workload_of(const char *yaml, const char *launch)
{
    struct workload w;
    ASSERT_MSG(!read_with(yaml, launch, NULL), "%s", err.text);
    ASSERT_STR(job_framework_name(job.framework), "Axolotl");
    ASSERT_INT(job_count(&job, FACT_MISSING) + job_count(&job, FACT_UNKNOWN), 0);
    ASSERT_MSG(!job_workload(&job, &w, &err), "%s", err.text);
    arena_free(arena);
    return w;
}

/* The sentence that refuses it, when it is read or when memory is asked for. */
static const char *refusal_of(const char *yaml)
{
    struct workload w;
    ASSERT(read_with(yaml, TRAIN, NULL) || job_workload(&job, &w, &err));
    arena_free(arena);
    return err.text;
}

static int64_t ranks_of(const char *launch)
{
    ASSERT_MSG(!read_with(LORA, launch, NULL), "%s: %s", launch, err.text);
    arena_free(arena);
    return job.launch.ranks;
}

TEST(axolotl_launches, "processes are counted by what axolotl calls, and by what is handed on to it")
{
    ASSERT_INT(ranks_of(TRAIN), 2); /* as CUDA_VISIBLE_DEVICES says */
    ASSERT_INT(ranks_of(TRAIN " --num-processes 4"), 4);
    ASSERT_INT(ranks_of(TRAIN " -- --num_processes=6"), 6);
    ASSERT_INT(ranks_of("axolotl train --launcher torchrun c.yml -- --nnodes 2 --nproc_per_node 8"), 16);
    ASSERT_INT(ranks_of(TRAIN " --launcher=torchrun"), 1);
    ASSERT_INT(ranks_of(TRAIN " --launcher python"), 1);
    ASSERT_INT(ranks_of("accelerate launch --num_processes 8 -m axolotl.cli.train c.yml"), 8);
    ASSERT_INT(ranks_of("torchrun --nproc_per_node 4 -m axolotl.cli.train c.yml"), 4);
    ASSERT_INT(read_with(LORA, TRAIN " --launcher srun", NULL), -1);
    ASSERT_HAS(err.text, "--launcher srun: axolotl calls accelerate, torchrun or python");
    arena_free(arena);
    said_ranks = 3;
    ASSERT_INT(ranks_of(TRAIN " --num-processes 4"), 3);
}

TEST(axolotl_line, "the line comes before the file, wherever the file stands; without one it is asked for")
{
    struct workload w = workload_of(LORA, "axolotl train --micro-batch-size=2 c.yml --sequence-len 1024");
    ASSERT_INT(w.micro_batch, 2);
    ASSERT_INT(w.sequence, 1024);
    ASSERT_INT(read_with(LORA, "axolotl train --seed 1", NULL), -1);
    ASSERT_HAS(err.text, "axolotl train config.yml");
    arena_free(arena);
    ASSERT_INT(read_with(LORA, "axolotl preprocess c.yml", NULL), -1);
    arena_free(arena);
}

TEST(axolotl_adapters, "lora and qlora, their weights in the type that is computed in or in 4 and 8 bits")
{
    struct workload w = workload_of(LORA, TRAIN);
    ASSERT_INT(w.lora_rank, 16);
    ASSERT_INT(w.lora_linears,
               LINEAR_Q | LINEAR_K | LINEAR_V | LINEAR_O | LINEAR_GATE | LINEAR_UP | LINEAR_DOWN);
    ASSERT_INT(w.frozen_bits, 16);
    ASSERT_INT(w.moment_bytes, 4);
    ASSERT_INT(w.sequence, 4096);
    ASSERT_INT(w.recompute, WORKLOAD_KEEPS_ALL);
    w = workload_of(LORA "load_in_8bit: true\ngradient_checkpointing: true\n", TRAIN);
    ASSERT_INT(w.frozen_bits, 8);
    ASSERT_INT(w.recompute, WORKLOAD_FULL);
    w = workload_of(LORA "load_in_4bit: true\n", TRAIN); /* which counts for qlora alone */
    ASSERT_INT(w.frozen_bits, 16);
    w = workload_of(LORA "adapter: qlora\nload_in_4bit: true\nlora_target_linear: false\n"
                         "lora_target_modules:\n  - q_proj\n  - v_proj\n",
                    TRAIN);
    ASSERT_INT(w.frozen_bits, 4);
    ASSERT_INT(w.lora_linears, LINEAR_Q | LINEAR_V);
}

TEST(axolotl_whole,
     "what is trained whole stays in bf16, but for FSDP1, which raises it, and DeepSpeed's masters")
{
    struct workload w = workload_of(LLAMA FLASH, TRAIN);
    ASSERT_INT(w.weight_bytes, 2);
    ASSERT_INT(w.moment_bytes, 2);
    w = workload_of(LLAMA FLASH "bf16: false\n", TRAIN);
    ASSERT_INT(w.weight_bytes, 4);
    w = workload_of(LLAMA FLASH "fp16: true\n", TRAIN);
    ASSERT_INT(w.weight_bytes, 2);
    w = workload_of(LLAMA FLASH "deepspeed: ds.json\n", TRAIN);
    ASSERT_INT(w.sharding, WORKLOAD_ZERO3);
    ASSERT_INT(w.master_bytes, 4);
    w = workload_of(LLAMA "cut_cross_entropy: true\nplugins:\n"
                          "- axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n",
                    TRAIN);
    ASSERT_INT(w.loss, WORKLOAD_LOSS_LINEAR);
    ASSERT_INT(w.loss_chunks, w.model.vocab);
    ASSERT_HAS(refusal_of(LLAMA), "embeddings in fp32 beside 16-bit weights");
}

TEST(axolotl_fsdp, "fsdp_config's keys are read with fsdp_ in front or without")
{
    static const char plain[] = "fsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                                "  offload_params: false\n  reshard_after_forward: true\n";
    struct text yaml = {0};
    text_printf(&yaml, "%s%s", LLAMA, plain);
    struct workload w = workload_of(yaml.data, TRAIN);
    ASSERT_INT(w.sharding, WORKLOAD_FSDP2);
    ASSERT(w.wraps_layers && w.reshards_after_forward && !w.offload_weights);
    ASSERT_INT(w.weight_bytes, 2);
    w = workload_of(LLAMA "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n"
                          "  fsdp_offload_params: true\n  fsdp_activation_checkpointing: true\n",
                    TRAIN);
    ASSERT_INT(w.sharding, WORKLOAD_FSDP1);
    ASSERT(w.wraps_layers && w.offload_weights);
    ASSERT_INT(w.weight_bytes, 4);
    ASSERT_INT(w.recompute, WORKLOAD_FULL);
    text_printf(&yaml, "dp_replicate_size: 3\n");
    ASSERT_HAS(refusal_of(yaml.data), "dp_replicate_size 3 does not divide 2 ranks");
    text_free(&yaml);
}

TEST(axolotl_plugins, "Liger's keys count one by one, and only with its plugin")
{
    struct workload w = workload_of(LORA PLUGIN "liger_glu_activation: true\n", TRAIN), none;
    none = workload_of(LORA "liger_glu_activation: true\n", TRAIN);
    ASSERT_INT(w.gate, WORKLOAD_GATE_FUSED);
    ASSERT_INT(w.norm, none.norm);
    ASSERT_INT(w.loss, none.loss);
    ASSERT(none.gate != WORKLOAD_GATE_FUSED);
    w = workload_of(LORA PLUGIN "liger_fused_linear_cross_entropy: true\n", TRAIN);
    ASSERT_INT(w.loss, WORKLOAD_LOSS_LINEAR);
    ASSERT_HAS(refusal_of(LORA PLUGIN "  - a.b.Other\n"), "the plugin a.b.Other");
}

TEST(axolotl_offloading, "kept inputs wait in host memory where what is trained whole makes layers again")
{
    struct workload w =
        workload_of(LLAMA FLASH "gradient_checkpointing: true\nactivation_offloading: true\n", TRAIN);
    ASSERT(w.inputs_offloaded);
    w = workload_of(LLAMA FLASH "gradient_checkpointing: offload\n", TRAIN);
    ASSERT(w.inputs_offloaded);
    ASSERT_INT(w.recompute, WORKLOAD_FULL);
    w = workload_of(LORA "gradient_checkpointing: true\nactivation_offloading: hidden_states\n", TRAIN);
    ASSERT(w.inputs_offloaded);
    ASSERT_HAS(refusal_of(LORA "gradient_checkpointing: true\nactivation_offloading: true\n"),
               "beside an adapter");
}

TEST(axolotl_refused, "what no rule is about, and what Axolotl itself refuses, is refused by its key")
{
    static const struct {
        const char *yaml, *message;
    } cases[] = {{"rl: dpo\n", "(--rl)"},
                 {"tensor_parallel_size: 2\n", "tensor parallelism through accelerate"},
                 {"qat:\n  weight_dtype: int4\n", "training for quantization"},
                 {"optimizer: muon\n", "the optimizer muon"},
                 {"attn_implementation: xformers\n", "the attention xformers"},
                 {"adapter: llama-adapter\n", "the adapter llama-adapter"},
                 {"load_in_4bit: true\nadapter:\n", NULL},
                 {"adapter: qlora\n", "load_in_4bit: true"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text yaml = {0};
        text_printf(&yaml, "%s%s", LORA, cases[i].yaml);
        if (cases[i].message)
            ASSERT_HAS(refusal_of(yaml.data), cases[i].message);
        text_free(&yaml);
    }
    ASSERT_HAS(refusal_of(LLAMA FLASH "load_in_4bit: true\n"), "add adapter: qlora");
}

TEST(axolotl_unknown, "keys that nobody knows are said, and so are kernels that no rule counts")
{
    ASSERT_OK(read_with(LORA "lora_rank: 8\n", TRAIN, NULL));
    ASSERT_INT(job_count(&job, FACT_UNKNOWN), 1);
    arena_free(arena);
    ASSERT_OK(read_with(LLAMA FLASH "adapter: lora\nlora_r: 8\nlora_target_linear: true\n", TRAIN, NULL));
    ASSERT_INT(job_count(&job, FACT_UNKNOWN), 1);
    ASSERT(!job_was_given(&job, "lora_*_kernel"));
    arena_free(arena);
    ASSERT_OK(read_with(LLAMA FLASH "adapter: lora\n", TRAIN, NULL));
    ASSERT_INT(job_count(&job, FACT_MISSING), 2); /* its rank, and which modules */
    arena_free(arena);
}

/* Reads the launch again with each proposal in it: it must become another job. */
static void assert_proposes(const char *yaml, bool larger, const char *const *names, int count)
{
    struct job_changes changes;
    struct workload before = workload_of(yaml, TRAIN);
    bool found[8] = {false};
    ASSERT_OK(read_with(yaml, TRAIN, NULL));
    job_changes_find(&job, larger, &changes);
    struct arena *kept = arena; /* the proposals' */
    for (int i = 0; i < changes.count; i++) {
        const struct job_change *c = &changes.list[i];
        struct workload after;
        for (int k = 0; k < c->count; k++) {
            if (c->edits[k].place == JOB_EDIT_ENVIRONMENT)
                continue;
            ASSERT_INT(c->edits[k].place, JOB_EDIT_FILE);
            for (int n = 0; n < count; n++)
                found[n] = found[n] || !strcmp(c->edits[k].name, names[n]);
        }
        ASSERT_MSG(!read_with(yaml, TRAIN, &(struct job_edits){c->edits, c->count}), "%s: %s", c->name,
                   err.text);
        ASSERT_OK(job_workload(&job, &after, &err));
        ASSERT_MSG(memcmp(&before, &after, sizeof before) != 0, "%s changes nothing", c->name);
        arena_free(arena);
    }
    for (int n = 0; n < count; n++)
        ASSERT_MSG(found[n], "%s is not proposed", names[n]);
    arena_free(kept);
}

TEST(axolotl_changes, "proposals are keys of its YAML, and are read back")
{
    static const char *const smaller[] = {
        "micro_batch_size", "gradient_checkpointing", "liger_fused_linear_cross_entropy", "plugins",
        "adapter",          "eager_attention"};
    static const char *const fsdp[] = {"offload_params", "reshard_after_forward"};
    assert_proposes("eager_attention: true\nadapter: lora\nlora_r: 16\nlora_target_linear: true\n" LLAMA
                    "lora_mlp_kernel: false\n",
                    false, smaller, 6);
    assert_proposes(LLAMA "fsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                          "  reshard_after_forward: true\n  offload_params: false\n",
                    false, fsdp, 1);
}
