/* DeepSpeed-Chat's launches, whose configuration no file holds. */
#include "jobs/frameworks.h"
#include "jobs/job_changes.h"
#include "tests/jobs/launches.h"

#include "tests/test.h"

#define CHAT                                                                                                 \
    "deepspeed --num_gpus 8 main.py --model_name_or_path models/Llama-3.1-8B --deepspeed --zero_stage "

TEST(deepspeed_chat, "its options are what a file says elsewhere: stage, offloading, type, and its defaults")
{
    static const struct {
        const char *script;
        int sharding, micro, sequence;
        bool offloads, recomputes;
    } cases[] = {{CHAT "3", WORKLOAD_ZERO3, 16, 512, false, false},
                 {CHAT "2 --per_device_train_batch_size 4 --max_seq_len 1024 --gradient_checkpointing",
                  WORKLOAD_ZERO2, 4, 1024, false, true},
                 {CHAT "3 --offload --dtype bf16 --lora_dim 0", WORKLOAD_ZERO3, 16, 512, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena *arena = arena_create();
        struct error err = {0};
        struct workload w;
        ASSERT_MSG(!launch_workload(cases[i].script, arena, &w, &err), "%s: %s", cases[i].script, err.text);
        ASSERT_INT(w.sharding, cases[i].sharding);
        ASSERT_INT(w.micro_batch, cases[i].micro);
        ASSERT_INT(w.sequence, cases[i].sequence);
        ASSERT_INT(w.offload_weights, cases[i].offloads);
        ASSERT_INT(w.offload_optimizer, cases[i].offloads);
        ASSERT_INT(w.recompute, cases[i].recomputes ? WORKLOAD_FULL : WORKLOAD_KEEPS_ALL);
        ASSERT_INT(w.weight_bytes, 2);
        ASSERT_INT(w.master_bytes, 4);
        arena_free(arena);
    }
}

TEST(deepspeed_chat_else, "its own adapters are refused; with a file behind --deepspeed it is the Trainer's")
{
    struct arena *arena = arena_create();
    struct error err = {0};
    struct workload w;
    ASSERT_INT(launch_workload(CHAT "3 --lora_dim 128", arena, &w, &err), -1);
    ASSERT_HAS(err.text, "DeepSpeed-Chat's own adapters (--lora_dim)");
    static const char script[] =
        "cat > ds.json <<'E'\n{\"zero_optimization\": {\"stage\": 2}}\nE\n"
        "deepspeed --num_gpus 8 run_clm.py --model_name_or_path gpt2-124m --deepspeed ds.json";
    struct training_job job;
    struct jobs_request request = {0};
    ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err));
    ASSERT_STR(job_framework_name(job.framework), "Hugging Face Trainer");
    arena_free(arena);
}

TEST(deepspeed_chat_changes, "only options that it has are proposed")
{
    static const char script[] = CHAT "2";
    struct arena *arena = arena_create();
    struct error err = {0};
    struct training_job job;
    struct job_changes changes;
    struct jobs_request request = {0};
    ASSERT_OK(jobs_read_text(&request, "examples/launch/run.sh", script, strlen(script), arena, &job, &err));
    job_changes_find(&job, false, &changes);
    ASSERT(changes.count > 3);
    for (int i = 0; i < changes.count; i++)
        for (int k = 0; k < changes.list[i].count; k++) {
            const char *name = changes.list[i].edits[k].name;
            ASSERT_MSG(
                strstr("--per_device_train_batch_size --gradient_accumulation_steps --gradient_checkpointing "
                       "PYTORCH_CUDA_ALLOC_CONF",
                       name),
                "%s", name);
        }
    arena_free(arena);
}
