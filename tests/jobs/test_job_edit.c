/* A launch that is read as if something in it were written otherwise is the launch in which it is. */
#include "jobs/jobs.h"

#include "tests/test.h"

#include <string.h>

#define OPTIONS                                                                                              \
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "  \
    "--vocab-size 100"

static struct arena *arena;

static struct training_job read_edited(const char *script, const struct job_edit *edits, int count)
{
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {.edits = {edits, count}};
    ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err));
    return job;
}

TEST(edited_option, "an edited option replaces all that stood there, however its dashes were written")
{
    static const struct job_edit edit = {
        .place = JOB_EDIT_OPTION, .name = "--micro-batch-size", .value = "2"};
    arena = arena_create();
    struct training_job job = read_edited(
        "torchrun pretrain_gpt.py --micro_batch_size 8 " OPTIONS " --micro-batch-size=4 --bf16", &edit, 1);
    ASSERT_INT(job.batch.micro, 2);
    ASSERT_INT(job.precision, JOB_BF16);
    arena_free(arena);
}

TEST(edited_words, "an edit of several words is read as so many, and takes the place of all that stood there")
{
    static const struct job_edit edits[] = {
        {.place = JOB_EDIT_OPTION,
         .name = "--recompute-modules",
         .value = "mlp core_attn layernorm",
         .words = true},
        {.place = JOB_EDIT_OPTION, .name = "--micro-batch-size", .value = "2"}};
    arena = arena_create();
    struct training_job job = read_edited("torchrun pretrain_gpt.py --recompute-granularity selective "
                                          "--recompute-modules moe mla_up_proj --micro-batch-size 4 " OPTIONS,
                                          edits, 2);
    ASSERT_STR(job.recompute.modules, "mlp,core_attn,layernorm");
    ASSERT_INT(job.recompute.made_again, WORKLOAD_MLP | WORKLOAD_CORE_ATTN | WORKLOAD_LAYERNORM);
    ASSERT_INT(job.batch.micro, 2);
    arena_free(arena);
}

TEST(edited_left_out, "an option that is left out goes with its value, and what follows stays")
{
    static const struct job_edit edits[] = {
        {.place = JOB_EDIT_OPTION, .name = "--recompute-granularity", .value = NULL},
        {.place = JOB_EDIT_OPTION, .name = "--recompute-activations", .value = NULL},
        {.place = JOB_EDIT_OPTION, .name = "--sequence-parallel", .value = ""}};
    arena = arena_create();
    struct training_job job = read_edited(
        "torchrun --nproc-per-node 2 pretrain_gpt.py --recompute-granularity full --recompute-activations "
        "--micro-batch-size 4 --tensor-model-parallel-size 2 " OPTIONS,
        edits, 3);
    ASSERT_INT(job.recompute.granularity, JOB_RECOMPUTE_NONE);
    ASSERT_INT(job.batch.micro, 4);
    ASSERT(job.layout.sequence_parallel);
    arena_free(arena);
}

TEST(edited_file, "keys of a file that the script writes itself are edited, nested and new ones too")
{
    static const struct job_edit edits[] = {
        {.place = JOB_EDIT_FILE, .file = "ds.json", .name = "zero_optimization.stage", .value = "2"},
        {.place = JOB_EDIT_FILE,
         .file = "ds.json",
         .name = "zero_optimization.offload_optimizer.device",
         .value = "cpu"},
        {.place = JOB_EDIT_FILE, .file = "other.json", .name = "zero_optimization.stage", .value = "3"}};
    static const char script[] = "cat >ds.json <<EOT\n{\"train_micro_batch_size_per_gpu\": 2, "
                                 "\"zero_optimization\": {\"stage\": 1}}\nEOT\n"
                                 "deepspeed --num_gpus 4 pretrain_gpt.py --micro-batch-size 2 " OPTIONS
                                 " --deepspeed --deepspeed_config ds.json\n";
    arena = arena_create();
    struct training_job job = read_edited(script, NULL, 0);
    ASSERT_INT(job.shards.sharding, JOB_ZERO1);
    job = read_edited(script, edits, 3);
    ASSERT_INT(job.shards.sharding, JOB_ZERO2);
    ASSERT_INT(job.shards.offload_optimizer, JOB_OFFLOAD_CPU);
    arena_free(arena);
}

TEST(edited_variable, "the allocator's variable is taken from an edit before the script and its line")
{
    static const struct job_edit edit = {.place = JOB_EDIT_ENVIRONMENT,
                                         .name = "PYTORCH_CUDA_ALLOC_CONF",
                                         .value = "expandable_segments:True"};
    arena = arena_create();
    struct training_job job = read_edited("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64\n"
                                          "torchrun pretrain_gpt.py --micro-batch-size 4 " OPTIONS,
                                          &edit, 1);
    ASSERT_STR(job.kernels.allocator, "expandable_segments:True");
    arena_free(arena);
}
