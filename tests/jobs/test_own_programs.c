/* Launches that name no framework's script: llm.c's program, and a script of one's own of which --model says what it trains. */
#include "tests/test.h"

#include "jobs/frameworks.h"
#include "jobs/job_workload.h"
#include "jobs/jobs.h"
#include "planner/frameworks/workload_memory.h"

#include <string.h>

static struct arena *arena;

/* As if it stood in a script. */
static int read(const char *script, const char *model, const char *with, struct training_job *job,
                struct error *err)
{
    struct jobs_request request = {.model = model, .with = with};
    arena = arena_create();
    return jobs_read_text(&request, "run.sh", script, strlen(script), arena, job, err);
}

static void refuse(const char *script, const char *model, const char *with, const char *says)
{
    struct training_job job;
    struct error err = {0};
    ASSERT_INT(read(script, model, with, &job, &err), -1);
    ASSERT_MSG(strstr(err.text, says), "%s", err.text);
    arena_free(arena);
}

static struct workload workload_of(const char *script, const char *model, const char *with)
{
    struct training_job job;
    struct workload w;
    struct error err = {0};
    ASSERT_OK(read(script, model, with, &job, &err));
    ASSERT_INT(job_count(&job, FACT_MISSING), 0);
    ASSERT_OK(job_workload(&job, &w, &err));
    arena_free(arena);
    return w;
}

static int64_t activation_mib(const char *script)
{
    struct workload w = workload_of(script, NULL, NULL);
    struct workload_memory m;
    struct error err = {0};
    ASSERT_OK(workload_memory(&w, &m, &err));
    return m.peak.by_role[ROLE_ACTIVATION] >> 20;
}

TEST(llmc_launch, "llm.c's options say batch, accumulation, states and what is made again")
{
    struct training_job job;
    struct error err = {0};
    ASSERT_OK(read(
        "make train_gpt2cu USE_CUDNN=1\nmpirun -np 8 ./train_gpt2cu -i 'a_*.bin' -e d24 -b 16 -d 262144 -z 1 "
        "-x -1 -r 2 -h 1\n",
        NULL, NULL, &job, &err));
    ASSERT_STR(job_framework_name(job.framework), "llm.c");
    ASSERT_INT(job.layout.dp, 8);
    ASSERT_INT(job.batch.micro, 16);
    ASSERT_INT(job.batch.accumulation, 2);
    ASSERT_INT(job.batch.global, 256); /* sequences, of 262,144 tokens */
    ASSERT_INT(job_count(&job, FACT_UNKNOWN), 0);
    struct workload w;
    ASSERT_OK(job_workload(&job, &w, &err));
    arena_free(arena);
    ASSERT_INT(w.model.layers, 24);
    ASSERT_INT(w.model.vocab, 50304);
    ASSERT_INT(w.sharding, WORKLOAD_DISTRIBUTED_OPTIMIZER);
    ASSERT_INT(w.gradient_bytes, 2);
    ASSERT_INT(w.master_bytes, 4);
    ASSERT_INT(w.modules, WORKLOAD_GELU | WORKLOAD_NORM_RESULTS);
    w = workload_of("./train_gpt2cu -b 4 -z 1 -w 0 -r 0", NULL, NULL);
    ASSERT_INT(w.sharding, WORKLOAD_REPLICATED); /* nobody to split them with */
    ASSERT_INT(w.master_bytes, 0);
    ASSERT_INT(w.recompute, WORKLOAD_KEEPS_ALL);
    ASSERT_INT(workload_of("./train_gpt2cu", NULL, NULL).modules, WORKLOAD_GELU); /* -r 1 is the default */
}

/* Its own log of -r 2, micro-batches of 20 (pull request 676): 12,042 MiB of activations; 40 MiB are one of 1,024 x 1,024 x 20. */
TEST(llmc_memory, "what llm.c takes for activations is what its log says")
{
    ASSERT_INT(activation_mib("./train_gpt2cu -e d24 -b 20 -r 2"), 12042);
    ASSERT_INT(activation_mib("./train_gpt2cu -e d24 -b 20 -r 1"), 12042 + 2 * 24 * 40);
    ASSERT_INT(activation_mib("./train_gpt2cu -e d24 -b 20 -r 0"), 12042 + 2 * 24 * 40 + 23 * 4 * 40);
}

TEST(llmc_refusals, "what llm.c would not start with is refused by option and value")
{
    refuse("./train_gpt2cu -e d13", NULL, NULL, "-e d13: llm.c has no such model; give d12");
    refuse("./train_gpt2cu -t 2048", NULL, NULL, "-t 2048: the model has 1024 positions");
    refuse("mpirun -np 3 ./train_gpt2cu -b 4 -d 16384", NULL, NULL,
           "-d 16384: no multiple of the 12288 tokens");
    ASSERT_INT(workload_of("./train_gpt2cu -e gpt3:c768 -t 2048", NULL, NULL).model.positions, 2048);
}

TEST(plain_launch,
     "a script of one's own is plain DDP with autocast and AdamW, once --model and --with say what it trains")
{
    static const char script[] = "torchrun --nproc_per_node=8 train.py --lr 1e-4\n";
    struct workload w = workload_of(script, "gpt2-124m", "--micro-batch 4 --seq-len 512 --global-batch 64");
    ASSERT_INT(w.dp, 8);
    ASSERT_INT(w.sharding, WORKLOAD_REPLICATED);
    ASSERT(w.autocast && w.in_buckets);
    ASSERT_INT(w.weight_bytes, 4);
    ASSERT_INT(w.compute_bytes, 2);
    ASSERT_INT(w.step, WORKLOAD_STEP_FOREACH);
    ASSERT_INT(w.micro_batches, 2);
    ASSERT_INT(w.sequence, 512);
    w = workload_of(script, "gpt2-124m",
                    "--micro-batch 4 --precision pure-bf16 --recompute --optimizer adamw-fused");
    ASSERT_INT(w.sequence, 1024); /* all positions */
    ASSERT_INT(w.weight_bytes, 2);
    ASSERT_INT(w.recompute, WORKLOAD_FULL);
    ASSERT_INT(w.step, WORKLOAD_STEP_FUSED);
    ASSERT_INT(workload_of(script, "gpt2-124m", "--micro-batch 4 --precision fp32").compute_bytes, 4);
}

/* fp32 weights, gradients, two moments, and DDP's buckets, which are as large as the gradients: between steps all but gradients. */
TEST(plain_memory, "states of plain DDP are weights, moments and buckets in fp32")
{
    struct workload w =
        workload_of("torchrun --nproc_per_node=2 train.py", "gpt2-124m", "--micro-batch 1 --seq-len 64");
    struct workload_memory m;
    struct error err = {0};
    ASSERT_OK(workload_memory(&w, &m, &err));
    double states = (double)(m.peak.by_role[ROLE_PARAMETER] + m.peak.by_role[ROLE_OPTIMIZER]);
    ASSERT(states > 12.0 * 124.4e6 && states < 20.2 * 124.4e6);
}

TEST(plain_refusals,
     "a script of no framework is sent on with a line that asks the same, and what it trains is asked for")
{
    static const char script[] = "torchrun --nproc_per_node=4 train.py\n";
    refuse(script, NULL, NULL, "memplan predict gpt2-124m --dp 4");
    refuse(script, NULL, NULL, "--model gpt2-124m --with='--micro-batch 4 --seq-len 1024'");
    refuse(script, "gpt2-124m", "--micro-batch 4 --precision fp8", "--precision fp8: it must be bf16");
    refuse(script, "gpt2-124m", "--micro-batch 4 --global-batch 24",
           "--global-batch 24 is no multiple of 4 ranks");
    struct training_job job;
    struct error err = {0};
    ASSERT_OK(read(script, "gpt2-124m", NULL, &job, &err));
    ASSERT_INT(job_count(&job, FACT_MISSING), 1);
    arena_free(arena);
}

TEST(plain_last, "a framework's own launch is its own, whatever --model says")
{
    struct training_job job;
    struct error err = {0};
    ASSERT_OK(read("torchrun --nproc_per_node 8 run_clm.py --per_device_train_batch_size 2", "gpt2-124m",
                   NULL, &job, &err));
    ASSERT_STR(job_framework_name(job.framework), "Hugging Face Trainer");
    arena_free(arena);
}
