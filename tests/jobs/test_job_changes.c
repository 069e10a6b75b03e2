/* What is proposed for a launch, in its framework's own options. That proposals do what they say is checked from outside, on
 * all examples: tests/cli/check_changes.py. */
#include "jobs/job_changes.h"
#include "jobs/jobs.h"

#include "tests/test.h"

#include <stdio.h>
#include <string.h>

#define MEGATRON                                                                                             \
    "pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "               \
    "--max-position-embeddings 32 --vocab-size 100 --bf16"

static struct arena *arena;
static struct job_changes changes;

static void propose(const char *script, bool larger)
{
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {0};
    arena = arena_create();
    ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err));
    job_changes_find(&job, larger, &changes);
}

/* How much a launch has to say before it can be judged. */
static int lacking(const char *script)
{
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {0};
    struct arena *own = arena_create();
    ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), own, &job, &err));
    int count = job_count(&job, FACT_MISSING);
    arena_free(own);
    return count;
}

/* "--a 2 --b": what the edits of a change write; "-" for what they leave out. */
static const char *written(const struct job_change *change)
{
    static char text[400];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < change->count; i++) {
        const struct job_edit *e = &change->edits[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s%s%s%s%s", i ? " " : "",
                                 e->file ? e->file : "", e->file ? ":" : "", e->value ? "" : "-", e->name,
                                 e->value && *e->value ? " " : "", e->value ? e->value : "");
    }
    return text;
}

static bool proposes(const char *edits)
{
    for (int i = 0; i < changes.count; i++)
        if (!strcmp(written(&changes.list[i]), edits))
            return true;
    return false;
}

static void assert_proposes(const char *edits)
{
    ASSERT_MSG(proposes(edits), "no change writes: %s", edits);
}

TEST(proposed_micro_batch,
     "smaller micro-batches keep the global batch, which has to be said where it followed from them")
{
    propose("torchrun --nproc-per-node 2 " MEGATRON " --micro-batch-size 6", false);
    assert_proposes("--micro-batch-size 3 --global-batch-size 12");
    assert_proposes("--micro-batch-size 1 --global-batch-size 12");
    ASSERT(!proposes("--micro-batch-size 2 --global-batch-size 12")); /* after 3 comes 1: 3 / 2 rounds down */
    arena_free(arena);
    propose("torchrun " MEGATRON " --micro-batch-size 4 --global-batch-size 8", false);
    assert_proposes("--micro-batch-size 2");
    arena_free(arena);
    propose("python run_clm.py --model_name_or_path gpt2-tiny --per_device_train_batch_size 4 "
            "--gradient_accumulation_steps 3",
            false);
    assert_proposes("--per_device_train_batch_size 2 --gradient_accumulation_steps 6");
    arena_free(arena);
}

TEST(proposed_larger, "larger micro-batches leave each stage of a pipeline one, and what was left out goes")
{
    propose("torchrun --nproc-per-node 2 " MEGATRON
            " --micro-batch-size 1 --global-batch-size 8 --pipeline-model-parallel-size 2 "
            "--recompute-activations",
            true);
    assert_proposes("--micro-batch-size 2");
    assert_proposes("--micro-batch-size 4");
    ASSERT(!proposes("--micro-batch-size 8"));
    assert_proposes("---recompute-activations");
    assert_proposes("--pipeline-model-parallel-size 1");
    arena_free(arena);
}

TEST(proposed_blocks,
     "layers are made again in quarters of a chunk, and options that change nothing are not written")
{
    propose("torchrun " MEGATRON
            " --micro-batch-size 1 --recompute-granularity full --recompute-method uniform "
            "--recompute-num-layers 1",
            true);
    assert_proposes("--recompute-method block --recompute-num-layers 4");
    assert_proposes("--recompute-granularity selective ---recompute-method ---recompute-num-layers "
                    "--recompute-modules mlp");
    arena_free(arena);
    propose("torchrun " MEGATRON " --micro-batch-size 1 --recompute-activations", false);
    assert_proposes("---recompute-activations --recompute-granularity full --recompute-method block "
                    "--recompute-num-layers 2");
    arena_free(arena);
}

TEST(proposed_modules,
     "modules are proposed that layers of the job have, beside those that are made again now")
{
    static const char local[] = "torchrun " MEGATRON " --micro-batch-size 1 --transformer-impl local ";
    propose(local, false);
    assert_proposes("--recompute-granularity selective --recompute-modules core_attn");
    assert_proposes("--recompute-granularity selective --recompute-modules layernorm");
    assert_proposes("--recompute-granularity selective --recompute-modules core_attn mlp");
    arena_free(arena);
    propose("torchrun " MEGATRON " --micro-batch-size 1", false);
    assert_proposes("--recompute-granularity selective --recompute-modules mlp");
    ASSERT(
        !proposes("--recompute-granularity selective --recompute-modules core_attn")); /* nor has it scores */
    ASSERT(
        !proposes("--recompute-granularity selective --recompute-modules layernorm")); /* nor norms apart */
    ASSERT(!proposes("--recompute-granularity selective --recompute-modules moe"));
    arena_free(arena);
    propose("torchrun " MEGATRON " --micro-batch-size 1 --num-experts 4 --recompute-granularity selective "
            "--recompute-modules layernorm",
            false);
    assert_proposes("--recompute-modules layernorm moe");
    ASSERT(
        !proposes("--recompute-modules layernorm moe_act")); /* Megatron-LM wants grouped products with it */
    arena_free(arena);
    propose("torchrun " MEGATRON " --micro-batch-size 1 --recompute-granularity selective "
            "--recompute-modules core_attn mlp",
            true);
    assert_proposes("--recompute-modules mlp");
    assert_proposes("--recompute-modules core_attn");
    arena_free(arena);
}

TEST(proposed_ranks, "tensor parallelism grows as far as heads, ranks and machines divide")
{
    propose("torchrun --nproc-per-node 4 " MEGATRON " --micro-batch-size 1 --global-batch-size 8", false);
    assert_proposes("--tensor-model-parallel-size 2 --sequence-parallel");
    assert_proposes("--use-distributed-optimizer");
    assert_proposes("--pipeline-model-parallel-size 2");
    arena_free(arena);
    propose("torchrun --nproc-per-node 4 " MEGATRON
            " --micro-batch-size 1 --global-batch-size 8 --tensor-model-parallel-size 4",
            false);
    for (int i = 0; i < changes.count; i++)
        ASSERT(changes.list[i].kind != JOB_CHANGE_TENSOR); /* 4 heads do not divide by 8 */
    assert_proposes("--sequence-parallel");
    arena_free(arena);
}

TEST(proposed_zero, "DeepSpeed's stages are keys of its file, and go as far as a pipeline lets them")
{
    propose("cat >ds.json <<EOT\n"
            "{\"zero_optimization\": {\"stage\": 2}, \"train_micro_batch_size_per_gpu\": 4}\nEOT\n"
            "deepspeed --num_gpus 4 run_clm.py --model_name_or_path gpt2-tiny --deepspeed ds.json "
            "--per_device_train_batch_size 4",
            false);
    assert_proposes("ds.json:zero_optimization.stage 3");
    assert_proposes("ds.json:zero_optimization.offload_optimizer.device cpu");
    assert_proposes("--per_device_train_batch_size 2 ds.json:train_micro_batch_size_per_gpu 2 "
                    "--gradient_accumulation_steps 2");
    arena_free(arena);
    propose("cat >ds.json <<EOT\n{\"zero_optimization\": {\"stage\": 1}}\nEOT\n"
            "deepspeed --num_gpus 4 " MEGATRON " --micro-batch-size 1 --global-batch-size 4 "
            "--pipeline-model-parallel-size 2 --deepspeed --deepspeed_config ds.json --zero-stage 1",
            false);
    for (int i = 0; i < changes.count; i++)
        ASSERT(!strstr(written(&changes.list[i]), "zero_optimization.stage"));
    arena_free(arena);
}

#define FORK(stage, rest)                                                                                    \
    "cat >ds.json <<EOT\n{\"zero_optimization\": {\"stage\": " stage "}}\nEOT\n"                             \
    "deepspeed --num_gpus 4 " MEGATRON " --micro-batch-size 1 --global-batch-size 4 --deepspeed "            \
    "--deepspeed_config ds.json " rest

TEST(proposed_zero_fork, "Megatron-DeepSpeed has ZeRO 2 and 3 without a pipeline alone, be it of one stage")
{
    propose(FORK("1", "--zero-stage 1"), false);
    assert_proposes("ds.json:zero_optimization.stage 3 --zero-stage 3 --no-pipeline-parallel");
    arena_free(arena);
    propose(FORK("2", "--no-pipeline-parallel"), false);
    assert_proposes("ds.json:zero_optimization.stage 3");
    ASSERT(!proposes("--pipeline-model-parallel-size 2"));
    arena_free(arena);
}

TEST(refused_zero_fork,
     "a pipeline with ZeRO 2 is refused, as are two stages of ZeRO; a switch that is lacking is asked for")
{
    static const struct {
        const char *script, *message;
    } refused[] = {
        {FORK("2", "--pipeline-model-parallel-size 2"), "ZeRO stage 2: DeepSpeed refuses it with "},
        {FORK("1", "--zero-stage 2"), "--zero-stage 2: stage is 1 in ds.json"},
    };
    struct jobs_request request = {0};
    struct training_job job;
    arena = arena_create();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct error err = {0};
        ASSERT(jobs_read_text(&request, "run.sh", refused[i].script, strlen(refused[i].script), arena, &job,
                              &err) < 0);
        ASSERT_HAS(err.text, refused[i].message);
    }
    arena_free(arena);
    ASSERT_INT(lacking(FORK("3", "")), 1);
    ASSERT_INT(lacking(FORK("3", "--no-pipeline-parallel")), 0);
    ASSERT_INT(lacking(FORK("1", "")), 0);
}

TEST(lacking_precise, "Megatron-LM offloads the optimizer with the precision-aware one alone, and that with "
                      "the distributed one")
{
#define OFFLOADED "torchrun --nproc-per-node 2 " MEGATRON " --micro-batch-size 1 --optimizer-cpu-offload"
    ASSERT_INT(lacking(OFFLOADED), 1);
    ASSERT_INT(lacking(OFFLOADED " --use-precision-aware-optimizer"), 1);
    ASSERT_INT(lacking(OFFLOADED " --use-precision-aware-optimizer --use-distributed-optimizer"), 0);
}

TEST(proposed_fsdp, "of --fsdp only what is to be changed is written otherwise")
{
#define FSDP(words)                                                                                          \
    "torchrun --nproc-per-node 4 run_clm.py --model_name_or_path gpt2-tiny --per_device_train_batch_size 1 " \
    "--fsdp '" words "'"
    propose(FSDP("shard_grad_op auto_wrap offload"), false);
    assert_proposes("--fsdp full_shard auto_wrap offload");
    arena_free(arena);
    propose(FSDP("hybrid_shard"), false);
    assert_proposes("--fsdp hybrid_shard offload");
    arena_free(arena);
    propose(FSDP("hybrid_shard auto_wrap"), true);
    assert_proposes("--fsdp hybrid_shard_zero2 auto_wrap");
    arena_free(arena);
    propose(FSDP("shard_grad_op offload"), true);
    assert_proposes("--fsdp shard_grad_op");
    arena_free(arena);
#undef FSDP
}

TEST(proposed_titan, "torchtitan's keys are given as options, and the global batch with them")
{
    propose("torchrun --nproc-per-node 8 -m torchtitan.train --model.name llama3 --model.flavor 8B "
            "--training.local_batch_size 2 --training.seq_len 8192",
            false);
    assert_proposes("--training.local_batch_size 1 --training.global_batch_size 16");
    assert_proposes("--activation_checkpoint.mode full");
    assert_proposes("--parallelism.tensor_parallel_degree 2 --training.global_batch_size 16");
    assert_proposes("--training.enable_cpu_offload true");
    arena_free(arena);
}

TEST(proposed_allocator, "what the allocator is already told stays")
{
    propose("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64\ntorchrun " MEGATRON " --micro-batch-size 1",
            false);
    assert_proposes("PYTORCH_CUDA_ALLOC_CONF max_split_size_mb:64,expandable_segments:True");
    arena_free(arena);
    propose("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\ntorchrun " MEGATRON
            " --micro-batch-size 1",
            false);
    for (int i = 0; i < changes.count; i++)
        ASSERT(changes.list[i].kind != JOB_CHANGE_ALLOCATOR);
    arena_free(arena);
}

TEST(proposed_batch,
     "where no micro-batches are left to join, a larger one takes a larger batch, which is said")
{
    propose("torchrun --nproc-per-node 2 " MEGATRON " --micro-batch-size 4 --global-batch-size 8", true);
    assert_proposes("--micro-batch-size 8 --global-batch-size 16");
    for (int i = 0; i < changes.count; i++)
        ASSERT(changes.list[i].alters == (changes.list[i].kind == JOB_CHANGE_MICRO_BATCH));
    arena_free(arena);
}

TEST(proposed_chunks, "chunks of a stage are doubled and halved, where layers and micro-batches divide")
{
    static const char pipeline[] =
        "torchrun --nproc-per-node 2 " MEGATRON " --micro-batch-size 1 --global-batch-size 8 "
        "--pipeline-model-parallel-size 2 ";
    propose(pipeline, true);
    assert_proposes("--num-layers-per-virtual-pipeline-stage 2"); /* 8 layers on 2 stages in 2 chunks each */
    arena_free(arena);
    char script[600];
    snprintf(script, sizeof script, "%s--num-layers-per-virtual-pipeline-stage 2", pipeline);
    propose(script, true);
    assert_proposes("--num-layers-per-virtual-pipeline-stage 1");
    arena_free(arena);
    propose(script, false);
    assert_proposes("---num-layers-per-virtual-pipeline-stage");
    arena_free(arena);
    snprintf(script, sizeof script,
             "%s--recompute-granularity full --recompute-method block "
             "--recompute-num-layers 2",
             pipeline);
    propose(script, true);
    assert_proposes(
        "--num-layers-per-virtual-pipeline-stage 2 --recompute-num-layers 1"); /* half of a chunk */
    assert_proposes("--pipeline-model-parallel-size 1 --recompute-num-layers 4");
    arena_free(arena);
}

TEST(proposed_small, "single layers are small steps down to the next quarter")
{
    propose("torchrun " MEGATRON
            " --micro-batch-size 1 --recompute-granularity full --recompute-method block "
            "--recompute-num-layers 6",
            true);
    assert_proposes("--recompute-num-layers 5");
    assert_proposes("--recompute-num-layers 4"); /* a quarter of 8 layers less, and a step of two */
    int small = 0;
    for (int i = 0; i < changes.count; i++)
        small += changes.list[i].small;
    ASSERT_INT(small, 2);
    arena_free(arena);
}

TEST(proposed_stage, "below ZeRO 3 weights do not stay on the host")
{
    propose("cat <<E >ds.json\n{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": "
            "\"cpu\"}}}\nE\n"
            "torchrun --nproc-per-node 2 run_clm.py --model_name_or_path gpt2-tiny --deepspeed ds.json "
            "--per_device_train_batch_size 4",
            true);
    assert_proposes("ds.json:zero_optimization.stage 2 ds.json:zero_optimization.offload_param.device none");
    arena_free(arena);
}

TEST(proposed_titan_layers, "torchtitan's layers are made again in four degrees")
{
    static const char toml[] =
        "cat <<E >t.toml\n[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 8192\n"
        "local_batch_size = 1\n[activation_checkpoint]\nmode = \"none\"\nE\n"
        "torchrun --nnodes 2 --nproc-per-node 8 -m torchtitan.train --job.config_file t.toml";
    propose(toml, false);
    assert_proposes("--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op");
    assert_proposes("--activation_checkpoint.mode selective");
    assert_proposes("--activation_checkpoint.mode full");
    arena_free(arena);
    propose(toml, true);
    assert_proposes(
        "--parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 8");
    arena_free(arena);
}
