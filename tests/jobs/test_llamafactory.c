/* LLaMA-Factory's YAML, what its own options mean beside the Trainer's, and what is proposed in its own words. */
#include "jobs/job_changes.h"
#include "jobs/job_workload.h"
#include "jobs/jobs.h"
#include "base/text.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#define LLAMA                                                                                                \
    "model_name_or_path: models/Llama-3.1-8B\nbf16: true\ntemplate: llama3\ndataset: a,b\nval_size: 0.1\n"

static struct arena *arena;
static struct training_job job;
static struct error err;

/* `rest`: what stands behind the file on the line. */
static int read_yaml(const char *yaml, const char *rest, const struct job_edits *edits)
{
    arena = arena_create();
    err = (struct error){0};
    struct jobs_request request = {.edits = edits ? *edits : (struct job_edits){0}};
    const char *script =
        arena_printf(arena,
                     "export CUDA_VISIBLE_DEVICES=0,1\ncat > lf.yaml <<'E'\n%sE\ncat > ds.json <<'E'\n"
                     "{\"bf16\": {\"enabled\": \"auto\"}, \"zero_optimization\": {\"stage\": "
                     "3}}\nE\nFORCE_TORCHRUN=1 "
                     "llamafactory-cli train lf.yaml %s\n",
                     yaml, rest);
    return jobs_read_text(&request, "examples/launch/run.sh", script, strlen(script), arena, &job, &err);
}

static struct workload workload_of(const char *yaml, const char *rest)
{
    struct workload w;
    ASSERT_MSG(!read_yaml(yaml, rest, NULL), "%s", err.text);
    ASSERT_STR(job_framework_name(job.framework), "LLaMA-Factory");
    ASSERT_INT(job_count(&job, FACT_MISSING) + job_count(&job, FACT_UNKNOWN), 0);
    ASSERT_MSG(!job_workload(&job, &w, &err), "%s", err.text);
    return w;
}

TEST(llamafactory_lora,
     "adapters of rank 8 on all matrices, unless its YAML says otherwise; the line comes before the file")
{
    struct workload w =
        workload_of(LLAMA "per_device_train_batch_size: 4\n", "per_device_train_batch_size=3");
    ASSERT_INT(job.launch.ranks, 2);
    ASSERT_INT(w.lora_rank, 8);
    ASSERT_INT(w.lora_linears,
               LINEAR_Q | LINEAR_K | LINEAR_V | LINEAR_O | LINEAR_GATE | LINEAR_UP | LINEAR_DOWN);
    ASSERT_INT(w.frozen_bits, 16);
    ASSERT_INT(w.micro_batch, 3);
    ASSERT_INT(w.sequence, 2048);
    ASSERT_INT(w.recompute, WORKLOAD_FULL);
    arena_free(arena);
    w = workload_of(LLAMA "lora_rank: 32\nlora_target: q_proj,v_proj\nquantization_bit: 4\ncutoff_len: 512\n"
                          "disable_gradient_checkpointing: true\nflash_attn: fa2\n",
                    "");
    ASSERT_INT(w.lora_rank, 32);
    ASSERT_INT(w.lora_linears, LINEAR_Q | LINEAR_V);
    ASSERT_INT(w.frozen_bits, 4);
    ASSERT_INT(w.sequence, 512);
    ASSERT_INT(w.recompute, WORKLOAD_KEEPS_ALL);
    ASSERT(!w.keys_expanded);
    arena_free(arena);
}

TEST(llamafactory_full, "what is trained whole is raised to fp32, but for pure_bf16 and under DeepSpeed")
{
    struct workload w = workload_of(LLAMA "finetuning_type: full\n", "");
    ASSERT_INT(w.lora_rank, 0);
    ASSERT_INT(w.weight_bytes, 4);
    ASSERT(w.autocast);
    arena_free(arena);
    w = workload_of(LLAMA "finetuning_type: full\npure_bf16: true\n", "");
    ASSERT_INT(w.weight_bytes, 2);
    ASSERT_INT(w.moment_bytes, 2);
    arena_free(arena);
    w = workload_of(LLAMA "finetuning_type: full\n"
                          "deepspeed: ds.json\n",
                    "");
    ASSERT_INT(w.sharding, WORKLOAD_ZERO3);
    ASSERT_INT(w.weight_bytes, 2);
    ASSERT_INT(w.master_bytes, 4);
    arena_free(arena);
}

TEST(llamafactory_refused, "what no rule is about is refused by its key")
{
    static const struct {
        const char *yaml, *message;
    } cases[] = {{"stage: dpo\n", "(stage: dpo)"},
                 {"finetuning_type: freeze\n", "(finetuning_type: freeze)"},
                 {"use_galore: true\n", "GaLore (--use_galore)"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct workload w;
        struct text yaml = {0};
        text_printf(&yaml, "%s%s", LLAMA, cases[i].yaml);
        ASSERT_OK(read_yaml(yaml.data, "", NULL));
        ASSERT_INT(job_workload(&job, &w, &err), -1);
        ASSERT_HAS(err.text, cases[i].message);
        text_free(&yaml);
        arena_free(arena);
    }
}

/* Reads the launch again with each proposal in it: it must become another job. */
TEST(llamafactory_changes, "proposals are keys of its YAML, and are read back")
{
    static const char yaml[] = LLAMA "disable_gradient_checkpointing: true\nper_device_train_batch_size: 4\n"
                                     "flash_attn: disabled\n";
    static const char *const keys[] = {"disable_gradient_checkpointing", "flash_attn", "enable_liger_kernel",
                                       "quantization_bit", "per_device_train_batch_size"};
    struct job_changes changes;
    struct workload before = workload_of(yaml, "");
    bool found[5] = {false};
    job_changes_find(&job, false, &changes);
    struct arena *kept = arena; /* the proposals' */
    for (int i = 0; i < changes.count; i++) {
        const struct job_change *c = &changes.list[i];
        struct workload after;
        if (c->edits[0].place != JOB_EDIT_FILE)
            continue;
        ASSERT_STR(c->edits[0].file, "lf.yaml");
        for (int k = 0; k < 5; k++)
            found[k] = found[k] || !strcmp(c->edits[0].name, keys[k]);
        ASSERT_OK(read_yaml(yaml, "", &(struct job_edits){c->edits, c->count}));
        ASSERT_OK(job_workload(&job, &after, &err));
        ASSERT_MSG(memcmp(&before, &after, sizeof before) != 0, "%s changes nothing", c->name);
        arena_free(arena);
    }
    for (int k = 0; k < 5; k++)
        ASSERT_MSG(found[k], "%s is not proposed", keys[k]);
    arena_free(kept);
}

TEST(llamafactory_left_out, "a key that a proposal leaves out is read as if it had never been there")
{
    static const char yaml[] = LLAMA "fsdp: full_shard auto_wrap\nper_device_train_batch_size: 4\n";
    struct job_changes changes;
    bool found = false;
    workload_of(yaml, "");
    ASSERT_INT(job.shards.sharding, JOB_FSDP1);
    job_changes_find(&job, true, &changes);
    struct arena *kept = arena; /* the proposals' */
    for (int i = 0; i < changes.count; i++) {
        const struct job_change *c = &changes.list[i];
        if (c->edits[0].value)
            continue;
        ASSERT_STR(c->edits[0].name, "fsdp");
        ASSERT_OK(read_yaml(yaml, "", &(struct job_edits){c->edits, c->count}));
        ASSERT_INT(job.shards.sharding, JOB_REPLICATED);
        arena_free(arena);
        found = true;
    }
    ASSERT_MSG(found, "no proposal leaves out %s", "fsdp");
    arena_free(kept);
}
