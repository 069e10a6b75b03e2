/* Launch scripts as people write them, in tests/jobs/scripts/: arrays, functions, here-documents, batch systems, containers,
 * each read without running anything. */
#include "tests/test.h"

#include "jobs/jobs.h"

#include <string.h>

#define FOLDER "tests/jobs/scripts/"

struct expected {
    const char *script;
    const char *framework;
    int sharding;
    int64_t ranks, dp, tp, micro, global, sequence;
    const char *missing, *unknown; /* names of facts of these kinds, commas between; the rest has none */
};

static const struct expected scripts[] = {
    {"arrays.sh", "Megatron-LM", JOB_REPLICATED, 8, 1, 8, 1, 16, 2048, "", ""},
    {"slurm_accelerate.sh", "Hugging Face Trainer", JOB_FSDP1, 32, 32, 1, 2, 256, 4096, "",
     "source ~/venv/bin/activate"},
    {"functions.sh", "Megatron-LM", JOB_REPLICATED, 16, 4, 4, 1, 64, 4096, "", ""},
    {"heredoc.sh", "Hugging Face Trainer", JOB_ZERO2, 4, 4, 1, 2, 8, 2048, "", ""},
    {"slurm_container.sh", "Megatron-LM", JOB_DISTRIBUTED_OPTIMIZER, 16, 8, 2, 2, 128, 2048, "", ""},
    {"mpi_module.sh", "torchtitan", JOB_FSDP2, 8, 4, 2, 1, 4, 8192, "", ""},
    {"plain_python.sh", "Hugging Face Trainer", JOB_REPLICATED, 1, 1, 1, 4, 4, 1024, "", ""},
    {"trl_command.sh", "Hugging Face Trainer", JOB_REPLICATED, 0, 0, 1, 1, 0, 4096, "ranks", ""},
    {"accelerate_options.sh", "Hugging Face Trainer", JOB_ZERO2, 8, 8, 1, 1, 8, 2048, "", "$EXTRA"},
};

static const char *names_of(const struct training_job *job, enum fact_kind kind, struct arena *arena)
{
    const char *names = "";
    for (int i = 0; i < job->facts.count; i++)
        if (job->facts.list[i].kind == kind)
            names = arena_printf(arena, "%s%s%s", names, *names ? "," : "", job->facts.list[i].name);
    return names;
}

static void check(const struct expected *e)
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {.script = arena_printf(arena, FOLDER "%s", e->script)};
    ASSERT_MSG(!jobs_read(&request, arena, &job, &err), "%s: %s", e->script, err.text);
    const int64_t got[] = {job.shards.sharding, job.launch.ranks, job.layout.dp,     job.layout.tp,
                           job.batch.micro,     job.batch.global, job.batch.sequence},
                  wanted[] = {e->sharding, e->ranks, e->dp, e->tp, e->micro, e->global, e->sequence};
    static const char *const names[] = {"sharding", "ranks", "dp", "tp", "micro", "global", "sequence"};
    for (int i = 0; i < 7; i++)
        ASSERT_MSG(got[i] == wanted[i], "%s: %s is %lld, not %lld", e->script, names[i], (long long)got[i],
                   (long long)wanted[i]);
    ASSERT_STR(job_framework_name(job.framework), e->framework);
    ASSERT_STR(names_of(&job, FACT_MISSING, arena), e->missing);
    ASSERT_STR(names_of(&job, FACT_UNKNOWN, arena), e->unknown);
    arena_free(arena);
}

TEST_LOOP(real_scripts, "scripts as people write them are read, and what is not known in them is named",
          sizeof scripts / sizeof scripts[0])
{
    check(&scripts[_i]);
}

TEST(real_scripts_hosts,
     "DeepSpeed's file of hosts says how many there are, as far as options leave that to it")
{
    static const struct {
        const char *hosts, *options;
        int64_t nodes, ranks; /* 0: it is refused */
    } cases[] = {
        {"a slots=8\nb slots=8\n", "", 2, 16},
        {"# two\n\na slots=8\nb slots=4\n", "", 2, 12},
        {"a slots=8\nb slots=8\nc slots=8\n", "--num_nodes 2", 2, 16},
        {"a slots=8\nb slots=8\n", "--num_gpus=4", 2, 8},
        {"a\n", "", 0, 0},
        {"# none\n", "", 0, 0},
        {"a slots=100000\n", "", 0, 0}, /* and not 10000, with a digit left */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena *arena = arena_create();
        struct training_job job;
        struct error err = {0};
        struct jobs_request request = {0};
        const char *script = arena_printf(arena,
                                          "cat > hosts <<'E'\n%sE\ndeepspeed --hostfile=hosts %s run_clm.py "
                                          "--model_name_or_path gpt2-124m --bf16\n",
                                          cases[i].hosts, cases[i].options);
        int status = jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err);
        ASSERT_MSG(status == (cases[i].ranks ? 0 : -1), "%s: %s", script, err.text);
        ASSERT(!status || strstr(err.text, "worker-1 slots=8"));
        ASSERT_INT(status ? 0 : job.launch.nodes, cases[i].nodes);
        ASSERT_INT(status ? 0 : job.launch.ranks, cases[i].ranks);
        arena_free(arena);
    }
}

TEST(real_scripts_devices,
     "deepspeed starts a process for each GPU that it is let see, where nothing else says how many")
{
    static const struct {
        const char *script;
        int64_t ranks;
    } cases[] = {{"CUDA_VISIBLE_DEVICES=0,1,2 deepspeed", 3},
                 {"export CUDA_VISIBLE_DEVICES=4,5\ndeepspeed", 2},
                 {"CUDA_VISIBLE_DEVICES=0,1,2 deepspeed --num_gpus 2", 2},
                 {"deepspeed", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena *arena = arena_create();
        struct training_job job;
        struct error err = {0};
        struct jobs_request request = {0};
        const char *script =
            arena_printf(arena, "%s run_clm.py --model_name_or_path gpt2-124m", cases[i].script);
        ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err));
        ASSERT_INT(job.launch.ranks, cases[i].ranks);
        arena_free(arena);
    }
}

TEST(real_scripts_allocator, "an environment for PyTorch's allocator that srun is told to export is seen")
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {.script = FOLDER "slurm_container.sh"};
    ASSERT_OK(jobs_read(&request, arena, &job, &err));
    ASSERT(job.kernels.allocator);
    ASSERT_STR(job.kernels.allocator, "expandable_segments:True");
    arena_free(arena);
}

TEST(real_scripts_named,
     "a script that a launch line starts is read with its arguments and the variables before it")
{
    static const char *const command[] = {"GPUS=2", "NNODES=4", "bash", FOLDER "functions.sh", "2"};
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {.command = command, .command_count = 5};
    ASSERT_OK(jobs_read(&request, arena, &job, &err));
    ASSERT_INT(job.launch.ranks, 8);
    ASSERT_INT(job.layout.tp, 2);
    arena_free(arena);
}

TEST(real_scripts_launcher,
     "a launcher in a variable that nothing decides is asked for by the variable's name")
{
    static const char script[] = "if [ -z \"$JOB\" ]; then L='torchrun --nproc_per_node 4'; else L=srun; fi\n"
                                 "$L train.py --model_name_or_path gpt2-124m\n";
    const struct shell_variable set[] = {{"L", "torchrun --nproc_per_node 2"}};
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {0};
    ASSERT_INT(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err), -1);
    ASSERT_HAS(err.text, "run.sh:2: what starts the training is not known: $L is set inside an if");
    ASSERT_HAS(err.text, "--set L='torchrun ...'");
    request.set = set;
    request.set_count = 1;
    ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err));
    ASSERT_INT(job.launch.ranks, 2);
    arena_free(arena);
}
