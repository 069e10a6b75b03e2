/* How launches look from outside: what starts them, how many processes that makes, and what is said of those that nobody here reads. */
#include "tests/jobs/launches.h"

#include "tests/test.h"

#define SFT "sft.py --model_name_or_path gpt2-124m --bf16 --output_dir out"

static int read_line(const char *line, struct arena *arena, struct training_job *job, struct error *err)
{
    struct jobs_request request = {0};
    return jobs_read_text(&request, "examples/launch/run.sh", line, strlen(line), arena, job, err);
}

TEST(launch_lines_ranks, "as many processes as the launcher's options say, else as the GPUs that it sees")
{
    static const struct {
        const char *line;
        int64_t ranks;
    } lines[] = {
        {"CUDA_VISIBLE_DEVICES=0,1 accelerate launch " SFT, 2},
        {"export CUDA_VISIBLE_DEVICES=0,1,3\ntorchrun --nproc_per_node gpu " SFT, 3},
        {"CUDA_VISIBLE_DEVICES=0,1,3 torchrun --nproc-per-node=auto --nnodes 2 " SFT, 6},
        {"CUDA_VISIBLE_DEVICES=0,1,3 torchrun --nproc_per_node 2 " SFT, 2},
        {"CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 4 " SFT, 4},
        {"python -m accelerate.commands.launch --num_processes 4 " SFT, 4},
        {"uv run --with trl accelerate launch --num_processes 4 " SFT, 4},
        {"CUDA_VISIBLE_DEVICES=0 python " SFT, 1},
        {"CMD=\"torchrun --nproc_per_node 5 " SFT "\"\necho $CMD\n$CMD", 5},
        {"accelerate launch " SFT, 0},
        {"torchrun --nproc_per_node gpu " SFT, 0},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct arena *arena = arena_create();
        struct training_job job;
        struct error err = {0};
        ASSERT_MSG(!read_line(lines[i].line, arena, &job, &err), "%s: %s", lines[i].line, err.text);
        ASSERT_MSG(job.launch.ranks == lines[i].ranks, "%s: %lld", lines[i].line,
                   (long long)job.launch.ranks);
        ASSERT_INT(job_count(&job, FACT_MISSING) > 0, !lines[i].ranks);
        arena_free(arena);
    }
}

TEST(launch_lines_parallel,
     "one process that sees several GPUs is no rule's business, for Trainer spreads the batch over them")
{
    struct arena *arena = arena_create();
    struct workload w;
    struct error err = {0};
    ASSERT_INT(launch_workload("CUDA_VISIBLE_DEVICES=0,1,2,3 python " SFT, arena, &w, &err), -1);
    ASSERT_HAS(err.text, "nn.DataParallel over the 4 GPUs of CUDA_VISIBLE_DEVICES");
    arena_free(arena);
}

TEST(launch_lines_unread, "a framework that is not read is named, with the line that starts it")
{
    static const char *const lines[][2] = {
        {"\ntune run --nproc_per_node 4 full_finetune_distributed --config x",
         "run.sh:2: this starts torchtune"},
        {"litgpt finetune_lora meta-llama/Llama-3.2-1B", "this starts LitGPT"},
        {"CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B", "this starts ms-swift"},
        {"python ./deepy.py train.py a.yml", "this starts GPT-NeoX"},
        {"composer train/train.py x.yaml", "this starts Composer"},
        {"colossalai run --nproc_per_node 8 train_sft.py", "this starts Colossal-AI"},
        {"nemo llm pretrain --factory llama3_8b", "this starts NeMo"},
        {"tune ls", "is it the right script?"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct arena *arena = arena_create();
        struct training_job job;
        struct error err = {0};
        ASSERT_INT(read_line(lines[i][0], arena, &job, &err), -1);
        ASSERT_HAS(err.text, lines[i][1]);
        arena_free(arena);
    }
}
