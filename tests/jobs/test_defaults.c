/* What frameworks take where a launch says nothing, and what they ask for: that it is noted so, each with the source that says it.
 * What it means for memory is in test_option_effects.c. */
#include "tests/test.h"

#include "base/text.h"
#include "jobs/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT                                                                                                  \
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 "   \
    "--seq-length 32 --max-position-embeddings 32 --micro-batch-size 1 --vocab-size 100 --bf16 "
#define LLAMA "--model_name_or_path models/Llama-3.1-8B "

static const struct {
    const char *script;
    enum fact_kind kind;
    const char *name, *value, *origin;
} facts[] = {
    /* core 0.12 takes one group, 0.16 as many as heads */
    {GPT "--group-query-attention", FACT_MISSING, "--num-query-groups", "?", "--with='--num-query-groups 8'"},
    {"torchrun pretrain_gpt.py --num-layers 2 --vocab-file v.json --merge-file m.txt", FACT_DEFAULT,
     "--vocab-size", "50257", "GPT2BPETokenizer unless told otherwise"},
    {"torchrun pretrain_bert.py --num-layers 2 --micro-batch-size 1", FACT_MISSING, "--vocab-size", "?",
     "nothing says it"},
    {GPT "--multi-latent-attention", FACT_DEFAULT, "--kv-lora-rank", "32", "Megatron-LM"},
    {GPT "--optimizer sgd", FACT_DEFAULT, "--sgd-momentum", "0.9", "Megatron-LM"},
    {GPT "--recompute-granularity full --recompute-method uniform", FACT_DEFAULT, "--recompute-num-layers",
     "1", "core wants it"},
    {GPT "--recompute-granularity full", FACT_MISSING, "--recompute-method", "?",
     "refuses full recomputation"},
    {"torchrun run_clm.py " LLAMA, FACT_DEFAULT, "--optim", "adamw_torch_fused", "transformers 4.57"},
    {"torchrun run_clm.py " LLAMA, FACT_DEFAULT, "--per_device_train_batch_size", "8", "transformers 4.57"},
    {"torchrun run_clm.py " LLAMA, FACT_DEFAULT, "--block_size", "1024", "at most 1024"},
    {"torchrun sft.py " LLAMA, FACT_DEFAULT, "--gradient_checkpointing", "true", "TRL 0.23"},
    {"torchrun sft.py " LLAMA, FACT_DEFAULT, "--bf16", "true", "TRL 0.23"},
    {"torchrun sft.py --use_peft " LLAMA, FACT_DEFAULT, "--lora_dropout", "0.05", "TRL 0.23"},
    {"torchrun train.py --use_peft_lora True " LLAMA, FACT_DEFAULT, "--lora_dropout", "0.1",
     "PEFT's examples/sft/train.py"},
    {"torchrun train.py --use_peft_lora True " LLAMA, FACT_DEFAULT, "--lora_r", "64",
     "PEFT's examples/sft/train.py"},
    {"torchrun sft.py --use_peft " LLAMA, FACT_DEFAULT, "--lora_target_modules", "q_proj,v_proj",
     "PEFT 0.21"},
    {"torchrun sft.py --use_peft --model_name_or_path facebook/opt-125m", FACT_DEFAULT,
     "--lora_target_modules", "q_proj,v_proj", "PEFT 0.21"},
    {"torchrun sft.py --use_peft --model_name_or_path EleutherAI/gpt-j-6b", FACT_DEFAULT,
     "--lora_target_modules", "q_proj,v_proj", "PEFT 0.21"},
    {"torchrun sft.py --use_peft --model_name_or_path google/gemma-2b", FACT_DEFAULT, "--lora_target_modules",
     "q_proj,v_proj", "PEFT 0.21"},
    {"torchrun sft.py --use_peft --model_name_or_path google/gemma-2-2b", FACT_DEFAULT,
     "--lora_target_modules", "q_proj,v_proj", "PEFT 0.21"},
    {"torchrun sft.py --use_peft --model_name_or_path google/gemma-3-1b-pt", FACT_DEFAULT,
     "--lora_target_modules", "q_proj,v_proj", "PEFT 0.21"},
    {"torchrun sft.py --use_peft --model_name_or_path bigscience/bloom-560m", FACT_DEFAULT,
     "--lora_target_modules", "query_key_value", "PEFT 0.21"},
    {"torchrun sft.py --use_peft --model_name_or_path tiiuae/falcon-7b", FACT_DEFAULT,
     "--lora_target_modules", "query_key_value", "PEFT 0.21"},
    {"torchrun sft.py --use_peft --model_name_or_path microsoft/phi-2", FACT_DEFAULT, "--lora_target_modules",
     "q_proj,v_proj,fc1,fc2", "PEFT 0.21"},
    {"torchrun run_clm.py --use_peft --model_name_or_path models/gpt2", FACT_DEFAULT, "--lora_target_modules",
     "c_attn", "PEFT 0.21"},
    {"accelerate launch --num_processes 2 --use_deepspeed run_clm.py " LLAMA, FACT_DEFAULT, "zero_stage", "2",
     "accelerate"},
    {"torchrun -m torchtitan.train --module llama3 --config llama3_8b", FACT_MISSING, "--config", "llama3_8b",
     "not executed"},
    {"torchrun -m torchtitan.train", FACT_DEFAULT, "activation_checkpoint.mode", "selective", "torchtitan"},
};

TEST_LOOP(defaults, "what frameworks take where nothing is said, or ask for", sizeof facts / sizeof facts[0])
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {0};
    const struct fact *found = NULL;
    ASSERT_OK(jobs_read_text(&request, "examples/launch/run.sh", facts[_i].script, strlen(facts[_i].script),
                             arena, &job, &err));
    for (int i = 0; i < job.facts.count; i++)
        if (!strcmp(job.facts.list[i].name, facts[_i].name))
            found = &job.facts.list[i];
    ASSERT_MSG(found, "%s: nothing is noted of %s", facts[_i].script, facts[_i].name);
    ASSERT_INT(found->kind, facts[_i].kind);
    ASSERT_STR(found->value, facts[_i].value);
    ASSERT_HAS(found->origin, facts[_i].origin);
    arena_free(arena);
}

TEST(defaults_unused, "defaults of what a job does not have are not listed")
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {0};
    ASSERT_OK(jobs_read_text(&request, "run.sh", GPT, strlen(GPT), arena, &job, &err));
    for (int i = 0; i < job.facts.count; i++)
        for (int k = 0; k < 4; k++) {
            static const char *const names[] = {"--kv-lora-rank", "--v-head-dim", "--sgd-momentum", "--moe-"};
            ASSERT(strncmp(job.facts.list[i].name, names[k], strlen(names[k])));
        }
    arena_free(arena);
}

TEST(defaults_command_line,
     "accelerate's command line comes before its file, whose counts are then not listed")
{
    static const char script[] =
        "cat > a.yaml <<'E'\nnum_processes: 8\nnum_machines: 1\nmixed_precision: fp16\nE\n"
        "accelerate launch --config_file a.yaml --num_processes 32 --num_machines 4 "
        "--mixed_precision bf16 run_clm.py " LLAMA;
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {0};
    ASSERT_OK(jobs_read_text(&request, "examples/launch/run.sh", script, strlen(script), arena, &job, &err));
    ASSERT_INT(job.launch.ranks, 32);
    ASSERT_INT(job.launch.nodes, 4);
    ASSERT_INT(job.precision, JOB_AUTOCAST_BF16);
    for (int i = 0; i < job.facts.count; i++)
        ASSERT(strcmp(job.facts.list[i].name, "num_processes"));
    arena_free(arena);
}

TEST(defaults_inline_json, "an object in place of a file's name is read as such")
{
    static const char script[] = "torchrun --nproc_per_node 8 run_clm.py --fsdp 'full_shard auto_wrap' "
                                 "--fsdp_config '{\"activation_checkpointing\": true}' " LLAMA;
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {0};
    ASSERT_OK(jobs_read_text(&request, "examples/launch/run.sh", script, strlen(script), arena, &job, &err));
    ASSERT_INT(job.recompute.granularity, JOB_RECOMPUTE_FULL);
    arena_free(arena);
}

/* Options of a program in a file: which of two micro-batches is taken, and how many are accumulated. */
static const struct {
    const char *launch;
    int64_t micro, accumulation;
} files[] = {
    {"run_sft.py args.yaml", 3, 5},
    {"run_sft.py args.yaml --per_device_train_batch_size 2", 2, 5},
    {"src/sft.py --config args.yaml --gradient_accumulation_steps=7", 3, 7},
    {"src/sft.py --gradient_accumulation_steps 6 --config args.yaml --bf16 True", 3, 6},
    {"run_clm.py args.json --per_device_train_batch_size 2", 2, 1},
};

TEST_LOOP(defaults_options_file,
          "options of a program that stand in a file are read, and the line comes before them",
          sizeof files / sizeof files[0])
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {0};
    const char *script = arena_printf(
        arena,
        "cat > args.yaml <<'E'\nmodel_name_or_path: models/gpt2\ndataset_mixer:\n  a/b: 1.0\n"
        "per_device_train_batch_size: 3\ngradient_accumulation_steps: 5\nreport_to:\n- wandb\nE\n"
        "cat > args.json <<'E'\n{\"model_name_or_path\": \"models/gpt2\", \"per_device_train_batch_size\": "
        "3}\nE\n"
        "torchrun --nproc_per_node 2 %s\n",
        files[_i].launch);
    ASSERT_OK(jobs_read_text(&request, "examples/launch/run.sh", script, strlen(script), arena, &job, &err));
    ASSERT_INT(job.batch.micro, files[_i].micro);
    ASSERT_INT(job.batch.accumulation, files[_i].accumulation);
    ASSERT_INT(job_count(&job, FACT_MISSING), 0);
    ASSERT_INT(job_count(&job, FACT_UNKNOWN), 0);
    arena_free(arena);
}

static void write_text(const char *folder, const char *name, const char *content)
{
    char path[200];
    struct text out = {0};
    struct error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    text_add(&out, content);
    ASSERT_OK(text_write(&out, path, &err));
    text_free(&out);
}

TEST(defaults_tokenizer, "blocks of text are as long as the tokenizer allows, and the model has positions")
{
    static const struct {
        const char *limit, *options;
        int64_t sequence;
    } cases[] = {{"24", "", 24},
                 {"1e30", "", 48},
                 {"96", "", 48},
                 {"24", "--block_size 16", 16},
                 {"24", "--block_size 40", 24}};
    static char folder[] = "/tmp/memplan-tokenizer-XXXXXX";
    ASSERT(mkdtemp(folder));
    write_text(folder, "config.json",
               "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8, "
               "\"num_attention_heads\": 2, "
               "\"intermediate_size\": 16, \"vocab_size\": 10, \"max_position_embeddings\": 48, "
               "\"torch_dtype\": \"bfloat16\"}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena *arena = arena_create();
        struct training_job job;
        struct error err = {0};
        struct jobs_request request = {0};
        const char *script =
            arena_printf(arena, "python run_clm.py --torch_dtype auto --model_name_or_path %s %s", folder,
                         cases[i].options);
        write_text(folder, "tokenizer_config.json",
                   arena_printf(arena, "{\"model_max_length\": %s}", cases[i].limit));
        ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err));
        ASSERT_INT(job.batch.sequence, cases[i].sequence);
        ASSERT_INT(job.precision, JOB_PURE_BF16);
        arena_free(arena);
    }
}

/* Of 8 ranks. */
TEST(defaults_batches, "of DeepSpeed's three sizes of batches those that are left out follow from the others")
{
    static const struct {
        const char *json;
        int64_t global, micro, accumulation;
    } cases[] = {{"\"train_batch_size\": 96", 96, 12, 1},
                 {"\"train_batch_size\": 96, \"gradient_accumulation_steps\": 3", 96, 4, 3},
                 {"\"train_batch_size\": 96, \"train_micro_batch_size_per_gpu\": 2", 96, 2, 6},
                 {"\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 5", 80, 2, 5},
                 {"\"train_micro_batch_size_per_gpu\": 7", 56, 7, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena *arena = arena_create();
        struct training_job job;
        struct jobs_request request = {0};
        struct error err = {0};
        const char *script = arena_printf(arena,
                                          "cat > ds.json <<'E'\n{%s}\nE\ndeepspeed --num_gpus 8 run_clm.py "
                                          "--per_device_train_batch_size 0 --gradient_accumulation_steps 0 "
                                          "--deepspeed ds.json --model_name_or_path gpt2-124m\n",
                                          cases[i].json);
        ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err));
        ASSERT_INT(job.batch.global, cases[i].global);
        ASSERT_INT(job.batch.micro, cases[i].micro);
        ASSERT_INT(job.batch.accumulation, cases[i].accumulation);
        arena_free(arena);
    }
}
